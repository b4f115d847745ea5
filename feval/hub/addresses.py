"""Addresses on the Hugging Face Hub, `hf://namespace/name@revision/path`, read and written.

An address stands wherever the folder of a recording does. `datasets/` before the namespace may be left out, since recordings
are dataset repositories; a revision is a commit, a tag or a branch, and none is the branch `main`. The command line makes a path
of what is to be a folder, which halves the slashes: `hf:/namespace/name` is read as well.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import PurePath

from feval.errors import UsageError

__all__ = ["Address", "is_address", "is_commit", "parse_address", "places"]

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATH_PIECE = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9._@=+ -]{0,199}")


@dataclass(frozen=True, slots=True)
class Address:
    """A place on the Hub.

    Attributes:
        repo_id: "namespace/name" of a dataset repository.
        revision: a commit, tag or branch; `None` is the branch `main`.
        path: of a folder or file in the repository, with "/" between the names; empty for the whole of it.
    """

    repo_id: str
    revision: str | None = None
    path: str = ""

    def __str__(self) -> str:
        revision = "" if self.revision is None else "@" + self.revision.replace("/", "%2F")
        return f"hf://{self.repo_id}{revision}{'/' if self.path else ''}{self.path}"

    def at(self, revision: str) -> Address:
        """The same place at another revision."""
        return replace(self, revision=revision)

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return self.revision is not None and is_commit(self.revision)


def is_commit(revision: str) -> bool:
    """Whether a revision is a whole commit: 40 hex digits."""
    return _COMMIT.fullmatch(revision) is not None


def is_address(place: object) -> bool:
    """Whether a place is on the Hub, and no folder."""
    return isinstance(place, (str, PurePath)) and _text(place).startswith("hf:/")


def parse_address(place: str | PurePath) -> Address:
    """Read an address.

    Raises:
        UsageError: it is none, or names what cannot be.
    """
    text = _text(place)
    pieces = text.removeprefix("hf:").lstrip("/").removesuffix("/").split("/") if is_address(place) else []
    # "datasets/ns/name": only a repository has a revision, so "datasets/name@rev/path" is of the namespace "datasets".
    if len(pieces) >= 3 and pieces[0] == "datasets" and "@" not in pieces[1]:
        pieces = pieces[1:]
    elif len(pieces) >= 3 and pieces[0] in {"models", "spaces", "buckets"} and "@" not in pieces[1]:
        raise UsageError(f"{text} is no dataset repository, and recordings are kept in those: hf://namespace/name.")
    if len(pieces) < 2:
        raise _wrong(text)
    name, at, revision = pieces[1].partition("@")
    rest = pieces[2:]
    if revision == "refs" and len(rest) >= 2:  # refs/pr/3, with its slashes as they are
        revision, rest = "/".join(["refs", *rest[:2]]), rest[2:]
    revision = revision.replace("%2F", "/").replace("%2f", "/")
    sound = (
        all(_NAME.fullmatch(piece) and "--" not in piece and ".." not in piece for piece in (pieces[0], name))
        and (not at or (_REVISION.fullmatch(revision) and ".." not in revision))
        and all(_PATH_PIECE.fullmatch(piece) for piece in rest)
    )
    if not sound:
        raise _wrong(text)
    return Address(f"{pieces[0]}/{name}", revision if at else None, "/".join(rest))


def places(text: str) -> list[str]:
    """Split the folders and addresses of FEVAL_RECORDING, which stand as in PATH; an address keeps its colon."""
    found: list[str] = []
    for piece in text.split(os.pathsep):
        if found and found[-1] == "hf" and piece.startswith("/"):
            found[-1] = f"hf:{piece}"
        else:
            found.append(piece)
    return [piece for piece in found if piece]


def _text(place: str | PurePath) -> str:
    return place.as_posix() if isinstance(place, PurePath) else place


def _wrong(text: str) -> UsageError:
    return UsageError(
        f"An address on the Hub is written hf://namespace/name@revision, where the revision is a commit, a tag or a branch; "
        f"found {text!r:.200}."
    )

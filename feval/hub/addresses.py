"""Addresses on the Hugging Face Hub: `hf://namespace/name@revision/path`.

An address can be used wherever the folder of a recording can. Recordings are dataset repositories,
so `datasets/` before the namespace is optional. A revision is a commit, a tag or a branch; the
default is the branch `main`. The command line turns folder arguments into paths, which collapses
the double slash: `hf:/namespace/name` is read as well.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import PurePath

from feval.errors import UsageError
from feval.values import frozen

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATH_PIECE = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9._@=+ -]{0,199}")


@frozen
class Address:
    """A dataset repository on the Hub, or a path in it.

    The revision is a commit, tag or branch, `None` for the branch `main`; the path is empty for the
    whole repository.
    """

    repo_id: str
    revision: str | None = None
    path: str = ""

    def __str__(self) -> str:
        revision = "" if self.revision is None else "@" + self.revision.replace("/", "%2F")
        return f"hf://{self.repo_id}{revision}{'/' if self.path else ''}{self.path}"

    def at(self, revision: str) -> Address:
        """Return the same place at another revision."""
        return replace(self, revision=revision)

    def inside(self, name: str) -> str:
        """Return the repository path of a file below this place."""
        return f"{self.path}/{name}" if self.path else name

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return self.revision is not None and is_commit(self.revision)


def is_commit(revision: str) -> bool:
    """Return whether a revision is a full commit: 40 hex digits."""
    return _COMMIT.fullmatch(revision) is not None


def is_address(place: object) -> bool:
    """Return whether a place is on the Hub rather than a folder."""
    return isinstance(place, str | PurePath) and _text(place).startswith("hf:/")


def parse_address(place: str | PurePath) -> Address:
    """Parse an address; raise a `UsageError` where it is not valid."""
    text = _text(place)
    pieces = text.removeprefix("hf:").lstrip("/").removesuffix("/").split("/")
    # "datasets/ns/name": only a repository has a revision, so "datasets/name@rev/path" is in the
    # namespace "datasets".
    if len(pieces) >= 3 and pieces[0] == "datasets" and "@" not in pieces[1]:
        pieces = pieces[1:]
    elif len(pieces) >= 3 and pieces[0] in {"models", "spaces", "buckets"} and "@" not in pieces[1]:
        raise UsageError(
            f"{text} is not a dataset repository, and recordings live in those:"
            " hf://namespace/name."
        )
    namespace, first, *rest = (*pieces, "", "")[: max(len(pieces), 2)]
    name, at, revision = first.partition("@")
    if revision == "refs" and len(rest) >= 2:  # refs/pr/3, with plain slashes
        revision, rest = "/".join(["refs", *rest[:2]]), rest[2:]
    revision = revision.replace("%2F", "/").replace("%2f", "/")
    valid = (
        is_address(place)
        and all(
            _NAME.fullmatch(piece) and "--" not in piece and ".." not in piece
            for piece in (namespace, name)
        )
        and (not at or (_REVISION.fullmatch(revision) and ".." not in revision))
        and all(_PATH_PIECE.fullmatch(piece) for piece in rest)
    )
    if not valid:
        raise UsageError(
            "An address on the Hub looks like hf://namespace/name@revision, where the revision is a"
            f" commit, a tag or a branch; found {text!r:.200}."
        )
    return Address(f"{namespace}/{name}", revision if at else None, "/".join(rest))


def split_places(text: str) -> list[str]:
    """Split FEVAL_RECORDING, folders and addresses separated as in PATH; the colon of an address
    stays part of it.
    """
    places: list[str] = []
    for piece in text.split(os.pathsep):
        if places and places[-1] == "hf" and piece.startswith("/"):
            places[-1] = f"hf:{piece}"
        else:
            places.append(piece)
    return [place for place in places if place]


def _text(place: str | PurePath) -> str:
    return place.as_posix() if isinstance(place, PurePath) else place

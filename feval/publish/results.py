"""Results that travel with a recording: receipts, tables and pictures, under `results/<name>/` of its repository.

    results/gsm8k-curve/receipt.json      recordings: [{"hash": ..., "path": "../.."}]

A receipt in a repository names the recording beside it by `../..`, so that it is right in every copy of the repository, and at
every commit. What a receipt rests on has to be within reach of everybody: the recording of the repository, or one that has an
address with a commit on the Hub. Results are no content of a recording; its hash does not know of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from feval.comparison.plan import Plan
from feval.errors import ConflictError, FevalError, ReleaseError
from feval.hub import is_address, parse_address
from feval.receipts.receipts import read_receipt
from feval.report.text import counted

__all__ = ["FOLDER", "described", "result_files"]

FOLDER = "results"
"""The folder of a repository that holds the results."""

_RECEIPT = "receipt.json"
_TOP = "../.."  # from results/<name>/ to the recording
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@=+-]{0,99}")
_KINDS = frozenset((".json", ".csv", ".parquet", ".png", ".svg", ".html", ".toml", ".md"))
_MOST_FILES = 1000


def result_files(places: Sequence[Path], recording_hash: str) -> dict[str, Path | bytes]:
    """Collect results to be pushed beside a recording.

    Args:
        places: folders that `feval run`, `curve`, `compare`, `estimate` or `grade` wrote with --out, or single files of them. A
            folder's name, or that of the folder a file lies in, is the name of the result.
        recording_hash: of the recording in the repository.

    Returns:
        Path in the repository -> the file, or its bytes where it named a folder of this machine; empty without places.

    Raises:
        ReleaseError: no such place, a file that is no result, or a name that cannot stand in an address.
        ConflictError: a receipt rests on a recording that others cannot have, or two results have one name.
        UsageError: a receipt that cannot be read.
    """
    files: dict[str, Path | bytes] = {}
    sources: dict[str, Path] = {}
    for place in places:
        folder = place if place.is_dir() else place.parent
        name = folder.resolve().name
        if not _NAME.fullmatch(name):
            raise ReleaseError(
                f"The results in {folder} would be called {name!r:.80}; a name on the Hub has letters, digits and . _ @ = + - "
                "only. Rename the folder."
            )
        if sources.setdefault(name, folder.resolve()) != folder.resolve():
            raise ConflictError(f"{sources[name]} and {folder} would both be {FOLDER}/{name}. Rename one of them.")
        for path in _found(place):
            files[f"{FOLDER}/{name}/{path.relative_to(folder).as_posix()}"] = path
    for name in sources:
        files |= _portable(f"{FOLDER}/{name}/", files, recording_hash)
    return files


def _found(place: Path) -> Iterator[Path]:
    """The files of a place, in order."""
    paths = sorted(place.rglob("*")) if place.is_dir() else [place]
    held = [path for path in paths if path.is_symlink() or not path.is_dir()]
    if not place.exists() or not held:
        raise ReleaseError(
            f"There are no results in {place}. Name a folder that feval wrote with --out, or a file of one, with --results."
        )
    if place.is_dir() and place / _RECEIPT not in held:
        raise ReleaseError(
            f"{place} has no {_RECEIPT}, so nobody could compute its numbers again. Name a folder that `feval run`, `curve`, "
            "`compare`, `estimate` or `grade` wrote with --out."
        )
    if len(held) > _MOST_FILES:
        raise ReleaseError(
            f"{place} has {len(held):,} files; results have at most {_MOST_FILES:,}. Name a smaller folder."
        )
    for path in held:
        if path.is_symlink() or not path.is_file() or path.suffix not in _KINDS or path.name.startswith("."):
            raise ReleaseError(
                f"{path} is no file that feval writes as a result ({', '.join(sorted(_KINDS))}). Take it out of the folder, or "
                "name the files one by one."
            )
    return iter(held)


def _portable(start: str, files: Mapping[str, Path | bytes], recording_hash: str) -> dict[str, bytes]:
    """The files of a result that name where its recordings lay, with places that everybody has."""
    path = files.get(start + _RECEIPT)
    if not isinstance(path, Path):
        return {}
    receipt = read_receipt(path)
    places = {entry["path"]: _place(path, entry, recording_hash) for entry in receipt["recordings"]}
    receipt["recordings"] = [entry | {"path": places[entry["path"]]} for entry in receipt["recordings"]]
    _move(receipt["request"], places)
    found = {start + _RECEIPT: _json(receipt)}
    told, plan = files.get(f"{start}comparison.json"), files.get(f"{start}comparison.toml")
    if isinstance(told, Path):
        found[f"{start}comparison.json"] = _told(told, places)
    if isinstance(plan, Path):
        read = Plan.read(plan)
        moved = replace(read, recordings=tuple(places.get(own, own) for own in read.recordings))
        found[f"{start}comparison.toml"] = moved.to_toml().encode()
    return found


def _place(path: Path, entry: Mapping[str, Any], recording_hash: str) -> str:
    """Where everybody finds a recording that a receipt rests on."""
    if entry["hash"] == recording_hash:
        return _TOP
    where = str(entry["path"])
    try:
        if is_address(where) and parse_address(where).is_pinned:
            return where
    except FevalError:
        pass  # it is no address, and said so below
    raise ConflictError(
        f"{path} rests on the recording {entry['hash'][:16]} (it lay in {where!r:.120}), and the repository holds "
        f"{recording_hash[:16]}. Push that recording, or compute the results from hf://NAMESPACE/NAME@COMMIT."
    )


def _told(path: Path, places: Mapping[str, str]) -> bytes:
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ReleaseError(f"{path} cannot be read as JSON ({error}). Write the results again.") from error
    if isinstance(told, dict):
        _move(told, places)
    return _json(told)


def _move(holder: dict[str, Any], places: Mapping[str, str]) -> None:
    """Change the recordings of a plan in place, where there is one."""
    plan = holder.get("plan")
    if isinstance(plan, dict) and isinstance(plan.get("recordings"), list):
        plan["recordings"] = [places.get(str(own), own) for own in plan["recordings"]]


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def described(files: Mapping[str, Path | bytes]) -> str:
    """The results among some files, in words."""
    names = sorted({path.split("/")[1] for path in files if path.startswith(f"{FOLDER}/")})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{counted(len(names), 'result')}: {shown}"

"""`manifest.json`, read without pydantic: it stands between a user and the first curve.

The model with every field is `feval.cards.schema.Manifest`; the writer and `verify` hold the file to it. Here we check what we use.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from feval.errors import DamagedRecordingError, FevalError, NewerFormatError, NotARecordingError, StorageError
from feval.recording.layout.format import (
    FORMAT,
    FORMAT_VERSION,
    FORMAT_VERSIONS,
    MANIFEST,
    is_safe_path,
    read_regular,
    recording_hash,
)

__all__ = ["MOST_BYTES", "Manifest", "read_manifest", "recording_around"]

MOST_BYTES = 256 * 2**20
"""No manifest is larger."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a recording says of itself.

    Attributes:
        raw: the whole JSON object.
        hash: the recording hash, checked against the leaves.
        prices: id of the price list it was recorded under.
        datasets: dataset id -> its record.
        llms: LLM name -> its record.
        pairs: (dataset id, LLM name) -> its record, in the order of the file.
        files: path -> {"sha256", "bytes", "rows"}.
    """

    raw: dict[str, Any]
    hash: str
    prices: str
    datasets: dict[str, dict[str, Any]]
    llms: dict[str, dict[str, Any]]
    pairs: dict[tuple[str, str], dict[str, Any]]
    files: dict[str, dict[str, Any]]


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a recording.

    Raises:
        NotARecordingError: the folder does not exist, holds no manifest, or the manifest is of something else.
        NewerFormatError: a later feval wrote it.
        DamagedRecordingError: the manifest is not valid JSON, lacks a field, or does not agree with its own hash.
        StorageError: the file cannot be read.
    """
    path = folder / MANIFEST
    raw = _parse(path, _read(path, folder))
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise NotARecordingError(f'{path} is not the manifest of a recording: it lacks "format": "{FORMAT}".')
    version = raw.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{folder} has recording format {version}; this feval reads up to {FORMAT_VERSION}. Install a newer feval."
        )
    if type(version) is not int or version not in FORMAT_VERSIONS:
        raise DamagedRecordingError(
            f"{path}: format_version should be {FORMAT_VERSIONS[0]} to {FORMAT_VERSION}, found {version!r}."
        )
    return _checked(path, raw)


def recording_around(folder: str | Path) -> Path | None:
    """The recording that a folder, existing or not, lies in or is; `None` where it lies in none."""
    place = Path(folder).resolve()
    return next((path for path in (place, *place.parents) if _is_recording(path)), None)


def _recordings_in(folder: Path) -> list[Path]:
    """Recordings that somebody who named the folder above them may have meant: the first few."""
    try:
        return sorted(islice(filter(_is_recording, islice(folder.iterdir(), 100)), 3))
    except OSError:
        return []


def _is_recording(folder: Path) -> bool:
    try:
        if not (folder / MANIFEST).exists():
            return False
        raw = _parse(folder / MANIFEST, _read(folder / MANIFEST, folder))
    except (FevalError, OSError):
        return False
    return isinstance(raw, dict) and raw.get("format") == FORMAT


def _read(path: Path, folder: Path) -> bytes:
    try:
        data = read_regular(path, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        found = (
            "has no manifest.json" if folder.is_dir() else "is not a folder" if folder.exists() else "does not exist"
        )
        within = _recordings_in(folder)
        advice = (
            f"There is one in {' and in '.join(map(str, within))}; name the folder itself."
            if within
            else "Make one with `feval record` or `feval import`, or check the path."
        )
        raise NotARecordingError(f"No recording at {folder}: it {found}. {advice}") from error
    except OSError as error:
        raise StorageError(f"{path} could not be read: {error.strerror or error}.") from error
    if len(data) > MOST_BYTES:
        raise DamagedRecordingError(f"{path} is larger than {MOST_BYTES // 2**20} MiB; no manifest is.")
    return data


def _parse(path: Path, data: bytes) -> Any:
    try:
        return _decoder().decode(data.decode())
    except (ValueError, RecursionError) as error:
        raise DamagedRecordingError(
            f"{path} is not valid JSON ({error}); fetch or make the recording again."
        ) from error


@cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(parse_constant=_finite, parse_float=_finite)


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"it holds the number {literal:.40}, which is not finite")
    return number


def _checked(path: Path, raw: dict[str, Any]) -> Manifest:
    def field(record: Any, key: str, kind: type) -> Any:
        value = record.get(key) if type(record) is dict else None
        if type(value) is not kind:
            raise DamagedRecordingError(f"{path}: {key!r} should be {kind.__name__}, found {value!r:.80}.")
        return value

    leaves = []
    for leaf in field(raw, "leaves", list):
        llm = leaf.get("llm") if isinstance(leaf, dict) else None
        if llm is not None and not isinstance(llm, str):
            raise DamagedRecordingError(f"{path}: the LLM of a leaf should be a name or null, found {llm!r:.80}.")
        leaves.append((field(leaf, "dataset", str), llm, field(leaf, "part", str), field(leaf, "sha256", str)))
    stated = field(raw, "recording_hash", str)
    found = recording_hash(leaves)
    if found != stated:
        raise DamagedRecordingError(f"{path}: its leaves hash to {found}, but it states {stated}.")
    files = field(raw, "files", dict)
    for name, record in files.items():
        if not is_safe_path(name):
            raise DamagedRecordingError(f"{path} names the file {name!r:.120}, which lies outside the recording.")
        field(record, "sha256", str), field(record, "bytes", int), field(record, "rows", int)
    pairs = {}
    for pair in field(raw, "pairs", list):
        field(pair, "counter", str), field(pair, "cots", int)
        pairs[field(pair, "dataset", str), field(pair, "llm", str)] = pair
    return Manifest(
        raw=raw,
        hash=stated,
        prices=field(raw, "prices", str),
        datasets={field(record, "id", str): record for record in field(raw, "datasets", list)},
        llms={field(record, "name", str): record for record in field(raw, "llms", list)},
        pairs=pairs,
        files=files,
    )

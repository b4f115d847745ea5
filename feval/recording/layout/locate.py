"""Find recordings: which folder is one, or lies in one."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

from feval.errors import DamagedRecordingError, FevalError, NotARecordingError, StorageError
from feval.recording.layout.format import FORMAT, MANIFEST, open_regular

MOST_BYTES = 256 * 2**20
"""No manifest is larger."""


def read_json(folder: Path) -> Any:
    """Read the manifest of a recording without checking its fields."""
    import orjson  # not needed by `feval --help`

    path = folder / MANIFEST
    try:
        return orjson.loads(_read(path, folder))  # refuses NaN and infinities, which JSON has not
    except orjson.JSONDecodeError as error:
        raise DamagedRecordingError(
            f"{path} is not valid JSON ({error}); fetch or make the recording again."
        ) from error


def recording_around(folder: str | Path) -> Path | None:
    """Return the recording that a folder, existing or not, is or lies in; `None` where there is
    none.
    """
    place = Path(folder).resolve()
    return next((path for path in (place, *place.parents) if _is_recording(path)), None)


def _recordings_in(folder: Path) -> list[Path]:
    """Return the first few recordings inside a folder, which the user may have meant."""
    try:
        return sorted(islice(filter(_is_recording, islice(folder.iterdir(), 100)), 3))
    except OSError:
        return []


def _is_recording(folder: Path) -> bool:
    try:
        if not (folder / MANIFEST).exists():
            return False
        raw = read_json(folder)
    except (FevalError, OSError):
        return False
    return isinstance(raw, dict) and raw.get("format") == FORMAT


def _read(path: Path, folder: Path) -> bytes:
    try:
        with open_regular(path) as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, MOST_BYTES) + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        problem = (
            "has no manifest.json"
            if folder.is_dir()
            else "is not a folder"
            if folder.exists()
            else "does not exist"
        )
        within, out = _recordings_in(folder), str(folder).removesuffix(".journal")
        if not within and Path(f"{out}.journal").is_dir():
            raise NotARecordingError(
                f"The recording {out} is unfinished: its CoTs so far are in {out}.journal. The"
                " command that began it goes on; that of `feval record` makes a recording of what"
                " is there with --partial."
            ) from error
        advice = (
            f"There is one in {' and in '.join(map(str, within))}; name the folder itself."
            if within
            else "Make one with `feval record` or `feval import`, or check the path."
        )
        raise NotARecordingError(f"No recording at {folder}: it {problem}. {advice}") from error
    except OSError as error:
        raise StorageError(f"{path} could not be read: {error.strerror or error}.") from error
    if len(data) > MOST_BYTES:
        raise DamagedRecordingError(
            f"{path} is larger than {MOST_BYTES // 2**20} MiB; no manifest is."
        )
    return data

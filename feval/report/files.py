"""Report files on disk: written completely or not at all, and never over other data."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from feval.errors import StorageError
from feval.recording import recording_around, scratch_beside
from feval.values import RecordLike

Content = bytes | BinaryIO
"""What a file is to hold: bytes, or an open file with them, which is read from its beginning."""

_OUT = "--out (in Python: folder)"


def _reader(content: Content) -> Any:
    """Return the content of a file, to be read from its beginning."""
    if isinstance(content, bytes):
        return io.BytesIO(content)
    content.seek(0)
    return content


def sha256(content: Content) -> str:
    """Return the SHA-256 of the content of a file."""
    return hashlib.file_digest(_reader(content), "sha256").hexdigest()


def save_files(
    folder: Path, files: Mapping[str, Content], *, replace: bool = False, option: str = _OUT
) -> list[Path]:
    """Write report files into a folder, which is created if needed.

    A file with the same bytes is left alone, so a command can be repeated; one with other bytes is
    refused before anything is written, unless it is to be replaced. `option` named the folder, for
    messages. The last of several files vouches for the others, as a receipt does: an old one goes
    before any of them changes, and the new one comes when all are there.

    Raises:
        StorageError: a file exists with other content, the folder is inside a recording, or writing
            failed.
    """
    paths = [folder / name for name in files]
    named = folder.absolute() if folder == Path() else folder
    check_folder(folder, option)
    try:
        changed = {
            path: data
            for path, data in zip(paths, files.values(), strict=True)
            if not _holds(path, data)
        }
        conflicts = [path.name for path in changed if path.exists()]
        if conflicts and not replace:
            raise StorageError(
                f"{named} already holds {', '.join(conflicts)} with other content, and nothing was"
                f" overwritten. Choose another place, or pass --force (in Python:"
                " overwrite=True) to replace."
            )
        folder.mkdir(parents=True, exist_ok=True)
        _write_together(
            changed, [path for path in paths[-1:] if path in changed and len(changed) > 1]
        )
    except OSError as error:
        raise StorageError(
            f"The report could not be written to {folder}: {error.strerror or error}. "
            "Choose a folder that can be written to and has space."
        ) from error
    return paths


def save_sealed(
    folder: Path, files: Mapping[str, Content], receipt: RecordLike, *, replace: bool = False
) -> list[Path]:
    """Write report files as `save_files` does, and their receipt, with the hash of each."""
    hashes = {name: sha256(data) for name, data in files.items()}
    sealed = encoded({**receipt, "files": hashes})
    return save_files(folder, {**files, "receipt.json": sealed}, replace=replace)


def encoded(value: RecordLike) -> bytes:
    """Return the bytes of a JSON file."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def check_folder(folder: Path, option: str = _OUT) -> None:
    """Raise a `StorageError` for a folder that is a file, is inside a recording, or is not
    writable, before any work is done.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise StorageError(
            f"{existing} is a file; reports are written to a folder. Name another one with"
            f" {option}."
        )
    named = folder.absolute() if folder == Path() else folder
    holder = recording_around(folder)
    if holder is not None:
        inside = (
            "is a recording"
            if holder == folder.resolve()
            else f"lies inside the recording {holder}"
        )
        raise StorageError(
            f"{named} {inside}, which never changes. Name another place with {option}."
        )
    if not os.access(existing, os.W_OK):
        needed = "" if existing == folder else f", as {named} needs"
        raise StorageError(
            f"{existing.absolute()} may not be written to{needed}. Name another place with"
            f" {option}."
        )


def _holds(path: Path, content: Content) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return sha256(file) == sha256(content)


def _write_together(files: Mapping[Path, Content], outdated: Iterable[Path]) -> None:
    """Write all files under temporary names, remove the outdated ones, then rename in order.

    A full disk leaves the old files, and a kill no mixture with a receipt beside it.
    """
    temporary: dict[Path, Path] = {}
    locks: list[int] = []
    try:
        for path, data in files.items():
            part, lock = scratch_beside(path, Path.touch, ".{}.{}.part")
            temporary[part] = path
            locks.append(lock)
            with part.open("wb") as file:
                shutil.copyfileobj(_reader(data), file)
                file.flush()
                os.fsync(file.fileno())
        for path in outdated:
            path.unlink(missing_ok=True)
        for part, path in temporary.items():
            part.replace(path)
    except BaseException:
        for part in temporary:
            with contextlib.suppress(OSError):
                part.unlink()
        raise
    finally:
        for lock in locks:
            os.close(lock)

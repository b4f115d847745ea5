"""Files that recordings share by hard links."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feval.errors import DamagedRecordingError
from feval.recording.layout.hashed import HashedFile


def link_file(source: Path, target: Path, record: Mapping[str, Any]) -> None:
    """Put a file of a recording into another one: as a hard link where the disk allows it, else as a copy.

    Args:
        source: the file; recordings never change.
        target: must not exist.
        record: of the file in the manifest of `source`.

    Raises:
        DamagedRecordingError: the file is not what its manifest says.
        OSError: the target cannot be written.
    """
    try:
        size = source.stat().st_size
    except OSError as error:
        raise DamagedRecordingError(f"{source} cannot be read ({error.strerror}); run `feval verify`.") from error
    if size != record["bytes"]:
        raise DamagedRecordingError(f"{source} should have {record['bytes']} bytes, found {size}; run `feval verify`.")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)  # a cache may hold symbolic links
    except OSError:
        _copy(source, target, record)


def _copy(source: Path, target: Path, record: Mapping[str, Any]) -> None:
    """Copy a file to another disk, or one without links."""
    copy = HashedFile(target)
    try:
        with source.open("rb") as file:
            while block := file.read(1 << 20):
                copy.write(block)
        copy.close()
    finally:
        copy.abandon()
    if copy.hexdigest() != record["sha256"]:
        raise DamagedRecordingError(
            f"{source} should have SHA-256 {record['sha256']}, found {copy.hexdigest()}; run `feval verify`."
        )

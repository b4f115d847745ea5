"""Files of a new recording: hashed while they are written, or shared with another recording by hard
links.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from feval.errors import DamagedRecordingError

_BLOCK_BYTES = 1 << 20


class HashedFile:
    """A binary file that knows size and SHA-256 of what was written to it. Arrow writes to it as to
    any file.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("xb")
        self._sha = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write and hash; ignored after `abandon`, when the Parquet writer still writes its
        footer.
        """
        view = memoryview(data)
        if not self.closed:
            self._file.write(view)
            self._sha.update(view)
            self.size += view.nbytes
        return view.nbytes

    def close(self) -> None:
        """Flush the bytes to the disk."""
        if not self.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.closed = True

    def abandon(self) -> None:
        """Close without caring whether the bytes arrived."""
        self.closed = True
        with suppress(OSError):  # the disk is full and the folder is about to be removed
            self._file.close()

    def record(self, rows: int) -> dict[str, Any]:
        """Return the file's record for the manifest."""
        return {"sha256": self._sha.hexdigest(), "bytes": self.size, "rows": rows}


def write_file(path: Path, blocks: Iterable[bytes], rows: int) -> dict[str, Any]:
    """Write a file, block by block; return its record for the manifest."""
    file = HashedFile(path)
    try:
        for block in blocks:
            file.write(block)
        file.close()
    finally:
        file.abandon()
    return file.record(rows)


def link_file(source: Path, target: Path, record: Mapping[str, Any]) -> None:
    """Put a file of a recording, checked against its record, into another: as a hard link, or a
    copy where disks have none.
    """
    try:
        size = source.stat().st_size
    except OSError as error:
        raise DamagedRecordingError(
            f"{source} cannot be read ({error.strerror}); run `feval verify`."
        ) from error
    if size != record["bytes"]:
        raise DamagedRecordingError(
            f"{source} should have {record['bytes']} bytes, found {size}; run `feval verify`."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)  # a cache may hold symbolic links
    except OSError:
        with source.open("rb") as file:
            copy = write_file(target, iter(lambda: file.read(_BLOCK_BYTES), b""), record["rows"])
        if copy["sha256"] != record["sha256"]:
            raise DamagedRecordingError(
                f"{source} should have SHA-256 {record['sha256']}, found {copy['sha256']}; run"
                " `feval verify`."
            ) from None

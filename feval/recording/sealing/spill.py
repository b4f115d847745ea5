"""Bytes that are appended and read back, past a megabyte in a temporary file without a name."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import SpooledTemporaryFile

_IN_MEMORY_BYTES = 1 << 20


class Spill:
    """A temporary file, in a folder or where the system keeps such files."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = SpooledTemporaryFile(  # noqa: SIM115  closed by its owner
            _IN_MEMORY_BYTES, dir=None if folder is None else str(folder)
        )
        self._size = 0

    def write(self, data: bytes) -> int:
        """Append some bytes; return where they start."""
        start = self._size
        self._file.seek(start)
        self._file.write(data)
        self._size += len(data)
        return start

    def read(self, start: int, size: int) -> bytes:
        """Return some of the bytes."""
        self._file.seek(start)
        return self._file.read(size)

    def close(self) -> None:
        """Close and delete the temporary file."""
        with suppress(OSError):  # of what is still to be written to a full disk
            self._file.close()

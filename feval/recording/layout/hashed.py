"""A file that is hashed while it is written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO, Any


class HashedFile:
    """A binary file that knows the SHA-256 of what was written to it. Arrow writes to it as to any file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("xb")
        self._sha = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write and hash; ignored after `abandon`."""
        view = memoryview(data)
        if self.closed:
            return view.nbytes  # abandoned: the Parquet writer still writes its footer
        self._file.write(view)
        self._sha.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Bytes so far."""
        return self.size

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()

    def writable(self) -> bool:
        """Whether it can be written to: yes."""
        return True

    def readable(self) -> bool:
        """Whether it can be read: no."""
        return False

    def seekable(self) -> bool:
        """Whether it can be rewound: no, what was hashed stays."""
        return False

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
        try:
            self._file.close()
        except OSError:
            return  # the disk is full and the folder is about to be removed

    def hexdigest(self) -> str:
        """SHA-256 of what was written."""
        return self._sha.hexdigest()

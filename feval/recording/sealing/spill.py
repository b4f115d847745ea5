"""Numbers and lines that are appended and read back in order: past a megabyte they lie in a
temporary file without a name.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

_IN_MEMORY_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 16


class Spill:
    """The temporary file that columns share, in a folder or where the system keeps such files."""

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

    def lines(self) -> Iterator[bytes]:
        """Yield the lines; nothing may be written or read in the meantime."""
        self._file.seek(0)
        return iter(self._file)

    def close(self) -> None:
        """Give the file back."""
        with suppress(OSError):  # of what is still to be written to a full disk
            self._file.close()


class Column:
    """Numbers of one type (a type code of `array`); all but the last of them lie in the spill."""

    def __init__(self, spill: Spill, typecode: str) -> None:
        self._spill = spill
        self._waiting = array(typecode)
        self._places: list[tuple[int, int]] = []
        self._extremes: list[float] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._waiting)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value, both 0 where there is none."""
        self.flush()
        return int(min(self._extremes, default=0)), int(max(self._extremes, default=0))

    def extend(self, values: Iterable[float] | bytes) -> None:
        """Append values, or the bytes of some."""
        if isinstance(values, bytes):
            self._waiting.frombytes(values)
        else:
            self._waiting.extend(values)  # type: ignore[arg-type]  # mypy takes every array for one of integers
        if len(self._waiting) * self._waiting.itemsize >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Move the values that are in memory to the spill."""
        if self._waiting:
            data = self._waiting.tobytes()
            block = np.frombuffer(data, self._waiting.typecode)
            self._extremes += [block.min().item(), block.max().item()]
            self._places.append((self._spill.write(data), len(data)))
            self._count += len(self._waiting)
            self._waiting = array(self._waiting.typecode)

    def blocks(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all values, in blocks of any size."""
        self.flush()
        for place in self._places:
            yield np.frombuffer(self._spill.read(*place), self._waiting.typecode)

    def cut(self, counts: Iterable[int]) -> Iterator[npt.NDArray[Any]]:
        """Yield the values in order, so many at a time."""
        blocks, rest = self.blocks(), np.empty(0, self._waiting.typecode)
        for count in counts:
            while len(rest) < count:
                rest = np.concatenate([rest, next(blocks)])
            yield rest[:count]
            rest = rest[count:]

"""Draws of one LLM that several methods share: made once, kept in a temporary file, and read from there."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from feval.replay.draws import UInt64, orders

MOST_BYTES = 1 << 30
"""Most bytes in the file; orders beyond are made each time."""


@dataclass
class _Kept:
    """The orders of some questions for replicates 0 to `count` - 1, and where they begin in the file."""

    start: int
    count: int = 0


class SharedDraws:
    """`draws.orders` with a memory, for `LLM.drawing`.

    The orders of a block of questions are written in full, replicate by replicate; a shorter draw is the beginning of one. What
    is asked for in another turn, or does not fit, is made anew.
    """

    def __init__(self) -> None:
        self._file: Any = None
        self._end, self._most = 0, MOST_BYTES
        self._blocks: dict[bytes, _Kept] = {}

    def orders(
        self,
        key: int,
        question_keys: UInt64,
        sizes: npt.NDArray[np.integer[Any]],
        replicates: Sequence[int],
        draws: int,
    ) -> npt.NDArray[np.uint16]:
        """As `draws.orders`."""
        if not isinstance(replicates, range) or replicates.step != 1 or not 0 <= replicates.start < replicates.stop:
            return orders(key, question_keys, sizes, replicates, draws)
        if not sizes.any():
            return orders(key, question_keys, sizes, replicates, draws)
        name = hashlib.sha256(question_keys.tobytes() + key.to_bytes(8, "little")).digest()
        kept = self._blocks.get(name, _Kept(self._end))
        shape = len(replicates), len(sizes), int(sizes.max(initial=0))
        kind = np.dtype(np.uint8 if shape[2] <= 1 << 8 and int(sizes.min(initial=shape[2])) == shape[2] else np.uint16)
        place = kept.start + replicates.start * shape[1] * shape[2] * kind.itemsize
        if replicates.stop <= kept.count:
            data = np.empty(shape, kind)
            self._file.seek(place)
            if self._file.readinto(data.data.cast("B")) == data.nbytes:
                return data[:, :, :draws].astype(np.uint16)
        made = orders(key, question_keys, sizes, replicates, shape[2])
        if (replicates.start, place) == (kept.count, self._end) and self._write(made.astype(kind)):
            kept.count = replicates.stop
            self._blocks[name] = kept
        return made[:, :, :draws]

    def _write(self, data: npt.NDArray[Any]) -> bool:
        """Append orders, if there is room."""
        if self._end + data.nbytes > self._most:
            return False
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="feval-draws-", buffering=0)  # noqa: SIM115  it outlives this call
                finalize(self, self._file.close)
            self._file.seek(self._end)
            whole = self._file.write(data.data.cast("B")) == data.nbytes
        except OSError:
            whole = False
        if not whole:
            self._most = self._end  # the disk is full: what is there stays of use
            return False
        self._end += data.nbytes
        return True

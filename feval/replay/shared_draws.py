"""Draws of one LLM that several methods share: made once, kept in a temporary file, and read from
there.
"""

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

_CODES_AT_ONCE = 1 << 21  # of whole orders, also where a method takes only their first codes


@dataclass
class _Kept:
    """The orders of some questions for replicates 0 to `count` - 1, and where they begin in the
    file.
    """

    start: int
    count: int = 0


class SharedDraws:
    """`draws.orders` with a memory, for `LLM.drawing`.

    The orders of a block of questions are written in full, replicate by replicate; a shorter draw
    is the beginning of one. What is asked for in another turn, or does not fit, is made anew.
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
        if (
            not isinstance(replicates, range)
            or replicates.step != 1
            or not 0 <= replicates.start < replicates.stop
        ):
            return orders(key, question_keys, sizes, replicates, draws)
        if not sizes.any():
            return orders(key, question_keys, sizes, replicates, draws)
        name = hashlib.sha256(question_keys.tobytes() + key.to_bytes(8, "little")).digest()
        width = int(sizes.max(initial=0))
        result = np.empty((len(replicates), len(sizes), min(draws, width)), np.uint16)
        step = max(1, _CODES_AT_ONCE // max(len(sizes) * width, 1))
        for start in range(0, len(replicates), step):
            some = replicates[start : start + step]
            result[start : start + step] = self._whole(
                name, key, question_keys, sizes, some, width
            )[:, :, :draws]
        return result

    def _whole(
        self,
        name: bytes,
        key: int,
        question_keys: UInt64,
        sizes: npt.NDArray[np.integer[Any]],
        replicates: range,
        width: int,
    ) -> npt.NDArray[np.unsignedinteger[Any]]:
        """Return some replicates in full, from the file where they are kept there, and else
        made.
        """
        kept = self._blocks.get(name, _Kept(self._end))
        kind = np.dtype(
            np.uint8 if width <= 1 << 8 and int(sizes.min(initial=width)) == width else np.uint16
        )
        place = kept.start + replicates.start * len(sizes) * width * kind.itemsize
        if replicates.stop <= kept.count:
            data = np.empty((len(replicates), len(sizes), width), kind)
            self._file.seek(place)
            if self._file.readinto(data.data.cast("B")) == data.nbytes:
                return data
        made = orders(key, question_keys, sizes, replicates, width)
        if (replicates.start, place) == (kept.count, self._end) and self._write(made.astype(kind)):
            kept.count = replicates.stop
            self._blocks[name] = kept
        return made

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

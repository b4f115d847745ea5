"""Where the CoTs of a journal are, so that their texts need not be in memory."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from functools import cached_property

import numpy as np
import numpy.typing as npt


class Places:
    """The offsets of a journal's lines by key and sample, 16 bytes each; all are added before any
    is asked for.
    """

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self._keys, self._samples, self._offsets = array("I"), array("I"), array("Q")

    def add(self, key: Hashable, sample: int, offset: int) -> int:
        """Add a line; return the number of its key, counted from 0."""
        number = self.numbers.setdefault(key, len(self.numbers))
        self._keys.append(number)
        self._samples.append(sample)
        self._offsets.append(offset)
        return number

    def offsets(self, key: Hashable) -> list[int]:
        """Return the offsets of a key's lines, in sample order; of a sample that came again, the
        last one.
        """
        number = self.numbers.get(key)
        if number is None:
            return []
        offsets, starts = self._sorted
        of_key: list[int] = offsets[starts[number] : starts[number + 1]].tolist()
        return of_key

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.intp]]:
        """The offsets by key and sample, and where those of each key start."""
        columns = (self._samples, self._keys, self._offsets)
        samples, keys, offsets = (np.frombuffer(column, column.typecode) for column in columns)
        order = np.lexsort((samples, keys))
        samples, keys = samples[order], keys[order]
        last = np.ones(len(order), np.bool_)
        last[:-1] = (samples[1:] != samples[:-1]) | (keys[1:] != keys[:-1])
        return offsets[order[last]], np.searchsorted(keys[last], np.arange(len(self.numbers) + 1))

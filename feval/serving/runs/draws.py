"""The draws that runs walk through, made for many questions at once and cached."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from feval.replay import LLM
from feval.serving.matching.cache import BoundedCache

_MAX_BYTES = 32 << 20
_MAX_ROWS = 512
_MAX_KEYS = 1 << 15  # fewer rows of wide pools: drawing more would hold up every other request
_OVERHEAD = 90  # bytes of an array besides its items


class DrawCache:
    """Whole draws of questions: every recorded CoT, in the order in which a replicate sees them."""

    def __init__(self) -> None:
        self._cache: BoundedCache[tuple[LLM, int, int], list[array[int]]] = BoundedCache(_MAX_BYTES)

    def of(self, llm: LLM, row: int, replicate: int | None) -> Sequence[int]:
        """Return the draw of a question as recorded positions; recorded order for replicate `None`."""
        if replicate is None:
            return range(llm.pool.sizes[row])
        width = max(int(llm.pool.codes.shape[1]), 1)
        rows = min(max(_MAX_KEYS // width, 1), _MAX_ROWS)
        key = llm, replicate, row // rows
        block = self._cache.get(key)
        if block is None:
            block = _drawn(llm, replicate, range(key[2] * rows, min((key[2] + 1) * rows, len(llm.pool.sizes))), width)
            self._cache.put(key, block, sum(draw.itemsize * len(draw) + _OVERHEAD for draw in block))
        return block[row % rows]


def _drawn(llm: LLM, replicate: int, rows: range, width: int) -> list[array[int]]:
    draws = llm.orders([replicate], width, np.array(rows))[0].tolist()
    sizes = llm.pool.sizes[rows.start : rows.stop].tolist()
    return [array("H", draw[:size]) for draw, size in zip(draws, sizes, strict=True)]

"""What was drawn from a pool for some of the R * Q places of a batch; for methods that ask their LLMs one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.methods.decisions import Ledger
from feval.methods.protocol import Orders

if TYPE_CHECKING:
    from feval.replay.pools import Pool

__all__ = ["Taken", "Takings", "blocks"]

Integers = npt.NDArray[np.integer[Any]]
Rows = npt.NDArray[np.intp]

_BLOCK = 1 << 17  # codes worked on at once: they stay in a core's own cache


@dataclass(frozen=True, eq=False)
class Taken:
    """CoTs of one LLM in one request each, for N places.

    Attributes:
        cells: [n, N] where each CoT stands in the pool's arrays, flattened; in draw order.
        codes: [n, N] answer codes.
    """

    cells: npt.NDArray[np.intp]
    codes: Integers


class Takings:
    """One LLM's draws for R replicates and Q questions, as R * Q places, and what was taken of them.

    Args:
        pool: of the LLM.
        order: [R, Q, draws or more].
        draws: CoTs of the one request.
    """

    def __init__(self, pool: Pool, order: Orders, draws: int) -> None:
        self._pool, self._draws, self._shape = pool, draws, order.shape[:2]
        self._order = order.reshape(order.shape[0] * order.shape[1], order.shape[2])
        self._asked = np.zeros(len(self._order), np.bool_)
        self._tokens = np.zeros(len(self._order), np.int64)

    def take(self, places: Rows) -> Taken:
        """Ask the LLM at some places, and write it down."""
        first = places % max(len(self._pool.codes), 1) * self._pool.codes.shape[1]
        cells = self._order[places, : self._draws].T + first
        self._asked[places] = True
        self._tokens[places] = self._pool.output_tokens.ravel().take(cells).sum(axis=0, dtype=np.int64)
        return Taken(cells, self._pool.codes.ravel().take(cells))

    def ledger(self) -> Ledger:
        """What was taken, [R, Q]."""
        return Ledger.one_round(self._asked.reshape(self._shape), self._draws, self._tokens.reshape(self._shape))


def blocks(places: int, draws: int) -> Iterator[Rows]:
    """Places that are decided together, for so many draws each."""
    step = max(1, _BLOCK // draws)
    yield from (np.arange(start, min(start + step, places)) for start in range(0, places, step))

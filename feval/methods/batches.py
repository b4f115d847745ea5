"""Draws in batches that stay in a core's own cache: of one LLM, or of LLMs that a method asks one
after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.methods.arrays import Integers, Rows
from feval.methods.decisions import Ledger, Orders
from feval.methods.protocol import BatchMethod, most_tokens, require_draws

if TYPE_CHECKING:
    from feval.replay.pools import Pool

_BLOCK = 1 << 17  # draws


@dataclass(frozen=True, eq=False)
class Batch:
    """Some replicates (R' of them) of some questions (Q').

    Attributes:
        where: index of the batch in an array [R, Q].
        places: [R', Q', n] place of each draw in a flattened [Q, S].
    """

    where: tuple[slice, slice]
    places: Rows

    def drawn(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[R', Q', n] the values [Q, S] of the drawn CoTs, of the same type."""
        by_draw: npt.NDArray[Any] = values.ravel().take(self.places)
        return by_draw


def batches(orders: Orders, draws: int, width: int) -> Iterator[Batch]:
    """Cut the first draws of orders [R, Q, draws or more] into batches; `width` is S, the largest
    pool.
    """
    replicates, questions = orders.shape[:2]
    some_questions = max(1, min(questions, _BLOCK // draws))
    some_replicates = max(1, _BLOCK // (some_questions * draws))
    for q in range(0, questions, some_questions):
        rows = np.arange(q, min(q + some_questions, questions), dtype=np.intp)[:, None] * width
        for r in range(0, replicates, some_replicates):
            where = slice(r, r + some_replicates), slice(q, q + some_questions)
            places = orders[where][:, :, :draws].astype(np.intp)
            places += rows
            yield Batch(where, places)


@dataclass(frozen=True, eq=False)
class Samples:
    """CoTs of one LLM at N places, one request each.

    Attributes:
        cells: [n, N] index of each CoT in the pool's arrays, flattened; in draw order.
        codes: [n, N] answer codes.
    """

    cells: Rows
    codes: Integers


class BatchSampler:
    """One LLM for R replicates and Q questions, as R * Q places; it keeps the ledger of what is
    drawn.

    Args:
        pool: of the LLM.
        order: [R, Q, draws or more].
        draws: CoTs of its one request.
    """

    def __init__(self, pool: Pool, order: Orders, draws: int) -> None:
        self._pool, self._draws, self._shape = pool, draws, order.shape[:2]
        self._order = order.reshape(order.shape[0] * order.shape[1], order.shape[2])
        self._asked = np.zeros(len(self._order), np.bool_)
        self._tokens, self._longest = np.zeros((2, len(self._order)), np.int64)

    def sample(self, places: Rows) -> Samples:
        """The CoTs at some places, which go into the ledger."""
        first = places % max(len(self._pool.codes), 1) * self._pool.codes.shape[1]
        cells = self._order[places, : self._draws].T + first
        self._asked[places] = True
        tokens = self._pool.output_tokens.ravel().take(cells)
        self._tokens[places] = tokens.sum(axis=0, dtype=np.int64)
        self._longest[places] = most_tokens(tokens.T, self._pool.at_once)
        return Samples(cells, self._pool.codes.ravel().take(cells))

    def ledger(self) -> Ledger:
        """The ledger [R, Q] of all requests so far."""
        tokens, longest = self._tokens.reshape(self._shape), self._longest.reshape(self._shape)
        return Ledger.one_round(self._asked.reshape(self._shape), self._draws, tokens, longest)


def samplers(
    method: BatchMethod, pools: Sequence[Pool], orders: Sequence[Orders]
) -> list[BatchSampler]:
    """One sampler per LLM of a method; raises what `require_draws` raises."""
    return [
        BatchSampler(*each)
        for each in zip(pools, orders, require_draws(method, pools, orders), strict=True)
    ]


def blocks(places: int, draws: int) -> Iterator[Rows]:
    """Split places into blocks that are decided together, for this many draws each."""
    step = max(1, _BLOCK // draws)
    yield from (np.arange(start, min(start + step, places)) for start in range(0, places, step))

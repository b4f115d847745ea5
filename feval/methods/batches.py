"""Batches of replicates and questions, small enough that their draws stay in a core's own cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.methods.arrays import Rows
from feval.methods.decisions import Orders

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
    """Cut orders into batches.

    Args:
        orders: [R, Q, draws or more] recorded places, in draw order.
        draws: how many of them are used.
        width: S, the largest pool.
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

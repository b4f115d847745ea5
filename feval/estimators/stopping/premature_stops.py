"""Stops that were too early, over all orders: how likely a rule stops before its budget, at another answer than the vote of all.

Let V be how often each candidate occurs in the B draws of the budget. Given V all orders are equally likely. Call one of those
that lead in V the gold, and let G(v) be the probability that the draws stop at one of the first n, n < B, with an answer that is
wrong, given that the first n have the counts v. The last of them is candidate a with probability v_a / n, so that

    G(v) = sum_a (v_a / n) G(v - e_a) + ends(v) * wrong(v)

with ends(v) of `feval.estimators.stopping.orders`, and wrong(v) the share that other answers than the gold have of the lead in
v: of tied answers each is equally likely to have been drawn first. At n = B nothing is added, and G(V) is what was asked for.
What the other candidates are called makes no difference: a state is how often the gold occurs, how many draws have no answer,
and the partition that the counts of the others make. The recursion is feval's own; every term is positive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from feval.estimators.stopping.ends import count_codes, no_answer_codes, number_of_counts, partitions

__all__ = ["premature_stop_states", "wrong_stops"]

Integers = npt.NDArray[np.integer[Any]]
Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
UInt64 = npt.NDArray[np.uint64]


def premature_stop_states(bounds: Int64, budget: int) -> float:
    """How many states `wrong_stops` goes through at each draw: feval's own count, of arithmetic, which assumes nothing.

    Args:
        bounds: of the whole budget's counts, see `ends.PoolCounts.bounds`.
        budget: B.

    Returns:
        The number, as a float: it may be beyond every integer type.
    """
    return number_of_counts(_of_others(bounds, budget), budget) * (min(int(bounds[0]), budget) + 1)


def wrong_stops(
    whole: Integers, budget: int, ends: Callable[[UInt64, int], Floats], *, none_votes: bool = False
) -> Floats:
    """G(V) of the module.

    The recursion above; feval's own. Assumes all orders of the draws equally likely.

    Args:
        whole: [N, 1 + K] counts of the budget's draws: those without an answer, then the candidates', with the largest first,
            which is called the gold.
        budget: B.
        ends: (keys of counts, see `ends.Ends`, draws) -> the chance that draws with these counts end there and no earlier; not
            asked at the budget.
        none_votes: no answer is one more candidate, also in the counts of `ends`; to answer it is not counted as wrong.

    Returns:
        [N] probability to stop before the budget with another answer.
    """
    states = _States(whole.max(axis=0, initial=0).astype(np.int64), budget)
    chance = np.zeros((len(states.keys), int(whole[:, 0].max(initial=0)) + 1))
    none = np.arange(chance.shape[1])
    for drawn in range(1, budget + 1):
        gold = drawn - states.totals[:, None] - none
        chance = (states.one_less @ chance + np.maximum(gold, 0) * chance + none * np.roll(chance, 1, axis=1)) / drawn
        if drawn < budget:
            chance += states.wrong_ends(drawn, none, ends, none_votes)
    return chance[states.place(states.keys_of(whole[:, 2:])), whole[:, 0]]


def _of_others(bounds: Int64, budget: int) -> Int64:
    """The bounds of what all but the gold have, after what all others leave of the budget."""
    return np.concatenate([[budget], bounds[2:]])


class _States:
    """The partitions of what the candidates other than the gold can have, where the gold leads in the end.

    Attributes:
        keys: [P] sums of the parts' codes.
        totals, largest, repeated: [P] the sum of the parts, the largest, and how often it occurs.
        one_less: [P, P] sparse: for each part of a partition, how many draws it stands for, at the partition with one draw less.
    """

    def __init__(self, bounds: Int64, budget: int) -> None:
        self.codes, self.silent = count_codes(np.arange(budget + 1)), no_answer_codes(np.arange(budget + 1))
        counts = partitions(_of_others(bounds, budget), budget)
        counts = counts[counts[:, 0] >= counts[:, 1:].max(axis=1, initial=0)]
        left, parts = counts[:, 0].astype(np.int64), counts[:, 1:]
        self.totals, self.largest = budget - left, parts.max(axis=1, initial=0).astype(np.int64)
        self.repeated = (parts == self.largest[:, None]).sum(axis=1)
        self.keys = self.keys_of(parts)
        self.order = np.argsort(self.keys)
        if len(np.unique(self.keys)) < len(self.keys):
            raise AssertionError("two partitions share a key")
        above, below, weights = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)], [np.zeros(0)]
        for column, part in enumerate(parts.T):
            following = parts[:, column + 1] if column + 1 < parts.shape[1] else np.zeros_like(part)
            last = np.flatnonzero(part > following)  # of equal parts the last falls: then they stay in order
            above.append(last)
            below.append(self.place(self.keys[last] - self.codes[part[last]] + self.codes[part[last] - 1]))
            weights.append(part[last] * (parts[last] == part[last, None]).sum(axis=1).astype(np.float64))
        entries = (np.concatenate(above), np.concatenate(below))
        self.one_less = scipy.sparse.csr_array((np.concatenate(weights), entries), shape=(len(parts), len(parts)))

    def keys_of(self, parts: Integers) -> UInt64:
        """[N] of parts [N, K]."""
        keys: UInt64 = self.codes[parts].sum(axis=1, dtype=np.uint64)
        return keys

    def place(self, keys: UInt64) -> npt.NDArray[np.intp]:
        """[N] which partition has each key."""
        place: npt.NDArray[np.intp] = self.order[np.searchsorted(self.keys, keys, sorter=self.order)]
        return place

    def wrong_ends(self, drawn: int, none: Int64, ends: Callable[[UInt64, int], Floats], none_votes: bool) -> Floats:
        """[P, Z] the probability to end at a partition and some draws without an answer, with another answer than the gold."""
        gold = drawn - self.totals[:, None] - none
        row, column = np.nonzero((gold >= 0) & (self.largest[:, None] >= np.maximum(gold, 1)))
        own, silent, largest = gold[row, column], none[column], self.largest[row]
        leaders = self.repeated[row] + (own == largest) + (none_votes & (silent == largest))
        keys = self.keys[row] + self.codes[own] + (self.codes if none_votes else self.silent)[silent]
        leads = (silent <= largest) | (not none_votes)
        chance = np.zeros(gold.shape)
        chance[row, column] = ends(keys, drawn) * leads * self.repeated[row] / leaders
        return chance

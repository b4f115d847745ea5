"""Probability of stopping on an answer that the full budget would outvote, over all orders.

Let V be the counts of each candidate in the B draws of the budget. Given V all orders are equally likely. Call one of the leaders
of V the gold, and let G(v) be the probability that the rule stops within the first n < B draws on a wrong answer, given that the
first n draws have the counts v. The last of them is candidate a with probability v_a / n, so

    G(v) = sum_a (v_a / n) G(v - e_a) + ends(v) * wrong(v)

with ends(v) of `ends`, and wrong(v) the share of the lead in v that belongs to answers other than the gold: each of the tied
answers is equally likely to have been drawn first. At n = B nothing is added, and G(V) is the result. The names of the other
candidates do not matter: a state is the gold's count, the number of draws without an answer, and the partition of the others'
counts. The recursion is feval's own; every term is positive. Assumes that all orders of the draws are equally likely.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy

from feval.estimators.arrays import Floats, Int64, Integers, UInt64
from feval.estimators.stopping.ends import count_codes, no_answer_codes, number_of_counts, partitions


def premature_stop_states(bounds: Int64, budget: int) -> float:
    """Count the states that `wrong_stops` visits per draw; a float, since it may exceed every integer type."""
    return number_of_counts(_of_others(bounds, budget), budget) * (min(int(bounds[0]), budget) + 1)


def wrong_stops(
    whole: Integers, budget: int, ends: Callable[[UInt64, int], Floats], *, none_votes: bool = False
) -> Floats:
    """[N] probability to stop before the budget on another answer than the gold: G(V) of the module.

    Args:
        whole: [N, 1 + K] counts of the budget's draws: those without an answer, then the candidates in descending order, the
            first being the gold.
        budget: B.
        ends: (keys of counts, see `ends.Ends`, draws) -> probability that draws with these counts end there and no earlier; not
            called at the budget.
        none_votes: no answer is a candidate, also in the counts of `ends`; stopping on it does not count as wrong.
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
    """Bounds of the counts of all but the gold, with the rest of the budget in front."""
    return np.concatenate([[budget], bounds[2:]])


class _States:
    """The possible partitions of the other candidates' counts where the gold leads in the end.

    Attributes:
        keys: [P] sums of the parts' codes.
        totals, largest, repeated: [P] sum of the parts, largest part and its multiplicity.
        one_less: [P, P] sparse: number of draws of each part of a partition, at the partition with one draw less.
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
            last = np.flatnonzero(part > following)  # of equal parts the last shrinks, so that they stay in order
            above.append(last)
            below.append(self.place(self.keys[last] - self.codes[part[last]] + self.codes[part[last] - 1]))
            weights.append(part[last] * (parts[last] == part[last, None]).sum(axis=1).astype(np.float64))
        entries = (np.concatenate(above), np.concatenate(below))
        self.one_less = scipy.sparse.csr_array((np.concatenate(weights), entries), shape=(len(parts), len(parts)))

    def keys_of(self, parts: Integers) -> UInt64:
        """[N] keys of parts [N, K]."""
        keys: UInt64 = self.codes[parts].sum(axis=1, dtype=np.uint64)
        return keys

    def place(self, keys: UInt64) -> npt.NDArray[np.intp]:
        """[N] index of the partition with each key."""
        place: npt.NDArray[np.intp] = self.order[np.searchsorted(self.keys, keys, sorter=self.order)]
        return place

    def wrong_ends(self, drawn: int, none: Int64, ends: Callable[[UInt64, int], Floats], none_votes: bool) -> Floats:
        """[P, Z] probability to end at a partition and a number of draws without an answer, on another answer than the gold."""
        gold = drawn - self.totals[:, None] - none
        row, column = np.nonzero((gold >= 0) & (self.largest[:, None] >= np.maximum(gold, 1)))
        votes, missing, largest = gold[row, column], none[column], self.largest[row]
        leaders = self.repeated[row] + (votes == largest) + (none_votes & (missing == largest))
        keys = self.keys[row] + self.codes[votes] + (self.codes if none_votes else self.silent)[missing]
        leads = (missing <= largest) | (not none_votes)
        chance = np.zeros(gold.shape)
        chance[row, column] = ends(keys, drawn) * leads * self.repeated[row] / leaders
        return chance

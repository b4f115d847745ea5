"""Where a stopping rule ends, as a table over counts of answers.

Let a pool have n_a samples of candidate a, drawn without replacement in random order. After s draws
the counts are v with the hypergeometric probability prod_a C(n_a, v_a) / C(S, s), and given the
counts every order of the labels is equally likely. So the probability that a rule ends exactly
there depends on the counts alone, not on the pool:

    P[end at v] = prod_a C(n_a, v_a) / C(S, s) * ends(v)
    reach(v) = sum_a (v_a / s) reach(v - e_a) [the rule goes on at v - e_a]
    ends(v) = reach(v) [it stops at v]

A rule that treats candidates alike has the same `ends` for all orders of the counts, so one table
over partitions serves all pools. `ends_of_rule` builds it; `stopping_orders` applies it to pools.
Every term is positive, so nothing cancels. Feval's own; assumes only that every
order of a question's samples is equally likely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from feval.errors import NotExactError
from feval.estimators.arrays import Bools, Floats, Int64, Integers, Numbers, Result, UInt64

LARGEST_BUDGET = 300
"""Largest budget of a table of ends; memory grows with its cube."""

_MOST_COUNTS = 10_000_000  # of a table, which takes half a minute

Ending = Callable[[Integers, int, Floats], Floats]
"""(counts [N, 1 + K] as in `Ends.of`, their sum, [N] probability to come there) -> [N] probability
to end there.
"""

_GOLDEN = 0x9E3779B97F4A7C15


class AnswerCounts(Result):
    """The counts of Q pools.

    Attributes:
        gold: [Q] samples with the gold answer.
        rivals: [Q, K] samples of each other candidate, largest first.
        none: [Q] samples without an answer.
    """

    gold: Int64
    rivals: Int64
    none: Int64

    @classmethod
    def of(cls, gold: Integers, rivals: Integers, none: Integers) -> AnswerCounts:
        """Make it from counts in any order."""
        ordered = -np.sort(-rivals.astype(np.int64), axis=1)
        return cls(gold.astype(np.int64), ordered[:, ordered.any(axis=0)], none.astype(np.int64))

    @property
    def size(self) -> Int64:
        """[Q] recorded samples."""
        result: Int64 = self.gold + self.rivals.sum(axis=1) + self.none
        return result

    def bounds(self) -> Int64:
        """[1 + K + 1] largest counts over the pools: samples without an answer, the leading
        candidate, the next, and so on.
        """
        counts = np.column_stack([self.gold, self.rivals])
        widest = -np.sort(-counts, axis=1)
        return np.concatenate([[self.none.max(initial=0)], widest.max(axis=0, initial=0)])

    def with_no_answer_as_rival(self) -> AnswerCounts:
        """The same pools where no answer is one more candidate."""
        return AnswerCounts.of(
            self.gold, np.column_stack([self.rivals, self.none]), np.zeros_like(self.none)
        )


class Ends(Result):
    """The probability that a rule ends, by counts.

    Attributes:
        counts: [T, 1 + K] samples without an answer, then the candidates' in descending order.
        keys: [T] keys of the counts, ascending; see `_keys`.
        chance: [T] probability that draws with these counts, in random order, end there and no
            earlier.
        budget: largest number of draws.
    """

    counts: Integers
    keys: UInt64
    chance: Floats
    budget: int

    @classmethod
    def of(cls, counts: Integers, chance: Floats, budget: int) -> Ends:
        """Make it from counts in any order."""
        counts, chance = counts[chance > 0], chance[chance > 0]
        keys = _keys(counts)
        order = np.argsort(keys)
        return cls(counts[order], keys[order], chance[order], budget)

    def ending(self, counts: Integers, drawn: int, reach: Floats) -> Floats:  # noqa: ARG002  as `ending_of_rule` gives it
        """[N] probability to end at some counts; 0 where the rule does not end. See `Ending`."""
        if not len(self.keys):
            return np.zeros(len(counts))
        keys = _keys(counts)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.chance[place], 0.0)


def count_codes(part: Numbers) -> UInt64:
    """64-bit codes of counts, by the finalizer of SplitMix64, 0 for 0; their sum is the key of a
    multiset of counts.
    """
    x = part.astype(np.uint64) * np.uint64(_GOLDEN)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def key_sums(counts: Integers) -> UInt64:
    """[N] sums of the codes of counts [N, K], independent of the order of the candidates."""
    codes = count_codes(np.arange(int(counts.max(initial=0)) + 1))
    result: UInt64 = codes[counts].sum(axis=1, dtype=np.uint64)
    return result


def _keys(counts: Integers) -> UInt64:
    """[N] keys of counts [N, 1 + K]; those of samples without an answer have codes of their own.

    Two of a million counts share a key with probability 3e-8; `ends_of_rule` would notice in its
    table.
    """
    return count_codes(counts[:, 0].astype(np.uint64) << np.uint64(32)) + key_sums(counts[:, 1:])


def require_budget(budget: int) -> None:
    """Raise NotExactError for a budget above 300, whose table of ends would be too large."""
    if budget > LARGEST_BUDGET:
        raise NotExactError(
            f"The exact expectation over all orders reaches budgets of {LARGEST_BUDGET} samples;"
            f" {budget} were asked for."
        )


def ending_of_rule(stops: Callable[[Integers, int], Bools], budget: int) -> Ending:
    """Where a rule ends that looks at the counts after every draw; `stops` as in `ends_of_rule`."""

    def ending(counts: Integers, drawn: int, reach: Floats) -> Floats:
        if drawn == budget:
            return reach
        chance = np.zeros(len(counts))
        reached = np.flatnonzero(reach)
        chance[reached] = np.where(stops(counts[reached, 1:], drawn), reach[reached], 0.0)
        return chance

    return ending


def ends_of_rule(
    stops: Callable[[Integers, int], Bools], bounds: Int64, budget: int, *, only_last: bool = False
) -> Ends:
    """The table of ends of a rule that looks at the counts after every draw, by the module's
    recursion.

    `stops` maps counts of candidates [N, K], the largest first, and the draws so far to [N] whether
    it stops there. `only_last` leaves out the ends before the budget. NotExactError for a budget
    above 300, or for too many counts.
    """
    ended: list[Integers] = [np.zeros((0, len(bounds)), np.int16)]
    chances = [np.zeros(0)]
    for drawn, counts, reach, stopped in _ended(stops, bounds, budget):
        if drawn == budget or not only_last:
            ended.append(counts[stopped])
            chances.append(reach[stopped])
    return Ends.of(np.concatenate(ended), np.concatenate(chances), budget)


def _ended(
    stops: Callable[[Integers, int], Bools], bounds: Int64, budget: int
) -> Iterator[tuple[int, Integers, Floats, Bools]]:
    """Yield for each draw the counts that are reached, the probability to reach each given these,
    and where the rule ends.
    """
    require_budget(budget)
    counts: Integers = np.zeros((1, len(bounds)), np.int16)
    reach: Floats = np.ones(1)
    seen = 0
    for drawn in range(1, budget + 1):
        counts, reach = _one_more(counts, reach, bounds, drawn)
        if (seen := seen + len(counts)) > _MOST_COUNTS:
            raise NotExactError(
                f"The exact expectation over all orders would visit more than {_MOST_COUNTS:,}"
                " counts of answers: the pools contain too many different answers."
            )
        stopped = stops(counts[:, 1:], drawn) if drawn < budget else np.ones(len(counts), np.bool_)
        yield drawn, counts, reach, stopped
        counts, reach = counts[~stopped], reach[~stopped]
        if not len(counts):
            break


def _one_more(
    counts: Integers, reach: Floats, bounds: Int64, drawn: int
) -> tuple[Integers, Floats]:
    """The counts after one more draw, and the probability to reach each given these counts."""
    grown, shares = [], []
    for column in range(min(counts.shape[1], drawn + 1)):
        allowed = counts[:, column] < bounds[column]
        if column > 1:  # of equal counts the first grows: then the largest stays first
            allowed &= counts[:, column] < counts[:, column - 1]
        more = counts[allowed].copy()
        more[:, column] += 1
        votes = more[:, column]
        alike = np.ones(len(more)) if column == 0 else (more[:, 1:] == votes[:, None]).sum(axis=1)
        grown.append(more)
        shares.append(reach[allowed] * alike * votes / drawn)
    together = np.concatenate(grown)
    _, first, place = np.unique(_keys(together), return_index=True, return_inverse=True)
    if not (together == together[first][place]).all():
        raise AssertionError("two counts share a key")
    return together[first], np.bincount(place, np.concatenate(shares), minlength=len(first)).astype(
        np.float64
    )


def partitions(bounds: Int64, drawn: int) -> Integers:
    """[N, 1 + K] counts of s draws within the bounds: samples without an answer, then candidates in
    descending order.
    """
    counts = np.arange(min(int(bounds[0]), drawn) + 1, dtype=np.int16)[:, None]
    for place, bound in enumerate(bounds[1:].tolist(), 1):
        left = drawn - counts.sum(axis=1, dtype=np.int64)
        most = np.minimum(left, bound)
        if place > 1:
            most = np.minimum(most, counts[:, -1])
        to_come = int(len(bounds) - place)
        least = -(-left // to_come)  # smaller, and the rest could not hold what is left
        widths = np.maximum(most - least + 1, 0)
        parent = np.repeat(np.arange(len(counts)), widths)
        votes = (
            np.arange(len(parent)) - np.repeat(np.cumsum(widths) - widths, widths) + least[parent]
        )
        counts = np.column_stack([counts[parent], votes.astype(np.int16)])
    result: Integers = counts[counts.sum(axis=1, dtype=np.int64) == drawn]
    return result


def number_of_counts(bounds: Int64, drawn: int) -> float:
    """Count the rows of `partitions` without enumerating them; a float, since it may exceed every
    integer type.
    """
    ways = np.zeros((drawn + 1, drawn + 1))  # by the last count, and the draws so far
    ways[drawn, : min(int(bounds[0]), drawn) + 1] = 1.0
    for bound in bounds[1:].tolist():
        at_least = ways[::-1].cumsum(axis=0)[::-1]
        ways = np.zeros_like(ways)
        for votes in range(min(bound, drawn) + 1):
            ways[votes, votes:] = at_least[votes, : drawn + 1 - votes]
    return float(ways[:, drawn].sum())

"""Methods that stop early, over all orders of a pool: exact means for rules that look at counts of answers.

Let a pool have n_a samples of candidate a, drawn without replacement in random order. After s draws the counts are v with the
hypergeometric probability prod_a C(n_a, v_a) / C(S, s), and given the counts every order of the labels is equally likely. So the
probability that a rule ends exactly there depends on the counts alone, not on the pool:

    P[end at v] = prod_a C(n_a, v_a) / C(S, s) * ends(v)
    reach(v) = sum_a (v_a / s) reach(v - e_a) [the rule goes on at v - e_a],        ends(v) = reach(v) [it stops at v]

A rule that treats candidates alike has the same `ends` for all orders of the counts: one table over partitions serves all pools.
It is built once (`ends_of_rule`), then every pool's counts are walked candidate by candidate (`over_orders`): candidates that
are recorded equally often are lumped (their counts fall, with the number of their arrangements as a weight), and counts whose two
largest cannot belong to an end are dropped. Every term is positive, so nothing cancels. For small budgets, which leave most of
a pool undrawn, `feval.estimators.stopping.by_partition` merges counts instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import UsageError
from feval.estimators.per_question import distinct

__all__ = [
    "LARGEST_BUDGET",
    "MOST_STATES",
    "Ends",
    "OverOrders",
    "Pools",
    "codes_of",
    "ends_of_rule",
    "means",
    "none_codes_of",
    "number_of_counts",
    "over_orders",
    "partitions",
    "require_budget",
]

Integers = npt.NDArray[np.integer[Any]]
Int16 = npt.NDArray[np.int16]
Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
UInt64 = npt.NDArray[np.uint64]

MOST_STATES = 400_000_000
"""Counts that `over_orders` visits at most, if it is not told otherwise: a minute."""

LARGEST_BUDGET = 300
"""Of a table of ends: that of the smallest grows with its cube."""

_NEVER = np.iinfo(np.int16).max
_BLOCK = 1 << 16  # states walked at once
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class Pools:
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
    def of(cls, gold: Integers, rivals: Integers, none: Integers) -> Pools:
        """From counts in any order."""
        ordered = -np.sort(-rivals.astype(np.int64), axis=1)
        return cls(gold.astype(np.int64), ordered[:, ordered.any(axis=0)], none.astype(np.int64))

    @property
    def size(self) -> Int64:
        """[Q] recorded samples."""
        size: Int64 = self.gold + self.rivals.sum(axis=1) + self.none
        return size

    def bounds(self) -> Int64:
        """[1 + K + 1] most samples without an answer, then of the candidate with most, of the next, and so on."""
        counts = np.column_stack([self.gold, self.rivals])
        widest = -np.sort(-counts, axis=1)
        return np.concatenate([[self.none.max(initial=0)], widest.max(axis=0, initial=0)])

    def rows(self, rows: npt.NDArray[np.intp]) -> Pools:
        """Some of the questions."""
        return Pools(self.gold[rows], self.rivals[rows], self.none[rows])


# -- the table of ends ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ends:
    """Where a rule ends, by counts.

    Attributes:
        keys: [T] of the counts, ascending; see `_keys`.
        chance: [T] probability that draws with these counts, in random order, end there and no earlier.
        budget: most samples.
        smallest: [n + 1, n + 1, n + 1] fewest samples of any end with that largest count and a second one from .. to; more than
            there can be where there is no such end.
    """

    keys: UInt64
    chance: Floats
    budget: int
    smallest: Int16

    @classmethod
    def of(cls, counts: Integers, chance: Floats, budget: int) -> Ends:
        """From [T, 1 + K] counts, samples without an answer first, then the candidates' with the largest first."""
        counts, chance = counts[chance > 0], chance[chance > 0]
        keys = _keys(counts)
        order = np.argsort(keys)
        first = counts[:, 1].astype(np.int64) if counts.shape[1] > 1 else np.zeros(len(counts), np.int64)
        second = counts[:, 2].astype(np.int64) if counts.shape[1] > 2 else np.zeros(len(counts), np.int64)
        smallest = np.full((budget + 1,) * 3, _NEVER, np.int16)
        np.minimum.at(smallest, (first, second, second), counts.sum(axis=1, dtype=np.int16))
        for upper in range(1, budget + 1):
            smallest[:, :upper, upper] = np.minimum(smallest[:, :upper, upper - 1], smallest[:, upper, upper, None])
        return cls(keys[order], chance[order], budget, smallest)

    def at(self, keys: UInt64) -> Floats:
        """The chance to end at some counts; 0 at counts where no draw ends."""
        if not len(self.keys):
            return np.zeros(len(keys))
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found: Floats = np.where(self.keys[place] == keys, self.chance[place], 0.0)
        return found

    def possible(
        self, first: Int16, second: Int16, largest_to_come: Int16, within_reach: Int16
    ) -> npt.NDArray[np.bool_]:
        """Whether counts can still belong to an end.

        Args:
            first: [N] the largest so far.
            second: [N] the second largest so far.
            largest_to_come: [N] no further count is larger.
            within_reach: [N] samples so far and all that can come.
        """
        most = np.maximum(second, np.minimum(largest_to_come, first))
        known: npt.NDArray[np.bool_] = self.smallest[first, second, most] <= within_reach
        return known | (largest_to_come >= first)


def codes_of(part: npt.NDArray[Any]) -> UInt64:
    """A 64-bit number for a count above 0, by the finalizer of SplitMix64; 0 for 0.

    Feval's own key for multisets of counts: codes are added up. Arithmetic; assumes nothing of the calls.

    Args:
        part: [...] counts from 0.

    Returns:
        [...] codes.
    """
    x = part.astype(np.uint64) * np.uint64(_GOLDEN)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def none_codes_of(count: npt.NDArray[Any]) -> UInt64:
    """The same for samples without an answer: other numbers than those of candidates.

    Feval's own. Arithmetic; assumes nothing of the calls.

    Args:
        count: [...] counts from 0.

    Returns:
        [...] codes.
    """
    return codes_of(count.astype(np.uint64) << np.uint64(32))


def _keys(counts: Integers) -> UInt64:
    """[N] sums of the codes of counts [N, 1 + K], which do not depend on the order of the candidates.

    Two of a million counts share a key with probability 3e-8; `ends_of_rule` would notice in its table.
    """
    codes = codes_of(np.arange(int(counts.max(initial=0)) + 1))
    keys: UInt64 = none_codes_of(counts[:, 0]) + codes[counts[:, 1:]].sum(axis=1, dtype=np.uint64)
    return keys


def require_budget(budget: int) -> None:
    """Make sure that a table of ends is not too large.

    Feval's own limit on the states of a table. Arithmetic; assumes nothing of the calls.

    Args:
        budget: most draws.

    Raises:
        UsageError: it would be.
    """
    if budget > LARGEST_BUDGET:
        raise UsageError(
            f"The exact expectation over all orders reaches budgets of {LARGEST_BUDGET} samples; {budget} were asked for. "
            "Take seeded replicates (order 'seeded'), or a smaller budget."
        )


def ends_of_rule(
    stops: Callable[[Integers, int], npt.NDArray[np.bool_]], bounds: Int64, budget: int, *, only_last: bool = False
) -> Ends:
    """The table of a rule that looks at the counts after every draw.

    ends(v) = reach(v) where the rule stops, the module's recursion; feval's own. Assumes only that a question's
    recorded samples are exchangeable: every order of them is equally likely.

    Args:
        stops: (counts of candidates [N, K] with the largest first, draws so far) -> [N] whether it stops there.
        bounds: see `Pools.bounds`.
        budget: most draws.
        only_last: leave out the ends before the budget.

    Returns:
        The table of the rule's ends.

    Raises:
        UsageError: a budget above 300.
    """
    ended: list[Integers] = [np.zeros((0, len(bounds)), np.int16)]
    chances = [np.zeros(0)]
    for drawn, counts, reach in _ended(stops, bounds, budget):
        if drawn == budget or not only_last:
            ended.append(counts)
            chances.append(reach)
    return Ends.of(np.concatenate(ended), np.concatenate(chances), budget)


def _ended(
    stops: Callable[[Integers, int], npt.NDArray[np.bool_]], bounds: Int64, budget: int
) -> Iterator[tuple[int, Integers, Floats]]:
    """After each draw the counts at which a rule ends, and how likely each is reached given that the draws have these counts."""
    require_budget(budget)
    counts: Integers = np.zeros((1, len(bounds)), np.int16)
    reach: Floats = np.ones(1)
    for drawn in range(1, budget + 1):
        counts, reach = _one_more(counts, reach, bounds, drawn)
        stopped = stops(counts[:, 1:], drawn) if drawn < budget else np.ones(len(counts), np.bool_)
        yield drawn, counts[stopped], reach[stopped]
        counts, reach = counts[~stopped], reach[~stopped]
        if not len(counts):
            break


def _one_more(counts: Integers, reach: Floats, bounds: Int64, drawn: int) -> tuple[Integers, Floats]:
    """The counts after one more draw, and how likely each is reached given that the draws have these counts."""
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
    return together[first], _sums(place, np.concatenate(shares), len(first))


def partitions(bounds: Int64, drawn: int) -> Integers:
    """[N, 1 + K] all counts of so many draws within the bounds, samples without an answer first, then the largest first.

    Feval's own enumeration. Arithmetic; assumes nothing of the calls.

    Args:
        bounds: see `Pools.bounds`.
        drawn: s, the draws.

    Returns:
        [N, 1 + K] counts, each row's sum s.
    """
    found = np.arange(min(int(bounds[0]), drawn) + 1, dtype=np.int16)[:, None]
    for place, bound in enumerate(bounds[1:].tolist(), 1):
        left = drawn - found.sum(axis=1, dtype=np.int64)
        most = np.minimum(left, bound)
        if place > 1:
            most = np.minimum(most, found[:, -1])
        to_come = int(len(bounds) - place)
        least = -(-left // to_come)  # smaller, and the rest could not hold what is left
        widths = np.maximum(most - least + 1, 0)
        parent = np.repeat(np.arange(len(found)), widths)
        votes = np.arange(len(parent)) - np.repeat(np.cumsum(widths) - widths, widths) + least[parent]
        found = np.column_stack([found[parent], votes.astype(np.int16)])
    whole: Integers = found[found.sum(axis=1, dtype=np.int64) == drawn]
    return whole


def number_of_counts(bounds: Int64, drawn: int) -> float:
    """How many `partitions` gives, without writing them down: feval's own recursion over the bounds, which assumes nothing.

    Args:
        bounds: see `partitions`.
        drawn: what the counts sum to.

    Returns:
        The number, as a float: it may be beyond every integer type.
    """
    ways = np.zeros((drawn + 1, drawn + 1))  # by the last count, and the draws so far
    ways[drawn, : min(int(bounds[0]), drawn) + 1] = 1.0
    for bound in bounds[1:].tolist():
        at_least = ways[::-1].cumsum(axis=0)[::-1]
        ways = np.zeros_like(ways)
        for votes in range(min(bound, drawn) + 1):
            ways[votes, votes:] = at_least[votes, : drawn + 1 - votes]
    return float(ways[:, drawn].sum())


# -- the walk over the counts of a pool -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OverOrders:
    """Means over all orders, on Q questions.

    Attributes:
        right: [Q] probability that the plurality at the end is the gold; ties uniform.
        samples: [Q] expected samples.
        output_tokens: [Q] expected tokens of those.
    """

    right: Floats
    samples: Floats
    output_tokens: Floats


def over_orders(
    pools: Pools,
    gold_tokens: Integers,
    rival_tokens: Integers,
    none_tokens: Integers,
    ends: Ends,
    *,
    most_states: int = MOST_STATES,
) -> OverOrders:
    """Accuracy, samples and tokens of a rule on some pools.

    sum over v of prod_a C(n_a, v_a) / C(S, s) ends(v) x what v is worth; feval's own. Assumes only that a question's
    recorded samples are exchangeable: every order of them is equally likely.

    Args:
        pools: their counts.
        gold_tokens: [Q] output tokens of all samples with the gold answer together.
        rival_tokens: [Q, K] of each other candidate, in the order of `pools.rivals`.
        none_tokens: [Q] of the samples without an answer.
        ends: the table of the rule.
        most_states: counts that may be visited for pools with equally many rivals.

    Returns:
        [Q] means for each question.

    Raises:
        UsageError: a pool with too many different counts.
    """
    first, rows = distinct((pools.gold, pools.none, *pools.rivals.T))
    unique = pools.rows(first)
    right, votes = np.zeros(len(first)), np.zeros((len(first), 2 + pools.rivals.shape[1]))
    kinds = (unique.rivals > 0).sum(axis=1)
    for kind in np.unique(kinds):
        same = np.flatnonzero(kinds == kind)
        walk = _Walk(unique.rows(same), int(kind), ends, most_states)
        right[same], votes[same, : 2 + kind] = walk.right, walk.votes
    mean = np.column_stack([
        means(none_tokens, pools.none), means(gold_tokens, pools.gold), _lumped_mean(rival_tokens, pools.rivals)
    ])  # fmt: skip
    samples = votes.sum(axis=1)
    return OverOrders(np.minimum(right, 1.0)[rows], samples[rows], (votes[rows] * mean).sum(axis=1))


def means(tokens: Integers, counts: Integers) -> Floats:
    """Mean tokens of samples, 0 where there are none.

    tokens / counts. Arithmetic; assumes nothing of the calls. Source: feval's own.

    Args:
        tokens: [...] tokens of all samples together.
        counts: [...] samples.

    Returns:
        [...] means.
    """
    found: Floats = tokens / np.maximum(counts, 1)
    return found


def _lumped_mean(tokens: Integers, counts: Int64) -> Floats:
    """[Q, K] mean tokens of the candidates that are recorded as often as the one in the column; counts fall along a row."""
    if not counts.shape[1]:
        return np.zeros(counts.shape)
    lump = np.cumsum(np.diff(counts, axis=1, prepend=counts[:, :1]) != 0, axis=1)
    lump += np.arange(len(counts))[:, None] * counts.shape[1]
    size = lump.max(initial=0) + 1
    spent = np.bincount(lump.ravel(), tokens.ravel(), minlength=size)
    held = np.bincount(lump.ravel(), counts.ravel(), minlength=size)
    found: Floats = (spent / np.maximum(held, 1))[lump]
    return found


@dataclass(frozen=True, eq=False)
class _States:
    """N counts of the candidates walked so far: their pool, and what further candidates need to know of them."""

    pool: npt.NDArray[np.intp]
    weight: Floats  # product of binomials, and of the arrangements within lumps
    key: UInt64
    total: Int16
    gold: Int16
    first: Int16  # largest count, the gold answer's included
    second: Int16
    tied: Int16  # candidates that have the largest
    last: Int16  # count of the candidate before
    run: Int16  # candidates of its lump with the same count, itself included

    def take(self, which: Any) -> _States:
        """Some of them, or repeated."""
        return _States(*(getattr(self, field.name)[which] for field in fields(self)))


class _Walk:
    """The walk over the counts of some pools that have equally many rivals.

    Attributes:
        right: [Q] probability that the answer is the gold.
        votes: [Q, 2 + K] expected samples without an answer, with the gold, and of each rival.
    """

    def __init__(self, pools: Pools, rivals: int, ends: Ends, most_states: int) -> None:
        self.ends, self.rivals, self.most_states = ends, rivals, most_states
        self.counts = np.column_stack([pools.none, pools.gold, pools.rivals[:, :rivals]]).astype(np.int16)
        self.to_come = pools.none[:, None] + np.cumsum(self.counts[:, :0:-1], axis=1)[:, ::-1]  # from a column on
        self.to_come = np.column_stack([self.to_come, pools.none]).astype(np.int16)
        self.size = pools.size
        self.codes = codes_of(np.arange(ends.budget + 1))
        self.none_codes = none_codes_of(np.arange(ends.budget + 1))
        self.binomials = _binomials(int(self.size.max(initial=0)), ends.budget)
        self.right, self.votes = np.zeros(len(self.size)), np.zeros(self.counts.shape)
        self.walked = 0
        nothing = np.zeros((7, len(self.size)), np.int16)
        start = _States(
            np.arange(len(self.size)), np.ones(len(self.size)), np.zeros(len(self.size), np.uint64), *nothing
        )
        self._descend(1, start)

    def _descend(self, column: int, states: _States) -> Floats:
        """[N] the probability of the ends below each state; `right` and `votes` take up what is found on the way."""
        if column == self.counts.shape[1]:
            return self._end(states)
        parent, votes, children = self._children(column, states)
        chance = np.empty(len(parent))
        for start in range(0, len(parent), _BLOCK):
            block = slice(start, start + _BLOCK)
            chance[block] = self._descend(column + 1, children.take(block))
        self.votes[:, column] += np.bincount(children.pool, chance * votes, minlength=len(self.size))
        return _sums(parent, chance, len(states.pool))

    def _children(self, column: int, states: _States) -> tuple[npt.NDArray[np.intp], Int16, _States]:
        """Every count that the next candidate can have: whose child it is, the count, the state."""
        recorded = self.counts[states.pool, column]
        most = np.minimum(recorded, self.ends.budget - states.total)
        lumped = np.zeros(len(most), np.bool_)
        if column > 2:
            lumped = recorded == self.counts[states.pool, column - 1]
            most = np.where(lumped, np.minimum(most, states.last), most)
        parent, wide = _up_to(most)
        votes: Int16 = wide.astype(np.int16)
        old = states.take(parent)
        self._count(len(parent))
        run: Int16 = np.where(lumped[parent] & (votes == old.last), old.run + np.int16(1), np.int16(1))
        weight = old.weight * self.binomials[recorded[parent], votes]
        if column > 2 and lumped.any():  # the place within the lump over the run: their product is a multinomial
            place = 1 + column - self._lump_start(column)[old.pool]
            weight *= np.where(lumped[parent], place / run, 1.0)
        first = np.maximum(old.first, votes)
        second = np.maximum(np.minimum(old.first, votes), old.second)
        tied: Int16 = np.where(votes > old.first, np.int16(1), old.tied + (votes == old.first))
        gold = votes if column == 1 else old.gold
        key, total = old.key + self.codes[votes], old.total + votes
        new = _States(old.pool, weight, key, total, gold, first, second, tied, votes, run)
        to_come = self.counts[new.pool, column + 1] if column + 1 < self.counts.shape[1] else np.zeros_like(votes)
        within_reach: Int16 = new.total + self.to_come[new.pool, column]
        kept = np.flatnonzero(self.ends.possible(first, second, to_come, within_reach))
        return parent[kept], votes[kept], new.take(kept)

    def _lump_start(self, column: int) -> Int64:
        """[Q] the first column of the lump that a rival's column belongs to."""
        alike = self.counts[:, 2:column] == self.counts[:, column, None]
        start: Int64 = column - alike.sum(axis=1)
        return start

    def _end(self, states: _States) -> Floats:
        """[N] the probability of the ends at each state, over all numbers of samples without an answer."""
        none = self.counts[states.pool, 0]
        most = np.minimum(none, self.ends.budget - states.total)
        parent, silent = _up_to(most)
        self._count(len(parent))
        pool, drawn = states.pool[parent], states.total[parent] + silent
        chance = self.ends.at(states.key[parent] + self.none_codes[silent])
        chance *= states.weight[parent] * self.binomials[none[parent], silent] / self.binomials[self.size[pool], drawn]
        self.votes[:, 0] += np.bincount(pool, chance * silent, minlength=len(self.size))
        found = _sums(parent, chance, len(states.pool))
        won = np.where((states.gold == states.first) & (states.gold > 0), 1.0 / np.maximum(states.tied, 1), 0.0)
        self.right += np.bincount(states.pool, found * won, minlength=len(self.size))
        return found

    def _count(self, states: int) -> None:
        self.walked += states
        if self.walked > self.most_states:
            raise UsageError(
                f"The exact expectation over all orders would visit more than {self.most_states:,} counts of answers: the pools "
                "hold too many different answers. Take seeded replicates (order 'seeded'), a smaller budget, or fewer CoTs."
            )


def _sums(place: npt.NDArray[np.intp], values: Floats, length: int) -> Floats:
    """[length] what stands at each place, added up."""
    sums: Floats = np.bincount(place, values, minlength=length).astype(np.float64)
    return sums


def _up_to(most: Int16) -> tuple[npt.NDArray[np.intp], Int64]:
    """0, 1, ..., most of each row, end to end, and whose they are."""
    most = most.astype(np.int64)
    parent = np.repeat(np.arange(len(most)), most + 1)
    starts = np.cumsum(most + 1) - (most + 1)
    return parent, np.arange(len(parent)) - starts[parent]


def _binomials(most: int, length: int) -> Floats:
    """[most + 1, length + 1] C(m, i), by Pascal's rule."""
    choose = np.zeros((most + 1, length + 1))
    choose[:, 0] = 1.0
    for m in range(1, most + 1):
        np.add(choose[m - 1, 1:], choose[m - 1, :-1], out=choose[m, 1:])
    return choose

"""Exact means of stopping rules over all orders of a pool, by a walk over the pool's counts.

A rule's table of ends (`ends`) is built once; then every pool's counts are walked candidate by
candidate (`expected_votes`). Candidates that are recorded equally often are merged (their counts
fall, with the number of their arrangements as a weight), and counts whose two largest cannot belong
to an end are dropped. Every term is positive, so nothing cancels. For small budgets, which leave
most of a pool undrawn, `by_partition` merges counts instead. Feval's own; assumes only that every
order of a question's samples is equally likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import NotExactError
from feval.estimators.arrays import Floats, Int16, Int64, Integers, Rows, UInt64
from feval.estimators.per_question import distinct
from feval.estimators.stopping.ends import AnswerCounts, Ends, count_codes, no_answer_codes
from feval.estimators.votes.plurality import binomials

MOST_STATES = 400_000_000
"""Most counts that `expected_votes` visits by default: about a minute."""

_BLOCK = 1 << 16  # states walked at once
_FORETOLD_FROM = 2048  # states of each column
_MISJUDGED = 2  # times as many as were foretold end a walk


@dataclass(frozen=True, eq=False)
class OverOrders:
    """Means [Q] over all orders: probability that the gold wins the plurality (ties uniform),
    samples, and their tokens.
    """

    right: Floats
    samples: Floats
    output_tokens: Floats


@dataclass(frozen=True, eq=False)
class ExpectedVotes:
    """Means [Q] over all orders that depend on counts alone.

    Attributes:
        right: [Q] probability that the gold wins the plurality.
        votes: [Q, 2 + K] samples without an answer, with the gold answer, and with each rival.
    """

    right: Floats
    votes: Floats

    @property
    def samples(self) -> Floats:
        """[Q] expected samples."""
        total: Floats = self.votes.sum(axis=1)
        return total

    def rows(self, rows: Rows | slice) -> ExpectedVotes:
        """Select questions."""
        return ExpectedVotes(self.right[rows], self.votes[rows])

    def tokens(
        self, pools: AnswerCounts, gold: Integers, rivals: Integers, none: Integers
    ) -> Floats:
        """[Q] expected output tokens. Pools may have fewer rivals than `votes`.

        `gold` [Q], `rivals` [Q, K] and `none` [Q] are the total output tokens of the samples with
        the gold answer, with each other one, in the order of `pools.rivals`, and without one.
        """
        mean = np.zeros(self.votes.shape)
        mean[:, 0], mean[:, 1] = mean_tokens(none, pools.none), mean_tokens(gold, pools.gold)
        mean[:, 2 : 2 + rivals.shape[1]] = _lumped_mean(rivals, pools.rivals)
        mean *= self.votes
        total: Floats = mean.sum(axis=1)
        return total


def expected_votes(
    pools: AnswerCounts, ends: Ends, *, most_states: int = MOST_STATES
) -> ExpectedVotes:
    """Expected votes of a rule over all orders: sum over v of P[end at v] times the votes at v,
    once per distinct pool.

    Args:
        pools: counts of Q pools.
        ends: the rule's table.
        most_states: most counts to visit for pools with equally many rivals; NotExactError beyond.

    Returns:
        Means [Q]; tokens follow from them (`ExpectedVotes.tokens`).
    """
    first, rows = distinct((pools.gold, pools.none, *pools.rivals.T))
    unique = pools.rows(first)
    right, votes = np.zeros(len(first)), np.zeros((len(first), 2 + pools.rivals.shape[1]))
    require_few_states(unique, ends, most_states)
    for same, walk in _walks(unique, ends, most_states):
        walk.walk()
        right[same], votes[same, : 2 + walk.rivals] = walk.right, walk.votes
    return ExpectedVotes(np.minimum(right, 1.0)[rows], votes[rows])


def require_few_states(pools: AnswerCounts, ends: Ends, most_states: int = MOST_STATES) -> None:
    """Raise the NotExactError of `expected_votes` where it would surely come; arguments as
    there.
    """
    for _, walk in _walks(pools, ends, most_states):
        walk.foretell()


def _walks(pools: AnswerCounts, ends: Ends, most_states: int) -> Iterator[tuple[Rows, _Walk]]:
    """The walks over the pools with equally many rivals, and which these are; those with most
    rivals first.
    """
    kinds = (pools.rivals > 0).sum(axis=1)
    for kind in np.unique(kinds)[::-1].tolist():
        same = np.flatnonzero(kinds == kind)
        yield same, _Walk(pools.rows(same), kind, ends, most_states)


def mean_tokens(tokens: Integers, counts: Integers) -> Floats:
    """[...] mean tokens per sample, 0 where there are none."""
    mean: Floats = tokens / np.maximum(counts, 1)
    return mean


def _lumped_mean(tokens: Integers, counts: Int64) -> Floats:
    """[Q, K] mean tokens over all candidates with the same count as this one; counts descend along
    a row.
    """
    if not counts.shape[1]:
        return np.zeros(counts.shape)
    lump = np.cumsum(np.diff(counts, axis=1, prepend=counts[:, :1]) != 0, axis=1)
    lump += np.arange(len(counts))[:, None] * counts.shape[1]
    size = lump.max(initial=0) + 1
    spent = np.bincount(lump.ravel(), tokens.ravel(), minlength=size)
    samples = np.bincount(lump.ravel(), counts.ravel(), minlength=size)
    mean: Floats = (spent / np.maximum(samples, 1))[lump]
    return mean


@dataclass(frozen=True, eq=False)
class _States:
    """N partial counts of the walk: their pool, and what the remaining candidates need to know."""

    pool: npt.NDArray[np.intp]
    weight: Floats  # product of binomials, and of the arrangements within lumps
    key: UInt64
    total: Int16
    gold: Int16
    first: Int16  # largest count, gold included
    second: Int16
    tied: Int16  # candidates with the largest count
    last: Int16  # count of the previous candidate
    run: Int16  # candidates of its lump with the same count, including itself

    def take(self, which: Any) -> _States:
        """Select states, possibly repeated."""
        return _States(*(getattr(self, field.name)[which] for field in fields(self)))


class _Walk:
    """The walk over the counts of pools with equally many rivals.

    Attributes:
        right: [Q] probability that the answer is the gold.
        votes: [Q, 2 + K] expected samples without an answer, with the gold, and of each rival.
    """

    def __init__(self, pools: AnswerCounts, rivals: int, ends: Ends, most_states: int) -> None:
        self.ends, self.rivals, self.most_states = ends, rivals, most_states
        self.counts = np.column_stack([pools.none, pools.gold, pools.rivals[:, :rivals]]).astype(
            np.int16
        )
        # from a column on
        self.to_come = pools.none[:, None] + np.cumsum(self.counts[:, :0:-1], axis=1)[:, ::-1]
        self.to_come = np.column_stack([self.to_come, pools.none]).astype(np.int16)
        self.size = pools.size
        self.codes = count_codes(np.arange(ends.budget + 1))
        self.none_codes = no_answer_codes(np.arange(ends.budget + 1))
        self.binomials = binomials(int(self.size.max(initial=0)), ends.budget + 1)
        self.right, self.votes = np.zeros(len(self.size)), np.zeros(self.counts.shape)
        self.walked = 0

    def walk(self) -> None:
        """Fill in `right` and `votes`."""
        self._descend(1, self._start())

    def foretell(self) -> None:
        """Raise NotExactError where the walk would surely visit too many counts.

        Of each column's states a part, chosen as by dice, stands for all (Knuth 1975, "Estimating
        the efficiency of backtrack programs"). It takes milliseconds and is right to a tenth, so
        that no walk is begun that would be given up on the way.
        """
        # without lumps and ends
        of_pool = np.log1p(np.minimum(self.counts[:, 1:], self.ends.budget)).sum(axis=1)
        if np.logaddexp.reduce(of_pool) + np.log(self.counts.shape[1]) < np.log(self.most_states):
            return
        states, each, visited = self._start(), 1.0, 0.0
        for column in range(1, self.counts.shape[1]):
            if len(states.pool) > _FORETOLD_FROM:
                each *= len(states.pool) / _FORETOLD_FROM
                dice = count_codes(np.arange(len(states.pool)) + column)
                states = states.take(np.argpartition(dice, _FORETOLD_FROM)[:_FORETOLD_FROM])
            self.walked = 0
            states = self._children(column, states)[2]
            visited += each * self.walked
        silent = np.minimum(self.counts[states.pool, 0], self.ends.budget - states.total)
        self._require(visited + each * float((silent + 1).sum()), self.most_states)

    def _start(self) -> _States:
        """No sample of any candidate."""
        nothing = np.zeros((7, len(self.size)), np.int16)
        return _States(
            np.arange(len(self.size)),
            np.ones(len(self.size)),
            np.zeros(len(self.size), np.uint64),
            *nothing,
        )

    def _descend(self, column: int, states: _States) -> Floats:
        """[N] probability of the ends below each state; adds to `right` and `votes` on the way."""
        if column == self.counts.shape[1]:
            return self._end(states)
        parent, votes, children = self._children(column, states)
        chance = np.empty(len(parent))
        for start in range(0, len(parent), _BLOCK):
            block = slice(start, start + _BLOCK)
            chance[block] = self._descend(column + 1, children.take(block))
        self.votes[:, column] += np.bincount(
            children.pool, chance * votes, minlength=len(self.size)
        )
        return _sums(parent, chance, len(states.pool))

    def _children(
        self, column: int, states: _States
    ) -> tuple[npt.NDArray[np.intp], Int16, _States]:
        """Every possible count of the next candidate: parent state, count, new state."""
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
        run: Int16 = np.where(
            lumped[parent] & (votes == old.last), old.run + np.int16(1), np.int16(1)
        )
        weight = old.weight * self.binomials[recorded[parent], votes]
        # the place within the lump over the run: their product is a multinomial
        if column > 2 and lumped.any():
            place = 1 + column - self._lump_start(column)[old.pool]
            weight *= np.where(lumped[parent], place / run, 1.0)
        first = np.maximum(old.first, votes)
        second = np.maximum(np.minimum(old.first, votes), old.second)
        tied: Int16 = np.where(votes > old.first, np.int16(1), old.tied + (votes == old.first))
        gold = votes if column == 1 else old.gold
        key, total = old.key + self.codes[votes], old.total + votes
        new = _States(old.pool, weight, key, total, gold, first, second, tied, votes, run)
        to_come = (
            self.counts[new.pool, column + 1]
            if column + 1 < self.counts.shape[1]
            else np.zeros_like(votes)
        )
        within_reach: Int16 = new.total + self.to_come[new.pool, column]
        open_states = np.flatnonzero(self.ends.possible(first, second, to_come, within_reach))
        return parent[open_states], votes[open_states], new.take(open_states)

    def _lump_start(self, column: int) -> Int64:
        """[Q] first column of the lump of equal counts that a rival's column belongs to."""
        alike = self.counts[:, 2:column] == self.counts[:, column, None]
        start: Int64 = column - alike.sum(axis=1)
        return start

    def _end(self, states: _States) -> Floats:
        """[N] probability of the ends at each state, summed over the number of samples without an
        answer.
        """
        none = self.counts[states.pool, 0]
        most = np.minimum(none, self.ends.budget - states.total)
        parent, silent = _up_to(most)
        self._count(len(parent))
        pool, drawn = states.pool[parent], states.total[parent] + silent
        chance = self.ends.at(states.key[parent] + self.none_codes[silent])
        chance *= (
            states.weight[parent]
            * self.binomials[none[parent], silent]
            / self.binomials[self.size[pool], drawn]
        )
        self.votes[:, 0] += np.bincount(pool, chance * silent, minlength=len(self.size))
        total = _sums(parent, chance, len(states.pool))
        won = np.where(
            (states.gold == states.first) & (states.gold > 0), 1.0 / np.maximum(states.tied, 1), 0.0
        )
        self.right += np.bincount(states.pool, total * won, minlength=len(self.size))
        return total

    def _count(self, states: int) -> None:
        self.walked += states
        self._require(self.walked, _MISJUDGED * self.most_states)

    def _require(self, states: float, most: int) -> None:
        if states > most:
            raise NotExactError(
                f"The exact expectation over all orders would visit more than {self.most_states:,}"
                " counts of answers: the pools contain too many different answers."
            )


def _sums(place: npt.NDArray[np.intp], values: Floats, length: int) -> Floats:
    """[length] sums of the values at each place."""
    sums: Floats = np.bincount(place, values, minlength=length).astype(np.float64)
    return sums


def _up_to(most: Int16) -> tuple[npt.NDArray[np.intp], Int64]:
    """Concatenate 0, 1, ..., most for each row; return the row of each and the numbers."""
    most = most.astype(np.int64)
    parent = np.repeat(np.arange(len(most)), most + 1)
    starts = np.cumsum(most + 1) - (most + 1)
    return parent, np.arange(len(parent)) - starts[parent]

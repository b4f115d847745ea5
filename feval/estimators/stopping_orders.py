"""Exact means of stopping rules over all orders of a pool, by a walk over the pool's counts.

A rule's table of ends (`ends`) is built once; then every pool's counts are walked candidate by
candidate (`expected_votes`). Candidates that are recorded equally often are merged (their counts
fall, with the number of their arrangements as a weight), and counts whose two largest cannot belong
to an end are dropped. Every term is positive, so nothing cancels. For small budgets, which leave
most of a pool undrawn, `by_partition` merges counts instead. Feval's own; assumes only that every
order of a question's samples is equally likely.

Exact means of stopping rules over all orders of a pool: the sums of `orders` with equal counts
merged.

A rule depends on the rivals' counts, not on which rival has which. So the ways to draw samples of
the rivals are summed by the partition p of their counts, candidate by candidate, least recorded
first:

    ways(p) = sum over all counts v of the rivals that make p  prod_a C(n_a, v_a)

and with g samples of the gold answer, z without an answer, and s of all together

    P[end there] = ways(p) C(n_gold, g) C(n_none, z) / C(S, s) * ends(p, g, z)

A second sum carries sum_a v_a m_a, with the mean tokens m_a of each rival. All questions share the
partitions: a step is a few operations on an array [partitions, questions]. There are 2,714
partitions of up to 20 samples, but 215,308 of up to 40: beyond `MOST_PARTITIONS` the walk of
`orders` is faster. Every term is positive. Feval's own; assumes only that every order of a
question's samples is equally likely.

Exact means of stopping rules over all orders of many pools, by one recursion over their
sub-pools.

The last sample of a random order is of candidate a with probability n_a / S, and the samples before
it are in random order, too. So a mean over the orders of a pool n follows from those of the pools
with one sample less:

    mean(n) = sum_a (n_a / S) mean(n - e_a)  +  ends(n) payoff(n)

with ends(n) of `ends`, 0 beyond the budget, and a candidate's votes or its share of the lead as
payoff. Candidates with equal counts have the same means; which one is the gold matters only when
they are read. Pools have most of their sub-pools in common: a million questions with 40 samples and
up to ten answers have 65,000 different counts, whose answers have 107,000 sub-pools. Every term is
positive, so nothing cancels. Feval's own; assumes only that every order of a question's samples is
equally likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from typing import Any

import numpy as np

from feval.errors import NotExactError
from feval.estimators.arrays import Floats, Int16, Int64, Integers, Numbers, Result, Rows, UInt64
from feval.estimators.per_question import distinct
from feval.estimators.plurality import binomials
from feval.estimators.stopping_ends import AnswerCounts, Ending, Ends, count_codes, no_answer_codes

MOST_STATES = 400_000_000
"""Most counts that `expected_votes` visits by default: about a minute."""

_BLOCK = 1 << 16  # states walked at once
_FORETOLD_FROM = 2048  # states of each column
_MISJUDGED = 2  # times as many as were foretold end a walk


class OverOrders(Result):
    """Means [Q] over all orders: probability that the gold wins the plurality (ties uniform),
    samples, and their tokens.
    """

    right: Floats
    samples: Floats
    output_tokens: Floats


class ExpectedVotes(Result):
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
        return self.votes.sum(axis=1)

    def tokens(
        self, pools: AnswerCounts, gold: Integers, rivals: Integers, none: Integers
    ) -> Floats:
        """[Q] expected output tokens. Pools may have fewer rivals than `votes`.

        `gold` [Q], `rivals` [Q, K] and `none` [Q] are the total output tokens of the samples with
        the gold answer, with each other one, in the order of `pools.rivals`, and without one.
        """
        mean = np.zeros(self.votes.shape)
        mean[:, 0], mean[:, 1] = _mean_tokens(none, pools.none), _mean_tokens(gold, pools.gold)
        mean[:, 2 : 2 + rivals.shape[1]] = _lumped_mean(rivals, pools.rivals)
        mean *= self.votes
        return mean.sum(axis=1)


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


def _mean_tokens(tokens: Integers, counts: Integers) -> Floats:
    """[...] mean tokens per sample, 0 where there are none."""
    return tokens / np.maximum(counts, 1)


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
    return (spent / np.maximum(samples, 1))[lump]


class _States(Result):
    """N partial counts of the walk: their pool, and what the remaining candidates need to know."""

    pool: Rows
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

    def _children(self, column: int, states: _States) -> tuple[Rows, Int16, _States]:
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
        return column - alike.sum(axis=1)

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


def _sums(place: Rows, values: Floats, length: int) -> Floats:
    """[length] sums of the values at each place."""
    return np.bincount(place, values, minlength=length).astype(np.float64)


def _up_to(most: Int16) -> tuple[Rows, Int64]:
    """Concatenate 0, 1, ..., most for each row; return the row of each and the numbers."""
    most = most.astype(np.int64)
    parent = np.repeat(np.arange(len(most)), most + 1)
    starts = np.cumsum(most + 1) - (most + 1)
    return parent, np.arange(len(parent)) - starts[parent]


MOST_PARTITIONS = 10_000
"""Number of partitions above which `orders.expected_votes` is faster."""

_QUESTIONS = 128  # per block


def number_of_partitions(budget: int) -> int:
    """Count the multisets of counts that sum to at most the budget: sum_(s <= budget) p(s), by
    Euler's product.
    """
    ways = [1] + [0] * budget
    for part in range(1, budget + 1):
        for total in range(part, budget + 1):
            ways[total] += ways[total - part]
    return sum(ways)


def over_partitions(
    pools: AnswerCounts,
    gold_tokens: Integers,
    rival_tokens: Integers,
    none_tokens: Integers,
    ends: Ends,
) -> OverOrders:
    """Expected accuracy, samples and tokens [Q] of a rule; arguments as for
    `orders.expected_votes`.
    """
    partitions = _Partitions(ends.budget)
    stops = _Stops.of(partitions, ends, int(min(pools.none.max(initial=0), ends.budget)))
    choose = binomials(int(pools.size.max(initial=0)), ends.budget + 1)
    spent = (
        _mean_tokens(none_tokens, pools.none),
        _mean_tokens(gold_tokens, pools.gold),
        _mean_tokens(rival_tokens, pools.rivals),
    )
    result = np.zeros((3, len(pools.gold)))
    order = np.lexsort(pools.rivals.T[::-1]) if pools.rivals.size else np.arange(len(pools.gold))
    for start in range(0, len(order), _QUESTIONS):
        block = order[start : start + _QUESTIONS]
        rivals = pools.rivals[block]
        used = int(rivals.any(axis=0).sum())
        ways = partitions.ways(rivals[:, :used], spent[2][block, :used], choose)
        result[:, block] = stops.sums(
            ways, pools.rows(block), spent[0][block], spent[1][block], choose
        )
    return OverOrders(np.minimum(result[0], 1.0), result[1], result[2])


class _Partitions:
    """All multisets of counts that sum to at most a budget, those with small parts first.

    Attributes:
        codes: [budget + 1] codes of counts, see `ends`.
        keys, totals: [P] sums of the parts' codes and of the parts.
        largest, repeated: [P] largest parts, 0 for the empty partition, and their multiplicity.
        within: [budget + 1] number of partitions with no part above each count.
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.codes = budget, count_codes(np.arange(budget + 1))
        keys, totals, within = [np.zeros(1, np.uint64)], [np.zeros(1, np.int64)], [1]
        largest, repeated = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
        for part in range(1, budget + 1):
            key, total, times = np.concatenate(keys), np.concatenate(totals), 0
            while (fits := total + part <= budget).any():
                key, total, times = key[fits] + self.codes[part], total[fits] + part, times + 1
                keys.append(key)
                totals.append(total)
                largest.append(np.full(len(key), part))
                repeated.append(np.full(len(key), times))
            within.append(sum(map(len, keys)))
        self.keys, self.totals, self.within = np.concatenate(keys), np.concatenate(totals), within
        self.largest, self.repeated = np.concatenate(largest), np.concatenate(repeated)
        if len(np.unique(self.keys)) < len(self.keys):
            raise AssertionError("two partitions share a key")

    @cached_property
    def grown(self) -> list[tuple[Rows, Rows]]:
        """[budget + 1] for every part: partitions with room for it, and the partitions that include
        it.
        """
        order = np.argsort(self.keys)
        result = []
        for part in range(self.budget + 1):
            room = np.flatnonzero(self.totals + part <= self.budget)
            place = order[
                np.searchsorted(self.keys, self.keys[room] + self.codes[part], sorter=order)
            ]
            result.append((room, place if part else room))
        return result

    def ways(self, rivals: Int64, mean: Floats, choose: Floats) -> tuple[Floats, Floats]:
        """[P', N] ways to draw each partition from N questions' rivals [N, K] in descending order,
        and their tokens.
        """
        widest = [min(int(most), self.budget) for most in rivals.max(axis=0, initial=0)]
        reach = self.within[widest[0] if widest else 0]
        ways, tokens = np.zeros((reach, len(rivals))), np.zeros((reach, len(rivals)))
        ways[0], before = 1.0, 0
        for column in range(len(widest) - 1, -1, -1):
            old_ways, old_tokens = (
                ways[: self.within[before]].copy(),
                tokens[: self.within[before]].copy(),
            )
            for part in range(1, widest[column] + 1):
                room, place = self.grown[part]
                known = int(np.searchsorted(room, len(old_ways)))
                room, place = room[:known], place[:known]
                choices = choose[rivals[:, column], part]
                more = old_ways[room] * choices
                ways[place] += more
                tokens[place] += old_tokens[room] * choices + more * (part * mean[:, column])
            before = widest[column]
        return ways, tokens


class _Stops(Result):
    """E ends of a rule by partition of the rivals, gold samples and samples without an answer.

    Attributes:
        partition, gold, none, drawn: [E] the rivals' partition; samples with the gold answer,
            without an answer, and in all.
        chance: [E] probability that draws with these counts end there and no earlier.
        won: [E] the gold answer's share of the lead.
    """

    partition: Int64
    gold: Int64
    none: Int64
    drawn: Int64
    chance: Floats
    won: Floats
    budget: int

    @classmethod
    def of(cls, partitions: _Partitions, ends: Ends, most_none: int) -> _Stops:
        """Enumerate the ends with up to so many samples without an answer."""
        codes, silent = partitions.codes, no_answer_codes(np.arange(ends.budget + 1))
        parts: list[list[Numbers]] = []
        for gold in range(ends.budget + 1):
            for none in range(min(most_none, ends.budget - gold) + 1):
                room = np.flatnonzero(partitions.totals + gold + none <= ends.budget)
                chance = ends.at(partitions.keys[room] + codes[gold] + silent[none])
                room, chance = room[chance > 0], chance[chance > 0]
                leads = gold >= np.maximum(partitions.largest[room], 1)
                tied = np.where(partitions.largest[room] == gold, partitions.repeated[room], 0)
                drawn = partitions.totals[room] + gold + none
                parts.append([
                    room, np.full(len(room), gold), np.full(len(room), none), drawn, chance,
                    leads / (1 + tied)
                ])  # fmt: skip
        partition, golds, silents, drawn, chance, won = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        return cls(partition, golds, silents, drawn, chance, won, ends.budget)

    def sums(
        self,
        ways: tuple[Floats, Floats],
        pools: AnswerCounts,
        none_mean: Floats,
        gold_mean: Floats,
        choose: Floats,
    ) -> Floats:
        """[3, N] probability of the gold answer, expected samples and tokens."""
        result = np.zeros((3, len(pools.gold)))
        choices = choose[pools.gold, : self.budget + 1]
        known = self.partition < len(ways[0])
        pairs, kinds = np.unique(
            np.column_stack([pools.size, pools.none]), axis=0, return_inverse=True
        )
        for kind, (size, none) in enumerate(pairs.tolist()):
            questions = np.flatnonzero(kinds.ravel() == kind)
            possible = np.flatnonzero(known & (self.none <= none) & (self.drawn <= size))
            chance = (
                self.chance[possible]
                * choose[none, self.none[possible]]
                / choose[size, self.drawn[possible]]
            )
            none_here, gold_here = chance * self.none[possible], chance * self.gold[possible]
            right, samples = chance * self.won[possible], chance * self.drawn[possible]
            tables = [
                self._table(possible, weight, len(ways[0]))
                for weight in (right, samples, none_here, gold_here, chance)
            ]
            gold_choices = choices[questions]
            sums = [ways[0][:, questions].T @ table * gold_choices for table in tables[:4]]
            result[:2, questions] = sums[0].sum(axis=1), sums[1].sum(axis=1)
            tokens = (
                ways[1][:, questions].T @ tables[4] * gold_choices
                + sums[2] * none_mean[questions, None]
            )
            result[2, questions] = (tokens + sums[3] * gold_mean[questions, None]).sum(axis=1)
        return result

    def _table(self, ends: Rows, weight: Floats, partitions: int) -> Floats:
        """[partitions, budget + 1] weights of some ends, by partition and gold samples."""
        place = self.partition[ends] * (self.budget + 1) + self.gold[ends]
        sums = np.bincount(place, weight, minlength=partitions * (self.budget + 1)).astype(
            np.float64
        )
        return sums.reshape(partitions, self.budget + 1)


MOST_SUBPOOLS = 3_000_000
"""Most sub-pools that `votes_over_subpools` is meant for: some seconds, and 300 MB with ten
answers.
"""

_LARGEST_POOL = 400
_CELLS = 1 << 18  # numbers gathered at once


def number_of_subpools(pools: AnswerCounts) -> float:
    """Upper bound of the number of sub-pools of pools, their samples without an answer left out.

    Not counted to the end where it is above `MOST_SUBPOOLS`, and infinite for pools of more than
    400 answered samples.
    """
    bounds = pools.bounds()[1:].tolist()
    most = int((pools.size - pools.none).max(initial=0))
    if most > _LARGEST_POOL:
        return np.inf
    ways = np.zeros((most + 1, most + 1))  # by the last count, and the samples so far
    ways[most, 0] = 1.0
    for bound in bounds:
        if ways.sum() > MOST_SUBPOOLS:
            break
        at_least = ways[::-1].cumsum(axis=0)[::-1]
        ways = np.zeros_like(ways)
        for votes in range(bound + 1):
            ways[votes, votes:] = at_least[votes, : most + 1 - votes]
    return float(ways.sum())


def votes_over_subpools(pools: AnswerCounts, ending: Ending, budget: int) -> ExpectedVotes:
    """The same means as `orders.expected_votes`, for a rule that ends with the probability
    `ending`.
    """
    leads, votes = _over_subpools(pools, ending, budget)
    return ExpectedVotes(np.minimum(leads[:, 1], 1.0), votes)


def wrong_ends(
    pools: AnswerCounts, ending: Ending, budget: int, *, none_votes: bool = False
) -> Floats:
    """[Q] probability to end within the budget on another answer than the gold, ties being broken
    uniformly.

    With `none_votes`, no answer is a candidate, also in the counts of `ending`; to end on it does
    not count.
    """
    voting = pools.with_no_answer_as_rival() if none_votes else pools
    leads = _over_subpools(voting, ending, budget)[0][:, 2:]
    if none_votes and leads.shape[1]:  # candidates with equal counts lead equally often
        leads[np.arange(len(leads)), (voting.rivals == pools.none[:, None]).argmax(axis=1)] *= (
            pools.none == 0
        )
    return leads.sum(axis=1)


def _over_subpools(pools: AnswerCounts, ending: Ending, budget: int) -> tuple[Floats, Floats]:
    """[Q, 2 + K] expected shares of the lead and expected votes: of no answer, the gold and each
    rival.
    """
    counts = np.zeros((len(pools.gold), 2 + pools.rivals.shape[1]), np.int16)
    counts[:, 1:] = -np.sort(-np.column_stack([pools.gold, pools.rivals]), axis=1)
    totals = counts.sum(axis=1, dtype=np.int64)
    gold = 1 + (pools.rivals > pools.gold[:, None]).sum(axis=1)
    rivals = np.arange(1, counts.shape[1] - 1)
    columns = np.column_stack([np.zeros_like(gold), gold, rivals + (rivals >= gold[:, None])])
    result = np.zeros((len(counts), counts.shape[1], 2))
    below, marks = (
        np.zeros((1, 2, int(pools.none.max(initial=0)) + 1)),
        np.zeros((1, counts.shape[1]), np.int32),
    )
    for total, (own, rows, subpools, children) in enumerate(_layers(counts, totals)):
        layer = _Layer.of(subpools)
        silent = int(pools.none[totals >= total].max(initial=0)) + 1
        means = layer.before_the_last(children, below[:, :, :silent], marks)
        layer.end(means, total, ending, budget)
        place = np.take_along_axis(layer.mark[rows], columns[own], axis=1)
        result[own] = means[place, :, pools.none[own, None]]
        below, marks = means, layer.mark
    return result[:, :, 1], result[:, :, 0]


def _layers(counts: Integers, totals: Int64) -> list[tuple[Rows, Rows, Integers, Integers]]:
    """All sub-pools of pools [Q, 1 + K], by their number of samples from 0 on.

    Of each layer: [P] its pools, [P] their rows, [N, 1 + K] the counts, and [R] for each run of
    equal counts the row in the layer below that has one sample of it less.
    """
    codes = count_codes(np.arange(int(counts.max(initial=0)) + 1))
    layers: list[tuple[Rows, Rows, Integers]] = []
    children: list[Integers] = []
    smaller = counts[:0]
    for total in range(int(totals.max(initial=0)), -1, -1):
        own = np.flatnonzero(totals == total)
        found = np.concatenate([counts[own], smaller])
        _, kept, rows = np.unique(
            codes[found].sum(axis=1, dtype=np.uint64), return_index=True, return_inverse=True
        )
        subpools = found[kept]
        if not (found == subpools[rows]).all():
            raise AssertionError("two counts share a key")
        layers.append((own, rows[: len(own)], subpools))
        children.append(rows[len(own) :].astype(np.int32))
        smaller = _one_less(subpools)
    children.append(np.zeros(0, np.int32))
    return [(*layer, below) for layer, below in zip(layers, children[1:], strict=True)][::-1]


def _one_less(counts: Integers) -> Integers:
    """[R, 1 + K] counts without one sample of each run's last candidate, which leaves them in
    order.
    """
    last = counts > 0
    last[:, :-1] &= counts[:, :-1] != counts[:, 1:]
    state, column = np.nonzero(last)
    less = counts[state]
    less[np.arange(len(state)), column] -= 1
    return less


class _Layer(Result):
    """N sub-pools with equally many answered samples.

    Means are stored by mark: a run of candidates with equal counts, or no answer, whose place is
    column 0. A row of zeros follows them, for candidates without samples.

    Attributes:
        counts: [N, 1 + K] samples of each candidate, the largest first; 0 in column 0.
        state, first, last: [M] row of each mark, and its first and last column; in ascending order.
        mark: [N, 1 + K] mark of each column, M for a count of 0.
    """

    counts: Integers
    state: Rows
    first: Rows
    last: Rows
    mark: Integers

    @classmethod
    def of(cls, counts: Integers) -> _Layer:
        """Find the marks of counts."""
        begins = counts > 0
        begins[:, 2:] &= counts[:, 2:] != counts[:, 1:-1]
        begins[:, 0] = True
        state, first = np.nonzero(begins)
        mark = np.cumsum(begins, dtype=np.int32).reshape(begins.shape) - 1
        mark[:, 1:][counts[:, 1:] == 0] = len(state)
        last = first + np.bincount(mark.ravel(), minlength=len(state))[: len(state)] - 1
        return cls(counts, state, first, last, mark)

    def before_the_last(self, children: Integers, below: Floats, marks: Integers) -> Floats:
        """[M + 1, 2, Z] sums over the candidate of the last sample: its count times the means of
        the layer `below`.

        `marks` are those of that layer, by row and column.
        """
        sums = np.zeros((len(self.state) + 1, *below.shape[1:]))
        # the marks of a row are no answer and then its runs
        begin = np.flatnonzero(self.first == 0)
        runs = np.diff(begin, append=len(self.state)) - 1
        child = np.zeros(len(self.state), np.intp)
        child[self.first > 0] = children
        votes, alike = (
            self.counts[self.state, self.last].astype(np.float64),
            self.last - self.first + 1,
        )
        step = max(1, _CELLS // (below[0].size * (int(runs.max()) + 1) ** 2))
        for start in range(0, len(begin) if len(children) else 0, step):
            some = np.arange(
                begin[start], begin[start + step] if start + step < len(begin) else len(self.state)
            )
            pairs = runs[self.state[some]]
            ends = np.cumsum(pairs)
            mark = np.repeat(some, pairs)
            run = np.arange(len(mark)) + np.repeat(
                begin[self.state[some]] + 1 - (ends - pairs), pairs
            )
            # the run's last candidate is marked; where another one of the run is, see below
            same = mark == run
            values = below[marks[child[run], np.where(same, self.last[mark], self.first[mark])]]
            values *= (votes[run] * np.where(same, 1, alike[run]))[:, None, None]
            sums[some] = np.add.reduceat(values, ends - pairs, axis=0)
        several = np.flatnonzero(alike > 1)
        others = below[marks[child[several], self.first[several]]]
        sums[several] += (votes * (alike - 1))[several, None, None] * others
        return sums

    def end(self, means: Floats, total: int, ending: Ending, budget: int) -> None:
        """Turn the sums of `before_the_last` into means, which also grow by one sample without an
        answer at a time.

        The share of the lead of no answer is 0; its place is taken by the probability to come here
        and go on.
        """
        candidate = self.first > 0
        votes = self.counts[self.state, self.first].astype(np.float64)
        lead = np.where(self.first == 1, 1.0 / (self.last - self.first + 1), 0.0)
        silent = ~candidate
        for none in range(means.shape[2]):
            now, drawn = means[:-1, :, none], total + none
            if none:
                now += none * means[:-1, :, none - 1]
            if not drawn:
                now[:, 1] = 1.0
                continue
            now /= drawn
            if drawn <= budget:
                reach = now[silent, 1]
                counts = self.counts.copy()
                counts[:, 0] = none
                chance = ending(counts, drawn, reach)
                now[silent, 1] = reach - chance
                votes[silent] = none
                chance = chance[self.state]
                now[:, 0] += chance * votes
                now[candidate, 1] += (chance * lead)[candidate]

"""Exact means of stopping rules over all orders of a pool: the sums of `orders` with equal counts
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
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.estimators.arrays import Floats, Int64, Integers
from feval.estimators.stopping.ends import AnswerCounts, Ends, count_codes, no_answer_codes
from feval.estimators.stopping.orders import OverOrders, mean_tokens
from feval.estimators.votes.plurality import binomials

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
        mean_tokens(none_tokens, pools.none),
        mean_tokens(gold_tokens, pools.gold),
        mean_tokens(rival_tokens, pools.rivals),
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
    def grown(self) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
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


@dataclass(frozen=True, eq=False)
class _Stops:
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
        parts: list[list[npt.NDArray[Any]]] = []
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

    def _table(self, ends: npt.NDArray[np.intp], weight: Floats, partitions: int) -> Floats:
        """[partitions, budget + 1] weights of some ends, by partition and gold samples."""
        place = self.partition[ends] * (self.budget + 1) + self.gold[ends]
        sums = np.bincount(place, weight, minlength=partitions * (self.budget + 1)).astype(
            np.float64
        )
        return sums.reshape(partitions, self.budget + 1)

"""Exact means of stopping rules over all orders of pools, by two recursions over counts.

Let a pool have n_a samples of candidate a, drawn without replacement in random order. After s draws
the counts are v with the hypergeometric probability prod_a C(n_a, v_a) / C(S, s), and given the
counts every order of the labels is equally likely. So the probability that a rule ends exactly
there depends on the counts alone, not on the pool:

    P[end at v] = prod_a C(n_a, v_a) / C(S, s) * ends(v)
    reach(v) = sum_a (v_a / s) reach(v - e_a) [the rule goes on at v - e_a]
    ends(v) = reach(v) [it stops at v]

A rule that treats candidates alike has the same `ends` for all orders of the counts, so one table
over partitions serves all pools (`ends_of_rule`). Two sums apply it to pools. Every term is
positive, so nothing cancels. Feval's own; assumes only that every order of a question's samples is
equally likely.

**By partition** (`over_partitions`), question by question. A rule depends on the rivals' counts,
not on which rival has which. So the ways to draw samples of the rivals are summed by the partition
p of their counts, candidate by candidate, least recorded first:

    ways(p) = sum over all counts v of the rivals that make p  prod_a C(n_a, v_a)

and with g samples of the gold answer, z without an answer, and s of all together

    P[end there] = ways(p) C(n_gold, g) C(n_none, z) / C(S, s) * ends(p, g, z)

A second sum carries sum_a v_a m_a, with the mean tokens m_a of each rival. All questions share the
partitions: a step is a few operations on an array [partitions, questions]. There are 2,714
partitions of up to 20 samples, 215,308 of up to 40, but 7,166 of those among five rivals.

**By sub-pool** (`votes_over_subpools`), for many pools at once. The last sample of a random order
is of candidate a with probability n_a / S, and the samples before it are in random order, too. So a
mean over the orders of a pool n follows from those of the pools with one sample less:

    mean(n) = sum_a (n_a / S) mean(n - e_a)  +  ends(n) payoff(n)

with ends(n) 0 beyond the budget, and a candidate's votes or its share of the lead as payoff.
Candidates with equal counts have the same means; which one is the gold matters only when they are
read. Pools have most of their sub-pools in common: a million questions with 40 samples and up to
ten answers have 65,000 different counts, whose answers have 107,000 sub-pools.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from feval.errors import NotExactError
from feval.estimators.arrays import Bools, Floats, Int64, Integers, Numbers, Result, Rows, UInt64
from feval.estimators.per_question import distinct, slices
from feval.estimators.plurality import VoteCounts, binomials

MOST_TERMS = 50_000_000
"""Most partitions times questions of `over_partitions`: about a minute."""

_CELLS_OF_WAYS = 1 << 23  # partitions times questions at once
_QUESTIONS = 128  # per block; those with similar rivals have fewer partitions


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
        result: Floats = self.votes.sum(axis=1)
        return result

    def tokens(self, pools: VoteCounts, tokens: VoteCounts) -> Floats:
        """[Q] expected output tokens, from those of all samples with each answer. Pools may have
        fewer rivals than `votes`.
        """
        mean = np.zeros(self.votes.shape)
        mean[:, 1], _, mean[:, 0] = _mean_tokens(pools, tokens)
        mean[:, 2 : 2 + pools.rivals.shape[1]] = _lumped_mean(tokens.rivals, pools.rivals)
        mean *= self.votes
        result: Floats = mean.sum(axis=1)
        return result


def number_of_partitions(budget: int, parts: int) -> float:
    """Count the multisets of so many counts, or fewer, that sum to at most the budget."""
    return float(_descending(np.full(min(parts, budget), budget), 0, budget).sum())


def require_few_partitions(pools: VoteCounts, budget: int, most: int = MOST_TERMS) -> None:
    """Raise NotExactError where `over_partitions` would take longer than a minute."""
    if len(pools.gold) * number_of_partitions(budget, pools.rivals.shape[1]) > most:
        raise NotExactError(
            f"The exact expectation over all orders would visit more than {most:,} counts of"
            " answers: the pools contain too many different answers."
        )


def over_partitions(pools: VoteCounts, ends: Ends, tokens: VoteCounts) -> OverOrders:
    """Expected accuracy, samples and tokens [Q] of a rule, from the counts of pools in descending
    order, and the total output tokens of the samples with each answer.
    """
    partitions = _Partitions(ends.budget, pools.rivals.shape[1])
    stops = _Stops(partitions, ends, int(pools.no_answer.max(initial=0)))
    choose = binomials(int(pools.size.max(initial=0)), ends.budget + 1)
    gold_mean, rival_mean, none_mean = _mean_tokens(pools, tokens)
    result = np.zeros((3, len(pools.gold)))
    order = np.lexsort(pools.rivals.T[::-1]) if pools.rivals.size else np.arange(len(pools.gold))
    for places in slices(len(order), min(_QUESTIONS, _CELLS_OF_WAYS // len(partitions.keys))):
        block = order[places]
        rivals = pools.rivals[block]
        used = int(rivals.any(axis=0).sum())
        ways = partitions.ways(rivals[:, :used], rival_mean[block, :used], choose)
        result[:, block] = stops.sums(
            ways, pools.take(block), none_mean[block], gold_mean[block], choose
        )
    return OverOrders(np.minimum(result[0], 1.0), result[1], result[2])


class _Partitions:
    """All multisets of at most so many counts that sum to at most a budget, those with small parts
    first.

    Attributes:
        keys: [P] sums of the parts' codes, see `_codes`.
        within: [budget + 1] number of partitions with no part above each count.
        grown: for every part: partitions with room for it, and the partitions that include it.
    """

    def __init__(self, budget: int, parts: int) -> None:
        self.budget, codes = budget, _codes(np.arange(budget + 1))
        table, self.within = [np.zeros((3, 1), np.uint64)], [1]
        for part in range(1, budget + 1):
            more = np.concatenate(table, axis=1)
            step = np.array([codes[part], part, 1], np.uint64)[:, None]
            while (fits := (more[1] + np.uint64(part) <= budget) & (more[2] < parts)).any():
                more = more[:, fits] + step
                table.append(more)
            self.within.append(sum(columns.shape[1] for columns in table))
        self.keys, totals, lengths = np.concatenate(table, axis=1)
        order = np.argsort(self.keys)
        if (np.diff(self.keys[order]) == 0).any():
            raise AssertionError("two partitions share a key")
        self._order = order
        self.grown: list[tuple[Rows, Rows]] = []
        for part in range(1, budget + 1):
            room = np.flatnonzero((totals + np.uint64(part) <= budget) & (lengths < parts))
            self.grown.append((room, self.rows(self.keys[room] + codes[part])))

    def rows(self, keys: UInt64) -> Rows:
        """[N] partitions with some keys; a wrong one where there is none."""
        place = np.searchsorted(self.keys, keys, sorter=self._order)
        return self._order[np.minimum(place, len(self._order) - 1)]

    def ways(self, rivals: Integers, mean: Floats, choose: Floats) -> tuple[Floats, Floats]:
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
                room, place = self.grown[part - 1]
                known = int(np.searchsorted(room, len(old_ways)))
                room, place = room[:known], place[:known]
                choices = choose[rivals[:, column], part]
                more = old_ways[room] * choices
                ways[place] += more
                tokens[place] += old_tokens[room] * choices + more * (part * mean[:, column])
            before = widest[column]
        return ways, tokens


class _Stops:
    """E ends of a rule by partition of the rivals, gold samples and samples without an answer.

    Attributes:
        partition, gold, none, drawn: [E] the rivals' partition; samples with the gold answer,
            without an answer, and in all.
        chance: [E] probability that draws with these counts end there and no earlier.
        won: [E] the gold answer's share of the lead.
    """

    def __init__(self, partitions: _Partitions, ends: Ends, most_none: int) -> None:
        """Take each candidate's count of each end as the gold's, the others as the rivals'."""
        counts, self.budget = ends.counts.astype(np.int64), ends.budget
        codes = _codes(np.arange(ends.budget + 1))
        every = np.column_stack([counts, np.zeros(len(counts), np.int64)])
        # equal counts once, and a gold that was not drawn
        first = np.ones(every.shape, np.bool_)
        first[:, 2:] = every[:, 2:] != every[:, 1:-1]
        first[:, 0] = False
        end, column = np.nonzero(first & (every[:, :1] <= most_none))
        gold, rivals = every[end, column], _key_sums(counts[:, 1:])[end]
        keys = rivals - codes[gold]
        partition = partitions.rows(keys)
        known = partitions.keys[partition] == keys  # else more rivals than any pool has
        end, self.partition = end[known], partition[known]
        gold = self.gold = gold[known]
        lead = counts[:, 1:].max(axis=1, initial=0)
        leaders = (counts[:, 1:] == lead[:, None]).sum(axis=1)
        leads = (gold > 0) & (gold == lead[end])
        self.won = np.where(leads, 1.0 / np.maximum(leaders[end], 1), 0.0)
        self.none, self.drawn, self.chance = (
            counts[end, 0],
            counts.sum(axis=1)[end],
            ends.chance[end],
        )

    def sums(
        self,
        ways: tuple[Floats, Floats],
        pools: VoteCounts,
        none_mean: Floats,
        gold_mean: Floats,
        choose: Floats,
    ) -> Floats:
        """[3, N] probability of the gold answer, expected samples and tokens."""
        result = np.zeros((3, len(pools.gold)))
        choices = choose[pools.gold, : self.budget + 1]
        known = self.partition < len(ways[0])
        pairs, kinds = np.unique(
            np.column_stack([pools.size, pools.no_answer]), axis=0, return_inverse=True
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


def _mean_tokens(pools: VoteCounts, tokens: VoteCounts) -> list[Floats]:
    """Mean tokens of the samples with the gold answer, with each rival and without an answer; 0
    where there are none.
    """
    both = zip(tokens.parts, pools.parts, strict=True)
    return [total / np.maximum(counts, 1) for total, counts in both]


def _lumped_mean(tokens: Integers, counts: Integers) -> Floats:
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
    result: Floats = (spent / np.maximum(samples, 1))[lump]
    return result


MOST_SUBPOOLS = 3_000_000
"""Most sub-pools that `votes_over_subpools` is meant for: some seconds, and 300 MB with ten
answers.
"""

_LARGEST_POOL = 400
_CELLS = 1 << 18  # numbers gathered at once


def number_of_subpools(pools: VoteCounts) -> float:
    """Upper bound of the number of sub-pools of pools, their samples without an answer left out;
    infinite for pools of more than 400 answered samples.
    """
    most = int((pools.size - pools.no_answer).max(initial=0))
    if most > _LARGEST_POOL:
        return np.inf
    return float(_descending(pools.bounds()[1:], 0, most).sum())


def votes_over_subpools(pools: VoteCounts, ending: Ending, budget: int) -> ExpectedVotes:
    """Expected votes [Q] over all orders, for a rule that ends with the probability
    `ending`.
    """
    leads, votes = _over_subpools(pools, ending, budget)
    return ExpectedVotes(np.minimum(leads[:, 1], 1.0), votes)


def wrong_ends(
    pools: VoteCounts, ending: Ending, budget: int, *, none_votes: bool = False
) -> Floats:
    """[Q] probability to end within the budget on another answer than the gold, ties being broken
    uniformly.

    With `none_votes`, no answer is a candidate, also in the counts of `ending`; to end on it does
    not count.
    """
    voting = pools.with_no_answer_as_rival().ordered() if none_votes else pools
    leads = _over_subpools(voting, ending, budget)[0][:, 2:]
    if none_votes and leads.shape[1]:  # candidates with equal counts lead equally often
        leads[
            np.arange(len(leads)), (voting.rivals == pools.no_answer[:, None]).argmax(axis=1)
        ] *= pools.no_answer == 0
    result: Floats = leads.sum(axis=1)
    return result


def _over_subpools(pools: VoteCounts, ending: Ending, budget: int) -> tuple[Floats, Floats]:
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
        np.zeros((1, 2, int(pools.no_answer.max(initial=0)) + 1)),
        np.zeros((1, counts.shape[1]), np.int32),
    )
    for total, (own, rows, subpools, children) in enumerate(_layers(counts, totals)):
        layer = _Layer(subpools)
        silent = int(pools.no_answer[totals >= total].max(initial=0)) + 1
        means = layer.before_the_last(children, below[:, :, :silent], marks)
        layer.end(means, total, ending, budget)
        place = np.take_along_axis(layer.mark[rows], columns[own], axis=1)
        result[own] = means[place, :, pools.no_answer[own, None]]
        below, marks = means, layer.mark
    return result[:, :, 1], result[:, :, 0]


def _layers(counts: Integers, totals: Int64) -> list[tuple[Rows, Rows, Integers, Integers]]:
    """All sub-pools of pools [Q, 1 + K], by their number of samples from 0 on.

    Of each layer: [P] its pools, [P] their rows, [N, 1 + K] the counts, and [R] for each run of
    equal counts the row in the layer below that has one sample of it less.
    """
    layers: list[tuple[Rows, Rows, Integers]] = []
    children: list[Integers] = []
    smaller = counts[:0]
    for total in range(int(totals.max(initial=0)), -1, -1):
        own = np.flatnonzero(totals == total)
        found = np.concatenate([counts[own], smaller])
        kept, rows = distinct(found.T)
        subpools = found[kept]
        layers.append((own, rows[: len(own)], subpools))
        children.append(rows[len(own) :].astype(np.int32))
        # without one sample of each run's last candidate, which leaves the counts in order
        last = subpools > 0
        last[:, :-1] &= subpools[:, :-1] != subpools[:, 1:]
        state, column = np.nonzero(last)
        smaller = subpools[state]
        smaller[np.arange(len(state)), column] -= 1
    children.append(np.zeros(0, np.int32))
    return [(*layer, below) for layer, below in zip(layers, children[1:], strict=True)][::-1]


class _Layer:
    """N sub-pools with equally many answered samples.

    Means are stored by mark: a run of candidates with equal counts, or no answer, whose place is
    column 0. A row of zeros follows them, for candidates without samples.

    Attributes:
        counts: [N, 1 + K] samples of each candidate, the largest first; 0 in column 0.
        state, first, last: [M] row of each mark, and its first and last column; in ascending order.
        mark: [N, 1 + K] mark of each column, M for a count of 0.
    """

    def __init__(self, counts: Integers) -> None:
        self.counts, begins = counts, counts > 0
        begins[:, 2:] &= counts[:, 2:] != counts[:, 1:-1]
        begins[:, 0] = True
        self.state, self.first = np.nonzero(begins)
        marks = len(self.state)
        self.mark = np.cumsum(begins, dtype=np.int32).reshape(begins.shape) - 1
        self.mark[:, 1:][counts[:, 1:] == 0] = marks
        self.last = self.first + np.bincount(self.mark.ravel(), minlength=marks)[:marks] - 1

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


LARGEST_BUDGET = 300
"""Largest budget of a table of ends; memory grows with its cube."""

_MOST_COUNTS = 10_000_000  # of a table, which takes half a minute

Ending = Callable[[Integers, int, Floats], Floats]
"""(counts [N, 1 + K] as in `Ends`, their sum, [N] probability to come there) -> [N] probability to
end there.
"""

_GOLDEN = 0x9E3779B97F4A7C15


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
    def from_counts(cls, counts: Integers, chance: Floats, budget: int) -> Ends:
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


def _codes(part: Numbers) -> UInt64:
    """64-bit codes of counts, by the finalizer of SplitMix64, 0 for 0; their sum is the key of a
    multiset of counts.
    """
    x = part.astype(np.uint64) * np.uint64(_GOLDEN)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _key_sums(counts: Integers) -> UInt64:
    """[N] sums of the codes of counts [N, K], independent of the order of the candidates."""
    codes = _codes(np.arange(int(counts.max(initial=0)) + 1))
    result: UInt64 = codes[counts].sum(axis=1, dtype=np.uint64)
    return result


def _keys(counts: Integers) -> UInt64:
    """[N] keys of counts [N, 1 + K]; those of samples without an answer have codes of their own.

    Two of a million counts share a key with probability 3e-8.
    """
    return _codes(counts[:, 0].astype(np.uint64) << np.uint64(32)) + _key_sums(counts[:, 1:])


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
    require_budget(budget)
    ended: list[Integers] = [np.zeros((0, len(bounds)), np.int16)]
    chances = [np.zeros(0)]
    counts: Integers = np.zeros((1, len(bounds)), np.int16)
    reach, seen = np.ones(1), 0
    for drawn in range(1, budget + 1):
        counts, reach = _one_more(counts, reach, bounds, drawn)
        if (seen := seen + len(counts)) > _MOST_COUNTS:
            raise NotExactError(
                f"The exact expectation over all orders would visit more than {_MOST_COUNTS:,}"
                " counts of answers: the pools contain too many different answers."
            )
        stopped = stops(counts[:, 1:], drawn) if drawn < budget else np.ones(len(counts), np.bool_)
        if drawn == budget or not only_last:
            ended.append(counts[stopped])
            chances.append(reach[stopped])
        counts, reach = counts[~stopped], reach[~stopped]
        if not len(counts):
            break
    return Ends.from_counts(np.concatenate(ended), np.concatenate(chances), budget)


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
    first, place = distinct(together.T)
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
    return float(_descending(bounds[1:], int(bounds[0]), drawn)[drawn])


def _descending(bounds: Int64, silent: int, most: int) -> Floats:
    """[most + 1] number of counts as in `partitions`, with so many silent samples at most, by how
    many draws they take.
    """
    ways = np.zeros((most + 1, most + 1))  # by the last count, and the draws so far
    ways[most, : silent + 1] = 1.0
    for bound in bounds.tolist():
        at_least = ways[::-1].cumsum(axis=0)[::-1]
        ways = np.zeros_like(ways)
        for votes in range(min(bound, most) + 1):
            ways[votes, votes:] = at_least[votes, : most + 1 - votes]
    result: Floats = ways.sum(axis=0)
    return result

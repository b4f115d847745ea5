"""Exact means of stopping rules over all orders of many pools, by one recursion over their
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

from dataclasses import dataclass

import numpy as np

from feval.estimators.arrays import Floats, Int64, Integers, Rows
from feval.estimators.stopping.ends import AnswerCounts, Ending, count_codes
from feval.estimators.stopping.orders import ExpectedVotes

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
    wrong: Floats = leads.sum(axis=1)
    return wrong


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


@dataclass(frozen=True, eq=False)
class _Layer:
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

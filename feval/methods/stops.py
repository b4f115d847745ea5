"""Pools as counts of their answers, and what a stopping rule comes to over all orders of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from feval.errors import UsageError
from feval.estimators.per_question import distinct, question_blocks
from feval.estimators.plurality import VoteCounts
from feval.estimators.stopping_orders import (
    LARGEST_BUDGET,
    MOST_SUBPOOLS,
    MOST_TERMS,
    Ends,
    OverOrders,
    ending_of_rule,
    ends_of_rule,
    number_of_counts,
    number_of_partitions,
    number_of_subpools,
    over_partitions,
    partitions,
    require_budget,
    require_few_partitions,
    votes_over_subpools,
)
from feval.methods.protocol import (
    Bools,
    DrawOrders,
    ErrorShares,
    Floats,
    Integers,
    MonteCarloPart,
    OneLLM,
    Pool,
    Rows,
)
from feval.methods.vote import distinct_votes, split_errors

_PARTITIONS_PER_SUBPOOL = 6  # that take as long as one sub-pool


def counts_and_tokens(
    pool: Pool, gold: Integers, no_answer: str, questions: Rows | slice = slice(None)
) -> tuple[VoteCounts, VoteCounts]:
    """How often each answer was recorded on some of a pool's questions, the most frequent rival
    first, and the output tokens of all these CoTs; if `no_answer` is "vote", no answer is one more
    rival.
    """
    codes = pool.codes[questions].astype(np.int64)
    most = int(codes.max(initial=-1))
    codes[(codes == gold[questions, None]) & (codes >= 0)] = most + 2
    if no_answer == "vote":
        codes[codes == -1] = most + 1
    width = most + 5  # from missing CoTs, -2, to the gold answer
    place = (codes + 2 + width * np.arange(len(codes))[:, None]).ravel()
    output_tokens = pool.output_tokens[questions].ravel()
    tables = [
        np.bincount(place, weights, len(codes) * width).astype(np.int64).reshape(-1, width)
        for weights in (None, output_tokens)
    ]
    rivals = tables[0][:, 2:-1]
    order = np.argsort(-rivals, axis=1, kind="stable")
    order = order[:, : int(np.count_nonzero(rivals, axis=1).max(initial=0))]
    counts, tokens = (
        VoteCounts(table[:, -1], np.take_along_axis(table[:, 2:-1], order, axis=1), table[:, 1])
        for table in tables
    )
    return counts, tokens


def distinct_pools(pool: Pool, gold: Integers, no_answer: str) -> tuple[VoteCounts, Rows | slice]:
    """The distinct counts of a pool in descending order, and those of each question; see
    `distinct_votes`.
    """
    counts, rows = distinct_votes(pool, gold, no_answer)
    return counts.ordered(), rows


def mean_over_orders(
    pool: Pool, gold: Integers, no_answer: str, stops: Callable[[Integers, int], Bools], budget: int
) -> OverOrders:
    """The means over all orders of a pool, of a rule that looks at the counts after every draw;
    `stops` as in `ends_of_rule`.

    By the faster of two ways: `votes_over_subpools`, which solves distinct counts, or
    `over_partitions`, which solves each question.
    """
    require_budget(budget)
    pools, rows = distinct_pools(pool, gold, no_answer)
    votes = ends = order = None
    if _few_subpools(pools, budget, len(gold)):
        votes = votes_over_subpools(pools, ending_of_rule(stops, budget), budget)
    else:
        require_few_partitions(pools, budget)
        ends = ends_of_rule(stops, pools.bounds(), budget)
        if not isinstance(rows, slice):  # blocks of questions with similar rivals
            kinds = distinct((np.zeros_like(pools.no_answer), *pools.rivals.T))[1].astype(np.int32)
            order = np.argsort(kinds[rows], kind="stable")
    means = np.empty((3, len(gold)))
    for block in question_blocks(len(gold)):
        questions = block if order is None else order[block]
        counts, tokens = counts_and_tokens(pool, gold, no_answer, questions)
        if votes is not None:
            own = votes.take(rows if isinstance(rows, slice) else rows[block])
            part = OverOrders(own.right, own.samples, own.tokens(counts, tokens))
        elif ends is not None:
            part = over_partitions(counts, ends, tokens)
        means[:, questions] = [*vars(part).values()]
    return OverOrders(*means)


def right_over_orders(pools: VoteCounts, ends: Ends, most_terms: int = MOST_TERMS) -> Floats:
    """[Q] probability that the gold wins the plurality, by the faster of the two ways; see
    `mean_over_orders`.
    """
    if _few_subpools(pools, ends.budget, len(pools.gold)):
        return votes_over_subpools(pools, ends.ending, ends.budget).right
    require_few_partitions(pools, ends.budget, most_terms)
    return over_partitions(pools, ends, pools).right  # of any tokens


def _few_subpools(pools: VoteCounts, budget: int, questions: int) -> bool:
    """Whether there are fewer sub-pools of these pools than partitions for all questions, by the
    time that each takes.
    """
    partitions = questions * number_of_partitions(budget, pools.rivals.shape[1])
    return number_of_subpools(pools) <= min(MOST_SUBPOOLS, partitions // _PARTITIONS_PER_SUBPOOL)


# Each of these limits is a few seconds of work.
_MOST_STEPS = 40_000_000  # counts of all but the leader, times draws
# states times draws times windows cubed, where sums are taken in fractions
_MOST_IN_FRACTIONS = 150_000_000
_MOST_COUNTS = 10_000_000  # different counts of the whole budget
_ESTIMATE_CODES = 30_000_000  # codes drawn for an estimate
_MOST_REPLICATES, _LEAST_REPLICATES = 1_000, 100


class StoppingMethod(OneLLM, ABC):
    """A method of one LLM that may stop before its budget, and how its wrong answers come about.

    Attributes:
        window: CoTs after which it may stop.
    """

    window: int = 1

    @property
    def fraction_windows(self) -> int:
        """Number of windows where its sums are taken in fractions, which takes far longer; 0 where
        they are not.
        """
        return 0

    @abstractmethod
    def silent(self, pool: Pool) -> Floats:
        """[Q] probability of no answer."""

    @abstractmethod
    def early_of_whole_pool(self, pools: VoteCounts, wrong: Floats) -> Floats:
        """[Q] probability of being stopped too early where the budget is the whole pool, given [Q]
        that of being wrong.
        """

    @abstractmethod
    def wrong_before_budget(self, pools: VoteCounts) -> Floats:
        """[N] probability of stopping before the budget with another answer than the gold, which
        leads in the whole budget.
        """

    def exact_errors(
        self, pool: Pool, gold: Integers, right: Floats, draw: DrawOrders
    ) -> ErrorShares:
        """How wrong answers come about over all draws; see `ExactMethod.exact_errors`.

        Milliseconds where the budget is the whole pool, otherwise up to some seconds.
        """
        none = self.silent(pool)
        wrong = each = np.maximum(1.0 - right - none, 0.0)
        [budget], nothing = self.draws(1), np.broadcast_to(0.0, wrong.shape)
        if self.window == budget:
            return ErrorShares(none, nothing, nothing)
        pools, vectors = distinct_pools(pool, gold, "drop")
        early = np.zeros(len(pools.gold))
        if not isinstance(vectors, slice):  # questions with the same counts are as often wrong
            wrong = np.empty(len(early))
            wrong[vectors] = each
        whole = np.flatnonzero((pools.size == budget) & (wrong > 0))
        early[whole] = self.early_of_whole_pool(pools.take(whole), wrong[whole])
        # The gold can lead in counts of the budget if no other answer has to be drawn more often
        # than it.
        most = (
            pools.gold + np.minimum(pools.rivals, pools.gold[:, None]).sum(axis=1) + pools.no_answer
        )
        part = np.flatnonzero(
            (pools.size > budget) & (pools.gold > 0) & (most >= budget) & (wrong > 0)
        )
        exact = _early_of_part(self, budget, pools.take(part)) if len(part) else early[part]
        if exact is not None:
            early[part] = exact
            return ErrorShares(none, np.minimum(early[vectors], each), nothing)  # rounding
        estimated = np.zeros(len(early), np.bool_)
        estimated[part] = True
        questions, early = np.flatnonzero(estimated[vectors]), early[vectors]
        early[questions], estimate = _estimated(self, pool, gold, questions, each[questions], draw)
        error = estimate.standard_error * len(questions) / len(early)
        return ErrorShares(none, early, nothing, replace(estimate, standard_error=error))


def early_votes_of_whole_pool(
    pools: VoteCounts, wrong: Floats, right_at_budget: Callable[[VoteCounts], Floats]
) -> Floats:
    """[Q] probability of being stopped too early where the budget is the whole pool, for a method
    that votes wherever it stops.

    `wrong` is [Q] the probability of a wrong answer, `right_at_budget` that of going on to the
    budget and being right there.
    """
    share = pools.share_of_lead
    early = share * wrong
    tied = np.flatnonzero((share > 0) & (share < 1))
    if len(tied):
        wrong_at_budget = (1.0 / share[tied] - 1.0) * right_at_budget(pools.take(tied))
        early[tied] = share[tied] * np.maximum(wrong[tied] - wrong_at_budget, 0.0)
    return early


def _early_of_part(method: StoppingMethod, budget: int, pools: VoteCounts) -> Floats | None:
    """[Q] the same where the budget is a part of the pool, over all its counts; `None` where these
    are too many.
    """
    bounds, windows = pools.bounds(), method.fraction_windows
    of_others = np.concatenate([[budget], bounds[2:]])  # what the leader and no answer leave
    steps = number_of_counts(of_others, budget) * (min(int(bounds[0]), budget) + 1) * budget
    most = _MOST_IN_FRACTIONS // windows**3 if windows else _MOST_STEPS
    if budget > LARGEST_BUDGET or steps > most:
        return None
    whole = partitions(bounds, budget)
    whole = whole[whole[:, 1] > 0]
    try:
        of_budget = VoteCounts(whole[:, 1], whole[:, 2:], whole[:, 0]).ordered()
        ends = Ends.from_counts(whole, method.wrong_before_budget(of_budget), budget)
        return right_over_orders(pools, ends, _MOST_COUNTS)
    except UsageError:  # too many counts
        return None


def _estimated(
    method: Any, pool: Pool, gold: Integers, rows: Rows, wrong: Floats, draw: DrawOrders
) -> tuple[Floats, MonteCarloPart]:
    """[N] the same for some rows: its share of the wrong answers in replicates, times the exact
    probability of a wrong one.

    Each is divided by the probability that any replicate is wrong (Horvitz and Thompson 1952), so
    that their mean has no bias; a single one may be more than the probability of a wrong answer.
    """
    replicates = min(
        max(_ESTIMATE_CODES // (len(rows) * method.draws(1)[0]), _LEAST_REPLICATES),
        _MOST_REPLICATES,
    )
    wrong_replicates, early, squares = np.zeros((3, len(rows)))
    for block in question_blocks(len(rows)):
        part, part_gold = pool.rows(rows[block]), gold[rows[block]]
        for orders in draw(rows[block], replicates):
            decisions = method.decide([part], [orders])
            right = decisions.answer == part_gold
            parts, _ = split_errors(decisions, right, part_gold, [part], [orders])
            wrong_replicates[block] += (~right & (decisions.answer >= 0)).sum(axis=0)
            early[block] += parts.sum(axis=0)
            squares[block] += (parts**2).sum(axis=0)
    share = early / np.maximum(wrong_replicates, 1.0)
    # A question that is never wrong in the replicates shows no share; others stand in for it.
    shown = -np.expm1(replicates * np.log1p(-np.minimum(wrong, 1.0 - 1e-15)))
    shown = np.where(wrong > 0, shown, 1.0)
    variance = (squares - share * early) / np.maximum(wrong_replicates, 1.0) ** 2 + share**2 * (
        1.0 - shown
    )
    error = float(np.sqrt((variance * (wrong / shown) ** 2).sum())) / len(rows)
    estimate = wrong * share / shown
    if (total := float(estimate.sum())) > float(wrong.sum()):  # together at most what is wrong
        estimate *= float(wrong.sum()) / total
    return estimate, MonteCarloPart(len(rows), replicates, error)

"""How likely a method is to stop too early over all draws: on a wrong answer, where the vote over
its whole budget is right.

With u(V), the share of the lead that the gold has in the counts V of the whole budget,

    P[stopped too early] = sum_V P(V) u(V) P[wrong, and stopped before the budget | V]

Where the budget is all recorded CoTs, there is one V. Wrong answers at the budget itself are left
out: there each of m leaders wins equally often, so that being wrong is m - 1 times as likely as
being right. Otherwise the sum is over all V (`estimators.stopping.subpools`). If these are too
many, replicates estimate which part of the wrong answers it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from feval.errors import UsageError
from feval.estimators.per_question import question_blocks
from feval.estimators.stopping.ends import (
    LARGEST_BUDGET,
    AnswerCounts,
    Ends,
    number_of_counts,
    partitions,
)
from feval.methods.arrays import Floats, Integers, Rows
from feval.methods.error_shares import ErrorShares, MonteCarloPart, split_errors
from feval.methods.stopping.pool_counts import distinct_pools, gold_share_of_lead, right_over_orders

if TYPE_CHECKING:
    from feval.methods.protocol import BatchMethod, DrawOrders
    from feval.replay.pools import Pool


# Each of these limits is a few seconds of work.
_MOST_STEPS = 40_000_000  # counts of all but the leader, times draws
# states times draws times windows cubed, where sums are taken in fractions
_MOST_IN_FRACTIONS = 150_000_000
_MOST_COUNTS = 10_000_000  # different counts of the whole budget
_ESTIMATE_CODES = 30_000_000  # codes drawn for an estimate
_MOST_REPLICATES, _LEAST_REPLICATES = 1_000, 100


class StopModel(Protocol):
    """Where a method stops, for the split of its errors."""

    @property
    def stops_at_most(self) -> int:
        """At how many places it may stop, the budget included."""

    @property
    def fraction_windows(self) -> int:
        """Number of windows where its sums are taken in fractions, which takes far longer; 0 where
        they are not.
        """

    def early_of_whole_pool(self, pools: AnswerCounts, wrong: Floats) -> Floats:
        """[Q] probability of being stopped too early where the budget is the whole pool, given [Q]
        that of being wrong.
        """

    def wrong_before_budget(self, pools: AnswerCounts) -> Floats:
        """[N] probability of stopping before the budget with another answer than the gold, which
        leads in the whole budget.
        """


def split_of_stops(
    method: BatchMethod,
    model: StopModel,
    pool: Pool,
    gold: Integers,
    wrong: Floats,
    no_answer: Floats,
    draw: DrawOrders,
) -> ErrorShares:
    """How wrong answers of a method of one LLM that may stop early come about, from [Q]
    probabilities of a wrong one and of none.

    Milliseconds where the budget is the whole pool, otherwise up to some seconds. `draw` is for
    what must be estimated.
    """
    early, estimate = _stopped_early(method, model, pool, gold, wrong, draw)
    return ErrorShares(no_answer, early, np.broadcast_to(0.0, wrong.shape), estimate)


def _stopped_early(
    method: BatchMethod,
    model: StopModel,
    pool: Pool,
    gold: Integers,
    wrong: Floats,
    draw: DrawOrders,
) -> tuple[Floats, MonteCarloPart | None]:
    [budget] = method.draws(1)
    if model.stops_at_most == 1:
        return np.zeros(len(wrong)), None
    pools, vectors = distinct_pools(pool, gold, "drop")
    early, each = np.zeros(len(pools.gold)), wrong
    if not isinstance(vectors, slice):  # questions with the same counts are as often wrong
        wrong = np.empty(len(early))
        wrong[vectors] = each
    whole = np.flatnonzero((pools.size == budget) & (wrong > 0))
    early[whole] = model.early_of_whole_pool(pools.rows(whole), wrong[whole])
    # The gold can lead in counts of the budget if no other answer has to be drawn more often than
    # it.
    most = pools.gold + np.minimum(pools.rivals, pools.gold[:, None]).sum(axis=1) + pools.none
    part = np.flatnonzero((pools.size > budget) & (pools.gold > 0) & (most >= budget) & (wrong > 0))
    exact = _early_of_part(model, budget, pools.rows(part)) if len(part) else early[part]
    if exact is not None:
        early[part] = exact
        return np.minimum(early[vectors], each), None  # rounding
    estimated = np.zeros(len(early), np.bool_)
    estimated[part] = True
    questions, early = np.flatnonzero(estimated[vectors]), early[vectors]
    early[questions], estimate = _estimated(method, pool, gold, questions, each[questions], draw)
    return early, replace(
        estimate, standard_error=estimate.standard_error * len(questions) / len(early)
    )


def early_votes_of_whole_pool(
    pools: AnswerCounts, wrong: Floats, right_at_budget: Callable[[AnswerCounts], Floats]
) -> Floats:
    """[Q] probability of being stopped too early where the budget is the whole pool, for a method
    that votes wherever it stops.

    `wrong` is [Q] the probability of a wrong answer, `right_at_budget` that of going on to the
    budget and being right there.
    """
    share = gold_share_of_lead(pools)
    early = share * wrong
    tied = np.flatnonzero((share > 0) & (share < 1))
    if len(tied):
        wrong_at_budget = (1.0 / share[tied] - 1.0) * right_at_budget(pools.rows(tied))
        early[tied] = share[tied] * np.maximum(wrong[tied] - wrong_at_budget, 0.0)
    return early


def _early_of_part(model: StopModel, budget: int, pools: AnswerCounts) -> Floats | None:
    """[Q] the same where the budget is a part of the pool, over all its counts; `None` where these
    are too many.
    """
    bounds = pools.bounds()
    if budget > LARGEST_BUDGET or _takes_long(model, budget, bounds):
        return None
    whole = partitions(bounds, budget)
    whole = whole[whole[:, 1] > 0]
    try:
        of_budget = AnswerCounts.of(whole[:, 1], whole[:, 2:], whole[:, 0])
        ends = Ends.of(whole, model.wrong_before_budget(of_budget), budget)
        return right_over_orders(pools, ends, _MOST_COUNTS)
    except UsageError:  # too many counts
        return None


def _takes_long(model: StopModel, budget: int, bounds: Integers) -> bool:
    """Whether going through all counts of the whole budget would take more than a few seconds."""
    of_others = np.concatenate([[budget], bounds[2:]])  # what the leader and no answer leave
    steps = number_of_counts(of_others, budget) * (min(int(bounds[0]), budget) + 1) * budget
    if model.fraction_windows:
        return steps * model.fraction_windows**3 > _MOST_IN_FRACTIONS
    return steps > _MOST_STEPS


def _estimated(
    method: BatchMethod, pool: Pool, gold: Integers, rows: Rows, wrong: Floats, draw: DrawOrders
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

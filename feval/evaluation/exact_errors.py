"""How wrong answers came about: no answer, stopped too early, routed wrong; what is none of these is a wrong vote.

A wrong answer was stopped too early if the vote over all CoTs that the method might have drawn, of an LLM it asked and of which
it did not draw all, is right. If the gold is one of m answers that lead there, it was so as far as 1/m. What is left of it was
routed wrong, in the same sense, by LLMs that were not asked. With several LLMs each vote breaks its ties by a lot of its own.

`split_errors` counts in replicates. `exact_errors` is what that tends to, for the methods that have an exact expectation. With
u(V), the share that the gold has of the lead in the counts V of the whole budget,

    P[stopped too early] = sum_V P(V) u(V) P[wrong, and stopped before the budget | V]

Where all recorded CoTs are the budget there is one V. What is wrong at the budget is left out: each of the m answers is given
there equally often, so that this is m - 1 times as likely as to be right there. Else the sum is over all V
(`feval.estimators.stopping.premature_stops`). Where these are too many, replicates tell which part of what is wrong was stopped too early, and the
result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import UsageError
from feval.estimators.counts import vote_counts
from feval.estimators.stopping.early_stopping import MOST_WINDOWS_IN_FLOATS, early_stops, window_ends
from feval.estimators.stopping.ends import LARGEST_BUDGET, Ends, PoolCounts, ends_of_rule, partitions
from feval.estimators.stopping.premature_stops import premature_stop_states, wrong_stops
from feval.estimators.votes.plurality import pass_at_k, subset_plurality_accuracy
from feval.evaluation.exact import Held, Oracle, adaptive_over_orders, over_counts, share_of_whole
from feval.methods import AdaptiveConsistency, BestOfN, EarlyStopping, SelfConsistency, SingleCall
from feval.methods.vote import share_of_lead

if TYPE_CHECKING:
    from feval.estimators.stopping.early_stopping import EarlyStops
    from feval.methods.decisions import Decisions
    from feval.methods.protocol import Orders
    from feval.replay.pools import Pool

__all__ = ["ErrorShares", "Estimate", "exact_errors", "split_errors"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Draw = Callable[[Rows, int], "Iterator[Orders]"]

# Each of these is a few seconds.
_MOST_STEPS = 40_000_000  # of `premature_stops`
_MOST_IN_FRACTIONS = (
    150_000_000  # steps times windows cubed, where these are so many that their sums are taken in fractions
)
_MOST_WALKED = 10_000_000  # counts of the whole budget
_ESTIMATE_CODES = 30_000_000  # drawn for an estimate
_MOST_REPLICATES, _LEAST_REPLICATES = 1_000, 100


@dataclass(frozen=True)
class Estimate:
    """What of the split of an exact evaluation is estimated from replicates: how much of the wrong answers was stopped too early.

    Attributes:
        questions: on how many questions.
        replicates: seeded draws of each of these.
        standard_error: of the mean of `stopped_early` over all questions, and so of that of wrong votes; by the orders, as the
            coins of Adaptive-Consistency's "random" are the same for the same draws.
    """

    questions: int
    replicates: int
    standard_error: float


@dataclass(frozen=True, eq=False)
class ErrorShares:
    """How wrong answers came about, on Q questions; what is neither is a wrong vote.

    Attributes:
        no_answer: [Q] probability that there is no answer; `None` where not known.
        stopped_early: [Q] probability of a wrong answer that was stopped too early; `None` where not known.
        routed_wrong: [Q] probability of a wrong answer that was routed wrong; `None` where not known.
        estimate: what of an exact evaluation is estimated; `None` for nothing.
    """

    no_answer: Floats | None = None
    stopped_early: Floats | None = None
    routed_wrong: Floats | None = None
    estimate: Estimate | None = None


# -- in replicates ----------------------------------------------------------------------------------------------------


def split_errors(
    decided: Decisions, right: Bools, gold: Integers, pools: Sequence[Pool], orders: Sequence[Orders]
) -> tuple[Floats, Floats]:
    """How far each decision was stopped too early, and routed wrong: [R, Q] each, from 0 to 1.

    Args:
        decided: answers and ledgers [R, Q].
        right: [R, Q] whether the answer is the gold.
        gold: [Q] code of the gold answer, -1 where there is none.
        pools: one per LLM.
        orders: one per LLM, all that the method might have drawn.
    """
    wrong = ~right & (decided.answer >= 0) & (gold >= 0)
    no_stop, no_route = np.ones((2, *right.shape))  # how far no vote would have been right
    for pool, order, ledger in zip(pools, orders, decided.ledgers, strict=True):
        replicate, question = np.nonzero(wrong & (ledger.cots < order.shape[2]))
        codes = pool.codes[question[:, None], order[replicate, question]]
        missed = 1.0 - share_of_lead(codes, gold[question])
        asked = ledger.cots[replicate, question] > 0
        no_stop[replicate, question] *= np.where(asked, missed, 1.0)
        no_route[replicate, question] *= np.where(asked, 1.0, missed)
    return 1.0 - no_stop, no_stop * (1.0 - no_route)


# -- over all draws ---------------------------------------------------------------------------------------------------


def exact_errors(method: Any, pool: Pool, gold: Integers, right: Floats, draw: Draw) -> ErrorShares:
    """The split over all draws, of a method in `exact.EXACT`.

    Milliseconds, but for Adaptive-Consistency and early stopping where they may draw only some of the recorded CoTs: there up to
    some seconds.

    Args:
        method: of one LLM.
        pool: of Q questions.
        gold: [Q] code of the gold answer, -1 where there is none.
        right: [Q] `exact_expectation(...).right`.
        draw: (rows of questions, replicates) -> their seeded orders, some replicates at a time: for what must be estimated.
    """
    nothing = np.zeros(len(right))
    if isinstance(method, AdaptiveConsistency):
        none = _adaptive_silence(method, pool)
    elif isinstance(method, EarlyStopping):
        none = _silence(pool.codes >= 0, pool.sizes, method.draws(1)[0])
    else:
        return ErrorShares(_silence_of_all(method, pool), nothing, nothing)
    wrong = np.maximum(1.0 - right - none, 0.0)
    early, estimate = _early(method, pool, gold, wrong, draw)
    return ErrorShares(none, np.minimum(early, wrong), nothing, estimate)


# -- no answer --------------------------------------------------------------------------------------------------------


def _silence(answered: Bools, sizes: Integers, n: int) -> Floats:
    """[Q] probability that none of n CoTs has an answer."""
    silent: Floats = 1.0 - pass_at_k(answered.sum(axis=1), sizes, [n]).per_question()[:, 0]
    return silent


def _silence_of_all(method: SelfConsistency | SingleCall | BestOfN | Oracle, pool: Pool) -> Floats:
    """[Q] probability of no answer, of methods that draw all they may."""
    answered, n = pool.codes >= 0, method.draws(1)[0]
    if isinstance(method, BestOfN):
        answered &= ~np.isnan(pool.aggregated(method.scorer, method.aggregate))
    if isinstance(method, SelfConsistency) and method.no_answer == "vote":
        return _votes_for_none(pool, np.array([n]))[:, 0]
    return _silence(answered, pool.sizes, n)


def _votes_for_none(pool: Pool, n: Integers) -> Floats:
    """[Q, N] probability that no answer wins votes among n CoTs in which it takes part."""
    counts = vote_counts(pool.codes, np.full(len(pool.codes), -1))
    found = subset_plurality_accuracy(counts.no_answer, counts.rivals, np.zeros_like(counts.no_answer), n)
    return found.per_question()


def _adaptive_silence(method: AdaptiveConsistency, pool: Pool) -> Floats:
    if method.criterion == "random":
        n = np.arange(1, method.budget + 1)
        share = _coin_stops(method)
        if method.no_answer == "vote":
            return _votes_for_none(pool, n) @ share
        return np.array([_silence(pool.codes >= 0, pool.sizes, draws) for draws in n.tolist()]).T @ share
    if method.no_answer == "drop":  # no criterion stops without a vote
        return _silence(pool.codes >= 0, pool.sizes, method.budget)
    silent, candidates = pool.codes == -1, int(pool.codes.max(initial=-1)) + 1
    voting = replace(pool, codes=np.where(silent, candidates, pool.codes).astype(np.int64))
    none = np.where(silent.any(axis=1), candidates, -1)
    return adaptive_over_orders(method, Held.of(voting, none, "drop")).right


def _coin_stops(method: AdaptiveConsistency) -> Floats:
    """[budget] probability that the coin stops after 1, 2, ... CoTs."""
    n, stop = np.arange(1, method.budget + 1), float(method.rule.threshold)
    share: Floats = np.where(n < method.budget, stop, 1.0) * (1.0 - stop) ** (n - 1)
    return share


# -- stopped early ----------------------------------------------------------------------------------------------------


def _early(
    method: AdaptiveConsistency | EarlyStopping, pool: Pool, gold: Integers, wrong: Floats, draw: Draw
) -> tuple[Floats, Estimate | None]:
    """[Q] probability of being stopped too early, of [Q] wrong answers, and what of it is estimated."""
    pools, budget = Held.of(pool, gold, "drop").pools, method.draws(1)[0]
    early = np.zeros(len(wrong))
    if (method.windows if isinstance(method, EarlyStopping) else budget) == 1:
        return early, None
    whole = np.flatnonzero((pools.size == budget) & (wrong > 0))
    early[whole] = _early_of_whole(method, pools.rows(whole), wrong[whole])
    some = np.flatnonzero((pools.size > budget) & _may_lead(pools, budget) & (wrong > 0))
    if not len(some):
        return early, None
    found = _early_of_some(method, pools.rows(some))
    if found is not None:
        early[some] = found
        return early, None
    early[some], estimate = _estimated(method, pool, gold, some, wrong[some], draw)
    return early, replace(estimate, standard_error=estimate.standard_error * len(some) / len(early))


def _may_lead(pools: PoolCounts, budget: int) -> Bools:
    """[Q] whether the gold leads in some counts of the whole budget: if no other answer is drawn more often than it can be."""
    most = pools.gold + np.minimum(pools.rivals, pools.gold[:, None]).sum(axis=1) + pools.none
    may: Bools = (pools.gold > 0) & (most >= budget)
    return may


def _early_of_whole(method: AdaptiveConsistency | EarlyStopping, pools: PoolCounts, wrong: Floats) -> Floats:
    """[Q] the same where all recorded CoTs are the budget, of [Q] wrong answers."""
    share = share_of_whole(pools)
    if isinstance(method, EarlyStopping) and _answers_window(method):
        return share * _wrong_windows(method, pools)
    early = share * wrong
    tied = np.flatnonzero((share > 0) & (share < 1))
    if len(tied):
        at_budget = _right_at_budget(method, pools.rows(tied))
        early[tied] = share[tied] * np.maximum(wrong[tied] - (1.0 / share[tied] - 1.0) * at_budget, 0.0)
    return early


def _right_at_budget(method: AdaptiveConsistency | EarlyStopping, pools: PoolCounts) -> Floats:
    """[Q] probability to go on to the budget, which is the whole pool, and to be right there."""
    if isinstance(method, EarlyStopping):
        return share_of_whole(pools) * _windows_before_last(method, pools).no_stop
    held = Held.of_counts(pools, method.no_answer)
    if method.criterion == "random":
        return share_of_whole(held.pools) * float(_coin_stops(method)[-1])
    ends = ends_of_rule(method.rule.stop_mask, held.pools.bounds(), method.budget, only_last=True)
    return over_counts(held, ends).right


def _answers_window(method: EarlyStopping) -> bool:
    """Whether a stop answers with its window; a window of one is the only vote."""
    return method.answer == "window" or method.window == 1


def _windows_before_last(method: EarlyStopping, pools: PoolCounts) -> EarlyStops:

    counts, first = np.column_stack([pools.gold, pools.rivals]), np.zeros(len(pools.gold), np.intp)
    shape = {"window": method.window, "windows": method.windows - 1}
    return early_stops(counts, first, pools.size, counts, pools.size, **shape)


def _wrong_windows(method: EarlyStopping, pools: PoolCounts) -> Floats:
    """[Q] probability to stop at a window for another answer than the gold, before the last: of that one nothing is left."""
    stops = _windows_before_last(method, pools)
    wrong: Floats = np.maximum(1.0 - stops.no_stop - stops.gold_window, 0.0)
    return wrong


def _early_of_some(method: AdaptiveConsistency | EarlyStopping, pools: PoolCounts) -> Floats | None:
    """[Q] the same where the budget is some of the CoTs, over all its counts; `None` where these are too many."""
    budget, bounds = method.draws(1)[0], pools.bounds()
    if _is_long(method, bounds):
        return None
    whole = partitions(bounds, budget)
    whole = whole[whole[:, 1] > 0]
    try:
        ends = Ends.of(whole, _wrong_before(method, whole), budget)
        return over_counts(Held.of_counts(pools, "drop"), ends, _MOST_WALKED).right
    except UsageError:  # too many counts
        return None


def _is_long(method: AdaptiveConsistency | EarlyStopping, bounds: Integers) -> bool:
    """Whether all counts of the whole budget within some bounds are more than a few seconds' work."""
    budget = method.draws(1)[0]
    if budget > LARGEST_BUDGET:
        return True
    steps = premature_stop_states(bounds.astype(np.int64), budget) * budget
    if isinstance(method, EarlyStopping) and method.windows > MOST_WINDOWS_IN_FLOATS and not _answers_window(method):
        return steps * method.windows**3 > _MOST_IN_FRACTIONS
    return steps > _MOST_STEPS


def _wrong_before(method: AdaptiveConsistency | EarlyStopping, whole: Integers) -> Floats:
    """[N] probability of a stop before the budget, with another answer than the first leader of its counts [N, 1 + K]."""
    pools = PoolCounts(whole[:, 1].astype(np.int64), whole[:, 2:].astype(np.int64), whole[:, 0].astype(np.int64))
    if isinstance(method, EarlyStopping):
        if _answers_window(method):
            return _wrong_windows(method, pools)
        ends = window_ends(pools.bounds(), window=method.window, windows=method.windows, only_unstopped=False)
        return wrong_stops(whole, method.draws(1)[0], lambda keys, _: ends.at(keys))
    none_votes = method.no_answer == "vote"
    if method.criterion == "random":
        share = _coin_stops(method)
        return wrong_stops(
            whole, method.budget, lambda keys, drawn: np.full(len(keys), share[drawn - 1]), none_votes=none_votes
        )
    bounds = Held.of_counts(pools, method.no_answer).pools.bounds()
    ends = ends_of_rule(method.rule.stop_mask, bounds, method.budget)
    return wrong_stops(whole, method.budget, lambda keys, _: ends.at(keys), none_votes=none_votes)


def _estimated(
    method: AdaptiveConsistency | EarlyStopping, pool: Pool, gold: Integers, rows: Rows, wrong: Floats, draw: Draw
) -> tuple[Floats, Estimate]:
    """[N] the same for some rows, from replicates: its share of what was wrong there, times what is wrong over all draws, [N]."""
    own, own_gold = pool.rows(rows), gold[rows]
    codes = len(rows) * method.draws(1)[0]
    replicates = min(max(_ESTIMATE_CODES // codes, _LEAST_REPLICATES), _MOST_REPLICATES)
    seen, early, squares = np.zeros((3, len(rows)))
    for orders in draw(rows, replicates):
        decided = method.decide([own], [orders])
        right = decided.answer == own_gold
        parts, _ = split_errors(decided, right, own_gold, [own], [orders])
        seen += (~right & (decided.answer >= 0)).sum(axis=0)
        early += parts.sum(axis=0)
        squares += (parts**2).sum(axis=0)
    some = np.maximum(seen, 1.0)
    share = early / some
    # Of a ratio; a question that was never wrong in any replicate may have any share of its little.
    variance = wrong**2 * np.where(seen > 0, (squares - share * early) / some**2, 1.0 / 3.0)
    return wrong * share, Estimate(len(rows), replicates, float(np.sqrt(variance.sum())) / len(rows))

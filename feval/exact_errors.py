"""How wrong answers come about, over all draws: the split of errors of those methods that have an exact expectation.

It is what the split of seeded replicates tends to. A method that draws all it may was never stopped early, and one of one LLM is
never routed wrong; for the two that stop see `feval.estimators.hasty`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.exact import TOLERANCE, Held, Oracle, adaptive_over_orders, over_counts
from feval.methods import AdaptiveConsistency, BestOfN, EarlyStopping, SelfConsistency, SingleCall

if TYPE_CHECKING:
    from feval.estimators.hasty import Stops
    from feval.estimators.orders import Pools
    from feval.pools import Pool

__all__ = ["ErrorShares", "exact_errors", "takes_seconds"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Missed = Callable[[Integers], Floats | None]

_MOST_COUNTS = 10_000  # that the whole budget can have


@dataclass(frozen=True, eq=False)
class ErrorShares:
    """How wrong answers came about, on Q questions; what is neither is a wrong vote.

    Attributes:
        no_answer: [Q] probability that there is no answer; `None` where not known.
        stopped_early: [Q] probability of being wrong where the vote over all CoTs that the method might have drawn of an LLM it
            asked, and did not all draw, is right; `None` where not known.
        routed_wrong: [Q] probability of being wrong, not by stopping early, where the vote over the CoTs of an LLM it did not ask
            is right; `None` where not known.
        unknown: a sentence that says why `stopped_early` is not known, where it could be, and what to do.
    """

    no_answer: Floats | None = None
    stopped_early: Floats | None = None
    routed_wrong: Floats | None = None
    unknown: str | None = None


def takes_seconds(method: object) -> bool:
    """Whether `exact_errors` may take seconds."""
    return isinstance(method, (AdaptiveConsistency, EarlyStopping))


def exact_errors(method: Any, pool: Pool, gold: Integers, right: Floats) -> ErrorShares:
    """The split over all draws, of a method in `exact.EXACT`.

    Milliseconds, but for Adaptive-Consistency and early stopping: there some milliseconds to a second for each question on which
    the gold is tied when all recorded CoTs vote, and some seconds where they may draw only some of the CoTs. No more than some
    seconds and 300 MB in all: `stopped_early` is not known where more than `hasty.MOST_COUNTS` counts would have to be followed,
    or a budget below the number of recorded CoTs can be drawn with more than 10,000 different counts.

    Args:
        method: of one LLM.
        pool: of Q questions.
        gold: [Q] code of the gold answer, -1 where there is none.
        right: [Q] `exact_expectation(...).right`.
    """
    nothing = np.zeros(len(right))
    if isinstance(method, AdaptiveConsistency):
        none = _adaptive_silence(method, pool)
        return _shares(none, _adaptive(method, pool, gold, 1.0 - right - none))
    if isinstance(method, EarlyStopping):
        none = _silence(pool.codes >= 0, pool.sizes, method.draws(1)[0])
        return _shares(none, _windows(method, pool, gold, 1.0 - right - none))
    return ErrorShares(_silence_of_all(method, pool), nothing, nothing)


def _shares(none: Floats, early: Floats | None) -> ErrorShares:
    """Of a method of one LLM."""
    from feval.estimators.hasty import MOST_COUNTS

    unknown = None
    if early is None:
        unknown = (
            f"How many answers were stopped too early is not known exactly: more than {MOST_COUNTS:,} counts of CoTs, or "
            f"{_MOST_COUNTS:,} of the whole budget, would have to be looked at. Evaluate with seeded replicates (order 'seeded') "
            "to estimate it; the other numbers are exact."
        )
    return ErrorShares(none, early, np.zeros(len(none)), unknown)


# -- no answer --------------------------------------------------------------------------------------------------------


def _silence(answered: Bools, sizes: Integers, n: int) -> Floats:
    """[Q] probability that none of n CoTs has an answer."""
    from feval.estimators.plurality import pass_at_k

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
    from feval.estimators.counts import vote_counts
    from feval.estimators.plurality import subset_plurality_accuracy

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


def _adaptive(method: AdaptiveConsistency, pool: Pool, gold: Integers, wrong: Floats) -> Floats | None:
    from feval.estimators.hasty import Stops

    rule, coin = method.rule, float(method.rule.threshold)

    def chance(counts: Integers, drawn: int) -> Floats:
        return np.full(len(counts), coin) if rule.name == "random" else rule.stop_mask(counts, drawn).astype(np.float64)

    def missed(whole: Integers) -> Floats | None:
        found = _missed_by_votes(method, whole)
        tied = np.flatnonzero(np.isnan(found))
        met = _met(whole[tied], stops, none_votes=method.no_answer == "vote")
        silent = _silent_stops(method, whole[tied], stops)
        if met is None or silent is None:
            return None
        found[tied] = 1.0 - met - silent
        return found

    stops = Stops(method.budget, chance, certain=rule.name != "random")
    return _early(Held.of(pool, gold, "drop").pools, method.budget, wrong, missed)


def _missed_by_votes(method: AdaptiveConsistency, whole: Integers) -> Floats:
    """[N] probability of another answer than the whole budget's; NaN where several lead there, and for coins."""
    from feval.estimators.orders import Pools

    found = np.full(len(whole), np.nan)
    alone = np.flatnonzero(whole[:, 1] > whole[:, 2:].max(axis=1, initial=0))
    if method.criterion == "random" or not len(alone):
        return found
    counts = whole[alone].astype(np.int64)
    none, lead, rivals = counts[:, 0], counts[:, 1], counts[:, 2:]
    if method.no_answer == "drop":
        found[alone] = 1.0 - _answered(method, Pools.of(lead, rivals, none))
        return found
    free = np.zeros_like(none)
    other = _answered(method, Pools.of(lead, np.column_stack([rivals, none]), free))
    silent = _answered(method, Pools.of(none, counts[:, 1:], free))
    found[alone] = 1.0 - other - silent
    return found


def _answered(method: AdaptiveConsistency, pools: Pools) -> Floats:
    free = np.zeros_like(pools.gold)
    return adaptive_over_orders(method, Held(pools, free, np.zeros_like(pools.rivals), free)).right


def _silent_stops(method: AdaptiveConsistency, whole: Integers, stops: Stops) -> Floats | None:
    """[N] probability to stop before the budget, with no answer."""
    from feval.estimators.hasty import Whole, met
    from feval.estimators.plurality import pass_at_k

    if method.no_answer == "vote":
        rivals = whole[:, 1:]
        return met(
            Whole(0 * whole[:, 0], whole[:, 0], rivals, np.zeros(rivals.shape, np.bool_)), stops, at_budget=False
        )
    if method.criterion != "random" or method.budget == 1:
        return np.zeros(len(whole))
    n, size = np.arange(1, method.budget), whole.sum(axis=1, dtype=np.int64)
    silent: Floats = (1.0 - pass_at_k(size - whole[:, 0], size, n).per_question()) @ _coin_stops(method)[:-1]
    return silent


def _windows(method: EarlyStopping, pool: Pool, gold: Integers, wrong: Floats) -> Floats | None:
    from feval.estimators.hasty import Stops

    pools, budget = Held.of(pool, gold, "drop").pools, method.draws(1)[0]
    if method.answer == "window":
        wrong = _wrong_windows(method, pools)
    stops = Stops(budget, window=method.window, of_window=method.answer == "window")

    def missed(whole: Integers) -> Floats | None:
        found = _missed_by_windows(method, whole)
        rest = np.flatnonzero(np.isnan(found))
        met = _met(whole[rest], stops, none_votes=False)
        if met is None:
            return None
        found[rest] = 1.0 - met
        return found

    return _early(pools, budget, wrong, missed)


def _missed_by_windows(method: EarlyStopping, whole: Integers) -> Floats:
    """[N] probability of another answer than the whole budget's; NaN where several lead there, or rounding would show."""
    from feval.estimators.early_plurality import early_plurality
    from feval.estimators.orders import Pools

    found = np.full(len(whole), np.nan)
    alone = np.flatnonzero(whole[:, 1] > whole[:, 2:].max(axis=1, initial=0))
    counts = whole[alone].astype(np.int64)
    pools = Pools(counts[:, 1], counts[:, 2:], counts[:, 0])
    if method.answer == "window":
        found[alone] = _wrong_windows(method, pools)
    else:
        voted = early_plurality(pools.gold, pools.rivals, pools.size, window=method.window, windows=method.windows)
        found[alone] = np.where(voted.error > TOLERANCE, np.nan, 1.0 - voted.right)
    return found


def _wrong_windows(method: EarlyStopping, pools: Pools) -> Floats:
    """[Q] probability to stop at a window for another answer than the gold, before the last: of that one nothing is left."""
    from feval.estimators.early_stopping import early_stops

    counts, first = np.column_stack([pools.gold, pools.rivals]), np.zeros(len(pools.gold), np.intp)
    if method.windows == 1:
        return np.zeros(len(counts))
    shape = {"window": method.window, "windows": method.windows - 1}
    stopped = early_stops(counts, first, pools.size, counts, pools.size, **shape)
    wrong: Floats = 1.0 - stopped.no_stop - stopped.gold_window
    return wrong


def _met(whole: Integers, stops: Stops, *, none_votes: bool) -> Floats | None:
    """[N] probability that a stop answers what the whole budget [N, 1 + K] does, whose first leader is in column 1."""
    from feval.estimators.hasty import Whole, met

    none, lead, rivals = whole[:, 0], whole[:, 1], whole[:, 2:]
    tied = rivals == lead[:, None]
    if none_votes:
        own = Whole(
            np.zeros_like(none),
            lead,
            np.column_stack([rivals, none]),
            np.column_stack([tied, np.zeros(len(none), np.bool_)]),
        )
    else:
        own = Whole(none, lead, rivals, tied)
    found = met(own, stops)
    return None if found is None else found * (1 + tied.sum(axis=1))


def _early(pools: Pools, budget: int, wrong: Floats, missed: Missed) -> Floats | None:
    """[Q] probability that a stop misses the gold that the whole budget answers.

    Args:
        pools: of Q questions.
        budget: most draws.
        wrong: [Q] probability of a wrong answer, which is what is asked for where all CoTs are the budget, and agree on the gold.
        missed: [N, 1 + K] counts of the budget, with the largest first -> [N] probability of another answer than theirs.
    """
    most = pools.rivals.max(axis=1, initial=0)
    leaders = 1 + (pools.rivals == pools.gold[:, None]).sum(axis=1)
    whole = pools.size == budget
    leads = (pools.gold > 0) & (pools.gold >= most)
    early = np.where(whole & leads & (leaders == 1), np.maximum(wrong, 0.0), 0.0)
    tied = np.flatnonzero(whole & leads & (leaders > 1))
    counts = np.column_stack([pools.none, pools.gold, pools.rivals])
    if len(tied):
        own = missed(counts[tied])
        if own is None:
            return None
        early[tied] = np.maximum(own, 0.0) / leaders[tied]
    some = np.flatnonzero(~whole & (pools.gold > 0))
    if len(some):
        found = _early_of_some(pools.rows(some), budget, missed)
        if found is None:
            return None
        early[some] = found
    return early


def _early_of_some(pools: Pools, budget: int, missed: Missed) -> Floats | None:
    """The same where the budget is some of the CoTs: over all counts that it can have."""
    from feval.estimators.orders import Ends, number_of_counts, partitions

    if number_of_counts(pools.bounds(), budget) > _MOST_COUNTS:
        return None
    whole = partitions(pools.bounds(), budget)
    whole = whole[whole[:, 1] > 0]
    chance = missed(whole)
    if chance is None:
        return None
    ends = Ends.of(whole, np.maximum(chance, 0.0), budget)
    free = np.zeros_like(pools.gold)
    return over_counts(Held(pools, free, np.zeros_like(pools.rivals), free), ends).right

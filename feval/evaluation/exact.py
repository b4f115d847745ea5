"""Exact expectations of methods over all draws without replacement, where their definition allows it.

The golds are looked at here, so this stands between the methods, which never see them, and `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, ShortPoolError, UsageError
from feval.estimators.cost import mean_output_tokens
from feval.estimators.counts import vote_counts
from feval.estimators.stopping.by_partition import MOST_PARTITIONS, number_of_partitions, over_partitions
from feval.estimators.stopping.early_plurality import early_plurality
from feval.estimators.stopping.early_stopping import early_stops, window_ends
from feval.estimators.stopping.ends import PoolCounts, ends_of_rule
from feval.estimators.stopping.orders import MOST_STATES, over_orders
from feval.estimators.votes.best_of_n import subset_best_accuracy
from feval.estimators.votes.plurality import pass_at_k, subset_plurality_accuracy
from feval.methods import AdaptiveConsistency, BestOfN, EarlyStopping, SelfConsistency, SingleCall
from feval.methods.fields import require_types
from feval.replay.pools import Pool

if TYPE_CHECKING:
    from feval.estimators.stopping.ends import Ends
    from feval.estimators.stopping.orders import OverOrders

__all__ = [
    "EXACT",
    "TOLERANCE",
    "Expectation",
    "Held",
    "Oracle",
    "adaptive_over_orders",
    "exact_expectation",
    "has_exact_form",
    "over_counts",
    "share_of_whole",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]

TOLERANCE = 1e-10
"""Most that rounding may change a probability."""


@dataclass(frozen=True, eq=False)
class Expectation:
    """Means over all draws, of a method of one LLM on Q questions.

    Attributes:
        right: [Q] probability that the answer is the gold; ties break uniformly among the leaders unless the method says else.
        rounds: [Q] expected number of requests.
        cots: [Q] expected number of CoTs.
        output_tokens: [Q] expected tokens of those.
    """

    right: Floats
    rounds: Floats
    cots: Floats
    output_tokens: Floats


@dataclass(frozen=True)
class Oracle:
    """pass@n: a picker that knows the gold takes it wherever one of n CoTs has it. No method: the ceiling of those that choose.

    Attributes:
        n: CoTs per question.
    """

    n: int = 20

    def __post_init__(self) -> None:
        require_types(self)
        if self.n < 1:
            raise OutOfRangeError(f"The oracle looks at 1 CoT or more; n={self.n} was asked for.")

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs asked of the one LLM."""
        if llms != 1:
            raise UsageError(f"The oracle is the ceiling of one LLM; {llms} were given.")
        return (self.n,)


def has_exact_form(method: object) -> bool:
    """Whether `exact_expectation` knows the method."""
    return type(method) in EXACT


def exact_expectation(method: Any, pools: Sequence[Pool], gold: Integers) -> Expectation:
    """The expectation of a method of one LLM over all draws.

    Args:
        method: of a type in `EXACT`.
        pools: one, of Q questions.
        gold: [Q] code of the gold answer, -1 where there is none: never right.

    Raises:
        UsageError: the method has an exact form, but not with these fields; the message says why.
        ShortPoolError: a pool is smaller than the method's draws.
    """
    return EXACT[type(method)](method, pools[0], gold)


def _self_consistency(method: SelfConsistency, pool: Pool, gold: Integers) -> Expectation:

    codes = pool.codes if method.no_answer == "drop" else pool.with_no_answer_as_vote().codes
    counts = vote_counts(codes, gold)
    right = subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, [method.n]).per_question()[:, 0]
    ones = np.ones(len(right))
    return Expectation(right, ones, method.n * ones, method.n * mean_output_tokens(pool.output_tokens, pool.sizes))


def _best_of_n(method: BestOfN, pool: Pool, gold: Integers) -> Expectation:

    if len(pool.sizes) and pool.smallest < method.n:
        raise ShortPoolError(
            f"{pool.llm} has {pool.smallest} recorded CoTs on the question in row {int(pool.sizes.argmin())}; "
            f"{type(method).__name__} needs {method.n}. Ask for fewer, or record more."
        )
    scores = np.where(pool.codes < 0, np.nan, pool.aggregated(method.scorer, method.aggregate))
    right = subset_best_accuracy(scores, (pool.codes == gold[:, None]) & (pool.codes >= 0), pool.sizes, method.n)
    ones = np.ones(len(right))
    return Expectation(right, ones, method.n * ones, method.n * mean_output_tokens(pool.output_tokens, pool.sizes))


def _oracle(oracle: Oracle, pool: Pool, gold: Integers) -> Expectation:

    counts = vote_counts(pool.codes, gold)
    right = pass_at_k(counts.gold, counts.size, [oracle.n]).per_question()[:, 0]
    ones = np.ones(len(right))
    return Expectation(right, ones, oracle.n * ones, oracle.n * mean_output_tokens(pool.output_tokens, pool.sizes))


def _single_call(method: SingleCall, pool: Pool, gold: Integers) -> Expectation:  # noqa: ARG001  it has no fields
    return _self_consistency(SelfConsistency(1), pool, gold)


def _adaptive_consistency(method: AdaptiveConsistency, pool: Pool, gold: Integers) -> Expectation:
    if method.criterion == "random":
        return _random_stop(method, pool, gold)
    found = adaptive_over_orders(method, Held.of(pool, gold, method.no_answer))
    return Expectation(found.right, found.samples, found.samples, found.output_tokens)


def adaptive_over_orders(method: AdaptiveConsistency, held: Held) -> OverOrders:
    """Adaptive-Consistency over all orders of some pools, by a criterion that looks at the votes."""
    return over_counts(held, ends_of_rule(method.rule.stop_mask, held.pools.bounds(), method.budget))


def over_counts(held: Held, ends: Ends, most_states: int | None = None) -> OverOrders:
    """What a table of ends comes to on some pools, by the faster of two ways; see `over_orders` for `most_states`."""
    own = (held.pools, held.gold_tokens, held.rival_tokens, held.none_tokens, ends)
    if number_of_partitions(ends.budget) <= MOST_PARTITIONS:
        return over_partitions(*own)
    return over_orders(*own, most_states=most_states or MOST_STATES)


def _random_stop(method: AdaptiveConsistency, pool: Pool, gold: Integers) -> Expectation:
    """The coin does not look at the answers: a mixture of self-consistency over numbers of CoTs."""
    codes = pool.codes if method.no_answer == "drop" else pool.with_no_answer_as_vote().codes
    counts = vote_counts(codes, gold)
    n = np.arange(1, method.budget + 1)
    stop = float(method.rule.threshold)
    share = np.where(n < method.budget, stop, 1.0) * (1.0 - stop) ** (n - 1)
    right = subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, n).per_question() @ share
    cots = np.full(len(right), share @ n)
    return Expectation(right, cots, cots, cots * mean_output_tokens(pool.output_tokens, pool.sizes))


def _early_stopping(method: EarlyStopping, pool: Pool, gold: Integers) -> Expectation:
    """In closed form. Only where rounding could reach 1e-10 (many small windows), the vote is found over all counts."""
    held = Held.of(pool, gold, "drop")
    stops = early_stops(
        np.column_stack([held.pools.gold, held.pools.rivals]),
        np.zeros(len(gold), np.intp),
        held.pools.size,
        np.column_stack([held.gold_tokens, held.rival_tokens]),
        pool.output_tokens.sum(axis=1, dtype=np.int64),
        window=method.window,
        windows=method.windows,
    )
    if method.window == 1:  # the first answer stops and is the only vote
        right = stops.gold_window
    elif method.answer == "all":
        right = _early_votes(method, held)
    elif bool((pool.sizes == method.draws(1)[0]).all()):  # no stop, and the whole pool votes
        right = stops.gold_window + stops.no_stop * share_of_whole(held.pools)
    else:
        right = stops.gold_window + _early_votes(method, held)
    return Expectation(np.minimum(right, 1.0), stops.windows, stops.windows * method.window, stops.output_tokens)


def _early_votes(method: EarlyStopping, held: Held) -> Floats:
    """[Q] probability that everything drawn votes for the gold; of orders without a stop, if a stop answers with its window."""
    pools, unstopped, shape = (
        held.pools,
        method.answer == "window",
        {"window": method.window, "windows": method.windows},
    )
    found = early_plurality(pools.gold, pools.rivals, pools.size, only_unstopped=unstopped, **shape)
    inexact = np.flatnonzero(found.error > TOLERANCE)
    if not len(inexact):
        return found.right
    few = pools.rows(inexact)
    ends = window_ends(few.bounds(), only_unstopped=unstopped, **shape)
    tokens = (held.gold_tokens[inexact], held.rival_tokens[inexact], held.none_tokens[inexact])
    right = found.right.copy()
    right[inexact] = over_orders(few, *tokens, ends).right
    return right


def share_of_whole(pools: PoolCounts) -> Floats:
    """[Q] the gold answer's share of the lead when all recorded CoTs of some pools vote."""
    most = np.maximum(pools.gold, pools.rivals.max(axis=1, initial=0))
    leaders = 1 + (pools.rivals == most[:, None]).sum(axis=1)
    share: Floats = np.where((pools.gold == most) & (most > 0), 1.0 / leaders, 0.0)
    return share


@dataclass(frozen=True, eq=False)
class Held:
    """What Q pools hold: counts, and the output tokens of the gold answer, of each rival, and of CoTs without an answer."""

    pools: PoolCounts
    gold_tokens: Integers
    rival_tokens: Integers
    none_tokens: Integers

    @classmethod
    def of_counts(cls, pools: PoolCounts, no_answer: str) -> Held:
        """Without tokens; with "vote" for `no_answer`, no answer is one more rival."""
        free = np.zeros_like(pools.none)
        if no_answer == "vote":
            pools = PoolCounts.of(pools.gold, np.column_stack([pools.rivals, pools.none]), free)
        return cls(pools, free, np.zeros_like(pools.rivals), free)

    @classmethod
    def of(cls, pool: Pool, gold: Integers, no_answer: str) -> Held:
        """From a pool; with "vote" for `no_answer`, no answer is one more rival."""
        codes = pool.codes.astype(np.int64)
        if no_answer == "vote":  # as a candidate of its own, which is not the gold either, where nobody gave that
            codes = np.where(codes == -1, max(codes.max(initial=-1), gold.max(initial=-1)) + 1, codes)
        candidates = int(codes.max(initial=-1)) + 1
        shape = (len(codes), candidates + 2)
        place = (codes + 2 + shape[1] * np.arange(len(codes))[:, None]).ravel()
        counts = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
        spent = np.bincount(place, pool.output_tokens.ravel(), minlength=shape[0] * shape[1]).reshape(shape)
        rows = np.flatnonzero((gold >= 0) & (gold < candidates))
        own = np.zeros((2, len(codes)), np.int64)
        for kept, table in zip(own, (counts, spent), strict=True):
            kept[rows] = table[rows, gold[rows] + 2]
            table[rows, gold[rows] + 2] = 0
        columns = np.argsort(-counts[:, 2:], axis=1, kind="stable")
        pools = PoolCounts.of(own[0], counts[:, 2:], counts[:, 1])
        spent_by_rank = np.take_along_axis(spent[:, 2:], columns, axis=1)[:, : pools.rivals.shape[1]]
        return cls(pools, own[1], spent_by_rank.astype(np.int64), spent[:, 1].astype(np.int64))


EXACT: dict[type, Callable[[Any, Pool, Integers], Expectation]] = {
    SelfConsistency: _self_consistency,
    BestOfN: _best_of_n,
    Oracle: _oracle,
    SingleCall: _single_call,
    AdaptiveConsistency: _adaptive_consistency,
    EarlyStopping: _early_stopping,
}
"""Method -> its expectation."""

"""Exact expectations of methods over all draws without replacement, where their definition allows it.

The golds are looked at here, so this stands between the methods, which never see them, and `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, ShortPoolError, UsageError
from feval.methods import BestOfN, SelfConsistency, SingleCall
from feval.pools import Pool

__all__ = ["EXACT", "Expectation", "Oracle", "exact_expectation", "has_exact_form"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]


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
    from feval.estimators.cost import mean_output_tokens
    from feval.estimators.counts import vote_counts
    from feval.estimators.plurality import subset_plurality_accuracy

    codes = pool.codes if method.no_answer == "drop" else pool.with_no_answer_as_vote().codes
    counts = vote_counts(codes, gold)
    right = subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, [method.n]).per_question()[:, 0]
    ones = np.ones(len(right))
    return Expectation(right, ones, method.n * ones, method.n * mean_output_tokens(pool.output_tokens, pool.sizes))


def _best_of_n(method: BestOfN, pool: Pool, gold: Integers) -> Expectation:
    from feval.estimators.best_of_n import subset_best_accuracy
    from feval.estimators.cost import mean_output_tokens

    if len(pool.sizes) and pool.smallest < method.n:
        raise ShortPoolError(
            f"{pool.llm} has {pool.smallest} recorded CoTs on the question in row {int(pool.sizes.argmin())}; {method} needs "
            f"{method.n}. Ask for fewer, or record more."
        )
    scores = np.where(pool.codes < 0, np.nan, pool.aggregated(method.scorer, method.aggregate))
    right = subset_best_accuracy(scores, (pool.codes == gold[:, None]) & (pool.codes >= 0), pool.sizes, method.n)
    ones = np.ones(len(right))
    return Expectation(right, ones, method.n * ones, method.n * mean_output_tokens(pool.output_tokens, pool.sizes))


def _oracle(oracle: Oracle, pool: Pool, gold: Integers) -> Expectation:
    from feval.estimators.cost import mean_output_tokens
    from feval.estimators.counts import vote_counts
    from feval.estimators.plurality import pass_at_k

    counts = vote_counts(pool.codes, gold)
    right = pass_at_k(counts.gold, counts.size, [oracle.n]).per_question()[:, 0]
    ones = np.ones(len(right))
    return Expectation(right, ones, oracle.n * ones, oracle.n * mean_output_tokens(pool.output_tokens, pool.sizes))


def _single_call(method: SingleCall, pool: Pool, gold: Integers) -> Expectation:  # noqa: ARG001  it has no fields
    return _self_consistency(SelfConsistency(1), pool, gold)


EXACT: dict[type, Callable[[Any, Pool, Integers], Expectation]] = {
    SelfConsistency: _self_consistency,
    BestOfN: _best_of_n,
    Oracle: _oracle,
    SingleCall: _single_call,
}
"""Method -> its expectation."""

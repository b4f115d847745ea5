"""Two LLMs on the same questions, with shared noise and without: covariances, variances and errors
of their difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.errors import ConflictError, NotRecordedError, OutOfRangeError
from feval.estimators.arrays import Floats, Integers, Rows
from feval.estimators.coupling.gumbel_coupling import coupled_correctness, laws_of_counts
from feval.estimators.coupling.recorded_pairs import (
    coupled_statistics,
    equal_error_samples,
    estimation_error,
)
from feval.estimators.inference.bootstrap import bootstrap_interval
from feval.forecast.coupling_results import CoupledPair, ErrorCurve

if TYPE_CHECKING:
    from feval.estimators.coupling.recorded_pairs import CoupledStatistics
    from feval.replay import LLM, Dataset

_LARGEST_SIZE = 2_000  # most pairs in an error curve
_POINTS = 25


@dataclass(frozen=True, eq=False)
class LLMCalls:
    """One LLM's calls on some questions, [Q, S] in recorded order; `right` is 1.0 or 0.0, and
    win-rates compare `scores`.
    """

    name: str
    codes: Integers
    right: Floats
    scores: Floats


def calls_of(
    dataset: Dataset, llm: LLM, rows: Rows, scorer: str | None, aggregate: str
) -> LLMCalls:
    """Take an LLM's calls from its pool; scores are correctness unless a scorer is given."""
    pool = llm.pool
    sizes = pool.sizes[rows]
    if len(uneven := np.flatnonzero(sizes != sizes[0])):
        name = dataset.question_ids[rows[uneven[0]]]
        raise ConflictError(
            f"Coupled calls are paired by index, so all pools must have one size; {llm.name} has"
            f" {sizes[0]} CoTs on {dataset.question_ids[rows[0]]!r} and {sizes[uneven[0]]} on"
            f" {name!r}. Record the missing ones, or select questions."
        )
    codes = pool.codes[rows, : int(sizes[0])]
    right = (codes == dataset.gold[rows, None]).astype(np.float64)
    scores = right if scorer is None else pool.aggregated(scorer, aggregate)[rows, : int(sizes[0])]
    if len(missing := np.argwhere(np.isnan(scores))):
        question, call = missing[0].tolist()
        raise NotRecordedError(
            f"{scorer} has no score for CoT {call} of {llm.name} on"
            f" {dataset.question_ids[rows[question]]!r}; score the rest (`feval score`), or leave"
            " that question out."
        )
    return LLMCalls(llm.name, codes, right, scores)


def require_equal_sizes(calls: Sequence[LLMCalls]) -> None:
    """Refuse LLMs with different numbers of calls per question, or with a single call."""
    sizes = {llm.name: llm.codes.shape[1] for llm in calls}
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise ConflictError(
            f"LLMs are compared call by call; their numbers of CoTs per question differ ({counts})."
            " Record the missing ones."
        )
    if min(sizes.values()) < 2:
        raise ConflictError(
            "Within a question a covariance takes two CoTs or more; these pools hold 1. Record"
            " more."
        )


def independent_pair(
    together: Sequence[LLMCalls], apart: Sequence[LLMCalls] | None, one: int, two: int
) -> tuple[LLMCalls, LLMCalls]:
    """Return independent calls of two LLMs: recorded ones, or the coupled calls shifted by one."""
    if apart is not None:
        return apart[one], apart[two]
    other = together[two]
    roll = partial(np.roll, shift=-1, axis=1)
    return together[one], LLMCalls(
        other.name, roll(other.codes), roll(other.right), roll(other.scores)
    )


@dataclass(frozen=True, eq=False)
class PairOfLLMs:
    """Two LLMs under shared noise and without it; `recorded_apart`: the independent calls are
    recordings of their own.
    """

    first: LLMCalls
    second: LLMCalls
    first_apart: LLMCalls
    second_apart: LLMCalls
    recorded_apart: bool

    def statistics(self, at: Rows | slice = slice(None)) -> CoupledStatistics:
        """Statistics of the coupled calls on some or all questions."""
        return coupled_statistics(self.first.right[at], self.second.right[at])

    def statistics_apart(self, at: Rows | slice = slice(None)) -> CoupledStatistics:
        """Statistics of the independent calls on some or all questions."""
        return coupled_statistics(self.first_apart.right[at], self.second_apart.right[at])

    def variances(self) -> Floats:
        """[2, Q] within-question variances of the difference, coupled and independent."""
        coupled = self.statistics()
        # Shifted pairs of one recording depend on each other; its own two variances are unbiased.
        apart = (
            self.statistics_apart().variance_coupled
            if self.recorded_apart
            else coupled.variance_independent
        )
        return np.stack([coupled.variance_coupled, apart])

    def differences(self, at: Rows) -> tuple[Floats, Floats]:
        """[Q, S] differences in correctness, coupled and independent."""
        coupled = self.first.right[at] - self.second.right[at]
        return coupled, self.first_apart.right[at] - self.second_apart.right[at]

    def figures(
        self, area: str | None, at: Rows, samples: int, settings: Mapping[str, Any]
    ) -> CoupledPair:
        """All figures on some questions."""
        statistics = self.statistics(at)
        coupled, independent = self.differences(at)
        interval = bootstrap_interval(statistics.covariance[:, None], **settings)
        if samples < 1:
            raise OutOfRangeError(
                f"The error is that of 1 independent pair or more; {samples} were given."
            )
        number = min(samples, independent.size)
        equal = None
        if (
            coupled.shape == independent.shape
            and np.ptp(independent) > 0
            and number < independent.size
        ):
            equal = equal_error_samples(coupled, independent, number, **settings)
        return CoupledPair(
            first=self.first.name,
            second=self.second.name,
            area=area,
            questions=len(at),
            calls=coupled.shape[1],
            difference=float(coupled.mean()),
            covariance=float(statistics.covariance.mean()),
            covariance_low=float(interval.low[0]),
            covariance_high=float(interval.high[0]),
            law_covariance=self._law_covariance(at),
            variance_coupled=statistics.total_coupled,
            # As in `variances`, plus the variance between questions.
            variance_independent=(
                self.statistics_apart(at).total_coupled
                if self.recorded_apart
                else statistics.total_independent
            ),
            agreement_coupled=_agreement(self.first, self.second, at),
            agreement_independent=_agreement(self.first_apart, self.second_apart, at),
            independent_samples=number,
            error=None if equal is None else equal.error,
            coupled_samples=None if equal is None else equal.coupled,
            ratio=None if equal is None else equal.ratio,
            ratio_low=None if equal is None or len(at) == 1 else equal.low,
            ratio_high=None if equal is None or len(at) == 1 else equal.high,
        )

    def _law_covariance(self, at: Rows) -> float:
        """Mean covariance of correctness under the coupling of the two empirical answer
        distributions.
        """
        one, two = self.first.codes[at], self.second.codes[at]
        width = 2 + int(max(one.max(), two.max()))
        counts = [
            np.stack([(codes == code).sum(axis=1) for code in range(-1, width - 1)], axis=1)
            for codes in (one, two)
        ]
        laws = list(map(laws_of_counts, counts))
        right = np.zeros(laws[0].shape, bool)
        for calls in (self.first, self.second):
            question, call = np.nonzero(calls.right[at])
            right[question, calls.codes[at][question, call] + 1] = True
        return float(coupled_correctness(laws[0], laws[1], right).covariance.mean())

    def curve(self) -> ErrorCurve:
        """Mean absolute error against the number of pairs."""
        coupled, independent = self.differences(np.arange(len(self.first.right)))
        most = min(coupled.size, independent.size, _LARGEST_SIZE)
        sizes = np.unique(np.rint(np.geomspace(min(10, most), most, _POINTS)).astype(np.int64))
        errors = (estimation_error(values, sizes) for values in (coupled, independent))
        shared, apart = (tuple(values.tolist()) for values in errors)
        return ErrorCurve(tuple(sizes.tolist()), shared, apart)


def _agreement(first: LLMCalls, second: LLMCalls, at: Rows) -> float:
    one, two = first.codes[at], second.codes[at]
    return float(((one == two) & (one >= 0)).mean())

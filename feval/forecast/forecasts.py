"""Forecasts as data: estimated vote curves of one LLM beside the curve of its whole pool."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from feval.evaluation.questions import NONE_LEFT_OUT, LeftOut
from feval.lazy import Plottable

METHODS = ("unbiased", "exact", "monte-carlo", "gaussian", "two-call", "max-entropy", "ldgp")
"""Estimators by name; all but `unbiased` go beyond M = G."""

OF_MAJORITY = ("two-call", "max-entropy", "ldgp")
"""Estimators of a majority of right calls, which see right and wrong only."""

COMPLETIONS = ("max-entropy", "ldgp")
"""Estimators that assume a distribution of the questions' difficulty."""

PLUG_IN = ("exact", "monte-carlo", "gaussian")
"""Estimators that use the shares of the calls as the LLM's probabilities: biased."""


@dataclass(frozen=True, slots=True)
class EstimatePoint:
    """An estimator's value for one M.

    Attributes:
        m: votes.
        accuracy: the estimate; `None` for bounds, and for `unbiased` beyond M = G.
        bound_low: L, the least accuracy of any distribution with the estimated moments (`two-call`
            only).
        bound_high: U, the greatest.
        low: lower end of the confidence interval.
        high: upper end.
        reason: why an estimate, bounds or an interval are missing; `None` where nothing is missing.
    """

    m: int
    accuracy: float | None
    bound_low: float | None
    bound_high: float | None
    low: float | None
    high: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EstimatedCurve:
    """An estimator's values for all M.

    Attributes:
        method: one of `METHODS`.
        of: what it estimates: the accuracy of a "plurality" of answers or of a "majority" of right
            calls.
        interval: kind of its intervals: "student" over questions, "bootstrap" of the moments, or
            "wald" or "likelihood" regions of the pair table.
        points: by M.
    """

    method: str
    of: str
    interval: str
    points: tuple[EstimatePoint, ...]


@dataclass(frozen=True, slots=True)
class PoolCurves:
    """Curves of the whole pool: exact means over all subsets of M recorded calls, unbiased for M
    fresh calls.

    Attributes:
        size: calls of the smallest pool, the largest M with a value.
        plurality: accuracy per M, ties broken at random; `None` beyond the pool.
        majority: the same for a majority of right calls.
    """

    size: int
    plurality: tuple[float | None, ...]
    majority: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(Plottable):
    """Estimated vote curves of one LLM on one dataset.

    Attributes:
        g: calls per question used by the estimates.
        replicate: which draw of `draws-v1`.
        seed: of the draw and of the resamples.
        simulations: votes simulated per question (`monte-carlo`).
        m: numbers of votes.
        pool: the curves of the whole pool.
        estimates: one per method, in the order asked for.
        warnings: what a reader must know in order not to be misled.
        left_out: questions left out because they have no gold or fewer than g calls.
    """

    dataset: str
    llm: str
    recording_hashes: tuple[str, ...]
    questions: int
    g: int
    replicate: int
    seed: int
    confidence: float
    resamples: int
    simulations: int
    m: tuple[int, ...]
    pool: PoolCurves
    estimates: tuple[EstimatedCurve, ...]
    warnings: tuple[str, ...]
    left_out: LeftOut = NONE_LEFT_OUT

    def errors(self, estimate: EstimatedCurve) -> tuple[float | None, ...]:
        """Estimate minus pool for each M, `None` where either is missing; for bounds, how far the
        pool lies outside them.
        """
        truth = self.pool.plurality if estimate.of == "plurality" else self.pool.majority
        return tuple(
            _error(point, true) for point, true in zip(estimate.points, truth, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """The forecast as JSON values, with the error of each point."""
        values = dataclasses.asdict(self)
        for json_curve, curve in zip(values["estimates"], self.estimates, strict=True):
            for point, error in zip(json_curve["points"], self.errors(curve), strict=True):
                point["error"] = error
        del values["left_out"]
        return (
            values
            | {"scheme": "draws-v1"}
            | ({"left_out": self.left_out.to_dict()} if self.left_out else {})
        )


def _error(point: EstimatePoint, true: float | None) -> float | None:
    if true is None:
        return None
    if point.accuracy is not None:
        return point.accuracy - true
    if point.bound_low is None or point.bound_high is None:
        return None
    return max(point.bound_low - true, 0.0) or min(point.bound_high - true, 0.0)

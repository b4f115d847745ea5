"""Confidence intervals for means over questions: accuracies, and paired differences with the test
of no difference.

A value is right or wrong (0 or 1), the probability of being right over a question's draws, or the
difference of two of these. Questions are independent evidence, or clusters of them where some
belong together; draws within a question are not.

Student's interval trusts the observed spread, so it fails where the questions that matter are rare:
97 % of them nearly right and the others wrong look like no spread at all until one of the others
turns up. So the values are joined by two imaginary questions at the ends of what is possible.
Feval's own, after the "plus four" interval of proportions (A. Agresti and B. A. Coull 1998,
doi:10.1080/00031305.1998.10480550). Assumes questions, or clusters, that are independent draws;
calls within a question may depend on each other. `python -m benchmarks intervals` measures how
often intervals hold the truth (docs/comparing.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Integers
from feval.estimators.checks import require_confidence
from feval.estimators.per_question import PerQuestion

IMAGINARY_DIFFERENCE = 1.125
"""Size of the two imaginary differences. The least eighth with which no two-point law of equal
methods is found different in more than 6.5 % of cases at a level of 5 %: 6.4 %, against 6.8 % with
1.
"""

_EQUAL = 1e-12  # rounding that exact estimates may carry


@dataclass(frozen=True, eq=False)
class Interval:
    """Lower and upper ends [C]."""

    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class DifferenceTest:
    """Tests of mean differences against 0: two-sided p-values [C] and the ends [C] of confidence
    intervals.
    """

    p_value: Floats
    low: Floats
    high: Floats


def accuracy_interval(
    values: PerQuestion | npt.NDArray[Any],
    confidence: float = 0.95,
    clusters: Integers | None = None,
) -> Interval:
    """Interval for the mean over questions of values in [0, 1]: Student's, with one imaginary
    question right and one wrong.

    With n = Q + 2 values x, the imaginary ones among them, their mean m, s^2 = sum (x - m)^2 / (n -
    1), and t the quantile of Student's law with n - 1 degrees of freedom: m +- t s / sqrt(n), cut
    to [0, 1]. It is never a point, and [0, 1] for one or two questions at 95 %. With C clusters of
    n_c questions, C + 2 values take the place of the Q + 2:

        u_c = mean + (sum of c's values - n_c mean) C / Q

    whose mean over the C is that over the questions, and whose spread is that of the clusters'
    sums. The two imaginary ones are clusters of sum n_c^2 / Q questions, which is the size of the
    cluster that a question is in, on average.

    Args:
        values: [Q, K] values per question, or the result of an exact estimator.
        confidence: coverage, between 0 and 1.
        clusters: [Q] which questions belong together: numbers from 0, each of which some question
            has. `None`: none do.

    Returns:
        K lower and K upper ends, with the mean between them.

    Raises:
        OutOfRangeError: no questions, NaN or infinite values, values outside [0, 1], or a
            confidence outside (0, 1).
    """
    remedy = (
        "Accuracies lie in [0, 1]; differences are for difference_test, costs for"
        " bootstrap_interval"
    )
    return _padded(values, confidence, clusters, (0.0, 1.0), (0.0, 1.0), remedy)[0]


def difference_test(
    differences: PerQuestion | npt.NDArray[Any],
    confidence: float = 0.95,
    clusters: Integers | None = None,
) -> DifferenceTest:
    """Test whether means of paired differences in [-1, 1] are 0, with their intervals.

    As `accuracy_interval`, with the two imaginary questions at +-`IMAGINARY_DIFFERENCE`, cut to
    [-1, 1]: the p-value is that of t = m sqrt(n) / s, and the interval holds every difference that
    is not rejected. Nothing is below 0.05 with fewer than six questions.

    Args:
        differences: [Q, K] per question, such as probabilities of being right.
        confidence: of the intervals, between 0 and 1.
        clusters: as for `accuracy_interval`.

    Returns:
        K p-values and intervals.

    Raises:
        OutOfRangeError: as for `accuracy_interval`, with values outside [-1, 1].
    """
    from scipy.special import stdtr  # takes longer to import than a whole curve

    remedy = "Differences of accuracies lie in [-1, 1]; costs are for bootstrap_interval"
    pads = -IMAGINARY_DIFFERENCE, IMAGINARY_DIFFERENCE
    ends, ratio, degrees = _padded(differences, confidence, clusters, (-1.0, 1.0), pads, remedy)
    return DifferenceTest(2.0 * stdtr(degrees, -np.abs(ratio)), ends.low, ends.high)


def _padded(
    values: PerQuestion | npt.NDArray[Any],
    confidence: float,
    clusters: Integers | None,
    bounds: tuple[float, float],
    imaginary: tuple[float, float],
    remedy: str,
) -> tuple[Interval, Floats, int]:
    """Student's interval with two imaginary values, the means over their standard errors, and the
    degrees of freedom.
    """
    require_confidence(confidence)
    checked = checked_values(values)
    lowest, highest = float(checked.values.min(initial=0.0)), float(checked.values.max(initial=0.0))
    if lowest < bounds[0] - _EQUAL or highest > bounds[1] + _EQUAL:
        raise OutOfRangeError(f"{remedy}. The values reach from {lowest:g} to {highest:g}.")
    mean = np.clip(checked.mean(), *bounds)
    if clusters is None:
        units, weights = (
            checked.values,
            np.bincount(checked.rows, minlength=len(checked.values)).astype(np.float64),
        )
        size = 1.0
    else:
        units, weights, size = _clustered(checked, mean, clusters)
    pads = [mean * (1.0 - size) + size * value for value in imaginary]
    n = weights.sum() + 2.0
    centre = (mean * (n - 2.0) + sum(pads)) / n
    distances = units - centre
    squares = weights @ np.square(distances, out=distances) + sum(
        (pad - centre) ** 2 for pad in pads
    )
    error = np.sqrt(squares / ((n - 1.0) * n))
    width = _student_quantile(confidence, int(n) - 1) * error
    low, high = np.minimum(centre - width, mean), np.maximum(centre + width, mean)
    return (
        Interval(np.maximum(low, bounds[0]), np.minimum(high, bounds[1])),
        centre / error,
        int(n) - 1,
    )


def _clustered(
    checked: PerQuestion, mean: Floats, clusters: Integers
) -> tuple[Floats, Floats, float]:
    """[C, K] the values u_c of clusters, their weights [C], ones, and the size of imaginary ones
    over the mean size.
    """
    sizes = np.bincount(clusters).astype(np.float64)
    sums = [
        np.bincount(clusters, weights=checked.column(place))
        for place in range(checked.values.shape[1])
    ]
    scaled = (np.stack(sums, axis=1) - sizes[:, None] * mean) * (len(sizes) / len(checked))
    size = float(sizes @ sizes) * len(sizes) / len(checked) ** 2
    return mean + scaled, np.ones(len(sizes)), size


def _normal_quantile(confidence: float) -> float:
    return -NormalDist().inv_cdf((1.0 - confidence) / 2.0)  # from the small tail, for precision


@lru_cache
def _student_quantile(confidence: float, degrees: int) -> float:
    """Return t with P(|T| < t) = confidence: Newton's method on Abramowitz and Stegun (1964),
    26.7.3 and 26.7.4.

    `scipy.special.stdtrit` gives the same, but importing `scipy.special` takes longer than the
    whole curve. Tails so thin that 1 - confidence has few digits are left to it.
    """
    if confidence > 0.999:
        from scipy.special import stdtrit

        return -float(stdtrit(degrees, (1.0 - confidence) / 2.0))
    t = _normal_quantile(confidence)
    even = 1 - degrees % 2
    k = np.arange(3 - even, degrees - 1, 2)
    gammas = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2))
    # from below the root of a concave function: every step goes up, and none beyond
    for _ in range(100):
        angle = math.atan(t / math.sqrt(degrees))
        terms = 1.0 + float(np.cumprod(math.cos(angle) ** 2 * (k - 1) / k).sum())
        if even:
            inside = math.sin(angle) * terms
        else:
            inside = (
                2
                / math.pi
                * (angle + (math.sin(angle) * math.cos(angle) * terms if degrees > 1 else 0.0))
            )
        density = (
            gammas / math.sqrt(degrees * math.pi) * (1 + t * t / degrees) ** (-(degrees + 1) / 2)
        )
        step = (confidence - inside) / (2 * density)
        t += step
        if abs(step) <= 1e-9 * t:  # the error of the next one is its square
            break
    return t


def checked_values(values: PerQuestion | npt.NDArray[Any]) -> PerQuestion:
    """Return values per question [Q, C] as `PerQuestion`; OutOfRangeError for none, another shape,
    or NaN or infinity.
    """
    if not isinstance(values, PerQuestion):
        array = np.asarray(values, np.float64)
        if array.ndim != 2:
            raise OutOfRangeError(
                f"Values are [questions, columns]; an array of shape {array.shape} was given."
            )
        values = PerQuestion(array, np.arange(len(array)))
    if not len(values):
        raise OutOfRangeError("An interval needs questions, and there are none; give at least one.")
    if not np.isfinite(values.values).all():
        row, column = np.argwhere(~np.isfinite(values.values))[0].tolist()
        question = int(np.argmax(values.rows == row))
        raise OutOfRangeError(
            f"Question {question} holds {values.values[row, column]} in column {column}; leave"
            " undefined questions out of every column first."
        )
    return values

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

Resampled questions: means and percentile intervals of costs, ratios and areas.

Accuracies and their differences have intervals of their own (`intervals`), which hold on few
questions, where percentiles do not.

Questions are independent evidence; draws within a question are not. So questions are resampled with
replacement, with all their columns: every curve and every method in one call sees the same
resamples, and differences between columns stay paired (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993, chapter 13). E. Miller, Adding Error Bars to Evals (arXiv 2411.00640), argues for
the same: questions are draws from a population, and two models are compared by their differences on
the same questions, with normal intervals. Assumes questions that are independent draws.

Results are reproducible. Resamples come from the raw 64-bit outputs of Philox (whose stream NumPy
promises to keep; those of `Generator` methods it does not), two 32-bit halves each, scaled to
0..Q-1 by multiply and shift (relative bias below Q / 2^32). Values are rounded to a fixed-point
grid of 2^-38 of their column's scale, so that every weighted sum is an exact integer in double
precision: the same bits on any machine, with any BLAS, threads or chunks.

Cost and memory are bounded: more than 16,384 questions are divided at random into 4,096 groups of
nearly equal size, which are then resampled as a whole. The groups' spread estimates the same
standard error, with a relative error of 1 / sqrt(2 x 4,096) = 1.1 %, less than that of 10,000
resamples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import (
    Floats,
    Integers,
    Numbers,
    Result,
    Rows,
    UInt64,
    require_confidence,
)
from feval.estimators.per_question import PerQuestion

IMAGINARY_DIFFERENCE = 1.125
"""Size of the two imaginary differences. The least eighth with which no two-point law of equal
methods is found different in more than 6.5 % of cases at a level of 5 %: 6.4 %, against 6.8 % with
1.
"""

_EQUAL = 1e-12  # rounding that exact estimates may carry


class Interval(Result):
    """Lower and upper ends [C]."""

    low: Floats
    high: Floats


class DifferenceTest(Result):
    """Tests of mean differences against 0: two-sided p-values [C] and the ends [C] of confidence
    intervals.
    """

    p_value: Floats
    low: Floats
    high: Floats


def accuracy_interval(
    values: PerQuestion | Numbers, confidence: float = 0.95, clusters: Integers | None = None
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
    differences: PerQuestion | Numbers, confidence: float = 0.95, clusters: Integers | None = None
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
    values: PerQuestion | Numbers,
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
    checked = _checked_values(values)
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
    from statistics import NormalDist  # deferred: curves without intervals need none

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


def _checked_values(values: PerQuestion | Numbers) -> PerQuestion:
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


MOST_QUESTIONS = 1 << 14
"""Most questions that are resampled one by one."""

CLUSTERS = 1 << 12
"""Number of clusters for more questions than that."""

# a sum of 2^14 weights times 38-bit values stays below 2^53, where integers are exact
_GRID_BITS = 38
_CHUNK_DRAWS = 1 << 16  # question draws worked on at once


def bootstrap_interval(
    values: PerQuestion | Numbers,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Interval for the mean over questions of each column: percentiles of the means of resampled
    questions.

    A column with the same value for all questions has a point as interval; for accuracies use
    `accuracy_interval`. The percentile bootstrap (Efron and Tibshirani, 1993, chapter 13).

    Args:
        values: [Q, C] values per question, or the result of an exact estimator. For a paired
            difference give the differences per question.
        confidence: coverage, between 0 and 1.
        resamples: at least 1.
        seed: 0 to 2^128 - 1. Resample r depends on seed, Q and r only, so fewer resamples are the
            first ones of more.

    Returns:
        C lower and C upper ends: the (1 - confidence) / 2 quantile and its mirror, interpolated
        between order statistics.

    Raises:
        OutOfRangeError: no questions, NaN or infinite values, or a confidence, seed or number of
            resamples out of range.
    """
    require_confidence(confidence)
    means = _resampled_means(_checked_values(values), resamples, seed)
    tail = (1.0 - confidence) / 2.0
    return Interval(*np.quantile(means, [tail, 1.0 - tail], axis=1, overwrite_input=True))


def bootstrap_means(
    values: PerQuestion | Numbers,
    *,
    resamples: int = 10_000,
    seed: int = 0,
    dealt: Clusters | None = None,
) -> Floats:
    """Resampled means, for statistics such as ratios, crossings or the best of several (Efron and
    Tibshirani, 1993, chapter 6).

    Args:
        values, resamples, seed: as for `bootstrap_interval`, which raises the same errors.
        dealt: `Clusters(Q, seed)` where `values` are sums over those, made column by column; the
            means are the same, but where clusters are given: then these are resampled.

    Returns:
        [R, C] mean over the questions of resample r. Row r uses the same questions in every column,
        and in every call with the same seed and Q.
    """
    return _resampled_means(_checked_values(values), resamples, seed, dealt).T


def _resampled_means(
    distinct: PerQuestion, resamples: int, seed: int, dealt: Clusters | None = None
) -> Floats:
    """[C, R] means of the resamples."""
    if not 0 <= seed < 1 << 128 or resamples < 1:
        raise OutOfRangeError(
            f"A bootstrap takes a seed from 0 to 2^128 - 1 and 1 resample or more; seed={seed} and"
            f" resamples={resamples} were given."
        )
    bits = np.random.Philox(key=seed)
    sizes = np.ones(len(distinct.values))
    if dealt is None and len(distinct) > MOST_QUESTIONS:
        dealt = Clusters(len(distinct), seed)
        sums = [dealt.sums(distinct.column(place)) for place in range(distinct.values.shape[1])]
        distinct = PerQuestion(np.stack(sums, axis=1), np.arange(CLUSTERS))
    if dealt is not None:
        bits.random_raw(dealt.drawn, output=False)
        sizes = dealt.sizes
    rows = distinct.rows
    grid, unit = _on_grid(distinct.values)
    means, start = np.empty((grid.shape[1], resamples)), 0
    for weights in _weights(bits, rows, len(grid), resamples):
        end = start + len(weights)
        means[:, start:end] = (weights @ grid / (weights @ sizes)[:, None]).T
        start = end
    means *= unit[:, None]
    return means


def _weights(bits: np.random.Philox, rows: Any, groups: int, resamples: int) -> Iterator[Floats]:
    """Yield, for some resamples at a time, [r, G] how often each of G groups is drawn, in which the
    entries [Q] that are drawn with replacement lie.
    """
    step = max(1, _CHUNK_DRAWS // len(rows))
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        places = rows[_draws(bits, count, len(rows))]
        places += np.arange(count)[:, None] * groups
        drawn = np.bincount(places.ravel(), minlength=count * groups).reshape(count, groups)
        yield drawn.astype(np.float64)


class Clusters:
    """What is resampled: questions, or clusters of them; where there are more than
    `MOST_QUESTIONS`, random groups of these.

    Args:
        questions: Q.
        seed: as for `bootstrap_means`.
        given: [Q] which questions belong together: numbers from 0, each of which some question has.
            `None`: none do.

    Attributes:
        sizes: [G] number of questions of each.
        drawn: how many outputs of Philox the groups took.
    """

    def __init__(self, questions: int, seed: int, given: Integers | None = None) -> None:
        self._given = given
        self.sizes = np.ones(questions) if given is None else np.bincount(given).astype(np.float64)
        self.drawn = len(self.sizes) if len(self.sizes) > MOST_QUESTIONS else 0
        # the questions in the order in which they are dealt to the groups
        bits = np.random.Philox(key=seed)
        dealt = np.argsort(bits.random_raw(self.drawn), kind="stable") if self.drawn else None
        self._places = dealt
        self.sizes = self._grouped(self.sizes)

    def weights(self, resamples: int, seed: int) -> Iterator[Floats]:
        """Yield, for some resamples at a time, [r, Q] how often each question counts; for
        statistics that are no functions of means.
        """
        groups = np.arange(len(self.sizes))
        if self._places is not None:
            groups = np.empty(len(self._places), np.intp)
            groups[self._places] = np.arange(len(groups)) % CLUSTERS
        own = groups if self._given is None else groups[self._given]
        bits = np.random.Philox(key=seed)
        bits.random_raw(self.drawn, output=False)
        for drawn in _weights(bits, np.arange(len(self.sizes)), len(self.sizes), resamples):
            yield drawn[:, own]

    def sums(self, values: Floats) -> Floats:
        """[G] sums of a column [Q]."""
        return self._grouped(
            values
            if self._given is None
            else np.bincount(self._given, weights=values).astype(np.float64)
        )

    def _grouped(self, values: Floats) -> Floats:
        if self._places is None:
            return values
        sums = np.zeros(CLUSTERS)
        for start in range(0, len(values), CLUSTERS):
            turn = self._places[start : start + CLUSTERS]
            sums[: len(turn)] += values[turn]
        return sums


def _on_grid(values: Floats) -> tuple[Floats, Floats]:
    """Round values [G, C] to whole numbers of a unit [C], a power of two per column, so that sums
    are exact in any order.
    """
    _, exponent = np.frexp(np.abs(values).max(axis=0, initial=0.0))
    # columns of zeros and denormals keep a unit above 0
    unit = np.ldexp(1.0, np.maximum(exponent, -900) - _GRID_BITS)
    return np.rint(values / unit), unit


def random_halves(bits: np.random.Philox, rows: int, count: int) -> UInt64:
    """[rows, count] 32-bit numbers; every row takes ceil(count / 2) outputs of Philox, low half
    first.
    """
    raw = bits.random_raw(rows * ((count + 1) // 2)).astype("<u8", copy=False)
    return raw.view("<u4").reshape(rows, -1)[:, :count].astype(np.uint64)


def _draws(bits: np.random.Philox, resamples: int, count: int) -> Rows:
    """[resamples, count] which cluster is drawn; see `random_halves`."""
    scaled = random_halves(bits, resamples, count)
    scaled *= np.uint64(count)
    scaled >>= np.uint64(32)
    return scaled.astype(np.intp)

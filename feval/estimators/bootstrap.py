"""Confidence intervals for means over questions: the percentile bootstrap, and Wilson's interval where it has nothing to say.

Questions are the independent evidence; draws within a question are not. So questions are resampled, with replacement, and a
question brings all its columns along: every curve and every method in one call sees the same resamples, and differences taken
between columns stay paired (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). E. Miller, Adding Error
Bars to Evals (arXiv 2411.00640), argues for the same of benchmarks: questions are draws from a population, and two models are
compared by their differences on the same questions. Its intervals are normal ones; resamples need no normal law.

The numbers are meant to last. Resamples come from the raw 64-bit outputs of Philox (whose stream NumPy promises to keep; those of
`Generator` methods it does not), two 32-bit halves each, scaled to 0..Q-1 by multiply and shift (relative bias below Q / 2^32).
Values are rounded to a fixed-point grid of 2^-38 of their column's scale, so that every weighted sum is an exact integer in
double precision: the same bits whatever the machine, the BLAS, its threads or the size of the chunks.

Cost and memory are bounded: more than 16,384 questions are dealt at random into 4,096 clusters of nearly equal size, which are
then resampled whole. The clusters' spread estimates the same standard error, itself with a relative error of
1 / sqrt(2 x 4,096) = 1.1 %, less than what 10,000 resamples leave open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.per_question import PerQuestion

__all__ = ["CLUSTERS", "MOST_QUESTIONS", "Interval", "bootstrap_interval", "bootstrap_means", "wilson_interval"]

Floats = npt.NDArray[np.float64]

MOST_QUESTIONS = 1 << 14
"""Questions that are resampled one by one."""

CLUSTERS = 1 << 12
"""Clusters into which more questions than that are dealt."""

_GRID_BITS = 38  # a sum of 2^14 weights times 38-bit values stays below 2^53, where integers are exact
_CHUNK_DRAWS = 1 << 16  # question draws worked on at once
_EQUAL = 1e-12  # rounding that exact estimates may carry
_FLAT = 2.0 ** (2 - _GRID_BITS)  # spread of proportions that the grid cannot show


@dataclass(frozen=True, eq=False)
class Interval:
    """Lower and upper ends.

    Attributes:
        low: [C].
        high: [C].
    """

    low: Floats
    high: Floats


def bootstrap_interval(
    values: PerQuestion | npt.NDArray[Any],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    proportions: bool = True,
) -> Interval:
    """Interval for the mean over questions of each column: percentiles of the means of resampled questions.

    A column in which all questions have the same value shows no spread, and the percentiles would be a point: all right, all
    wrong, or a single question. For proportions it gets Wilson's interval at that value instead, which for one question spans
    most of [0, 1]. For differences and costs (`proportions=False`) the point stands.

    The percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). Assumes
    questions that are independent draws; calls within a question may depend on each other.

    Args:
        values: [Q, C] values per question, or what an exact estimator returned. For a paired difference give the differences
            per question and `proportions=False`.
        confidence: coverage, between 0 and 1.
        resamples: at least 1.
        seed: 0 to 2^128 - 1. Resample r depends on seed, Q and r only, so fewer resamples are the first ones of more.
        proportions: whether the values are probabilities or right/wrong, in [0, 1].

    Returns:
        C lower and C upper ends: the (1 - confidence) / 2 quantile and its mirror, interpolated between order statistics.

    Raises:
        OutOfRangeError: no questions, NaN or infinite values, values outside [0, 1] where proportions were promised, or a
            confidence, seed or number of resamples out of range.
    """
    _check_confidence(confidence)
    distinct = _checked(values)
    lowest, highest = float(distinct.values.min(initial=0.0)), float(distinct.values.max(initial=0.0))
    if proportions and (lowest < -_EQUAL or highest > 1.0 + _EQUAL):
        raise OutOfRangeError(
            f"Proportions lie in [0, 1]; the values reach from {lowest:g} to {highest:g}. For differences or costs pass "
            "proportions=False."
        )
    means = _resampled_means(distinct, resamples, seed)
    tail = (1.0 - confidence) / 2.0
    low, high = _quantile(means, tail), _quantile(means, 1.0 - tail)
    if proportions:
        flat = np.flatnonzero(np.ptp(distinct.values[np.unique(distinct.rows)], axis=0) <= _FLAT)
        wilson = wilson_interval(distinct.mean()[flat] * len(distinct), len(distinct), confidence)
        low[flat], high[flat] = wilson.low, wilson.high
    return Interval(low, high)


def bootstrap_means(values: PerQuestion | npt.NDArray[Any], *, resamples: int = 10_000, seed: int = 0) -> Floats:
    """The means themselves, for statistics that are not one column's mean: ratios, crossings, the best of several.

    Efron and Tibshirani, 1993, chapter 6. Assumes questions that are independent draws; calls within a question may
    depend on each other.

    Args:
        values: [Q, C] values per question, or what an exact estimator returned.
        resamples: R, at least 1.
        seed: 0 to 2^128 - 1.

    Returns:
        [R, C] mean over the questions of resample r. Row r uses the same questions in every column, and in every call with the
        same seed and Q.

    Raises:
        OutOfRangeError: no questions, NaN or infinite values, or a seed or number of resamples out of range.
    """
    return _resampled_means(_checked(values), resamples, seed).T


def wilson_interval(successes: float | Floats, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion (E. B. Wilson 1927, doi:10.1080/01621459.1927.10502953).

    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), with p = successes / n and z the normal quantile. It never
    leaves [0, 1] and is never a point, which is why it stands in where nothing or everything is right.

    Assumes independent trials; for probabilities in the place of trials, it is too wide rather than too narrow. Source:
    Wilson 1927, as above.

    Args:
        successes: [C] numbers of successes, not necessarily whole: the sum of probabilities.
        trials: n, at least 1.
        confidence: coverage, between 0 and 1.

    Returns:
        C lower and C upper ends; the share of successes lies between them, also after rounding.

    Raises:
        OutOfRangeError: successes outside 0..trials, no trials, or a confidence outside (0, 1).
    """
    _check_confidence(confidence)
    share = np.atleast_1d(np.asarray(successes, np.float64)) / max(trials, 1)
    if trials < 1 or not ((share >= -_EQUAL) & (share <= 1 + _EQUAL)).all():
        raise OutOfRangeError(
            f"Wilson's interval takes 1 trial or more and successes from 0 to that; {successes!r} of {trials} were given."
        )
    from statistics import NormalDist  # here, because it costs some milliseconds that a curve rarely needs

    share = np.clip(share, 0.0, 1.0)
    z = -NormalDist().inv_cdf((1.0 - confidence) / 2.0)  # from the small tail, which does not round to a certainty
    centre = share + z * z / (2 * trials)
    spread = z * np.sqrt(share * (1.0 - share) / trials + (z / (2 * trials)) ** 2)
    scale = 1.0 + z * z / trials
    low = np.where(share <= _EQUAL, 0.0, np.minimum((centre - spread) / scale, share))
    high = np.where(share >= 1.0 - _EQUAL, 1.0, np.maximum((centre + spread) / scale, share))
    return Interval(np.maximum(low, 0.0), np.minimum(high, 1.0))


# -- resampling -----------------------------------------------------------------------------------------------------


def _resampled_means(distinct: PerQuestion, resamples: int, seed: int) -> Floats:
    """[C, R] means of the resamples."""
    if not 0 <= seed < 1 << 128 or resamples < 1:
        raise OutOfRangeError(
            f"A bootstrap takes a seed from 0 to 2^128 - 1 and 1 resample or more; seed={seed} and resamples={resamples} "
            "were given."
        )
    bits = np.random.Philox(key=seed)
    sums, sizes, rows = _clusters(distinct, bits)
    grid, unit = _on_grid(sums)
    means = np.empty((grid.shape[1], resamples))
    step = max(1, _CHUNK_DRAWS // len(rows))
    for start in range(0, resamples, step):
        some = min(step, resamples - start)
        drawn = rows[_draws(bits, some, len(rows))]
        drawn += np.arange(some)[:, None] * len(grid)
        weights = np.bincount(drawn.ravel(), minlength=some * len(grid)).reshape(some, len(grid)).astype(np.float64)
        means[:, start : start + some] = (weights @ grid / (weights @ sizes)[:, None]).T
    means *= unit[:, None]
    return means


def _clusters(distinct: PerQuestion, bits: np.random.Philox) -> tuple[Floats, Floats, npt.NDArray[np.intp]]:
    """What is resampled: sums [G, C] and numbers of questions [G] of distinct clusters, and which of them each cluster is."""
    questions = len(distinct)
    if questions <= MOST_QUESTIONS:
        return distinct.values, np.ones(len(distinct.values)), distinct.rows
    dealt = np.argsort(bits.random_raw(questions), kind="stable")
    sums = np.zeros((CLUSTERS, distinct.values.shape[1]))
    for start in range(0, questions, CLUSTERS):
        turn = distinct.rows[dealt[start : start + CLUSTERS]]
        sums[: len(turn)] += distinct.values[turn]
    clusters = np.arange(CLUSTERS)
    return sums, questions // CLUSTERS + (clusters < questions % CLUSTERS).astype(np.float64), clusters


def _on_grid(values: Floats) -> tuple[Floats, Floats]:
    """Whole numbers [G, C] and units [C], a power of two per column, with values = numbers x units but for the rounding."""
    _, exponent = np.frexp(np.abs(values).max(axis=0, initial=0.0))
    unit = np.ldexp(1.0, np.maximum(exponent, -900) - _GRID_BITS)  # columns of zeros and denormals keep a unit above 0
    return np.rint(values / unit), unit


def _draws(bits: np.random.Philox, resamples: int, clusters: int) -> npt.NDArray[np.intp]:
    """[resamples, clusters] which cluster is drawn; every resample takes ceil(clusters / 2) outputs of Philox, low half first."""
    raw = bits.random_raw(resamples * ((clusters + 1) // 2)).astype("<u8", copy=False)
    halves = raw.view("<u4").reshape(resamples, -1)[:, :clusters]
    scaled = halves.astype(np.uint64)
    scaled *= np.uint64(clusters)
    scaled >>= np.uint64(32)
    return scaled.astype(np.intp)


def _quantile(means: Floats, share: float) -> Floats:
    """[C] quantile of each row of [C, R], linear between order statistics; reorders the rows in place."""
    position = share * (means.shape[1] - 1)
    below = int(position)
    above = min(below + 1, means.shape[1] - 1)
    means.partition((below, above), axis=1)
    quantile: Floats = means[:, below] + (position - below) * (means[:, above] - means[:, below])
    return quantile


# -- checks ---------------------------------------------------------------------------------------------------------


def _checked(values: PerQuestion | npt.NDArray[Any]) -> PerQuestion:
    if not isinstance(values, PerQuestion):
        array = np.asarray(values, np.float64)
        if array.ndim != 2:
            raise OutOfRangeError(f"Values are [questions, columns]; an array of shape {array.shape} was given.")
        values = PerQuestion(array, np.arange(len(array)))
    if not len(values):
        raise OutOfRangeError("A bootstrap needs questions to resample, and there are none; give at least one.")
    if not np.isfinite(values.values).all():
        row, column = np.argwhere(~np.isfinite(values.values))[0].tolist()
        question = int(np.argmax(values.rows == row))
        raise OutOfRangeError(
            f"Question {question} holds {values.values[row, column]} in column {column}; leave undefined questions out of every "
            "column before resampling."
        )
    return values


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise OutOfRangeError(f"A confidence lies between 0 and 1, such as 0.95; {confidence} was given.")

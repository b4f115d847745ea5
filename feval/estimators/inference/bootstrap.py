"""Resampled questions: means and percentile intervals of costs, ratios and areas.

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

from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Integers, Rows
from feval.estimators.checks import require_confidence
from feval.estimators.inference.intervals import Interval, checked_values
from feval.estimators.per_question import PerQuestion

MOST_QUESTIONS = 1 << 14
"""Most questions that are resampled one by one."""

CLUSTERS = 1 << 12
"""Number of clusters for more questions than that."""

# a sum of 2^14 weights times 38-bit values stays below 2^53, where integers are exact
_GRID_BITS = 38
_CHUNK_DRAWS = 1 << 16  # question draws worked on at once


def bootstrap_interval(
    values: PerQuestion | npt.NDArray[Any],
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
    means = _resampled_means(checked_values(values), resamples, seed)
    tail = (1.0 - confidence) / 2.0
    return Interval(_quantile(means, tail), _quantile(means, 1.0 - tail))


def bootstrap_means(
    values: PerQuestion | npt.NDArray[Any],
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
    return _resampled_means(checked_values(values), resamples, seed, dealt).T


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
    sums, sizes, rows = _resampled_units(distinct, bits, dealt)
    grid, unit = _on_grid(sums)
    means = np.empty((grid.shape[1], resamples))
    step = max(1, _CHUNK_DRAWS // len(rows))
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        places = rows[_draws(bits, count, len(rows))]
        places += np.arange(count)[:, None] * len(grid)
        weights = (
            np.bincount(places.ravel(), minlength=count * len(grid))
            .reshape(count, len(grid))
            .astype(np.float64)
        )
        means[:, start : start + count] = (weights @ grid / (weights @ sizes)[:, None]).T
    means *= unit[:, None]
    return means


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
        self._places = _dealt(self.drawn, np.random.Philox(key=seed)) if self.drawn else None
        self.sizes = self._grouped(self.sizes)

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


def _resampled_units(
    distinct: PerQuestion, bits: np.random.Philox, dealt: Clusters | None = None
) -> tuple[Floats, Floats, Integers]:
    """Sums [G, C] and numbers of questions [G] of distinct units to resample, and the index of each
    unit among them.

    `distinct` are the sums of `dealt` where that is given.
    """
    if dealt is not None:
        bits.random_raw(dealt.drawn, output=False)
        return distinct.values, dealt.sizes, distinct.rows
    questions = len(distinct)
    if questions <= MOST_QUESTIONS:
        return distinct.values, np.ones(len(distinct.values)), distinct.rows
    places = np.arange(CLUSTERS)
    sizes = questions // CLUSTERS + (places < questions % CLUSTERS).astype(np.float64)
    order = _dealt(questions, bits)
    sums = np.zeros((CLUSTERS, distinct.values.shape[1]))
    for start in range(0, questions, CLUSTERS):
        turn = distinct.rows[order[start : start + CLUSTERS]]
        sums[: len(turn)] += distinct.values[turn]
    return sums, sizes, places


def _dealt(questions: int, bits: np.random.Philox) -> Rows:
    """[Q] the questions in the order in which they are dealt to the clusters."""
    return np.argsort(bits.random_raw(questions), kind="stable")


def _on_grid(values: Floats) -> tuple[Floats, Floats]:
    """Round values [G, C] to whole numbers of a unit [C], a power of two per column, so that sums
    are exact in any order.
    """
    _, exponent = np.frexp(np.abs(values).max(axis=0, initial=0.0))
    # columns of zeros and denormals keep a unit above 0
    unit = np.ldexp(1.0, np.maximum(exponent, -900) - _GRID_BITS)
    return np.rint(values / unit), unit


def _draws(bits: np.random.Philox, resamples: int, count: int) -> npt.NDArray[np.intp]:
    """[resamples, count] which cluster is drawn; every resample takes ceil(count / 2) outputs of
    Philox, low half first.
    """
    raw = bits.random_raw(resamples * ((count + 1) // 2)).astype("<u8", copy=False)
    halves = raw.view("<u4").reshape(resamples, -1)[:, :count]
    scaled = halves.astype(np.uint64)
    scaled *= np.uint64(count)
    scaled >>= np.uint64(32)
    return scaled.astype(np.intp)


def _quantile(means: Floats, share: float) -> Floats:
    """[C] quantile of each row of [C, R], linear between order statistics; reorders the rows in
    place.
    """
    position = share * (means.shape[1] - 1)
    below = int(position)
    above = min(below + 1, means.shape[1] - 1)
    means.partition((below, above), axis=1)
    quantile: Floats = means[:, below] + (position - below) * (means[:, above] - means[:, below])
    return quantile

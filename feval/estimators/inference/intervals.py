"""Confidence intervals for an accuracy: the mean over questions of values in [0, 1].

A value is right or wrong (0 or 1), or the probability of being right over a question's draws. Questions are independent evidence;
draws within a question are not. Right/wrong values get Wilson's score interval; probabilities vary less than coin tosses with the
same mean, and get Wilson's form with their own, smaller variance. `python -m benchmarks intervals` simulates the coverage;
docs/comparing.md has the table. Feval's own, after E. B. Wilson 1927 (doi:10.1080/01621459.1927.10502953). Assumes questions that
are independent draws; calls within a question may depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Bools, Floats
from feval.estimators.checks import require_confidence
from feval.estimators.per_question import PerQuestion

_EQUAL = 1e-12  # rounding that exact estimates may carry
_PSEUDO_QUESTIONS = 2.0
_BLOCK = 1 << 12  # rows looked at at once


@dataclass(frozen=True, eq=False)
class Interval:
    """Lower and upper ends [C]."""

    low: Floats
    high: Floats


def accuracy_interval(values: PerQuestion | npt.NDArray[Any], confidence: float = 0.95) -> Interval:
    """Score interval for the mean over questions of values in [0, 1].

    A column of zeros and ones gets Wilson's interval. Any other column has a mean m and a variance that is some share phi of
    m (1 - m), the variance of right/wrong values with that mean. With the share shrunk towards 1 by two pseudo-questions,

        phi' = (Q phi + 2) / (Q + 2),    phi = sum (x - mean)^2 / (Q mean (1 - mean)),

    the interval holds every m with (mean - m)^2 <= t^2 phi' m (1 - m) / Q, where t is the quantile of Student's law with Q - 1
    degrees of freedom: Wilson's form with c = t^2 phi' / Q for z^2 / Q. Like Wilson's it stays in [0, 1] and is never a point.
    For a single question that is neither right nor wrong it is [0, 1].

    Args:
        values: [Q, C] values per question, or the result of an exact estimator.
        confidence: coverage, between 0 and 1.

    Returns:
        C lower and C upper ends, with the mean between them.

    Raises:
        OutOfRangeError: no questions, NaN or infinite values, values outside [0, 1], or a confidence outside (0, 1).
    """
    require_confidence(confidence)
    distinct = checked_values(values)
    lowest, highest = float(distinct.values.min(initial=0.0)), float(distinct.values.max(initial=0.0))
    if lowest < -_EQUAL or highest > 1.0 + _EQUAL:
        raise OutOfRangeError(
            f"Accuracies lie in [0, 1]; the values reach from {lowest:g} to {highest:g}. Differences are for sign_flip_test, "
            "costs for bootstrap_interval."
        )
    questions, mean = len(distinct), np.clip(distinct.mean(), 0.0, 1.0)
    weights = np.bincount(distinct.rows, minlength=len(distinct.values)).astype(np.float64)
    present = distinct.values if weights.all() else distinct.values[weights > 0]
    right_or_wrong = _right_or_wrong(present)
    width = np.full(len(mean), _normal_quantile(confidence) ** 2 / questions)
    fractional = np.flatnonzero(~right_or_wrong)
    if questions > 1 and len(fractional):
        distances = present[:, fractional]
        distances -= mean[fractional]
        squares = weights[weights > 0] @ np.square(distances, out=distances)
        share = squares / (mean[fractional] * (1.0 - mean[fractional]))
        shrunk = (share + _PSEUDO_QUESTIONS) / (questions + _PSEUDO_QUESTIONS)
        width[fractional] = _student_quantile(confidence, questions - 1) ** 2 * shrunk / questions
    ends = _score(mean, width)
    if questions == 1:
        ends.low[fractional], ends.high[fractional] = 0.0, 1.0
    return ends


def _right_or_wrong(values: Floats) -> Bools:
    """[C] whether a column of [G, C] holds zeros and ones only."""
    blocks = (values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK))
    holds = np.ones(values.shape[1], np.bool_)
    for block in blocks:
        holds &= (np.minimum(np.abs(block), np.abs(1.0 - block)) <= _EQUAL).all(axis=0)
    return holds


def wilson_interval(successes: float | Floats, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion (E. B. Wilson 1927, doi:10.1080/01621459.1927.10502953).

    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), with p = successes / n and z the normal quantile. It never
    leaves [0, 1] and is never a point.

    Assumes independent trials; for probabilities instead of trials it is too wide rather than too narrow.

    Args:
        successes: [C] numbers of successes, not necessarily whole: the sum of probabilities.
        trials: n, at least 1.
        confidence: coverage, between 0 and 1.

    Returns:
        C lower and C upper ends, with the share of successes between them.

    Raises:
        OutOfRangeError: successes outside 0..trials, no trials, or a confidence outside (0, 1).
    """
    require_confidence(confidence)
    share = np.atleast_1d(np.asarray(successes, np.float64)) / max(trials, 1)
    if trials < 1 or not ((share >= -_EQUAL) & (share <= 1 + _EQUAL)).all():
        raise OutOfRangeError(
            f"Wilson's interval takes 1 trial or more and successes from 0 to that; {successes!r} of {trials} were given."
        )
    share = np.clip(share, 0.0, 1.0)
    return _score(share, np.full(len(share), _normal_quantile(confidence) ** 2 / trials))


def _score(share: Floats, width: Floats) -> Interval:
    """Solutions m of (share - m)^2 = width m (1 - m), with the share between them despite rounding."""
    centre = share + width / 2
    spread = np.sqrt(width * share * (1.0 - share) + (width / 2) ** 2)
    low = np.where(share <= _EQUAL, 0.0, np.minimum((centre - spread) / (1.0 + width), share))
    high = np.where(share >= 1.0 - _EQUAL, 1.0, np.maximum((centre + spread) / (1.0 + width), share))
    return Interval(np.maximum(low, 0.0), np.minimum(high, 1.0))


def _normal_quantile(confidence: float) -> float:
    return -NormalDist().inv_cdf((1.0 - confidence) / 2.0)  # from the small tail, for precision


def _student_quantile(confidence: float, degrees: int) -> float:
    """Return t with P(|T| < t) = confidence: Newton's method on Abramowitz and Stegun (1964), 26.7.3 and 26.7.4.

    `scipy.special.stdtrit` gives the same, but importing `scipy.special` takes longer than the whole curve. Tails
    so thin that 1 - confidence has few digits are left to it.
    """
    if confidence > 0.999:
        from scipy.special import stdtrit

        return -float(stdtrit(degrees, (1.0 - confidence) / 2.0))
    t = _normal_quantile(confidence)
    even = 1 - degrees % 2
    k = np.arange(3 - even, degrees - 1, 2)
    gammas = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2))
    for _ in range(100):  # from below the root of a concave function: every step goes up, and none beyond
        angle = math.atan(t / math.sqrt(degrees))
        terms = 1.0 + float(np.cumprod(math.cos(angle) ** 2 * (k - 1) / k).sum())
        if even:
            inside = math.sin(angle) * terms
        else:
            inside = 2 / math.pi * (angle + (math.sin(angle) * math.cos(angle) * terms if degrees > 1 else 0.0))
        density = gammas / math.sqrt(degrees * math.pi) * (1 + t * t / degrees) ** (-(degrees + 1) / 2)
        step = (confidence - inside) / (2 * density)
        t += step
        if abs(step) <= 1e-9 * t:  # the error of the next one is its square
            break
    return t


def checked_values(values: PerQuestion | npt.NDArray[Any]) -> PerQuestion:
    """Return values per question [Q, C] as `PerQuestion`; OutOfRangeError for none, another shape, or NaN or infinity."""
    if not isinstance(values, PerQuestion):
        array = np.asarray(values, np.float64)
        if array.ndim != 2:
            raise OutOfRangeError(f"Values are [questions, columns]; an array of shape {array.shape} was given.")
        values = PerQuestion(array, np.arange(len(array)))
    if not len(values):
        raise OutOfRangeError("An interval needs questions, and there are none; give at least one.")
    if not np.isfinite(values.values).all():
        row, column = np.argwhere(~np.isfinite(values.values))[0].tolist()
        question = int(np.argmax(values.rows == row))
        raise OutOfRangeError(
            f"Question {question} holds {values.values[row, column]} in column {column}; leave undefined questions out of every "
            "column first."
        )
    return values

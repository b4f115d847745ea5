"""Two curves on the same questions: differences at equal cost, costs at equal accuracy, and the
certainty of their signs.

A curve is a row of points (cost, accuracy) sorted by cost. Accuracy is linear in the log cost
between points and undefined outside. All functions take the resampled means of `bootstrap_means`,
in which resample r has the same questions for every curve, so that comparisons stay paired. Feval's
own reading of curves; assumes resamples of independent questions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats

_EQUAL = 1e-11  # rounding error of a difference of zero


def accuracy_at(cost: float, costs: Floats, accuracy: Floats) -> Floats:
    """Accuracy of a curve at a cost between its points, linear in log cost.

    With c_i <= c <= c_(i+1): (1 - w) a_i + w a_(i+1), w = log(c / c_i) / log(c_(i+1) / c_i).

    Args:
        cost: c, between the first and the last cost.
        costs: [P] ascending, positive; of points at the same cost the first one counts.
        accuracy: [..., P] means, or values per question.

    Returns:
        [...] values at c.

    Raises:
        OutOfRangeError: c is outside the curve, or a cost is not positive.
    """
    if not (costs > 0).all() or not costs[0] * (1 - _EQUAL) <= cost <= costs[-1] * (1 + _EQUAL):
        raise OutOfRangeError(
            f"A curve from {costs[0]:g} to {costs[-1]:g} has no accuracy at {cost:g}; ask for a"
            " cost between its ends."
        )
    above = int(np.searchsorted(costs, cost))
    if above == len(costs) or abs(costs[above] - cost) <= _EQUAL * cost or above == 0:
        exact: Floats = accuracy[..., min(above, len(costs) - 1)]
        return exact
    weight = np.log(cost / costs[above - 1]) / np.log(costs[above] / costs[above - 1])
    between: Floats = (1.0 - weight) * accuracy[..., above - 1] + weight * accuracy[..., above]
    return between


def cost_to_reach(target: float, costs: Floats, accuracy: Floats) -> Floats:
    """Least cost at which the non-decreasing envelope of a curve reaches an accuracy.

    The envelope is the running maximum of the points by cost, linear in log cost between them: a
    budget need not be spent.

    Args:
        target: accuracy.
        costs, accuracy: [R, P] mean costs of each resample, positive, and mean accuracies.

    Returns:
        [R] costs; infinite where the target is never reached, the cheapest point's where that point
        reaches it already.
    """
    order = np.argsort(costs, axis=1, kind="stable")
    logs = np.log(np.take_along_axis(costs, order, axis=1))
    best = np.maximum.accumulate(np.take_along_axis(accuracy, order, axis=1), axis=1)
    reached = best >= target - _EQUAL
    first = np.argmax(reached, axis=1)
    rows = np.arange(len(costs))
    before = np.maximum(first - 1, 0)
    low, high = best[rows, before], best[rows, first]
    share = np.where(
        high > low, np.clip((target - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0), 1.0
    )
    result: Floats = np.exp(logs[rows, before] + share * (logs[rows, first] - logs[rows, before]))
    result[~reached.any(axis=1)] = np.inf
    return result


def percentiles(values: Floats, confidence: float) -> tuple[float, float]:
    """Ends of the percentile interval of resampled values [R], ignoring NaN but not infinity (Efron
    and Tibshirani, chapter 13).

    The (1 - confidence) / 2 quantile and its mirror, linear between order statistics; NaN if no
    value is defined. An end between a finite and an infinite value is infinite.
    """
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return float("nan"), float("nan")
    tail = (1.0 - confidence) / 2.0
    return _quantile(known, tail), _quantile(known, 1.0 - tail)


def _quantile(ordered: Floats, share: float) -> float:
    position = share * (len(ordered) - 1)
    below = int(position)
    part = position - below
    if part == 0.0 or ordered[below] == ordered[min(below + 1, len(ordered) - 1)]:
        return float(ordered[below])
    return float(ordered[below] + part * (ordered[below + 1] - ordered[below]))


def flip_probability(observed: float, resampled: Floats) -> float:
    """Share of resamples [R] with the opposite sign, ties counting half: #{d* on the other side} /
    R + #{d* = 0} / (2 R).

    An observed difference of 0 counts as positive.
    """
    sign = -1.0 if observed < -_EQUAL else 1.0
    ahead = sign * resampled
    return float((ahead < -_EQUAL).mean() + 0.5 * (np.abs(ahead) <= _EQUAL).mean())


def holm(p_values: npt.NDArray[Any] | list[float]) -> Floats:
    """Holm's adjustment, which bounds the probability of any false alarm among all m comparisons.

    With p_(1) <= ... <= p_(m): adjusted p_(i) = min(1, max_{j <= i} (m - j + 1) p_(j)) (Holm 1979,
    A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6,
    https://www.jstor.org/stable/4615733). It holds under any dependence. Assumes that each p-value
    by itself is valid.

    Args:
        p_values: m of them.

    Returns:
        [m] adjusted values, in the order given.
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted

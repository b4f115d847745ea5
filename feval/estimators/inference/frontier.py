"""Pareto frontier of costs and accuracies, and the area under a curve's hull.

Feval's own, except for RouterBench's AIQ; assumes nothing about the calls.
"""

from __future__ import annotations

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Bools, Floats

_EQUAL = 1e-11  # rounding error between equals
_BITS = 36  # leading bits by which costs are compared


def pareto(costs: Floats, accuracy: Floats) -> Bools:
    """Which points are on the Pareto frontier: no other point is as cheap and as good, and better
    in one of the two.

    Args:
        costs: [..., P]; compared by their leading 36 bits, so that equal costs computed differently
            are equal.
        accuracy: [..., P]; differences within 1e-11 are ties.

    Returns:
        [..., P]; equal points are on it together.
    """
    mantissa, exponent = np.frexp(costs)
    costs = np.ldexp(np.rint(np.ldexp(mantissa, _BITS)), exponent - _BITS)
    order = np.lexsort((-accuracy, costs), axis=-1)
    cost, right = np.take_along_axis(costs, order, -1), np.take_along_axis(accuracy, order, -1)
    best = np.maximum.accumulate(right, axis=-1)
    # On the frontier: better than everything cheaper. Among equally dear points the best comes
    # first, and equals follow it.
    lead = np.concatenate([np.full_like(right[..., :1], -np.inf), best[..., :-1]], axis=-1)
    ahead = right > lead + _EQUAL
    places = np.arange(cost.shape[-1])
    leader = np.maximum.accumulate(np.where(ahead, places, 0), axis=-1)
    same_cost = np.take_along_axis(cost, leader, -1) == cost
    equal = same_cost & (np.abs(np.take_along_axis(right, leader, -1) - right) <= _EQUAL)
    result = np.empty(cost.shape, np.bool_)
    np.put_along_axis(result, order, ahead | equal, -1)
    return result


def hull_area(costs: Floats, accuracy: Floats, low: float, high: float) -> Floats:
    """Average height of the non-decreasing convex hull of a curve over a range of costs:
    RouterBench's AIQ.

        AIQ = 1 / (high - low) * integral from low to high of H(c) dc

    H is the smallest concave, non-decreasing function above all points: a user can mix two methods
    at random, question by question, and leave budget unspent (Hu et al., RouterBench, 2024,
    https://arxiv.org/abs/2403.12031, section 3). Cost is linear here, as there.

    Args:
        costs: [P], the same for all resamples.
        accuracy: [R, P] mean accuracies.
        low: lower end of the range, not below the cheapest point, where there is no hull.
        high: upper end, above `low`; beyond the last point the hull is level.

    Returns:
        [R] accuracies.

    Raises:
        OutOfRangeError: an empty range, or one that begins below the cheapest point.
    """
    if not high > low or low < costs.min() * (1 - _EQUAL):
        raise OutOfRangeError(
            f"The area under a hull that begins at {costs.min():g} cannot be taken from {low:g} to"
            f" {high:g}; take a range of some width above the cheapest point."
        )
    # The hull begins at the best of the cheapest points; each step follows the steepest rise.
    cheapest = np.flatnonzero(costs == costs.min())
    at = cheapest[np.argmax(accuracy[:, cheapest], axis=1)]
    area = np.zeros(len(accuracy))
    walking = np.arange(len(accuracy))
    while len(walking):
        heights, here = accuracy[walking], costs[at][:, None]
        height = heights[np.arange(len(at)), at]
        run, rise = costs - here, heights - height[:, None]
        slopes = np.where((run > 0) & (rise > _EQUAL), rise / np.where(run > 0, run, 1.0), 0.0)
        to = np.argmax(slopes, axis=1)
        slope = slopes[np.arange(len(to)), to]
        start, end = here[:, 0], np.where(slope > 0, costs[to], max(high, float(costs.max())))
        left, right = np.clip(start, low, high), np.clip(end, low, high)
        area[walking] += (right - left) * (height + slope * ((left + right) / 2 - start))
        walking, at = walking[slope > 0], to[slope > 0]
    return area / (high - low)

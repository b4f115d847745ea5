"""Two curves on the same questions: differences at equal cost, costs at equal accuracy, and the
certainty of their signs.

A curve is a row of points (cost, accuracy) sorted by cost. Accuracy is linear in the log cost
between points and undefined outside. All functions take the resampled means of `bootstrap_means`,
in which resample r has the same questions for every curve, so that comparisons stay paired. Feval's
own reading of curves; assumes resamples of independent questions.

Pareto frontier of costs and accuracies, and the area under a curve's hull.

Feval's own, except for RouterBench's AIQ; assumes nothing about the calls.

Bradley-Terry strengths from pairwise wins, which are assumed independent given the strengths.
"""

from __future__ import annotations

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import TIED, Floats, Numbers, require_each

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
        return accuracy[..., min(above, len(costs) - 1)]
    weight = np.log(cost / costs[above - 1]) / np.log(costs[above] / costs[above - 1])
    result: Floats = (1.0 - weight) * accuracy[..., above - 1] + weight * accuracy[..., above]
    return result


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
    at = first_reached(target, logs, best, _EQUAL)
    return np.where(np.isnan(at), np.inf, np.exp(at))


def first_reached(level: float, places: Floats, heights: Floats, room: float) -> Floats:
    """[R] the first place at which the lines through the points (places, heights), both [R, P],
    reach a level up to `room`; NaN where they never do.
    """
    reached = heights >= level - room
    rows, first = np.arange(len(reached)), reached.argmax(axis=1)
    before = np.maximum(first - 1, 0)
    low, high = heights[rows, before], heights[rows, first]
    share = np.where(high > low, (level - low) / np.where(high > low, high - low, 1.0), 1.0)
    start, end = places[rows, before], places[rows, first]
    at = start + np.clip(share, 0.0, 1.0) * (end - start)
    return np.where(reached.any(axis=1), at, np.nan)


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
    places = np.array([tail, 1.0 - tail]) * (len(known) - 1)
    low, high = np.interp(places, np.arange(len(known)), known).tolist()
    return low, high


def flip_probability(observed: float, resampled: Floats) -> float:
    """Share of resamples [R] with the opposite sign, ties counting half: #{d* on the other side} /
    R + #{d* = 0} / (2 R).

    An observed difference of 0 counts as positive.
    """
    sign = -1.0 if observed < -_EQUAL else 1.0
    ahead = sign * resampled
    return float((ahead < -_EQUAL).mean() + 0.5 * (np.abs(ahead) <= _EQUAL).mean())


def holm(p_values: Numbers | list[float]) -> Floats:
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


def hull_area(costs: Floats, accuracy: Floats, low: float | Floats, high: float | Floats) -> Floats:
    """Average height of the non-decreasing convex hull of a curve over a range of costs:
    RouterBench's AIQ.

        AIQ = 1 / (high - low) * integral from low to high of H(c) dc

    H is the smallest concave, non-decreasing function above all points: a user can mix two methods
    at random, question by question, and leave budget unspent (Hu et al., RouterBench, 2024,
    https://arxiv.org/abs/2403.12031, section 3). Cost is linear here, as there.

    Args:
        costs: [P], the same for all resamples, or [R, P].
        accuracy: [R, P] mean accuracies.
        low: lower end of the range, one or [R], not below the cheapest point, where there is no
            hull.
        high: upper end, above `low`; beyond the last point the hull is level.

    Returns:
        [R] accuracies.

    Raises:
        OutOfRangeError: an empty range, or one that begins below the cheapest point.
    """
    costs = np.broadcast_to(costs, accuracy.shape)
    least = costs.min(axis=1)
    low, high = (np.broadcast_to(end, least.shape) for end in (low, high))
    require_each(
        (high > low) & (low >= least * (1 - TIED)),
        "The area under a hull that begins at {0:g} cannot be taken from {1:g} to {2:g}; take a"
        " range of some width above the cheapest point.",
        least,
        low,
        high,
    )
    # The hull begins at the best of the cheapest points; each step follows the steepest rise.
    at = np.where(costs == least[:, None], accuracy, -np.inf).argmax(axis=1)
    area = np.zeros(len(accuracy))
    walking = np.arange(len(accuracy))
    while len(walking):
        heights, own, rows = accuracy[walking], costs[walking], np.arange(len(at))
        height, start = heights[rows, at], own[rows, at]
        run, rise = own - start[:, None], heights - height[:, None]
        slopes = np.where((run > 0) & (rise > TIED), rise / np.where(run > 0, run, 1.0), 0.0)
        to = np.argmax(slopes, axis=1)
        slope = slopes[rows, to]
        first, last = low[walking], high[walking]
        end = np.where(slope > 0, own[rows, to], np.maximum(last, own.max(axis=1)))
        left, right = np.clip(start, first, last), np.clip(end, first, last)
        area[walking] += (right - left) * (height + slope * ((left + right) / 2 - start))
        walking, at = walking[slope > 0], to[slope > 0]
    return area / (high - low)


MAX_STRENGTH = 20.0
"""Largest difference of log strengths, for entries that never lost."""

_STEPS = 10_000
_SETTLED = 1e-10


def pairwise_wins(accuracy: Floats) -> Floats:
    """Share of questions that each wins over each: right where the other is wrong; ties count half.

        w_ij = P(i right, j wrong) + P(both right or both wrong) / 2 = (1 + a_i - a_j) / 2

    so only the accuracies a matter, under any dependence. The outcomes of the Bradley-Terry model
    in Hunter (2004), section 1.

    Args:
        accuracy: [R, K] mean accuracies.

    Returns:
        [R, K, K], w_ij + w_ji = 1; halves on the diagonal.
    """
    return (1.0 + accuracy[:, :, None] - accuracy[:, None, :]) / 2.0


def bradley_terry(wins: Floats) -> Floats:
    """Strengths of the Bradley-Terry model: P(i beats j) = 1 / (1 + exp(s_j - s_i)).

    Maximum likelihood by minorisation-maximisation, the step of Hunter (2004, Annals of Statistics
    32, 384-406, eq. 3):

        p_i <- W_i / sum_{j != i} (w_ij + w_ji) / (p_i + p_j)
        W_i = sum_{j != i} w_ij,     s = log p

    Natural logarithms with mean 0; a difference times 400 / log 10 is one on Elo's scale. An entry
    that never lost has no finite strength: differences are capped at `MAX_STRENGTH`.

    Args:
        wins: [R, K, K] wins of i over j, K at least 2; the diagonal is ignored.

    Returns:
        [R, K] log strengths with mean 0.

    Raises:
        OutOfRangeError: fewer than two to rank, or a pair without any comparison.
    """
    count = wins.shape[-1]
    off = ~np.eye(count, dtype=bool)
    if count < 2 or not ((wins + wins.transpose(0, 2, 1))[:, off] > 0).all():
        raise OutOfRangeError(
            f"A ranking needs two methods that are compared with each other; {count} were given."
        )
    shares = np.where(off, wins, 0.0)
    games, total = shares + shares.transpose(0, 2, 1), shares.sum(axis=2)
    least = np.exp(-MAX_STRENGTH)
    p = np.ones(total.shape)
    unsettled = np.arange(len(p))  # few, where some entry never lost
    for _ in range(_STEPS):
        before = p[unsettled]
        sums = (games[unsettled] / (before[:, :, None] + before[:, None, :])).sum(axis=2)
        own = total[unsettled] / sums
        p[unsettled] = own = np.maximum(own / own.max(axis=1, keepdims=True), least)
        unsettled = unsettled[(np.abs(own - before) > _SETTLED * before).any(axis=1)]
        if not len(unsettled):
            break
    strengths: Floats = np.log(p)
    strengths -= strengths.mean(axis=1, keepdims=True)
    return strengths

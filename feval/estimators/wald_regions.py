"""Confidence intervals for V_n from a pair table: sampling error and what two moments leave open, both included.

A confidence region for (mu, nu), cut to the feasible set F = {mu^2 <= nu <= mu}, is projected through the sharp ends:
[min L_n, max U_n] over the region (arXiv 2605.03379, section 4.4, eqs. (14)-(15)). U_n is concave and L_n convex in (mu, nu), and
the region is convex; so a point of the region's edge where the gradient of U_n, the (b, c) of its quadratic, is the outward
normal is the maximum. On an ellipse that is a fixed point:

    theta = theta_hat + sqrt(c / N) Sigma g / sqrt(g' Sigma g),      g = (b, c) at theta,   c = -2 log(1 - level)

Where the fixed point lies outside F, the edge of the region is searched instead: arcs of the ellipse within F and arcs of F
within the ellipse.

A Wald region is good for large samples only. With an empty cell Sigma is singular, and the region shrinks to a segment or to a
point that knows everything: thirty right pairs of thirty give [1, 1]. `likelihood_projection` does not have that fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isinf, log1p, sqrt

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.moments import Moments
from feval.estimators.pair_table import PairTable, pair_table_summary
from feval.estimators.two_call import infinite_vote_interval, vote_interval
from feval.estimators.vote_polynomials import at_index, check_budget

__all__ = ["ProjectedInterval", "likelihood_projection", "wald_projection"]

Floats = npt.NDArray[np.float64]
Ends = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""From the mu and nu of feasible points to L_n and U_n there."""

_Inside = Callable[[Floats, Floats], npt.NDArray[np.bool_]]
_Arc = tuple[Callable[[Floats], tuple[Floats, Floats]], float, float, _Inside | None]
"""From a parameter to points, its range, and which points count."""

_ANGLES = 721
_ZOOMS = 9  # each narrows the search a hundredfold
_FIXED_POINT_STEPS = 100


@dataclass(frozen=True, eq=False)
class ProjectedInterval:
    """Interval hulls over a table.

    Attributes:
        low: [...] NaN where the region holds no feasible moments.
        high: [...] NaN likewise.
        empty: [...] whether it holds none: every pair of moments within the ellipse belongs to no law (rho clearly below 0).
    """

    low: Floats
    high: Floats
    empty: npt.NDArray[np.bool_]


def wald_projection(table: PairTable, n: float, level: float = 0.95) -> ProjectedInterval:
    """Projected Wald region for V_n (arXiv 2605.03379, eqs. (14)-(15)): N (theta - theta_hat)' Sigma^+ (theta - theta_hat) <= c.

    Sigma is the sample covariance with ddof 1. If a cell is empty, Sigma is singular, and a literal pseudo-inverse would leave
    its null direction free, an infinite strip. Here, as with a vanishing ridge, the region keeps to theta_hat + range(Sigma). No
    disagreement: mu_hat -+ sqrt(c s11 / N), cut to [0, 1]. No pair both wrong (or both right): the single point where the segment
    touches F, or nothing. One filled cell: a point. `table.sparse` says where not to trust this.

    Assumes questions that are independent draws, and calls that are independent given the question.

    Args:
        table: [...] pair tables of 2 questions or more.
        n: index of the budget, or `math.inf` for the infinite-vote endpoint.
        level: coverage for large N, between 0 and 1.

    Returns:
        The hull for each table.

    Raises:
        OutOfRangeError: an n that is no budget, a level outside (0, 1), or a table of one question.
    """
    ends = _ends(n)
    quantile = _chi2_quantile(level)
    if (table.questions < 2).any():
        at = tuple(np.argwhere(table.questions < 2)[0])
        raise OutOfRangeError(
            f"One question shows no spread to build a Wald region on, and there is one{at_index(at)}; label 2 or more."
        )
    summary = pair_table_summary(table)
    shape = table.questions.shape
    hull = np.full((*shape, 2), np.nan)
    for at in np.ndindex(shape):
        cells = int(table.both_right[at]), int(table.disagree[at]), int(table.both_wrong[at])
        centre = np.array([summary.mu[at], summary.nu[at]])
        covariance = np.array([[summary.var_x1[at], summary.cov_x12[at]], [summary.cov_x12[at], summary.var_x2[at]]])
        factor = quantile / sum(cells)
        if 0 in cells:
            hull[at] = _segment(cells, float(centre[0]), sqrt(factor * max(covariance[0, 0], 0.0)))
        else:
            hull[at] = _ellipse(centre, factor * covariance, n, ends)
    return ProjectedInterval(hull[..., 0], hull[..., 1], np.isnan(hull[..., 0]))


def likelihood_projection(table: PairTable, n: float, level: float = 0.95) -> ProjectedInterval:
    """Projected likelihood-ratio region for V_n: 2 sum_cells count log(share / p(theta)) above its least in F is at most c.

    p(theta) = (nu, 2 (mu - nu), 1 - 2 mu + nu). It agrees with the Wald region for large counts, stays within F by itself, is
    never empty, and does not claim certainty where a cell is empty. Feval's own; the paper has Wald regions only.

    Assumes questions that are independent draws, and calls that are independent given the question.

    Args:
        table: [...] pair tables.
        n: index of the budget, or `math.inf` for the infinite-vote endpoint.
        level: coverage for large N, between 0 and 1.

    Returns:
        The hull for each table; none is empty.

    Raises:
        OutOfRangeError: an n that is no budget, or a level outside (0, 1).
    """
    ends = _ends(n)
    quantile = _chi2_quantile(level)
    shape = table.questions.shape
    hull = np.full((*shape, 2), np.nan)
    for at in np.ndindex(shape):
        counts = np.array([table.both_right[at], table.disagree[at], table.both_wrong[at]], np.float64)
        hull[at] = _likelihood_hull(counts, quantile, ends)
    return ProjectedInterval(hull[..., 0], hull[..., 1], np.isnan(hull[..., 0]))


def _ends(n: float) -> Ends:
    if n == inf:

        def at_infinity(mu: Floats, nu: Floats) -> tuple[Floats, Floats]:
            interval = infinite_vote_interval(Moments.of(mu, nu))
            return interval.low, interval.high

        return at_infinity
    check_budget(n)
    budget = int(n)

    def finite(mu: Floats, nu: Floats) -> tuple[Floats, Floats]:
        interval = vote_interval(budget, Moments.of(mu, nu))
        return interval.low, interval.high

    return finite


def _chi2_quantile(level: float) -> float:
    if not 0 < level < 1:
        raise OutOfRangeError(f"A confidence level lies between 0 and 1; {level!r} was given.")
    return -2.0 * log1p(-level)


# -- Wald regions ---------------------------------------------------------------------------------------------------


def _segment(cells: tuple[int, int, int], mu: float, reach: float) -> tuple[float, float]:
    """The hull where a cell is empty: all feasible points of the segment have V_n = mu, for they lie on nu = mu."""
    both_right, disagree, both_wrong = cells
    if not disagree:  # along nu = mu
        low, high = max(0.0, mu - reach), min(1.0, mu + reach)
        return low, high
    if not both_wrong and mu + reach >= 1.0 and both_right:  # along nu = 2 mu - 1, which touches F at (1, 1)
        return 1.0, 1.0
    if not both_right and mu - reach <= 0.0 and both_wrong:  # along nu = 0, which touches F at (0, 0)
        return 0.0, 0.0
    return np.nan, np.nan


def _ellipse(centre: Floats, covariance: Floats, n: float, ends: Ends) -> tuple[float, float]:
    """Hull over the ellipse with this centre and matrix, cut to F."""
    hull = []
    for which in (0, 1):
        found = None if isinf(n) else _fixed_point(centre, covariance, int(n), upper=bool(which))
        hull.append(_searched(centre, covariance, ends, which) if found is None else found)
    return hull[0], hull[1]


def _fixed_point(centre: Floats, covariance: Floats, n: int, upper: bool) -> float | None:
    """The extreme end, or None if an iterate leaves F."""
    theta, value = centre, inf
    for _ in range(_FIXED_POINT_STEPS):
        mu, nu = theta
        if not (0.0 < mu < 1.0 and mu * mu < nu < mu):
            return None
        interval = vote_interval(n, Moments.of(mu, nu))
        bound = interval.upper if upper else interval.lower
        before, value = value, float(bound.value)
        if abs(value - before) <= 1e-15:
            return value
        gradient = bound.quadratic[1:]
        step = covariance @ gradient / sqrt(gradient @ covariance @ gradient)
        theta = centre + step if upper else centre - step
    return None


def _searched(centre: Floats, covariance: Floats, ends: Ends, which: int) -> float:
    """The extreme end along the edge of the region, by ever finer grids of each kind of arc; NaN if there is no edge."""
    root = np.linalg.cholesky(covariance)
    inverse = np.linalg.inv(root)

    def ellipse(angle: Floats) -> tuple[Floats, Floats]:
        points = centre[:, None] + root @ np.stack([np.cos(angle), np.sin(angle)])
        return points[0], points[1]

    def inside(mu: Floats, nu: Floats) -> npt.NDArray[np.bool_]:
        scaled = inverse @ (np.stack([mu, nu]) - centre[:, None])
        within: npt.NDArray[np.bool_] = (scaled**2).sum(0) <= 1.0
        return within

    reach = sqrt(covariance[0, 0])
    low, high = max(0.0, centre[0] - reach), min(1.0, centre[0] + reach)
    arcs: tuple[_Arc, ...] = (
        (ellipse, 0.0, 2.0 * np.pi, None),
        (lambda mu: (mu, mu * mu), low, high, inside),
        (lambda mu: (mu, mu), low, high, inside),
    )
    best = [_along(*arc, ends, which) for arc in arcs if arc[2] >= arc[1]]
    found = [value for value in best if not np.isnan(value)]
    if not found:
        return np.nan
    return max(found) if which else min(found)


def _along(
    arc: Callable[[Floats], tuple[Floats, Floats]],
    start: float,
    stop: float,
    inside: _Inside | None,
    ends: Ends,
    which: int,
) -> float:
    """The extreme end along one arc, among its feasible points."""
    sign, best = (1.0 if which else -1.0), np.nan
    for zoom in range(_ZOOMS):
        at = np.linspace(start, stop, _ANGLES if zoom == 0 else 201)
        mu, nu = arc(at)
        feasible = (mu >= 0.0) & (mu <= 1.0) & (mu * mu <= nu) & (nu <= mu)
        kept = np.flatnonzero(feasible if inside is None else feasible & inside(mu, nu))
        if not len(kept):
            break
        values = ends(mu[kept], nu[kept])[which]
        place = int((sign * values).argmax())
        best = float(values[place]) if np.isnan(best) else sign * max(sign * best, sign * float(values[place]))
        width = at[1] - at[0]
        start, stop = at[kept[place]] - width, at[kept[place]] + width
    return best


# -- likelihood regions ---------------------------------------------------------------------------------------------


def _likelihood_hull(counts: Floats, quantile: float, ends: Ends) -> tuple[float, float]:
    """Hull over the region, whose edge is seen from the maximum-likelihood point: in each direction one distance."""
    total = counts.sum()
    mu = float((counts[0] + counts[1] / 2.0) / total)
    nu = float(max(counts[0] / total, mu * mu))  # outside F the likelihood is greatest on nu = mu^2, at the same mu
    most = float(_log_likelihood(counts, np.array([mu]), np.array([nu]))[0])

    def edge(angle: Floats) -> tuple[Floats, Floats]:
        x, y = np.cos(angle), np.sin(angle)
        low, high = np.zeros_like(angle), np.full_like(angle, 2.0)
        for _ in range(60):
            middle = 0.5 * (low + high)
            m, v = mu + middle * x, nu + middle * y
            within = (m >= 0) & (m <= 1) & (m * m <= v) & (v <= m)
            within[within] &= 2.0 * (most - _log_likelihood(counts, m[within], v[within])) <= quantile
            low, high = np.where(within, middle, low), np.where(within, high, middle)
        return mu + low * x, nu + low * y

    at_centre = ends(np.array([mu]), np.array([nu]))
    hull = []
    for which, choose in ((0, min), (1, max)):
        found = _along(edge, 0.0, 2.0 * np.pi, None, ends, which)
        centre = float(at_centre[which][0])
        hull.append(centre if np.isnan(found) else choose(found, centre))
    return hull[0], hull[1]


def _log_likelihood(counts: Floats, mu: Floats, nu: Floats) -> Floats:
    """sum_cells count log p(theta), -inf where a filled cell has probability 0."""
    shares = np.stack([nu, 2.0 * (mu - nu), 1.0 - 2.0 * mu + nu])
    filled = counts > 0
    with np.errstate(divide="ignore"):
        likelihood: Floats = counts[filled] @ np.log(np.maximum(shares[filled], 0.0))
    return likelihood

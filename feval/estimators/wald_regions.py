"""Confidence intervals for V_n from a pair table, including sampling error and what two moments
leave open.

A confidence region for (mu, nu), intersected with the feasible set F = {mu^2 <= nu <= mu}, is
projected through the sharp ends: [min L_n, max U_n] over the region (arXiv 2605.03379, section 4.4,
eqs. (14)-(15)). U_n is concave and L_n convex in (mu, nu), and the region is convex; so the maximum
is at a point of the edge, which is searched by ever finer grids: arcs of the ellipse within F and
arcs of F within the ellipse.

A Wald region needs large samples. With an empty cell Sigma is singular, and the region shrinks to a
segment or to a point: thirty right pairs of thirty give [1, 1]. `likelihood_projection` avoids
that. Assumes questions that are independent draws, and calls that are independent given the
question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log1p
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from feval.errors import OutOfRangeError
from feval.estimators.arrays import (
    Bools,
    Floats,
    Int64,
    Result,
    Rows,
    Texts,
    missing_reasons,
    require_confidence,
    require_each,
)
from feval.estimators.moments import Moments, PairTable, pair_table_summary
from feval.estimators.per_question import slices
from feval.estimators.vote_intervals import infinite_vote_interval, vote_bound
from feval.estimators.vote_polynomials import check_budget

Side = Literal["lower", "upper"]

_End = Callable[[Floats, Floats, Side], Floats]
"""L_n or U_n at feasible points (mu, nu)."""


class _Arc(Result):
    """A curve for each table, along which an extreme end is searched.

    Attributes:
        points: (rows [R] of the table, parameters [R, A]) -> mu and nu [R, A], NaN where they do
            not count.
        start, stop: [T] ends of the parameter.
    """

    points: Callable[[Rows, Floats], tuple[Floats, Floats]]
    start: Floats
    stop: Floats


NO_FEASIBLE_MOMENTS = (
    "The confidence region holds no moments that a distribution can have: the calls of a question"
    " disagree more often than independent calls would, by more than chance explains; check how"
    " they were made, or use likelihood_projection."
)
"""Why a projected interval is NaN."""

_SIDES: tuple[Side, Side] = ("lower", "upper")
_ANGLES = 721
_FINER = 21  # points; each zoom narrows the search tenfold
_ZOOMS = 16
_CHUNK = 64  # tables searched at once, with all their angles
_HALVINGS = 56  # from 2 to below the spacing of doubles


class ProjectedInterval(Result):
    """Interval hulls over a table; NaN where the region holds no feasible moments (`empty`, rho
    clearly below 0).
    """

    low: Floats
    high: Floats
    empty: Bools

    @property
    def reasons(self) -> Texts:
        """[...] why an interval is NaN, or ""."""
        return missing_reasons((self.empty, NO_FEASIBLE_MOMENTS))


def wald_projection(table: PairTable, n: float, level: float = 0.95) -> ProjectedInterval:
    """Projected Wald region for V_n (arXiv 2605.03379, eqs. (14)-(15)): N (theta - theta_hat)'
    Sigma^+ (theta - theta_hat) <= c.

    Sigma is the sample covariance with ddof 1. If a cell is empty, Sigma is singular, and a literal
    pseudo-inverse would leave its null direction free, an infinite strip. Here, as with a vanishing
    ridge, the region stays in theta_hat + range(Sigma). No disagreement: mu_hat -+ sqrt(c s11 / N),
    cut to [0, 1]. No pair both wrong (or both right): the single point where the segment touches F,
    or nothing. One filled cell: a point. Do not rely on this where `table.sparse`.

    Args:
        table: [...] pair tables of 2 questions or more.
        n: index of the budget, or `math.inf` for the infinite-vote endpoint.
        level: coverage for large N, between 0 and 1.

    Returns:
        The interval for each table.

    Raises:
        OutOfRangeError: an n that is not a budget index, a level outside (0, 1), or a table of one
            question.
    """
    end, quantile = _end(n), _chi2_quantile(level)
    require_each(
        table.questions >= 2,
        "One question shows no spread to build a Wald region on, and there is one{at}; label 2 or"
        " more.",
    )
    summary = pair_table_summary(table)
    cells = table.cells.reshape(-1, 3)
    centre = np.stack([summary.mu, summary.nu], -1).reshape(-1, 2)
    covariance = np.stack(
        [summary.var_x1, summary.cov_x12, summary.cov_x12, summary.var_x2], -1
    ).reshape(-1, 2, 2)
    covariance *= (quantile / cells.sum(1))[:, None, None]
    hull, flat = np.empty((len(cells), 2)), (cells == 0).any(1)
    hull[flat] = _segments(
        cells[flat], centre[flat, 0], np.sqrt(np.maximum(covariance[flat, 0, 0], 0.0))
    )
    centre, covariance = centre[~flat], covariance[~flat]
    hull[~flat] = _hulls(
        len(centre), lambda rows: _ellipse_arcs(centre[rows], covariance[rows]), end
    )
    return _projected(hull, table.questions.shape)


def likelihood_projection(table: PairTable, n: float, level: float = 0.95) -> ProjectedInterval:
    """Projected likelihood-ratio region for V_n: 2 sum_cells count log(share / p(theta)) above its
    least in F is at most c.

    p(theta) = (nu, 2 (mu - nu), 1 - 2 mu + nu). It agrees with the Wald region for large counts,
    stays within F, is never empty, and claims no certainty where a cell is empty. Feval's own; the
    paper has Wald regions only.

    Args:
        table, n, level: as for `wald_projection`.

    Returns:
        The interval for each table; none is empty.

    Raises:
        OutOfRangeError: an n that is not a budget index, or a level outside (0, 1).
    """
    end, quantile = _end(n), _chi2_quantile(level)
    counts = table.cells.reshape(-1, 3).astype(np.float64)
    total = counts.sum(1)
    mu = (counts[:, 0] + counts[:, 1] / 2.0) / total
    # outside F the likelihood is greatest on nu = mu^2, at the same mu
    nu = np.maximum(counts[:, 0] / total, mu * mu)
    least = _log_likelihood(counts[:, None], mu[:, None], nu[:, None]) - quantile / 2.0

    def arcs(block: slice) -> list[_Arc]:
        start = np.zeros(len(mu[block]))

        def edge(rows: Rows, angle: Floats) -> tuple[Floats, Floats]:
            """The region is star-shaped about the maximum-likelihood point."""
            places = rows + block.start
            x, y, cells = np.cos(angle), np.sin(angle), counts[places, None]
            low, high = np.zeros_like(angle), np.full_like(angle, 2.0)
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                m, v = mu[places, None] + middle * x, nu[places, None] + middle * y
                within = _feasible(m, v) & (_log_likelihood(cells, m, v) >= least[places])
                low, high = np.where(within, middle, low), np.where(within, high, middle)
            return mu[places, None] + low * x, nu[places, None] + low * y

        return [_Arc(edge, start, start + 2.0 * np.pi)]

    hull = _hulls(len(mu), arcs, end)
    centre = np.stack([end(mu, nu, side) for side in _SIDES], -1)
    hull = np.stack([np.fmin(hull, centre)[:, 0], np.fmax(hull, centre)[:, 1]], -1)
    return _projected(hull, table.questions.shape)


def simultaneous_gains(
    right: npt.ArrayLike, size: npt.ArrayLike, budgets: Sequence[int], level: float = 0.95
) -> Floats:
    """Gains over one call that hold for all budgets at once: the least L_n - mu over one confidence
    region for (mu, nu).

    The region is Hotelling's ellipse about the means over questions of c / G and c (c - 1) / (G (G
    - 1)), unbiased for mu and nu:

        N (theta - theta_hat)' S^-1 (theta - theta_hat) <= (N - 1) (alpha^(-2 / (N - 2)) - 1),
        alpha = 1 - level

    intersected with F = {mu^2 <= nu <= mu}. If it holds the true moments, V_n - mu is at least
    every positive one of these numbers (Theorem 4.1 of arXiv 2605.03379), for any number of budgets
    without correction. For K tables of several LLMs or datasets, use the level 1 - alpha / K
    (Bonferroni). L_n - mu is convex, and 0 at (0, 0) and (1, 1): where it is positive on the
    region's edge, it is positive within and least on the edge, so the edge is searched. Assumes
    that N is large enough for normal means.

    Args:
        right, size: [Q] right calls of each question, and calls of each, at least 2.
        budgets: budget indices n.
        level: joint coverage of all gains, between 0 and 1.

    Returns:
        [N] least gains; a vote with a positive one is certified together with all the others. All
        NaN if the region holds no feasible moments, or if the data show no spread in some direction
        (an empty cell): nothing is certified then.

    Raises:
        OutOfRangeError: an n that is not a budget index, fewer than 3 questions, counts that do not
            fit, or a bad level.
    """
    require_confidence(level)
    for n in budgets:
        check_budget(n)
    c, g = (np.asarray(values, np.float64) for values in (right, size))
    if c.ndim != 1 or c.shape != g.shape or len(c) < 3:
        raise OutOfRangeError(
            "A simultaneous region takes right calls and calls of 3 questions or more; the shapes"
            f" are {c.shape} and {g.shape}."
        )
    require_each(
        (g >= 2) & (c >= 0) & (c <= g),
        "A simultaneous region takes 2 calls or more on each question, 0 to all of them right;"
        " question {question} has {0:g} right of {1:g} calls.",
        c,
        g,
    )
    values = np.stack([c / g, c * (c - 1.0) / (g * (g - 1.0))])
    covariance = np.cov(values)
    if not np.linalg.det(covariance) > 1e-14 * covariance[0, 0] * covariance[1, 1]:
        return np.full(len(budgets), np.nan)
    questions = len(c)
    quantile = (questions - 1) * np.expm1(-2.0 / (questions - 2) * np.log1p(-level))
    arcs = _ellipse_arcs(values.mean(1)[None], quantile / questions * covariance[None])
    least = [_hulls(1, lambda _: arcs, _end(int(n), 1.0), _SIDES[:1]) for n in budgets]
    return np.array(least).reshape(len(budgets))


def _projected(hull: Floats, shape: tuple[int, ...]) -> ProjectedInterval:
    low, high = (hull[:, side].reshape(shape) for side in (0, 1))
    return ProjectedInterval(low, high, np.asarray(np.isnan(low)))


def _end(n: float, gain: float = 0.0) -> _End:
    if n == inf:

        def at_infinity(mu: Floats, nu: Floats, side: Side) -> Floats:
            interval = infinite_vote_interval(Moments.from_values(mu, nu))
            return interval.low if side == "lower" else interval.high

        return at_infinity
    check_budget(n)
    return lambda mu, nu, side: (
        vote_bound(int(n), Moments.from_values(mu, nu), side).value - gain * mu
    )


def _chi2_quantile(level: float) -> float:
    require_confidence(level)
    return -2.0 * log1p(-level)


def _segments(cells: Int64, mu: Floats, reach: Floats) -> Floats:
    """[T, 2] intervals where a cell is empty: all feasible points of the segment have V_n = mu, as
    nu = mu there.
    """
    both_right, disagree, both_wrong = cells.T
    along = np.stack([np.maximum(0.0, mu - reach), np.minimum(1.0, mu + reach)], -1)  # nu = mu
    # nu = 2 mu - 1, which touches F at (1, 1)
    at_one = (both_wrong == 0) & (both_right > 0) & (mu + reach >= 1.0)
    # nu = 0, which touches F at (0, 0)
    at_zero = (both_right == 0) & (both_wrong > 0) & (mu - reach <= 0.0)
    touching = np.select([at_one, at_zero], [1.0, 0.0], np.nan)[:, None]
    return np.where((disagree == 0)[:, None], along, touching)


def _hulls(
    tables: int,
    arcs: Callable[[slice], Sequence[_Arc]],
    end: _End,
    sides: tuple[Side, ...] = _SIDES,
) -> Floats:
    """[T, sides] least and greatest ends along the arcs of each table; NaN where no point of them
    is feasible.
    """
    hull = np.empty((tables, len(sides)))
    for rows in slices(tables, _CHUNK):
        pieces = arcs(rows)
        for place, side in enumerate(sides):
            choose = np.fmin if side == "lower" else np.fmax
            hull[rows, place] = choose.reduce([_along(arc, end, side) for arc in pieces])
    return hull


def _feasible(mu: Floats, nu: Floats) -> Bools:
    return (mu >= 0.0) & (mu <= 1.0) & (mu * mu <= nu) & (nu <= mu)


def _ellipse_arcs(centre: Floats, covariance: Floats) -> tuple[_Arc, ...]:
    """The regions' edges: the ellipses within F, and the two edges of F within the ellipses."""
    root = np.linalg.cholesky(covariance)
    inverse = np.linalg.inv(root)
    reach = np.sqrt(covariance[:, 0, 0])
    low, high = np.maximum(0.0, centre[:, 0] - reach), np.minimum(1.0, centre[:, 0] + reach)

    def ellipse(rows: Rows, angle: Floats) -> tuple[Floats, Floats]:
        x, y, factor = np.cos(angle), np.sin(angle), root[rows][..., None]
        mu = centre[rows, 0, None] + factor[:, 0, 0] * x
        nu = centre[rows, 1, None] + factor[:, 1, 0] * x + factor[:, 1, 1] * y
        return mu, nu

    def edge(power: int) -> Callable[[Rows, Floats], tuple[Floats, Floats]]:
        def along(rows: Rows, mu: Floats) -> tuple[Floats, Floats]:
            nu, factor = mu**power, inverse[rows][..., None]
            dx, dy = mu - centre[rows, 0, None], nu - centre[rows, 1, None]
            across = factor[:, 1, 0] * dx + factor[:, 1, 1] * dy
            return mu, np.where((factor[:, 0, 0] * dx) ** 2 + across**2 <= 1.0, nu, np.nan)

        return along

    whole = np.zeros(len(centre))
    return (
        _Arc(ellipse, whole, whole + 2.0 * np.pi),
        _Arc(edge(2), low, high),
        _Arc(edge(1), low, high),
    )


def _along(arc: _Arc, end: _End, side: Side) -> Floats:
    """[T] the extreme end along one arc of each table, among its feasible points."""
    sign = 1.0 if side == "upper" else -1.0
    best = np.full(len(arc.start), -np.inf)
    rows = np.flatnonzero(arc.stop >= arc.start)
    start, stop, count = arc.start[rows], arc.stop[rows], _ANGLES
    for _ in range(1 + _ZOOMS):
        at = start[:, None] + (stop - start)[:, None] * np.linspace(0.0, 1.0, count)
        mu, nu = arc.points(rows, at)
        counted = _feasible(mu, nu)
        values = np.full(at.shape, -np.inf)
        values[counted] = sign * end(mu[counted], nu[counted], side)
        place = values.argmax(1)
        best[rows] = np.maximum(best[rows], values.max(1))
        seen = counted.any(1)
        centre, width = at[np.arange(len(at)), place], (stop - start) / (count - 1)
        rows, start, stop, count = (
            rows[seen],
            (centre - width)[seen],
            (centre + width)[seen],
            _FINER,
        )
    return np.where(np.isneginf(best), np.nan, sign * best)


def _log_likelihood(counts: Floats, mu: Floats, nu: Floats) -> Floats:
    """[T, A] sum_cells count log p(theta), -inf where a filled cell has probability 0; `counts` is
    [T, 1, 3].
    """
    shares = (nu, 2.0 * (mu - nu), 1.0 - 2.0 * mu + nu)
    result: Floats = sum(
        scipy.special.xlogy(counts[..., cell], np.maximum(share, 0.0))
        for cell, share in enumerate(shares)
    )
    return result

"""Sharp bounds on E g(Q) for any polynomial g from two moments, such as the largest gain of seven
votes over three.

Theorem 4.1 of arXiv 2605.03379 holds for every continuous g (appendix A.4): three atoms attain the
bound, a quadratic proves it. For g = P_n `vote_interval` has closed forms; here the linear program
over all distributions is solved:

1. The simplex method with three atoms as basis. The entering atom is the maximum of g minus the
   current quadratic over a grid of [0, 1], refined by Newton's method; so atoms are real numbers,
   not grid points.
2. Atoms close together are one atom where the quadratic touches g. With the pattern of contacts
   known, Newton's method on the optimality conditions (equal values at all atoms, equal slopes at
   inner ones, the three moments) gives full precision.
3. A remaining violation is added to the value, and a is moved until `least_distances` proves that
   the quadratic does not cross g. So the value never lies inside the true interval by more than
   rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import Chebyshev

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Bools, Floats, Rows
from feval.estimators.moments import Moments
from feval.estimators.vote_intervals import ROOM, QuadraticBound, VoteInterval
from feval.estimators.vote_polynomials import UnitPolynomial, least_distances

LARGEST_DEGREE = 201
"""Largest degree of an objective, that of P_100."""

_GRID = 0.5 - 0.5 * np.cos(np.linspace(0.0, np.pi, 601))
_PIVOTS = 150
_PEAKS = 6  # maxima to refine
# violations at which the pattern of contacts may be clear, tried in turn
_GOALS = (1e-8, 1e-10, 1e-12)
_FINE = 1e-13  # largest violation due to rounding
_CROWDS = (0.05, 0.01, 2e-3, 2e-4)  # distances within which atoms are merged, tried in turn
_LAWFUL = 3e-12  # largest error of a distribution's moments
_CHUNK = 2048
_NO_SPREAD = 1e-17  # variance times the largest curvature, 4 d^2, below a double's precision


class _Objective:
    """g with two derivatives, by values and on the grid.

    Values are those of Chebyshev series: d operations each, where de Casteljau takes d^2 / 2.
    """

    def __init__(self, objective: UnitPolynomial) -> None:
        slope = objective.derivative()
        self.g, self.slope, self.curvature = (
            Chebyshev.interpolate(each, each.degree, [0.0, 1.0])
            for each in (objective, slope, slope.derivative())
        )
        self.on_grid, self.degree = objective(_GRID), objective.degree
        self.scale = max(float(max(abs(value) for value in objective.coefficients)), 1e-300)


def polynomial_objective_interval(objective: UnitPolynomial, moments: Moments) -> VoteInterval:
    """Smallest and largest E g(Q) over all distributions of Q with these moments (arXiv 2605.03379,
    Theorem 4.1 and its remark).

    `polynomial_objective_interval(majority_polynomial(3) - majority_polynomial(1), moments)` bounds
    V_3 - V_1. It is usually much narrower than the difference of the two vote intervals, because
    one distribution must serve both.

    Assumes calls that are independent given the question.

    Args:
        objective: g.
        moments: [...] the table of (mu, nu).

    Returns:
        Both ends with certificates; see `QuadraticBound.check`. Error typically about 1e-14 of g's
        largest coefficient.

    Raises:
        OutOfRangeError: a degree above 201.
    """
    if objective.degree > LARGEST_DEGREE:
        raise OutOfRangeError(
            f"Objectives up to degree {LARGEST_DEGREE} can be bounded; this one has"
            f" {objective.degree}. Leave out the largest budgets, or bound each V_n alone by"
            " vote_interval."
        )
    above = _upper(-objective, moments)
    lower = QuadraticBound(
        "lower", objective, moments, -above.value, above.atoms, above.weights, -above.quadratic
    )
    return VoteInterval(lower, _upper(objective, moments))


def _upper(objective: UnitPolynomial, moments: Moments) -> QuadraticBound:
    flat = moments.flat()
    problem, mirrored = _Objective(objective), _Objective(objective.reflected())
    scale = problem.scale
    atoms, weights, quadratic = np.empty((3, flat.mu.size, 3))
    for start in range(0, flat.mu.size, _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, flat.mu.size))
        low, high = rows[flat.mu[rows] <= 0.5], rows[flat.mu[rows] > 0.5]
        atoms[low], weights[low], quadratic[low] = _solve(problem, flat.take(low))
        # Near 1 the differences from 1 matter, so the distribution of 1 - Q is computed.
        places, shares, powers = _solve(mirrored, flat.take(high).reflected())
        a, b, c = powers.T
        atoms[high], weights[high] = 1.0 - places[:, ::-1], shares[:, ::-1]
        quadratic[high] = np.stack([a + b + c, -b - 2.0 * c, c], -1)
    margin = least_distances(quadratic, objective, 1, 0.25 * ROOM * scale)
    allowed = (quadratic * _targets(flat)).sum(-1) + np.where(margin < -_FINE * scale, -margin, 0.0)
    reached = (weights * objective(atoms)).sum(-1)
    value = np.where(
        np.abs(allowed - reached) <= _FINE * scale, reached, np.maximum(allowed, reached)
    )
    quadratic[:, 0] += np.maximum(ROOM * scale - margin, 0.0)  # makes it proven despite rounding
    return QuadraticBound.from_rows(objective, moments, value, atoms, weights, quadratic)


def _solve(problem: _Objective, moments: Moments) -> tuple[Floats, Floats, Floats]:
    """Atoms, weights and quadratic of each row of a flat table."""
    atoms, weights, quadratic = np.empty((3, moments.mu.size, 3))
    degree = max(problem.degree, 1)  # also for a constant
    certain = 4.0 * degree * degree * moments.variance < _NO_SPREAD
    split = ~certain & (moments.unsteady == 0)
    inner = ~certain & ~split
    for rows, find in (
        (certain & (moments.unsteady > 0), _certain),
        (split | (certain & (moments.unsteady == 0)), _split),
    ):
        if rows.any():
            atoms[rows], weights[rows], quadratic[rows] = find(problem, moments.mu[rows])
    if inner.any():
        part = moments.take(inner)
        atoms[inner], weights[inner], quadratic[inner] = _inner(problem, part)
    return atoms, weights, quadratic


def _certain(problem: _Objective, mu: Floats) -> tuple[Floats, Floats, Floats]:
    """Where nu = mu^2, Q = mu for certain; any quadratic that touches g at mu and is curved enough
    is a certificate.
    """
    height, slope = problem.g(mu)[:, None], problem.slope(mu)[:, None]
    away = _GRID - mu[:, None]
    near = np.abs(away) < 1e-3
    excess = problem.on_grid - height - slope * away
    needed = np.where(near, -np.inf, excess / np.where(near, 1.0, away * away)).max(1)
    close = np.clip(mu[:, None] + np.linspace(-2e-3, 2e-3, 41), 0.0, 1.0)
    bent = np.maximum(needed, 0.5 * problem.curvature(close).max(1))
    c = bent + 1e-3 * (np.abs(bent) + problem.scale)
    quadratic = np.stack(
        [height[:, 0] - mu * (slope[:, 0] - c * mu), slope[:, 0] - 2.0 * c * mu, c], -1
    )
    return np.repeat(mu[:, None], 3, 1), np.tile([1.0, 0.0, 0.0], (len(mu), 1)), quadratic


def _split(problem: _Objective, mu: Floats) -> tuple[Floats, Floats, Floats]:
    """Where nu = mu, Q is 0 or 1; the quadratic equals g at both ends and is above it in
    between.
    """
    low, high = problem.on_grid[0], problem.on_grid[-1]
    inside = _GRID[1:-1]
    arch = ((problem.on_grid[1:-1] - low - (high - low) * inside) / (inside * (1.0 - inside))).max()
    c = -max(arch, problem.slope(0.0) - (high - low), high - low - problem.slope(1.0))
    c -= 1e-3 * (abs(c) + problem.scale)
    quadratic = np.tile([low, high - low - c, c], (len(mu), 1))
    atoms = np.stack([np.zeros_like(mu), np.ones_like(mu), np.ones_like(mu)], -1)
    return atoms, np.stack([1.0 - mu, mu, np.zeros_like(mu)], -1), quadratic


def _inner(problem: _Objective, moments: Moments) -> tuple[Floats, Floats, Floats]:
    x0, x1 = moments.nu / moments.mu, moments.unsteady / moments.wrong
    atoms = np.stack([np.zeros_like(x0), 0.5 * (x0 + x1), np.ones_like(x0)], -1)
    weights, quadratic = np.empty((2, *atoms.shape))
    rows = np.arange(len(atoms))
    for goal in _GOALS:
        table = moments.take(rows)
        basis, shares, quadratics = _simplex(problem, table, atoms[rows], goal)
        atoms[rows], weights[rows], quadratic[rows] = basis, shares, quadratics
        # below 0 where close atoms lost the contact
        _, excess = _highest(problem, quadratics, basis)
        solved = np.abs(excess) <= _FINE * problem.scale
        for crowd in _CROWDS:
            left = np.flatnonzero(~solved)
            if not len(left):
                break
            part = table.take(left)
            better, polished = _polish(
                problem, part, basis[left], shares[left], quadratics[left], crowd
            )
            for target, source in zip((atoms, weights, quadratic), polished, strict=True):
                target[rows[left[better]]] = source[better]
            solved[left[better]] = True
        rows = rows[~solved]
        if not len(rows):
            break
    quadratic[rows, 0] += _highest(problem, quadratic[rows], atoms[rows])[1]
    order = np.argsort(atoms, -1, kind="stable")
    # no negative weights, and a total of 1, by the largest
    shares = np.maximum(np.take_along_axis(weights, order, -1), 0.0)
    each, most = np.arange(len(shares)), shares.argmax(-1)
    shares[each, most] = 0.0
    shares[each, most] = 1.0 - shares.sum(-1)
    return np.take_along_axis(atoms, order, -1), shares, quadratic


def _simplex(
    problem: _Objective, moments: Moments, atoms: Floats, goal: float
) -> tuple[Floats, Floats, Floats]:
    """Improve a feasible basis of three atoms to a violation of about `goal` times the scale."""
    atoms = atoms.copy()
    heights = problem.g(atoms)
    active = np.arange(len(atoms))
    for _ in range(_PIVOTS):
        basis = atoms[active]
        quadratic = _through(basis, heights[active])
        entering, excess = _highest(problem, quadratic, basis)
        going = excess > goal * problem.scale
        active, basis, entering = active[going], basis[going], entering[going]
        if not len(active):
            break
        weights = _weights(basis, moments.mu[active], moments.nu[active])
        direction = _weights(basis, entering, entering * entering)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(direction > 1e-14, weights / direction, np.inf)
        leaving = ratio.argmin(-1)
        atoms[active, leaving] = entering
        heights[active, leaving] = problem.g(entering)
    return atoms, _weights(atoms, moments.mu, moments.nu), _through(atoms, heights)


def _weights(atoms: Floats, mu: Floats, nu: Floats) -> Floats:
    """[T, 3] weights on the atoms with total 1, mean mu and second moment nu: expectations of
    Lagrange's polynomials.
    """
    x, y, z = atoms.T
    return np.stack(
        [
            (nu - mu * (y + z) + y * z) / ((x - y) * (x - z)),
            (nu - mu * (x + z) + x * z) / ((y - x) * (y - z)),
            (nu - mu * (x + y) + x * y) / ((z - x) * (z - y)),
        ],
        -1,
    )


def _through(atoms: Floats, heights: Floats) -> Floats:
    """[T, 3] coefficients a, b, c of the quadratic through three points (Newton's divided
    differences).
    """
    x, y, z = atoms.T
    f, g, h = heights.T
    first, second = (g - f) / (y - x), (h - g) / (z - y)
    c = (second - first) / (z - x)
    b = first - c * (x + y)
    return np.stack([f - x * (b + c * x), b, c], -1)


def _highest(problem: _Objective, quadratic: Floats, atoms: Floats) -> tuple[Floats, Floats]:
    """Where and by how much g exceeds the quadratic most: maxima on the grid and between atoms,
    refined by Newton's method. 0 up to rounding where they touch, negative where g stays below.
    """
    a, b, c = quadratic.T[..., None]
    excess = problem.on_grid - (a + _GRID * (b + c * _GRID))
    walled = np.pad(excess, ((0, 0), (1, 1)), constant_values=-np.inf)
    peaks = np.where((excess >= walled[:, :-2]) & (excess >= walled[:, 2:]), excess, -np.inf)
    # a peak between grid points may exceed a higher grid value
    best = np.argpartition(peaks, -_PEAKS, -1)[:, -_PEAKS:]
    ends = np.sort(atoms, -1)  # atoms may be close together between two grid points
    between = 0.5 * (ends[:, :-1] + ends[:, 1:])
    q = np.hstack([_GRID[best], between])
    top = np.hstack([
        np.take_along_axis(excess, best, -1), problem.g(between) - (a + between * (b + c * between))
    ])  # fmt: skip
    low = np.hstack([_GRID[np.maximum(best - 1, 0)], ends[:, :-1]])
    high = np.hstack([_GRID[np.minimum(best + 1, len(_GRID) - 1)], ends[:, 1:]])
    for _ in range(3):
        slope, bend = problem.slope(q) - b - 2.0 * c * q, problem.curvature(q) - 2.0 * c
        step = np.divide(-slope, bend, out=np.zeros_like(q), where=bend < 0)
        moved = np.clip(q + step, low, high)
        higher = problem.g(moved) - (a + moved * (b + c * moved))
        q, top = np.where(higher > top, moved, q), np.maximum(higher, top)
    choice, rows = top.argmax(-1), np.arange(len(q))
    return q[rows, choice], top[rows, choice]


def _polish(
    problem: _Objective,
    moments: Moments,
    atoms: Floats,
    weights: Floats,
    quadratic: Floats,
    crowd: float,
) -> tuple[Bools, tuple[Floats, Floats, Floats]]:
    """Merge atoms within `crowd` and solve; which rows are now optimal up to rounding, and their
    solutions.
    """
    order = np.argsort(atoms, -1)
    places, shares = np.take_along_axis(atoms, order, -1), np.take_along_axis(weights, order, -1)
    # whether each atom is the first of its group, and whether the outer ones are at 0 and 1
    pattern = np.insert(np.diff(places) >= crowd, 0, True, 1)
    pattern = np.column_stack([pattern, places[:, 0] < 1e-9, places[:, 2] > 1.0 - 1e-9])
    better = np.zeros(len(places), bool)
    result = atoms.copy(), weights.copy(), quadratic.copy()
    for leads in np.unique(pattern, axis=0):
        rows = np.flatnonzero((pattern == leads).all(1))
        starts = np.flatnonzero(leads[:3])
        if len(starts) == 1:
            continue  # a single atom has no variance: `crowd` is too wide
        merged, summed = (np.add.reduceat(table[rows], starts, 1) for table in (places, shares))
        merged /= np.diff(starts, append=3)
        inner = np.arange(len(starts))
        if leads[1] and leads[3]:
            merged[:, 0], inner = 0.0, inner[1:]
        if leads[2] and leads[4]:
            merged[:, -1], inner = 1.0, inner[:-1]
        part = moments.take(rows)
        ok, x, w, abc = _newton(problem, part, merged, summed, quadratic[rows], inner)
        ok &= _highest(problem, abc, x)[1] <= 10.0 * _FINE * problem.scale
        pad = 3 - x.shape[1]
        better[rows] = ok
        for target, source in zip(
            result,
            (np.pad(x, ((0, 0), (0, pad)), mode="edge"), np.pad(w, ((0, 0), (0, pad))), abc),
            strict=True,
        ):
            target[rows[ok]] = source[ok]
    return better, result


def _newton(
    problem: _Objective, moments: Moments, x: Floats, w: Floats, abc: Floats, inner: Rows
) -> tuple[Bools, Floats, Floats, Floats]:
    """Solve for quadratic, inner atoms and weights together, in place; which rows converged, atoms,
    weights, quadratic.
    """
    ok = np.ones(len(x), bool)
    count, many = x.shape[1], len(inner)
    last = count + many
    bends = count + np.arange(many), 3 + np.arange(many)  # conditions of slopes by inner atoms
    for _ in range(12):
        # by a, b, c, inner atoms and weights: values, slopes at inner atoms, moments
        a, b, c = abc.T[..., None]
        powers, y = x[..., None] ** np.arange(3), x[:, inner]
        slopes = b + 2.0 * c * x - problem.slope(x)
        jacobian, residual = np.zeros((len(x), 3 + last, 3 + last)), np.zeros((len(x), 3 + last))
        jacobian[:, :count, :3] = powers
        residual[:, :count] = a + x * (b + c * x) - problem.g(x)
        jacobian[:, inner, bends[1]] = slopes[:, inner]
        jacobian[:, bends[0], 1], jacobian[:, bends[0], 2] = 1.0, 2.0 * y
        jacobian[:, *bends] = 2.0 * c - problem.curvature(y)
        residual[:, bends[0]] = slopes[:, inner]
        jacobian[:, last + 1, bends[1]] = w[:, inner]
        jacobian[:, last + 2, bends[1]] = 2.0 * w[:, inner] * y
        jacobian[:, last:, 3 + many :] = powers.transpose(0, 2, 1)
        residual[:, last:] = np.einsum("tkp,tk->tp", powers, w) - _targets(moments)
        solvable = np.isfinite(jacobian).all((1, 2)) & ok
        jacobian[~solvable] = np.eye(jacobian.shape[1])
        # rows with a singular matrix, at which `solve` fails, keep their places
        regular = solvable & (np.abs(np.linalg.det(jacobian)) > 0)
        step = np.zeros(residual.shape)
        step[regular] = np.linalg.solve(jacobian[regular], residual[regular][..., None])[..., 0]
        step[~np.isfinite(step).all(1)] = 0.0
        abc -= step[:, :3]
        x[:, inner] = np.clip(y - step[:, bends[1]], 0.0, 1.0)
        w -= step[:, 3 + many :]
        ok = solvable
        if np.abs(step[ok]).max(initial=0.0) < 1e-15:
            break
    apart, shares = (np.diff(x, axis=1) > 0).all(1), np.maximum(w, 0.0)
    missed = np.einsum("tkp,tk->tp", x[..., None] ** np.arange(3), shares) - _targets(moments)
    lawful = (w >= -1e-13).all(1) & (np.abs(missed) <= _LAWFUL).all(1)
    return ok & apart & lawful, x, shares, abc


def _targets(moments: Moments) -> Floats:
    """[T, 3] required total, mean and second moment."""
    return np.stack([np.ones_like(moments.mu), moments.mu, moments.nu], -1)

"""Bounds on vote accuracies with their proof: a distribution that attains the bound and a quadratic
that nothing exceeds.

By Theorem 4.1 of arXiv 2605.03379 the largest E P_n(Q) over all distributions with moments (mu, nu)
equals the least a + b mu + c nu with a + b q + c q^2 >= P_n(q) on [0, 1]. A `QuadraticBound` holds
both sides: the distribution (at most three atoms) attains the value, and the quadratic proves that
nothing exceeds it, however they were found. `check` verifies the moments, the gap, and the
inequality on all of [0, 1], at its critical points; `proven_margin` does the last for one entry in
integers that are rounded down.

A quadratic that touches P_n exactly would cross it by about 1e-15 once its coefficients are rounded
to floats. So a is moved outwards by more than all rounding (`ROOM`, about 2e-13): the floats of
`quadratic`, taken literally, satisfy the inequality on all of [0, 1], and `proven` is what they
prove.

What two labelled calls per question prove about every vote: sharp intervals [L_n, U_n] for V_n =
E P_n(Q).

[L_n, U_n] is exactly the range of V_n over all distributions of Q on [0, 1] with E Q = mu and E Q^2
= nu (arXiv 2605.03379, Theorem 4.1). Assumes calls on a question that are independent given the
question, each right with the same probability Q, and a majority of right/wrong bits. A plurality
among several wrong answers can do better.

How U_n is found (L_n(mu, nu) = 1 - U_n(1 - mu, 1 - 2 mu + nu)). P_n''' has the signs +, -, +, so a
quadratic meets P_n at most five times, counted with multiplicity, and the upper hull of the curve
(q, q^2, P_n(q)) consists of a triangle {0, x*, 1} and of edges {0, x}, {x, 1}, {x, y}. With x0 = nu
/ mu and x1 = (mu - nu) / (1 - mu):

    xo <= x0 <= x*        {0, x0}      xo in (q-, 1):   x P'(x) = 2 P(x)
    x1 >= x*              {x1, 1}      x* in (1/2, 1):  (P(x) - x) (2x - 1) = (P'(x) - 1) x (x - 1)
    x0 > x*, x1 < x*      {0, x*, 1}   q- = (1 - 1 / sqrt(2n - 1)) / 2, the first zero of P_n'''
    x0 < xo               {x, y}       2 (P(y) - P(x)) = (y - x) (P'(x) + P'(y))
                                       (mu - x) (y - mu) = nu - mu^2

The case analysis is feval's own; no bound relies on it, because each has a certificate
(`QuadraticBound`).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import floor, inf
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from feval.estimators.arrays import Bools, Floats, Numbers, Result, checked_probabilities
from feval.estimators.moments import Moments
from feval.estimators.per_question import gauss_legendre
from feval.estimators.vote_polynomials import (
    check_budget,
    majority_accuracy,
    majority_curvature,
    majority_slope,
)

ROOM = 2e-13
"""Least distance of a quadratic from P_n."""

_UNIT = 1 << 200  # of the integers that prove a margin
_SLACK = _UNIT // 10**13  # of the margin
_BISECTIONS = 60  # from width 1 to below the spacing of doubles


class CertificateCheck(Result):
    """Errors of certificates.

    Attributes:
        moment_error: [...] largest error of the distribution's total, mean and second moment, or by
            which a weight is negative or an atom outside [0, 1].
        gap: [...] largest difference between the value, the distribution's E P_n(Q) and the
            quadratic's a + b mu + c nu.
        dual_margin: [...] least distance of the quadratic from P_n on [0, 1], negative on the wrong
            side.
    """

    moment_error: Floats
    gap: Floats
    dual_margin: Floats

    def holds(self, tolerance: float = 1e-11) -> bool:
        """Whether every certificate of the table is valid up to rounding."""
        errors = np.maximum(np.maximum(self.moment_error, self.gap), -self.dual_margin)
        return bool((errors <= tolerance).all())


class QuadraticBound(Result):
    """Sharp bounds on V_n = E P_n(Q) over the distributions with given moments, with certificates.

    Attributes:
        side: "lower" or "upper".
        n: index of the budget.
        moments, value: [...] the table of (mu, nu), and the bounds.
        atoms, weights: [..., 3] support of an extremal distribution, ascending, and its
            probabilities; unused places repeat an atom with weight 0.
        quadratic: [..., 3] a, b, c: on its side of P_n on all of [0, 1], for these floats taken
            literally. (b, c) is also the gradient of the bound in (mu, nu).
    """

    side: Literal["lower", "upper"]
    n: int
    moments: Moments
    value: Floats
    atoms: Floats
    weights: Floats
    quadratic: Floats

    @property
    def proven(self) -> Floats:
        """[...] a + b mu + c nu, rounded outwards: no distribution with these floats as moments
        exceeds it.

        It is outside `value`, the sharp end up to rounding, by less than 1e-12 up to 1,001 votes.
        """
        a, b, c = np.moveaxis(self.quadratic, -1, 0)
        allowed = a + b * self.moments.mu + c * self.moments.nu
        rounding = 4.0 * np.finfo(np.float64).eps * (np.abs(a) + np.abs(b) + np.abs(c))
        result: Floats = allowed + self._sign * rounding
        return result

    def law(self, index: int | tuple[int, ...] = ()) -> tuple[Floats, Floats]:
        """Atoms and weights of one extremal distribution, without weights of 0, at an index of the
        table.
        """
        used = self.weights[index] > 0
        return self.atoms[index][used], self.weights[index][used]

    def check(self) -> CertificateCheck:
        """Check every certificate from its definition.

        The inequality is checked on all of [0, 1]. P_n''' vanishes only at
        (1 -+ 1/sqrt(2n - 1)) / 2, so the second derivative of quadratic minus P_n is monotone on
        three intervals and has one root at most in each; between those roots the first derivative
        is monotone and has one root at most; the least value is at one of these or at 0 or 1.
        Bisection finds them all.
        """
        heights = majority_accuracy(self.n, np.clip(self.atoms, 0.0, 1.0))
        reached = (self.weights * heights).sum(-1)
        a, b, c = np.moveaxis(self.quadratic, -1, 0)
        target = np.stack([np.ones(self.moments.shape), self.moments.mu, self.moments.nu], -1)
        powers = self.atoms[..., None, :] ** np.arange(3)[:, None]
        moment_error = np.abs((powers * self.weights[..., None, :]).sum(-1) - target).max(-1)
        for excess in (-self.weights, -self.atoms, self.atoms - 1.0):
            moment_error = np.maximum(moment_error, excess.max(-1))
        allowed = a + b * self.moments.mu + c * self.moments.nu
        gap = np.maximum(np.abs(reached - self.value), np.abs(allowed - self.value))
        margin = _least_distance(self.n, self.quadratic, self._sign)
        return CertificateCheck(moment_error, gap, margin)

    def proven_margin(self, index: int | tuple[int, ...] = ()) -> Fraction:
        """A proven lower bound of quadratic minus P_n (P_n minus quadratic for a lower bound) on
        [0, 1], within 1e-13 of the least.

        a + b mu + c nu minus this number is a bound without rounding.

        A polynomial lies above the least of its Bernstein coefficients. Those of P_n are n + 1
        zeros and n + 1 ones. Pieces of [0, 1] that may hold the minimum are halved by de
        Casteljau's means, rounded down: a mean never falls when one of its terms rises, so means of
        lower bounds are lower bounds.
        """
        degree = max(2 * self.n + 1, 2)
        a, b, c = map(Fraction, self.quadratic[index].tolist())
        pieces, least, attained = [np.empty(degree + 1, object)], [], inf
        for k in range(degree + 1):
            height = Fraction(k, 2) if self.n == 0 else int(k > self.n)
            power = a + b * Fraction(k, degree) + c * Fraction(k * (k - 1), degree * (degree - 1))
            pieces[0][k] = floor(self._sign * (power - height) * _UNIT)
        while pieces:
            attained = min(attained, *(end for piece in pieces for end in (piece[0], piece[-1])))
            lowest = [piece.min() for piece in pieces]
            going = [low < attained - _SLACK for low in lowest]
            least += [low for low, goes in zip(lowest, going, strict=True) if not goes]
            halved = [_halves(piece) for piece, goes in zip(pieces, going, strict=True) if goes]
            pieces = [half for both in halved for half in both]
        return Fraction(min(least), _UNIT)

    @property
    def _sign(self) -> int:
        return 1 if self.side == "upper" else -1


class MeanRange(Result):
    """The range of E g(Q).

    Attributes:
        lower, upper: [...] ends that distributions attain.
        gap: [...] how far at most the true ends lie outside, where g is smooth between the points
            of a grid finer than 1e-6 around the places at which it is touched.
    """

    lower: Floats
    upper: Floats
    gap: Floats


def mean_range(function: Callable[[Floats], Floats], moments: Moments) -> MeanRange:
    """Return the smallest and largest E g(Q) over all distributions of Q on [0, 1] with these
    moments, for any continuous g.

    With g(q) = P_3(q) - P_1(q) (`majority_accuracy(3, q) - majority_accuracy(1, q)`: seven votes
    over three) it is usually much narrower than the difference of two vote intervals, because one
    distribution must serve both.

    Linear programs over distributions on a grid that grows finer around their atoms; their dual
    values are the quadratic that proves the bound (arXiv 2605.03379, Theorem 4.1 and its remark).
    Some tenths of a second for each entry; for V_n, `vote_interval` has closed forms.

    Args:
        function: g, of an array of points of [0, 1].
        moments: [...] the table of (mu, nu).
    """
    coarse = np.linspace(0.0, 1.0, 2001)
    scale = np.abs(function(coarse)).max() or 1.0
    found = np.empty((3, moments.mu.size))
    for place, pair in enumerate(zip(moments.mu.ravel(), moments.nu.ravel(), strict=True)):
        gaps = []
        for end, sign in enumerate((1.0, -1.0)):
            grid, width = coarse, 1e-3
            for _ in range(3):
                powers = grid ** np.arange(3)[:, None]
                heights = sign * function(grid) / scale
                # the solver's tolerance is absolute
                program = scipy.optimize.linprog(1e4 * heights, A_eq=powers, b_eq=[1.0, *pair])
                near = grid[program.x > 1e-9, None] + np.linspace(-width, width, 201)
                grid, width = np.unique(np.clip([*near.ravel(), 0.0, 1.0], 0.0, 1.0)), width / 50
            quadratic = program.eqlin.marginals / 1e4
            points = np.union1d(coarse, grid)
            excess = quadratic @ points ** np.arange(3)[:, None] - sign * function(points) / scale
            value = program.fun / 1e4
            gaps.append(abs(value - quadratic @ [1.0, *pair]) + max(excess.max(), 0.0))
            found[end, place] = sign * value * scale
        found[2, place] = max(gaps) * scale
    return MeanRange(*found.reshape(3, *moments.shape))


def _halves(coefficients: Numbers) -> tuple[Numbers, Numbers]:
    """Bernstein coefficients on both halves of a piece."""
    left, right = [], []
    while len(coefficients):
        left.append(coefficients[0])
        right.append(coefficients[-1])
        coefficients = (coefficients[:-1] + coefficients[1:]) >> 1
    return np.array(left, object), np.array(right[::-1], object)


def _least_distance(n: int, quadratic: Floats, sign: int) -> Floats:
    """[...] least of sign x (a + b q + c q^2 - P_n(q)) on [0, 1]."""
    a, b, c = np.moveaxis(quadratic[..., None], -2, 0)
    shape, width = (*quadratic.shape[:-1], 2), 0.5 / (2 * n - 1) ** 0.5 if n else 0.0
    inflections = np.broadcast_to([0.5 - width, 0.5 + width], shape)
    bends = _roots(lambda q: 2.0 * c - majority_curvature(n, q), inflections)
    flat = _roots(lambda q: b + 2.0 * c * q - majority_slope(n, q), bends)
    places = np.concatenate([bends, flat, np.broadcast_to([0.0, 1.0], shape)], -1)
    residual = sign * (a + places * (b + places * c) - majority_accuracy(n, places))
    return np.asarray(residual.min(-1))


def _roots(function: Callable[[Floats], Floats], between: Floats) -> Floats:
    """[..., K + 1] the root of a function in each interval of [0, 1] between ascending places [...,
    K] where it is monotone, or the nearer end.
    """
    edge = np.zeros((*between.shape[:-1], 1))
    ends = np.concatenate([edge, between, edge + 1.0], -1)
    low, high = ends[..., :-1], ends[..., 1:]
    rising = function(high) >= function(low)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        below = (function(middle) < 0) == rising
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(0.5 * (low + high))


_ROOM_PER_BUDGET = 2e-16  # the quadratics' coefficients grow like n, and so does their rounding
_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of decimal moments: 0.8 - 0.7 is not 0.1


class Range(Result):
    """Lower and upper ends over a table [...]."""

    low: Floats
    high: Floats


class VoteInterval(Result):
    """[L_n, U_n] over a table of moments, each end with its certificate."""

    lower: QuadraticBound
    upper: QuadraticBound

    @property
    def low(self) -> Floats:
        """[...] L_n."""
        return self.lower.value

    @property
    def high(self) -> Floats:
        """[...] U_n."""
        return self.upper.value


class CertifiedGain(Result):
    """Whether V_1 > mu for every distribution with these moments, and L_1 - mu, the least possible
    V_1 - V_0; both [...].
    """

    certified: Bools
    gain: Floats


def vote_interval(n: int, moments: Moments) -> VoteInterval:
    """Sharp interval for the accuracy V_n of 2n + 1 votes (arXiv 2605.03379, Theorem 4.1, eqs.
    (8)-(10)).

    Args:
        n: index of the budget: 0 one call, 1 three votes, 2 five.
        moments: [...] the table of (mu, nu).

    Returns:
        Both ends with distributions that attain them and quadratics that prove them on all of [0,
        1], rounding included (see `QuadraticBound.proven`). Absolute error below 1e-14 up to n = 50
        and below 1e-13 at n = 500. On the boundary: P_n(mu) where nu = mu^2, and mu where nu = mu.

    Raises:
        OutOfRangeError: an n that is not a budget index. Even budgets: see `budget_index`.
    """
    return VoteInterval(vote_bound(n, moments, "lower"), vote_bound(n, moments, "upper"))


def vote_bound(n: int, moments: Moments, side: Literal["lower", "upper"]) -> QuadraticBound:
    """One end of `vote_interval`: U_n, or L_n(mu, nu) = 1 - U_n(1 - mu, 1 - 2 mu + nu)."""
    check_budget(n)
    room = ROOM + _ROOM_PER_BUDGET * int(n)
    if side == "upper":
        upper = _upper(int(n), moments)
        upper.quadratic[..., 0] += room
        return upper
    other = _upper(int(n), moments.reflected())
    a, b, c = np.moveaxis(other.quadratic, -1, 0)
    return QuadraticBound(
        "lower",
        int(n),
        moments,
        1.0 - other.value,
        (1.0 - other.atoms)[..., ::-1],
        other.weights[..., ::-1],
        np.stack([1.0 - (a + b + c) - room, b + 2.0 * c, -c], -1),
    )


def three_vote_interval(moments: Moments) -> Range:
    """The interval of three votes in closed form (arXiv 2605.03379, Theorem 4.2, eqs. (11)-(12)).

    L_1 = nu + 2 (mu - nu)^2 / (1 - mu) and U_1 = 3 nu - 2 nu^2 / mu = nu + 2 nu (mu - nu) / mu, at
    most 1/8 apart, in a form without cancellation.

    Args:
        moments: [...] the table of (mu, nu).

    Returns:
        L_1 and U_1; both 0 at mu = 0 and both 1 at mu = 1.
    """
    x0, x1 = _ratios(moments)
    return Range(moments.nu + 2.0 * moments.unsteady * x1, moments.nu + 2.0 * moments.unsteady * x0)


def infinite_vote_interval(moments: Moments) -> Range:
    """Sharp infimum and supremum of V_inf = Pr(Q > 1/2) + Pr(Q = 1/2) / 2 (arXiv 2605.03379,
    Theorem 4.3, eq. (13)).

    U_inf = (nu - mu^2) / (nu + 1/4 - mu) where mu <= 1/2 and nu <= mu / 2, otherwise min(1, 3 mu -
    2 nu); both ends are 1/2 at (1/2, 1/4); L_inf(mu, nu) = 1 - U_inf(1 - mu, 1 - 2 mu + nu). The
    ends need not be attained, and (1/2, 1/4) is a true discontinuity: next to it the interval is
    nearly [0, 1]. Floats within rounding of nu = mu^2 count as on it.

    Args:
        moments: [...] the table of (mu, nu).

    Returns:
        L_inf and U_inf.
    """
    return Range(1.0 - _infinite_upper(moments.reflected()), _infinite_upper(moments))


def certified_three_vote_gain(moments: Moments) -> CertifiedGain:
    """Whether three votes beat one call for every distribution with these moments, and by how much
    at least (Theorem 4.2).

    L_1 - mu = (mu - nu) (2 (mu - nu) / (1 - mu) - 1), which is positive exactly if mu > 1/2 and rho
    < 1 - 1 / (2 mu). Equality, within rounding, is not certified.

    Args:
        moments: [...] the table of (mu, nu).

    Returns:
        Verdict and gain.
    """
    _, x1 = _ratios(moments)
    beyond = 2.0 * moments.unsteady - moments.wrong > _ROUNDING
    return CertifiedGain(beyond & (moments.unsteady > 0), moments.unsteady * (2.0 * x1 - 1.0))


def one_call_envelope(mu: npt.ArrayLike, n: int = 1) -> Range:
    """Range of V_n when only mu is known: the convex and concave envelopes of P_n at mu (arXiv
    2605.03379, eq. (20) for n = 1).

    The concave envelope is the chord from (0, 0) to the point xt with x P_n'(x) = P_n(x), and P_n
    beyond it; xt = 3/4 for three votes. The lower end is 1 minus the upper end at 1 - mu. It never
    exceeds mu: one call certifies no gain.

    Args:
        mu: [...] one-call accuracy.
        n: index of the budget.

    Returns:
        The smallest and largest possible V_n.

    Raises:
        OutOfRangeError: a mu outside [0, 1], or an n that is not a budget index.
    """
    check_budget(n)
    right = checked_probabilities(mu, "mu")
    tangent = 1.0
    if n:
        tangent = scipy.optimize.brentq(
            lambda x: x * majority_slope(n, np.asarray(x)) - majority_accuracy(n, x), 0.5, 1.0
        )
    height = float(majority_accuracy(n, tangent))

    def upper(q: Floats) -> Floats:
        return np.where(q <= tangent, q / tangent * height, majority_accuracy(n, q))

    return Range(1.0 - upper(1.0 - right), upper(right))


class _Points(Result):
    """Points of one n where the kinds of extremal distributions meet, xo and x*, and q-."""

    origin: float
    triangle: float
    inflection: float


@cache
def _special_points(n: int) -> _Points:
    """`_Points` of n; xo = 0 and x* = 1 for n <= 1, where only {0, x0} occurs."""
    if n <= 1:
        return _Points(0.0, 1.0, 0.0)

    def p(x: float) -> float:
        return float(majority_accuracy(n, x))

    def slope(x: float) -> float:
        return float(majority_slope(n, np.asarray(x)))

    inflection = 0.5 - 0.5 / (2 * n - 1) ** 0.5
    origin = scipy.optimize.brentq(lambda x: x * slope(x) - 2.0 * p(x), inflection, 1.0, xtol=1e-16)
    triangle = scipy.optimize.brentq(
        lambda x: (p(x) - x) * (2.0 * x - 1.0) - (slope(x) - 1.0) * x * (x - 1.0),
        0.5,
        0.999,
        xtol=1e-16,
    )
    return _Points(origin, triangle, inflection)


def _ratios(moments: Moments) -> tuple[Floats, Floats]:
    """x0 = nu / mu and x1 = (mu - nu) / (1 - mu), with the limits 1 and 0 of nu = mu where mu is 0
    or 1.
    """
    x0 = np.divide(moments.nu, moments.mu, out=np.ones(moments.shape), where=moments.mu > 0)
    x1 = np.divide(
        moments.unsteady, moments.wrong, out=np.zeros(moments.shape), where=moments.wrong > 0
    )
    return np.minimum(x0, 1.0), np.minimum(x1, 1.0)


def _upper(n: int, moments: Moments) -> QuadraticBound:
    """U_n with distribution and quadratic."""
    points, flat = _special_points(n), moments.flat()
    x0, x1 = _ratios(flat)
    from_origin = (points.origin <= x0) & (x0 <= points.triangle)
    to_one = ~from_origin & (x1 >= points.triangle)
    pair = ~from_origin & ~to_one & (x0 < points.origin)
    triangle = ~(from_origin | to_one | pair)
    count = flat.mu.size
    value, atoms, weights, quadratic = np.empty(count), *np.empty((3, count, 3))
    kinds = (
        (from_origin, _origin_edge),
        (to_one, _one_edge),
        (pair, _pair_edge),
        (triangle, _triangle),
    )
    for where, solve in kinds:
        if where.any():
            part = flat.take(where)
            value[where], atoms[where], weights[where], quadratic[where] = solve(
                n, part, x0[where], x1[where]
            )
    certain = flat.variance == 0
    atoms[certain], weights[certain] = flat.mu[certain, None], (1.0, 0.0, 0.0)
    value[certain] = majority_accuracy(n, flat.mu[certain])
    shape = moments.shape
    shaped = (each.reshape(*shape, 3) for each in (atoms, weights, quadratic))
    return QuadraticBound("upper", n, moments, value.reshape(shape), *shaped)


_Solved = tuple[Floats, Floats, Floats, Floats]


def _columns(*columns: Floats | float) -> Floats:
    return np.stack(np.broadcast_arrays(*columns), -1)


def _origin_edge(n: int, moments: Moments, x: Floats, _: Floats) -> _Solved:
    """Distribution on {0, x}, x = nu / mu; the quadratic vanishes at 0 and touches P_n at x."""
    p = majority_accuracy(n, x)
    rare = np.divide(moments.variance, moments.nu, out=np.zeros_like(x), where=moments.nu > 0)
    weight = np.where(moments.nu > 0, 1.0 - rare, 0.0)
    if n == 0:
        b, c = np.ones_like(x), np.zeros_like(x)
    elif n == 1:  # in closed form, because x may be 0
        b, c = 2.0 * x * x, 3.0 - 4.0 * x
    else:
        c = (x * majority_slope(n, x) - p) / (x * x)
        b = p / x - c * x
    return weight * p, _columns(0.0, x, x), _columns(1.0 - weight, weight, 0.0), _columns(0.0, b, c)


def _one_edge(n: int, moments: Moments, _: Floats, x: Floats) -> _Solved:
    """Distribution on {x, 1}, x = (mu - nu) / (1 - mu); the quadratic is 1 at 1 and touches P_n at
    x.
    """
    z = np.maximum(moments.both_wrong / moments.wrong, 1e-300)  # 1 - x
    rest, slope = majority_accuracy(n, z), majority_slope(n, z)  # 1 - P_n(x) and P_n'(x)
    at_one = np.divide(
        moments.variance, moments.both_wrong, out=np.zeros_like(x), where=moments.both_wrong > 0
    )
    c = (rest / z - slope) / z
    slope_at_one = 2.0 * rest / z - slope
    quadratic = _columns(1.0 - slope_at_one + c, slope_at_one - 2.0 * c, c)
    return (
        1.0 - (1.0 - at_one) * rest,
        _columns(x, x, 1.0),
        _columns(1.0 - at_one, 0.0, at_one),
        quadratic,
    )


def _triangle(n: int, moments: Moments, x0: Floats, x1: Floats) -> _Solved:
    """Distribution on {0, x*, 1}, the same quadratic for all such moments."""
    x = _special_points(n).triangle
    p = float(majority_accuracy(n, x))
    inner = moments.unsteady / (x * (1.0 - x))
    at_one, at_zero = moments.mu * (x0 - x) / (1.0 - x), moments.wrong * (x - x1) / x
    c = (p - x) / (x * (x - 1.0))
    value: Floats = moments.mu - inner * (x - p)
    return (
        value,
        _columns(np.zeros_like(x0), x, 1.0),
        _columns(at_zero, inner, at_one),
        _columns(0.0 * x0, 1.0 - c, c),
    )


def _pair_edge(n: int, moments: Moments, _x0: Floats, _x1: Floats) -> _Solved:
    """Distribution on {x, y}, where one quadratic touches P_n twice."""
    mu = moments.mu
    variance = np.maximum(
        moments.variance, np.maximum(1e-40 * mu * mu, 1e-300)
    )  # at 0 the distribution is a point; its limit has a dual
    below = _distance_below(n, mu, variance)
    above = variance / below
    x, y, width = np.maximum(mu - below, 0.0), mu + above, below + above
    slope = majority_slope(n, y)
    with np.errstate(divide="ignore"):  # x = 0
        change = -slope * np.expm1(n * np.log1p(-width * (1.0 - x - y) / (y * (1.0 - y))))
    c = np.divide(change, 2.0 * width)
    slope = majority_slope(n, x)
    p_x, p_y = majority_accuracy(n, x), majority_accuracy(n, y)
    # through both points, so that an error of the contact enters squared
    apart = width * n**0.5 > 0.5
    c = np.where(apart, (p_y - p_x - slope * width) / (width * width), c)
    b = slope - 2.0 * c * x
    weight_x, weight_y = above / width, below / width
    value = weight_x * p_x + weight_y * p_y
    return (
        value,
        _columns(x, y, y),
        _columns(weight_x, weight_y, 0.0),
        _columns(p_x - x * (b + c * x), b, c),
    )


def _distance_below(n: int, mu: Floats, variance: Floats) -> Floats:
    """Mu - x of the distribution on {x, y}: the root of `_double_contact`, by Newton's method on
    its logarithm in a bracket.

    x lies in (0, q-) and y in (q-, xo). Further roots outside are not edges of the hull.
    """
    points = _special_points(n)
    to_inflection = np.abs(points.inflection - mu)
    short = mu < points.inflection
    low = np.maximum(variance / (points.origin - mu), np.where(short, 0.0, to_inflection))
    reach = np.divide(
        variance, to_inflection, out=np.full_like(mu, np.inf), where=short & (to_inflection > 0)
    )
    high = np.minimum(mu, reach)
    low, high = np.log(low), np.log(np.maximum(high, low))
    at, active = 0.5 * (low + high), np.arange(len(mu))
    for _ in range(200):
        place = at[active]
        value, rise = _double_contact(n, mu[active], variance[active], np.exp(place))
        low[active] = np.where(value > 0, place, low[active])
        high[active] = np.where(value > 0, high[active], place)
        step = np.divide(-value, rise, out=np.full_like(place, np.inf), where=rise != 0)
        settled = (value == 0) | (np.abs(step) <= 4e-16 * (1.0 + np.abs(place)))
        after = place + step
        inside = (after > low[active]) & (after < high[active])
        at[active] = np.where(
            settled, place, np.where(inside, after, 0.5 * (low[active] + high[active]))
        )
        active = active[~settled & (high[active] - low[active] > 4e-16 * (1.0 + np.abs(place)))]
        if not len(active):
            break
    return np.exp(at)


def _double_contact(n: int, mu: Floats, variance: Floats, below: Floats) -> tuple[Floats, Floats]:
    """2 (P(y) - P(x)) - (y - x) (P'(x) + P'(y)) with x = mu - below, y = mu + variance / below; and
    d / d log(below).

    Falls from positive to negative as `below` grows. For close x and y the difference would cancel,
    so it is computed as -int_x^y (s - x) (y - s) P'''(s) ds (Peano's form of the trapezoidal rule's
    error).
    """
    above = variance / below
    x, y, width = np.maximum(mu - below, 0.0), mu + above, below + above
    p_x, p_y = majority_slope(n, x), majority_slope(n, y)
    value = 2.0 * (majority_accuracy(n, y) - majority_accuracy(n, x)) - width * (p_x + p_y)
    close = width * n**0.5 < 0.5
    if close.any():
        value[close] = _peano(n, x[close], width[close])
    by_x = p_y - p_x - width * majority_curvature(n, x)
    by_y = p_y - p_x - width * majority_curvature(n, y)
    return value, -below * by_x - above * by_y


def _peano(n: int, x: Floats, width: Floats) -> Floats:
    """-int_x^{x + width} (s - x) (x + width - s) P_n'''(s) ds, 16 Gauss nodes."""
    share, weights = gauss_legendre(16)
    s = x[:, None] + width[:, None] * share
    spread = s * (1.0 - s)
    third = majority_slope(n, s) * n * ((n - 1.0) * (1.0 - 2.0 * s) ** 2 - 2.0 * spread) / spread**2
    return -(width**3) * ((third * share * (1.0 - share)) @ weights)


def _infinite_upper(moments: Moments) -> Floats:
    """G of eq. (13), from the moments' exact differences."""
    mu, nu, wrong, variance = moments.mu, moments.nu, moments.wrong, moments.variance
    distance = 0.5 * (wrong - mu)  # 1/2 - mu
    fraction = np.divide(
        variance,
        variance + distance**2,
        out=np.full(mu.shape, 0.5),
        where=(variance > 0) | (distance != 0),
    )
    linear = np.minimum(1.0, mu + 2.0 * moments.unsteady)  # 3 mu - 2 nu
    return np.where((mu <= wrong) & (nu <= moments.unsteady), fraction, linear)

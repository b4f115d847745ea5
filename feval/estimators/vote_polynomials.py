"""P_n(q): how often a majority of 2n + 1 independent calls is right when each is right with
probability q.

    P_n(q) = Pr{Bin(2n + 1, q) >= n + 1} = I_q(n + 1, n + 1)    (arXiv 2605.03379, eq. (2))

Budgets are indexed by n: n = 0 is one call, 1 three votes, 2 five votes. Even budgets add nothing:
with fair ties 2n votes are as accurate as 2n - 1 (appendix A.1), that is P_{n-1}. Assumes
calls that are independent given the question, each right with probability q.

`UnitPolynomial` holds any polynomial on [0, 1] by its Bernstein coefficients, as exact fractions.
P_n has n + 1 zeros and then n + 1 ones. The coefficients give lower bounds that are proofs
(`least_distances`), unlike samples on a grid.

Proven distances on [0, 1] of a table of quadratics from one polynomial.

All entries of a table are halved together in 62-bit integers, since the numerators of fractions
would grow with every halving. A piece holds integers
x and a unit 2^-u such that every Bernstein coefficient of the difference on the piece is at least x
2^-u. Both steps preserve that:

1. The coefficients on [0, 1] are computed exactly, from the floats taken literally, and rounded
   down.
2. De Casteljau's means at 1/2 are rounded down. A mean never falls when one of its terms rises, so
   means of lower bounds are lower bounds. The error is at most half a unit in each of d steps;
   pieces near a contact have small coefficients and get a finer unit, so errors do not accumulate
   over the levels.

A polynomial lies above the least of its Bernstein coefficients, hence above the least x 2^-u.
Pieces that cannot hold the minimum are dropped, so a few remain around every contact. Feval's own;
assumes nothing about the calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import comb, lcm
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from feval.errors import OutOfRangeError
from feval.estimators.arrays import (
    Bools,
    Floats,
    Int64,
    Numbers,
    Result,
    Rows,
    checked_probabilities,
    is_whole,
)

LARGEST_BUDGET = 50_000
"""Largest n: 100,001 votes. Beyond it use the infinite-vote endpoint."""


def majority_accuracy(n: int, q: npt.ArrayLike) -> Floats:
    """P_n(q) = I_q(n + 1, n + 1), the accuracy of a majority of 2n + 1 votes (arXiv 2605.03379, eq.
    (2)).

    Args:
        n: index of the budget; 2n + 1 votes.
        q: [...] probabilities.

    Returns:
        [...] probabilities, to about 1e-15.

    Raises:
        OutOfRangeError: n outside 0..50,000, or a q outside [0, 1].
    """
    check_budget(n)
    result: Floats = scipy.special.betainc(n + 1.0, n + 1.0, checked_probabilities(q))
    return result


def budget_index(votes: int) -> int:
    """Return the n of an odd number of votes 2n + 1; OutOfRangeError for none or an even number,
    with the equivalent odd one.
    """
    if not is_whole(votes) or votes < 1:
        raise OutOfRangeError(
            f"A vote needs 1 call or more, a whole number; {votes!r} were asked for."
        )
    if votes % 2 == 0:
        raise OutOfRangeError(
            f"Majorities are indexed by odd budgets, and {votes} votes were asked for. With fair"
            f" ties they are exactly as accurate as {votes - 1}: ask for {votes - 1} votes, n ="
            f" {votes // 2 - 1}."
        )
    return (votes - 1) // 2


def majority_slope(n: int, q: Floats) -> Floats:
    """P_n'(q) = (2n + 1) C(2n, n) (q (1 - q))^n, with a relative error of about n x 1e-16; q is not
    checked.
    """
    u = 1.0 - 2.0 * q
    return _scale(n) * _power(u, n)


def majority_curvature(n: int, q: Floats) -> Floats:
    """P_n''(q) = n (1 - 2q) (2n + 1) C(2n, n) (q (1 - q))^(n - 1); q is not checked."""
    u = 1.0 - 2.0 * q
    if n == 0:
        return np.zeros_like(u)
    return 4.0 * n * _scale(n) * u * _power(u, n - 1)


def _power(u: Floats, n: int) -> Floats:
    """(1 - u^2)^n = (4 q (1 - q))^n, without losing digits where u is small."""
    if n == 0:
        return np.ones_like(u)
    with np.errstate(divide="ignore"):  # log 0 at q = 0 and 1, where the power is 0
        power: Floats = np.exp(n * np.log1p(-u * u))
    return power


@cache
def _scale(n: int) -> float:
    """(2n + 1) C(2n, n) / 4^n, rounded once."""
    return (2 * n + 1) * comb(2 * n, n) / (1 << 2 * n)


@dataclass(frozen=True)
class UnitPolynomial:
    """A polynomial on [0, 1], sum_l coefficients[l] C(d, l) q^l (1 - q)^(d - l), with exact
    Bernstein coefficients.

    Sums, differences and multiples are exact: `majority_polynomial(3) - majority_polynomial(1)` is
    the gain of seven votes over three.
    """

    coefficients: tuple[Fraction, ...]

    @property
    def degree(self) -> int:
        """d; the degree in powers of q may be lower."""
        return len(self.coefficients) - 1

    def elevated(self, degree: int) -> UnitPolynomial:
        """The same polynomial, written in a degree that is no lower."""
        raised = list(self.coefficients)
        for d in range(self.degree + 1, degree + 1):
            inner = [(raised[at - 1] * at + raised[at] * (d - at)) / d for at in range(1, d)]
            raised = [raised[0], *inner, raised[-1]]
        return UnitPolynomial(tuple(raised))

    def __add__(self, other: UnitPolynomial) -> UnitPolynomial:
        degree = max(self.degree, other.degree)
        pairs = zip(
            self.elevated(degree).coefficients, other.elevated(degree).coefficients, strict=True
        )
        return UnitPolynomial(tuple(a + b for a, b in pairs))

    def __mul__(self, factor: Any) -> UnitPolynomial:
        exact = Fraction(factor)
        return UnitPolynomial(tuple(exact * value for value in self.coefficients))

    __rmul__ = __mul__

    def __neg__(self) -> UnitPolynomial:
        return self * -1

    def __sub__(self, other: UnitPolynomial) -> UnitPolynomial:
        return self + -other

    def reflected(self) -> UnitPolynomial:
        """The polynomial of 1 - q."""
        return UnitPolynomial(self.coefficients[::-1])

    def derivative(self) -> UnitPolynomial:
        """Its derivative, of degree d - 1."""
        if not self.degree:
            return UnitPolynomial((Fraction(0),))
        c = self.coefficients
        return UnitPolynomial(tuple(self.degree * (b - a) for a, b in pairwise(c)))

    def __call__(self, q: npt.ArrayLike) -> Floats:
        """[...] values at [...] q in [0, 1], by de Casteljau's convex combinations, which avoid
        cancellation.
        """
        at = np.asarray(q, np.float64)
        rows = np.multiply.outer(np.array(self.coefficients, np.float64), np.ones_like(at))
        for _ in range(self.degree):
            rows = rows[:-1] + at * (rows[1:] - rows[:-1])
        result: Floats = rows[0].copy()
        return result


def majority_polynomial(n: int) -> UnitPolynomial:
    """P_n with exact coefficients: n + 1 zeros, then n + 1 ones.

    Args:
        n: index of the budget, 0 to 50,000.

    Returns:
        The polynomial, of degree 2n + 1.

    Raises:
        OutOfRangeError: an n out of range.
    """
    check_budget(n)
    return UnitPolynomial((Fraction(0),) * (n + 1) + (Fraction(1),) * (n + 1))


def check_budget(n: float) -> None:
    """Raise OutOfRangeError unless n is a whole number from 0 to 50,000."""
    if not is_whole(n) or not 0 <= n <= LARGEST_BUDGET:
        raise OutOfRangeError(
            f"A budget of 2n + 1 votes has a whole n from 0 to {LARGEST_BUDGET:,}; n = {n!r} was"
            " given. For more votes ask for the infinite-vote endpoint; budget_index(votes) gives"
            " the n of an odd number of votes."
        )


_BITS = 61  # of a coefficient: the sum of two fits 63
_LEVELS = 80
_BLOCK_NUMBERS = 1 << 20  # coefficients of pieces held at once, about ten pieces per entry
_FINEST_UNIT = 900  # 2^-900: finer ones would not fit a double


def least_distances(
    quadratic: Floats, polynomial: UnitPolynomial, sign: int, slack: float
) -> Floats:
    """[...] proven lower bounds of sign x (a + b q + c q^2 - g(q)) on [0, 1], one per entry of a
    table of quadratics [..., 3].

    They are within `slack` of the minimum, or more where coefficients exceed about 1e17 / d of it,
    or the minimum 1e15 of it.
    """
    flat = np.asarray(quadratic, np.float64).reshape(-1, 3)
    goal = polynomial.elevated(2)
    step = max(1, _BLOCK_NUMBERS // (10 * (goal.degree + 1)))
    least = np.empty(len(flat))
    for start in range(0, len(flat), step):
        pieces = _Pieces.from_quadratics(flat[start : start + step], goal, sign)
        least[start : start + step] = _enclosed(pieces, slack)
    return least.reshape(np.shape(quadratic)[:-1])


class _Pieces(Result):
    """P pieces of [0, 1], each for one entry.

    Attributes:
        bounds: [d + 1, P] integers below the Bernstein coefficients on the piece, in its unit.
        unit: [P] u; the unit is 2^-u.
        error: [P] units by which a coefficient may exceed its bound.
        entry: [P] the piece's entry.
    """

    bounds: Int64
    unit: Int64
    error: Floats
    entry: Rows

    @classmethod
    def from_quadratics(cls, quadratic: Floats, goal: UnitPolynomial, sign: int) -> _Pieces:
        """Start with [0, 1] for every entry."""
        numerator, denominator = _exact(quadratic, goal, sign)
        largest = np.abs(numerator).max(axis=0)
        room = np.frompyfunc(
            lambda top, unit: _BITS - 1 - top.bit_length() + unit.bit_length(), 2, 1
        )
        unit = np.minimum(room(largest, denominator), _FINEST_UNIT)
        up, down = np.maximum(unit, 0), np.maximum(-unit, 0)
        bounds = ((numerator << up) // (denominator << down)).astype(np.int64)
        entries = len(quadratic)
        return cls(bounds, unit.astype(np.int64), np.ones(entries), np.arange(entries))

    def halved(self, going: Bools) -> _Pieces:
        """The left halves and the right halves of some pieces, in units as fine as their
        coefficients allow (de Casteljau's triangle at 1/2).
        """
        rows = self.bounds[:, going]
        degree, pieces = len(rows) - 1, rows.shape[1]
        bounds = np.empty((degree + 1, 2 * pieces), np.int64)
        for level in range(degree + 1):
            bounds[level, :pieces], bounds[degree - level, pieces:] = rows[0], rows[-1]
            rows = rows[:-1] + rows[1:]
            rows >>= 1
        unit, error = np.tile(self.unit[going], 2), np.tile(self.error[going], 2)
        size = np.frexp(np.abs(bounds).max(axis=0).astype(np.float64))[1].astype(np.int64)
        finer = np.clip(_BITS - size, 0, _FINEST_UNIT - unit)
        error = np.ldexp(error + 0.5 * degree, finer)
        return _Pieces(bounds << finer, unit + finer, error, np.tile(self.entry[going], 2))


def _exact(quadratic: Floats, goal: UnitPolynomial, sign: int) -> tuple[Numbers, Numbers]:
    """[d + 1, T] numerators and [T] denominators of the Bernstein coefficients of the
    difference.
    """
    degree = goal.degree
    common = lcm(degree * (degree - 1), *(value.denominator for value in goal.coefficients))
    mantissa, exponent = np.frexp(quadratic.T)
    scale = np.minimum(exponent.min(axis=0) - 53, 0).astype(object)
    a, b, c = np.ldexp(mantissa, 53).astype(np.int64).astype(object) << (
        exponent.astype(object) - 53 - scale
    )
    k = np.arange(degree + 1).astype(object)[:, None]
    heights = np.array([int(value * common) for value in goal.coefficients], object)[:, None]
    slopes = k * (common // degree)
    bends = k * (k - 1) * (common // (degree * (degree - 1)))
    ones = np.full(len(quadratic), 1, object) << -scale
    return sign * (a * common + b * slopes + c * bends - heights * ones), ones * common


def _enclosed(pieces: _Pieces, slack: float) -> Floats:
    """[T] lower bounds, one for each entry."""
    entries = len(pieces.entry)
    attained, least = np.full(entries, np.inf), np.full(entries, np.inf)
    for level in range(_LEVELS + 1):
        least_bound = pieces.bounds.min(axis=0).astype(np.float64)
        lowest = np.nextafter(np.ldexp(least_bound, -pieces.unit), -np.inf)
        ends = np.minimum(pieces.bounds[0], pieces.bounds[-1]) + pieces.error
        np.minimum.at(attained, pieces.entry, np.nextafter(np.ldexp(ends, -pieces.unit), np.inf))
        rounding = np.maximum(np.ldexp(pieces.error, -pieces.unit), np.spacing(np.abs(lowest)))
        enough = np.maximum(slack, 4.0 * rounding)
        done = (lowest >= attained[pieces.entry] - enough) | (level == _LEVELS)
        np.minimum.at(least, pieces.entry[done], lowest[done])
        if done.all():
            break
        pieces = pieces.halved(~done)
    return least

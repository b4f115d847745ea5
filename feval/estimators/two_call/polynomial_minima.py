"""Proven distances on [0, 1] of a table of quadratics from one polynomial.

`vote_polynomials.least_value` encloses one minimum in fractions, whose numerators grow with every
halving. Here all entries of a table are halved together in 62-bit integers. A piece holds integers
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
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.estimators.arrays import Bools, Floats, Int64
from feval.estimators.vote_polynomials import UnitPolynomial

Whole = npt.NDArray[Any]  # Python's integers, of any size

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
        pieces = _Pieces.of(flat[start : start + step], goal, sign)
        least[start : start + step] = _enclosed(pieces, slack)
    return least.reshape(np.shape(quadratic)[:-1])


@dataclass(frozen=True, eq=False)
class _Pieces:
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
    entry: npt.NDArray[np.intp]

    @classmethod
    def of(cls, quadratic: Floats, goal: UnitPolynomial, sign: int) -> _Pieces:
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

    @property
    def lowest(self) -> Floats:
        """[P] lower bound of the difference on the piece."""
        below: Floats = np.nextafter(
            np.ldexp(self.bounds.min(axis=0).astype(np.float64), -self.unit), -np.inf
        )
        return below

    @property
    def reached(self) -> Floats:
        """[P] upper bound of the difference at an end of the piece."""
        ends = np.minimum(self.bounds[0], self.bounds[-1]) + self.error
        above: Floats = np.nextafter(np.ldexp(ends, -self.unit), np.inf)
        return above

    def take(self, which: Bools) -> _Pieces:
        """Select pieces."""
        return _Pieces(
            self.bounds[:, which], self.unit[which], self.error[which], self.entry[which]
        )

    def halved(self) -> _Pieces:
        """The left halves and the right halves, in units as fine as their coefficients allow (de
        Casteljau's triangle at 1/2).
        """
        degree, pieces = len(self.bounds) - 1, self.bounds.shape[1]
        bounds, rows = np.empty((degree + 1, 2 * pieces), np.int64), self.bounds
        for level in range(degree + 1):
            bounds[level, :pieces], bounds[degree - level, pieces:] = rows[0], rows[-1]
            rows = rows[:-1] + rows[1:]
            rows >>= 1
        unit, error = np.tile(self.unit, 2), np.tile(self.error + 0.5 * degree, 2)
        size = np.frexp(np.abs(bounds).max(axis=0).astype(np.float64))[1].astype(np.int64)
        finer = np.clip(_BITS - size, 0, _FINEST_UNIT - unit)
        return _Pieces(
            bounds << finer, unit + finer, np.ldexp(error, finer), np.tile(self.entry, 2)
        )


def _exact(quadratic: Floats, goal: UnitPolynomial, sign: int) -> tuple[Whole, Whole]:
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
        lowest = pieces.lowest
        np.minimum.at(attained, pieces.entry, pieces.reached)
        rounding = np.maximum(np.ldexp(pieces.error, -pieces.unit), np.spacing(np.abs(lowest)))
        enough = np.maximum(slack, 4.0 * rounding)
        done = (lowest >= attained[pieces.entry] - enough) | (level == _LEVELS)
        np.minimum.at(least, pieces.entry[done], lowest[done])
        if done.all():
            break
        pieces = pieces.take(~done).halved()
    return least

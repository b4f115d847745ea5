"""Bounds on vote accuracies that carry their own proof: a law that attains them and a quadratic that nothing can pass.

By Theorem 4.1 of arXiv 2605.03379 the largest E g(Q) over all laws with moments (mu, nu) equals the least a + b mu + c nu with
a + b q + c q^2 >= g(q) on [0, 1]. A `QuadraticBound` holds both sides: the law (at most three atoms) shows that the value is
reached, the quadratic that it is not exceeded. Whoever doubts how they were found need not care: `check` looks at the moments, at
the gap, and at the inequality on all of [0, 1], through its critical points or, for other polynomials than P_n, in integers
that are rounded down; `proven_margin` does the last for one entry in exact fractions, for any objective.

A quadratic that touches g exactly would, once its coefficients are rounded to floats, cross it by some 1e-15. So a is moved
outwards by more than all rounding (`ROOM`, some 2e-13): the floats of `quadratic`, taken literally, satisfy the inequality on all
of [0, 1] with room to spare, and `proven` is what they prove.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from feval.estimators.two_call.moments import Moments
from feval.estimators.two_call.polynomial_minima import least_distances
from feval.estimators.vote_polynomials import (
    UnitPolynomial,
    least_value,
    majority_accuracy,
    majority_curvature,
    majority_polynomial,
    majority_slope,
)

__all__ = ["ROOM", "CertificateCheck", "QuadraticBound"]

Floats = npt.NDArray[np.float64]

ROOM = 2e-13
"""By how much at least a quadratic is moved away from g, in units of g's largest coefficient (1 for P_n)."""

_SLACK = 1e-13  # by how much a proven margin may fall short, in the same units
_BISECTIONS = 60  # from width 1 to below the spacing of doubles


@dataclass(frozen=True, eq=False)
class CertificateCheck:
    """What a check of bounds found: 0, `ROOM` and not negative, to rounding.

    Attributes:
        moment_error: [...] largest difference of the law's total, mean and second moment from 1, mu and nu, or by which a weight
            is negative or an atom outside [0, 1].
        gap: [...] largest difference between the value, the law's E g(Q) and the quadratic's a + b mu + c nu.
        dual_margin: [...] least distance of the quadratic from g on [0, 1], negative where it is on the wrong side.
    """

    moment_error: Floats
    gap: Floats
    dual_margin: Floats

    def holds(self, tolerance: float = 1e-11) -> bool:
        """Whether every certificate of the table is in order.

        Args:
            tolerance: what rounding may amount to.
        """
        errors = np.maximum(np.maximum(self.moment_error, self.gap), -self.dual_margin)
        return bool((errors <= tolerance).all())


@dataclass(frozen=True, eq=False)
class QuadraticBound:
    """Sharp bounds on E g(Q) over the laws with given moments, with certificates.

    Attributes:
        side: "lower" or "upper".
        objective: g as the n of P_n, or as a polynomial.
        moments: the table of (mu, nu).
        value: [...] the bound.
        atoms: [..., 3] the support of an extremal law, ascending; unused places repeat an atom with weight 0.
        weights: [..., 3] its probabilities.
        quadratic: [..., 3] a, b, c: on all of [0, 1] on its side of g, by the literal value of these floats. (b, c) is also the
            gradient of the bound in (mu, nu).
    """

    side: Literal["lower", "upper"]
    objective: int | UnitPolynomial
    moments: Moments
    value: Floats
    atoms: Floats
    weights: Floats
    quadratic: Floats

    @property
    def proven(self) -> Floats:
        """[...] a + b mu + c nu, rounded outwards: no law with these floats as moments passes it, by Theorem 4.1's duality.

        It lies outside `value`, the sharp end to rounding, by less than 1e-12 up to 1,001 votes.
        """
        a, b, c = np.moveaxis(self.quadratic, -1, 0)
        allowed = a + b * self.moments.mu + c * self.moments.nu
        rounding = 4.0 * np.finfo(np.float64).eps * (np.abs(a) + np.abs(b) + np.abs(c))
        proven: Floats = allowed + rounding if self.side == "upper" else allowed - rounding
        return proven

    def law(self, index: int | tuple[int, ...] = ()) -> tuple[Floats, Floats]:
        """Atoms and weights of one extremal law, without places of weight 0.

        Args:
            index: which entry of the table.
        """
        used = self.weights[index] > 0
        return self.atoms[index][used], self.weights[index][used]

    def check(self) -> CertificateCheck:
        """Check every certificate from the definition, whatever found it.

        The inequality is checked on all of [0, 1]. For P_n: P_n''' vanishes only at (1 -+ 1/sqrt(2n - 1)) / 2, so the second
        derivative of quadratic minus P_n is monotone on three intervals and has one root at most in each; between those roots
        the first derivative is monotone and has one root at most; the least value is at one of these or at 0 or 1, and all of
        them are found by bisection. For other polynomials: `least_distances`, in integers that are rounded down, so that the
        margin is a proof as `proven_margin` is.
        """
        reached = (self.weights * self._objective(self.atoms)).sum(-1)
        a, b, c = np.moveaxis(self.quadratic, -1, 0)
        target = np.stack([np.ones(self.moments.shape), self.moments.mu, self.moments.nu], -1)
        powers = self.atoms[..., None, :] ** np.arange(3)[:, None]
        moment_error = np.abs((powers * self.weights[..., None, :]).sum(-1) - target).max(-1)
        for excess in (-self.weights, -self.atoms, self.atoms - 1.0):
            moment_error = np.maximum(moment_error, excess.max(-1))
        allowed = a + b * self.moments.mu + c * self.moments.nu
        gap = np.maximum(np.abs(reached - self.value), np.abs(allowed - self.value))
        return CertificateCheck(moment_error, gap, self._dual_margin())

    def proven_margin(self, index: int | tuple[int, ...] = (), slack: float = 1e-13) -> Fraction:
        """A number below which quadratic minus g (g minus quadratic for a lower bound) provably does not fall on [0, 1].

        Exact arithmetic throughout, from the floats of `quadratic` taken literally: a + b mu + c nu minus this number is a bound
        without any rounding to argue away. Some milliseconds at n = 2, about a second at n = 50.

        Args:
            index: which entry of the table.
            slack: how close to the true minimum.

        Returns:
            The number, at most `slack` below the minimum.

        Raises:
            OutOfRangeError: the slack was not reached.
        """
        objective = majority_polynomial(self.objective) if isinstance(self.objective, int) else self.objective
        residual = UnitPolynomial.of_powers(self.quadratic[index].tolist()) - objective
        return least_value(residual if self.side == "upper" else -residual, slack)

    def _objective(self, q: Floats) -> Floats:
        if isinstance(self.objective, int):
            return majority_accuracy(self.objective, q)
        return self.objective(q)

    def _dual_margin(self) -> Floats:
        if isinstance(self.objective, int):
            return _least_distance(self.objective, self.quadratic, 1.0 if self.side == "upper" else -1.0)
        scale = float(max(abs(value) for value in self.objective.coefficients))
        return least_distances(self.quadratic, self.objective, 1 if self.side == "upper" else -1, _SLACK * scale)


def _least_distance(n: int, quadratic: Floats, sign: float) -> Floats:
    """[...] least of sign x (a + b q + c q^2 - P_n(q)) on [0, 1]."""
    a, b, c = np.moveaxis(quadratic[..., None], -2, 0)

    def slope(q: Floats) -> Floats:
        out: Floats = b + 2.0 * c * q - majority_slope(n, q)
        return out

    def curvature(q: Floats) -> Floats:
        out: Floats = 2.0 * c - majority_curvature(n, q)
        return out

    inflections = [0.5 - 0.5 / (2 * n - 1) ** 0.5, 0.5 + 0.5 / (2 * n - 1) ** 0.5] if n >= 2 else []
    ends = np.broadcast_to(np.array([0.0, *inflections, 1.0]), (*quadratic.shape[:-1], len(inflections) + 2))
    bends = _with_ends(_bisect(curvature, ends[..., :-1], ends[..., 1:]))
    critical = _with_ends(_bisect(slope, bends[..., :-1], bends[..., 1:]))
    places = np.concatenate([bends, critical], -1)
    residual = sign * (a + places * (b + places * c) - majority_accuracy(n, places))
    return np.asarray(residual.min(-1))


def _with_ends(places: Floats) -> Floats:
    edge = np.zeros((*places.shape[:-1], 1))
    return np.concatenate([edge, places, edge + 1.0], -1)


def _bisect(function: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """[...] the root of a monotone function in each interval, or the end next to which it would lie."""
    low, high = low.copy(), high.copy()
    rising = function(high) >= function(low)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        below = (function(middle) < 0) == rising
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)

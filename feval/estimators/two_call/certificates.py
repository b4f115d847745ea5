"""Bounds on vote accuracies with their proof: a distribution that attains the bound and a quadratic
that nothing exceeds.

By Theorem 4.1 of arXiv 2605.03379 the largest E g(Q) over all distributions with moments (mu, nu)
equals the least a + b mu + c nu with a + b q + c q^2 >= g(q) on [0, 1]. A `QuadraticBound` holds
both sides: the distribution (at most three atoms) attains the value, and the quadratic proves that
nothing exceeds it, however they were found. `check` verifies the moments, the gap, and the
inequality on all of [0, 1], at its critical points or, for polynomials other than P_n, in integers
that are rounded down; `proven_margin` does the last for one entry in exact fractions, for any
objective.

A quadratic that touches g exactly would cross it by about 1e-15 once its coefficients are rounded
to floats. So a is moved outwards by more than all rounding (`ROOM`, about 2e-13): the floats of
`quadratic`, taken literally, satisfy the inequality on all of [0, 1], and `proven` is what they
prove.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from feval.estimators.arrays import Floats
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

ROOM = 2e-13
"""Least distance of a quadratic from g, in units of g's largest coefficient (1 for P_n)."""

_SLACK = 1e-13  # slack of a proven margin, in the same units
_BISECTIONS = 60  # from width 1 to below the spacing of doubles


@dataclass(frozen=True, eq=False)
class CertificateCheck:
    """Errors of certificates.

    Attributes:
        moment_error: [...] largest error of the distribution's total, mean and second moment, or by
            which a weight is negative or an atom outside [0, 1].
        gap: [...] largest difference between the value, the distribution's E g(Q) and the
            quadratic's a + b mu + c nu.
        dual_margin: [...] least distance of the quadratic from g on [0, 1], negative on the wrong
            side.
    """

    moment_error: Floats
    gap: Floats
    dual_margin: Floats

    def holds(self, tolerance: float = 1e-11) -> bool:
        """Whether every certificate of the table is valid up to rounding."""
        errors = np.maximum(np.maximum(self.moment_error, self.gap), -self.dual_margin)
        return bool((errors <= tolerance).all())


@dataclass(frozen=True, eq=False)
class QuadraticBound:
    """Sharp bounds on E g(Q) over the distributions with given moments, with certificates.

    Attributes:
        side: "lower" or "upper".
        objective: g as the n of P_n, or as a polynomial.
        moments, value: [...] the table of (mu, nu), and the bounds.
        atoms, weights: [..., 3] support of an extremal distribution, ascending, and its
            probabilities; unused places repeat an atom with weight 0.
        quadratic: [..., 3] a, b, c: on its side of g on all of [0, 1], for these floats taken
            literally. (b, c) is also the gradient of the bound in (mu, nu).
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
        """[...] a + b mu + c nu, rounded outwards: no distribution with these floats as moments
        exceeds it.

        It is outside `value`, the sharp end up to rounding, by less than 1e-12 up to 1,001 votes.
        """
        a, b, c = np.moveaxis(self.quadratic, -1, 0)
        allowed = a + b * self.moments.mu + c * self.moments.nu
        rounding = 4.0 * np.finfo(np.float64).eps * (np.abs(a) + np.abs(b) + np.abs(c))
        proven: Floats = allowed + rounding if self.side == "upper" else allowed - rounding
        return proven

    def law(self, index: int | tuple[int, ...] = ()) -> tuple[Floats, Floats]:
        """Atoms and weights of one extremal distribution, without weights of 0, at an index of the
        table.
        """
        used = self.weights[index] > 0
        return self.atoms[index][used], self.weights[index][used]

    def check(self) -> CertificateCheck:
        """Check every certificate from its definition.

        The inequality is checked on all of [0, 1]. For P_n: P_n''' vanishes only at (1 -+ 1/sqrt(2n
        - 1)) / 2, so the second derivative of quadratic minus P_n is monotone on three intervals
          and has one root at most in each; between those roots
        the first derivative is monotone and has one root at most; the least value is at one of
        these or at 0 or 1. Bisection finds them all. Other polynomials use `least_distances`, whose
        margin is a proof.
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
        """A proven lower bound of quadratic minus g (g minus quadratic for a lower bound) on [0,
        1], within `slack` of the least.

        a + b mu + c nu minus this number is a bound without rounding. Takes milliseconds at n = 2,
        about a second at n = 50. OutOfRangeError if the slack was not reached.
        """
        objective = (
            majority_polynomial(self.objective)
            if isinstance(self.objective, int)
            else self.objective
        )
        residual = UnitPolynomial.of_powers(self.quadratic[index].tolist()) - objective
        return least_value(residual if self.side == "upper" else -residual, slack)

    def _objective(self, q: Floats) -> Floats:
        if isinstance(self.objective, int):
            return majority_accuracy(self.objective, q)
        return self.objective(q)

    def _dual_margin(self) -> Floats:
        if isinstance(self.objective, int):
            return _least_distance(
                self.objective, self.quadratic, 1.0 if self.side == "upper" else -1.0
            )
        scale = float(max(abs(value) for value in self.objective.coefficients))
        return least_distances(
            self.quadratic, self.objective, 1 if self.side == "upper" else -1, _SLACK * scale
        )


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
    ends = np.broadcast_to(
        np.array([0.0, *inflections, 1.0]), (*quadratic.shape[:-1], len(inflections) + 2)
    )
    bends = _with_ends(_bisect(curvature, ends[..., :-1], ends[..., 1:]))
    critical = _with_ends(_bisect(slope, bends[..., :-1], bends[..., 1:]))
    places = np.concatenate([bends, critical], -1)
    residual = sign * (a + places * (b + places * c) - majority_accuracy(n, places))
    return np.asarray(residual.min(-1))


def _with_ends(places: Floats) -> Floats:
    edge = np.zeros((*places.shape[:-1], 1))
    return np.concatenate([edge, places, edge + 1.0], -1)


def _bisect(function: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """[...] the root of a monotone function in each interval, or the nearer end."""
    low, high = low.copy(), high.copy()
    rising = function(high) >= function(low)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        below = (function(middle) < 0) == rising
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)

"""Two moments of the accuracy of single calls, which two labelled calls per question estimate.

Let Q be the probability that a call on a random question is right. Then mu = E Q is one-call
accuracy, nu = E Q^2 the probability that two calls on one question are both right, and rho = (nu -
mu^2) / (mu (1 - mu)) their correlation (arXiv 2605.03379, section 3). A distribution of Q exists
exactly if 0 <= mu <= 1 and mu^2 <= nu <= mu (Proposition 3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Bools, Floats
from feval.estimators.checks import at_index, broadcast, checked_probabilities
from feval.estimators.missing import Texts, missing_reasons

NO_CORRELATION = "All calls are right, or all are wrong, so their correlation rho is undefined."
"""Why a correlation is NaN."""

# of mu x mu and of decimal inputs: 0.7 x 0.7 is not 0.49
_ROUNDING = 8 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Moments:
    """A table of feasible (mu, nu), with differences that would lose digits if computed from
    floats.

    Make it with `of`, `from_correlation` or `PairTable.moments`.

    Attributes:
        mu: [...] E Q.
        nu: [...] E Q^2, probability that two calls are both right.
        wrong: [...] 1 - mu.
        both_wrong: [...] 1 - 2 mu + nu.
        unsteady: [...] mu - nu = E Q (1 - Q), half the probability that two calls disagree.
        variance: [...] nu - mu^2.
    """

    mu: Floats
    nu: Floats
    wrong: Floats
    both_wrong: Floats
    unsteady: Floats
    variance: Floats

    @classmethod
    def of(cls, mu: npt.ArrayLike, nu: npt.ArrayLike) -> Moments:
        """Make it from mu and nu.

        Floats count as rounded: values within about 1e-15 of the boundary are on it. Fractions
        (scalars or object arrays) are exact.

        Args:
            mu: [...] E Q.
            nu: [...] E Q^2; broadcast against mu.

        Raises:
            OutOfRangeError: a pair that no distribution has, with its index and values.
        """
        exact = _exact(mu, nu)
        first, second = broadcast(mu=mu, nu=nu)
        one: Any = 1
        if exact:
            first, second = (_each(Fraction, values) for values in (first, second))
        else:
            first, second = checked_probabilities(first, "mu"), checked_probabilities(second, "nu")
        unsteady, variance = first - second, second - first * first
        _require_feasible(first, second, unsteady, variance, 0 if exact else _ROUNDING)
        if not exact:
            variance = np.where(np.abs(variance) <= _ROUNDING * first, 0.0, variance)
            unsteady = np.where(np.abs(unsteady) <= _ROUNDING * first, 0.0, unsteady)
        wrong = one - first
        parts: tuple[Any, ...] = (
            first,
            second,
            wrong,
            wrong * wrong + variance,
            unsteady,
            variance,
        )
        if exact:
            parts = tuple(_each(float, part).astype(np.float64) for part in parts)
        return cls(*(np.maximum(part, 0.0) for part in parts))

    @classmethod
    def from_correlation(cls, mu: npt.ArrayLike, rho: npt.ArrayLike) -> Moments:
        """Make it from mu and rho: nu = mu^2 + rho mu (1 - mu), without cancellation near rho = 0
        and rho = 1.

        Args:
            mu: [...] in [0, 1].
            rho: [...] in [0, 1]; broadcast against mu; ignored where mu is 0 or 1.

        Raises:
            OutOfRangeError: a value outside [0, 1], with its index.
        """
        if _exact(mu, rho):
            first, second = (_each(Fraction, np.asarray(values)) for values in (mu, rho))
            return cls.of(first, first * first + second * first * (1 - first))
        first, second = broadcast(
            mu=checked_probabilities(mu, "mu"), rho=checked_probabilities(rho, "rho")
        )
        wrong = 1.0 - first
        spread = first * wrong
        unsteady = spread * (1.0 - second)
        nu, both_wrong = first * (first + wrong * second), wrong * (wrong + first * second)
        return cls(first, nu, wrong, both_wrong, unsteady, spread * second)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table."""
        return self.mu.shape

    @property
    def rho(self) -> Floats:
        """[...] correlation of two calls on one question; NaN where mu is 0 or 1."""
        spread = self.mu * self.wrong
        rho: Floats = np.divide(
            self.variance, spread, out=np.full(self.shape, np.nan), where=spread > 0
        )
        return rho

    @property
    def reasons(self) -> Texts:
        """[...] why rho is NaN, or ""."""
        return missing_reasons((self.mu * self.wrong <= 0, NO_CORRELATION))

    def reflected(self, where: Bools | bool = True) -> Moments:
        """The moments of 1 - Q (right and wrong exchanged), for the entries [...] to change."""
        other = self.wrong, self.both_wrong, self.mu, self.nu, self.unsteady, self.variance
        return Moments(*(np.where(where, *pair) for pair in zip(other, self._parts(), strict=True)))

    def take(self, index: Any) -> Moments:
        """Select entries of the table, by an index as for an array."""
        return Moments(*(np.asarray(part[index]) for part in self._parts()))

    def flat(self) -> Moments:
        """The table in one row."""
        return Moments(*(part.ravel() for part in self._parts()))

    def _parts(self) -> tuple[Floats, ...]:
        return self.mu, self.nu, self.wrong, self.both_wrong, self.unsteady, self.variance


def _exact(*values: Any) -> bool:
    """Whether the values are fractions and integers, with at least one fraction."""
    try:
        kinds = [np.asarray(value).dtype.kind for value in values]
    except ValueError:  # ragged rows, which `broadcast` refuses
        return False
    return "O" in kinds and all(kind in "Oiu" for kind in kinds)


def _each(kind: Callable[[Any], Any], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    out = np.empty(np.shape(values), object)  # NumPy keeps fractions as Python objects
    for index, value in np.ndenumerate(values):
        try:
            out[index] = kind(value.item() if isinstance(value, np.generic) else value)
        except (TypeError, ValueError) as error:
            raise OutOfRangeError(
                f"Moments are numbers; {value!r} was found{at_index(index)}."
            ) from error
    return out


def _require_feasible(
    mu: npt.NDArray[Any],
    nu: npt.NDArray[Any],
    unsteady: npt.NDArray[Any],
    variance: npt.NDArray[Any],
    room: float,
) -> None:
    for wrong, what in (
        ((mu < 0) | (mu > 1), "mu outside [0, 1]"),
        (variance < -room * mu, "nu < mu^2, a negative variance"),
        (unsteady < -room * mu, "nu > mu, though Q^2 <= Q on [0, 1]"),
    ):
        if np.any(wrong):
            at = tuple(np.argwhere(wrong)[0].tolist())
            raise OutOfRangeError(
                f"No distribution on [0, 1] has mu = {float(mu[at])!r} and nu ="
                f" {float(nu[at])!r}{at_index(at)}: {what}. Sample moments can fall outside by"
                " chance; then use a confidence region of the pair table (wald_projection)."
            )

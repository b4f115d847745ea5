"""Moments and budgets on which the two-call estimators are tested."""

from fractions import Fraction
from math import comb

import numpy as np
from hypothesis import strategies as st

from feval.estimators.moments import Moments
from feval.estimators.vote_polynomials import UnitPolynomial

PROBABILITY = st.floats(0.0, 1.0)
BUDGETS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 10, 25, 50, 100, 500])


def table_of_moments(count=400, seed=0):
    """Random moments, with the ends of rho and mu and both neighbourhoods of them."""
    rng = np.random.default_rng(seed)
    mu = [*rng.random(count), 0.0, 0.0, 1.0, 1.0, *np.repeat([0.5, 0.3, 0.97], 6)]
    rho = [
        *rng.beta(0.4, 0.4, count),
        0.0,
        1.0,
        0.0,
        1.0,
        *np.tile([0.0, 1e-14, 1e-6, 1 - 1e-6, 1 - 1e-14, 1.0], 3),
    ]
    return Moments.from_correlation(mu, rho)


def of_powers(coefficients):
    """The polynomial sum_k coefficients[k] q^k."""
    degree = len(coefficients) - 1
    return UnitPolynomial(
        tuple(
            sum(
                Fraction(c) * comb(at, k) / comb(degree, k)
                for k, c in enumerate(coefficients[: at + 1])
            )
            for at in range(degree + 1)
        )
    )

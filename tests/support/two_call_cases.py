"""Moments and budgets on which the two-call estimators are tested."""

import numpy as np
from hypothesis import strategies as st

from feval.estimators.moments import Moments

PROBABILITY = st.floats(0.0, 1.0)
BUDGETS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 10, 25, 50, 100, 500])


def from_correlation(mu, rho):
    """The moments nu = mu^2 + rho mu (1 - mu), without cancellation at either end of rho."""
    mu, rho = np.broadcast_arrays(np.asarray(mu, np.float64), np.asarray(rho, np.float64))
    wrong = 1.0 - mu
    spread = mu * wrong
    nu, both_wrong = mu * (mu + wrong * rho), wrong * (wrong + mu * rho)
    return Moments(mu, nu, wrong, both_wrong, spread * (1.0 - rho), spread * rho)


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
    return from_correlation(mu, rho)

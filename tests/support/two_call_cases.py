"""Moments and budgets on which the two-call estimators are tested."""

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

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


def range_of_means(function, mu, nu):
    """Least and greatest mean of a function of Q over the laws with two moments, by linear programs
    over laws on a grid, which grows finer around the atoms that they find.
    """
    found = []
    for sign in (1, -1):
        grid, width = np.linspace(0, 1, 2001), 1e-3
        for _ in range(3):
            powers = grid ** np.arange(3)[:, None]
            costs = 1e4 * sign * function(grid)  # the solver's tolerance is absolute
            program = linprog(costs, A_eq=powers, b_eq=[1.0, mu, nu])
            near = grid[program.x > 1e-9, None] + np.linspace(-width, width, 201)
            grid, width = np.unique(np.clip([*near.ravel(), 0.0, 1.0], 0, 1)), width / 50
        found.append(sign * float(program.fun) / 1e4)
    return tuple(found)

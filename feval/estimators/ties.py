"""Tie rules: the gold answer's credit when it shares the lead with t rivals.

    uniform     1 / (t + 1)    a random leader wins, as eq. (3) of the voting papers leaves it; the
    default strict      0              a tie is lost: every rival must have fewer votes, eq. (7) of
                               "Compute-efficient evaluation of LLM voting accuracy"
    lenient     1              a tie is won: what `argmax` does when the gold answer is listed first

All three are linear functionals of polynomials in a variable y that marks each rival in the tie:
int_0^1 y^t dy = 1 / (t + 1), y = 0 and y = 1. So each is a sum over a few nodes. Assumes nothing
about the calls.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from feval.errors import UnknownNameError
from feval.estimators.arrays import Floats

TIES = ("uniform", "strict", "lenient")
"""The tie rules by name."""


def check_ties(ties: str) -> None:
    """Raise UnknownNameError unless the name is one of `TIES`."""
    if ties not in TIES:
        raise UnknownNameError.of("rule for ties", str(ties), TIES)


def tie_nodes(rivals: int, ties: str = "uniform") -> tuple[Floats, Floats]:
    """Quadrature nodes and weights for the credit of a tie with up to so many rivals, the degree of
    the polynomial in y.

    floor(rivals / 2) + 1 of them for uniform ties (Gauss-Legendre), one otherwise; exact.
    """
    check_ties(ties)
    if ties == "uniform":
        return _gauss_legendre(rivals // 2 + 1)
    return np.array([float(ties == "lenient")]), np.ones(1)


@cache
def _gauss_legendre(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights on [0, 1], exact to degree 2 count - 1 (Golub and Welsch 1969: eigenvalues
    of the Jacobi matrix).
    """
    i = np.arange(1, count)
    off_diagonal = i / np.sqrt(4.0 * i * i - 1.0)
    nodes, vectors = np.linalg.eigh(np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    return (nodes + 1.0) / 2.0, vectors[0] ** 2

"""P_n(q): how often a majority of 2n + 1 independent calls is right when each is right with
probability q.

    P_n(q) = Pr{Bin(2n + 1, q) >= n + 1} = I_q(n + 1, n + 1)    (arXiv 2605.03379, eq. (2))

Budgets are indexed by n: n = 0 is one call, 1 three votes, 2 five votes. Even budgets add nothing:
with fair ties 2n votes are as accurate as 2n - 1 (appendix A.1), that is P_{n-1}. Assumes
calls that are independent given the question, each right with probability q.
"""

from __future__ import annotations

from functools import cache
from math import comb

import numpy as np
import numpy.typing as npt
import scipy

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, checked_probabilities, is_whole

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


def even_vote_accuracy(votes: int, q: npt.ArrayLike) -> Floats:
    """Accuracy of 2n votes with fair ties: P_{n-1}(q), that of one vote fewer (arXiv 2605.03379,
    appendix A.1).

    Args:
        votes: an even number, 2 or more.
        q: [...] probability that a call is right.

    Returns:
        [...] probabilities.

    Raises:
        OutOfRangeError: an odd number of votes or none, or a q outside [0, 1].
    """
    if votes < 2 or votes % 2:
        raise OutOfRangeError(
            f"Fair ties matter for an even number of votes, 2 or more; {votes} were given. For 2n +"
            " 1 votes take majority_accuracy(n, q)."
        )
    return majority_accuracy(votes // 2 - 1, q)


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


def check_budget(n: float) -> None:
    """Raise OutOfRangeError unless n is a whole number from 0 to 50,000."""
    if not is_whole(n) or not 0 <= n <= LARGEST_BUDGET:
        raise OutOfRangeError(
            f"A budget of 2n + 1 votes has a whole n from 0 to {LARGEST_BUDGET:,}; n = {n!r} was"
            " given. For more votes ask for the infinite-vote endpoint; budget_index(votes) gives"
            " the n of an odd number of votes."
        )

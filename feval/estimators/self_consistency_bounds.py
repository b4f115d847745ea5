"""Bounds on the error of an estimated self-consistency error, and how to split a budget between
questions and calls.

Theorem 1 of R. Nowak, Estimating the Self-Consistency of LLMs (arXiv 2509.19489), and its first and
third extension. Assumes independent questions and calls that are independent given the question,
unless an intraclass correlation is given.

* m* and n* minimise the first two terms of the bound on m n = B, where the third is the constant 1
  / (2 B). Rounding both can exceed the budget (B = 7: 2 x 4) and is often not the best pair of
  integers (B = 50: 5 x 10, not 4 x 11).
* The paper gives no formula for the intraclass correlation (its third extension). Here calls of one
  question agree more than p explains: Var(k / n) = p (1 - p) / n (1 + (n - 1) icc), the design
  effect of cluster samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats
from feval.estimators.checks import at_index, broadcast, checked_probabilities, is_whole
from feval.estimators.self_consistency_error import self_consistency_bias

_STRATEGIES = ("union", "differences")


@dataclass(frozen=True)
class BudgetSplit:
    """m questions with n calls each, and Theorem 1's bound on the mean squared error there."""

    m: float
    n: float
    bound: float


def self_consistency_bound(m: float | Floats, n: float | Floats, icc: float = 0.0) -> Floats:
    """Theorem 1: E[(E - plug-in average)^2] <= 1 / (8 m) + 1 / (pi n) + 1 / (2 n m).

    With an intraclass correlation the third term, that of the calls' variance, becomes (1 + (n - 1)
    icc) / (2 n m). The second, the bias term, is **not** valid then: calls that share a latent p do
    not average it out. With icc > 0 the value bounds the error against the error at that latent p,
    not against E.

    Args:
        m, n: [...] questions and calls per question.
        icc: intraclass correlation of the calls of one question, 0 to 1.

    Returns:
        [...] bounds.

    Raises:
        OutOfRangeError: m or n below 1, or an icc outside [0, 1].
    """
    questions, calls = (np.asarray(values, np.float64) for values in (m, n))
    questions, calls = broadcast(m=questions, n=calls)
    for name, array in (("m", questions), ("n", calls)):
        if len(wrong := np.argwhere(~(array >= 1.0))):
            place = tuple(wrong[0].tolist())
            raise OutOfRangeError(
                f"Theorem 1 takes 1 question and 1 call or more; {name} holds"
                f" {array[place]}{at_index(place)}."
            )
    _check_icc(icc)
    bound: Floats = _bound(questions, calls, icc)
    return bound


def _bound(m: Any, n: Any, icc: float) -> Any:
    return 1.0 / (8.0 * m) + 1.0 / (math.pi * n) + (1.0 + (n - 1.0) * icc) / (2.0 * n * m)


def budget_split(budget: float, icc: float = 0.0) -> BudgetSplit:
    """The real m and n with m n = B that minimise Theorem 1's bound: m* = sqrt(pi B / 8), n* =
    sqrt(8 B / pi).

    With an intraclass correlation, m* = sqrt(pi B (1 + 4 icc) / 8) and n* = B / m*: calls that
    repeat each other are worth less, so more questions are better. See `self_consistency_bound` for
    what the bound then means.

    Args:
        budget: B, calls in all, more than 0.
        icc: intraclass correlation of the calls of one question, 0 to 1.

    Returns:
        m*, n* and the bound there. For small B one of them may be below 1.

    Raises:
        OutOfRangeError: a budget that is not above 0 or not finite, or an icc outside [0, 1].
    """
    _check_icc(icc)
    if not 0.0 < budget < math.inf:
        raise OutOfRangeError(f"A budget is a finite number of calls above 0; {budget} was given.")
    m = math.sqrt(math.pi * budget * (1.0 + 4.0 * icc) / 8.0)
    n = budget / m
    return BudgetSplit(m, n, _bound(m, n, icc))


def best_integer_split(budget: int, icc: float = 0.0) -> BudgetSplit:
    """The integers m and n with m n <= B that minimise Theorem 1's bound; the smallest m among
    equals.

    For a given m the best n is floor(B / m). Only an interval of m about m* can win: elsewhere the
    bound at the real n = B / m, which is convex in m, already exceeds the best found. All of the
    interval is tried.

    Args:
        budget: B, calls in all, 1 to 10^12.
        icc: intraclass correlation of the calls of one question, 0 to 1.

    Returns:
        m, n and the bound.

    Raises:
        OutOfRangeError: a budget that is not a whole number in its range, or an icc outside [0, 1].
    """
    _check_icc(icc)
    if not is_whole(budget) or not 1 <= budget <= 10**12:
        raise OutOfRangeError(
            f"A budget to be split into integers is an integer from 1 to 10^12; {budget!r} was"
            " given."
        )
    start = min(max(round(budget_split(budget, icc).m), 1), budget)
    reached = _bound(start, budget // start, icc)
    # a / m + m / (pi B) + 1 / (2 B) (1 - icc) <= reached, with a = (1 + 4 icc) / 8: between the
    # roots of a quadratic
    a, b = (1.0 + 4.0 * icc) / 8.0, 1.0 / (math.pi * budget)
    room = reached * (1.0 + 1e-12) - (1.0 - icc) / (2.0 * budget)
    spread = math.sqrt(max(room * room - 4.0 * a * b, 0.0))
    low, high = math.floor((room - spread) / (2.0 * b)), math.ceil((room + spread) / (2.0 * b))
    m = np.arange(max(low, 1), min(high, budget) + 1)
    bounds = _bound(m.astype(np.float64), (budget // m).astype(np.float64), icc)
    best = int(np.argmin(bounds))
    return BudgetSplit(int(m[best]), int(budget // int(m[best])), float(bounds[best]))


def high_probability_bound(
    m: int,
    n: int,
    confidence: float = 0.95,
    *,
    variance: float = 1.0 / 16.0,
    strategy: str = "union",
) -> float:
    """A bound on |E - plug-in average| that holds with probability `confidence` or more (the first
    extension).

    By Bernstein's inequality the errors of the m questions, in [0, 1/2] with variance v <= 1/16,
    have an average within

        t = L / (6 m) + sqrt((L / (6 m))^2 + 2 v L / m),     L = log(4 / delta),  delta = 1 -
        confidence

    of E with probability 1 - delta / 2. The other delta / 2 is for the calls:

        union         |k/n - p| <= sqrt(log(4 m / delta) / (2 n)) for all m questions at once
                      (Hoeffding, and a union over m), and min(p, 1-p) moves no more than p; the
                      paper's sketch
        differences   one call moves the plug-in average by at most 1 / (n m), so it is within
                      sqrt(log(4 / delta) / (2 n m)) of its expectation (McDiarmid), which is off by
                      at most the bias at p = 1/2. Nearly always smaller

    Args:
        m, n: questions, independent draws from the weighting; calls per question, independent given
            it.
        confidence: between 0 and 1.
        variance: v, a bound on the variance of E(x) over questions, known beforehand; 1/16 always
            holds. Not an estimate from the same data.
        strategy: "union" or "differences".

    Returns:
        The bound on the absolute error.

    Raises:
        OutOfRangeError: m or n below 1, a confidence or variance out of range, or an unknown
            strategy.
    """
    allowed = 0.0 < confidence < 1.0 and 0.0 <= variance <= 1.0 / 16.0 and strategy in _STRATEGIES
    if not allowed or not is_whole(m) or not is_whole(n) or m < 1 or n < 1:
        raise OutOfRangeError(
            "A bound takes m and n from 1, a confidence between 0 and 1, a variance from 0 to 1/16"
            f" and one of the strategies {', '.join(_STRATEGIES)}; m={m}, n={n},"
            f" confidence={confidence}, variance={variance} and {strategy!r} were given."
        )
    delta = 1.0 - confidence
    log = math.log(4.0 / delta)
    linear = log / (6.0 * m)
    questions = linear + math.sqrt(linear**2 + 2.0 * variance * log / m)
    if strategy == "union":
        return questions + math.sqrt(math.log(4.0 * m / delta) / (2.0 * n))
    return questions + math.sqrt(log / (2.0 * n * m)) + float(self_consistency_bias(0.5, n))


def icc_variance_phat(p: float | Floats, n: int, icc: float) -> Floats:
    """Var(k / n) = p (1 - p) / n (1 + (n - 1) icc) for n exchangeable calls with that correlation
    between any two.

    n calls are worth n / (1 + (n - 1) icc) independent ones, never more than 1 / icc: the design
    effect of cluster samples (Kish, Survey Sampling, 1965, chapter 5). Assumes exchangeable, not
    independent, calls.

    Args:
        p: [...] probability of one of the answers.
        n: calls per question, from 1.
        icc: intraclass correlation, 0 to 1.

    Returns:
        [...] variances.

    Raises:
        OutOfRangeError: p or icc outside [0, 1], or n below 1.
    """
    shares = checked_probabilities(p, "p")
    _check_icc(icc)
    if not is_whole(n) or n < 1:
        raise OutOfRangeError(
            f"A share is taken of 1 call or more, a whole number; n={n!r} was given."
        )
    variance: Floats = shares * (1.0 - shares) / n * (1.0 + (n - 1) * icc)
    return variance


def _check_icc(icc: float) -> None:
    if not 0.0 <= icc <= 1.0:
        raise OutOfRangeError(f"An intraclass correlation lies in [0, 1]; {icc} was given.")

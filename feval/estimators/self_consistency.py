"""The self-consistency error of an LLM: how often a call disagrees with the LLM's own most probable
answer.

R. Nowak, Estimating the Self-Consistency of LLMs (arXiv 2509.19489). For a question with two
answers, p the probability of one of them,

    E(x) = min(p, 1 - p),       E = sum_x q(x) E(x)       (q uniform, or given weights)

and with more answers E(x) = 1 - max_c p_c (the paper's second extension). From n calls per question
on m questions drawn from q, the plug-in replaces p by the shares k / n. No gold answers are needed.
Assumes that the n calls are independent given the question, each with the same probability, and
that the m questions are independent draws from q.

Two points where the paper's text needs care:

* The step "bias <= 1 / sqrt(2 pi n)" of the proof holds for even n only: at p = 1/2 the bias is
  C(2h, h) / 2^(2h+1) with h = floor(n / 2), which is 0.5 > 0.399 for n = 1, 0.25 > 0.230 for n = 3,
  and larger than the step for every odd n. Theorem 1 has enough slack to hold for odd n too
  (checked in `tests/estimators/test_estimators_self_consistency_error.py`).
* The factor 2 in the proof is not needed: MSE = (mean bias)^2 + Var(plug-in of one random question)
  / m, exactly; see `self_consistency_mse_exact`.

Bounds on the error of an estimated self-consistency error, and how to split a budget between
questions and calls.

Theorem 1 of R. Nowak, Estimating the Self-Consistency of LLMs (arXiv 2509.19489), and its third
extension. Assumes independent questions and calls that are independent given the question,
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
from typing import Any

import numpy as np
import scipy

from feval.errors import OutOfRangeError
from feval.estimators.arrays import (
    Floats,
    Result,
    broadcast,
    checked_distribution,
    checked_probabilities,
    is_whole,
    require_each,
)
from feval.estimators.multinomial import circles
from feval.estimators.per_question import MOST_VOTES, slices

MOST_CALLS = 100_000
"""Most calls per question for exact moments."""

_BLOCK_NUMBERS = 1 << 18  # complex numbers of generating functions held at once


def multiclass_plugin_expectation(p: Floats, n: int) -> Floats:
    """E[1 - max_c k_c / n] over n calls, exactly: the mean of the multi-class plug-in.

    E[max_c k_c] = sum_{j < n} (1 - Pr{max_c k_c <= j}), and Pr{max_c k_c <= j} = n! [x^n] prod_c
    e_j(p_c x) with e_j(u) = sum_{i <= j} u^i / i!, scaled by Poisson probabilities and evaluated at
    roots of unity for all j at once (`feval.estimators.multinomial`).

    Args:
        p: [..., C] probabilities of the answers, which sum to 1.
        n: calls per question, 1 to 10,000.

    Returns:
        [...] expectations; 1 - max_c p_c minus them is the bias. Absolute error below 1e-12. Of two
        answers the bias is 2 a Pr{Bin(n-1, a) >= h} - Pr{Bin(n, a) > h}, with a = min(p, 1 - p) and
        h = floor(n / 2): that of the proof of Theorem 1 of arXiv 2509.19489, for odd n too.

    Raises:
        OutOfRangeError: values that are no probabilities, a sum off 1 by more than 1e-9, or an n
            out of range.
    """
    shares = checked_distribution(p)
    if not is_whole(n) or not 1 <= n <= MOST_VOTES:
        raise OutOfRangeError(f"A plug-in takes 1 to {MOST_VOTES:,} calls; {n} were given.")
    rows = -np.sort(-shares.reshape(-1, shares.shape[-1]), axis=1)
    distinct, places = np.unique(rows, axis=0, return_inverse=True)
    most = _expected_most(distinct[:, distinct.any(axis=0)], n)[places.ravel()]
    return np.clip(1.0 - most / n, 0.0, 1.0).reshape(shares.shape[:-1])


def _expected_most(shares: Floats, n: int) -> Floats:
    """[Q] E[max_c k_c] for the probabilities [Q, C] of questions, largest first: a factor per rank,
    for blocks of questions.
    """
    [circle] = circles(np.array([n]), most=n)
    most = np.empty(len(shares))
    for block in slices(len(shares), _BLOCK_NUMBERS // circle.roots.size):
        own = shares[block]
        product = np.ones((len(own), *circle.roots.shape), np.complex128)
        for rank in own.T:
            chances, which = np.unique(rank, return_inverse=True)
            product *= circle.all_at_most(chances)[which]  # a probability of 0 is a factor of 1
        at_most = np.clip(circle.coefficients(product)[:, :n, 0], 0.0, 1.0)
        most[block] = n - at_most.sum(axis=1)
    most[shares[:, 0] == 1.0] = n
    return most


def self_consistency_mse_exact(p: Floats, weights: Floats | None, m: int, n: int) -> float:
    """E[(E - plug-in average)^2] exactly, for m questions drawn from a known population and n calls
    each.

        MSE = (mean bias)^2 + Var(plug-in of one random question) / m

    It replaces the inequality in the proof of Theorem 1 of arXiv 2509.19489, whose factor 2 is not
    needed for independent questions.

    Args:
        p: [Q] probability of one of the two answers, for every question of the population.
        weights: [Q] q(x), in any unit; `None` for uniform.
        m, n: questions drawn, with replacement, from 1; calls per question, 1 to 100,000.

    Returns:
        The mean squared error.

    Raises:
        OutOfRangeError: a p outside [0, 1], weights that are negative or all zero, or m or n out of
            range.
    """
    shares = np.atleast_1d(checked_probabilities(p, "p"))
    q = _weights(weights, len(shares))
    if not is_whole(m) or not is_whole(n) or m < 1 or not 1 <= n <= MOST_CALLS:
        raise OutOfRangeError(
            f"A mean squared error takes whole numbers m from 1 and n from 1 to {MOST_CALLS:,};"
            f" m={m!r} and n={n!r} were given."
        )
    first, second = _plugin_moments(shares, n)
    mean = float(q @ first)
    bias = float(q @ (first - np.minimum(shares, 1.0 - shares)))
    return bias**2 + max(float(q @ second) - mean**2, 0.0) / m


def _plugin_moments(p: Floats, n: int) -> tuple[Floats, Floats]:
    """E[min(k, n - k) / n] and E[(min(k, n - k) / n)^2] for k successes of n, of each probability.

    With h = floor(n / 2): k counts up to h and n - k beyond it, and E[k; k <= h] = n p Pr{Bin(n -
    1, p) <= h - 1}, E[k (k - 1); k <= h] = n (n - 1) p^2 Pr{Bin(n - 2, p) <= h - 2}. All terms are
    positive: nothing cancels.
    """
    half = n // 2
    first, second = np.zeros_like(p), np.zeros_like(p)
    for share, most in ((p, half), (1.0 - p, n - half - 1)):
        once = share * _at_most(most - 1, n - 1, share)
        first += once
        second += once / n + (n - 1) / n * share**2 * _at_most(most - 2, n - 2, share)
    return first, second


def _at_most(most: int, n: int, share: Floats) -> Floats:
    """[...] Pr{Bin(n, share) <= most}."""
    if most < 0 or most >= n:
        return np.full_like(share, float(most >= 0))
    result: Floats = scipy.special.betainc(n - most, most + 1.0, 1.0 - share)
    return result


def _weights(weights: Floats | None, questions: int) -> Floats:
    if weights is None:
        return np.full(questions, 1.0 / questions)
    q = np.asarray(weights, np.float64)
    if q.shape != (questions,):
        raise OutOfRangeError(
            f"Weights are one number for each of the {questions} questions; the shape is {q.shape}."
        )
    if len(wrong := np.flatnonzero(~((q >= 0.0) & (q < np.inf)))) or not q.any():
        problem = f"question {wrong[0]} has {q[wrong[0]]}" if len(wrong) else "all are 0"
        raise OutOfRangeError(f"Weights are finite numbers from 0, not all of them 0; {problem}.")
    result: Floats = q / q.sum()
    return result


class BudgetSplit(Result):
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
        require_each(
            array >= 1.0,
            f"Theorem 1 takes 1 question and 1 call or more; {name} holds {{0}}{{at}}.",
            array,
        )
    _check_icc(icc)
    result: Floats = _bound(questions, calls, icc)
    return result


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
    return shares * (1.0 - shares) / n * (1.0 + (n - 1) * icc)


def _check_icc(icc: float) -> None:
    if not 0.0 <= icc <= 1.0:
        raise OutOfRangeError(f"An intraclass correlation lies in [0, 1]; {icc} was given.")

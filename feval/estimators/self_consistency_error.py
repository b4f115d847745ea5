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
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Integers
from feval.estimators.checks import (
    at_index,
    broadcast,
    checked_distribution,
    checked_probabilities,
    is_whole,
)
from feval.estimators.poissonised import circles
from feval.estimators.probabilities import MOST_VOTES

MOST_CALLS = 100_000
"""Most calls per question for exact moments."""

_BLOCK_NUMBERS = 1 << 18  # complex numbers of generating functions held at once


def self_consistency_error(p: float | Floats) -> Floats:
    """E(x) = min(p, 1 - p): the probability that a call disagrees with the more probable of two
    answers.

    Args:
        p: [...] probability of one of the answers.

    Returns:
        [...] errors, 0 to 1/2.

    Raises:
        OutOfRangeError: a value outside [0, 1].
    """
    shares = checked_probabilities(p, "p")
    return np.minimum(shares, 1.0 - shares)


def multiclass_error(p: Floats) -> Floats:
    """E(x) = 1 - max_c p_c for any number of answers (the second extension); min(p, 1 - p) for two.

    Args:
        p: [..., C] probabilities of the answers, which sum to 1.

    Returns:
        [...] errors, 0 to 1 - 1 / C.

    Raises:
        OutOfRangeError: a value outside [0, 1], or a sum off 1 by more than 1e-9.
    """
    errors: Floats = 1.0 - checked_distribution(p).max(axis=-1)
    return errors


def average_error(errors: Floats, weights: Floats | None = None) -> float:
    """E = sum_x q(x) E(x), with uniform or given weights.

    Args:
        errors: [Q] E(x), or their estimates.
        weights: [Q] q(x), from 0, in any unit: they are divided by their sum. `None` for uniform
            weights.

    Returns:
        The average.

    Raises:
        OutOfRangeError: no questions, errors that are not finite, shapes that do not match, or
            negative or all-zero weights.
    """
    values = np.asarray(errors, np.float64)
    if values.ndim != 1 or not len(values):
        raise OutOfRangeError(
            "An average takes errors [questions] of 1 question or more; the shape is"
            f" {values.shape}."
        )
    if len(wrong := np.flatnonzero(~np.isfinite(values))):
        raise OutOfRangeError(
            f"Errors are finite numbers; question {wrong[0]} has {values[wrong[0]]}. Leave it out."
        )
    return float(_weights(weights, len(values)) @ values)


def multiclass_plugin_error(counts: Integers) -> Floats:
    """The plug-in estimate 1 - max_c k_c / n from the counts of each answer (the second extension).

    Args:
        counts: [..., C] calls with each answer; n is their sum.

    Returns:
        [...] estimates.

    Raises:
        OutOfRangeError: counts that are not integers from 0, or a question without calls.
    """
    k = np.asarray(counts)
    _require_integers(counts=k)
    if not k.ndim or len(wrong := np.argwhere(k < 0)):
        place = tuple(wrong[0].tolist()) if k.ndim else ()
        raise OutOfRangeError(
            f"Counts are [..., answers] and not negative; {k[place]} was found{at_index(place)}."
        )
    n = k.sum(axis=-1)
    if len(wrong := np.argwhere(n == 0)):
        where = at_index(tuple(wrong[0].tolist()))
        raise OutOfRangeError(f"The question{where} has no calls, so no shares; leave it out.")
    errors: Floats = (n - k.max(axis=-1)) / n
    return errors


def self_consistency_bias(p: float | Floats, n: int | Integers) -> Floats:
    """E(x) - E[plug-in], exactly: how much the plug-in from n calls underestimates on average.

        bias = (1/n) sum_{k > n/2} (2k - n) C(n, k) a^k (1-a)^(n-k) = 2 a Pr{Bin(n-1, a) >= h} -
        Pr{Bin(n, a) > h}

    with a = min(p, 1 - p) and h = floor(n / 2): the bias in the proof of Theorem 1 of arXiv
    2509.19489, for odd n too, as binomial tails. Largest at p = 1/2, where it is C(2h, h) /
    2^(2h+1). Absolute error below 1e-12.

    Args:
        p: [...] probability of one of the two answers.
        n: calls per question, from 1; one for all or [...].

    Returns:
        [...] biases, 0 to 1/2.

    Raises:
        OutOfRangeError: a p outside [0, 1], or an n below 1.
    """
    a = self_consistency_error(p)
    calls = np.asarray(n)
    _require_integers(n=calls)
    a, calls = broadcast(p=a, n=calls)
    if len(wrong := np.argwhere(calls < 1)):
        place = tuple(wrong[0].tolist())
        raise OutOfRangeError(
            f"A plug-in takes 1 call or more; n={calls[place]} was found{at_index(place)}."
        )
    half = calls // 2
    # Pr{Bin(n, a) >= k} is betainc(k, n - k + 1, a) for k = 1..n, and 1 for k = 0.
    inner = np.where(
        half >= 1, scipy.special.betainc(np.maximum(half, 1), np.maximum(calls - half, 1), a), 1.0
    )
    outer = scipy.special.betainc(half + 1, calls - half, a)
    bias: Floats = np.maximum(2.0 * a * inner - outer, 0.0)
    return bias


def multiclass_plugin_expectation(p: Floats, n: int) -> Floats:
    """E[1 - max_c k_c / n] over n calls, exactly: the mean of the multi-class plug-in.

    E[max_c k_c] = sum_{j < n} (1 - Pr{max_c k_c <= j}), and Pr{max_c k_c <= j} = n! [x^n] prod_c
    e_j(p_c x) with e_j(u) = sum_{i <= j} u^i / i!, scaled by Poisson probabilities and evaluated at
    roots of unity for all j at once (`feval.estimators.poissonised`).

    Args:
        p: [..., C] probabilities of the answers, which sum to 1.
        n: calls per question, 1 to 10,000.

    Returns:
        [...] expectations; `multiclass_error` minus them is the bias. Absolute error below 1e-12.

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
    errors: Floats = np.clip(1.0 - most / n, 0.0, 1.0).reshape(shares.shape[:-1])
    return errors


def _expected_most(shares: Floats, n: int) -> Floats:
    """[Q] E[max_c k_c] for the probabilities [Q, C] of questions, largest first: a factor per rank,
    for blocks of questions.
    """
    [circle] = circles(np.array([n]), most=n)
    step = max(1, _BLOCK_NUMBERS // circle.roots.size)
    most = np.empty(len(shares))
    for start in range(0, len(shares), step):
        block = shares[start : start + step]
        product = np.ones((len(block), *circle.roots.shape), np.complex128)
        for rank in block.T:
            chances, which = np.unique(rank, return_inverse=True)
            product *= circle.all_at_most(chances)[which]  # a probability of 0 is a factor of 1
        at_most = np.clip(circle.coefficients(product)[:, :n, 0], 0.0, 1.0)
        most[start : start + step] = n - at_most.sum(axis=1)
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
    return (
        float(q @ self_consistency_bias(shares, n)) ** 2 + max(float(q @ second) - mean**2, 0.0) / m
    )


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
    below: Floats = scipy.special.betainc(n - most, most + 1.0, 1.0 - share)
    return below


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
    normalised: Floats = q / q.sum()
    return normalised


def _require_integers(**arrays: npt.NDArray[Any]) -> None:
    for name, array in arrays.items():
        if array.size and array.dtype.kind not in "iu":
            raise OutOfRangeError(f"Numbers of calls are integers; {name} holds {array.dtype}.")

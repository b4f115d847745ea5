"""Stopping criteria of Adaptive-Consistency (Aggarwal et al., arXiv 2305.11860, section 3 and
appendix).

Each depends on how often every answer was given in n draws, v_1 >= v_2 >= ... >= v_m > 0:

    beta        P[Beta(v_1 + 1, v_2 + 1) > 1/2] >= C        v_2 = 0 when the answers agree
    dirichlet   P[p_1 > max_{i > 1} p_i] >= C               p ~ Dirichlet(v + 1)
    entropy     H(v / sum v) / log m <= C, n >= 2           one answer gets a phantom rival
    majority    v_1 / n >= C, n >= 2
    crp         P[v_1 still leads after the budget] >= C    Chinese-restaurant process

Without a vote none of them stops. The functions here are exact: rational numbers, except for
entropy, which uses 60 digits. `stop_mask` decides for many counts at once in floats, and falls back
to the exact functions close to the threshold. Assumes draws that are independent given the
question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import comb, factorial, lgamma
from typing import TypeVar

import numpy as np

from feval.estimators.arrays import Bools, Floats, Integers, Numbers
from feval.estimators.per_question import gauss_legendre, slices

Votes = tuple[int, ...]
Number = TypeVar("Number", Fraction, float)

_CLOSE = 1e-9
_DIGITS = 60


def beta_confidence(votes: Votes) -> Fraction:
    """P[Beta(v_1 + 1, v_2 + 1) > 1/2] = sum_{j <= v_1} C(v_1 + v_2 + 1, j) / 2^{v_1 + v_2 + 1}.

    Args:
        votes: votes of every answer, descending.

    Returns:
        The exact probability.
    """
    first, second = (*votes, 0, 0)[:2]
    total = first + second + 1
    return Fraction(sum(comb(total, j) for j in range(first + 1)), 2**total)


def majority_share(votes: Votes, drawn: int) -> Fraction:
    """v_1 / n: draws without an answer stay in the denominator.

    Args:
        votes, drawn: votes of every answer, descending, and n, all draws.

    Returns:
        The exact share.
    """
    return Fraction(max(votes, default=0), max(drawn, 1))


def _entropy_at_most(votes: Votes, threshold: Fraction) -> bool:
    """Whether the normalised entropy is at most the threshold, with 60 digits; agreement in 50
    digits counts as equal.
    """
    counts = votes if len(votes) > 1 else (*votes, 1)
    with localcontext() as context:
        context.prec = _DIGITS
        total = Decimal(sum(counts))
        entropy = total.ln() - sum(v * Decimal(v).ln() for v in counts) / total
        bound = Decimal(len(counts)).ln() * threshold.numerator / threshold.denominator
        return entropy - bound < Decimal(10) ** (10 - _DIGITS)


@lru_cache(maxsize=1 << 14)
def dirichlet_confidence(votes: Votes) -> Fraction:
    """P[p_1 > max_{i > 1} p_i] for p ~ Dirichlet(v + 1), as a rational number; a single answer gets
    a rival without votes.

    With independent p_i ~ Gamma(v_i + 1), P[p_i < x] = 1 - e^{-x} sum_{j <= v_i} x^j / j!.
    Multiplied out over the rivals, every term is x^d e^{-(k + 1) x} with k rivals in it, whose
    integral is d! / (k + 1)^{d + 1}.
    """
    first, *rivals = votes if len(votes) > 1 else (*votes, 0)
    terms: dict[int, dict[int, Fraction]] = {0: {0: Fraction(1)}}  # k -> degree -> coefficient
    for rival in rivals:
        grown = {k: dict(polynomial) for k, polynomial in terms.items()}
        for k, polynomial in terms.items():
            more = grown.setdefault(k + 1, {})
            for degree, coefficient in polynomial.items():
                for j in range(rival + 1):
                    more[degree + j] = more.get(degree + j, Fraction(0)) - coefficient / factorial(
                        j
                    )
        terms = grown
    return sum(
        (
            coefficient
            * Fraction(
                factorial(first + degree), factorial(first) * (k + 1) ** (first + degree + 1)
            )
            for k, polynomial in terms.items()
            for degree, coefficient in polynomial.items()
        ),
        start=Fraction(0),
    )


# 1.0 equals Fraction(1), but stands for sums in floats
@lru_cache(maxsize=1 << 16, typed=True)
def crp_confidence(votes: Votes, to_come: int, concentration: Number) -> Number:
    """P[no answer has more votes than the leader after further draws], by the predictive rule of
    the Chinese restaurant.

    The next draw repeats answer i with probability v_i / (N + alpha) and is new with alpha / (N +
    alpha), N votes so far. With (v)_j rising factorials, j more votes for answer i have the weight
    (v_i)_j / j!, and new answers of up to L votes each have the generating function exp(alpha
    sum_{k <= L} x^k / k). `concentration` is alpha, above 0; in fractions the result is exact, in
    floats every term is positive.
    """
    kind = type(concentration)
    first, *rivals = votes
    total = kind(0)
    for more in range(to_come + 1):
        left = to_come - more
        product = _new_answers(concentration, first + more, left)
        for rival in rivals:
            factor = _repeats(kind(rival), left)[: first + more - rival + 1]
            product = np.convolve(product, factor)[: left + 1]
        total += _repeats(kind(first), to_come)[more] * product[left]
    result: Number = total / _repeats(sum(votes) + concentration, to_come)[to_come]
    return result


@lru_cache(maxsize=1 << 12, typed=True)
def _repeats(votes: Number, length: int) -> Numbers:
    """[length + 1] (v)_j / j!, rising."""
    series = [votes**0]
    for j in range(length):
        series.append(series[-1] * (votes + j) / (j + 1))
    return np.array(series)


@lru_cache(maxsize=1 << 12, typed=True)
def _new_answers(concentration: Number, most: int, length: int) -> Numbers:
    """[length + 1] coefficients of exp(alpha sum_{k <= most} x^k / k)."""
    series = [concentration**0]
    for n in range(1, length + 1):
        series.append(concentration * sum(series[n - k] for k in range(1, min(most, n) + 1)) / n)
    return np.array(series)


@dataclass(frozen=True)
class Criterion:
    """A criterion ("beta", "dirichlet", "entropy", "majority" or "crp") with its threshold C and
    the largest number of draws.

    `top` is the number of largest counts that "dirichlet" looks at, `None` for all; `concentration`
    is the alpha of "crp".
    """

    name: str
    threshold: Fraction
    budget: int
    top: int | None = None
    concentration: Fraction = Fraction(1)

    def stops(self, votes: Votes, drawn: int) -> bool:
        """Whether to stop after some draws, those without an answer included, with descending
        votes; exactly.
        """
        if not votes or (drawn < 2 and self.name in ("entropy", "majority")):
            return False
        match self.name:
            case "beta":
                return beta_confidence(votes) >= self.threshold
            case "majority":
                return majority_share(votes, drawn) >= self.threshold
            case "entropy":
                return _entropy_at_most(votes, self.threshold)
            case "dirichlet":
                return dirichlet_confidence(votes[: self.top]) >= self.threshold
        result: bool = (
            crp_confidence(votes, self.budget - drawn, self.concentration) >= self.threshold
        )
        return result

    def of_two_counts(self) -> Callable[[Integers, Integers, int], Bools]:
        """`stop_mask` of "beta" and "majority" as a function of the two largest counts [N] and the
        draws.
        """
        if self.name == "majority":
            share = self.threshold

            def enough(first: Integers, second: Integers, drawn: int) -> Bools:  # noqa: ARG001  all criteria are called alike
                least = max(
                    -(-share.numerator * drawn // share.denominator), 1 if drawn > 1 else drawn + 1
                )
                return first >= least

            return enough
        table, width = _beta_table(self.threshold, self.budget).ravel(), self.budget + 1

        def sure(first: Integers, second: Integers, drawn: int) -> Bools:  # noqa: ARG001  all criteria are called alike
            return table.take(first * width + second)

        return sure

    @property
    def columns(self) -> int | None:
        """Number of largest counts it looks at; `None` for all."""
        return {"beta": 2, "majority": 1, "dirichlet": self.top}.get(self.name)

    def stop_mask(self, votes: Integers, drawn: int) -> Bools:
        """[N] whether to stop at each of the votes [N, K], which descend along a row; zeros pad
        rows.
        """
        if not votes.shape[1] or (drawn < 2 and self.name in ("entropy", "majority")):
            return np.zeros(len(votes), np.bool_)
        if self.name in ("beta", "majority"):
            second = votes[:, 1] if votes.shape[1] > 1 else np.zeros(len(votes), votes.dtype)
            return self.of_two_counts()(votes[:, 0].astype(np.intp), second, drawn)
        margin = {"entropy": _entropy_margin, "dirichlet": _dirichlet_margin, "crp": _crp_margin}[
            self.name
        ]
        above = margin(self, votes[:, : self.columns], drawn)
        mask: Bools = above >= 0.0
        for row in np.flatnonzero(np.abs(above) < _CLOSE):
            mask[row] = self.stops(tuple(votes[row][votes[row] > 0].tolist()), drawn)
        return mask & (votes[:, 0] > 0)


@lru_cache(maxsize=16)
def _beta_table(threshold: Fraction, budget: int) -> Bools:
    """[budget + 1, budget + 1] whether two counts stop."""
    table = np.zeros((budget + 1, budget + 1), np.bool_)
    for second in range(budget + 1):
        least = next(
            (
                v
                for v in range(max(second, 1), budget + 1)
                if beta_confidence((v, second)) >= threshold
            ),
            budget + 1,
        )
        table[least:, second] = True  # the confidence grows with the first count
    return table


def _entropy_margin(criterion: Criterion, votes: Integers, drawn: int) -> Floats:  # noqa: ARG001  all criteria are called alike
    """[N] C - H / log m."""
    v = np.arange(criterion.budget + 2, dtype=np.float64)
    v_log_v = v * np.log(np.maximum(v, 1.0))
    phantom = votes[:, 1:].max(axis=1, initial=0) == 0
    total = votes.sum(axis=1, dtype=np.int64) + phantom
    answers = np.maximum((votes > 0).sum(axis=1) + phantom, 2)
    total = np.maximum(total, 2)
    entropy = np.log(total) - v_log_v[votes].sum(axis=1) / total
    result: Floats = float(criterion.threshold) - entropy / np.log(answers)
    return result


def _dirichlet_margin(criterion: Criterion, votes: Integers, drawn: int) -> Floats:  # noqa: ARG001  all criteria are called alike
    """[N] P - C, integrating over the leader's gamma variable by Gauss-Legendre."""
    density, log_chance = _gamma_tables(criterion.budget)
    answers = (votes > 0).sum(axis=1)
    rivals = np.zeros((len(votes), len(log_chance)))
    for column in range(1, votes.shape[1]):
        rows = np.flatnonzero(votes[:, column])
        rivals[rows, votes[rows, column]] += 1
    rivals[answers == 1, 0] = 1
    margin = np.empty(len(votes))
    for block in slices(len(votes), 4096):
        margin[block] = np.einsum(
            "nx,nx->n", density[votes[block, 0]], np.exp(rivals[block] @ log_chance)
        )
    return margin - float(criterion.threshold)


@lru_cache(maxsize=4)
def _gamma_tables(budget: int) -> tuple[Floats, Floats]:
    """[budget + 1, nodes] density of Gamma(v + 1) with the weights of the nodes, and log P[Gamma(v
    + 1) < x].
    """
    nodes, weights = gauss_legendre(128 + 2 * budget)
    end = budget + 12.0 * budget**0.5 + 50.0
    x, w = nodes * end, weights * end
    log_factorial = np.array([lgamma(v + 1.0) for v in range(budget + 1)])
    poisson = np.exp(np.arange(budget + 1)[:, None] * np.log(x) - x - log_factorial[:, None])
    below = 1.0 - np.cumsum(poisson, axis=0)
    return poisson * w, np.log(np.maximum(below, 1e-300))


def _crp_margin(criterion: Criterion, votes: Integers, drawn: int) -> Floats:
    """[N] P - C, once per distinct counts."""
    distinct, place = np.unique(votes, axis=0, return_inverse=True)
    alpha, to_come = float(criterion.concentration), criterion.budget - drawn
    chances = [
        crp_confidence(tuple(row[row > 0].tolist()), to_come, alpha) if row.any() else 0.0
        for row in distinct
    ]
    return np.array(chances)[place.ravel()] - float(criterion.threshold)

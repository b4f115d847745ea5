"""Randomized mixtures of policies: each call picks a policy at random, and the majority of the
calls answers.

With fixed selector weights w a mixture is a policy of its own: on a question where policy j is
right with probability q_j a call is right with q = sum_j w_j q_j, so V_n = E P_n(q) (arXiv
2605.03379, section 6.3 and appendix E.1). Mixing can lower the correlation of calls on a question,
which voting turns into accuracy.

Recorded calls give exact values. The probability that m calls of the mixture have a right majority
is

    sum over compositions k_1 + ... + k_J = m of  m! / prod_j k_j!  prod_j w_j^k_j  A(k),

where A(k) is the mean over questions of the probability that k_j calls of each policy, drawn
without replacement from its K recorded ones, have a right majority together. It is unbiased and
needs K >= m. A does not depend on w: one table gives V_n for all weights. Assumes calls that are
independent given the question, within a policy and between policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import factorial

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, ShortPoolError
from feval.estimators.arrays import (
    Floats,
    Int64,
    Numbers,
    Result,
    Texts,
    checked_distribution,
    checked_probabilities,
    is_whole,
    missing_reasons,
    require_each,
)
from feval.estimators.per_question import compositions, distinct
from feval.estimators.plurality import binomials
from feval.estimators.vote_polynomials import budget_index, check_budget, majority_accuracy

_STEPS = 20  # of the weights on the first grid
_ZOOMS = (1.0, 0.1, 0.01, 0.001)


class MixtureCurve(Result):
    """Moments and vote curves of one mixture or a table of them.

    Attributes:
        budgets, votes: the n of the curve, and [..., len(budgets)] V_n.
        mu: [...] one-call accuracy.
        nu: [...] probability that two calls on one question are both right; NaN from a single call.
    """

    budgets: tuple[int, ...]
    mu: Floats
    nu: Floats
    votes: Floats

    @property
    def reasons(self) -> Texts:
        """[...] why nu is NaN, or ""."""
        return missing_reasons(
            (np.isnan(self.nu), "One call per question says nothing of two; record a second.")
        )


class BestMixture(Result):
    """The best mixture found: policies with their weights, and its V_n.

    `tried` is the number of mixtures evaluated. The maximum of many noisy estimates is optimistic:
    evaluate the winner on other questions.
    """

    policies: tuple[int, ...]
    weights: Floats
    votes: float
    tried: int


def mixture_from_probabilities(
    q: npt.ArrayLike, weights: npt.ArrayLike, budgets: Sequence[int] = (0, 1, 2)
) -> MixtureCurve:
    """mu, nu and V_n of mixtures from each policy's probability on each question (arXiv 2605.03379,
    appendix E.1).

    Do not use recorded shares c / K as q: V_n would be biased. Use `mixture_from_counts`.

    Args:
        q: [J, Q] probability that a call of policy j on question i is right.
        weights: [..., J] selector weights, each mixture's sum 1.
        budgets: the n of the curve.

    Returns:
        Means over the questions.

    Raises:
        OutOfRangeError: shapes that do not match, no questions, values outside [0, 1] or weights
            that do not add up.
    """
    chances, shares = checked_probabilities(q), checked_distribution(weights, "weights")
    if chances.ndim != 2 or not chances.shape[1] or shares.shape[-1] != chances.shape[0]:
        raise OutOfRangeError(
            "Mixtures take q [policies, questions] and weights [..., policies]; the shapes are"
            f" {chances.shape} and {shares.shape}."
        )
    mixed = np.clip(shares @ chances, 0.0, 1.0)
    votes = [majority_accuracy(n, mixed).mean(-1) for n in budgets]
    return MixtureCurve(
        tuple(budgets), mixed.mean(-1), (mixed * mixed).mean(-1), np.stack(votes, -1)
    )


def mixture_from_counts(
    counts: npt.ArrayLike, size: int, weights: npt.ArrayLike, budgets: Sequence[int] | None = None
) -> MixtureCurve:
    """Unbiased mu, nu and V_n of mixtures from recorded calls; see the module for the formula.

    nu = mean of sum_j w_j^2 c_j (c_j - 1) / (K (K - 1)) + sum_{j != l} w_j w_l c_j c_l / K^2 (arXiv
    2605.03379, section 6.3 and appendix E.1).

    Args:
        counts: [Q, J] right calls of policy j on question i.
        size: K, recorded calls per question and policy.
        weights: [..., J] selector weights, each mixture's sum 1.
        budgets: the n of the curve, 2n + 1 at most K; by default all of these.

    Returns:
        Means over the questions. nu is NaN for K = 1.

    Raises:
        ShortPoolError: more votes than recorded calls.
        OutOfRangeError: shapes that do not match, counts outside 0..K, or weights that do not add
            up.
    """
    right, shares = _counts(counts, size), checked_distribution(weights, "weights")
    for n in budgets or ():
        check_budget(n)
    if shares.shape[-1] != right.shape[1]:
        raise OutOfRangeError(
            f"There are counts for {right.shape[1]} policies and weights for {shares.shape[-1]};"
            " give one weight for each."
        )
    indices = tuple(range((size + 1) // 2)) if budgets is None else tuple(budgets)
    mu = shares @ right.mean(0) / size
    cross = right.T @ right / (len(right) * float(size) ** 2)
    if size > 1:
        np.fill_diagonal(cross, (right * (right - 1)).mean(0) / (size * (size - 1)))
        nu = np.einsum("...j,jl,...l->...", shares, cross, shares)
    else:
        nu = np.full(mu.shape, np.nan)
    votes = [_Table(right, size, 2 * n + 1).accuracy(shares) for n in indices]
    return MixtureCurve(indices, mu, nu, np.stack(votes, -1) if votes else np.empty((*mu.shape, 0)))


def best_mixture(counts: npt.ArrayLike, size: int, votes: int = 5) -> BestMixture:
    """The mixture of two policies with the largest V_n.

    V_n is a polynomial of the weights (see the module): it is evaluated on a grid of weights for
    every two policies, then on finer and finer grids around the best point. Single policies compete
    too. Feval's own search over the mixtures of arXiv 2605.03379, section 6.3.

    Args:
        counts, size: [Q, J] right calls, of K recorded ones per question and policy.
        votes: an odd number up to K, five in the paper's tables 4 and 5.

    Returns:
        The winner on these questions; see `BestMixture.tried`.

    Raises:
        ShortPoolError: more votes than recorded calls.
        OutOfRangeError: an even number of votes, fewer than two policies, or wrong counts.
    """
    right = _counts(counts, size)
    budget_index(votes)
    if right.shape[1] < 2:
        raise OutOfRangeError("A mixture takes two policies or more; there are counts for one.")
    reached, policies, weights, tried = -np.inf, (0, 1), np.ones(2), 0
    for chosen in combinations(range(right.shape[1]), 2):
        table = _Table(right[:, chosen], size, votes)
        grid = compositions(_STEPS, 2) / _STEPS
        for zoom in _ZOOMS:
            accuracy = table.accuracy(grid)
            tried, top = tried + len(grid), int(accuracy.argmax())
            if accuracy[top] > reached + 1e-15:
                reached, policies, weights = float(accuracy[top]), chosen, grid[top]
            grid = _around(grid[top], zoom / _STEPS)
    used = weights > 1e-12
    return BestMixture(
        tuple(np.array(policies)[used].tolist()),
        weights[used] / weights[used].sum(),
        reached,
        tried,
    )


class _Table:
    """Compositions [C, J] of m and, for each, m! / prod k_j! x A(k)."""

    def __init__(self, right: Int64, size: int, votes: int) -> None:
        if votes > size:
            raise ShortPoolError(
                f"{votes} votes need as many recorded calls of each policy; there are {size}. Ask"
                " for fewer votes or record more."
            )
        first, rows = distinct(tuple(right.T))
        share = np.bincount(rows, minlength=len(first)) / len(right)
        unique = right[first]
        self.compositions = compositions(votes, right.shape[1])
        # for k = 0..m drawn calls: [K + 1, k + 1] probability of each number of right ones, by the
        # number recorded right
        choose = binomials(size, votes + 1)
        hits = [
            choose[:, : k + 1] * choose[::-1, k::-1] / choose[size, k] for k in range(votes + 1)
        ]
        self.coefficients = np.empty(len(self.compositions))
        for row, parts in enumerate(self.compositions.tolist()):
            ways = factorial(votes)
            chance = np.ones((len(unique), 1))
            for policy, k in enumerate(parts):
                ways //= factorial(k)
                chance = _convolved(chance, hits[k][unique[:, policy]])
            self.coefficients[row] = ways * float(share @ chance[:, votes // 2 + 1 :].sum(1))

    def accuracy(self, weights: Floats) -> Floats:
        """[...] V_n for weights [..., J]."""
        terms = np.prod(weights[..., None, :] ** self.compositions, -1)
        result: Floats = terms @ self.coefficients
        return result


def _convolved(a: Floats, b: Floats) -> Floats:
    """[Q, r + s - 1] distribution of the sum, per row."""
    out = np.zeros((len(a), a.shape[1] + b.shape[1] - 1))
    for j in range(b.shape[1]):
        out[:, j : j + a.shape[1]] += a * b[:, j : j + 1]
    return out


def _around(centre: Floats, width: float) -> Floats:
    """Two weights, and a grid of step `width` / 10 around them."""
    first = centre[0] + np.linspace(-width, width, 21)
    points = np.column_stack([first, 1.0 - first])
    return np.vstack([centre, points[(points >= 0.0).all(1)]])


def _counts(counts: npt.ArrayLike, size: int) -> Int64:
    right: Numbers = np.asarray(counts)
    whole = right.dtype.kind in "iu" and is_whole(size)
    if right.ndim != 2 or not right.size or not whole or size < 1:
        raise OutOfRangeError(
            "Mixtures take whole counts [questions, policies] of 1 recorded call or more; the"
            f" shape is {right.shape}, the type {right.dtype} and size {size!r}."
        )
    require_each(
        (right >= 0) & (right <= size), f"Counts lie in 0..{size}; counts is {{0}}{{at}}.", right
    )
    return right.astype(np.int64)

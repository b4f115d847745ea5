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
from math import comb, factorial
from typing import Literal

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
    is_whole,
    missing_reasons,
    require_each,
)
from feval.estimators.per_question import compositions, distinct
from feval.estimators.vote_polynomials import budget_index, check_budget

_MOST_POINTS = 20_000


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
    """The best mixture found: policies with their weights, its V_n, its V_n - mu and its mu.

    `tried` is the number of mixtures evaluated. The maximum of many noisy estimates is optimistic:
    evaluate the winner on other questions.
    """

    policies: tuple[int, ...]
    weights: Floats
    votes: float
    gain: float
    mu: float
    tried: int


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


def best_mixture(
    counts: npt.ArrayLike,
    size: int,
    votes: int = 5,
    objective: Literal["accuracy", "gain"] = "accuracy",
    components: int = 2,
    step: float = 0.05,
) -> BestMixture:
    """The mixture of up to some number of policies with the largest V_n, or the largest gain V_n -
    mu.

    V_n is a polynomial of the weights (see the module): it is evaluated on a grid of the simplex
    for every choice of policies, then on finer and finer grids around the best point. Single
    policies compete too. Feval's own search over the mixtures of arXiv 2605.03379, section 6.3.

    Args:
        counts, size: [Q, J] right calls, of K recorded ones per question and policy.
        votes: an odd number up to K, five in the paper's tables 4 and 5.
        objective: "accuracy" for V_n, "gain" for V_n - mu.
        components: most policies per mixture.
        step: step of the first grid.

    Returns:
        The winner on these questions; see `BestMixture.tried`.

    Raises:
        ShortPoolError: more votes than recorded calls.
        OutOfRangeError: an even number of votes, an unknown objective, no components, a step
            outside (0, 1], or wrong counts.
    """
    right = _counts(counts, size)
    budget_index(votes)
    if objective not in ("accuracy", "gain") or components < 1 or not 0 < step <= 1:
        raise OutOfRangeError(
            "The best mixture is sought by objective 'accuracy' or 'gain', with 1 component or"
            f" more and a step in (0, 1]; objective={objective!r}, components={components!r} and"
            f" step={step!r} were given."
        )
    one_call, tried = right.mean(0) / size, 0
    best: tuple[float, tuple[int, ...], Floats, float] = (-np.inf, (0,), np.ones(1), 0.0)
    for chosen in combinations(range(right.shape[1]), min(components, right.shape[1])):
        table = _Table(right[:, chosen], size, votes)
        accuracies = one_call[list(chosen)]
        steps = max(1, round(1.0 / step))
        grid = compositions(steps, len(chosen)) / steps
        for width in (step, step / 10, step / 100, step / 1000):
            accuracy = table.accuracy(grid)
            score = accuracy - grid @ accuracies if objective == "gain" else accuracy
            tried, top = tried + len(grid), int(score.argmax())
            if score[top] > best[0] + 1e-15:
                best = float(score[top]), chosen, grid[top], float(accuracy[top])
            grid = _around(grid[top], width)
    _, chosen, shares, reached = best
    used = shares > 1e-12
    policies = tuple(int(j) for j, has_weight in zip(chosen, used, strict=True) if has_weight)
    mu = float(shares @ one_call[list(chosen)])
    return BestMixture(
        policies, shares[used] / shares[used].sum(), reached, reached - mu, mu, tried
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
        hits = _hits(size, votes)
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


def _hits(size: int, votes: int) -> list[Floats]:
    """For k = 0..m drawn calls: [K + 1, k + 1] probability of each number of right ones, by the
    number recorded right.
    """
    return [
        np.array(
            [
                [comb(c, j) * comb(size - c, k - j) / comb(size, k) for j in range(k + 1)]
                for c in range(size + 1)
            ]
        )
        for k in range(votes + 1)
    ]


def _convolved(a: Floats, b: Floats) -> Floats:
    """[Q, r + s - 1] distribution of the sum, per row."""
    out = np.zeros((len(a), a.shape[1] + b.shape[1] - 1))
    for j in range(b.shape[1]):
        out[:, j : j + a.shape[1]] += a * b[:, j : j + 1]
    return out


def _around(centre: Floats, width: float) -> Floats:
    """A point of the simplex and a grid of step `width` / 10 around it (coarser for many parts)."""
    if len(centre) == 1:
        return centre[None]
    free = len(centre) - 1
    per_axis = max(3, min(21, int(_MOST_POINTS ** (1.0 / free))))
    moves = np.stack(np.meshgrid(*[np.linspace(-width, width, per_axis)] * free, indexing="ij"), -1)
    head = centre[:-1] + moves.reshape(-1, free)
    points = np.column_stack([head, 1.0 - head.sum(1)])
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

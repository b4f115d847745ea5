"""The Gumbel coupling of two answer distributions: joint answers of two LLMs that share the noise
of the Gumbel-max sampler.

Both pick argmin_k E_k / p_k with the same exponential E_k (equivalently argmax log p_k + G_k, G_k =
-log E_k). With t_k = p_k / (p_k + p'_k), the first LLM's preference for answer k, and

    E(t) = sum_k max(p_k (1 - t), p'_k t),     H(t) = int_0^t du / E(u)^2,

integrating the race gives the joint distribution (arXiv 2502.01754, sections 2 to 4, states the
sampler; the closed form is in `docs/coupling.md`):

    Pr(i, i) = p_i p'_i / ((p_i + p'_i) E(t_i)),     Pr(i, j) = p_i p'_j (H(t_i) - H(t_j))_+     for
    i != j.

E is linear between neighbouring t_k, so H grows by (v - u) / (E(u) E(v)) from one to the next, and
E is at least 1/2, so nothing overflows, not even where one LLM never gives an answer.

**Scope.** This couples two distributions of *answers* (or of single next tokens). Sampling whole
chains of thought with shared noise couples tokens, whose joint distribution recorded answers do not
show. Assumes that given the question an LLM's answers are independent draws from its distribution
(one token, or one answer, per call); distributions estimated from n CoTs carry their error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Bools, Floats
from feval.estimators.checks import at_index, checked_distribution


@dataclass(frozen=True, eq=False)
class CoupledCorrectness:
    """Correctness of two LLMs on the same questions, with and without shared noise.

    Attributes:
        first, second: [...] probability that each LLM is right.
        both, agreement: [...] probabilities that both are right, and that both give the same
            answer, coupled.
        covariance: [...] covariance of correctness, coupled; never negative. It is 0 without shared
            noise.
        variance_coupled, variance_independent: [...] variance of the difference in correctness (1,
            0 or -1).
    """

    first: Floats
    second: Floats
    both: Floats
    agreement: Floats
    covariance: Floats
    variance_coupled: Floats
    variance_independent: Floats


@dataclass(frozen=True)
class ScoreDifferenceVariance:
    """The difference of two LLMs' scores over prompts and noise (arXiv 2502.01754, Proposition 1).

    Attributes:
        independent, coupled: its variance with noise of their own, and under shared noise; they
            differ by 2 `within_covariance`.
        within_covariance: mean over prompts of the covariance on a prompt, under shared noise.
        total_covariance: that plus the covariance of the two accuracies between prompts, which
            exists without coupling too.
    """

    independent: float
    coupled: float
    within_covariance: float
    total_covariance: float


def laws_of_counts(counts: npt.ArrayLike) -> Floats:
    """The empirical distribution c_k / n of counted answers. Feval's own.

    Args:
        counts: [..., K] counts of each answer, including no answer where it is a state of its own.

    Returns:
        [..., K] probabilities.

    Raises:
        OutOfRangeError: counts that are not integers from 0, or a question without any.
    """
    answers = np.asarray(counts)
    if answers.ndim < 1 or answers.dtype.kind not in "iu" or (answers < 0).any():
        raise OutOfRangeError(
            "Counts of answers are integers from 0, one per candidate; give an array [..., K] of"
            " them."
        )
    total = answers.sum(axis=-1, keepdims=True)
    if len(empty := np.argwhere(total[..., 0] == 0)):
        raise OutOfRangeError(
            f"The counts{at_index(tuple(empty[0].tolist()))} are all 0, so they have no"
            " distribution; leave that question out."
        )
    shares: Floats = answers / total
    return shares


def gumbel_coupling_joint(p: npt.ArrayLike, p_prime: npt.ArrayLike) -> Floats:
    """Joint distribution of two answers under shared Gumbel noise: Pr(i, j) of the module, O(K^2)
    per pair.

    Its margins are the two distributions, and Pr(i, j) = 0 for i != j with p_i p'_j <= p_j p'_i: a
    token is never replaced by one that became relatively less likely (counterfactual stability;
    arXiv 2502.01754, sections 2 and 3).

    Args:
        p, p_prime: [..., K] distributions of the two LLMs over the same answers.

    Returns:
        [..., K, K] probability that the first answers i and the second j.

    Raises:
        OutOfRangeError: shapes that differ, values that are not probabilities, or sums off 1.
    """
    first, second = _laws(p, p_prime)
    race = _Race.of(first, second)
    gain = race.spent[..., :, None] - race.spent[..., None, :]
    joint: Floats = first[..., :, None] * second[..., None, :] * np.maximum(gain, 0.0)
    diagonal = np.arange(first.shape[-1])
    joint[..., diagonal, diagonal] = race.same
    return joint


def coupled_correctness(
    p: npt.ArrayLike, p_prime: npt.ArrayLike, correct: npt.ArrayLike
) -> CoupledCorrectness:
    """Joint correctness under shared Gumbel noise, for any set of right answers, O(K log K) per
    question.

        Cov = sum over right i, j of Pr(i, j) - p(C) p'(C),     Var(S - S') = Var S + Var S' - 2 Cov

    The covariance is never negative, for any two distributions and any set C: both events are
    monotone in every E_k in the same direction (Harris' inequality). So Proposition 3 of arXiv
    2502.01754 does not need the LLMs to be close; Proposition 2 is the case of two answers.

    Args:
        p, p_prime: [..., K] distributions of the two LLMs.
        correct: [..., K] or [K] booleans: which answers are right.

    Returns:
        Values per question.

    Raises:
        OutOfRangeError: distributions as for `gumbel_coupling_joint`, or a `correct` that does not
            fit them.
    """
    first, second = _laws(p, p_prime)
    right = _mask(correct, first.shape)
    race = _Race.of(first, second)
    right_first, right_second = (
        np.clip((law * right).sum(axis=-1), 0.0, 1.0) for law in (first, second)
    )
    both = np.minimum(
        race.within(first * right, second * right, right), np.minimum(right_first, right_second)
    )
    covariance = np.maximum(both - right_first * right_second, 0.0)  # below 0 by rounding only
    independent = right_first * (1.0 - right_first) + right_second * (1.0 - right_second)
    coupled = np.maximum(independent - 2.0 * covariance, 0.0)
    return CoupledCorrectness(
        right_first, right_second, both, race.same.sum(axis=-1), covariance, coupled, independent
    )


def score_difference_variance(
    p: npt.ArrayLike,
    p_prime: npt.ArrayLike,
    correct: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> ScoreDifferenceVariance:
    """Variance of the difference in being right over prompts and noise, coupled and independent
    (arXiv 2502.01754, Prop. 1).

        Var_independent - Var_coupled = 2 E_q[Cov(. | q)]

    with the covariance *within* prompts; the covariance of accuracies between prompts is part of
    both variances. Assumes prompts drawn by their weights.

    Args:
        p, p_prime: [Q, K] distributions of the two LLMs, one row per prompt.
        correct: [Q, K] booleans: which answers are right.
        weights: [Q] weights of the prompts, summing to 1; equal by default.

    Returns:
        The two variances and the two covariances.

    Raises:
        OutOfRangeError: as for `coupled_correctness`, no prompts, or weights that are not a
            distribution over them.
    """
    correctness = coupled_correctness(p, p_prime, correct)
    if correctness.first.ndim != 1 or not len(correctness.first):
        raise OutOfRangeError(
            f"Prompts are the rows of p; an array of shape {np.shape(p)} has no such rows."
        )
    shares = (
        np.full(len(correctness.first), 1.0 / len(correctness.first))
        if weights is None
        else checked_distribution(weights, "weights")
    )
    if shares.shape != correctness.first.shape:
        raise OutOfRangeError(
            f"{len(correctness.first)} prompts have one weight each; {shares.size} weights were"
            " given."
        )

    def mean(values: Floats) -> float:
        return float(shares @ values)

    difference = correctness.first - correctness.second
    between = mean((difference - mean(difference)) ** 2)
    accuracies = mean(
        (correctness.first - mean(correctness.first))
        * (correctness.second - mean(correctness.second))
    )
    within = mean(correctness.covariance)
    return ScoreDifferenceVariance(
        independent=mean(correctness.variance_independent) + between,
        coupled=mean(correctness.variance_coupled) + between,
        within_covariance=within,
        total_covariance=within + accuracies,
    )


@dataclass(frozen=True, eq=False)
class _Race:
    """The race of the module: answers [..., K] by t, H(t_k) and Pr(k, k)."""

    order: npt.NDArray[np.intp]
    spent: Floats
    same: Floats

    @classmethod
    def of(cls, first: Floats, second: Floats) -> _Race:
        total = first + second
        possible = total > 0.0
        scale = np.where(possible, total, 1.0)
        # t and 1 - t, without cancellation
        share, rest = first / scale, np.where(possible, second / scale, 1.0)
        order = np.argsort(share, axis=-1, kind="stable")
        t, back = np.take_along_axis(share, order, -1), np.take_along_axis(rest, order, -1)
        mine, yours = np.take_along_axis(first, order, -1), np.take_along_axis(second, order, -1)
        below = np.cumsum(yours, axis=-1)  # sum of p'_l with t_l <= t_k
        above = (
            np.flip(np.cumsum(np.flip(mine, -1), axis=-1), -1) - mine
        )  # sum of p_l with t_l > t_k, or equal and later
        envelope = above * back + below * t
        grown = (
            np.concatenate([t[..., :1], (t[..., 1:] - t[..., :-1]) / envelope[..., :-1]], axis=-1)
            / envelope
        )
        grown[..., 0] /= first.sum(axis=-1)  # E(0)
        sorted_spent = np.cumsum(grown, axis=-1)
        spent, same = np.empty_like(first), np.empty_like(first)
        np.put_along_axis(spent, order, sorted_spent, -1)
        np.put_along_axis(same, order, mine * back / envelope, -1)
        return cls(order, spent, same)

    def within(self, mine: Floats, yours: Floats, right: Bools) -> Floats:
        """Sum of Pr(i, j) over the right answers; mine and yours hold their probabilities, 0
        elsewhere.
        """
        first, second, spent = (
            np.take_along_axis(values, self.order, -1) for values in (mine, yours, self.spent)
        )
        mass = np.cumsum(second, axis=-1) - second
        paid = np.cumsum(second * spent, axis=-1) - second * spent
        apart = (first * (spent * mass - paid)).sum(axis=-1)
        together: Floats = apart + (self.same * right).sum(axis=-1)
        return together


def _laws(p: npt.ArrayLike, p_prime: npt.ArrayLike) -> tuple[Floats, Floats]:
    first, second = checked_distribution(p, "p"), checked_distribution(p_prime, "p_prime")
    if first.shape != second.shape:
        raise OutOfRangeError(
            f"Two laws are coupled over the same answers; p has shape {first.shape} and p_prime"
            f" {second.shape}. Give both a place for every answer, 0 where an LLM never gives it."
        )
    return first, second


def _mask(correct: npt.ArrayLike, shape: tuple[int, ...]) -> Bools:
    mask = np.asarray(correct)
    if (
        mask.dtype != np.bool_
        or mask.shape[-1:] != shape[-1:]
        or mask.shape not in (shape, shape[-1:])
    ):
        raise OutOfRangeError(
            f"Right answers are booleans, one for each of the {shape[-1]} answers of a law;"
            f" `correct` has shape {mask.shape} and holds {mask.dtype}."
        )
    return np.broadcast_to(mask, shape)

"""The Gumbel coupling of two answer distributions: joint answers of two LLMs that share the noise
of the Gumbel-max sampler.

Both pick argmin_k E_k / p_k with the same exponential E_k (equivalently argmax log p_k + G_k, G_k =
-log E_k). With t_k = p_k / (p_k + p'_k), the first LLM's preference for answer k, and

    E(t) = sum_k max(p_k (1 - t), p'_k t),     H(t) = int_0^t du / E(u)^2,

integrating the race gives the joint distribution (arXiv 2502.01754, sections 2 to 4, states the
sampler; the closed form is in `docs/coupling.md`):

    Pr(i, i) = p_i p'_i / ((p_i + p'_i) E(t_i))
    Pr(i, j) = p_i p'_j (H(t_i) - H(t_j))_+     for i != j.

E is linear between neighbouring t_k, so H grows by (v - u) / (E(u) E(v)) from one to the next, and
E is at least 1/2, so nothing overflows, not even where one LLM never gives an answer.

**Scope.** This couples two distributions of *answers* (or of single next tokens). Sampling whole
chains of thought with shared noise couples tokens, whose joint distribution recorded answers do not
show. Assumes that given the question an LLM's answers are independent draws from its distribution
(one token, or one answer, per call); distributions estimated from n CoTs carry their error.

Two LLMs compared on recorded calls, coupled (call s of both shares its noise) and independent.

Scores are numbers, 1 and 0 for right and wrong; arrays are [Q, S] with S calls per question.
Estimates *within* a question need two or more calls; coupling does not change the covariance of
accuracies between questions (arXiv 2502.01754, Proposition 1). Assumes that, given the question,
different calls are independent; call s of one LLM is paired with call s of the other, and shares
noise with no other call. Sample sizes count pairs of calls.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Bools, Floats, Int64, Result, checked_distribution, require_each
from feval.estimators.intervals import bootstrap_means


class CoupledCorrectness(Result):
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


class ScoreDifferenceVariance(Result):
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
    require_each(
        total[..., 0] > 0,
        "The counts{at} are all 0, so they have no distribution; leave that question out.",
    )
    result: Floats = answers / total
    return result


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
    race = _Race(first, second)
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
    right, shape = np.asarray(correct), first.shape
    if right.dtype != np.bool_ or right.shape not in (shape, shape[-1:]):
        raise OutOfRangeError(
            f"Right answers are booleans, one for each of the {shape[-1]} answers of a law;"
            f" `correct` has shape {right.shape} and holds {right.dtype}."
        )
    right = np.broadcast_to(right, shape)
    race = _Race(first, second)
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

    spread = np.cov(correctness.first, correctness.second, ddof=0, aweights=shares)
    between = float(np.trace(spread) - 2.0 * spread[0, 1])
    within = mean(correctness.covariance)
    return ScoreDifferenceVariance(
        independent=mean(correctness.variance_independent) + between,
        coupled=mean(correctness.variance_coupled) + between,
        within_covariance=within,
        total_covariance=within + float(spread[0, 1]),
    )


class _Race:
    """The race of the module: `order` of the answers [..., K] by t, `spent` H(t_k) and `same` Pr(k,
    k).
    """

    def __init__(self, first: Floats, second: Floats) -> None:
        total = first + second
        possible = total > 0.0
        scale = np.where(possible, total, 1.0)
        # t and 1 - t, without cancellation
        share, rest = first / scale, np.where(possible, second / scale, 1.0)
        order = self.order = np.argsort(share, axis=-1, kind="stable")
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
        self.spent, self.same = np.empty_like(first), np.empty_like(first)
        np.put_along_axis(self.spent, order, sorted_spent, -1)
        np.put_along_axis(self.same, order, mine * back / envelope, -1)

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
        result: Floats = apart + (self.same * right).sum(axis=-1)
        return result


def _laws(p: npt.ArrayLike, p_prime: npt.ArrayLike) -> tuple[Floats, Floats]:
    first, second = checked_distribution(p, "p"), checked_distribution(p_prime, "p_prime")
    if first.shape != second.shape:
        raise OutOfRangeError(
            f"Two laws are coupled over the same answers; p has shape {first.shape} and p_prime"
            f" {second.shape}. Give both a place for every answer, 0 where an LLM never gives it."
        )
    return first, second


_LATTICE = 1e-9  # tolerance for differences of -1, 0 or 1
_TAIL = 8.5  # standard deviations beyond which counts are ignored: less than 1e-16


class CoupledStatistics(Result):
    """The difference of two LLMs' scores on Q questions, from S coupled calls of each.

    Attributes:
        covariance: [Q] within-question covariance of the two scores of a pair, unbiased.
        variance_coupled: [Q] within-question variance of their difference, unbiased.
        variance_independent: [Q] the same for calls that share no noise: the sum of the two
            variances.
        between: variance over questions of the expected difference, part of both totals: the
            variance of the means minus the share due to calls, which is unbiased; 0 where that is
            negative, and for a single question.
        total_coupled, total_independent: variances of the difference over questions and noise, mean
            variance + `between`.
    """

    covariance: Floats
    variance_coupled: Floats
    variance_independent: Floats
    between: float
    total_coupled: float
    total_independent: float


class EqualError(Result):
    """How many coupled pairs are worth a number of independent ones.

    Attributes:
        independent, error: the number of independent pairs and their mean absolute error.
        coupled: the smallest number of coupled pairs whose mean absolute error is no larger.
        ratio: coupled / independent where the coupled error, interpolated linearly, equals the
            independent one.
        low, high: ends of the ratio's interval; NaN for a single question.
    """

    independent: int
    error: float
    coupled: int
    ratio: float
    low: float
    high: float


def coupled_statistics(first: npt.ArrayLike, second: npt.ArrayLike) -> CoupledStatistics:
    """Covariance and variances of two LLMs' scores under shared noise, within and over questions.

        Cov_q = sum_s (x_s - mean x)(y_s - mean y) / (S - 1)
        Var_ind - Var_coupled = 2 mean_q Cov_q

    (arXiv 2502.01754, Proposition 1 and Figures 2a and 2b.) Both variances are of the *same*
    recorded calls: from the marginal distributions alone, and with pairing. Calls recorded without
    shared noise have a covariance near 0.

    Args:
        first, second: [Q, S] scores of the two LLMs; call s of both shares its noise.

    Returns:
        Values per question, and totals.

    Raises:
        OutOfRangeError: shapes that differ, no questions, fewer than two calls, or a score that is
            not finite.
    """
    x, y = (np.asarray(values, np.float64) for values in (first, second))
    if x.ndim != 2 or x.shape != y.shape or not x.size:
        raise OutOfRangeError(
            f"Coupled scores are two arrays [questions, calls] of one shape; they have {x.shape}"
            f" and {y.shape}. Take as many calls of both LLMs on the same questions."
        )
    for name, values in (("first", x), ("second", y)):
        require_each(
            np.isfinite(values), f"Scores are finite numbers; {name} is {{0}}{{at}}.", values
        )
    calls = x.shape[1]
    if calls < 2:
        raise OutOfRangeError(
            "Within a question a variance takes two calls or more; each question has 1."
        )
    x_off, y_off = (values - values.mean(axis=1, keepdims=True) for values in (x, y))
    covariance = (x_off * y_off).sum(axis=1) / (calls - 1)
    independent = ((x_off**2) + (y_off**2)).sum(axis=1) / (calls - 1)
    coupled = ((x_off - y_off) ** 2).sum(axis=1) / (calls - 1)
    means = (x - y).mean(axis=1)
    spread = float(means.var(ddof=1)) - float(coupled.mean()) / calls if len(means) > 1 else 0.0
    between = max(spread, 0.0)
    return CoupledStatistics(
        covariance,
        coupled,
        independent,
        between,
        float(coupled.mean()) + between,
        float(independent.mean()) + between,
    )


def estimation_error(differences: npt.ArrayLike, sizes: npt.ArrayLike) -> Floats:
    """Mean absolute error of a mean difference estimated from N of the recorded pairs, exactly
    (arXiv 2502.01754, Figure 2c).

        e(N) = E | mean of N pairs drawn without replacement - mean of all M pairs |

    over all choices of N from the M recorded pairs, by the multivariate hypergeometric distribution
    of the counts of -1, 0 and 1; the paper estimates it by sampling.

    Args:
        differences: [...] differences of the M pairs: 1, 0 or -1.
        sizes: [C] numbers of pairs N, from 1 to M.

    Returns:
        [C] mean absolute errors; 0 at N = M.

    Raises:
        OutOfRangeError: differences of other values, or a size outside 1..M.
    """
    plus, minus, total = _ternary(differences)
    numbers = np.atleast_1d(np.asarray(sizes))
    if (
        numbers.dtype.kind not in "iu"
        or numbers.ndim != 1
        or (numbers < 1).any()
        or (numbers > total).any()
    ):
        raise OutOfRangeError(
            f"Sample sizes are whole numbers from 1 to the {total} recorded pairs; {sizes!r} was"
            " given."
        )
    return np.array([_absolute_error(plus, minus, total, int(size)) for size in numbers])


def equal_error_samples(
    coupled: npt.ArrayLike,
    independent: npt.ArrayLike,
    samples: int = 200,
    *,
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> EqualError:
    """How many coupled pairs reach the mean absolute error of so many independent ones (arXiv
    2502.01754, Figure 2c).

    Both errors are those of `estimation_error`, each against the mean of its own recorded pairs.
    The interval resamples questions with all their pairs. In a resample errors are approximated by
    a normal with the exact variance s^2 / N * (M - N) / (M - 1), whose common factor cancels, so no
    search is needed:

        N = M / (1 + (M / n - 1) v_independent / v_coupled),     v the variance over all pairs,

    scaled to match the exact ratio on all questions, and clipped to 1..M. A 95 % interval covers
    about 0.94 from 30 questions on, less with fewer. Where coupled pairs hardly ever differ (one in
    a hundred) the error of small N is flat, the ratio is poorly determined, and coverage was 0.5 to
    0.75. Assumes, for the interval, questions that are independent draws.

    Args:
        coupled, independent: [Q, S] differences of scores, 1, 0 or -1, of pairs that share noise
            and of pairs that do not.
        samples: n, number of independent pairs.
        confidence: coverage of the interval.
        resamples, seed: of the bootstrap.

    Returns:
        The number of coupled pairs, its ratio to n and the ratio's interval.

    Raises:
        OutOfRangeError: as for `estimation_error`; pools of different sizes; or independent pairs
            that never differ, so that their error is 0.
    """
    shared, apart = (np.asarray(values, np.float64) for values in (coupled, independent))
    if shared.ndim != 2 or shared.shape != apart.shape:
        raise OutOfRangeError(
            "Coupled and independent pairs are compared on the same questions with as many calls;"
            f" their shapes are {shared.shape} and {apart.shape}."
        )
    error = float(estimation_error(apart, [samples])[0])
    if error <= 0.0:
        raise OutOfRangeError(
            f"{samples} of {apart.size} independent pairs have no error to match; ask for fewer."
        )
    needed, exact = _needed(_ternary(shared), error)
    if len(shared) == 1:
        return EqualError(samples, error, needed, exact / samples, np.nan, np.nan)
    moments = np.stack(
        [values.mean(axis=1) for values in (shared, shared**2, apart, apart**2)], axis=1
    )
    means = bootstrap_means(moments, resamples=resamples, seed=seed)
    tail = 50.0 * (1.0 - confidence)
    resampled = _by_the_normal_law(means, shared.size, samples)
    [observed] = _by_the_normal_law(moments.mean(axis=0, keepdims=True), shared.size, samples)
    low, high = np.percentile(
        np.clip(resampled * (exact / observed), 1.0, shared.size) / samples, [tail, 100.0 - tail]
    )
    return EqualError(samples, error, needed, exact / samples, float(low), float(high))


def _by_the_normal_law(moments: Floats, pairs: int, samples: int) -> Floats:
    """Coupled pairs of the same variance of the mean: [R] from [R, 4] first and second moments,
    coupled and independent.
    """
    shared, apart = (np.maximum(moments[:, i + 1] - moments[:, i] ** 2, 0.0) for i in (0, 2))
    per_pair = np.divide(apart, shared, out=np.full(len(moments), np.inf), where=shared > _LATTICE)
    result: Floats = np.maximum(pairs / (1.0 + (pairs / samples - 1.0) * per_pair), 1.0)
    return result


def _needed(counts: tuple[int, int, int], error: float) -> tuple[int, float]:
    """The smallest N with an error no larger, and where the error, linear between whole numbers,
    equals it.
    """
    at, most, high = partial(_absolute_error, *counts), counts[2], 1
    # Doubling first: small numbers are quick to sum over and nearly always enough.
    while high < most and at(high) > error:
        high = min(2 * high, most)
    high = bisect_left(range(most), -error, high // 2 + 1, high, key=lambda size: -at(size))
    if high == 1:
        return 1, 1.0
    before, after = at(high - 1), at(high)
    return high, high - 1 + (before - error) / (before - after)


def _absolute_error(plus: int, minus: int, total: int, size: int) -> float:
    """E |mean of `size` draws - mean of all|, with the counts of 1 and -1 among `total`."""
    if size == total or plus + minus == 0:
        return 0.0
    mean = (plus - minus) / total
    ones, others = _likely(total, plus, size), _likely(total, minus, size)
    chance_of_ones = _hypergeometric(total, plus, size, ones)
    chance = _hypergeometric(total - plus, minus, (size - ones)[:, None], others[None, :])
    off = np.abs((ones[:, None] - others[None, :]) / size - mean)
    return float(chance_of_ones @ (chance * off).sum(axis=1))


def _likely(total: int, marked: int, size: int) -> Int64:
    """Counts of marked items among `size` of `total` within `_TAIL` standard deviations, for any
    number of ones.
    """
    share = marked / total
    spread = _TAIL * np.sqrt(size * share * (1.0 - share)) + _TAIL**2 / 2.0
    low = max(0, size - (total - marked), int(np.floor(size * share - spread)))
    high = min(marked, size, int(np.ceil(size * share + spread)))
    return np.arange(low, high + 1, dtype=np.int64)


def _hypergeometric(total: int, marked: int, size: int | Int64, count: Int64) -> Floats:
    """Probability of a count of marked items among `size` drawn from `total`; 0 where it is
    impossible.
    """

    def choose(n: int, m: int | Int64) -> Any:  # its logarithm, -inf for an impossible m
        log_factorial = scipy.special.gammaln
        return log_factorial(n + 1.0) - log_factorial(m + 1.0) - log_factorial(n - m + 1.0)

    logs = choose(marked, count) + choose(total - marked, size - count) - choose(total, size)
    result: Floats = np.exp(logs)
    return result


def _ternary(differences: npt.ArrayLike) -> tuple[int, int, int]:
    """Number of differences that are 1, number that are -1, and the total."""
    values = np.asarray(differences, np.float64).ravel()
    rounded = np.rint(values)
    wrong = np.flatnonzero(~((np.abs(values - rounded) <= _LATTICE) & (np.abs(rounded) <= 1.0)))
    if not values.size or len(wrong):
        problem = (
            f"number {wrong[0]} is {float(values[wrong[0]])!r}" if values.size else "there are none"
        )
        raise OutOfRangeError(f"Differences of right and wrong are 1, 0 or -1; {problem}.")
    return int((rounded > 0).sum()), int((rounded < 0).sum()), values.size

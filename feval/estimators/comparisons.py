"""Two curves on the same questions: differences at equal cost, costs at equal accuracy, and the
certainty of their signs.

A curve is a row of points (cost, accuracy) sorted by cost. Accuracy is linear in the log cost
between points and undefined outside. All functions take the resampled means of `bootstrap_means`,
in which resample r has the same questions for every curve, so that comparisons stay paired. Feval's
own reading of curves; assumes resamples of independent questions.

Pareto frontier of costs and accuracies, and the area under a curve's hull.

Feval's own, except for RouterBench's AIQ; assumes nothing about the calls.

Bradley-Terry strengths from pairwise wins, which are assumed independent given the strengths.

Whether new CoTs came from the same LLM as earlier ones: two stratified permutation tests, on
answers and on lengths. If nothing changed, old and new CoTs of a question are exchangeable; so the
labels old and new are permuted within every question. Questions are strata: their difficulty and
their numbers of old and new CoTs may differ. Permutations come from the raw 64-bit outputs of
Philox, whose stream NumPy promises to keep; if there are no more arrangements than resamples, all
are enumerated, and the p-values are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy

from feval.errors import OutOfRangeError
from feval.estimators.arrays import (
    TIED,
    Bools,
    Floats,
    Integers,
    Numbers,
    Result,
    Rows,
    require_each,
)

_EQUAL = 1e-11  # rounding error of a difference of zero


def accuracy_at(cost: float, costs: Floats, accuracy: Floats) -> Floats:
    """Accuracy of a curve at a cost between its points, linear in log cost.

    With c_i <= c <= c_(i+1): (1 - w) a_i + w a_(i+1), w = log(c / c_i) / log(c_(i+1) / c_i).

    Args:
        cost: c, between the first and the last cost.
        costs: [P] ascending, positive; of points at the same cost the first one counts.
        accuracy: [..., P] means, or values per question.

    Returns:
        [...] values at c.

    Raises:
        OutOfRangeError: c is outside the curve, or a cost is not positive.
    """
    if not (costs > 0).all() or not costs[0] * (1 - _EQUAL) <= cost <= costs[-1] * (1 + _EQUAL):
        raise OutOfRangeError(
            f"A curve from {costs[0]:g} to {costs[-1]:g} has no accuracy at {cost:g}; ask for a"
            " cost between its ends."
        )
    above = int(np.searchsorted(costs, cost))
    if above == len(costs) or abs(costs[above] - cost) <= _EQUAL * cost or above == 0:
        return accuracy[..., min(above, len(costs) - 1)]
    weight = np.log(cost / costs[above - 1]) / np.log(costs[above] / costs[above - 1])
    result: Floats = (1.0 - weight) * accuracy[..., above - 1] + weight * accuracy[..., above]
    return result


def cost_to_reach(target: float, costs: Floats, accuracy: Floats) -> Floats:
    """Least cost at which the non-decreasing envelope of a curve reaches an accuracy.

    The envelope is the running maximum of the points by cost, linear in log cost between them: a
    budget need not be spent.

    Args:
        target: accuracy.
        costs, accuracy: [R, P] mean costs of each resample, positive, and mean accuracies.

    Returns:
        [R] costs; infinite where the target is never reached, the cheapest point's where that point
        reaches it already.
    """
    order = np.argsort(costs, axis=1, kind="stable")
    logs = np.log(np.take_along_axis(costs, order, axis=1))
    best = np.maximum.accumulate(np.take_along_axis(accuracy, order, axis=1), axis=1)
    at = first_reached(target, logs, best, _EQUAL)
    return np.where(np.isnan(at), np.inf, np.exp(at))


def first_reached(level: float, places: Floats, heights: Floats, room: float) -> Floats:
    """[R] the first place at which the lines through the points (places, heights), both [R, P],
    reach a level up to `room`; NaN where they never do.
    """
    reached = heights >= level - room
    rows, first = np.arange(len(reached)), reached.argmax(axis=1)
    before = np.maximum(first - 1, 0)
    low, high = heights[rows, before], heights[rows, first]
    share = np.where(high > low, (level - low) / np.where(high > low, high - low, 1.0), 1.0)
    start, end = places[rows, before], places[rows, first]
    at = start + np.clip(share, 0.0, 1.0) * (end - start)
    return np.where(reached.any(axis=1), at, np.nan)


def percentiles(values: Floats, confidence: float) -> tuple[float, float]:
    """Ends of the percentile interval of resampled values [R], ignoring NaN but not infinity (Efron
    and Tibshirani, chapter 13).

    The (1 - confidence) / 2 quantile and its mirror, linear between order statistics; NaN if no
    value is defined. An end between a finite and an infinite value is infinite.
    """
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return float("nan"), float("nan")
    tail = (1.0 - confidence) / 2.0
    places = np.array([tail, 1.0 - tail]) * (len(known) - 1)
    low, high = np.interp(places, np.arange(len(known)), known).tolist()
    return low, high


def flip_probability(observed: float, resampled: Floats) -> float:
    """Share of resamples [R] with the opposite sign, ties counting half: #{d* on the other side} /
    R + #{d* = 0} / (2 R).

    An observed difference of 0 counts as positive.
    """
    sign = -1.0 if observed < -_EQUAL else 1.0
    ahead = sign * resampled
    return float((ahead < -_EQUAL).mean() + 0.5 * (np.abs(ahead) <= _EQUAL).mean())


def holm(p_values: Numbers | list[float]) -> Floats:
    """Holm's adjustment, which bounds the probability of any false alarm among all m comparisons.

    With p_(1) <= ... <= p_(m): adjusted p_(i) = min(1, max_{j <= i} (m - j + 1) p_(j)) (Holm 1979,
    A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6,
    https://www.jstor.org/stable/4615733). It holds under any dependence. Assumes that each p-value
    by itself is valid.

    Args:
        p_values: m of them.

    Returns:
        [m] adjusted values, in the order given.
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def hull_area(costs: Floats, accuracy: Floats, low: float | Floats, high: float | Floats) -> Floats:
    """Average height of the non-decreasing convex hull of a curve over a range of costs:
    RouterBench's AIQ.

        AIQ = 1 / (high - low) * integral from low to high of H(c) dc

    H is the smallest concave, non-decreasing function above all points: a user can mix two methods
    at random, question by question, and leave budget unspent (Hu et al., RouterBench, 2024,
    https://arxiv.org/abs/2403.12031, section 3). Cost is linear here, as there.

    Args:
        costs: [P], the same for all resamples, or [R, P].
        accuracy: [R, P] mean accuracies.
        low: lower end of the range, one or [R], not below the cheapest point, where there is no
            hull.
        high: upper end, above `low`; beyond the last point the hull is level.

    Returns:
        [R] accuracies.

    Raises:
        OutOfRangeError: an empty range, or one that begins below the cheapest point.
    """
    costs = np.broadcast_to(costs, accuracy.shape)
    least = costs.min(axis=1)
    low, high = (np.broadcast_to(end, least.shape) for end in (low, high))
    require_each(
        (high > low) & (low >= least * (1 - TIED)),
        "The area under a hull that begins at {0:g} cannot be taken from {1:g} to {2:g}; take a"
        " range of some width above the cheapest point.",
        least,
        low,
        high,
    )
    # The hull begins at the best of the cheapest points; each step follows the steepest rise.
    at = np.where(costs == least[:, None], accuracy, -np.inf).argmax(axis=1)
    area = np.zeros(len(accuracy))
    walking = np.arange(len(accuracy))
    while len(walking):
        heights, own, rows = accuracy[walking], costs[walking], np.arange(len(at))
        height, start = heights[rows, at], own[rows, at]
        run, rise = own - start[:, None], heights - height[:, None]
        slopes = np.where((run > 0) & (rise > TIED), rise / np.where(run > 0, run, 1.0), 0.0)
        to = np.argmax(slopes, axis=1)
        slope = slopes[rows, to]
        first, last = low[walking], high[walking]
        end = np.where(slope > 0, own[rows, to], np.maximum(last, own.max(axis=1)))
        left, right = np.clip(start, first, last), np.clip(end, first, last)
        area[walking] += (right - left) * (height + slope * ((left + right) / 2 - start))
        walking, at = walking[slope > 0], to[slope > 0]
    return area / (high - low)


MAX_STRENGTH = 20.0
"""Largest difference of log strengths, for entries that never lost."""

_STEPS = 10_000
_SETTLED = 1e-10


def pairwise_wins(accuracy: Floats) -> Floats:
    """Share of questions that each wins over each: right where the other is wrong; ties count half.

        w_ij = P(i right, j wrong) + P(both right or both wrong) / 2 = (1 + a_i - a_j) / 2

    so only the accuracies a matter, under any dependence. The outcomes of the Bradley-Terry model
    in Hunter (2004), section 1.

    Args:
        accuracy: [R, K] mean accuracies.

    Returns:
        [R, K, K], w_ij + w_ji = 1; halves on the diagonal.
    """
    return (1.0 + accuracy[:, :, None] - accuracy[:, None, :]) / 2.0


def bradley_terry(wins: Floats) -> Floats:
    """Strengths of the Bradley-Terry model: P(i beats j) = 1 / (1 + exp(s_j - s_i)).

    Maximum likelihood by minorisation-maximisation, the step of Hunter (2004, Annals of Statistics
    32, 384-406, eq. 3):

        p_i <- W_i / sum_{j != i} (w_ij + w_ji) / (p_i + p_j)
        W_i = sum_{j != i} w_ij,     s = log p

    Natural logarithms with mean 0; a difference times 400 / log 10 is one on Elo's scale. An entry
    that never lost has no finite strength: differences are capped at `MAX_STRENGTH`.

    Args:
        wins: [R, K, K] wins of i over j, K at least 2; the diagonal is ignored.

    Returns:
        [R, K] log strengths with mean 0.

    Raises:
        OutOfRangeError: fewer than two to rank, or a pair without any comparison.
    """
    count = wins.shape[-1]
    off = ~np.eye(count, dtype=bool)
    if count < 2 or not ((wins + wins.transpose(0, 2, 1))[:, off] > 0).all():
        raise OutOfRangeError(
            f"A ranking needs two methods that are compared with each other; {count} were given."
        )
    shares = np.where(off, wins, 0.0)
    games, total = shares + shares.transpose(0, 2, 1), shares.sum(axis=2)
    least = np.exp(-MAX_STRENGTH)
    p = np.ones(total.shape)
    for _ in range(_STEPS):
        before = p
        p = total / (games / (p[:, :, None] + p[:, None, :])).sum(axis=2)
        p = np.maximum(p / p.max(axis=1, keepdims=True), least)
        if (np.abs(p - before) <= _SETTLED * before).all():
            break
    strengths: Floats = np.log(p)
    strengths -= strengths.mean(axis=1, keepdims=True)
    return strengths


_ROUNDING = 1e-9  # rounding error of equal statistics
_CHUNK = 1 << 20  # labels per chunk
_NO_PAIR = "No question has both old and new CoTs, so there is nothing to compare."


@dataclass(frozen=True)
class DriftTest:
    """Observed statistic, p-value of no change, and that adjusted for the two tests; NaN if nothing
    can be compared.
    """

    statistic: float
    p_value: float
    p_holm: float


@dataclass(frozen=True)
class Drift:
    """Old and new CoTs compared, over the questions that have both.

    Attributes:
        answers: test of the summed chi-square statistic over the answers.
        lengths: test of van Elteren's statistic of the output tokens; above 0 if new CoTs are
            longer.
        questions: number of those questions.
        arrangements, exact: number of arrangements of labels used, and whether those are all.
        distance: mean over questions of the total-variation distance between old and new answers.
        expected_distance: its mean over the arrangements, which is above 0 for pools of finite
            size.
        old_tokens, new_tokens: means over questions of the mean length of old and of new CoTs.
        reasons: sentences on what is missing.
    """

    answers: DriftTest
    lengths: DriftTest
    questions: int
    arrangements: int
    exact: bool
    distance: float
    expected_distance: float
    old_tokens: float
    new_tokens: float
    reasons: tuple[str, ...] = ()


def drift(
    question: Integers,
    answer: Integers,
    tokens: Integers,
    new: Bools,
    *,
    resamples: int = 1999,
    seed: int = 0,
) -> Drift:
    """Test whether old and new CoTs of the same questions are alike in their answers and in their
    lengths.

    With n_q CoTs of question q, m_q of them new, c_k with answer k and a_k of those new (no answer
    is an answer of its own):

        answers   S = sum_q sum_k (a_k - m_q c_k / n_q)^2 n_q^2 / (c_k m_q (n_q - m_q))
                  Pearson's chi-squares, summed
        lengths   W = sum_q (R_q - m_q (n_q + 1) / 2) / (n_q + 1)
                  R_q: sum of the new ones' mid-ranks

    p is the share of arrangements of the labels within questions with S, or |W|, at least as large
    as observed; of B sampled ones it is (1 + count) / (1 + B), which keeps the level at any B
    (Phipson and Smyth 2010, doi:10.2202/1544-6115.1585). W is van Elteren's statistic (P. van
    Elteren 1960, On the combination of independent two-sample tests of Wilcoxon, Bulletin of the
    ISI 37), with weights 1 / (n_q + 1). The two p-values are adjusted together by Holm.

    Assumes that CoTs of one question are exchangeable when nothing changed. The tests are valid for
    any numbers of CoTs, though few CoTs have little power.

    Args:
        question, answer, tokens: [N] of each CoT its question's number, its answer's code (-1 for
            none) and its output tokens.
        new: [N] whether it is new.
        resamples: B, at least 1.
        seed: 0 to 2^128 - 1. The same seed and CoTs give the same numbers.

    Returns:
        Both tests; NaN with a reason if no question has both old and new CoTs.

    Raises:
        OutOfRangeError: arrays of different shapes or other types, or resamples or a seed out of
            range.
    """
    strata = list(_strata(*_checked(question, answer, tokens, new, resamples, seed)))
    if not strata:
        nothing = DriftTest(math.nan, math.nan, math.nan)
        return Drift(
            nothing, nothing, 0, 0, False, math.nan, math.nan, math.nan, math.nan, (_NO_PAIR,)
        )
    ways = math.prod(math.comb(len(stratum.new), int(stratum.new.sum())) for stratum in strata)
    labels = (np.flatnonzero(stratum.new)[None] for stratum in strata)
    observed = sum(map(_Stratum.statistics, strata, labels), np.zeros((1, 3)))
    exact = ways <= resamples
    arranged = _enumerated(strata) if exact else _sampled(strata, resamples, seed)
    least = np.abs(observed[0, :2])
    as_large = (np.abs(arranged[:, :2]) >= least - _ROUNDING * np.maximum(1.0, least)).sum(axis=0)
    p_values = (as_large + (not exact)) / (len(arranged) + (not exact))
    tests = np.stack([observed[0, :2], p_values, holm(p_values)], axis=1).tolist()
    answers, lengths = (DriftTest(*test) for test in tests)
    return Drift(
        answers,
        lengths,
        len(strata),
        len(arranged),
        exact,
        distance=float(observed[0, 2]) / len(strata),
        expected_distance=float(arranged[:, 2].mean()) / len(strata),
        old_tokens=float(np.mean([stratum.tokens[~stratum.new].mean() for stratum in strata])),
        new_tokens=float(np.mean([stratum.tokens[stratum.new].mean() for stratum in strata])),
    )


class _Stratum(Result):
    """The CoTs of one question: answers [n, K] one-hot, mid-ranks of the lengths [n], tokens [n]
    and which are new [n].
    """

    answers: Floats
    ranks: Floats
    tokens: Integers
    new: Bools

    def statistics(self, chosen: Rows) -> Floats:
        """[A, 3] the question's terms of S, W and the total-variation distance, for arrangements
        [A, m] of which of its CoTs are new.
        """
        size, news = len(self.new), chosen.shape[1]
        counts = self.answers.sum(axis=0)
        dealt = np.zeros((len(chosen), size))
        dealt[np.arange(len(chosen))[:, None], chosen] = 1.0
        excess = dealt @ self.answers - news * counts / size
        spread = size / (news * (size - news))
        chi_square = (excess**2 / counts).sum(axis=1) * size * spread
        lengths = (dealt @ self.ranks - news * (size + 1) / 2) / (size + 1)
        return np.stack([chi_square, lengths, np.abs(excess).sum(axis=1) * spread / 2], axis=1)


def _strata(
    question: Integers, answer: Integers, tokens: Integers, new: Bools
) -> Iterator[_Stratum]:
    """The questions with both old and new CoTs, in the order of their numbers."""
    order = np.argsort(question, kind="stable")
    starts = np.flatnonzero(np.diff(question[order])) + 1
    for rows in np.split(order, starts):
        if 0 < new[rows].sum() < len(rows):
            codes = np.unique(answer[rows], return_inverse=True)[1]
            yield _Stratum(
                np.eye(int(codes.max()) + 1)[codes],
                scipy.stats.rankdata(tokens[rows]),
                tokens[rows],
                new[rows],
            )


def _enumerated(strata: list[_Stratum]) -> Floats:
    """[A, 3] statistics of all arrangements, over all combinations of questions."""
    sums = np.zeros((1, 3))
    for stratum in strata:
        chosen = list(combinations(range(len(stratum.new)), int(stratum.new.sum())))
        sums = (sums[:, None] + stratum.statistics(np.array(chosen))).reshape(-1, 3)
    return sums


def _sampled(strata: list[_Stratum], resamples: int, seed: int) -> Floats:
    """[B, 3] statistics of random arrangements: in every question the CoTs with the smallest random
    keys are new.
    """
    bits = np.random.Philox(key=seed)
    sums = np.zeros((resamples, 3))
    for stratum in strata:
        size, news = len(stratum.new), int(stratum.new.sum())
        step = max(1, _CHUNK // size)
        for start in range(0, resamples, step):
            count = min(step, resamples - start)
            keys = bits.random_raw(count * size).reshape(count, size)
            smallest = np.argpartition(keys, news - 1, axis=1)[:, :news]
            sums[start : start + count] += stratum.statistics(smallest)
    return sums


def _checked(
    question: Any, answer: Any, tokens: Any, new: Any, resamples: int, seed: int
) -> tuple[Integers, Integers, Integers, Bools]:
    if resamples < 1 or not 0 <= seed < 1 << 128:
        raise OutOfRangeError(
            "A test of drift takes 1 resample or more and a seed from 0 to 2^128 - 1;"
            f" resamples={resamples} and seed={seed} were given."
        )
    arrays = [np.asarray(array) for array in (question, answer, tokens, new)]
    kinds = [array.dtype.kind for array in arrays]
    if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise OutOfRangeError(
            "question, answer, tokens and new have one value for each CoT; their shapes are"
            f" {shapes}."
        )
    if arrays[0].size and not (set(kinds[:3]) <= set("iu") and kinds[3] == "b"):
        raise OutOfRangeError(
            "question, answer and tokens are whole numbers and new is true or false for each CoT;"
            f" found the types {', '.join(str(array.dtype) for array in arrays)}."
        )
    return arrays[0], arrays[1], arrays[2], arrays[3].astype(np.bool_)

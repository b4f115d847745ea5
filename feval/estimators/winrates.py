"""Win-rates: how often one LLM's answer is preferred to another's, with and without shared noise
(arXiv 2502.01754, section 4).

A comparison is won, lost or tied. Shared noise makes ties more frequent, and *which* comparisons
become ties depends on the pair, so with three or more LLMs even the ranking by average win-rate can
differ from that of independent generation. Assumes that on a prompt the two answers are drawn once
each, by the Gumbel-max sampler with shared noise ("coupled") or independently, and that the
preference depends on the two answers alone. Tests assume questions that are independent draws.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Bools, Floats, Int64, Result, broadcast, checked_probabilities
from feval.estimators.comparisons import holm
from feval.estimators.coupling import gumbel_coupling_joint
from feval.estimators.intervals import accuracy_interval, difference_test

_EQUAL = 1e-12  # rounding error of rates


class PairWinRates(Result):
    """Probabilities [..., 3] that the first LLM wins, loses and ties, with and without shared
    noise.
    """

    coupled: Floats
    independent: Floats


class AverageWinRates(Result):
    """Average win-rates [L] of LLMs over prompts and opponents, and their rankings, best first; of
    equal ones the first given.
    """

    coupled: Floats
    independent: Floats
    ranking_coupled: Int64
    ranking_independent: Int64


class RankedWinRates(Result):
    """Average win-rates of L LLMs with intervals, and ranks that account for them.

    Attributes:
        rates, low, high: [L] average win-rate and the ends of its interval.
        rank: [L] 1 + the number of significantly better LLMs; indistinguishable ones share a rank.
        worst_rank: [L] L - the number of significantly worse LLMs; `rank`..`worst_rank` is the
            interval of the rank.
    """

    rates: Floats
    low: Floats
    high: Floats
    rank: Int64
    worst_rank: Int64


class RankingChange(Result):
    """Whether two LLMs change places between coupled and independent generation.

    Attributes:
        pairs: [P, 2] every pair of LLMs.
        coupled, independent: [P] difference of average win-rates, first minus second, with and
            without shared noise.
        p_values: [P] p-values of the same order (or a tie) under both, Holm-adjusted over the
            pairs.
    """

    pairs: Int64
    coupled: Floats
    independent: Floats
    p_values: Floats


def two_token_winrates(a: npt.ArrayLike, b: npt.ArrayLike) -> PairWinRates:
    """Win-rates where a prompt has two possible answers, one of them preferred (arXiv 2502.01754,
    Proposition 4).

        coupled: win (a - b)_+, lose (b - a)_+;     independent: win a (1 - b), lose b (1 - a).

    Args:
        a, b: [...] probability that the first and that the second LLM gives the preferred answer.

    Returns:
        [..., 3] win, lose, tie for both.

    Raises:
        OutOfRangeError: a value that is not a probability, or shapes that do not match.
    """
    first, second = broadcast(a=checked_probabilities(a, "a"), b=checked_probabilities(b, "b"))
    gain = first - second
    coupled = (np.maximum(gain, 0.0), np.maximum(-gain, 0.0), 1.0 - np.abs(gain))
    win, lose = first * (1.0 - second), second * (1.0 - first)
    return PairWinRates(np.stack(coupled, -1), np.stack((win, lose, 1.0 - win - lose), -1))


def scored_winrates(p: npt.ArrayLike, p_prime: npt.ArrayLike, score: npt.ArrayLike) -> PairWinRates:
    """Win-rates where every answer has a score, and the higher one wins (arXiv 2502.01754, section
    4, second setting).

    Coupled by `gumbel_coupling_joint`, independent by the product of the two distributions. Equal
    scores tie.

    Args:
        p, p_prime: [..., K] distributions of the two LLMs over answers.
        score: [..., K] or [K] score of each answer.

    Returns:
        [..., 3] win, lose, tie for both.

    Raises:
        OutOfRangeError: distributions as for `gumbel_coupling_joint`, or scores that do not fit
            them or are not finite.
    """
    joint = gumbel_coupling_joint(p, p_prime)
    scores = np.asarray(score, np.float64)
    shape = joint.shape[:-1]
    if scores.shape not in (shape, shape[-1:]) or not np.isfinite(scores).all():
        raise OutOfRangeError(
            f"Each of the {shape[-1]} answers has one finite score; `score` has shape"
            f" {scores.shape}. Leave out questions whose answers were not scored."
        )
    order = np.sign(scores[..., :, None] - scores[..., None, :])
    apart = joint.sum(axis=-1)[..., :, None] * joint.sum(axis=-2)[..., None, :]
    return PairWinRates(_outcomes(joint, order), _outcomes(apart, order))


def sampled_winrates(
    first: npt.ArrayLike, second: npt.ArrayLike, calls: Literal["same", "other", "all"]
) -> Floats:
    """Win-rates from the scores of recorded calls: the share of comparisons of two calls on a
    question, unbiased.

    Calls that share noise estimate coupled generation, other calls independent generation (arXiv
    2502.01754, eqs. 24 and 31).

    Args:
        first, second: [Q, S] and [Q, S'] scores of the two LLMs' calls; higher is better, equal is
            a tie.
        calls: "same": call s with call s, which share noise in a coupled recording; "other": call s
            with all but call s; "all": all with all, for recordings with noise of their own.

    Returns:
        [Q, 3] shares of wins, losses, ties of the first.

    Raises:
        OutOfRangeError: shapes that do not match, a single call without another, or scores that are
            NaN.
    """
    x, y = (np.asarray(values, np.float64) for values in (first, second))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or not x.size or not y.size:
        raise OutOfRangeError(
            f"Two LLMs are compared on the same questions; their scores have shapes {x.shape},"
            f" {y.shape}."
        )
    if calls != "all" and (x.shape != y.shape or (calls == "other" and x.shape[1] < 2)):
        raise OutOfRangeError(
            "Coupled calls are paired by their number, and other calls take two or more; scores of"
            f" shapes {x.shape} and {y.shape} cannot be. Take as many calls of both, or compare all"
            " with all."
        )
    if np.isnan(x).any() or np.isnan(y).any():
        raise OutOfRangeError(
            "A score is missing (NaN); leave out its question, or record the score."
        )
    outcomes, pairs = _counted(x, y), x.shape[1]
    if calls != "same":
        same_call, outcomes = outcomes, np.zeros((len(x), 3))
        for call in y.T:
            outcomes += _counted(x, call[:, None])
        pairs *= y.shape[1]
        if calls == "other":
            outcomes, pairs = outcomes - same_call, pairs - x.shape[1]
    result: Floats = outcomes / pairs
    return result


def average_winrates(table: npt.ArrayLike) -> AverageWinRates:
    """Average win-rates of LLMs that give one of two answers, one preferred: the example of arXiv
    2502.01754, appendix B.6.

    The mean of `two_token_winrates` over prompts and over the other LLMs.

    Args:
        table: [Q, L] probability that each LLM gives the preferred answer to each prompt.

    Returns:
        Rates and rankings under both.

    Raises:
        OutOfRangeError: no prompts, fewer than two LLMs, or values that are not probabilities.
    """
    chances = _rates(table, "table")
    pairs = two_token_winrates(chances[:, :, None], chances[:, None, :])
    others = ~np.eye(chances.shape[1], dtype=bool) / (chances.shape[1] - 1)
    coupled, independent = (
        (rates[..., 0].mean(axis=0) * others).sum(axis=1)
        for rates in (pairs.coupled, pairs.independent)
    )
    return AverageWinRates(coupled, independent, _ranking(coupled), _ranking(independent))


def ranked_winrates(wins: npt.ArrayLike, *, confidence: float = 0.95) -> RankedWinRates:
    """Average win-rates with intervals over questions, and ranks with ties (arXiv 2502.01754, Table
    1).

    As in the paper, two LLMs differ in rank if their intervals do not overlap. Intervals of rates
    are those of `accuracy_interval`.

    Args:
        wins: [Q, L] average over its opponents of each LLM's win-rate on each question.
        confidence: coverage of the intervals.

    Returns:
        Rates, intervals and ranks.

    Raises:
        OutOfRangeError: fewer than two LLMs, no questions, or values outside [0, 1].
    """
    rates = _rates(wins)
    ends = accuracy_interval(rates, confidence)
    better = ends.low[:, None] > ends.high[None, :] + _EQUAL
    rank = 1 + better.sum(axis=0)
    return RankedWinRates(
        rates.mean(axis=0), ends.low, ends.high, rank, rates.shape[1] - better.sum(axis=1)
    )


def ranking_change(coupled: npt.ArrayLike, independent: npt.ArrayLike) -> RankingChange:
    """Test whether LLMs change places between coupled and independent generation.

    Two LLMs change places if the difference of their average win-rates has opposite signs. An
    intersection-union test (R. L. Berger 1982, Multiparameter hypothesis testing and acceptance
    sampling, Technometrics 24, 295-300, doi:10.1080/00401706.1982.10487790) rejects "same order or
    a tie" when both signs are significant: its p-value is the larger of the two one-sided ones,
    each half the two-sided one of `difference_test`. Holm's adjustment covers all pairs.

    Args:
        coupled, independent: [Q, L] average win-rate of each LLM on each question, with and without
            shared noise.

    Returns:
        Differences and p-values per pair; 1 where the signs agree.

    Raises:
        OutOfRangeError: as for `ranked_winrates`, or tables of different shapes.
    """
    shared, apart = _rates(coupled), _rates(independent)
    if shared.shape != apart.shape:
        raise OutOfRangeError(
            "Rankings are compared on the same questions and LLMs; the tables have shapes"
            f" {shared.shape} and {apart.shape}."
        )
    one, two = np.triu_indices(shared.shape[1], 1)
    differences, p_values = [], []
    for values in (shared, apart):
        each = values[:, one] - values[:, two]
        difference = each.mean(axis=0)
        differences.append(np.where(np.abs(difference) <= _EQUAL, 0.0, difference))
        p_values.append(difference_test(each).p_value / 2)
    opposite = differences[0] * differences[1] < 0.0
    p = np.where(opposite, np.maximum(*p_values), 1.0)
    return RankingChange(np.stack([one, two], axis=1), differences[0], differences[1], holm(p))


def preference_cycle(margins: npt.ArrayLike, *, confidence: float = 0.95) -> tuple[int, ...]:
    """The shortest cycle of significant preferences (A over B over C over A); empty if there is
    none.

    No order of the LLMs, so no Bradley-Terry strengths, can agree with a cycle (Condorcet's
    paradox). Significance is by `difference_test` over questions, Holm-adjusted over the pairs.
    Feval's own test.

    Args:
        margins: [Q, L, L] share of comparisons that i wins over j minus the share that it loses.
        confidence: 1 minus the level of the test.

    Returns:
        LLMs, each preferred to the next, and the last to the first.

    Raises:
        OutOfRangeError: fewer than two LLMs, no questions, or margins that are not in [-1, 1].
    """
    shares = np.asarray(margins, np.float64)
    if (
        shares.ndim != 3
        or not len(shares)
        or shares.shape[1] != shares.shape[2]
        or shares.shape[1] < 2
    ):
        raise OutOfRangeError(
            f"Preferences take questions by pairs of LLMs; the table has shape {shares.shape}."
        )
    count = shares.shape[1]
    one, two = np.triu_indices(count, 1)
    values = shares[:, one, two]
    sure = holm(difference_test(values).p_value) <= 1.0 - confidence
    mean, beats = values.mean(axis=0), np.zeros((count, count), bool)
    beats[one, two], beats[two, one] = sure & (mean > 0), sure & (mean < 0)
    return min(
        filter(None, (_shortest_cycle(beats, start) for start in range(count))), key=len, default=()
    )


def _shortest_cycle(beats: Bools, start: int) -> tuple[int, ...]:
    """Shortest path from an LLM along preferences back to itself, breadth first; empty if there is
    none.
    """
    paths: list[tuple[int, ...]] = [(start,)]
    reached = {start}
    while paths:
        longer: list[tuple[int, ...]] = []
        for path in paths:
            for following in np.flatnonzero(beats[path[-1]]).tolist():
                if following == start:
                    return path
                if following not in reached:
                    reached.add(following)
                    longer.append((*path, following))
        paths = longer
    return ()


def _counted(x: Floats, y: Floats) -> Floats:
    """[Q, 3] comparisons won, lost and tied."""
    outcomes = (x > y, x < y, x == y)
    return np.stack([outcome.sum(axis=1) for outcome in outcomes], axis=-1).astype(np.float64)


def _outcomes(joint: Floats, order: Floats) -> Floats:
    return np.stack(
        [np.where(order == sign, joint, 0.0).sum(axis=(-2, -1)) for sign in (1.0, -1.0, 0.0)],
        axis=-1,
    )


def _ranking(rates: Floats) -> Int64:
    """LLMs, best first; rates that differ only by rounding keep their order."""
    return np.argsort(-np.round(rates / _EQUAL) * _EQUAL, kind="stable")


def _rates(wins: npt.ArrayLike, name: str = "wins") -> Floats:
    rates = checked_probabilities(wins, name)
    if rates.ndim != 2 or not len(rates) or rates.shape[1] < 2:
        raise OutOfRangeError(
            f"A ranking takes questions by two LLMs or more; the table has shape {rates.shape}."
        )
    return rates

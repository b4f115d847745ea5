"""Win-rates: how often one LLM's answer is preferred to another's, with and without shared noise (arXiv 2502.01754, section 4).

A comparison is won, lost or tied. Under shared noise ties are more frequent, and *which* comparisons become ties depends on the
pair, so that with three LLMs or more even the ranking by average win-rate can differ from that of independent generation.
Assumed throughout: on a prompt the two answers are drawn once each, by the Gumbel-max sampler with shared noise ("coupled") or
independently; the preference depends on the two answers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.checks import checked_probabilities
from feval.estimators.coupling.gumbel_coupling import gumbel_coupling_joint
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.inference.paired import holm
from feval.estimators.inference.sign_flips import sign_flip_test

__all__ = [
    "AverageWinRates",
    "PairWinRates",
    "RankedWinRates",
    "RankingChange",
    "average_winrates",
    "preference_cycle",
    "ranked_winrates",
    "ranking_change",
    "sampled_winrates",
    "scored_winrates",
    "two_token_winrates",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_EQUAL = 1e-12  # by which rates may differ through rounding


@dataclass(frozen=True, eq=False)
class PairWinRates:
    """One LLM against another, per prompt.

    Attributes:
        coupled: [..., 3] probability that the first wins, loses, ties, under shared noise.
        independent: [..., 3] the same, each with noise of its own.
    """

    coupled: Floats
    independent: Floats


@dataclass(frozen=True, eq=False)
class AverageWinRates:
    """Average win-rates of L LLMs over prompts and opponents.

    Attributes:
        coupled: [L] under shared noise.
        independent: [L] with noise of their own.
        ranking_coupled: [L] LLMs, best first; of equal ones the first given.
        ranking_independent: [L] the same for independent generation.
    """

    coupled: Floats
    independent: Floats
    ranking_coupled: Ints
    ranking_independent: Ints


@dataclass(frozen=True, eq=False)
class RankedWinRates:
    """Average win-rates of L LLMs with intervals, and ranks that say what can be told apart.

    Attributes:
        rates: [L] average win-rate.
        low: [L] of its interval.
        high: [L] its upper end.
        rank: [L] 1 + the number of LLMs that are better beyond doubt: those that cannot be told apart share a rank.
        worst_rank: [L] L - the number of LLMs that are worse beyond doubt; `rank`..`worst_rank` is the interval of the rank.
    """

    rates: Floats
    low: Floats
    high: Floats
    rank: Ints
    worst_rank: Ints


@dataclass(frozen=True, eq=False)
class RankingChange:
    """Whether two LLMs change places between coupled and independent generation.

    Attributes:
        pairs: [P, 2] every pair of LLMs.
        coupled: [P] difference of average win-rates, first minus second, under shared noise.
        independent: [P] with noise of their own.
        p_values: [P] of the hypothesis that the two are in the same order (or level) under both, adjusted by Holm over the pairs.
    """

    pairs: Ints
    coupled: Floats
    independent: Floats
    p_values: Floats


def two_token_winrates(a: npt.ArrayLike, b: npt.ArrayLike) -> PairWinRates:
    """Win-rates where a prompt has two possible answers, one of them preferred (arXiv 2502.01754, Proposition 4).

    With probability a the first LLM gives the preferred one, with b the second:

        coupled: win (a - b)_+, lose (b - a)_+;     independent: win a (1 - b), lose b (1 - a).

    Assumes one call of each LLM, and the Gumbel-max sampler where noise is shared.

    Args:
        a: [...] probabilities.
        b: [...] of the second.

    Returns:
        [..., 3] win, lose, tie for both.

    Raises:
        OutOfRangeError: a value that is not a probability, or shapes that do not go together.
    """
    first, second = _together(checked_probabilities(a, "a"), checked_probabilities(b, "b"))
    gain = first - second
    coupled = (np.maximum(gain, 0.0), np.maximum(-gain, 0.0), 1.0 - np.abs(gain))
    win, lose = first * (1.0 - second), second * (1.0 - first)
    return PairWinRates(np.stack(coupled, -1), np.stack((win, lose, 1.0 - win - lose), -1))


def scored_winrates(p: npt.ArrayLike, p_prime: npt.ArrayLike, score: npt.ArrayLike) -> PairWinRates:
    """Win-rates where every answer has a score, and the higher one wins (arXiv 2502.01754, section 4, second setting).

    Coupled by the joint law of `gumbel_coupling_joint`, independent by the product of the two laws. Equal scores tie.

    Assumes answers of one token, or laws of answers coupled as if they were, and a score that depends on the answer alone.

    Args:
        p: [..., K] law of the first LLM over answers.
        p_prime: [..., K] of the second.
        score: [..., K] or [K] of each answer.

    Returns:
        [..., 3] win, lose, tie for both.

    Raises:
        OutOfRangeError: laws as for `gumbel_coupling_joint`, or scores that do not fit them or are not finite.
    """
    joint = gumbel_coupling_joint(p, p_prime)
    scores = np.asarray(score, np.float64)
    shape = joint.shape[:-1]
    if scores.shape not in (shape, shape[-1:]) or not np.isfinite(scores).all():
        raise OutOfRangeError(
            f"Each of the {shape[-1]} answers has one finite score; `score` has shape {scores.shape}. Leave out questions "
            "whose answers were not scored."
        )
    order = np.sign(scores[..., :, None] - scores[..., None, :])
    apart = joint.sum(axis=-1)[..., :, None] * joint.sum(axis=-2)[..., None, :]
    return PairWinRates(_outcomes(joint, order), _outcomes(apart, order))


def sampled_winrates(first: npt.ArrayLike, second: npt.ArrayLike, calls: Literal["same", "other", "all"]) -> Floats:
    """Win-rates from the scores of recorded calls: the share of comparisons of two calls on a question, unbiased.

    Which calls are compared says what is estimated (arXiv 2502.01754, eqs. 24 and 31): coupled generation where they share noise,
    independent generation where they do not.

    Assumes that, given the question, calls with noise of their own are independent and of one law.

    Args:
        first: [Q, S] scores of one LLM's calls; higher is better, equal is a tie.
        second: [Q, S'] of the other's.
        calls: "same": call s with call s, which share noise in a coupled recording; "other": call s with all but call s, which
            share none there; "all": all with all, for recordings with noise of their own.

    Returns:
        [Q, 3] shares of wins, losses, ties of the first.

    Raises:
        OutOfRangeError: shapes that do not match, a single call without another, or scores that are NaN.
    """
    x, y = (np.asarray(values, np.float64) for values in (first, second))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or not x.size or not y.size:
        raise OutOfRangeError(
            f"Two LLMs are compared on the same questions; their scores have shapes {x.shape}, {y.shape}."
        )
    if calls != "all" and (x.shape != y.shape or (calls == "other" and x.shape[1] < 2)):
        raise OutOfRangeError(
            f"Coupled calls are paired by their number, and other calls take two or more; scores of shapes {x.shape} and "
            f"{y.shape} cannot be. Take as many calls of both, or compare all with all."
        )
    if np.isnan(x).any() or np.isnan(y).any():
        raise OutOfRangeError("A score is missing (NaN); leave out its question, or record the score.")
    outcomes, pairs = _counted(x, y), x.shape[1]
    if calls != "same":
        same_call, outcomes = outcomes, np.zeros((len(x), 3))
        for call in y.T:
            outcomes += _counted(x, call[:, None])
        pairs *= y.shape[1]
        if calls == "other":
            outcomes, pairs = outcomes - same_call, pairs - x.shape[1]
    shares: Floats = outcomes / pairs
    return shares


def average_winrates(table: npt.ArrayLike) -> AverageWinRates:
    """Average win-rates of LLMs that give one of two answers, one preferred: the example of arXiv 2502.01754, appendix B.6.

    The mean of `two_token_winrates` over prompts and over the other LLMs.

    Assumes what `two_token_winrates` does.

    Args:
        table: [Q, L] probability that each LLM gives the preferred answer to each prompt.

    Returns:
        Rates and rankings under both.

    Raises:
        OutOfRangeError: no prompts, fewer than two LLMs, or values that are not probabilities.
    """
    chances = checked_probabilities(table, "table")
    if chances.ndim != 2 or chances.shape[0] < 1 or chances.shape[1] < 2:
        raise OutOfRangeError(
            f"Average win-rates take a table of prompts by two LLMs or more; its shape is {chances.shape}."
        )
    pairs = two_token_winrates(chances[:, :, None], chances[:, None, :])
    others = ~np.eye(chances.shape[1], dtype=bool) / (chances.shape[1] - 1)
    coupled, independent = (
        (rates[..., 0].mean(axis=0) * others).sum(axis=1) for rates in (pairs.coupled, pairs.independent)
    )
    return AverageWinRates(coupled, independent, _ranking(coupled), _ranking(independent))


def ranked_winrates(
    wins: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    paired: bool = False,
) -> RankedWinRates:
    """Average win-rates with intervals over questions, and ranks with ties (arXiv 2502.01754, Table 1).

    The paper ranks two LLMs apart where their intervals do not overlap. With `paired` they are told apart where the interval of
    their *difference*, on the same questions, leaves 0 out: sharper, since the questions are shared. Intervals of rates are those
    of `accuracy_interval`, tests of differences are sign flips; a few questions tell nobody apart.

    Assumes questions that are independent draws.

    Args:
        wins: [Q, L] average over its opponents of each LLM's win-rate on each question.
        confidence: coverage of the intervals.
        resamples: random sign flips of the questions' differences, for `paired`.
        seed: of those.
        paired: tell LLMs apart by their difference.

    Returns:
        Rates, intervals and ranks.

    Raises:
        OutOfRangeError: fewer than two LLMs, no questions, or values outside [0, 1].
    """
    rates = _rates(wins)
    ends = accuracy_interval(rates, confidence)
    if paired:
        better = np.zeros((rates.shape[1],) * 2, bool)
        one, two = np.triu_indices(len(better), 1)
        differences = rates[:, one] - rates[:, two]
        sure = sign_flip_test(differences, splits=resamples, seed=seed).p_value <= 1.0 - confidence
        better[one, two], better[two, one] = (
            sure & (differences.mean(axis=0) > 0),
            sure & (differences.mean(axis=0) < 0),
        )
    else:
        better = ends.low[:, None] > ends.high[None, :] + _EQUAL
    rank = 1 + better.sum(axis=0)
    return RankedWinRates(rates.mean(axis=0), ends.low, ends.high, rank, rates.shape[1] - better.sum(axis=1))


def ranking_change(
    coupled: npt.ArrayLike, independent: npt.ArrayLike, *, resamples: int = 10_000, seed: int = 0
) -> RankingChange:
    """Test whether LLMs change places between coupled and independent generation.

    Two LLMs change places if the difference of their average win-rates has opposite signs. An intersection-union test (R. L.
    Berger 1982, Multiparameter hypothesis testing and acceptance sampling, Technometrics 24, 295-300,
    doi:10.1080/00401706.1982.10487790) rejects "same order or level" when both signs are beyond doubt: its p value is the
    larger of the two one-sided ones, each half the two-sided one of `sign_flip_test`. Holm's adjustment covers all pairs.

    Assumes questions that are independent draws, and what `sign_flip_test` does.

    Args:
        coupled: [Q, L] average win-rate of each LLM on each question under shared noise.
        independent: [Q, L] with noise of their own, on the same questions.
        resamples: random sign flips of the questions' differences.
        seed: of those.

    Returns:
        Differences and p values per pair; 1 where the signs agree.

    Raises:
        OutOfRangeError: as for `ranked_winrates`, or tables of different shapes.
    """
    shared, apart = _rates(coupled), _rates(independent)
    if shared.shape != apart.shape:
        raise OutOfRangeError(
            f"Rankings are compared on the same questions and LLMs; the tables have shapes {shared.shape} and {apart.shape}."
        )
    one, two = np.triu_indices(shared.shape[1], 1)
    differences, p_values = [], []
    for values in (shared, apart):
        each = values[:, one] - values[:, two]
        difference = each.mean(axis=0)
        differences.append(np.where(np.abs(difference) <= _EQUAL, 0.0, difference))
        p_values.append(sign_flip_test(each, splits=resamples, seed=seed).p_value / 2)
    opposite = differences[0] * differences[1] < 0.0
    p = np.where(opposite, np.maximum(*p_values), 1.0)
    return RankingChange(np.stack([one, two], axis=1), differences[0], differences[1], holm(p))


def preference_cycle(
    margins: npt.ArrayLike, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[int, ...]:
    """The shortest cycle of preferences beyond doubt: A over B over C over A; empty where there is none.

    No order of the LLMs, so no strengths of the Bradley-Terry model, can agree with one (Condorcet's paradox). A pair's
    preference is beyond doubt if `sign_flip_test` over questions says so, adjusted by Holm over the pairs; its p value is at
    least 2^(1 - n) for n questions that are no ties.

    Feval's own test. Assumes questions that are independent draws, and what `sign_flip_test` does.

    Args:
        margins: [Q, L, L] share of comparisons that i wins over j minus the share that it loses.
        confidence: 1 minus the level of the test.
        resamples: random sign flips of the questions' margins.
        seed: of those.

    Returns:
        LLMs, each preferred to the next, and the last one to the first.

    Raises:
        OutOfRangeError: fewer than two LLMs, no questions, or margins that are not finite.
    """
    shares = np.asarray(margins, np.float64)
    if shares.ndim != 3 or not len(shares) or shares.shape[1] != shares.shape[2] or shares.shape[1] < 2:
        raise OutOfRangeError(f"Preferences take questions by pairs of LLMs; the table has shape {shares.shape}.")
    count = shares.shape[1]
    one, two = np.triu_indices(count, 1)
    values = shares[:, one, two]
    sure = holm(sign_flip_test(values, splits=resamples, seed=seed).p_value) <= 1.0 - confidence
    beats = np.zeros((count, count), bool)
    first_wins = values.mean(axis=0) > 0.0
    beats[one, two], beats[two, one] = sure & first_wins, sure & ~first_wins
    return min(filter(None, (_shortest_cycle(beats, start) for start in range(count))), key=len, default=())


def _shortest_cycle(beats: npt.NDArray[np.bool_], start: int) -> tuple[int, ...]:
    """From an LLM along preferences back to itself, breadth first; empty where no way leads back."""
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
    return np.stack([np.where(order == sign, joint, 0.0).sum(axis=(-2, -1)) for sign in (1.0, -1.0, 0.0)], axis=-1)


def _ranking(rates: Floats) -> Ints:
    """Best first; rates that differ by rounding only are level, and keep their order."""
    return np.argsort(-np.round(rates / _EQUAL) * _EQUAL, kind="stable")


def _together(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    try:
        first, second = np.broadcast_arrays(a, b)
    except ValueError as error:
        raise OutOfRangeError(
            f"Two LLMs are compared on the same prompts; a has shape {a.shape} and b {b.shape}."
        ) from error
    return first, second


def _rates(wins: npt.ArrayLike) -> Floats:
    rates = checked_probabilities(wins, "wins")
    if rates.ndim != 2 or not len(rates) or rates.shape[1] < 2:
        raise OutOfRangeError(f"A ranking takes questions by two LLMs or more; the table has shape {rates.shape}.")
    return rates

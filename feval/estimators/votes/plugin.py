"""The plug-in estimate of voting accuracy from few calls: its expectation, its bias, and what is
unbiased. Feval's own.

`plugin_plurality_accuracy` uses the shares c / G of G calls as the probabilities p. Its error is
statistical, not numerical:

* As M grows, the leader of the G calls wins for certain. So the estimate tends to the vote of the G
  calls, and its expectation to p*(G), exactly under uniform ties: **the plug-in curve saturates at
  the accuracy of G votes**. With p = (0.55, 0.45) and G = 5 the expectation at M = 101 is 0.592,
  where p*(101) = 0.844.
* M = 1 is unbiased (and M = 2 under uniform ties if every call has an answer: it equals M = 1). In
  between the bias is towards a flat curve: downward where voting helps, upward where it hurts.

**What is unbiased.** For M <= G the mean over all subsets of M of the G calls
(`subset_plurality_accuracy`) has expectation p*(M), for every p: a U-statistic. For M > G nothing
is: the expectation of any function of G independent calls is a polynomial in p of degree at most G,
and p*(M) has degree M. (The degree is lower for special distributions only: without missing answers
two votes equal one, and with two candidates every even M equals the odd one before. Counts cannot
show that a distribution is special.) Bootstrap and jackknife corrections fail there too: they
assume a bias in powers of 1 / G, but for M beyond G, p*(M) changes on a scale of 1 / sqrt(M) in p,
finer than the 1 / sqrt(G) to which p is known. So `unbiased_plurality_accuracy` returns NaN for M >
G, with a reason.

Everything here assumes conditionally i.i.d. calls. `two_call` says what a few such calls tell about
many votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Int64, Integers
from feval.estimators.checks import is_whole
from feval.estimators.per_question import PerQuestion
from feval.estimators.probabilities import (
    checked_votes,
    compositions,
    signatures_of_counts,
    signatures_of_probabilities,
)
from feval.estimators.votes.multinomial import plugin_plurality_accuracy
from feval.estimators.votes.plurality import LARGEST_POOL, binomials, subset_plurality_accuracy

MOST_OUTCOMES = 1_000_000
"""Most outcomes of G calls that an expectation enumerates."""

_BLOCK_NUMBERS = 1 << 20  # chances of outcomes held at once


@dataclass(frozen=True, eq=False)
class Unbiased:
    """D unbiased estimates per question; NaN where none exists, with a reason [D] for each such
    column ("" for others).
    """

    values: PerQuestion
    reasons: tuple[str, ...]


def unbiased_plurality_accuracy(
    gold: Integers,
    rivals: Integers,
    no_answer: Integers,
    votes: Sequence[int] | Integers,
    *,
    ties: str = "uniform",
) -> Unbiased:
    """Unbiased estimates of p*(M) from G calls: `subset_plurality_accuracy` for M <= G, NaN beyond.

    Args:
        gold, rivals, no_answer: [Q], [Q, K] and [Q] samples with the gold answer, with each other
            one and without one. G is their sum and may differ between questions.
        votes: D numbers of votes M.
        ties: credit of a tie for the lead.

    Returns:
        Values [Q, D] and the reason for NaN, per column.

    Raises:
        OutOfRangeError: shapes that do not match, counts that are not integers from 0, a question
            without samples, a pool above 1,000 samples or an M out of range.
        UnknownNameError: an unknown rule for ties.
    """
    numbers = checked_votes(votes)
    signatures_of_counts(gold, rivals, no_answer)  # checks
    gold, rivals, no_answer = np.asarray(gold), np.asarray(rivals), np.asarray(no_answer)
    size = gold.astype(np.int64) + rivals.sum(axis=1, dtype=np.int64) + no_answer
    values = np.full((len(size), len(numbers)), np.nan)
    for pool in np.unique(size).tolist():
        rows, columns = np.flatnonzero(size == pool), np.flatnonzero(numbers <= pool)
        if len(columns):
            subsets = subset_plurality_accuracy(
                gold[rows], rivals[rows], no_answer[rows], numbers[columns], ties=ties
            )
            values[np.ix_(rows, columns)] = subsets.per_question()
    return Unbiased(
        PerQuestion(values, np.arange(len(size))), tuple(_reason(m, size) for m in numbers.tolist())
    )


def _reason(votes: int, size: Int64) -> str:
    short = np.flatnonzero(size < votes)
    if not len(short):
        return ""
    return (
        f"No unbiased estimate of the accuracy of {votes} votes exists from fewer calls; question"
        f" {short[0]} has {size[short[0]]}. Record more calls, or use bounds that hold."
    )


def plugin_expectation(
    correct: Floats,
    rivals: Floats,
    no_answer: Floats,
    calls: int,
    votes: Sequence[int] | Integers,
    *,
    ties: str = "uniform",
) -> PerQuestion:
    """E[plug-in estimate of p*(M)] over the G calls it is made from, exactly.

    sum_c Pr{c} p*(M; c / G) over all counts c of G calls, Pr the multinomial with the true
    probabilities.

    Args:
        correct, rivals, no_answer: [Q], [Q, K] and [Q] true probabilities of the gold answer, of
            the rivals and of no answer.
        calls: G, at least 1.
        votes: D numbers of votes M.
        ties: credit of a tie for the lead.

    Returns:
        D expectations per question.

    Raises:
        OutOfRangeError: as `plurality_accuracy`; G below 1; or more than a million outcomes of the
            G calls.
        UnknownNameError: an unknown rule for ties.
    """
    numbers = checked_votes(votes)
    signatures = signatures_of_probabilities(correct, rivals, no_answer)
    shares = np.column_stack([signatures.correct, signatures.no_answer, signatures.rivals])
    _check_outcomes(calls, np.count_nonzero(shares, axis=1), signatures.rows)
    patterns, which = np.unique(shares > 0.0, axis=0, return_inverse=True)
    values = np.empty((len(shares), len(numbers)))
    # which answers are possible: few patterns, as rivals are sorted
    for pattern, possible in enumerate(patterns):
        questions = np.flatnonzero(which.ravel() == pattern)
        outcomes = np.zeros(
            (comb(calls + int(possible.sum()) - 1, calls), shares.shape[1]), np.int64
        )
        outcomes[:, possible] = compositions(calls, int(possible.sum()))
        estimates = plugin_plurality_accuracy(
            outcomes[:, 0], outcomes[:, 2:], outcomes[:, 1], numbers, ties=ties
        )
        values[questions] = _expected(
            estimates, outcomes[:, possible], shares[np.ix_(questions, possible)]
        )
    return PerQuestion(values, signatures.rows)


def _check_outcomes(calls: int, answers: Integers, rows: Integers) -> None:
    if not is_whole(calls) or not 1 <= calls <= LARGEST_POOL:
        raise OutOfRangeError(
            f"An estimate is made from 1 to {LARGEST_POOL:,} calls; {calls!r} were given."
        )
    most = int(answers.max(initial=1))
    if (number := comb(calls + most - 1, calls)) > MOST_OUTCOMES:
        question = int(np.argmax(answers[rows] == most))
        raise OutOfRangeError(
            f"{calls} calls over the {most} answers of question {question} have {number:,}"
            f" outcomes; up to {MOST_OUTCOMES:,} are enumerated. Ask for fewer calls, or merge the"
            " rarest rivals."
        )


def _expected(estimates: PerQuestion, outcomes: Int64, shares: Floats) -> Floats:
    """[Q, D] mean over the outcomes [N, C] of their estimates, for the probabilities [Q, C]; blocks
    of questions at once.
    """
    order = np.argsort(estimates.rows, kind="stable")  # groups outcomes with the same estimate
    starts = np.flatnonzero(np.diff(estimates.rows[order], prepend=-1))
    values = np.empty((len(shares), estimates.values.shape[1]))
    step = max(1, _BLOCK_NUMBERS // len(outcomes))
    for start in range(0, len(shares), step):
        chances = _chances(outcomes[order], shares[start : start + step])
        values[start : start + step] = np.add.reduceat(chances, starts, axis=1) @ estimates.values
    return values


def _chances(outcomes: Int64, shares: Floats) -> Floats:
    """[Q, N] multinomial probability of each outcome [N, C] under each question's probabilities [Q,
    C].

    A product of binomials, which fit a double.
    """
    calls = int(outcomes[0].sum())
    choose = binomials(calls, calls + 1)
    powers = shares[..., None] ** np.arange(calls + 1)
    chances = np.ones((len(shares), len(outcomes)))
    drawn = np.zeros(len(outcomes), np.int64)
    for answer, counts in enumerate(outcomes.T):
        drawn += counts
        chances *= choose[drawn, counts] * powers[:, answer, counts]
    return chances

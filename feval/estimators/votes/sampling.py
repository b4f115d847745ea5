"""Voting accuracy from recorded or simulated votes.

The empirical estimator (eqs. 5-6 of "Compute-efficient evaluation of LLM voting accuracy") needs K
M recorded calls per question and splits them into K ensembles of M. The Monte-Carlo estimator
(section 4.1) simulates the K ensembles from answer probabilities. Both are noisy versions of exact
quantities: the mean over all subsets of the recorded calls (`plurality`) and the exact plurality
accuracy (`multinomial`). Both assume calls that are independent given the question, each with the
same probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, ShortPoolError
from feval.estimators.arrays import Floats, Int64, Integers
from feval.estimators.checks import is_whole
from feval.estimators.counts import ABSENT, vote_counts
from feval.estimators.per_question import PerQuestion
from feval.estimators.probabilities import checked_votes, signatures_of_probabilities
from feval.estimators.ties import check_ties


@dataclass(frozen=True, eq=False)
class Empirical:
    """Shares [Q, D] of a question's disjoint ensembles of M calls that were right (eq. 6), and
    their numbers K [D].

    The mean over questions is eq. 5.
    """

    values: Floats
    ensembles: Int64


def plurality_credit(gold: Integers, rivals: Integers, *, ties: str = "uniform") -> Floats:
    """Credit of a vote: 1 if the gold answer leads alone, 0 if it does not lead, otherwise the
    credit of a tie.

    Eq. (3), with ties by `ties`; eq. (7) is the strict rule.

    Args:
        gold, rivals: [N] and [N, K] votes of the gold answer and of the rivals; zeros pad rows.
        ties: what a tie for the lead with t rivals is worth: 1 / (t + 1) for "uniform", 0 for
            "strict", 1 for "lenient".

    Returns:
        [N] credits; 0 for an empty vote.

    Raises:
        UnknownNameError: an unknown rule for ties.
    """
    check_ties(ties)
    top = rivals.max(axis=1, initial=0)
    level = (rivals == gold[:, None]).sum(axis=1)
    worth = {"uniform": 1.0 / (level + 1.0), "strict": 0.0, "lenient": 1.0}[ties]
    return np.where(gold > top, 1.0, np.where((gold == top) & (gold > 0), worth, 0.0))


def empirical_plurality_accuracy(
    codes: Integers, gold: Integers, votes: Sequence[int] | Integers, *, ties: str = "uniform"
) -> Empirical:
    """The empirical estimator: K = floor(S / M) disjoint ensembles of M recorded calls, in recorded
    order (eqs. 5-6).

    Unbiased for p*(M); its standard deviation per question is sqrt(p*(M) (1 - p*(M)) / K). The mean
    over all subsets, `subset_plurality_accuracy`, is unbiased too and varies less.

    Args:
        codes: [Q, S] which candidate each call answered, per question from 0; -1 no answer. Every
            question needs all S.
        gold: [Q] code of the gold answer; negative where no call can have it.
        votes: D numbers of votes M, each from 1 to S.
        ties: credit of a tie for the lead.

    Returns:
        Accuracies, and the number of ensembles for each M.

    Raises:
        ShortPoolError: an M above S, or a question with fewer than S calls.
        OutOfRangeError: shapes or codes that do not fit, or an M out of range.
        UnknownNameError: an unknown rule for ties.
    """
    check_ties(ties)
    numbers = checked_votes(votes)
    codes, gold = np.asarray(codes), np.asarray(gold)
    whole = vote_counts(codes, gold)  # checks shapes and codes
    questions, samples = codes.shape
    if samples < int(numbers.max()) or (codes == ABSENT).any():
        short = int(whole.size.argmin()) if len(whole.size) else 0
        recorded = int(whole.size[short]) if len(whole.size) else samples
        raise ShortPoolError(
            f"Ensembles of {int(numbers.max())} out of {samples} calls need {samples} calls of"
            f" every question, {recorded} were recorded for question {short}. Ask for fewer, or"
            " leave the question out."
        )
    values = np.empty((questions, len(numbers)))
    for column, size in enumerate(numbers.tolist()):
        ensembles = samples // size
        split = codes[:, : ensembles * size].reshape(questions * ensembles, size)
        votes_of_ensembles = vote_counts(split, np.repeat(gold, ensembles))
        credit = plurality_credit(
            votes_of_ensembles.gold.astype(np.int64),
            votes_of_ensembles.rivals.astype(np.int64),
            ties=ties,
        )
        values[:, column] = credit.reshape(questions, ensembles).mean(axis=1)
    return Empirical(values, samples // numbers)


def monte_carlo_plurality_accuracy(
    correct: Floats,
    rivals: Floats,
    no_answer: Floats,
    votes: Sequence[int] | Integers,
    *,
    replicates: int = 100,
    seed: int = 0,
    keys: Integers | None = None,
    ties: str = "uniform",
) -> PerQuestion:
    """The Monte-Carlo estimator (section 4.1): the share of K simulated votes of M calls that the
    gold answer wins.

    Given the probabilities it is unbiased for `plurality_accuracy`, with a standard deviation per
    question of at most sqrt(p*(M) (1 - p*(M)) / K). The exact value costs less. One sequence of
    calls serves all M, as in a vote that is continued. Ties get the rule's credit instead of a
    random winner.

    Calls come from raw 64-bit outputs of Philox (whose stream NumPy promises to keep) with the key
    (seed, question's key), two 32-bit halves each; a half is compared with 2^32 times the running
    sum of the probabilities. So a question's votes do not depend on the other questions.

    Args:
        correct, rivals, no_answer, votes, ties: as for `plurality_accuracy`.
        replicates: K, at least 1.
        seed: 0 to 2^64 - 1.
        keys: [Q] numbers from 0 that identify the questions; their positions by default.

    Returns:
        D estimates per question, in the order of `votes`.

    Raises:
        OutOfRangeError: as `plurality_accuracy`, or a seed, keys or replicates out of range.
        UnknownNameError: an unknown rule for ties.
    """
    check_ties(ties)
    numbers = checked_votes(votes)
    signatures = signatures_of_probabilities(correct, rivals, no_answer)
    names = _checked_keys(keys, len(signatures.rows))
    if not is_whole(seed) or not is_whole(replicates) or not 0 <= seed < 1 << 64 or replicates < 1:
        raise OutOfRangeError(
            f"A simulation takes a seed from 0 to 2^64 - 1 and 1 replicate or more; seed={seed} and"
            f" replicates={replicates} were given."
        )
    ends, columns = np.unique(numbers, return_inverse=True)
    values = np.empty((len(names), len(numbers)))
    for question, row in enumerate(signatures.rows.tolist()):
        shares = np.array(
            [signatures.correct[row], *signatures.rivals[row][signatures.rivals[row] > 0.0]]
        )
        codes = _calls(shares, int(ends[-1]), replicates, (seed, int(names[question])))
        values[question] = _credits(codes, len(shares), ends, ties)[columns]
    return PerQuestion(values, np.arange(len(values)))


def _checked_keys(keys: Integers | None, questions: int) -> Integers:
    names = np.arange(questions) if keys is None else np.asarray(keys)
    if (
        names.shape != (questions,)
        or names.dtype.kind not in "iu"
        or (names.size and int(names.min()) < 0)
    ):
        raise OutOfRangeError(
            f"Keys are one integer from 0 for each of the {questions} questions; {keys} were given."
        )
    return names


def _calls(
    shares: Floats, votes: int, replicates: int, key: tuple[int, int]
) -> npt.NDArray[np.intp]:
    """[replicates, votes] index of the answer in `shares`; one past the last for no answer."""
    bits = np.random.Philox(key=np.array(key, np.uint64))
    raw = bits.random_raw(replicates * ((votes + 1) // 2))
    halves = raw.astype("<u8", copy=False).view("<u4").reshape(replicates, -1)[:, :votes]
    edges = np.rint(np.cumsum(shares) * 2.0**32).astype(np.uint64)
    return np.searchsorted(edges, halves.astype(np.uint64), side="right")


def _credits(codes: npt.NDArray[np.intp], answers: int, ends: Integers, ties: str) -> Floats:
    """[D] mean credit of the votes after `ends` calls."""
    replicates = len(codes)
    counts = np.zeros((replicates, answers + 1), np.int64)
    credit = np.empty(len(ends))
    start = 0
    for place, end in enumerate(ends.tolist()):
        part = codes[:, start:end] + np.arange(replicates)[:, None] * (answers + 1)
        counts += np.bincount(part.ravel(), minlength=counts.size).reshape(counts.shape)
        credit[place] = plurality_credit(counts[:, 0], counts[:, 1:answers], ties=ties).mean()
        start = end
    return credit

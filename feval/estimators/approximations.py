"""Voting accuracy from simulated votes.

The Monte-Carlo estimator (section 4.1 of "Compute-efficient evaluation of LLM voting accuracy")
simulates K ensembles of M calls from answer probabilities: a noisy version of the exact plurality
accuracy (`multinomial`). It assumes calls that are independent given the question, each with the
same probabilities. The mean over all subsets of recorded calls is in `plurality`.

The Gaussian estimator of voting accuracy: a closed form for any M, and where it fails. For
comparison only.

"Compute-efficient evaluation of LLM voting accuracy", section 4.2, treats the votes of all answers
as independent normal variables with the binomial's mean M p_y and variance M p_y (1 - p_y) (eq. 8),
and asks that the gold answer beat each rival (eqs. 9-10):

    p*(M) ~ prod_{y != y*} Phi( sqrt(M) (p* - p_y) / s_y ),      s_y^2 = p* (1 - p*) + p_y (1 - p_y)

The paper leaves zero variance open: s_y = 0 where p* and p_y are each 0 or 1. The event is then
certain: (1, 0) gives 1, (0, 1) gives 0, and (0, 0) gives 0, because the inequality is strict. Only
missing answers give 0 for the same reason.

Three modes, because the formula as printed has absurd values:

    literal     as printed. The product runs over every listed rival: one with p_y = 0 multiplies by
                Phi(sqrt(M p* / (1 - p*))) < 1, so the value depends on how many rivals without
                samples are listed; and p* = 0 can be "right" with positive probability (rivals 1/2,
                1/2 and M = 1: 0.025)
    guarded     rivals with p_y = 0 are dropped, and p* = 0 gives 0; the default
    paircov     literal, with the multinomial's covariance -M p* p_y of the two counts in s_y^2: + 2
                p* p_y. Not in the paper

Counts are not independent: the difference varies more than s_y says, and the events "more votes
than y" are positively dependent. The two errors have opposite signs; with many rivals the second is
larger: p* = 0.2 and eight rivals with 0.1, M = 10, gives 0.087 where 0.329 is exact. Use
`multinomial`, which is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from feval.errors import OutOfRangeError, require_known
from feval.estimators.arrays import Floats, Int64, Integers, Rows, is_whole, require_each
from feval.estimators.intervals import random_halves
from feval.estimators.per_question import (
    NORMALISED,
    PerQuestion,
    check_ties,
    checked_votes,
    distinct,
    require_shares,
    signatures_of_probabilities,
    slices,
)
from feval.estimators.plurality import plurality_credit


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
    questions = len(signatures.rows)
    names = np.arange(questions) if keys is None else np.asarray(keys)
    if names.shape != (questions,) or names.dtype.kind not in "iu" or (names < 0).any():
        raise OutOfRangeError(
            f"Keys are one integer from 0 for each of the {questions} questions; {keys} were given."
        )
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


def _calls(shares: Floats, votes: int, replicates: int, key: tuple[int, int]) -> Rows:
    """[replicates, votes] index of the answer in `shares`; one past the last for no answer."""
    bits = np.random.Philox(key=np.array(key, np.uint64))
    edges = np.rint(np.cumsum(shares) * 2.0**32).astype(np.uint64)
    return np.searchsorted(edges, random_halves(bits, replicates, votes), side="right")


def _credits(codes: Rows, answers: int, ends: Integers, ties: str) -> Floats:
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


MODES = ("literal", "guarded", "paircov")
"""Readings of eq. (9)."""

_CHUNK_NUMBERS = 1 << 18


def gaussian_estimate(
    correct: Floats, rivals: Floats, votes: Sequence[int] | Integers, *, mode: str = "guarded"
) -> PerQuestion:
    """The Gaussian estimate of p*(M) for many M (eqs. (8)-(10)). See the module for formula, modes
    and errors.

    Assumes calls that are independent given the question, each with the same probabilities.

    Args:
        correct, rivals: [Q] and [Q, K] probabilities of the gold answer and of each listed rival,
            usually c / G. With "literal" and "paircov" zeros count, including padding.
        votes: D numbers of votes M.
        mode: one of `MODES`.

    Returns:
        D estimates per question, in the order of `votes`.

    Raises:
        OutOfRangeError: shapes that do not match, values that are not probabilities or sum to more
            than 1, or an M out of range.
        UnknownNameError: an unknown mode.
    """
    require_known("mode of the Gaussian estimator", mode, MODES)
    numbers = checked_votes(votes)
    right, others = np.asarray(correct, np.float64), np.asarray(rivals, np.float64)
    if right.ndim != 1 or others.ndim != 2 or len(right) != len(others):
        raise OutOfRangeError(
            "The Gaussian estimator takes correct [questions] and rivals [questions, candidates];"
            f" the shapes are {right.shape} and {others.shape}."
        )
    require_shares(correct=right, rivals=others)
    total = right + others.sum(axis=1)
    require_each(
        total <= 1.0 + NORMALISED,
        "The probabilities of a question sum to at most 1; those of question {question} sum to"
        " {0!r}. Divide the counts by the number of samples.",
        total,
    )
    right, others = np.minimum(right, 1.0), np.sort(np.minimum(others, 1.0), axis=1)[:, ::-1]
    if mode == "guarded":
        others = others[:, : int(np.count_nonzero(others.any(axis=0)))]
    first, rows = distinct(
        [np.unique(column, return_inverse=True)[1] for column in (right, *others.T)]
    )
    values = np.empty((len(first), len(numbers)))
    for block in slices(len(first), _CHUNK_NUMBERS // max(1, others.shape[1] * len(numbers))):
        rows_of_block = first[block]
        values[block] = _estimate(right[rows_of_block], others[rows_of_block], numbers, mode)
    return PerQuestion(values, rows)


def _estimate(correct: Floats, rivals: Floats, votes: Int64, mode: str) -> Floats:
    """[G, D] the products."""
    gold, theirs = correct[:, None], rivals
    variance = gold * (1.0 - gold) + theirs * (1.0 - theirs)
    if mode == "paircov":
        variance = variance + 2.0 * gold * theirs
    certain = variance <= 0.0
    slope = np.where(certain, 0.0, gold - theirs) / np.sqrt(np.where(certain, 1.0, variance))
    beaten: Floats = scipy.special.ndtr(slope[:, :, None] * np.sqrt(votes.astype(np.float64)))
    beaten[certain] = (gold > theirs)[certain][:, None]
    if mode == "guarded":
        beaten[theirs == 0.0] = 1.0
    values: Floats = beaten.prod(axis=1)
    impossible = correct == 0.0
    if mode == "guarded" or not rivals.shape[1]:
        values[impossible] = 0.0
    return values

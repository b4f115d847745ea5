"""Answer probabilities of questions: checked once, and stored once for questions that cannot
differ. Feval's own.

Every estimator that takes probabilities assumes conditionally i.i.d. calls: given the question, the
calls are independent and each gives answer y with probability p_y. Caches, shared seeds and prompts
that change between calls break it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from feval.errors import OutOfRangeError, UnknownNameError
from feval.estimators.arrays import (
    Floats,
    Int64,
    Integers,
    Result,
    Rows,
    require_counts,
    require_each,
)
from feval.estimators.per_question import distinct

MOST_VOTES = 10_000
"""Most votes per question that estimates are computed for."""

NORMALISED = 1e-9
"""By how much probabilities may miss a sum of 1."""


class Signatures(Result):
    """Answer probabilities of the distinct questions: gold [G], rivals [G, K] descending without
    columns of zeros, no answer [G].

    `rows` [Q] is each question's index among the G.
    """

    correct: Floats
    rivals: Floats
    no_answer: Floats
    rows: Rows


def signatures_of_probabilities(correct: Floats, rivals: Floats, no_answer: Floats) -> Signatures:
    """Check probabilities and find the distinct questions; rivals may come in any order, and zeros
    are ignored.

    They are divided by their sum, which may be off 1 by 1e-9; OutOfRangeError beyond, for values
    that are not probabilities, and for shapes that do not match.
    """
    try:
        correct, rivals, no_answer = (
            np.asarray(array, np.float64) for array in (correct, rivals, no_answer)
        )
    except (TypeError, ValueError) as error:
        raise OutOfRangeError(
            f"Answer probabilities are numbers in rows of equal length: {error}."
        ) from error
    require_shapes("Answer probabilities", "correct", correct, rivals, no_answer)
    require_shares(correct=correct, rivals=rivals, no_answer=no_answer)
    total = correct + rivals.sum(axis=1) + no_answer
    require_each(
        np.abs(total - 1.0) <= NORMALISED,
        "The probabilities of a question sum to 1, no answer included; those of question"
        " {question} sum to {0!r}. Put what is missing into no_answer, or divide by the sum.",
        total,
    )
    ordered = _ordered(rivals)
    columns = [
        np.unique(column, return_inverse=True)[1] for column in (correct, no_answer, *ordered.T)
    ]
    first, rows = distinct(columns)
    scale = total[first]
    return Signatures(
        correct[first] / scale, ordered[first] / scale[:, None], no_answer[first] / scale, rows
    )


def signatures_of_counts(gold: Integers, rivals: Integers, no_answer: Integers) -> Signatures:
    """Plug-in probabilities c / G of counted votes, G being each question's number of samples (CEV,
    section 4.1).

    OutOfRangeError: shapes that do not match, counts that are not integers from 0, or a question
    without samples.
    """
    gold, rivals, no_answer = np.asarray(gold), np.asarray(rivals), np.asarray(no_answer)
    require_shapes("Counts of samples", "gold", gold, rivals, no_answer)
    require_counts("A plug-in estimate", gold=gold, rivals=rivals, no_answer=no_answer)
    ordered = _ordered(rivals.astype(np.int64))
    size = gold.astype(np.int64) + ordered.sum(axis=1) + no_answer.astype(np.int64)
    require_each(size > 0, "Question {question} has no samples, so no shares; leave it out.")
    first, rows = distinct((gold.astype(np.int64), no_answer.astype(np.int64), *ordered.T))
    scale = size[first].astype(np.float64)
    return Signatures(
        gold[first] / scale, ordered[first] / scale[:, None], no_answer[first] / scale, rows
    )


def require_shapes(what: str, first: str, correct: Any, rivals: Any, no_answer: Any) -> None:
    """Raise OutOfRangeError unless gold, rivals and no answer have the shapes [Q], [Q, K] and
    [Q].
    """
    one_each = (
        correct.ndim == no_answer.ndim == 1
        and rivals.ndim == 2
        and len(correct) == len(rivals) == len(no_answer)
    )
    if not one_each:
        raise OutOfRangeError(
            f"{what} are {first} [questions], rivals [questions, candidates] and no_answer"
            f" [questions]; the shapes are {correct.shape}, {rivals.shape} and {no_answer.shape}."
        )


def require_shares(**arrays: Floats) -> None:
    """Raise OutOfRangeError, with the question, unless the arrays [questions, ...] hold numbers
    from 0 to 1, up to rounding.
    """
    for name, array in arrays.items():
        require_each(
            (array >= 0.0) & (array <= 1.0 + NORMALISED),
            f"Probabilities lie in [0, 1]; question {{question}} has {{0}} in {name}."
            " Give p = count / samples.",
            array,
        )


def checked_votes(votes: Sequence[int] | Integers) -> Int64:
    """Return numbers of votes as an array [D]; OutOfRangeError unless they are integers from 1 to
    `MOST_VOTES`.
    """
    numbers = np.asarray(votes)
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iu":
        raise OutOfRangeError(
            f"Numbers of votes are integers from 1, in a list such as [1, 5, 20]; not {votes}."
        )
    require_each(
        (numbers >= 1) & (numbers <= MOST_VOTES),
        f"Numbers of votes go from 1 to {MOST_VOTES:,}; {{0}} stands at place {{question}}.",
        numbers,
    )
    return numbers.astype(np.int64)


def compositions(total: int, parts: int) -> Int64:
    """[N, parts] all ordered sums of parts from 0 that make the total, lexicographically; N =
    C(total + parts - 1, total).
    """
    parts_so_far, left = np.empty((1, 0), np.int64), np.array([total])
    for _ in range(parts - 1):
        ways = left + 1
        head = np.arange(int(ways.sum())) - np.repeat(np.cumsum(ways) - ways, ways)
        parts_so_far = np.column_stack([np.repeat(parts_so_far, ways, axis=0), head])
        left = np.repeat(left, ways) - head
    return np.column_stack([parts_so_far, left])


def _ordered(rivals: Any) -> Any:
    """Rivals in descending order, without the columns that are zero for every question."""
    ordered = np.sort(rivals, axis=1)[:, ::-1]
    return ordered[:, : int(np.count_nonzero(ordered.any(axis=0)))]


TIES = ("uniform", "strict", "lenient")
"""The tie rules by name."""


def check_ties(ties: str) -> None:
    """Raise UnknownNameError unless the name is one of `TIES`."""
    if ties not in TIES:
        raise UnknownNameError.of("rule for ties", str(ties), TIES)


def tie_nodes(rivals: int, ties: str = "uniform") -> tuple[Floats, Floats]:
    """Quadrature nodes and weights for the credit of a tie with up to so many rivals, the degree of
    the polynomial in y.

    floor(rivals / 2) + 1 of them for uniform ties (Gauss-Legendre), one otherwise; exact.
    """
    check_ties(ties)
    if ties == "uniform":
        return _gauss_legendre(rivals // 2 + 1)
    return np.array([float(ties == "lenient")]), np.ones(1)


@cache
def _gauss_legendre(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights on [0, 1], exact to degree 2 count - 1 (Golub and Welsch 1969: eigenvalues
    of the Jacobi matrix).
    """
    i = np.arange(1, count)
    off_diagonal = i / np.sqrt(4.0 * i * i - 1.0)
    nodes, vectors = np.linalg.eigh(np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    return (nodes + 1.0) / 2.0, vectors[0] ** 2

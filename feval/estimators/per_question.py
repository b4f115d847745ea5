"""Values per question, stored once for questions that cannot differ.

An exact estimate depends on a question only through a few counts, which many questions share: 1,319
questions with forty samples each have a few hundred distinct counts, a million questions some ten
thousand. So an estimator solves each distinct question once and stores which one every question is.
Feval's own; counts assume nothing about the calls.

Answer probabilities of questions are checked and stored likewise. Every estimator that takes them
assumes conditionally i.i.d. calls: given the question, the calls are independent and each gives
answer y with probability p_y. Caches, shared seeds and prompts that change between calls break it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, combinations
from math import comb
from typing import Any

import numpy as np

from feval.errors import OutOfRangeError, require_known
from feval.estimators.arrays import (
    Floats,
    Int64,
    Integers,
    Numbers,
    Result,
    Rows,
    require_counts,
    require_each,
)

QUESTIONS_AT_ONCE = 1 << 14
"""Questions of a block: what is counted or computed for each of more questions is done block by
block.
"""


def slices(count: int, step: int) -> Iterator[slice]:
    """Yield the slices that cut so many places into blocks of a step, of one at least."""
    step = max(step, 1)
    for start in range(0, count, step):
        yield slice(start, start + step)


def question_blocks(questions: int) -> Iterator[slice]:
    """Cut questions into blocks of `QUESTIONS_AT_ONCE`; an empty one where there are none."""
    for start in range(0, max(questions, 1), QUESTIONS_AT_ONCE):
        yield slice(start, min(start + QUESTIONS_AT_ONCE, questions))


def by_blocks(values: Callable[[slice], Numbers], questions: int) -> Numbers:
    """Concatenate what a function of a block of questions returns, so that its working memory does
    not grow with them.
    """
    first, *others = (values(block) for block in question_blocks(questions))
    return np.concatenate([first, *others]) if others else first


class PerQuestion(Result):
    """C values for each of Q questions.

    Attributes:
        values: [G, C] values of the distinct questions.
        rows: [Q] each question's row of `values`.
    """

    values: Floats
    rows: Integers

    def __len__(self) -> int:
        return len(self.rows)

    def mean(self) -> Floats:
        """[C] mean over the questions; OutOfRangeError without questions."""
        if not len(self.rows):
            raise OutOfRangeError(
                "There are no questions to take the mean over; give at least one."
            )
        multiplicities = np.bincount(self.rows, minlength=len(self.values)).astype(np.float64)
        return multiplicities @ self.values / len(self.rows)

    def per_question(self) -> Floats:
        """[Q, C] all values: 8 Q C bytes."""
        return self.values[self.rows]

    def column(self, place: int) -> Floats:
        """[Q] values of one column."""
        return self.values[:, place][self.rows]

    def mixed(self, weights: Floats) -> Floats:
        """[Q] sum of each question's C values with some weights [C]."""
        return by_blocks(lambda block: self.values[self.rows[block]] @ weights, len(self.rows))

    def of_questions(self, rows: Rows | slice) -> PerQuestion:
        """The values of Q questions that have these rows of this table as theirs; see
        `distinct_vote_counts`.
        """
        return PerQuestion(
            self.values,
            self.rows[rows] if isinstance(rows, slice) else self.rows.astype(rows.dtype)[rows],
        )

    def beside(self, other: PerQuestion) -> PerQuestion:
        """Join the columns of two tables over the same questions; OutOfRangeError if their numbers
        of questions differ.
        """
        if len(self) != len(other):
            raise OutOfRangeError(
                f"Columns for {len(self)} and for {len(other)} questions cannot be joined; estimate"
                " both on the same questions."
            )
        first, rows = distinct((self.rows, other.rows))
        joined = np.hstack([self.values[self.rows[first]], other.values[other.rows[first]]])
        return PerQuestion(joined, rows)


def distinct(columns: Sequence[Integers] | Integers) -> tuple[Rows, Rows]:
    """Find the distinct rows of a table of integers, given by its columns.

    Each row becomes one integer in mixed radix. Where 62 bits run out, the numbers so far are
    replaced by their ranks: exact for any number of columns, no hashing.

    Args:
        columns: at least one, each [Q].

    Returns:
        [G] an index of each distinct row, and [Q] the distinct row at each index.
    """
    key = np.zeros(len(columns[0]), np.int64)
    codes = 1  # key < codes
    for column in columns if len(key) else ():
        low, high = int(column.min()), int(column.max())
        radix = high - low + 1
        if codes * radix >= 1 << 62:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            codes = int(key.max()) + 1
        if radix > 1:
            key *= radix
            key += column
            key -= low
            codes *= radix
    unique, rows = np.unique(key, return_inverse=True)
    first = np.empty(len(unique), np.intp)
    first[rows] = np.arange(len(key))
    return first, rows


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
    ordered = descending(rivals)
    columns = [
        np.unique(column, return_inverse=True)[1] for column in (correct, no_answer, *ordered.T)
    ]
    first, rows = distinct(columns)
    return _signatures(correct[first], ordered[first], no_answer[first], total[first], rows)


def signatures_of_counts(gold: Integers, rivals: Integers, no_answer: Integers) -> Signatures:
    """Plug-in probabilities c / G of counted votes, G being each question's number of samples (CEV,
    section 4.1).

    OutOfRangeError: shapes that do not match, counts that are not integers from 0, or a question
    without samples.
    """
    gold, rivals, no_answer = np.asarray(gold), np.asarray(rivals), np.asarray(no_answer)
    require_shapes("Counts of samples", "gold", gold, rivals, no_answer)
    require_counts("A plug-in estimate", gold=gold, rivals=rivals, no_answer=no_answer)
    ordered = descending(rivals.astype(np.int64))
    size = gold.astype(np.int64) + ordered.sum(axis=1) + no_answer.astype(np.int64)
    require_each(size > 0, "Question {question} has no samples, so no shares; leave it out.")
    first, rows = distinct((gold.astype(np.int64), no_answer.astype(np.int64), *ordered.T))
    return _signatures(gold[first], ordered[first], no_answer[first], size[first], rows)


def _signatures(correct: Any, rivals: Any, no_answer: Any, total: Any, rows: Rows) -> Signatures:
    return Signatures(correct / total, rivals / total[:, None], no_answer / total, rows)


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
    places, bars = total + parts - 1, parts - 1
    chosen = np.fromiter(chain.from_iterable(combinations(range(places), bars)), np.int64)
    between = chosen.reshape(comb(places, bars), bars)
    return np.diff(between, axis=1, prepend=-1, append=places) - 1


def descending(rivals: Any) -> Any:
    """Rivals in descending order, without the columns that are zero for every question."""
    ordered = np.sort(rivals, axis=1)[:, ::-1]
    return ordered[:, : int(np.count_nonzero(ordered.any(axis=0)))]


TIES = ("uniform", "strict", "lenient")
"""The tie rules by name."""


def check_ties(ties: str) -> None:
    """Raise UnknownNameError unless the name is one of `TIES`."""
    require_known("rule for ties", ties, TIES)


def tie_nodes(rivals: int, ties: str = "uniform") -> tuple[Floats, Floats]:
    """Quadrature nodes and weights for the credit of a tie with up to so many rivals, the degree of
    the polynomial in y.

    floor(rivals / 2) + 1 of them for uniform ties (Gauss-Legendre), one otherwise; exact.
    """
    check_ties(ties)
    if ties == "uniform":
        return gauss_legendre(rivals // 2 + 1)
    return np.array([float(ties == "lenient")]), np.ones(1)


@cache
def gauss_legendre(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights on [0, 1], exact to degree 2 count - 1 (Golub and Welsch 1969: eigenvalues
    of the Jacobi matrix).
    """
    i = np.arange(1, count)
    off_diagonal = i / np.sqrt(4.0 * i * i - 1.0)
    nodes, vectors = np.linalg.eigh(np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    return (nodes + 1.0) / 2.0, vectors[0] ** 2

"""Values per question, stored once for questions that cannot differ.

An exact estimate depends on a question only through a few counts, which many questions share: 1,319
questions with forty samples each have a few hundred distinct counts, a million questions some ten
thousand. So an estimator solves each distinct question once and stores which one every question is.
Feval's own; assumes nothing about the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Integers, Rows

QUESTIONS_AT_ONCE = 1 << 14
"""Questions of a block: what is counted or computed for each of more questions is done block by
block.
"""


def question_blocks(questions: int) -> Iterator[slice]:
    """Cut questions into blocks of `QUESTIONS_AT_ONCE`; an empty one where there are none."""
    for start in range(0, max(questions, 1), QUESTIONS_AT_ONCE):
        yield slice(start, min(start + QUESTIONS_AT_ONCE, questions))


def by_blocks(values: Callable[[slice], npt.NDArray[Any]], questions: int) -> npt.NDArray[Any]:
    """Concatenate what a function of a block of questions returns, so that its working memory does
    not grow with them.
    """
    first, *others = (values(block) for block in question_blocks(questions))
    return np.concatenate([first, *others]) if others else first


@dataclass(frozen=True, eq=False)
class PerQuestion:
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
        mean: Floats = multiplicities @ self.values / len(self.rows)
        return mean

    def per_question(self) -> Floats:
        """[Q, C] all values: 8 Q C bytes."""
        values: Floats = self.values[self.rows]
        return values

    def column(self, place: int) -> Floats:
        """[Q] values of one column."""
        values: Floats = self.values[:, place][self.rows]
        return values

    def mixed(self, weights: Floats) -> Floats:
        """[Q] sum of each question's C values with some weights [C]."""
        return by_blocks(lambda block: self.values[self.rows[block]] @ weights, len(self.rows))

    def of_questions(self, rows: Rows | slice) -> PerQuestion:
        """The values of Q questions that have these rows of this table as theirs; see
        `counts.distinct_vote_counts`.
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


def distinct(
    columns: Sequence[Integers] | Integers,
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
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

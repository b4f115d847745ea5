"""Values per question, stored once for questions that cannot differ.

An exact estimate depends on a question only through a few counts, and many questions share them: 1,319 questions with forty
samples each have some hundreds of distinct counts, a million questions some ten thousands. So an estimator solves each distinct
question once and says which one every question is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError

__all__ = ["PerQuestion", "distinct"]

Integers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PerQuestion:
    """C values for each of Q questions.

    Attributes:
        values: [G, C] the values of the distinct questions.
        rows: [Q] which row of `values` each question has.
    """

    values: Floats
    rows: npt.NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.rows)

    def mean(self) -> Floats:
        """[C] mean over the questions.

        Raises:
            OutOfRangeError: there are no questions.
        """
        if not len(self.rows):
            raise OutOfRangeError("There are no questions to take the mean over; give at least one.")
        multiplicities = np.bincount(self.rows, minlength=len(self.values)).astype(np.float64)
        mean: Floats = multiplicities @ self.values / len(self.rows)
        return mean

    def per_question(self) -> Floats:
        """[Q, C] the values written out: 8 Q C bytes."""
        written: Floats = self.values[self.rows]
        return written

    def beside(self, other: PerQuestion) -> PerQuestion:
        """The columns of both, for the same questions; a question is now distinct if it differs in either.

        Args:
            other: D values for each of the same Q questions.

        Returns:
            C + D values per question.

        Raises:
            OutOfRangeError: the numbers of questions differ.
        """
        if len(self) != len(other):
            raise OutOfRangeError(
                f"Columns for {len(self)} and for {len(other)} questions cannot stand beside each other; "
                "estimate both on the same questions."
            )
        first, rows = distinct((self.rows, other.rows))
        joined = np.hstack([self.values[self.rows[first]], other.values[other.rows[first]]])
        return PerQuestion(joined, rows)


def distinct(columns: Sequence[Integers]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The distinct rows of a table of integers, given by its columns.

    Each row becomes one integer in mixed radix. Where 62 bits run out, the numbers so far are replaced by their ranks: exact for
    any number of columns, no hashing.

    Args:
        columns: at least one, each [Q].

    Returns:
        [G] for each distinct row one place where it stands, and [Q] which distinct row stands at each place.
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

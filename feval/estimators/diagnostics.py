"""How the answers of a recording are spread: mass by rank, entropy, strata of difficulty.

"Compute-efficient evaluation of LLM voting accuracy" (section 5.3) assumes that on every question
most of the probability lies on a few candidates, so that G calls see them. Its Figure 3 shows the
mean share by rank and the entropy, also for the questions the LLM finds difficult (accuracy at most
0.25).

Shares keep samples without an answer in the denominator, and the entropy counts "no answer" as one
outcome. Both are plug-in values from finite samples: the share of rank 1 is biased upward and the
entropy downward, by about (outcomes
- 1) / (2 G) nats. Assumes samples that are independent given the question. Counts are gold [Q],
  rivals [Q, K] and no_answer [Q].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Int64, Integers, Result, Rows, Texts, missing_reasons
from feval.estimators.per_question import descending, signatures_of_counts

QUARTERS = (0.25, 0.5, 0.75, 1.0)
"""Upper ends of the strata of accuracy; the first is the paper's "difficult"."""

_NO_QUESTIONS = "No question lies in this stratum, so it has no means."


class Strata(Result):
    """Means over the questions of each of T strata; NaN in a stratum without questions.

    Attributes:
        upper, questions: [T] largest accuracy of each stratum, and its number of questions.
        accuracy, no_answer: [T] mean shares of samples with the gold answer and without an answer.
        candidates, entropy: [T] mean number of distinct answers, and mean entropy of the outcomes
            in nats.
        mass: [T, R] mean share by rank of the answer, most frequent first (Figure 3).
    """

    upper: Floats
    questions: Int64
    accuracy: Floats
    no_answer: Floats
    candidates: Floats
    entropy: Floats
    mass: Floats

    @property
    def reasons(self) -> Texts:
        """[T] why a stratum's means are NaN; "" where they are numbers."""
        return missing_reasons((self.questions == 0, _NO_QUESTIONS))

    @property
    def cumulative_mass(self) -> Floats:
        """[T, R] total share of the r most frequent answers."""
        return np.cumsum(self.mass, axis=1)


def mass_by_rank(gold: Integers, rivals: Integers, no_answer: Integers) -> Floats:
    """Shares of a question's answers, most frequent first, right or wrong: share_r = c_(r) / S,
    c_(1) >= c_(2) >= ...

    Args:
        gold, rivals, no_answer: counts; samples without an answer count in the denominator only.

    Returns:
        [Q, R] shares, R the largest number of answers of a question; zeros pad rows.

    Raises:
        OutOfRangeError: shapes that do not match, counts that are not integers from 0, or a
            question without samples.
    """
    signatures = signatures_of_counts(gold, rivals, no_answer)
    shares: Floats = descending(np.column_stack([signatures.correct, signatures.rivals]))
    return shares[signatures.rows]


def answer_entropy(gold: Integers, rivals: Integers, no_answer: Integers) -> Floats:
    """Plug-in entropy of a question's outcomes, -sum p ln p, in nats; no answer is one outcome.

    Args:
        gold, rivals, no_answer: counts.

    Returns:
        [Q] entropies, 0 where all samples agree.

    Raises:
        OutOfRangeError: as `mass_by_rank`.
    """
    signatures = signatures_of_counts(gold, rivals, no_answer)
    shares = np.column_stack([signatures.correct, signatures.rivals, signatures.no_answer])
    logs = np.log(np.where(shares > 0.0, shares, 1.0))
    result: Floats = np.abs((shares * logs).sum(axis=1))[signatures.rows]
    return result


def difficulty_strata(accuracy: Floats, upper: Sequence[float] | Floats = QUARTERS) -> Rows:
    """The stratum of each question: the first whose upper end is at least its accuracy.

    Args:
        accuracy: [Q] share of samples with the gold answer.
        upper: [T] upper ends, ascending, the last 1.

    Returns:
        [Q] strata from 0, the most difficult.

    Raises:
        OutOfRangeError: accuracies outside [0, 1], or ends that do not ascend to 1.
    """
    ends, values = np.asarray(upper, np.float64), np.asarray(accuracy, np.float64)
    if (
        ends.ndim != 1
        or not len(ends)
        or not (np.diff(ends, prepend=0.0) >= 0.0).all()
        or ends[-1] != 1.0
    ):
        raise OutOfRangeError(
            f"Strata have ascending upper ends, the last of them 1, such as (0.25, 1); {upper} was"
            " given."
        )
    if values.ndim != 1 or len(wrong := np.flatnonzero(~((values >= 0.0) & (values <= 1.0)))):
        problem = (
            f"question {wrong[0]} has {values[wrong[0]]}"
            if values.ndim == 1
            else f"the shape is {values.shape}"
        )
        raise OutOfRangeError(f"Accuracies are one number in [0, 1] per question; {problem}.")
    return np.searchsorted(ends, values, side="left")


def strata_summary(
    gold: Integers,
    rivals: Integers,
    no_answer: Integers,
    upper: Sequence[float] | Floats = QUARTERS,
) -> Strata:
    """Mass by rank, entropy, accuracy and number of candidates by strata of accuracy (Figure 3).

    Args:
        gold, rivals, no_answer: counts.
        upper: [T] upper ends of the strata of the accuracy.

    Returns:
        Means per stratum.

    Raises:
        OutOfRangeError: as `mass_by_rank` and `difficulty_strata`.
    """
    questions = _diagnostics(gold, rivals, no_answer)
    stratum = difficulty_strata(questions["accuracy"], upper)
    members = [np.flatnonzero(stratum == t) for t in range(len(upper))]
    return Strata(
        upper=np.asarray(upper, np.float64),
        questions=np.array([len(rows) for rows in members]),
        **{name: _means(values, members) for name, values in questions.items()},
    )


def _diagnostics(gold: Integers, rivals: Integers, no_answer: Integers) -> dict[str, Floats]:
    mass = mass_by_rank(gold, rivals, no_answer)
    signatures = signatures_of_counts(gold, rivals, no_answer)
    return {
        "accuracy": signatures.correct[signatures.rows],
        "no_answer": signatures.no_answer[signatures.rows],
        "candidates": (mass > 0.0).sum(axis=1).astype(np.float64),
        "entropy": answer_entropy(gold, rivals, no_answer),
        "mass": mass,
    }


def _means(values: Floats, members: list[Rows]) -> Floats:
    empty = np.full(values.shape[1:], np.nan)
    return np.array([values[rows].mean(axis=0) if len(rows) else empty for rows in members])

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
import scipy

from feval.estimators.arrays import Floats, Integers, Result, Rows
from feval.estimators.per_question import descending, signatures_of_counts

QUARTERS = (0.25, 0.5, 0.75, 1.0)
"""Upper ends of the strata of accuracy; the first is the paper's "difficult"."""


class Strata(Result):
    """Means over the questions of each of T strata; NaN in a stratum without questions.

    Attributes:
        entropy: [T] mean entropy of the outcomes in nats.
        mass: [T, R] mean share by rank of the answer, most frequent first (Figure 3).
    """

    entropy: Floats
    mass: Floats

    @property
    def cumulative_mass(self) -> Floats:
        """[T, R] total share of the r most frequent answers."""
        return np.cumsum(self.mass, axis=1)


def strata_summary(
    gold: Integers, rivals: Integers, no_answer: Integers, upper: Sequence[float] = QUARTERS
) -> Strata:
    """Mass by rank and entropy by strata of accuracy (Figure 3).

    The shares of a question's answers are c_(r) / S, c_(1) >= c_(2) >= ..., right or wrong; its
    entropy -sum p ln p.

    Args:
        gold, rivals, no_answer: counts.
        upper: [T] upper ends of the strata of the accuracy, ascending, the last 1. A question lies
            in the first whose upper end is at least its accuracy.

    Returns:
        Means per stratum.

    Raises:
        OutOfRangeError: shapes that do not match, counts that are not integers from 0, or a
            question without samples.
    """
    signatures = signatures_of_counts(gold, rivals, no_answer)
    answers = np.column_stack([signatures.correct, signatures.rivals])
    outcomes = np.column_stack([answers, signatures.no_answer])
    entropy = scipy.special.entr(outcomes).sum(axis=1)
    stratum = np.searchsorted(upper, signatures.correct[signatures.rows], side="left")
    members = [signatures.rows[stratum == t] for t in range(len(upper))]
    return Strata(_means(entropy, members), _means(descending(answers), members))


def _means(values: Floats, members: list[Rows]) -> Floats:
    empty = np.full(values.shape[1:], np.nan)
    return np.array([values[rows].mean(axis=0) if len(rows) else empty for rows in members])

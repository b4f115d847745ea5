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


def strata_summary(
    gold: Integers, rivals: Integers, no_answer: Integers, upper: Sequence[float] = QUARTERS
) -> Strata:
    """Mass by rank and entropy by strata of accuracy (Figure 3).

    Args:
        gold, rivals, no_answer: counts.
        upper: [T] upper ends of the strata of the accuracy, ascending, the last 1. A question lies
            in the first whose upper end is at least its accuracy.

    Returns:
        Means per stratum.

    Raises:
        OutOfRangeError: as `mass_by_rank`.
    """
    signatures = signatures_of_counts(gold, rivals, no_answer)
    stratum = np.searchsorted(upper, signatures.correct[signatures.rows], side="left")
    members = [np.flatnonzero(stratum == t) for t in range(len(upper))]
    entropy = answer_entropy(gold, rivals, no_answer)
    return Strata(_means(entropy, members), _means(mass_by_rank(gold, rivals, no_answer), members))


def _means(values: Floats, members: list[Rows]) -> Floats:
    empty = np.full(values.shape[1:], np.nan)
    return np.array([values[rows].mean(axis=0) if len(rows) else empty for rows in members])

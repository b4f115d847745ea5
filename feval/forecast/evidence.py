"""Right calls per question, and the two moments that they estimate: what forecasts and plans are
made from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Integers
from feval.estimators.inference.bootstrap import bootstrap_means
from feval.estimators.two_call.moments import Moments
from feval.replay import Dataset

_FEWEST_IN_A_CELL = 5  # as `PairTable.sparse` has it

MOST_VOTES = 10_000
"""The largest M of a forecast."""


@dataclass(frozen=True, eq=False)
class SampleMoments:
    """Estimates of mu = E Q and nu = E Q^2, Q the probability that a call on a random question is
    right.

    Attributes:
        mu: mean over questions of c / G, unbiased.
        nu: mean of c (c - 1) / (G (G - 1)), unbiased for independent calls; clipped to [mu^2, mu].
        clipped: whether it was: the calls disagreed more often than independent ones would.
        resampled: [R, 2] (mu, nu) of R resamples of the questions, clipped likewise.
        unclipped: [1 + R, 2] (mu, nu) as estimated, of the sample and then of its resamples.
    """

    mu: float
    nu: float
    clipped: bool
    resampled: Floats
    unclipped: Floats


def checked_votes(m: Any) -> list[int]:
    """Check that numbers of votes are distinct integers from 1 to `MOST_VOTES`, and return them in
    ascending order.
    """
    votes = [int(value) for value in m]
    wrong = next((value for value in votes if not 1 <= value <= MOST_VOTES), None)
    if wrong is not None:
        raise OutOfRangeError(f"A vote has 1 to {MOST_VOTES:,} calls; M = {wrong} was asked for.")
    if not votes or len(set(votes)) < len(votes):
        raise OutOfRangeError(
            f"A forecast takes distinct numbers of votes, such as range(1, 41); {votes[:10]} was"
            " given."
        )
    return sorted(votes)


def ordered_by_key(dataset: Dataset, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """[Q] rows sorted by question key, so that intervals do not depend on the recording's order."""
    return rows[np.argsort(dataset.question_keys[rows], kind="stable")]


def sample_moments(right: Integers, size: Integers, *, resamples: int, seed: int) -> SampleMoments:
    """Estimate mu and nu from [Q] right calls out of [Q] sizes of at least 2, with resamples over
    questions.
    """
    c, g = right.astype(np.float64), size.astype(np.float64)
    columns = np.stack([c / g, c * (c - 1.0) / (g * (g - 1.0))], axis=1)
    mu, nu = columns.mean(axis=0).tolist()
    resampled = bootstrap_means(columns, resamples=resamples, seed=seed)
    resampled[:, 0] = np.clip(resampled[:, 0], 0.0, 1.0)
    unclipped = np.vstack([[mu, nu], resampled])
    resampled[:, 1] = np.clip(resampled[:, 1], resampled[:, 0] ** 2, resampled[:, 0])
    return SampleMoments(mu, float(np.clip(nu, mu * mu, mu)), nu < mu * mu, resampled, unclipped)


def rare_pairs(right: Integers, size: Integers) -> str | None:
    """Name the kinds of pairs of calls that fewer than 5 questions show, such as "both wrong 0";
    `None` if there are none.

    Resamples never show a kind that the questions lack, so their moments then look more certain
    than they are.
    """
    wrong = size - right
    kinds = {
        "both right": right >= 2,
        "one right": (right >= 1) & (wrong >= 1),
        "both wrong": wrong >= 2,
    }
    counts = {kind: int(np.count_nonzero(questions)) for kind, questions in kinds.items()}
    return (
        ", ".join(f"{kind} {count}" for kind, count in counts.items() if count < _FEWEST_IN_A_CELL)
        or None
    )


def moments_of(sample: SampleMoments) -> tuple[Moments, Moments]:
    """The moments of the sample (a scalar table) and of its resamples [R]."""
    return Moments.of(sample.mu, sample.nu), Moments.of(
        sample.resampled[:, 0], sample.resampled[:, 1]
    )

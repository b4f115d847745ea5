"""Bradley-Terry strengths from pairwise wins, which are assumed independent given the strengths."""

from __future__ import annotations

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats

MAX_STRENGTH = 20.0
"""Largest difference of log strengths, for entries that never lost."""

_STEPS = 10_000
_SETTLED = 1e-10


def pairwise_wins(accuracy: Floats) -> Floats:
    """Share of questions that each wins over each: right where the other is wrong; ties count half.

        w_ij = P(i right, j wrong) + P(both right or both wrong) / 2 = (1 + a_i - a_j) / 2

    so only the accuracies a matter, under any dependence. The outcomes of the Bradley-Terry model
    in Hunter (2004), section 1.

    Args:
        accuracy: [R, K] mean accuracies.

    Returns:
        [R, K, K], w_ij + w_ji = 1; halves on the diagonal.
    """
    return (1.0 + accuracy[:, :, None] - accuracy[:, None, :]) / 2.0


def bradley_terry(wins: Floats) -> Floats:
    """Strengths of the Bradley-Terry model: P(i beats j) = 1 / (1 + exp(s_j - s_i)).

    Maximum likelihood by minorisation-maximisation, the step of Hunter (2004, Annals of Statistics
    32, 384-406, eq. 3):

        p_i <- W_i / sum_{j != i} (w_ij + w_ji) / (p_i + p_j),     W_i = sum_{j != i} w_ij,     s =
        log p

    Natural logarithms with mean 0; a difference times 400 / log 10 is one on Elo's scale. An entry
    that never lost has no finite strength: differences are capped at `MAX_STRENGTH`.

    Args:
        wins: [R, K, K] wins of i over j, K at least 2; the diagonal is ignored.

    Returns:
        [R, K] log strengths with mean 0.

    Raises:
        OutOfRangeError: fewer than two to rank, or a pair without any comparison.
    """
    count = wins.shape[-1]
    off = ~np.eye(count, dtype=bool)
    if count < 2 or not ((wins + wins.transpose(0, 2, 1))[:, off] > 0).all():
        raise OutOfRangeError(
            f"A ranking needs two methods that are compared with each other; {count} were given."
        )
    shares = np.where(off, wins, 0.0)
    games, total = shares + shares.transpose(0, 2, 1), shares.sum(axis=2)
    least = np.exp(-MAX_STRENGTH)
    p = np.ones(total.shape)
    for _ in range(_STEPS):
        before = p
        p = total / (games / (p[:, :, None] + p[:, None, :])).sum(axis=2)
        p = np.maximum(p / p.max(axis=1, keepdims=True), least)
        if (np.abs(p - before) <= _SETTLED * before).all():
            break
    strengths: Floats = np.log(p)
    strengths -= strengths.mean(axis=1, keepdims=True)
    return strengths

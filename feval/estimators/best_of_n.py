"""The exact expectation of best-of-n over all draws of n CoTs without replacement."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["subset_best_accuracy"]

Floats = npt.NDArray[np.float64]


def subset_best_accuracy(scores: Floats, right: npt.NDArray[np.bool_], sizes: npt.NDArray[Any], n: int) -> Floats:
    """Probability that the best-scored of n CoTs is right.

    With H(v) the CoTs whose score is v or higher, the best of a draw has score v with probability
    [C(T - |H(v)| + m, n) - C(T - |H(v)|, n)] / C(T, n), m of them having exactly v; the first drawn of those is each of them
    equally often.

    Feval's own closed form of best-of-n, as in verifier papers. Assumes only that a question's recorded samples are
    exchangeable: every order of them is equally likely. Under calls that are independent given the question it is
    unbiased for n fresh ones.

    Args:
        scores: [Q, S], NaN for CoTs that cannot be chosen.
        right: [Q, S] whether a CoT's answer is the gold.
        sizes: [Q] recorded CoTs of each question, n or more.
        n: CoTs per draw.

    Returns:
        [Q] probabilities.
    """
    order = np.argsort(-scores, axis=1, kind="stable")  # NaN comes last
    ordered = np.take_along_axis(scores, order, axis=1)
    hits = np.take_along_axis(right & ~np.isnan(scores), order, axis=1)
    total = np.zeros(len(scores))
    for row in range(len(scores)):
        own = ordered[row, : int((~np.isnan(ordered[row])).sum())]
        missed = _missed(int(sizes[row]), n)
        starts = np.flatnonzero(np.diff(own, prepend=np.inf))
        ends = np.append(starts[1:], len(own)) if len(own) else starts
        shares = np.add.reduceat(hits[row].astype(float), starts) / (ends - starts) if len(own) else np.zeros(0)
        total[row] = ((missed[starts] - missed[ends]) * shares).sum()
    return total


def _missed(size: int, n: int) -> Floats:
    """[size + 1] probability that a draw of n out of `size` misses the k best, for k = 0, 1, ..."""
    k = np.arange(size)
    factors = np.clip((size - n - k) / (size - k), 0, 1)
    return np.concatenate([[1.0], np.cumprod(factors)])

"""The best and the largest of n CoTs, over all draws without replacement, in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feval.estimators.arrays import Bools, Floats


def subset_best_accuracy(scores: Floats, right: Bools, sizes: npt.NDArray[Any], n: int) -> Floats:
    """Probability that the best-scored of n CoTs is right.

    Let H(v) be the CoTs with score v or higher, m of them with exactly v. The best of a draw has
    score v with probability [C(T - |H(v)| + m, n) - C(T - |H(v)|, n)] / C(T, n), and the first
    drawn of the m is each of them equally often.

    Feval's own closed form. Assumes only that every order of a question's samples is equally
    likely; unbiased for n fresh calls if calls are independent given the question.

    Args:
        scores: [Q, S] NaN for CoTs that cannot be chosen.
        right: [Q, S] whether a CoT is right.
        sizes: [Q] recorded CoTs of each question, n or more.
        n: CoTs per draw.

    Returns:
        [Q] probabilities.
    """
    order = np.argsort(-scores, axis=1, kind="stable")  # NaN comes last
    ordered = np.take_along_axis(scores, order, axis=1)
    hits = np.take_along_axis(right & ~np.isnan(scores), order, axis=1)
    length = ordered.shape[1]
    place = np.arange(length)
    known = (~np.isnan(ordered)).sum(axis=1, keepdims=True)
    leads = np.ones(ordered.shape, bool)  # the first of equal scores
    leads[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(leads, place, 0), axis=1)
    following = np.append(
        np.where(leads, place, length)[:, 1:], np.full((len(scores), 1), length), axis=1
    )
    last = np.minimum(np.minimum.accumulate(following[:, ::-1], axis=1)[:, ::-1], known)
    missed = _missed(sizes, n, length)
    chance = np.take_along_axis(missed, first, axis=1) - np.take_along_axis(missed, last, axis=1)
    total: Floats = np.where(hits, chance / np.maximum(last - first, 1), 0.0).sum(axis=1)
    return total


def subset_largest(values: npt.NDArray[Any], sizes: npt.NDArray[Any], n: int) -> Floats:
    """Expectation of the largest of n values drawn without replacement.

    The i-th largest of T values is that of a draw with probability C(T - i, n - 1) / C(T, n): the
    draw misses the i - 1 larger ones, and not this one.

    Feval's own closed form. Assumes only that every order of a question's samples is equally
    likely.

    Args:
        values: [Q, S] one per sample, 0 or more; 0 where no sample was recorded.
        sizes: [Q] recorded samples of each question, n or more.
        n: samples per draw.

    Returns:
        [Q] expectations.
    """
    ordered = np.sort(values, axis=1)[:, ::-1]
    total: Floats = np.einsum(
        "qs,qs->q", ordered, -np.diff(_missed(sizes, n, ordered.shape[1]), axis=1)
    )
    return total


def _missed(sizes: npt.NDArray[Any], n: int, most: int) -> Floats:
    """[Q, most + 1] probability that a draw of n out of a size misses the k best, for k = 0, 1,
    ...
    """
    k, size = np.arange(most), sizes[:, None]
    missed = np.ones((len(sizes), most + 1))
    np.cumprod(np.clip((size - n - k) / np.maximum(size - k, 1), 0, 1), axis=1, out=missed[:, 1:])
    return missed

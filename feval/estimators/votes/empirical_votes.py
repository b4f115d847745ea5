"""V_n from recorded calls: how often a majority of m of a question's K recorded right/wrong bits is
right.

A question with c right calls counts with the hypergeometric probability that m of the K calls,
drawn without replacement, have a right majority (arXiv 2605.03379, section 6.1). That is unbiased
for V_n, m = 2n + 1, for every m up to K, assuming that the calls on a question are exchangeable;
P_n(c / K) is biased.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import comb

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, ShortPoolError
from feval.estimators.arrays import Floats, Int64, Integers
from feval.estimators.checks import at_index, broadcast, is_whole
from feval.estimators.per_question import PerQuestion, distinct


def hypergeometric_majority(right: npt.ArrayLike, size: npt.ArrayLike, votes: int) -> Floats:
    """Probability that most of `votes` calls, drawn without replacement, are right.

        sum_{j > m/2} C(c, j) C(K - c, m - j) / C(K, m)

    From c to c + 1 right calls it grows by C(c, h) C(K - 1 - c, h) / C(K, m), m = 2h + 1: that call
    is drawn and decides. So the values for all c are partial sums of positive integers, divided
    once. An even m with fair ties equals m - 1.

    Args:
        right, size: [...] c right of K recorded calls; K may be one number for all.
        votes: m, from 1 to the smallest K.

    Returns:
        [...] probabilities, correctly rounded.

    Raises:
        ShortPoolError: more votes than recorded calls.
        OutOfRangeError: votes below 1, or right calls outside 0..K; the message has the index.
    """
    c, k = broadcast(right=_whole(right, "right"), size=_whole(size, "size"))
    if not is_whole(votes) or votes < 1:
        raise OutOfRangeError(
            f"A vote needs 1 call or more, a whole number; {votes!r} were asked for."
        )
    wrong = np.argwhere((c < 0) | (c > k))
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise OutOfRangeError(
            f"{int(c[at])} of {int(k[at])} calls are right{at_index(at)}; counts lie in 0..K."
        )
    if k.size and int(k.min()) < votes:
        at = tuple(int(i) for i in np.unravel_index(int(k.argmin()), k.shape))
        raise ShortPoolError(
            f"{votes} votes were asked for, and {int(k[at])} calls are recorded{at_index(at)}. Ask"
            " for fewer votes or record more."
        )
    accuracy = np.empty(c.shape)
    for calls in np.unique(k).tolist():
        accuracy[k == calls] = _table(calls, int(votes) - 1 + int(votes) % 2)[c[k == calls]]
    return accuracy


def empirical_vote_accuracy(bits: npt.ArrayLike, votes: Sequence[int] | None = None) -> PerQuestion:
    """Empirical V_n of each question from all its recorded bits, by `hypergeometric_majority`;
    `.mean()` estimates V_n.

    Args:
        bits: [Q, K] whether call k on question i was right, 0 or 1.
        votes: numbers of votes m, from 1 to K; by default 1, 3, 5, ... up to K, that is V_0, V_1,
            V_2, ...

    Returns:
        One column per number of votes.

    Raises:
        ShortPoolError: more votes than calls.
        OutOfRangeError: bits that are not 0 or 1, no calls, or votes below 1.
    """
    recorded = checked_bits(bits)
    calls = recorded.shape[1]
    right = recorded.sum(axis=1, dtype=np.int64)
    first, rows = distinct((right,))
    numbers = range(1, calls + 1, 2) if votes is None else votes
    columns = [hypergeometric_majority(right[first], calls, m) for m in numbers]
    return PerQuestion(np.stack(columns, axis=1) if columns else np.empty((len(first), 0)), rows)


@cache
def _table(calls: int, votes: int) -> Floats:
    """[K + 1] the probability for c = 0..K."""
    half, all_draws = votes // 2, comb(calls, votes)
    total, values = 0, [0.0]
    for c in range(calls):
        total += comb(c, half) * comb(calls - 1 - c, half)
        values.append(total / all_draws)
    return np.array(values)


def checked_bits(bits: npt.ArrayLike) -> Integers:
    """Return right/wrong bits as integers [Q, K]; OutOfRangeError for another shape, no calls, or
    another value.
    """
    [recorded] = broadcast(bits=bits)
    if recorded.ndim != 2 or not recorded.shape[1]:
        raise OutOfRangeError(
            "Right/wrong bits are [questions, calls], with one call or more; the shape is"
            f" {recorded.shape}."
        )
    wrong = np.argwhere((recorded != 0) & (recorded != 1))
    if len(wrong):
        i, j = wrong[0].tolist()
        raise OutOfRangeError(
            f"A call is right (1) or wrong (0); bits[{i}, {j}] is {recorded[i, j].item()!r}."
        )
    return recorded.astype(np.int8)


def _whole(values: npt.ArrayLike, name: str) -> Int64:
    counts = np.asarray(values)
    if counts.dtype.kind not in "iu":
        raise OutOfRangeError(
            f"Calls are counted in whole numbers; {name} has the type {counts.dtype}."
        )
    return counts.astype(np.int64)

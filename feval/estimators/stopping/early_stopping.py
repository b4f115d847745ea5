"""Early stopping (ESC, Li et al., arXiv 2401.10480) over all orders of a pool, in closed form, and
its control scheme.

A pool has S samples, n_a of candidate a and the rest without an answer; windows of w are drawn
without replacement, up to I of them. With (n)_k = n (n - 1) ... (n - k + 1), the probability that i
given windows are unanimous is

    f(i) = i! [z^i]  prod_a sum_t (n_a)_{wt} z^t / t!  /  (S)_{wi}

because candidates can be assigned to the windows in i! / prod t_a! ways, each with ordered draws of
w t_a samples of candidate a. By inclusion and exclusion, none of j given windows is unanimous with
probability N_j = sum_i (-1)^i C(j, i) f(i). So

    E[windows] = sum_{j < I} N_j
    P[the stop is at window j + 1, and unanimous for the gold] = sum_i (-1)^i C(j, i) g(i)

where g(i) has one more given window, unanimous for the gold: (n_gold)_{w (t + 1)} in its factor and
(S)_{w (i + 1)} in the denominator. One more given sample of candidate a, (n_a)_{wt + 1} in its
factor, weighted with the mean tokens of a, gives the tokens of the next window. Only candidates
with w samples or more have a factor other than 1.

The signs alternate: up to `_MOST_WINDOWS_IN_DOUBLES` windows a double loses at most 2^I of its
2^53; beyond, extended precision is used. The same sums without signs bound the error; where the
bound is too large, fractions are used. Windows that hardly any order reaches (N_j <= 1e-15) are
skipped, since cancellation is worst there. The closed forms are feval's own. Assumes only that a
question's recorded samples are exchangeable: every order of them is equally likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb, factorial
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Int64, Integers
from feval.estimators.stopping.ends import Ends, partitions, require_budget

Numbers = npt.NDArray[Any]  # float64, longdouble, or Fractions in an array of objects

_MOST_WINDOWS_IN_DOUBLES = 8
MOST_WINDOWS_IN_FLOATS = 14
"""Most windows of a table of `window_ends` in floats; beyond, fractions are a hundred times
slower.
"""

_ROUNDINGS = 128  # most successive roundings of a number
_TOLERANCE = 1e-11  # error of a probability, a number of windows, or a share of the tokens
_LEFT = 1e-15  # probability that may be neglected
_MINUTE = 1e-13  # smaller probabilities are cancellation error or irrelevant
_LARGEST_POOL_IN_FLOATS = 160  # (160)_160 fits a double easily


@dataclass(frozen=True, eq=False)
class EarlyStops:
    """Expectations of ESC over all orders of Q pools.

    Attributes:
        gold_window: [Q] probability to stop at a window that is unanimous for the gold.
        no_stop: [Q] probability that no window is unanimous.
        windows, output_tokens: [Q] expected number of windows, and tokens of their samples.
    """

    gold_window: Floats
    no_stop: Floats
    windows: Floats
    output_tokens: Floats


def early_stops(
    counts: Integers,
    gold: Integers,
    size: Integers,
    tokens: Integers,
    all_tokens: Integers,
    *,
    window: int,
    windows: int,
) -> EarlyStops:
    """Evaluate the module's closed forms; OutOfRangeError for a pool smaller than the windows.

    Args:
        counts, tokens: [Q, K] samples of every candidate, and their total output tokens.
        gold: [Q] column of the gold candidate, -1 where there is none.
        size, all_tokens: [Q] recorded samples and their total output tokens, those without an
            answer included.
        window, windows: samples per window, w, and largest number of windows, I.
    """
    if size.size and int(size.min()) < window * windows:
        raise OutOfRangeError(
            f"{windows} windows of {window} samples were asked for; question {int(size.argmin())}"
            f" has {int(size.min())} samples."
        )
    fits = (
        windows <= _MOST_WINDOWS_IN_DOUBLES and int(size.max(initial=0)) <= _LARGEST_POOL_IN_FLOATS
    )
    kind = np.dtype(np.float64 if fits else np.longdouble)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        results, error = _closed_form(counts, gold, size, tokens, all_tokens, window, windows, kind)
    few = np.flatnonzero(~(error <= _TOLERANCE))  # NaN compares as false, too
    if len(few):
        exactly = np.dtype(object)
        results[:, few], _ = _closed_form(
            counts[few],
            gold[few],
            size[few],
            tokens[few],
            all_tokens[few],
            window,
            windows,
            exactly,
        )
    right, no_stop, expected, spent = results
    return EarlyStops(np.clip(right, 0.0, 1.0), np.clip(no_stop, 0.0, 1.0), expected, spent)


def _closed_form(
    counts: Integers,
    gold: Integers,
    size: Integers,
    tokens: Integers,
    all_tokens: Integers,
    window: int,
    windows: int,
    kind: np.dtype[Any],
) -> tuple[Floats, Floats]:
    """[4, Q] the fields of `EarlyStops` in some number type, and [Q] bounds of their errors."""
    large = min(counts.shape[1], int(size.max(initial=0)) // window)
    columns = np.argsort(-counts.astype(np.int64), axis=1, kind="stable")[:, :large]
    largest = np.take_along_axis(counts, columns, axis=1).astype(np.int64)
    large = int((largest.max(axis=0, initial=0) >= window).sum())  # columns fall
    columns, largest = columns[:, :large], largest[:, :large]
    spent = np.take_along_axis(tokens, columns, axis=1).astype(np.int64)
    is_gold = columns == gold[:, None]
    plain, marked = _ones(len(size), windows, kind), _zeros(len(size), windows, kind)
    weighted = marked.copy()
    weighted[0] = _number(all_tokens - spent.sum(axis=1), kind)
    for column in range(large):
        n = _number(largest[:, column], kind)
        falling = _falling(n, window * (windows + 1) + 1)
        orders = _number(np.ones(windows + 1, np.int64), kind)
        for t in range(1, windows + 1):
            orders[t] = orders[t - 1] * t
        factor = [falling[window * t] / orders[t] for t in range(windows + 1)]
        more = [falling[window * (t + 1)] / orders[t] * is_gold[:, column] for t in range(windows)]
        mean = _number(spent[:, column], kind) / np.maximum(n, 1)
        extra = [mean * falling[window * t + 1] / orders[t] for t in range(windows)]
        # The extra gold window or sample belongs to this candidate or to an earlier one.
        marked = _times(marked, factor) + _times(plain, more)
        weighted = _times(weighted, factor) + _times(plain, extra)
        plain = _times(plain, factor)
    below = _falling(_number(size, kind), window * windows + 1)
    return _summed(plain, marked, weighted, below, window, windows)


def window_ends(bounds: Int64, *, window: int, windows: int, only_unstopped: bool) -> Ends:
    """Table of ends of ESC, for pools on which `early_plurality` is not accurate enough; UsageError
    for a budget above 300.

    Given the counts v after j windows, every order is equally likely, so f(i) of the module with v
    for n and jw for S gives the probability that none of the j windows is unanimous, and that only
    the last is. `bounds` are those of `ends.AnswerCounts`; `only_unstopped` leaves out ends at a
    unanimous window.
    """
    require_budget(window * windows)
    ended, chances = [], []
    for j in range(windows if only_unstopped else 1, windows + 1):
        counts = partitions(bounds, window * j)
        f = _unanimous(counts[:, 1:], window, j)
        none_before, none = _none_of(j - 1, f), _none_of(j, f)
        stop_here = np.zeros_like(none) if only_unstopped else none_before - none
        chance = np.asarray(stop_here + none if j == windows else stop_here, np.float64)
        ended.append(counts)
        chances.append(np.where(chance < _MINUTE, 0.0, chance))
    return Ends.of(np.concatenate(ended), np.concatenate(chances), window * windows)


def _unanimous(counts: Integers, window: int, windows: int) -> list[Numbers]:
    """f(0) .. f(j) for N counts [N, K] of j windows together."""
    exactly = windows > MOST_WINDOWS_IN_FLOATS or window * windows > _LARGEST_POOL_IN_FLOATS
    kind: np.dtype[Any] = np.dtype(object if exactly else np.float64)
    polynomial = _ones(len(counts), windows, kind)
    for column in range(min(counts.shape[1], windows)):
        if int(counts[:, column].max(initial=0)) < window:
            break
        falling = _falling(_number(counts[:, column], kind), window * windows + 1)
        polynomial = _times(
            polynomial, [falling[window * t] / factorial(t) for t in range(windows + 1)]
        )
    size = _number(np.full(1, window * windows), kind)
    below = _falling(size, window * windows + 1)
    return [factorial(i) * polynomial[i] / below[window * i] for i in range(windows + 1)]


def _none_of(j: int, terms: list[Numbers], signed: bool = True) -> Numbers:
    """Probability that none of j given windows is unanimous; unsigned, the scale of its rounding
    error.
    """
    total: Numbers = sum(
        ((-1 if signed else 1) ** i * comb(j, i) * terms[i] for i in range(1, j + 1)),
        start=terms[0],
    )
    return total


def _summed(
    plain: Numbers, marked: Numbers, weighted: Numbers, below: Numbers, window: int, windows: int
) -> tuple[Floats, Floats]:
    """Inclusion-exclusion sums and error bounds; `below` is [wI + 1, Q] the falling factorials of
    the pools' sizes.
    """
    exactly = plain.dtype.kind == "O"
    orders = _number(np.array([1]), plain.dtype)
    f, g, h = [plain[0] / below[0]], [marked[0] / below[window]], [weighted[0] / below[1]]
    for i in range(1, windows + 1):
        orders = orders * i
        f.append(orders * plain[i] / below[window * i])
        if i < windows:
            g.append(orders * marked[i] / below[window * (i + 1)])
            h.append(orders * weighted[i] / below[window * i + 1])
    mean = np.maximum(np.asarray(h[0], np.float64), 1.0)  # tokens per sample
    results, error = np.zeros((4, len(mean)), plain.dtype), np.zeros(len(mean))
    rounding = 0.0 if exactly else _ROUNDINGS * float(np.finfo(plain.dtype).eps)
    reached = np.ones(len(mean), np.bool_)
    for j in range(windows + 1):
        none, size = _none_of(j, f), np.asarray(_none_of(j, f, signed=False), np.float64)
        ending = reached & np.asarray((none <= _LEFT) & (j > 0), np.bool_) & (not exactly)
        error += ending * (windows - j) * (np.abs(none.astype(np.float64)) + rounding * size)
        reached &= ~ending
        if j == windows:
            results[1] = np.where(reached, none, 0)
            error += reached * rounding * size
            break
        results[0] += np.where(reached, _none_of(j, g), 0)
        results[2] += np.where(reached, none, 0)
        results[3] += np.where(reached, window * _none_of(j, h), 0)
        tokens = np.asarray(_none_of(j, h, signed=False), np.float64) / mean
        error += reached * rounding * (size + tokens)
    return results.astype(np.float64), error


def _number(values: Integers, kind: np.dtype[Any]) -> Numbers:
    if kind.kind != "O":
        return values.astype(kind)
    return np.array([Fraction(int(value)) for value in values], object)


def _zeros(questions: int, windows: int, kind: np.dtype[Any]) -> Numbers:
    return np.zeros((windows + 1, questions), kind)


def _ones(questions: int, windows: int, kind: np.dtype[Any]) -> Numbers:
    """The polynomial 1 in z, [I + 1, Q]."""
    one = _zeros(questions, windows, kind)
    one[0] = Fraction(1) if kind.kind == "O" else 1.0
    return one


def _falling(n: Numbers, length: int) -> Numbers:
    """[length, Q] the falling factorials (n)_0, (n)_1, ..."""
    result = np.zeros((length, len(n)), n.dtype)
    result[0] = n * 0 + 1
    for k in range(1, min(length, int(n.max(initial=0)) + 1)):  # (n)_k = 0 beyond
        result[k] = result[k - 1] * np.maximum(n - (k - 1), 0)
    return result


def _times(polynomial: Numbers, factor: list[Numbers]) -> Numbers:
    """The product of [I + 1, Q] and a list of coefficients [Q], up to z^I."""
    result = polynomial * factor[0]
    for t in range(1, len(factor)):
        if np.any(factor[t] != 0):
            result[t:] += polynomial[: len(polynomial) - t] * factor[t]
    return result


def expected_samples(first: Integers, *, window: int, budget: int) -> Floats:
    """ESC's control scheme: expected samples for a window and a budget, from a first window of
    answers.

    The shares p of the first answers serve as a plug-in for the distribution of all further ones
    (i.i.d.), so a window is unanimous with probability q = sum_a p_a^w:

        E = w ( sum_{i < M - 1} q (1 - q)^i (i + 1) + (1 - q)^{M - 1} M ),      M = floor(budget /
        w)

    arXiv 2401.10480, section 3. Assumes calls that are independent given the question.

    Args:
        first: [Q, K] counts of each answer among the first samples of a question, without a column
            for no answer.
        window, budget: samples per window, w, and largest number of samples.

    Returns:
        [Q] expected samples.

    Raises:
        OutOfRangeError: a window outside 1..budget, or a question without samples.
    """
    if not 1 <= window <= budget or (first.size and int(first.sum(axis=1).min()) < 1):
        raise OutOfRangeError(
            "The control scheme takes one answer or more of every question and a window of 1 up to"
            f" the budget; window={window} and budget={budget} were given."
        )
    p = first / first.sum(axis=1, keepdims=True)
    q = (p**window).sum(axis=1)
    windows = budget // window
    stops = sum((q * (1 - q) ** i * (i + 1) for i in range(windows - 1)), start=np.zeros(len(q)))
    total: Floats = window * (stops + (1 - q) ** (windows - 1) * windows)
    return total

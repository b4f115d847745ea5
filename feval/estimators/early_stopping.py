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

Exact accuracy over all orders of early stopping (ESC, Li et al., arXiv 2401.10480) that votes
over all drawn samples.

A pool has S samples, n_a of candidate a and the rest without an answer; windows of w are drawn
without replacement, up to L of them, and the plurality of what was drawn answers, ties broken
uniformly. G(j, i) is the probability that i given windows of the first j are unanimous and the
plurality of the jw samples is the gold answer. By inclusion and exclusion

    P[right] = sum_{j < L} sum_i (-1)^i C(j - 1, i) G(j, i + 1)  +  sum_i (-1)^i C(L - 1, i) G(L, i)

where the second sum holds the stops at window L together with the orders that never stop. For G, v
votes for a candidate of which w t lie in t of the given windows can be drawn in C(n, v) (v)_{wt} /
t! ways, with (v)_k = v (v - 1) ... (v - k + 1), up to the factor i! ((j - i) w)! that orders the
windows and the other samples:

    G(j, i) = i! ((j - i) w)! / (S)_{jw}  [u^i x^{jw}]
              sum_{k >= 1} A(n_gold, k) x^k  int_0^1 prod_a ( ... ) dy  (1 + x)^z
    A(n, v) = C(n, v) sum_t (v)_{wt} / t! u^t
        ... = sum_{v < k} A(n_a, v) x^v + y A(n_a, k) x^k

with k, y and the bands of k as in `plurality`. A rival with fewer than k samples is not bound
by k, and sum_v A(n, v) x^v = sum_t (n)_{wt} / t! (u x^w)^t (1 + x)^{n - wt}: all such rivals merge
into one polynomial R(u x^w) of their own and a power of 1 + x. The formula is feval's own (no paper
states it); `tests/methods/test_methods_stopping.py` holds it against the enumeration of all orders,
in fractions.

Within G every term is positive; between the G the signs alternate. The same sum with all signs
positive bounds the rounding error, which is returned. Windows that hardly any order reaches are
skipped, since cancellation is worst there. Extended precision is used where doubles are not enough.
Assumes only that a question's recorded samples are exchangeable: every order of them is equally
likely.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Int64, Integers, Numbers, Result
from feval.estimators.per_question import distinct, slices, tie_nodes
from feval.estimators.plurality import LARGEST_POOL, Bands, VoteCounts, binomials, checked_counts
from feval.estimators.stopping_orders import Ends, partitions, require_budget

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


class EarlyStops(Result):
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


def early_stops(pools: VoteCounts, tokens: VoteCounts, *, window: int, windows: int) -> EarlyStops:
    """Evaluate the module's closed forms; OutOfRangeError for a pool smaller than the windows.

    Args:
        pools, tokens: of Q questions the samples with each answer, and their total output tokens.
        window, windows: samples per window, w, and largest number of windows, I.
    """
    size = pools.size
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
        results, error = _closed_form(window, windows, kind, pools, tokens)
    few = np.flatnonzero(~(error <= _TOLERANCE))  # NaN compares as false, too
    if len(few):
        kind = np.dtype(object)
        results[:, few], _ = _closed_form(window, windows, kind, pools.take(few), tokens.take(few))
    right, no_stop, expected, spent = results
    return EarlyStops(np.clip(right, 0.0, 1.0), np.clip(no_stop, 0.0, 1.0), expected, spent)


def _closed_form(
    window: int, windows: int, kind: np.dtype[Any], pools: VoteCounts, tokens: VoteCounts
) -> tuple[Floats, Floats]:
    """[4, Q] the fields of `EarlyStops` in some number type, and [Q] bounds of their errors."""
    size = pools.size
    counts, spent = (np.column_stack([each.gold, each.rivals]) for each in (pools, tokens))
    large = int((counts >= window).sum(axis=1).max(initial=0))
    columns = np.argsort(-counts.astype(np.int64), axis=1, kind="stable")[:, :large]
    largest, spent = (
        np.take_along_axis(table, columns, axis=1).astype(np.int64) for table in (counts, spent)
    )
    plain, marked, weighted = np.zeros((3, windows + 1, len(size)), kind)
    plain[0] = _number(np.ones_like(size), kind)
    weighted[0] = _number(tokens.size - spent.sum(axis=1), kind)
    for column in range(large):
        n = _number(largest[:, column], kind)
        falling = _falling(n, window * (windows + 1) + 1)
        factor = _ways(falling, window, windows)
        more = _ways(falling, window, windows - 1, window) * (columns[:, column] == 0)
        mean = _number(spent[:, column], kind) / np.maximum(n, 1)
        extra = mean * _ways(falling, window, windows - 1, 1)
        # The extra gold window or sample belongs to this candidate or to an earlier one.
        marked = _product(marked, factor) + _product(plain, more)
        weighted = _product(weighted, factor) + _product(plain, extra)
        plain = _product(plain, factor)
    below = _falling(_number(size, kind), window * windows + 1)
    f = _chances(plain, below, window)
    g, h = _chances(marked[:-1], below, window, window), _chances(weighted[:-1], below, window, 1)
    exactly = kind.kind == "O"
    rounding, least = (0.0, 0.0) if exactly else (_rounding(kind), _LEFT)
    choose = binomials(windows, windows + 1, kind)
    signed = choose * (-1) ** np.arange(windows + 1)
    none, scale = _of_none(signed, f), _of_none(choose, f)
    last, left = _last(none, scale, rounding, least)
    tokens_scale = _of_none(choose[:-1], h) / np.maximum(h[0], 1)  # h(0) is the mean per sample
    terms = (
        _of_none(signed[:-1], g),
        none[:-1],
        window * _of_none(signed[:-1], h),
        scale[:-1] + tokens_scale,
    )
    going = np.arange(windows)[:, None] < last
    right, expected, paid, rounded = (np.where(going, term, 0).sum(axis=0) for term in terms)
    no_stop = np.where((last == windows) & (none[-1] > least), none[-1], 0)
    error = left * (windows - last) + rounding * (rounded + np.where(no_stop > 0, scale[-1], 0))
    results = np.stack([right, no_stop, expected, paid])
    return results.astype(np.float64), error.astype(np.float64)


def window_ends(bounds: Int64, *, window: int, windows: int, only_unstopped: bool) -> Ends:
    """Table of ends of ESC, for pools on which `early_plurality` is not accurate enough; UsageError
    for a budget above 300.

    Given the counts v after j windows, every order is equally likely, so f(i) of the module with v
    for n and jw for S gives the probability that none of the j windows is unanimous, and that only
    the last is. `bounds` are those of `VoteCounts`; `only_unstopped` leaves out ends at a
    unanimous window.
    """
    require_budget(window * windows)
    ended, chances = [], []
    for j in range(windows if only_unstopped else 1, windows + 1):
        counts = partitions(bounds, window * j)
        signed = binomials(j, j + 1, object) * (-1) ** np.arange(j + 1)
        none_before, none = signed[-2:] @ _unanimous(counts[:, 1:], window, j)
        stop_here = np.zeros_like(none) if only_unstopped else none_before - none
        chance = np.asarray(stop_here + none if j == windows else stop_here, np.float64)
        ended.append(counts)
        chances.append(np.where(chance < _MINUTE, 0.0, chance))
    return Ends.from_counts(np.concatenate(ended), np.concatenate(chances), window * windows)


def _unanimous(counts: Integers, window: int, windows: int) -> Numbers:
    """[j + 1, N] f(0) .. f(j) for N counts [N, K] of j windows together."""
    exactly = windows > MOST_WINDOWS_IN_FLOATS or window * windows > _LARGEST_POOL_IN_FLOATS
    kind: np.dtype[Any] = np.dtype(object if exactly else np.float64)
    polynomial = np.zeros((windows + 1, len(counts)), kind)
    polynomial[0] = _number(np.ones(len(counts), np.int64), kind)
    for column in counts.T[:windows]:
        if int(column.max(initial=0)) < window:
            break
        falling = _falling(_number(column, kind), window * windows + 1)
        polynomial = _product(polynomial, _ways(falling, window, windows))
    below = _falling(_number(np.full(1, window * windows), kind), window * windows + 1)
    return _chances(polynomial, below, window)


def _number(values: Integers, kind: np.dtype[Any]) -> Numbers:
    exact: Numbers = values.astype(kind)
    return exact * Fraction(1) if kind.kind == "O" else exact


def _falling(n: Numbers, length: int) -> Numbers:
    """[length, Q] the falling factorials (n)_0, (n)_1, ..."""
    result = np.zeros((length, len(n)), n.dtype)
    result[0] = n * 0 + 1
    for k in range(1, min(length, int(n.max(initial=0)) + 1)):  # (n)_k = 0 beyond
        result[k] = result[k - 1] * np.maximum(n - (k - 1), 0)
    return result


def _factorials(length: int, kind: np.dtype[Any]) -> Numbers:
    """[length] 0!, 1!, ..."""
    return np.cumprod(np.maximum(np.arange(length), 1).astype(kind))


def _ways(falling: Numbers, window: int, windows: int, more: int = 0) -> Numbers:
    """[I + 1, Q] (n)_{wt + more} / t!: the series of a candidate with n samples."""
    return falling[more::window][: windows + 1] / _factorials(windows + 1, falling.dtype)[:, None]


def _chances(polynomial: Numbers, below: Numbers, window: int, more: int = 0) -> Numbers:
    """[I + 1, Q] i! [z^i] of a polynomial over (S)_{wi + more}: the module's f, g and h."""
    orders = _factorials(len(polynomial), below.dtype)[:, None]
    return orders * polynomial / below[more::window][: len(polynomial)]


def _of_none(choose: Numbers, terms: Numbers) -> Numbers:
    """[I, Q] sum_{i <= j} C(j, i) terms(i): with signs, that none of j given windows is unanimous;
    without, the scale of its rounding error. Terms beyond j may have overflowed.
    """
    return np.array([row[: j + 1] @ terms[: j + 1] for j, row in enumerate(choose)])


def _last(none: Numbers, scale: Numbers, rounding: float, least: float) -> tuple[Int64, Numbers]:
    """[Q] the window after which hardly any order continues (else I), and the probability of those
    that do.
    """
    few = np.asarray(none <= least, np.bool_)
    few[0], few[-1] = False, True
    last = few.argmax(axis=0)
    at = last, np.arange(len(last))
    return last, np.where(last < len(none) - 1, np.abs(none[at]) + rounding * scale[at], 0.0)


def _rounding(kind: np.dtype[Any]) -> float:
    return _ROUNDINGS * float(np.finfo(kind).eps)


def _product(one: Numbers, other: Numbers) -> Numbers:
    """[L + 1, G] product of two polynomials, truncated."""
    result: Numbers = one * other[0]
    for t in range(1, len(other)):
        if other[t].any():
            result[t:] += one[:-t] * other[t]
    return result


def expected_samples(first: Integers, *, window: int, budget: int) -> Floats:
    """ESC's control scheme: expected samples for a window and a budget, from a first window of
    answers.

    The shares p of the first answers serve as a plug-in for the distribution of all further ones
    (i.i.d.), so a window is unanimous with probability q = sum_a p_a^w:

        E = w ( sum_{i < M - 1} q (1 - q)^i (i + 1) + (1 - q)^{M - 1} M )
        M = floor(budget / w)

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
    result: Floats = window * (stops + (1 - q) ** (windows - 1) * windows)
    return result


_CHUNK_NUMBERS = 1 << 22  # numbers in the polynomials of one chunk
_MOST_WINDOWS_OF_VOTES = 10


class EarlyPlurality(Result):
    """Accuracy [Q] of ESC's vote over all orders of Q pools, with a bound of its absolute error,
    infinite on overflow.
    """

    right: Floats
    error: Floats


def early_plurality(
    pools: VoteCounts, *, window: int, windows: int, only_unstopped: bool = False
) -> EarlyPlurality:
    """Return the module's sum for Q questions, computed once per distinct question.

    Args:
        pools: of windows * window samples or more.
        window: samples of a window.
        windows: most windows.
        only_unstopped: over orders without a unanimous window alone: sum_i (-1)^i C(L, i) G(L, i).
    """
    if int(pools.size.max(initial=0)) > LARGEST_POOL:
        return EarlyPlurality(np.zeros(len(pools.gold)), np.full(len(pools.gold), np.inf))
    counts = checked_counts(*pools.parts)
    first, rows = distinct((counts.gold, counts.no_answer, *counts.rivals.T))
    right, error = np.zeros(len(first)), np.zeros(len(first))
    sum_of = _Sum(int(counts.size.max(initial=0)), window, windows, only_unstopped)
    step = _CHUNK_NUMBERS // (8 * sum_of.ways[0].size * (window * windows + 1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for chunk in slices(len(first), step):
            right[chunk], error[chunk] = sum_of.over(counts.take(first[chunk]).ordered())
    lost = ~np.isfinite(right) | ~np.isfinite(error)
    right, error = np.where(lost, 0.0, np.clip(right, 0.0, 1.0)), np.where(lost, np.inf, error)
    return EarlyPlurality(right[rows], error[rows])


class _Sum:
    """The sum for one window w and number of windows L, with tables for pools up to some size:
    `ways` [S + 1, L + 1] (n)_{wt} / t!, `choose` [S + 1, wL + 1] C(n, v).
    """

    def __init__(self, size: int, window: int, windows: int, only_unstopped: bool) -> None:
        fits = windows <= _MOST_WINDOWS_OF_VOTES and size <= _LARGEST_POOL_IN_FLOATS
        self.kind: np.dtype[Any] = np.dtype(np.float64 if fits else np.longdouble)
        self.window, self.windows, self.only_unstopped = window, windows, only_unstopped
        self.ways = _ways(self._falling(np.arange(size + 1)), window, windows).T
        self.choose = binomials(size, window * windows + 1, self.kind)
        self.subsets = binomials(windows, windows + 1, self.kind)
        self.signed = self.subsets * (-1) ** np.arange(windows + 1)

    def over(self, counts: VoteCounts) -> tuple[Numbers, Numbers]:
        """[G] probabilities of G questions, and their error bounds."""
        bands, rounding = (
            Bands.from_counts(counts, self.window * self.windows),
            _rounding(self.kind),
        )
        # polynomials R of all rivals but the b largest; the others cannot fill a window
        many = int((counts.rivals.max(axis=0, initial=0) >= self.window).sum())
        small = np.zeros((many + 1, self.windows + 1, len(counts.gold)), self.kind)
        small[many, 0] = 1.0
        for b in range(many - 1, -1, -1):
            small[b] = _product(small[b + 1], self.ways[counts.rivals[:, b]].T)
        unanimous = _product(small[0], self.ways[counts.gold].T)
        f = _chances(unanimous, self._falling(counts.size), self.window)
        last, left = _last(self.signed @ f, self.subsets @ f, rounding, _LEFT)
        polynomials = np.zeros((self.choose.shape[1], self.windows + 1, len(bands.rank)), self.kind)
        for rank in np.unique(bands.rank).tolist():
            of_rank = np.flatnonzero(bands.rank == rank)
            low, high = bands.low[of_rank], bands.high[of_rank]
            for votes in range(int(low.min()) + 1, int(high.max()) + 1):
                chosen = of_rank[(low < votes) & (votes <= high)]
                question = bands.question[chosen]
                product = self._rival_product(votes, counts.rivals[question, :rank].T)
                product = product * self.choose[counts.gold[question], votes]
                for t in range(min(votes // self.window, self.windows) + 1):
                    wide = min(product.shape[1], self.windows + 1 - t)
                    polynomials[votes : votes + len(product), t : t + wide, chosen] += (
                        self.ways[votes, t] * product[:, :wide]
                    )
        sums = np.zeros((2, len(counts.gold)), self.kind)
        each = np.stack([bands.rest, counts.size[bands.question], last[bands.question]])
        kinds, place = np.unique(each, axis=1, return_inverse=True)
        for kind, key in enumerate(kinds.T.tolist()):
            same = np.flatnonzero(place.ravel() == kind)
            values = _times(self._functional(*key), polynomials[..., same].reshape(-1, len(same)))
            question, rank = bands.question[same], np.minimum(bands.rank[same], len(small) - 1)
            weighted = (values.reshape(2, self.windows + 1, -1) * small[rank, :, question].T).sum(
                axis=1
            )
            for one, more in zip(sums, weighted, strict=True):
                np.add.at(one, question, more)
        return sums[0], rounding * sums[1] + left

    def _rival_product(self, votes: int, rivals: Integers) -> Numbers:
        """int_0^1 prod_a ( sum_{v < k} A(n_a, v) x^v + y A(n_a, k) x^k ) dy for N tuples of rivals
        with k samples or more.

        [degree of x + 1, degree of u + 1, N] coefficients.
        """
        if not len(rivals):
            return np.ones((1, 1, rivals.shape[1]), self.kind)
        nodes, weights = (table.astype(self.kind) for table in tie_nodes(len(rivals)))
        length, most_given = self.choose.shape[1] - votes, min(votes // self.window, self.windows)
        product = np.ones((1, 1, len(nodes), rivals.shape[1]), self.kind)
        for rival in rivals:
            choices = np.repeat(
                self.choose.T[: votes + 1, None].take(rival, axis=2), len(nodes), axis=1
            )
            choices[votes] *= nodes[:, None]
            degrees = (
                min(length, len(product) + votes),
                min(self.windows + 1, product.shape[1] + most_given),
            )
            longer = np.zeros((*degrees, *product.shape[2:]), self.kind)
            for v in range(min(votes, degrees[0] - 1) + 1):
                terms = product[: degrees[0] - v] * choices[v]
                for t in range(min(v // self.window, self.windows) + 1):
                    wide = min(product.shape[1], degrees[1] - t)
                    longer[v : v + len(terms), t : t + wide] += self.ways[v, t] * terms[:, :wide]
            product = longer
        return product[:, :, 0] if len(nodes) == 1 else np.tensordot(weights, product, (0, 2))

    def _functional(self, rest: int, size: int, last: int) -> Numbers:
        """[2 (L + 1), (wL + 1) (L + 1)] weight of each coefficient of W and of R, signed and
        unsigned, for `last` windows.

        `rest` is the number of samples of the merged rivals and without an answer.
        """
        width, length = self.windows + 1, self.choose.shape[1]
        j, i = np.indices((width, width))
        factorials = _factorials(length, self.kind)
        falling = self._falling(np.array([size]))[:: self.window]
        orders = factorials[i] * (factorials[np.maximum(j - i, 0) * self.window] / falling)
        signs = np.zeros_like(self.signed)  # of G(j, i)
        if not self.only_unstopped:
            signs[1 : last + 1, 1:] = self.signed[:last, :-1]
        if last == self.windows:
            signs[last] = self.signed[last - (not self.only_unstopped)]
        signed = signs * orders  # i! ((j - i) w)! / (S)_{jw}
        both = np.stack([signed, np.abs(signed)])
        result = np.zeros((2, width, length, width), self.kind)
        drawn = self.window * np.arange(width)[:, None] - np.arange(length)
        for t in range(min(rest // self.window, self.windows) + 1):
            left = drawn - self.window * t  # samples from the power of 1 + x
            power = np.where(
                left < 0, 0.0, self.choose[rest - self.window * t].take(np.maximum(left, 0))
            )
            result[:, t, :, : width - t] = np.einsum("sji,jd->sdi", both[:, :, t:], power)
        return result.reshape(2 * width, -1)

    def _falling(self, n: Integers) -> Numbers:
        return _falling(n.astype(self.kind), self.window * self.windows + 1)


def _times(weights: Numbers, values: Numbers) -> Numbers:
    """The matrix product; in extended precision without the many weights that are 0."""
    if weights.dtype == np.float64:
        return weights @ values
    rows, columns = np.flatnonzero(weights.any(axis=1)), np.flatnonzero(weights.any(axis=0))
    result = np.zeros((len(weights), values.shape[1]), weights.dtype)
    result[rows] = weights[np.ix_(rows, columns)] @ values[columns]
    return result

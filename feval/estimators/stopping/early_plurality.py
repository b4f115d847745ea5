"""Exact accuracy over all orders of early stopping (ESC, Li et al., arXiv 2401.10480) that votes
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

    G(j, i) = i! ((j - i) w)! / (S)_{jw}  [u^i x^{jw}]  sum_{k >= 1} A(n_gold, k) x^k  int_0^1
    prod_a ( ... ) dy  (1 + x)^z A(n, v) = C(n, v) sum_t (v)_{wt} / t! u^t,        ... = sum_{v < k}
    A(n_a, v) x^v + y A(n_a, k) x^k

with k, y and the bands of k as in `votes.plurality`. A rival with fewer than k samples is not bound
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

from dataclasses import dataclass
from itertools import pairwise
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.estimators.arrays import Floats, Int64, Integers
from feval.estimators.per_question import distinct
from feval.estimators.ties import tie_nodes
from feval.estimators.votes.plurality import LARGEST_POOL, Bands, Counts, binomials

Numbers = npt.NDArray[Any]  # float64 or longdouble

_CHUNK_NUMBERS = 1 << 22  # numbers in the polynomials of one chunk
_ROUNDINGS = 128  # most successive roundings of a number
_LEFT = 1e-15  # probability that may be neglected
_MOST_WINDOWS_IN_DOUBLES = 10
_MOST_SAMPLES_IN_DOUBLES = 160  # (160)_160 fits a double easily


@dataclass(frozen=True, eq=False)
class EarlyPlurality:
    """Accuracy [Q] of ESC's vote over all orders of Q pools, with a bound of its absolute error,
    infinite on overflow.
    """

    right: Floats
    error: Floats


def early_plurality(
    gold: Integers,
    rivals: Integers,
    size: Integers,
    *,
    window: int,
    windows: int,
    only_unstopped: bool = False,
) -> EarlyPlurality:
    """Return the module's sum for Q questions, computed once per distinct question.

    Args:
        gold: [Q] samples with the gold answer.
        rivals: [Q, K] samples of every other candidate, in any order.
        size: [Q] samples of the pool, at least windows * window.
        window: samples of a window.
        windows: most windows.
        only_unstopped: over orders without a unanimous window alone: sum_i (-1)^i C(L, i) G(L, i).
    """
    if size.size and int(size.max()) > LARGEST_POOL:
        return EarlyPlurality(np.zeros(len(size)), np.full(len(size), np.inf))
    counts = Counts.of(gold, rivals, size - gold - rivals.sum(axis=1))
    first, rows = distinct((counts.gold, counts.size, *counts.rivals))
    right, error = np.zeros(len(first)), np.zeros(len(first))
    sum_of = _Sum.of(int(counts.size.max(initial=0)), window, windows, only_unstopped)
    step = max(1, _CHUNK_NUMBERS // (8 * sum_of.ways[0].size * (window * windows + 1)))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for start in range(0, len(first), step):
            chunk = slice(start, start + step)
            right[chunk], error[chunk] = sum_of.over(counts.of_questions(first[chunk]))
    lost = ~np.isfinite(right) | ~np.isfinite(error)
    right, error = np.where(lost, 0.0, np.clip(right, 0.0, 1.0)), np.where(lost, np.inf, error)
    return EarlyPlurality(right[rows], error[rows])


@dataclass(frozen=True, eq=False)
class _Sum:
    """The sum for one window w and number of windows L: `ways` [S + 1, L + 1] (n)_{wt} / t!,
    `choose` [S + 1, wL + 1] C(n, v).
    """

    window: int
    windows: int
    only_unstopped: bool
    ways: Numbers
    choose: Numbers

    @classmethod
    def of(cls, size: int, window: int, windows: int, only_unstopped: bool) -> _Sum:
        """Make it with tables for pools up to some size."""
        fits = windows <= _MOST_WINDOWS_IN_DOUBLES and size <= _MOST_SAMPLES_IN_DOUBLES
        kind: type[np.floating[Any]] = np.float64 if fits else np.longdouble
        n = np.arange(size + 1, dtype=kind)
        ways = np.ones((size + 1, windows + 1), kind)
        for t in range(1, windows + 1):
            ways[:, t] = ways[:, t - 1] / t
            for taken in range(window * (t - 1), window * t):
                ways[:, t] *= np.maximum(n - taken, 0)
        return cls(
            window, windows, only_unstopped, ways, binomials(size, window * windows + 1, kind)
        )

    def over(self, counts: Counts) -> tuple[Numbers, Numbers]:
        """[G] probabilities of G questions, and their error bounds."""
        bands = Bands.of(counts, self.window * self.windows)
        small = self._small_rivals(counts.rivals)
        last, left = self._last(_product(small[0], self.ways[counts.gold].T), counts.size)
        polynomials = np.zeros(
            (self.choose.shape[1], self.windows + 1, len(bands.rank)), self.ways.dtype
        )
        for rank in np.unique(bands.rank).tolist():
            of_rank = np.flatnonzero(bands.rank == rank)
            for votes in range(
                int(bands.low[of_rank].min()) + 1, int(bands.high[of_rank].max()) + 1
            ):
                self._add(polynomials, of_rank, rank, votes, bands, counts)
        sums = np.zeros((2, len(counts.gold)), self.ways.dtype)
        keys = (bands.rest, counts.size[bands.question], last[bands.question])
        order = np.lexsort(keys)
        starts = np.flatnonzero(
            np.any([np.diff(key[order], prepend=-1) != 0 for key in keys], axis=0)
        )
        for start, stop in pairwise([*starts.tolist(), len(order)]):
            same = order[start:stop]
            values = _times(
                self._functional(*(int(key[same[0]]) for key in keys)),
                polynomials[..., same].reshape(-1, len(same)),
            )
            question, rank = bands.question[same], np.minimum(bands.rank[same], len(small) - 1)
            weighted = (values.reshape(2, self.windows + 1, -1) * small[rank, :, question].T).sum(
                axis=1
            )
            for one, more in zip(sums, weighted, strict=True):
                np.add.at(one, question, more)
        return sums[0], _ROUNDINGS * np.finfo(sums.dtype).eps * sums[1] + left

    def _small_rivals(self, rivals: Integers) -> Numbers:
        """[b + 1, L + 1, G] polynomials R of all rivals but the b largest; the others cannot fill a
        window.
        """
        many = int((rivals.max(axis=1, initial=0) >= self.window).sum())
        result = np.zeros((many + 1, self.windows + 1, rivals.shape[1]), self.ways.dtype)
        result[many, 0] = 1.0
        for rank in range(many - 1, -1, -1):
            result[rank] = _product(result[rank + 1], self.ways[rivals[rank]].T)
        return result

    def _last(self, unanimous: Numbers, size: Integers) -> tuple[Int64, Numbers]:
        """[G] the window after which hardly any order continues (else L), and the probability of
        those that do.
        """
        t = np.arange(self.windows + 1)
        all_unanimous = (
            unanimous * self._factorials()[t][:, None] / self._falling(size)[self.window * t]
        )
        subsets = np.array([[comb(j, i) for i in t.tolist()] for j in t.tolist()], self.ways.dtype)
        none = (subsets * np.where(t % 2, -1, 1)) @ all_unanimous
        error = _ROUNDINGS * np.finfo(self.ways.dtype).eps * (subsets @ all_unanimous)
        few = none <= _LEFT
        few[0], few[-1] = False, True
        last = few.argmax(axis=0)
        column = np.arange(len(size))
        left = np.where(last < self.windows, np.abs(none[last, column]) + error[last, column], 0.0)
        return last, left

    def _add(
        self,
        polynomials: Numbers,
        of_rank: npt.NDArray[np.intp],
        rank: int,
        votes: int,
        bands: Bands,
        counts: Counts,
    ) -> None:
        """Add the term of so many gold votes to the bands with some rank."""
        chosen = of_rank[(bands.low[of_rank] < votes) & (votes <= bands.high[of_rank])]
        if not len(chosen):
            return
        question = bands.question[chosen]
        product = self._rival_product(votes, counts.rivals[:rank, question])
        product = product * self.choose[counts.gold[question], votes]
        for t in range(min(votes // self.window, self.windows) + 1):
            wide = min(product.shape[1], self.windows + 1 - t)
            polynomials[votes : votes + len(product), t : t + wide, chosen] += (
                self.ways[votes, t] * product[:, :wide]
            )

    def _rival_product(self, votes: int, rivals: Integers) -> Numbers:
        """int_0^1 prod_a ( sum_{v < k} A(n_a, v) x^v + y A(n_a, k) x^k ) dy for N tuples of rivals
        with k samples or more.

        [degree of x + 1, degree of u + 1, N] coefficients.
        """
        if not len(rivals):
            return np.ones((1, 1, rivals.shape[1]), self.ways.dtype)
        nodes, weights = (table.astype(self.ways.dtype) for table in tie_nodes(len(rivals)))
        length, most_given = self.choose.shape[1] - votes, min(votes // self.window, self.windows)
        product = np.ones((1, 1, len(nodes), rivals.shape[1]), self.ways.dtype)
        for rival in rivals:
            choices = np.repeat(
                self.choose.T[: votes + 1, None].take(rival, axis=2), len(nodes), axis=1
            )
            choices[votes] *= nodes[:, None]
            degrees = (
                min(length, len(product) + votes),
                min(self.windows + 1, product.shape[1] + most_given),
            )
            longer = np.zeros((*degrees, *product.shape[2:]), self.ways.dtype)
            for v in range(min(votes, degrees[0] - 1) + 1):
                terms = product[: degrees[0] - v] * choices[v]
                for t in range(min(v // self.window, self.windows) + 1):
                    wide = min(product.shape[1], degrees[1] - t)
                    longer[v : v + len(terms), t : t + wide] += self.ways[v, t] * terms[:, :wide]
            product = longer
        integral: Numbers = (
            product[:, :, 0] if len(nodes) == 1 else np.tensordot(weights, product, (0, 2))
        )
        return integral

    def _functional(self, rest: int, size: int, last: int) -> Numbers:
        """[2 (L + 1), (wL + 1) (L + 1)] weight of each coefficient of W and of R, signed and
        unsigned, for `last` windows.

        `rest` is the number of samples of the merged rivals and without an answer.
        """
        signed = self._signs(last) * self._orders(size)
        both = np.stack([signed, np.abs(signed)])
        width, length = self.windows + 1, self.choose.shape[1]
        result = np.zeros((2, width, length, width), self.ways.dtype)
        drawn = self.window * np.arange(width)[:, None] - np.arange(length)
        for t in range(min(rest // self.window, self.windows) + 1):
            left = drawn - self.window * t  # samples from the power of 1 + x
            power = np.where(
                left < 0, 0.0, self.choose[rest - self.window * t].take(np.maximum(left, 0))
            )
            result[:, t, :, : width - t] = np.einsum("sji,jd->sdi", both[:, :, t:], power)
        return result.reshape(2 * width, -1)

    def _signs(self, last: int) -> Numbers:
        """[L + 1, L + 1] coefficient of G(j, i)."""
        signs = np.zeros((self.windows + 1, self.windows + 1), self.ways.dtype)
        for j in range(1, last + 1):
            for i in range(1, j + 1):
                signs[j, i] = 0 if self.only_unstopped else (-1) ** (i - 1) * comb(j - 1, i - 1)
        if last == self.windows:
            free = last if self.only_unstopped else last - 1
            signs[last] = [(-1) ** i * comb(free, i) for i in range(last + 1)]
        return signs

    def _orders(self, size: int) -> Numbers:
        """[L + 1, L + 1] i! ((j - i) w)! / (S)_{jw}."""
        factorials, window = self._factorials(), self.window
        falling = self._falling(np.array([size]))[:, 0]
        result = np.zeros((self.windows + 1, self.windows + 1), self.ways.dtype)
        for j in range(self.windows + 1):
            for i in range(j + 1):
                result[j, i] = factorials[i] * (factorials[(j - i) * window] / falling[j * window])
        return result

    def _factorials(self) -> Numbers:
        """[wL + 1] 0!, 1!, ..."""
        result: Numbers = np.cumprod(
            np.maximum(np.arange(self.choose.shape[1], dtype=self.ways.dtype), 1)
        )
        return result

    def _falling(self, size: Integers) -> Numbers:
        """[wL + 1, G] (S)_0, (S)_1, ..."""
        factors = size - np.arange(-1, self.choose.shape[1] - 1)[:, None].astype(self.ways.dtype)
        factors[0] = 1
        result: Numbers = np.cumprod(factors, axis=0)
        return result


def _times(weights: Numbers, values: Numbers) -> Numbers:
    """The matrix product; in extended precision without the many weights that are 0."""
    if weights.dtype == np.float64:
        return weights @ values
    rows, columns = np.flatnonzero(weights.any(axis=1)), np.flatnonzero(weights.any(axis=0))
    result = np.zeros((len(weights), values.shape[1]), weights.dtype)
    result[rows] = weights[np.ix_(rows, columns)] @ values[columns]
    return result


def _product(one: Numbers, other: Numbers) -> Numbers:
    """[L + 1, G] product of two polynomials, truncated."""
    result: Numbers = one * other[0]
    for t in range(1, len(other)):
        if other[t].any():
            result[t:] += one[:-t] * other[t]
    return result

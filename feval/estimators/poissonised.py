"""Multinomial probabilities by independent Poisson counts, evaluated on a circle.

Independent Poisson(lambda p_y) counts that are known to sum to M are multinomial with M calls;
lambda is free. So for an event that is a sum of products over the answers, let F(x) be the sum of
its Poisson terms, each times x to the number of calls. Then

    Pr{event; M} = [x^M] F(x) / Pr{Poisson(lambda) = M}
    [x^M] F(x)   = (1/N) sum_j F(w^j) w^(-jM) - aliases,      w = e^(-2 pi i / N)

The aliases are the coefficients of x^(M+N), x^(M+2N), ... and x^(M-N), ..., at most those of
Poisson(lambda); N is large enough that they are below 1e-18 of the wanted ones. Poisson(lambda)
puts much mass on all M within a few standard deviations of lambda, so one circle serves a *window*
of many M. Windows are equally wide in sqrt(M), where Poisson counts have variance 1/4: M = 1..100
takes four, M = 1..1000 eleven. Every term is at most 1 in absolute value; averaging over the points
and dividing by the mass, at least about 1e-4, leaves an absolute error of about 1e-14. Feval's own.
Assumes calls that are independent given the question.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from feval.estimators.arrays import Bools, Complex, Floats, Int64

_WIDTH = 2.8  # width of a window in sqrt(M): its ends have a hundredth of the mass of its middle
_NEGLIGIBLE = 42.0  # e^-42 = 6e-19
_TINY = 1e-300  # replaces 0 in x log x
_TABLES_BYTES = 1 << 26  # most memory for a circle's cached tables


def circles(votes: Int64, most: int | None = None) -> list[Circle]:
    """Circles that together serve the votes M, one per window, ascending; `most` tabulated votes of
    an answer (None: M / 2).
    """
    remaining = np.unique(votes)
    windows = []
    while len(remaining):
        inside = np.sqrt(remaining) <= np.sqrt(remaining[0]) + _WIDTH
        windows.append(Circle(remaining[inside], most))
        remaining = remaining[~inside]
    return windows


class Circle:
    """N points on the unit circle, for the M of one window. Conjugate points are left out: J =
    floor(N / 2) + 1.

    Attributes:
        votes: [D] M of this window, ascending.
        rate: lambda.
        most: most votes of an answer that are tabulated; floor(max(M) / 2) is enough for a
            plurality, since more than that wins.
        roots: [most + 1, J] w^(jk), for k votes.
    """

    def __init__(self, votes: Int64, most: int | None = None) -> None:
        self.votes = votes
        self.low, self.high = int(votes[0]), int(votes[-1])
        self.rate = ((self.low**0.5 + self.high**0.5) / 2.0) ** 2
        self.points = self._enough_points()
        self.most = self.high // 2 if most is None else most
        angles = np.arange(self.points) * (-2.0 * np.pi / self.points)
        self._unit = np.exp(1j * angles)
        self._minus_one = np.expm1(1j * angles[: self.points // 2 + 1])
        self.roots: Complex = self.powers(np.arange(self.most + 1))
        self._mass = _poisson(self.rate, self.high + 1)[votes]
        self._probabilities: dict[float, Floats] = {}
        self._tables: dict[float, tuple[Complex, Complex]] = {}
        self._reach: dict[float, tuple[int, int]] = {}

    def powers(self, exponents: Int64) -> Complex:
        """[K, J] w^(jk) for K exponents k."""
        half = np.arange(self.points // 2 + 1)
        powers: Complex = self._unit[np.outer(exponents, half) % self.points]
        return powers

    def everything(self, share: float | Floats) -> Complex:
        """[..., J] generating function of an answer with any number of votes: e^(lambda p (x -
        1)).
        """
        whole: Complex = np.exp(
            np.asarray(self.rate * np.asarray(share))[..., None] * self._minus_one
        )
        return whole

    def probabilities(self, share: float) -> Floats:
        """[most + 1] probability of k votes for an answer: Poisson(lambda p)."""
        if share not in self._probabilities:
            self.tabulate(np.array([share]))
        return self._probabilities[share]

    def tabulate(self, shares: Floats) -> None:
        """Compute `probabilities` and `reach` of S answers at once, and cache them."""
        new = np.setdiff1d(shares, np.array(list(self._reach)))
        fewest, most = _likely(self.low, new)[0], _likely(self.high, new)[1]
        reach = zip(np.minimum(fewest, most).tolist(), most.tolist(), strict=True)
        self._reach.update(zip(new.tolist(), reach, strict=True))
        step = max(1, _TABLES_BYTES // (32 * (self.most + 60)))
        for start in range(0, len(new), step):
            block = new[start : start + step]
            self._probabilities.update(
                zip(block.tolist(), _poisson(self.rate * block, self.most + 1), strict=True)
            )

    def terms(self, share: float) -> tuple[Complex, Complex]:
        """[most + 1, J] generating functions of an answer with exactly, and with at most, k
        votes.
        """
        if share not in self._tables:
            exactly = self.probabilities(share)[:, None] * self.roots
            if len(self._tables) * 2 * exactly.nbytes > _TABLES_BYTES:
                self._tables.clear()
            self._tables[share] = exactly, np.cumsum(exactly, axis=0)
        return self._tables[share]

    def all_at_most(self, shares: Floats) -> Complex:
        """[S, most + 1, J] generating functions of S answers with at most k votes; nothing is
        cached.
        """
        exactly = _poisson(self.rate * shares, self.most + 1)[..., None] * self.roots
        return np.cumsum(exactly, axis=-2, out=exactly)

    def at_most(self, share: float, votes: int) -> Complex:
        """[J] generating function of an answer with at most so many votes, without a table for
        all.
        """
        if share in self._tables:
            row: Complex = self._tables[share][1][votes]
            return row
        summed: Complex = self.probabilities(share)[: votes + 1] @ self.roots[: votes + 1]
        return summed

    def reach(self, share: float) -> tuple[int, int]:
        """Fewest and most votes of an answer for all M of the window, up to a probability below
        1e-18.
        """
        if share not in self._reach:
            self.tabulate(np.array([share]))
        return self._reach[share]

    def coefficients(self, values: Complex) -> Floats:
        """[..., D] probabilities from the generating function F at the points, [..., J]."""
        every = np.fft.irfft(values, self.points, axis=-1)
        probabilities: Floats = every[..., self.votes % self.points] / self._mass
        return probabilities

    def _enough_points(self) -> int:
        k = np.arange(int(self.rate + 15.0 * self.rate**0.5) + 60)
        log_mass = k * np.log(self.rate) - self.rate - np.cumsum(np.log(np.maximum(k, 1)))
        matters = np.flatnonzero(
            log_mass > min(log_mass[self.low], log_mass[self.high]) - _NEGLIGIBLE
        )
        return max(int(matters[-1]) - self.low, self.high - int(matters[0])) + 1


def _poisson(mean: float | Floats, length: int) -> Floats:
    """[..., length] Poisson probabilities of each mean: ratios of neighbours, multiplied outwards
    from the mode, over their sum.

    Where the mass is, errors stay near 1e-16; log-factorials would lose three digits at a mean of
    1,000.
    """
    rate = np.asarray(mean, np.float64)[..., None]
    k = np.arange(
        max(int(rate.max(initial=0.0) + 10.0 * rate.max(initial=0.0) ** 0.5) + 31, length)
    )
    mode = np.floor(rate)
    above = np.cumprod(
        np.divide(rate, k, out=np.ones(np.broadcast_shapes(rate.shape, k.shape)), where=k > mode),
        axis=-1,
    )
    down = np.divide(k + 1.0, rate, out=np.ones_like(above), where=k < mode)
    whole = above * np.cumprod(down[..., ::-1], axis=-1)[..., ::-1]
    probabilities: Floats = whole[..., :length] / whole.sum(axis=-1, keepdims=True)
    return probabilities


def _likely(calls: int, shares: Floats) -> tuple[Int64, Int64]:
    """[S] fewest and most successes of binomials, up to tails that Chernoff's exp(-M KL(k/M || p))
    puts below 1e-18.
    """
    p = np.clip(shares, np.finfo(np.float64).tiny, 1.0 - 2.0**-53)

    def unlikely(k: Int64) -> Bools:
        """Whether M KL(k / M || p), which falls up to the mean and rises after it, is too large."""
        hit, missed = k / calls, 1.0 - k / calls
        logs = hit * (np.log(np.maximum(hit, _TINY)) - np.log(p)) + missed * (
            np.log(np.maximum(missed, _TINY)) - np.log1p(-p)
        )
        return np.asarray(calls * logs > _NEGLIGIBLE)

    mean = (calls * p).astype(np.int64)
    fewest = _first(np.zeros_like(mean), mean, lambda k: ~unlikely(k))
    most = _first(mean + 1, np.full_like(mean, calls + 1), unlikely) - 1
    certain = shares >= 1.0
    return np.where(certain, calls, fewest), np.where(
        certain, calls, np.where(shares <= 0.0, 0, most)
    )


def _first(low: Int64, high: Int64, reached: Callable[[Int64], Bools]) -> Int64:
    """[S] the first k in low..high that meets a monotone condition, by bisection; high if none
    does.
    """
    low, high = low.copy(), high.copy()
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) // 2
        holds = reached(np.minimum(middle, high)) | (low >= high)
        low, high = np.where(holds, low, middle + 1), np.where(holds, middle, high)
    return low

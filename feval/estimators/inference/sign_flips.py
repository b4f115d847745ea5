"""Sign-flip tests of paired differences, and the intervals they imply.

If two methods are equally good, a difference on a question is as likely one way as the other. So every pattern of signs of the
observed differences is as likely as the observed one, and the p-value is the share of patterns whose mean is as far from 0
(R. A. Fisher 1935, The Design of Experiments, chapter 3, section 21; E. J. G. Pitman 1937, doi:10.2307/2984124). With right and
wrong answers it is the exact form of McNemar's test. Q questions have 2^Q patterns, so that no p-value is below 2^(1 - Q).

An interval holds every shift that the test does not reject. Flipping the shifted differences d - delta of a subset S of the
questions brings the mean as far from 0 exactly if mean_S(d) lies on the other side of delta, or at it; so the ends are order
statistics of the means of subsets (typical values, J. A. Hartigan 1969, doi:10.1080/01621459.1969.10501057). A pattern and its
opposite are one split of the questions into two parts, and both parts' means count.

With 16 differences or fewer every split is used; with more, random splits, each question on either side with probability 1/2,
plus the observed pattern: p = (b + 1) / (m + 1), which is valid for any number m of splits (B. Phipson and
G. K. Smyth 2010, doi:10.2202/1544-6115.1585). Splits come from the raw outputs of Philox and sums are exact on the grid of
`bootstrap`, so that a p-value never changes with the machine. Statistics count as equal within 1e-9
of the sum of absolute differences: what rounding leaves of a tie stays a tie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats
from feval.estimators.checks import require_confidence
from feval.estimators.inference.bootstrap import Clusters, on_grid, resampled_units
from feval.estimators.inference.intervals import checked_values

MOST_EXACT = 16
"""Most differences for which all 2^16 patterns of signs are used."""

_ZERO = 1e-11  # rounding error of a difference of zero
_TIE = 1e-9  # of the sum of all absolute differences
_CHUNK = 1 << 17  # numbers worked on at once
STREAM = (0, 0, 0, 1)
"""Counter of Philox where random splits begin: far from the bootstrap's draws of the same seed."""


@dataclass(frozen=True, eq=False)
class SignFlipTest:
    """Tests of K mean differences against 0: two-sided p-values [K] and the ends [K] of confidence intervals.

    The ends are infinite if too few questions exclude anything.
    """

    p_value: Floats
    low: Floats
    high: Floats


def sign_flip_test(
    differences: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    splits: int = 10_000,
    seed: int = 0,
    dealt: Clusters | None = None,
) -> SignFlipTest:
    """Test whether mean paired differences are 0, with the interval of shifts that the test does not reject.

    With T = |sum d|, and T* the same under a pattern of signs: p = #{T* >= T} / 2^n over all patterns of the n differences that
    are not 0, where n is 16 at most; else (1 + #{T* >= T}) / (splits + 1). The interval holds each delta for which the p-value of
    d - delta is above 1 - confidence; 0 is inside it, or one of its ends, exactly where p says so.

    Fisher 1935, Pitman 1937 (doi:10.2307/2984124) and Hartigan 1969, as in the module. Assumes questions that are independent
    draws, and differences symmetric around their mean. Under equal methods right/wrong values are symmetric, and others if the
    methods are exchangeable. Otherwise the level holds for many questions only, as Student's does.

    Args:
        differences: [Q, K] per question, such as probabilities of being right.
        confidence: of the intervals, between 0 and 1.
        splits: number of random splits, at least 1.
        seed: seed of those, 0 to 2^128 - 1. Split r depends on seed, Q and r only.
        dealt: `Clusters(Q, seed, STREAM)` where `differences` are sums over those, made column by column; the test is the same.

    Returns:
        K p-values and intervals.

    Raises:
        OutOfRangeError: no questions, NaN or infinite values, or a confidence, seed or number of splits out of range.
    """
    require_confidence(confidence)
    if not 0 <= seed < 1 << 128 or splits < 1:
        raise OutOfRangeError(
            f"A sign-flip test takes a seed from 0 to 2^128 - 1 and 1 split or more; seed={seed} and splits={splits} were given."
        )
    values = checked_values(np.asarray(differences, np.float64))
    bits = np.random.Philox(key=seed, counter=STREAM)
    sums, sizes, _ = resampled_units(values, bits, dealt)
    sums = np.where(np.abs(sums) <= _ZERO, 0.0, sums)
    grid, unit = on_grid(sums)
    table = np.column_stack([grid, sizes])
    halves = _every_split(len(grid)) @ table if len(grid) <= MOST_EXACT else _random_halves(bits, splits, table)
    alpha = 1.0 - confidence
    p, low, high = np.ones((3, grid.shape[1]))
    for block in _chunks(grid.shape[1], len(halves)):
        p[block] = _p_values(halves[:, block], grid[:, block])
        low[block], high[block] = _ends(halves[:, block], halves[:, -1], grid[:, block].sum(axis=0), sizes.sum(), alpha)
    few = (grid != 0).sum(axis=0)
    for count in np.unique(few[few <= MOST_EXACT]).tolist():
        columns = np.flatnonzero(few == count)
        p[columns] = _exact_p_values(grid[:, columns], count)
    return _agreeing(p, low * unit, high * unit, grid.sum(axis=0), alpha)


def _agreeing(p: Floats, low: Floats, high: Floats, observed: Floats, alpha: float) -> SignFlipTest:
    """Make the interval agree with p about 0, which random splits may miss narrowly."""
    not_rejected = p > alpha
    low = np.where(not_rejected, np.minimum(low, 0.0), np.where(observed > 0, np.maximum(low, 0.0), low))
    high = np.where(not_rejected, np.maximum(high, 0.0), np.where(observed < 0, np.minimum(high, 0.0), high))
    return SignFlipTest(p, low, high)


def _exact_p_values(grid: Floats, count: int) -> Floats:
    """[K] p-values over all patterns of the `count` differences of each column that are not 0."""
    order = np.argsort(grid == 0, axis=0, kind="stable")[:count]
    nonzero, sides = np.take_along_axis(grid, order, axis=0), _every_split(count)
    p = [_p_values(sides @ nonzero[:, block], nonzero[:, block]) for block in _chunks(grid.shape[1], len(sides))]
    return np.concatenate(p)


def _p_values(halves: Floats, grid: Floats) -> Floats:
    """[K] shares of patterns with a sum as far from 0, the observed one among them; `halves` [m, K] are sums of one side."""
    total = grid.sum(axis=0)
    as_far = np.abs(total - 2.0 * halves) >= np.abs(total) - _TIE * np.abs(grid).sum(axis=0)
    p: Floats = (as_far.sum(axis=0) + 1.0) / (len(halves) + 1.0)
    return p


def _ends(halves: Floats, sizes: Floats, total: Floats, size: float, alpha: float) -> tuple[Floats, Floats]:
    """[K] least and greatest shift that is not rejected: order statistics of the means of both sides of each split."""
    two_sided = (sizes > 0) & (sizes < size)  # a split with an empty side counts as far from 0 for every shift
    rank = int(alpha * (len(halves) + 1) + 1e-9) - int((~two_sided).sum())
    nothing = np.full(halves.shape[1], np.inf)
    if rank < 1:
        return -nothing, nothing
    one, counts = halves[two_sided].T, sizes[two_sided]
    means = np.concatenate([one / counts, (total[:, None] - one) / (size - counts)], axis=1)
    last = means.shape[1] - rank
    means.partition((rank - 1, last), axis=1)
    return means[:, rank - 1], means[:, last]


def _random_halves(bits: np.random.Philox, splits: int, table: Floats) -> Floats:
    """[splits, C] sums over one side of each split, which takes ceil(G / 64) outputs of Philox, low bit first."""
    words, halves = -(-len(table) // 64), np.empty((splits, table.shape[1]))
    step = max(1, _CHUNK // len(table))
    for start in range(0, splits, step):
        count = min(step, splits - start)
        raw = bits.random_raw(count * words).astype("<u8", copy=False).reshape(count, words)
        sides = np.unpackbits(raw.view(np.uint8), axis=1, count=len(table), bitorder="little")
        halves[start : start + count] = sides.astype(np.float64) @ table
    return halves


@lru_cache(maxsize=MOST_EXACT + 1)
def _every_split(questions: int) -> Floats:
    """[2^(Q - 1) - 1, Q] every split with something on both sides, once; the last question is always on the same side."""
    places = np.arange(1, 1 << max(questions - 1, 0))
    return (places[:, None] >> np.arange(questions) & 1).astype(np.float64)


def _chunks(columns: int, rows: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(rows, 1))
    return (slice(start, min(start + step, columns)) for start in range(0, columns, step))

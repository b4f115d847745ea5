"""Whether new CoTs came from the same LLM as earlier ones: two stratified permutation tests, on
answers and on lengths.

A provider may change the model behind a name. If nothing changed, old and new CoTs of a question
are exchangeable; so the labels old and new are permuted within every question, and the observed
statistic is compared with the permuted ones. Questions are strata: their difficulty and their
numbers of old and new CoTs may differ.

Permutations come from the raw 64-bit outputs of Philox, whose stream NumPy promises to keep; if
there are no more arrangements than resamples, all are enumerated, and the p-values are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Bools, Floats, Integers, Result
from feval.estimators.comparisons import holm

_ROUNDING = 1e-9  # rounding error of equal statistics
_CHUNK = 1 << 20  # labels per chunk
_NO_PAIR = "No question has both old and new CoTs, so there is nothing to compare."


@dataclass(frozen=True)
class DriftTest:
    """Observed statistic, p-value of no change, and that adjusted for the two tests; NaN if nothing
    can be compared.
    """

    statistic: float
    p_value: float
    p_holm: float


@dataclass(frozen=True)
class Drift:
    """Old and new CoTs compared, over the questions that have both.

    Attributes:
        answers: test of the summed chi-square statistic over the answers.
        lengths: test of van Elteren's statistic of the output tokens; above 0 if new CoTs are
            longer.
        questions: number of those questions.
        arrangements, exact: number of arrangements of labels used, and whether those are all.
        distance: mean over questions of the total-variation distance between old and new answers.
        expected_distance: its mean over the arrangements, which is above 0 for pools of finite
            size.
        old_tokens, new_tokens: means over questions of the mean length of old and of new CoTs.
        reasons: sentences on what is missing.
    """

    answers: DriftTest
    lengths: DriftTest
    questions: int
    arrangements: int
    exact: bool
    distance: float
    expected_distance: float
    old_tokens: float
    new_tokens: float
    reasons: tuple[str, ...] = ()


def drift(
    question: Integers,
    answer: Integers,
    tokens: Integers,
    new: Bools,
    *,
    resamples: int = 1999,
    seed: int = 0,
) -> Drift:
    """Test whether old and new CoTs of the same questions are alike in their answers and in their
    lengths.

    With n_q CoTs of question q, m_q of them new, c_k with answer k and a_k of those new (no answer
    is an answer of its own):

        answers   S = sum_q sum_k (a_k - m_q c_k / n_q)^2 n_q^2 / (c_k m_q (n_q - m_q))
                  Pearson's chi-squares, summed
        lengths   W = sum_q (R_q - m_q (n_q + 1) / 2) / (n_q + 1)
                  R_q: sum of the new ones' mid-ranks

    p is the share of arrangements of the labels within questions with S, or |W|, at least as large
    as observed; of B sampled ones it is (1 + count) / (1 + B), which keeps the level at any B
    (Phipson and Smyth 2010, doi:10.2202/1544-6115.1585). W is van Elteren's statistic (P. van
    Elteren 1960, On the combination of independent two-sample tests of Wilcoxon, Bulletin of the
    ISI 37), with weights 1 / (n_q + 1). The two p-values are adjusted together by Holm.

    Assumes that CoTs of one question are exchangeable when nothing changed. The tests are valid for
    any numbers of CoTs, though few CoTs have little power.

    Args:
        question, answer, tokens: [N] of each CoT its question's number, its answer's code (-1 for
            none) and its output tokens.
        new: [N] whether it is new.
        resamples: B, at least 1.
        seed: 0 to 2^128 - 1. The same seed and CoTs give the same numbers.

    Returns:
        Both tests; NaN with a reason if no question has both old and new CoTs.

    Raises:
        OutOfRangeError: arrays of different shapes or other types, or resamples or a seed out of
            range.
    """
    strata = list(_strata(*_checked(question, answer, tokens, new, resamples, seed)))
    if not strata:
        nothing = DriftTest(math.nan, math.nan, math.nan)
        return Drift(
            nothing, nothing, 0, 0, False, math.nan, math.nan, math.nan, math.nan, (_NO_PAIR,)
        )
    ways = math.prod(math.comb(len(stratum.new), int(stratum.new.sum())) for stratum in strata)
    observed = np.sum([stratum.statistics(stratum.new[None]) for stratum in strata], axis=0)
    exact = ways <= resamples
    arranged = _enumerated(strata) if exact else _sampled(strata, resamples, seed)
    p_values = [
        _p_value(abs(observed[0, row]), np.abs(arranged[:, row]), exact=exact) for row in (0, 1)
    ]
    adjusted = holm(p_values).tolist()
    answers, lengths = (
        DriftTest(float(observed[0, row]), p_values[row], adjusted[row]) for row in (0, 1)
    )
    return Drift(
        answers,
        lengths,
        len(strata),
        len(arranged),
        exact,
        distance=float(observed[0, 2]) / len(strata),
        expected_distance=float(arranged[:, 2].mean()) / len(strata),
        old_tokens=float(np.mean([stratum.tokens[~stratum.new].mean() for stratum in strata])),
        new_tokens=float(np.mean([stratum.tokens[stratum.new].mean() for stratum in strata])),
    )


class _Stratum(Result):
    """The CoTs of one question: answers [n, K] one-hot, mid-ranks of the lengths [n], tokens [n]
    and which are new [n].
    """

    answers: Floats
    ranks: Floats
    tokens: Integers
    new: Bools

    def statistics(self, labels: Bools) -> Floats:
        """[A, 3] the question's terms of S, W and the total-variation distance, for arrangements
        [A, n] of its labels.
        """
        size = labels.shape[1]
        news = int(self.new.sum())
        counts = self.answers.sum(axis=0)
        dealt = labels.astype(np.float64)
        excess = dealt @ self.answers - news * counts / size
        spread = size / (news * (size - news))
        chi_square = (excess**2 / counts).sum(axis=1) * size * spread
        lengths = (dealt @ self.ranks - news * (size + 1) / 2) / (size + 1)
        return np.stack([chi_square, lengths, np.abs(excess).sum(axis=1) * spread / 2], axis=1)


def _strata(
    question: Integers, answer: Integers, tokens: Integers, new: Bools
) -> Iterator[_Stratum]:
    """The questions with both old and new CoTs, in the order of their numbers."""
    order = np.argsort(question, kind="stable")
    starts = np.flatnonzero(np.diff(question[order])) + 1
    for rows in np.split(order, starts):
        if 0 < new[rows].sum() < len(rows):
            codes = np.unique(answer[rows], return_inverse=True)[1]
            yield _Stratum(
                np.eye(int(codes.max()) + 1)[codes],
                _midranks(tokens[rows]),
                tokens[rows],
                new[rows],
            )


def _midranks(values: Integers) -> Floats:
    """[n] ranks from 1; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def _enumerated(strata: list[_Stratum]) -> Floats:
    """[A, 3] statistics of all arrangements, over all combinations of questions."""
    sums = np.zeros((1, 3))
    for stratum in strata:
        size, news = len(stratum.new), int(stratum.new.sum())
        chosen = list(combinations(range(size), news))
        labels = np.zeros((len(chosen), size), dtype=np.bool_)
        labels[np.arange(len(chosen))[:, None], chosen] = True
        sums = (sums[:, None] + stratum.statistics(labels)).reshape(-1, 3)
    return sums


def _sampled(strata: list[_Stratum], resamples: int, seed: int) -> Floats:
    """[B, 3] statistics of random arrangements: in every question the CoTs with the smallest random
    keys are new.
    """
    bits = np.random.Philox(key=seed)
    sums = np.zeros((resamples, 3))
    for stratum in strata:
        size, news = len(stratum.new), int(stratum.new.sum())
        step = max(1, _CHUNK // size)
        for start in range(0, resamples, step):
            count = min(step, resamples - start)
            keys = bits.random_raw(count * size).reshape(count, size)
            smallest = np.argpartition(keys, news - 1, axis=1)[:, :news]
            labels = np.zeros((count, size), dtype=np.bool_)
            labels[np.arange(count)[:, None], smallest] = True
            sums[start : start + count] += stratum.statistics(labels)
    return sums


def _p_value(observed: float, arranged: Floats, *, exact: bool) -> float:
    as_large = int((arranged >= observed - _ROUNDING * max(1.0, observed)).sum())
    return as_large / len(arranged) if exact else (1 + as_large) / (1 + len(arranged))


def _checked(
    question: Any, answer: Any, tokens: Any, new: Any, resamples: int, seed: int
) -> tuple[Integers, Integers, Integers, Bools]:
    if resamples < 1 or not 0 <= seed < 1 << 128:
        raise OutOfRangeError(
            "A test of drift takes 1 resample or more and a seed from 0 to 2^128 - 1;"
            f" resamples={resamples} and seed={seed} were given."
        )
    arrays = [np.asarray(array) for array in (question, answer, tokens, new)]
    kinds = [array.dtype.kind for array in arrays]
    if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise OutOfRangeError(
            "question, answer, tokens and new have one value for each CoT; their shapes are"
            f" {shapes}."
        )
    if arrays[0].size and not (set(kinds[:3]) <= set("iu") and kinds[3] == "b"):
        raise OutOfRangeError(
            "question, answer and tokens are whole numbers and new is true or false for each CoT;"
            f" found the types {', '.join(str(array.dtype) for array in arrays)}."
        )
    return arrays[0], arrays[1], arrays[2], arrays[3].astype(np.bool_)

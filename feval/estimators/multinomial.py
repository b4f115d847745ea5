"""Exact accuracy of plurality voting among M independent calls, from answer probabilities (draws
with replacement).

"Compute-efficient evaluation of LLM voting accuracy" estimates p*(M) from the shares p = c / G of G
calls by simulating K votes of a multinomial (section 4.1), or by normal approximations (section
4.2). This module computes the limit K -> infinity. With p* the probability of the gold answer, p_y
of the rivals, p_0 of no answer, and e_j(u) = sum_{i <= j} u^i / i!,

    p*(M) = M! [x^M]  sum_{k >= 1} (p* x)^k / k!  e^(p_0 x)
             int_0^1 prod_y ( e_{k-1}(p_y x) + z (p_y x)^k / k! ) dz

where k is the gold answer's votes and z marks a rival that ties with it: int_0^1 z^t dz = 1 / (t +
1) is its share of a tie with t rivals (`ties` has the other rules). Samples without an answer cast
no vote, and an empty vote is wrong. The formula is feval's own, checked against enumeration in the
tests. How it is evaluated:

1. Scaled by Poisson probabilities and taken at roots of unity, for whole windows of M at once
   (`Circle`). The e_{k-1} of all k are running sums over k.
2. A k above M / 2 wins, and so does a k that no rival reaches; both are the whole generating
   function minus a running sum. Rivals that reach the smallest relevant k with probability below
   1e-15 are treated like no answer.
3. The product over the rivals does not depend on p*: questions with the same rivals share it, and
   equal rivals are a power.
4. Questions with the same (p*, sorted p_y, p_0) are solved once: 5,000 questions with G = 10 have
   about two hundred.
5. The probabilities of all answers of a batch of questions are tabulated at once. The remaining
   loop is over distinct sets of rivals, each with its own window of k, powers and nodes; padding
   them to one shape costs more than it saves.

**Assumes that calls are independent given the question, each with the same probabilities**
(conditionally i.i.d.).

**The plug-in saturates.** With the shares of G calls for p, the estimate tends to the accuracy of G
votes as M grows, since the leader of the G calls then wins for certain: see below for its bias
and for what is unbiased.

Multinomial probabilities by independent Poisson counts, evaluated on a circle.

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

The plug-in estimate of voting accuracy from few calls: its expectation, its bias, and what is
unbiased. Feval's own.

`plugin_plurality_accuracy` uses the shares c / G of G calls as the probabilities p. Its error is
statistical, not numerical:

* As M grows, the leader of the G calls wins for certain. So the estimate tends to the vote of the G
  calls, and its expectation to p*(G), exactly under uniform ties: **the plug-in curve saturates at
  the accuracy of G votes**. With p = (0.55, 0.45) and G = 5 the expectation at M = 101 is 0.592,
  where p*(101) = 0.844.
* M = 1 is unbiased (and M = 2 under uniform ties if every call has an answer: it equals M = 1). In
  between the bias is towards a flat curve: downward where voting helps, upward where it hurts.

**What is unbiased.** For M <= G the mean over all subsets of M of the G calls
(`subset_plurality_accuracy`) has expectation p*(M), for every p: a U-statistic. For M > G nothing
is: the expectation of any function of G independent calls is a polynomial in p of degree at most G,
and p*(M) has degree M. (The degree is lower for special distributions only: without missing answers
two votes equal one, and with two candidates every even M equals the odd one before. Counts cannot
show that a distribution is special.) Bootstrap and jackknife corrections fail there too: they
assume a bias in powers of 1 / G, but for M beyond G, p*(M) changes on a scale of 1 / sqrt(M) in p,
finer than the 1 / sqrt(G) to which p is known. So `unbiased_plurality_accuracy` returns NaN for M >
G, with a reason.

Everything here assumes conditionally i.i.d. calls. `two_call` says what a few such calls tell about
many votes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import comb
from typing import Any

import numpy as np
import scipy

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Complex, Floats, Int64, Integers, Result, Rows, is_whole
from feval.estimators.per_question import (
    PerQuestion,
    Signatures,
    check_ties,
    checked_votes,
    compositions,
    signatures_of_counts,
    signatures_of_probabilities,
    slices,
    tie_nodes,
)
from feval.estimators.plurality import LARGEST_POOL, VoteCounts, subset_plurality_accuracy

_BATCH_NUMBERS = 1 << 20  # complex numbers of generating functions held at once


def plurality_accuracy(
    correct: Floats,
    rivals: Floats,
    no_answer: Floats,
    votes: Sequence[int] | Integers,
    *,
    ties: str = "uniform",
) -> PerQuestion:
    """Probability that the plurality of M independent calls is the gold answer, for many M.

    Eqs. (2), (3) and (7) of the paper, without simulation; see the module.

    Args:
        correct, rivals, no_answer: [Q], [Q, K] and [Q] probabilities of the gold answer, of each
            other answer, in any order, and of no answer, which casts no vote.
        votes: D numbers of votes M, each from 1 to 10,000. All of 1..100 cost little more than a
            few.
        ties: credit of a tie for the lead: "uniform", "strict" or "lenient", see `ties`.

    Returns:
        D probabilities per question, in the order of `votes`. Absolute error below 1e-12.

    Raises:
        OutOfRangeError: shapes that do not match, values that are not probabilities or do not sum
            to 1, or an M out of range.
        UnknownNameError: an unknown rule for ties.
    """
    return _of_signatures(signatures_of_probabilities(correct, rivals, no_answer), votes, ties=ties)


def plugin_plurality_accuracy(
    gold: Integers,
    rivals: Integers,
    no_answer: Integers,
    votes: Sequence[int] | Integers,
    *,
    ties: str = "uniform",
) -> PerQuestion:
    """The plug-in estimate of p*(M) from G calls: `plurality_accuracy` at the shares c / G.

    It is the Monte-Carlo estimator of section 4.1 with K -> infinity. Unbiased for M = 1, biased
    for all others, and saturating: as M grows it tends to the accuracy of G votes. Beyond M = G no
    function of G calls is unbiased, see below.

    Args:
        gold, rivals, no_answer: [Q], [Q, K] and [Q] samples with the gold answer, with each other
            one, in any order, and without one. G is their sum and may differ between questions.
        votes: D numbers of votes M, each from 1 to 10,000.
        ties: credit of a tie for the lead.

    Returns:
        D probabilities per question, in the order of `votes`.

    Raises:
        OutOfRangeError: shapes that do not match, counts that are not integers from 0, a question
            without samples, or an M out of range.
        UnknownNameError: an unknown rule for ties.
    """
    return _of_signatures(signatures_of_counts(gold, rivals, no_answer), votes, ties=ties)


def _of_signatures(
    signatures: Signatures, votes: Sequence[int] | Integers, *, ties: str = "uniform"
) -> PerQuestion:
    """`plurality_accuracy` of questions whose probabilities are already checked and
    deduplicated.
    """
    check_ties(ties)
    numbers = checked_votes(votes)
    values = np.zeros((len(signatures.correct), len(numbers)))
    possible = signatures.correct > 0.0
    alone = possible & ~signatures.rivals.any(axis=1)
    values[alone] = 1.0 - signatures.no_answer[alone, None] ** numbers
    contests = _contests(signatures, np.flatnonzero(possible & ~alone))
    for circle in circles(numbers) if contests else ():
        columns = np.flatnonzero((numbers >= circle.low) & (numbers <= circle.high))
        places = np.searchsorted(circle.votes, numbers[columns])
        for batch in _batches(contests, _BATCH_NUMBERS // circle.roots.shape[1]):
            questions = np.concatenate([contest.questions for contest in batch])
            values[np.ix_(questions, columns)] = _accuracy(circle, batch, ties)[:, places]
    values[:, numbers == 1] = signatures.correct[:, None]
    return PerQuestion(np.clip(values, 0.0, 1.0), signatures.rows)


class _Contest(Result):
    """Distinct questions with the same rivals, which differ in the gold answer and no answer only.

    Attributes:
        questions: [g] indices of their signatures.
        rivals: distinct probabilities above 0, descending.
        powers: number of rivals with each.
    """

    questions: Rows
    correct: list[float]
    no_answer: Floats
    rivals: list[float]
    powers: list[int]


def _contests(signatures: Signatures, questions: Rows) -> list[_Contest]:
    groups: dict[bytes, list[int]] = {}
    for question in questions.tolist():
        groups.setdefault(signatures.rivals[question].tobytes(), []).append(question)
    contests = []
    for group in groups.values():
        multiplicities = Counter(signatures.rivals[group[0]].tolist())
        multiplicities.pop(0.0, None)
        places = np.array(group)
        correct, no_answer = signatures.correct[places].tolist(), signatures.no_answer[places]
        contests.append(
            _Contest(
                places, correct, no_answer, list(multiplicities), list(multiplicities.values())
            )
        )
    return contests


def _batches(contests: list[_Contest], questions: int) -> Iterator[list[_Contest]]:
    """Group contests into batches of about so many questions."""
    batch: list[_Contest] = []
    size = 0
    for contest in contests:
        batch.append(contest)
        size += len(contest.correct)
        if size >= questions:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _accuracy(circle: Circle, batch: list[_Contest], ties: str) -> Floats:
    """[g, D] accuracies of the g questions of a batch, for the M of the circle.

    The gold answer's votes k fall into three parts: too few (k < low), contested (low <= k <=
    high), won (k > high).
    """
    correct = np.array([p for contest in batch for p in contest.correct])
    circle.tabulate(np.concatenate([correct, *(contest.rivals for contest in batch)]))
    chances = np.array([circle.chances[p] for p in correct.tolist()])
    won, contested = (
        circle.everything(correct),
        np.zeros((len(correct), circle.roots.shape[1]), np.complex128),
    )
    start = 0
    for contest in batch:
        fewest, most = circle.reach[contest.rivals[0]]
        reaches = [circle.reach[p] for p in contest.correct]
        low = max(1, fewest, min(reach[0] for reach in reaches))
        high = min(circle.most, most, max(reach[1] for reach in reaches))
        rows = slice(start, start := start + len(contest.correct))
        for place, p in enumerate(contest.correct, rows.start):
            won[place] -= circle.at_most(p, high)
        if low <= high:
            near = [circle.reach[p][1] >= low for p in contest.rivals]
            far = sum(
                p * n
                for p, n, yes in zip(contest.rivals, contest.powers, near, strict=True)
                if not yes
            )
            product = _rival_product(circle, contest, near, low, high, ties)
            product *= circle.roots[low : high + 1]
            np.multiply(
                chances[rows, low : high + 1] @ product,
                circle.everything(contest.no_answer + far),
                out=contested[rows],
            )
    return circle.coefficients(won * circle.everything(1.0 - correct) + contested)


def _rival_product(
    circle: Circle, contest: _Contest, near: list[bool], low: int, high: int, ties: str
) -> Complex:
    """[high - low + 1, J] int_0^1 prod_y ( at most k - 1 votes + z exactly k votes ) dz over near
    rivals, for k = low..high.
    """
    tables = [
        (circle.terms(p), n)
        for p, n, yes in zip(contest.rivals, contest.powers, near, strict=True)
        if yes
    ]
    nodes, weights = tie_nodes(sum(n for _, n in tables), ties)
    total = np.zeros((high - low + 1, circle.roots.shape[1]), np.complex128)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        product: Any = weight
        for (exactly, at_most), power in tables:
            factor = exactly[low : high + 1] * node
            factor += at_most[low - 1 : high]
            product = _power(factor, power) * product
        total += product
    return total


def _power(base: Complex, exponent: int) -> Complex:
    """Power by repeated squaring, for exponents from 1; NumPy's complex power takes logarithms."""
    while not exponent & 1:
        base, exponent = base * base, exponent >> 1
    result = base
    while exponent := exponent >> 1:
        base = base * base
        if exponent & 1:
            result = result * base
    return result


_WIDTH = 2.8  # width of a window in sqrt(M): its ends have a hundredth of the mass of its middle
_NEGLIGIBLE = 42.0  # e^-42 = 6e-19
_TAIL = 35.0 / 3.0  # e^-35 = 6e-16
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
        chances: by the share of an answer [most + 1] probability of k votes: Poisson(lambda p).
        reach: by share, fewest and most votes for all M of the window, up to a probability below
            1e-15.
    """

    def __init__(self, votes: Int64, most: int | None = None) -> None:
        self.votes = votes
        self.low, self.high = int(votes[0]), int(votes[-1])
        self.rate = ((self.low**0.5 + self.high**0.5) / 2.0) ** 2
        self.points = self._enough_points()
        self.most = self.high // 2 if most is None else most
        angles = np.arange(self.points) * (-2.0 * np.pi / self.points)
        self._minus_one = np.expm1(1j * angles[: self.points // 2 + 1])
        places = np.outer(np.arange(self.most + 1), np.arange(self.points // 2 + 1))
        self.roots: Complex = np.exp(1j * angles)[places % self.points]
        self._mass = _poisson(self.rate, self.high + 1)[votes]
        self.chances: dict[float, Floats] = {}
        self.reach: dict[float, list[int]] = {}
        self._tables: dict[float, tuple[Complex, Complex]] = {}

    def everything(self, share: float | Floats) -> Complex:
        """[..., J] generating function of an answer with any number of votes: e^(lambda p (x -
        1)).
        """
        result: Complex = np.exp(
            np.asarray(self.rate * np.asarray(share))[..., None] * self._minus_one
        )
        return result

    def tabulate(self, shares: Floats) -> None:
        """Compute `chances` and `reach` of S answers at once; Bernstein's inequality bounds the
        tails beyond.
        """
        new = np.setdiff1d(shares, np.array(list(self.reach)))
        fewest, most = (
            calls * new
            + sign * (_TAIL + np.sqrt(_TAIL**2 + 6.0 * _TAIL * calls * new * (1.0 - new)))
            for calls, sign in ((self.low, -1), (self.high, 1))
        )
        fewest, most = np.maximum(fewest, 0.0), np.minimum(np.ceil(most), self.high)
        reach = np.column_stack([fewest, most]).astype(np.int64).tolist()
        self.reach.update(zip(new.tolist(), reach, strict=True))
        step = max(1, _TABLES_BYTES // (32 * (self.most + 60)))
        for start in range(0, len(new), step):
            block = new[start : start + step]
            chances = _poisson(self.rate * block, self.most + 1)
            self.chances.update(zip(block.tolist(), chances, strict=True))

    def terms(self, share: float) -> tuple[Complex, Complex]:
        """[most + 1, J] generating functions of an answer with exactly, and with at most, k
        votes.
        """
        if share not in self._tables:
            exactly = self.chances[share][:, None] * self.roots
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
            result: Complex = self._tables[share][1][votes]
            return result
        return self.chances[share][: votes + 1] @ self.roots[: votes + 1]

    def coefficients(self, values: Complex) -> Floats:
        """[..., D] probabilities from the generating function F at the points, [..., J]."""
        every = np.fft.irfft(values, self.points, axis=-1)
        return every[..., self.votes % self.points] / self._mass

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
    result: Floats = whole[..., :length] / whole.sum(axis=-1, keepdims=True)
    return result


MOST_OUTCOMES = 1_000_000
"""Most outcomes of G calls that an expectation enumerates."""

_BLOCK_NUMBERS = 1 << 20  # chances of outcomes held at once


class UnbiasedEstimates(Result):
    """D unbiased estimates per question; NaN where none exists, with a reason [D] for each such
    column ("" for others).
    """

    values: PerQuestion
    reasons: tuple[str, ...]


def unbiased_plurality_accuracy(
    gold: Integers,
    rivals: Integers,
    no_answer: Integers,
    votes: Sequence[int] | Integers,
    *,
    ties: str = "uniform",
) -> UnbiasedEstimates:
    """Unbiased estimates of p*(M) from G calls: `subset_plurality_accuracy` for M <= G, NaN beyond.

    Args:
        gold, rivals, no_answer: [Q], [Q, K] and [Q] samples with the gold answer, with each other
            one and without one. G is their sum and may differ between questions.
        votes: D numbers of votes M.
        ties: credit of a tie for the lead.

    Returns:
        Values [Q, D] and the reason for NaN, per column.

    Raises:
        OutOfRangeError: shapes that do not match, counts that are not integers from 0, a question
            without samples, a pool above 1,000 samples or an M out of range.
        UnknownNameError: an unknown rule for ties.
    """
    numbers = checked_votes(votes)
    signatures_of_counts(gold, rivals, no_answer)  # checks
    counts = VoteCounts(np.asarray(gold), np.asarray(rivals), np.asarray(no_answer))
    size = counts.size
    values = np.full((len(size), len(numbers)), np.nan)
    for pool in np.unique(size).tolist():
        rows, columns = np.flatnonzero(size == pool), np.flatnonzero(numbers <= pool)
        if len(columns):
            subsets = subset_plurality_accuracy(
                *counts.take(rows).parts, numbers[columns], ties=ties
            )
            values[np.ix_(rows, columns)] = subsets.per_question()
    reasons = [
        f"No unbiased estimate of the accuracy of {m} votes exists from fewer calls; question"
        f" {np.argmax(size < m)} has {size[np.argmax(size < m)]}. Record more calls, or use bounds"
        " that hold."
        if (size < m).any()
        else ""
        for m in numbers.tolist()
    ]
    return UnbiasedEstimates(PerQuestion(values, np.arange(len(size))), tuple(reasons))


def plugin_expectation(
    correct: Floats,
    rivals: Floats,
    no_answer: Floats,
    calls: int,
    votes: Sequence[int] | Integers,
    *,
    ties: str = "uniform",
) -> PerQuestion:
    """E[plug-in estimate of p*(M)] over the G calls it is made from, exactly.

    sum_c Pr{c} p*(M; c / G) over all counts c of G calls, Pr the multinomial with the true
    probabilities.

    Args:
        correct, rivals, no_answer: [Q], [Q, K] and [Q] true probabilities of the gold answer, of
            the rivals and of no answer.
        calls: G, at least 1.
        votes: D numbers of votes M.
        ties: credit of a tie for the lead.

    Returns:
        D expectations per question.

    Raises:
        OutOfRangeError: as `plurality_accuracy`; G below 1; or more than a million outcomes of the
            G calls.
        UnknownNameError: an unknown rule for ties.
    """
    numbers = checked_votes(votes)
    signatures = signatures_of_probabilities(correct, rivals, no_answer)
    shares = np.column_stack([signatures.correct, signatures.no_answer, signatures.rivals])
    _check_outcomes(calls, np.count_nonzero(shares, axis=1), signatures.rows)
    patterns, which = np.unique(shares > 0.0, axis=0, return_inverse=True)
    values = np.empty((len(shares), len(numbers)))
    # which answers are possible: few patterns, as rivals are sorted
    for pattern, possible in enumerate(patterns):
        questions = np.flatnonzero(which.ravel() == pattern)
        outcomes = np.zeros(
            (comb(calls + int(possible.sum()) - 1, calls), shares.shape[1]), np.int64
        )
        outcomes[:, possible] = compositions(calls, int(possible.sum()))
        estimates = plugin_plurality_accuracy(
            outcomes[:, 0], outcomes[:, 2:], outcomes[:, 1], numbers, ties=ties
        )
        values[questions] = _expected(
            estimates, outcomes[:, possible], shares[np.ix_(questions, possible)]
        )
    return PerQuestion(values, signatures.rows)


def _check_outcomes(calls: int, answers: Integers, rows: Integers) -> None:
    if not is_whole(calls) or not 1 <= calls <= LARGEST_POOL:
        raise OutOfRangeError(
            f"An estimate is made from 1 to {LARGEST_POOL:,} calls; {calls!r} were given."
        )
    most = int(answers.max(initial=1))
    if (number := comb(calls + most - 1, calls)) > MOST_OUTCOMES:
        question = int(np.argmax(answers[rows] == most))
        raise OutOfRangeError(
            f"{calls} calls over the {most} answers of question {question} have {number:,}"
            f" outcomes; up to {MOST_OUTCOMES:,} are enumerated. Ask for fewer calls, or merge the"
            " rarest rivals."
        )


def _expected(estimates: PerQuestion, outcomes: Int64, shares: Floats) -> Floats:
    """[Q, D] mean over the outcomes [N, C] of their estimates, for the probabilities [Q, C], none
    of them 0; blocks of questions at once.
    """
    order = np.argsort(estimates.rows, kind="stable")  # groups outcomes with the same estimate
    starts = np.flatnonzero(np.diff(estimates.rows[order], prepend=-1))
    counts = outcomes[order].astype(np.float64)
    log_ways = -scipy.special.gammaln(counts + 1.0).sum(axis=1)
    log_ways += scipy.special.gammaln(counts[0].sum() + 1.0)
    values = np.empty((len(shares), estimates.values.shape[1]))
    for block in slices(len(shares), _BLOCK_NUMBERS // len(outcomes)):
        chances = np.exp(log_ways + np.log(shares[block]) @ counts.T)
        values[block] = np.add.reduceat(chances, starts, axis=1) @ estimates.values
    return values

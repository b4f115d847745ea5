"""Exact accuracy of plurality voting among M independent calls, from answer probabilities (draws
with replacement).

"Compute-efficient evaluation of LLM voting accuracy" estimates p*(M) from the shares p = c / G of G
calls by simulating K votes of a multinomial (section 4.1), or by normal approximations (section
4.2). This module computes the limit K -> infinity. With p* the probability of the gold answer, p_y
of the rivals, p_0 of no answer, and e_j(u) = sum_{i <= j} u^i / i!,

    p*(M) = M! [x^M]  sum_{k >= 1} (p* x)^k / k!  e^(p_0 x)  int_0^1 prod_y ( e_{k-1}(p_y x) + z
    (p_y x)^k / k! ) dz

where k is the gold answer's votes and z marks a rival that ties with it: int_0^1 z^t dz = 1 / (t +
1) is its share of a tie with t rivals (`ties` has the other rules). Samples without an answer cast
no vote, and an empty vote is wrong. The formula is feval's own, checked against enumeration in the
tests. How it is evaluated:

1. Scaled by Poisson probabilities and taken at roots of unity, for whole windows of M at once
   (`poissonised`). The e_{k-1} of all k are running sums over k.
2. A k above M / 2 wins, and so does a k that no rival reaches; both are the whole generating
   function minus a running sum. Rivals that reach the smallest relevant k with probability below
   1e-18 are treated like no answer.
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
votes as M grows, since the leader of the G calls then wins for certain: see `plugin` for its bias
and for what is unbiased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.estimators.arrays import Complex, Floats, Integers
from feval.estimators.per_question import PerQuestion
from feval.estimators.poissonised import Circle, circles
from feval.estimators.probabilities import (
    Signatures,
    checked_votes,
    signatures_of_counts,
    signatures_of_probabilities,
)
from feval.estimators.ties import check_ties, tie_nodes

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
    function of G calls is unbiased, see `plugin`.

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


@dataclass(frozen=True, eq=False)
class _Contest:
    """Distinct questions with the same rivals, which differ in the gold answer and no answer only.

    Attributes:
        questions: [g] indices of their signatures.
        rivals: distinct probabilities above 0, descending.
        powers: number of rivals with each.
    """

    questions: npt.NDArray[np.intp]
    correct: list[float]
    no_answer: Floats
    rivals: list[float]
    powers: list[int]


def _contests(signatures: Signatures, questions: npt.NDArray[np.intp]) -> list[_Contest]:
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
    chances = np.array([circle.probabilities(p) for p in correct.tolist()])
    won, contested = (
        circle.everything(correct),
        np.zeros((len(correct), circle.roots.shape[1]), np.complex128),
    )
    start = 0
    for contest in batch:
        low, high = _contested(circle, contest)
        rows = slice(start, start := start + len(contest.correct))
        for place, p in enumerate(contest.correct, rows.start):
            won[place] -= circle.at_most(p, high)
        if low <= high:
            near = [circle.reach(p)[1] >= low for p in contest.rivals]
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


def _contested(circle: Circle, contest: _Contest) -> tuple[int, int]:
    """Smallest and largest k of the gold answer for which the rivals matter; none if the first is
    larger.
    """
    fewest, most = circle.reach(contest.rivals[0])
    reaches = [circle.reach(p) for p in contest.correct]
    low = max(1, fewest, min(reach[0] for reach in reaches))
    high = min(circle.most, most, max(reach[1] for reach in reaches))
    return low, high


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

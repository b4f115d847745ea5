"""Exact accuracy of plurality voting among M independent calls: with replacement, from answer probabilities.

"Compute-efficient evaluation of LLM voting accuracy" estimates p*(M) from the shares p = c / G of G calls by
simulating K votes of a multinomial (section 4.1), or by normal approximations (section 4.2). The limit K -> infinity
can be computed instead. With p* the probability of the gold answer, p_y of the rivals, p_0 of no answer, and e_j(u)
= sum_{i <= j} u^i / i!,

    p*(M) = M! [x^M]  sum_{k >= 1} (p* x)^k / k!  e^(p_0 x)  int_0^1 prod_y ( e_{k-1}(p_y x) + z (p_y x)^k / k! ) dz

where k is the gold answer's votes and z marks a rival that ties with it: int_0^1 z^t dz = 1 / (t + 1) is its share
of a tie with t rivals (`feval.estimators.ties` has the other rules). Samples without an answer cast no vote, and a
vote without votes is wrong. The formula is feval's own; `tests/test_estimators_multinomial.py` holds it against
enumeration. How it is evaluated:

1. Scaled by Poisson probabilities and taken at roots of unity, for whole windows of M at once
   (`feval.estimators.poissonised`). The e_{k-1} of all k are running sums over k.
2. k above M / 2 has won, and so has a k that no rival reaches; both are the whole generating function minus a
   running sum. Rivals that cannot reach the fewest votes in question are treated like no answer. "Cannot" is:
   probability below 1e-18.
3. The product over the rivals does not depend on p*: questions with the same rivals share it, equal rivals are one
   power.
4. Questions with the same (p*, sorted p_y, p_0) are solved once: 5,000 questions with G = 10 have some two hundred. One vote,
   no rivals and no chance need no sum.

**What is assumed, above all: calls are independent given the question, each with the same probabilities**
(conditional i.i.d.).

**What the plug-in cannot do.** Put the shares of G calls for p, and the estimate tends to the accuracy of G votes as
M grows, since the leader of the G calls then wins surely: see `feval.estimators.plugin` for its bias and for what is
unbiased.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.estimators.per_question import PerQuestion
from feval.estimators.poissonised import Circle, circles
from feval.estimators.probabilities import (
    MOST_VOTES,
    Signatures,
    checked_votes,
    signatures_of_counts,
    signatures_of_probabilities,
)
from feval.estimators.ties import check_ties, tie_nodes

__all__ = ["MOST_VOTES", "plugin_plurality_accuracy", "plurality_accuracy", "plurality_accuracy_of"]

Integers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]
Complex = npt.NDArray[np.complex128]


def plurality_accuracy(
    correct: Floats, rivals: Floats, no_answer: Floats, votes: Sequence[int] | Integers, *, ties: str = "uniform"
) -> PerQuestion:
    """Probability that the plurality of M independent calls is the gold answer; for many M at once.

    See the module for formula, method and assumptions. It is eqs. (2), (3) and (7) of "Compute-efficient evaluation
    of LLM voting accuracy", without simulation.

    Args:
        correct: [Q] probability of the gold answer.
        rivals: [Q, K] probability of each other answer, in any order; zeros are ignored.
        no_answer: [Q] probability of no answer, which casts no vote.
        votes: D numbers of votes M, each from 1 to 10,000. All of 1..100 cost little more than a few of them.
        ties: what a tie for the lead is worth: "uniform", "strict" or "lenient", see `feval.estimators.ties`.

    Returns:
        D probabilities per question, in the order of `votes`. Absolute error below 1e-12.

    Raises:
        OutOfRangeError: shapes that do not fit, values that are no probabilities or do not sum to 1, or an M out of
        range. UnknownNameError: a rule for ties that nobody knows.
    """
    return plurality_accuracy_of(signatures_of_probabilities(correct, rivals, no_answer), votes, ties=ties)


def plugin_plurality_accuracy(
    gold: Integers, rivals: Integers, no_answer: Integers, votes: Sequence[int] | Integers, *, ties: str = "uniform"
) -> PerQuestion:
    """The plug-in estimate of p*(M) from G calls: `plurality_accuracy` at the shares c / G.

    It is the Monte-Carlo estimator of "Compute-efficient evaluation of LLM voting accuracy", section 4.1, with K ->
    infinity. Unbiased for M = 1 (and M = 2 under uniform ties), biased for all others, and saturating: as M grows it
    tends to the accuracy of G votes. Beyond M = G no function of G calls is unbiased, see `feval.estimators.plugin`.

    Args:
        gold: [Q] samples with the gold answer.
        rivals: [Q, K] samples of each other candidate, in any order.
        no_answer: [Q] samples without an answer. G is the sum of all and may differ between questions.
        votes: D numbers of votes M, each from 1 to 10,000.
        ties: what a tie for the lead is worth.

    Returns:
        D probabilities per question, in the order of `votes`.

    Raises:
        OutOfRangeError: shapes that do not fit, counts that are no integers from 0, a question without samples, or
        an M out of
            range.
        UnknownNameError: a rule for ties that nobody knows.
    """
    return plurality_accuracy_of(signatures_of_counts(gold, rivals, no_answer), votes, ties=ties)


def plurality_accuracy_of(
    signatures: Signatures, votes: Sequence[int] | Integers, *, ties: str = "uniform"
) -> PerQuestion:
    """`plurality_accuracy` of questions whose probabilities are checked and stored once.

    Args:
        signatures: from `feval.estimators.probabilities`.
        votes: D numbers of votes M, each from 1 to 10,000.
        ties: what a tie for the lead is worth.

    Returns:
        D probabilities per question.

    Raises:
        OutOfRangeError: an M out of range.
        UnknownNameError: a rule for ties that nobody knows.
    """
    check_ties(ties)
    wanted = checked_votes(votes)
    values = np.zeros((len(signatures.correct), len(wanted)))
    alone = ~signatures.rivals.any(axis=1) & (signatures.correct > 0.0)
    values[alone] = 1.0 - signatures.no_answer[alone, None] ** wanted
    groups = list(_same_rivals(signatures, ~alone))
    for circle in circles(wanted) if groups else ():
        columns = np.flatnonzero((wanted >= circle.low) & (wanted <= circle.high))
        places = np.searchsorted(circle.votes, wanted[columns])
        for chosen, rivals in groups:
            found = _accuracy(circle, signatures.correct[chosen], signatures.no_answer[chosen], rivals, ties)
            values[np.ix_(chosen, columns)] = found[:, places]
    values[:, wanted == 1] = signatures.correct[:, None]
    return PerQuestion(np.clip(values, 0.0, 1.0), signatures.rows)


def _same_rivals(
    signatures: Signatures, contested: npt.NDArray[np.bool_]
) -> Iterator[tuple[npt.NDArray[np.intp], Floats]]:
    """Signatures that differ in the gold answer only, with their rivals above 0; not those that are never right."""
    groups: dict[bytes, list[int]] = {}
    for place in np.flatnonzero(contested & (signatures.correct > 0.0)).tolist():
        groups.setdefault(signatures.rivals[place].tobytes(), []).append(place)
    for places in groups.values():
        rivals = signatures.rivals[places[0]]
        yield np.array(places), rivals[rivals > 0.0]


def _accuracy(circle: Circle, correct: Floats, no_answer: Floats, rivals: Floats, ties: str) -> Floats:
    """[g, D] accuracies of g questions with the same rivals, for the M of the circle.

    The gold answer's votes k fall into three parts: too few (k < low), contested (low <= k <= high), won (k > high).
    """
    low, high = _contested(circle, correct, rivals)
    votes = np.array([circle.probabilities(p) for p in correct.tolist()])
    won = circle.everything(correct) - votes[:, : high + 1] @ circle.roots[: high + 1]
    function = won * circle.everything(1.0 - correct)
    if low <= high:
        near = np.array([circle.reach(p)[1] >= low for p in rivals.tolist()])
        product = _rival_product(circle, rivals[near], low, high, ties) * circle.roots[low : high + 1]
        beside = circle.everything(no_answer + float(rivals[~near].sum()))
        function += votes[:, low : high + 1] @ product * beside
    return circle.coefficients(function)


def _contested(circle: Circle, correct: Floats, rivals: Floats) -> tuple[int, int]:
    """The votes k of the gold answer for which the rivals matter; none where the first exceeds the second."""
    fewest, most = circle.reach(float(rivals[0]))
    low = max(1, fewest, circle.reach(float(correct.min()))[0])
    high = min(circle.most, most, circle.reach(float(correct.max()))[1])
    return low, high


def _rival_product(circle: Circle, rivals: Floats, low: int, high: int, ties: str) -> Complex:
    """[high - low + 1, J] int_0^1 prod_y ( at most k - 1 votes + z exactly k votes ) dz, for k = low..high."""
    shares, powers = np.unique(rivals, return_counts=True)
    tables = [circle.terms(share) for share in shares.tolist()]
    total = np.zeros((high - low + 1, circle.roots.shape[1]), np.complex128)
    for node, weight in zip(*tie_nodes(len(rivals), ties), strict=True):
        product: Complex = np.full_like(total, weight)
        for (exactly, at_most), power in zip(tables, powers.tolist(), strict=True):
            factor = at_most[low - 1 : high] + node * exactly[low : high + 1]
            product *= factor if power == 1 else _power(factor, power)
        total += product
    return total


def _power(base: Complex, exponent: int) -> Complex:
    """Repeated squaring: NumPy's complex power takes logarithms."""
    result = base if exponent & 1 else np.ones_like(base)
    while exponent := exponent >> 1:
        base = base * base
        if exponent & 1:
            result = result * base
    return result

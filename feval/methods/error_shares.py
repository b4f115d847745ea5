"""How wrong answers come about: no answer, stopped too early, routed wrong; the rest are wrong
votes.

A wrong answer was stopped too early if the vote over all CoTs that the method might have drawn,
from an LLM that it asked and did not exhaust, is right. If the gold is one of m answers that lead
there, it counts as 1/m. What remains was routed wrong, in the same sense, by LLMs that were not
asked. With several LLMs each vote breaks its ties independently.

`split_errors` counts in replicates. A method's `exact_errors` is what these counts tend to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from feval.estimators.votes.plurality import pass_at_k
from feval.methods.arrays import Bools, Floats, Integers
from feval.methods.vote import share_of_lead

if TYPE_CHECKING:
    from feval.methods.decisions import Decisions, Orders
    from feval.replay.pools import Pool


@dataclass(frozen=True)
class MonteCarloPart:
    """The part of an exact error split that is estimated from replicates: which wrong answers were
    stopped too early.

    Attributes:
        questions: on how many questions.
        replicates: seeded draws of each of these.
        standard_error: of the mean of `stopped_early` over all questions, and so of that of wrong
            votes. It covers the orders of CoTs; the coins of Adaptive-Consistency's "random" are
            the same for the same draws.
    """

    questions: int
    replicates: int
    standard_error: float


@dataclass(frozen=True, eq=False)
class ErrorShares:
    """How wrong answers come about on Q questions; the rest are wrong votes.

    Attributes:
        no_answer: [Q] probability of no answer; `None` where not known.
        stopped_early: [Q] probability of a wrong answer that was stopped too early; `None` where
            not known.
        routed_wrong: [Q] probability of a wrong answer that was routed wrong; `None` where not
            known.
        estimate: the part of an exact split that is estimated; `None` where all of it is exact.
    """

    no_answer: Floats | None = None
    stopped_early: Floats | None = None
    routed_wrong: Floats | None = None
    estimate: MonteCarloPart | None = None

    @classmethod
    def without_stops(cls, no_answer: Floats) -> ErrorShares:
        """For a method of one LLM that always draws all it may: nothing is stopped early or routed
        wrong.
        """
        nothing = np.broadcast_to(0.0, no_answer.shape)
        return cls(no_answer, nothing, nothing)


def no_answer_probability(answered: Integers, sizes: Integers, n: int) -> Floats:
    """[Q] probability that none of n CoTs has an answer, by the numbers [Q] of recorded CoTs that
    have one, and of all.
    """
    return 1.0 - pass_at_k(answered, sizes, [n]).column(0)


def split_errors(
    decisions: Decisions,
    right: Bools,
    gold: Integers,
    pools: Sequence[Pool],
    orders: Sequence[Orders],
) -> tuple[Floats, Floats]:
    """How far each decision was stopped too early, and how far it was routed wrong: [R, Q] each,
    from 0 to 1.

    Args:
        decisions: answers and ledgers [R, Q].
        right: [R, Q] whether the answer is the gold.
        gold: [Q] code of the gold answer, -1 where there is none.
        pools: one per LLM.
        orders: one per LLM, with all CoTs that the method might have drawn.
    """
    wrong = ~right & (decisions.answer >= 0) & (gold >= 0)
    no_stop, no_route = np.ones((2, *right.shape))  # probability that none of the votes is right
    for pool, order, ledger in zip(pools, orders, decisions.ledgers, strict=True):
        replicate, question = np.nonzero(wrong & (ledger.cots < order.shape[2]))
        codes = pool.codes[question[:, None], order[replicate, question]]
        missed = 1.0 - share_of_lead(codes, gold[question])
        asked = ledger.cots[replicate, question] > 0
        no_stop[replicate, question] *= np.where(asked, missed, 1.0)
        no_route[replicate, question] *= np.where(asked, 1.0, missed)
    return 1.0 - no_stop, no_stop * (1.0 - no_route)

"""Self-consistency: sample n CoTs, answer with the plurality (Wang et al., arXiv 2203.11171,
section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from feval.estimators.counts import answered_counts
from feval.methods.arrays import Floats, Integers
from feval.methods.batches import batches
from feval.methods.decisions import Decisions, Ledger, Orders
from feval.methods.error_shares import ErrorShares, no_answer_probability
from feval.methods.expectation import Expectation, longest_of_draws
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import DrawOrders, Sampler, most_tokens, one_llm, require_draws
from feval.methods.vote import (
    NoAnswerRule,
    no_answer_wins,
    plurality,
    plurality_codes,
    plurality_is_right,
)

if TYPE_CHECKING:
    from feval.replay.pools import Pool


@frozen_method
class SelfConsistency:
    """The plurality of n CoTs of one LLM.

    The paper votes over 40 CoTs at temperature 0.7; FEval-TTC's example, and the default here,
    takes 20. Of tied answers the one seen first wins.

    Attributes:
        n: CoTs per question.
        no_answer: "drop": a CoT without an answer casts no vote; "vote": no answer is one more
            answer, which is never right.
    """

    n: Count = 20
    # FEval-TTC's self-consistency drops failed extractions, its MoT and the evaluation of
    # Adaptive-Consistency count them. A failure is no opinion, so it is dropped unless a figure
    # made with votes is to be reproduced.
    no_answer: NoAnswerRule = "drop"

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs drawn from the one LLM."""
        return one_llm(self.n, llms, "Self-consistency votes over the CoTs of one LLM")

    def __call__(self, question: str, llm: Sampler) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no CoT has one."""
        return plurality(llm.sample(self.n).answers, no_answer=self.no_answer)

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        require_draws(self, pools, orders)
        [pool], [order] = pools, orders
        answer = np.empty(order.shape[:2], pool.codes.dtype)
        tokens, longest = np.empty((2, *order.shape[:2]), np.int64)
        for batch in batches(order, self.n, pool.codes.shape[1]):
            answer[batch.where] = plurality_codes(batch.drawn(pool.codes), no_answer=self.no_answer)
            each = batch.drawn(pool.output_tokens)
            tokens[batch.where] = np.einsum("rqn->rq", each.astype(np.int64))
            longest[batch.where] = most_tokens(each, pool.at_once)
        asked = np.ones(tokens.shape, np.bool_)
        return Decisions(answer, (Ledger.one_round(asked, self.n, tokens, longest),))

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws; see `ExactMethod.exact`."""
        right = plurality_is_right(pool, gold, self.no_answer, [self.n])
        return Expectation.of_one_request(right.column(0), self.n, pool)

    def exact_sequential_tokens(self, pool: Pool) -> Floats:
        """Expected tokens of the longest CoT; see `LatencyMethod.exact_sequential_tokens`."""
        return longest_of_draws(pool, self.n)

    def exact_errors(
        self,
        pool: Pool,
        gold: Integers,  # noqa: ARG002
        right: Floats,  # noqa: ARG002
        draw: DrawOrders,  # noqa: ARG002  as the protocol has it
    ) -> ErrorShares:
        """How wrong answers come about over all draws; see `ExactErrorsMethod.exact_errors`."""
        if self.no_answer == "vote":
            return ErrorShares.without_stops(no_answer_wins(pool, [self.n]).column(0))
        return ErrorShares.without_stops(
            no_answer_probability(answered_counts(pool.codes), pool.sizes, self.n)
        )

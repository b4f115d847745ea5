"""Self-consistency: sample n CoTs, answer with the plurality (Wang et al., arXiv 2203.11171,
section 2); and the single call, the floor that every test-time-compute method is compared with.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from feval import replay
from feval.estimators.per_question import by_blocks
from feval.estimators.plurality import mean_output_tokens, subset_largest
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import (
    EXACT,
    Decisions,
    ErrorShares,
    Expectation,
    Floats,
    Integers,
    OneLLM,
    Pool,
    PoolOrders,
    Pools,
    decide_at_once,
    require_pool,
)
from feval.methods.vote import (
    NoAnswerRule,
    hits,
    no_answer_probability,
    no_answer_wins,
    plurality,
    plurality_codes,
    plurality_is_right,
)


def longest_of_draws(pool: Pool, n: int) -> Floats:
    """[Q] expected tokens of the longest of n CoTs."""
    return by_blocks(
        lambda block: subset_largest(pool.output_tokens[block], pool.sizes[block], n),
        len(pool.output_tokens),
    )


class OneRequest(OneLLM):
    """The exact forms of a method that always takes n CoTs of one LLM in one request."""

    n: int

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] probability that its answer is the gold; how right it is, on average, where `gold` is
        [Q, S] how right each CoT is, for a method that chooses among CoTs.
        """
        raise NotImplementedError

    def silent(self, pool: Pool) -> Floats:
        """[Q] probability that it has no answer."""
        return no_answer_probability(pool, self.n)

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws; see `ExactMethod.exact`."""
        require_pool(self, pool, self.n)
        right, tokens = self.right(pool, gold), mean_output_tokens(pool.output_tokens, pool.sizes)
        one, all_of_them = (np.broadcast_to(float(each), right.shape) for each in (1, self.n))
        return Expectation(right, one, all_of_them, tokens * self.n)

    def exact_sequential_tokens(self, pool: Pool) -> Floats:
        """[Q] expected tokens of the longest CoT."""
        return longest_of_draws(pool, self.n)

    def exact_errors(self, pool: Pool, *_: object) -> ErrorShares:
        """Only no answer: nothing is stopped too early or routed wrong."""
        none = self.silent(pool)
        nothing = np.broadcast_to(0.0, none.shape)
        return ErrorShares(none, nothing, nothing)


@frozen_method
class SelfConsistency(OneRequest):
    """The plurality of n CoTs of one LLM.

    The paper votes over 40 CoTs at temperature 0.7; FEval-TTC's example, and the default here,
    takes 20. Of tied answers the one seen first wins.

    Attributes:
        n: CoTs per question.
        no_answer: "drop": a CoT without an answer casts no vote; "vote": no answer is one more
            answer, which is never right.
    """

    scope = "Self-consistency votes over the CoTs of one LLM"
    capabilities = replace(EXACT, reads_answers=True)

    n: Count = 20
    # FEval-TTC's self-consistency drops failed extractions, its MoT and the evaluation of
    # Adaptive-Consistency count them. A failure is no opinion, so it is dropped unless a figure
    # made with votes is to be reproduced.
    no_answer: NoAnswerRule = "drop"

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no CoT has one."""
        return plurality(llm.sample(self.n).answers, no_answer=self.no_answer)

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        return decide_at_once(
            self,
            pools,
            orders,
            lambda samples: plurality_codes(samples.codes.T, no_answer=self.no_answer),
        )

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] probability that the plurality is the gold."""
        return plurality_is_right(pool, gold, self.no_answer, [self.n]).column(0)

    def silent(self, pool: Pool) -> Floats:
        """[Q] probability that there is no answer, or that no answer wins the vote."""
        if self.no_answer == "vote":
            return no_answer_wins(pool, [self.n]).column(0)
        return super().silent(pool)


@frozen_method
class SingleCall(OneRequest):
    """The answer of one CoT of one LLM: self-consistency with n = 1 (chain of thought, Wei et al.,
    arXiv 2201.11903).
    """

    scope = "A single call asks one LLM"
    capabilities = replace(EXACT, chooses=True)

    n = 1

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if the CoT has none."""
        return llm.sample(1).answers[0]

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        return decide_at_once(self, pools, orders, lambda samples: samples.codes[0])

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] probability that the CoT is right; see `OneRequest.right`."""
        mean: Floats = hits(pool.codes, gold).sum(axis=1) / pool.sizes
        return mean

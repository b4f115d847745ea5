"""Self-consistency: sample n CoTs, answer with the plurality (Wang et al., arXiv 2203.11171,
section 2); and the single call, the floor that every test-time-compute method is compared with.
"""

from __future__ import annotations

from feval import replay
from feval.methods.expectation import OneRequest
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import (
    EXACT,
    Decisions,
    Floats,
    Integers,
    Pool,
    PoolOrders,
    Pools,
    decide_at_once,
)
from feval.methods.vote import (
    NoAnswerRule,
    no_answer_wins,
    plurality,
    plurality_codes,
    plurality_is_right,
)


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
    capabilities = EXACT

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
            lambda batch: plurality_codes(batch.drawn(pools[0].codes), no_answer=self.no_answer),
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
    capabilities = EXACT

    n = 1

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if the CoT has none."""
        return llm.sample(1).answers[0]

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        return decide_at_once(
            self, pools, orders, lambda batch: batch.drawn(pools[0].codes)[:, :, 0]
        )

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] probability that the CoT has the gold answer."""
        return SelfConsistency(1).right(pool, gold)

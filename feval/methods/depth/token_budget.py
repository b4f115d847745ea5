"""Token budget: traces cut after so many tokens and made to answer (s1, Muennighoff et al., arXiv
2501.19393, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from feval.methods.arrays import Floats, Integers
from feval.methods.decisions import Decisions, Orders
from feval.methods.depth.cuts import Cuts
from feval.methods.error_shares import ErrorShares
from feval.methods.expectation import Expectation
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import DrawOrders, one_llm, require_draws, require_pool
from feval.methods.vote import plurality

if TYPE_CHECKING:
    from feval.replay.meter import MeteredLLM
    from feval.replay.pools import Pool


@frozen_method
class TokenBudget:
    """The plurality of n traces of one LLM, each cut after a number of tokens and made to answer
    there.

    A trace that ends within the budget has its final answer; a longer one the answer of its last
    recorded probe at or before the budget, and none if there is no such probe. This is the upper
    end of s1's budget forcing: thinking is ended, and not prolonged ("Wait"). Of tied answers the
    one seen first wins. Without a budget it would be self-consistency.

    Attributes:
        n: traces per question.
        tokens: the budget of each.
    """

    cuts_cots: ClassVar[Literal[True]] = True

    n: Count = 1
    # s1 forces budgets of 500 to 8,000 tokens of thought; a multiple of the interval of probes cuts
    # where there is one.
    tokens: Count = 8000

    def draws(self, llms: int) -> tuple[int, ...]:
        """Traces drawn from the one LLM."""
        return one_llm(self.n, llms, "A token budget cuts traces of one LLM")

    def __call__(self, question: str, llm: MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no trace has one within the budget."""
        traces = llm.start(self.n, limit=self.tokens)
        llm.advance(traces, tokens=self.tokens)
        return plurality([trace.probe() for trace in traces])

    def cuts(self, pool: Pool) -> Cuts:
        """How each recorded CoT is cut."""
        return Cuts.at_budget(pool, self.tokens)

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        require_draws(self, pools, orders)
        return self.cuts(pools[0]).decide(self.n, orders[0])

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws; see `ExactMethod.exact`."""
        require_pool(self, pool, self.n)
        return self.cuts(pool).expectation(self.n, gold)

    def exact_sequential_tokens(self, pool: Pool) -> Floats:
        """Expected sequential tokens; see `LatencyMethod.exact_sequential_tokens`."""
        return self.cuts(pool).sequential_tokens(self.n)

    def exact_errors(
        self,
        pool: Pool,
        gold: Integers,
        right: Floats,
        draw: DrawOrders,  # noqa: ARG002  as the protocol has it
    ) -> ErrorShares:
        """How wrong answers come about over all draws; see `ExactErrorsMethod.exact_errors`."""
        return self.cuts(pool).error_shares(self.n, gold, right)

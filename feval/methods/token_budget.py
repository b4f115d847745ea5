"""Token budget: traces cut after so many tokens and made to answer (s1, Muennighoff et al., arXiv
2501.19393, section 3.1).
"""

from __future__ import annotations

from feval import replay
from feval.methods.cuts import CUTS, Cuts, CutTraces
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import Pool
from feval.methods.vote import plurality


@frozen_method
class TokenBudget(CutTraces):
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

    scope = "A token budget cuts traces of one LLM"
    capabilities = CUTS

    n: Count = 1
    # s1 forces budgets of 500 to 8,000 tokens of thought; a multiple of the interval of probes cuts
    # where there is one.
    tokens: Count = 8000

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no trace has one within the budget."""
        traces = llm.start(self.n, limit=self.tokens)
        llm.advance(traces, tokens=self.tokens)
        return plurality([trace.probe() for trace in traces])

    def cuts(self, pool: Pool) -> Cuts:
        """How each recorded CoT is cut."""
        return Cuts.at_budget(pool, self.tokens)

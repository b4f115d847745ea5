"""pass@n: the accuracy of a picker that knows the gold answers, the ceiling of every method that
chooses among n CoTs.
"""

from __future__ import annotations

from dataclasses import replace

from feval.errors import UsageError
from feval.estimators.plurality import distinct_vote_counts, pass_at_k
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import EXACT, Floats, Integers, Pool
from feval.methods.self_consistency import OneRequest


@frozen_method
class Oracle(OneRequest):
    """pass@n: right wherever one of n CoTs has the gold answer. It knows the golds, so it is no
    method and has no batch form.

    Attributes:
        n: CoTs per question.
    """

    scope = "The oracle is the ceiling of one LLM"
    capabilities = replace(EXACT, chooses=True)

    n: Count = 20

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] probability that one of n CoTs is right; see `OneRequest.right`.

        Raises:
            UsageError: some CoT is neither right nor wrong.
        """
        if gold.ndim > 1:
            if ((gold > 0) & (gold < 1)).any():
                raise UsageError(
                    "pass@n asks whether some CoT is right, and verdicts between 0 and 1 are"
                    " partial credit. Say from which one on a CoT is right, such as --right"
                    " 'verdict>=0.5' (in Python: right='verdict>=0.5')."
                )
            return pass_at_k((gold > 0).sum(axis=1), pool.sizes, [self.n]).column(0)
        counts, rows = distinct_vote_counts(pool.codes, gold)
        return pass_at_k(counts.gold, counts.size, [self.n]).of_questions(rows).column(0)

"""pass@n: the accuracy of a picker that knows the gold answers, the ceiling of every method that
chooses among n CoTs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.estimators.counts import answered_counts, distinct_vote_counts
from feval.estimators.votes.plurality import pass_at_k
from feval.methods.arrays import Floats, Integers
from feval.methods.error_shares import ErrorShares, no_answer_probability
from feval.methods.expectation import Expectation, longest_of_draws
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import one_llm

if TYPE_CHECKING:
    from feval.methods.protocol import DrawOrders
    from feval.replay.pools import Pool


@frozen_method
class Oracle:
    """pass@n: right wherever one of n CoTs has the gold answer. It knows the golds, so it is no
    method and has no batch form.

    Attributes:
        n: CoTs per question.
    """

    n: Count = 20

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs drawn from the one LLM."""
        return one_llm(self.n, llms, "The oracle is the ceiling of one LLM")

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws; see `ExactMethod.exact`."""
        counts, rows = distinct_vote_counts(pool.codes, gold)
        right = pass_at_k(counts.gold, counts.size, [self.n]).of_questions(rows)
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
        return ErrorShares.without_stops(
            no_answer_probability(answered_counts(pool.codes), pool.sizes, self.n)
        )

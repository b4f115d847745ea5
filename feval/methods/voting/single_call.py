"""Single call: one CoT, its answer. The floor that every test-time-compute method is compared
with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from feval.methods.arrays import Floats, Integers
from feval.methods.decisions import Decisions, Ledger, Orders
from feval.methods.error_shares import ErrorShares
from feval.methods.expectation import Expectation, longest_of_draws
from feval.methods.fields import frozen_method
from feval.methods.protocol import DrawOrders, Sampler, drawn, one_llm, require_draws
from feval.methods.voting.self_consistency import SelfConsistency

if TYPE_CHECKING:
    from feval.replay.pools import Pool


@frozen_method
class SingleCall:
    """The answer of one CoT of one LLM: self-consistency with n = 1 (chain of thought, Wei et al.,
    arXiv 2201.11903).
    """

    def draws(self, llms: int) -> tuple[int, ...]:
        """One CoT of the one LLM."""
        return one_llm(1, llms, "A single call asks one LLM")

    def __call__(self, question: str, llm: Sampler) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if the CoT has none."""
        return llm.sample(1).answers[0]

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        require_draws(self, pools, orders)
        pool, first = pools[0], orders[0][:, :, :1]
        answer = drawn(pool.codes, first)[:, :, 0]
        asked = np.ones(answer.shape, np.bool_)
        tokens = drawn(pool.output_tokens, first)[:, :, 0]
        return Decisions(answer, (Ledger.one_round(asked, 1, tokens, tokens),))

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws; see `ExactMethod.exact`."""
        return SelfConsistency(1).exact(pool, gold)

    def exact_sequential_tokens(self, pool: Pool) -> Floats:
        """Expected tokens of the CoT; see `LatencyMethod.exact_sequential_tokens`."""
        return longest_of_draws(pool, 1)

    def exact_errors(
        self, pool: Pool, gold: Integers, right: Floats, draw: DrawOrders
    ) -> ErrorShares:
        """How wrong answers come about over all draws; see `ExactErrorsMethod.exact_errors`."""
        return SelfConsistency(1).exact_errors(pool, gold, right, draw)

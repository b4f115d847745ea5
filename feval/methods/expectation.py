"""The expectation of a method over all draws without replacement, and how wrong answers come about.

A wrong answer was stopped too early if the vote over all CoTs that the method might have drawn,
from an LLM that it asked and did not exhaust, is right. If the gold is one of m answers that lead
there, it counts as 1/m. What remains was routed wrong, in the same sense, by LLMs that were not
asked. With several LLMs each vote breaks its ties independently.

`split_errors` counts in replicates. A method's `exact_errors` is what these counts tend to.
"""

from __future__ import annotations

import numpy as np

from feval.estimators.per_question import answered_counts, by_blocks, mean_output_tokens
from feval.estimators.plurality import pass_at_k, subset_largest
from feval.methods.protocol import (
    Bools,
    Decisions,
    ErrorShares,
    Expectation,
    Floats,
    Integers,
    OneLLM,
    Pool,
    PoolOrders,
    Pools,
    require_pool,
)
from feval.methods.vote import share_of_lead


def longest_of_draws(pool: Pool, n: int) -> Floats:
    """[Q] expected tokens of the longest of n CoTs."""
    return by_blocks(
        lambda block: subset_largest(pool.output_tokens[block], pool.sizes[block], n),
        len(pool.output_tokens),
    )


def no_answer_probability(pool: Pool, n: int) -> Floats:
    """[Q] probability that none of n CoTs has an answer."""
    return 1.0 - pass_at_k(answered_counts(pool.codes), pool.sizes, [n]).column(0)


class OneRequest(OneLLM):
    """The exact forms of a method that always takes n CoTs of one LLM in one request."""

    n: int

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] probability that its answer is the gold."""
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


def split_errors(
    decisions: Decisions, right: Bools, gold: Integers, pools: Pools, orders: PoolOrders
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

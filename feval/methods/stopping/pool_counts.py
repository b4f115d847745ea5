"""Pools as counts of their answers, and what a stopping rule comes to over all orders of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from feval.estimators.per_question import distinct, question_blocks
from feval.estimators.stopping.by_partition import (
    MOST_PARTITIONS,
    number_of_partitions,
    over_partitions,
)
from feval.estimators.stopping.ends import (
    AnswerCounts,
    Ends,
    ending_of_rule,
    ends_of_rule,
    require_budget,
)
from feval.estimators.stopping.orders import (
    MOST_STATES,
    OverOrders,
    expected_votes,
    require_few_states,
)
from feval.estimators.stopping.subpools import (
    MOST_SUBPOOLS,
    number_of_subpools,
    votes_over_subpools,
)
from feval.methods.arrays import Bools, Floats, Integers, Rows
from feval.methods.vote import distinct_votes

if TYPE_CHECKING:
    from feval.replay.pools import Pool

_PARTITIONS_PER_SUBPOOL = 60  # that take as long as one sub-pool
_SUBPOOLS_PER_POOL = 10_000  # that take as long as to walk over the counts of one pool


@dataclass(frozen=True, eq=False)
class PoolCounts:
    """How often each answer was recorded on Q questions, and how many output tokens its CoTs have.

    Attributes:
        pools: counts of the gold answer, of its rivals and of CoTs without an answer.
        gold_tokens: [Q] output tokens of the CoTs with the gold answer.
        rival_tokens: [Q, K] of those with each rival.
        none_tokens: [Q] of those without an answer.
    """

    pools: AnswerCounts
    gold_tokens: Integers
    rival_tokens: Integers
    none_tokens: Integers

    @classmethod
    def of(
        cls, pool: Pool, gold: Integers, no_answer: str, questions: Rows | slice = slice(None)
    ) -> PoolCounts:
        """From some of a pool's questions; if `no_answer` is "vote", no answer is one more
        rival.
        """
        codes, gold, output_tokens = (
            pool.codes[questions].astype(np.int64),
            gold[questions],
            pool.output_tokens[questions],
        )
        # a candidate of its own, and not the gold's code where nobody gave the gold
        if no_answer == "vote":
            codes = np.where(
                codes == -1, max(codes.max(initial=-1), gold.max(initial=-1)) + 1, codes
            )
        candidates = int(codes.max(initial=-1)) + 1
        shape = (len(codes), candidates + 2)
        place = (codes + 2 + shape[1] * np.arange(len(codes))[:, None]).ravel()
        counts = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
        tokens = np.bincount(place, output_tokens.ravel(), minlength=shape[0] * shape[1]).reshape(
            shape
        )
        rows = np.flatnonzero((gold >= 0) & (gold < candidates))
        of_gold = np.zeros((2, len(codes)), np.int64)
        for column, table in zip(of_gold, (counts, tokens), strict=True):
            column[rows] = table[rows, gold[rows] + 2]
            table[rows, gold[rows] + 2] = 0
        columns = np.argsort(-counts[:, 2:], axis=1, kind="stable")
        pools = AnswerCounts.of(of_gold[0], counts[:, 2:], counts[:, 1])
        rival_tokens = np.take_along_axis(tokens[:, 2:], columns, axis=1)[
            :, : pools.rivals.shape[1]
        ]
        return cls(pools, of_gold[1], rival_tokens.astype(np.int64), tokens[:, 1].astype(np.int64))


def distinct_pools(pool: Pool, gold: Integers, no_answer: str) -> tuple[AnswerCounts, Rows | slice]:
    """The distinct counts of a pool, and those of each question; see `distinct_votes`."""
    counts, rows = distinct_votes(pool, gold, no_answer)
    return AnswerCounts.of(counts.gold, counts.rivals, counts.no_answer), rows


def voting_counts(pools: AnswerCounts, no_answer: str) -> AnswerCounts:
    """The same counts, with no answer as one more rival if `no_answer` is "vote"."""
    if no_answer == "drop":
        return pools
    return pools.with_no_answer_as_rival()


def mean_over_orders(
    pool: Pool, gold: Integers, no_answer: str, stops: Callable[[Integers, int], Bools], budget: int
) -> OverOrders:
    """The means over all orders of a pool, of a rule that looks at the counts after every draw;
    `stops` as in `ends_of_rule`.

    By the fastest of three ways: `votes_over_subpools` and `expected_votes`, which solve distinct
    counts, or `over_partitions`, which solves each question.
    """
    require_budget(budget)
    pools, rows = distinct_pools(pool, gold, no_answer)
    votes = ends = order = None
    if _few_subpools(pools, budget, len(gold)):
        votes = votes_over_subpools(pools, ending_of_rule(stops, budget), budget)
    else:
        walked = number_of_partitions(budget) > MOST_PARTITIONS
        # Where that many votes are not for the leader, a walk is no shorter with a larger budget.
        others = (
            pools.size - pools.none - np.maximum(pools.gold, pools.rivals.max(axis=1, initial=0))
        )
        check = (
            partial(require_few_states, pools.rows(np.flatnonzero(others >= budget)))
            if walked
            else None
        )
        ends = ends_of_rule(stops, pools.bounds(), budget, check=check)
        if walked:
            votes = expected_votes(pools, ends)
        # blocks of questions with similar rivals have fewer partitions
        elif not isinstance(rows, slice):
            kinds = distinct((np.zeros_like(pools.none), *pools.rivals.T))[1].astype(np.int32)
            order = np.argsort(kinds[rows], kind="stable")
    means = OverOrders(*np.empty((3, len(gold))))
    for block in question_blocks(len(gold)):
        questions = block if order is None else order[block]
        counts = PoolCounts.of(pool, gold, no_answer, questions)
        tokens = counts.gold_tokens, counts.rival_tokens, counts.none_tokens
        if votes is not None:
            own = votes.rows(rows if isinstance(rows, slice) else rows[block])
            part = OverOrders(own.right, own.samples, own.tokens(counts.pools, *tokens))
        elif ends is not None:
            part = over_partitions(counts.pools, *tokens, ends)
        for field in fields(OverOrders):
            getattr(means, field.name)[questions] = getattr(part, field.name)
    return means


def right_over_orders(pools: AnswerCounts, ends: Ends, most_states: int = MOST_STATES) -> Floats:
    """[Q] probability that the gold wins the plurality, by the fastest of the three ways; see
    `expected_votes`.
    """
    few = number_of_partitions(ends.budget) <= MOST_PARTITIONS
    if _few_subpools(pools, ends.budget, len(pools.gold)):
        return votes_over_subpools(pools, ends.ending, ends.budget).right
    if not few:
        return expected_votes(pools, ends, most_states=most_states).right
    free = np.zeros_like(pools.none)
    return over_partitions(pools, free, np.zeros_like(pools.rivals), free, ends).right


def _few_subpools(pools: AnswerCounts, budget: int, questions: int) -> bool:
    """Whether to go through the sub-pools: not where there are too many for these pools, or few
    partitions for each question.
    """
    most, partitions = (
        min(MOST_SUBPOOLS, len(pools.gold) * _SUBPOOLS_PER_POOL),
        number_of_partitions(budget),
    )
    if partitions <= MOST_PARTITIONS:
        most = min(most, questions * partitions // _PARTITIONS_PER_SUBPOOL)
    return number_of_subpools(pools) <= most


def gold_share_of_lead(pools: AnswerCounts) -> Floats:
    """[Q] the gold answer's share of the lead when all recorded CoTs vote: 1/m if it is one of m
    leaders, 0 if it is none.
    """
    most = np.maximum(pools.gold, pools.rivals.max(axis=1, initial=0))
    leaders = 1 + (pools.rivals == most[:, None]).sum(axis=1)
    share: Floats = np.where((pools.gold == most) & (most > 0), 1.0 / leaders, 0.0)
    return share

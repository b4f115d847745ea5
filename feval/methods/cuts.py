"""Traces that are each cut by a rule that looks at nothing but the trace, and then vote.

Each recorded CoT then has one answer and one cost, so that the vote is self-consistency on these,
in every form (`CutTraces`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np

from feval.estimators.arrays import Int64, Result
from feval.estimators.plurality import mean_output_tokens
from feval.methods.protocol import (
    EXACT,
    Bools,
    Decisions,
    ErrorShares,
    Expectation,
    Floats,
    Integers,
    InTurn,
    OneLLM,
    Pool,
    PoolOrders,
    Pools,
    most_tokens,
    require_pool,
    sums_of_draws,
)
from feval.methods.self_consistency import SelfConsistency, longest_of_draws
from feval.methods.vote import plurality_codes

if TYPE_CHECKING:
    from feval.recording import Probes


CUTS = replace(EXACT, cuts_cots=True)
"""What such methods can do."""


class Cuts(Result):
    """How each CoT of a pool is cut.

    Attributes:
        pool: with the answer of each cut CoT and the tokens that it generated.
        probes: [Q, S] how many of its probes were asked for.
        probe_tokens: [Q, S] their output tokens, 0 where not known.
        recorded: the probes at which it grows round by round; `None` where it grows to its cut in
            one round.
    """

    pool: Pool
    probes: Int64
    probe_tokens: Int64
    recorded: Probes | None

    @classmethod
    def at_budget(cls, pool: Pool, tokens: int) -> Self:
        """CoTs that are cut after so many tokens: a longer one has the answer of its last probe up
        to there, if it has any.
        """
        probes = pool.probes()
        tokens = min(tokens, int(pool.output_tokens.max(initial=0)))  # which their type holds
        passed = probes.before(tokens)
        probed = (pool.output_tokens > tokens) & (passed > 0)
        last = np.where(probed, probes.starts[:-1].reshape(probes.shape) + passed - 1, -1)
        # Codes end with one for CoTs that are cut before their first probe.
        codes = np.append(probes.codes, probes.codes.dtype.type(-1))[last]
        cut = replace(
            pool,
            codes=np.where(pool.output_tokens > tokens, codes, pool.codes),
            output_tokens=np.minimum(pool.output_tokens, tokens),
        )
        return cls(
            cut,
            probed.astype(np.int64),
            np.where(probed, np.append(known_tokens(probes), 0)[last], 0),
            None,
        )

    @classmethod
    def at_first(cls, pool: Pool, stops: Bools) -> Self:
        """CoTs that are probed one checkpoint after the other, and cut at the first one where they
        stop.

        `stops` is a mask of what `revealed` returns.
        """
        probes = pool.probes()
        starts = probes.starts + np.arange(len(probes.starts))  # of what is revealed of each CoT
        ends = starts[1:] - 1
        place = np.where(stops, np.arange(len(stops)), len(stops))
        first = np.minimum(np.minimum.reduceat(place, starts[:-1]) if len(ends) else ends, ends)
        asked = np.minimum(first - starts[:-1] + 1, np.diff(probes.starts))
        last = np.where(asked > 0, probes.starts[:-1] + asked - 1, -1)
        reached = np.append(probes.offsets, np.uint32(0))[last].astype(np.int64)
        whole = np.maximum(pool.output_tokens.ravel(), reached)
        cut = replace(
            pool,
            codes=revealed(pool)[first].reshape(probes.shape),
            output_tokens=np.where(first == ends, whole, reached).reshape(probes.shape),
        )
        sums = np.append(0, np.cumsum(known_tokens(probes)))
        spent = sums[probes.starts[:-1] + asked] - sums[probes.starts[:-1]]
        return cls(cut, asked.reshape(probes.shape), spent.reshape(probes.shape), probes)

    def rounds(self) -> Iterator[Integers]:
        """[Q, S] the tokens that each CoT generates in each round; with a clock, the microseconds
        that they take.
        """
        clock = self.pool.clock
        if self.recorded is None:
            yield self.pool.output_tokens if clock is None else clock.after(self.pool.output_tokens)
            return
        first, before = (
            self.recorded.starts[:-1].reshape(self.probes.shape),
            np.zeros(self.probes.shape, np.int64),
        )
        offsets = np.append(self.recorded.offsets, np.uint32(0))
        for step in range(int(self.probes.max(initial=0)) + 1):
            place = np.where(step < self.probes, first + step, -1)
            reached = np.where(place >= 0, offsets[place], self.pool.output_tokens).astype(np.int64)
            reached = reached if clock is None else clock.after(reached)
            yield reached - before
            before = reached


class CutTraces(OneLLM):
    """The batch form and the exact forms of a method that cuts each trace by itself."""

    def cuts(self, pool: Pool) -> Cuts:
        """How each recorded CoT is cut."""
        raise NotImplementedError

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The vote of the cut traces; see `BatchMethod.decide`."""
        [n], [pool], [order] = self.draws(len(pools)), pools, orders
        cuts = self.cuts(pool)
        turn = InTurn(self, [cuts.pool], orders)
        [llm] = turn.llms
        sequential = np.zeros(turn.answer.shape, np.int64)
        drawn = [(places, llm.sample(places)) for places in turn.blocks()]
        for places, traces in drawn:
            turn.answer[places] = plurality_codes(traces.codes.T)
        for grown in cuts.rounds():
            for places, traces in drawn:
                sequential[places] += most_tokens(traces.drawn(grown), pool.at_once)
        calls, tokens = sums_of_draws(order, n, cuts.probes, cuts.probe_tokens)
        decisions = turn.decisions()
        ledger = replace(
            decisions.ledgers[0],
            sequential_tokens=sequential.reshape(calls.shape),
            probe_calls=calls,
            probe_tokens=tokens,
        )
        return replace(decisions, ledgers=(ledger,))

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws; see `ExactMethod.exact`."""
        [n] = self.draws(1)
        require_pool(self, pool, n)
        cuts = self.cuts(pool)
        calls, tokens = (
            n * mean_output_tokens(each, pool.sizes) for each in (cuts.probes, cuts.probe_tokens)
        )
        expected = SelfConsistency(n).exact(cuts.pool, gold)
        return replace(expected, probe_calls=calls, probe_tokens=tokens)

    def exact_sequential_tokens(self, pool: Pool) -> Floats:
        """[Q] expected tokens one after the other: of each round the longest piece."""
        [n], cuts, total = self.draws(1), self.cuts(pool), np.zeros(len(pool.sizes))
        for grown in cuts.rounds():
            total += longest_of_draws(replace(cuts.pool, output_tokens=grown), n)
        return total

    def exact_errors(self, pool: Pool, *_: object) -> ErrorShares:
        """Only no answer: nothing is stopped too early or routed wrong."""
        [n] = self.draws(1)
        return SelfConsistency(n).exact_errors(self.cuts(pool).pool)


def known_tokens(probes: Probes) -> Int64:
    """[N] output tokens of each probe, 0 where not known."""
    if probes.output_tokens is None:
        return np.zeros(len(probes.codes), np.int64)
    return np.maximum(probes.output_tokens, 0).astype(np.int64)


def revealed(pool: Pool) -> Integers:
    """The answers that a CoT shows while it grows, end to end by question and sample: its probes,
    then its final answer.
    """
    probes = pool.probes()
    return np.insert(probes.codes.astype(np.int32), probes.starts[1:], pool.codes.ravel())

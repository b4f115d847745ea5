"""Parallel-Probe: traces grow side by side, vote at every probe, and those that go on disagreeing are dropped (Zheng et al. 2026)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import NotRecordedError
from feval.methods.arrays import Integers
from feval.methods.decisions import Decisions, Ledger, Orders
from feval.methods.depth.cuts import known_tokens
from feval.methods.fields import Count, Whole, frozen_method
from feval.methods.protocol import TraceSampler, one_llm, require_draws
from feval.methods.vote import plurality

if TYPE_CHECKING:
    from feval.replay.pools import Pool

Int64 = npt.NDArray[np.int64]

_REPLICATES = 128  # worked on at once
_BLOCK = 1 << 19  # recorded CoTs times replicates, a byte each


@frozen_method
class ParallelProbe:
    """The answer that `width` traces agree on while they grow, all by one interval in each step.

    In a step every trace that was neither dropped nor is finished grows and is probed; all that were not dropped vote with their
    latest answer, finished ones included. After the warm-up, a running trace that disagreed with the winner at `patience` probes in
    a row is dropped. When the winner has been the same for `stable` steps after the one that first chose it, or no trace is
    running, it is the answer. Of tied answers the one seen first, in trace order, wins. No answer does not vote, and is never a
    stable winner.

    Zheng et al. 2026, "Parallel-Probe", released as code; the defaults are theirs.

    Attributes:
        width: traces per question.
        interval: tokens between probes.
        stable: steps without a change of the winner that end it.
        patience: probes in a row at which a dropped trace disagreed.
        warmup: steps before the first trace can be dropped.
        steps: most steps.
    """

    width: Count = 64
    interval: Count = 500
    stable: Count = 40
    patience: Count = 7
    warmup: Whole = 15
    steps: Count = 100

    def draws(self, llms: int) -> tuple[int, ...]:
        """Traces drawn from the one LLM."""
        return one_llm(self.width, llms, "Parallel-Probe grows traces of one LLM")

    def __call__(self, question: str, llm: TraceSampler) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no trace has one."""
        left = list(llm.start(self.width))
        llm.advance(left, tokens=self.interval)
        winner, stable, misses = None, 0, dict.fromkeys(left, 0)
        for step in range(self.steps):
            llm.advance([trace for trace in left if trace.running], tokens=self.interval)
            answers = {trace: trace.probe() for trace in left}
            before, winner = winner, plurality(list(answers.values()))
            for trace in left if step >= self.warmup else ():
                misses[trace] = 0 if answers[trace] == winner else misses[trace] + 1
                if trace.running and misses[trace] >= self.patience:
                    trace.stop()
            # The authors vote again without those; none of them had voted for the winner, which therefore stays.
            left = [trace for trace in left if trace.running or trace.finished]
            stable = stable + 1 if winner is not None and winner == before else 0
            if stable >= self.stable or not any(trace.running for trace in left):
                break
        return winner

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        require_draws(self, pools, orders)
        pool, order = pools[0], orders[0][:, :, : self.width]
        replicates, questions = order.shape[:2]
        answer = np.empty((replicates, questions), np.int32)
        numbers = np.empty((5, replicates, questions), np.int64)
        some = max(1, _BLOCK // (max(pool.codes.shape[1], 1) * max(min(replicates, _REPLICATES), 16)))
        for q in range(0, questions, some):
            visits = _Visits.of(pool.rows(np.arange(q, min(q + some, questions))), self.interval)
            for r in range(0, replicates, _REPLICATES):
                where = slice(r, r + _REPLICATES), slice(q, q + some)
                decided, grown = self._grown(visits, order[where])
                answer[where] = decided.T
                numbers[:, where[0], where[1]] = visits.ledger(grown).transpose(0, 2, 1)
        tokens, sequential, longest, probes, probe_tokens = numbers
        rounds = np.ones(answer.shape, np.int32)
        ledger = Ledger(rounds, self.width * rounds, tokens, None, None, None, sequential, longest, probes, probe_tokens)
        return Decisions(answer, (ledger,))

    def _grown(self, visits: _Visits, order: Orders) -> tuple[Integers, Integers]:
        """[Q', R'] answers, and [Q' * S, R'] rounds in which each CoT was left, from orders [R', Q', width]."""
        replicates, questions = order.shape[:2]
        drawn = order + np.arange(questions)[:, None] * visits.width
        left = np.zeros((len(visits.counts), replicates), np.uint8)  # whether it was drawn and not dropped
        left[drawn, np.arange(replicates)[:, None, None]] = 1
        grown = left.astype(np.uint8 if self.steps < 255 else np.int32)
        misses = np.zeros(left.shape, np.uint8 if self.patience < 255 else np.int32)
        winner = np.full((questions, replicates), -1, np.int32)
        stable, done = np.zeros(winner.shape, np.int32), np.zeros(winner.shape, np.bool_)
        # From the last visit on, nothing changes.
        for step in range(min(self.steps, max(int(visits.counts.max(initial=0)), 1))):
            grown += left
            answers = _Answers.of(visits, step + 2)
            before, (voted, missed) = winner, answers.votes(left, drawn)
            winner = np.where(done, before, voted)
            if step >= self.warmup:
                misses += 1
                misses *= missed
                running = np.flatnonzero(visits.counts >= step + 2)
                left[running] &= misses[running] < self.patience
            stable = np.where((winner == before) & (winner >= 0), stable + 1, 0)
            ended = ~done & (stable >= self.stable)
            if ended.any():
                done |= ended
                left *= np.repeat(~done, visits.width, axis=0)
                if done.all():
                    break
        return winner, grown


@dataclass(frozen=True, eq=False)
class _Visits:
    """Where the CoTs of a pool can be looked at: after every interval, and at their ends. [N = Q * S] each.

    Attributes:
        width: S.
        interval: tokens.
        counts: how many visits each CoT has before its end.
        codes: [V, N] its answers there, and beyond the last its final one.
        tokens: of the whole CoT; a probe may lie beyond its last token.
        probe_tokens: [V, N] tokens of the probes so far.
    """

    width: int
    interval: int
    counts: Int64
    codes: Integers
    tokens: Int64
    probe_tokens: Int64 | None

    @classmethod
    def of(cls, pool: Pool, interval: int) -> _Visits:
        """The visits of the CoTs of a pool; `NotRecordedError` where they were not probed at these places."""
        probes = pool.probes()
        if probes.interval is None or interval % probes.interval:
            every = f"every {probes.interval} tokens" if probes.interval else "at no fixed interval"
            raise NotRecordedError(
                f"Parallel-Probe looks at traces every {interval} tokens; those of {pool.llm} were probed {every}. Take a "
                "multiple of what was recorded as the interval."
            )
        every = interval // probes.interval
        counts = np.diff(probes.starts) // every
        step = np.arange(1, counts.max(initial=0) + 2)[:, None]
        place = np.where(step <= counts, probes.starts[:-1] + step * every - 1, -1)
        codes = np.where(place >= 0, np.append(probes.codes, probes.codes.dtype.type(-1))[place], pool.codes.ravel())
        spent = None
        if probes.output_tokens is not None:
            spent = np.cumsum(np.where((place >= 0) & (step > 1), np.append(known_tokens(probes), 0)[place], 0), axis=0)
        tokens = np.maximum(pool.output_tokens.ravel(), counts * interval)
        return cls(pool.codes.shape[1], interval, counts, codes.astype(np.int32), tokens, spent)

    def ledger(self, grown: Integers) -> Int64:
        """[5, Q', R'] tokens, sequential tokens, tokens of the longest trace, probes and their tokens, of rounds [N, R']."""
        shape = (len(self.counts) // self.width, self.width, grown.shape[1])
        counts, interval = self.counts[:, None], self.interval
        visited = np.minimum(grown, counts)
        finished = grown > counts
        tokens = np.where(finished, self.tokens[:, None], visited * interval).reshape(shape)
        probes = np.maximum(visited - 1, 0)
        spent = probes if self.probe_tokens is None else self.probe_tokens[visited - 1, np.arange(len(counts))[:, None]]
        rounds = visited.reshape(shape).max(axis=1)  # in which some trace grew by a whole interval
        sequential = rounds * interval
        # The last round of a trace may be longer than an interval, and comes after all of these where the trace is the last.
        for last in np.unique(self.counts[finished.any(axis=1)]):
            rows = np.flatnonzero(self.counts == last)
            ends = np.where(finished[rows], (self.tokens[rows] - last * interval)[:, None], 0)
            questions, starts = np.unique(rows // self.width, return_index=True)
            longest = np.maximum.reduceat(ends, starts, axis=0)
            sequential[questions] += np.where(last < rounds[questions], np.maximum(longest - interval, 0), longest)
        calls, paid = probes.reshape(shape).sum(axis=1), spent.reshape(shape).sum(axis=1)
        if self.probe_tokens is None:
            paid = np.zeros_like(paid)
        return np.array([tokens.sum(axis=1), sequential, tokens.max(axis=1), calls, paid])


@dataclass(frozen=True, eq=False)
class _Answers:
    """The answers of CoTs after some rounds, in G groups of equal ones of a question, in the order of the questions.

    Attributes:
        by_group: [N] CoTs, group by group.
        starts: [G] where each group begins.
        codes: [G] its answer.
        question: [G] its question.
        firsts: [Q'] first group of each question.
        group: [N] the group of each CoT.
    """

    by_group: Integers
    starts: Integers
    codes: Integers
    question: Integers
    firsts: Integers
    group: Integers

    @classmethod
    def of(cls, visits: _Visits, rounds: int) -> _Answers:
        """The answers after some rounds."""
        codes = visits.codes[min(rounds, len(visits.codes)) - 1]
        key = codes + 2 + (np.arange(len(codes)) // visits.width) * (int(codes.max(initial=0)) + 3)
        by_group = np.argsort(key)
        ordered = key[by_group]
        opens = np.append(True, ordered[1:] != ordered[:-1])
        group = np.empty(len(codes), np.intp)
        group[by_group] = np.cumsum(opens) - 1
        starts = np.flatnonzero(opens)
        heads = by_group[starts]
        question = heads // visits.width
        firsts = np.searchsorted(question, np.arange(len(codes) // visits.width))
        return cls(by_group, starts, codes[heads], question, firsts, group)

    def votes(self, left: npt.NDArray[np.uint8], drawn: Integers) -> tuple[Integers, npt.NDArray[np.uint8]]:
        """The vote of those that are left.

        Args:
            left: [N, R'] 1 for each CoT that votes.
            drawn: [R', Q', width] CoTs in draw order.

        Returns:
            [Q', R'] winners, -1 where none has an answer, and [N, R'] 1 for CoTs that have another answer than the winner.
        """
        kind = np.uint8 if drawn.shape[2] < 255 else np.int32
        counts = np.add.reduceat(left[self.by_group], self.starts, axis=0, dtype=kind)
        counts[self.codes < 0] = 0
        most = np.maximum.reduceat(counts, self.firsts, axis=0)
        leads = counts == most[self.question]
        leads &= counts > 0
        number = np.arange(len(leads), dtype=np.int32)[:, None]
        winner = np.maximum.reduceat(leads * number, self.firsts, axis=0)
        leaders = np.add.reduceat(leads.view(np.uint8), self.firsts, axis=0, dtype=kind)
        question, replicate = np.nonzero(leaders > 1)
        cots = drawn[replicate, question]
        leading = leads[self.group[cots], replicate[:, None]] & (left[cots, replicate[:, None]] > 0)
        first = cots[np.arange(len(cots)), leading.argmax(axis=1)]
        winner[question, replicate] = self.group[first]
        voted = most > 0
        missed = ((number != winner[self.question]) & voted[self.question]).view(np.uint8)[self.group]
        return np.where(voted, self.codes[winner], -1), missed

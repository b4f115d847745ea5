"""Parallel-Probe: traces grow side by side and vote at every probe; lasting dissenters are dropped (Zheng et al. 2026)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy

from feval.errors import NotRecordedError
from feval.methods.arrays import Integers, Rows
from feval.methods.decisions import Decisions, Ledger, Orders
from feval.methods.depth.cuts import known_tokens
from feval.methods.fields import Count, Whole, frozen_method
from feval.methods.protocol import TraceSampler, one_llm, require_draws
from feval.methods.vote import plurality

if TYPE_CHECKING:
    from feval.recording.probes import Probes
    from feval.replay.pools import Pool

Int64 = npt.NDArray[np.int64]

_REPLICATES = 128  # worked on at once
_BLOCK = 1 << 19  # recorded CoTs times replicates
_SEEN = 16  # CoTs looked at together to settle a tie


@frozen_method
class ParallelProbe:
    """The answer that `width` traces agree on while they grow, all by one interval in each step.

    In a step every trace that was neither dropped nor is finished grows and is probed; all that were not dropped vote with their
    latest answer, finished ones included. After the warm-up, a running trace that disagreed with the winner at `patience` probes
    in a row is dropped. When the winner has been the same for `stable` steps after the one that first chose it, or no trace is
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
        winner: str | None = None
        stable, misses = 0, dict.fromkeys(left, 0)
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
        answer, numbers = np.empty((replicates, questions), np.int32), np.empty((5, replicates, questions), np.int64)
        samples, columns = max(pool.codes.shape[1], 1), max(min(replicates, _REPLICATES), 1)
        rows = max(1, _BLOCK // (samples * max(columns, 16)))
        for q in range(0, questions, rows):
            visits = _Visits.of(pool.rows(np.arange(q, min(q + rows, questions))), self.interval)
            for r in range(0, replicates, columns):
                where = slice(r, r + columns), slice(q, q + rows)
                decided, grown = self._grown(visits, order[where])
                answer[where], numbers[:, where[0], where[1]] = decided.T, visits.ledger(grown).transpose(0, 2, 1)
        tokens, sequential, longest, probes, probe_tokens = numbers
        rounds = np.ones(answer.shape, np.int32)
        ledger = Ledger(
            rounds, self.width * rounds, tokens, None, None, None, sequential, longest, probes, probe_tokens
        )
        return Decisions(answer, (ledger,))

    def _grown(self, visits: _Visits, order: Orders) -> tuple[Integers, Integers]:
        """[Q, R] answers, and [Q, S, R] rounds in which each CoT was among those left, from orders [R, Q, width]."""
        replicates, questions = order.shape[:2]
        shape, kind = (*visits.counts.shape, replicates), _counter(max(self.width, self.steps + 1, self.patience))
        left = np.zeros(shape, kind)
        left[np.arange(questions)[:, None], order, np.arange(replicates)[:, None, None]] = 1
        answer, rounds = np.full((questions, replicates), -1, np.int32), np.empty(shape, kind)
        grown, misses, places = left.copy(), np.zeros(shape, kind), np.arange(questions)
        winner, stable, done = answer, np.zeros(answer.shape, np.int32), np.zeros(answer.shape, np.bool_)
        # After the last visit nothing changes any more.
        for step in range(min(self.steps, max(int(visits.counts.max(initial=0)), 1))):
            grown += left
            answers = visits.answers(step + 2).rows(places)
            number, codes = answers.plurality(left, order)
            before, winner = winner, np.where(done, winner, codes)
            if step >= self.warmup:
                misses += 1
                missed = answers.numbers[:, :, None] != number[:, None]
                if ((codes < 0) & ~done).any():  # where nobody votes, nobody disagrees
                    missed &= (codes >= 0)[:, None]
                misses *= missed.view(np.uint8)
                late = np.flatnonzero((misses >= self.patience) & (left > 0))
                running = visits.counts[places].ravel()[late // replicates] >= step + 2  # a finished trace stays
                left.ravel()[late[running]] = 0
            stable = np.where((winner == before) & (winner >= 0), stable + 1, 0)
            ended = ~done & (stable >= self.stable)
            if ended.any():
                done |= ended
                left *= ~done[:, None]
                over = done.all(axis=1)
                if over.any():
                    answer[places[over]], rounds[places[over]] = winner[over], grown[over]
                    parts: Any = [each[~over] for each in (places, winner, stable, done, left, grown, misses)]
                    places, winner, stable, done, left, grown, misses = parts
                    order = order[:, ~over]
                    if not len(places):
                        break
        answer[places], rounds[places] = winner, grown
        return answer, rounds


def _counter(most: int) -> type[np.integer[Any]]:
    """The smallest type that counts so far."""
    return np.uint8 if most <= np.iinfo(np.uint8).max else np.int32


@dataclass(frozen=True, eq=False)
class _Visits:
    """Where the CoTs of a pool can be looked at: after every interval, and at their ends.

    Attributes:
        interval: tokens.
        every: how many probes there are in an interval.
        probes: of the pool.
        counts: [Q, S] visits before the end.
        final: [Q, S] answer at the end.
        tokens: [Q, S] of the whole CoT; a probe may lie beyond its last token.
    """

    interval: int
    every: int
    probes: Probes
    counts: Int64
    final: Integers
    tokens: Int64

    @classmethod
    def of(cls, pool: Pool, interval: int) -> _Visits:
        """The visits of the CoTs of a pool; `NotRecordedError` where they were not probed at these places."""
        probes = pool.probes()
        if probes.interval is None or interval % probes.interval:
            asked = f"Parallel-Probe looks at traces every {interval} tokens; those of {pool.llm} were probed"
            if probes.interval is None:
                raise NotRecordedError(
                    f"{asked} at no fixed interval. Take a method that goes from probe to probe, such as answer-convergence."
                )
            raise NotRecordedError(
                f"{asked} every {probes.interval}. Take {probes.interval} or a multiple as the interval."
            )
        every = interval // probes.interval
        counts = probes.counts() // every
        final = pool.codes.astype(np.result_type(pool.codes, probes.codes))
        return cls(interval, every, probes, counts, final, np.maximum(pool.output_tokens, counts * interval))

    @cache  # noqa: B019  as long as the visits
    def answers(self, rounds: int) -> _Answers:
        """The answers after some rounds."""
        codes = self.final.copy()
        running = self.counts >= rounds
        codes[running] = self.probes.codes[self._first[running] + (rounds * self.every - 1)]
        return _Answers.of(codes)

    @property
    def _first(self) -> Int64:
        """[Q, S] place of the first probe of each CoT."""
        return self.probes.starts[:-1].reshape(self.counts.shape)

    def ledger(self, grown: Integers) -> Int64:
        """[5, Q, R] tokens, sequential tokens, tokens of the longest trace, probes, their tokens, from rounds [Q, S, R]."""
        counts, kind = self.counts[:, :, None], grown.dtype
        visited, finished = np.minimum(grown, counts.astype(kind)), grown > counts
        rounds = visited.max(axis=1, initial=0).astype(np.int64)  # in which a trace grew by a whole interval
        rest = self.tokens - self.counts * self.interval  # generated in the last round
        total = np.add.reduce(visited, axis=1, dtype=np.int64)
        tokens = total * self.interval + np.einsum("qsr,qs->qr", finished, rest)
        last = (finished & (visited == rounds[:, None].astype(kind))) * rest[:, :, None].astype(np.int32)
        longest = last.max(axis=1, initial=0)
        sequential = rounds * self.interval + longest
        # Before that, a last piece that is longer than an interval makes its round longer.
        question, sample = np.nonzero(rest > self.interval)
        order = np.lexsort((self.counts[question, sample], question))
        question, sample = question[order], sample[order]
        long = finished[question, sample] & (visited[question, sample] < rounds[question])
        more = long * (rest[question, sample] - self.interval)[:, None]
        opens = np.flatnonzero(np.diff(question, prepend=-1) | np.diff(self.counts[question, sample], prepend=-1))
        if len(opens):
            np.add.at(sequential, question[opens], np.maximum.reduceat(more, opens, axis=0))
        ends = (finished * self.tokens[:, :, None].astype(np.int32)).max(axis=1, initial=0)
        calls = total - np.add.reduce(visited > 0, axis=1, dtype=np.int64)
        return np.array([tokens, sequential, np.maximum(rounds * self.interval, ends), calls, self._spent(visited)])

    def _spent(self, visited: Integers) -> Int64:
        """[Q, R] tokens of the probes at all visits [Q, S, R] but the first."""
        if self.probes.output_tokens is None:
            return np.zeros((visited.shape[0], visited.shape[2]), np.int64)
        most = int(self.counts.max(initial=0))
        visit = np.arange(2, most + 1)
        asked = np.where(visit <= self.counts[:, :, None], self._first[:, :, None] + visit * self.every - 1, -1)
        paid = np.zeros((*self.counts.shape, most + 2), np.int32)
        np.cumsum(np.append(known_tokens(self.probes), 0)[asked], axis=2, out=paid[:, :, 2 : most + 1])
        first = np.arange(self.counts.size).reshape(*self.counts.shape, 1) * (most + 2)
        spent: Int64 = paid.ravel().take(visited + first).sum(axis=1, dtype=np.int64)
        return spent


@dataclass(frozen=True, eq=False)
class _Answers:
    """The answers of CoTs after some rounds.

    Attributes:
        numbers: [Q, S] of each answer, from 0 among those that the question has then; K for no answer.
        codes: [Q, K + 1] code of each number; -1 for K.
    """

    numbers: Integers
    codes: Integers

    @classmethod
    def of(cls, codes: Integers) -> _Answers:
        """The answers with codes [Q, S]."""
        present = np.zeros((len(codes), int(codes.max(initial=0)) + 1), np.bool_)
        place = codes + np.arange(len(codes))[:, None] * present.shape[1]
        present.ravel()[place[codes >= 0]] = True
        number = present.cumsum(axis=1, dtype=np.int32) - 1
        none = int(number[:, -1].max(initial=-1)) + 1
        numbers = number.ravel().take(np.maximum(place, 0))
        numbers[codes < 0] = none
        question, code = np.nonzero(present)
        table = np.full((len(codes), none + 1), -1, np.int32)
        table[question, number[question, code]] = code
        return cls(numbers.astype(_counter(none)), table)

    def rows(self, rows: Rows) -> _Answers:
        """The answers of some questions."""
        return self if len(rows) == len(self.numbers) else _Answers(self.numbers[rows], self.codes[rows])

    def plurality(self, left: Integers, order: Orders) -> tuple[Integers, Integers]:
        """[Q, R] number and code of the plurality of those that are left; of tied answers the one seen first.

        Args:
            left: [Q, S, R] 1 for a CoT that votes, else 0.
            order: [R, Q, n] CoTs in draw order.

        Returns:
            Any number and -1 where none of them has an answer.
        """
        questions, samples, replicates = left.shape
        first = np.arange(questions)[:, None] * self.codes.shape[1]
        cells = (self.numbers + first).ravel()
        each = scipy.sparse.csc_array(
            (np.ones(cells.size, left.dtype), cells, np.arange(cells.size + 1)), (self.codes.size, cells.size)
        )
        votes = (each @ left.reshape(cells.size, replicates)).reshape(questions, -1, replicates)
        votes[:, -1] = 0
        most = votes.max(axis=1)
        leads = votes == np.maximum(most, 1)[:, None]
        number = (leads.view(np.uint8) * np.arange(leads.shape[1], dtype=self.numbers.dtype)[:, None]).max(axis=1)
        question, replicate = np.nonzero(np.add.reduce(leads.view(np.uint8), axis=1, dtype=left.dtype) > 1)
        # Of tied answers the one of the first CoT that has one of them.
        for start in range(0, order.shape[2], _SEEN):
            cots = order[replicate, question, start : start + _SEEN] + question[:, None] * samples
            leading = leads.ravel().take(cells.take(cots) * replicates + replicate[:, None])
            leading &= left.ravel().take(cots * replicates + replicate[:, None]) > 0
            found = leading.any(axis=1)
            seen = cots[found, leading[found].argmax(axis=1)]
            number[question[found], replicate[found]] = self.numbers.ravel().take(seen)
            question, replicate = question[~found], replicate[~found]
            if not len(question):
                break
        return number, np.where(most > 0, self.codes.ravel().take(number + first), -1)

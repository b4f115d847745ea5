"""Parallel-Probe: traces grow side by side and vote at every probe; lasting dissenters are dropped
(Zheng et al. 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from feval import replay
from feval.errors import NotRecordedError
from feval.estimators.arrays import Int64
from feval.methods.cuts import known_tokens
from feval.methods.fields import Count, Whole, frozen_method
from feval.methods.protocol import (
    Bools,
    Capabilities,
    Decisions,
    Integers,
    Ledger,
    OneLLM,
    Orders,
    Pool,
    PoolOrders,
    Pools,
    Rows,
    drawn,
    most_tokens,
)
from feval.methods.vote import plurality

if TYPE_CHECKING:
    from feval.replay import Clock


_REPLICATES = 128  # worked on at once
_BLOCK = 1 << 19  # recorded CoTs times replicates
_PAUSE = 8  # steps after which what is over is left out
_SEEN = 16  # CoTs looked at together to settle a tie


@frozen_method
class ParallelProbe(OneLLM):
    """The answer that `width` traces agree on while they grow, all by one interval in each step.

    In a step every trace that was neither dropped nor is finished grows and is probed; all that
    were not dropped vote with their latest answer, finished ones included. After the warm-up, a
    running trace that disagreed with the winner at `patience` probes in a row is dropped. When the
    winner has been the same for `stable` steps after the one that first chose it, or no trace is
    running, it is the answer. Of tied answers the one seen first, in trace order, wins. No answer
    does not vote, and is never a stable winner.

    Zheng et al. 2026, "Parallel-Probe", released as code; the defaults are theirs.

    Attributes:
        width: traces per question.
        interval: tokens between probes.
        stable: steps without a change of the winner that end it.
        patience: probes in a row at which a dropped trace disagreed.
        warmup: steps before the first trace can be dropped.
        steps: most steps.
    """

    scope, most = "Parallel-Probe grows traces of one LLM", "width"
    capabilities = Capabilities(cuts_cots=True)

    width: Count = 64
    interval: Count = 500
    stable: Count = 40
    patience: Count = 7
    warmup: Whole = 15
    steps: Count = 100

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
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
            # The authors vote again without those; none of them had voted for the winner, which
            # therefore stays.
            left = [trace for trace in left if trace.running or trace.finished]
            stable = stable + 1 if winner is not None and winner == before else 0
            if stable >= self.stable or not any(trace.running for trace in left):
                break
        return winner

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        pool, order = self.only(pools, orders)
        replicates, questions = order.shape[:2]
        answer = np.empty((replicates, questions), np.int32)
        numbers = np.empty((5, replicates, questions), np.int64)
        samples, columns = max(pool.codes.shape[1], 1), max(min(replicates, _REPLICATES), 1)
        rows = max(1, _BLOCK // (samples * max(columns, 16)))
        for q in range(0, questions, rows):
            visits = _Visits(pool.rows(np.arange(q, min(q + rows, questions))), self.interval)
            for r in range(0, replicates, columns):
                where = slice(r, r + columns), slice(q, q + rows)
                decided, grown = self._grown(visits, order[where])
                answer[where] = decided.T
                numbers[:, *where] = visits.ledger(grown).transpose(0, 2, 1)
                if visits.clock is not None:
                    numbers[1][where] = visits.microseconds(visits.clock, grown, order[where])
        tokens, *others = numbers
        rounds = np.ones(answer.shape, np.int32)
        ledger = Ledger(rounds, self.width * rounds, tokens, None, None, None, *others)
        return Decisions(answer, (ledger,))

    def _grown(self, visits: _Visits, order: Orders) -> tuple[Integers, Integers]:
        """[Q, R] answers, and [Q, S, R] rounds in which each CoT was among those left, from orders
        [R, Q, width].
        """
        replicates, questions = order.shape[:2]
        kind = _counter(max(self.width, self.steps + 1, self.patience))
        first = np.arange(questions, dtype=np.int32) * visits.counts.shape[1]
        order = order.transpose(1, 0, 2) + first[:, None, None]
        # Until they are dropped, or the question ends.
        grown = np.zeros((visits.counts.size, replicates), kind)
        grown[order, np.arange(replicates)[:, None]] = np.iinfo(kind).max
        traces = _Traces(visits, grown)
        # After the last visit nothing changes any more.
        steps = min(self.steps, max(int(visits.counts.max(initial=0)), 1))
        answer = np.full((questions, replicates), -1, np.int32)
        until = np.full(answer.shape, steps + 1, kind)
        winner, stable = answer, np.zeros(answer.shape, np.int32)
        done = np.zeros(answer.shape, np.bool_)
        places, misses = np.arange(questions), np.zeros_like(traces.left)
        for step in range(steps):
            running = traces.advance(step + 2)
            number, codes = traces.plurality(order, done)
            before, winner = winner, np.where(done, winner, codes)
            if step >= self.warmup:
                missed = traces.numbers[:running, None] != number[traces.question[:running]]
                if ((codes < 0) & ~done).any():  # where nobody votes, nobody disagrees
                    missed &= (codes >= 0)[traces.question[:running]]
                missing = misses[:running]
                missing += traces.left[:running]
                missing *= missed.view(np.uint8)
                late = np.flatnonzero(missing >= self.patience)
                missing.ravel()[late] = traces.left.ravel()[late] = 0
                row, replicate = np.divmod(late, replicates)
                grown[traces.rows[row], replicate] = step + 2
            stable = np.where((winner == before) & (winner >= 0), stable + 1, 0)
            ended = ~done & (stable >= self.stable)
            if ended.any():
                done |= ended
                question, replicate = np.nonzero(ended)
                until[places[question], replicate] = step + 2
            if step % _PAUSE == _PAUSE - 1:
                done |= ~traces.growing(running)
                going: Bools = ~np.all(done, axis=1)
                misses = misses[traces.keep(going, done)]
                if not going.all():
                    answer[places[~going]] = winner[~going]
                    parts: Any = [each[going] for each in (places, winner, stable, done, order)]
                    places, winner, stable, done, order = parts
                    if not len(places):
                        break
        answer[places] = winner
        return answer, np.minimum(grown.reshape(*visits.counts.shape, replicates), until[:, None])


def _counter(most: int) -> type[np.integer[Any]]:
    """The smallest type that counts so far."""
    return np.uint8 if most <= np.iinfo(np.uint8).max else np.int32


class _Visits:
    """Where the CoTs of a pool can be looked at: after every interval, and at their ends.

    Attributes:
        interval: tokens.
        every: how many probes there are in an interval.
        probes: of the pool.
        first: [Q, S] place of the first probe of each CoT.
        counts: [Q, S] visits before the end.
        final: [Q, S] answer at the end.
        tokens: [Q, S] of the whole CoT; a probe may lie beyond its last token.
        rest: [Q, S] of these, those generated in the last round.
        clock: of the pool.
    """

    def __init__(self, pool: Pool, interval: int) -> None:
        """Raise `NotRecordedError` where the CoTs were not probed at these places."""
        self.probes, self.clock = pool.probes(), pool.clock
        probed = self.probes.interval
        if probed is None or interval % probed:
            how = (
                "at no fixed interval. Take a method that goes from probe to probe, such as"
                " answer-convergence."
                if probed is None
                else f"every {probed}. Take {probed} or a multiple as the interval."
            )
            raise NotRecordedError(
                f"Parallel-Probe looks at traces every {interval} tokens; those of {pool.llm} were"
                f" probed {how}"
            )
        self.interval, self.every = interval, interval // probed
        self.counts = self.probes.counts() // self.every
        self.first = self.probes.starts[:-1].reshape(self.counts.shape)
        self.final = pool.codes.astype(np.result_type(pool.codes, self.probes.codes))
        self.tokens = np.maximum(pool.output_tokens, self.counts * interval)
        self.rest = self.tokens - self.counts * interval

    def ledger(self, grown: Integers) -> Int64:
        """[5, Q, R] tokens, sequential tokens, tokens of the longest trace, probes, their tokens,
        from rounds [Q, S, R].
        """
        counts, kind = self.counts[:, :, None], grown.dtype
        visited = np.minimum(grown, np.minimum(counts, np.iinfo(kind).max).astype(kind))
        finished = grown > counts
        # in which a trace grew by a whole interval
        rounds = visited.max(axis=1, initial=0).astype(np.int64)
        total = np.add.reduce(visited, axis=1, dtype=np.int64)
        tokens = total * self.interval + np.einsum("qsr,qs->qr", finished, self.rest)
        last = finished & (visited == rounds[:, None].astype(kind))
        longest = (last * self.rest[:, :, None].astype(np.int32)).max(axis=1, initial=0)
        ends = (finished * self.tokens[:, :, None].astype(np.int32)).max(axis=1, initial=0)
        calls = total - np.add.reduce(visited > 0, axis=1, dtype=np.int64)
        whole = rounds * self.interval
        sequential = whole + longest
        # Before that, a last piece that is longer than an interval makes its round longer.
        question, sample = np.nonzero(self.rest > self.interval)
        counted = self.counts[question, sample]
        order = np.lexsort((counted, question))
        question, sample, counted = question[order], sample[order], counted[order]
        long = finished[question, sample] & (visited[question, sample] < rounds[question])
        more = long * (self.rest[question, sample] - self.interval)[:, None]
        opens = np.flatnonzero(np.diff(question, prepend=-1) | np.diff(counted, prepend=-1))
        if len(opens):
            np.add.at(sequential, question[opens], np.maximum.reduceat(more, opens, axis=0))
        spent = self._spent(visited)
        return np.array([tokens, sequential, np.maximum(whole, ends), calls, spent])

    def microseconds(self, clock: Clock, grown: Integers, order: Orders) -> Int64:
        """[R, Q] microseconds of all rounds, one after the other, from rounds [Q, S, R] and orders
        [R, Q, width].
        """
        total = np.zeros(order.shape[:2], np.int64)
        drawn_grown = np.take_along_axis(grown.transpose(2, 0, 1), order.astype(np.intp), axis=2)
        before = np.zeros(self.counts.shape, np.int64)
        for step in range(1, int(drawn_grown.max(initial=0)) + 1):
            tokens = np.where(step <= self.counts, step * self.interval, self.tokens)
            reached = clock.after(tokens)
            grew = drawn(reached - before, order) * (drawn_grown >= step)
            total += most_tokens(grew, clock.at_once)
            before = reached
        return total

    def _spent(self, visited: Integers) -> Int64:
        """[Q, R] tokens of the probes at all visits [Q, S, R] but the first."""
        if self.probes.output_tokens is None:
            return np.zeros((visited.shape[0], visited.shape[2]), np.int64)
        counts = self.counts.ravel()
        starts = np.cumsum(counts) - counts
        visit = np.arange(1, counts.sum() + 1) - np.repeat(starts, counts)
        tokens = known_tokens(self.probes)[
            np.repeat(self.first.ravel(), counts) + (visit * self.every - 1)
        ]
        paid = np.append(0, np.cumsum(tokens * (visit > 1)))
        first = starts.reshape(*self.counts.shape, 1)
        spent: Int64 = paid.take(visited + first).sum(axis=1) - paid.take(first).sum(axis=1)
        return spent


class _Traces:
    """N CoTs that grow, the longest first, and what they answer; those of some questions at a time.

    They are the CoTs that some replicate chose, from numbers that are not 0 there [Q * S, R].

    Attributes:
        visits: where they can be looked at.
        rows: [N] number of each among all CoTs.
        question: [N] of each.
        left: [N, R] 1 for a CoT that votes, else 0.
        codes: [N] latest answers.
        numbers: [N] of each of these, from 0 among those of its question that could win; the
            highest for all others.
        least: [Q] votes that the winner of each question had in every replicate, at the last look.
    """

    def __init__(self, visits: _Visits, chosen: Integers) -> None:
        rows = np.argsort(-visits.counts, axis=None, kind="stable")
        self.rows = rows[np.any(chosen, axis=1)[rows]]
        self.visits, self.question = visits, self.rows // max(visits.counts.shape[1], 1)
        self.left, self.codes = np.minimum(chosen[self.rows], 1), visits.final.ravel()[self.rows]
        self.numbers: Integers = self.codes
        self.least = np.ones(len(visits.counts), np.int64)

    def advance(self, rounds: int) -> int:
        """Show the answers after some rounds; returns how many CoTs, the first ones, are running
        then.
        """
        counts = self.visits.counts.ravel()[self.rows]
        running, ending = np.searchsorted(-counts, (-rounds, 1 - rounds), side="right").tolist()
        places = self.visits.first.ravel()[self.rows[:running]] + (rounds * self.visits.every - 1)
        self.codes[:running] = self.visits.probes.codes[places]
        self.codes[running:ending] = self.visits.final.ravel()[self.rows[running:ending]]
        return int(running)

    def growing(self, running: int) -> Bools:
        """[Q, R] whether one of the first CoTs is left."""
        return self._sums(self.question[:running], len(self.least)) > 0

    def _sums(self, cells: Integers, most: int) -> Integers:
        """[most, R] how many of the first CoTs are left, by cell."""
        ones, each = np.ones(len(cells), self.left.dtype), np.arange(len(cells) + 1, dtype=np.int32)
        one_each = scipy.sparse.csc_array((ones, cells.astype(np.int32), each), (most, len(cells)))
        sums: Integers = one_each @ self.left[: len(cells)]
        return sums

    def keep(self, going: Bools, done: Bools) -> Rows:
        """Go on with some of the questions, without the replicates that are done; returns which
        CoTs are kept.
        """
        self.left *= ~done[self.question]
        kept = np.flatnonzero(self.left.any(axis=1))
        self.question = (np.cumsum(going) - 1)[self.question[kept]]
        self.rows, self.left, self.codes = self.rows[kept], self.left[kept], self.codes[kept]
        self.least = self.least[going]
        return kept

    def plurality(self, order: Orders, done: Bools) -> tuple[Integers, Integers]:
        """[Q, R] number and code of the plurality of those that are left; of tied answers the one
        seen first.

        An answer of fewer CoTs than the winner has votes in any replicate can neither win nor tie:
        it is not counted.

        Args:
            order: [Q, R, n] CoTs in draw order.
            done: [Q, R] where a tie need not be settled.

        Returns:
            Any number and -1 where none of them has an answer.
        """
        questions, replicates, width = order.shape
        kinds = int(self.codes.max(initial=0)) + 2
        places = self.question * kinds + np.maximum(self.codes, -1) + 1
        cots = np.bincount(places, minlength=questions * kinds).reshape(questions, kinds)
        cots[:, 0] = 0
        least = np.maximum(self.least * 3 // 4, 1)
        while True:
            able = np.flatnonzero(cots >= least[:, None])
            owner = able // kinds
            number = np.arange(len(able)) - np.searchsorted(owner, np.arange(questions))[owner]
            none = int(number.max(initial=-1)) + 1
            numbers = np.full(cots.size, none, _counter(none))
            numbers[able] = number
            self.numbers = numbers[places]
            cells = self.question * (none + 1) + self.numbers
            votes = self._sums(cells, questions * (none + 1)).reshape(
                questions, none + 1, replicates
            )
            votes[:, -1] = 0
            most = votes.max(axis=1)
            self.least = np.where(done, width, most).min(axis=1, initial=width)
            short = (self.least < least) & (least > 1)
            if not short.any():
                break
            least[short] = 1
        codes = np.full((questions, none + 1), -1, np.int32)
        codes[owner, number] = able % kinds - 1
        leads = votes == np.maximum(most, 1)[:, None]
        each = np.arange(none + 1, dtype=numbers.dtype)[:, None]
        number = (leads.view(np.uint8) * each).max(axis=1)
        tied = np.add.reduce(leads.view(np.uint8), axis=1, dtype=self.left.dtype) > 1
        self._settle(number, leads, order, *np.nonzero(tied & ~done))
        first = np.arange(questions)[:, None] * (none + 1)
        return number, np.where(most > 0, codes.ravel().take(number + first), -1)

    def _settle(
        self, number: Integers, leads: Bools, order: Orders, question: Rows, replicate: Rows
    ) -> None:
        """Take of tied answers the one of the first CoT that has one of them."""
        row_of = np.full(self.visits.counts.size, -1, np.int32)
        row_of[self.rows] = np.arange(len(self.rows))
        for start in range(0, order.shape[2], _SEEN):
            if not len(question):
                break
            rows = row_of[order[question, replicate, start : start + _SEEN]]
            leading = leads[question[:, None], self.numbers[rows], replicate[:, None]]
            leading &= (self.left[rows, replicate[:, None]] > 0) & (rows >= 0)
            found = leading.any(axis=1)
            seen = rows[found, leading[found].argmax(axis=1)]
            number[question[found], replicate[found]] = self.numbers[seen]
            question, replicate = question[~found], replicate[~found]

"""Doubles for recording without a server: a backend in memory that fails by script, and a clock
that nobody waits for.
"""

import asyncio
import heapq
from collections import Counter, deque
from typing import TypeVar

from feval.methods.protocol import LEDGER_FIELDS
from recorders.journal import Journal
from recorders.request import Completion, Decoding, Message, Request
from recorders.work.record import RecordingTask

T = TypeVar("T")


def request(index, decoding=None, *, text=None):
    messages = (Message("system", "Think."), Message("user", text or f"What is question {index}?"))
    return Request("toy", f"toy/{index}", messages, "alpha", decoding or Decoding())


def reply(index, sample, **fields):
    """A CoT that can be told from every other one."""
    text = f"Question {index}, thought {sample}. The answer is {sample % 3}."
    return Completion(text, "stop", **({"output_tokens": 10, "prompt_tokens": 20} | fields))


def reply_to(request, sample, **fields):
    """The CoT of a question that is numbered behind a slash."""
    return reply(int(request.question_id.rpartition("/")[2]), sample, **fields)


def records(journal, kind="cot"):
    """What an open journal holds of a kind, as it holds it."""
    return [entry.record for entry in journal.entries() if entry.kind == kind]


def cots(folder, identity=None):
    """The CoTs that a journal holds."""
    with Journal.open(folder, identity or {}) as journal:
        return records(journal)


def ledger(llm):
    """All that a meter counts, and what it costs."""
    return [getattr(llm, name) for name in (*LEDGER_FIELDS, "tokens_billed", "dollar_cost")]


def completions(backend, asked, samples=(0,)):
    """Ask a backend once, and close it."""

    async def run():
        try:
            return await backend.complete(asked, samples)
        finally:
            await backend.aclose()

    return asyncio.run(run())


def task(questions, samples, **decoding):
    """Questions with a number as the answer, asked as they are of some/model."""
    return RecordingTask(
        questions,
        "sums",
        "some/model",
        lambda question: [Message("user", question.text)],
        "sums-1",
        Decoding(**decoding),
        samples,
        answer_kind="number",
    )


class FakeBackend:
    """Answers from memory; each entry of `faults` spoils one call, in order.

    A fault is an exception to raise, or a function of the completions that gives others, or a
    coroutine of them.
    """

    name = "fake"

    def __init__(self, faults=(), *, takes_seed=False, answer=None, pause=0):
        self.takes_seed = takes_seed
        self.faults = deque(faults)
        self.calls = []
        self.asked = Counter()
        self.in_flight = self.most_in_flight = 0
        self._answer = answer or reply_to
        self._pause = pause

    def token_lengths(self, model, text):
        """Only a server would know."""

    async def complete(self, request, samples):
        self.calls.append((request.question_id, tuple(samples)))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            for _ in range(self._pause):
                await asyncio.sleep(0)
            fault = self.faults.popleft() if self.faults else None
            if isinstance(fault, Exception):
                raise fault
            replies = [self._answer(request, sample) for sample in samples]
            if fault is not None:
                spoilt = fault(replies)
                replies = await spoilt if asyncio.iscoroutine(spoilt) else spoilt
        finally:
            self.in_flight -= 1
        self.asked.update((request.question_id, sample) for sample in samples[: len(replies)])
        return replies

    async def aclose(self):
        pass


class FakeClock:
    """Time that jumps to the next sleeper as soon as nothing else can happen."""

    def __init__(self):
        self.time = 0.0
        self._sleepers = []
        self._count = 0

    def now(self):
        return self.time

    async def sleep(self, seconds):
        future = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self.time + seconds, self._count, future))
        await future

    def run(self, work):
        """Run a coroutine to its end, with time passing only when everything waits for it."""
        return asyncio.run(self._drive(work))

    async def _drive(self, work):
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(20):
                await asyncio.sleep(0)
            if task.done():
                break
            while self._sleepers and self._sleepers[0][2].done():
                heapq.heappop(self._sleepers)
            if self._sleepers:
                until, _, future = heapq.heappop(self._sleepers)
                self.time = max(self.time, until)
                future.set_result(None)
            else:
                await asyncio.sleep(0.0005)  # a thread is writing the journal
        return task.result()

"""Ask for what a journal lacks: the one loop behind every recording.

    plan (requests x samples) ─▶ what is missing ─▶ pace ─▶ backend ─▶ journal ─▶ acknowledged
                                       ▲                       │ fewer than asked, 429, failures that may pass
                                       └───────────────────────┘

A CoT is acknowledged when its line is on the disk. Many requests share one sync: while the disk is busy, replies collect, and
the next commit takes them all. Whatever stops a run (the user, a cost limit, a fatal error, a full disk) leaves a journal from
which the next run goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from feval.answers.thoughts import Thoughts
from feval.cards.prices import Price
from recorders.asking.budget import Budget, check_cost_limit
from recorders.asking.checks import Checks, LimitWatch
from recorders.asking.pace import Clock, Limits, LoopClock, Pace, backoff
from recorders.asking.plan import Job, Plan, Todo, missing
from recorders.errors import (
    BackendError,
    CostLimitReached,
    Fatal,
    InterruptedByUser,
    MissingError,
    RateLimited,
    RecorderError,
    Refused,
    StoppedError,
    Transient,
)
from recorders.journal.journal import Journal, utc_now
from recorders.request import Backend, Completion, Request

__all__ = ["IGNORES_N", "Control", "Outcome", "Progress", "record"]

IGNORES_N = "The server ignores n: one choice came back where several were asked for. The rest is asked for again."
_FEWER = "The server sent fewer choices than were asked for. The rest is asked for again."
_MORE = "The server sent more choices than were asked for; those beyond are dropped, and were perhaps paid for."

_REFUSALS_UNTIL_HOPELESS = 8
_FAILURES_UNTIL_HOPELESS = 3
_RATE_WINDOW_S = 30.0
_PROGRESS_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is.

    Attributes:
        done: CoTs in the journal that the plan asks for.
        total: CoTs that the plan asks for.
        new: CoTs acknowledged in this run.
        in_flight: requests sent and not answered.
        concurrency: most requests in flight at present.
        per_second: CoTs per second, of the last half minute; 0 before the first.
        eta_s: seconds to go at that rate; `None` before the first.
        usd: paid for this journal so far; `None` without a price.
        waiting_s: seconds until the server's Retry-After is over; 0 if there is none.
        stopping: whether nothing more is sent, and what is in flight is waited for.
        trouble: why the last request failed, if none was answered since; it is sent again.
        warning: what the replies so far show to be wrong with what is asked.
    """

    done: int
    total: int
    new: int
    in_flight: int
    concurrency: int
    per_second: float
    eta_s: float | None
    usd: float | None
    waiting_s: float
    stopping: bool = False
    trouble: str | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        done: CoTs in the journal that the plan asks for.
        total: CoTs that the plan asks for.
        new: CoTs acknowledged in this run.
        requests: sent in this run, failed ones included.
        usd: paid for this journal so far; `None` without a price.
        notes: what was unusual, in sentences.
        error: why it ended before everything was there; `None` if everything is.
    """

    done: int
    total: int
    new: int
    requests: int
    usd: float | None
    notes: tuple[str, ...]
    error: RecorderError | None

    @property
    def complete(self) -> bool:
        """Whether the journal holds everything."""
        return self.done == self.total


class Control:
    """The two ways to stop a run from outside, at any time; from other threads, only by `interrupt_from_elsewhere`."""

    def __init__(self) -> None:
        self._run: _Run | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wish = 0
        self.signal: int | None = None

    def finish(self) -> None:
        """Send nothing more; wait for what is in flight."""
        self._set(1)

    def now(self) -> None:
        """Send nothing more and wait for nothing; what has arrived is still written."""
        self._set(2)

    def ended_by(self, number: int) -> None:
        """`now`, because of a signal: its number is kept in `signal`."""
        self.signal = number
        self._set(2)

    def interrupt(self) -> None:
        """The first call is `finish`, the second `now`: what Ctrl-C should do."""
        self._set(self._wish + 1)

    def interrupt_from_elsewhere(self) -> None:
        """`interrupt`, from another thread than the run's."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.interrupt)

    def _set(self, wish: int) -> None:
        self._wish = max(self._wish, min(wish, 2))
        if self._run is not None:
            self._run.obey(self._wish)

    def attach(self, run: _Run) -> None:
        """Be told whom to stop."""
        self._run, self._loop = run, asyncio.get_running_loop()
        run.obey(self._wish)


async def record(
    plan: Plan,
    backend: Backend,
    journal: Journal,
    *,
    limits: Limits | None = None,
    price: Price | None = None,
    cost_limit_usd: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    acknowledged: Callable[[Sequence[tuple[str, int]]], None] | None = None,
    backend_notes: MutableSequence[str] | None = None,
    control: Control | None = None,
    clock: Clock | None = None,
    now: Callable[[], str] = utc_now,
    thoughts: Thoughts | None = None,
) -> Outcome:
    """Ask the backend for everything that the journal lacks.

    Args:
        plan: what the journal should hold in the end.
        backend: asked; it is not closed.
        journal: open and locked.
        limits: how fast.
        price: of the LLM; `None` for no dollars.
        cost_limit_usd: what the whole journal may cost, earlier runs included. Nothing is sent that could pass it if every CoT
            in flight took `max_tokens`; without `max_tokens`, the longest CoT so far stands for it.
        progress: told where the run is, at most ten times a second.
        acknowledged: told (key, sample) of CoTs, after they are on the disk.
        backend_notes: a list to which the backend adds sentences; they go into the journal.
        control: to stop the run from outside.
        clock: for tests.
        now: the time as it is recorded.
        thoughts: how the LLM marks its thoughts, for the warning that they end at the limit; `None` for any family.

    Returns:
        The outcome; every way to end early is its `error`, but for those below.

    Raises:
        MissingError: something is missing and the journal's mode forbids to ask.
        PriceNotFoundError: a cost limit without a price.
        OutOfRangeError: a cost limit that is no positive number.
        StorageError: the journal could not be written.
    """
    check_cost_limit(cost_limit_usd, price, "this LLM")
    run = _Run(
        plan,
        backend,
        journal,
        limits or Limits(),
        Budget(price, cost_limit_usd, plan, journal),
        clock or LoopClock(),
        now,
        thoughts,
    )
    run.progress, run.acknowledged, run.backend_notes = progress, acknowledged, backend_notes
    if run.missing and not journal.may_ask:
        raise MissingError(
            f"{journal.folder} lacks {run.missing} of {run.total} CoTs, and the mode {journal.mode!r} asks for nothing anew. "
            "Record with the mode 'new_episodes' to have them."
        )
    (control or Control()).attach(run)
    return await run.run()


@dataclass(slots=True)
class _Speed:
    """CoTs per second over the last half minute."""

    clock: Clock
    marks: deque[tuple[float, int]] = field(default_factory=deque)
    shown_at: float = float("-inf")

    def mark(self, new: int) -> None:
        now = self.clock.now()
        self.marks.append((now, new))
        while len(self.marks) > 2 and now - self.marks[0][0] > _RATE_WINDOW_S:
            self.marks.popleft()

    def per_second(self) -> float:
        if len(self.marks) < 2:
            return 0.0
        (start, before), (end, after) = self.marks[0], self.marks[-1]
        return (after - before) / (end - start) if end > start else 0.0

    def due(self) -> bool:
        now = self.clock.now()
        if now - self.shown_at < _PROGRESS_EVERY_S:
            return False
        self.shown_at = now
        return True


class _Run:
    """One run; all of its methods but the commit itself happen in the event loop."""

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        journal: Journal,
        limits: Limits,
        budget: Budget,
        clock: Clock,
        now: Callable[[], str],
        thoughts: Thoughts | None,
    ) -> None:
        self._backend, self._journal, self._limits, self._budget = backend, journal, limits, budget
        self._clock, self._now = clock, now
        self.progress: Callable[[Progress], None] | None = None
        self.acknowledged: Callable[[Sequence[tuple[str, int]]], None] | None = None
        self.backend_notes: MutableSequence[str] | None = None
        self._todos = deque(missing(plan, journal))
        self.total = len(set(plan.keys)) * plan.samples
        self.missing = sum(len(todo.samples) for todo in self._todos)
        self._before = self.total - self.missing
        self._new = self._requests = self._replies = self._failures = 0
        self._answered = journal.totals.replies > 0
        self._per_request = limits.samples_per_request or plan.samples
        self._honours_n = False
        self._short = 0
        self._held: list[tuple[Job, Refused]] = []
        self._lost: list[str] = []
        self._error: BaseException | None = None
        self._trouble: str | None = None
        self._pace = Pace(limits, clock)
        self._speed = _Speed(clock)
        self._checks = Checks(plan.requests[0].decoding) if plan.requests else None
        self._watch = LimitWatch(plan.requests[0].decoding, thoughts, self.missing) if plan.requests else None
        self._warning: str | None = None
        self._jobs: dict[asyncio.Task[None], Job] = {}
        self._changed = asyncio.Event()
        self._dirty = asyncio.Event()
        self._group: asyncio.Future[None] | None = None
        self._dispatcher: asyncio.Task[None] | None = None
        self._closing = False

    async def run(self) -> Outcome:
        """Ask, write, and say how it ended."""
        self._speed.mark(0)
        with ThreadPoolExecutor(1, "journal") as disk:
            committer = asyncio.create_task(self._commit_forever(disk))
            self._dispatcher = asyncio.create_task(self._dispatch())
            if self._error is not None:
                self._dispatcher.cancel()
            try:
                await asyncio.wait({self._dispatcher})
                while self._jobs:
                    await asyncio.wait(set(self._jobs))
                self._settle_refusals()
            finally:
                await self._end({self._dispatcher, *self._jobs}, committer)
        if self._dispatcher.done() and not self._dispatcher.cancelled():
            self._dispatcher.result()
        return self._outcome()

    def obey(self, wish: int) -> None:
        """Stop: 1, after what is in flight; 2, at once."""
        if wish:
            self._stop(InterruptedByUser("Stopped by the user."))
        if wish == 1:
            self._show(final=True)
        if wish > 1:
            for task in self._jobs:
                task.cancel()

    async def _end(self, tasks: set[asyncio.Task[None]], committer: asyncio.Task[None]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._closing = True
        self._dirty.set()
        await committer
        self._show(final=True)

    def _outcome(self) -> Outcome:
        if self._error is not None and not isinstance(self._error, BackendError | StoppedError):
            raise self._error
        done = self._before + self._new
        notes = [*self._journal.notes, *(self._checks.notes() if self._checks and self._new else ())]
        error = None if done == self.total else self._sentence(done)
        return Outcome(done, self.total, self._new, self._requests, self._budget.usd, tuple(notes), error)

    def _sentence(self, done: int) -> RecorderError:
        """Why something is missing, what is there, what to do."""
        held = f"{done} of {self.total} CoTs are in {self._journal.folder}, and the same command goes on from there."
        if not self._journal.totals.cots:
            held = "nothing is recorded yet."
            if isinstance(self._error, BackendError) or self._error is None:
                held += " Put that right, or wait, and run the command again."
        if isinstance(self._error, InterruptedByUser):
            return InterruptedByUser(f"Recording was interrupted: {held}")
        if isinstance(self._error, CostLimitReached):
            return CostLimitReached(
                f"The next request could pass the cost limit ({self._budget}), so nothing more was sent: {held} Raise the limit."
            )
        if isinstance(self._error, BackendError):
            return type(self._error)(f"{_full_stop(self._error.reason)} Recording stopped: {held}")
        reasons = "; ".join(dict.fromkeys(self._lost))
        return StoppedError(f"{_requests(len(self._lost))} failed {self._tries} ({reasons:.400}): {held}")

    @property
    def _tries(self) -> str:
        """How often a request is sent before it is given up, in words."""
        return f"{self._limits.retries + 1} times each" if self._limits.retries else "once each"

    # What is asked for.

    async def _dispatch(self) -> None:
        while self._error is None:
            self._changed.clear()
            todo = self._next()
            if todo is None and not self._jobs:
                return
            if todo is None or len(self._jobs) >= self._limits.concurrency:
                await self._changed.wait()
                continue
            job = Job(todo, todo.samples[: self._per_request])
            if not self._budget.reserve(job):
                if not self._jobs:
                    self._stop(CostLimitReached(""))
                    return
                await self._changed.wait()
                continue
            del todo.samples[: len(job.samples)]
            job.number = await self._pace.acquire(job.tokens)
            self._start(job)

    def _next(self) -> Todo | None:
        while self._todos and not self._todos[0].samples:
            self._todos.popleft()
        return self._todos[0] if self._todos else None

    def _start(self, job: Job) -> None:
        task = asyncio.create_task(self._work(job))
        job.flying = True  # the gate has counted it, though the task has not begun
        self._jobs[task] = job
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._budget.free(self._jobs.pop(task))
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop(error)
        self._changed.set()

    def _stop(self, error: BaseException) -> None:
        """Send nothing more. The first reason counts, but for one that means our own files or code."""
        if self._error is None or not isinstance(error, RecorderError):
            self._error = error
        if self._dispatcher is not None:
            self._dispatcher.cancel()
        for task, job in self._jobs.items():
            if not job.flying:
                task.cancel()

    # One job.

    async def _work(self, job: Job) -> None:
        while True:
            try:
                completions = await self._ask(job)
            except Refused as error:
                self._refuse(job, error)
                break
            except (RateLimited, Transient) as error:
                wait = self._again(job, error)
                if wait is None:
                    break
                await self._clock.sleep(wait)
                job.number = await self._pace.acquire(job.tokens)
                job.flying = True
            else:
                await self._take(job, completions)
                break

    async def _ask(self, job: Job) -> list[Completion]:
        """Send once; free the place in the gate whatever comes."""
        self._requests += 1
        tokens = 0.0
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                completions = await self._backend.complete(job.todo.request, job.samples)
            if not completions:
                raise Transient("the server sent no choice")
            tokens = self._budget.pay(job, completions)
            self._pace.content()
            return completions
        except RateLimited as error:
            self._pace.limited(job.number, error.retry_after)
            raise
        except TimeoutError as error:
            raise Transient(f"no reply came within {self._limits.timeout_s:g} seconds") from error
        finally:
            job.flying = False
            self._pace.release(job.tokens, tokens)

    async def _take(self, job: Job, completions: list[Completion]) -> None:
        """Write a reply and wait until the disk has it; what is still missing goes back into the queue."""
        self._replies += 1
        self._failures = 0
        self._trouble = None
        if not self._answered:
            self._answered = True
            self._settle_refusals()
        samples = job.samples[: len(completions)]
        self._learn(len(job.samples), len(completions), job.todo.request)
        self._write(job, samples, completions[: len(samples)])
        self._put_back(job, job.samples[len(samples) :])
        await self._committed()

    def _learn(self, asked: int, got: int, request: Request) -> None:
        """Notice what a server makes of n. With seeds a request has one sample, and no server ignored anything."""
        one_each = self._backend.takes_seed and request.decoding.seed is not None
        if got >= asked:
            self._honours_n |= asked > 1
            self._short = 0
            if got > asked:
                self._journal.note(_MORE)
            return
        if not one_each:
            self._journal.note(IGNORES_N if got == 1 else _FEWER)
        self._short += 1
        if (one_each or self._short > 1) and not self._honours_n:  # one short reply may be a hiccup
            self._per_request = min(self._per_request, got)

    def _write(self, job: Job, samples: list[int], completions: list[Completion], refused: str | None = None) -> None:
        request = job.todo.request
        base = request.decoding.seed if self._backend.takes_seed else None
        seeds = None if base is None else [base + sample for sample in samples]
        self._journal.add(
            request, job.todo.key, samples, completions, recorded_at=self._now(), seeds=seeds, refused=refused
        )
        if self._checks is not None:
            for completion in completions:
                self._checks.see(job.todo.key, completion, refused=refused is not None)
        if self._watch is not None and refused is None:
            self._warn(filter(None, map(self._watch.see, completions)))
        self._dirty.set()

    def _warn(self, sentences: Iterable[str]) -> None:
        """Say at once what is to be known before more is paid for; the recording keeps it."""
        for sentence in sentences:
            self._warning = sentence
            self._journal.note(sentence)

    def _put_back(self, job: Job, samples: list[int]) -> None:
        if samples:
            job.todo.samples[:0] = samples
            self._todos.appendleft(job.todo)
            self._changed.set()

    # What goes wrong.

    def _again(self, job: Job, error: RateLimited | Transient) -> float | None:
        """Seconds until the request is sent again; `None` if it is given up."""
        if isinstance(error, RateLimited) and self._replies > job.replies_then:
            job.failures = 0  # the server is busy, not broken: it has answered others meanwhile
        self._pace.hold(error.retry_after)
        job.replies_then = self._replies
        job.failures += 1
        if self._error is not None:
            return None
        if job.failures <= self._limits.retries:
            self._trouble = error.reason
            self._show()
            return backoff(self._limits, job.failures, f"{job.todo.key}:{job.samples[0]}")
        self._lost.append(error.reason)
        self._failures += 1
        if self._failures >= _FAILURES_UNTIL_HOPELESS:
            failed = f"{self._failures} requests in a row failed {self._tries}"
            self._stop(Transient(f"{failed}, the last one because {_full_stop(error.reason)}"))
        return None

    def _refuse(self, job: Job, error: Refused) -> None:
        """A refused request has CoTs without text; before anything was answered, a refusal may be our own mistake."""
        job.samples += job.todo.samples
        job.todo.samples = []
        if self._answered or error.finish_reason == "content_filter":
            self._write_refusal(job, error)
            return
        self._held.append((job, error))
        if len(self._held) >= _REFUSALS_UNTIL_HOPELESS:
            self._stop(Fatal(f"The first {len(self._held)} requests were all refused: {_full_stop(error.reason)}"))

    def _write_refusal(self, job: Job, error: Refused) -> None:
        reply = Completion("", error.finish_reason, output_tokens=0)
        self._write(job, job.samples, [reply] * len(job.samples), error.reason)

    def _settle_refusals(self) -> None:
        held, self._held = self._held, []
        if held and not self._answered:
            self._stop(Fatal(f"Every request was refused: {_full_stop(held[0][1].reason)}"))
            return
        for job, error in held:
            self._write_refusal(job, error)

    # The disk.

    async def _committed(self) -> None:
        """Wait until everything written so far is on the disk."""
        if self._group is None:
            self._group = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._group)

    async def _commit_forever(self, disk: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while not self._closing or self._dirty.is_set():
            await self._dirty.wait()
            self._dirty.clear()
            group, self._group = self._group, None
            self._take_notes()
            try:
                self._count(await loop.run_in_executor(disk, self._journal.commit))
            except Exception as error:  # noqa: BLE001  whatever it is, nothing can be recorded any more
                self._stop(error)
                for task in self._jobs:
                    task.cancel()
                return
            if group is not None and not group.done():
                group.set_result(None)
            self._show()

    def _count(self, acknowledged: list[tuple[str, int]]) -> None:
        self._new += len(acknowledged)
        if acknowledged:
            self._speed.mark(self._new)
            if self.acknowledged is not None:
                self.acknowledged(acknowledged)

    def _take_notes(self) -> None:
        while self.backend_notes:
            self._journal.note(self.backend_notes.pop(0))

    def _show(self, *, final: bool = False) -> None:
        if self.progress is None or not (final or self._speed.due()):
            return
        done, rate = self._before + self._new, self._speed.per_second()
        self.progress(
            Progress(
                done,
                self.total,
                self._new,
                self._pace.in_flight,
                int(self._pace.window),
                rate,
                (self.total - done) / rate if rate else None,
                self._budget.usd,
                self._pace.held_for,
                self._error is not None,
                self._trouble,
                self._warning,
            )
        )


def _requests(number: int) -> str:
    return "1 request" if number == 1 else f"{number} requests"


def _full_stop(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."

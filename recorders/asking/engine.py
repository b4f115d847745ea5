"""Ask for everything a journal lacks: the one loop behind recording and scoring.

    assignment ─▶ batch ─▶ budget ─▶ pace ─▶ send ─▶ journal ─▶ acknowledged
                    ▲                          │ fewer than asked for, 429, failures that may pass
                    └──────────────────────────┘

A reply is acknowledged once its lines are on the disk. Many replies share one sync: while the disk
is busy, replies collect, and the next commit writes them all. Whatever stops a run (the user, a
cost limit, a fatal error, a full disk) leaves a journal from which the next run continues.

What asks a process to end gives it some time, so SIGTERM and SIGHUP wait for replies in flight as
Ctrl-C does, but not as long as they take.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from feval.appendlog import AppendLog
from feval.executors.progress import ProgressBar
from feval.report.text import duration
from feval.values import frozen
from recorders.asking.pace import Budget, Clock, Limits, Pace, backoff
from recorders.errors import (
    LONGEST_WAIT_S,
    BackendError,
    CostLimitError,
    Fatal,
    InterruptedByUser,
    RateLimitError,
    RecorderError,
    RefusalError,
    StoppedError,
    Transient,
    Unreachable,
)

Batch = TypeVar("Batch")
"""What goes into one request."""

Reply = TypeVar("Reply")
"""What comes back."""


class TokenEstimate(NamedTuple):
    """Tokens that a request should take: of its prompt, of the reply as expected, and of the
    longest reply possible.
    """

    prompt: float
    output: float
    longest_output: float


class Assignment(ABC, Generic[Batch, Reply]):
    """What the engine asks for, batch by batch: how to send a batch, journal its reply and count
    its cost.

    The engine calls all methods in its event loop; only `journal.commit` runs in another thread.
    `has_replies` says that an earlier run was answered, so that a refusal is not likely to be our
    own mistake; `concurrency` and `timeout_s` may be narrower than the limits.
    """

    ACTIVITY: ClassVar[str]
    """What is done, such as "Recording", for messages."""
    DONE: ClassVar[str]
    """What has happened to finished items, such as "recorded", for messages."""
    unit: str = "CoTs"
    """What is counted, for messages."""

    journal: AppendLog[Any, Any]
    budget: Budget
    total: int
    has_replies: bool
    concurrency: int | None = None
    timeout_s: float | None = None
    warning: str | None = None
    goes_on: bool = False
    """Whether what is in flight goes on without us, and the next run finds it: then it is sent all
    at once, and whatever stops a run waits for none of it.
    """

    @property
    @abstractmethod
    def done(self) -> int:
        """How many of the wanted items need no more asking."""

    @abstractmethod
    def next_batch(self) -> Batch | None:
        """Take the next batch out of the queue; `None` if it is empty."""

    @abstractmethod
    def put_back(self, batch: Batch) -> None:
        """Return a batch that was not sent to the front of the queue."""

    @abstractmethod
    def label(self, batch: Batch) -> str:
        """Return text that tells batches apart."""

    @abstractmethod
    def estimate(self, batch: Batch) -> TokenEstimate:
        """Return the tokens that a batch should take."""

    @abstractmethod
    async def send(self, batch: Batch) -> Reply:
        """Send a batch once; a `BackendError` says why it brought no reply."""

    @abstractmethod
    def pay(self, batch: Batch, reply: Reply) -> float:
        """Charge the budget for a reply, and return the tokens it took."""

    @abstractmethod
    def accept(self, batch: Batch, reply: Reply) -> None:
        """Hand a reply to the journal; put what is still missing of the batch back into the
        queue.
        """

    @abstractmethod
    def refuse(self, batch: Batch, error: RefusalError) -> None:
        """Journal that a batch was refused."""

    def withdraw(self, batch: Batch) -> None:
        """Move into a refused batch what is queued of the same request, which would be refused
        alike.
        """

    def before_commit(self) -> None:
        """Hand to the journal what else the next commit should write."""

    def left(self) -> str:
        """Return a sentence on what goes on after a run that ended early, with a blank before
        it.
        """
        return ""


_RATE_WINDOW_S = 30.0
_PROGRESS_EVERY_S = 0.1


@frozen
class Progress:
    """Where a run is, and how it ended. The unit of counts is what the run asks for: CoTs, scores
    or comparisons.

    Attributes:
        done: in the journal.
        total: wanted.
        new: acknowledged in this run.
        requests: sent in this run.
        in_flight: requests sent and not answered.
        per_second: rate over the last half minute; 0 before the first.
        usd: paid so far, earlier runs included; `None` without a price.
        waiting_s: seconds until the server's Retry-After is over; 0 if there is none.
        stopping: whether nothing more is sent, and replies in flight are awaited.
        trouble: why the last request failed, if none was answered since; it is sent again.
        warning: what the replies so far show to be wrong with the settings.
        error: why the run ended before everything was there.
    """

    done: int
    total: int
    new: int
    requests: int
    in_flight: int
    per_second: float
    usd: float | None
    waiting_s: float
    stopping: bool
    trouble: str | None
    warning: str | None
    error: RecorderError | None = None


class RunBar:
    """Shows in a bar where a run is: counts, rate, dollars and waiting beside the words that it
    has.
    """

    def __init__(self, bar: ProgressBar) -> None:
        self._bar, self._label = bar, bar.label

    def __call__(self, state: Progress) -> None:
        """Show a state."""
        usd = "" if state.usd is None else f", ${state.usd:,.4f}"
        waiting = (
            f", the server asks to wait {duration(round(state.waiting_s))}"
            if state.waiting_s
            else ""
        )
        line = f"{state.done:,} of {state.total:,}, {state.per_second:,.0f}/s{usd}{waiting}"
        self._bar.describe(f"{self._label}: {line}")
        self._bar(state.done, state.total)


GRACE_S = 30.0
"""How long SIGTERM and SIGHUP wait for replies in flight."""


class Control:
    """The two ways to stop a run from outside, at any time; from other threads only by
    `interrupt_from_elsewhere`.
    """

    def __init__(self) -> None:
        self._obey: Callable[[int], None] = lambda _: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wish = 0
        self.signal = signal.SIGINT

    def now(self) -> None:
        """Send nothing more and wait for nothing; what has arrived is still written."""
        self._set(2)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """`finish` at the first call, `now` at the second; unless it was Ctrl-C, `now` also if
        replies take too long.
        """
        self.signal = number
        self._set(self._wish + 1)
        if number != signal.SIGINT and self._loop is not None:
            self._loop.call_later(GRACE_S, self.now)

    def interrupt_from_elsewhere(self, number: signal.Signals = signal.SIGINT) -> None:
        """`interrupt`, from another thread or a signal handler."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.interrupt, number)

    def attach(self, obey: Callable[[int], None]) -> None:
        """Say how to stop the run: 1 after replies in flight, 2 at once; called in its loop."""
        self._obey, self._loop = obey, asyncio.get_running_loop()
        obey(self._wish)

    def _set(self, wish: int) -> None:
        self._wish = max(self._wish, min(wish, 2))
        self._obey(self._wish)


def run(
    asking: Coroutine[Any, Any, Progress],
    control: Control,
    close: Callable[[], Awaitable[None]],
    *,
    blocks: bool = False,
) -> Progress:
    """Run to the end, or until something stops it, and close what was asked.

    In the main thread, the first Ctrl-C waits for replies in flight, SIGTERM and SIGHUP for 30
    seconds at most, a second one for nothing. Where a request `blocks` the event loop, as a user's
    own function does, the second raises KeyboardInterrupt in it.
    """

    async def whole() -> Progress:
        try:
            with _interruptible(control, blocks=blocks):
                return await asking
        finally:
            await close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            return asyncio.run(whole())
        except InterruptedByUser as error:  # a function of the user's, which knows of no signals
            error.exit_code = 128 + control.signal
            raise
    with ThreadPoolExecutor(1, "recorder") as thread:  # a loop is running already, as in notebooks
        result = thread.submit(asyncio.run, whole())
        while True:
            try:
                return result.result()
            except KeyboardInterrupt:
                control.interrupt_from_elsewhere()


@contextmanager
def _interruptible(control: Control, *, blocks: bool) -> Iterator[None]:
    """Handle signals where they can be handled: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = _Interrupt(control, blocks)
    before = {
        number: signal.signal(number, handler)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    try:
        yield
    finally:
        handler.close()
        for number, own in before.items():
            signal.signal(number, own)


@dataclass(eq=False)
class _Interrupt:
    """A signal handler, which works while the event loop is blocked where requests block it."""

    _control: Control
    _blocks: bool
    _again: threading.Timer | None = None

    def __call__(self, number: int, _frame: object) -> None:
        if self._again is not None:
            raise KeyboardInterrupt(number)
        if self._blocks:
            self._again = threading.Timer(GRACE_S, os.kill, (os.getpid(), number))
            self._again.daemon = True
            if number != signal.SIGINT:
                self._again.start()
        self._control.interrupt_from_elsewhere(signal.Signals(number))

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()


_REFUSALS_UNTIL_HOPELESS = 8
_FAILURES_UNTIL_HOPELESS = 3
_LEFT_AT_ONCE = 100_000
_UNREACHABLE_RETRIES = 2  # three seconds of waiting at most


async def ask(
    assignment: Assignment[Batch, Reply],
    *,
    limits: Limits | None = None,
    progress: Callable[[Progress], None] | None = None,
    acknowledged: Callable[[Sequence[Any]], None] | None = None,
    control: Control | None = None,
    clock: Clock | None = None,
) -> Progress:
    """Ask for everything that an assignment lacks; the `error` of what is returned says why the run
    ended early, if it did.

    `progress` is called at most ten times a second, `acknowledged` with the keys of items once they
    are on the disk. A `StorageError` of the journal, and what an assignment raises besides
    `BackendError`, end the run and are raised as they are.
    """
    control = control or Control()
    run = _Run(assignment, limits or Limits(), progress, acknowledged, control, clock or Clock())
    control.attach(run.obey)
    return await run.run()


@dataclass(slots=True, eq=False)
class _Job(Generic[Batch]):
    """One batch, from the moment it is taken from the queue until its reply is on the disk."""

    batch: Batch
    tokens: TokenEstimate
    reserved_usd: float
    number: int = 0
    in_flight: bool = False
    failures: int = 0
    replies_then: int = 0

    @property
    def expected_tokens(self) -> float:
        return self.tokens.prompt + self.tokens.output


@dataclass(eq=False)
class _Run(Generic[Batch, Reply]):
    """One run; everything but the commit itself happens in the event loop."""

    _assignment: Assignment[Batch, Reply]
    _limits: Limits
    _progress: Callable[[Progress], None] | None
    _acknowledged: Callable[[Sequence[Any]], None] | None
    _control: Control
    _clock: Clock

    def __post_init__(self) -> None:
        if self._assignment.goes_on:  # at the pace of whoever goes on with it
            self._limits = Limits(_LEFT_AT_ONCE, retries=self._limits.retries, backoff_s=0)
        most = self._limits.concurrency
        self._concurrency = min(most, self._assignment.concurrency or most)
        self._new = self._requests = self._replies = self._failures_in_a_row = 0
        self._unsettled = 0  # batches taken from the queue whose reply or refusal is not journalled
        self._answered = self._assignment.has_replies
        self._held_refusals: list[tuple[_Job[Batch], RefusalError]] = []
        self._given_up: list[str] = []
        self._reason: RecorderError | None = None
        self._failure: BaseException | None = None
        self._trouble: str | None = None
        self._pace = Pace(self._limits, self._clock)
        if self._assignment.goes_on:
            self._pace.window = float(most)
        # When how many items were new, over the last half minute.
        self._marks = deque([(self._clock.now(), 0)])
        self._shown_at = float("-inf")
        self._jobs: dict[asyncio.Task[None], _Job[Batch]] = {}
        self._changed, self._dirty = asyncio.Event(), asyncio.Event()
        self._group: asyncio.Future[None] | None = None
        self._dispatcher: asyncio.Task[None] | None = None
        self._closing = False

    async def run(self) -> Progress:
        with ThreadPoolExecutor(1, "journal") as disk:
            committer = asyncio.create_task(self._commit_forever(disk))
            self._dispatcher = asyncio.create_task(self._dispatch())
            if self._is_stopping:
                self._dispatcher.cancel()
            try:
                await asyncio.wait({self._dispatcher})
                while self._jobs:
                    await asyncio.wait(set(self._jobs))
                self._settle_refusals()
            finally:
                await self._end({self._dispatcher, *self._jobs}, committer)
        if not self._dispatcher.cancelled():
            self._dispatcher.result()
        if self._failure is not None:
            raise self._failure
        is_complete = not self._unsettled and self._assignment.next_batch() is None
        return self._state(None if is_complete else self._error())

    def obey(self, wish: int) -> None:
        """Stop: with 1 after replies in flight, with 2 at once."""
        if wish:
            self._stop(InterruptedByUser("Stopped by the user."))
        if wish == 1 and not self._assignment.goes_on:
            self._show(final=True)
        if wish > 1:
            for task in self._jobs:
                task.cancel()

    @property
    def _is_stopping(self) -> bool:
        return self._reason is not None or self._failure is not None

    async def _end(self, tasks: set[asyncio.Task[None]], committer: asyncio.Task[None]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._closing = True
        self._dirty.set()
        await committer
        self._show(final=True)

    def _error(self) -> RecorderError:
        """Why something is missing, what is there, and what to do."""
        activity, standing = self._assignment.ACTIVITY, self._standing()
        is_empty = not len(self._assignment.journal)
        advice = " Fix that, or wait, and run the command again." if is_empty else ""
        match self._reason:
            case InterruptedByUser():
                return InterruptedByUser(
                    f"{activity} was interrupted: {standing}", 128 + self._control.signal
                )
            case CostLimitError():
                return CostLimitError(
                    f"The next request could pass the cost limit ({self._assignment.budget}), so"
                    f" nothing more was sent: {standing} Raise the limit."
                )
            case StoppedError() as error:
                return StoppedError(
                    f"{_sentence(str(error))} {activity} stopped: {standing} Run it again when the"
                    " time is over."
                )
            case BackendError() as error:
                return type(error)(
                    f"{_sentence(error.reason)} {activity} stopped: {standing}{advice}"
                )
        number = len(self._given_up)
        requests = "1 request" if number == 1 else f"{number} requests"
        reasons = "; ".join(dict.fromkeys(self._given_up))
        return StoppedError(
            f"{requests} failed {self._attempts} ({reasons:.400}): {standing}{advice}"
        )

    def _standing(self) -> str:
        """What is there, to end a message."""
        state = self._assignment
        if not len(state.journal):
            return f"nothing is {state.DONE} yet.{state.left()}"
        return (
            f"{state.done:,} of {state.total:,} {state.unit} are {state.DONE}, in"
            f" {state.journal.folder}, and the same command continues from there.{state.left()}"
        )

    @property
    def _attempts(self) -> str:
        """How often a request is sent before it is given up, in words."""
        return f"{self._limits.retries + 1} times each" if self._limits.retries else "once each"

    async def _dispatch(self) -> None:
        while not self._is_stopping:
            self._changed.clear()
            batch = self._assignment.next_batch() if len(self._jobs) < self._concurrency else None
            if batch is None and not self._jobs:
                return
            if batch is None:
                await self._changed.wait()
                continue
            tokens = self._assignment.estimate(batch)
            reserved = self._assignment.budget.reserve(tokens.prompt, tokens.longest_output)
            if reserved is None:
                self._assignment.put_back(batch)
                if not self._jobs:
                    self._stop(CostLimitError(""))
                    return
                await self._changed.wait()
                continue
            self._unsettled += 1
            job = _Job(batch, tokens, reserved)
            job.number = await self._pace.acquire(job.expected_tokens)
            self._start(job)

    def _start(self, job: _Job[Batch]) -> None:
        task = asyncio.create_task(self._work(job))
        job.in_flight = True  # the pace has counted it, though the task has not begun
        self._jobs[task] = job
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._assignment.budget.free(self._jobs.pop(task).reserved_usd)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self._changed.set()

    def _stop(self, reason: RecorderError) -> None:
        """Send nothing more. The first reason counts."""
        self._reason = self._reason or reason
        if self._dispatcher is not None:
            self._dispatcher.cancel()
        for task, job in self._jobs.items():
            if self._assignment.goes_on or not job.in_flight:
                task.cancel()

    def _fail(self, error: BaseException) -> None:
        """Send nothing more, because of our own files or somebody's code; the error is raised at
        the end.
        """
        self._failure = self._failure or error
        self._stop(RecorderError(str(error)))

    async def _work(self, job: _Job[Batch]) -> None:
        while True:
            try:
                reply = await self._send(job)
            except Fatal as error:
                self._stop(error)
                return
            except RefusalError as error:
                self._hold_or_refuse(job, error)
                return
            except (RateLimitError, Transient) as error:
                wait = self._wait_before_retry(job, error)
                if wait is None:
                    return
                await self._clock.sleep(wait)
                job.number = await self._pace.acquire(job.expected_tokens)
                job.in_flight = True
            else:
                await self._accept(job, reply)
                return

    async def _send(self, job: _Job[Batch]) -> Reply:
        """Send once; free the place in the pace in any case."""
        self._requests += 1
        tokens = 0.0
        limit = self._assignment.timeout_s
        try:
            async with asyncio.timeout(limit):
                reply = await self._assignment.send(job.batch)
            tokens = self._assignment.pay(job.batch, reply)
            self._pace.content()
            return reply
        except RateLimitError:
            self._pace.limited(job.number)
            raise
        except TimeoutError as error:
            raise Transient(f"no reply came within {limit:g} seconds") from error
        finally:
            job.in_flight = False
            self._pace.release(job.expected_tokens, tokens)

    async def _accept(self, job: _Job[Batch], reply: Reply) -> None:
        """Journal a reply and wait until the disk has it."""
        self._replies += 1
        self._failures_in_a_row = 0
        self._trouble = None
        if not self._answered:
            self._answered = True
            self._settle_refusals()
        self._assignment.accept(job.batch, reply)
        self._settle()
        self._changed.set()
        # Wait until everything journalled so far is on the disk.
        self._group = self._group or asyncio.get_running_loop().create_future()
        await asyncio.shield(self._group)

    def _settle(self) -> None:
        self._unsettled -= 1
        self._dirty.set()

    def _wait_before_retry(
        self, job: _Job[Batch], error: RateLimitError | Transient
    ) -> float | None:
        """Return the seconds until the request is sent again; `None` if it is given up."""
        if error.retry_after is not None and error.retry_after > LONGEST_WAIT_S:
            most = duration(LONGEST_WAIT_S)
            self._stop(StoppedError(f"{error.reason}, and feval waits {most} at most"))
            return None
        if isinstance(error, RateLimitError) and self._replies > job.replies_then:
            job.failures = 0  # the server is busy, not broken: it has answered others meanwhile
        self._pace.hold(error.retry_after)
        job.replies_then = self._replies
        job.failures += 1
        if self._is_stopping:
            return None
        hopeless = isinstance(error, Unreachable) and (
            error.after_s or job.failures > _UNREACHABLE_RETRIES
        )
        if hopeless and not self._answered:
            advice = "Check the address (--base-url), and that the server runs"
            self._stop(Fatal(f"Nothing answers: {error.reason}. {advice}"))
            return None
        if job.failures <= self._limits.retries:
            self._trouble = error.reason
            self._show()
            return backoff(self._limits, job.failures, self._assignment.label(job.batch))
        self._given_up.append(error.reason)
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= _FAILURES_UNTIL_HOPELESS:
            failures = f"{self._failures_in_a_row} requests in a row failed {self._attempts}"
            self._stop(Transient(f"{failures}, the last one because {_sentence(error.reason)}"))
        return None

    def _hold_or_refuse(self, job: _Job[Batch], error: RefusalError) -> None:
        """Journal a refusal; before any reply it may be our own mistake, and is held back."""
        self._assignment.withdraw(job.batch)
        if self._answered or error.finish_reason == "content_filter":
            self._refuse(job, error)
            return
        self._held_refusals.append((job, error))
        if len(self._held_refusals) >= _REFUSALS_UNTIL_HOPELESS:
            refused = f"The first {_REFUSALS_UNTIL_HOPELESS} requests were all refused:"
            self._stop(Fatal(f"{refused} {_sentence(error.reason)}"))

    def _refuse(self, job: _Job[Batch], error: RefusalError) -> None:
        self._assignment.refuse(job.batch, error)
        self._settle()

    def _settle_refusals(self) -> None:
        refusals, self._held_refusals = self._held_refusals, []
        if refusals and not self._answered:
            self._stop(Fatal(f"Every request was refused: {_sentence(refusals[0][1].reason)}"))
            return
        for job, error in refusals:
            self._refuse(job, error)

    async def _commit_forever(self, disk: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while not self._closing or self._dirty.is_set():
            await self._dirty.wait()
            self._dirty.clear()
            group, self._group = self._group, None
            self._assignment.before_commit()
            try:
                self._count(await loop.run_in_executor(disk, self._assignment.journal.commit))
                if group is not None and not group.done():
                    group.set_result(None)
                self._show()
            except Exception as error:  # noqa: BLE001  whatever it is, nothing can be journalled any more
                self._fail(error)
                for task in self._jobs:
                    task.cancel()
                return

    def _count(self, keys: list[Any]) -> None:
        self._new += len(keys)
        if keys:
            now = self._clock.now()
            self._marks.append((now, self._new))
            while len(self._marks) > 2 and now - self._marks[0][0] > _RATE_WINDOW_S:
                self._marks.popleft()
            if self._acknowledged is not None:
                self._acknowledged(keys)

    def _show(self, *, final: bool = False) -> None:
        """Show the progress, unless it was shown a moment ago."""
        now = self._clock.now()
        if self._progress is not None and (final or now - self._shown_at >= _PROGRESS_EVERY_S):
            self._shown_at = now
            self._progress(self._state())

    def _state(self, error: RecorderError | None = None) -> Progress:
        state = self._assignment
        (start, before), (end, after) = self._marks[0], self._marks[-1]
        return Progress(
            done=state.done,
            total=state.total,
            new=self._new,
            requests=self._requests,
            in_flight=self._pace.in_flight,
            per_second=(after - before) / (end - start) if end > start else 0.0,
            usd=state.budget.usd,
            waiting_s=self._pace.held_for,
            stopping=self._is_stopping,
            trouble=self._trouble,
            warning=state.warning,
            error=error,
        )


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."

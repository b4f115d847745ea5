"""Stopping a run from outside: by code, by Ctrl-C, by SIGTERM and SIGHUP; and running it from plain
functions.

What asks a process to end gives it some time, so SIGTERM and SIGHUP wait for replies in flight as
Ctrl-C does, but not as long as they take.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from recorders.asking.progress import Outcome
from recorders.errors import InterruptedByUser

GRACE_S = 30.0
"""How long SIGTERM and SIGHUP wait for replies in flight."""


class _Stoppable(Protocol):
    def obey(self, wish: int) -> None: ...


class Control:
    """The two ways to stop a run from outside, at any time; from other threads only by
    `interrupt_from_elsewhere`.
    """

    def __init__(self) -> None:
        self._run: _Stoppable | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wish = 0
        self.signal = signal.SIGINT

    def finish(self) -> None:
        """Send nothing more; wait for replies in flight."""
        self._set(1)

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

    def attach(self, run: _Stoppable) -> None:
        """Say which run to stop; called by the run, in its loop."""
        self._run, self._loop = run, asyncio.get_running_loop()
        run.obey(self._wish)

    def _set(self, wish: int) -> None:
        self._wish = max(self._wish, min(wish, 2))
        if self._run is not None:
            self._run.obey(self._wish)


def run(
    asking: Coroutine[Any, Any, Outcome],
    control: Control,
    close: Callable[[], Awaitable[None]],
    *,
    blocks: bool = False,
) -> Outcome:
    """Run to the end, or until something stops it, and close what was asked.

    In the main thread, the first Ctrl-C waits for replies in flight, SIGTERM and SIGHUP for 30
    seconds at most, a second one for nothing. Where a request `blocks` the event loop, as a user's
    own function does, the second raises KeyboardInterrupt in it.
    """

    async def whole() -> Outcome:
        try:
            with _interruptible(control, blocks=blocks):
                return await asking
        finally:
            await close()

    try:
        outcome = _in_a_loop(whole(), control)
    except InterruptedByUser as error:
        error.exit_code = 128 + control.signal
        raise
    if isinstance(outcome.error, InterruptedByUser):
        outcome.error.exit_code = 128 + control.signal
    return outcome


def _in_a_loop(work: Coroutine[Any, Any, Outcome], control: Control) -> Outcome:
    """Run a coroutine to its end, in a thread of its own if a loop is running already, as in
    notebooks.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1, "recorder") as thread:
        result = thread.submit(asyncio.run, work)
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
    loop = asyncio.get_running_loop()
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    handled = [number for number in before if before[number] not in (signal.SIG_IGN, None)]
    handler = _Interrupt(control)
    for number in handled:
        if blocks:
            signal.signal(number, handler)
        else:
            loop.add_signal_handler(number, control.interrupt, number)
    try:
        yield
    finally:
        handler.close()
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


class _Interrupt:
    """A signal handler that works while the event loop is blocked."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._again: threading.Timer | None = None

    def __call__(self, number: int, _frame: object) -> None:
        if self._again is not None:
            raise KeyboardInterrupt(number)
        self._again = threading.Timer(GRACE_S, os.kill, (os.getpid(), number))
        self._again.daemon = True
        if number != signal.SIGINT:
            self._again.start()
        self._control.interrupt_from_elsewhere(signal.Signals(number))

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()

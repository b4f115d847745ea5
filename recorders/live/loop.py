"""An event loop in a thread of its own, and requests that are repeated on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from feval.report.text import duration
from recorders.asking.pace import Limits, backoff
from recorders.errors import LONGEST_WAIT_S, RateLimited, StoppedError, Transient

_T = TypeVar("_T")


class Loop:
    """An event loop in its own thread, so that methods can be plain functions."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="live-llm", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to the end, and return what comes back."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits for the reply any more
            raise

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def insist(
    attempt: Callable[[], Awaitable[_T]],
    key: str,
    name: str,
    retries: int,
    wait: Callable[[float], Coroutine[Any, Any, None]],
) -> _T:
    """Attempt a request until it works, or fails too often."""
    failures = 0
    while True:
        try:
            return await attempt()
        except (RateLimited, Transient) as error:
            failures += 1
            if failures > retries:
                raise StoppedError(
                    f"{name} failed {failures} times in a row ({error.reason}). Check that the"
                    " server runs, or allow more retries."
                ) from error
            if (error.retry_after or 0) > LONGEST_WAIT_S:
                raise StoppedError(
                    f"{name} cannot be asked now: {error.reason}, and feval waits"
                    f" {duration(LONGEST_WAIT_S)} at most. Ask again later."
                ) from error
            await wait(
                backoff(Limits(), failures, key) if error.retry_after is None else error.retry_after
            )

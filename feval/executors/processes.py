"""Processes of this machine that outlive the death of one of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.reduction import ForkingPickler
from types import TracebackType
from typing import Any, Self, TypeVar

from feval.errors import UsageError

_T = TypeVar("_T")


class Processes(Executor):
    """A process pool that starts anew when a process of it died, and is ended at once where its
    `with` block raises.

    Attributes:
        workers: the most processes; they start when they are needed.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._start()

    def _start(self) -> None:
        self._context = _Context()
        self._pool = ProcessPoolExecutor(self.workers, mp_context=self._context, initializer=_begin)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """See `Executor.submit`; after the death of a process, in new processes."""
        try:
            return self._pool.submit(fn, *args, **kwargs)
        except BrokenProcessPool:
            self._start()
            return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            for process in self._context.started:
                process.kill()
        self.shutdown(cancel_futures=True)


class _Context(SpawnContext):
    """Starts fresh processes and remembers them. A forked one would inherit locks of threads that
    it lacks, and open pipes.
    """

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        """See `multiprocessing.Process`."""
        process = SpawnProcess(*args, **kwargs)
        self.started.append(process)
        return process


def require_portable(method: object) -> None:
    """Raise `UsageError` unless a method can be sent to another process."""
    try:
        ForkingPickler.dumps(method)
    except Exception as error:
        raise UsageError(
            f"The method cannot be sent to another process ({error}). Define it at the top level of"
            " a file, or take one worker."
        ) from error


def _begin() -> None:
    """Leave Ctrl-C to the parent, and end with it, also where it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
    os._exit(1)

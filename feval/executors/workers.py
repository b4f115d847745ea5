"""Executors of our own: processes of this machine that outlive the death of one of them, and the
workers of a Dask cluster.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from feval.errors import FevalError, UsageError
from feval.executors.tasks import run_task

if TYPE_CHECKING:
    from distributed import Client


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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
    except FevalError:
        raise
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


_SECONDS_TO_ANSWER, _SECONDS_TO_WORKERS = 10, 60
_SECONDS_TO_RECOUNT = 1.0


class Cluster(Executor):
    """An executor on a client's cluster. The cluster repeats the tasks of a worker that died, and
    the client stays open.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._counted: tuple[float, int] = (-_SECONDS_TO_RECOUNT, 0)

    @property
    def workers(self) -> int:
        """Threads of all workers now, at most a second ago; 1 at least."""
        then, count = self._counted
        if time.monotonic() - then >= _SECONDS_TO_RECOUNT:
            count = max(sum(self._client.nthreads().values()), 1)
            self._counted = time.monotonic(), count
        return count

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """See `Executor.submit`. The dashboard shows a task of `results` under the name of its
        function.
        """
        work = args[1] if fn is run_task else fn
        key = f"{getattr(work, '__name__', 'task')}-{uuid4().hex}"
        future: Future[_T] = self._executor.submit(fn, *args, key=key, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        self._executor.shutdown(wait and not cancel_futures)


def distributed(client: Client) -> Executor:
    """Return the executor of a Dask cluster, for `executor=` of `evaluate`, curves, `compare`,
    `estimate` and imports.

    The workers must have the same feval installed, and read the recordings from the same paths or
    from the Hub. An import sends the texts.

    Args:
        client: a `distributed.Client`; it stays open.
    """
    return Cluster(client)


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to the scheduler at tcp://HOST:PORT or tls://HOST:PORT, with the security settings of
    Dask's configuration.
    """
    if not address.startswith(("tcp://", "tls://")):
        raise UsageError(
            f"A scheduler's address is tcp://HOST:PORT or tls://HOST:PORT; {address!r:.100} was"
            " given."
        )
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError(
            f"The scheduler {address} was asked for, and Dask is not installed: pip install"
            " 'feval[dask]'."
        ) from error
    try:
        client = Client(address, timeout=_SECONDS_TO_ANSWER, set_as_default=False)
    except (OSError, TypeError, ValueError) as error:  # a wrong port or certificate, too
        raise UsageError(
            f"The scheduler {address} cannot be reached ({error}). Start one with `dask scheduler`,"
            " or correct the address."
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_SECONDS_TO_WORKERS)
        except TimeoutError as error:
            raise UsageError(
                f"The scheduler {address} has no worker. Start some with `dask worker {address}`,"
                " with feval installed."
            ) from error
        yield Cluster(client)

"""Run tasks on an executor: results in the order of the tasks, failures that do not depend on who
was faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import suppress
from copy import copy
from queue import SimpleQueue
from typing import Any, TypeVar

from feval import __version__
from feval.errors import ConflictError, FevalError, UsageError, command_line, is_typed
from feval.executors.progress import UncountedProgress, silent

_T = TypeVar("_T")

# tasks per worker that are under way, and that are not yet yielded: one of them may be slow
_RUNNING, _KEPT = 3, 8
_MOST_RUNS = 3  # of a task whose process died
_ENDED_AGAIN = (
    "The processes could not start or were ended. A script that asks for several workers must start"
    ' its work under `if __name__ == "__main__":`, and there must be memory for each. Or take one'
    " worker."
)


def results(
    function: Callable[..., _T],
    tasks: Iterable[tuple[Any, ...]],
    executor: Executor | None = None,
    progress: UncountedProgress | None = None,
    ahead: int = _KEPT,
) -> Iterator[_T]:
    """Yield `function(*task)` for each task, in the order of the tasks.

    A few tasks for each worker are under way at a time, taken from the iterable as others end.
    Where one fails, or the iterable does, later ones are cancelled, and its exception comes in its
    turn, so that it is the same on every executor. Those whose process died are run again, a few
    times. Leaving early cancels what is under way.

    Args:
        function: defined at the top level of a module.
        tasks: its arguments: paths, ranges, seeds; what can be pickled and is small.
        executor: `None` for this process.
        progress: called with (tasks done, tasks in all); the latter is `None` for an iterator.
        ahead: the most tasks for each worker that were taken and whose results were not yet
            yielded; few where these are large.

    Raises:
        UsageError: processes or workers of the cluster died again and again.
        ConflictError: another version of feval is installed on the workers.
    """
    total = len(tasks) if isinstance(tasks, Sized) else None
    report = progress or silent
    if executor is None:
        for done, task in enumerate(tasks, 1):
            result = function(*task)
            report(done, total)
            yield result
        return
    yield from _Tasks(
        function, iter(tasks), executor, lambda done: report(done, total), ahead
    ).results()


class _Tasks:
    """Tasks under way on an executor, and the outcomes that wait for their turn."""

    def __init__(
        self,
        function: Callable[..., Any],
        tasks: Iterator[tuple[Any, ...]],
        executor: Executor,
        report: Callable[[int], None],
        ahead: int,
    ) -> None:
        self._function, self._tasks, self._executor = function, tasks, executor
        self._report, self._ahead, self._taken = report, ahead, 0
        self._running: dict[Future[Any], tuple[int, tuple[Any, ...], int]] = {}
        self._ended: SimpleQueue[Future[Any]] = SimpleQueue()
        # A result leaves its future as soon as it is here: Dask would compute it again if the
        # worker that has it died.
        self._results: dict[int, Any] = {}
        self._errors: dict[int, BaseException] = {}
        self._done = 0

    def results(self) -> Iterator[Any]:
        turn = 0
        try:
            while self._fill() or turn in self._results or turn in self._errors:
                while turn not in self._results:
                    if turn in self._errors:
                        raise self._errors[turn]
                    self._take(self._ended.get())
                    self._fill()
                yield self._results.pop(turn)
                turn += 1
        finally:
            for future in [*self._running]:
                future.cancel()

    def _fill(self) -> bool:
        """Submit tasks while there is room and none has failed; return whether any is under way."""
        # other executors than ours have no name for how many tasks they run at a time
        workers = (
            getattr(self._executor, "workers", None)
            or getattr(self._executor, "_max_workers", None)
            or os.cpu_count()
            or 1
        )
        while not self._errors and len(self._running) < _RUNNING * workers:
            if len(self._running) + len(self._results) >= self._ahead * workers:
                break
            try:
                task = next(self._tasks, None)
            except Exception as error:  # noqa: BLE001  raised in its turn
                self._fail(self._taken, error)
                break
            if task is None:
                break
            self._submit(self._taken, task, 1)
            self._taken += 1
        return bool(self._running)

    def _submit(self, place: int, task: tuple[Any, ...], run: int) -> None:
        future = self._executor.submit(
            run_task, __version__, self._function, task, typed=is_typed()
        )
        self._running[future] = place, task, run
        future.add_done_callback(self._ended.put)

    def _take(self, future: Future[Any]) -> None:
        """Take over the outcome of a task that has ended; submit it again where its process
        died.
        """
        place, task, run = self._running.pop(future)
        try:
            self._results[place] = future.result()
        except BrokenExecutor as error:
            try:
                if run == _MOST_RUNS:
                    raise
                self._submit(place, task, run + 1)
            except BrokenExecutor:
                self._fail(place, _told(_ENDED_AGAIN, error))
        except CancelledError as error:
            # else it was cancelled here, behind a failure
            if min(self._errors, default=place) >= place:
                self._fail(place, _given_up(error))
        except BaseException as error:  # noqa: BLE001  raised in its turn
            self._fail(place, _given_up(error) if type(error).__name__ == "KilledWorker" else error)
        else:
            self._done += 1
            self._report(self._done)

    def _fail(self, place: int, error: BaseException) -> None:
        """Keep an error for its turn, and cancel what comes after it."""
        self._errors[place] = error
        for future, (later, *_) in [*self._running.items()]:
            if later > place:
                future.cancel()


def run_task(
    version: str, function: Callable[..., _T], task: tuple[Any, ...], *, typed: bool = False
) -> _T:
    """Run a task in a process that may be of another machine; `typed`: errors name options."""
    if version != __version__:
        raise ConflictError(
            f"This is feval {version}, and a worker has feval {__version__}, whose numbers may"
            " differ. Install the same on all."
        )
    try:
        with command_line(typed=typed):
            return function(*task)
    except Exception as error:
        if (sent := portable(error)) is error:
            raise
        raise sent from error


def portable(error: Exception) -> Exception:
    """Return an error as another process can make it: itself, or a sentence with its name and
    text.
    """
    with suppress(Exception):  # its `__init__` may want more than the text
        if type(copy(error)) is type(error):
            return error
    return FevalError(
        f"A task failed in a worker ({type(error).__name__}: {error}). Run it again with one worker"
        " to see where."
    )


def _told(sentence: str, cause: BaseException) -> UsageError:
    error = UsageError(sentence)
    error.__cause__ = cause
    return error


def _given_up(error: BaseException) -> UsageError:
    return _told(
        f"The cluster gave a task up ({type(error).__name__}): its workers died again and again, or"
        " its scheduler ended. There must be memory for each thread of a worker; the cluster's"
        " logs say more.",
        error,
    )

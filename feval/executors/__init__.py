"""Executors: work as tasks for this process, for processes of this machine (`--workers`) or for a
Dask cluster (`--workers tcp://HOST:PORT`).

A task is a module-level function with plain arguments. `opened` gives the executor that two options
ask for, `results` runs tasks on it and yields what they return in their order, whoever ran them,
how often and when. `None` is the executor of this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from feval.errors import UsageError
from feval.lazy import lazy_names

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.executors.progress import (
        Progress as Progress,
        UncountedProgress as UncountedProgress,
        reports as reports,
        set_progress as set_progress,
        silent as silent,
    )
    from feval.executors.tasks import results as results
    from feval.executors.workers import (
        distributed as distributed,
        require_portable as require_portable,
    )

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "workers": "distributed require_portable",
        "progress": "reports set_progress Progress UncountedProgress silent",
        "tasks": "results",
    },
)


@contextmanager
def opened(
    workers: int = 1, scheduler: str | None = None, *, given: Executor | None = None
) -> Iterator[Executor | None]:
    """Open the executor of so many processes, or of the Dask cluster at an address; `None`, this
    process, for one worker.

    Where the body raises, Ctrl-C included, processes are ended and tasks of the cluster cancelled.
    An executor that is `given` takes the place of both, and stays open.

    Raises:
        UsageError: both were asked for, or the cluster cannot be reached, has no worker, or needs
            the extra `dask`.
    """
    if given is not None:
        yield given
        return
    if scheduler is not None and workers != 1:
        raise UsageError(
            f"{workers} workers and the scheduler {scheduler} were asked for; a cluster has its"
            " own. Leave one of them out."
        )
    if workers < 1:
        raise UsageError(f"{workers} workers were asked for; 1 is the least.")
    if scheduler is None and workers == 1:
        yield None
        return
    from feval.executors.workers import Processes, connected  # most work needs neither

    with Processes(workers) if scheduler is None else connected(scheduler) as executor:
        yield executor

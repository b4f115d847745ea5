"""The executor that `--workers` and `--scheduler` ask for, for as long as it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from feval.errors import UsageError

if TYPE_CHECKING:
    from concurrent.futures import Executor


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
    if scheduler is not None:
        from feval.executors.cluster import connected  # most work needs neither

        with connected(scheduler) as executor:
            yield executor
    elif workers == 1:
        yield None
    else:
        from feval.executors.processes import Processes

        with Processes(workers) as processes:
            yield processes

"""Executors: what an empty task costs, what a second worker brings, and how much runs again where a
worker is killed.

Seconds are those of the clock here, for a task waits for others; a busy machine makes all of them
longer.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import feval
from benchmarks.measure import Goal, Workspace
from feval.executors import results
from feval.executors.workers import Processes

EMPTY, SHARED, KILLED = 300, 24, 60
TASK_SECONDS = 0.1


def goals(_: Workspace) -> list[Goal]:
    """Of a pool of processes, and of a Dask cluster with workers of one thread."""
    return [*_pool_goals(), *_cluster_goals()]


def nothing() -> None:
    """Do nothing: a task."""


def busy(folder: str | None = None) -> None:
    """Compute for a while, and leave a mark of having begun: a task."""
    if folder is not None:
        tempfile.mkstemp(dir=folder)
    end = time.process_time() + TASK_SECONDS
    while time.process_time() < end:
        sum(range(1000))


def seconds(
    function: Callable[..., None], tasks: list[tuple[Any, ...]], executor: Executor
) -> float:
    """Return the seconds that tasks take on an executor whose workers have started."""
    began = time.perf_counter()
    for _ in results(function, tasks, executor):
        pass
    return time.perf_counter() - began


def _empty(who: str, executor: Executor) -> Goal:
    cpu = time.process_time()
    took = seconds(nothing, [()] * EMPTY, executor) / EMPTY
    note = f"{(time.process_time() - cpu) / EMPTY * 1000:.2g} ms of CPU in this process"
    return Goal(f"an empty task, {who}", took * 1000, None, "ms", note=note)


def _pool_goals() -> Iterator[Goal]:
    took = {}
    for workers in (1, 2):
        with Processes(workers) as pool:
            seconds(nothing, [()] * 8, pool)
            took[workers] = seconds(busy, [()] * SHARED, pool)
            empty = _empty("2 processes", pool)
    yield empty
    yield _speed("2 processes", took[1], took[2])


def _cluster_goals() -> Iterator[Goal]:
    with _cluster() as (cluster, client):
        executor = feval.distributed(client)
        seconds(nothing, [()] * 8, executor)
        alone = seconds(busy, [()] * SHARED, executor)
        cluster.scale(2)
        client.wait_for_workers(2)
        executor = feval.distributed(client)
        seconds(nothing, [()] * 8, executor)
        yield _empty("Dask", executor)
        yield _speed("2 workers of Dask", alone, seconds(busy, [()] * SHARED, executor))
        yield Goal(
            f"tasks of {KILLED} that run again after the death of 1 of 2 workers",
            _repeated(client, executor),
            8,
            "",
        )


def _speed(who: str, alone: float, shared: float) -> Goal:
    note = f"{SHARED} tasks of {TASK_SECONDS} s of CPU: {alone:.1f} s by one, {shared:.1f} s by two"
    return Goal(f"throughput of {who} over 1", alone / shared, None, "x", at_least=True, note=note)


def _repeated(client: Any, executor: Executor) -> int:
    """Kill a worker when a third of the tasks are done, and count those that began more than
    once.
    """
    with tempfile.TemporaryDirectory() as folder:
        for done, _ in enumerate(results(busy, [(folder,)] * KILLED, executor), 1):
            if done == KILLED // 3:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        return len(list(Path(folder).iterdir())) - KILLED


@contextmanager
def _cluster() -> Iterator[tuple[Any, Any]]:
    from distributed import Client, LocalCluster

    local = LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None)
    with local as cluster, Client(cluster, set_as_default=False) as client:
        yield cluster, client

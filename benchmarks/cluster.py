"""A cluster as a discrete model: what a run takes on many workers, from constants that are measured
on one machine.

One scheduler hands out tasks one after another, one client takes results one after another, workers
open the recording with their first task and compute one task at a time; some die, are started anew,
and their task runs again. Nothing else is modelled: shared disks and networks are as fast as the
tasks need them, which `docs/scale.md` sets limits to.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cluster:
    """Constants, in seconds.

    Attributes:
        workers: processes that compute.
        task_s: mean time of a task.
        spread: standard deviation of a task's time over its mean.
        hand_out_s: what the scheduler takes for a task, whatever it does.
        gather_s: what the client takes for a result.
        open_s: what a worker takes to import feval and open the recording.
        life_s: mean time until a worker dies.
        start_s: until another one is there.
    """

    workers: int
    task_s: float
    spread: float = 0.2
    hand_out_s: float = 0.004
    gather_s: float = 0.002
    open_s: float = 1.0
    life_s: float = 100 * 3600.0
    start_s: float = 60.0


@dataclass(frozen=True)
class Makespan:
    """What a run took: seconds until the last result, and how many tasks ran again."""

    seconds: float
    repeated: int

    def efficiency(self, cluster: Cluster, tasks: int) -> float:
        """Useful work over the workers' time."""
        return tasks * cluster.task_s / (self.seconds * cluster.workers)


def run(cluster: Cluster, tasks: int, seed: int = 0) -> Makespan:
    """Play a run of so many tasks."""
    rng = np.random.default_rng(seed)
    # when, who, whether it has to open the recording
    free = [(0.0, worker, True) for worker in range(cluster.workers)]
    dies = rng.exponential(cluster.life_s, cluster.workers)
    scheduler = client = 0.0
    left, repeated = tasks, 0
    while left:
        at, worker, is_new = heapq.heappop(free)
        scheduler = begins = max(at, scheduler) + cluster.hand_out_s
        shape = 1 / max(cluster.spread, 1e-9) ** 2
        ends = begins + cluster.open_s * is_new + cluster.task_s * rng.gamma(shape) / shape
        if dies[worker] < ends:
            back = max(at, dies[worker]) + cluster.start_s
            dies[worker] = back + rng.exponential(cluster.life_s)
            repeated += 1
            heapq.heappush(free, (back, worker, True))
            continue
        left -= 1
        client = max(client, ends) + cluster.gather_s
        heapq.heappush(free, (ends, worker, False))
    return Makespan(client, repeated)

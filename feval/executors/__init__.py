"""Executors: work as tasks for this process, for processes of this machine (`--workers`) or for a
Dask cluster (`--scheduler`).

A task is a module-level function with plain arguments. `opened` gives the executor that two options
ask for, `results` runs tasks on it and yields what they return in their order, whoever ran them,
how often and when. `None` is the executor of this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.executors.cluster import distributed as distributed
    from feval.executors.opening import opened as opened
    from feval.executors.processes import require_portable as require_portable
    from feval.executors.progress import reports as reports
    from feval.executors.progress import set_progress as set_progress
    from feval.executors.tasks import results as results

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "cluster": ("distributed",),
        "opening": ("opened",),
        "processes": ("require_portable",),
        "progress": ("reports", "set_progress"),
        "tasks": ("results",),
    },
)

"""Evaluate blocks of questions in several processes.

Each process opens the recordings anew, which takes a millisecond, instead of being sent their arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, TypeVar

from feval.errors import UsageError
from feval.methods.arrays import Rows
from feval.replay.loading import LoadRecipe

if TYPE_CHECKING:
    from feval.replay.dataset import Dataset
    from feval.replay.llm import LLM

_T = TypeVar("_T")


def map_blocks(
    work: Callable[[Dataset, Sequence[LLM], Rows], _T],
    dataset: Dataset,
    llms: Sequence[LLM],
    blocks: Sequence[Rows],
    workers: int,
) -> list[_T]:
    """Apply a picklable function to blocks of questions in processes, and return its results in their order.

    Raises:
        UsageError: the work cannot be sent to another process: a method defined inside a function, for example.
    """
    try:
        ForkingPickler.dumps(work)
    except Exception as error:
        raise UsageError(
            f"The method cannot be sent to another process ({error}). Define it at the top level of a file, or take one worker."
        ) from error
    # "spawn": a forked process would inherit locks of threads that it lacks, and open pipes.
    pool = ProcessPoolExecutor(min(workers, len(blocks)), mp_context=get_context("spawn"))
    try:
        with pool:
            return list(pool.map(partial(_run, work, LoadRecipe.of(dataset, llms)), blocks))
    except BrokenExecutor as error:
        raise UsageError(
            f"The {workers} processes could not start or were ended. A script that asks for several workers must start its work "
            'under `if __name__ == "__main__":`, and there must be memory for each. Or take one worker.'
        ) from error


def _run(work: Callable[[Dataset, Sequence[LLM], Rows], _T], recipe: LoadRecipe, rows: Rows) -> _T:
    dataset, llms = recipe.load()
    return work(dataset, llms, rows)

"""Evaluate blocks of questions in several processes.

Each process opens the recordings anew, which takes a millisecond, instead of being sent their arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from copy import copy
from functools import partial
from itertools import repeat
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, TypeVar

from feval.errors import UsageError
from feval.evaluation.user_methods import MethodFile
from feval.methods.arrays import Rows
from feval.replay.loading import LoadRecipe

if TYPE_CHECKING:
    from feval.replay.dataset import Dataset
    from feval.replay.llm import LLM

_T = TypeVar("_T")


def map_blocks(
    work: Callable[[Any, Dataset, Sequence[LLM], Rows], _T],
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    blocks: Sequence[Rows],
    workers: int,
) -> list[_T]:
    """Apply a picklable function to a method and blocks of questions in processes, and return its results in their order.

    Raises:
        UsageError: the method cannot be sent to another process: one defined inside a function, for example.
    """
    if isinstance(method, MethodFile):
        return _map_copies(work, method, dataset, llms, blocks)
    try:
        ForkingPickler.dumps(method)
    except Exception as error:
        raise UsageError(
            f"The method cannot be sent to another process ({error}). Define it at the top level of a file, or take one worker."
        ) from error
    # "spawn": a forked process would inherit locks of threads that it lacks, and open pipes.
    pool = ProcessPoolExecutor(min(workers, len(blocks)), mp_context=get_context("spawn"))
    try:
        with pool:
            return list(pool.map(partial(_run, work, method, LoadRecipe.of(dataset, llms)), blocks))
    except BrokenExecutor as error:
        raise UsageError(
            f"The {workers} processes could not start or were ended. A script that asks for several workers must start its work "
            'under `if __name__ == "__main__":`, and there must be memory for each. Or take one worker.'
        ) from error


def _map_copies(
    work: Callable[[Any, Dataset, Sequence[LLM], Rows], _T],
    method: MethodFile,
    dataset: Dataset,
    llms: Sequence[LLM],
    blocks: Sequence[Rows],
) -> list[_T]:
    """The same for a method from a file: each copy has a process of its own, so that threads may wait for them."""
    copies = [copy(method) for _ in blocks]
    with ThreadPoolExecutor(len(blocks)) as threads:
        try:
            return list(threads.map(work, copies, repeat(dataset), repeat(llms), blocks))
        except BaseException:  # Ctrl-C, too, which those processes do not see
            for each in copies:
                each.end()
            raise


def _run(work: Callable[[Any, Dataset, Sequence[LLM], Rows], _T], method: Any, recipe: LoadRecipe, rows: Rows) -> _T:
    dataset, llms = recipe.load()
    return work(method, dataset, llms, rows)

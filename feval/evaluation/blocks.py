"""Evaluate blocks of questions: in this process, so that memory does not grow with them, or as
tasks of an executor.

A task opens the recordings where it runs, unless its process has them open, instead of being sent
their arrays.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from feval import executors
from feval.errors import NotARecordingError
from feval.evaluation.user_methods import MethodFile
from feval.methods.protocol import BatchMethod, Rows
from feval.replay.loading import LoadRecipe
from feval.replay.pools import without_gaps

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.replay.dataset import Dataset
    from feval.replay.llm import LLM

_T = TypeVar("_T")
Work = Callable[[Any, "Dataset", Sequence["LLM"], Rows], _T]
"""(method, dataset, LLMs, rows) -> a result for these questions, which must not depend on the
others.
"""

_QUESTIONS = 1 << 12  # worked on at once
_TASK_SECONDS = 0.5  # the least; an empty task of a cluster takes a few milliseconds
_TRIAL_SECONDS = 0.1  # in this process, to see how long a question takes
# a worker may have several threads, and loading hides warnings from all of them
_LOADING = threading.Lock()


def block_results(
    work: Work[_T],
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    executor: Executor | None = None,
) -> Iterator[tuple[slice, _T]]:
    """Yield results for blocks of questions with the places of their rows, in order.

    A method that is not a batch method gets all its questions at once in this process: its batches
    do not grow.

    Raises:
        UsageError: the method cannot be sent to another process: one defined inside a function, for
            example.
    """
    if executor is not None:
        yield from _shared(work, method, dataset, llms, rows, executor)
        return
    for block in _cut(
        0, len(rows), _QUESTIONS if isinstance(method, BatchMethod) else max(len(rows), 1)
    ):
        yield block, work(method, dataset, llms, rows[block])


def _cut(start: int, stop: int, size: int) -> Iterator[slice]:
    return (slice(place, min(place + size, stop)) for place in range(start, stop, size))


def _shared(
    work: Work[_T],
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    executor: Executor,
) -> Iterator[tuple[slice, _T]]:
    """Work on a few questions here, ever more until that takes a while, and share the others in
    tasks of half a second.
    """
    executors.require_portable(method)
    block, seconds = slice(0, 0), 0.0
    while block.stop < len(rows) and seconds < _TRIAL_SECONDS:
        size = min(4 * (block.stop - block.start) or 1, _QUESTIONS, len(rows) - block.stop)
        block = slice(block.stop, block.stop + size)
        began = time.perf_counter()
        result = work(method, dataset, llms, rows[block])
        seconds = time.perf_counter() - began
        yield block, result
    questions = math.ceil(_TASK_SECONDS / max(seconds, 1e-9) * (block.stop - block.start))
    recipe, cuts = LoadRecipe.from_loaded(dataset, llms), [*_cut(block.stop, len(rows), questions)]
    tasks = ((work, method, recipe, without_gaps(rows[cut])) for cut in cuts)
    for cut, results in zip(cuts, executors.results(question_block, tasks, executor), strict=True):
        for part, result in results:
            yield slice(cut.start + part.start, cut.start + part.stop), result


def question_block(
    work: Work[_T], method: Any, recipe: LoadRecipe, rows: Rows | slice
) -> list[tuple[slice, _T]]:
    """Work on a block of questions in a process that opens the recordings itself: a task."""
    dataset, llms = loaded(recipe)
    return list(block_results(work, _running(method), dataset, llms, with_numbers(rows)))


def with_numbers(rows: Rows | slice) -> Rows:
    """Return the rows that `without_gaps` made a slice of, which is sent in a few bytes."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def loaded(recipe: LoadRecipe) -> tuple[Dataset, list[LLM]]:
    """Return what a recipe loads in this process, once for the tasks of a run."""
    with _LOADING:
        return _loaded(recipe)


@lru_cache(maxsize=4)
def _loaded(recipe: LoadRecipe) -> tuple[Dataset, list[LLM]]:
    try:
        return recipe.load()
    except NotARecordingError as error:
        raise NotARecordingError(
            f"A worker cannot open the recording: {error} Workers read it from the same path, or"
            " from the Hub (hf://)."
        ) from error


_files = threading.local()  # method: the last MethodFile of this thread


def _running(method: Any) -> Any:
    """Return the equal method whose process runs already in this thread, if there is one."""
    if not isinstance(method, MethodFile):
        return method
    last: MethodFile | None = getattr(_files, "method", None)
    if last is None or (last, last.source) != (method, method.source):
        _files.method = method
    return _files.method

"""Blocks of questions in processes of their own.

Each process opens the recordings anew, which takes a millisecond, instead of being sent their arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from feval.errors import UsageError
from feval.replay import load

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset

__all__ = ["map_blocks"]

Rows = npt.NDArray[np.intp]
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Opened:
    """How to open what was opened: enough for draws and votes; dollars are counted where the blocks come together."""

    recordings: tuple[Path, ...]
    dataset: str
    llms: tuple[str, ...]
    seed: int
    billing: str

    def load(self) -> tuple[Dataset, list[LLM]]:

        return load(self.dataset, self.llms, self.recordings, seed=self.seed, prices="none", billing=self.billing)


def map_blocks(
    work: Callable[[Dataset, Sequence[LLM], Rows], _T],
    dataset: Dataset,
    llms: Sequence[LLM],
    blocks: Sequence[Rows],
    workers: int,
) -> list[_T]:
    """Apply work to blocks of questions, in processes.

    Args:
        work: a picklable function of dataset, LLMs and rows.
        dataset: from `load`.
        llms: from the same `load`, with one seed and billing.
        blocks: rows of questions.
        workers: most processes.

    Returns:
        What the work gave for each block, in their order.

    Raises:
        UsageError: the work cannot be sent to another process: a method defined inside a function, for example.
    """
    opened = _Opened(
        dataset.recording_paths, dataset.id, tuple(llm.name for llm in llms), llms[0].seed, llms[0].billing
    )
    try:
        ForkingPickler.dumps(work)
    except Exception as error:
        raise UsageError(
            f"The method cannot be sent to another process ({error}). Define it at the top level of a file, or take one worker."
        ) from error
    try:
        with ProcessPoolExecutor(min(workers, len(blocks)), mp_context=get_context("spawn")) as pool:
            return list(pool.map(_run, [work] * len(blocks), [opened] * len(blocks), blocks))
    except BrokenExecutor as error:
        raise UsageError(
            f"The {workers} processes could not start or were ended. A script that asks for several workers must start its work "
            'under `if __name__ == "__main__":`, and there must be memory for each. Or take one worker.'
        ) from error


def _run(work: Callable[[Dataset, Sequence[LLM], Rows], _T], opened: _Opened, rows: Rows) -> _T:
    dataset, llms = opened.load()
    return work(dataset, llms, rows)

"""Blocks of questions of one LLM on one dataset: read by tasks, or in another order than the
recorded one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from threading import get_ident
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from feval.errors import ConflictError, DamagedRecordingError
from feval.recording.content import PoolRows, ProbeRows, Question
from feval.recording.reader import Recording, open_recording

_T = TypeVar("_T")
_Rows = TypeVar("_Rows", PoolRows, ProbeRows)
_BLOCK_COTS = 1 << 14
"""CoTs of a block: half a second or more of extraction."""
_BLOCK_QUESTIONS = 1024
"""Questions that are held in memory at once where two recordings have them in different orders."""


class Block(NamedTuple):
    """Some questions, by their rows, of an LLM on a dataset in the recording with a hash."""

    path: str
    recording_hash: str
    dataset: str
    llm: str
    first: int
    stop: int

    def recording(self) -> Recording:
        """The recording, opened once in each thread."""
        return _opened(self.path, self.recording_hash, get_ident())

    def texts(self) -> Iterator[list[str | None]]:
        """The texts, one row group at a time."""
        recording = self.recording()
        return recording.scan_texts(self.dataset, self.llm, range(self.first, self.stop))

    def pools(self) -> Iterator[tuple[Question, PoolRows]]:
        """The questions that have a pool, and their pools."""
        recording, rows = self.recording(), range(self.first, self.stop)
        return with_questions(
            recording.scan_questions(self.dataset, rows),
            recording.pools(self.dataset, self.llm, rows),
        )


def blocks(
    recording: Recording,
    dataset: str,
    llm: str,
    *,
    cots: int | None = None,
    most_questions: int | None = None,
) -> Iterator[Block]:
    """Yield all questions in order, in blocks of so many CoTs: half a second or more of extraction
    where no number is given.
    """
    count = recording.manifest.datasets[dataset]["questions"]
    step = max(
        1, (cots or _BLOCK_COTS) * count // max(recording.manifest.pairs[dataset, llm]["cots"], 1)
    )
    step = step if most_questions is None else min(step, most_questions)
    for first in range(0, count, step):
        stop = min(first + step, count)
        yield Block(str(recording.path.absolute()), recording.hash, dataset, llm, first, stop)


def with_questions(
    questions: Iterable[Question], pools: Iterable[_Rows]
) -> Iterator[tuple[Question, _Rows]]:
    """Yield pools, or probes, with their questions, which come in the same order."""
    rows = iter(questions)
    for pool in pools:
        for question in rows:
            if question.id == pool.question_id:
                yield question, pool
                break
        else:
            raise DamagedRecordingError(
                f"The CoTs of {pool.question_id!r:.80} come twice or out of order; `feval verify`"
                " lists all problems."
            )


@lru_cache(16)
def _opened(path: str, recording_hash: str, thread: int) -> Recording:  # noqa: ARG001  threads do not share open files
    recording = open_recording(path)
    if recording.hash != recording_hash:
        raise ConflictError(
            f"The recording {path} should have the hash {recording_hash[:12]}, and a worker found"
            f" {recording.hash[:12]} there. All workers must see the same files at this path."
        )
    return recording


def in_order(
    read: Callable[[], Iterator[_T]], places: npt.NDArray[np.int64]
) -> Iterator[tuple[int, _T]]:
    """Yield what `read` yields, whose item i belongs at `places[i]`, by place and with it.

    It is read once for each rising run of items, or for each block of them where runs are short.
    """
    order = np.argsort(places, kind="stable")
    ends = [*(np.flatnonzero(np.diff(order) < 0) + 1).tolist(), len(order)]
    start = 0
    while start < len(order):
        end = max(ends[bisect_right(ends, start)], min(start + _BLOCK_QUESTIONS, len(order)))
        wanted = np.zeros(len(order), np.bool_)
        wanted[order[start:end]] = True
        waiting: dict[int, _T] = {}
        for position, item in enumerate(read()):
            if wanted[position]:
                waiting[position] = item
            while start < end and int(order[start]) in waiting:
                place = int(order[start])
                yield int(places[place]), waiting.pop(place)
                start += 1
            if start == end:
                break

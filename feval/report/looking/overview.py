"""The questions of a recording, the hardest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.recording import NO_ANSWER

if TYPE_CHECKING:
    from feval.recording import Recording

_BLOCK = 1 << 16
"""Questions that are counted at once, so that memory does not grow with their CoTs."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """How some LLMs (L) did on the questions (Q) of a dataset.

    A CoT counts where it is whole; of an LLM that was recorded as trees, the steps that end a
    solution do.

    Attributes:
        dataset: its id.
        llms: their names.
        question_ids: by row.
        accuracy: [L, Q] share of the CoTs that are right; NaN where there is no gold or no CoT.
        cots: [L, Q] how many there are.
        agreement: [Q] share of the CoTs of all these LLMs that give the most frequent answer; NaN
            without CoTs.
        order: [Q] rows, the lowest mean accuracy first; where that is equal the lowest agreement,
            and last those without gold.
    """

    dataset: str
    llms: tuple[str, ...]
    question_ids: Sequence[str]
    accuracy: Floats
    cots: npt.NDArray[np.int64]
    agreement: Floats
    order: npt.NDArray[np.intp]


def overview(recording: Recording, dataset: str, llms: Sequence[str]) -> Overview:
    """Return how some LLMs did on each question of a dataset."""
    recording.prepare(dataset, llms)
    votes = recording.votes(dataset)
    starts = np.concatenate([[0], np.cumsum(votes.candidate_counts(), dtype=np.int64)])
    counts = np.zeros(starts[-1], np.int64)
    right, cots = np.zeros((2, len(llms), len(votes)), np.int64)
    for place, llm in enumerate(llms):
        own, steps = votes.llms[llm], recording.steps(dataset, llm)
        for start in range(0, len(votes), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(votes)))
            first, end = starts[rows.start], starts[rows.stop]
            codes = own.codes[rows]
            answered = codes >= 0
            given = (starts[rows, None] - first + codes)[answered]
            counts[first:end] += np.bincount(given, minlength=end - first)
            right[place, rows] = ((codes == votes.gold[rows, None]) & answered).sum(1)
        cots[place] = own.sizes if steps is None else steps.ends.sum(1)
    with np.errstate(invalid="ignore"):
        accuracy = np.where(votes.gold == NO_ANSWER, np.nan, right / cots)
        agreement = _largest(counts, starts) / cots.sum(0)
    order = np.lexsort((_last(agreement), _last(_mean(accuracy))))
    return Overview(dataset, tuple(llms), votes.question_ids, accuracy, cots, agreement, order)


def _largest(counts: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[Q] the largest count between two starts; 0 where there is none."""
    largest = np.zeros(len(starts) - 1, np.int64)
    some = np.diff(starts) > 0
    if some.any():
        largest[some] = np.maximum.reduceat(counts, starts[:-1][some])
    return largest


def _mean(shares: Floats) -> Floats:
    known = ~np.isnan(shares)
    total = np.where(known, shares, 0.0).sum(0)
    mean: Floats = np.divide(
        total, known.sum(0), out=np.full(len(total), np.nan), where=known.any(0)
    )
    return mean


def _last(shares: Floats) -> Floats:
    return np.nan_to_num(shares, nan=np.inf)


def overview_dict(shown: Overview, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Return some questions (by row) as JSON values."""
    return [
        {
            "dataset": shown.dataset,
            "id": shown.question_ids[row],
            "accuracy": {llm: share(shown.accuracy[i, row]) for i, llm in enumerate(shown.llms)},
            "agreement": share(shown.agreement[row]),
            "cots": {llm: int(shown.cots[i, row]) for i, llm in enumerate(shown.llms)},
        }
        for row in rows
    ]


def share(value: float) -> float | None:
    """Return a share; `None` for NaN."""
    return None if np.isnan(value) else float(value)

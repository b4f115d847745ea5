"""Steps as arrays: the trees that pools consist of where an LLM was recorded step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


def path_texts(texts: Sequence[str | None], parents: Sequence[int | None], stop: str = "") -> Iterator[str | None]:
    """Yield the text of the path to each step of a tree; `None` where a step of it has none.

    Where a step does not end with the stop text, that text joins it to the next one, its last blanks only where neither has any.
    """
    kept = stop.rstrip(" ")
    paths: list[str | None] = []
    for text, parent in zip(texts, parents, strict=True):
        before = "" if parent is None else paths[parent]
        if before and text is not None:
            before += "" if before.rstrip(" ").endswith(kept) else kept
            before += "" if before.endswith(" ") or text.startswith(" ") else stop[len(kept) :]
        paths.append(None if before is None or text is None else before + text)
        yield paths[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The trees of one LLM on Q questions (S steps the largest): the columns of its pools are steps, not whole CoTs.

    Attributes:
        parents: [Q, S] place of the step before each one, -1 for a first step, -2 where there is no step. It rises, so that the
            children of a step follow each other.
        ends: [Q, S] 1 where a step ends a solution, else 0.
    """

    parents: npt.NDArray[np.signedinteger[Any]]
    ends: npt.NDArray[np.uint8]

    def rows(self, rows: Any) -> Steps:
        """The steps of some questions, in the order given."""
        return Steps(self.parents[rows], self.ends[rows])

    def children(self, row: int, step: int) -> range:
        """The places of the steps recorded after a step of a question, or of its first steps (-1)."""
        recorded = self.parents[row][self.parents[row] > -2]
        return range(int(recorded.searchsorted(step)), int(recorded.searchsorted(step, "right")))

    def holds(self, row: int, columns: Mapping[str, Sequence[Any]]) -> bool:
        """Whether a question has the steps that its rows in the Parquet file say."""
        parents = [-1 if parent is None else parent for parent in columns["parent"]]
        absent = [-2] * (self.parents.shape[1] - len(parents))
        ends = [*map(int, columns["ends"]), *(0 for _ in absent)]
        return bool(self.parents[row].tolist() == parents + absent and self.ends[row].tolist() == ends)

    def check(self, codes: npt.NDArray[np.signedinteger[Any]], sizes: npt.NDArray[np.integer[Any]]) -> None:
        """Check that the steps are trees of the pools with these codes [Q, S] and sizes [Q]; others are a `ValueError`."""
        width = codes.shape[1]
        if self.parents.shape != codes.shape or self.ends.shape != codes.shape:
            raise ValueError("its steps have another shape than the answers")
        present = np.arange(width) < sizes[:, None]
        parents = np.where(present, self.parents, width)
        if (self.parents[~present] != -2).any() or (parents < -1).any() or (np.diff(parents, axis=1) < 0).any():
            raise ValueError("its steps should come in the order of their parents")
        if (present & (parents >= np.arange(width))).any() or (self.ends > present).any():
            raise ValueError("its steps should come behind their parents")
        follows = present & (parents >= 0)
        before = np.take_along_axis(self.ends, np.where(follows, parents, 0).astype(np.intp), axis=1)
        if (follows & (before > 0)).any() or ((codes >= 0) & (self.ends == 0)).any():
            raise ValueError("a step goes on from the end of a solution, or has an answer and is no end")

"""The questions of a source in their order: their content is in a temporary file, so that a million
of them fit into memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import finalize

import orjson

from feval.importers.source import SourceQuestion
from feval.recording.sealing.spill import Spill


class StoredQuestions(Sequence[SourceQuestion]):
    """A list of questions that takes 16 bytes of memory for each; `scratch` is the folder of the
    file, as in `ImportRequest`.
    """

    def __init__(self, scratch: Path | None) -> None:
        self._file = Spill(scratch)
        finalize(self, self._file.close)
        self._places = array("Q")
        self._sizes = array("Q")
        self._last: tuple[int, SourceQuestion] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if self._last is None or self._last[0] != index:
            data = orjson.loads(self._file.read(self._places[index], self._sizes[index]))
            self._last = index, _question(*data)
        return self._last[1]

    def __iter__(self) -> Iterator[SourceQuestion]:
        return (self[index] for index in range(len(self)))

    def append(self, question: SourceQuestion) -> None:
        """Add a question at the end."""
        self._places.append(0)
        self._sizes.append(0)
        self[len(self) - 1] = question

    def __setitem__(self, index: int, question: SourceQuestion) -> None:
        data = orjson.dumps((question.id, question.text, question.gold, question.choices))
        self._places[index], self._sizes[index] = self._file.write(data), len(data)
        self._last = index, question


def _question(
    name: str, text: str | None, gold: str | None, choices: list[list[str]]
) -> SourceQuestion:
    return SourceQuestion(name, text, gold, tuple((label, text) for label, text in choices))

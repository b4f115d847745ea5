"""Rows and questions of a source in a temporary file without a name, so that a million questions
fit into memory; it is gone when it is closed and when the process is killed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from feval.errors import SourceError
from feval.importers.source import SourceQuestion
from feval.recording.layout.files import Spill


class StoredRows:
    """Rows (JSON values) by number of their group (an LLM, a scorer) and question, added in any
    order; those of one question stay in the order in which they were added.

    `scratch` is the folder of the file, as in `ImportRequest`. Four numbers stay in memory for rows
    of one question that were added one after the other.
    """

    def __init__(self, scratch: Path | None) -> None:
        self._file = Spill(scratch)
        self._last, self._rows = (0, 0), bytearray()  # that are not in the file yet
        self._index = array("Q")  # group, question, place and bytes of each piece of the file

    def add(self, group: int, question: int, row: Any) -> None:
        """Add a row; one with broken Unicode, as in the name of a file, is a `SourceError`."""
        try:
            data = orjson.dumps(row)
        except TypeError as error:
            raise SourceError(
                f"A row cannot be kept ({error}): texts and the names of files, columns and scorers"
                " are valid Unicode. Rename the file or the scorer."
            ) from error
        if self._last != (group, question):
            self._flush()
            self._last = group, question
        self._rows += data + b","

    def _flush(self) -> None:
        if self._rows:
            place = self._file.write(bytes(self._rows))
            self._index.extend((*self._last, place, len(self._rows)))
            self._rows.clear()

    def questions(self, group: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number of each question of a group, ascending, with its rows."""
        self._flush()
        index = np.array(self._index).reshape(-1, 4)
        index = index[index[:, 0] == group, 1:]
        ordered = index[np.lexsort((index[:, 1], index[:, 0]))]
        for question, pieces in groupby(map(np.ndarray.tolist, ordered), itemgetter(0)):
            rows = b"".join(self._file.read(*piece) for _, *piece in pieces)
            yield question, orjson.loads(b"[%b]" % rows[:-1])


class StoredQuestions(Sequence[SourceQuestion]):
    """A list of questions that takes 16 bytes of memory for each."""

    def __init__(self, scratch: Path | None) -> None:
        self._file = Spill(scratch)
        self._places = array("Q")
        self._sizes = array("Q")
        self._last: tuple[int, SourceQuestion] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if self._last is None or self._last[0] != index:
            *own, choices, features = orjson.loads(
                self._file.read(self._places[index], self._sizes[index])
            )
            self._last = (
                index,
                SourceQuestion(*own, *(tuple(map(tuple, pairs)) for pairs in (choices, features))),
            )
        return self._last[1]

    def __iter__(self) -> Iterator[SourceQuestion]:
        return (self[index] for index in range(len(self)))

    def append(self, question: SourceQuestion) -> None:
        """Add a question at the end."""
        self._places.append(0)
        self._sizes.append(0)
        self[len(self) - 1] = question

    def __setitem__(self, index: int, question: SourceQuestion) -> None:
        data = orjson.dumps(
            [getattr(question, name) for name in SourceQuestion.__dataclass_fields__]
        )
        self._places[index], self._sizes[index] = self._file.write(data), len(data)
        self._last = index, question

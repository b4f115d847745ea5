"""The files of one part of an LLM on a dataset as they are written: one, or several where one would
grow too large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from feval.recording.content import OPTIONAL_COLUMNS
from feval.recording.layout.format import PROBES, SCORES, file_path, part_path
from feval.recording.parquet.writing import NARROW_GROUP_ROWS, ParquetFile, Schema

FILE_BYTES = 1 << 30
"""A file that has so many bytes ends with its row group; the next question begins another."""
_SMALLEST_TEXT_GROUP_BYTES, _LARGEST_TEXT_GROUP_BYTES, _TEXT_GROUPS = 192 << 10, 2 << 20, 512
_NARROW_GROUP_BYTES = 8 << 20
_NARROW_PARTS = ("requests", "samples", "steps", "turns", PROBES)
_NARROW_COLUMNS = {
    *(
        "llm",
        "question_id",
        "sample_index",
        "correct",
        "output_tokens",
        "finish_reason",
        "offset",
        "confidence",
        "parent",
    ),
    "ends",
    *OPTIONAL_COLUMNS,
}
"""Columns whose bytes do not count: only long values end a group early."""


class PartFiles:
    """Writes the rows of a part question by question, in row groups of whole questions and files of
    about `FILE_BYTES`.

    Groups of texts and channels grow with their file, so that one text is a small read and the
    footer stays small. `claim` registers the path of a file before it is written, `key` is part,
    dataset, LLM.
    """

    def __init__(
        self, claim: Callable[[str], str], root: Path, key: tuple[str, str, str], schema: Schema
    ) -> None:
        self._claim, self._root = claim, root
        self._key, self._schema = key, schema
        self._grows = key[0] not in _NARROW_PARTS and not key[0].startswith(SCORES)
        self._long = [name for name in schema[0].names if name not in _NARROW_COLUMNS]
        self._records: dict[str, dict[str, Any]] = {}
        self._open(file_path(*key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def add(self, question: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add the rows of a question, as columns of equal length; without `sample_index` they are
        all of its CoTs.
        """
        rows = len(next(iter(columns.values())))
        if not rows:
            return
        if self._file.size >= FILE_BYTES:
            self._continue()
        self._questions.append(question)
        self._counts.append(rows)
        for name, values in columns.items():
            self._columns.setdefault(name, []).extend(values)
        self._rows += rows
        self._size += sum(_bytes(columns[name]) for name in self._long if name in columns)
        if self._size >= self._group_bytes() or self._rows >= NARROW_GROUP_ROWS:
            self._flush()

    def close(self) -> dict[str, dict[str, Any]]:
        """Finish the files; return their records for the manifest, by path."""
        self._flush()
        self._records[self._path] = self._file.close()
        return self._records

    def abandon(self) -> None:
        """Close the file that is open, whatever state it is in."""
        self._file.abandon()

    def _open(self, path: str) -> None:
        self._path = self._claim(path)
        self._file = ParquetFile(self._root / path, *self._schema)
        self._written = 0
        self._start_group()

    def _start_group(self) -> None:
        self._questions: list[str] = []
        self._counts: list[int] = []
        self._columns: dict[str, list[Any]] = {}
        self._rows = self._size = 0

    def _continue(self) -> None:
        """End the file and begin the next; the first one gets its number."""
        record = self._file.close()
        if not self._records:
            single, self._path = self._path, self._claim(part_path(*self._key, 0))
            (self._root / self._path).parent.mkdir(exist_ok=True)
            (self._root / single).rename(self._root / self._path)
        self._records[self._path] = record
        self._open(part_path(*self._key, len(self._records)))

    def _group_bytes(self) -> int:
        if not self._grows:
            return _NARROW_GROUP_BYTES
        return max(
            _SMALLEST_TEXT_GROUP_BYTES,
            min(_LARGEST_TEXT_GROUP_BYTES, self._written // _TEXT_GROUPS),
        )

    def _flush(self) -> None:
        """Write the rows that wait as one row group."""
        if self._rows:
            self._file.write(pa.table({**self._keys(), **self._columns}, schema=self._schema[0]))
            self._written += self._size
        self._start_group()

    def _keys(self) -> dict[str, Any]:
        questions = chain.from_iterable(map(repeat, self._questions, self._counts))
        keys = {"llm": pa.repeat(self._key[2], self._rows), "question_id": list(questions)}
        if "sample_index" in self._schema[0].names:
            keys["sample_index"] = list(chain.from_iterable(map(range, self._counts)))
        return keys


def _bytes(column: Sequence[Any]) -> int:
    """Estimate the bytes of a column: a byte per character, four per number of a list, eight per
    other number.
    """
    values = [value for value in column if value is not None]
    if not values or not isinstance(values[0], (str, list)):
        return 8 * len(values)
    return sum(map(len, values)) * (1 if isinstance(values[0], str) else 4)

"""Rows of a source by group (an LLM, a scorer) and question, in any order: in memory, and beyond a
limit on disk.

What does not fit is sorted and written as a run to one temporary file without a name, which is gone
when it is closed and when the process is killed; the runs are merged when the rows are read. Memory
holds the rows of one run, or a block of each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from weakref import finalize

import orjson

from feval.errors import SourceError
from feval.recording.sealing.spill import Spill

RUN_BYTES = 32 << 20
"""Bytes of rows that are kept in memory."""
PackedRows = Mapping[tuple[int, int], bytearray]
"""(group, question) -> "[" and its rows, each with a comma behind it."""

_QUESTION_BYTES = 400  # what a question takes in memory beside its rows
_BLOCK_BYTES = 128 << 10
_HEAD = struct.Struct("<QQ")  # number of the question, bytes of its rows


class SortedRows:
    """Rows (JSON values) by number of their group and question; those of one question stay in the
    order in which they were added.

    `scratch` is the folder of the temporary file, as in `ImportRequest`. `most_bytes` of rows are
    kept in memory.
    """

    def __init__(self, scratch: Path | None, most_bytes: float | None = None) -> None:
        self._most_bytes = RUN_BYTES if most_bytes is None else most_bytes
        self._file = Spill(scratch)
        finalize(self, self._file.close)
        self._rows: dict[tuple[int, int], bytearray] = {}
        self._bytes = 0
        self._runs: list[dict[int, tuple[int, int]]] = []

    def add(self, group: int, question: int, row: Any) -> None:
        """Add a row; one with broken Unicode, as in the name of a file, is a `SourceError`."""
        try:
            data = orjson.dumps(row)
        except TypeError as error:
            raise SourceError(
                f"A row cannot be kept ({error}): texts and the names of files, columns and scorers"
                " are valid Unicode. Rename the file or the scorer."
            ) from error
        self._append(group, question, data + b",")

    def keep(self, most_bytes: float) -> None:
        """Keep other numbers of bytes in memory, from the next row on."""
        self._most_bytes = most_bytes

    def in_memory(self) -> PackedRows:
        """Return the rows, for `extend`."""
        return self._rows

    def extend(self, packed: PackedRows, groups: Sequence[int], questions: Sequence[int]) -> None:
        """Add rows of other groups and questions; the numbers that these have here are given."""
        for (group, question), rows in packed.items():
            self._append(groups[group], questions[question], rows[1:])

    def _append(self, group: int, question: int, data: bytes | bytearray) -> None:
        rows = self._rows.get((group, question))
        if rows is None:
            rows = self._rows[group, question] = bytearray(b"[")
            self._bytes += _QUESTION_BYTES
        rows += data
        self._bytes += len(data)
        if self._bytes >= self._most_bytes:
            self._write_run()

    def questions(self, group: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number of each question of a group, ascending, with its rows."""
        runs = [_run(self._file, *run[group]) for run in self._runs if group in run]
        pieces = merge(*runs, self._waiting(group), key=itemgetter(0))
        for question, same in groupby(pieces, itemgetter(0)):
            yield question, [row for _, data in same for row in orjson.loads(data)]

    def _waiting(self, group: int) -> Iterable[tuple[int, bytes]]:
        keys = sorted(key for key in self._rows if key[0] == group)
        return ((question, _array(self._rows[group, question])) for _, question in keys)

    def _write_run(self) -> None:
        """Write the rows in memory, sorted by group and question, and note where those of each
        group are.
        """
        run: dict[int, tuple[int, int]] = {}
        for group, question in sorted(self._rows):
            data = _array(self._rows.pop((group, question)))
            place = self._file.write(_HEAD.pack(question, len(data)) + data)
            run[group] = run.get(group, (place,))[0], place + _HEAD.size + len(data)
        self._runs.append(run)
        self._bytes = 0


def _run(file: Spill, place: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the questions of a group in one run, with their rows as a JSON array; the file is read
    block by block.
    """
    block, used = b"", 0

    def take(size: int) -> bytes:
        nonlocal block, used, place
        if len(block) - used < size:
            block, used = file.read(place, min(max(_BLOCK_BYTES, size), end - place)), 0
        used, place = used + size, place + size
        return block[used - size : used]

    while place < end:
        question, size = _HEAD.unpack(take(_HEAD.size))
        yield question, take(size)


def _array(rows: bytearray) -> bytes:
    """Return rows, each with a comma behind it, as a JSON array."""
    return bytes(rows[:-1] + b"]")

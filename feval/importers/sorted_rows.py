"""Rows of a source by group (an LLM, a scorer) and question, in any order: in memory, and beyond a limit on disk.

What does not fit is sorted and written as a run to one temporary file without a name, which is gone when it is closed and when
the process is killed; the runs are merged when the rows are read. Memory holds the rows of one run, or a block of each.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any
from weakref import finalize

import orjson

from feval.recording.layout.destination import storage_errors

RUN_BYTES = 32 << 20
"""Bytes of rows that are kept in memory."""

_QUESTION_BYTES = 400  # what a question takes in memory beside its rows
_BLOCK_BYTES = 128 << 10
_HEAD = struct.Struct("<QQ")  # number of the question, bytes of its rows


class SortedRows:
    """Rows (JSON values) by number of their group and question; those of one question stay in the order in which they were added.

    Args:
        out: the recording that is made; the temporary file lies beside it. `None`: where the system has such files.
    """

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._file: IO[bytes] | None = None
        self._rows: dict[tuple[int, int], bytearray] = {}
        self._bytes = 0
        self._runs: list[dict[int, tuple[int, int]]] = []

    def add(self, group: int, question: int, row: Any) -> None:
        """Add a row.

        Raises:
            StorageError: the disk is full or read-only.
        """
        data = orjson.dumps(row)
        rows = self._rows.get((group, question))
        if rows is None:
            rows = self._rows[group, question] = bytearray(b"[")
            self._bytes += _QUESTION_BYTES
        rows += data
        rows += b","
        self._bytes += len(data)
        if self._bytes >= RUN_BYTES:
            self._write_run()

    def questions(self, group: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number of each question of a group, ascending, with its rows."""
        runs = [_run(self._file, *run[group]) for run in self._runs if self._file and group in run]
        pieces = merge(*runs, self._waiting(group), key=itemgetter(0))
        for question, same in groupby(pieces, itemgetter(0)):
            yield question, [row for _, data in same for row in orjson.loads(data)]

    def _waiting(self, group: int) -> Iterable[tuple[int, bytes]]:
        keys = sorted(key for key in self._rows if key[0] == group)
        return ((question, _array(self._rows[group, question])) for _, question in keys)

    def _write_run(self) -> None:
        """Write the rows in memory, sorted by group and question, and note where those of each group are."""
        with nullcontext() if self._out is None else storage_errors(self._out):
            if self._file is None:
                self._file = _nameless_file(self._out)
                finalize(self, self._file.close)
            run: dict[int, tuple[int, int]] = {}
            place = self._file.seek(0, 2)
            for group, question in sorted(self._rows):
                data = _array(self._rows.pop((group, question)))
                self._file.write(_HEAD.pack(question, len(data)))
                self._file.write(data)
                start, place = run.get(group, (place,))[0], place + _HEAD.size + len(data)
                run[group] = start, place
        self._runs.append(run)
        self._bytes = 0


def _run(file: IO[bytes], place: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the questions of a group in one run, with their rows as a JSON array; the file is read block by block."""
    block, used = b"", 0

    def take(size: int) -> bytes:
        nonlocal block, used, place
        if len(block) - used < size:
            file.seek(place)
            block, used = file.read(min(max(_BLOCK_BYTES, size), end - place)), 0
        used, place = used + size, place + size
        return block[used - size : used]

    while place < end:
        question, size = _HEAD.unpack(take(_HEAD.size))
        yield question, take(size)


def _nameless_file(out: Path | None) -> IO[bytes]:
    """Open a temporary file without a name; where the system names it for a moment, then as what a killed writer leaves."""
    if out is None:
        return tempfile.TemporaryFile()
    return tempfile.TemporaryFile(dir=out.absolute().parent, prefix=f".{out.name}.partial-")


def _array(rows: bytearray) -> bytes:
    """Return rows, each with a comma behind it, as a JSON array."""
    return bytes(rows[:-1] + b"]")

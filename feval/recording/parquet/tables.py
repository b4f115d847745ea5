"""Parquet files of a recording, read one row group at a time."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from feval.errors import DamagedRecordingError
from feval.recording.content import utc_text
from feval.recording.layout.format import open_regular
from feval.recording.parquet.bounds import Bounds
from feval.recording.parquet.columns import check_types, checked

_UNREADABLE = (
    pa.ArrowException, OSError, LookupError, TypeError, ValueError, AttributeError, OverflowError,
    StopIteration,
)  # fmt: skip

_GROUPS_MAPPED = 16
"""Row groups after which the pages of a file that is read from end to end are given back."""


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn any error of a block that reads a Parquet file, of pyarrow or of a wrong shape, into a
    `DamagedRecordingError`.
    """
    try:
        yield
    except _UNREADABLE as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise DamagedRecordingError(
            f"{path} cannot be read ({first_line}); run `feval verify`."
        ) from error


class Table:
    """An opened Parquet file. Other bytes than stated are refused."""

    def __init__(self, path: Path, record: dict[str, Any]) -> None:
        size = record["bytes"]
        with open_regular(path) as file:
            actual_size = os.fstat(file.fileno()).st_size
            if actual_size != size:
                raise DamagedRecordingError(
                    f"{path} should have {size} bytes, found {actual_size}; fetch the recording"
                    " again."
                )
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # Read ahead, a mapped file costs threads and gains nothing.
        self._file = pq.ParquetFile(
            pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False
        )
        metadata = self._file.metadata
        if metadata.num_rows != record["rows"]:
            raise DamagedRecordingError(
                f"{path} should have {record['rows']} rows, found {metadata.num_rows}; fetch the"
                " recording again."
            )
        check_types(path, self._file.schema_arrow)
        self._data, self._bounds = data, Bounds(path, data, metadata)
        self._ends = list(
            accumulate(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        )

    def read(self, columns: list[str] | None = None) -> Any:
        """The whole file, or some columns, as an Arrow table."""
        self._bounds.check(columns)
        return checked(self._file.read(columns, use_threads=False))

    def groups(self, columns: list[str] | None = None) -> Iterator[Any]:
        """The row groups, one after the other, as Arrow tables."""
        for index in range(len(self._ends)):
            yield self._group(index, columns)
            if index % _GROUPS_MAPPED == 0 and hasattr(mmap, "MADV_DONTNEED"):
                # what was read counts as this process's memory until then
                self._data.madvise(mmap.MADV_DONTNEED)

    def group_at(self, row: int, columns: list[str] | None) -> tuple[Any, int]:
        """The row group that holds a row as an Arrow table, and the first row of that group."""
        index = bisect_right(self._ends, row)
        return self._group(index, columns), self._ends[index - 1] if index else 0

    def _group(self, index: int, columns: list[str] | None) -> Any:
        self._bounds.check(columns, [index])
        table = self._file.read_row_group(index, columns, use_threads=False)
        self._data.madvise(
            mmap.MADV_DONTNEED
        )  # the pages read count as this process's memory until they are needed elsewhere
        return checked(table)


class Part:
    """A part of an LLM, or of a dataset: the rows of its files in their order, each opened when it
    is read.

    `records` has the manifest's record of each file; `starts` caches the first row of each
    question.
    """

    def __init__(
        self, folder: Path, records: dict[str, dict[str, Any]], open_table: Callable[[str], Table]
    ) -> None:
        self.path = folder / next(iter(records))
        self._folder, self._paths, self._open = folder, list(records), open_table
        self._ends = list(accumulate(record["rows"] for record in records.values()))
        self.rows: int = self._ends[-1]
        self.starts: npt.NDArray[np.int64] | None = None
        self._last: tuple[list[str] | None, int, Any] | None = None

    def groups(self, columns: list[str] | None = None, rows: range | None = None) -> Iterator[Any]:
        """The row groups of all files, one after the other, as Arrow tables; or some rows, in
        pieces of one row group each.
        """
        if rows is None:
            for path in self._paths:
                with readable(self._folder / path):
                    yield from self._open(path).groups(columns)
            return
        start = rows.start
        while start < rows.stop:
            table, first = self._group_at(start, columns)
            piece = table.slice(start - first, rows.stop - start)
            yield piece
            start += piece.num_rows

    def questions(
        self, columns: list[str] | None = None, rows: range | None = None
    ) -> Iterator[tuple[str, dict[str, list[Any]]]]:
        """(question id, column -> values), of all or some rows, question by question, one row group
        in memory at a time.
        """
        pending: tuple[str, dict[str, list[Any]]] | None = None
        for table in self.groups(columns, rows):
            for question, values in by_question(_with_times_as_text(table.to_pydict())):
                # Another writer's row groups may cut a question in two.
                if pending is not None and pending[0] == question:
                    values = {name: pending[1][name] + column for name, column in values.items()}
                elif pending is not None:
                    yield pending
                pending = question, values
        if pending is not None:
            yield pending

    def runs(self) -> Iterator[tuple[str, int]]:
        """(question id, number of its rows), in order; a question that row groups cut comes
        twice.
        """
        for table in self.groups(["question_id"]):
            ids = table.column(0).combine_chunks().dictionary_encode()
            codes = ids.indices.to_numpy()
            starts = np.flatnonzero(np.diff(codes, prepend=-1))
            names = ids.dictionary.take(pa.array(codes[starts])).to_pylist()
            yield from zip(names, np.diff(starts, append=len(codes)).tolist(), strict=True)

    def column(self, name: str, start: int, stop: int) -> list[Any]:
        """Values of a column in some rows; only their row groups are read."""
        return [
            value
            for table in self.groups([name], range(start, stop))
            for value in table.column(name).to_pylist()
        ]

    def group_at(self, row: int, column: str) -> tuple[Any, int]:
        """A column of the row group that holds a row, and the first row of that group."""
        table, first = self._group_at(row, [column])
        return table.column(column), first

    def _group_at(self, row: int, columns: list[str] | None) -> tuple[Any, int]:
        """The row group that holds a row, and its first row; the last one is kept, since its
        neighbours are read next.
        """
        if self._last is not None:
            kept, first, table = self._last
            if kept == columns and first <= row < first + table.num_rows:
                return table, first
        index = bisect_right(self._ends, row)
        start = self._ends[index - 1] if index else 0
        with readable(self._folder / self._paths[index]):
            table, first = self._open(self._paths[index]).group_at(row - start, columns)
        self._last = columns, start + first, table
        return table, start + first


def by_question(columns: dict[str, list[Any]]) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """(question id, column -> values) of consecutive rows, the key columns left out."""
    ids = columns["question_id"]
    start = 0
    while start < len(ids):
        stop = start
        while stop < len(ids) and ids[stop] == ids[start]:
            stop += 1
        yield (
            ids[start],
            {
                name: column[start:stop]
                for name, column in columns.items()
                if name not in {"llm", "question_id"}
            },
        )
        start = stop


def _with_times_as_text(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns with timestamps as text, in their one spelling."""
    times = columns.get("recorded_at")
    if times is None:
        return columns
    return columns | {"recorded_at": [time and utc_text(time) for time in times]}

"""Parquet files of a recording, read one row group at a time."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from feval.errors import DamagedRecordingError
from feval.recording.content import utc_text
from feval.recording.layout.format import open_regular
from feval.recording.parquet.bounds import Bounds
from feval.recording.parquet.columns import check_types, checked

_UNREADABLE = (
    pa.ArrowException, OSError, LookupError, TypeError, ValueError, AttributeError, OverflowError, StopIteration,
)  # fmt: skip


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn any error of a block that reads a Parquet file, of pyarrow or of a wrong shape, into a `DamagedRecordingError`."""
    try:
        yield
    except _UNREADABLE as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise DamagedRecordingError(f"{path} cannot be read ({first_line}); run `feval verify`.") from error


class Table:
    """An opened Parquet file; `starts` caches the first row of each question. Other bytes than stated are refused."""

    def __init__(self, path: Path, record: dict[str, Any]) -> None:
        size = record["bytes"]
        with open_regular(path) as file:
            actual_size = os.fstat(file.fileno()).st_size
            if actual_size != size:
                raise DamagedRecordingError(
                    f"{path} should have {size} bytes, found {actual_size}; fetch the recording again."
                )
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # Read ahead, a mapped file costs threads and gains nothing.
        self._file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False)
        if self._file.metadata.num_rows != record["rows"]:
            raise DamagedRecordingError(
                f"{path} should have {record['rows']} rows, found {self._file.metadata.num_rows}; fetch the recording again."
            )
        check_types(path, self._file.schema_arrow)
        self._bounds = Bounds(path, data, self._file.metadata)
        self.groups: int = self._file.metadata.num_row_groups
        self.starts: list[int] | None = None
        self._questions: dict[str, tuple[int, int]] | None = None
        self._ends: list[int] | None = None

    def read(self, columns: list[str] | None = None) -> Any:
        """The whole file, or some columns, as an Arrow table."""
        self._bounds.check(columns)
        return checked(self._file.read(columns, use_threads=False))

    def group(self, index: int, columns: list[str] | None) -> Any:
        """One row group as an Arrow table."""
        self._bounds.check(columns, [index])
        return checked(self._file.read_row_group(index, columns, use_threads=False))

    def questions(self, columns: list[str] | None = None) -> Iterator[tuple[str, dict[str, list[Any]]]]:
        """(question id, column -> values), question by question, one row group in memory at a time."""
        pending: tuple[str, dict[str, list[Any]]] | None = None
        for group in range(self.groups):
            for question, values in by_question(_with_times_as_text(self.group(group, columns).to_pydict())):
                # Another writer's row groups may cut a question in two.
                if pending is not None and pending[0] == question:
                    values = {name: pending[1][name] + column for name, column in values.items()}
                elif pending is not None:
                    yield pending
                pending = question, values
        if pending is not None:
            yield pending

    def rows_of(self, question: str) -> tuple[int, int]:
        """First row of a question and the row behind its last; equal where it has none."""
        if self._questions is None:
            ids = self.read(["question_id"]).column(0).to_pylist()
            starts = [row for row, name in enumerate(ids) if row == 0 or ids[row - 1] != name]
            self._questions = {ids[start]: (start, stop) for start, stop in pairwise([*starts, len(ids)])}
        return self._questions.get(question, (0, 0))

    def column(self, name: str, start: int, stop: int) -> list[Any]:
        """Values of a column in some rows; only their row groups are read."""
        values: list[Any] = []
        while start < stop:
            group, offset = self.locate(start)
            piece = self.group(group, [name]).column(name).slice(offset, stop - start).to_pylist()
            values += piece
            start += len(piece)
        return values

    def locate(self, row: int) -> tuple[int, int]:
        """Row group of a row, and the row's offset in it."""
        if self._ends is None:
            counts = (self._file.metadata.row_group(i).num_rows for i in range(self.groups))
            self._ends = list(accumulate(counts))
        group = bisect_right(self._ends, row)
        return group, row - (self._ends[group - 1] if group else 0)


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
            {name: column[start:stop] for name, column in columns.items() if name not in {"llm", "question_id"}},
        )
        start = stop


def _with_times_as_text(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns with timestamps in their one spelling; until format 2 they were text in the file."""
    times = columns.get("recorded_at")
    if times is None:
        return columns
    return columns | {"recorded_at": [utc_text(time) if isinstance(time, datetime) else time for time in times]}

"""The rows of a table file, one at a time: CSV, JSON Lines or Parquet, told apart by their first bytes and names."""

from __future__ import annotations

import csv
import mmap
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from feval.errors import DamagedRecordingError, SourceError
from feval.importers.reading import (
    MAX_EXPANDED_BYTES,
    MAX_RATIO,
    RATIO_FREE_BYTES,
    Reader,
    disk_errors,
    read_lines,
    regular_file,
)
from feval.importers.shapes import refuse, sentence_start
from feval.recording.parquet import Bounds

_MAGIC = b"PAR1"
_ROWS_AT_ONCE = 1024
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n]")  # as exports keep spreadsheets from taking a text for a formula


Choice = Callable[[Sequence[str]], Sequence[str]]
"""Columns of a table -> those that are read."""


class TableRow(NamedTuple):
    """A row: its place for messages, and its cells by column. Cells of CSV are texts, `None` where empty."""

    where: str
    cells: dict[str, Any]


def table_rows(source: Path, reader: Reader, choose: Choice) -> Iterator[TableRow]:
    """Yield the rows of a table. CSV and JSON Lines may be compressed by gzip.

    Args:
        source: the file.
        reader: counts what was odd.
        choose: called once with the names of the columns (those of the first row in JSON Lines); of Parquet only the columns
            that it returns are read.

    Raises:
        SourceError: the file is none of these, damaged, or expands beyond the bounds.
    """
    if _is_parquet(source):
        return _parquet_rows(source, choose)
    name = source.name.lower().removesuffix(".gz")
    read = _json_rows if name.endswith((".jsonl", ".ndjson", ".json")) else _csv_rows
    return read(source, reader, choose)


def _is_parquet(source: Path) -> bool:
    with disk_errors(source), regular_file(source).open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def _json_rows(source: Path, reader: Reader, choose: Choice) -> Iterator[TableRow]:
    first = True
    with closing(read_lines(source)) as lines:
        for number, line in reader.json_lines(lines, source.name):
            where = f"line {number} of {source.name}"
            if not isinstance(line, dict):
                refuse(sentence_start(where), "an object", line)
            if first:
                choose(list(line))
                first = False
            yield TableRow(where, line)


def _csv_rows(source: Path, reader: Reader, choose: Choice) -> Iterator[TableRow]:
    csv.field_size_limit(sys.maxsize)  # a text has any length; lines are bounded by `read_lines`
    with closing(read_lines(source)) as lines:
        head = next(lines, b"")
        texts = (
            reader.text(line, f"Line {number} of {source.name}")
            for number, line in enumerate(chain([reader.without_mark(head)], lines), 1)
        )
        records = csv.reader(texts, strict=True)
        try:
            columns = next(records)
            choose(columns)
            for number, record in enumerate(records, 1):
                if not record:
                    continue
                where = f"row {number} of {source.name}"
                if len(record) != len(columns):
                    raise SourceError(
                        f"{sentence_start(where)} has {len(record)} cells, and the first line has {len(columns)} columns. "
                        "Write a table with a header and the same columns in each row."
                    )
                yield TableRow(where, {name: _cell(text) for name, text in zip(columns, record, strict=True)})
        except csv.Error as error:
            raise SourceError(f"{source.name} is not valid CSV: line {records.line_num}: {error}.") from error


def _cell(text: str) -> str | None:
    return (text[1:] if _ESCAPED.match(text) else text) or None


def _parquet_rows(source: Path, choose: Choice) -> Iterator[TableRow]:
    number = 0
    with opened_parquet(source, choose) as (file, columns):
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            for cells in batch.to_pylist():
                number += 1
                yield TableRow(f"row {number} of {source.name}", cells)


@contextmanager
def opened_parquet(source: Path, choose: Choice) -> Iterator[tuple[pq.ParquetFile, list[str]]]:
    """Open a Parquet file; yield it and the columns that were chosen, which expand to no more than a source may.

    Raises:
        SourceError: it is no Parquet file, damaged, or expands beyond the bounds.
    """
    if not _is_parquet(source):
        raise SourceError(f"{source} is not a Parquet file. Is the format the right one?")
    with disk_errors(source), source.open("rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            columns = list(choose(file.schema_arrow.names))
            most_bytes = min(MAX_EXPANDED_BYTES, max(RATIO_FREE_BYTES, MAX_RATIO * len(data)))
            Bounds(source, data, file.metadata, most_bytes).check(columns)
            yield file, columns
    except DamagedRecordingError as error:
        raise SourceError(str(error)) from error
    except (pa.ArrowException, OSError, ValueError) as error:  # a ValueError: no UTF-8, or one name twice
        raise SourceError(f"{source} is a damaged Parquet file: {error}. Get the file again.") from error

"""Rows of tables in files, as JSON values: CSV, Parquet, Arrow, JSON Lines and JSON documents, a block at a time.

The format is recognised by the first bytes, not the name. CSV, JSON Lines and JSON may be compressed by gzip. A cell of CSV is
text, and missing where nothing stands in it, not even quotes. NaN is a missing value everywhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from feval.errors import DamagedRecordingError, SourceError
from feval.importers.reading import Reader, disk_errors, opened, read_bytes, read_lines, regular_file
from feval.importers.shapes import refuse
from feval.recording.parquet import Bounds

Row = dict[str, Any]
_Rows = Generator[tuple[str, Row], None, None]
_Blocks = Generator[Any, None, None]

_BLOCK_BYTES = 16 << 20  # of CSV: a row must fit
_ROWS_AT_ONCE = 128  # as Python's values
_PARQUET, _ARROW_FILE, _ARROW_STREAM, _BOM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"\xef\xbb\xbf"
_CHECKED_BYTES = (
    64 << 20
)  # Parquet up to this size is looked through for bombs; larger files are bounded as they are read
_MOST_TIMES = 1000
_PLAIN = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_null)
_TABLES = ("*.parquet", "*.jsonl*", "*.csv*", "*.tsv*", "*.arrow", "*.feather", "*.json")


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file as a table.

    Attributes:
        name: its name.
        columns: names of its columns; `None` where each row has its own.
        rows: the place of each row, for messages, and the row. Rows are counted from 1, without a header.
        cells_are_text: whether numbers are written as text, and an empty text is written as nothing.
    """

    name: str
    columns: list[str] | None
    rows: _Rows
    cells_are_text: bool = False


def table_files(source: Path) -> list[Path]:
    """Return the files of a source: itself; or those that a pattern such as `train-*.parquet` fits, or of a folder, by name."""
    if source.is_dir():
        files = next((sorted(source.glob(pattern)) for pattern in _TABLES if any(source.glob(pattern))), [])
    elif not source.exists() and set(source.name) & {"*", "?"}:
        files = sorted(path for path in source.parent.glob(source.name) if path.is_file())
    else:
        return [regular_file(source)]
    if not files:
        raise SourceError(f"{source} has no tables: no file there is named as Parquet, CSV, JSON Lines or Arrow are.")
    return files


@contextmanager
def opened_table(path: Path, reader: Reader, member: str = "") -> Iterator[TableFile]:
    """Open a file as a table.

    Args:
        path: the file.
        reader: reads JSON, and counts what is odd in it.
        member: of a JSON document, the list of its rows; its other members apply to each row.

    Raises:
        SourceError: it is no table, or damaged.
    """
    with opened(path) as stream:
        start = stream.read(64).removeprefix(_BOM)
    if start.startswith(_PARQUET):
        rows, columns = _parquet(path)
    elif start.startswith((_ARROW_FILE, _ARROW_STREAM)):
        rows, columns = _arrow(path)
    elif start.lstrip().startswith(b"[") or (member and start.lstrip().startswith(b"{")):
        rows, columns = _document(path, reader, member), None
    elif start.lstrip().startswith(b"{"):
        rows, columns = _lines(path, reader), None
    else:
        rows, columns = _csv(path, reader)
    with closing(rows):
        is_csv = columns is not None and not start.startswith((_PARQUET, _ARROW_FILE, _ARROW_STREAM))
        yield TableFile(path.name, columns, rows, is_csv)


def _lines(path: Path, reader: Reader) -> _Rows:
    with closing(read_lines(path)) as lines:
        for number, row in reader.json_lines(lines, path.name):
            yield f"line {number} of {path.name}", _object(row, f"Line {number} of {path.name}")


def _document(path: Path, reader: Reader, member: str) -> _Rows:
    document = reader.json(read_bytes(path), path.name, exact=True)
    shared: Row = {}
    if isinstance(document, dict):
        shared = {name: value for name, value in document.items() if name != member}
        document = document.get(member)
    if not isinstance(document, list):
        refuse(f"{member!r} of {path.name}" if member else path.name, "a list of rows", document)
    for number, row in enumerate(document, 1):
        yield f"row {number} of {path.name}", shared | _object(row, f"Row {number} of {path.name}")


def _object(row: Any, where: str) -> Row:
    return row if isinstance(row, dict) else refuse(where, "an object", row)


def _csv(path: Path, reader: Reader) -> tuple[_Rows, list[str]]:
    """Read CSV: every cell as text. The header says what separates cells: a tab, a comma or a semicolon."""
    with opened(path) as stream:
        header = stream.readline(_BLOCK_BYTES)
    if not header.strip():
        raise SourceError(f"{path} is empty; there is nothing to read.")
    reader.text(header, path.name)
    separator = next((each for each in "\t,;" if each.encode() in header), ",")
    columns = _csv_names(path, separator)
    return _numbered(_csv_blocks(path, separator, columns), path), columns


@contextmanager
def _opened_csv(path: Path, separator: str, columns: list[str]) -> Iterator[Any]:
    options = {
        "read_options": pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        "parse_options": pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    }
    with opened(path) as stream, _arrow_errors(path, "CSV"), pyarrow.csv.open_csv(stream, **options) as table:
        yield table


def _csv_names(path: Path, separator: str) -> list[str]:
    with _opened_csv(path, separator, []) as table:
        return _checked(table.schema, path)


def _csv_blocks(path: Path, separator: str, columns: list[str]) -> _Blocks:
    with _opened_csv(path, separator, columns) as table:
        yield from table


def _parquet(path: Path) -> tuple[_Rows, list[str]]:
    with _arrow_errors(path, "Parquet"):
        schema = pq.read_schema(path)
    return _numbered(_parquet_blocks(path), path), _checked(schema, path)


def _parquet_blocks(path: Path) -> _Blocks:
    with _arrow_errors(path, "Parquet"):
        size = path.stat().st_size
        if size <= _CHECKED_BYTES:
            data = path.read_bytes()
            Bounds(path, data, pq.read_metadata(pa.BufferReader(data))).check()
        expanded = 0
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as table:
            for block in table.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                expanded += block.nbytes
                if expanded > _CHECKED_BYTES + _MOST_TIMES * size:
                    raise SourceError(
                        f"{path} expands to more than {_MOST_TIMES} times its {size:,} bytes; do not use it."
                    )
                yield block


def _arrow(path: Path) -> tuple[_Rows, list[str]]:
    with _opened_arrow(path) as (schema, _):
        return _numbered(_arrow_blocks(path), path), _checked(schema, path)


def _arrow_blocks(path: Path) -> _Blocks:
    with _opened_arrow(path) as (_, blocks):
        for block in blocks:
            block.validate(full=True)  # reading values trusts offsets and lengths
            yield block


@contextmanager
def _opened_arrow(path: Path) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Open a file of Arrow's IPC format, with or without a footer (Feather version 2 is the former)."""
    with disk_errors(path), _arrow_errors(path, "Arrow"), pa.OSFile(str(path)) as file:
        if file.read(len(_ARROW_FILE)) == _ARROW_FILE:
            table = pa.ipc.open_file(file)
            yield table.schema, (table.get_batch(i) for i in range(table.num_record_batches))
        else:
            file.seek(0)
            table = pa.ipc.open_stream(file)
            yield table.schema, iter(table)


@contextmanager
def _arrow_errors(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except DamagedRecordingError as error:
        raise SourceError(str(error)) from error
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise SourceError(f"{path} is not readable as {kind}: {reason}. Correct it or get the file again.") from error


def _checked(schema: Any, path: Path) -> list[str]:
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise SourceError(f"{path} has the column {twice[0]!r:.60} twice; rename one of them.")
    return list(schema.names)


def _numbered(blocks: _Blocks, path: Path) -> _Rows:
    number = 0
    with closing(blocks):
        for block in blocks:
            checks = [(field.name, _check(field.type)) for field in block.schema if _check(field.type)]
            for start in range(0, block.num_rows, _ROWS_AT_ONCE):
                for row in _values(block.slice(start, _ROWS_AT_ONCE), path):
                    number += 1
                    yield f"row {number} of {path.name}", _plain_row(row, checks)


def _check(kind: Any) -> Callable[[Any], Any] | None:
    """Return what makes values of a type those of JSON; `None` where they are."""
    if pa.types.is_floating(kind):
        return _finite
    return None if any(is_plain(kind) for is_plain in _PLAIN) else plain


def _values(block: Any, path: Path) -> list[Row]:
    with _arrow_errors(path, "a table"):
        rows: list[Row] = block.to_pylist()
        return rows


def _plain_row(row: Row, checks: Sequence[tuple[str, Any]]) -> Row:
    for name, check in checks:
        row[name] = check(row[name])
    return row


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Return a value of Arrow, pandas or NumPy as JSON has it; NaN and infinity become `None`, bytes and others text."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float | Decimal):
        return _finite(float(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date | time):
        return None if value != value else value.isoformat()
    if hasattr(value, "tolist"):  # NumPy
        return plain(value.tolist())
    return None if type(value).__name__ in {"NAType", "NaTType"} else str(value)

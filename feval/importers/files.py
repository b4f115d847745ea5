"""Rows of tables in files, as JSON values: CSV, Parquet, Arrow, JSON Lines and JSON documents, a
block at a time.

The format is recognised by the first bytes, not the name. CSV, JSON Lines and JSON may be
compressed by gzip. A cell of CSV is text, and missing where nothing stands in it, not even quotes.
NaN is a missing value, where nobody asks to keep it.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from feval.errors import DamagedRecordingError, SourceError
from feval.importers.columns import json_object, refuse, sentence_start
from feval.importers.reading import (
    GZIP,
    MAX_EXPANDED_BYTES,
    MAX_RATIO,
    PARQUET,
    RATIO_FREE_BYTES,
    Reader,
    check_bounds,
    disk_errors,
    opened,
    read_bytes,
    regular_file,
    starts_with,
)
from feval.importers.source import Row
from feval.recording.parquet.bounds import SizeBounds, expanded_bytes, most_values
from feval.values import frozen

_Blocks = Generator[Any, None, None]
Choice = Callable[[list[str]], Sequence[str]]
"""Columns of a table -> those that are read."""

_BLOCK_BYTES = 4 << 20  # of CSV: a row must fit, and Arrow takes some eighty times as much memory
_ROWS_AT_ONCE = 128  # as Python's values
_ARROW_FILE, _ARROW_STREAM, _BOM = b"ARROW1", b"\xff\xff\xff\xff", b"\xef\xbb\xbf"
# a larger Parquet table is not looked through for bombs, but bounded as it is read
_CHECKED_BYTES = 64 << 20
_MOST_TIMES = 1000
_MOST_COLUMNS = 20_000
# as exports keep spreadsheets from taking a text for a formula
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n]")
# how the header of an export begins
_EXPORTED = ["dataset", "question_id", "question", "choices", "gold", "llm"]
_PLAIN = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_null,
)
_TABLES = ("*.parquet", "*.jsonl*", "*.csv*", "*.tsv*", "*.arrow", "*.feather", "*.json")


def other_tables(source: Path, files: Collection[Path]) -> list[str]:
    """Return the names of the tables of a folder that are none of these files."""
    found = {path for pattern in _TABLES for path in source.glob(pattern)}
    return sorted(path.name for path in found.difference(files))


class TableRow(NamedTuple):
    """A row: its place for messages, and its cells by column."""

    where: str
    cells: Row


_Rows = Generator[TableRow, None, None]


@frozen
class TableFile:
    """One file as a table.

    Attributes:
        name: its name.
        columns: names of its columns; `None` where each row has its own.
        rows: its rows, counted from 1, without a header.
        cells_are_text: whether numbers are written as text, and an empty text is written as
            nothing.
    """

    name: str
    columns: list[str] | None
    rows: _Rows
    cells_are_text: bool = False


def table_files(source: Path) -> list[Path]:
    """Return the files of a source: itself; or those that a pattern such as `train-*.parquet` fits,
    or of a folder, by name.
    """
    if source.is_dir():
        files = next(
            (sorted(source.glob(pattern)) for pattern in _TABLES if any(source.glob(pattern))), []
        )
    elif not source.exists() and set(source.name) & {"*", "?"}:
        files = sorted(path for path in source.parent.glob(source.name) if path.is_file())
    else:
        return [regular_file(source)]
    if not files:
        raise SourceError(
            f"{source} has no tables: no file there is named as Parquet, CSV, JSON Lines or Arrow"
            " are."
        )
    return files


@contextmanager
def opened_table(
    path: Path,
    reader: Reader,
    member: str = "",
    choose: Choice = list,
    *,
    escaped: bool = False,
    keeps_nan: bool = False,
) -> Iterator[TableFile]:
    """Open a file as a table.

    Args:
        path: the file.
        reader: reads JSON, and counts what is odd in it.
        member: of a JSON document, the path of the list of its rows, see `Layout.rows`.
        choose: called with the names of the columns, where the file states them; of Parquet only
            those it returns are read.
        escaped: whether cells of CSV are written as exports write them, against formulas; an export
            is recognised as one.
        keeps_nan: whether NaN in a column of numbers, or of lists of them, stays.

    Raises:
        SourceError: it is no table, or damaged.
    """
    with opened(path) as stream:
        start = stream.read(64).removeprefix(_BOM).lstrip()
    blocks: _Blocks | None = None
    columns, is_csv = None, False
    if start.startswith(PARQUET):
        blocks = _parquet(path, choose)
    elif start.startswith((_ARROW_FILE, _ARROW_STREAM)):
        blocks = _arrow(path)
    elif start.startswith(b"[") or (member and start.startswith(b"{")):
        rows = _document(path, reader, member)
    elif start.startswith(b"{"):
        rows = _lines(path, reader)
    else:
        blocks, is_csv = _csv(path, reader), True
    if blocks is not None:
        columns = _checked(next(blocks), path)
        rows = _numbered(blocks, path, keeps_nan)
        if is_csv and (escaped or columns[: len(_EXPORTED)] == _EXPORTED):
            rows = _unescaped(rows)
        choose(columns)
    with closing(rows):
        yield TableFile(path.name, columns, rows, is_csv)


def _lines(path: Path, reader: Reader) -> _Rows:
    for where, row in reader.lines(path):
        yield TableRow(where, json_object(row, sentence_start(where)))


def _document(path: Path, reader: Reader, member: str) -> _Rows:
    document = reader.json(read_bytes(path), path.name, exact=True)
    found = _inside(document, member.split(".") if isinstance(document, dict) else [], path.name)
    number = 0
    for rows, shared in found:
        if not isinstance(rows, list):
            refuse(f"{member!r} of {path.name}" if member else path.name, "a list of rows", rows)
        for row in rows:
            number += 1
            own = json_object(row, f"Row {number} of {path.name}")
            yield TableRow(f"row {number} of {path.name}", shared | own)


def _inside(value: Any, names: Sequence[str], where: str) -> Iterator[tuple[Any, Row]]:
    """Yield what a path with `*` leads to, each with the other members on the way."""
    if not names:
        yield value, {}
        return
    name, *rest = names
    members = json_object(value, f"What has {name!r} in {where}")
    chosen = members if name == "*" else {name: members.get(name)}
    around = {key: each for key, each in members.items() if key not in chosen}
    for key, inner in chosen.items():
        own = around | ({"*": key} if name == "*" else {})
        for found, shared in _inside(inner, rest, where):
            yield found, own | shared


def _csv(path: Path, reader: Reader) -> _Blocks:
    """Read CSV: every cell as text. The header says what separates cells: a tab, a comma or a
    semicolon. As other formats, yield what the columns are, and then blocks of rows.
    """
    with opened(path) as stream:
        header = stream.readline(_BLOCK_BYTES)
    if not header.strip():
        raise SourceError(f"{path} is empty; there is nothing to read.")
    check_width(str(path), max(map(header.count, (b"\t", b",", b";"))))
    reader.text(header, path.name)
    separator = next((each for each in "\t,;" if each.encode() in header), ",")
    with _opened_csv(path, separator, []) as table:
        columns = table.schema.names
    size, expanded = path.stat().st_size if starts_with(path, GZIP) else None, 0
    block: Any = ()
    with _opened_csv(path, separator, columns) as table:
        yield table.schema
        for block in table:
            # of a cell there are four bytes of where it begins, and in the file one behind it
            if size is not None:
                expanded += block.nbytes - 3 * block.num_rows * block.num_columns
                check_bounds(expanded, size, str(path))
            yield block
        if size is None and len(block):
            _check_end(path, separator, block)


def _check_end(path: Path, separator: str, block: Any) -> None:
    """Raise where a file of CSV ends within the quotes of its last cell, which Arrow takes for the
    whole cell.
    """
    last = block.column(block.num_columns - 1)[-1].as_py() or ""
    open_cell = ('"' + last.replace('"', '""')).encode()
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(open_cell) - 1))
        if file.read(1) in (separator.encode(), b"\n") and file.read() == open_cell:
            raise SourceError(
                f"{path} ends within the quotes of a cell ({last[-60:]!r}): it was cut, or a"
                " quote is missing. Get the file again."
            )


def _unescaped(rows: _Rows) -> _Rows:
    with closing(rows):
        for row in rows:
            cells = {
                name: text[1:] if text and _ESCAPED.match(text) else text
                for name, text in row.cells.items()
            }
            yield TableRow(row.where, cells)


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
    # Arrow reads ahead in a thread of its own: of a Python stream it would call Python there, also
    # while Python ends.
    with disk_errors(path), _arrow_errors(path, "CSV"), pa.OSFile(str(path)) as file:
        stream = pa.CompressedInputStream(file, "gzip") if starts_with(path, GZIP) else file
        with stream, pyarrow.csv.open_csv(stream, **options) as table:
            yield table


def _parquet(path: Path, choose: Choice) -> _Blocks:
    most = _most_bytes(path, 0)
    with opened_parquet(path, choose, checked_bytes=_CHECKED_BYTES) as (table, columns):
        yield table.schema_arrow
        for block in table.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            most -= block.nbytes
            if most < 0:
                raise SourceError(
                    f"{path} expands to more than {_MOST_TIMES} times its bytes, as no table does."
                )
            yield block


@contextmanager
def opened_parquet(
    path: Path, choose: Choice, *, checked_bytes: float = math.inf
) -> Iterator[tuple[pq.ParquetFile, list[str]]]:
    """Open a Parquet file; yield it and the columns that were chosen, which expand to no more than
    a source may.

    A file larger than `checked_bytes` is not checked, and is read in small pieces: its reader has
    to bound what it takes.

    Raises:
        SourceError: it is no Parquet file, damaged, or expands beyond the bounds.
    """
    if not starts_with(path, PARQUET):
        raise SourceError(f"{path} is not a Parquet file. Is the format the right one?")
    with disk_errors(path), path.open("rb") as stream:
        is_checked = path.stat().st_size <= checked_bytes
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if is_checked else None
    try:
        with (
            pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
            if data is None
            else pq.ParquetFile(pa.BufferReader(data))
        ) as file:
            check_width(str(path), file.metadata.num_columns)
            columns = list(choose(file.schema_arrow.names))
            if data is not None:
                SizeBounds(path, data, file.metadata, _most_bytes(path, math.inf)).check(columns)
            yield file, columns
    except DamagedRecordingError as error:
        raise SourceError(str(error)) from error
    # a ValueError: no UTF-8, or one name twice; a KeyError: a header of a page lacks a member
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise SourceError(
            f"{path} is a damaged Parquet file: {_reason(error)}. Get the file again."
        ) from error


def _arrow(path: Path) -> _Blocks:
    most = _most_bytes(path)
    with _opened_arrow(path) as table:
        for field in table.schema:
            if kind := _shares_values(field.type):
                raise SourceError(
                    f"{path} has the column {field.name!r:.60} of the type {kind!s:.60}, which is"
                    " not read; write it as text, numbers or lists, such as pandas and polars do."
                )
        yield table.schema
        for block in table:
            block.validate(full=True)  # reading values trusts offsets and lengths
            most -= sum(map(expanded_bytes, block.columns))
            if most < 0:
                raise ValueError(f"its texts are repeated to more than {_most_bytes(path):,} bytes")
            yield from _pieces(block)


def _pieces(block: Any) -> Iterator[Any]:
    """Yield a block in pieces whose values take little memory."""
    if block.num_rows > 1 and sum(map(expanded_bytes, block.columns)) > _CHECKED_BYTES:
        half = block.num_rows // 2
        yield from _pieces(block.slice(0, half))
        yield from _pieces(block.slice(half))
    else:
        yield block


def _most_bytes(path: Path, checked_bytes: float = _CHECKED_BYTES) -> int:
    """Return what a table may expand to; one that is larger than `checked_bytes`, as a large table
    of Parquet.
    """
    size = path.stat().st_size
    if size > checked_bytes:
        return _CHECKED_BYTES + _MOST_TIMES * size
    return min(MAX_EXPANDED_BYTES, max(RATIO_FREE_BYTES, MAX_RATIO * size))


def _shares_values(kind: Any) -> Any:
    """Return the type, if any in a type, by which many rows of a list are one value; `None`
    otherwise.
    """
    types = pa.types
    if (
        types.is_run_end_encoded(kind)
        or types.is_union(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    ):
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return _shares_values(kind.storage_type)
    if types.is_dictionary(kind):
        return _shares_values(kind.value_type)
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return next((found for each in inner if (found := _shares_values(each))), None)


@contextmanager
def _opened_arrow(path: Path) -> Iterator[Any]:
    """Open a file of Arrow's IPC format, with or without a footer (Feather version 2 is the
    former), checked for bombs.

    A file with a footer is a stream behind eight bytes; the footer could name other messages, and
    is left alone.
    """
    with disk_errors(path), _arrow_errors(path, "Arrow"), pa.memory_map(str(path)) as file:
        data = file.read_buffer()
        stream = (
            data.slice(8) if data.slice(0, len(_ARROW_FILE)).to_pybytes() == _ARROW_FILE else data
        )
        check_stream(stream, _most_bytes(path), most_values(data.size))
        with pa.ipc.open_stream(pa.BufferReader(stream)) as table:
            yield table


def _reason(error: Exception) -> str:
    """Return what Arrow says, on one line and without the words of its own library."""
    reason = " ".join(str(error).split())[:300].rstrip(".")
    return "its header cannot be read" if "thrift" in reason else reason


@contextmanager
def _arrow_errors(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = _reason(error)
        if "straddling" in reason:
            raise SourceError(
                f"{path} has a row of more than {_BLOCK_BYTES:,} bytes, the most that is read of"
                " CSV; write the table as Parquet or JSON Lines."
            ) from error
        raise SourceError(
            f"{path} is not readable as {kind}: {reason}. Correct it or get the file again."
        ) from error


def check_width(name: str, columns: int) -> None:
    """Raise a `SourceError` where a table has more columns than any has."""
    if columns > _MOST_COLUMNS:
        raise SourceError(
            f"{name} has more than {_MOST_COLUMNS:,} columns, as no table of CoTs has. Put what"
            " differs from row to row into one."
        )


def _checked(schema: Any, path: Path) -> list[str]:
    check_width(str(path), len(schema.names))
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise SourceError(f"{path} has the column {twice[0]!r:.60} twice; rename one of them.")
    return list(schema.names)


def _numbered(blocks: _Blocks, path: Path, keeps_nan: bool) -> _Rows:
    number = 0
    with closing(blocks):
        for block in blocks:
            checks = [
                (field.name, check)
                for field in block.schema
                if (check := _check(field.type, keeps_nan))
            ]
            for start in range(0, block.num_rows, _ROWS_AT_ONCE):
                with _arrow_errors(path, "a table"):
                    rows = shortest_floats(block.slice(start, _ROWS_AT_ONCE)).to_pylist()
                for row in rows:
                    number += 1
                    for name, check in checks:
                        row[name] = check(row[name])
                    yield TableRow(f"row {number} of {path.name}", row)


def _check(kind: Any, keeps_nan: bool) -> Callable[[Any], Any] | None:
    """Return what makes values of a type those of JSON; `None` where they are, or stay."""
    if pa.types.is_floating(kind.value_type if pa.types.is_list(kind) and keeps_nan else kind):
        return None if keeps_nan else _finite
    return None if any(is_plain(kind) for is_plain in _PLAIN) else plain


def shortest_floats(table: Any) -> Any:
    """Return a table or batch whose 32-bit floats are the shortest decimals that read back as them:
    0.1, not 0.10000000149.

    So are columns of 16-bit floats.
    """
    for place, field in enumerate(table.schema):
        if pa.types.is_float16(field.type):  # which Arrow writes with all digits
            numbers = [
                None if each is None else float(str(np.float16(each)))
                for each in table.column(place).to_pylist()
            ]
            table = table.set_column(place, field.name, pa.array(numbers, pa.float64()))
            continue
        words = _retyped(field.type, pa.string())
        if words != field.type:
            cells = table.column(place).cast(words).cast(_retyped(field.type, pa.float64()))
            table = table.set_column(place, field.name, cells)
    return table


def _retyped(kind: Any, leaf: Any) -> Any:
    """Return a type with another one in the place of 32-bit floats, in lists and structs as
    well.
    """
    if pa.types.is_float32(kind):
        return leaf
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_retyped(field.type, leaf)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        listed = kind.value_field.with_type(_retyped(kind.value_type, leaf))
        return pa.list_(listed) if pa.types.is_list(kind) else pa.large_list(listed)
    return (
        pa.list_(leaf)
        if pa.types.is_fixed_size_list(kind) and pa.types.is_float32(kind.value_type)
        else kind
    )


def _finite(value: float | None) -> float | str | None:
    if value is None or math.isnan(value):
        return None
    return str(value) if math.isinf(value) else value


def plain(value: Any) -> Any:
    """Return a value of Arrow, pandas or NumPy as JSON has it; NaN becomes `None`, infinity, bytes
    and others text.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float | Decimal):
        # float refuses sNaN
        return None if isinstance(value, Decimal) and value.is_nan() else _finite(float(value))
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
        if str(value.dtype) not in {"float32", "float16"}:
            return plain(value.tolist())
        return [plain(each) for each in value] if value.ndim else plain(float(str(value)))
    return None if type(value).__name__ in {"NAType", "NaTType"} else str(value)


_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_NOT_COMPRESSED = -1
_V5 = 4


def check_stream(data: Any, most_bytes: int, most_values: int) -> None:
    """Raise a `ValueError` where a stream expands to more than so many bytes, or has more values in
    a column.

    Args:
        data: a `pyarrow.Buffer` with the whole stream.
        most_bytes: of all its buffers once they are decompressed.
        most_values: of a column, or of the values inside its lists, in all batches together.
    """
    expanded = values = 0
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(data)):
        length, size = _batch(memoryview(message.metadata), memoryview(message.body or b""))
        values += length
        expanded += size
        if values > most_values:
            raise ValueError(
                f"it states {values:,} values of a column, more than its bytes can hold"
            )
        if expanded > most_bytes:
            raise ValueError(
                f"it expands to more than {most_bytes:,} bytes, as no table of its size does"
            )


def _batch(metadata: memoryview, body: memoryview) -> tuple[int, int]:
    """Return the most values of a column and the expanded bytes of the batch in a message; 0 where
    it is none.
    """
    flat = _FlatBuffer(metadata)
    try:
        message = flat.number(0, "I")
        kind, batch = flat.field(message, 1, "B"), flat.inside(message, 2)
        if kind == _DICTIONARY_BATCH and batch:
            batch = flat.inside(batch, 1)
        if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH) or not batch:
            return 0, 0
        lengths = [flat.field(batch, 0, "q"), *(n for n, _ in flat.pairs(batch, 1))]
        # Before version 5 of the format, the message and not the batch could say that buffers are
        # compressed.
        version = flat.field(message, 0, "h")
        compressed = flat.inside(batch, 3) or (version < _V5 and flat.inside(message, 4))
        sizes = (_size(body, *pair, compressed=bool(compressed)) for pair in flat.pairs(batch, 2))
        return max(lengths), sum(sizes)
    except struct.error as error:
        raise ValueError("its metadata end early") from error


def _size(body: memoryview, offset: int, length: int, *, compressed: bool) -> int:
    """Return the bytes of a buffer once it is decompressed; before compressed ones stands how many
    they are.
    """
    if length <= 0 or not compressed:
        return max(length, 0)
    [stated] = struct.unpack_from("<q", body, offset)
    return length if stated == _NOT_COMPRESSED else max(int(stated), 0)


class _FlatBuffer:
    """Reads tables of a flatbuffer by their places; 0 is the place of what is left out."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def number(self, place: int, form: str) -> int:
        """Return a number."""
        return int(struct.unpack_from(f"<{form}", self._data, place)[0])

    def _place(self, table: int, field: int) -> int:
        # where a field is stands in another table, before or behind its own
        fields, entry = table - self.number(table, "i"), 4 + 2 * field
        if fields < 0 or entry >= self.number(fields, "H"):
            return 0
        offset = self.number(fields + entry, "H")
        return offset and table + offset

    def field(self, table: int, field: int, form: str) -> int:
        """Return the number in a field of a table; 0 where it is left out."""
        place = self._place(table, field)
        return place and self.number(place, form)

    def inside(self, table: int, field: int) -> int:
        """Return where the table or vector is that a field names."""
        place = self._place(table, field)
        return place and place + self.number(place, "I")

    def pairs(self, table: int, field: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of 64-bit numbers of a vector."""
        if start := self.inside(table, field):
            size = 16 * self.number(start, "I")
            pairs = self._data[start + 4 :][:size]
            if len(pairs) < size:
                raise struct.error
            yield from struct.iter_unpack("<qq", pairs)

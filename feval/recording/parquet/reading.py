"""Parquet files of a recording as they are read: one row group at a time, checked, and made into
questions, pools and arrays.
"""

from __future__ import annotations

import math
import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate, chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feval.errors import DamagedRecordingError
from feval.recording.arrays import RaggedArray
from feval.recording.content import PoolRows, Question, checked_messages, utc_text
from feval.recording.layout.flat import Int64, Numbers, mapped_unread, starts_of
from feval.recording.layout.format import Record
from feval.recording.parquet.bounds import SizeBounds
from feval.recording.parquet.writing import schema_of
from feval.recording.parts import PARTS, SparseRows, spec_of

_UNREADABLE = (
    pa.ArrowException, OSError, LookupError, TypeError, ValueError, AttributeError, OverflowError,
    StopIteration,
)  # fmt: skip

Rows = Iterator[tuple[str, dict[str, list[Any]]]]
"""(question id, column -> values), question by question."""

_PIECE_ROWS = 1 << 12


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


class PartFile:
    """An opened Parquet file. Other bytes than stated are refused."""

    def __init__(self, path: Path, record: Record) -> None:
        data = mapped_unread(path, record["bytes"])
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
        _check_types(path, self._file.schema_arrow)
        self._data, self._bounds = data, SizeBounds(path, data, metadata)
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        self._starts = list(accumulate((group.num_rows for group in groups), initial=0))

    def groups(self, columns: list[str] | None = None) -> Iterator[Any]:
        """The row groups, one after the other, as Arrow tables."""
        return (self._group(index, columns) for index in range(self._file.num_row_groups))

    def group_at(self, row: int, columns: list[str] | None) -> tuple[Any, int]:
        """The row group that holds a row as an Arrow table, and the first row of that group."""
        index = bisect_right(self._starts, row) - 1
        return self._group(index, columns), self._starts[index]

    def _group(self, index: int, columns: list[str] | None) -> Any:
        self._bounds.check(columns, [index])
        table = self._file.read_row_group(index, columns, use_threads=False)
        self._data.madvise(
            mmap.MADV_DONTNEED
        )  # the pages read count as this process's memory until they are needed elsewhere
        return _checked(table)


class PartTable:
    """A part of an LLM, or of a dataset: the rows of its files in their order, each opened when it
    is read.

    `records` has the manifest's record of each file; `starts` caches the first row of each
    question.
    """

    def __init__(
        self, folder: Path, records: dict[str, Record], open_table: Callable[[str], PartFile]
    ) -> None:
        self.path = folder / next(iter(records))
        self._folder, self._paths, self._open = folder, list(records), open_table
        rows = (record["rows"] for record in records.values())
        self._starts = list(accumulate(rows, initial=0))
        self.rows: int = self._starts[-1]
        self.starts: Int64 | None = None
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
            table, first = self.group_at(start, columns)
            piece = table.slice(start - first, rows.stop - start)
            yield piece
            start += piece.num_rows

    def questions(self, columns: list[str] | None = None, rows: range | None = None) -> Rows:
        """(question id, column -> values), of all or some rows, question by question, one row group
        in memory at a time.
        """
        pieces = (
            table.slice(start, _PIECE_ROWS)  # lists take ten times the memory of a table
            for table in self.groups(columns, rows)
            for start in range(0, table.num_rows, _PIECE_ROWS)
        )
        cut = chain.from_iterable(map(_by_question, pieces))
        # Pieces, and the row groups of another writer, may cut a question in two.
        for question, parts in groupby(cut, itemgetter(0)):
            values, *others = (own for _, own in parts)
            for more in others:
                values = {name: column + more[name] for name, column in values.items()}
            yield question, values

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

    def group_at(self, row: int, columns: list[str] | None) -> tuple[Any, int]:
        """The row group that holds a row, and its first row; the last one is kept, since its
        neighbours are read next.
        """
        if self._last is not None:
            kept, first, table = self._last
            if kept == columns and first <= row < first + table.num_rows:
                return table, first
        index = bisect_right(self._starts, row) - 1
        path, start = self._paths[index], self._starts[index]
        with readable(self._folder / path):
            table, first = self._open(path).group_at(row - start, columns)
        self._last = columns, start + first, table
        return table, start + first


def _by_question(table: Any) -> Rows:
    """(question id, column -> values) of consecutive rows, the key columns left out."""
    columns = table.to_pydict()
    own = {name: column for name, column in columns.items() if name not in {"llm", "question_id"}}
    if (times := own.get("recorded_at")) is not None:
        own["recorded_at"] = [time and utc_text(time) for time in times]
    stop = 0
    for question, rows in groupby(columns["question_id"]):
        start, stop = stop, stop + len([*rows])
        yield question, {name: column[start:stop] for name, column in own.items()}


_COUNTS = frozenset(("sample_index", "offset", "parent", "output_tokens", "prompt_tokens"))
_MOST = 2**31 - 1


@cache
def _kinds() -> dict[str, str]:
    """Return the kind of every column that a recording may have; a name has one meaning in all
    files.
    """
    return {field.name: _kind(field.type) for part in PARTS for field in schema_of(part)}


@cache
def _never_null(*, of_samples: bool) -> set[str]:
    """Return the columns that miss no value; scorers and probes need not say what they consumed."""
    names = {column.name for s in PARTS.values() for column in s.columns if column.is_required}
    return {"question_id", *names} - (set() if of_samples else {"output_tokens"})


def _kind(type_: Any) -> str:
    """Return what an Arrow type holds in words; how wide it is, and how encoded, is the writer's
    affair.
    """
    types = pa.types
    if types.is_dictionary(type_):
        return _kind(type_.value_type)
    if types.is_struct(type_):
        return f"struct of {', '.join(f'{field.name} ({_kind(field.type)})' for field in type_)}"
    if types.is_list(type_) or types.is_large_list(type_):
        return f"list of {_kind(type_.value_type)}"
    names = {
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "integer": (types.is_integer,),
        "number": (types.is_floating,),
        "truth value": (types.is_boolean,),
        "time": (types.is_timestamp,),
    }
    return next(
        (name for name, tests in names.items() if any(test(type_) for test in tests)), str(type_)
    )


def _check_types(path: Path, schema: Any) -> None:
    """Check that every known column of a file has the type that a recording has there, or no value
    at all.
    """
    for field in schema:
        expected = _kinds().get(field.name)
        if (
            expected is not None
            and not pa.types.is_null(field.type)
            and _kind(field.type) != expected
        ):
            raise DamagedRecordingError(
                f"{path}: the column {field.name!r} should hold {expected}, found"
                f" {_kind(field.type)!s:.120}. Its owner has to publish it again."
            )


def _checked(table: Any) -> Any:
    """Return a table whose columns have values wherever they must, and counts in their range;
    others are a `ValueError`.
    """
    never_null = _never_null(of_samples="finish_reason" in table.column_names)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and name in never_null:
            raise ValueError(f"{column.null_count} values of {name!r} are missing")
        if name in _COUNTS and len(column) > column.null_count:
            least, most = pc.min_max(column).as_py().values()
            if least < 0 or most > _MOST:
                raise ValueError(
                    f"{name!r} should be 0 to {_MOST}, found {least if least < 0 else most}"
                )
    return table


def questions_of_tables(tables: Iterable[Any]) -> Iterator[Question]:
    """Yield the questions of a dataset from its tables, one per row group."""
    for table in tables:
        columns = table.to_pydict()
        names = ("question_id", *(column.name for column in PARTS["questions"].columns))
        columns.setdefault("features", [None] * len(columns["question_id"]))
        for *own, choices, features in zip(*(columns[name] for name in names), strict=True):
            pairs = (
                tuple((each["label"], each["text"]) for each in listed or ())
                for listed in (choices, features)
            )
            yield Question(*own, *pairs)


def rows_of_part(part: str, rows: Rows) -> Iterator[Any]:
    """Yield the scores or probes of an LLM question by question."""
    spec = spec_of(part)
    for question, columns in rows:
        yield spec.rows(question, **spec.fields_of(columns))


def pools_of_rows(
    path: object, requests: Rows, texts: Iterator[str | None], parts: Mapping[str, Rows]
) -> Iterator[PoolRows]:
    """Yield the pools of an LLM from its files, which are read side by side; `path` is that of the
    samples, for messages.

    The `parts`, samples and channels, may lack questions, requests may not. Files that do not hold
    the same CoTs are damaged.
    """
    files = {part: SparseRows(rows, {}) for part, rows in parts.items()}
    for question, request in requests:
        taken = {part: file.take(question) for part, file in files.items()}
        size = len(taken["samples"].get("sample_index", ()))
        for own in taken.values():
            if own and own["sample_index"] != list(range(size)):
                raise DamagedRecordingError(
                    f"{path}: sample indices of {question!r} are not 0, 1, 2 ..."
                )
        fields: Record = {"texts": list(islice(texts, size)), "extra": {}}
        if len(fields["texts"]) != size:
            raise ValueError(f"texts end before {question!r}")
        for part, own in {"requests": request, **taken}.items():
            found = spec_of(part).fields_of(own) if own or part == "samples" else {}
            fields |= found | {"extra": fields["extra"] | found.get("extra", {})}
        if fields.get("messages"):
            checked_messages(fields["messages"])
        yield PoolRows(question, **fields)
    if next(texts, path) is not path or any(file.next is not None for file in files.values()):
        raise DamagedRecordingError(
            f"{path} does not hold the same questions as the requests and the texts."
        )


def arrays_of_tables(
    part: str, tables: Iterable[Any], question_ids: Sequence[str], shape: tuple[int, int]
) -> Record:
    """Return column -> array [Q, S] of the numbers of a part, NaN or -1 where there is none, and
    `RaggedArray` of its lists, from one table per row group; "known" tells which CoTs have a row.
    Wrong places are a `ValueError`.
    """
    size, kinds = shape[0] * shape[1], {c.name: c.kind for c in spec_of(part).columns}
    numbers = {
        name: np.full(size, math.nan) if kind == "float64" else np.full(size, -1, np.int32)
        for name, kind in kinds.items()
        if kind in {"float64", "int32"} and name != "sample_index"
    }
    lists: dict[str, list[tuple[Any, Any]]] = {
        name: [] for name, kind in kinds.items() if kind.startswith("list<float")
    }
    known, last = np.zeros(size, np.bool_), -1
    rows = {question: row for row, question in enumerate(question_ids)}
    for table in tables:
        places = _places(table, rows, shape, last)
        last = int(places[-1]) if len(places) else last
        known[places] = True
        for name, values in numbers.items():
            missing = values.dtype.type(math.nan if kinds[name] == "float64" else -1)
            values[places] = pc.fill_null(table.column(name), missing).to_numpy()
        for name, pieces in lists.items():
            pieces.append((places, table.column(name).combine_chunks()))
    arrays = {name: values.reshape(shape) for name, values in (numbers | {"known": known}).items()}
    return arrays | {
        name: _ragged(pieces, shape, kinds[name][5:-1]) for name, pieces in lists.items()
    }


def _places(table: Any, rows: Mapping[str, int], shape: tuple[int, ...], before: int) -> Int64:
    """Return the place of each row of a table in a flattened [Q, S]; all lie behind the place
    `before`.
    """
    ids = table.column("question_id").combine_chunks().dictionary_encode()
    row_of = np.array([rows.get(question, -1) for question in ids.dictionary.to_pylist()], np.int64)
    samples: Int64 = table.column("sample_index").to_numpy().astype(np.int64)
    if not len(samples):
        return samples
    if (row_of < 0).any() or samples.min() < 0 or samples.max() >= shape[1]:
        raise ValueError("values of CoTs that are not recorded")
    places: Int64 = row_of[ids.indices.to_numpy()] * shape[1] + samples
    if (np.diff(places, prepend=before) <= 0).any():
        raise ValueError("values out of order")
    return places


def _ragged(pieces: list[tuple[Any, Any]], shape: tuple[int, int], dtype: str) -> RaggedArray:
    """Return a column of lists from its pieces, each with the places of its rows."""
    lengths = np.zeros(shape[0] * shape[1], np.int64)
    values: list[Numbers] = [np.empty(0, dtype)]
    for places, column in pieces:
        counts = pc.fill_null(pc.list_value_length(column), 0)
        lengths[places] = counts.to_numpy(zero_copy_only=False)
        flat = pc.list_flatten(column).to_numpy(zero_copy_only=False)
        values.append(flat.astype(dtype, copy=False))
    return RaggedArray(np.concatenate(values), starts_of(lengths), shape)

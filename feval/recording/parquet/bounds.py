"""Limits on what a Parquet file grows to when it is read: a small file can be made to decompress to
gigabytes.

The limits are far beyond what recordings need. The footer is not trusted: before a column is
decoded, the headers of its pages say how many bytes they hold, and the strings behind a dictionary
are counted without making them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feval.errors import DamagedRecordingError

_MOST_TIMES = 1000
_ALWAYS_BYTES = 64 << 20
_MOST_GROUP_BYTES = 2 << 30
_ALWAYS_ROWS = 1 << 20
_ROWS_PER_BYTE = 64

_NO_MATTER_BYTES = 64 << 10

_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)

# Numbers of encodings and of a kind of page, as Parquet's format has them.
_DICTIONARIES, _DELTA_BYTE_ARRAY = {2, 8}, 7
_DICTIONARY_PAGE = 2


class SizeBounds:
    """Checks what the columns of an opened Parquet file expand to, each once; too much is a
    `DamagedRecordingError`.

    `data` is the whole file, `path` names it in messages, and `most_bytes` is what it may expand
    to.
    """

    def __init__(
        self, path: str | PurePath, data: Any, metadata: Any, most_bytes: int | None = None
    ) -> None:
        self._path, self._data = path, data
        self._most_bytes = (
            _ALWAYS_BYTES + _MOST_TIMES * len(data) if most_bytes is None else most_bytes
        )
        self._groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self._leaves = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        self._expanded: dict[tuple[int, int], int] = {}
        self._total = 0
        self._check_footer(metadata.num_rows)

    def check(
        self, columns: Iterable[str] | None = None, groups: Iterable[int] | None = None
    ) -> None:
        """Check some columns in some row groups, all where none are named, before they are
        decoded.
        """
        names = None if columns is None else {*columns}
        leaves = [
            i for i, leaf in enumerate(self._leaves) if names is None or leaf.split(".")[0] in names
        ]
        for group in range(len(self._groups)) if groups is None else groups:
            for leaf in leaves:
                if (group, leaf) not in self._expanded:
                    self._expanded[group, leaf] = self._expansion(group, leaf)
                    self._total += self._expanded[group, leaf]
            if sum(self._expanded.get((group, leaf), 0) for leaf in leaves) > _MOST_GROUP_BYTES:
                raise self._bomb(f"more than {_MOST_GROUP_BYTES:,} bytes in a row group")

    def _check_footer(self, rows: int) -> None:
        """Check the numbers that the footer states of values: memory is set aside for so many."""
        stated = [group.num_rows for group in self._groups]
        values = [
            group.column(leaf).num_values
            for group in self._groups
            for leaf in range(len(self._leaves))
        ]
        if min(stated + values, default=0) < 0 or sum(stated) != rows:
            raise self._contradiction()
        most = max([rows, *values])
        if most > most_values(len(self._data)):
            raise self._bomb(f"{most:,} values of a column")

    def _expansion(self, group: int, leaf: int) -> int:
        """Return the bytes that a column of a row group stands for."""
        column = self._groups[group].column(leaf)
        if column.num_values == 0:
            return 0  # Arrow reads none of its pages
        pages = list(self._pages(column))
        of_data = [page for page in pages if page.kind != _DICTIONARY_PAGE]
        if sum(page.values for page in of_data) != column.num_values:
            raise self._contradiction()
        size = sum(page.bytes for page in pages)
        self._count(size)
        if column.physical_type != "BYTE_ARRAY":
            return size
        encodings = {page.encoding for page in of_data}
        # where every value repeats all of a page
        most = max(page.bytes for page in pages) * column.num_values
        if encodings & _DICTIONARIES and most > _NO_MATTER_BYTES:
            # read so, it makes no string per row
            names = [self._leaves[leaf]]
            with pq.ParquetFile(pa.BufferReader(self._data), read_dictionary=names) as file:
                strings = file.read_row_group(group, names, use_threads=False).column(0)
            size += sum(map(expanded_bytes, strings.chunks))
        elif encodings & {*_DICTIONARIES, _DELTA_BYTE_ARRAY}:
            size += most
        self._count(size)
        return size

    def _count(self, expanded: int) -> None:
        if self._total + expanded > self._most_bytes:
            raise self._bomb(f"{self._total + expanded:,} bytes")

    def _pages(self, column: Any) -> Iterator[_Page]:
        """Yield the pages of a column, where Arrow will read them."""
        dictionary = column.dictionary_page_offset if column.has_dictionary_page else None
        at = min(column.data_page_offset, dictionary or column.data_page_offset)
        end = at + column.total_compressed_size
        if not 0 <= at <= end <= len(self._data):
            raise self._contradiction()
        while at < end:
            try:
                page, at = _page(self._data, at)
            except (LookupError, ValueError) as error:
                raise self._contradiction() from error
            at += page.compressed
            if min(page.bytes, page.compressed, page.values) < 0 or at > end:
                raise self._contradiction()
            yield page

    def _contradiction(self) -> DamagedRecordingError:
        return DamagedRecordingError(
            f"{self._path} has a footer that contradicts its pages; fetch the file again."
        )

    def _bomb(self, expansion: str) -> DamagedRecordingError:
        return DamagedRecordingError(
            f"{self._path} has {len(self._data):,} bytes and would expand to {expansion}; no"
            " recording compresses so well. Do not use it."
        )


def most_values(size: int) -> int:
    """Return how many values a column of a file of so many bytes may have."""
    return _ALWAYS_ROWS + _ROWS_PER_BYTE * size


def expanded_bytes(array: Any) -> int:
    """Return the bytes that the values of an array take where each has its own, as Python's do."""
    return sum(_behind(flat) for flat in _flat(array))


class _Page(NamedTuple):
    """What the header of a page says; the fields of Parquet's `PageHeader` that matter."""

    kind: int
    bytes: int
    compressed: int
    values: int
    encoding: int


def _page(data: Any, at: int) -> tuple[_Page, int]:
    """Read the header of a page; return it and where the page begins. What is no header is a
    `ValueError` or `IndexError`.
    """
    header, at = _struct(data, at)
    [inner] = (header[kind] for kind in (5, 7, 8) if isinstance(header.get(kind), dict))
    page = _Page(header[1], header[2], header[3], inner[1], inner[4 if 8 in header else 2])
    if {*map(type, page)} != {int}:
        raise ValueError("a page without sizes")
    return page, at


def _struct(data: Any, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Read a struct of Thrift's compact protocol, which is how headers of pages are written:
    pyarrow does not show them.
    """
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        delta, kind = head >> 4, head & 15
        # fields in any other order could say one thing here and another to Arrow
        if not delta or depth > 4:
            raise ValueError("a header of a page that is not in order")
        number += delta
        if kind in {1, 2}:  # true, false
            fields[number] = kind == 1
        elif kind in {4, 5, 6}:  # integers of 16, 32 and 64 bits
            value, at = _varint(data, at)
            fields[number] = (value >> 1) ^ -(value & 1)
        elif kind == 8:  # bytes
            size, at = _varint(data, at)
            at += size
        elif kind == 12:
            fields[number], at = _struct(data, at, depth + 1)
        else:
            raise ValueError(f"a header of a page with a field of the type {kind}")
    return fields, at + 1


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) & 128:
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return value | byte << shift, at + 1


def _flat(array: Any) -> Iterator[Any]:
    """Yield the flat arrays inside an array of lists or structs."""
    if pa.types.is_struct(array.type):
        for part in array.flatten():
            yield from _flat(part)
    elif any(is_list(array.type) for is_list in _LISTS):
        yield from _flat(array.flatten())
    elif pa.types.is_map(array.type):
        yield from _flat(array.keys)
        yield from _flat(array.items)
    elif isinstance(array.type, pa.BaseExtensionType):
        yield from _flat(array.storage)
    else:
        yield array


def _behind(leaf: Any) -> int:
    if pa.types.is_string_view(leaf.type) or pa.types.is_binary_view(leaf.type):
        # of each the length, and where it lies
        views = np.frombuffer(leaf.buffers()[1], np.int32)[::4]
        return int(views[leaf.offset : leaf.offset + len(leaf)].clip(0).sum(dtype=np.int64))
    if not pa.types.is_dictionary(leaf.type):
        return int(leaf.nbytes)
    values = leaf.dictionary
    if not any(is_text(values.type) for is_text in _TEXTS):
        return len(leaf) * expanded_bytes(values) if len(values) else 0
    lengths = pc.cast(pc.binary_length(leaf.dictionary), pa.int64())
    return int(pc.sum(pc.take(lengths, leaf.indices)).as_py() or 0)

"""The messages of an Arrow IPC stream, looked at before any buffer in them is decompressed.

pyarrow decompresses all columns of a record batch at once, and does not show what its metadata say,
which are a flatbuffer.
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

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
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(data))
    expanded = values = 0
    while (message := _next(reader)) is not None:
        for length, buffers in _batches(
            memoryview(message.metadata), memoryview(message.body or b"")
        ):
            values += length
            expanded += buffers
            if values > most_values:
                raise ValueError(
                    f"it states {values:,} values of a column, more than its bytes can hold"
                )
            if expanded > most_bytes:
                raise ValueError(
                    f"it expands to more than {most_bytes:,} bytes, as no table of its size does"
                )


def _next(reader: Any) -> Any:
    try:
        return reader.read_next_message()
    except StopIteration:
        return None


def _batches(metadata: memoryview, body: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the most values of a column and the expanded bytes of the batch in a message, if it is
    one.
    """
    try:
        message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
        kind, batch = message.number(1, "B"), message.table(2)
        if kind == _DICTIONARY_BATCH and batch is not None:
            batch = batch.table(1)
        if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH) or batch is None:
            return
        lengths = [batch.number(0, "q"), *(length for length, _ in batch.pairs(1))]
        # Before version 5 of the format, the message and not the batch could say that buffers are
        # compressed.
        compressed = batch.table(3) is not None or (
            message.number(0, "h") < _V5 and message.table(4) is not None
        )
        yield (
            max(lengths),
            sum(_size(body, *pair, compressed=compressed) for pair in batch.pairs(2)),
        )
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


class _Table:
    """A table of a flatbuffer: where its fields lie stands in another table, before or behind
    it.
    """

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if self._fields < 0 or entry >= struct.unpack_from("<H", self._data, self._fields)[0]:
            return None
        offset = struct.unpack_from("<H", self._data, self._fields + entry)[0]
        return self._at + int(offset) if offset else None

    def number(self, field: int, form: str) -> int:
        """Return a number; 0 where it is left out."""
        place = self._place(field)
        return 0 if place is None else int(struct.unpack_from(f"<{form}", self._data, place)[0])

    def table(self, field: int) -> _Table | None:
        """Return a table inside this one."""
        place = self._place(field)
        return (
            None
            if place is None
            else _Table(self._data, place + struct.unpack_from("<I", self._data, place)[0])
        )

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of 64-bit numbers of a vector."""
        place = self._place(field)
        if place is None:
            return
        start = place + struct.unpack_from("<I", self._data, place)[0]
        [count] = struct.unpack_from("<I", self._data, start)
        whole = self._data[start + 4 : start + 4 + 16 * count]
        if len(whole) < 16 * count:
            raise struct.error
        yield from struct.iter_unpack("<qq", whole)

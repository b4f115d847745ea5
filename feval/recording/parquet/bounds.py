"""Limits on what a Parquet file grows to when it is read: a small file can be made to decompress to gigabytes.

The limits are far beyond what recordings need. The footer is checked when a file is opened, the strings behind its dictionaries
when a file comes from the Hub.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feval.errors import DamagedRecordingError

_MOST_TIMES = 1000
_ALWAYS_BYTES = 64 << 20
_MOST_GROUP_BYTES = 2 << 30
_ALWAYS_ROWS = 1 << 20
_ROWS_PER_BYTE = 64


def check_footer(path: Path, metadata: Any, record: Mapping[str, Any]) -> None:
    """Check the footer of a Parquet file against its record in the manifest and the limits."""
    rows, size = metadata.num_rows, record["bytes"]
    if rows != record["rows"]:
        raise DamagedRecordingError(
            f"{path} should have {record['rows']} rows, found {rows}; fetch the recording again."
        )
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    group_bytes = [group.total_byte_size for group in groups]
    group_rows = [group.num_rows for group in groups]
    if min(group_bytes + group_rows, default=0) < 0 or sum(group_rows) != rows:
        raise DamagedRecordingError(f"{path} has a footer that contradicts itself; fetch the recording again.")
    _check_bytes(path, sum(group_bytes), size)
    values = max((group.column(i).num_values for group in groups for i in range(group.num_columns)), default=0)
    most = max(rows, values)
    if max(group_bytes, default=0) > _MOST_GROUP_BYTES or most > _ALWAYS_ROWS + _ROWS_PER_BYTE * size:
        raise _bomb(path, size, f"{most:,} values of a column, and {max(group_bytes):,} bytes in a row group")


def check_expansion(path: Path, size: int) -> None:
    """Check how many bytes the strings behind a file's dictionaries have, without making them; `size` is that of the file."""
    _check_bytes(path, sum(_string_bytes(path)), size)


def _string_bytes(path: Path) -> Iterator[int]:
    with pq.ParquetFile(path, memory_map=True) as file:
        metadata = file.metadata
        leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        strings = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    # Read as a dictionary, a column makes no string per row.
    with pq.ParquetFile(path, memory_map=True, read_dictionary=strings, page_checksum_verification=True) as file:
        for group in range(metadata.num_row_groups):
            for name in strings:
                for chunk in file.read_row_group(group, [name], use_threads=False).column(0).chunks:
                    yield sum(_behind(leaf) for leaf in _leaves(chunk))


def _leaves(array: Any) -> Iterator[Any]:
    """Yield the flat arrays inside an array of lists or structs."""
    if pa.types.is_struct(array.type):
        for part in array.flatten():
            yield from _leaves(part)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        yield from _leaves(array.flatten())
    else:
        yield array


def _behind(leaf: Any) -> int:
    if not pa.types.is_dictionary(leaf.type):
        return int(leaf.nbytes)
    lengths = pc.cast(pc.binary_length(leaf.dictionary), pa.int64())
    return int(pc.sum(pc.take(lengths, leaf.indices)).as_py() or 0)


def _check_bytes(path: Path, expanded: int, size: int) -> None:
    if expanded > _ALWAYS_BYTES + _MOST_TIMES * size:
        raise _bomb(path, size, f"{expanded:,} bytes")


def _bomb(path: Path, size: int, expansion: str) -> DamagedRecordingError:
    return DamagedRecordingError(
        f"{path} has {size:,} bytes and would expand to {expansion}; no recording compresses so well. Do not use it."
    )

"""Parquet files of a few kilobytes that stand for gigabytes, and thousands of odd ones."""

from functools import cache

import numpy as np
import pyarrow as pa
from small import parquet

KINDS = ("plain", "dictionary", "nested dictionary", "prefixes", "rows", "values")
_MEGABYTE = "y" * (1 << 20)


def _dictionary(rows):
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([_MEGABYTE]))


@cache
def bomb(kind, name="more"):
    """A Parquet file of a few kilobytes with a column of this name, and its rows."""
    rows = {"plain": 80, "dictionary": 8000, "prefixes": 80, "rows": 4_000_000}.get(kind, 1)
    columns = {
        "plain": lambda: pa.array([_MEGABYTE] * rows),
        "prefixes": lambda: pa.array([_MEGABYTE] * rows),
        "dictionary": lambda: _dictionary(rows),
        "nested dictionary": lambda: pa.ListArray.from_arrays(
            pa.array([0, 2000], pa.int32()), _dictionary(2000)
        ),
        "rows": lambda: pa.array([None] * rows, pa.string()),
        "values": lambda: pa.ListArray.from_arrays(
            pa.array([0, 4_000_000], pa.int32()), pa.array(np.zeros(4_000_000, np.float32))
        ),
    }
    keys = {"question_id": pa.nulls(rows, pa.string()), "sample_index": pa.nulls(rows, pa.int32())}
    table = pa.table({**keys, name: columns[kind]()})
    if kind == "prefixes":
        return (
            parquet(table, use_dictionary=False, column_encoding={name: "DELTA_BYTE_ARRAY"}),
            rows,
        )
    return parquet(table, use_dictionary=kind != "plain"), rows

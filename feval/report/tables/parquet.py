"""Parquet files of reports; imports PyArrow, so it is loaded through `feval.report.tables`."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feval.comparison.comparison import point_columns
from feval.report.tables.csv import curve_rows
from feval.report.tables.surface import SURFACE_COLUMNS

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.evaluation.curves import Curve
    from feval.evaluation.surface import Surface

_ROW_GROUP = 1 << 16


def curve_parquet(curve: Curve) -> bytes:
    """Return `curve.parquet`: the rows of `curve_csv`, null for unknown values."""
    names, rows = curve_rows(curve)
    whole = all(isinstance(point.n, int) for point in curve.points)
    types = {"n": pa.int64() if whole else pa.float64(), "kind": pa.string()}
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return table_bytes(
        pa.table(
            {name: pa.array(values, types.get(name, pa.float64())) for name, values in columns}
        )
    )


def surface_parquet(surface: Surface) -> bytes:
    """Return `surface.parquet`: the rows of `surface_csv`, null for unknown values and no limit."""
    types = {"n": pa.int32(), "tokens": pa.int64(), "frontier": pa.bool_()}
    columns = {name: [getattr(point, name) for point in surface.points] for name in SURFACE_COLUMNS}
    return table_bytes(
        pa.table(
            {
                name: pa.array(values, types.get(name, pa.float64()))
                for name, values in columns.items()
            }
        )
    )


def results_parquet(comparison: Comparison) -> bytes:
    """Return `results.parquet`: the rows of `results_csv`, null for unknown values."""
    texts = dict.fromkeys(("role", "label", "budget", "llms", "kind", "token_counter"), pa.string())
    types = texts | {"point": pa.int32(), "frontier": pa.bool_()}
    rows = comparison.records()
    return table_bytes(
        pa.table(
            {
                name: pa.array([row[name] for row in rows], types.get(name, pa.float64()))
                for name in rows[0]
            }
        )
    )


def questions_parquet(comparison: Comparison, out: BinaryIO) -> None:
    """Write `questions.parquet`, the columns of `Comparison.per_question`: some points in a row
    group, or a point in several.
    """
    points = [(curve, place) for curve in comparison.curves for place in range(len(curve.points))]
    ids = comparison.curves[0].points[0].question_ids
    blocks = [slice(start, start + _ROW_GROUP) for start in range(0, len(ids), _ROW_GROUP)]
    names = [pa.array(ids[block], pa.string()).dictionary_encode() for block in blocks]
    several = max(1, _ROW_GROUP // len(ids))
    tables = (
        pa.concat_tables(_question_table(columns, block, some) for columns in together)
        for start in range(0, len(points), several)
        for together in [[point_columns(*point) for point in points[start : start + several]]]
        for block, some in zip(blocks, names, strict=True)
    )
    first = next(tables)
    with pq.ParquetWriter(out, first.schema, compression="zstd") as writer:
        for table in chain([first], tables):
            writer.write_table(table.unify_dictionaries().combine_chunks(), _ROW_GROUP)


def _question_table(columns: dict[str, Any], block: slice, ids: pa.DictionaryArray) -> pa.Table:
    """The rows of a block of questions at one point. Ids, labels and LLMs repeat; dictionaries keep
    them small.
    """
    first = pa.array(np.zeros(len(ids), np.int32))
    arrays = {}
    for name, value in columns.items():
        if name == "question":
            arrays[name] = ids
        elif isinstance(value, str):
            arrays[name] = pa.DictionaryArray.from_arrays(first, pa.array([value], pa.string()))
        else:
            some = value[block] if np.ndim(value) else np.full(len(ids), value)
            arrays[name] = pa.array(some, pa.int32() if name == "point" else pa.float64())
    return pa.table(arrays)


def table_bytes(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=_ROW_GROUP)
    return bytes(sink.getvalue().to_pybytes())

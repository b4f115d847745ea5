"""Parquet files of reports; imports PyArrow, so it is loaded through `feval.report.tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from feval.report.tables.comparisons import RESULT_COLUMNS, result_rows
from feval.report.tables.csv import POINT_COLUMNS

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.evaluation.curves import Curve


def curve_parquet(curve: Curve) -> bytes:
    """Return `curve.parquet`: the rows of `curve_csv`, null for unknown values."""
    columns = {name: [getattr(point, name) for point in curve.points] for name in POINT_COLUMNS}
    whole = all(isinstance(value, int) for value in columns["n"])
    types = {"n": pa.int64() if whole else pa.float64(), "kind": pa.string()}
    return table_bytes(
        pa.table({name: pa.array(values, types.get(name, pa.float64())) for name, values in columns.items()})
    )


def results_parquet(comparison: Comparison) -> bytes:
    """Return `results.parquet`: the rows of `results_csv`, null for unknown values."""
    texts = dict.fromkeys(("role", "label", "budget", "llms", "kind"), pa.string())
    types = texts | {"point": pa.int32(), "frontier": pa.bool_()}
    columns = zip(RESULT_COLUMNS, zip(*result_rows(comparison), strict=True), strict=True)
    return table_bytes(pa.table({name: pa.array(values, types.get(name, pa.float64())) for name, values in columns}))


def questions_parquet(comparison: Comparison) -> bytes:
    """Return `questions.parquet`: the columns of `Comparison.per_question`, one row per point and question."""
    columns = comparison.per_question()
    texts = ("method", "budget", "llms", "kind", "question")
    types = {name: pa.float64() for name in columns if name not in texts} | {"point": pa.int32()}
    # Labels and LLMs repeat over all questions of a point; dictionaries keep them small.
    arrays = {
        name: pa.array(values, types[name]) if name in types else pa.array(values, pa.string()).dictionary_encode()
        for name, values in columns.items()
    }
    return table_bytes(pa.table(arrays))


def table_bytes(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=1 << 16)
    return bytes(sink.getvalue().to_pybytes())

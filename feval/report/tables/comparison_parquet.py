"""Parquet files of a comparison; imports PyArrow, so it is loaded through `feval.report.tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from feval.report.tables.comparisons import RESULT_COLUMNS, result_rows
from feval.report.tables.parquet import table_bytes

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison


def results_parquet(comparison: Comparison) -> bytes:
    """Return `results.parquet`: the rows of `results_csv`, null for unknown values."""
    texts = dict.fromkeys(("role", "label", "budget", "llms", "kind"), pa.string())
    types = texts | {"point": pa.int32(), "frontier": pa.bool_()}
    columns = zip(RESULT_COLUMNS, zip(*result_rows(comparison), strict=True), strict=True)
    return table_bytes(pa.table({name: pa.array(own, types.get(name, pa.float64())) for name, own in columns}))


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

"""Parquet files of reports; imports PyArrow, so it is loaded through `feval.report.tables`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feval.comparison import Comparison, MethodCurve
from feval.comparison.comparison import point_columns
from feval.report.tables.tables import Records

_ROW_GROUP = 1 << 16
_WHOLE = ("n", "point", "tokens")
"""Columns of whole numbers, where all of them are."""


def records_parquet(records: Records) -> bytes:
    """Return records, at least one, as a Parquet file: numbers are float64 but for counts, null is
    an unknown one.
    """
    columns = {name: [record[name] for record in records] for name in records[0]}
    table = pa.table({name: pa.array(own, _type(name, own)) for name, own in columns.items()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=_ROW_GROUP)
    return bytes(sink.getvalue().to_pybytes())


def _type(name: str, values: list[Any]) -> pa.DataType:
    known = {type(value) for value in values if value is not None}
    if known & {str, bool}:
        return pa.string() if str in known else pa.bool_()
    return pa.int64() if name in _WHOLE and known <= {int} else pa.float64()


def questions_parquet(comparison: Comparison, out: BinaryIO) -> None:
    """Write `questions.parquet`, the columns of `Comparison.per_question`: some points in a row
    group, or a point in several.
    """
    points = ((curve, place) for curve in comparison.curves for place in range(len(curve.points)))
    # methods that learn by themselves are judged on fewer questions
    by_questions = groupby(points, key=lambda point: point[0].points[0].questions)
    tables = chain.from_iterable(_question_tables(list(own)) for _, own in by_questions)
    first = next(tables)
    with pq.ParquetWriter(out, first.schema, compression="zstd") as writer:
        for table in chain([first], tables):
            writer.write_table(table.unify_dictionaries().combine_chunks(), _ROW_GROUP)


def _question_tables(points: Sequence[tuple[MethodCurve, int]]) -> Iterator[pa.Table]:
    """The tables of points on the same questions."""
    ids = points[0][0].points[0].question_ids
    blocks = [slice(start, start + _ROW_GROUP) for start in range(0, len(ids), _ROW_GROUP)]
    names = [pa.array(ids[block], pa.string()).dictionary_encode() for block in blocks]
    several = max(1, _ROW_GROUP // len(ids))
    for start in range(0, len(points), several):
        together = [point_columns(*point) for point in points[start : start + several]]
        for block, some in zip(blocks, names, strict=True):
            yield pa.concat_tables(_question_table(columns, block, some) for columns in together)


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

"""`curve.parquet`, and how every table of a report becomes a Parquet file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.report.tables.csv import POINT_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from feval.evaluation.curves import Curve

__all__ = ["curve_parquet", "table_bytes"]


def curve_parquet(curve: Curve) -> bytes:
    """Return Parquet bytes with the rows of `feval.report.tables.csv.curve_csv`, null for what is not known."""
    import pyarrow as pa

    columns = {name: [getattr(point, name) for point in curve.points] for name in POINT_COLUMNS}
    whole = all(isinstance(value, int) for value in columns["n"])
    types = {"n": pa.int64() if whole else pa.float64(), "kind": pa.string()}
    return table_bytes(pa.table({name: pa.array(own, types.get(name, pa.float64())) for name, own in columns.items()}))


def table_bytes(table: pa.Table) -> bytes:
    """Return the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=1 << 16)
    return bytes(sink.getvalue().to_pybytes())

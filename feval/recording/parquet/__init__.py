"""Parquet files, read and written. Its modules import pyarrow, so they are loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.recording.parquet.bounds import Bounds as Bounds
    from feval.recording.parquet.bounds import expanded_bytes as expanded_bytes
    from feval.recording.parquet.bounds import most_values as most_values
    from feval.recording.parquet.reading import Aligned as Aligned
    from feval.recording.parquet.reading import PartTable as PartTable
    from feval.recording.parquet.reading import Table as Table
    from feval.recording.parquet.reading import arrays_of_tables as arrays_of_tables
    from feval.recording.parquet.reading import pools_of_rows as pools_of_rows
    from feval.recording.parquet.reading import questions_of_tables as questions_of_tables
    from feval.recording.parquet.reading import readable as readable
    from feval.recording.parquet.reading import rows_of_part as rows_of_part

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "bounds": ("Bounds", "expanded_bytes", "most_values"),
        "reading": (
            "Aligned",
            "PartTable",
            "Table",
            "arrays_of_tables",
            "pools_of_rows",
            "questions_of_tables",
            "readable",
            "rows_of_part",
        ),
    },
)

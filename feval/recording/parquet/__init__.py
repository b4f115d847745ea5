"""Parquet files, read and written. Its modules import pyarrow, so they are loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.recording.parquet.arrays import logprobs_of_tables as logprobs_of_tables
    from feval.recording.parquet.arrays import scores_of_tables as scores_of_tables
    from feval.recording.parquet.bounds import Bounds as Bounds
    from feval.recording.parquet.bounds import expanded_bytes as expanded_bytes
    from feval.recording.parquet.bounds import most_values as most_values
    from feval.recording.parquet.rows import Aligned as Aligned
    from feval.recording.parquet.rows import marks_of_column as marks_of_column
    from feval.recording.parquet.rows import pools_of_rows as pools_of_rows
    from feval.recording.parquet.rows import probes_of_rows as probes_of_rows
    from feval.recording.parquet.rows import questions_of_tables as questions_of_tables
    from feval.recording.parquet.rows import scores_of_rows as scores_of_rows
    from feval.recording.parquet.rows import verdicts_of_rows as verdicts_of_rows
    from feval.recording.parquet.tables import Part as Part
    from feval.recording.parquet.tables import Table as Table
    from feval.recording.parquet.tables import readable as readable

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "arrays": ("logprobs_of_tables", "scores_of_tables"),
        "bounds": ("Bounds", "expanded_bytes", "most_values"),
        "rows": (
            "Aligned",
            "marks_of_column",
            "pools_of_rows",
            "probes_of_rows",
            "questions_of_tables",
            "scores_of_rows",
            "verdicts_of_rows",
        ),
        "tables": ("Part", "Table", "readable"),
    },
)

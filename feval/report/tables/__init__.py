"""Results as plain-text tables, CSV and Parquet. PyArrow and rich are loaded on first use:
`tables.curve_parquet(...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.report.tables.parquet import (
        curve_parquet,
        questions_parquet,
        results_parquet,
        surface_parquet,
        table_bytes,
    )
    from feval.report.tables.rich_tables import rich_table

__all__ = [
    "curve_parquet",
    "questions_parquet",
    "results_parquet",
    "rich_table",
    "surface_parquet",
    "table_bytes",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "parquet": (
            "curve_parquet",
            "questions_parquet",
            "results_parquet",
            "surface_parquet",
            "table_bytes",
        ),
        "rich_tables": ("rich_table",),
    },
)

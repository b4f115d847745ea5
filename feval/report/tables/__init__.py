"""Results as plain-text tables, CSV and Parquet. PyArrow is loaded on first use: `tables.results_parquet(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.report.tables.comparison_parquet import questions_parquet, results_parquet

__all__ = ["questions_parquet", "results_parquet"]

__getattr__, __dir__ = lazy_names(__name__, {"comparison_parquet": ("questions_parquet", "results_parquet")})

"""Results as plain-text tables, CSV and Parquet. PyArrow and rich are loaded on first use:
`tables.records_parquet(...)`.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.report.tables.parquet import questions_parquet, records_parquet
    from feval.report.tables.rich_tables import rich_table

__all__ = ["questions_parquet", "records_parquet", "rich_table"]

__getattr__, __dir__ = lazy_names(
    __name__, {"parquet": "questions_parquet records_parquet", "rich_tables": "rich_table"}
)

"""Figures as tables and CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from feval.report.tables.csv import csv_text
from feval.report.tables.tables import Table, columns

if TYPE_CHECKING:
    from feval.forecast.figures import Figure

POINT_COLUMNS = ("panel", "series", "x", "y", "low", "high", "left", "right")
"""The columns of the CSV of a figure, in order; panels are named by their axes."""


def figure_tables(figure: Figure) -> list[Table]:
    """Return the figure's tables; what is not known is a dash."""
    tables = []
    for title, rows in figure.tables.items():
        names = list(rows[0]) if rows else []
        numbers = {name for name in names if any(isinstance(row[name], int | float) for row in rows)}
        heads = columns(*(("#" if name in numbers else "") + name.replace("_", " ") for name in names))
        cells = tuple(tuple(_written(row[name]) for name in names) for row in rows)
        tables.append(Table(f"{title} on {figure.dataset}", heads, cells, () if rows else ("none",)))
    return tables


def figure_csv(figure: Figure) -> str:
    """Return every drawn point as CSV."""
    return csv_text(POINT_COLUMNS, _points(figure))


def _points(figure: Figure) -> Iterator[list[object]]:
    for panel in figure.panels:
        name = f"{panel.y_label} over {panel.x_label}"
        for series in panel.series:
            ends = (series.low, series.high, series.left, series.right)
            for place, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
                values = [x, y, *(end[place] if end else None for end in ends)]
                yield [name, series.label, *(None if value is None or value != value else value for value in values)]


def _written(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else str(value)

"""Tables for people: rich ones on a terminal, plain aligned columns everywhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from feval.report.text import decimals_for, fixed, percent, visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from feval.curves import Curve, CurvePoint

__all__ = ["Column", "Table", "curve_table", "curves_table", "plain", "rich_table", "subtitles"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its header, and whether it holds numbers (which line up on the right)."""

    name: str
    number: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table before it is drawn.

    Attributes:
        title: what is shown; may be empty.
        columns: from left to right.
        rows: the cells of each row, as text; they may come from strangers, so they are made safe when drawn.
        notes: sentences below the table.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def plain(table: Table) -> str:
    """Return the table as aligned text without colour or lines, one row per line; columns stand two blanks apart."""
    header = [column.name for column in table.columns]
    lines = [[visible(cell) for cell in row] for row in table.rows]
    if any(header):
        lines.insert(0, header)
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(header))]
    drawn = ["  ".join(map(_justified, line, widths, table.columns)).rstrip() for line in lines]
    title = [visible(table.title)] if table.title else []
    return "\n".join([*title, *drawn, *map(visible, table.notes)]) + "\n"


def _justified(cell: str, width: int, column: Column) -> str:
    return cell.rjust(width) if column.number else cell.ljust(width)


def rich_table(table: Table) -> RichTable:
    """Return the table as a rich one. Cells are plain text objects, so no markup in them is ever interpreted."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        title=Text(visible(table.title)) if table.title else None,
        caption=Text("\n".join(map(visible, table.notes))) if table.notes else None,
        title_justify="left",
        caption_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_header=any(column.name for column in table.columns),
    )
    for column in table.columns:
        drawn.add_column(Text(column.name), justify="right" if column.number else "left", no_wrap=column.number)
    for row in table.rows:
        drawn.add_row(*(Text(visible(cell)) for cell in row))
    return drawn


_POINT_COLUMNS = (
    Column("n", number=True),
    Column("accuracy %", number=True),
    Column("95 % interval", number=True),
    Column("USD/question", number=True),
    Column("tokens/question", number=True),
    Column("pass@n %", number=True),
)


def curve_table(curve: Curve, dataset: str, llm: str) -> Table:
    """Return the table of one curve, one row per point.

    Args:
        curve: what to show.
        dataset: its id.
        llm: name of the LLM.
    """
    return Table(
        title=f"{curve.method} on {dataset}, {llm}",
        columns=_POINT_COLUMNS,
        rows=_rows(curve.points, _usd_decimals([curve])),
        notes=subtitles(curve),
    )


def curves_table(curves: Mapping[str, Curve], dataset: str) -> Table:
    """Return one table of several LLMs' curves on one dataset, the name of the LLM in the first column.

    Args:
        curves: LLM name -> its curve; one at least.
        dataset: id of the dataset they share.
    """
    decimals = _usd_decimals(list(curves.values()))
    rows = [(llm, *row) for llm, curve in curves.items() for row in _rows(curve.points, decimals)]
    first = next(iter(curves.values()))
    return Table(
        title=f"{first.method} on {dataset}",
        columns=(Column("LLM"), *_POINT_COLUMNS),
        rows=tuple(rows),
        notes=subtitles(first),
    )


def _usd_decimals(curves: Sequence[Curve]) -> int:
    return decimals_for(point.usd_per_question or 0.0 for curve in curves for point in curve.points)


def _rows(points: Sequence[CurvePoint], usd_decimals: int) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            str(point.n),
            percent(point.accuracy),
            f"{percent(point.accuracy_low)} to {percent(point.accuracy_high)}",
            fixed(point.usd_per_question, usd_decimals),
            fixed(point.tokens_per_question, 1),
            percent(point.pass_at_n),
        )
        for point in points
    )


_KINDS = {
    "exact": "expectation over all subsets of the recorded CoTs",
    "recorded": "the first n CoTs in recorded order",
    "seeded": "mean over seeded replicates",
}


def subtitles(curve: Curve) -> tuple[str, str]:
    """Return two lines that say what a curve's numbers are: kind and questions; billing, price list and token counter."""
    kind = curve.points[0].kind if curve.points else "exact"
    prices = f"prices {curve.prices}" if curve.prices else "no prices"
    return (
        f"{kind}: {_KINDS.get(kind, 'see its documentation')}; {curve.questions:,} questions",
        f"billing {curve.billing}; {prices}; token counter {curve.counter}",
    )

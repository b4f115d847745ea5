"""Tables for people: rich ones on a terminal, plain aligned columns everywhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from feval.evaluation.cautions import round_ratio
from feval.report.text import counted_questions, decimals_for, fixed, percent, visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from feval.evaluation.cautions import Costs
    from feval.evaluation.curves import Curve, CurvePoint

__all__ = [
    "Column",
    "Table",
    "curve_table",
    "curves_table",
    "per_round_cell",
    "per_round_column",
    "plain",
    "rich_table",
    "subtitles",
    "without_spares",
]


_BREAKS = re.compile(r"(?<=/)(?=\w)|(?<=[A-Za-z%]) ")


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        name: its header.
        number: whether it holds numbers, which line up on the right.
        spare: whether it may be left out where the terminal is narrow.
    """

    name: str
    number: bool = False
    spare: bool = False


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


def without_spares(table: Table) -> Table:
    """Return the table without the columns that may be left out, and with a note that names them."""
    kept = [i for i, column in enumerate(table.columns) if not column.spare]
    left = [column.name for column in table.columns if column.spare]
    if not left:
        return table
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    note = f"left out, for want of width: {', '.join(left)}"
    return Table(table.title, tuple(table.columns[i] for i in kept), rows, (*table.notes, note))


def rich_table(table: Table, *, narrow: bool = False, folded: bool = False) -> RichTable:
    """Return the table as a rich one. Cells are plain text objects, so no markup in them is ever interpreted.

    Args:
        table: to draw.
        narrow: break the headers into lines and leave one blank between columns.
        folded: let words, too, go over several lines; numbers never do.
    """
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
        pad_edge=False,
        show_header=any(column.name for column in table.columns),
        collapse_padding=narrow,
    )
    names = [_BREAKS.sub("\n", column.name) if narrow else column.name for column in table.columns]
    # The last column gives way first where the terminal is narrow: names and numbers are read in one piece.
    last = len(names) - 1
    for i, (column, name) in enumerate(zip(table.columns, names, strict=True)):
        justify: Literal["left", "right"] = "right" if column.number else "left"
        if column.number or (i < last and not folded):
            # Without a least width, rich would take blanks in a cell for places to break it.
            least = max(len(line) for line in (*name.split("\n"), *(visible(row[i]) for row in table.rows)))
            drawn.add_column(Text(name), justify=justify, no_wrap=True, min_width=least)
        else:
            drawn.add_column(Text(name), justify=justify, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(visible(cell)) for cell in row))
    return drawn


def per_round_column(billed: Iterable[tuple[str, Costs]]) -> str | None:
    """The name of a column with the costs if every call paid its prompt; `None` where no row needs it.

    Args:
        billed: how prompts are paid, and costs, of each row.
    """
    flattered = [costs for billing, costs in billed if round_ratio(billing, costs) is not None]
    if not flattered:
        return None
    return f"{'USD' if flattered[0].usd_per_question is not None else 'tokens'}/question, per_round"


def per_round_cell(costs: Costs, usd_decimals: int) -> str:
    """A cell of that column."""
    if costs.usd_per_question is None:
        return fixed(costs.tokens_per_question_per_round, 1)
    return fixed(costs.usd_per_question_per_round, usd_decimals)


def curve_table(curve: Curve) -> Table:
    """Return the table of one curve, one row per point."""
    return Table(
        title=f"{curve.method} on {curve.dataset}, {curve.llm}",
        columns=_point_columns(curve),
        rows=_rows(curve, _usd_decimals([curve])),
        notes=(*subtitles(curve), *curve.warnings),
    )


def curves_table(curves: Sequence[Curve]) -> Table:
    """Return one table of several LLMs' curves, the name of the LLM in the first column.

    Args:
        curves: one at least; one method on one dataset.
    """
    decimals, first = _usd_decimals(curves), curves[0]
    return Table(
        title=f"{first.method} on {first.dataset}",
        columns=(Column("LLM"), *_point_columns(first)),
        rows=tuple((curve.llm, *row) for curve in curves for row in _rows(curve, decimals)),
        notes=(*subtitles(first), *first.warnings),
    )


def _point_columns(curve: Curve) -> tuple[Column, ...]:
    interval = "interval" if curve.confidence is None else f"{100 * curve.confidence:g} % interval"
    names = [curve.field, "accuracy %", interval, "USD/question", "tokens/question", "pass@n %"]
    names += [by_round] if (by_round := _by_round(curve)) else []
    return tuple(Column(name, number=True) for name in names)


def _by_round(curve: Curve) -> str | None:
    return per_round_column((curve.billing, point) for point in curve.points)


def _usd_decimals(curves: Sequence[Curve]) -> int:
    return decimals_for(point.usd_per_question or 0.0 for curve in curves for point in curve.points)


def _rows(curve: Curve, usd_decimals: int) -> tuple[tuple[str, ...], ...]:
    by_round = _by_round(curve)
    return tuple(
        (
            str(point.n),
            percent(point.accuracy),
            _interval(point),
            fixed(point.usd_per_question, usd_decimals),
            fixed(point.tokens_per_question, 1),
            "-" if point.pass_at_n is None else percent(point.pass_at_n),
            *((per_round_cell(point, usd_decimals),) if by_round else ()),
        )
        for point in curve.points
    )


def _interval(point: CurvePoint) -> str:
    if point.accuracy_low is None or point.accuracy_high is None:
        return "-"
    return f"{percent(point.accuracy_low)} to {percent(point.accuracy_high)}"


_KINDS = {
    "exact": "expectation over all subsets of the recorded CoTs",
    "recorded": "the first n CoTs in recorded order",
    "seeded": "mean over {replicates} seeded draws of each question, seed {seed}",
}


def subtitles(curve: Curve) -> tuple[str, str]:
    """Return two lines that say what a curve's numbers are: kind and questions; billing, price list and token counter."""
    kind = curve.points[0].kind
    how = _KINDS[kind].format(replicates=curve.replicates, seed=curve.seed)
    prices = f"prices {curve.prices}" if curve.prices else "no prices"
    if curve.field != "n" and kind == "recorded":
        how = "CoTs in recorded order"
    fields = "".join(f"; {name}={value}" for name, value in curve.settings.items())
    return (
        f"{kind}: {how}; {counted_questions(curve.questions, curve.left_out)}{fields}",
        f"billing {curve.billing}; {prices}; token counter {curve.counter}",
    )

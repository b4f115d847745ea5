"""Tables for people as plain aligned text, and the tables of curves. `rich_tables` draws them on a
terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from feval.evaluation.cautions import mixed_counters, round_ratio
from feval.report.tables.cost_axes import MORE_COSTS, cost_decimals, cost_words
from feval.report.text import (
    counted_questions,
    decimals_for,
    fixed,
    interval_name,
    percent,
    percents,
    price_words,
    visible,
)

if TYPE_CHECKING:
    from feval.evaluation.curves import Curve
    from feval.evaluation.evaluation import Evaluation
    from feval.replay.clock import Timing


class Cell(str):
    """The text of a cell, with the number by which a page sorts it, and the interval around 0 that
    the page draws.
    """

    value: float | None
    interval: tuple[float, float, float] | None
    is_open: bool

    def __new__(
        cls,
        text: str,
        value: float | None,
        interval: tuple[float, float, float] | None = None,
        *,
        is_open: bool = False,
    ) -> Self:
        """Make a text that knows its number."""
        self = super().__new__(cls, text)
        self.value, self.interval, self.is_open = value, interval, is_open
        return self

    def data(self) -> dict[str, Any]:
        """Return it as JSON values."""
        drawn = {} if self.interval is None else {"i": self.interval, "open": self.is_open}
        return {"t": str(self), "s": self.value, **drawn}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: numbers are right-aligned, and a narrow terminal may leave out spare
    columns.

    A page shows the `meaning` of a heading where a pointer rests on it.
    """

    name: str
    number: bool = False
    spare: bool = False
    meaning: str | None = None


_TOKEN_COSTS = ("USD", "tokens", "modelled seconds")


def cost_mark(words: str, counters: Iterable[str]) -> str:
    """Return an asterisk for a cost that rests on counts of tokens, where token counters differ;
    else nothing.
    """
    return " *" if any(word in words for word in _TOKEN_COSTS) and mixed_counters(counters) else ""


Line = tuple[tuple[str, str], ...]
"""Pieces of a line that is safe to print, each with its style, a word of `rich` such as "bold" or
"green"; "" for none.
"""


def columns(*names: str) -> tuple[Column, ...]:
    """Return columns of these names; those that begin with "#" hold numbers."""
    return tuple(Column(name.removeprefix("#"), number=name.startswith("#")) for name in names)


@dataclass(frozen=True, slots=True)
class Table:
    """A table before it is drawn, with sentences below it; text from LLMs is made safe when drawn.

    Columns of dollars that no row has are left out.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        cells = zip(*self.rows, strict=True)
        unknown = [
            column.name.startswith("USD") and {*own} == {"-"}
            for column, own in zip(self.columns, cells, strict=False)
        ]
        if any(unknown):
            known = [place for place, left_out in enumerate(unknown) if not left_out]
            object.__setattr__(self, "columns", tuple(self.columns[place] for place in known))
            object.__setattr__(
                self, "rows", tuple(tuple(row[place] for place in known) for row in self.rows)
            )


def plain(table: Table) -> str:
    """Return the table as aligned text, one row per line, columns two blanks apart."""
    header = [visible(column.name) for column in table.columns]
    lines = [[visible(cell) for cell in row] for row in table.rows]
    if any(header):
        lines.insert(0, header)
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(header))]
    text = ["  ".join(map(_justified, line, widths, table.columns)).rstrip() for line in lines]
    title = [visible(table.title)] if table.title else []
    return "\n".join([*title, *text, *map(visible, table.notes)]) + "\n"


def plain_text(pieces: Iterable[Line | Table]) -> str:
    """Return lines and tables without styles, with a line end after each."""
    return "".join(
        (
            plain(piece)
            if isinstance(piece, Table)
            else "".join(text for text, _ in piece).rstrip() + "\n"
        )
        for piece in pieces
    )


def _justified(cell: str, width: int, column: Column) -> str:
    return cell.rjust(width) if column.number else cell.ljust(width)


def marked(table: Table, counters: Iterable[str], also: Sequence[str] = ()) -> Table:
    """Return the table with an asterisk at costs that rest on tokens, and columns `also`, where
    token counters differ.
    """
    counters = list(counters)
    marks = [
        " *" if column.name in also else cost_mark(column.name, counters)
        for column in table.columns
    ]
    if not mixed_counters(counters) or not any(marks):
        return table
    named = tuple(
        replace(column, name=column.name + mark)
        for column, mark in zip(table.columns, marks, strict=True)
    )
    return replace(
        table, columns=named, notes=tuple(dict.fromkeys((*table.notes, *mixed_counters(counters))))
    )


def without_spares(table: Table) -> Table:
    """Return the table without its spare columns, and a note that names them."""
    places = [i for i, column in enumerate(table.columns) if not column.spare]
    spares = [column.name for column in table.columns if column.spare]
    if not spares:
        return table
    note = f"left out on a narrow terminal: {', '.join(spares)}"
    rows = tuple(tuple(row[i] for i in places) for row in table.rows)
    return Table(table.title, tuple(table.columns[i] for i in places), rows, (*table.notes, note))


def per_round_column(billed: Iterable[tuple[str, Any]]) -> str | None:
    """Return the name of a column with costs billed per round, given each row's billing and costs;
    `None` if no row needs it.
    """
    flattered = [costs for billing, costs in billed if round_ratio(billing, costs) is not None]
    if not flattered:
        return None
    return f"{'USD' if flattered[0].usd_per_question is not None else 'tokens'}/question, per_round"


def per_round_cell(costs: Any, usd_decimals: int) -> str:
    """Return a cell of that column."""
    if costs.usd_per_question is None:
        return fixed(costs.tokens_per_question_per_round, 1)
    return fixed(costs.usd_per_question_per_round, usd_decimals)


def point_cells(point: Evaluation, usd_decimals: int) -> tuple[str, ...]:
    """Return the cells of what an evaluation came to: accuracy, its interval, and costs per
    question.
    """
    return (
        percent(point.accuracy),
        percents(point.accuracy_low, point.accuracy_high),
        fixed(point.usd_per_question, usd_decimals),
        fixed(point.tokens_per_question, 1),
        fixed(point.samples_per_question, 2),
        fixed(point.calls_per_question, 2),
    )


def curve_table(curve: Curve) -> Table:
    """Return the table of one curve, one row per point."""
    table = Table(
        title=f"{curve.method} on {curve.dataset}, {curve.llm}",
        columns=_point_columns(curve),
        rows=_rows(curve, _usd_decimals([curve])),
        notes=(*subtitles(curve), *curve.warnings),
    )
    return marked(table, curve.counter.split("; "))


def curves_table(curves: Sequence[Curve]) -> Table:
    """Return one table of curves of one method on one dataset, at least one, with the LLM in the
    first column.
    """
    decimals, first = _usd_decimals(curves), curves[0]
    table = Table(
        title=f"{first.method} on {first.dataset}",
        columns=(Column("LLM"), *_point_columns(first)),
        rows=tuple((curve.llm, *row) for curve in curves for row in _rows(curve, decimals)),
        notes=(*subtitles(first), *first.warnings),
    )
    return marked(table, (name for curve in curves for name in curve.counter.split("; ")))


def _point_columns(curve: Curve) -> tuple[Column, ...]:
    names = [
        "accuracy %",
        interval_name(curve.confidence),
        "USD/question",
        "tokens/question",
        "pass@n %",
    ]
    names += (
        [f"{cost_words(curve.cost, curve.timing)[1]}/question"] if curve.cost in MORE_COSTS else []
    )
    names += [by_round] if (by_round := _by_round(curve)) else []
    return tuple(Column(name, number=True) for name in (curve.field, *names))


def _by_round(curve: Curve) -> str | None:
    return per_round_column((curve.billing, point) for point in curve.points)


def _usd_decimals(curves: Sequence[Curve]) -> int:
    return decimals_for(point.usd_per_question or 0.0 for curve in curves for point in curve.points)


def _rows(curve: Curve, usd_decimals: int) -> tuple[tuple[str, ...], ...]:
    by_round = _by_round(curve)
    decimals = (
        1
        if curve.cost is None
        else cost_decimals(curve.cost, (point.cost for point in curve.points))
    )
    return tuple(
        (
            str(point.n),
            percent(point.accuracy),
            percents(point.accuracy_low, point.accuracy_high),
            fixed(point.usd_per_question, usd_decimals),
            fixed(point.tokens_per_question, 1),
            "-" if point.pass_at_n is None else percent(point.pass_at_n),
            *((fixed(point.cost, decimals),) if curve.cost in MORE_COSTS else ()),
            *((per_round_cell(point, usd_decimals),) if by_round else ()),
        )
        for point in curve.points
    )


_KINDS = {
    "exact": "expectation over all subsets of the recorded CoTs",
    "recorded": "the first n CoTs in recorded order",
    "seeded": "mean over {replicates} seeded draws of each question, seed {seed}",
}


def timing_notes(timing: Timing | None) -> tuple[str, ...]:
    """Return a line on where seconds come from; none where nobody asked for them."""
    return () if timing is None else (f"seconds: {timing}",)


def subtitles(curve: Curve) -> tuple[str, ...]:
    """Return lines on what a curve's numbers rest on: kind and questions; billing, prices and token
    counter; seconds.
    """
    kind = curve.points[0].kind
    how = _KINDS[kind].format(replicates=curve.replicates, seed=curve.seed)
    prices = price_words(curve.prices, (point.usd_per_question for point in curve.points))
    if curve.field != "n" and kind == "recorded":
        how = "CoTs in recorded order"
    fields = "".join(f"; {name}={value}" for name, value in curve.settings.items())
    return (
        f"{kind}: {how}; {counted_questions(curve.questions, curve.left_out)}{fields}",
        f"billing {curve.billing}; {prices}; token counter {curve.counter}",
        *timing_notes(curve.timing),
    )

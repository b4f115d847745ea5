"""Tables: columns are declared once as heading -> how a cell of a record is written, for terminals,
notebooks, pages and plain aligned text; and CSV.

A spreadsheet takes a cell of CSV that begins with one of `=+-@`, a tab or a line end for a formula,
and names come from strangers. Such text is written behind an apostrophe, which makes it text there;
`text_of_cell` takes the apostrophe away.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from feval.evaluation.cautions import mixed_counters, round_ratio
from feval.evaluation.measures import COSTS, MEASURES
from feval.report.text import fixed, interval_name, percent, price_words, three_digits, visible

if TYPE_CHECKING:
    from feval.replay.clock import Timing

Line = tuple[tuple[str, str], ...]
"""Pieces of a line that is safe to print, each with its style, a word of `rich` such as "bold" or
"green"; "" for none.
"""


class Cell(str):
    """The text of a cell, with the number by which a page sorts it, and the interval around 0 that
    the page draws.
    """

    value: float | None
    interval: Sequence[float] | None
    is_open: bool

    def __new__(
        cls,
        text: str,
        value: float | None,
        interval: Sequence[float] | None = None,
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
class TableColumn:
    """A column of a table: numbers are right-aligned, and a narrow terminal may leave out spare
    columns.

    A page shows the `meaning` of a heading where a pointer rests on it.
    """

    name: str
    number: bool = False
    spare: bool = False
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table before it is drawn, with sentences below it; text from LLMs is made safe when drawn.

    On a page it has an id, a name in the navigation, an `intro`, and may have a method whose
    `pairs` come first where there are many.
    """

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    id: str = ""
    link: str = ""
    intro: str = ""
    pairs: str | None = None


Write = Callable[[Any], str]
"""Writes a cell of a record."""

Fields = Mapping[str, Write | str]
"""Heading -> cells, or the name of what `text` writes. A heading that begins with "#" is one of
numbers, one with "~" of spare numbers.
"""


def columns(*names: str) -> tuple[TableColumn, ...]:
    """Return columns of these headings, as in `Fields`."""
    return tuple(
        TableColumn(
            name[1:] if name.startswith(("#", "~")) else name,
            number=name.startswith(("#", "~")),
            spare=name.startswith("~"),
        )
        for name in names
    )


def make_table(
    title: str, fields: Fields, records: Iterable[Any], notes: Iterable[str] = (), **page: Any
) -> Table:
    """Return a table with a row per record, without columns of dollars that no record has."""
    written = [text(cell) if isinstance(cell, str) else cell for cell in fields.values()]
    rows = tuple(tuple(write(record) for write in written) for record in records)
    table = Table(title, columns(*fields), rows, tuple(notes), **page)
    unknown = [
        place
        for place, heading in enumerate(fields)
        if heading[1:].startswith("USD") and {row[place] for row in rows} == {"-"}
    ]
    return _without(unknown, table) if unknown else table


def _without(places: Collection[int], table: Table) -> Table:
    lines: list[Any] = [table.columns, *table.rows]
    names, *rows = (
        tuple(each for place, each in enumerate(line) if place not in places) for line in lines
    )
    return replace(table, columns=names, rows=tuple(rows))


def get(record: Any, name: str) -> Any:
    """Return an attribute of a record, or a value of one that is a mapping; of a list of records,
    what the first has that has it.
    """
    if isinstance(record, list):
        known = (value for each in record if (value := get(each, name)) is not None)
        return next(known, None)
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)


def json_text(value: Any) -> str:
    """Write a JSON value in a cell: null is a dash, an object is `key value, key value`."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return Cell(f"{value:,}", value)
    if isinstance(value, Mapping):
        known = (f"{key} {nested(item)}" for key, item in value.items() if item is not None)
        return ", ".join(known) or "-"
    return value if isinstance(value, str) else json.dumps(value)


def nested(value: Any) -> str:
    """Write a JSON value inside another one."""
    if isinstance(value, Mapping):
        return f"({json_text(value)})"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def text(name: str) -> Write:
    """Return what writes a name, a whole number or any other JSON value."""
    return lambda record: json_text(get(record, name))


def numbers(*names: str, write: Callable[[float], str], none: str = "-") -> Write:
    """Return what writes a number, or an interval, given both ends."""

    def cell(record: Any) -> str:
        values = [get(record, name) for name in names]
        known = [write(value) for value in values if value is not None]
        return Cell(" to ".join(known) if len(known) == len(values) else none, values[0])

    return cell


def share(*names: str) -> Write:
    """Return what writes a share in per cent, or an interval of them, given both ends."""
    return numbers(*names, write=percent)


def number(decimals: int, *names: str) -> Write:
    """Return what writes a number, or an interval, with so many decimals."""
    return numbers(*names, write=lambda value: fixed(value, decimals))


def accuracy(confidence: float | None) -> Fields:
    """Return the columns of accuracy and its interval."""
    interval = f"#{interval_name(confidence)}"
    return {"#accuracy %": share("accuracy"), interval: share("accuracy_low", "accuracy_high")}


OTHER_COSTS = tuple(cost for cost, name in COSTS.items() if MEASURES[name].shown != "always")
"""Costs that tables have only where these count them."""


def cost_words(cost: str, timing: Timing | None) -> tuple[str, str]:
    """Return the label of a cost along an axis, and its unit; seconds say whether they are modelled
    or replayed.
    """
    measure = MEASURES[COSTS[cost]]
    unit = f"{timing.word} {measure.unit}" if cost == "seconds" and timing else measure.unit
    return measure.label.replace(measure.unit, unit), unit


def cost_unit(cost: str, timing: Timing | None, question: str = "/question") -> str:
    """Return the unit of a mean cost, such as "tokens/question"; that of dollars is "USD per 1,000
    questions".
    """
    label, unit = cost_words(cost, timing)
    return label if cost == "usd" else f"{unit}{question}"


def cost_number(cost: str, value: float) -> str:
    """Write a mean cost, in its `cost_unit`: with three significant digits where a question may
    take a fraction of the unit, with one decimal where tokens are counted, else with two.
    """
    measure = MEASURES[COSTS[cost]]
    if measure.small:
        return three_digits(1000 * value if cost == "usd" else value)
    return fixed(value, 1 if measure.tokens else 2)


def cost_fields(costs: Iterable[str], timing: Timing | None = None) -> Fields:
    """Return columns of some costs of records that have their means."""
    return {
        f"#{cost_unit(cost, timing)}": numbers(
            MEASURES[COSTS[cost]].key, write=partial(cost_number, cost)
        )
        for cost in costs
    }


POINT_COSTS = ("usd", "tokens", "samples", "calls")


def per_round_field(billing: str, records: Sequence[Any]) -> Fields:
    """Return a column with costs billed per round, where a record needs it."""
    flattered = [each for each in records if round_ratio(billing, each) is not None]
    if not flattered:
        return {}
    cost = "tokens" if flattered[0].usd_per_question is None else "usd"
    write = partial(cost_number, cost)
    return {
        f"#{cost_unit(cost, None)}, per_round": numbers(
            f"{cost}_per_question_per_round", write=write
        )
    }


def cost_mark(words: str, counters: Iterable[str]) -> str:
    """Return an asterisk for a cost that rests on counts of tokens, where token counters differ;
    else nothing.
    """
    rests = any(word in words for word in ("USD", "tokens", "modelled seconds"))
    return " *" if rests and mixed_counters(counters) else ""


def marked(table: Table, counters: Iterable[str], also: Sequence[str] = ()) -> Table:
    """Return the table with an asterisk at costs that rest on tokens, and columns `also`, where
    token counters differ.
    """
    counters = list(counters)
    caution = mixed_counters(counters)
    named = tuple(
        replace(
            each, name=each.name + (" *" if each.name in also else cost_mark(each.name, counters))
        )
        for each in table.columns
    )
    if not caution or named == table.columns:
        return table
    return replace(table, columns=named, notes=tuple(dict.fromkeys((*table.notes, *caution))))


def timing_notes(timing: Timing | None) -> tuple[str, ...]:
    """Return a line on where seconds come from; none where nobody asked for them."""
    return () if timing is None else (f"seconds: {timing}",)


def billing_note(
    billing: str, prices: str | None, records: Iterable[Any], counter: str = ""
) -> str:
    """Return a line on billing and prices of some results, and on the token counter."""
    words = price_words(prices, (each.usd_per_question for each in records))
    return f"billing {billing}; {words}{f'; token counter {counter}' if counter else ''}"


_NUMBER = re.compile(r"[-+]?[\d,]+(\.\d+)?")


def align_points(table: Table) -> Table:
    """Return the table with the decimal points of a column of numbers under one another."""
    written = []
    for column, *cells in zip(table.columns, *table.rows, strict=True):
        found = [_NUMBER.fullmatch(cell) if column.number else None for cell in cells]
        most = max((len(number[1] or "") for number in found if number), default=0)
        written.append(
            [
                cell + " " * (most - len(number[1] or "")) if number else cell
                for cell, number in zip(cells, found, strict=True)
            ]
        )
    return replace(table, rows=tuple(zip(*written, strict=True)))


def plain(table: Table) -> str:
    """Return the table as aligned text, one row per line, columns two blanks apart."""
    table = align_points(table)
    names = [visible(column.name) for column in table.columns]
    lines = [names, *([visible(cell) for cell in row] for row in table.rows)]
    aligned = "  ".join(
        f"{{:{'>' if column.number else '<'}{max(map(len, own))}}}"
        for column, own in zip(table.columns, zip(*lines, strict=True), strict=True)
    )
    written = [aligned.format(*line).rstrip() for line in lines[not any(names) :]]
    title = [visible(table.title)] if table.title else []
    return "\n".join([*title, *written, *map(visible, table.notes)]) + "\n"


def plain_text(pieces: Iterable[Line | Table]) -> str:
    """Return lines and tables without styles, with a line end after each."""
    return "".join(
        plain(piece)
        if isinstance(piece, Table)
        else "".join(words for words, _ in piece).rstrip() + "\n"
        for piece in pieces
    )


def without_spares(table: Table) -> Table:
    """Return the table without its spare columns, and a note that names them."""
    spares = {place: column.name for place, column in enumerate(table.columns) if column.spare}
    if not spares:
        return table
    note = f"left out on a narrow terminal: {', '.join(spares.values())}"
    return _without(spares, replace(table, notes=(*table.notes, note)))


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return CSV text with LF line ends; `None` is an empty cell, floats are written in full, text
    is never a formula.
    """
    lines: list[str] = []
    # ends lines by CR LF, and so quotes both in a cell
    writer = csv.writer(SimpleNamespace(write=lines.append))

    def cell(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value

    writer.writerows(map(cell, row) for row in (header, *rows))
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def text_of_cell(cell: str) -> str:
    """Return the text that a cell written by `csv_text` stands for."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def records_csv(records: Sequence[Mapping[str, object]]) -> str:
    """Return CSV text with a line per record, of which there is at least one."""
    return csv_text(list(records[0]), (record.values() for record in records))

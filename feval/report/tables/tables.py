"""Tables: columns are declared once as heading -> how a cell of a record is written, for terminals,
notebooks, pages and plain aligned text; CSV; and those of evaluations, curves and surfaces.

A spreadsheet takes a cell of CSV that begins with one of `=+-@`, a tab or a line end for a formula,
and names come from strangers. Such text is written behind an apostrophe, which makes it text there;
`text_of_cell` takes the apostrophe away.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from feval.evaluation.cautions import mixed_counters, round_ratio
from feval.evaluation.measures import COSTS, MEASURES
from feval.methods import METHODS
from feval.report.text import (
    counted,
    counted_questions,
    fixed,
    interval_name,
    percent,
    percents,
    price_words,
    three_digits,
    usd_per_1000,
    visible,
)
from feval.values import Record, frozen, without_none

if TYPE_CHECKING:
    from feval.evaluation import Curve, Evaluation
    from feval.evaluation.surfaces import Surface, SurfacePoint
    from feval.receipts import Grade
    from feval.replay import Timing


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

    def data(self) -> Record:
        """Return it as JSON values."""
        drawn = {} if self.interval is None else {"i": self.interval, "open": self.is_open}
        return {"t": str(self), "s": self.value, **drawn}


@frozen
class TableColumn:
    """A column of a table: numbers are right-aligned, and a narrow terminal may leave out spare
    columns.

    A page shows the `meaning` of a heading where a pointer rests on it.
    """

    name: str
    number: bool = False
    spare: bool = False
    meaning: str | None = None


@frozen
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
    page = {"id": page.get("link", "").lower()} | page
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
    records = [*records]
    words = price_words(prices, (each.usd_per_question for each in records))
    has_bill = prices != "recorded" and any(
        (each.usd_per_question, each.tokens_per_question) != (None, None) for each in records
    )
    paid = f"billing {billing}; {words}" if has_bill else words
    return f"{paid}{f'; token counter {counter}' if counter else ''}"


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


Records = list[Record]
"""Column -> value; `None` for an unknown number."""

ERROR_FIELDS: Fields = {
    f"#{name.replace('_', ' ')} %": share(name)
    for name in ("no_answer", "wrong_vote", "stopped_early", "routed_wrong")
}
"""Columns of a table of errors, whose records are those of `Evaluation.errors`."""

ERROR_NOTES = (
    (
        "stopped early: with more CoTs of an LLM it asked, all that it might have drawn, the vote"
        " is right (1/m where m answers tie)"
    ),
    "routed wrong: all CoTs of an LLM it did not ask would vote right; wrong vote: the rest",
)
"""What three of the columns mean."""

_KINDS = {
    "exact": "expectation over all draws of the recorded CoTs",
    "recorded": "CoTs in recorded order",
    "seeded": "mean over {draws} of each question, seed {seed}",
}


_LONGEST_FIELD = 80  # what was learnt may have hundreds of entries
_MANY_DIGITS = 10  # no person sets a number that is longer


def label(evaluation: Evaluation) -> str:
    """A method with its fields that were set and differ from their defaults, on one line."""
    kind = METHODS.get(evaluation.method)
    usual = {} if kind is None else {f.name: f.default for f in dataclasses.fields(kind)}
    fields = [
        f"{name}={_written(value)}"
        for name, value in evaluation.fields.items()
        if value != usual.get(name) and not any(name in fit.found for fit in evaluation.learnt)
    ]
    return f"{evaluation.method}({', '.join(fields)})" if fields else evaluation.method


def rightness(point: Any) -> str:
    """Return what part of the questions something answers right, with the interval."""
    words = f"{percent(point.accuracy)} % right"
    if point.accuracy_low is not None:
        words += f" ({percents(point.accuracy_low, point.accuracy_high)})"
    return words


def outcome(point: Any) -> str:
    """Return what an evaluation or a point of a curve reaches, and what it costs."""
    words = rightness(point)
    if point.usd_per_question is not None:
        return f"{words}, for {usd_per_1000(point.usd_per_question)} USD per 1,000 questions"
    tokens = point.tokens_per_question
    return words if tokens is None else f"{words}, for {fixed(tokens, 1)} tokens per question"


def _written(value: object) -> str:
    if isinstance(value, tuple | list):
        text = f"({', '.join(map(_written, value))})"
        return text if len(text) <= _LONGEST_FIELD else f"({len(value)} entries)"
    if isinstance(value, float) and len(str(value)) > _MANY_DIGITS:
        return f"{value:.6g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def evaluation_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    """A table of results, one row per evaluation on the same questions, and one of the kinds of
    errors where they are known.
    """
    first = evaluations[0]
    asked = {first.cost, None if first.timing is None else "seconds"}
    generated: Fields = {}
    if any(each.tokens is None or each.probe_calls.any() for each in evaluations):
        asked.discard("sequential-tokens")
        generated = {
            f"#{kind} tokens": number(1, f"{kind}_tokens_per_question")
            for kind in ("output", "sequential")
        }
    fields = {
        "method": label,
        "LLMs": "llm",
        **accuracy(first.confidence),
        **cost_fields(["usd"]),
        # the sentence has the tokens where there are no dollars
        **{f"~{name[1:]}": write for name, write in cost_fields(POINT_COSTS[1:]).items()},
        **generated,
        **cost_fields((cost for cost in OTHER_COSTS if cost in asked), first.timing),
        **per_round_field(first.billing, evaluations),
    }
    title = f"{first.dataset}, {counted_questions(first.questions, first.left_out, first.judges)}"
    results = make_table(title, fields, evaluations, _notes(evaluations))
    results = marked(results, [name for each in evaluations for name in each.counters])
    named = [({"method": label(each)}, each) for each in evaluations]
    errors = errors_table({"method": "method"}, named)
    return [results, errors] if errors.rows else [results]


def errors_table(
    fields: Fields, named: Sequence[tuple[dict[str, str], Evaluation]], **page: Any
) -> Table:
    """A table of how wrong answers came about, of evaluations for which it is known, each with what
    names it.
    """
    known = [each for each in named if None not in each[1].errors().values()]
    notes = (
        f"{' '.join(names.values())}: the share stopped early is estimated on"
        f" {counted(part.questions, 'question')}, from {counted(part.replicates, 'seeded draw')} of"
        f" each; its standard error is {percent(part.standard_error)} points"
        for names, each in known
        if (part := each.errors_estimate)
    )
    records = [names | each.errors() for names, each in known]
    title = "How wrong answers came about"
    return make_table(title, {**fields, **ERROR_FIELDS}, records, (*ERROR_NOTES, *notes), **page)


def grade_table(grade: Grade) -> Table:
    """A table of a graded run, laid out like that of an evaluation."""
    record = grade.to_dict() | {"llm": " > ".join(grade.llms)}
    draws = f"replicate {grade.replicate}, seed {grade.seed}"
    if grade.replicate is None:
        draws = "recorded order"
    fields = {"run": "run", "LLMs": "llm", **accuracy(grade.confidence), **cost_fields(POINT_COSTS)}
    prices = price_words(grade.prices, [record["usd_per_question"]])
    title = f"{grade.dataset}, {counted_questions(grade.questions, grade.left_out, grade.judges)}"
    notes = (f"CoTs in {draws}; billing {grade.billing}; {prices}",)
    table = make_table(title, fields, [record], notes)
    # The remarks below say what the mark means.
    return replace(table, columns=marked(table, grade.counters).columns)


def _notes(evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    notes = [
        f"{kind}: {_KINDS[kind].format(draws=counted(replicates or 1, 'seeded draw'), seed=seed)}"
        for kind, replicates, seed in dict.fromkeys(
            (each.kind, each.replicates, each.seed) for each in evaluations
        )
    ]
    for each in evaluations:
        known = without_none(each.fields)
        settings = ", ".join(f"{name} {_written(value)}" for name, value in known.items())
        if each.fields:
            notes.append(f"{each.method}: {settings}")
    first = evaluations[0]
    counters = dict.fromkeys(counter for each in evaluations for counter in each.counters)
    if learnt := max(each.train_questions for each in evaluations):
        were, are = ("was", "is") if learnt == 1 else ("were", "are")
        others = counted(learnt, "other question")
        notes.append(f"{others} {were} set aside for training and {are} not judged")
    notes += [f"{each.method}: {each.learnt_text}" for each in evaluations if each.learnt]
    return (
        *(f"{label(each)} gets {outcome(each)}." for each in evaluations),
        *notes,
        billing_note(first.billing, first.prices, evaluations, ", ".join(counters)),
        *timing_notes(first.timing),
        *dict.fromkeys(warning for each in evaluations for warning in each.warnings),
    )


_MORE_COSTS = (*OTHER_COSTS, "calls", "samples")
"""Costs that curves have only where these count them."""


def curves_table(curves: Sequence[Curve]) -> Table:
    """Return one table of curves of one method on one dataset, at least one; of several, with the
    LLM in the first column.
    """
    first, several = curves[0], len(curves) > 1
    rows: list[list[Any]] = [[point, curve] for curve in curves for point in curve.points]
    own: Fields = {}
    if first.cost in _MORE_COSTS:
        write = partial(cost_number, first.cost)
        own = {f"#{cost_unit(first.cost, first.timing)}": numbers("cost", write=write)}
    swept: Fields = {f"#{first.field}": lambda row: str(row[0].n)}
    if first.field == "budget" and first.learnt and first.learnt[0].unit == "USD":
        swept = {"#budget, USD per 1,000": numbers("n", write=usd_per_1000)}
    fields = {
        **({"LLM": "llm"} if several else {}),
        **swept,
        **({} if first.measures else accuracy(first.confidence)),
        **{f"#{measure} %": _with_interval(measure) for measure in first.measures},
        **cost_fields(("usd", "tokens")),
        **({} if first.measures else {"#pass@n %": share("pass_at_n")}),
        **own,
        **({"#to dearest %": share("share"), "#gain %": share("gain")} if first.whole else {}),
        **per_round_field(first.billing, first.points),
    }
    title = f"{first.method} on {first.dataset}{'' if several else f', {first.llm}'}"
    if first.measures and first.confidence is not None:
        title += f" (with {interval_name(first.confidence)}s)"
    answer = () if several else (curve_answer(first),)
    notes = (*answer, *line_notes(first), *subtitles(first), *first.warnings)
    table = make_table(title, fields, rows, notes)
    return marked(table, [name for curve in curves for name in curve.counter.split("; ")])


_LINE_NAMES = {
    "apgr": "APGR", "cpt20": "CPT(20 %)", "cpt50": "CPT(50 %)", "cpt80": "CPT(80 %)", "aiq": "AIQ",
    "ibc": "delta IBC in %", "gain": "mean gain over the mixture of single LLMs",
}  # fmt: skip


def line_notes(curve: Curve) -> Iterator[str]:
    """Yield what a router's whole line comes to, and each LLM alone; nothing for other curves."""
    said = []
    for name in [name for name in _LINE_NAMES if name in curve.whole]:
        value, *ends = (curve.whole[name + end] for end in ("", "_low", "_high"))
        within = "" if None in ends else f" ({ends[0]:.3g} to {ends[1]:.3g})"
        said += [] if value is None else [f"{_LINE_NAMES[name]} {value:.3g}{within}"]
    if curve.whole:
        yield f"Of the whole line: {'; '.join(said)}."
        yield "Alone: " + "; ".join(f"{n} {outcome(point)}" for n, point in curve.beside.items())


def repricing_table(curves: Sequence[Curve], *, whole: bool = False) -> Table:
    """Return the table of curves at one price list: the points on the frontier, or the `whole`."""
    rows: list[list[Any]] = [[point, curve] for curve in curves for point in curve.points]
    shown = [row for row in rows if whole or row[0]["frontier"]]
    fields: Fields = {
        "method": "method",
        "setting": "setting",
        "LLMs": "llm",
        **accuracy(curves[0].confidence),
        **cost_fields(["usd"]),
        "#USD per 1,000 right": numbers("usd_per_right", write=partial(cost_number, "usd")),
        **({"on frontier": "frontier"} if whole else {}),
    }
    left = sum(row[0]["frontier"] is False for row in rows) * (not whole)
    notes = [f"{counted(left, 'point')} with no higher accuracy for more: --all"] * bool(left)
    notes += dict.fromkeys(said for curve in curves for said in curve.cautions)
    shown.sort(key=lambda row: row[0].usd_per_question)
    most = counted(max(curve.questions for curve in curves), "question")
    title = f"{'All points' if whole else 'Frontier'} on {most}, prices {curves[0].prices}"
    return make_table(title, fields, shown, notes)


def _with_interval(measure: str) -> Write:
    def cell(row: Any) -> str:
        mean, *ends = (get(row, measure + end) for end in ("", "_low", "_high"))
        return Cell(f"{percent(mean)} ({percents(*ends)})".removesuffix(" (-)"), mean)

    return cell


def curve_answer(curve: Curve) -> str:
    """Return which point is best, and the cheapest one within a point of its accuracy; of measures
    those of most calls.
    """
    if curve.measures:
        last = curve.points[-1]
        known = [f"{name} is {percent(last[name])} %" for name in curve.measures if name in last]
        return f"At k = {last.n}, {', '.join(known)}."
    best = max(curve.points, key=lambda point: point.accuracy)
    close = [point for point in curve.points if point.accuracy >= best.accuracy - 0.01]
    cheap = min(close, key=lambda point: point.usd_per_question or point.tokens_per_question or 0)
    more = (
        "."
        if cheap is best
        else f"; {curve.field} = {cheap.n} is less than a point below it: {outcome(cheap)}."
    )
    return f"Best is {curve.field} = {best.n}: {outcome(best)}{more}"


_CURVE_KINDS = {
    "exact": "expectation over all subsets of the recorded CoTs",
    "recorded": "the first n CoTs in recorded order",
    "seeded": "mean over {replicates} seeded draws of each question, seed {seed}",
}


def subtitles(curve: Curve) -> tuple[str, ...]:
    """Return lines on what a curve's numbers rest on: kind and questions; billing, prices and token
    counter; seconds.
    """
    kind = curve.points[0].kind
    how = _CURVE_KINDS[kind].format(replicates=curve.replicates, seed=curve.seed)
    if curve.field != "n" and kind == "recorded":
        how = "CoTs in recorded order"
    fields = "".join(f"; {name}={value}" for name, value in curve.settings.items())
    questions = counted_questions(curve.questions, curve.left_out, curve.judges)
    return (
        f"{kind}: {how}; {questions}{fields}",
        billing_note(curve.billing, curve.prices, curve.points, curve.counter),
        *timing_notes(curve.timing),
    )


POINT_COLUMNS = (
    "n", "accuracy", "accuracy_low", "accuracy_high", "usd_per_question", "tokens_per_question",
    "pass_at_n", "kind",
)  # fmt: skip
"""The columns of `curve.csv`, in order; an empty cell is an unknown number (such as USD without a
price).
"""


def curve_records(curve: Curve) -> Records:
    """Return a record per point, with `POINT_COLUMNS`, its measures and the curve's own cost."""
    names = (*POINT_COLUMNS, *(m + end for m in curve.measures for end in ("", "_low", "_high")))
    names += ("share", "gain") if curve.whole else ()
    records = [{name: get(point, name) for name in names} for point in curve.points]
    if curve.cost in _MORE_COSTS:
        key = f"{curve.cost.replace('-', '_')}_per_question"
        return [own | {key: p.cost} for own, p in zip(records, curve.points, strict=True)]
    return records


def curves_csv(curves: Sequence[Curve]) -> str:
    """Return the CSV text of several curves, with columns `dataset` and `llm` before those of
    `curve_records`.
    """
    return records_csv(
        [
            {"dataset": curve.dataset, "llm": curve.llm, **record}
            for curve in curves
            for record in curve_records(curve)
        ]
    )


SURFACE_COLUMNS = (
    "n", "tokens", "accuracy", "accuracy_low", "accuracy_high", "output_tokens", "probe_tokens",
    "tokens_per_question", "usd_per_question", "frontier",
)  # fmt: skip
"""The columns of `surface.csv`, in order; an empty cell is an unknown number, or no limit of
tokens.
"""

_STEPS = 20


def surface_records(surface: Surface) -> Records:
    """Return a record per point."""
    return [{name: getattr(point, name) for name in SURFACE_COLUMNS} for point in surface.points]


def surface_table(surface: Surface, *, page: bool = False) -> Table:
    """Return the table of the points on the Pareto frontier, the cheapest first; for a page all of
    them, for a terminal some.
    """
    every = surface.frontier
    shown = every if page else _spread(every)
    others = len(every) - len(shown)
    more = (
        f"{counted(others, 'more point')} on the frontier, between those, in JSON and surface.csv"
    )
    fields = {
        "#traces": "n",
        # no limit is above all
        "#tokens each": lambda point: Cell(
            "no limit" if point.tokens is None else f"{point.tokens:,}", point.tokens or 1e12
        ),
        **accuracy(surface.confidence),
        **cost_fields(["usd"]),
        "#output tokens": number(1, "output_tokens"),
    }
    return make_table(
        "Pareto frontier"
        if page
        else f"width x depth on {surface.dataset}, {surface.llm}: the Pareto frontier",
        fields,
        shown,
        (*([more] if others else []), *(() if page else surface_notes(surface)), *surface.warnings),
        link="Frontier",
        intro=(
            f"The {len(every):,} of {len(surface.points):,} points that no other point matches at"
            " the same cost or less; surface.csv has all. Press a heading to sort."
        ),
    )


def _spread(frontier: Sequence[SurfacePoint]) -> list[SurfacePoint]:
    """Return the ends of the frontier and, between them, points whose accuracy is a twentieth of
    its range further on.
    """
    step = (frontier[-1].accuracy - frontier[0].accuracy) / _STEPS
    shown = [frontier[0]]
    for point in frontier[1:-1]:
        if point.accuracy >= shown[-1].accuracy + step:
            shown.append(point)
    return [*shown, frontier[-1]] if len(frontier) > 1 else shown


def surface_notes(surface: Surface) -> tuple[str, str]:
    """Return two lines on what a surface rests on: kind, questions and probes; billing, prices and
    token counter.
    """
    probed = (
        "at various offsets" if surface.interval is None else f"every {surface.interval:,} tokens"
    )
    questions = counted_questions(surface.questions, surface.left_out, surface.judges)
    grid = f"{counted(len(surface.widths), 'width')} x {counted(len(surface.depths), 'depth')}"
    paid = billing_note(surface.billing, surface.prices, surface.points[:1], surface.counter)
    return (
        f"exact: expectation over all subsets of the recorded traces, probed {probed}; {questions}",
        f"{grid}; {paid}",
    )

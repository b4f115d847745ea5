"""How results look in Python: `repr`, HTML tables for notebooks, DataFrames, pictures.
`feval.lazy.Displayable` calls this module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from html import escape
from importlib import import_module
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from feval.comparison.statistics import Statistics
from feval.errors import NotRecordedError, UsageError, require_known
from feval.replay import load
from feval.report import pictures
from feval.report.looking import find_question, question_pieces, recorded_questions
from feval.report.page.page import save_comparison as save_comparison
from feval.report.tables.comparisons import comparison_answer, headline
from feval.report.tables.forecasts import (
    FORECAST_COLUMNS,
    forecast_answer,
    forecast_records,
    forecast_tables,
    plan_answer,
    plan_tables,
)
from feval.report.tables.recordings import info_dict, info_headline, pools_table
from feval.report.tables.tables import (
    Table,
    columns,
    curve_answer,
    curve_records,
    curves_table,
    evaluation_tables,
    label,
    make_table,
    outcome,
    plain,
    plain_text,
    surface_records,
    surface_table,
)
from feval.report.text import counted, percent, shortened, visible
from feval.values import Record, RecordLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from feval.comparison import Comparison, Plan
    from feval.evaluation import Evaluation, Surface
    from feval.recording import Recording
    from feval.replay import LLM, Dataset
    from feval.report.pictures import Picture, PlotOptions

_MOST_ROWS = 20
_FEW_QUESTIONS = 5
_LONGEST = 80
_LIBRARIES = ("pandas", "polars")

Pieces = Iterable[str | Table]


class View(NamedTuple):
    """How one class is shown.

    Attributes:
        sentence: what `repr` says after the class's name.
        pieces: sentences and tables for notebooks.
        columns: column -> values, of a DataFrame.
        plot: returns the picture of what is `Plottable`, by some options; `None` for
            curves, which are drawn beside those that axes have.
        takes: the options that mean something for it, beside title and legend.
    """

    sentence: Callable[[Any], str]
    pieces: Callable[[Any], Pieces]
    columns: Callable[..., RecordLike]
    plot: Any = None
    takes: frozenset[str] = frozenset()


def sentence(value: object) -> str:
    """What `repr` gives: the class and the numbers that matter, on one line."""
    name, view = _view(value)
    return f"{name}({visible(view.sentence(value))})"


def html(value: object) -> str:
    """Tables for a notebook. All text is escaped; colours are those around it, so that dark themes
    are readable.
    """
    shown = ""
    pieces = _view(value)[1].pieces(value)
    for are_tables, group in groupby(pieces, key=lambda piece: isinstance(piece, Table)):
        if are_tables:
            shown += "".join(map(_html, group))
        elif said := [str(piece).strip() for piece in group if str(piece).strip()]:
            shown += f"<p>{_lines(said)}</p>\n"
    return f'<div class="feval" style="overflow-x:auto">{shown}</div>'


def printed(value: object) -> str:
    """The same as plain text."""
    pieces = _view(value)[1].pieces(value)
    return "\n".join(
        visible(piece) if isinstance(piece, str) else plain(piece).rstrip() for piece in pieces
    )


def frame(value: object, rows: str | None, library: str | None) -> Any:
    """The DataFrame of `Displayable.to_frame`."""
    name, view = _view(value)
    # what has rows of one kind needs no name for them, and all took the library first
    if rows in _LIBRARIES or name != "Comparison":
        rows, library = None, library or rows
    own = view.columns(value, **({} if rows is None else {"rows": rows}))
    if library is not None:
        require_known("library of DataFrames", library, _LIBRARIES)
    for name in _LIBRARIES if library is None else (library,):
        try:
            frames = import_module(name)
        except ImportError:
            continue
        return frames.DataFrame(dict(own))
    raise UsageError(
        f"A DataFrame needs {library or 'pandas or polars'}, which feval does not install. Install"
        " it."
    )


def plot(value: Any, axes: Axes | None, **given: Any) -> Any:
    """The picture of `Plottable.plot`."""
    options = pictures.PlotOptions(**given)
    name, view = _view(value)
    takes = {"title", "legend", *view.takes}
    for option, own in given.items():
        if option not in takes and own != getattr(pictures.DEFAULT, option):
            raise UsageError(
                f"{option}={own!r} means nothing for {name}.plot(), which takes"
                f" {', '.join(sorted(takes))}; leave it out."
            )
    if view.plot is None:
        return pictures.plot_curve(value, axes, options)
    return view.plot(value, options).plot(axes)


def show(
    recording: Recording,
    question: str | int,
    *,
    dataset: str | None,
    llm: str | None,
    right: str | None,
    **shown: Any,
) -> None:
    """Print the question of `Recording.show`."""
    if isinstance(question, str):
        dataset, row = find_question(recording, question, dataset)
    else:
        row, dataset = question, dataset or _only_dataset(recording, "name it with dataset=")
        if not 0 <= row < len(recording.votes(dataset)):
            count = counted(len(recording.votes(dataset)), "question")
            raise NotRecordedError(
                f"Question {row} of {dataset} was asked for, by its row from 0, and it has {count}."
            )
    recording.require(dataset, llm)
    names = recording.llm_names(dataset) if llm is None else [llm]
    [asked] = recorded_questions(recording, dataset, names, range(row, row + 1), right)
    sys.stdout.write(plain_text(question_pieces(asked, **shown)))


def _only_dataset(recording: Recording, otherwise: str) -> str:
    datasets = recording.dataset_ids()
    if len(datasets) != 1:
        holds = f"{counted(len(datasets), 'dataset')} ({', '.join(datasets) or 'none'})"
        raise UsageError(f"{recording.path} holds {holds}, and one is shown: {otherwise}.")
    return datasets[0]


def _view(value: object) -> tuple[str, View]:
    """The view of the nearest known class, and its name."""
    return next(
        (kind.__name__, VIEWS[kind.__name__])
        for kind in type(value).__mro__
        if kind.__name__ in VIEWS
    )


def _lines(said: Sequence[str]) -> str:
    return "<br>\n".join(escape(visible(each)) for each in said)


def _html(piece: Any) -> str:
    def line(cells: Sequence[str], tag: str, number: str = "right") -> str:
        written = (
            f'<{tag} style="text-align:{number if column.number else "left"};padding:0 .6em">'
            f"{escape(visible(cell))}</{tag}>"
            for cell, column in zip(cells, piece.columns, strict=True)
        )
        return f"<tr>{' '.join(written)}</tr>\n"

    names = [column.name for column in piece.columns]
    head = f"<thead>{line(names, 'th')}</thead>" if any(names) else ""
    body = "".join(line(row, "td", "right;white-space:nowrap") for row in piece.rows[:_MOST_ROWS])
    hidden = max(len(piece.rows) - _MOST_ROWS, 0)
    said = [f"{hidden:,} more rows: to_frame()"] if hidden else []
    said += piece.notes
    title = f"<p><strong>{escape(visible(piece.title))}</strong></p>\n" if piece.title else ""
    notes = _lines(said)
    return f"{title}<table>{head}<tbody>{body}</tbody></table>\n" + (
        f"<p><small>{notes}</small></p>\n" if notes else ""
    )


def _columns(each: Iterable[RecordLike], names: Iterable[str] = ()) -> Record:
    """Records as columns, of which some are named even without records."""
    records = list(each)
    return {name: [own.get(name) for own in records] for name in (*records[:1], names)[0]}


def _range(values: Sequence[Any], write: Callable[[Any], str] = str) -> str:
    """The ends of some values, or the only one."""
    low, high = write(min(values)), write(max(values))
    return low if len(set(values)) == 1 else f"{low} to {high}"


def _dataset_of(recording: Recording) -> Dataset:
    dataset = _only_dataset(recording, "feval.load(DATASET, recording=RECORDING)[0].plot()")
    return load(dataset, None, [recording], prices="none")[0]


def _recording_sentence(recording: Recording) -> str:
    return info_headline(recording).replace(recording.hash, recording.hash[:12])


def _recording_columns(recording: Recording) -> dict[str, list[Any]]:
    names = (
        "dataset", "llm", "questions", "cots", "smallest_pool", "largest_pool", "no_answer_rate",
        "counter",
    )  # fmt: skip
    pairs = info_dict(recording)["pairs"]
    return {name: [pair.get(name) for pair in pairs] for name in names}


def _dataset_pieces(dataset: Dataset) -> Pieces:
    shares = dataset.right_shares()
    names = ("question", "text", "answer", *(f"#right %, {name}" for name in shares))
    rows = []
    for row, (question, entry) in enumerate(islice(dataset, _FEW_QUESTIONS)):
        right = (
            "-" if share[row] != share[row] else percent(share[row]) for share in shares.values()
        )
        rows.append(
            (
                question,
                shortened(entry.question, _LONGEST),
                shortened(entry.answer or "-", _LONGEST),
                *right,
            )
        )
    more = (f"{len(dataset) - len(rows):,} more: to_frame()",) if len(dataset) > len(rows) else ()
    yield Table(
        f"{dataset.id}, {counted(len(dataset), 'question')}", columns(*names), tuple(rows), more
    )


def _dataset_columns(dataset: Dataset) -> Record:
    entries = [entry for _, entry in dataset]
    own = {
        "question": list(dataset.question_ids),
        "text": [entry.question for entry in entries],
        "answer": [entry.answer for entry in entries],
    }
    return own | dataset.right_shares()


def _dataset_plot(dataset: Dataset, options: PlotOptions) -> Picture:
    lines = (
        f"share of the recorded CoTs that are right; {counted(len(dataset), 'question')}",
        "each LLM's own order",
    )
    return pictures.questions(
        dataset.right_shares(),
        options,
        title=f"Questions of {dataset.id}",
        lines=lines,
        label="right CoTs",
    )


def _llm_pieces(llm: LLM) -> Pieces:
    numbers, price = llm.per_question(), llm.price
    cots = numbers["cots"]
    rows = (
        ("questions", f"{len(cots):,}"),
        ("CoTs per question", _range(cots.tolist(), "{:,}".format) if len(cots) else "-"),
        ("without answer", f"{percent(_mean(numbers['no_answer']))} % of the CoTs"),
        (
            "agreement",
            f"{percent(_mean(numbers['agreement']))} % of the CoTs have the most frequent answer",
        ),
        (
            "output tokens",
            f"{_mean(numbers['output_tokens']):,.1f} per CoT, counted by {llm.counter}",
        ),
        (
            "USD per million tokens",
            price.words() if price else "as each CoT states" if llm.states_usd else "no price",
        ),
        ("billing", llm.billing),
    )
    yield Table(f"{llm.name} on {llm.dataset}", columns("", ""), rows)


def _mean(values: Any) -> float:
    known = values[values == values]
    return float(known.mean()) if len(known) else float("nan")


def _llm_plot(llm: LLM, options: PlotOptions) -> Picture:
    questions = counted(len(llm.question_ids), "question")
    lines = ("share of the CoTs with their question's most frequent answer", questions)
    shares = {llm.name: llm.per_question()["agreement"]}
    return pictures.questions(
        shares, options, title=f"{llm.name} on {llm.dataset}", lines=lines, label="agreement"
    )


def _evaluation_sentence(result: Evaluation) -> str:
    return (
        f"{label(result)} on {result.dataset}, {' > '.join(result.llms)}: {outcome(result)},"
        f" {result.samples_per_question:,.2f} CoTs per question;"
        f" {counted(result.questions, 'question')}, {result.kind}"
    )


def _evaluation_columns(result: Evaluation) -> Record:
    measures = result.ledger.measures("always", cost=result.cost).values()
    names = ("right", *measures, "output_tokens", "no_answer", "stopped_early", "routed_wrong")
    return {
        "question": list(result.question_ids),
        **{
            name: [float("nan")] * result.questions if own is None else own
            for name, own in ((name, getattr(result, name)) for name in names)
        },
    }


def _evaluation_plot(result: Evaluation, options: PlotOptions) -> Picture:
    lines = (
        f"{outcome(result)}; {counted(result.questions, 'question')}; {result.kind}",
        " > ".join(result.llms),
    )
    title = f"{label(result)} on {result.dataset}"
    shares, unit = {label(result): result.right}, "probability of being right"
    return pictures.questions(shares, options, title=title, lines=lines, label=unit)


def _comparison_columns(comparison: Comparison, rows: str = "points") -> Record:
    kinds = get_type_hints(Statistics)
    if rows == "questions":
        return comparison.per_question()
    if rows == "points":
        return _columns(comparison.records())
    require_known("kind of rows", rows, ("points", "questions", *kinds, *_LIBRARIES))
    [kind, _] = kinds[rows].__args__  # of a tuple
    return _columns(
        map(asdict, getattr(comparison, rows)), [column.name for column in fields(kind)]
    )


def _plan_records(plan: Plan) -> list[dict[str, str]]:
    return [
        {
            "label": entry.label,
            "method": entry.method,
            "llms": " > ".join(entry.llms),
            "fields": ", ".join(f"{name}={value}" for name, value in entry.fields.items()) or "-",
            "budgets": "-"
            if entry.sweep is None
            else f"{entry.sweep[0]} = {', '.join(map(str, entry.sweep[1]))}",
        }
        for entry in plan.entries
    ]


def _plan_table(plan: Plan) -> Table:
    notes = (
        f"recordings: {', '.join(plan.recordings)}",
        f"cost {plan.cost}; billing {plan.billing}; seed {plan.seed}",
    )
    records = _plan_records(plan)
    fields = {name: name for name in records[0]}
    return make_table(f"Comparison on {plan.dataset}", fields, records, notes)


def _surface_sentence(surface: Surface) -> str:
    limits = [depth for depth in surface.depths if depth is not None]
    cut = f"cut after {_range(limits, '{:,}'.format)} tokens" if limits else "not cut"
    return (
        f"{surface.dataset}, {surface.llm}: {_range(surface.widths)} traces {cut},"
        f" {_range([point.accuracy for point in surface.points], percent)} % right;"
        f" {counted(surface.questions, 'question')}"
    )


VIEWS = {
    "Recording": View(
        _recording_sentence,
        lambda r: (_recording_sentence(r), pools_table(r)),
        _recording_columns,
        lambda r, options: _dataset_plot(_dataset_of(r), options),
    ),
    "Dataset": View(
        lambda d: f"{d.id!r}, {counted(len(d), 'question')}",
        _dataset_pieces,
        _dataset_columns,
        _dataset_plot,
    ),
    "LLM": View(lambda llm: llm.name, _llm_pieces, lambda llm: llm.per_question(), _llm_plot),
    "Evaluation": View(
        _evaluation_sentence,
        lambda e: evaluation_tables([e]),
        _evaluation_columns,
        _evaluation_plot,
    ),
    "Curve": View(
        lambda c: f"{c.method} on {c.dataset}, {c.llm}: {curve_answer(c)}",
        lambda c: [curves_table([c])],
        lambda c: _columns(
            {"method": c.method, "dataset": c.dataset, "llm": c.llm, "field": c.field} | record
            for record in curve_records(c)
        ),
        None,
        frozenset({"ceilings", "intervals", "annotate", "cost", "log"}),
    ),
    "Comparison": View(
        comparison_answer,
        lambda c: headline(c, "to_frame()", "save(FOLDER)"),
        _comparison_columns,
        lambda c, options: pictures.comparison(c, options),
        frozenset(
            {"methods", "llms", "ceilings", "frontier", "intervals", "annotate", "cost", "log"}
        ),
    ),
    "Plan": View(
        lambda p: f"{p.dataset}: {', '.join(entry.label for entry in p.entries)}",
        lambda p: [_plan_table(p)],
        lambda p: _columns(_plan_records(p)),
    ),
    "Forecast": View(
        lambda f: f"{f.dataset}, {f.llm}: {forecast_answer(f)}",
        forecast_tables,
        lambda f: _columns(forecast_records(f), FORECAST_COLUMNS),
        lambda f, options: pictures.forecast(f, options),
        frozenset({"methods", "intervals", "annotate", "log"}),
    ),
    "BudgetPlan": View(
        lambda b: f"{b.budget.amount:g} {b.budget.unit} on {b.dataset}, {b.llm}: {plan_answer(b)}",
        plan_tables,
        lambda p: _columns([asdict(option) for option in p.options]),
        lambda b, options: pictures.budget(b, options),
        frozenset({"intervals", "annotate", "log"}),
    ),
    "Surface": View(
        _surface_sentence,
        lambda s: [surface_table(s)],
        lambda s: _columns(surface_records(s)),
        lambda s, options: pictures.surface(s, options),
        frozenset({"frontier", "annotate"}),
    ),
}
"""Name of a class -> how it is shown; classes derived from it are shown alike."""

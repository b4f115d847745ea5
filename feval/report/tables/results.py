"""Evaluations, curves and surfaces as tables, and as tidy records, of which files and DataFrames
are made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from feval.methods import METHODS
from feval.report.tables.tables import (
    OTHER_COSTS,
    POINT_COSTS,
    Cell,
    Fields,
    Table,
    accuracy,
    billing_note,
    cost_fields,
    cost_number,
    cost_unit,
    make_table,
    marked,
    number,
    numbers,
    per_round_field,
    records_csv,
    share,
    timing_notes,
)
from feval.report.text import (
    counted,
    counted_questions,
    fixed,
    percent,
    percents,
    price_words,
    usd_per_1000,
)

if TYPE_CHECKING:
    from feval.evaluation.curves import Curve
    from feval.evaluation.evaluation import Evaluation
    from feval.evaluation.surfaces import Surface, SurfacePoint
    from feval.receipts.grading import Grade

Records = list[dict[str, Any]]
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


def label(evaluation: Evaluation) -> str:
    """A method with its fields that differ from their defaults, on one line."""
    kind = METHODS.get(evaluation.method)
    usual = {} if kind is None else {f.name: f.default for f in dataclasses.fields(kind)}
    fields = [
        f"{name}={_written(value)}"
        for name, value in evaluation.fields.items()
        if value != usual.get(name)
    ]
    return f"{evaluation.method}({', '.join(fields)})" if fields else evaluation.method


def outcome(point: Any, judged: Any = None) -> str:
    """Return what an evaluation or a point of a curve reaches, which `judged` may say instead, and
    what it costs.
    """
    right = judged or point
    words = f"{percent(right.accuracy)} % right"
    if right.accuracy_low is not None:
        words += f" ({percents(right.accuracy_low, right.accuracy_high)})"
    if point.usd_per_question is not None:
        return f"{words}, for {usd_per_1000(point.usd_per_question)} USD per 1,000 questions"
    tokens = point.tokens_per_question
    return words if tokens is None else f"{words}, for {fixed(tokens, 1)} tokens per question"


def _written(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_written, value))})"
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
    title = f"{first.dataset}, {counted_questions(first.questions, first.left_out)}"
    results = make_table(title, fields, evaluations, _notes(evaluations))
    results = marked(results, [name for each in evaluations for name in each.counters])
    named = [(label(each), each) for each in evaluations]
    errors = errors_table({"method": "method"}, [({"method": own}, e) for own, e in named])
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
    title = f"{grade.dataset}, {counted(grade.questions, 'question')}"
    notes = (f"CoTs in {draws}; billing {grade.billing}; {prices}",)
    table = make_table(title, fields, [record], notes)
    # The remarks below say what the mark means.
    return dataclasses.replace(table, columns=marked(table, grade.counters).columns)


def _notes(evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    notes = [
        f"{kind}: {_KINDS[kind].format(draws=counted(replicates or 1, 'seeded draw'), seed=seed)}"
        for kind, replicates, seed in dict.fromkeys(
            (each.kind, each.replicates, each.seed) for each in evaluations
        )
    ]
    for each in evaluations:
        known = ((name, value) for name, value in each.fields.items() if value is not None)
        settings = ", ".join(f"{name} {_written(value)}" for name, value in known)
        if each.fields:
            notes.append(f"{each.method}: {settings}")
    first = evaluations[0]
    counters = dict.fromkeys(counter for each in evaluations for counter in each.counters)
    if learnt := max(each.train_questions for each in evaluations):
        others = counted(learnt, "other question")
        notes.append(f"{others} were set aside for training and are not judged")
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
    if first.field == "budget" and first.settings.get("prices"):  # of USD per question
        swept = {"#budget, USD per 1,000": numbers("n", write=usd_per_1000)}
    fields = {
        **({"LLM": "llm"} if several else {}),
        **swept,
        **accuracy(first.confidence),
        **cost_fields(("usd", "tokens")),
        "#pass@n %": share("pass_at_n"),
        **own,
        **per_round_field(first.billing, first.points),
    }
    title = f"{first.method} on {first.dataset}{'' if several else f', {first.llm}'}"
    answer = () if several else (curve_answer(first),)
    table = make_table(title, fields, rows, (*answer, *subtitles(first), *first.warnings))
    return marked(table, [name for curve in curves for name in curve.counter.split("; ")])


def curve_answer(curve: Curve) -> str:
    """Return which point is best, and the cheapest one within a point of its accuracy."""
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
    return (
        f"{kind}: {how}; {counted_questions(curve.questions, curve.left_out)}{fields}",
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
    """Return a record per point, with `POINT_COLUMNS` and the curve's own cost."""
    records = [{name: getattr(point, name) for name in POINT_COLUMNS} for point in curve.points]
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
        id="frontier",
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
    questions = counted_questions(surface.questions, surface.left_out)
    grid = f"{counted(len(surface.widths), 'width')} x {counted(len(surface.depths), 'depth')}"
    paid = billing_note(surface.billing, surface.prices, surface.points[:1], surface.counter)
    return (
        f"exact: expectation over all subsets of the recorded traces, probed {probed}; {questions}",
        f"{grid}; {paid}",
    )

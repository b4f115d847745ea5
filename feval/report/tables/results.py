"""Evaluations as tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from feval.methods import METHODS
from feval.report.tables.cost_axes import OTHER_COSTS, cost_decimals, cost_words
from feval.report.tables.tables import (
    Column,
    Table,
    columns,
    marked,
    per_round_cell,
    per_round_column,
    point_cells,
    timing_notes,
)
from feval.report.text import (
    counted,
    counted_questions,
    decimals_for,
    fixed,
    interval_name,
    percent,
    percents,
    price_words,
)

if TYPE_CHECKING:
    from feval.evaluation.evaluation import Evaluation
    from feval.methods.protocol import MonteCarloPart
    from feval.receipts.grading import Grade

ERROR_COLUMNS = ("no answer %", "wrong vote %", "stopped early %", "routed wrong %")
"""Columns of a table of errors, in the order of `evaluation.ERRORS`."""

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
    usual = _defaults(evaluation.method)
    fields = [
        f"{name}={_written(value)}"
        for name, value in evaluation.fields.items()
        if value != usual.get(name)
    ]
    return f"{evaluation.method}({', '.join(fields)})" if fields else evaluation.method


def _defaults(method: str) -> dict[str, object]:
    return (
        {f.name: f.default for f in dataclasses.fields(METHODS[method])}
        if method in METHODS
        else {}
    )


def _written(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_written, value))})"
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def evaluation_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    """A table of results, one row per evaluation on the same questions, and one of the kinds of
    errors where they are known.
    """
    first = evaluations[0]
    decimals = decimals_for(evaluation.usd_per_question or 0.0 for evaluation in evaluations)
    by_round = per_round_column((evaluation.billing, evaluation) for evaluation in evaluations)
    tokens = any(
        evaluation.tokens is None or evaluation.probe_calls.any() for evaluation in evaluations
    )
    shown = ("seconds",) if first.timing is not None else ()
    asked = dict.fromkeys((*shown, *([first.cost] if first.cost in OTHER_COSTS else [])))
    if tokens:
        asked.pop("sequential-tokens", None)
    results = Table(
        title=f"{first.dataset}, {counted_questions(first.questions, first.left_out)}",
        columns=(
            *_columns("method", first.confidence),
            *(columns("#output tokens", "#sequential tokens") if tokens else ()),
            *columns(*(f"#{cost_words(cost, first.timing)[1]}/question" for cost in asked)),
            *(columns(f"#{by_round}") if by_round else ()),
        ),
        rows=tuple(
            _row(evaluation, decimals, by_round, asked, tokens=tokens) for evaluation in evaluations
        ),
        notes=_notes(evaluations),
    )
    results = marked(results, [name for evaluation in evaluations for name in evaluation.counters])
    split = [evaluation for evaluation in evaluations if None not in evaluation.errors().values()]
    return [results, _errors(split)] if split else [results]


def _columns(name: str, confidence: float | None) -> tuple[Column, ...]:
    costs = ("#USD/question", "#tokens/question", "#CoTs/question", "#calls/question")
    return columns(name, "LLMs", "#accuracy %", f"#{interval_name(confidence)}", *costs)


def _row(
    evaluation: Evaluation,
    decimals: int,
    by_round: str | None,
    asked: Iterable[str],
    *,
    tokens: bool,
) -> tuple[str, ...]:
    generated = (
        (evaluation.output_tokens_per_question, evaluation.sequential_tokens_per_question)
        if tokens
        else ()
    )
    return (
        label(evaluation),
        " > ".join(evaluation.llms),
        *point_cells(evaluation, decimals),
        *(fixed(number, 1) for number in generated),
        *(_asked(evaluation, cost) for cost in asked),
        *((per_round_cell(evaluation, decimals),) if by_round else ()),
    )


def _asked(evaluation: Evaluation, cost: str) -> str:
    mean = evaluation.mean_cost(cost)
    return fixed(mean, cost_decimals(cost, [mean]))


def _errors(evaluations: Sequence[Evaluation]) -> Table:
    return Table(
        title="How wrong answers came about",
        columns=columns("method", *(f"#{name}" for name in ERROR_COLUMNS)),
        rows=tuple(
            (
                label(each),
                *("-" if share is None else percent(share) for share in each.errors().values()),
            )
            for each in evaluations
        ),
        notes=(
            *ERROR_NOTES,
            *(
                estimate_note(label(each), each.errors_estimate)
                for each in evaluations
                if each.errors_estimate
            ),
        ),
    )


def estimate_note(name: str, part: MonteCarloPart) -> str:
    """A note on the part of an evaluation's error breakdown that is estimated by Monte Carlo."""
    return (
        f"{name}: the share stopped early is estimated on {counted(part.questions, 'question')},"
        f" from {counted(part.replicates, 'seeded draw')} of each; its standard error is"
        f" {percent(part.standard_error)} points"
    )


def grade_table(grade: Grade) -> Table:
    """A table of a graded run, laid out like that of an evaluation."""
    values = grade.to_dict()
    usd = values["usd_per_question"]
    draws = (
        "recorded order"
        if grade.replicate is None
        else f"replicate {grade.replicate}, seed {grade.seed}"
    )
    prices = price_words(grade.prices, [usd])
    table = Table(
        title=f"{grade.dataset}, {counted(grade.questions, 'question')}",
        columns=_columns("run", grade.confidence),
        rows=(
            (
                grade.run,
                " > ".join(grade.llms),
                percent(grade.accuracy),
                percents(grade.accuracy_low, grade.accuracy_high),
                fixed(usd, decimals_for([usd or 0.0])),
                fixed(values["tokens_per_question"], 1),
                fixed(values["samples_per_question"], 2),
                fixed(values["calls_per_question"], 2),
            ),
        ),
        notes=(f"CoTs in {draws}; billing {grade.billing}; {prices}",),
    )
    # The remarks below say what the mark means.
    return dataclasses.replace(table, columns=marked(table, grade.counters).columns)


def _settings(evaluation: Evaluation) -> list[str]:
    return [
        f"{name} {_written(value)}"
        for name, value in evaluation.fields.items()
        if value is not None
    ]


def _notes(evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    kinds = dict.fromkeys(
        (evaluation.kind, evaluation.replicates, evaluation.seed) for evaluation in evaluations
    )
    notes = [
        f"{kind}: {_KINDS[kind].format(draws=counted(replicates or 1, 'seeded draw'), seed=seed)}"
        for kind, replicates, seed in kinds
    ]
    notes += [
        f"{evaluation.method}: {', '.join(_settings(evaluation))}"
        for evaluation in evaluations
        if evaluation.fields
    ]
    first = evaluations[0]
    prices = price_words(first.prices, (evaluation.usd_per_question for evaluation in evaluations))
    counters = ", ".join(
        dict.fromkeys(counter for evaluation in evaluations for counter in evaluation.counters)
    )
    learnt = max(evaluation.train_questions for evaluation in evaluations)
    split = (
        [f"{counted(learnt, 'other question')} were set aside for training and are not judged"]
        if learnt
        else []
    )
    warnings = dict.fromkeys(
        warning for evaluation in evaluations for warning in evaluation.warnings
    )
    return (
        *notes,
        *split,
        f"billing {first.billing}; {prices}; token counter {counters}",
        *timing_notes(first.timing),
        *warnings,
    )

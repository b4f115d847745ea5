"""Evaluations as tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from feval.methods import METHODS
from feval.report.tables.tables import Column, Table, per_round_cell, per_round_column
from feval.report.text import counted, counted_questions, decimals_for, fixed, percent

if TYPE_CHECKING:
    from feval.evaluation.evaluation import Evaluation
    from feval.methods.error_shares import MonteCarloPart
    from feval.receipts.grading import Grade

__all__ = ["ERROR_COLUMNS", "ERROR_NOTES", "estimate_note", "evaluation_tables", "grade_table", "label"]

ERROR_COLUMNS = ("no answer %", "wrong vote %", "stopped early %", "routed wrong %")
"""What a table of errors has, in the order of `evaluation.ERRORS`."""

ERROR_NOTES = (
    "stopped early: all CoTs that the method might have drawn of an LLM it asked would vote right (1/m where m answers lead)",
    "routed wrong: those of an LLM it did not ask would; wrong vote: none of the others",
)
"""What three of them mean."""

_KINDS = {
    "exact": "expectation over all draws of the recorded CoTs",
    "recorded": "CoTs in recorded order",
    "seeded": "mean over {draws} of each question, seed {seed}",
}


def label(told: Evaluation) -> str:
    """A method with those of its fields that are not at their defaults, on one line."""
    usual = _defaults(told.method)
    fields = [f"{name}={_written(value)}" for name, value in told.fields.items() if value != usual.get(name)]
    return f"{told.method}({', '.join(fields)})" if fields else told.method


def _defaults(method: str) -> dict[str, object]:

    return {f.name: f.default for f in dataclasses.fields(METHODS[method])} if method in METHODS else {}


def _written(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_written, value))})"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def evaluation_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    """A table of results, one row per evaluation, and one of how wrong answers came about where that is known.

    Args:
        evaluations: one at least, on the same questions.
    """
    first = evaluations[0]
    interval = "interval" if first.confidence is None else f"{100 * first.confidence:g} % interval"
    numbers = ["accuracy %", interval, "USD/question", "tokens/question", "CoTs/question", "calls/question"]
    decimals = decimals_for(told.usd_per_question or 0.0 for told in evaluations)
    by_round = per_round_column((told.billing, told) for told in evaluations)
    numbers += [by_round] if by_round else []
    results = Table(
        title=f"{first.dataset}, {counted_questions(first.questions, first.left_out)}",
        columns=(Column("method"), Column("LLMs"), *(Column(name, number=True) for name in numbers)),
        rows=tuple(_row(told, decimals, by_round) for told in evaluations),
        notes=_notes(evaluations),
    )
    split = [told for told in evaluations if None not in told.errors().values()]
    return [results, _errors(split)] if split else [results]


def _row(told: Evaluation, decimals: int, by_round: str | None) -> tuple[str, ...]:
    low, high = told.accuracy_low, told.accuracy_high
    return (
        label(told),
        " > ".join(told.llms),
        percent(told.accuracy),
        "-" if low is None or high is None else f"{percent(low)} to {percent(high)}",
        fixed(told.usd_per_question, decimals),
        fixed(told.tokens_per_question, 1),
        fixed(float(told.samples.mean()), 2),
        fixed(told.calls_per_question, 2),
        *((per_round_cell(told, decimals),) if by_round else ()),
    )


def _errors(evaluations: Sequence[Evaluation]) -> Table:
    return Table(
        title="How wrong answers came about",
        columns=(Column("method"), *(Column(name, number=True) for name in ERROR_COLUMNS)),
        rows=tuple(
            (label(t), *("-" if share is None else percent(share) for share in t.errors().values()))
            for t in evaluations
        ),
        notes=(
            *ERROR_NOTES,
            *(estimate_note(label(t), t.errors_estimate) for t in evaluations if t.errors_estimate),
        ),
    )


def estimate_note(name: str, own: MonteCarloPart) -> str:
    """What of a split of errors is estimated.

    Args:
        name: of the evaluation.
        own: its estimate.
    """
    return (
        f"{name}: which wrong answers were stopped early is estimated on {counted(own.questions, 'question')}, from "
        f"{counted(own.replicates, 'seeded draw')} of each; its standard error is {percent(own.standard_error)} points"
    )


def grade_table(told: Grade) -> Table:
    """A table with the numbers of a run that was graded, laid out as those of an evaluation."""
    interval = "interval" if told.confidence is None else f"{100 * told.confidence:g} % interval"
    numbers = ("accuracy %", interval, "USD/question", "tokens/question", "CoTs/question", "calls/question")
    values = told.to_dict()
    usd, tokens = values["usd_per_question"], values["tokens_per_question"]
    low, high = told.accuracy_low, told.accuracy_high
    draws = "recorded order" if told.replicate is None else f"replicate {told.replicate}, seed {told.seed}"
    prices = f"prices {told.prices}" if told.prices else "no prices"
    return Table(
        title=f"{told.dataset}, {counted(told.questions, 'question')}",
        columns=(Column("run"), Column("LLMs"), *(Column(name, number=True) for name in numbers)),
        rows=(
            (
                told.run,
                " > ".join(told.llms),
                percent(told.accuracy),
                "-" if low is None or high is None else f"{percent(low)} to {percent(high)}",
                fixed(usd, decimals_for([usd or 0.0])),
                fixed(tokens, 1),
                fixed(values["samples_per_question"], 2),
                fixed(values["calls_per_question"], 2),
            ),
        ),
        notes=(f"CoTs in {draws}; billing {told.billing}; {prices}",),
    )


def _settings(told: Evaluation) -> list[str]:
    return [f"{name} {_written(value)}" for name, value in told.fields.items() if value is not None]


def _notes(evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    kinds = dict.fromkeys((told.kind, told.replicates, told.seed) for told in evaluations)
    said = [
        f"{kind}: {_KINDS[kind].format(draws=counted(replicates or 1, 'seeded draw'), seed=seed)}"
        for kind, replicates, seed in kinds
    ]
    said += [f"{told.method}: {', '.join(_settings(told))}" for told in evaluations if told.fields]
    first = evaluations[0]
    prices = f"prices {first.prices}" if first.prices else "no prices"
    counters = ", ".join(dict.fromkeys(counter for told in evaluations for counter in told.counters))
    learnt = max(told.train_questions for told in evaluations)
    split = [f"{counted(learnt, 'other question')} were set aside for training and are not judged"] if learnt else []
    warnings = dict.fromkeys(warning for told in evaluations for warning in told.warnings)
    return (*said, *split, f"billing {first.billing}; {prices}; token counter {counters}", *warnings)

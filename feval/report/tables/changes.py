"""Tables of what a second extraction changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.report.tables.tables import Table, columns

if TYPE_CHECKING:
    from feval.recording.derived.extraction import AnswerChange, Extraction, LLMChanges

_NONE = "-"


def changes_tables(extraction: Extraction) -> list[Table]:
    """Return the tables of `feval extract`: changes per LLM, changed golds, examples of changed
    answers.
    """
    return [
        table
        for table in (_counts(extraction), _golds(extraction), _examples(extraction))
        if table.rows
    ]


def _counts(extraction: Extraction) -> Table:
    names = (
        "dataset",
        "LLM",
        "#CoTs",
        "#gained",
        "#lost",
        "#changed",
        "#right before",
        "#right now",
    )
    rows = [
        (changes.dataset, llm.llm, *_numbers(llm))
        for changes in extraction.datasets
        for llm in changes.llms
    ]
    notes = [
        f"{changes.dataset}:"
        f" {_was_is('answer kind', changes.answer_kind_before, changes.answer_kind)},"
        f" {_was_is('extractor', changes.extractor_before, changes.extractor)}."
        for changes in extraction.datasets
    ]
    return Table("answers", columns(*names), tuple(rows), tuple(notes))


def _numbers(llm: LLMChanges) -> list[str]:
    numbers = (llm.cots, llm.gained, llm.lost, llm.changed, llm.right_before, llm.right_after)
    return [f"{number:,}" for number in numbers]


def _example(change: AnswerChange) -> list[str]:
    keys = (change.before, change.after, change.raw_before, change.raw_after)
    return [change.question_id, str(change.sample_index), *map(_key, keys)]


def _was_is(noun: str, before: str, after: str) -> str:
    return f"{noun} {after}" if before == after else f"{noun} {after} (was {before})"


def _golds(extraction: Extraction) -> Table:
    names = ("dataset", "question", "before", "now", "gold as written")
    rows = [
        (changes.dataset, gold.question_id, _key(gold.before), _key(gold.after), _key(gold.answer))
        for changes in extraction.datasets
        for gold in changes.gold_examples
    ]
    number = sum(changes.golds_changed for changes in extraction.datasets)
    return Table(
        f"golds that changed: {number:,}, the first of each dataset", columns(*names), tuple(rows)
    )


def _examples(extraction: Extraction) -> Table:
    names = ("dataset", "LLM", "question", "#CoT", "before", "now", "read before", "read now")
    rows = [
        (changes.dataset, llm.llm, *_example(change))
        for changes in extraction.datasets
        for llm in changes.llms
        for change in llm.examples
    ]
    return Table("answers that changed, a few of each kind", columns(*names), tuple(rows))


def _key(value: str | None) -> str:
    """Quote an answer for a cell, so that no answer (a dash) differs from the answer "-"."""
    if value is None:
        return _NONE
    return repr(value if len(value) <= 40 else f"{value[:37]}...")

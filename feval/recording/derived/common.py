"""What recordings must agree on before one is made of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.answers.equality import named_equality
from feval.answers.parties import NORMAL_FORM, Verdict
from feval.errors import ConflictError
from feval.recording.content import DatasetInfo, Question
from feval.recording.reader import Recording
from feval.recording.writer import RecordingWriter


def derived_writer(
    sources: Sequence[Recording],
    out: str | Path,
    operation: Mapping[str, Any],
    notes: Sequence[str],
    licences: Mapping[str, str | None] | None = None,
) -> RecordingWriter:
    """Return the writer of a recording that is derived from others with one price list."""
    return RecordingWriter(
        out,
        operation=operation,
        prices=sources[0].manifest.prices,
        parents=[
            {"hash": source.hash, "operation": source.manifest.raw["operation"]}
            for source in sources
        ],
        notes=notes,
        licences=licences or sources[0].manifest.raw["licences"],
    )


def carried_notes(source: Recording, mark: str) -> list[str]:
    """Return the notes of the recording that another one is derived from, marked as not being about
    that one.
    """
    return [mark + note.removeprefix(mark) for note in source.manifest.raw["notes"]]


def common_info(
    dataset: str, holders: Sequence[Recording], equality: str | None = None
) -> DatasetInfo:
    """Return what several recordings agree on about a dataset; a given equality takes the place of
    theirs.
    """
    first = holders[0].dataset_info(dataset)
    if len(holders) > 1 and equality is not None:
        first = replace(first, equality=named_equality(first.answer_kind, equality))
    for holder in holders[1:]:
        other = holder.dataset_info(dataset)
        for field in (
            "answer_kind",
            "extractor",
            "system_prompt",
            *(["equality"] if equality is None else []),
        ):
            mine, theirs = getattr(first, field), getattr(other, field)
            if mine != theirs:
                advice = (
                    "name one for both, --equality NAME"
                    if field == "equality"
                    else "import one of them again"
                )
                raise ConflictError(
                    f"{dataset} has {field} {mine!r} in {holders[0].path} but {theirs!r} in"
                    f" {holder.path}; {advice}."
                )
    return first


def known_verdicts(dataset: str, holders: Sequence[Recording], equality: str) -> dict[str, Any]:
    """Return the arguments of `RecordingWriter.add_dataset` about verdicts; a single holder has no
    new answers.
    """
    verdicts: dict[str, list[Verdict]] = {}
    for holder in holders:
        if holder.dataset_info(dataset).equality == equality:
            for question, rows in holder.verdicts(dataset).items():
                verdicts.setdefault(question, []).extend(rows)
    if len(holders) > 1 or equality == NORMAL_FORM:
        return {"verdicts": verdicts}
    return {
        "verdicts": verdicts,
        "not_asked": holders[0].manifest.datasets[dataset]["equality"]["not_asked"],
    }


def merged_rows(dataset: str, holders: Sequence[Recording]) -> list[npt.NDArray[np.int64]]:
    """Return, for each recording, the rows of its questions among the merged ones: the first that
    has a question places it.
    """
    keys = [holder.votes(dataset).question_keys for holder in holders]
    _, first, inverse = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
    rows = np.argsort(np.argsort(first))[inverse]
    return np.split(rows, np.cumsum([len(each) for each in keys])[:-1])


def merged_questions(dataset: str, holders: Sequence[Recording]) -> Iterator[Question]:
    """Yield the questions of a dataset in several recordings, in the order of the first that has
    each.
    """
    by_leaf: dict[str, Recording] = {}
    for holder in holders:
        by_leaf.setdefault(holder.manifest.leaves[dataset, None, "questions"], holder)
    distinct = list(by_leaf.values())
    rows = merged_rows(dataset, distinct)
    if len(distinct) == 1 or max(each.max(initial=-1) for each in rows) + 1 == sum(map(len, rows)):
        for holder in distinct:  # no question is in two of them
            yield from holder.scan_questions(dataset)
        return
    merged: dict[str, tuple[Question, Recording]] = {}
    for holder in distinct:
        for question in holder.scan_questions(dataset):
            if question.id not in merged:
                merged[question.id] = (question, holder)
                continue
            known, where = merged[question.id]
            merged[question.id] = (
                same_question(dataset, known, question, where.path, holder.path),
                where,
            )
    yield from (question for question, _ in merged.values())


def same_question(
    dataset: str, known: Question, other: Question, where: str | Path, there: str | Path
) -> Question:
    """Return a question with the gold and choices that either of two has; a `ConflictError` names
    `where` and `there`.
    """
    for field, noun in (("text", "texts"), ("answer_key", "golds"), ("choices", "choices")):
        mine, theirs = getattr(known, field), getattr(other, field)
        if mine != theirs and not (field != "text" and not (mine and theirs)):
            raise ConflictError(
                f"Question {known.id!r} of {dataset} has two {noun}: {mine!r:.80} in {where}, "
                f"{theirs!r:.80} in {there}."
            )
    if known.answer_key is None and other.answer_key is not None:
        known = replace(known, answer=other.answer, answer_key=other.answer_key)
    return known if known.choices else replace(known, choices=other.choices)

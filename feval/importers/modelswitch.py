"""Recordings of ModelSwitch (2025, https://arxiv.org/abs/2504.00762).

A JSON array, one object per question in shuffled order: `no` (row of the upstream dataset, from 0), `question`, `solution`
(gold), `step_sampling` (texts), `intermediate_results` (the answers its authors extracted). Question ids are `<dataset>/<no>` and
the questions are put in the order of `no`, so that files of one dataset agree.

Verbatim answers are `intermediate_results`, with the authors' "" and "Error" read as no answer; they compare numbers without
commas, so `--answer-kind number` is closer to their verdicts than verbatim ("57.00" is 57).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from feval.errors import SourceError
from feval.importers.questions import without_duplicates
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import answer_texts, gold_text, member, refuse, strings
from feval.importers.source import Imported, ImportRequest, SourceLLM, SourcePool, SourceQuestion

__all__ = ["read"]

_NO_ANSWER = frozenset({"", "Error"})


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one file.

    Args:
        source: JSON, may be compressed by gzip.
        request: names the LLM.

    Raises:
        SourceError: broken, empty, or of another shape.
        ConflictError: a question number comes twice.
        UsageError: no LLM was named.
    """
    llm = request.the_llm(source.name)
    reader = Reader()
    entries = reader.json(read_bytes(source), source.name, exact=True)
    if not isinstance(entries, list) or not entries:
        raise SourceError(
            f"{source.name} should be a JSON array with an object per question. Is the format the right one?"
        )
    numbered = sorted(((_number(entry, row, source.name), row) for row, entry in enumerate(entries)))
    questions, pools = [], []
    for number, row in numbered:
        where = f"entry {row} of {source.name}"
        questions.append(_question(entries[row], request.question_id(number), where))
        pools.append(_pool(entries[row], where))
    notes = _no_answer_notes(pools) + reader.notes()
    if [row for _, row in numbered] != list(range(len(entries))):
        notes.insert(0, "The source is in shuffled order; its questions were put in the order of their numbers.")
    return Imported(without_duplicates(questions, source.name), [SourceLLM(llm, pools)], notes)


def _number(entry: Any, row: int, name: str) -> int:
    number = member(entry, "no", int, f"entry {row} of {name}")
    if number < 0:
        refuse(f"'no' of entry {row} of {name}", "0 or more", number)
    return number


def _question(entry: Any, name: str, where: str) -> SourceQuestion:
    text = member(entry, "question", str, where)
    if "solution" not in entry:
        member(entry, "solution", str, where)
    return SourceQuestion(name, text, gold_text(entry["solution"], where))


def _pool(entry: Any, where: str) -> SourcePool:
    texts, results = member(entry, "step_sampling", list, where), member(entry, "intermediate_results", list, where)
    if len(texts) != len(results):
        raise SourceError(
            f"{where[0].upper()}{where[1:]} has {len(texts)} texts in 'step_sampling' and {len(results)} answers in "
            "'intermediate_results'; there should be one answer for each text."
        )
    answers = [None if answer in _NO_ANSWER else answer for answer in answer_texts(results, where)]
    return SourcePool(strings(texts, where), answers)


def _no_answer_notes(pools: list[SourcePool]) -> list[str]:
    count = sum(answer is None for pool in pools for answer in pool.answers or ())
    return [f"{count} stored answers are empty or 'Error'; they were read as no answer."] if count else []

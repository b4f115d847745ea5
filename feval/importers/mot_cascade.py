"""Recordings of LLM Cascades with Mixture of Thoughts (Yue et al., ICLR 2024, https://arxiv.org/abs/2310.03094).

A JSON array, one object per question: `question`, `answer` (gold), `generated` (texts), `results` (the answers its authors
extracted; null where none). `explain`, `result_counter` and `prediction` follow from these and are not read.

Verbatim answers are `results`: texts as they are, numbers as decimal keys, true and false as yes and no. The authors compare
alike (`finqa_equal`), except that they round two numbers to the decimals of the shorter one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from feval.errors import SourceError
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import answer_texts, gold_text, member, strings
from feval.importers.source import Imported, ImportRequest, SourceLLM, SourcePool, SourceQuestion

__all__ = ["read"]

# SHA-256 of the uncompressed file -> what its content alone does not show.
_KNOWN_FAULTS = {
    "b2ad006e68e5eacd611705f3c18a9e281b45f89ff35aeb99f592b85203745f27": (
        "This recording (date_cot1_40) is not independent of two others: on every question, samples 1 to 20 are those of "
        "date_cot1 and samples 21 to 40 those of date_cot1_t=0.4."
    ),
}


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one file.

    Args:
        source: JSON, may be compressed by gzip.
        request: names the LLM; `keep_duplicates` keeps samples that the file stores twice.

    Raises:
        SourceError: broken, empty, or of another shape.
        UsageError: no LLM was named.
    """
    llm = request.the_llm(source.name)
    data = read_bytes(source)
    reader = Reader()
    entries = reader.json(data, source.name, exact=True)
    if not isinstance(entries, list) or not entries:
        raise SourceError(
            f"{source.name} should be a JSON array with an object per question. Is the format the right one?"
        )
    questions, pools = [], []
    for row, entry in enumerate(entries):
        where = f"question {row} of {source.name}"
        questions.append(_question(entry, request.question_id(row), where))
        pools.append(_pool(entry, where))
    notes = _gold_notes(entries) + _answer_notes(entries) + reader.notes()
    if fault := _KNOWN_FAULTS.get(hashlib.sha256(data).hexdigest()):
        notes.append(fault)
    if _stored_twice(pools):
        pools = pools if request.keep_duplicates else [_first_half(pool) for pool in pools]
        notes.append(_duplicates_note(kept=request.keep_duplicates))
    notes += _size_notes(pools)
    return Imported(questions, [SourceLLM(llm, pools)], notes)


def _question(entry: Any, name: str, where: str) -> SourceQuestion:
    text = member(entry, "question", str, where)
    if "answer" not in entry:
        member(entry, "answer", str, where)
    return SourceQuestion(name, text, _gold(entry["answer"], where))


def _gold(answer: Any, where: str) -> str | None:
    """The gold answer; of an object {option: 0 or 1}, the option marked 1."""
    if not isinstance(answer, dict):
        return gold_text(answer, where)
    right: list[str] = [option for option, mark in answer.items() if mark == 1 and not isinstance(mark, bool)]
    if len(right) != 1:
        raise SourceError(
            f"The gold answer of {where} is an object {{option: 0 or 1}} with {len(right)} options marked 1; it should be one."
        )
    return right[0]


def _pool(entry: Any, where: str) -> SourcePool:
    generated, results = member(entry, "generated", list, where), member(entry, "results", list, where)
    if len(generated) != len(results):
        raise SourceError(
            f"{where[0].upper()}{where[1:]} has {len(generated)} texts in 'generated' and {len(results)} answers in 'results'; "
            "there should be one answer for each text."
        )
    return SourcePool(strings(generated, where), answer_texts(results, where))


def _stored_twice(pools: list[SourcePool]) -> bool:
    """Whether on every question the second half of the samples repeats the first, and sampling was not greedy."""
    return all(_halves_agree(pool) for pool in pools) and any(len(set(pool.texts)) > 1 for pool in pools)


def _halves_agree(pool: SourcePool) -> bool:
    half, rest = divmod(len(pool.texts), 2)
    answers = pool.answers or ()
    return not rest and half > 0 and pool.texts[:half] == pool.texts[half:] and answers[:half] == answers[half:]


def _first_half(pool: SourcePool) -> SourcePool:
    half = len(pool.texts) // 2
    return SourcePool(pool.texts[:half], (pool.answers or ())[:half])


def _duplicates_note(*, kept: bool) -> str:
    did = "both halves were kept, as asked" if kept else "only the first half was imported"
    return f"On every question the second half of the samples repeats the first half; {did}."


def _gold_notes(entries: list[Any]) -> list[str]:
    objects = sum(isinstance(entry["answer"], dict) for entry in entries)
    if not objects:
        return []
    return [f"The gold answer of {objects} questions is an object {{option: 0 or 1}}; the option marked 1 was taken."]


def _answer_notes(entries: Iterable[Any]) -> list[str]:
    """Say where texts stand among numbers: answers that their authors could not read as a number."""
    kinds = [type(answer) for entry in entries for answer in entry["results"]]
    texts, numbers = kinds.count(str), kinds.count(int) + kinds.count(float)
    if not (texts and numbers):
        return []
    return [f"{texts} of {len(kinds)} stored answers are text among numbers; they were kept as they are."]


def _size_notes(pools: list[SourcePool]) -> list[str]:
    sizes = [len(pool.texts) for pool in pools]
    if min(sizes) == max(sizes):
        return []
    usual = max(set(sizes), key=sizes.count)
    others = len(sizes) - sizes.count(usual)
    return [f"The pools are ragged: {min(sizes)} to {max(sizes)} samples; {others} of {len(sizes)} have not {usual}."]

"""Recordings of LLM Cascades with Mixture of Thoughts (Yue et al., ICLR 2024,
https://arxiv.org/abs/2310.03094).

A JSON array, one object per question: `question`, `answer` (gold), `generated` (texts), `results`
(the answers its authors extracted; null where none). `explain`, `result_counter` and `prediction`
follow from these and are not read.

Files of programs (`*_pot*`) leave out the results of programs that failed, so a question may have
fewer results than texts, and nothing says which text each belongs to. Where there are none at all,
no text has an answer. Where there are some, the samples of the question cannot be told right from
wrong one by one: they are not imported, and the note names the questions.

Verbatim answers are `results`: texts as they are, numbers as decimal keys, true and false as yes
and no. The authors compare alike (`finqa_equal`), except that they round two numbers to the
decimals of the shorter one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feval.errors import SourceError
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import answer_texts, gold_text, member, sentence_start, strings
from feval.importers.source import (
    Imported,
    ImportRequest,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
    size_note,
)

# SHA-256 of the uncompressed file -> what its content alone does not show.
_KNOWN_FAULTS = {
    "b2ad006e68e5eacd611705f3c18a9e281b45f89ff35aeb99f592b85203745f27": (
        "This recording (date_cot1_40) is not independent of two others: on every question, samples"
        " 1 to 20 are those of date_cot1 and samples 21 to 40 those of date_cot1_t=0.4."
    )
}


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one JSON file. The request names the LLM."""
    llm = request.the_llm(source.name)
    data = read_bytes(source)
    reader = Reader()
    entries = reader.entries(data, source.name)
    questions, samples = [], []
    for row, entry in enumerate(entries):
        where = f"question {row} of {source.name}"
        questions.append(_question(entry, request.question_id(row), where))
        samples.append(_samples(entry, where))
    notes = _gold_notes(entries) + _answer_notes(entries) + reader.notes()
    if fault := _KNOWN_FAULTS.get(hashlib.sha256(data).hexdigest()):
        notes.append(fault)
    if _stored_twice(samples):
        samples = samples if request.keep_duplicates else list(map(_first_half, samples))
        result = (
            "both halves were kept, as requested"
            if request.keep_duplicates
            else "only the first half was imported"
        )
        notes.append(
            f"On every question the second half of the samples repeats the first half; {result}."
        )
    pools = list(map(_pool, samples))
    notes += _pairing_notes(questions, samples) + _size_notes(questions, pools)
    return Imported(questions, [SourceLLM(llm, pools)], notes)


@dataclass(frozen=True, slots=True)
class _Samples:
    """The texts of a question, and the answers that were extracted: as many, or fewer where the
    authors left some out.
    """

    texts: list[str]
    answers: list[str | None]

    @property
    def paired(self) -> bool:
        """Whether it is known which answer each text has."""
        return not self.answers or len(self.answers) == len(self.texts)


def _question(entry: Any, name: str, where: str) -> SourceQuestion:
    text = member(entry, "question", str, where)
    if "answer" not in entry:
        member(entry, "answer", str, where)
    return SourceQuestion(name, text, _gold(entry["answer"], where))


def _gold(answer: Any, where: str) -> str | None:
    """Return the gold answer; from an object {option: 0 or 1}, the option marked 1."""
    if not isinstance(answer, dict):
        return gold_text(answer, where)
    right: list[str] = [
        option for option, mark in answer.items() if mark == 1 and not isinstance(mark, bool)
    ]
    if len(right) != 1:
        raise SourceError(
            f"The gold answer of {where} is an object {{option: 0 or 1}} with {len(right)} options"
            " marked 1; it should be one."
        )
    return right[0]


def _samples(entry: Any, where: str) -> _Samples:
    generated, results = (
        member(entry, "generated", list, where),
        member(entry, "results", list, where),
    )
    if len(generated) < len(results):
        raise SourceError(
            f"{sentence_start(where)} has {len(generated)} texts in 'generated' and {len(results)}"
            " answers in 'results'; there should be at most one answer for each text."
        )
    return _Samples(strings(generated, where), answer_texts(results, where))


def _pool(samples: _Samples) -> SourcePool:
    if not samples.paired:
        return SourcePool([], [])
    return SourcePool(samples.texts, samples.answers or [None] * len(samples.texts))


def _stored_twice(samples: list[_Samples]) -> bool:
    """Return whether on every question the second half of the samples repeats the first, and
    sampling was not greedy.
    """
    return all(map(_halves_agree, samples)) and any(len(set(each.texts)) > 1 for each in samples)


def _halves_agree(samples: _Samples) -> bool:
    first = _first_half(samples)
    return samples.texts == first.texts * 2 and samples.answers == first.answers * 2


def _first_half(samples: _Samples) -> _Samples:
    return _Samples(
        samples.texts[: len(samples.texts) // 2], samples.answers[: len(samples.answers) // 2]
    )


def _gold_notes(entries: list[Any]) -> list[str]:
    objects = sum(isinstance(entry["answer"], dict) for entry in entries)
    return counted_notes(
        (
            "Gold answers that are an object {option: 0 or 1}, whose option marked 1 was taken",
            objects,
        )
    )


def _answer_notes(entries: Iterable[Any]) -> list[str]:
    """Say where texts stand among numbers: answers that their authors could not read as a
    number.
    """
    kinds = [type(answer) for entry in entries for answer in entry["results"]]
    texts, numbers = kinds.count(str), kinds.count(int) + kinds.count(float)
    if not (texts and numbers):
        return []
    return [
        (
            f"{texts} of {len(kinds)} stored answers are text among numbers; they were kept as they"
            " are."
        )
    ]


def _pairing_notes(questions: list[SourceQuestion], samples: list[_Samples]) -> list[str]:
    """Say where there are fewer results than texts."""
    failed = [
        q for q, each in zip(questions, samples, strict=True) if each.texts and not each.answers
    ]
    unpaired = [q for q, each in zip(questions, samples, strict=True) if not each.paired]
    notes = []
    if failed:
        notes.append(
            f"{_questions_note('with texts and no result', failed, questions)} Their texts were"
            " imported without answers."
        )
    if unpaired:
        notes.append(
            f"{_questions_note('with fewer results than texts', unpaired, questions)} The source"
            " does not say which text each result belongs to, so their samples were not imported:"
            " their pools are empty. On the other questions no program failed, or every one, so"
            " results on them are not results on the whole dataset."
        )
    return notes


def _questions_note(what: str, part: list[SourceQuestion], questions: list[SourceQuestion]) -> str:
    ids = ", ".join(question.id for question in part[:5])
    return (
        f"Questions {what}: {len(part):,} of {len(questions):,}"
        f" ({ids}{', ...' if len(part) > 5 else ''})."
    )


def _size_notes(questions: list[SourceQuestion], pools: list[SourcePool]) -> list[str]:
    empty = [question for question, pool in zip(questions, pools, strict=True) if not pool.texts]
    return size_note(pools) + (
        [_questions_note("without samples", empty, questions)] if empty else []
    )

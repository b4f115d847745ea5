"""Recordings of ModelSwitch (2025, https://arxiv.org/abs/2504.00762).

A JSON array, one object per question in shuffled order: `no` (row of the upstream dataset, from 0),
`question`, `solution` (gold), and the samples. Files of one closed model name them `step_sampling`
(texts) and `intermediate_results` (the answers its authors extracted; `ans_list` where they left
that out), and do not name the model. Files of open models hold `<model>_Sampling` and
`<model>_ans_list` for each model. Question ids are `<dataset>/<no>` and the questions are put in
the order of `no`, so that files of one dataset agree; where a file has no `no`, the ids count its
rows.

Verbatim answers are the authors', with their "" and "Error" read as no answer; they compare numbers
without commas, so `--answer-kind number` is closer to their verdicts than verbatim ("57.00" is 57).
Where a file keeps no texts, each answer stands for its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feval.errors import SourceError
from feval.importers.questions import without_duplicates
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import answer_texts, gold_text, member, refuse, sentence_start, strings
from feval.importers.source import (
    Imported,
    ImportRequest,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
    llm_notes,
)
from feval.recording.content import LLMInfo

_NO_ANSWER = frozenset({"", "Error"})
_TEXTS, _ANSWERS = "_Sampling", "_ans_list"


@dataclass(frozen=True, slots=True)
class _Members:
    """Where the samples of one model stand: the model's name, empty where the file does not say,
    and the members to look at.
    """

    llm: str
    texts: str
    answers: tuple[str, ...]


_CLOSED = _Members("", "step_sampling", ("intermediate_results", "ans_list"))


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one JSON file. The request names the LLM of a file that names none, or chooses among the
    file's LLMs.
    """
    reader = Reader()
    entries = reader.entries(read_bytes(source), source.name)
    numbered, notes = _numbered(entries, source.name)
    members = _members(entries)
    chosen = _chosen(request, members, source.name)
    questions = [
        _question(entries[row], request.question_id(number), f"entry {row} of {source.name}")
        for number, row in numbered
    ]
    llms, notes = [], [*notes, *llm_notes(list(members), chosen)]
    for name, info in chosen:
        pools = [
            _pool(entries[row], members[name], f"entry {row} of {source.name}")
            for _, row in numbered
        ]
        llms.append(SourceLLM(info, pools))
        notes += _pool_notes(info.name, pools, _without_texts(entries, members[name]))
    return Imported(
        without_duplicates(questions, source.name),
        llms,
        notes + reader.notes(),
        llm_count=len(llms),
    )


def _numbered(entries: Sequence[Any], name: str) -> tuple[list[tuple[int, int]], list[str]]:
    """Number and row of each entry, in the order of the numbers, and what is to be said of it."""
    if not any(isinstance(entry, dict) and "no" in entry for entry in entries):
        note = (
            "The source does not number its questions ('no'); their ids count its rows, which files"
            " may have in any order."
        )
        return [(row, row) for row in range(len(entries))], [note]
    numbered = sorted((_number(entry, row, name), row) for row, entry in enumerate(entries))
    if [row for _, row in numbered] == list(range(len(entries))):
        return numbered, []
    return numbered, [
        "The source is in shuffled order; its questions were put in the order of their numbers."
    ]


def _number(entry: Any, row: int, name: str) -> int:
    number = member(entry, "no", int, f"entry {row} of {name}")
    if number < 0:
        refuse(f"'no' of entry {row} of {name}", "0 or more", number)
    return number


def _members(entries: Sequence[Any]) -> dict[str, _Members]:
    """Return the members with samples by model; one model without a name where no member names
    one.
    """
    names = dict.fromkeys(name for entry in entries if isinstance(entry, dict) for name in entry)
    models = [
        name.removesuffix(_ANSWERS)
        for name in names
        if name.endswith(_ANSWERS) and name != _ANSWERS
    ]
    return {model: _Members(model, model + _TEXTS, (model + _ANSWERS,)) for model in models} or {
        "": _CLOSED
    }


def _chosen(
    request: ImportRequest, members: dict[str, _Members], name: str
) -> list[tuple[str, LLMInfo]]:
    if list(members) == [""]:
        return [("", request.the_llm(name))]
    return request.chosen_llms(name, [LLMInfo(model) for model in members])


def _question(entry: Any, name: str, where: str) -> SourceQuestion:
    text = member(entry, "question", str, where)
    if "solution" not in entry:
        member(entry, "solution", str, where)
    return SourceQuestion(name, text, gold_text(entry["solution"], where))


def _pool(entry: dict[str, Any], members: _Members, where: str) -> SourcePool:
    """Return the samples of one model; none where the file names several and this question lacks
    it.
    """
    name = next((name for name in members.answers if name in entry), None)
    if name is None and members.llm and members.texts not in entry:
        return SourcePool([], [])
    if name is None:
        member(entry, members.answers[0], list, where)
    results = member(entry, name or "", list, where)
    answers = [None if answer in _NO_ANSWER else answer for answer in answer_texts(results, where)]
    if members.texts not in entry:
        return SourcePool([answer or "" for answer in answers], answers)
    texts = member(entry, members.texts, list, where)
    if len(texts) != len(results):
        raise SourceError(
            f"{sentence_start(where)} has {len(texts)} texts in {members.texts!r} and"
            f" {len(results)} answers in {name!r}; there should be one answer for each text."
        )
    return SourcePool(strings(texts, where), answers)


def _without_texts(entries: Sequence[dict[str, Any]], members: _Members) -> int:
    return sum(
        members.texts not in entry and any(name in entry for name in members.answers)
        for entry in entries
    )


def _pool_notes(llm: str, pools: Sequence[SourcePool], without_texts: int) -> list[str]:
    no_answer = sum(answer is None for pool in pools for answer in pool.answers or ())
    stand_in = "each answer stands for its text, so token counts and costs of outputs are too low"
    return counted_notes(
        (
            f"Stored answers of {llm} that are empty or 'Error', and were read as no answer",
            no_answer,
        ),
        (f"Questions with answers of {llm} and no texts ({stand_in})", without_texts),
        (f"Questions without samples of {llm}", sum(not pool.texts for pool in pools)),
    )

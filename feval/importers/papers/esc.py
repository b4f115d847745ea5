"""Recordings of Early-Stopping Self-Consistency (ICLR 2024, https://arxiv.org/abs/2401.10480),
last-letters task.

JSON Lines, one question per line: `question`, `answer` (gold), `generated_answer` (texts). No
answers are stored. Verbatim answers follow the authors' rule: the text after the last "the answer
is", in lower case, without whatever is no letter a-z; a text without that phrase is used whole, and
an empty answer votes like any other. Golds are compared as stored, not in this form.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

from feval.importers.questions import without_duplicates
from feval.importers.reading import Reader, read_lines
from feval.importers.shapes import member, strings
from feval.importers.source import (
    Imported,
    ImportRequest,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
)

_NO_LETTER = re.compile("[^a-z]+")
_PHRASE = "the answer is"


def upstream_answer(text: str) -> str:
    """Return the answer that the authors' rule reads from a text; "" where no letter is left."""
    return _NO_LETTER.sub("", text.lower().rpartition(_PHRASE)[2])


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one JSON Lines file. The request names the LLM."""
    llm = request.the_llm(source.name)
    reader = Reader()
    questions, pools = [], []
    with closing(read_lines(source)) as lines:
        for row, (number, line) in enumerate(reader.json_lines(lines, source.name)):
            where = f"line {number} of {source.name}"
            questions.append(_question(line, request.question_id(row), where))
            pools.append(SourcePool(strings(member(line, "generated_answer", list, where), where)))
    return Imported(
        without_duplicates(questions, source.name),
        [SourceLLM(llm, pools)],
        _phrase_notes(pools) + reader.notes(),
    )


def _question(line: Any, name: str, where: str) -> SourceQuestion:
    text = member(line, "question", str, where)
    return SourceQuestion(name, text, member(line, "answer", str, where))


def _phrase_notes(pools: list[SourcePool]) -> list[str]:
    missing = sum(_PHRASE not in (text or "").lower() for pool in pools for text in pool.texts)
    return counted_notes(
        (
            (
                f"Texts without the phrase {_PHRASE!r}, which the authors' rule takes whole as the"
                " answer"
            ),
            missing,
        )
    )

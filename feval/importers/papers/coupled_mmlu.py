"""Recordings of Coupled Token Generation (Benz et al., 2025, https://arxiv.org/abs/2502.01754) on
MMLU.

CSV with one column named 0 whose quoted cells may span lines; record q*10+s is question q, sample
s. Texts, options and golds of the questions come from the questions file (`--questions`), whose
questions must be those of the recording, in its order.

Verbatim answers follow the authors' rule: the first space-separated word without . " , ) ; and
blanks around it; if that is none of A to D, its part before the first line break; if that is none
either, the letter E, which votes and is wrong.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from feval.errors import SourceError, UsageError
from feval.importers.reading import Reader, read_bytes
from feval.importers.source import Imported, ImportRequest, SourceLLM, SourcePool, SourceQuestion
from feval.recording.content import LLMInfo

SAMPLES = 10
"""Samples per question, fixed by the format."""
_LETTERS = frozenset("ABCD")
_PUNCTUATION = str.maketrans("", "", '.",);')
_SCHEME = "coupled-llm-evaluation"  # theirs: Gumbel noise from torch, seeded anew for every reply
_SEED = re.compile(r"_seed([0-9]{1,18})\b")


def upstream_answer(text: str) -> str:
    """Return the letter that the authors' rule reads from a reply; E where it reads none."""
    word = text.split(" ", 1)[0].translate(_PUNCTUATION).strip()
    if word in _LETTERS:
        return word
    first = word.split("\n", 1)[0]
    return first if first in _LETTERS else "E"


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one CSV file. The request names the LLM and has the questions; a seed in the file's name
    goes into the decoding.
    """
    llm = request.the_llm(source.name)
    if request.questions is None:
        raise UsageError(
            f"{source.name} has replies only; pass the questions or an answer key, --questions"
            " FILE."
        )
    reader = Reader()
    texts = _texts(reader.csv(read_bytes(source), source.name), source.name)
    questions = _questions(request, len(texts) // SAMPLES, source.name)
    pools = [SourcePool(texts[start : start + SAMPLES]) for start in range(0, len(texts), SAMPLES)]
    llm, seed_notes = _with_seed(llm, source.name)
    return Imported(
        questions, [SourceLLM(llm, pools)], [*seed_notes, *_text_notes(questions), *reader.notes()]
    )


def _texts(records: list[list[str]], name: str) -> list[str]:
    while records and not records[-1]:
        records.pop()
    if not records or records[0] != ["0"]:
        raise SourceError(
            f"{name} should be CSV with one column named 0; its first record is"
            f" {records[:1]!r:.80}."
        )
    for number, record in enumerate(records):
        if len(record) != 1:
            raise SourceError(
                f"Record {number} of {name} has {len(record)} cells; it should have one, the reply."
            )
    if len(records) == 1 or (len(records) - 1) % SAMPLES:
        raise SourceError(
            f"{name} has {len(records) - 1} replies; it should be {SAMPLES} for each question. Is"
            " the file whole?"
        )
    return [record[0] for record in records[1:]]


def _questions(request: ImportRequest, count: int, name: str) -> list[SourceQuestion]:
    """Return the questions of the file in the order of the recording, by id."""
    known = {question.id: question for question in request.questions or ()}
    ids = [request.question_id(row) for row in range(count)]
    if len(known) != count or any(key not in known for key in ids):
        example = next(iter(known), "none")
        raise SourceError(
            f"{name} has the replies to {count} questions, {ids[0]!r} to {ids[-1]!r}; the questions"
            f" file has {len(known)}, from {example!r}. The two must have the same questions."
        )
    return [known[key] for key in ids]


def _with_seed(llm: LLMInfo, name: str) -> tuple[LLMInfo, list[str]]:
    match = _SEED.search(name)
    if not match:
        return llm, []
    seed = int(match[1])
    note = (
        f"The replies were drawn with noise seed {seed}. LLMs recorded with the same seed share"
        " their noise, reply by reply: their answers are correlated beyond the question."
    )
    return replace(llm, decoding={**llm.decoding, "noise": {"scheme": _SCHEME, "seed": seed}}), [
        note
    ]


def _text_notes(questions: list[SourceQuestion]) -> list[str]:
    if all(question.text for question in questions):
        return []
    return [
        (
            "The questions file has no texts; requests and their tokens are not known, so nothing can"  # noqa: E501
            " be priced."
        )
    ]

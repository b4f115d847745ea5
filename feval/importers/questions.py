"""The questions file: texts, gold answers and options for sources that lack them (`--questions FILE`).

Two layouts are read: JSON Lines with `{"id", "question", "answer", "choices": [{"label", "text"}]}` per line, and an answer
key, CSV with the columns subject, index and answer in the order of the dataset, which has golds but no texts. Where no id
is written, a line's id is `<dataset>/<row>`, row from 0. The puzzles of Tree of Thoughts (24.csv: CSV with a column Puzzles) are
questions whose gold answer is 24.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from feval.answers import canonical_gold
from feval.errors import ConflictError, SourceError
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import gold_text, member, refuse
from feval.importers.source import SourceQuestion

__all__ = ["choices_of", "completed", "identifier", "read_questions", "without_duplicates"]

_ANSWER_KEY = ["subject", "index", "answer"]
_PUZZLES = "Puzzles"


def read_questions(path: Path, dataset: str, reader: Reader) -> list[SourceQuestion]:
    """Read a questions file.

    Args:
        path: JSON Lines or an answer key, as the module says; may be compressed by gzip.
        dataset: id of the dataset, for lines without an id.
        reader: remembers what was odd.

    Raises:
        SourceError: broken, empty, or not such a file.
        ConflictError: an id comes twice.
    """
    data = read_bytes(path)
    is_json = data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))
    found = _json_questions(data, path.name, dataset, reader) if is_json else _answer_key(data, path, dataset, reader)
    return without_duplicates(found, path.name)


def _json_questions(data: bytes, name: str, dataset: str, reader: Reader) -> list[SourceQuestion]:
    return [
        _json_question(line, f"{dataset}/{row}", f"line {number} of {name}")
        for row, (number, line) in enumerate(reader.json_lines(data, name))
    ]


def _json_question(line: Any, default_id: str, where: str) -> SourceQuestion:
    text = member(line, "question", str, where)
    name = identifier(line["id"], where) if "id" in line else default_id
    return SourceQuestion(name, text, gold_text(line.get("answer"), where), choices_of(line, where))


def _answer_key(data: bytes, path: Path, dataset: str, reader: Reader) -> list[SourceQuestion]:
    header, *rows = reader.csv(data, path.name)
    if _PUZZLES in header:
        return _puzzles(header.index(_PUZZLES), rows, dataset, path.name)
    if header != _ANSWER_KEY:
        raise SourceError(
            f"{path.name} is no questions file: it should be JSON Lines with a question per line, or CSV with the "
            f"columns {', '.join(_ANSWER_KEY)}; its first line is {','.join(header)!r:.80}."
        )
    for row, record in enumerate(rows):
        if len(record) != len(_ANSWER_KEY) or not record[2]:
            raise SourceError(
                f"Record {row + 1} of {path.name} should be subject, index and answer; found {record!r:.80}."
            )
    return [SourceQuestion(f"{dataset}/{row}", "", record[2]) for row, record in enumerate(rows)]


def _puzzles(column: int, rows: list[list[str]], dataset: str, name: str) -> list[SourceQuestion]:
    for row, record in enumerate(rows):
        if len(record) <= column or not all(number.isdecimal() for number in record[column].split()):
            raise SourceError(f"Record {row + 1} of {name} should have numbers under {_PUZZLES}; found {record!r:.80}.")
    return [SourceQuestion(f"{dataset}/{row}", record[column], "24") for row, record in enumerate(rows)]


def identifier(value: object, where: str) -> str:
    """A question's id: text, or a whole number.

    Raises:
        SourceError: something else.
    """
    if type(value) is str and value:
        return value
    if type(value) is int:
        return str(value)
    return refuse(f"The id of {where}", "text that is not empty, or a whole number", value)


def choices_of(line: dict[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    """The options of a question: `choices`, a list of `{"label", "text"}`; no options where there is none.

    Raises:
        SourceError: another shape, or a label that comes twice.
    """
    if line.get("choices") is None:
        return ()
    choices = tuple(
        (member(choice, "label", str, f"a choice of {where}"), member(choice, "text", str, f"a choice of {where}"))
        for choice in member(line, "choices", list, where)
    )
    if len({label for label, _ in choices}) != len(choices):
        raise SourceError(f"The choices of {where} have a label twice: {[label for label, _ in choices]!r:.80}.")
    return choices


def without_duplicates(questions: Iterable[SourceQuestion], name: str) -> list[SourceQuestion]:
    """The questions, unless an id comes twice.

    Raises:
        SourceError: there are no questions.
        ConflictError: an id comes twice.
    """
    seen: dict[str, SourceQuestion] = {}
    for question in questions:
        other = seen.setdefault(question.id, question)
        if other is not question:
            how = "two gold answers" if other.gold != question.gold else "two entries"
            raise ConflictError(
                f"{name} has {how} for the question id {question.id!r}: {other.gold!r:.60} and {question.gold!r:.60}. "
                "Remove one of them or give each its own id."
            )
    if not seen:
        raise SourceError(f"{name} holds no questions; there is nothing to import.")
    return list(seen.values())


def completed(questions: list[SourceQuestion], file: list[SourceQuestion] | None, kind: str) -> list[SourceQuestion]:
    """Add to the questions of a source what the questions file knows of the same ids.

    The source's text and gold stay where it has them: they are what was recorded.

    Raises:
        SourceError: the file lacks a question, or nobody has its text.
        ConflictError: the two contradict each other.
    """
    known = None if file is None else {question.id: question for question in file}
    return [_with_text(question if known is None else _joined(question, known, kind)) for question in questions]


def _joined(question: SourceQuestion, known: dict[str, SourceQuestion], kind: str) -> SourceQuestion:
    other = known.get(question.id)
    if other is None:
        example = next(iter(known), "none")
        raise SourceError(
            f"The questions file has no question {question.id!r} (its ids look like {example!r}); "
            "its ids must be those of the source."
        )
    choices = question.choices or other.choices
    _check_same(question, other, kind, choices)
    text = question.text if question.text is not None else other.text
    gold = question.gold if question.gold is not None else other.gold
    return replace(question, text=text, gold=gold, choices=choices)


def _check_same(
    question: SourceQuestion, other: SourceQuestion, kind: str, choices: tuple[tuple[str, str], ...]
) -> None:
    """The file's text must be part of the source's, or the other way round, and the golds must agree."""
    if question.text and other.text:
        mine, theirs = " ".join(question.text.split()), " ".join(other.text.split())
        if mine not in theirs and theirs not in mine:
            raise ConflictError(
                f"Question {question.id!r} is {mine!r:.90} in the source and {theirs!r:.90} in the questions file. "
                "Give the file that belongs to the source."
            )
    if question.gold is not None and other.gold is not None and question.gold != other.gold:
        keys = [canonical_gold(kind, gold, choices) for gold in (question.gold, other.gold)]
        if keys[0] != keys[1]:
            raise ConflictError(
                f"Question {question.id!r} has two gold answers: {question.gold!r:.60} in the source and "
                f"{other.gold!r:.60} in the questions file."
            )


def _with_text(question: SourceQuestion) -> SourceQuestion:
    if question.text is None:
        raise SourceError(
            f"Nobody gives the text of question {question.id!r}: the source has none. "
            "Pass a file with the questions, --questions FILE."
        )
    return question

"""feval's generic JSON Lines, for recordings of any other origin; `docs/import-rows.md` has
examples.

One line per question, with its CoTs in `samples` or the steps of its tree in `steps`; or one line
per CoT or step, with all. Verbatim answers are the stored ones.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Any

from feval.errors import ConflictError, SourceError
from feval.executors import results
from feval.importers.columns import (
    RowReader,
    json_object,
    names_of,
    question_names,
    refuse,
    sentence_start,
)
from feval.importers.reading import Reader, read_lines
from feval.importers.rows import Piece, Rows
from feval.importers.source import ImportRequest, Row, SourceContent

_SAMPLES = ("samples", "completions", "responses")
_COT_NAMES = names_of("cot").keys() | {*_SAMPLES}
_PIECE_BYTES = 6 << 20
_PIECES_AHEAD = 2  # for each worker, read and not yet put together


def read(source: Path, request: ImportRequest) -> SourceContent:
    """Read one JSON Lines file. The request names the LLM if the lines do not, or chooses among
    theirs.
    """
    if request.executor is not None:
        try:
            content, reader = _read_in_pieces(source, request, request.executor)
        except (ConflictError, SourceError):
            pass  # read by this process alone, to say what is wrong with the first line that is
        else:
            return content.imported(reader)
    content, reader = _Lines(source.name, request), Reader()
    with closing(read_lines(source)) as lines:
        for number, line in reader.json_lines(lines, source.name):
            content.add_line(line, f"line {number} of {source.name}")
    return content.imported(reader)


def _read_in_pieces(
    source: Path, request: ImportRequest, executor: Executor
) -> tuple[_Lines, Reader]:
    """Read a file by tasks; raise where anything is wrong with it, or it has blank lines before
    others.
    """
    content, reader = _Lines(source.name, request), Reader()
    tasks = ((source.name, request.dataset, first, data) for first, data in _pieces(source))
    for piece, reader_there in results(_read_piece, tasks, executor, ahead=_PIECES_AHEAD):
        content.add_lines_of(piece)
        reader.add(reader_there)
    return content, reader


def _pieces(source: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number of a line, from 1, and the bytes of the lines from there on."""
    piece: list[bytes] = []
    first, size = 1, 0
    with closing(read_lines(source)) as lines:
        for line in lines:
            piece.append(line)
            size += len(line)
            if size >= _PIECE_BYTES:
                yield first, b"".join(piece)
                first, size, piece = first + len(piece), 0, []
    yield first, b"".join(piece)


def _read_piece(source: str, dataset: str, first: int, data: bytes) -> tuple[_Piece, Reader]:
    """Read some lines of a file: a task."""
    content, reader = _Lines(source, ImportRequest(dataset), is_piece=True), Reader()
    content.count = first - 1
    for number, line in reader.json_lines(io.BytesIO(data), source, first):
        content.add_line(line, f"line {number} of {source}")
    return (content.piece(), content.by_question, first - 1, content.count), reader


_Piece = tuple[Piece, bool | None, int, int]
"""What some lines hold; their layout, and how many lines come before them and before the next."""


class _Lines(Rows):
    """Reads the lines of one file into rows; the first decides which of the two layouts the file
    has.
    """

    by_question: bool | None = None
    count = 0

    def __init__(self, source: str, request: ImportRequest, *, is_piece: bool = False) -> None:
        super().__init__(source, request, is_piece=is_piece)
        self._samples = RowReader(names_of("request", "llm", "cot"))
        self._shared = RowReader(question_names("question", "request", "llm"))

    def add_lines_of(self, piece: _Piece) -> None:
        """Add the lines behind those before; raise where they do not go together, without saying
        why.
        """
        rows, by_question, before, end = piece
        if by_question is None:  # there are blank ones alone
            return
        if before != self.count or self.by_question not in (None, by_question):
            raise SourceError("The lines have two layouts, or blank ones are among them.")
        self.add_piece(rows)
        self.by_question, self.count = by_question, end

    def add_line(self, line: Any, where: str) -> None:
        """Add one line."""
        json_object(line, sentence_start(where))
        samples = next((name for name in _SAMPLES if isinstance(line.get(name), list)), None)
        samples = "samples" if "samples" in line else samples
        if _is_tree(line):
            if samples is not None:
                raise SourceError(
                    f"{sentence_start(where)} has both {samples!r} and a tree in 'steps'; give CoTs"
                    " and trees lines of their own, with an LLM name each."
                )
            samples = "steps"
        by_question = samples is not None
        if self.by_question is None:
            self.by_question = by_question
        if by_question != self.by_question:
            kind, before = (
                ("a question", "CoTs") if by_question else ("a CoT", "questions with their samples")
            )
            raise SourceError(
                f"{sentence_start(where)} is {kind}, the lines before are {before}; a file has one"
                " layout."
            )
        if samples is None:
            self.add(line, where)
        else:
            self._add_question(line, samples, where)
        self.count += 1

    def _add_question(self, line: Row, samples: str, where: str) -> None:
        if isinstance(line.get("verdicts"), list):
            raise SourceError(
                f"{sentence_start(where)} has a list of verdicts; give each sample its own, as"
                " 'verdict', or read the file as a table: feval import table."
            )
        shared = {name: value for name, value in line.items() if name != samples}
        values = self.recognised(shared, self._shared, where)
        if values.get("id") is None:
            values["id"] = self._request.question_id(self.count)
        question = self.add_question(values, where)
        cots = line[samples]
        if not isinstance(cots, list):
            refuse(f"{samples!r} of {where}", "a list of samples", cots)
        llms: set[str | None] = set()
        for position, cot in enumerate(cots):
            here = f"sample {position} of {where}"
            row = self._sample(values, cot, here)
            self.add_row(question, row, here, line=None if row.get("llm") in llms else where)
            llms.add(row.get("llm"))
        if not cots:
            self.add_row(question, values, where, line=where, cot=False)

    def _sample(self, shared: Row, cot: Any, where: str) -> Row:
        """Return the values of a sample, an object or its text alone; its line's values apply to
        it.
        """
        if isinstance(cot, str):
            cot = {"text": cot}
        if not isinstance(cot, dict):
            refuse(sentence_start(where), "an object, or a text", cot)
        stated = self.recognised(cot, self._samples, where)
        if shared.keys().isdisjoint(stated):
            return shared | stated
        for column in stated.keys() & shared.keys():
            if stated[column] is not None and shared[column] not in (None, stated[column]):
                raise ConflictError(
                    f"{sentence_start(where)} has {column} {stated[column]!r:.60}, and its line has"
                    f" {shared[column]!r:.60} for all of its samples. Remove one of them."
                )
        return shared | {
            column: value
            for column, value in stated.items()
            if value is not None or column not in shared
        }


def _is_tree(line: Row) -> bool:
    """Whether a line has the steps of a tree, and not an unknown member of that name: an empty list
    is a tree of no steps.
    """
    steps = line.get("steps")
    if steps == []:
        return not _COT_NAMES & line.keys()
    return isinstance(steps, list) and isinstance(steps[0], dict) and "node" in steps[0]

"""feval's generic JSON Lines, for recordings of any other origin; `docs/importing.md` describes it with examples.

One line per question, with its CoTs in `samples`, or one line per CoT, with everything. Verbatim answers are the stored ones.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from feval.errors import ConflictError, SourceError
from feval.importers.columns import RowReader, names_of, question_names
from feval.importers.reading import Reader, read_lines
from feval.importers.rows import Rows
from feval.importers.shapes import refuse, sentence_start
from feval.importers.source import Imported, ImportRequest

_SAMPLES = ("samples", "completions", "responses")


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one JSON Lines file. The request names the LLM if the lines do not, or chooses among theirs."""
    reader = Reader()
    content = _Lines(source.name, request)
    with closing(read_lines(source)) as lines:
        for number, line in reader.json_lines(lines, source.name):
            content.add(line, f"line {number} of {source.name}")
    return content.rows.imported(reader)


class _Lines:
    """Reads the lines of one file into rows; the first decides which of the two layouts the file has."""

    def __init__(self, source: str, request: ImportRequest) -> None:
        self.rows = Rows(source, request)
        self._request = request
        self._by_question: bool | None = None
        self._count = 0
        self._cots = RowReader(names_of("question", "request", "llm", "cot"))
        self._samples = RowReader(names_of("request", "llm", "cot"))
        self._questions = RowReader(question_names("question", "request", "llm"))

    def add(self, line: Any, where: str) -> None:
        """Add one line."""
        if not isinstance(line, dict):
            refuse(sentence_start(where), "an object", line)
        samples = next((name for name in _SAMPLES if isinstance(line.get(name), list)), None)
        samples = "samples" if "samples" in line else samples
        by_question = samples is not None
        if self._by_question is None:
            self._by_question = by_question
        if by_question != self._by_question:
            kind, before = ("a question", "CoTs") if by_question else ("a CoT", "questions with their samples")
            raise SourceError(
                f"{sentence_start(where)} is {kind}, the lines before are {before}; a file has one layout."
            )
        if samples is None:
            self._add_cot(line, where)
        else:
            self._add_question(line, samples, where)
        self._count += 1

    def _add_question(self, line: dict[str, Any], samples: str, where: str) -> None:
        shared = {name: value for name, value in line.items() if name != samples}
        values = self.rows.recognised(shared, self._questions, where)
        name = values["id"] if values.get("id") is not None else self._request.question_id(self._count)
        question = self.rows.add_question(name, values, where)
        cots = line[samples]
        if not isinstance(cots, list):
            refuse(f"{samples!r} of {where}", "a list of samples", cots)
        llms: set[str | None] = set()
        for position, cot in enumerate(cots):
            here = f"sample {position} of {where}"
            row = self._sample(values, cot, here)
            self.rows.add_row(question, row, here, line=None if row.get("llm") in llms else where)
            llms.add(row.get("llm"))
        if not cots:
            self.rows.add_row(question, values, where, line=where, cot=False)

    def _sample(self, shared: dict[str, Any], cot: Any, where: str) -> dict[str, Any]:
        """Return the values of a sample, an object or its text alone; its line's values apply to it."""
        if isinstance(cot, str):
            cot = {"text": cot}
        if not isinstance(cot, dict):
            refuse(sentence_start(where), "an object, or a text", cot)
        stated = self.rows.recognised(cot, self._samples, where)
        if shared.keys().isdisjoint(stated):
            return shared | stated
        for column in stated.keys() & shared.keys():
            if stated[column] is not None and shared[column] not in (None, stated[column]):
                raise ConflictError(
                    f"{sentence_start(where)} has {column} {stated[column]!r:.60}, and its line has {shared[column]!r:.60} for "
                    "all of its samples. Remove one of them."
                )
        return shared | {column: value for column, value in stated.items() if value is not None or column not in shared}

    def _add_cot(self, line: dict[str, Any], where: str) -> None:
        values = self.rows.recognised(line, self._cots, where)
        if values.get("id") is None:
            raise SourceError(
                f"{sentence_start(where)} has neither 'samples' nor an 'id'; a CoT names its question, in 'id' or 'question_id'."
            )
        self.rows.add_row(self.rows.add_question(values["id"], values, where), values, where)

"""feval's generic JSON Lines, for recordings of any other origin; `docs/import-rows.md` has
examples.

One line per question, with its CoTs in `samples` or the steps of its tree in `steps`; or one line
per CoT or step, with all. Verbatim answers are the stored ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from feval.errors import ConflictError, SourceError
from feval.importers.columns import (
    RowReader,
    json_object,
    names_of,
    question_names,
    refuse,
    sentence_start,
)
from feval.importers.reading import Reader
from feval.importers.rows import Rows
from feval.importers.source import ImportRequest, Row, SourceContent

_SAMPLES = ("samples", "completions", "responses")
_COT_NAMES = names_of("cot").keys() | {*_SAMPLES}


def read(source: Path, request: ImportRequest) -> SourceContent:
    """Read one JSON Lines file. The request names the LLM if the lines do not, or chooses among
    theirs.
    """
    content, reader = _Lines(source.name, request), Reader()
    for where, line in reader.lines(source):
        content.add_line(line, where)
    return content.imported(reader)


class _Lines(Rows):
    """Reads the lines of one file into rows; the first decides which of the two layouts the file
    has.
    """

    by_question: bool | None = None
    count = 0

    def __init__(self, source: str, request: ImportRequest) -> None:
        super().__init__(source, request)
        self._samples = RowReader(names_of("request", "llm", "cot"))
        self._shared = RowReader(question_names("question", "request", "llm"))

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
        llms = set[str | None]()
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

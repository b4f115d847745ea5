"""Rows of a table become questions and pools, by dataset; rows may come in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import orjson

from feval.cards.cards import find_dataset_card
from feval.cards.tokens import count_words
from feval.errors import ConflictError, SourceError, UnknownNameError, UsageError
from feval.importers.columns import RowReader, examples
from feval.importers.questions import known_answer_kind, read_questions
from feval.importers.reading import Reader
from feval.importers.rows import Rows
from feval.importers.shapes import refuse, sentence_start
from feval.importers.sorted_rows import RUN_BYTES
from feval.importers.source import Imported, ImportRequest
from feval.importers.tables import exported
from feval.importers.tables.files import (
    Row,
    TableFile,
    TableRow,
    check_width,
    opened_table,
    table_files,
)
from feval.importers.tables.layouts import Layout
from feval.importers.tables.meanings import (
    GOLD_AS_ANSWER,
    NAMES,
    Meanings,
    Use,
    late_column,
    may_matter,
    meanings,
    parsed,
    require_known,
)

_ROWS_LOOKED_AT = 200
_COUNTS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Understood:
    """What a table was understood as, before its rows are read.

    Attributes:
        name: of the file that was looked at.
        uses: what its columns are read as.
        unread: the columns that are not read.
        ignored: those that were named as such.
        examples: column -> a value, where the first rows have one.
    """

    name: str
    uses: tuple[Use, ...]
    unread: tuple[str, ...]
    ignored: tuple[str, ...]
    examples: Mapping[str, Any]


def understood(source: Path, layout: Layout, questions: Path | None = None) -> Understood:
    """Return what the first file of a source is understood as, beside a questions file.

    Raises:
        SourceError: it is no table, or lacks a column that was named.
        UnknownNameError: feval has no such column.
    """
    require_known(layout)
    reader = Reader()
    known = [] if questions is None else read_questions(questions, "", reader)
    has_golds = any(question.gold is not None for question in known)
    with opened_table(table_files(source)[0], reader, layout.rows) as table:
        columns, example, _ = _looked_at(table)
        what = meanings(table, columns, example, layout, has_golds=has_golds)
    ignored = tuple(name for name in columns if name in layout.ignored)
    return Understood(table.name, what.uses, what.unread, ignored, example)


def read(source: Path, request: ImportRequest) -> Imported:
    """Read a table, or the several files of one. The request names dataset and LLM if no column
    does, or chooses among them.
    """
    if request.facts is not None:
        return exported.read(source, request, request.facts)
    reader, content = Reader(), _Content(source.name, request)
    for path in table_files(source):
        with opened_table(path, reader, content.layout.rows) as table:
            content.add(table)
    return content.imported(reader)


def _looked_at(table: TableFile) -> tuple[list[str], Row, list[TableRow]]:
    """Return the columns of a table, a value of each, and the first rows, which were taken from
    it.
    """
    first = list(islice(table.rows, _ROWS_LOOKED_AT))
    columns = table.columns or list(dict.fromkeys(name for _, row in first for name in row))
    check_width(table.name, len(columns))
    if not first:
        raise SourceError(f"{table.name} has no rows; there is nothing to import.")
    example = {}
    for name in columns:
        example[name] = next(
            (value for _, row in first if (value := row.get(name)) is not None), None
        )
    return columns, example, first


class _Content:
    """Collects the rows of a table by dataset."""

    def __init__(self, source: str, request: ImportRequest) -> None:
        self.layout = request.layout or Layout()
        require_known(self.layout)
        self._source, self._request = source, request
        self._has_golds = any(question.gold is not None for question in request.questions or ())
        self._meanings: Meanings | None = None
        self._known: set[str] = set()
        self._reader = RowReader(NAMES)
        self._datasets: dict[str, Rows] = {}
        self._unread: Row = {}
        self._rows = 0
        self._id_column = ""
        self._texts: set[bytes] = set()
        self._ids: set[bytes] = set()
        self._count = lru_cache(_COUNTS_KEPT)(count_words)

    def add(self, table: TableFile) -> None:
        """Add the rows of a file."""
        columns, example, first = _looked_at(table)
        what = self._understood(table, columns, example, table.name)
        self._check_columns(table.name, what, columns)
        known, unread = set(columns), list[str]()
        for where, row in chain(first, table.rows):
            if table.columns is None and not row.keys() <= known:
                new = [name for name in row if name not in known]
                columns += new
                check_width(table.name, len(columns))
                example |= {name: row[name] for name in new}
                known.update(new)
                if any(may_matter(name, self.layout) for name in new):
                    what = self._understood(table, columns, example, where)
                else:
                    unread += [name for name in new if name not in self.layout.ignored]
                    self._known.update(new)
            for place, sample in self._samples(row, where):
                self._add_row(what, sample, place)
        self._unread |= {
            name: example.get(name)
            for name in (*what.unread, *unread)
            if self._unread.get(name) is None
        }

    def _understood(
        self, table: TableFile, columns: list[str], example: Row, where: str
    ) -> Meanings:
        """Return what the columns mean; raise where one that comes late, or a later file, changes
        it.
        """
        what = meanings(table, columns, example, self.layout, has_golds=self._has_golds)
        for use in () if self._meanings is None else self._meanings.uses:
            if use not in what.uses and use.column.split(".")[0] in columns:
                raise late_column(
                    where, next((name for name in columns if name not in self._known), use.column)
                )
        self._meanings, self._known = what, set(columns)
        return what

    def _check_columns(self, name: str, what: Meanings, columns: Sequence[str]) -> None:
        """Raise where a table lacks what every table has."""
        if not {"id", "question"} & what.targets.keys():
            raise SourceError(
                f"{name} has no column with the question, nor one with its id; its columns are"
                f" {', '.join(columns):.300}. Name one: --map question=COLUMN or --map"
                " question_id=COLUMN."
            )
        if not {"text", "answer"} & what.targets.keys():
            raise SourceError(
                f"{name} has no column with the CoT, nor one with its answer; its columns are"
                f" {', '.join(columns):.300}. Name one: --map text=COLUMN or --map"
                " prediction=COLUMN."
            )
        if "dataset" not in what.targets and not self._request.dataset:
            raise UsageError(f"{name} does not name its dataset; give it an id, --dataset ID.")

    def _samples(self, row: Row, where: str) -> Iterator[tuple[str, Row]]:
        """Yield the rows of CoTs: the row itself, or one for each entry of its lists."""
        lists = {name: row[name] for name in self.layout.lists if row.get(name) is not None}
        if not lists:
            yield where, row
            return
        for name, value in lists.items():
            entries = lists[name] = parsed(value) if isinstance(value, str) else value
            if not isinstance(entries, list):
                refuse(f"{name!r} of {where}", "a list with an entry for each CoT", entries)
        if len({len(entries) for entries in lists.values()}) > 1:
            sizes = ", ".join(f"{len(entries)} in {name!r}" for name, entries in lists.items())
            raise SourceError(
                f"{sentence_start(where)} has lists of several lengths ({sizes}); each should have"
                " an entry per CoT."
            )
        for place, values in enumerate(zip(*lists.values(), strict=True)):
            yield f"sample {place} of {where}", row | dict(zip(lists, values, strict=True))

    def _add_row(self, what: Meanings, row: Row, where: str) -> None:
        values = what.read(row)
        rows = self._of(values.pop("dataset", self._request.dataset), where)
        try:
            values = rows.recognised(values, self._reader, where)
            name = self._name(what, values, where)
            if "question" not in what.targets and self._request.questions is None:
                values["question"] = ""
            if self._counts_requests(what) and (
                request := values.get("prompt") or values.get("question")
            ):
                values["prompt_tokens"] = self._count(
                    request if isinstance(request, str) else request.text
                )
            rows.add_row(rows.add_question(name, values, where), values, where)
        except (ConflictError, SourceError) as error:
            raise type(error)(_in_its_words(str(error), what, where)) from error
        self._rows += 1

    def _counts_requests(self, what: Meanings) -> bool:
        """Whether outputs have token counts and requests have none: without any, nothing could be
        priced.
        """
        known = what.targets.keys()
        return (
            "tokens" in known
            and bool(known & {"question", "prompt"})
            and not known & {"prompt_tokens", "usage"}
        )

    def _of(self, dataset: Any, where: str) -> Rows:
        """Return the rows of a dataset."""
        rows = self._datasets.get(dataset) if isinstance(dataset, str) else None
        if rows is None:
            if not isinstance(dataset, str) or not dataset.strip():
                refuse(f"The dataset of {where}", "text that is not empty", dataset)
            if not self._request.dataset:
                card = find_dataset_card(dataset)
                known_answer_kind(
                    dataset, self._request.answer_kind or (card.answer_kind if card else None)
                )
            rows = self._datasets[dataset] = Rows(self._source, self._request)
            for each in self._datasets.values():
                each.keep(RUN_BYTES / len(self._datasets))
        return rows

    def _name(self, what: Meanings, values: Row, where: str) -> str:
        """Return the id of the question: as the row has it, else made from its text and options."""
        text, name = values.get("question"), values.get("id")
        if "id" in what.targets:
            if name is None:
                raise SourceError(
                    f"{sentence_start(where)} has nothing in {what.targets['id'].column!r}, the"
                    " question's id."
                )
            if (
                what.targets["id"].column not in ("question_id", *self.layout.columns.values())
                and text
            ):
                self._id_column = what.targets["id"].column
                self._texts.add(_digest(text))
                self._ids.add(_digest(str(name)))
            return str(name)
        if not text:
            raise SourceError(
                f"{sentence_start(where)} has nothing in {what.targets['question'].column!r}, and"
                " no column has ids."
            )
        return f"q-{_digest(text, values.get('choices') or ()).hex()}"

    def imported(self, reader: Reader) -> Imported:
        """Return the whole table."""
        if len(self._texts) < len(self._ids) == self._rows:
            raise SourceError(
                f"The column {self._id_column!r} of {self._source} is another on each of the"
                f" {self._rows:,} rows, and there are {len(self._texts):,} different questions: it"
                f" names rows. Read it as such, --map sample={self._id_column}, or name the column"
                " with the question's id, --map question_id=COLUMN."
            )
        notes = self._notes()
        names = list(dict.fromkeys(llm for rows in self._datasets.values() for llm in rows.llms()))
        several = len(names) > 1
        for llm in self._request.llms if several else ():
            if llm not in names:
                raise UnknownNameError.of(
                    f"LLM in {self._source},", llm, [name for name in names if name]
                )
        parts: list[Imported] = []
        for dataset, rows in self._chosen(notes):
            wanted = tuple(llm for llm in self._request.llms if not several or llm in rows.llms())
            if wanted or not self._request.llms:
                part = replace(rows.imported(reader, wanted), dataset=dataset)
                part.notes[:0] = [] if parts else notes
                parts.append(part)
        return replace(parts[0], others=parts[1:])

    def _chosen(self, notes: list[str]) -> Iterator[tuple[str, Rows]]:
        """Yield the datasets to record: the one that was asked for, or all. A single one is
        renamed.
        """
        asked = self._request.dataset
        if not asked or asked in self._datasets:
            left_out = [name for name in self._datasets if asked and name != asked]
            notes += (
                [
                    (
                        f"The source also has the datasets {', '.join(left_out):.400}, which were left"  # noqa: E501
                        " out."
                    )
                ]
                if left_out
                else []
            )
            yield from self._datasets.items() if not asked else [(asked, self._datasets[asked])]
            return
        if len(self._datasets) > 1:
            raise UnknownNameError.of(
                f"dataset in {self._source},",
                asked,
                self._datasets,
                "Leave out --dataset to import all.",
            )
        [(name, rows)] = self._datasets.items()
        notes.append(
            f"The source calls the dataset {name!r}; it was recorded as {asked!r}, as requested."
        )
        yield asked, rows

    def _notes(self) -> list[str]:
        what = self._meanings
        if what is None:
            return []
        notes = [
            f"The column 'answer' was read as {use.about}."
            for use in what.uses
            if use.about == GOLD_AS_ANSWER
        ]
        if "id" not in what.targets:
            notes.append(
                "The table has no question ids; they were made from the texts of the questions."
            )
        if "question" not in what.targets and self._request.questions is None:
            notes.append(
                "The table has no texts of questions, so that requests are known by their token"
                " counts alone, if at all."
            )
        if self._counts_requests(what):
            notes.append(
                "The table has the tokens of outputs and not of requests; those of the"
                f" {'requests' if 'prompt' in what.targets else 'questions'} were counted by"
                " 'words'. For their true cost, give 'prompt_tokens'."
            )
        if self._unread:
            notes.append(f"Columns that were not read: {examples(self._unread)}.")
        return notes


def _digest(*values: Any) -> bytes:
    return hashlib.sha256(orjson.dumps(values)).digest()[:8]


def _in_its_words(message: str, what: Meanings, where: str) -> str:
    """Return a message of the catalogue with the names of this table's columns."""
    for use in what.uses:
        if use.name and use.name != use.column:
            message = message.replace(f"{use.name!r} of {where}", f"{use.column!r} of {where}")
    if "two gold answers" in message and (gold := what.targets.get("gold")) is not None:
        message += (
            f" {gold.column!r} was read as the gold: if it is the LLM's, --map"
            f" prediction={gold.column}."
        )
    return message

"""Scores of a table for the CoTs of a recording, joined on question id, LLM and sample number;
never on text.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from feval.arguments import checked
from feval.cards.reading import some
from feval.errors import ConflictError, SourceError, UsageError
from feval.executors import reports
from feval.importers.columns import (
    identifier,
    names_of,
    number,
    number_list,
    refuse,
    sentence_start,
    whole,
)
from feval.importers.files import TableRow, opened_table
from feval.importers.reading import Reader, fingerprint
from feval.importers.source import Row
from feval.importers.stored_rows import StoredRows
from feval.importers.tables import parsed
from feval.recording import Recording, ScorerInfo, ScoreRows, open_recording
from feval.recording.arrays import direction_question
from feval.recording.derived.rewriting import add_scorers
from feval.recording.reader import pairs_of
from feval.values import frozen

Pair = tuple[str, str]

_CATALOGUE = names_of("table", "question", "llm", "cot")
_LISTED = 20


@frozen
class ScoreImport:
    """A recording with scores of a table.

    Attributes:
        path: the new recording.
        scorers: names of the scorers that were added.
        rows: of the table that were read as scores.
        scored: scorer -> CoTs with a score or step scores.
        notes: sentences about CoTs without a score, and anything unusual; they are in the
            recording, too.
    """

    path: Path
    scorers: tuple[str, ...]
    rows: int
    scored: Mapping[str, int]
    notes: tuple[str, ...]


@checked
@reports("importing scores")
def import_scores(
    recording: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    scores: Sequence[str] = (),
    name: str | None = None,
    datasets: Sequence[str] | None = None,
    llms: Sequence[str] | None = None,
) -> ScoreImport:
    """Make a recording with scores that a table has for its CoTs.

    The table has a row for each CoT, named by the columns that `feval export` writes:
    `question_id`, `sample` (from 0, in the order of the recording; `node` for the steps of trees),
    `llm` and `dataset`. The last two may be left out where there is one. An empty cell, null or NaN
    (but in JSON) is no score; a list holds a score for each step.

    Args:
        recording: the folder; it stays as it is.
        source: CSV, JSON Lines or Parquet.
        out: the folder to make.
        scores: columns with scores, each as COLUMN or SCORER=COLUMN. A scorer may have a column of
            scores and one of step scores. Empty for the columns that exports call `score`,
            `step_scores`, `score.SCORER` and `step_scores.SCORER`.
        name: name of the scorer, where there is one.
        datasets: only rows of these; `None` for all.
        llms: only rows of these; `None` for all.

    Raises:
        SourceError: the table cannot be read, has no such columns, or a row is of a CoT that the
            recording lacks.
        ConflictError: two rows are of one CoT, or the recording has scores of that name.
        UsageError: a name for several scorers.
        RecordingError, StorageError: as for `add_scores`.
    """
    opened, source, reader = open_recording(recording), Path(source), Reader()
    origin = fingerprint(source)
    table = _ScoreTable(opened, source.name, scores, name, pairs_of(opened, datasets, llms))
    with opened_table(source, reader, choose=table.choose, escaped=True) as file:
        for row in file.rows:
            if not table.columns:
                table.choose(list(row.cells))
            table.add(row)
    if not table.rows:
        raise SourceError(
            f"{source.name} has no scores for CoTs of {opened.path}; there is nothing to add."
        )
    counts = dict.fromkeys(table.columns, 0)
    notes: list[str] = []

    def closing_notes() -> Iterator[str]:
        notes.extend([*reader.notes(), *table.notes(counts)])
        yield from notes

    added = [
        (
            ScorerInfo(scorer, "imported", {"format": "jsonl"}),  # as in tables, see `conversion`
            {pair: table.scores(pair, scorer, counts) for pair in table.pairs},
        )
        for scorer in table.columns
    ]
    operation = {"kind": "imported", "source": origin, "scorers": list(table.columns)}
    add_scorers(opened.path, out, added, operation=operation, notes=closing_notes())
    return ScoreImport(Path(out), tuple(table.columns), table.rows, counts, tuple(notes))


class _ScoreTable:
    """Reads rows of scores; they are kept by LLM and question, and checked against the
    recording.
    """

    def __init__(
        self,
        recording: Recording,
        source: str,
        scores: Sequence[str],
        name: str | None,
        pairs: Sequence[Pair],
    ) -> None:
        self._recording, self._source, self._wanted, self._name = recording, source, scores, name
        self._groups = {pair: number for number, pair in enumerate(pairs)}
        self._chosen = [list(dict.fromkeys(names)) for names in zip(*pairs, strict=True)]
        self._questions = {
            dataset: {each: row for row, each in enumerate(recording.votes(dataset).question_ids)}
            for dataset in self._chosen[0]
        }
        self._kept = StoredRows(None)
        self._key_columns: dict[str, str] = {}
        self._rows = Counter[Pair]()
        self._least = sys.maxsize
        self.columns: dict[str, list[str]] = {}

    @property
    def rows(self) -> int:
        """The rows that were read as scores."""
        return self._rows.total()

    @property
    def pairs(self) -> list[Pair]:
        """The pairs that have rows, in the order of the recording."""
        return [pair for pair in self._groups if self._rows[pair]]

    def choose(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that name CoTs and those with scores."""
        self._key_columns = _key_columns(columns)
        self.columns = _score_columns(columns, self._source, self._wanted, self._name)
        chosen = chain(self._key_columns.values(), *self.columns.values())
        return list(dict.fromkeys(chosen))

    def add(self, row: TableRow) -> None:
        """Keep the scores of a row, unless it is of a pair that was not asked for."""
        where, path = row.where, self._recording.path
        keys: Row = {key: row.cells.get(column) for key, column in self._key_columns.items()}
        known = zip(*self._recording.manifest.pairs, strict=True)
        named = []
        for key, chosen, names in zip(("dataset", "llm"), self._chosen, known, strict=True):
            if keys.get(key) is None and len(chosen) == 1:
                keys[key] = chosen[0]
            if _key(keys, key, where) not in names:
                raise SourceError(
                    f"{sentence_start(where)} is of the {_KEYS[key]} {keys[key]!r:.80}, and"
                    f" {path} has {some(dict.fromkeys(names), _LISTED)}. Correct or remove the row."
                )
            named.append(keys[key])
            if keys[key] not in chosen:
                return
        dataset, llm = pair = named[0], named[1]
        name = identifier(_key(keys, "id", where), f"The question id in {where}")
        question = self._questions[dataset].get(name)
        if pair not in self._groups or question is None:
            what = f"the question {name!r:.80}" if question is None else f"CoTs of {llm}"
            raise SourceError(
                f"{sentence_start(where)} has a score for {what}, which {path} does not hold on"
                f" {dataset}. Correct or remove the row; `feval export` writes the ids of a"
                " recording."
            )
        by_node = keys.get("sample") is None and "node" in keys
        number = _key(keys, "node" if by_node else "sample", where)
        sample = whole(int(number) if isinstance(number, str) and number.isdecimal() else number)
        if sample is None:
            refuse(f"The sample number in {where}", "a whole number from 0", number)
        size = int(self._recording.votes(dataset).llms[llm].sizes[question])
        if sample >= size:
            there = f"{size} CoT{'' if size == 1 else 's'}, numbered from 0" if size else "no CoTs"
            raise SourceError(
                f"{sentence_start(where)} has a score for sample {sample} of {name!r:.80} by {llm},"
                f" where {path} holds {there}. Correct or remove the row."
            )
        values = [self._values(row, columns) for columns in self.columns.values()]
        self._kept.add(self._groups[pair], question, (sample, where, values))
        self._rows[pair] += 1
        self._least = min(self._least, sample)

    def _values(
        self, row: TableRow, columns: Sequence[str]
    ) -> tuple[float | None, list[float] | None]:
        """Return score and step scores of a CoT by one scorer."""
        found: dict[bool, Any] = {}
        for column in columns:
            value = _value(row.cells.get(column), f"{column!r} of {row.where}")
            is_list = isinstance(value, list)
            if value is not None and is_list in found:
                raise SourceError(
                    f"{sentence_start(row.where)} has two scores by one scorer, in"
                    f" {' and '.join(map(repr, columns))}. Name a scorer for each, --score"
                    " SCORER=COLUMN (in Python: scores=['SCORER=COLUMN'])."
                )
            if value is not None:
                found[is_list] = value
        return found.get(False), found.get(True)

    def scores(self, pair: Pair, scorer: str, counts: dict[str, int]) -> Iterator[ScoreRows]:
        """Yield the scores of a pair by a scorer, in the order of the questions, and count the CoTs
        that have one.
        """
        ids, at = self._recording.votes(pair[0]).question_ids, list(self.columns).index(scorer)
        for question, rows in self._kept.questions(self._groups[pair]):
            rows.sort(key=lambda row: row[0])
            for (sample, where, _), (other, there, _) in pairwise(rows):
                if sample == other:
                    raise ConflictError(
                        f"{self._source} has two rows for sample {sample} of {ids[question]!r:.80}"
                        f" by {pair[1]} on {pair[0]}: {where.split(' of ')[0]} and"
                        f" {there.split(' of ')[0]}. Remove one of them."
                    )
            values = [each[at] for _, _, each in rows]
            counts[scorer] += sum(value != [None, None] for value in values)
            with_steps = any(steps is not None for _, steps in values)
            yield ScoreRows(
                ids[question],
                [sample for sample, *_ in rows],
                [score for score, _ in values],
                [steps for _, steps in values] if with_steps else None,
            )

    def notes(self, counts: Mapping[str, int]) -> Iterator[str]:
        """Yield sentences about CoTs without a score, and about scores of which nobody said whether
        lower is better.
        """
        cots = sum(self._recording.manifest.pairs[pair]["cots"] for pair in self._groups)
        yield from filter(None, map(direction_question, counts))
        for scorer, count in counts.items():
            if empty := self.rows - count:
                yield (
                    f"{empty:,} of {cots:,} CoTs have no score by {scorer}: their cells in"
                    f" {self._source} are empty or NaN."
                )
        if self._least == 1:
            yield (
                f"No row of {self._source} is of sample 0: samples count from 0; if these count"
                " from 1, scores are shifted."
            )
        if cots > self.rows:
            scorers = some(counts, _LISTED)
            yield (
                f"{cots - self.rows:,} of {cots:,} CoTs have no score by {scorers}: {self._source}"
                " has no rows for them."
            )


_KEYS = {
    "id": "question id",
    "llm": "LLM",
    "dataset": "dataset",
    "sample": "sample number",
    "node": "node",
}


def _key_columns(columns: Sequence[str]) -> dict[str, str]:
    """Return what names a CoT -> its column; of `id` and `question_id`, the latter."""
    found: dict[str, str] = {}
    for column in columns:
        key = _CATALOGUE[column].name if column in _CATALOGUE else ""
        if key in _KEYS and (key not in found or column == "question_id"):
            found[key] = column
    return found


def _key(keys: Row, key: str, where: str) -> Any:
    if keys.get(key) is None:
        raise SourceError(
            f"{sentence_start(where)} has no {_KEYS[key]}: scores are joined on question id, LLM"
            " and sample number, in columns named as `feval export` names them (question_id, llm,"
            " sample)."
        )
    return keys[key]


def _score_columns(
    names: Sequence[str], source: str, wanted: Sequence[str], name: str | None
) -> dict[str, list[str]]:
    """Return scorer -> its columns: those that the user names, or those that an export calls so."""
    columns: dict[str, list[str]] = {}
    for each in wanted:
        scorer, equals, column = (each, "=", each) if each in names else each.partition("=")
        if not equals or column not in names:
            raise SourceError(
                f"{source} has no column {(column or scorer)!r:.80} with scores; its columns are"
                f" {some(names, _LISTED)}. Write --score COLUMN or SCORER=COLUMN (in Python:"
                " scores=['COLUMN'] or ['SCORER=COLUMN'])."
            )
        columns.setdefault(scorer, []).append(column)
    for column in () if wanted else names:
        kind, dot, scorer = column.partition(".")
        if kind in {"score", "step_scores"} and (scorer or not dot):
            columns.setdefault(scorer or "score", []).append(column)
    if not columns:
        raise SourceError(
            f"{source} has no column 'score' or 'step_scores'; its columns are"
            f" {some(names, _LISTED)}. Name the one with scores, --score COLUMN (in Python:"
            " scores=['COLUMN'])."
        )
    if name is not None and len(columns) > 1:
        raise UsageError(
            f"--name {name} is the name of one scorer, and {source} has scores by"
            f" {some(columns, _LISTED)}. Name each, --score SCORER=COLUMN (in Python:"
            " scores=['SCORER=COLUMN'])."
        )
    return columns if name is None else {name: next(iter(columns.values()))}


def _value(cell: Any, where: str) -> float | list[float] | None:
    """Return a score, a list of step scores, or `None` for an empty cell or null."""
    cell = parsed(cell)
    if isinstance(cell, str):
        refuse(where, "a number, or a JSON list of numbers", cell)
    if cell is None or cell == []:
        return None
    if isinstance(cell, list):
        return number_list(cell, where)
    return float(cell) if isinstance(cell, bool) else number(cell, where)

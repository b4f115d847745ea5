"""Parquet of `feval export`: its metadata says what rows cannot, so that the same recording comes
back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from feval.cards.reading import sentence
from feval.errors import SourceError, UnknownNameError
from feval.importers.files import Row, opened_table
from feval.importers.reading import Reader, opened
from feval.importers.rows import Rows
from feval.importers.source import Imported, ImportRequest
from feval.recording.content import ScorerInfo

FACTS = b"feval"
"""Key of the metadata."""
FACTS_VERSION = 1

_MAGIC = b"PAR1"
_DERIVED = {"dataset", "correct"}


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ScorerFacts(_Facts):
    """Kind and parameters of a scorer."""

    kind: str
    parameters: dict[str, Any]


class DatasetFacts(_Facts):
    """What identifies a dataset, and its LLMs in order, each with its token counter."""

    answer_kind: str
    equality: str
    extractor: str
    system_prompt: str | None
    llms: dict[str, str]


class Facts(_Facts):
    """What the rows of an exported table cannot say.

    Attributes:
        version: of this model.
        datasets: by id.
        scorers: by name.
        without_rows: questions on which an LLM has no CoTs: the place among its questions, and
            columns with values.
    """

    version: int
    datasets: dict[str, DatasetFacts] = Field(min_length=1)
    scorers: dict[str, ScorerFacts]
    without_rows: list[tuple[int, dict[str, Any]]]

    def of(self, dataset: str) -> DatasetFacts:
        """Return the facts of a dataset, also where the only one gets another id.

        Raises:
            UnknownNameError: there are several, and none of that name.
        """
        if dataset not in self.datasets and len(self.datasets) > 1:
            raise UnknownNameError.of(
                "dataset in the exported table",
                dataset,
                self.datasets,
                "Leave out --dataset for all.",
            )
        return self.datasets.get(dataset) or next(iter(self.datasets.values()))


def facts_of(source: Path) -> Facts | None:
    """Return the facts in the metadata of a Parquet file; `None` where it is another file, or was
    not exported by feval.

    Raises:
        SourceError: they are not as an export writes them.
    """
    if not source.is_file():
        return None
    with opened(source) as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            return None
    try:
        data = (pq.read_metadata(source).metadata or {}).get(FACTS)
    except (pa.ArrowException, OSError, ValueError):
        return None  # whoever reads its rows says what is wrong
    if data is None:
        return None
    try:
        facts = Facts.model_validate_json(data)
    except ValidationError as error:
        raise SourceError(
            f"{source} says that feval exported it, and its metadata {sentence(error)}. Export it"
            " again."
        ) from error
    if facts.version > FACTS_VERSION:
        raise SourceError(
            f"{source} was exported by a later feval. Install that, or export it as JSON Lines."
        )
    return facts


def read(source: Path, request: ImportRequest, facts: Facts) -> Imported:
    """Read an exported table; its rows may have been changed, added to, left out or sorted."""
    reader, chosen = Reader(), _chosen(request.dataset, facts)
    parts = {dataset: _Part(source.name, request, facts, dataset) for dataset in chosen}
    with opened_table(source, reader) as table:
        for where, row in table.rows:
            part = parts.get(str(row.get("dataset") or next(iter(facts.datasets))))
            if part is not None:
                part.add(row, where)
    imported = [part.imported(reader, chosen[dataset]) for dataset, part in parts.items()]
    return replace(imported[0], others=imported[1:])


def _chosen(asked: str, facts: Facts) -> dict[str, str]:
    """Return the datasets to read, each with its id in the recording: the one that was asked for,
    or all; one is renamed.
    """
    if asked and asked not in facts.datasets:
        return {next(iter(facts.datasets)): asked}
    return {dataset: dataset for dataset in facts.datasets if asked in ("", dataset)}


@dataclass(slots=True)
class _Asked:
    """The questions that an LLM was asked so far: how many, the last one, and those to come that
    have no rows.
    """

    without_rows: deque[tuple[int, Row]] = field(default_factory=deque)
    count: int = 0
    last: Any = None


class _Part:
    """The rows of a dataset."""

    def __init__(self, source: str, request: ImportRequest, facts: Facts, dataset: str) -> None:
        self._facts, self._about = facts, facts.datasets[dataset]
        self._rows = Rows(source, request)
        self._where = f"the metadata of {source}"
        self._asked = {llm: _Asked() for llm in self._about.llms}
        for place, line in facts.without_rows:
            asked = self._asked.get(str(line.get("llm")))
            if line.get("dataset") == dataset and asked is not None:
                asked.without_rows.append((place, line))

    def add(self, row: Row, where: str) -> None:
        """Add a row, behind the questions before it that have none."""
        llm = str(row.get("llm"))
        if llm in self._asked:
            for other in self._asked:
                if other == llm:
                    break
                self._add_without_rows(self._asked[other])
            asked, question = self._asked[llm], row.get("question_id")
            if question != asked.last:
                self._add_without_rows(asked, asked.count)
                asked.last, asked.count = question, asked.count + 1
        self._rows.add(_line(row), where)

    def _add_without_rows(self, asked: _Asked, place: int | None = None) -> None:
        """Add the questions without rows that come next; all of them where no place is given."""
        while asked.without_rows and (place is None or asked.without_rows[0][0] <= place):
            _, line = asked.without_rows.popleft()
            self._rows.add(_line(line), self._where, cot=False)
            asked.count += 1
            place = None if place is None else place + 1

    def imported(self, reader: Reader, dataset: str) -> Imported:
        """Return the dataset."""
        for asked in self._asked.values():
            self._add_without_rows(asked)
        imported = self._rows.imported(reader)
        known = self._facts.scorers.items()
        scorers = {name: ScorerInfo(name, each.kind, each.parameters) for name, each in known}
        return replace(
            imported,
            dataset=dataset,
            system_prompt=self._about.system_prompt,
            scorers=scorers,
            llms=(
                # with the counter that its tokens are from
                replace(llm, counter=self._about.llms.get(llm.info.name) if llm.counted else None)
                for llm in imported.llms
            ),
        )


def _known(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if value is not None or name == "answer"}


def _line(row: Mapping[str, Any]) -> Row:
    """Return a row as `feval import jsonl` has it: without what is not known; an answer that is
    null is no answer.
    """
    line: Row = {}
    for name, value in _known(row).items():
        kind, dot, scorer = name.partition(".")
        if name in _DERIVED:
            continue
        if dot and kind in {"score", "step_scores"}:
            line.setdefault(kind, {})[scorer] = value
        elif name == "decoding" and isinstance(value, str):
            # the catalogue says what else it should be
            with suppress(orjson.JSONDecodeError):
                value = orjson.loads(value)
            line[name] = value
        elif name == "probes" and isinstance(value, list):
            line[name] = [_known(each) if isinstance(each, dict) else each for each in value]
        else:
            line[name] = value
    if line.get("ends") is False:
        line.pop("answer", None)
    return line

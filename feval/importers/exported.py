"""Parquet of `feval export`: its metadata says what rows cannot, so that the same recording comes
back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from feval.cards.reading import sentence
from feval.errors import SourceError, require_known
from feval.importers.files import TableRow
from feval.importers.reading import PARQUET, starts_with
from feval.importers.source import Row, SourceContent
from feval.recording import ScorerInfo

FACTS = b"feval"
"""Key of the metadata."""
FACTS_VERSION = 1

ALONE = "{alone}"
"""Column of rows that have no CoT."""


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ScorerFacts(_Facts):
    """Kind and parameters of a scorer."""

    kind: str
    parameters: Row


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
    without_rows: list[tuple[int, Row]]

    def of(self, dataset: str) -> DatasetFacts:
        """Return the facts of a dataset, also where the only one gets another id.

        Raises:
            UnknownNameError: there are several, and none of that name.
        """
        if len(self.datasets) > 1:
            require_known(
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
    if not source.is_file() or not starts_with(source, PARQUET):
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


def with_missing(rows: Iterable[TableRow], facts: Facts, source: str) -> Iterator[TableRow]:
    """Yield the rows of an exported table, and where an LLM has no CoTs on a question, a row
    `{ALONE: True, ...}` without any. Rows may have been changed, added to, left out or sorted.
    """
    pairs = [(name, llm) for name, about in facts.datasets.items() for llm in about.llms]
    order = {pair: number for number, pair in enumerate(pairs)}
    waiting, asked, last = deque(facts.without_rows), Counter[Any](), None
    for row in chain(rows, [None]):
        if row is not None:
            pair = str(row.cells.get("dataset")), str(row.cells.get("llm"))
            if last == (last := (pair, row.cells.get("question_id"))):
                yield row
                continue
            here = order.get(pair, -1)
        while waiting:
            place, line = waiting[0]
            other = str(line.get("dataset")), str(line.get("llm"))
            if row is not None and (order.get(other, -1), place) > (here, asked[pair]):
                break
            waiting.popleft()
            asked[other] += 1
            yield TableRow(f"the metadata of {source}", {**line, ALONE: True})
        if row is not None:
            asked[pair] += 1
            yield row


def as_exported(imported: SourceContent, facts: Facts) -> SourceContent:
    """Return a dataset with what its facts say, and LLMs with the counters of their tokens."""
    about = facts.of(imported.dataset)
    return replace(
        imported,
        system_prompt=about.system_prompt,
        scorers={
            name: ScorerInfo(name, each.kind, each.parameters)
            for name, each in facts.scorers.items()
        },
        llms=(
            replace(llm, counter=about.llms.get(llm.info.name) if llm.counted else llm.counter)
            for llm in imported.llms
        ),
    )

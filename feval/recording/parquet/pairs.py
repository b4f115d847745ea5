"""The Parquet files of one LLM on one dataset as they are written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from feval.cards.finish_reasons import FINISH_REASONS
from feval.errors import ConflictError, UsageError
from feval.recording.content import (
    CHANNELS,
    OPTIONAL_COLUMNS,
    PAIR_PARTS,
    PairTally,
    PoolRows,
    utc_time,
)
from feval.recording.layout.format import LeafHash
from feval.recording.leaves import channel_values, pool_lines
from feval.recording.parquet.part_files import PartFiles
from feval.recording.parquet.writing import pair_schema
from feval.recording.sealing.question_table import QuestionTable, row_behind

_MAX_TOKENS = 2**31 - 1


class PairFiles:
    """The Parquet files of one LLM on one dataset, with their leaves: three, and one for each
    channel that is used.

    `claim` registers the path of a file before it is written, and `only` names the parts to write
    where the others are taken from another recording.
    """

    def __init__(
        self,
        claim: Callable[[str], str],
        root: Path,
        llm: str,
        questions: QuestionTable,
        *,
        only: Collection[str] | None = None,
    ) -> None:
        self._claim, self._root, self._who = claim, root, f"{llm} on {questions.dataset}"
        self._pair, self._questions = (questions.dataset, llm), questions
        self._only = only
        self._files: dict[str, PartFiles] = {}
        self._leaves: dict[str, LeafHash] = {}
        self._row = -1
        self._is_tree: bool | None = None
        self._tally = PairTally(questions)

    def add(self, pool: PoolRows) -> None:
        """Add a pool; its question must be known and in order (`ConflictError`), its values
        storable (`UsageError`).
        """
        self._check_order(pool)
        self._check(pool)
        channels = channel_values(pool)
        lines = pool_lines(pool, channels)
        columns = _pool_columns(pool, self._questions.gold(self._row), channels)
        for part in lines if self._only is None else [part for part in lines if part in self._only]:
            self._open(part)
            self._add_line(part, lines[part], pool.question_id)
            self._files[part].add(pool.question_id, columns[part])
        self._tally.add(pool)

    def close(self) -> tuple[dict[str, dict[str, Any]], dict[str, str], dict[str, int]]:
        """Finish the files; return their records, their leaves, and the summary of the pools."""
        for part in PAIR_PARTS if self._only is None else set(PAIR_PARTS).intersection(self._only):
            self._open(part)
        files = {
            path: record for part in self._files.values() for path, record in part.close().items()
        }
        return (
            files,
            {part: leaf.hexdigest() for part, leaf in self._leaves.items()},
            self._tally.record(),
        )

    def abandon(self) -> None:
        """Close the files, whatever state they are in."""
        for files in self._files.values():
            files.abandon()

    def _open(self, part: str) -> None:
        if part not in self._files:
            self._files[part] = PartFiles(
                self._claim, self._root, (part, *self._pair), pair_schema(part)
            )
            self._leaves[part] = LeafHash()

    def _add_line(self, part: str, line: list[Any], question: str) -> None:
        try:
            self._leaves[part].add(line)
        except UsageError as error:
            raise UsageError(f"{self._who}, question {question!r}, {part}: {error}") from error

    def _check_order(self, pool: PoolRows) -> None:
        dataset, llm = self._pair
        row = row_behind(self._questions.ids, pool.question_id, self._row)
        if row is None:
            raise ConflictError(
                f"{llm} has CoTs for {pool.question_id!r}, which is no question of {dataset}."
            )
        if row < 0:
            raise ConflictError(
                f"{llm}: the CoTs of {pool.question_id!r} come twice or out of order."
            )
        self._row = row

    def _check(self, pool: PoolRows) -> None:
        where = f"{self._who}, question {pool.question_id!r}"
        size = len(pool.answers)
        columns = [
            pool.texts,
            pool.raw_answers,
            pool.output_tokens,
            pool.finish_reasons,
            *pool.extra.values(),
        ]
        channels = (
            getattr(pool, field) for part in CHANNELS.values() for field, _ in part.values()
        )
        columns += [column for column in channels if column is not None]
        if any(len(column) != size for column in columns):
            raise UsageError(
                f"{where}: the columns have different lengths, {[size, *map(len, columns)]}."
            )
        if unknown := set(pool.extra) - set(OPTIONAL_COLUMNS):
            raise UsageError(
                f"{where}: unknown columns {sorted(unknown)}; known are {sorted(OPTIONAL_COLUMNS)}."
            )
        if any(not 0 <= tokens <= _MAX_TOKENS for tokens in pool.output_tokens):
            raise UsageError(
                f"{where}: output tokens should be 0 to {_MAX_TOKENS}, found"
                f" {list(pool.output_tokens)!r:.80}."
            )
        try:
            _optional_column(pool, "recorded_at")
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
        if pool.prompt_tokens is not None and not 0 <= pool.prompt_tokens <= _MAX_TOKENS:
            raise UsageError(
                f"{where}: prompt tokens should be 0 to {_MAX_TOKENS}, found {pool.prompt_tokens}."
            )
        if problem := pool.counts_problem():
            raise UsageError(
                f"{where}: {problem}. Output tokens count reasoning, too, and prompt tokens what"
                " came from a cache, by one counter: a text's words do not count hidden reasoning."
                " Give the counts of the provider, or leave these out."
            )
        if problem := pool.tree_problem():
            raise UsageError(f"{where}: {problem}.")
        if pool.answers and self._is_tree not in (None, pool.ends is not None):
            raise UsageError(
                f"{where}: steps of a tree, and whole CoTs on other questions; give each an LLM"
                " name of its own."
            )
        self._is_tree = pool.ends is not None if pool.answers else self._is_tree
        if not pool.marks_fit():
            raise UsageError(
                f"{where}: the marks of its thoughts do not fit its texts; split the raw texts"
                " again."
            )
        if odd := set(pool.finish_reasons).difference(FINISH_REASONS):
            raise UsageError(
                f"{where}: finish reason {min(odd)!r} is not one of {', '.join(FINISH_REASONS)}."
            )


def _pool_columns(
    pool: PoolRows, gold: str | None, channels: Mapping[str, Mapping[str, Sequence[Any]]]
) -> dict[str, Mapping[str, Sequence[Any]]]:
    """Return a pool's rows in each part that has any, by part and column, without their keys."""
    return {
        "requests": {"prompt": [pool.prompt], "prompt_tokens": [pool.prompt_tokens]},
        "samples": {
            "answer_raw": pool.raw_answers,
            "answer": pool.answers,
            "correct": [None if gold is None else answer == gold for answer in pool.answers],
            "output_tokens": pool.output_tokens,
            "finish_reason": pool.finish_reasons,
            **{name: _optional_column(pool, name) for name in OPTIONAL_COLUMNS},
        },
        "texts": {"text": pool.texts},
        **channels,
    }


def _optional_column(pool: PoolRows, name: str) -> Sequence[Any]:
    values = pool.extra.get(name) or [None] * len(pool.answers)
    if OPTIONAL_COLUMNS[name] != "utc":
        return values
    return [None if value is None else utc_time(value) for value in values]

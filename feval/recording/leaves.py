"""The logical content of a recording, line by line, as the leaves of its hash are made from it."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.answers.parties import Verdict
from feval.errors import ConflictError, UsageError
from feval.recording.content import (
    CHANNELS,
    EQUALITY_COLUMNS,
    DatasetInfo,
    LLMInfo,
    PoolRows,
    Question,
    ScorerInfo,
    ScoreRows,
    utc_text,
    utc_time,
)
from feval.recording.layout.format import LeafHash
from feval.recording.sealing.question_table import row_behind

_MAX_TOKENS = 2**31 - 1
_SCORE_COLUMNS = ("step_scores", "verdict", "prompt_tokens", "output_tokens")


Verdicts = Mapping[str, Sequence[Verdict]]
"""Question id -> its verdicts, in the order in which they were reached; questions without any are left out."""


def dataset_leaf(info: DatasetInfo) -> str:
    """Return the leaf of what identifies a dataset: id, answer kind, extractor, system prompt."""
    leaf = LeafHash()
    leaf.add([info.id, info.answer_kind, info.extractor, info.system_prompt])
    return leaf.hexdigest()


def llm_leaf(llm: LLMInfo, counter: str) -> str:
    """Return the leaf of what identifies an LLM on a dataset: name, decoding, token counter."""
    leaf = LeafHash()
    leaf.add([llm.name, llm.temperature, llm.max_tokens, dict(llm.decoding), counter])
    return leaf.hexdigest()


def question_line(question: Question) -> list[Any]:
    """Return a question's line in the leaf `questions`."""
    return [question.id, question.text, question.answer, question.answer_key, [list(c) for c in question.choices]]


def pool_lines(pool: PoolRows, channels: Mapping[str, dict[str, list[Any]]] | None = None) -> dict[str, list[Any]]:
    """Return a pool's line in each of its leaves, by part; columns, channels and marks without any value are left out."""
    channels = channel_values(pool) if channels is None else channels
    extra = {name: list(column) for name, column in pool.extra.items() if any(v is not None for v in column)}
    if "recorded_at" in extra:
        extra["recorded_at"] = [None if t is None else utc_text(utc_time(t)) for t in extra["recorded_at"]]
    samples = [pool.question_id, list(pool.raw_answers), list(pool.answers), list(pool.output_tokens)]
    return {
        "requests": [pool.question_id, pool.prompt, pool.prompt_tokens],
        "samples": [*samples, list(pool.finish_reasons), extra],
        "texts": [pool.question_id, list(pool.texts)],
        **{part: channel_line(pool.question_id, columns) for part, columns in channels.items()},
    }


def channel_line(question: str, columns: Mapping[str, list[Any]]) -> list[Any]:
    """Return a question's line in the leaf of a channel; marks without any value are left out."""
    return [question, *(values for name, values in columns.items() if name != "marks" or any(values))]


def channel_values(pool: PoolRows) -> dict[str, dict[str, list[Any]]]:
    """Return part -> column -> values of the channels that have any value on this question."""
    channels = {}
    for part, columns in CHANNELS.items():
        values = {column: getattr(pool, field) for column, (field, _) in columns.items()}
        if any(value is not None for column in values.values() for value in column or ()):
            size = len(pool.answers)
            channels[part] = {c: [None] * size if v is None else _stored(v, columns[c][1]) for c, v in values.items()}
    return channels


def _stored(values: Sequence[Any], kind: str) -> list[Any]:
    """Return the values as reading gives them back: the hash must not depend on digits that are not stored."""
    if kind == "list<float32>":
        return [None if value is None else array("f", value).tolist() for value in values]
    if kind == "list<mark>":
        return [[asdict(mark) for mark in value] if value else None for value in values]
    return list(values)


class VerdictTally:
    """Makes the leaf of a dataset's verdicts, the equality's name and one line per question that has any; and counts them."""

    def __init__(self, name: str) -> None:
        self._outcomes: Counter[bool | None] = Counter()
        self._leaf = LeafHash()
        self._leaf.add([name])

    def add(self, question: str, rows: Sequence[Verdict]) -> dict[str, list[Any]]:
        """Add the verdicts of a question; return column -> values."""
        columns = {column: [getattr(verdict, column) for verdict in rows] for column in EQUALITY_COLUMNS}
        self._leaf.add([question, *columns.values()])
        self._outcomes.update(columns["equal"])
        return columns

    def leaf(self) -> str:
        """The leaf of what was added."""
        return self._leaf.hexdigest()

    def counts(self, not_asked: int) -> dict[str, int]:
        """Return how many pairs are equal, different, undecided, and were not compared."""
        equal, different, undecided = (self._outcomes[outcome] for outcome in (True, False, None))
        return {"equal": equal, "different": different, "undecided": undecided, "not_asked": not_asked}


def verdict_tally(name: str, verdicts: Iterable[tuple[str, Sequence[Verdict]]]) -> VerdictTally:
    """Return the tally of all verdicts of a dataset."""
    tally = VerdictTally(name)
    for question, rows in verdicts:
        tally.add(question, rows)
    return tally


class ScoreTally:
    """Checks one scorer's rows for one LLM on one dataset; makes their leaf and their record in the manifest.

    `who` names scorer, LLM and dataset in messages; `questions` are the ids in their order, `sizes` the recorded CoTs of each.
    """

    def __init__(self, scorer: ScorerInfo, who: str, questions: Sequence[str], sizes: npt.NDArray[np.uint32]) -> None:
        self._scorer, self._who = scorer, who
        self._questions, self._sizes = questions, sizes
        self._last = -1
        self._counts = dict.fromkeys(("cots", "with_score", "with_steps", "prompt_tokens", "output_tokens"), 0)
        self._leaf = LeafHash()
        self._add_line([scorer.name, scorer.kind, dict(scorer.parameters)])

    def add(self, rows: ScoreRows) -> dict[str, Sequence[Any]]:
        """Check and count the rows of one question; return column -> values as they are to be stored."""
        self._check_keys(rows)
        columns = self._columns(rows)
        optional = {name: columns[name] for name in _SCORE_COLUMNS if any(value is not None for value in columns[name])}
        if rows.sample_indices:  # a question without rows has no line, as when the file is read
            self._add_line([rows.question_id, columns["sample_index"], columns["score"], optional])
        self._counts["cots"] += len(rows.sample_indices)
        self._counts["with_score"] += sum(score is not None for score in columns["score"])
        self._counts["with_steps"] += sum(steps is not None for steps in columns["step_scores"])
        for name in ("prompt_tokens", "output_tokens"):
            self._counts[name] += sum(tokens or 0 for tokens in columns[name])
        return columns

    def leaf(self) -> str:
        """The leaf of what was added."""
        return self._leaf.hexdigest()

    def record(self, dataset: str, llm: str) -> dict[str, Any]:
        """The record in the manifest, a `ScoresRecord`."""
        return {"dataset": dataset, "llm": llm, "scorer": self._scorer.name, **self._counts}

    def _check_keys(self, rows: ScoreRows) -> None:
        row = row_behind(self._questions, rows.question_id, self._last)
        if row is None:
            raise ConflictError(f"{self._who}: {rows.question_id!r} is no recorded question.")
        if row < 0:
            raise ConflictError(f"{self._who}: the scores of {rows.question_id!r} come twice or out of order.")
        self._last = row
        indices, size = list(rows.sample_indices), int(self._sizes[row])
        if any(not 0 <= index < size for index in indices):
            raise ConflictError(
                f"{self._who}: {rows.question_id!r} has {size} CoTs, and CoT {max(indices, key=abs)} was scored."
            )
        if any(one >= other for one, other in pairwise(indices)):
            raise ConflictError(f"{self._who}: CoTs of {rows.question_id!r} come twice or out of order.")

    def _columns(self, rows: ScoreRows) -> dict[str, Sequence[Any]]:
        size = len(rows.sample_indices)
        optional = {
            "step_scores": rows.step_scores,
            "verdict": rows.verdicts,
            "prompt_tokens": rows.prompt_tokens,
            "output_tokens": rows.output_tokens,
        }
        columns: dict[str, Sequence[Any]] = {"sample_index": list(rows.sample_indices), "score": rows.scores}
        columns |= {name: [None] * size if column is None else list(column) for name, column in optional.items()}
        if any(len(column) != size for column in columns.values()):
            lengths = [len(column) for column in columns.values()]
            raise UsageError(f"{self._who}, {rows.question_id!r}: the columns have different lengths, {lengths}.")
        columns["score"] = [None if score is None else self._number(score, rows) for score in rows.scores]
        columns["step_scores"] = [
            [self._number(step, rows) for step in steps] if steps else None for steps in columns["step_scores"]
        ]
        for name in ("prompt_tokens", "output_tokens"):
            if any(tokens is not None and not 0 <= tokens <= _MAX_TOKENS for tokens in columns[name]):
                raise UsageError(f"{self._who}, {rows.question_id!r}: {name} should be 0 to {_MAX_TOKENS}.")
            columns[name] = [None if tokens is None else int(tokens) for tokens in columns[name]]
        return columns

    def _number(self, value: float, rows: ScoreRows) -> float:
        if isinstance(value, (bool, str)) or not math.isfinite(value):
            raise UsageError(
                f"{self._who}, {rows.question_id!r}: a score is a finite number or None; {value!r} was given."
            )
        return float(value)

    def _add_line(self, line: list[Any]) -> None:
        try:
            self._leaf.add(line)
        except TypeError as error:
            raise UsageError(
                f"{self._who}: a parameter or verdict cannot be stored ({error}); parameters are JSON values, text is valid "
                "Unicode."
            ) from error

"""The logical content of a recording, line by line, as the leaves of its hash are made from it."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from operator import index
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
    ProbeRows,
    Question,
    ScorerInfo,
    ScoreRows,
    utc_text,
    utc_time,
)
from feval.recording.layout.format import LeafHash, check_name
from feval.recording.sealing.question_table import QuestionTable, row_behind

_MAX_TOKENS = 2**31 - 1
_MAX_FLOAT = float(np.finfo(np.float32).max)
_PROBE_KEYS = ("sample_index", "offset", "answer_raw", "answer")
_SCORE_COLUMNS = ("step_scores", "verdict", "prompt_tokens", "output_tokens")


Verdicts = Mapping[str, Sequence[Verdict]]
"""Question id -> its verdicts, in the order in which they were reached; questions without any are
left out.
"""


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
    return [
        question.id,
        question.text,
        question.answer,
        question.answer_key,
        [list(c) for c in question.choices],
    ]


def described(
    questions: Iterable[Question], leaf: LeafHash, table: QuestionTable
) -> Iterator[Question]:
    """Check ids of questions; yield them as they are added to their leaf and their table."""
    for question in questions:
        check_name("question", question.id)
        leaf.add(question_line(question))
        table.add(question)
        yield question


def pool_lines(
    pool: PoolRows, channels: Mapping[str, dict[str, list[Any]]] | None = None
) -> dict[str, list[Any]]:
    """Return a pool's line in each of its leaves, by part; columns, channels and marks without any
    value are left out.
    """
    channels = channel_values(pool) if channels is None else channels
    extra = {
        name: list(column)
        for name, column in pool.extra.items()
        if any(v is not None for v in column)
    }
    if "recorded_at" in extra:
        extra["recorded_at"] = [
            None if t is None else utc_text(utc_time(t)) for t in extra["recorded_at"]
        ]
    samples = [
        pool.question_id,
        list(pool.raw_answers),
        list(pool.answers),
        list(pool.output_tokens),
    ]
    return {
        "requests": [pool.question_id, pool.prompt, pool.prompt_tokens],
        "samples": [*samples, list(pool.finish_reasons), extra],
        "texts": [pool.question_id, list(pool.texts)],
        **{part: channel_line(pool.question_id, columns) for part, columns in channels.items()},
    }


def channel_line(question: str, columns: Mapping[str, list[Any]]) -> list[Any]:
    """Return a question's line in the leaf of a channel; marks without any value are left out."""
    return [
        question,
        *(values for name, values in columns.items() if name != "marks" or any(values)),
    ]


def channel_values(pool: PoolRows) -> dict[str, dict[str, list[Any]]]:
    """Return part -> column -> values of the channels that have any value on this question."""
    channels = {}
    for part, columns in CHANNELS.items():
        values = {column: getattr(pool, field) for column, (field, _) in columns.items()}
        if any(value is not None for column in values.values() for value in column or ()):
            size = len(pool.answers)
            channels[part] = {
                c: [None] * size if v is None else _stored(v, columns[c][1])
                for c, v in values.items()
            }
    return channels


def _stored(values: Sequence[Any], kind: str) -> list[Any]:
    """Return the values as reading gives them back: the hash must not depend on digits that are not
    stored.
    """
    if kind == "list<float32>":
        return [None if value is None else array("f", value).tolist() for value in values]
    if kind == "list<mark>":
        return [[asdict(mark) for mark in value] if value else None for value in values]
    return list(values)


class VerdictTally:
    """Makes the leaf of a dataset's verdicts, the equality's name and one line per question that
    has any; and counts them.
    """

    def __init__(self, name: str) -> None:
        self._outcomes: Counter[bool | None] = Counter()
        self._leaf = LeafHash()
        self._leaf.add([name])

    def add(self, question: str, rows: Sequence[Verdict]) -> dict[str, list[Any]]:
        """Add the verdicts of a question; return column -> values."""
        columns = {
            column: [getattr(verdict, column) for verdict in rows] for column in EQUALITY_COLUMNS
        }
        self._leaf.add([question, *columns.values()])
        self._outcomes.update(columns["equal"])
        return columns

    def leaf(self) -> str:
        """The leaf of what was added."""
        return self._leaf.hexdigest()

    def counts(self, not_asked: int) -> dict[str, int]:
        """Return how many pairs are equal, different, undecided, and were not compared."""
        equal, different, undecided = (self._outcomes[outcome] for outcome in (True, False, None))
        return {
            "equal": equal,
            "different": different,
            "undecided": undecided,
            "not_asked": not_asked,
        }


def verdict_tally(name: str, verdicts: Iterable[tuple[str, Sequence[Verdict]]]) -> VerdictTally:
    """Return the tally of all verdicts of a dataset."""
    tally = VerdictTally(name)
    for question, rows in verdicts:
        tally.add(question, rows)
    return tally


class ScoreTally:
    """Checks one scorer's rows for one LLM on one dataset; makes their leaf and their record in the
    manifest.

    `who` names scorer, LLM and dataset in messages; `questions` are the ids in their order, `sizes`
    the recorded CoTs of each.
    """

    def __init__(
        self, scorer: ScorerInfo, who: str, questions: Sequence[str], sizes: npt.NDArray[np.uint32]
    ) -> None:
        self._scorer, self._who = scorer, who
        self._questions, self._sizes = questions, sizes
        self._last = -1
        self._counts = dict.fromkeys(
            ("cots", "with_score", "with_steps", "prompt_tokens", "output_tokens"), 0
        )
        self._leaf = LeafHash()
        self._add_line([scorer.name, scorer.kind, dict(scorer.parameters)])

    def add(self, rows: ScoreRows) -> dict[str, Sequence[Any]]:
        """Check and count the rows of one question; return column -> values as they are to be
        stored.
        """
        self._check_keys(rows)
        columns = self._columns(rows)
        optional = {
            name: columns[name]
            for name in _SCORE_COLUMNS
            if any(value is not None for value in columns[name])
        }
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
            raise ConflictError(
                f"{self._who}: the scores of {rows.question_id!r} come twice or out of order."
            )
        self._last = row
        indices, size = list(rows.sample_indices), int(self._sizes[row])
        if any(not 0 <= index < size for index in indices):
            raise ConflictError(
                f"{self._who}: {rows.question_id!r} has {size} CoTs, and CoT"
                f" {max(indices, key=abs)} was scored."
            )
        if any(one >= other for one, other in pairwise(indices)):
            raise ConflictError(
                f"{self._who}: CoTs of {rows.question_id!r} come twice or out of order."
            )

    def _columns(self, rows: ScoreRows) -> dict[str, Sequence[Any]]:
        size = len(rows.sample_indices)
        optional = {
            "step_scores": rows.step_scores,
            "verdict": rows.verdicts,
            "prompt_tokens": rows.prompt_tokens,
            "output_tokens": rows.output_tokens,
        }
        columns: dict[str, Sequence[Any]] = {
            "sample_index": list(rows.sample_indices),
            "score": rows.scores,
        }
        columns |= {
            name: [None] * size if column is None else list(column)
            for name, column in optional.items()
        }
        if any(len(column) != size for column in columns.values()):
            lengths = [len(column) for column in columns.values()]
            raise UsageError(
                f"{self._who}, {rows.question_id!r}: the columns have different lengths, {lengths}."
            )
        columns["score"] = [
            None if score is None else self._number(score, rows) for score in rows.scores
        ]
        columns["step_scores"] = [
            [self._number(step, rows) for step in steps] if steps else None
            for steps in columns["step_scores"]
        ]
        for name in ("prompt_tokens", "output_tokens"):
            if any(
                tokens is not None and not 0 <= tokens <= _MAX_TOKENS for tokens in columns[name]
            ):
                raise UsageError(
                    f"{self._who}, {rows.question_id!r}: {name} should be 0 to {_MAX_TOKENS}."
                )
            columns[name] = [None if tokens is None else int(tokens) for tokens in columns[name]]
        return columns

    def _number(self, value: float, rows: ScoreRows) -> float:
        if isinstance(value, (bool, str)) or not math.isfinite(value):
            raise UsageError(
                f"{self._who}, {rows.question_id!r}: a score is a finite number or None; {value!r}"
                " was given."
            )
        return float(value)

    def _add_line(self, line: list[Any]) -> None:
        try:
            self._leaf.add(line)
        except TypeError as error:
            raise UsageError(
                f"{self._who}: a parameter or verdict cannot be stored ({error}); parameters are"
                " JSON values, text is valid Unicode."
            ) from error


class ProbeTally:
    """Checks the probes of one LLM on one dataset; makes their leaf and their record in the
    manifest.

    `questions` are the ids in their order, `sizes` the recorded CoTs of each, `cue` the text that
    made the LLM answer.
    """

    def __init__(
        self,
        dataset: str,
        llm: str,
        cue: str | None,
        questions: Sequence[str],
        sizes: npt.NDArray[np.uint32],
    ) -> None:
        self._pair, self._cue = {"dataset": dataset, "llm": llm}, cue
        self._who = f"Probes of {llm} on {dataset}"
        self._questions, self._sizes = questions, sizes
        self._last = -1
        self._interval: int | None = None
        self._is_regular = True
        self._counts = dict.fromkeys(("traces", "probes", "no_answer", "output_tokens"), 0)
        self._leaf = LeafHash()
        self._add_line([cue], self._who)

    def add(self, rows: ProbeRows) -> ProbeRows:
        """Check and count the probes on one question; return them as they are to be stored."""
        where = f"{self._who}, question {rows.question_id!r}"
        row = row_behind(self._questions, rows.question_id, self._last)
        if row is None or row < 0:
            problem = "is no recorded question" if row is None else "comes twice or out of order"
            raise ConflictError(
                f"{self._who}: {rows.question_id!r} {problem}. Give the probes in the order of the"
                " questions."
            )
        self._last = row
        rows = _stored_probes(rows, where)
        places = self._places(rows, int(self._sizes[row]), where)
        columns = rows.columns()
        optional = {
            name: values
            for name, values in columns.items()
            if name not in _PROBE_KEYS and any(value is not None for value in values)
        }
        if rows.offsets:  # a question without probes has no line, as when the file is read
            self._add_line(
                [rows.question_id, *(columns[name] for name in _PROBE_KEYS), optional], where
            )
        self._counts["traces"] += places.count(0)
        self._counts["probes"] += len(rows.offsets)
        self._counts["no_answer"] += sum(answer is None for answer in rows.answers)
        self._counts["output_tokens"] += sum(tokens or 0 for tokens in rows.output_tokens or ())
        if rows.offsets and self._interval is None:
            self._interval = rows.offsets[0]
        self._is_regular &= all(
            offset == (place + 1) * (self._interval or 0)
            for offset, place in zip(rows.offsets, places, strict=True)
        )
        return rows

    def leaf(self) -> str:
        """The leaf of what was added."""
        return self._leaf.hexdigest()

    def record(self) -> dict[str, Any]:
        """The record in the manifest, a `ProbesRecord`."""
        return {
            **self._pair,
            "cue": self._cue,
            "interval": self._interval if self._is_regular else None,
            **self._counts,
        }

    def _places(self, rows: ProbeRows, size: int, where: str) -> list[int]:
        """Return which probe of its CoT each one is, counted from 0."""
        places: list[int] = []
        last_sample, last_offset = -1, 0
        for sample, offset in zip(rows.sample_indices, rows.offsets, strict=True):
            what = f"{where}: CoT {sample} was probed after {offset} tokens"
            if not 0 <= sample < size:
                raise ConflictError(f"{what}, and the question has {size} CoTs, counted from 0.")
            if not 1 <= offset <= _MAX_TOKENS:
                raise UsageError(f"{what}; that should be 1 to {_MAX_TOKENS}.")
            if (sample, offset) <= (last_sample, last_offset):
                raise ConflictError(
                    f"{what}, behind a probe of CoT {last_sample} after {last_offset}; probes come"
                    " by CoT, then by tokens, each once."
                )
            places.append(places[-1] + 1 if sample == last_sample else 0)
            last_sample, last_offset = sample, offset
        return places

    def _add_line(self, line: list[Any], where: str) -> None:
        try:
            self._leaf.add(line)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error


def _stored_probes(rows: ProbeRows, where: str) -> ProbeRows:
    """Return probes as reading gives them back: the hash must not depend on digits that are not
    stored.
    """
    columns: dict[str, Any] = {}
    for field, read in _PROBE_VALUES.items():
        values = getattr(rows, field)
        is_optional = field in {"texts", "output_tokens", "confidences"}
        if is_optional and (values is None or all(value is None for value in values)):
            values = None if values is None or len(values) == len(rows.offsets) else values
            columns[field] = values
            continue
        columns[field] = []
        for place, value in enumerate(values):
            try:
                columns[field].append(
                    None
                    if value is None and field not in {"sample_indices", "offsets"}
                    else read(value)
                )
            except (TypeError, ValueError, OverflowError) as error:
                samples, offsets = (
                    list(column)[place : place + 1]
                    for column in (rows.sample_indices, rows.offsets)
                )
                raise UsageError(
                    f"{where}, probe of CoT {samples!r:.40} after {offsets!r:.40} tokens: {field}"
                    f" should hold {error}, found {value!r:.60}."
                ) from error
    lengths = {field: len(values) for field, values in columns.items() if values is not None}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"{where}: the columns of its probes have different lengths, {lengths}.")
    return replace(rows, **columns)


def _count(value: Any) -> int:
    if (
        isinstance(value, bool)
        or not hasattr(value, "__index__")
        or not 0 <= index(value) <= _MAX_TOKENS
    ):
        raise ValueError(f"whole numbers of 0 to {_MAX_TOKENS}")
    return index(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text or None")
    return value


def _confidence(value: Any) -> float:
    if isinstance(value, (bool, str)) or not abs(float(value)) <= _MAX_FLOAT:
        raise ValueError("finite numbers of 32 bits or None")
    return float(np.float32(value))


_PROBE_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "sample_indices": _count,
    "offsets": _count,
    "raw_answers": _text,
    "answers": _text,
    "texts": _text,
    "output_tokens": _count,
    "confidences": _confidence,
}

"""The parts of a recording as data: what the files of each hold, how its rows join the CoTs, and
how its leaf is made.

A part that is added here is written, read, hashed, linked, merged, selected, verified and fetched
like the others.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from operator import index, is_
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from feval import answers
from feval.errors import ConflictError, UsageError
from feval.recording.content import (
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
from feval.recording.layout.flat import Integers
from feval.recording.layout.format import PROBES, SCORES, LeafHash, Part, Record, leaf_hash
from feval.values import frozen

if TYPE_CHECKING:
    from feval.answers.equivalence import Verdict

Columns = Mapping[str, Sequence[Any]]
"""Column -> the values of a question."""

_MAX_COUNT = 2**31 - 1
_MAX_FLOAT = float.fromhex("0x1.fffffep+127")  # of 32 bits
_T = TypeVar("_T")
_Rows = TypeVar("_Rows", bound=PoolRows | ProbeRows | ScoreRows)


class ColumnSpec(NamedTuple):
    """A column of the files of a part.

    Attributes:
        name: in the files, and in lines of leaves.
        kind: the type of its values; "utc" is an ISO 8601 time in memory and a timestamp in files.
        field: of the rows in memory; "extra" has columns by name.
        in_line: "always"; "any": behind the others, where a question has a value; "named": in an
            object at the end, where a question has a value; "never".
        is_required: no value may be missing.
        is_long: few values are equal.
        is_short: its bytes do not count when rows are grouped.
    """

    name: str
    kind: str
    field: str = ""
    in_line: Literal["always", "any", "named", "never"] = "always"
    is_required: bool = False
    is_long: bool = False
    is_short: bool = False

    @property
    def is_sized(self) -> bool:
        """Whether long values of it end a row group early."""
        return self.kind.startswith(("string", "list")) and not self.is_short


@frozen
class PartSpec:
    """A part of a dataset, or of an LLM on it.

    Attributes:
        joins: how its rows join the questions and CoTs. "entry": a row for each question, "pairs":
            some for a question, both of a dataset; of an LLM "request": a row for each question,
            "cots": a row for each CoT, "keyed": rows that name their CoTs.
        columns: beside `llm`, `question_id`, and the `sample_index` of "cots".
        rows: of one question in memory.
        is_optional: only questions with any value have rows.
        grows: whether row groups grow with the file, so that one value is a small read.
        counts: of what is "keyed", the counts in the manifest.
        noun, advice: what a recording lacks, and how to get it; the name by default.
    """

    name: str
    joins: Literal["entry", "pairs", "request", "cots", "keyed"]
    columns: tuple[ColumnSpec, ...]
    rows: type[Any] = PoolRows
    is_optional: bool = False
    grows: bool = False
    counts: Mapping[str, Callable[[Columns], int]] = field(default_factory=dict)
    noun: str = ""
    advice: str = "None was kept when it was recorded. Record it again."

    @property
    def has_one_row(self) -> bool:
        """Whether each question has one row."""
        return self.joins in {"entry", "request"}

    def columns_of(self, rows: Any) -> dict[str, Sequence[Any]]:
        """Column -> the values of some rows, or of a question, as reading gives them back (a hash
        must not depend on digits that are not stored); nothing where an optional part of a pool has
        no value.
        """
        if self.has_one_row:
            return {column.name: [getattr(rows, column.field)] for column in self.columns}
        columns = [column for column in self.columns if column.field]
        found: Record = {
            column.name: rows.extra.get(column.name)
            if column.field == "extra"
            else getattr(rows, column.field)
            for column in columns
        }
        if self.is_optional and not any(map(has_value, found.values())):
            return {}
        size = len(rows.sample_indices if self.joins == "keyed" else rows.answers)
        for column in columns:
            if found[column.name] is None:
                found[column.name] = [None] * size
            elif column.kind in _STORED and self.joins != "keyed":
                found[column.name] = list(map(_STORED[column.kind], found[column.name]))
        return found

    def _values(self, column: ColumnSpec, columns: Columns) -> Sequence[Any]:
        """Return the values of a column; a question without rows has no columns, and other writers
        may leave out those that a source adds.
        """
        may_lack = not columns or column.field in {"", "extra"}
        return columns.get(column.name, []) if may_lack else columns[column.name]

    def fields_of(self, columns: Columns) -> Record:
        """Field of the rows -> values, `None` for an optional column without any."""
        fields: Record = {"extra": {}} if self.name == "samples" else {}
        for column in self.columns:
            values = self._values(column, columns)
            if column.field == "extra":
                fields.setdefault("extra", {}).update(
                    {column.name: values} if has_value(values) else {}
                )
            elif self.has_one_row:
                fields[column.field] = values[0]
            elif column.field:
                # Trees have parents, also where no step has one.
                may_lack = self.is_optional and not any(each.is_required for each in self.columns)
                is_kept = has_value(values) or not (may_lack or column.in_line == "named")
                if is_kept and column.kind == "list<mark>":
                    mark = answers.thoughts.Mark
                    values = [m and tuple(mark(**each) for each in m) for m in values]
                fields[column.field] = values if is_kept else None
        return fields

    def line(self, question: str, columns: Columns) -> list[Any]:
        """Return a question's line in the leaf."""
        if self.has_one_row:
            own = ((column, columns[column.name][0]) for column in self.columns)
            return [question, *(each for column, each in own if each or column.in_line != "any")]
        values = {column: self._values(column, columns) for column in self.columns}
        line: list[Any] = [
            question,
            *(
                list(own)
                for column, own in values.items()
                if column.in_line == "always" or (column.in_line == "any" and has_value(own))
            ),
        ]
        if any(column.in_line == "named" for column in values):
            line.append(
                {
                    column.name: list(own)
                    for column, own in values.items()
                    if column.in_line == "named" and has_value(own)
                }
            )
        return line


def has_value(values: Sequence[Any] | None) -> bool:
    """Return whether any of some values is not missing."""
    return values is not None and not all(map(partial(is_, None), values))  # in C


def rows_at(rows: _Rows, places: Sequence[int]) -> _Rows:
    """Return some of the CoTs, scores or probes of a question, in the order given."""

    def some(values: Any) -> Any:
        return None if values is None else [values[place] for place in places]

    own = [spec for spec in PARTS.values() if spec.rows is type(rows) and spec.joins != "request"]
    names = {column.field for spec in own for column in spec.columns} - {"", "extra"}
    changed: Record = {name: some(getattr(rows, name)) for name in names}
    if isinstance(rows, PoolRows):
        changed["extra"] = {name: some(values) for name, values in rows.extra.items()}
    return replace(rows, **changed)


_STORED: Mapping[str, Callable[[Any], Any]] = {
    "list<float32>": lambda values: None if values is None else array("f", values).tolist(),
    "list<mark>": lambda marks: [asdict(mark) for mark in marks] if marks else None,
    "utc": lambda time: None if time is None else utc_text(utc_time(time)),
}

OPTIONAL_COLUMNS: Mapping[str, str] = {
    "seed": "int64",
    "response_id": "string",
    "served_model": "string",
    "system_fingerprint": "string",
    "reasoning_tokens": "int64",
    "cached_tokens": "int64",
    "recorded_at": "utc",
    "duration_s": "float64",
    "usd": "float64",
}
"""Columns that a source may add to the samples, with their types; durations are seconds."""

_SAMPLE = ColumnSpec("sample_index", "int32", "sample_indices", is_required=True)
_ANSWERS = (
    ColumnSpec("answer_raw", "string", "raw_answers"),
    ColumnSpec("answer", "string", "answers"),
)

PARTS: Mapping[str, PartSpec] = {
    spec.name: spec
    for spec in (
        PartSpec(
            "questions",
            "entry",
            (
                ColumnSpec("question", "string", "text", is_required=True, is_long=True),
                ColumnSpec("answer", "string", "answer", is_long=True),
                ColumnSpec("answer_key", "string", "answer_key", is_long=True),
                ColumnSpec("choices", "list<choice>", "choices"),
                ColumnSpec("features", "list<choice>", "features", "any"),
            ),
            Question,
        ),
        PartSpec(
            "equality",
            "pairs",
            (
                ColumnSpec("left", "string", is_required=True),
                ColumnSpec("right", "string", is_required=True),
                ColumnSpec("gold", "bool", is_required=True),
                ColumnSpec("equal", "bool"),
            ),
        ),
        PartSpec(
            "requests",
            "request",
            (
                ColumnSpec("prompt", "string", "prompt", is_long=True),
                ColumnSpec("prompt_tokens", "int32", "prompt_tokens"),
            ),
        ),
        PartSpec(
            "samples",
            "cots",
            (
                *_ANSWERS,
                ColumnSpec("correct", "bool", in_line="never"),
                ColumnSpec("output_tokens", "int32", "output_tokens", is_required=True),
                ColumnSpec(
                    "finish_reason", "string", "finish_reasons", is_required=True, is_short=True
                ),
                *(
                    ColumnSpec(name, kind, "extra", "named", is_short=True)
                    for name, kind in OPTIONAL_COLUMNS.items()
                ),
            ),
        ),
        PartSpec(
            "texts", "cots", (ColumnSpec("text", "string", "texts", is_long=True),), grows=True
        ),
        PartSpec(
            "reasoning",
            "cots",
            (
                ColumnSpec("reasoning", "string", "reasoning", is_long=True),
                ColumnSpec("marks", "list<mark>", "reasoning_marks", "any"),
            ),
            is_optional=True,
            grows=True,
        ),
        PartSpec(
            "logprobs",
            "cots",
            (
                ColumnSpec("sequence_logprob", "float64", "sequence_logprobs"),
                ColumnSpec("token_confidences", "list<float32>", "token_confidences"),
                ColumnSpec("token_logprobs", "list<float32>", "token_logprobs"),
            ),
            is_optional=True,
            grows=True,
            noun="log-probabilities",
            advice="Only `feval record --logprobs K` keeps them; record the LLM again with it.",
        ),
        PartSpec(
            "steps",
            "cots",
            (
                ColumnSpec("parent", "int32", "parents"),
                ColumnSpec("ends", "bool", "ends", is_required=True),
            ),
            is_optional=True,
        ),
        PartSpec(
            "turns",
            "cots",
            (
                ColumnSpec("messages", "string", "messages"),
                ColumnSpec("prompt_tokens", "int32", "turn_prompt_tokens"),
            ),
            is_optional=True,
        ),
        PartSpec(
            "timings", "cots", (ColumnSpec("first_token_s", "float64", "extra"),), is_optional=True
        ),
        PartSpec(
            "calls",
            "cots",
            (ColumnSpec("tool_calls", "string", "extra"),),
            is_optional=True,
            noun="calls of tools",
        ),
        PartSpec(
            "scores",
            "keyed",
            (
                _SAMPLE,
                ColumnSpec("score", "float64", "scores"),
                ColumnSpec("step_scores", "list<float64>", "step_scores", "named"),
                ColumnSpec("verdict", "string", "verdicts", "named"),
                ColumnSpec("prompt_tokens", "int32", "prompt_tokens", "named"),
                ColumnSpec("output_tokens", "int32", "output_tokens", "named"),
            ),
            ScoreRows,
            counts={
                "cots": lambda columns: len(columns["score"]),
                "with_score": lambda columns: _known(columns["score"]),
                "with_steps": lambda columns: _known(columns["step_scores"]),
                "prompt_tokens": lambda columns: sum(filter(None, columns["prompt_tokens"])),
                "output_tokens": lambda columns: sum(filter(None, columns["output_tokens"])),
            },
            advice="Add some with `feval score`.",
        ),
        PartSpec(
            "probes",
            "keyed",
            (
                _SAMPLE,
                ColumnSpec("offset", "int32", "offsets", is_required=True),
                *_ANSWERS,
                ColumnSpec("text", "string", "texts", "named"),
                ColumnSpec("output_tokens", "int32", "output_tokens", "named"),
                ColumnSpec("confidence", "float32", "confidences", "named"),
            ),
            ProbeRows,
            counts={
                "traces": lambda columns: len(set(columns["sample_index"])),
                "probes": lambda columns: len(columns["answer"]),
                "no_answer": lambda columns: len(columns["answer"]) - _known(columns["answer"]),
                "output_tokens": lambda columns: sum(filter(None, columns["output_tokens"])),
            },
            advice=(
                "What it would have answered after a part of a CoT was not recorded. Import a"
                " source that has probes (`feval import probed-traces`)."
            ),
        ),
    )
}
"""Every part by its name; that of a scorer's scores goes on behind a slash."""

POOL_PARTS = tuple(spec for spec in PARTS.values() if spec.joins in {"request", "cots"})
"""Of what `PoolRows` holds: three that every LLM on a dataset has, and the optional ones."""
PAIR_PARTS = tuple(spec.name for spec in POOL_PARTS if not spec.is_optional)
CHANNELS = tuple(spec.name for spec in POOL_PARTS if spec.is_optional)
EXTRA_COLUMNS: Mapping[str, str] = {
    column.name: column.kind
    for spec in POOL_PARTS
    for column in spec.columns
    if column.field == "extra"
}
"""Columns of `PoolRows.extra`, with their types; each value may be missing."""


def spec_of(part: str) -> PartSpec:
    """Return what a part is, such as "samples" or "scores/length"."""
    return PARTS[part.partition("/")[0]]


def pool_columns(pool: PoolRows) -> dict[str, dict[str, Sequence[Any]]]:
    """Return part -> column -> values of a pool, for the parts that it has."""
    columns = {spec.name: spec.columns_of(pool) for spec in POOL_PARTS}
    return {part: own for part, own in columns.items() if own}


def _known(values: Sequence[Any]) -> int:
    return sum(value is not None for value in values)


def row_behind(ids: Sequence[str], question: str, last: int, who: str) -> int:
    """Return the row of a question behind a row; a `ConflictError` where it stands there or before,
    or there is no such question.
    """
    for row in range(last + 1, len(ids)):
        if ids[row] == question:
            return row
    problem = "comes twice or out of order" if question in ids else "is no recorded question"
    raise ConflictError(f"{who}: {question!r} {problem}. Give them in the order of the questions.")


class SparseRows(Generic[_T]):
    """What is read along with the questions: pairs of question id and rows in their order, which
    may lack some. `none` stands for the rows of these.
    """

    def __init__(self, rows: Iterable[tuple[str, _T]], none: _T) -> None:
        self._rows, self._none = iter(rows), none
        self.next = next(self._rows, None)

    def take(self, question: str) -> _T:
        """Return the rows of the next question."""
        if self.next is None or self.next[0] != question:
            return self._none
        rows, self.next = self.next[1], next(self._rows, None)
        return rows


class RowsTally:
    """Checks the rows of scores or probes; makes their `leaf` and their record in the manifest.

    `given_by` is the scorer of scores, and of probes the cue that made the LLM answer. `questions`
    are the ids in their order, `sizes` the recorded CoTs of each.
    """

    def __init__(
        self,
        dataset: str,
        llm: str,
        given_by: ScorerInfo | str | None,
        questions: Sequence[str],
        sizes: Integers,
    ) -> None:
        self._key: Record = {"dataset": dataset, "llm": llm}
        header: list[Any]
        if isinstance(given_by, ScorerInfo):
            name, self._key["scorer"] = SCORES + given_by.name, given_by.name
            header = [given_by.name, given_by.kind, dict(given_by.parameters)]
        else:
            name, self._key["cue"] = PROBES, given_by
            header = [given_by]
        self.part = Part(name, dataset, llm)
        self._spec, self._who = spec_of(name), f"{name} of {llm} on {dataset}"
        self._questions, self._sizes, self._last = questions, sizes, -1
        self._counts = dict.fromkeys(self._spec.counts, 0)
        self._interval: int | None = None
        self._is_regular = True
        self.leaf = LeafHash()
        self.leaf.add(header, f"{self._who}: ")

    def add(self, rows: ScoreRows | ProbeRows) -> dict[str, Sequence[Any]]:
        """Check and count the rows of one question; return column -> values to be stored."""
        where = f"{self._who}, question {rows.question_id!r}"
        self._last = row_behind(self._questions, rows.question_id, self._last, self._who)
        columns = self._checked(rows, where)
        self._check_keys(columns, int(self._sizes[self._last]), where)
        if columns["sample_index"]:  # a question without rows has no line, as when it is read
            self.leaf.add(self._spec.line(rows.question_id, columns), f"{where}: ")
        for name, count in self._spec.counts.items():
            self._counts[name] += count(columns)
        return columns

    def record(self) -> Record:
        """The record in the manifest, a `SCORES_RECORD` or a `PROBES_RECORD`."""
        interval = {"interval": self._interval if self._is_regular else None}
        return {**self._key, **(interval if "cue" in self._key else {}), **self._counts}

    def _checked(self, rows: ScoreRows | ProbeRows, where: str) -> dict[str, Sequence[Any]]:
        columns = self._spec.columns_of(rows)
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise UsageError(f"{where}: the columns have different lengths, {lengths}.")
        for column in self._spec.columns:
            values, checked = columns[column.name], []
            for place, value in enumerate(values):
                try:
                    is_missing = value is None and not column.is_required
                    checked.append(None if is_missing else _CHECKS[column.kind](value))
                except (TypeError, ValueError, OverflowError) as error:
                    raise UsageError(
                        f"{where}, CoT {columns['sample_index'][place]!r:.40}: {column.field}"
                        f" should hold {error}, found {value!r:.60}."
                    ) from error
            columns[column.name] = checked
        return columns

    def _check_keys(self, columns: Columns, size: int, where: str) -> None:
        """Check which CoTs the rows are of, and note whether offsets are at one interval."""
        last, place = (-1, 0), 0
        offsets = columns.get("offset")
        for at, sample in enumerate(columns["sample_index"]):
            key = (sample, 0 if offsets is None else offsets[at])
            what = f"{where}: CoT {sample}"
            if offsets is not None:
                what += f" after {key[1]} tokens"
            if sample >= size:
                raise ConflictError(f"{what}: the question has {size} CoTs, counted from 0.")
            if offsets is not None and key[1] < 1:
                raise UsageError(f"{what}: an offset should be 1 to {_MAX_COUNT}.")
            if key <= last:
                raise ConflictError(
                    f"{what} comes behind CoT {last[0]}"
                    f"{f' after {last[1]} tokens' * (offsets is not None)}; each comes once, in"
                    " order."
                )
            place = place + 1 if sample == last[0] else 1
            self._interval = self._interval or key[1]
            self._is_regular &= key[1] == place * self._interval
            last = key


def _count(value: Any) -> int:
    is_count = not isinstance(value, bool) and hasattr(value, "__index__")
    if not is_count or not 0 <= index(value) <= _MAX_COUNT:
        raise ValueError(f"whole numbers of 0 to {_MAX_COUNT}")
    return index(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text or None")
    return value


def _number(value: Any) -> float:
    is_number = not isinstance(value, (bool, str)) and hasattr(value, "__float__")
    if not is_number or not math.isfinite(value):
        raise ValueError("finite numbers or None")
    return float(value)


def _short_number(value: Any) -> float:
    if abs(_number(value)) > _MAX_FLOAT:
        raise ValueError("finite numbers of 32 bits or None")
    return float(array("f", [value])[0])


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "int32": _count,
    "string": _text,
    "float64": _number,
    "float32": _short_number,
    "list<float64>": lambda values: [_number(value) for value in values] or None,
}


Verdicts = Mapping[str, "Sequence[Verdict]"]
"""Question id -> its verdicts, in the order in which they were reached; questions without any are
left out.
"""


def dataset_leaf(info: DatasetInfo) -> str:
    """Return the leaf of what identifies a dataset: id, answer kind, extractor, system prompt."""
    return leaf_hash([[info.id, info.answer_kind, info.extractor, info.system_prompt]])


def llm_leaf(llm: LLMInfo, counter: str) -> str:
    """Return the leaf of what identifies an LLM on a dataset: name, decoding, token counter."""
    line = [llm.name, llm.temperature, llm.max_tokens, dict(llm.decoding), counter]
    return leaf_hash([line])


def question_line(question: Question) -> list[Any]:
    """Return a question's line in the leaf `questions`."""
    spec = PARTS["questions"]
    return spec.line(question.id, spec.columns_of(question))


class VerdictTally:
    """Makes the `leaf` of a dataset's verdicts, the equality's name and one line per question that
    has any; and counts them.
    """

    def __init__(self, name: str, verdicts: Iterable[tuple[str, Sequence[Verdict]]] = ()) -> None:
        self._outcomes = Counter[bool | None]()
        self.leaf = LeafHash()
        self.leaf.add([name])
        for each in verdicts:
            self.add(*each)

    def add(self, question: str, rows: Sequence[Verdict]) -> dict[str, list[Any]]:
        """Add the verdicts of a question; return column -> values."""
        columns = {
            column.name: [getattr(verdict, column.name) for verdict in rows]
            for column in PARTS["equality"].columns
        }
        self.leaf.add(PARTS["equality"].line(question, columns))
        self._outcomes.update(columns["equal"])
        return columns

    def counts(self, not_asked: int) -> dict[str, int]:
        """Return how many pairs are equal, different, undecided, and were not compared."""
        return {
            "equal": self._outcomes[True],
            "different": self._outcomes[False],
            "undecided": self._outcomes[None],
            "not_asked": not_asked,
        }

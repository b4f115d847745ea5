"""From the rows of Parquet files to questions, verdicts, pools and scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from feval.answers.parties import Verdict
from feval.answers.thoughts import Mark
from feval.errors import DamagedRecordingError
from feval.recording.content import (
    EQUALITY_COLUMNS,
    OPTIONAL_COLUMNS,
    PROBE_COLUMNS,
    PoolRows,
    ProbeRows,
    Question,
    ScoreRows,
)
from feval.recording.steps import checked_messages

_SCORE_FIELDS = {
    "step_scores": "step_scores",
    "verdict": "verdicts",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
}

Rows = Iterator[tuple[str, dict[str, list[Any]]]]
"""(question id, column -> values), question by question."""


def questions_of_tables(tables: Iterable[Any]) -> Iterator[Question]:
    """Yield the questions of a dataset from its tables, one per row group."""
    for table in tables:
        columns = table.to_pydict()
        names = ("question_id", "question", "answer", "answer_key", "choices")
        for name, text, answer, key, choices in zip(
            *(columns[name] for name in names), strict=True
        ):
            yield Question(
                name,
                text,
                answer,
                key,
                tuple((each["label"], each["text"]) for each in choices or ()),
            )


def verdicts_of_rows(rows: Rows) -> Iterator[tuple[str, list[Verdict]]]:
    """Yield the verdicts on a dataset's answers, with the question's id."""
    for question, columns in rows:
        yield (
            question,
            [
                Verdict(*row)
                for row in zip(*(columns[name] for name in EQUALITY_COLUMNS), strict=True)
            ],
        )


def scores_of_rows(rows: Rows) -> Iterator[ScoreRows]:
    """Yield a scorer's scores question by question."""
    for question, columns in rows:
        optional = {
            field: columns[column] if any(value is not None for value in columns[column]) else None
            for column, field in _SCORE_FIELDS.items()
        }
        yield ScoreRows(question, columns["sample_index"], columns["score"], **optional)


def probes_of_rows(rows: Rows) -> Iterator[ProbeRows]:
    """Yield the probes of an LLM question by question."""
    for question, columns in rows:
        fields: dict[str, Any] = {field: columns[column] for column, field in PROBE_COLUMNS.items()}
        for name in ("texts", "output_tokens", "confidences"):
            if all(value is None for value in fields[name]):
                fields[name] = None
        yield ProbeRows(question, **fields)


def pools_of_rows(
    path: object,
    requests: Rows,
    samples: Rows,
    texts: Iterator[str | None],
    channels: Sequence[Rows],
) -> Iterator[PoolRows]:
    """Yield the pools of an LLM from its files, which are read side by side; `path` is that of the
    samples, for messages.

    Samples and channels may lack questions, requests may not. Files that do not hold the same CoTs
    are damaged.
    """
    own_samples, own_channels = Aligned(samples), [Aligned(rows) for rows in channels]
    for question, request in requests:
        columns = own_samples.take(question) or {"sample_index": []}
        size = len(columns["sample_index"])
        optional = [channel.take(question) for channel in own_channels]
        for each in (columns, *optional):
            if each.get("sample_index", columns["sample_index"]) != list(range(size)):
                raise DamagedRecordingError(
                    f"{path}: sample indices of {question!r} are not 0, 1, 2 ..."
                )
        yield _pool(question, request, columns, list(islice(texts, size)), optional)
    if next(texts, path) is not path or any(
        part.next is not None for part in (own_samples, *own_channels)
    ):
        raise DamagedRecordingError(
            f"{path} does not hold the same questions as the requests and the texts."
        )


class Aligned:
    """A file that is read along with the questions, some of which it may lack."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.next = next(rows, None)

    def take(self, question: str) -> dict[str, list[Any]]:
        """Its columns on a question; empty where it has none."""
        if self.next is None or self.next[0] != question:
            return {}
        columns, self.next = self.next[1], next(self._rows, None)
        return columns


def _pool(
    question: str,
    request: dict[str, list[Any]],
    samples: dict[str, list[Any]],
    texts: list[Any],
    optional: list[dict[str, list[Any]]],
) -> PoolRows:
    if len(texts) != len(samples["sample_index"]):
        raise ValueError(f"texts end before {question!r}")
    channels = {
        name: column
        for columns in optional
        for name, column in columns.items()
        if any(v is not None for v in column)
    }
    steps: dict[str, Any] = next((columns for columns in optional if "ends" in columns), {})
    narrow = ("answer_raw", "answer", "output_tokens", "finish_reason")
    answers_raw, answers, tokens, reasons = (samples[name] if texts else [] for name in narrow)
    return PoolRows(
        question,
        texts,
        answers_raw,
        answers,
        tokens,
        reasons,
        request["prompt"][0],
        request["prompt_tokens"][0],
        {
            name: samples[name]
            for name in OPTIONAL_COLUMNS
            if any(value is not None for value in samples.get(name, ()))
        },
        reasoning=channels.get("reasoning"),
        reasoning_marks=marks_of_column(channels.get("marks")),
        sequence_logprobs=channels.get("sequence_logprob"),
        token_logprobs=channels.get("token_logprobs"),
        token_confidences=channels.get("token_confidences"),
        parents=steps.get("parent"),
        ends=steps.get("ends"),
        messages=checked_messages(channels["messages"]) if "messages" in channels else None,
        turn_prompt_tokens=channels.get("prompt_tokens"),
        first_token_seconds=channels.get("first_token_s"),
    )


def marks_of_column(column: list[Any] | None) -> list[tuple[Mark, ...] | None] | None:
    """Return where the thoughts of each CoT were in its raw text; `None` of a CoT, or of all,
    without such thoughts.
    """
    if column is None:
        return None
    return [None if marks is None else tuple(Mark(**mark) for mark in marks) for marks in column]

"""Parquet files of a recording, written in row groups, and their schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from feval.recording.content import CHANNELS, OPTIONAL_COLUMNS, Question
from feval.recording.layout.hashed import HashedFile

Schema = tuple[pa.Schema, bool | list[str]]
"""An Arrow schema, and which of its columns are dictionary-encoded."""

NARROW_GROUP_ROWS = 1 << 16
"""Rows of a row group of narrow columns."""
_QUESTIONS_GROUP_ROWS = 4096
_STRING = pa.string()

_CHOICES = pa.list_(pa.struct([("label", _STRING), ("text", _STRING)]))
_QUESTION_TEXTS = ("question_id", "question", "answer", "answer_key")
_QUESTIONS_SCHEMA: Schema = (
    pa.schema([*((name, _STRING) for name in _QUESTION_TEXTS), ("choices", _CHOICES)]),
    False,
)

_FORMS = ["question_id", "left", "right"]
_OUTCOMES = [("gold", pa.bool_()), ("equal", pa.bool_())]
_EQUALITY_SCHEMA: Schema = pa.schema([*((name, _STRING) for name in _FORMS), *_OUTCOMES]), _FORMS
DATASET_SCHEMAS = (_QUESTIONS_SCHEMA, _EQUALITY_SCHEMA)

SCORES_SCHEMA: Schema = (
    pa.schema(
        {
            "llm": _STRING,
            "question_id": _STRING,
            "sample_index": pa.int32(),
            "score": pa.float64(),
            "step_scores": pa.list_(pa.float64()),
            "verdict": _STRING,
            "prompt_tokens": pa.int32(),
            "output_tokens": pa.int32(),
        }
    ),
    ["llm", "question_id", "verdict"],
)

PROBES_SCHEMA: Schema = (
    pa.schema(
        {
            "llm": _STRING,
            "question_id": _STRING,
            "sample_index": pa.int32(),
            "offset": pa.int32(),
            "answer_raw": _STRING,
            "answer": _STRING,
            "text": _STRING,
            "output_tokens": pa.int32(),
            "confidence": pa.float32(),
        }
    ),
    ["llm", "question_id", "answer_raw", "answer", "text"],
)


class ParquetFile:
    """One Parquet file, written in row groups as rows come; `dictionary` names the
    dictionary-encoded columns.
    """

    def __init__(self, path: Path, schema: pa.Schema, dictionary: bool | list[str]) -> None:
        self._schema = schema
        self._file = HashedFile(path)
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        self.rows = 0
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            compression_level=3,
            use_dictionary=dictionary,
            write_page_index=True,
            write_page_checksum=True,
            use_content_defined_chunking=True,
        )

    def write(self, table: Any) -> None:
        """Write a whole Arrow table as one row group, behind what was written before."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.rows += table.num_rows

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.size

    def extend(self, **columns: Sequence[Any]) -> None:
        """Add rows, as columns of equal length."""
        for name, values in columns.items():
            self._columns[name].extend(values)

    @property
    def waiting(self) -> int:
        """Rows not yet in a row group."""
        return len(next(iter(self._columns.values())))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def flush(self) -> None:
        """Write the rows that wait as one row group."""
        if self.waiting:
            self.write(pa.table(self._columns, schema=self._schema))
            self._columns = {name: [] for name in self._columns}

    def close(self) -> dict[str, Any]:
        """Finish the file; return its record for the manifest."""
        self.flush()
        self._writer.close()
        self._file.close()
        return self._file.record(self.rows)

    def abandon(self) -> None:
        """Give up, so that no finalizer writes to a full disk later. Nothing happens to a closed
        file.
        """
        if not self._file.closed:
            self._file.abandon()
            self._writer.close()


def pair_schema(part: str) -> Schema:
    """Return the schema of a part of an LLM on a dataset."""
    mark = [
        ("reply_offset", pa.int32()),
        ("opening", _STRING),
        ("length", pa.int32()),
        ("closing", _STRING),
    ]
    types = {
        "string": _STRING,
        "float64": pa.float64(),
        "int64": pa.int64(),
        "int32": pa.int32(),
        "bool": pa.bool_(),
        "list<float32>": pa.list_(pa.float32()),
        "list<mark>": pa.list_(pa.struct(mark)),
        "utc": pa.timestamp("us", "UTC"),
    }
    key = [("llm", _STRING), ("question_id", _STRING)]
    cot_key = [*key, ("sample_index", pa.int32())]
    columns = {
        "requests": [*key, ("prompt", _STRING), ("prompt_tokens", pa.int32())],
        "samples": [
            *cot_key,
            ("answer_raw", _STRING),
            ("answer", _STRING),
            ("correct", pa.bool_()),
            ("output_tokens", pa.int32()),
            ("finish_reason", _STRING),
            *((name, types[kind]) for name, kind in OPTIONAL_COLUMNS.items()),
        ],
        "texts": [*cot_key, ("text", _STRING)],
        **{
            name: [*cot_key, *((c, types[kind]) for c, (_, kind) in channel.items())]
            for name, channel in CHANNELS.items()
        },
    }
    fields = columns[part]
    long = {"text", "prompt", "reasoning"}
    return pa.schema(fields), [
        name for name, kind in fields if kind == _STRING and name not in long
    ]


def has_correct(path: Path, correct: Iterator[bool | None]) -> bool:
    """Return whether the column `correct` of a file of samples is what `correct` gives for its
    rows, all of which are taken.
    """
    source = pq.ParquetFile(path)
    columns = (
        source.read_row_group(group, ["correct"]).column(0)
        for group in range(source.num_row_groups)
    )
    same = [column.to_pylist() == list(islice(correct, len(column))) for column in columns]
    return all(same)


def with_correct(path: Path, correct: Iterator[bool | None]) -> dict[str, Any]:
    """Rewrite a file of samples with another column `correct`, taken from `correct`; return its
    record for the manifest.
    """
    new = path.with_name(f"{path.name}.new")
    source = pq.ParquetFile(path)
    with ParquetFile(new, *pair_schema("samples")) as table:
        for group in range(source.num_row_groups):
            rows = source.read_row_group(group)
            column = pa.array(islice(correct, rows.num_rows), pa.bool_())
            table.write(rows.set_column(rows.schema.get_field_index("correct"), "correct", column))
        record = table.close()
    new.replace(path)
    return record


def write_questions(path: Path, questions: Iterable[Question]) -> dict[str, Any]:
    """Write the questions of a dataset; return the file's record for the manifest."""
    with ParquetFile(path, *_QUESTIONS_SCHEMA) as table:
        following = iter(questions)
        while block := list(islice(following, _QUESTIONS_GROUP_ROWS)):
            table.extend(
                question_id=[question.id for question in block],
                question=[question.text for question in block],
                answer=[question.answer for question in block],
                answer_key=[question.answer_key for question in block],
                choices=[
                    [{"label": label, "text": text} for label, text in question.choices]
                    for question in block
                ],
            )
            table.flush()
        return table.close()


class VerdictFile(ParquetFile):
    """The file of the verdicts on a dataset's answers."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, *_EQUALITY_SCHEMA)

    def add(self, question: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add the verdicts on a question."""
        self.extend(question_id=[question] * len(columns["equal"]), **columns)
        if self.waiting >= NARROW_GROUP_ROWS:
            self.flush()

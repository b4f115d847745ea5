"""The files of a recording as they are written: hashed on the way to the disk, Parquet in row groups."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from feval.cards.schema import FINISH_REASONS
from feval.errors import UsageError
from feval.recording.content import OPTIONAL_COLUMNS, PoolRows, utc_text, utc_time
from feval.recording.layout.format import LeafHash, file_path

__all__ = [
    "CHANNELS",
    "FINISH_CODES",
    "PAIR_PARTS",
    "HashedFile",
    "PairFiles",
    "ParquetFile",
    "pair_schema",
    "pool_lines",
    "with_correct",
]

CHANNELS: dict[str, dict[str, tuple[str, str]]] = {
    "reasoning": {"reasoning": ("reasoning", "string"), "marks": ("reasoning_marks", "list<mark>")},
    "logprobs": {
        "sequence_logprob": ("sequence_logprobs", "float64"),
        "token_confidences": ("token_confidences", "list<float32>"),
        "token_logprobs": ("token_logprobs", "list<float32>"),
    },
}
"""Parts that a pair may have: part -> column -> (field of `PoolRows`, type). Only questions with a value have rows there."""

FINISH_CODES: dict[str, int] = {reason: code for code, reason in enumerate(FINISH_REASONS)}
PAIR_PARTS = ("requests", "samples", "texts")
"""Parts that every pair has."""

_MAX_TOKENS = 2**31 - 1
_TEXT_GROUP_BYTES = 192 * 1024
_PROMPT_GROUP_BYTES = 8 * 2**20
_NARROW_GROUP_ROWS = 1 << 16


def pool_lines(pool: PoolRows) -> dict[str, list[Any]]:
    """A pool's line in each of its leaves. Columns without any value do not count, nor do channels, nor marks."""
    extra = {name: list(column) for name, column in pool.extra.items() if any(v is not None for v in column)}
    if "recorded_at" in extra:
        extra["recorded_at"] = [None if t is None else utc_text(utc_time(t)) for t in extra["recorded_at"]]
    samples = [pool.question_id, list(pool.raw_answers), list(pool.answers), list(pool.output_tokens)]
    channels = {part: [pool.question_id, *columns.values()] for part, columns in _channels(pool).items()}
    if "reasoning" in channels and not any(channels["reasoning"][2]):
        del channels["reasoning"][2]
    return {
        "requests": [pool.question_id, pool.prompt, pool.prompt_tokens],
        "samples": [*samples, list(pool.finish_reasons), extra],
        "texts": [pool.question_id, list(pool.texts)],
        **channels,
    }


def _channels(pool: PoolRows) -> dict[str, dict[str, list[Any]]]:
    """Part -> column -> values, of the channels that have any value on this question."""
    found = {}
    for part, columns in CHANNELS.items():
        values = {column: getattr(pool, field) for column, (field, _) in columns.items()}
        if any(value is not None for column in values.values() for value in column or ()):
            size = len(pool.answers)
            found[part] = {c: [None] * size if v is None else _stored(v, columns[c][1]) for c, v in values.items()}
    return found


def _stored(values: Sequence[Any], kind: str) -> list[Any]:
    """The values as reading will give them: what is hashed must not depend on digits that are not kept."""
    if kind == "list<float32>":
        return [None if value is None else array("f", value).tolist() for value in values]
    if kind == "list<mark>":
        return [[asdict(mark) for mark in value] if value else None for value in values]
    return list(values)


class HashedFile:
    """A file that knows the SHA-256 of what was written to it, so that nothing is read again to be hashed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("xb")
        self._sha = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write and hash; after `abandon`, swallow."""
        view = memoryview(data)
        if self.closed:
            return view.nbytes  # abandoned: the Parquet writer still wants to say goodbye
        self._file.write(view)
        self._sha.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Bytes so far."""
        return self.size

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()

    def writable(self) -> bool:
        """Yes."""
        return True

    def readable(self) -> bool:
        """No."""
        return False

    def seekable(self) -> bool:
        """No: what was hashed stays."""
        return False

    def close(self) -> None:
        """Make sure the bytes are on the disk."""
        if not self.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.closed = True

    def abandon(self) -> None:
        """Close without caring whether the bytes arrived."""
        self.closed = True
        try:
            self._file.close()
        except OSError:
            return  # the disk is full and the folder is about to be removed

    def hexdigest(self) -> str:
        """SHA-256 of what was written."""
        return self._sha.hexdigest()


class ParquetFile:
    """One Parquet file, written in row groups as rows come."""

    def __init__(self, path: Path, schema: Any, dictionary: bool | list[str]) -> None:
        import pyarrow.parquet as pq

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

    def extend(self, **columns: Sequence[Any]) -> None:
        """Add rows, as columns of equal length."""
        for name, values in columns.items():
            self._columns[name].extend(values)

    @property
    def waiting(self) -> int:
        """Rows not yet in a row group."""
        return len(next(iter(self._columns.values())))

    def flush(self) -> None:
        """Write what is waiting as one row group."""
        import pyarrow as pa

        if self.waiting:
            self.write(pa.table(self._columns, schema=self._schema))
            self._columns = {name: [] for name in self._columns}

    def close(self) -> dict[str, Any]:
        """Finish the file: its record for the manifest."""
        self.flush()
        self._writer.close()
        self._file.close()
        return {"sha256": self._file.hexdigest(), "bytes": self._file.size, "rows": self.rows}

    def abandon(self) -> None:
        """Give up, so that no finalizer writes to a full disk later."""
        if not self._file.closed:
            self._file.abandon()
            self._writer.close()


class PairFiles:
    """The Parquet files of one LLM on one dataset, with their leaves: three, and one for each channel that is used.

    With `only`, just those parts are written: the others stay as they are in another recording. `golds` are the normal forms of
    the questions' golds, by id.
    """

    def __init__(
        self,
        claim: Callable[[str], str],
        root: Path,
        dataset: str,
        llm: str,
        golds: Mapping[str, str | None],
        *,
        only: Collection[str] | None = None,
    ) -> None:
        self._claim, self._root, self._who = claim, root, f"{llm} on {dataset}"
        self._pair, self._golds = (dataset, llm), golds
        self._paths = {
            part: claim(file_path(part, dataset, llm)) for part in PAIR_PARTS if only is None or part in only
        }
        self._only = only
        self._tables: dict[str, ParquetFile] = {}
        self._leaves = {part: LeafHash() for part in self._paths}
        self._sizes: list[int] = []
        self._no_answer = self._unclosed = self._empty = 0
        self._waiting_bytes: dict[str, int] = {}

    def add(self, pool: PoolRows) -> list[int]:
        """Add a pool; gives its finish reasons as codes."""
        finish = self._check(pool)
        if not self._tables:
            self._open()
        columns = _pool_columns(pool, self._pair[1], self._golds.get(pool.question_id))
        if self._only is not None:
            columns = {part: own for part, own in columns.items() if part in self._only}
        lines = pool_lines(pool)
        for part, own in columns.items():
            if part not in self._tables:
                self._open_channel(part)
            self._add_line(part, lines[part], pool.question_id)
            self._tables[part].extend(**own)
        self._sizes.append(len(pool.answers))
        self._no_answer += sum(answer is None for answer in pool.answers)
        marked = pool.reasoning_marks or [None] * len(pool.texts)
        unclosed = [marks is not None and any(not mark.closing for mark in marks) for marks in marked]
        self._unclosed += sum(unclosed)
        self._empty += sum(
            text is not None and not text.strip() and answer is None and not is_unclosed
            for text, answer, is_unclosed in zip(pool.texts, pool.answers, unclosed, strict=True)
        )
        self._flush(columns)
        return finish

    def close(self) -> tuple[dict[str, dict[str, Any]], dict[str, str], dict[str, int]]:
        """Finish the files: their records, the leaves, and the summary of the pools."""
        if not self._tables:
            self._open()
        files = {self._paths[part]: table.close() for part, table in self._tables.items()}
        summary = {
            "cots": sum(self._sizes),
            "smallest_pool": min(self._sizes, default=0),
            "largest_pool": max(self._sizes, default=0),
            "no_answer": self._no_answer,
            **({"unclosed_thoughts": self._unclosed} if self._unclosed else {}),
            **({"empty_replies": self._empty} if self._empty else {}),
            "pools": len(self._sizes),
        }
        return files, {part: leaf.hexdigest() for part, leaf in self._leaves.items()}, summary

    def abandon(self) -> None:
        """Let go of the files, whatever state they are in."""
        for table in self._tables.values():
            table.abandon()

    def _open(self) -> None:
        for part in self._paths:
            self._tables[part] = ParquetFile(self._root / self._paths[part], *pair_schema(part))

    def _open_channel(self, part: str) -> None:
        self._paths[part] = self._claim(file_path(part, *self._pair))
        self._leaves[part] = LeafHash()
        self._tables[part] = ParquetFile(self._root / self._paths[part], *pair_schema(part))

    def _add_line(self, part: str, line: list[Any], question: str) -> None:
        try:
            self._leaves[part].add(line)
        except UsageError as error:
            raise UsageError(f"{self._who}, question {question!r}, {part}: {error}") from error

    def _check(self, pool: PoolRows) -> list[int]:
        where = f"{self._who}, question {pool.question_id!r}"
        size = len(pool.answers)
        columns = [pool.texts, pool.raw_answers, pool.output_tokens, pool.finish_reasons, *pool.extra.values()]
        channels = (getattr(pool, field) for part in CHANNELS.values() for field, _ in part.values())
        columns += [column for column in channels if column is not None]
        if any(len(column) != size for column in columns):
            raise UsageError(f"{where}: the columns have different lengths, {[size, *map(len, columns)]}.")
        if unknown := set(pool.extra) - set(OPTIONAL_COLUMNS):
            raise UsageError(f"{where}: unknown columns {sorted(unknown)}; known are {sorted(OPTIONAL_COLUMNS)}.")
        if any(not 0 <= tokens <= _MAX_TOKENS for tokens in pool.output_tokens):
            raise UsageError(
                f"{where}: output tokens should be 0 to {_MAX_TOKENS}, found {list(pool.output_tokens)!r:.80}."
            )
        try:
            _optional_column(pool, "recorded_at")
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
        if pool.prompt_tokens is not None and not 0 <= pool.prompt_tokens <= _MAX_TOKENS:
            raise UsageError(f"{where}: prompt tokens should be 0 to {_MAX_TOKENS}, found {pool.prompt_tokens}.")
        if not pool.marks_fit():
            raise UsageError(f"{where}: the marks of its thoughts do not fit its texts; split the raw texts again.")
        try:
            return [FINISH_CODES[reason] for reason in pool.finish_reasons]
        except KeyError as error:
            raise UsageError(f"{where}: finish reason {error} is not one of {', '.join(FINISH_REASONS)}.") from error

    def _flush(self, columns: dict[str, dict[str, Sequence[Any]]]) -> None:
        """Row groups hold whole questions: texts and channels few (one read per question), narrow columns many."""
        for part, table in self._tables.items():
            size = self._waiting_bytes.get(part, 0) + _bytes(columns.get(part, {}))
            most = {"samples": None, "requests": _PROMPT_GROUP_BYTES}.get(part, _TEXT_GROUP_BYTES)
            full = (most is not None and size >= most) or table.waiting >= _NARROW_GROUP_ROWS
            self._waiting_bytes[part] = 0 if full else size
            if full:
                table.flush()


def pair_schema(part: str) -> tuple[Any, list[str]]:
    """The Arrow schema of a part of an LLM on a dataset, and which of its columns are dictionary-encoded."""
    import pyarrow as pa

    mark = [("reply_offset", pa.int32()), ("opening", pa.string()), ("length", pa.int32()), ("closing", pa.string())]
    types = {
        "string": pa.string(),
        "float64": pa.float64(),
        "int64": pa.int64(),
        "list<float32>": pa.list_(pa.float32()),
        "list<mark>": pa.list_(pa.struct(mark)),
        "utc": pa.timestamp("us", "UTC"),
    }
    key = [("llm", pa.string()), ("question_id", pa.string())]
    cot_key = [*key, ("sample_index", pa.int32())]
    columns = {
        "requests": [*key, ("prompt", pa.string()), ("prompt_tokens", pa.int32())],
        "samples": [
            *cot_key,
            ("answer_raw", pa.string()),
            ("answer", pa.string()),
            ("correct", pa.bool_()),
            ("output_tokens", pa.int32()),
            ("finish_reason", pa.string()),
            *((name, types[kind]) for name, kind in OPTIONAL_COLUMNS.items()),
        ],
        "texts": [*cot_key, ("text", pa.string())],
        **{name: [*cot_key, *((c, types[kind]) for c, (_, kind) in own.items())] for name, own in CHANNELS.items()},
    }
    fields = columns[part]
    long = {"text", "prompt", "reasoning"}
    return pa.schema(fields), [name for name, kind in fields if kind == pa.string() and name not in long]


def _pool_columns(pool: PoolRows, llm: str, gold: str | None) -> dict[str, dict[str, Sequence[Any]]]:
    """A pool's rows in each file that it has rows in."""
    size = len(pool.answers)
    key: dict[str, Sequence[Any]] = {
        "llm": [llm] * size,
        "question_id": [pool.question_id] * size,
        "sample_index": range(size),
    }
    return {
        "requests": {
            "llm": [llm],
            "question_id": [pool.question_id],
            "prompt": [pool.prompt],
            "prompt_tokens": [pool.prompt_tokens],
        },
        "samples": {
            **key,
            "answer_raw": pool.raw_answers,
            "answer": pool.answers,
            "correct": [None if gold is None else answer == gold for answer in pool.answers],
            "output_tokens": pool.output_tokens,
            "finish_reason": pool.finish_reasons,
            **{name: _optional_column(pool, name) for name in OPTIONAL_COLUMNS},
        },
        "texts": {**key, "text": pool.texts},
        **{part: {**key, **values} for part, values in _channels(pool).items()},
    }


def _optional_column(pool: PoolRows, name: str) -> Sequence[Any]:
    values = pool.extra.get(name) or [None] * len(pool.answers)
    if OPTIONAL_COLUMNS[name] != "utc":
        return values
    return [None if value is None else utc_time(value) for value in values]


def with_correct(path: Path, correct: Sequence[bool | None]) -> dict[str, Any]:
    """Write a file of samples again with another column `correct`; gives its record for the manifest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    new = path.with_name(f"{path.name}.new")
    source, table = pq.ParquetFile(path), ParquetFile(new, *pair_schema("samples"))
    try:
        start = 0
        for group in range(source.num_row_groups):
            rows = source.read_row_group(group)
            own = pa.array(correct[start : start + rows.num_rows], pa.bool_())
            table.write(rows.set_column(rows.schema.get_field_index("correct"), "correct", own))
            start += rows.num_rows
        record = table.close()
    finally:
        table.abandon()
    new.replace(path)
    return record


def _bytes(columns: Mapping[str, Sequence[Any]]) -> int:
    """About what columns take, keys apart: a byte per character, four per number of a list."""
    values = (
        v for name, column in columns.items() if name not in {"llm", "question_id", "sample_index"} for v in column
    )
    return sum(
        len(v) if isinstance(v, str) else 4 * len(v) if isinstance(v, list) else 8 for v in values if v is not None
    )

"""Parquet files of a recording as they are written: in row groups of whole questions, in several
files where one would grow too large.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from feval.cards import FINISH_REASONS
from feval.errors import UsageError
from feval.recording.content import PairTally, PoolRows, QuestionTable, utc_time
from feval.recording.layout.files import HashedFile
from feval.recording.layout.format import LeafHash, Part, Record
from feval.recording.parts import (
    EXTRA_COLUMNS,
    PAIR_PARTS,
    POOL_PARTS,
    Columns,
    pool_columns,
    row_behind,
    spec_of,
)

FILE_BYTES = 1 << 30
"""A file that has so many bytes ends with its row group; the next question begins another."""
_MAX_TOKENS = 2**31 - 1
NARROW_GROUP_ROWS, _QUESTIONS_GROUP_ROWS = 1 << 16, 4096
_SMALLEST_TEXT_GROUP_BYTES, _LARGEST_TEXT_GROUP_BYTES, _TEXT_GROUPS = 192 << 10, 2 << 20, 512
_NARROW_GROUP_BYTES = 8 << 20

_STRING = pa.string()
_TYPES = {
    "string": _STRING,
    "float64": pa.float64(),
    "float32": pa.float32(),
    "int64": pa.int64(),
    "int32": pa.int32(),
    "bool": pa.bool_(),
    "list<float32>": pa.list_(pa.float32()),
    "list<float64>": pa.list_(pa.float64()),
    "list<choice>": pa.list_(pa.struct([("label", _STRING), ("text", _STRING)])),
    "list<mark>": pa.list_(
        pa.struct(
            [
                ("reply_offset", pa.int32()),
                ("opening", _STRING),
                ("length", pa.int32()),
                ("closing", _STRING),
            ]
        )
    ),
    "utc": pa.timestamp("us", "UTC"),
}


def schema_of(part: str) -> Any:
    """Return the Arrow schema of the files of a part."""
    spec = spec_of(part)
    keys = [] if spec.joins in {"entry", "pairs"} else [("llm", _STRING)]
    keys.append(("question_id", _STRING))
    keys += [("sample_index", pa.int32())] if spec.joins == "cots" else []
    return pa.schema([*keys, *((column.name, _TYPES[column.kind]) for column in spec.columns)])


class PartFiles:
    """Writes the rows of a part question by question, in row groups of whole questions and files of
    about `FILE_BYTES`.

    Groups of texts grow with their file, so that one text is a small read and the footer stays
    small. `claim` registers the path of a file before it is written; `leaf` is for who adds lines.
    """

    def __init__(self, claim: Callable[[str], str], root: Path, part: Part) -> None:
        self._claim, self._root, self.part, self.leaf = claim, root, part, LeafHash()
        self._spec, self._schema = spec_of(part.name), schema_of(part.name)
        self._sized = [column.name for column in self._spec.columns if column.is_sized]
        self._group_rows = (
            _QUESTIONS_GROUP_ROWS if self._spec.joins == "entry" else NARROW_GROUP_ROWS
        )
        self._records: dict[str, Record] = {}
        self._open(part.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def add(self, question: str, columns: Columns) -> None:
        """Add the rows of a question, as columns of equal length."""
        rows = len(next(iter(columns.values())))
        if not rows:
            return
        if self._file.size >= FILE_BYTES and self.part.llm is not None:
            self._continue()
        self._questions.append(question)
        self._counts.append(rows)
        for name, values in columns.items():
            self._columns.setdefault(name, []).extend(values)
        self._rows += rows
        self._size += sum(_bytes(columns[name]) for name in self._sized if name in columns)
        most = _NARROW_GROUP_BYTES
        if self._spec.grows:
            grown = min(_LARGEST_TEXT_GROUP_BYTES, self._written // _TEXT_GROUPS)
            most = max(_SMALLEST_TEXT_GROUP_BYTES, grown)
        if self._size >= most or self._rows >= self._group_rows:
            self._flush()

    def close(self) -> dict[str, Record]:
        """Finish the files; return their records for the manifest, by path."""
        self._flush()
        self._records[self._path] = self._file.close()
        return self._records

    def abandon(self) -> None:
        """Close the file that is open, whatever state it is in."""
        self._file.abandon()

    def _open(self, path: str) -> None:
        self._path = self._claim(path)
        self._file = ParquetFile(self._root / path, self.part.name)
        self._written = 0
        self._start_group()

    def _start_group(self) -> None:
        self._questions: list[str] = []
        self._counts: list[int] = []
        self._columns: dict[str, list[Any]] = {}
        self._rows = self._size = 0

    def _continue(self) -> None:
        """End the file and begin the next; the first one gets its number."""
        record = self._file.close()
        if not self._records:
            single, self._path = self._path, self._claim(self.part.numbered_path(0))
            (self._root / self._path).parent.mkdir(exist_ok=True)
            (self._root / single).rename(self._root / self._path)
        self._records[self._path] = record
        self._open(self.part.numbered_path(len(self._records)))

    def _flush(self) -> None:
        """Write the rows that wait as one row group."""
        if self._rows:
            questions = chain.from_iterable(map(repeat, self._questions, self._counts))
            columns: Record = {"question_id": list(questions), **self._columns}
            if self.part.llm is not None:
                columns["llm"] = pa.repeat(self.part.llm, self._rows)
            if self._spec.joins == "cots":
                columns["sample_index"] = list(chain.from_iterable(map(range, self._counts)))
            for column in self._spec.columns:
                if column.kind == "utc":
                    columns[column.name] = [t and utc_time(t) for t in columns[column.name]]
            self._file.write(pa.table(columns, schema=self._schema))
            self._written += self._size
        self._start_group()


class ParquetFile:
    """One Parquet file of a part, written in row groups."""

    def __init__(self, path: Path, part: str) -> None:
        spec = spec_of(part)
        encoded = {"question_id", "llm"} if spec.joins != "entry" else set()
        encoded |= {
            column.name for column in spec.columns if column.kind == "string" and not column.is_long
        }
        schema = schema_of(part)
        self._file = HashedFile(path)
        self._rows = 0
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            compression_level=3,
            use_dictionary=[name for name in schema.names if name in encoded],
            write_page_index=True,
            write_page_checksum=True,
            use_content_defined_chunking=True,
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.size

    def write(self, table: Any) -> None:
        """Write an Arrow table as one row group, behind what was written before."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._rows += table.num_rows

    def close(self) -> Record:
        """Finish the file; return its record for the manifest."""
        self._writer.close()
        self._file.close()
        return self._file.record(self._rows)

    def abandon(self) -> None:
        """Give up, so that no finalizer writes to a full disk later. Nothing happens to a closed
        file.
        """
        if not self._file.closed:
            self._file.abandon()
            self._writer.close()


def _bytes(column: Sequence[Any]) -> int:
    """Estimate the bytes of a column: a byte per character, four per number of a list, eight per
    other number.
    """
    values = [value for value in column if value is not None]
    if not values or not isinstance(values[0], (str, list, tuple)):
        return 8 * len(values)
    return sum(map(len, values)) * (1 if isinstance(values[0], str) else 4)


def with_correct(path: Path, correct: Iterator[bool | None]) -> Record | None:
    """Rewrite a file of samples where its column `correct` is another than `correct`, of which its
    rows are taken; return its record for the manifest, or `None` where it is the same.
    """
    source = pq.ParquetFile(path)
    groups = range(source.num_row_groups)
    columns = [source.read_row_group(group, ["correct"]).column(0) for group in groups]
    right = [pa.array(islice(correct, len(column)), pa.bool_()) for column in columns]
    if all(own.combine_chunks().equals(other) for own, other in zip(columns, right, strict=True)):
        return None
    new = path.with_name(f"{path.name}.new")
    file = ParquetFile(new, "samples")
    try:
        for group, column in zip(groups, right, strict=True):
            rows = source.read_row_group(group)
            file.write(rows.set_column(rows.schema.get_field_index("correct"), "correct", column))
        record = file.close()
    finally:
        file.abandon()
    new.replace(path)
    return record


class PairFiles:
    """The Parquet files of the pools of one LLM on one dataset, with their leaves: three, and one
    for each channel that is used; and the `tally` of the pools.

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
        only: Collection[str],
    ) -> None:
        self._claim, self._root, self._who = claim, root, f"{llm} on {questions.dataset}"
        self._llm, self._questions = llm, questions
        self._only = {spec.name for spec in POOL_PARTS}.intersection(only)
        self._files: dict[str, PartFiles] = {}
        self._row = -1
        self._is_tree: bool | None = None
        self.tally = PairTally(questions)

    def add(self, pool: PoolRows) -> None:
        """Add a pool; its question must be known and in order (`ConflictError`), its values
        storable (`UsageError`).
        """
        ids, name = self._questions.ids, pool.question_id
        self._row = row_behind(ids, name, self._row, f"CoTs of {self._who}")
        where = f"{self._who}, question {name!r}"
        columns = self._checked_columns(pool, where)
        gold = self._questions.gold(self._row)
        for part, own in columns.items():
            if part not in self._only:
                continue
            files = self._of(part)
            files.leaf.add(spec_of(part).line(name, own), f"{where}, {part}: ")
            if part == "samples":
                right = [None if gold is None else answer == gold for answer in pool.answers]
                own["correct"] = right
            files.add(name, own)
        self.tally.add(self._row, pool)

    def close(self) -> tuple[dict[str, Record], dict[Part, str]]:
        """Finish the files; return their records and their leaves."""
        for part in self._only.intersection(PAIR_PARTS):
            self._of(part)
        records: dict[str, Record] = {}
        for files in self._files.values():
            records |= files.close()
        leaves = {files.part: files.leaf.hexdigest() for files in self._files.values()}
        return records, leaves

    def abandon(self) -> None:
        """Close the files, whatever state they are in."""
        for files in self._files.values():
            files.abandon()

    def _of(self, name: str) -> PartFiles:
        if name not in self._files:
            part = Part(name, self._questions.dataset, self._llm)
            self._files[name] = PartFiles(self._claim, self._root, part)
        return self._files[name]

    def _checked_columns(self, pool: PoolRows, where: str) -> dict[str, dict[str, Sequence[Any]]]:
        """Return the columns of a pool by part after a check that they can be stored."""
        if unknown := set(pool.extra) - set(EXTRA_COLUMNS):
            raise UsageError(
                f"{where}: unknown columns {sorted(unknown)}; known are {sorted(EXTRA_COLUMNS)}."
            )
        try:
            columns = pool_columns(pool)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
        for problem in self._problems(pool, columns):
            raise UsageError(f"{where}: {problem}.")
        self._is_tree = pool.ends is not None if pool.answers else self._is_tree
        return columns

    def _problems(self, pool: PoolRows, columns: Mapping[str, Columns]) -> Iterator[str]:
        """Yield why a pool cannot be stored."""
        lengths = [
            len(values)
            for part, own in columns.items()
            if part != "requests"
            for values in own.values()
        ]
        if len({len(pool.answers), *lengths, *map(len, pool.extra.values())}) > 1:
            yield f"the columns have different lengths, {lengths}"
        if any(not 0 <= tokens <= _MAX_TOKENS for tokens in pool.output_tokens):
            yield (
                f"output tokens should be 0 to {_MAX_TOKENS}, found"
                f" {list(pool.output_tokens)!r:.80}"
            )
        if not 0 <= (pool.prompt_tokens or 0) <= _MAX_TOKENS:
            yield f"prompt tokens should be 0 to {_MAX_TOKENS}, found {pool.prompt_tokens}"
        if problem := pool.counts_problem():
            yield (
                f"{problem}. Output tokens count reasoning, too, and prompt tokens what came from a"
                " cache, by one counter: a text's words do not count hidden reasoning. Give the"
                " counts of the provider, or leave these out"
            )
        if problem := pool.tree_problem():
            yield problem
        if pool.answers and self._is_tree not in (None, pool.ends is not None):
            yield (
                "steps of a tree, and whole CoTs on other questions; give each an LLM name of its"
                " own"
            )
        if not pool.marks_fit():
            yield "the marks of its thoughts do not fit its texts; split the raw texts again"
        if odd := set(pool.finish_reasons).difference(FINISH_REASONS):
            yield f"finish reason {min(odd)!r} is not one of {', '.join(FINISH_REASONS)}"

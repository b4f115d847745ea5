"""Write the CoTs of a recording into one file: JSON Lines that `feval import jsonl` reads back, or a table as CSV or Parquet."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from feval.errors import NotRecordedError, StorageError, UnknownNameError, UsageError
from feval.executors.tasks import results
from feval.exporters.rows import COLUMNS, columns_of, questions_of
from feval.recording.content import OPTIONAL_COLUMNS
from feval.recording.derived.blocks import Block, blocks
from feval.recording.layout.destination import scratch_beside, sync_folder
from feval.recording.layout.locate import recording_around
from feval.recording.reader import Recording, open_recording

FORMATS = ("jsonl", "csv", "parquet")

# CoTs of a block; or so many bytes as they are compressed, in memory some ten times as many.
_BLOCK_COTS, _BLOCK_BYTES = 1 << 14, 4 << 20
_BLOCKS_OF_TASK = 4  # half a second of work and more, where tasks are sent to other processes
_LIKE_TEXTS = ("texts", "reasoning", "logprobs", "probes", "requests")
_AHEAD = 2  # blocks for each worker that were written and not yet put into the file
_FORMULA, _NUMBER = r"^'*[=+\-@\t\r\n]", r"[+-]?[0-9]+([.,][0-9]+)*"
_TEXT, _FLOAT, _COUNT = pa.string(), pa.float64(), pa.int64()
_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(
        ("temperature", "sequence_logprob", *(n for n, t in OPTIONAL_COLUMNS.items() if t == "float64")), _FLOAT
    ),
    **dict.fromkeys(("token_logprobs", "token_confidences"), pa.list_(pa.float32())),
    **dict.fromkeys(("max_tokens", "prompt_tokens", "sample", "tokens", "turn_prompt_tokens"), _COUNT),
    **{name: _COUNT for name, type_name in OPTIONAL_COLUMNS.items() if type_name == "int64"},
    **dict.fromkeys(("correct", "ends"), pa.bool_()),
    "choices": pa.list_(pa.struct([("label", _TEXT), ("text", _TEXT)])),
    **dict.fromkeys(("prompt", "turn_messages"), pa.list_(pa.struct([("role", _TEXT), ("content", _TEXT)]))),
    "probes": pa.list_(
        pa.struct(
            [("offset", _COUNT), ("answer", _TEXT), ("text", _TEXT), ("tokens", _COUNT), ("confidence", pa.float32())]
        )
    ),
}
"""Column -> its type in Parquet; those left out are texts, and scores have a column for each scorer."""


@dataclass(frozen=True, slots=True)
class Export:
    """A table that was written.

    Attributes:
        path: the file.
        rows: of the table; of JSON Lines the CoTs.
        columns: their names.
        left_out: sentences about what the recording has and the table has not.
    """

    path: Path
    rows: int
    columns: tuple[str, ...]
    left_out: tuple[str, ...]


def export_recording(
    recording: str | Path,
    out: str | Path,
    to: str,
    *,
    datasets: Sequence[str] | None = None,
    llms: Sequence[str] | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Export:
    """Write a table with a row for each CoT, or step of a tree; or JSON Lines, a line for each question and LLM.

    The bytes do not depend on the executor.

    Args:
        recording: the folder to read.
        out: the file to make.
        to: one of `FORMATS`.
        datasets: `None` for all. JSON Lines have one.
        llms: `None` for all.
        executor: writes blocks of rows, see `feval.executors`; its processes read the recording at the same path. `None` for
            this process.
        progress: called with (tasks done, tasks in all).

    Raises:
        UnknownNameError: no such format.
        UsageError: several datasets in one file of JSON Lines.
        NotRecordedError: a dataset or LLM that the recording lacks.
        RecordingError: the recording cannot be read.
        StorageError: `out` exists already, or cannot be written.
    """
    if to not in FORMATS:
        raise UnknownNameError.of("format", to, FORMATS)
    opened, out = open_recording(recording), Path(out)
    pairs = _pairs(opened, datasets, llms)
    if to == "jsonl" and len({dataset for dataset, _ in pairs}) > 1:
        names = ", ".join(dict.fromkeys(dataset for dataset, _ in pairs))
        raise UsageError(
            f"JSON Lines have one dataset in a file, as `feval import jsonl` reads them. Choose one of {names}."
        )
    has = set().union(*(columns_of(opened, *pair) for pair in pairs))
    columns = tuple(name for name in COLUMNS if name in has - ({"dataset"} if to == "jsonl" else set()))
    if to != "jsonl":
        columns = tuple(_flat(opened, pairs, columns))
    parts, together = (
        [block for pair in pairs for block in _blocks(opened, *pair)],
        1 if executor is None else _BLOCKS_OF_TASK,
    )
    tasks = [(parts[first : first + together], to, columns) for first in range(0, len(parts), together)]
    with _NewFile(out) as file, ExitStack() as stack:
        table = (
            stack.enter_context(pq.ParquetWriter(file, _schema(columns), compression="zstd"))
            if to == "parquet"
            else None
        )
        if to == "csv":
            file.write(",".join('"{}"'.format(name.replace('"', '""')) for name in columns).encode() + b"\n")
        rows = 0
        for count, part in chain.from_iterable(results(_parts, tasks, executor, progress, _AHEAD)):
            rows += count
            if table is None:
                file.write(part)
            elif count:
                table.write_table(pyarrow.ipc.open_stream(part).read_all(), count)
    return Export(out, rows, columns, tuple(_left_out(opened, pairs)))


def _pairs(
    recording: Recording, datasets: Collection[str] | None, llms: Collection[str] | None
) -> list[tuple[str, str]]:
    for dataset in datasets or ():
        recording.require(dataset)
    known = {llm for dataset, llm in recording.manifest.pairs if datasets is None or dataset in datasets}
    for llm in llms or ():
        if llm not in known:
            raise NotRecordedError(
                f"{recording.path} holds no CoTs of {llm!r} there. It holds {', '.join(sorted(known)) or 'none'}."
            )
    pairs = [
        (dataset, llm)
        for dataset, llm in recording.manifest.pairs
        if (datasets is None or dataset in datasets) and (llms is None or llm in llms)
    ]
    if not pairs:
        raise NotRecordedError(f"{recording.path} holds no CoTs of any LLM there, so there is nothing to export.")
    return pairs


def _flat(recording: Recording, pairs: Sequence[tuple[str, str]], columns: Sequence[str]) -> Iterator[str]:
    """Yield the columns of a flat table: scores have one for each scorer, such as `score.length`."""
    scorers = dict.fromkeys(name for pair in pairs for name in recording.scorers(*pair))
    for name in columns:
        if name in {"score", "step_scores"}:
            yield from (f"{name}.{scorer}" for scorer in scorers)
        else:
            yield name


def _blocks(recording: Recording, dataset: str, llm: str) -> Iterator[Block]:
    files = [path for part in _LIKE_TEXTS for path in recording.files(part, dataset, llm)]
    size = sum(recording.file_record(path)["bytes"] for path in files)
    questions = recording.manifest.datasets[dataset]["questions"]
    most = max(1, _BLOCK_BYTES * questions // max(size, 1))
    yield from blocks(recording, dataset, llm, cots=_BLOCK_COTS, most_questions=most)


def _parts(blocks_of_task: Sequence[Block], to: str, columns: Sequence[str]) -> list[tuple[int, bytes]]:
    """Make the rows of some blocks: a task."""
    return [_part(block, to, columns) for block in blocks_of_task]


def _part(block: Block, to: str, columns: Sequence[str]) -> tuple[int, bytes]:
    """Make the rows of a block. Returns how many, and the bytes of the file, or of Arrow's stream for Parquet."""
    if to == "jsonl":
        return _lines(block)
    flat: dict[str, list[Any]] = {name: [] for name in columns}
    for about, cots, values in questions_of(block):
        shared = _flattened(about)
        own = {name: cell for column, cells in values.items() for name, cell in _by_scorer(column, cells, columns)}
        for name, column in flat.items():
            column.extend(own[name] if name in own else repeat(shared.get(name), cots))
    schema = _schema(columns)
    table = pa.Table.from_arrays([pa.array(flat[field.name], field.type) for field in schema], schema=schema)
    made = pa.BufferOutputStream()
    if to == "csv":
        pyarrow.csv.write_csv(_for_csv(table), made, pyarrow.csv.WriteOptions(include_header=False))
    else:
        with pyarrow.ipc.new_stream(made, schema) as stream:
            stream.write_table(table)
    return table.num_rows, made.getvalue().to_pybytes()


def _lines(block: Block) -> tuple[int, bytes]:
    """A line for each question of a block, as `feval import jsonl` reads them: without what is not known."""
    lines, count = [], 0
    for about, cots, columns in questions_of(block):
        samples = [
            {
                name: value
                for name, value in zip(columns, cot, strict=True)
                if value is not None or (name == "answer" and own_answer)
            }
            for own_answer, *cot in zip(columns.get("ends", repeat(True, cots)), *columns.values(), strict=True)
        ]
        line = {name: value for name, value in about.items() if value is not None and name != "dataset"}
        lines.append(orjson.dumps(line | {"steps" if "ends" in columns else "samples": samples}) + b"\n")
        count += cots
    return count, b"".join(lines)


def _flattened(about: dict[str, Any]) -> dict[str, Any]:
    decoding = about.get("decoding")
    return about | {"decoding": None if decoding is None else orjson.dumps(decoding).decode()}


def _by_scorer(column: str, cells: Sequence[Any], columns: Sequence[str]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the columns of a flat table that a column becomes, with their cells."""
    if column not in {"score", "step_scores"}:
        yield column, cells
        return
    for name in columns:
        kind, _, scorer = name.partition(".")
        if kind == column:
            yield name, [None if cell is None else cell.get(scorer) for cell in cells]


def _for_csv(table: pa.Table) -> pa.Table:
    """Return a table whose nested values are JSON, and which has no text that a spreadsheet would take for a formula."""
    for place, field in enumerate(table.schema):
        cells = table.column(place)
        if pa.types.is_nested(field.type):
            texts = [None if cell is None else orjson.dumps(cell).decode() for cell in cells.to_pylist()]
        elif field.type == _TEXT and pc.any(pc.match_substring_regex(cells, _FORMULA)).as_py():
            texts = [_harmless(cell) for cell in cells.to_pylist()]
        else:
            continue
        table = table.set_column(place, field.name, pa.array(texts, _TEXT))
    return table


def _harmless(cell: str | None) -> str | None:
    return f"'{cell}" if cell is not None and re.match(_FORMULA, cell) and not re.fullmatch(_NUMBER, cell) else cell


def _schema(columns: Sequence[str]) -> pa.Schema:
    scores = {"score": _FLOAT, "step_scores": pa.list_(_FLOAT)}
    types = {name: scores.get(name.split(".")[0], _TYPES.get(name, _TEXT)) for name in columns}
    return pa.schema(list(types.items()))


def _left_out(recording: Recording, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    if any(recording.scorers(*pair) for pair in pairs):
        yield "Of scorers, settings, replies and tokens were left out."
    yield "Title, licence, prices, notes and hash of the recording were left out."


class _NewFile:
    """A file that is hidden until it is whole, and takes the place of no other."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def __enter__(self) -> BinaryIO:
        if os.path.lexists(self._out):
            raise StorageError(f"{self._out} exists already; an export overwrites nothing. Name another file.")
        parent = self._out.absolute().parent
        if (holder := recording_around(parent)) is not None:
            raise StorageError(
                f"{self._out} would lie inside the recording {holder}, which never changes. Name another file."
            )
        if not parent.is_dir():
            raise StorageError(
                f"{self._out} cannot be written: there is no folder {parent}. Make it, or name another file."
            )
        self._scratch, self._lock = scratch_beside(parent / self._out.name, lambda path: path.touch(exist_ok=False))
        self._file = self._scratch.open("wb")
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._publish()
                sync_folder(self._out.absolute().parent)
        except FileExistsError as error:
            raise StorageError(f"{self._out} was made by somebody else in the meantime. Name another file.") from error
        finally:
            self._file.close()
            self._scratch.unlink(missing_ok=True)
            os.close(self._lock)

    def _publish(self) -> None:
        try:
            os.link(self._scratch, self._out)  # a rename would replace a file that was made in the meantime
        except FileExistsError:
            raise
        except OSError:  # a disk without links
            self._scratch.rename(self._out)

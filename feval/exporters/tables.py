"""Write the CoTs of a recording into one file: JSON Lines that `feval import jsonl` reads back, or
a table as CSV or Parquet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from itertools import repeat
from pathlib import Path
from typing import BinaryIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from feval.answers import EXTRACTOR_VERSION
from feval.arguments import checked
from feval.cards.tokens import USAGE
from feval.errors import StorageError, UsageError, require_known
from feval.executors import UncountedProgress, reports, results
from feval.exporters.arrow import (
    AHEAD,
    COLUMNS,
    TEXT,
    Export,
    arrow_table,
    blocks_of,
    columns_of,
    facts,
    flat_columns,
    questions_of,
    schema,
    without_rows_of,
)
from feval.exporters.every_eval_ever import export_every_eval_ever
from feval.importers.exported import FACTS
from feval.importers.files import shortest_floats
from feval.recording import Recording, open_recording, recording_around, scratch_beside, sync_folder
from feval.recording.derived.rewriting import Block
from feval.recording.reader import pairs_of
from feval.values import without_none

FORMATS = ("jsonl", "csv", "parquet", "every-eval-ever")

_FORMULA, _NUMBER = r"^'*[=+\-@\t\r\n]", r"[+-]?[0-9]+([.,][0-9]+)*"


@checked
@reports("exporting")
def export_recording(
    recording: str | Path,
    out: str | Path,
    to: str,
    *,
    datasets: Sequence[str] | None = None,
    llms: Sequence[str] | None = None,
    executor: Executor | None = None,
    progress: UncountedProgress | None = None,
) -> Export:
    """Write a table with a row for each CoT, or step of a tree; JSON Lines; or a folder of records.

    JSON Lines have a line for each question and LLM; records have files for each LLM on a dataset.

    The bytes do not depend on the executor.

    Args:
        recording: the folder to read.
        out: the file to make; for `every-eval-ever` the folder.
        to: one of `FORMATS`.
        datasets: `None` for all. JSON Lines have one.
        llms: `None` for all.
        executor: writes blocks of rows, see `feval.executors`; its processes read the recording at
            the same path. `None` for this process.
        progress: called with (tasks done, tasks in all).

    Raises:
        UnknownNameError: no such format.
        UsageError: several datasets in one file of JSON Lines.
        NotRecordedError: a dataset or LLM that the recording lacks; or golds that records need.
        RecordingError: the recording cannot be read.
        StorageError: `out` exists already, or cannot be written.
    """
    require_known("format", to, FORMATS)
    opened, out = open_recording(recording), Path(out)
    if to == "every-eval-ever":
        return export_every_eval_ever(opened, out, datasets, llms, executor, progress)
    pairs = pairs_of(opened, datasets, llms)
    names = dict.fromkeys(dataset for dataset, _ in pairs)
    if to == "jsonl" and len(names) > 1:
        raise UsageError(
            "JSON Lines have one dataset in a file, as `feval import jsonl` reads them. Choose one"
            f" of {', '.join(names)}."
        )
    if to == "jsonl":
        has = set().union(*(columns_of(opened, *pair) for pair in pairs))
        columns = tuple(name for name in COLUMNS if name in has - {"dataset"})
    else:
        columns = tuple(flat_columns(opened, pairs))
    tasks = [(block, to, columns) for pair in pairs for block in blocks_of(opened, *pair)]
    with _new_file(out) as file, ExitStack() as stack:
        table = (
            stack.enter_context(pq.ParquetWriter(file, schema(columns), compression="zstd"))
            if to == "parquet"
            else None
        )
        if to == "csv":
            file.write(
                ",".join('"{}"'.format(name.replace('"', '""')) for name in columns).encode()
                + b"\n"
            )
        rows, without_rows = 0, []
        for count, part in results(_part, tasks, executor, progress, AHEAD):
            rows += count
            if table is None:
                file.write(part)
            else:
                block = pyarrow.ipc.open_stream(part).read_all()
                without_rows += without_rows_of(block)
                if count:
                    table.write_table(block.replace_schema_metadata(None), count)
        if table is not None:
            table.add_key_value_metadata({FACTS: facts(opened, pairs, without_rows)})
    return Export(out, rows, columns, tuple(_left_out(opened, pairs, to)))


def _part(block: Block, to: str, columns: Sequence[str]) -> tuple[int, bytes]:
    """Make the rows of a block: a task. Returns how many, and the bytes of the file, or of Arrow's
    stream for Parquet.
    """
    if to == "jsonl":
        return _lines(block)
    table = arrow_table(block, columns)
    made = pa.BufferOutputStream()
    if to == "csv":
        pyarrow.csv.write_csv(_for_csv(table), made, pyarrow.csv.WriteOptions(include_header=False))
    else:
        with pyarrow.ipc.new_stream(made, table.schema) as stream:
            stream.write_table(table)
    return table.num_rows, made.getvalue().to_pybytes()


def _lines(block: Block) -> tuple[int, bytes]:
    """A line for each question of a block, as `feval import jsonl` reads them: without what is not
    known.
    """
    lines, count = [], 0
    for about, cots, columns in questions_of(block):
        samples = [
            {
                name: value
                for name, value in zip(columns, cot, strict=True)
                if value is not None or (name == "answer" and own_answer)
            }
            for own_answer, *cot in zip(
                columns.get("ends", repeat(True, cots)), *columns.values(), strict=True
            )
        ]
        line = without_none(about | {"dataset": None})
        lines.append(
            orjson.dumps(line | {"steps" if "ends" in columns else "samples": samples}) + b"\n"
        )
        count += cots
    return count, b"".join(lines)


def _for_csv(table: pa.Table) -> pa.Table:
    """Return a table whose nested values are JSON, and which has no text that a spreadsheet would
    take for a formula.
    """
    table = shortest_floats(table)
    for place, field in enumerate(table.schema):
        cells = table.column(place)
        if pa.types.is_nested(field.type):
            texts = [
                None if cell is None else orjson.dumps(cell).decode() for cell in cells.to_pylist()
            ]
        elif field.type == TEXT and pc.any(pc.match_substring_regex(cells, _FORMULA)).as_py():
            formula, number = re.compile(_FORMULA), re.compile(_NUMBER)
            texts = [
                f"'{cell}" if cell and formula.match(cell) and not number.fullmatch(cell) else cell
                for cell in cells.to_pylist()
            ]
        else:
            continue
        table = table.set_column(place, field.name, pa.array(texts, TEXT))
    return table


def _left_out(recording: Recording, pairs: Sequence[tuple[str, str]], to: str) -> Iterator[str]:
    if to != "parquet":
        infos = {dataset: recording.dataset_info(dataset) for dataset, _ in pairs}.values()
        extractors = {info.extractor for info in infos} - {EXTRACTOR_VERSION}
        lost = [
            "Answer kind",
            "equality",
            *(["system prompt"] if any(info.system_prompt for info in infos) else []),
        ]
        if extractors:
            lost.append(f"the extraction of answers ({', '.join(sorted(extractors))})")
        lost += ["token counters"] * any(recording.counter(*pair) != USAGE for pair in pairs)
        asked = all(recording.manifest.pairs[pair]["smallest_pool"] for pair in pairs)
        if to == "csv" and not asked:
            lost.append("questions without CoTs")
        yield f"{', '.join(lost[:-1])} and {lost[-1]} were left out, which Parquet keeps."
    if any(recording.scorers(*pair) for pair in pairs):
        yield "Of scorers, settings, replies and tokens were left out."
    yield "Title, licence, prices, notes and hash of the recording were left out."


@contextmanager
def _new_file(out: Path) -> Iterator[BinaryIO]:
    """A file that is hidden until it is whole, and takes the place of no other."""
    parent = out.absolute().parent
    if os.path.lexists(out):
        raise StorageError(
            f"{out} exists already; an export overwrites nothing. Name another file."
        )
    if (holder := recording_around(parent)) is not None:
        raise StorageError(
            f"{out} would lie inside the recording {holder}, which never changes. Name another"
            " file."
        )
    if not parent.is_dir():
        raise StorageError(
            f"{out} cannot be written: there is no folder {parent}. Make it, or name another file."
        )
    scratch, lock = scratch_beside(parent / out.name, lambda path: path.touch(exist_ok=False))
    try:
        with scratch.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            # a rename would replace a file that was made in the meantime
            os.link(scratch, out)
        except FileExistsError as error:
            raise StorageError(
                f"{out} was made by somebody else in the meantime. Name another file."
            ) from error
        except OSError:  # a disk without links
            scratch.rename(out)
        sync_folder(parent)
    finally:
        scratch.unlink(missing_ok=True)
        os.close(lock)

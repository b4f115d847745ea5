"""Write the CoTs of a recording for another tool: for each LLM on a dataset a file of lines, and a summary beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from feval.errors import ConflictError, NotRecordedError, UsageError
from feval.executors.tasks import results
from feval.exporters import every_eval_ever, lm_eval
from feval.exporters.parts import AHEAD, Export, PairFiles, blocks_of, pairs_of, right_shares
from feval.recording.derived.blocks import Block
from feval.recording.layout.destination import NewFolder
from feval.recording.layout.hashed import HashedFile
from feval.recording.reader import Recording

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """A layout of another tool.

    Attributes:
        lines: a block -> how many CoTs, and the bytes of their lines.
        files: recording, dataset, LLM -> the names of their files.
        summary: recording, pair, record of the lines (rows, bytes, sha256), an earlier summary of the same name -> its content.
        columns: the members of a line.
        left_out: sentences about what the layout has no place for.
        needs_golds: whether only CoTs with a verdict have a place.
    """

    lines: Callable[[Block], tuple[int, bytes]]
    files: Callable[[Recording, str, str], PairFiles]
    summary: Callable[[Recording, Pair, dict[str, Any], dict[str, Any] | None], dict[str, Any]]
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    needs_golds: bool


FOLDERS: Mapping[str, FolderFormat] = {
    name: FolderFormat(layout.lines, layout.files, layout.summary, layout.COLUMNS, layout.LEFT_OUT, needs_golds)
    for name, layout, needs_golds in (("lm-eval", lm_eval, False), ("every-eval-ever", every_eval_ever, True))
}


def export_folder(
    recording: Recording,
    out: Path,
    to: str,
    datasets: Sequence[str] | None,
    llms: Sequence[str] | None,
    executor: Executor | None,
    progress: Callable[[int, int | None], None] | None,
) -> Export:
    """Write a folder, as `export_recording` does."""
    layout, pairs = FOLDERS[to], pairs_of(recording, datasets, llms)
    for pair in pairs:
        _check(recording, pair, to, layout)
    counts = [len(list(blocks_of(recording, *pair))) for pair in pairs]
    summaries: dict[Path, dict[str, Any]] = {}
    rows = done = 0
    with closing(_Folder(out)) as folder:
        for pair, count in zip(pairs, counts, strict=True):
            names = layout.files(recording, *pair)
            if (folder.path / names.samples).exists():
                raise ConflictError(
                    f"Two LLMs would be written into {names.samples}; export one of them at a time, --llm NAME."
                )
            record = _write(
                folder.path / names.samples, to, blocks_of(recording, *pair), executor, progress, done, sum(counts)
            )
            summary = folder.path / names.summary
            summaries[summary] = layout.summary(recording, pair, record, summaries.get(summary))
            rows, done = rows + record["rows"], done + count
        for path, content in summaries.items():
            _put(path, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
        folder.publish()
    return Export(out, rows, layout.columns, layout.left_out)


class _Folder(NewFolder):
    """A new folder of an export, which is removed if it was not published."""

    def __init__(self, out: Path) -> None:
        super().__init__(out, "an export")

    close = NewFolder.remove


def _check(recording: Recording, pair: Pair, to: str, layout: FolderFormat) -> None:
    dataset, llm = pair
    if recording.has_steps(*pair):
        shape = "conversations of several turns" if recording.manifest.pairs[pair].get("turns") else "trees of steps"
        raise UsageError(
            f"{llm} was recorded on {dataset} as {shape}, which {to} has no place for. Name the LLMs to export, --llm, or "
            "export a table."
        )
    if layout.needs_golds and not len(right_shares(recording, *pair)):
        raise NotRecordedError(
            f"No question of {dataset} that {llm} answered has a gold answer, and {to} holds right and wrong answers. Import the "
            "golds first, or export a table."
        )


def _write(
    path: Path,
    to: str,
    blocks: Any,
    executor: Executor | None,
    progress: Callable[[int, int | None], None] | None,
    done: int,
    total: int,
) -> dict[str, Any]:
    """Write the lines of some blocks; return rows, bytes and hash of the file."""
    file, rows = HashedFile(path), 0
    report = None if progress is None else lambda now, _: progress(done + now, total)
    try:
        for count, data in results(_lines, ((to, block) for block in blocks), executor, report, AHEAD):
            file.write(data)
            rows += count
        file.close()
    finally:
        file.abandon()
    return file.record(rows)


def _lines(to: str, block: Block) -> tuple[int, bytes]:
    """Make the lines of a block: a task."""
    return FOLDERS[to].lines(block)


def _put(path: Path, data: bytes) -> None:
    file = HashedFile(path)
    file.write(data)
    file.close()

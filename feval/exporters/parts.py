"""What is exported of a recording: which LLMs on which datasets, in which blocks, and what came of
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from feval.errors import NotRecordedError
from feval.recording.derived.rewriting import Block, blocks
from feval.recording.reader import Recording

AHEAD = 2
"""Blocks for each worker that were written and not yet put into the file."""

# CoTs of a block; or so many bytes as they are compressed, in memory some ten times as many.
_BLOCK_COTS, _BLOCK_BYTES = 1 << 14, 4 << 20
_LIKE_TEXTS = ("texts", "reasoning", "logprobs", "probes", "turns", "requests")


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


def pairs_of(
    recording: Recording, datasets: Collection[str] | None, llms: Collection[str] | None
) -> list[tuple[str, str]]:
    """Return the pairs of dataset and LLM that were chosen; `None` for all."""
    for dataset in datasets or ():
        recording.require(dataset)
    known = {
        llm for dataset, llm in recording.manifest.pairs if datasets is None or dataset in datasets
    }
    for llm in llms or ():
        if llm not in known:
            raise NotRecordedError(
                f"{recording.path} holds no CoTs of {llm!r} there. It holds"
                f" {', '.join(sorted(known)) or 'none'}."
            )
    pairs = [
        (dataset, llm)
        for dataset, llm in recording.manifest.pairs
        if (datasets is None or dataset in datasets) and (llms is None or llm in llms)
    ]
    if not pairs:
        raise NotRecordedError(
            f"{recording.path} holds no CoTs of any LLM there, so there is nothing to export."
        )
    return pairs


def blocks_of(recording: Recording, dataset: str, llm: str) -> Iterator[Block]:
    """Yield all questions of an LLM on a dataset, in blocks that fit into memory."""
    files = [path for part in _LIKE_TEXTS for path in recording.files(part, dataset, llm)]
    size = sum(recording.file_record(path)["bytes"] for path in files)
    questions = recording.manifest.datasets[dataset]["questions"]
    most = max(1, _BLOCK_BYTES * questions // max(size, 1))
    yield from blocks(recording, dataset, llm, cots=_BLOCK_COTS, most_questions=most)

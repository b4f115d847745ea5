"""A small recording of turns, written out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from small import pool, question

from feval.recording import DatasetInfo, LLMInfo, PoolRows, RecordingWriter

REVISE, WHY = ('[{"role":"user","content":"Revise."}]', '[{"role":"user","content":"Why?"}]')


def chains(index: int) -> PoolRows:
    """Two CoTs: the first is replied to in two ways, and one of these once more."""
    return pool(
        index,
        ["4", "5", "4", "4", "6"],
        parents=[None, None, 0, 0, 2],
        ends=[True] * 5,
        messages=[None, None, REVISE, WHY, REVISE],
        turn_prompt_tokens=[None, None, 30, 31, 50],
    )


ROWS = [chains(0), pool(1, ["4"], parents=[None], ends=[True]), chains(2)]


def write_turns(out: Path, rows: Sequence[PoolRows] = ROWS) -> Path:
    with RecordingWriter(out, operation={"name": "test"}) as writer:
        writer.add_dataset(DatasetInfo("toy", "Toy", "verbatim", "test-1"), [question(i, "4") for i in range(3)])
        writer.add_pools("toy", LLMInfo("m@revise"), "words", rows)
    return out

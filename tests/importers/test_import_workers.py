"""Several workers import what one process imports: every byte, every note, every sentence where a source is broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from foreign_sources import (
    COT,
    MMLU_KEY,
    MMLU_REPLIES,
    PUZZLES,
    archive,
    archive_members,
    details,
    dumped,
    game_entry,
    harness_line,
    inspect_log,
    inspect_sample,
    lines,
    mot_entry,
    switch_entry,
)  # fmt: skip
from importing import Import, Save
from parcels import Parcels
from small import content

from feval.importers import pools
from feval.recording import Recording

# What importers read of it: thoughts, scores, channels, prompts, unknown members, gaps, two LLMs, rows in any order.
COTS = [
    COT
    | {"id": f"q{question}", "llm": llm, "sample": 3 * sample, "text": f"<think>hm</think> The answer is {sample}."}
    | {"prompt": f"P{question}", "logprobs": [-0.5, -1], "latency": 2, "mood": sample}
    | ({"scores": {"judge": sample / 8}, "finish_reason": "length"} if question % 2 else {"reasoning": "hm"})
    for sample in range(3)
    for llm in "ab"
    for question in (3, 1, 2, 0)
]
SOURCES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "jsonl": (lines(*COTS), {"llm": None, "answers": "text", "answer_kind": "number"}),
    "feval-ttc": (archive(archive_members()), {"dataset": "gsm8k", "llm": None}),
    "mot-cascade": (dumped([mot_entry(question=f"Q: {n}") for n in range(4)]), {"answer_kind": "number"}),
    "esc": (lines(*({"question": f"Q{n}", "answer": "a", "generated_answer": ["the answer is a"]} for n in range(4))), {}),
    "coupled-mmlu": (MMLU_REPLIES, {"questions": MMLU_KEY}),
    "modelswitch": (dumped([switch_entry(), switch_entry(no=1)]), {}),
    "linc": (dumped([["True", "Error"], ["False", "Uncertain"]]), {}),
    "game24": (dumped([game_entry()]), {"questions": PUZZLES, "answer_kind": "number"}),
    "lm-eval": (lines(harness_line(), harness_line(doc_id=1)), {"answer_kind": "number"}),
    "inspect-ai": (dumped(inspect_log(inspect_sample(), inspect_sample(id=2))), {"answer_kind": "number"}),
    "lighteval": (details(), {"answer_kind": "number"}),
}  # fmt: skip


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task has one question or two."""
    monkeypatch.setattr(pools, "_BLOCK_COTS", 4)


def undated(recording: Recording) -> dict[str, Any]:
    """Every file, without the time at which the recording was made."""
    files = content(recording.path)
    manifest = json.loads(files.pop("manifest.json"))
    files.pop("README.md")
    manifest["files"].pop("README.md")
    return {**files, "manifest": manifest | {"created": "", "checksum": ""}}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "format_name",
    ["jsonl", "esc", *(pytest.param(name, marks=pytest.mark.slow) for name in [*SOURCES][1:] if name != "esc")],
)
def test_every_format_is_imported_alike(imported: Import, save: Save, format_name: str) -> None:
    source, options = SOURCES[format_name]
    if isinstance(file := options.get("questions"), bytes):
        options = options | {"questions": save("questions", file)}
    executor = Parcels()
    alone = imported(format_name, source, **options)
    together = imported(format_name, source, **options, executor=executor)
    assert undated(together) == undated(alone)
    assert executor.tasks >= 1

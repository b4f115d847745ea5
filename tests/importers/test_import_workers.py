"""Several workers import what one process imports: every byte, every note, every sentence where a
source is broken.
"""

import json
import signal
from multiprocessing import active_children

import pytest
from command_line import feval
from foreign_sources import COT, SMALL, lines
from parcels import Parcels
from small import content

from feval.errors import FevalError
from feval.executors import opened
from feval.importers import pools
from feval.recording import open_recording

# What importers read of it: thoughts, scores, channels, prompts, probes, unknown members, gaps, two
# LLMs, rows in any order.
COTS = [
    COT
    | {
        "id": f"q{question}",
        "llm": llm,
        "sample": 3 * sample,
        "text": f"<think>hm</think> The answer is {sample}.",
    }
    | {"prompt": f"P{question}", "logprobs": [-0.5, -1], "latency": 2, "mood": sample}
    | (
        {"scores": {"judge": sample / 8}, "finish_reason": "length"}
        if question % 2
        else {"reasoning": "hm"}
    )
    | {
        "probe_cue": "So:",
        "probes": [{"offset": n, "text": f"{n} or"} for n in range(1, 1 + sample)],
    }
    for sample in range(3)
    for llm in "ab"
    for question in (3, 1, 2, 0)
]
SOURCES = SMALL | {
    "jsonl": (lines(*COTS), {"llm": None, "answers": "text", "answer_kind": "number"})
}


@pytest.fixture
def small_blocks(monkeypatch):
    """A task has one question or two."""
    monkeypatch.setattr(pools, "_BLOCK_COTS", 4)


def undated(recording):
    """Every file, without the time at which the recording was made."""
    files = content(recording.path)
    manifest = json.loads(files.pop("manifest.json"))
    files.pop("README.md")
    manifest["files"].pop("README.md")
    return {**files, "manifest": manifest | {"created": "", "checksum": ""}}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "format_name", ["jsonl", *(pytest.param(name, marks=pytest.mark.slow) for name in [*SMALL])]
)
def test_every_format_is_imported_alike(imported, format_name):
    source, options = SOURCES[format_name]
    executor = Parcels()
    alone = imported(format_name, source, **options)
    together = imported(format_name, source, **options, executor=executor)
    assert undated(together) == undated(alone)
    assert executor.tasks >= 1


MANY = [COT | {"id": f"q{n % 7}", "text": f"t{n}"} for n in range(40)]

BROKEN = {
    "two prompts, behind a CoT without an answer to take": (
        lines(*({**row, "answer": None, "prompt": str(n % 7 and n)} for n, row in enumerate(MANY))),
        {},
        "question 'q0' has none; choose an answer kind",
    ),
    "a time that cannot be stored, before a CoT without text": (
        lines(MANY[0] | {"recorded_at": "noon"}, {"id": "q9", "question": "Q?", "answer": "1"}),
        {},
        "question 'q0': A time should be ISO 8601",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("source", BROKEN)
def test_what_is_wrong_with_a_source_is_the_same_sentence(imported, source):
    data, options, sentence = BROKEN[source]
    with pytest.raises(FevalError) as alone:
        imported("jsonl", data, **options)
    with pytest.raises(type(alone.value)) as together:
        imported("jsonl", data, **options, executor=Parcels())
    assert sentence in str(together.value)
    assert str(together.value) == str(alone.value)


def test_blocks_end_where_their_texts_are_large(imported, monkeypatch):
    monkeypatch.setattr(pools, "_BLOCK_BYTES", 100)
    executor = Parcels()
    imported("jsonl", [COT | {"id": n, "text": "x" * 60} for n in range(9)], executor=executor)
    assert executor.tasks == 5


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_a_process_that_is_killed_changes_nothing(imported):
    source, options = SOURCES["jsonl"]
    alone = imported("jsonl", source, **options)
    before = {*active_children()}
    with opened(2) as executor:
        killed = []

        def kill(*_):
            if not killed:
                killed.extend({*active_children()} - before)
                killed[0].kill()

        together = imported("jsonl", source, **options, executor=executor, progress=kill)
    assert undated(together) == undated(alone)
    killed[0].join()
    assert killed[0].exitcode == -signal.SIGKILL


@pytest.mark.slow
def test_the_command_line_takes_workers_and_ends_them_when_it_is_interrupted(
    imported, tmp_path, monkeypatch
):
    source, before = SOURCES["jsonl"][0], {*active_children()}
    alone = imported("jsonl", source, llm=None, answer_kind="number")
    command = "import jsonl", tmp_path / "x.jsonl", "--dataset toy --answer-kind number --workers 2"
    run = feval(*command, "--out", tmp_path / "new")
    assert run.exit_code == 0, run.output
    assert undated(open_recording(tmp_path / "new")) == undated(alone)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("feval.recording.parquet.writing.PairFiles.add", interrupted)
    run = feval(*command, "--out", tmp_path / "other")
    assert "Interrupted. Nothing half-done was left behind." in run.output
    assert not [path for path in tmp_path.iterdir() if "other" in path.name]
    assert {*active_children()} <= before

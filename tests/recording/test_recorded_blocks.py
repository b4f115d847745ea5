"""Recordings are read and read again in blocks of questions: by rows, in another order, by several
workers.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest
from small import content

from feval.errors import ConflictError
from feval.executors import opened
from feval.recording import (
    DatasetInfo,
    LLMInfo,
    PoolRows,
    Question,
    RecordingWriter,
    extract,
    open_recording,
    select,
    verify_recording,
)
from feval.recording.derived import rewriting
from feval.recording.parquet import writing

QUESTIONS = [Question(f"q{row}", f"{row} + {row}?", str(2 * row), str(2 * row)) for row in range(9)]


def pool(row, size, *, thoughts=False):
    """Some CoTs on a question: stored answers that no text gives, a text that is missing, and
    thoughts on each third question.
    """
    reasoning = [f"Hm, {row}."] * size if row % 3 == 0 and size else None
    texts = [f"The answer is {2 * row + place % 2}." for place in range(size)]
    if thoughts and row == 7 and size:
        texts[0] = "<think>The answer is 3.</think>The answer is 14."
    if row == 4 and size:
        texts[-1] = None
    answers = ["7"] * size
    seeds = {"seed": [100 * row + place for place in range(size)]}
    reasons = ["stop"] * size
    return PoolRows(
        f"q{row}", texts, answers, answers, [5] * size, reasons, "[]", 3, seeds, reasoning=reasoning
    )


def write(out, *, thoughts=False):
    with RecordingWriter(out, operation={"name": "test"}) as writer:
        writer.add_dataset(DatasetInfo("sums", "Sums", "number", "old"), QUESTIONS)
        pools = [
            pool(row, (row * 5) % 4 + (row != 8), thoughts=thoughts) for row in range(9) if row != 5
        ]
        writer.add_pools("sums", LLMInfo("alpha"), "words", pools)
        writer.add_pools("sums", LLMInfo("beta"), "words", [])
    return open_recording(out)


@pytest.fixture
def small_groups(monkeypatch):
    """Row groups of two questions or so."""
    monkeypatch.setattr(writing, "_SMALLEST_TEXT_GROUP_BYTES", 100)
    monkeypatch.setattr(writing, "_LARGEST_TEXT_GROUP_BYTES", 100)
    monkeypatch.setattr(writing, "NARROW_GROUP_ROWS", 4)


@pytest.mark.usefixtures("small_groups")
def test_the_pools_of_some_rows_are_those_of_all(tmp_path):
    recording = write(tmp_path / "r")
    pools = {one.question_id: one for one in recording.pools("sums", "alpha")}
    for first in range(10):
        for stop in range(first, 10):
            expected = [
                pools[question.id] for question in QUESTIONS[first:stop] if question.id in pools
            ]
            assert list(recording.pools("sums", "alpha", range(first, stop))) == expected
            assert (
                list(recording.scan_questions("sums", range(first, stop))) == QUESTIONS[first:stop]
            )
    assert list(recording.pools("sums", "beta", range(2, 5))) == []


def workers(kind):
    return ThreadPoolExecutor(3) if kind == "threads" else opened(2)


@pytest.mark.parametrize("kind", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [{}, {"source": "stored"}, {"answer_kind": "text"}])
def test_workers_extract_the_same_answers(tmp_path, monkeypatch, kind, options):
    monkeypatch.setattr(rewriting, "_BLOCK_COTS", 3)
    recording = write(tmp_path / "r", thoughts=True)
    assert len(list(rewriting.blocks(recording, "sums", "alpha"))) > 3
    alone = extract(recording.path, tmp_path / "alone", **options)
    with workers(kind) as executor:
        together = extract(recording.path, tmp_path / "together", executor=executor, **options)
    assert together.recording_hash == alone.recording_hash != recording.hash
    assert asdict(together) | {"path": alone.path} == asdict(alone)
    dated = {"README.md", "manifest.json"}
    mine, theirs = (
        {path: data for path, data in content(r.path).items() if path not in dated}
        for r in (together, alone)
    )
    assert mine == theirs


def test_a_worker_that_finds_another_recording_says_so(tmp_path):
    block = next(rewriting.blocks(write(tmp_path / "r"), "sums", "alpha"))
    with pytest.raises(ConflictError, match="All workers must see the same files at this path"):
        list(block._replace(recording_hash="0" * 64).texts())


@pytest.mark.usefixtures("small_groups")
def test_a_selection_links_what_stays_whole(tmp_path):
    recording = write(tmp_path / "r")
    select(recording.path, tmp_path / "all", datasets=["sums"])
    select(recording.path, tmp_path / "one", llms=["alpha"])
    both, one = open_recording(tmp_path / "all"), open_recording(tmp_path / "one")
    assert both.hash == recording.hash != one.hash
    for made in (both, one):
        linked = [
            path
            for path in made.manifest.files
            if (made.path / path).samefile(recording.path / path)
        ]
        assert {
            "texts/sums/alpha.parquet",
            "samples/sums/alpha.parquet",
            "reasoning/sums/alpha.parquet",
        } <= {*linked}
        assert list(made.pools("sums", "alpha")) == list(recording.pools("sums", "alpha"))
        assert verify_recording(made.path).ok
    assert one.llm_names("sums") == ["alpha"]

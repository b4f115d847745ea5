"""Merging by links: recordings of one LLM on different questions become one, and files are not
written again.
"""

import os
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from small import content, in_parts, letters, pool, restate, scored_pool, write_rows

from feval.errors import ConflictError, DamagedRecordingError
from feval.recording import DatasetInfo, LLMInfo, merge, open_recording, verify_recording
from feval.recording.derived import rewriting

ANSWERS = letters("44-", "75", "", "4491", "8", "33")
GOLDS = ["4", "5", "6", None, "8", "3"]


def shard(
    out,
    rows,
    *,
    llms=(LLMInfo("alpha"),),  # noqa: B008  frozen
    golds=GOLDS,
    equality="normal-form",
    counter="words",
    others=(),
):
    """A recording of some questions with thoughts, log-probabilities and scores; of `others` with a
    request and no CoT.
    """
    rows = list(rows)
    everything = sorted({*rows, *others}) if others else rows
    made = {row: scored_pool("alpha", row, ANSWERS[row]) for row in rows}
    thoughts = {0: ["Hm", None, "Ah"], 4: ["z"]}
    pools = [
        replace(made[row][0], reasoning=thoughts.get(row)) if row in made else pool(row, [])
        for row in everything
    ]
    info = DatasetInfo("toy", "Toy", "number", "test-1", equality=equality)
    scores = {llm.name: [made[row][1] for row in everything if row in made] for llm in llms}
    own = {row: golds[row] for row in everything}
    return write_rows(
        out, own, *((llm, pools) for llm in llms), info=info, counter=counter, scores=scores
    )


def inodes(folder):
    return {name: (folder / name).stat().st_ino for name in content(folder)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return shard(tmp_path_factory.mktemp("whole") / "whole", range(6))


def test_recordings_of_one_llm_on_different_questions_are_joined_by_links(whole, tmp_path):
    parents = [
        shard(tmp_path / "one", [0, 1, 2]),
        in_parts(shard(tmp_path / "t", [3]), tmp_path / "two", {"texts": 1}),
    ]
    parents.append(shard(tmp_path / "three", [4, 5]))
    before = [content(parent) for parent in parents]
    merged = merge(parents, tmp_path / "merged")
    recording = open_recording(merged)
    assert recording.hash == open_recording(whole).hash
    assert verify_recording(merged).problems == ()
    assert recording.files("texts", "toy", "alpha") == [
        f"texts/toy/alpha/part-0000{n}.parquet" for n in range(3)
    ]
    assert len(recording.files("reasoning", "toy", "alpha")) == 2
    assert [open_recording(each).manifest.raw["features"] for each in (parents[0], merged)] == [
        ["logprobs", "reasoning", "scores"],
        ["logprobs", "reasoning", "scores", "several-files"],
    ]
    own, linked = inodes(merged), {node for parent in parents for node in inodes(parent).values()}
    written = {name for name, node in own.items() if node not in linked}
    assert written == {
        "manifest.json",
        "README.md",
        "questions/toy.parquet",
        "votes/toy.votes",
        "votes/toy.details",
    }
    assert [content(parent) for parent in parents] == before
    assert recording.manifest.pairs == open_recording(whole).manifest.pairs
    assert recording.manifest.raw["scores"] == open_recording(whole).manifest.raw["scores"]


@pytest.mark.parametrize(
    ("rows", "others"),
    [
        (([0, 2, 4], [1, 3, 5]), range(6)),
        (([5, 0], [1, 2, 3, 4]), ()),
        (([0, 1, 2], [5, 3, 4]), ()),
        (([0, 3, 4], [1, 2, 3, 5]), ()),
    ],
)
def test_questions_in_any_order_are_joined(whole, tmp_path, rows, others):
    """Where both recordings have `others` too, without a CoT, the pool that has any is taken."""
    merged = merge(
        [shard(tmp_path / f"{n}", own, others=others) for n, own in enumerate(rows)],
        tmp_path / "merged",
    )
    assert verify_recording(merged).problems == ()
    recording = open_recording(merged)
    numbers = [int(each.id.removeprefix("toy/")) for each in recording.questions("toy")]
    assert numbers == list(dict.fromkeys([*others, *rows[0], *rows[1]]))
    for row, number in enumerate(numbers):
        assert recording.texts("toy", "alpha", row) == list(pool(number, ANSWERS[number]).texts)
    if others:
        assert recording.hash == open_recording(whole).hash


def test_an_llm_that_one_recording_has_is_linked_beside_others(tmp_path):
    alone = shard(tmp_path / "one", range(6))
    beside = shard(tmp_path / "two", range(4), llms=[LLMInfo("beta"), LLMInfo("gamma")])
    merged = merge([alone, beside], tmp_path / "merged")
    assert verify_recording(merged).problems == ()
    for parent, llms in ((alone, ["alpha"]), (beside, ["beta", "gamma"])):
        for llm in llms:
            own = {name: node for name, node in inodes(parent).items() if f"/{llm}" in name}
            assert own.items() <= inodes(merged).items()
    assert open_recording(merged).manifest.pairs["toy", "beta"]["smallest_pool"] == 0
    pairs = [
        open_recording(folder).manifest.leaves["texts", "toy", "alpha"]
        for folder in (alone, merged)
    ]
    assert pairs[0] == pairs[1]


def test_a_gold_from_another_recording_changes_the_samples_only(tmp_path):
    without = shard(tmp_path / "one", range(6))
    before = content(without)
    merged = merge(
        [
            without,
            shard(tmp_path / "two", [3], llms=[LLMInfo("beta")], golds=[None, None, None, "4"]),
        ],
        tmp_path / "m",
    )
    assert verify_recording(merged).problems == ()
    changed = {
        name
        for name, node in inodes(merged).items()
        if inodes(without).get(name) not in {None, node}
    }
    assert {name for name in changed if "/alpha" in name} == {"samples/toy/alpha.parquet"}
    assert content(without) == before


def test_answers_of_joined_recordings_are_compared(tmp_path):
    """Where an equality other than normal forms joins answers, samples are written anew if one is
    correct by it.
    """
    parents = [
        shard(tmp_path / f"{n}", rows, equality="tolerance-1")
        for n, rows in enumerate(([0, 1, 2], [3, 4, 5]))
    ]
    merged = merge(parents, tmp_path / "merged")
    assert verify_recording(merged).problems == ()
    direct = shard(tmp_path / "direct", range(6), equality="tolerance-1")
    assert open_recording(merged).hash == open_recording(direct).hash
    assert (
        inodes(merged)["texts/toy/alpha/part-00001.parquet"]
        == inodes(parents[1])["texts/toy/alpha.parquet"]
    )


@pytest.mark.parametrize(
    "fields", [{"counter": "characters"}, {"llms": [LLMInfo("alpha", temperature=0.1)]}]
)
def test_contradicting_recordings_of_one_llm_are_not_joined(tmp_path, fields):
    one = shard(tmp_path / "one", [0, 3])
    with pytest.raises(ConflictError, match="with another decoding or token counter, in"):
        merge([one, shard(tmp_path / "two", [4], **fields)], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_files_are_copied_where_disks_have_no_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "another device")

    parents = [shard(tmp_path / "one", [0, 1]), shard(tmp_path / "two", [4])]
    linked = merge(parents, tmp_path / "linked")
    monkeypatch.setattr(os, "link", refuse)
    copied = merge(parents, tmp_path / "copied")
    assert {name: data for name, data in content(copied).items() if name.endswith("parquet")} == {
        name: data for name, data in content(linked).items() if name.endswith("parquet")
    }


@given(st.permutations(range(12)), st.integers(1, 12))
def test_items_come_in_order_whatever_order_they_are_read_in(places, block):
    """In one pass where they rise; else no more than a block of them waits."""
    passes = []

    def read():
        passes.append(1)
        return iter([f"item {place}" for place in places])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriting, "_BLOCK_QUESTIONS", block)
        result = list(rewriting.in_order(read, np.array(places)))  # type: ignore[arg-type]
    assert result == [(place, f"item {place}") for place in range(12)]
    assert len(passes) <= max(1, -(-12 // block))


def test_a_linked_file_without_a_column_is_damage(tmp_path):
    one, other = (shard(tmp_path / name, [0], llms=[LLMInfo(name)]) for name in ("alpha", "beta"))
    path = "samples/toy/alpha.parquet"
    table = pq.read_table(one / path).drop_columns(["answer"])
    (one / path).unlink()
    pq.write_table(table, one / path)
    restate(one, path)
    with pytest.raises(
        DamagedRecordingError,
        match=r"samples/toy/alpha\.parquet cannot be read \(it lacks answer\)",
    ):
        merge([one, other], tmp_path / "merged")

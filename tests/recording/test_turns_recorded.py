"""Turns in a recording: replies to whole CoTs are read, hashed and verified, in derived recordings
too.
"""

from dataclasses import replace

import pytest
from recorded_turns import REVISE, ROWS, WHY, chains, write_turns
from small import changed_manifest, pool

from feval.errors import DamagedRecordingError, UsageError
from feval.recording import content, extract, merge, open_recording, select, verify_recording
from feval.replay import load
from feval.report.tables.recordings import info_headline, info_tables


@pytest.fixture(scope="module")
def turns(tmp_path_factory):
    return write_turns(tmp_path_factory.mktemp("turns") / "r")


def test_turns_come_back_as_they_were_added(turns):
    recording = open_recording(turns)
    assert list(recording.pools("toy", "m@revise")) == ROWS
    assert recording.messages("toy", "m@revise", 0) == [None, None, REVISE, WHY, REVISE]
    assert recording.messages("toy", "m@revise", 1) is None
    assert verify_recording(turns).problems == ()
    manifest = recording.manifest.raw
    assert (manifest["features"], manifest["pairs"][0]["turns"]) == (["steps", "turns"], 6)
    assert manifest["pairs"][0]["depth"] == 3


def test_turns_are_read_as_arrays_and_are_no_samples(turns):
    _, [llm] = load("toy", recording=turns)
    steps = llm.pool.steps()
    assert steps.turns is not None
    assert steps.turn_prompts is not None
    assert steps.turns.tolist() == [[-1, -1, 0, 1, 0], [-1, -2, -2, -2, -2], [-1, -1, 0, 1, 0]]
    assert steps.rows([0]).turn_prompts.tolist() == [[-1, -1, 30, 31, 50]]  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="no whole CoTs"):
        llm("toy/0", 1)


def test_info_calls_turns_turns(turns):
    recording = open_recording(turns)
    assert ": 5 CoTs, 6 turns, 1 LLM" in info_headline(recording)
    [pools] = [table for table in info_tables(recording) if table.title == "pools"]
    assert [column.name for column in pools.columns][2] == "CoTs, turns"


def test_turns_that_are_missing_are_never_read_as_steps(turns, tmp_path):
    path, folder = "turns/toy/m@revise.parquet", write_turns(tmp_path / "unlisted")
    with changed_manifest(folder) as manifest:
        del manifest["files"][path], manifest["pairs"][0]["turns"]
    for derived in (
        lambda: open_recording(folder).messages("toy", "m@revise", 0),
        lambda: select(folder, tmp_path / "s", questions=["toy/0"]),
        lambda: merge([folder, turns], tmp_path / "m"),
        lambda: extract(folder, tmp_path / "x", source="stored"),
    ):
        with pytest.raises(DamagedRecordingError, match=f"does not list {path}"):
            derived()


def test_thoughts_of_turns_are_split_off_and_their_replies_read(tmp_path):
    texts = ["<think>It is 3.</think>It is 4.", "5", "<think>6", "It is 7.", "<think>8</think>"]
    source = write_turns(tmp_path / "r", [replace(chains(0), texts=texts), *ROWS[1:]])
    out = extract(source, tmp_path / "x", answer_kind="number", source="text").path
    first = next(open_recording(out).pools("toy", "m@revise"))
    assert first.answers == ["4", "5", None, "7", None]
    assert (first.texts[0], first.raw_texts()) == ("It is 4.", texts)
    assert (first.parents, first.messages) == (chains(0).parents, chains(0).messages)
    assert verify_recording(out).problems == ()


def test_the_first_places_of_conversations_are_conversations(turns, tmp_path):
    folder = select(turns, tmp_path / "s", questions=["toy/0"], samples=3)
    [first] = open_recording(folder).pools("toy", "m@revise")
    assert (first.parents, first.messages) == ([None, None, 0], [None, None, REVISE])
    assert verify_recording(folder).problems == ()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"turn_prompt_tokens": None, "prompt_tokens": 9},
            "turn 2 has None prompt tokens; those of turns are known",
        ),
        ({"messages": [REVISE, *[None] * 4]}, "turn 0 has the parent None"),
        ({"messages": None}, "step 2 goes on from step 0, which ends a solution"),
        ({"ends": [True] * 4 + [False]}, "a turn replies to a whole CoT"),
    ],
)
def test_what_replies_to_no_cot_is_refused(changes, sentence, tmp_path):
    with pytest.raises(UsageError, match=f"^m@revise on toy, question 'toy/0': .*{sentence}"):
        write_turns(tmp_path / "r", [replace(chains(0), **changes)])


def test_a_long_conversation_is_checked_in_one_pass():
    class Ends(list[bool]):
        passes = 0

        def __iter__(self):
            Ends.passes += 1
            return super().__iter__()

    turns, parents = 500, [None, *range(499)]
    messages = [None, *[REVISE] * (turns - 1)]
    tokens = [None, *[30] * (turns - 1)]
    long = pool(
        0,
        ["4"] * turns,
        parents=parents,
        ends=Ends([True] * turns),
        messages=messages,
        turn_prompt_tokens=tokens,
    )
    assert long.tree_problem() is None
    assert Ends.passes <= 2


@pytest.mark.parametrize(
    "sent",
    [
        "words",
        "5",
        "null",
        "{}",
        "[1]",
        "[{}]",
        '[{"role": 1, "content": ""}]',
        REVISE.replace("R", r"\ud800"),
    ],
)
def test_what_is_no_message_is_never_written_and_damage_when_read(sent, tmp_path, monkeypatch):
    forged = [replace(chains(0), messages=[None, None, REVISE, sent, REVISE]), *ROWS[1:]]
    with pytest.raises(
        UsageError, match="is not a list of messages, each with role and content as text"
    ):
        write_turns(tmp_path / "r", forged)
    with monkeypatch.context() as unchecked:
        unchecked.setattr(content, "checked_messages", list)
        folder = write_turns(tmp_path / "r", forged)
    for read in (
        lambda recording: recording.messages("toy", "m@revise", 0),
        lambda recording: list(recording.pools("toy", "m@revise")),
    ):
        with pytest.raises(DamagedRecordingError, match="not a list of messages"):
            read(open_recording(folder))
    assert any("not a list of messages" in problem for problem in verify_recording(folder).problems)

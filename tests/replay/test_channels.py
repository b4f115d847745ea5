"""Reasoning and log-probabilities in a recording: kept, checked, carried along; without them
nothing changes.
"""

from dataclasses import replace
from hashlib import sha256

import pytest
from small import letters, pool, write_rows, write_toy

from feval.errors import NotRecordedError, UsageError
from feval.recording import merge, open_recording, select, verify_recording

POOLS = {"alpha": letters("44-", "757"), "org/beta": [["4"], ["9", None]]}
HASH_BEFORE_CHANNELS = "b8ebff76bf813dc62eec7a6bc0ec6b7bcbce4be63e0bfde7f92a240704510c26"

RICH = replace(
    pool(1, ["7", None]),
    reasoning=["Hm", None],
    sequence_logprobs=[-0.30000000000000004, None],
    token_logprobs=[[-0.125, -0.1], None],
    token_confidences=[[1.5, 2.0], []],
)


def write(out, *pools, llm="alpha"):
    return write_rows(out, ["4"] * 3, (llm, pools), counter="usage")


@pytest.fixture
def rich(tmp_path):
    return write(tmp_path / "rich", pool(0, ["4", "4"]), RICH, pool(2, ["4"]))


def test_a_recording_without_channels_has_the_hash_it_always_had(tmp_path):
    recording = open_recording(write_toy(tmp_path / "toy", POOLS, ["4", "5"]))
    assert recording.hash == HASH_BEFORE_CHANNELS
    assert recording.channels("toy", "alpha") == []
    assert not {"reasoning", "logprobs"} & {path.name for path in recording.path.iterdir()}


def test_channels_come_back(rich):
    recording = open_recording(rich)
    assert verify_recording(rich).ok
    assert recording.channels("toy", "alpha") == ["reasoning", "logprobs"]
    plain, result, last = recording.pools("toy", "alpha")
    assert (plain, last) == (pool(0, ["4", "4"]), pool(2, ["4"]))
    assert result.reasoning == ["Hm", None]
    assert result.sequence_logprobs == [-0.30000000000000004, None]
    assert result.token_logprobs == [[-0.125, -0.10000000149011612], None]
    assert result.token_confidences == [[1.5, 2.0], []]
    ((name, columns),) = recording.scan("logprobs", "toy", "alpha")
    assert name == "toy/1"
    assert columns["token_confidences"] == [[1.5, 2.0], []]


def test_a_column_without_any_value_is_no_channel(tmp_path):
    empty = replace(
        RICH, sequence_logprobs=[None, None], token_logprobs=None, token_confidences=[None, None]
    )
    recording = open_recording(write(tmp_path / "r", empty))
    assert recording.channels("toy", "alpha") == ["reasoning"]
    with pytest.raises(NotRecordedError, match="no log-probabilities of alpha"):
        list(recording.scan("logprobs", "toy", "alpha"))


def test_what_is_read_hashes_like_what_was_written(rich, tmp_path):
    again = write(tmp_path / "again", *open_recording(rich).pools("toy", "alpha"))
    assert open_recording(again).hash == open_recording(rich).hash
    other = write(
        tmp_path / "other",
        pool(0, ["4", "4"]),
        replace(RICH, reasoning=["Ha", None]),
        pool(2, ["4"]),
    )
    assert open_recording(other).hash != open_recording(rich).hash


def test_derived_recordings_carry_channels_along(rich, tmp_path):
    beta = write(tmp_path / "beta", pool(0, ["4"]), pool(1, ["4"]), pool(2, ["4"]), llm="beta")
    merged = open_recording(merge([rich, beta], tmp_path / "merged"))
    assert list(merged.pools("toy", "alpha")) == list(open_recording(rich).pools("toy", "alpha"))
    assert merged.channels("toy", "beta") == []
    first = open_recording(select(rich, tmp_path / "first", samples=1))
    assert [p.reasoning for p in first.pools("toy", "alpha")] == [None, ["Hm"], None]
    assert verify_recording(tmp_path / "merged").ok
    assert verify_recording(tmp_path / "first").ok


def test_times_to_first_token_are_a_channel_that_a_feature_names(tmp_path):
    extra = {"duration_s": [2.5, None], "first_token_s": [0.1, None]}
    timed = replace(pool(1, ["7", None]), extra=extra)
    pools = pool(0, ["4", "4"]), timed, pool(2, ["4"])
    recording = open_recording(write(tmp_path / "timed", *pools))
    assert verify_recording(recording.path).ok
    assert list(recording.pools("toy", "alpha")) == list(pools)
    assert recording.manifest.raw["features"] == ["timings"]
    line = b'["toy/1",[0.1,null]]\n'  # by hand, from docs/recording-format.md
    leaves = dict(recording.manifest.leaves)
    assert leaves.pop(("timings", "toy", "alpha")) == sha256(line).hexdigest()
    without = write(
        tmp_path / "without",
        pools[0],
        replace(timed, extra=extra | {"first_token_s": [None, None]}),
        pools[2],
    )
    assert leaves == open_recording(without).manifest.leaves
    assert open_recording(without).manifest.raw["features"] == []
    for name, file in open_recording(without).manifest.files.items():
        assert name.startswith("README") or recording.manifest.files[name] == file
    path = select(recording.path, tmp_path / "one", samples=1)
    assert open_recording(path).manifest.raw["features"] == ["timings"]


def test_columns_of_another_length_are_refused(tmp_path):
    with pytest.raises(UsageError, match="different lengths"):
        write(tmp_path / "r", replace(RICH, reasoning=["one"]))

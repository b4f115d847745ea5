"""Tables on the Hub: the files of one table are fetched, and imported as such."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub_double import HubDouble
from hub_settings import run_feval

from feval.errors import HubError, UnpinnedWarning, UsageError
from feval.hub import fetch_table
from feval.recording import open_recording

COMMIT = "c" * 40
COT = {"question": "1 + 1?", "gold": "2", "model": "m", "text": "The answer is 2.", "tokens": 5}


@pytest.fixture
def answers(hub: HubDouble) -> HubDouble:
    shards = {
        f"data/train-0000{part}-of-00002.jsonl": json.dumps(COT | {"sample": part}).encode() + b"\n" for part in (0, 1)
    }
    other = {
        "README.md": b"# Answers\n",
        "data/test-00000-of-00001.jsonl": json.dumps(COT).encode(),
        "x.csv": b"a\n1\n",
    }
    hub.add_dataset("us/answers", shards | other, COMMIT)
    return hub


def test_the_files_of_a_split_are_one_table(answers: HubDouble, tmp_path: Path) -> None:
    out, address = tmp_path / "out", f"hf://datasets/us/answers@{COMMIT}/data/train"
    result = run_feval("import", "table", address, "--dataset", "toy", "--answer-kind", "number", "--out", out)
    assert result.exit_code == 0, result.output
    assert open_recording(out).votes("toy").llms["m"].sizes.tolist() == [2]
    assert not answers.asked("resolve.*test-00000")
    count = len(answers.requests)
    assert fetch_table(f"hf://us/answers@{COMMIT}/data/train-00000-of-00002.jsonl").is_file()
    assert len(answers.requests) == count, "what is in the cache is not asked for again"


def test_what_is_not_one_table_is_said(answers: HubDouble) -> None:
    with pytest.raises(
        UsageError, match=r"it has several: data/test-\*-of-00001.jsonl, data/train-\*-of-00002.jsonl\."
    ):
        fetch_table(f"hf://us/answers@{COMMIT}")
    with pytest.raises(UsageError, match="there is none"):
        fetch_table(f"hf://us/answers@{COMMIT}/nothing")
    with pytest.raises(HubError, match="no such repository"):
        fetch_table("hf://us/nothing/data")
    with pytest.warns(UnpinnedWarning, match=COMMIT):
        assert fetch_table("hf://us/answers/data/test").name == "test-00000-of-00001.jsonl"

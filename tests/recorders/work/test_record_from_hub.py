"""`feval record` with exemplars and the train split from the Hub: the real client against a Hub on
loopback.
"""

import json

import pytest
from command_line import feval
from hub_double import HubDouble
from huggingface_hub import close_session, constants
from recording_doubles import FakeBackend
from settings_files import settings_file
from small import parquet

from feval.cards.cards import dataset_card
from feval.hub import client
from feval.recording import open_recording, verify_recording
from recorders.work.record import record_dataset
from recorders.work.settings import RecordingSettings, load_questions, make_task

TRAIN = "main/train-00000-of-00001.parquet"
ROWS = [
    {
        "question": f"Ann has {n} pens and buys {n}. How many has she?",
        "answer": f"She has {n}+{n}=<<{n}+{n}={2 * n}>>{2 * n}.\n#### {2 * n:,}",
    }
    for n in (5, 1200, 7, 8)
]
ANSWERS = {f"She has {n}+{n}={2 * n}.\nThe answer is {2 * n}." for n in (5, 1200, 7, 8)}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with the train split at the card's own commit, an empty cache, and no waiting between
    attempts.
    """
    monkeypatch.setenv("FEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(client, "WAITS_SECONDS", (0.0, 0.0))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "FEVAL_CARDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    source = dataset_card("gsm8k").hub
    with HubDouble() as double:
        monkeypatch.setenv("HF_ENDPOINT", double.url)
        double.add_dataset(source.repository, {TRAIN: parquet(ROWS)}, source.revision)
        yield double
        close_session()


def command(shared, out):
    """`feval record`, of which only the prompt is made: the network is closed but for the Hub."""
    asked = f"record --dataset gsm8k --llm gpt-4o-mini --first 2 --out {out} --dry-run"
    worked = settings_file(out.parent, 'exemplars = "train"', "exemplar_count = 3")
    return feval(asked, *worked, f"--questions {shared}/real/questions/gsm8k.jsonl")


def record(shared, out):
    asked = load_questions("gsm8k", shared / "real" / "questions" / "gsm8k.jsonl", 2)
    ask = RecordingSettings("gsm8k", "gpt-4o-mini", samples=2, exemplars="train", exemplar_count=3)
    return record_dataset(make_task(ask, asked), FakeBackend(), out)


def exemplars(out):
    prompt, _ = open_recording(out).prompts("gsm8k", "gpt-4o-mini").values()
    sent = json.loads(prompt or "")
    return [turn["content"] for turn in sent if turn["role"] == "assistant"]


def test_exemplars_come_from_the_hub_once(tmp_path, shared, hub, monkeypatch):
    record(shared, tmp_path / "online")
    assert verify_recording(tmp_path / "online").ok
    assert len(exemplars(tmp_path / "online")) == 3
    assert set(exemplars(tmp_path / "online")) < ANSWERS
    assert any(TRAIN in asked for asked in hub.asked())
    asked_before = len(hub.requests)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    record(shared, tmp_path / "offline")
    assert exemplars(tmp_path / "offline") == exemplars(tmp_path / "online")
    assert len(hub.requests) == asked_before


def test_other_bytes_than_the_hub_states_are_refused(tmp_path, shared, hub):
    hub.wrong_bytes[TRAIN] = 99
    result = command(shared, tmp_path / "r")
    assert result.exit_code == 1, result.output
    assert TRAIN in result.stderr
    assert "other bytes" in result.stderr
    hub.wrong_bytes.clear()
    assert command(shared, tmp_path / "r").exit_code == 0


def test_offline_without_a_copy_says_what_to_do(tmp_path, shared, hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = command(shared, tmp_path / "r")
    assert result.exit_code == 1, result.output
    assert "HF_HUB_OFFLINE" in result.stderr
    assert "--settings FILE with train_rows = ROWS" in result.stderr
    assert hub.requests == []


def test_a_repository_without_a_train_split_says_so(tmp_path, shared, hub):
    source = dataset_card("gsm8k").hub
    hub.add_dataset(
        source.repository, {"main/test-00000-of-00001.parquet": parquet(ROWS)}, source.revision
    )
    result = command(shared, tmp_path / "r")
    assert result.exit_code == 1, result.output
    assert "train" in result.stderr
    assert "--settings FILE with train_rows = ROWS" in result.stderr

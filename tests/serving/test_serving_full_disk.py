"""The ledger on a full disk: what was answered is in the file, what is not in the file was not
answered, and counts agree.
"""

import os
from contextlib import suppress

import pytest
from serving_doubles import chat, error, get, opened, reply_to, samples_of, simple
from small import full_disk

from feval.errors import StorageError
from feval.serving import ledger
from feval.serving.ledger import read_ledger

QUESTIONS = [f"What is question {i}, asked in full?" for i in range(3)]


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return simple(tmp_path_factory.mktemp("full") / "r", QUESTIONS, size=200)


class Disk:
    """A disk behind `os.write` that has room for so many more bytes; part of a line may fit."""

    def __init__(self, monkeypatch):
        self.room, self._write = 1 << 40, os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, file, data):
        if not self.room:
            full_disk()
        written = self._write(file, data[: self.room])
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch):
    monkeypatch.setattr(ledger, "_FLUSH_S", 60)  # the tests flush, or the end does
    return Disk(monkeypatch)


def counted(app):
    """What the application says it handed out."""
    return {
        name: app.ledger(name, detail=True) for name in (run["run"] for run in app.ledger()["runs"])
    }


def answered(replies):
    assert {reply.status for reply in replies} <= {200, 507}
    return [samples_of(reply) for reply in replies if reply.status == 200]


def flush(app):
    """What the ledger's thread does at a tick."""
    file = app._file
    with suppress(StorageError):
        file._flush()


def ask(app, number, question=0, **fields):
    return [reply_to(app, QUESTIONS[question], **fields) for _ in range(number)]


def test_what_was_answered_is_written_when_there_is_room_again(recording, tmp_path, disk):
    file = tmp_path / "ledger.jsonl"
    with opened(recording, ledger=file) as app:
        replies = ask(app, 5)
        disk.room = 100  # less than a line
        flush(app)
        refused = ask(app, 5)
        assert {reply.status for reply in refused} == {507}
        assert "the disk is full. Make room" in error(refused[0])["message"]
        assert counted(app)["default"]["cots"] == 5
        disk.room = 1 << 20
        replies += ask(app, 5)
        assert len(read_ledger(file)[1]) == 10, (
            "from now on a line is on the disk before its reply is sent"
        )
        before = counted(app)
    _, entries = read_ledger(file)
    assert [entry["samples"] for entry in entries] == answered(replies)
    with opened(recording, ledger=file, resume=True) as app:
        assert counted(app) == before


def test_a_refused_request_leaves_no_trace(recording, tmp_path, disk):
    file = tmp_path / "ledger.jsonl"
    with opened(recording, ledger=file) as app:
        replies = ask(app, 2) + ask(app, 2, feval={"sample": 7})
        disk.room = 0
        flush(app)
        before, lines = counted(app), file.read_bytes()
        other = {"x-feval-run": "other"}
        for call in (
            chat(QUESTIONS[0]),
            chat(QUESTIONS[0], n=3),
            chat(QUESTIONS[0], feval={"sample": 7}),
            chat(QUESTIONS[1], feval={"sample": 3}),
            chat(f"Please: {QUESTIONS[2]}"),
            chat(QUESTIONS[0], headers=other),
        ):
            for room in (0, 1, 150):
                disk.room = room
                assert app.respond(call).status == 507
                assert counted(app) == before
                assert file.read_bytes() == lines
        disk.room = 0
        assert app.respond(get("/run/default/feval/ledger")).status == 200
        disk.room = 1 << 20
        replies += ask(app, 2)
        assert len({sample for samples in answered(replies) for sample in samples}) == 5
        assert [entry["samples"] for entry in read_ledger(file)[1]] == answered(replies)


def test_what_the_end_cannot_write_is_said(recording, tmp_path, disk, caplog):
    app = opened(recording, ledger=tmp_path / "ledger.jsonl")
    ask(app, 3)
    disk.room = 0
    flush(app)
    flush(app)
    with pytest.raises(StorageError, match=r"the disk is full.*answered and are not in it: 3"):
        app.close()
    assert caplog.text.count("cannot be written") == 1
    assert ask(app, 1)[0].status == 507
    assert read_ledger(tmp_path / "ledger.jsonl")[1] == []


def test_a_disk_that_is_far_behind_is_waited_for(recording, tmp_path, disk, monkeypatch):
    monkeypatch.setattr(ledger, "_MOST_WAITING", 1000)
    with opened(recording, ledger=tmp_path / "ledger.jsonl") as app:
        file = app._file
        for _ in range(50):
            assert ask(app, 1)[0].status == 200
            assert len(file._pending) < 1500
        assert len(read_ledger(file.path)[1]) > 40

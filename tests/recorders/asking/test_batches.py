"""What comes in batches equals what requests bring, nothing is paid twice, and a server that fails
in any way is topped up or named.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import failed, feval, said
from faulty_server import BatchServer
from places import SUPPORT, read_data
from recording_doubles import completions, task

from feval.errors import UsageError
from feval.recording import Question, open_recording, verify_recording
from recorders.asking import batches
from recorders.asking.pace import Limits
from recorders.backends.openai_compatible import Endpoint
from recorders.errors import Fatal, InterruptedByUser
from recorders.journal import Journal, journal_folder
from recorders.work.record import record_dataset

pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")

from recorders.asking.batches import BatchedOpenAI
from recorders.backends.openai_compatible import OpenAICompatible

SAMPLES, NOW = 3, "2026-01-01T00:00:00Z"
QUESTIONS = [Question(f"q{n}", f"How much is {n} + 3?", str(n + 3)) for n in range(6)]
LIMITS = Limits(backoff_s=0.001, longest_backoff_s=0.002, retries=3)


class Ordinary(OpenAICompatible):
    """Durations are content, and batches have none."""

    async def complete(self, request, samples):
        return [replace(r, duration_s=None) for r in await super().complete(request, samples)]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(batches, "_QUIET_S", 0.02)


def record(server, out, kind=BatchedOpenAI, seed=None, **options):
    if kind is BatchedOpenAI:
        options = {"poll_s": 0.01} | options
    backend = kind(Endpoint(server.url), **options)
    record_dataset(
        task(QUESTIONS, SAMPLES, seed=seed), backend, out, limits=LIMITS, prices="none",
        now=lambda: NOW,
    )  # fmt: skip
    assert verify_recording(out).ok
    return open_recording(out).hash


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory):
    with BatchServer() as server:
        return record(server, tmp_path_factory.mktemp("ordinary") / "r", Ordinary)


def check(server, out, expected, **options):
    assert record(server, out, **options) == expected
    assert server.sent == {question.text: SAMPLES for question in QUESTIONS}


FAILURES = read_data("replies.json")["what batches meet"]


@pytest.mark.parametrize("name", FAILURES)
def test_what_batches_bring_is_what_requests_bring(tmp_path, ordinary, name):
    with BatchServer(**FAILURES[name]) as server:
        check(server, tmp_path / "r", ordinary)


def test_more_requests_than_a_file_may_hold_go_into_several(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "_MOST_LINES", 4)
    with BatchServer() as server:
        expected = record(server, tmp_path / "ordinary", Ordinary, seed=7)
        assert record(server, tmp_path / "batches", seed=7) == expected
    assert len(server.batches) == 5  # of 18 requests, since one with a seed has one sample


def test_what_a_server_lost_or_does_not_list_is_not_paid_twice_unasked(tmp_path):
    troubles = {
        "lists no batches, so that": {"/v1/batches": ["lost", "405"]},
        "does not know the batch batch-0": {"/v1/batches": ["", "404"]},
        "no longer has the file file-1": {"/v1/files/": ["404"]},
    }
    for number, (sentence, trouble) in enumerate(troubles.items()):
        out = tmp_path / str(number)
        with BatchServer(trouble=trouble) as server:
            with pytest.raises(Fatal, match=f"{sentence}.*resubmit=True"):
                record(server, out)
            for path in trouble:
                trouble[path].append("404")
            record(server, out, resubmit=True)
            assert server.sent == {question.text: 2 * SAMPLES for question in QUESTIONS}
    with BatchServer(trouble={"/v1/files": ["404"]}) as server:
        with pytest.raises(Fatal, match="takes no batches; leave `batch` out"):
            record(server, tmp_path / "none")
        record(server, tmp_path / "none", Ordinary)
    odd = pytest.raises(Fatal, match=r"speak of batches as OpenAI does \(KeyError\('id'\)\)")
    with BatchServer(trouble={"/v1/files": ["error with 200"]}) as server, odd:
        record(server, tmp_path / "odd")


def test_ctrl_c_leaves_batches_and_half_a_reply_in_the_journal_is_completed(tmp_path, ordinary):
    work, out = task(QUESTIONS, SAMPLES), tmp_path / "r"
    request = work.plan().requests[0]
    with BatchServer() as server:
        server.kill_at, server.recorder, server.signal = 3, os.getpid(), signal.SIGINT
        with pytest.raises(
            InterruptedByUser,
            match=r"is recorded yet\. Batches that go on at the server: 1; the same command",
        ):
            record(server, out)
        with pytest.raises(UsageError, match="are in batches, and would be paid twice; add"):
            record(server, out, Ordinary)
        with BatchServer() as other, Journal.open(journal_folder(out), work.identity()) as journal:
            said = completions(Ordinary(Endpoint(other.url)), request, range(SAMPLES))
            journal.add(request, request.key(), [0], said[:1], recorded_at=NOW)
            journal.commit()
        check(server, out, ordinary)


def test_a_batch_has_the_price_of_a_batch_where_there_is_one(tmp_path):
    mine = {"id": "mine", "date": "2026-01-01", "source": "made up"}
    cheap = {"input_usd_per_mtok": 2, "output_usd_per_mtok": 8, "batch": [1, 4]}
    for name, price in (("cheap", cheap), ("dear", [2, 8])):
        listed = json.dumps(mine | {"prices": {"some/model": price}})
        (tmp_path / f"{name}.json").write_text(listed)
    (tmp_path / "q.jsonl").write_text(json.dumps({"id": "a", "question": "1 + 1?", "answer": "2"}))
    with BatchServer() as server:
        asked = (
            f"record --dataset sums --llm some/model --questions {tmp_path}/q.jsonl --answer-kind"
            f" number --samples 2 --max-tokens 1000 --backend openai --base-url {server.url}"
            f" --batch --set prompt=none --set batch_poll_seconds=0.01 --out {tmp_path}/r --set"
            f" prices={tmp_path}"
        )
        shown = said(f"{asked}/cheap.json --dry-run")
        assert "; at most $0.0160 by price list" in shown
        assert "cheap.json, $0.0080 in a batch." in shown
        shown = said(f"{asked}/dear.json --dry-run")
        assert "dear.json; no price in a batch is published there." in shown
        stopped = feval(f"{asked}/dear.json --cost-limit 0.01")
        assert "next request could pass the cost limit" in stopped.stderr
        assert server.paths == []
        done = feval(f"{asked}/cheap.json --cost-limit 0.01")
    assert "Batches may take a day. Ctrl-C leaves them at the server" in done.stderr
    manifest = open_recording(tmp_path / "r").manifest
    assert "CoTs came in batches, which do not say how long each took." in manifest.raw["notes"]
    failed(feval(f"{asked}/dear.json --tree"), 2, "Batches are of whole CoTs")
    tiny = f"record --dataset tiny_sums --llm feval/tiny-30k --batch --out {tmp_path}/x"
    failed(feval(tiny), 2, "asks no server; leave --base-url, --batch and")


# The parent records once, so that imports are paid for, and then forks a recorder for each line.
PROGRAM = f"""
import os, sys
sys.path[:0] = [{str(SUPPORT)!r}, {str(Path(__file__).parent)!r}]
from types import SimpleNamespace
import test_batches
test_batches.batches._QUIET_S = 0.02
for number, line in enumerate(sys.stdin):
    url, out = line.split()
    if not (child := number and os.fork()):
        try:
            test_batches.record(SimpleNamespace(url=url), out)
        finally:
            child or number and os._exit(0)
    print(child, flush=True)
    child and os.waitpid(child, 0)
    print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_lost", [False, True])
def test_killed_at_any_request_it_pays_for_nothing_twice(tmp_path, ordinary, is_lost):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as recorder:

        def run(server, out):
            server.recorder = None
            recorder.stdin.write(f"{server.url} {out}\n")
            recorder.stdin.flush()
            server.recorder = int(recorder.stdout.readline())
            assert recorder.stdout.readline() == "done\n"

        killed = 0
        while True:
            out = tmp_path / str(killed)
            with BatchServer(fates=["expired"]) as server:
                server.kill_at, server.is_lost = killed, is_lost
                run(server, out)
                if killed and out.exists():
                    break
                run(server, out)
                assert open_recording(out).hash == ordinary
                assert server.sent == {question.text: SAMPLES for question in QUESTIONS}
                assert not journal_folder(out).exists()
            killed += 1
        assert killed > 8

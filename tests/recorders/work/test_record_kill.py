"""A recorder is killed at 200 random moments: nothing acknowledged is lost, nothing is there twice,
little is asked for again.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from faulty_server import FaultyServer
from killed import run
from places import ROOT, SUPPORT
from recording_doubles import cots

from feval.recording import open_recording

KILLS = 200
CONCURRENCY = 8
SAMPLES_PER_REQUEST = 4

# The parent forks a recorder (imports are paid once), waits for a random moment, kills it, and
# forks the next one, which goes on. Recorders write what is asked for and what is acknowledged to
# files of their own: a kill loses nothing that was written.
PROGRAM = f"""
import asyncio, os, signal, sys, time
sys.path[:0] = [{str(SUPPORT)!r}, {str(Path(__file__).parent)!r}]
import numpy as np
from pathlib import Path
from recording_doubles import FakeBackend, request
from recorders.asking.pace import Limits
from recorders.asking.samples import SamplePlan, record_samples
from recorders.journal import Journal

folder = Path(sys.argv[1])
moments = np.random.Generator(np.random.Philox(key=7))

plan = SamplePlan([request(i) for i in range(2000)], 10)
names = {{request.key(): request.question_id for request in plan.requests}}

def log(file, lines):
    os.write(file, "".join(f"{{line}}\\n" for line in lines).encode())

def recorder(number):
    asked, known = (os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for name in ("asked", "acknowledged"))
    class Server(FakeBackend):
        async def complete(self, request, samples):
            log(asked, [f"{{number}} {{request.question_id}} {{sample}}" for sample in samples])
            await asyncio.sleep(0.001 * (1 + hash((request.question_id, samples[0])) % 5))
            return await super().complete(request, samples)

    def acknowledged(keys):
        log(known, [f"{{number}} {{names[key]}} {{sample}}" for key, sample in keys])

    with Journal.open(folder / "journal", {{}}) as journal:
        limits = Limits({CONCURRENCY}, samples_per_request={SAMPLES_PER_REQUEST})
        outcome = asyncio.run(record_samples(plan, Server(), journal, limits=limits, acknowledged=acknowledged))
    log(known, ["done"])

for number in range({KILLS}):
    child = os.fork()
    if child == 0:
        try:
            recorder(number)
        finally:
            os._exit(0)
    if number % 2:  # half of the kills come while replies come in, however busy the machine is
        size = (folder / "asked").stat().st_size if (folder / "asked").exists() else 0
        until = time.monotonic() + 5
        while time.monotonic() < until and not ((folder / "asked").exists() and (folder / "asked").stat().st_size > size):
            time.sleep(0.001)
    time.sleep(moments.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""  # noqa: E501


def lines(path):
    rows = []
    for line in path.read_text().splitlines():
        number, question, sample = line.split()
        rows.append((int(number), question, int(sample)))
    return rows


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing_and_repeat_little(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    held = [(cot["question_id"], cot["sample"]) for cot in cots(tmp_path / "journal")]
    asked, acknowledged = lines(tmp_path / "asked"), lines(tmp_path / "acknowledged")
    runs = {number for number, _, _ in asked}
    assert len(runs) > KILLS / 4, "the kills came before the recorders began"
    assert len(set(held)) == len(held), "a key twice"
    known = {(question, sample) for _, question, sample in acknowledged}
    assert known <= set(held), "an acknowledged CoT is lost"

    before = set()
    for number in sorted(runs):
        now = {(question, sample) for run, question, sample in asked if run == number}
        assert not now & before, "a CoT was asked for though it had been acknowledged"
        before |= {(question, sample) for run, question, sample in acknowledged if run == number}

    times = Counter((question, sample) for _, question, sample in asked)
    repeated = sum(times.values()) - len(times)
    assert repeated <= len(runs) * CONCURRENCY * SAMPLES_PER_REQUEST
    assert len(held) > KILLS / 4, "the kills came before the replies"


PROBING = """
from pathlib import Path
from killed import logging, through_kills
from watched import recorded, tiny_task
from recorders.asking.pace import Limits
from recorders.backends.local import Tiny
from recorders.request import Decoding

decoding = Decoding(temperature=1.0, max_tokens=80, seed=0)
task = tiny_task(8, "feval/tiny-30k", samples=6, decoding=decoding, probe_every=6)
logged = logging(Tiny, sys.argv[2])
through_kills(
    lambda: recorded(Path(sys.argv[1]), task, logged(), limits=Limits(4)), int(sys.argv[3])
)
"""


@pytest.mark.slow
def test_kills_while_probing_lose_nothing_and_repeat_little(tmp_path):
    hashes, counts = [], []
    for name, kills in (("killed", 25), ("whole", 0)):
        run(PROBING, tmp_path / name, tmp_path / f"{name}.asked", kills)
        hashes.append(open_recording(tmp_path / name).hash)
        counts.append(Counter((tmp_path / f"{name}.asked").read_text().split()))
    assert hashes[0] == hashes[1]
    killed, whole = counts
    assert whole["cot"] == 48
    assert whole["cot"] <= killed["cot"] <= whole["cot"] + 25 * 4 * 6
    assert whole["probe"] <= killed["probe"] <= whole["probe"] + 25 * 4


@pytest.mark.slow
def test_sigterm_to_the_command_waits_for_replies_and_pays_for_none_twice(tmp_path):
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    texts = [f"How much is {number} + 3?" for number in range(12)]
    lines = [json.dumps({"id": text, "question": text, "answer": "1"}) for text in texts]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    with FaultyServer(delay_s=1.0) as server:
        options = (
            f"--backend openai --base-url {server.url} --dataset sums --llm some/model"
            " --answer-kind number --samples 3 --set concurrency=4 --set prompt=none --set"
            f" prices=none --questions {tmp_path}/q.jsonl --out {tmp_path}/r"
        )
        command = [sys.executable, "-m", "feval", "record", *options.split()]
        for stop in (True, True, False):
            seen = len(server.seen)
            process = subprocess.Popen(
                command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
            while stop and len(server.seen) < seen + 2 and process.poll() is None:
                time.sleep(0.01)
            if stop:
                process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=60)
            assert process.returncode == (143 if stop else 0), stderr
            assert ("the same command continues from there" in stderr) == stop
    assert server.sent == dict.fromkeys(texts, 3)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["q.jsonl", "r"]


def test_no_page_promises_more_than_a_kill_leaves():
    """What is in flight at a kill is asked for again, as the test above counts, so the pages on
    recording say so.
    """
    for page in ("README.md", "docs/recording.md", "feval/cli/record.py"):
        text = " ".join((ROOT / page).read_text("utf-8").split())
        assert "nothing is paid twice" not in text, page
        assert re.search(
            r"in flight (?:at a kill|when (?:the recorder|it) (?:is|was) killed)", text
        ), page

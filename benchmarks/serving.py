"""Replay over HTTP: requests per CPU second of the server, CPU time until it is ready, and memory
growth.

The server is `feval serve` in a process of its own, on 1,319 questions x 40 CoTs x 3 LLMs; only its
CPU time counts, with the kernel's work for its sockets. 16 raw clients in another process ask it
(`asking.py`), since the official client needs far more time than the server. Beside it, a bare ASGI
application on the same uvicorn, with replies of the same size. And the wall time of one request
after the other on plain asyncio, as the server runs without uvloop.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROOT, Goal, Workspace, python

_BATCH = 5_000
_ROUNDS = 8
_KEPT = 100_000
_COTS = (1, 20)
_POOL = 40  # no run may use up a pool
_ALONE = 300
_PLAIN = "import sys; sys.modules['uvloop'] = None; from feval.cli import main; main()"


@dataclass(frozen=True)
class _Process:
    """A running server."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """CPU time so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Resident memory."""
        return (
            int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / 1e6
        )

    def rate(self, recording: Path, requests: int, n: int, run: str) -> float:
        """Requests per CPU second."""
        before = self.cpu_s()
        python(
            ["-m", "benchmarks.asking", str(self.port), str(recording), str(requests), str(n), run]
        )
        return requests / (self.cpu_s() - before)


@contextmanager
def _running(*arguments: str) -> Iterator[_Process]:
    command = [sys.executable, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            yield _Process(ready["port"] if isinstance(ready, dict) else ready, process.pid)
        finally:
            process.terminate()


@contextmanager
def _serving(recording: Path, *command: str) -> Iterator[_Process]:
    arguments = ("serve", str(recording), "--port", "0", "--json", "--prices", "none")
    with _running(*(command or ("-m", "feval")), *arguments) as process:
        yield process


def goals(workspace: Workspace) -> list[Goal]:
    """Measure the server."""
    recording = workspace.recording(3)
    with _serving(recording):
        pass  # modules are compiled, files are in the page cache
    with _serving(recording) as server:
        results = [Goal("serve: CPU time until it is ready", server.cpu_s(), 0.7, "s")]
        pools = 3 * workspace.questions
        cold = server.rate(recording, pools, 1, "first")
        results.append(
            Goal(
                "serve: each pool for the first time, n = 1",
                cold,
                None,
                "req/s",
                note="per CPU second",
            )
        )
        for n in _COTS:
            results += _rates(server, recording, n, pools * (_POOL // n))
        results.append(_kept(server, recording, min(_KEPT, pools * _POOL)))
    with _serving(recording, "-c", _PLAIN) as server:
        results.append(_alone(server, recording))
    return results


def _rates(server: _Process, recording: Path, n: int, most: int) -> list[Goal]:
    """Both in turn, and the least disturbed batch of each: a busy neighbour makes every request
    dearer.
    """
    size = _reply_bytes(server, recording, n)
    served, bare = [], []
    with _running("-m", "benchmarks.bare_asgi", str(size)) as alone:
        for number in range(_ROUNDS):
            served.append(server.rate(recording, min(_BATCH, most), n, f"n{n}-{number}"))
            bare.append(alone.rate(recording, _BATCH, n, "bare"))
    label = f"serve: n = {n} ({size / 1000:.1f} kB)"
    note = f"{1e6 / max(served):.0f} us; a bare ASGI application {1e6 / max(bare):.0f} us"
    return [
        Goal(f"{label}, per CPU second", max(served), 3_000, "req/s", at_least=True, note=note),
        Goal(f"{label}, over the bare application", max(bare) / max(served), None, "x"),
    ]


def _body(recording: Path, n: int) -> bytes:
    """A recorded request."""
    from feval.recording import open_recording

    opened = open_recording(recording)
    [dataset] = opened.dataset_ids()
    llm = opened.llm_names(dataset)[0]
    prompt = next(iter(opened.prompts(dataset, llm).values()))
    return json.dumps({"model": llm, "messages": json.loads(str(prompt)), "n": n}).encode()


def _reply_bytes(server: _Process, recording: Path, n: int) -> int:
    """Size of a typical reply."""
    url = f"http://127.0.0.1:{server.port}/run/size-{n}/v1/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, _body(recording, n))) as reply:
        return len(reply.read())


def _alone(server: _Process, recording: Path) -> Goal:
    """Median wall time of a request, one after the other on one connection, as a client without
    concurrency waits for it.
    """
    body, seconds = _body(recording, 1), []
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for number in range(_ALONE):
        began = time.perf_counter()
        connection.request("POST", f"/run/alone-{number}/v1/chat/completions", body)
        connection.getresponse().read()
        seconds.append(time.perf_counter() - began)
    connection.close()
    return Goal(
        "serve: wall time of a request, plain asyncio", 1000 * statistics.median(seconds), 3, "ms"
    )


def _kept(server: _Process, recording: Path, requests: int) -> Goal:
    """By how much the server grows while one run asks, all pools having been read before."""
    before = server.memory_mb()
    server.rate(recording, requests, 1, "growth")
    after = server.memory_mb()
    return Goal(
        f"serve: memory kept after {requests:,} requests",
        after - before,
        10,
        "MB",
        note=f"{before:.0f} to {after:.0f} MB",
    )

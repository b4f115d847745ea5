"""Recording: CoTs per second of one core, and memory that does not grow with their number.

Once with a server in memory, which leaves the engine and the journal, and once over HTTP, through
the official client, with a server in another process. Both answer after 10 ms with CoTs of about 1
kB, at concurrency 256; every CoT is synced to the disk before it counts. CPU time counts, as
everywhere here; what the disk and the server take is waiting.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.measure import Goal, Workspace, python

_COTS = 40_000
_MANY = 1_000_000
_HTTP_RUNS = 3

_RECORD = """
import asyncio, sys, time
from pathlib import Path
from benchmarks.open import resident_mb
from recorders.asking.pace import Limits
from recorders.asking.samples import SamplePlan, record_samples
from recorders.journal import Journal
from recorders.request import Completion, Decoding, Message, Request

folder, cots, per_request = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

class Server:
    name, takes_seed, text = "memory", False, "word " * 200
    async def complete(self, request, samples):
        await asyncio.sleep(0.01)
        return [Completion(f"{sample} {self.text}", "stop", output_tokens=273, prompt_tokens=900) for sample in samples]

def request(index):
    return Request("toy", f"toy/{index}", (Message("user", f"What is question {index}?"),), "alpha", Decoding())

plan = SamplePlan([request(i) for i in range(cots // 40)], 40)
with Journal.open(folder, {}) as journal:
    begun = resident_mb("VmRSS")
    cpu, wall = time.process_time(), time.monotonic()
    limits = Limits(256, samples_per_request=per_request)
    outcome = asyncio.run(record_samples(plan, Server(), journal, limits=limits))
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    assert outcome.complete, outcome
    size = journal.path.stat().st_size
    journal.remove()
print(cpu, wall, resident_mb("VmHWM") - begun, size / 1e6)
"""  # noqa: E501


def _record(folder: Path, cots: int, per_request: int) -> list[float]:
    return [
        float(number)
        for number in python(
            ["-c", _RECORD, str(folder / "journal"), str(cots), str(per_request)]
        ).split()
    ]


def _over_http(folder: Path, cots: int, per_request: int) -> dict[str, Any]:
    arguments = [str(number) for number in (folder / "http", cots, per_request, _HTTP_RUNS)]
    measured: dict[str, Any] = json.loads(python(["-m", "benchmarks.over_http", *arguments]))
    return measured


def _http_goals(folder: Path) -> list[Goal]:
    """The least disturbed of a few runs: nothing cancels a busy neighbour out."""
    goals = []
    for per_request, cots in ((1, 10_000), (20, 100_000)):
        measured = _over_http(folder, cots, per_request)
        (rate, wall), (bare, _) = measured["recorder"], measured["client"]
        note = (
            f"{rate:,.0f} CoTs per CPU second, {wall:,.0f} by the wall clock,"
            f" {measured['grown_mb']:.0f} MB; the official client as it comes, keeping nothing:"
            f" {bare:,.0f}"
        )
        name = f"recording over HTTP, n = {per_request}, CoTs per CPU second over the client alone"
        goals.append(Goal(name, rate / bare, 1, "x", at_least=True, note=note))
    return goals


def goals(workspace: Workspace) -> list[Goal]:
    """Throughput of one core, and memory for many CoTs."""
    cpu, wall, _, size = _record(workspace.folder, _COTS, 1)
    note = (
        f"{_COTS / wall:,.0f} CoT/s by the wall clock, {size:.0f} MB of journal, every CoT synced"
    )
    many_cpu, many_wall, grown, many_size = _record(workspace.folder, _MANY, 40)
    many = (
        f"{many_size:,.0f} MB of journal in {many_wall:.0f} s, {_MANY / many_cpu:,.0f} CoT per CPU"
        " second"
    )
    return [
        Goal(
            "recording, concurrency 256, CoTs per CPU second",
            _COTS / cpu,
            1000,
            "CoT/s",
            at_least=True,
            note=note,
        ),
        *_http_goals(workspace.folder),
        Goal("memory of recording a million CoTs", grown, 100, "MB", note=many),
    ]

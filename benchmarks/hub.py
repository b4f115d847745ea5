"""Cost of loading a part of a recording from the Hub and from the cache: seconds, and bytes counted
by the server.

The Hub is the tests' double on loopback, the client the real one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import reference
from benchmarks.measure import ROOT, Goal, Workspace
from feval.recording.layout.format import Part

LLMS = 3
LOAD = """
import json, resource, sys, time
before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
from feval.hub import pull
from feval.replay import load

address, dataset, *llms = sys.argv[1:]
pulled = pull(address, datasets=[dataset], llms=llms, texts=False)
pulled_s = time.monotonic() - begun
begun = time.monotonic()
opened, replayed = load(dataset, llms, address)
for llm in replayed:
    assert len(llm.pool.codes) == len(opened)
print(json.dumps({"pull_s": pulled_s, "load_s": time.monotonic() - begun}))
"""


def goals(workspace: Workspace) -> list[Goal]:
    """Pull and load one dataset and two of three LLMs without texts, twice."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from hub_double import HubDouble

    folder = workspace.recording(LLMS)
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    names = reference.LLM_NAMES[:2]
    needed = {
        "manifest.json",
        *(Part(name, reference.DATASET).path for name in ("questions", "votes", "details")),
    }
    needed |= {
        Part(name, reference.DATASET, llm).path for name in ("requests", "samples") for llm in names
    }
    distinct = {files[path] for path in needed}  # the cache keeps equal files as one
    with HubDouble() as hub, tempfile.TemporaryDirectory(prefix="feval-bench-hub-") as home:
        address = f"hf://somebody/recording@{hub.add_dataset('somebody/recording', files)}"
        cold = _load(hub.url, home, address, names)
        moved, requests = hub.sent_bytes.total(), len(hub.requests)
        strangers = [path for path, size in hub.sent_bytes.items() if size and path not in needed]
        hub.forget()
        warm = _load(hub.url, home, address, names)
        again = len(hub.requests)
    assert not strangers, strangers
    exact = sum(map(len, distinct))
    whole = sum(map(len, files.values()))
    note = f"{moved:,} of {whole:,} bytes, {requests} requests"
    return [
        Goal(
            "hub: bytes moved for two of three LLMs without texts / bytes of their files",
            moved / exact,
            1,
            "x",
            note=note,
        ),
        Goal("hub: requests of the same load with everything in the cache", again, 0, ""),
        Goal("hub: pull and check of the part", cold["pull_s"], None, "s"),
        Goal("hub: load right after, in the same process", cold["load_s"], None, "s"),
        Goal("hub: pull from the cache, in a new process", warm["pull_s"], None, "s"),
    ]


def _load(url: str, home: str, address: str, names: tuple[str, ...]) -> dict[str, float]:
    settings = {"HF_ENDPOINT": url, "HF_HOME": home, "FEVAL_CACHE": str(Path(home) / "feval")}
    settings |= {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", LOAD, address, reference.DATASET, *names],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds

"""Opening a recording with its hash check, ready to vote, against the baseline's load; memory;
texts.

"Ready to vote": answer codes, output tokens, prompt tokens, pool sizes and golds of every LLM are
arrays whose bytes have been read and found to be those that the manifest pins.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from benchmarks import reference
from benchmarks.measure import Goal, Workspace, cpu_ms, python

SCAN_RUNS = 21

# Measured in a fresh process: what opening, then 13 exact curves, add to the imports. The peak
# counts, not what is left.
MEMORY = """
import json, sys
import numpy
import feval.replay, feval.evaluation.curves, feval.cards.prices, feval.estimators.plurality
from benchmarks.open import ready_to_vote, resident_mb

folder, llms = sys.argv[1], int(sys.argv[2])
before = resident_mb("VmRSS")
dataset, opened = ready_to_vote(folder, llms)
opening = resident_mb("VmHWM") - before
curves = [feval.evaluation.curves.self_consistency_curve(dataset, llm, range(1, 41)) for llm in opened]
print(json.dumps({"open": opening, "curves": resident_mb("VmHWM") - before}))
"""  # noqa: E501
BASELINE_MEMORY = """
import json, sys
from pathlib import Path
from benchmarks import reference
from benchmarks.open import resident_mb

before = resident_mb("VmRSS")
loaded = reference.load(Path(sys.argv[1]), reference.LLM_NAMES[: int(sys.argv[2])])
print(json.dumps(resident_mb("VmHWM") - before))
"""


def ready_to_vote(recording: object, llms: int) -> tuple[object, list[object]]:
    """Open a recording by the Python API and hold every array that a vote with costs needs; the
    hash check reads them.
    """
    from feval.replay import load

    dataset, opened = load(reference.DATASET, reference.LLM_NAMES[:llms], str(recording))
    arrays = [dataset.gold]
    for llm in opened:
        arrays += [llm.pool.codes, llm.pool.output_tokens, llm.pool.prompt_tokens, llm.pool.sizes]
    assert all(len(array) == len(dataset) for array in arrays)
    return dataset, opened


def resident_mb(field: str) -> float:
    """Memory of this process in MB: "VmRSS" now, "VmHWM" at its peak (Linux only)."""
    with Path("/proc/self/status").open() as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6


def opening(workspace: Workspace, llms: int, goal: float) -> Goal:
    """Open with hash check against the baseline's load."""
    recording, archive = workspace.recording(llms), workspace.archive(llms)
    ms = cpu_ms(
        {
            "baseline": lambda: reference.load(archive, reference.LLM_NAMES[:llms]),
            "open": lambda: ready_to_vote(recording, llms),
        },
        batch_ms=50,
    )
    note = f"{ms['open']:.2f} ms against {ms['baseline']:,.0f} ms"
    return Goal(
        f"open with hash check, ready to vote, {llms} LLM",
        ms["baseline"] / ms["open"],
        goal,
        "x",
        True,
        note,
    )


def memory(workspace: Workspace) -> list[Goal]:
    """Peak memory over the imports, in fresh processes."""
    grown = json.loads(python(["-c", MEMORY, str(workspace.recording(13)), "13"]))
    baseline = json.loads(python(["-c", BASELINE_MEMORY, str(workspace.archive(13)), "13"]))
    note = f"baseline {baseline:,.0f} MB"
    return [
        Goal("memory over the imports, 13 LLMs opened", grown["open"], 10, "MB", note=note),
        Goal(
            "memory over the imports, 13 LLMs and their exact curves", grown["curves"], None, "MB"
        ),
    ]


def texts(workspace: Workspace) -> list[Goal]:
    """One text at random without reading the rest, and the scan of all texts of one LLM."""
    from feval.recording import open_recording

    recording = open_recording(workspace.recording(13))
    names = recording.llm_names(reference.DATASET)
    questions = len(recording.votes(reference.DATASET))
    rng = random.Random(0)

    def read_one() -> None:
        recording.texts(reference.DATASET, rng.choice(names), rng.randrange(questions))

    def scan() -> None:
        for _ in recording.scan_texts(reference.DATASET, names[0]):
            pass

    def read_first() -> None:
        fresh = open_recording(workspace.recording(13))
        fresh.votes(reference.DATASET)
        fresh.texts(reference.DATASET, rng.choice(names), rng.randrange(questions))

    for name in names:
        recording.texts(reference.DATASET, name, 0)
    ms = cpu_ms({"text": read_one, "first": read_first}, batch_ms=50)
    groups = recording.scan_texts(reference.DATASET, names[0])
    characters = sum(len(text) for group in groups for text in group if text is not None)
    scanned = cpu_ms({"scan": scan}, runs=SCAN_RUNS, pick=min)["scan"]
    ratio = sum(f.stat().st_size for f in workspace.recording(13).rglob("*") if f.is_file())
    ratio /= workspace.archive(13).stat().st_size
    return [
        Goal("one random text (of 40 read together)", ms["text"], 1, "ms"),
        Goal("the same, first text after opening, opening included", ms["first"], None, "ms"),
        Goal("scan of all texts", characters / 1e3 / scanned, 400, "MB/s", at_least=True),
        Goal("recording on disk, texts included, over the archive", ratio, None, "x"),
    ]


def write_probed(out: Path) -> None:
    """Write 30 questions x 128 CoTs with about 30 probes each, every 500 tokens, of the size of a
    published store.
    """
    from feval.recording import DatasetInfo, LLMInfo, PoolRows, ProbeRows, Question, RecordingWriter

    rng, names = random.Random(0), [f"q{index}" for index in range(30)]
    counts = {name: [rng.randrange(5, 56) for _ in range(128)] for name in names}

    def probes(name: str) -> ProbeRows:
        cots = [
            (cot, 500 * place)
            for cot, size in enumerate(counts[name])
            for place in range(1, size + 1)
        ]
        answers = [str(rng.randrange(40)) for _ in cots]
        samples, offsets = (list(column) for column in zip(*cots, strict=True))
        return ProbeRows(name, samples, offsets, answers, answers, output_tokens=[12] * len(cots))

    with RecordingWriter(out, operation={"name": "benchmark"}, prices="none") as writer:
        writer.add_dataset(
            DatasetInfo("probed", "Probed", "number", "1"),
            (Question(n, n, "7", "7") for n in names),
        )
        pools = (
            PoolRows(
                n,
                [None] * 128,
                ["7"] * 128,
                ["7"] * 128,
                [500 * c for c in counts[n]],
                ["stop"] * 128,
            )
            for n in names
        )
        writer.add_pools("probed", LLMInfo("some-llm"), "usage", pools)
        writer.add_rows("probed", "some-llm", None, map(probes, names))


def probed(workspace: Workspace) -> list[Goal]:
    """Open a recording with probes and hold them as checked arrays; their memory."""
    from feval.recording import open_recording

    folder = workspace.folder / "probed"
    if not folder.exists():
        write_probed(folder)

    def read() -> object:
        return open_recording(folder).probes("probed", "some-llm")

    probes = open_recording(folder).probes("probed", "some-llm")
    arrays = [probes.starts, probes.offsets, probes.codes, probes.output_tokens]
    size = sum(array.nbytes for array in arrays if array is not None) / len(probes.offsets)
    return [
        Goal(
            "open with hash check, probes of 30 x 128 CoTs",
            cpu_ms({"open": read})["open"],
            5,
            "ms",
            note=f"{len(probes.offsets):,}",
        ),
        Goal("memory per probe, with its tokens", size, 10, "bytes"),
    ]


def goals(workspace: Workspace) -> list[Goal]:
    """Measure opening."""
    votes = [opening(workspace, 1, 1000), opening(workspace, 13, 2000)]
    return [*votes, *memory(workspace), *texts(workspace), *probed(workspace)]

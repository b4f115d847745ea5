"""Size: CPU time and peak memory of whole commands on 800,000 CoTs, and what a cluster would do
with a thousand times as many.

Every command runs in a fresh process, which reports its CPU time and, from the operating system,
the most memory it held. The CoTs are sentences drawn at random (seeded), 520 bytes a line; they
compress better than those of an LLM.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from benchmarks.measure import Goal, Workspace, python

SAMPLES = 40
QUESTIONS = 20_000
SHUFFLED = 5_000  # questions whose CoTs lie all over the file
LLM = "some/llm"

# Runs feval's command line with the arguments given, and prints what it took.
COMMAND = """
import contextlib, io, json, resource, sys, time
from feval.cli import main
said, began = io.StringIO(), time.perf_counter()
try:
    with contextlib.redirect_stdout(said):
        main()
    code = 0
except SystemExit as end:
    code = end.code or 0
if code:
    raise SystemExit(f"feval {' '.join(sys.argv[1:])} failed: {code} {said.getvalue()}")
own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({
    "cpu_s": own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
    "mb": int(peak.split()[1]) / 1024,
    "seconds": time.perf_counter() - began,
}))
"""  # noqa: E501

# What cannot be left out of an import: parse every line, write texts and numbers as Parquet. No
# check, no answer, no votes.
STREAMING = """
import json, resource, sys
import orjson, pyarrow as pa, pyarrow.parquet as pq
schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("tokens", pa.int32())])
with pq.ParquetWriter(sys.argv[2], schema, compression="zstd") as table:
    columns, size = {name: [] for name in schema.names}, 0
    for line in open(sys.argv[1], "rb"):
        row = orjson.loads(line)
        for name, column in columns.items():
            column.append(row[name])
        size += len(line)
        if size >= 2 << 20:
            table.write_table(pa.table(columns, schema=schema))
            columns, size = {name: [] for name in schema.names}, 0
    table.write_table(pa.table(columns, schema=schema))
own = resource.getrusage(resource.RUSAGE_SELF)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"cpu_s": own.ru_utime + own.ru_stime, "mb": int(peak.split()[1]) / 1024}))
"""


@dataclass(frozen=True)
class Cost:
    """What a process took: seconds of CPU, its children's included, its own peak in MB, and seconds
    of the clock.
    """

    cpu_s: float
    mb: float
    seconds: float = 0.0


def cost(program: str, *arguments: object) -> Cost:
    """Run a program in a fresh process; it prints its cost."""
    return Cost(**json.loads(python(["-c", program, *map(str, arguments)])))


def feval(*arguments: object) -> Cost:
    """Run a command of feval in a fresh process."""
    return cost(COMMAND, *arguments)


def write_lines(path: Path, questions: int, *, shuffled: bool = False) -> Path:
    """Write a JSON Lines file with a line per CoT, those of a question side by side or not,
    once.
    """
    if path.exists():
        return path
    order = np.arange(questions * SAMPLES)
    if shuffled:
        np.random.default_rng(1).shuffle(order)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        for start in range(0, len(order), 10_000):
            file.writelines(_lines(order[start : start + 10_000]))
    partial.rename(path)
    return path


def _lines(places: npt.NDArray[np.int64]) -> Iterator[bytes]:
    """Yield the lines of some CoTs, numbered over all questions; each depends on its number
    alone.
    """
    words = _words()
    draws = _mixed(places[:, None] * 8 + np.arange(8))
    for place, draw in zip(places.tolist(), draws.tolist(), strict=True):
        question, sample = divmod(place, SAMPLES)
        right = question * 7 % 1000
        answer = right if draw[0] % 100 < 60 else right + 1 + draw[1] % 5
        text = " ".join([words[number % len(words)] for number in draw[2:]])
        row = {
            "id": f"q{question}",
            "question": (
                f"What is number {question} of the list, times seven, without the thousands?"
            ),
            "gold": str(right),
            "sample": sample,
            "text": f"{text} The answer is {answer}.",
            "tokens": 80 + draw[7] % 40,
        }
        yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _mixed(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """SplitMix64 of some numbers."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


@cache
def _words() -> list[str]:
    """Sentences of ten words each; drawn once, from a seed."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    vocabulary = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(2000)]
    return [" ".join(rng.choice(vocabulary, 10)).capitalize() + "." for _ in range(5000)]


def goals(workspace: Workspace) -> list[Goal]:
    """Import, verify, extract, select, evaluate and compare a large recording; the million
    questions are in `curve`.
    """
    whole, mixed = workspace.folder / "scale.jsonl", workspace.folder / "scale-mixed.jsonl"
    write_lines(whole, QUESTIONS)
    write_lines(mixed, SHUFFLED, shuffled=True)
    folder = workspace.folder / "scale"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        return [*_imports(whole, mixed, folder), *_derived(folder)]
    finally:
        shutil.rmtree(folder)


def _import(source: Path, out: Path, *more: str) -> Cost:
    options = ("--dataset", "scale", "--llm", LLM, "--answer-kind", "number", "--out", out, *more)
    return feval("import", "jsonl", source, *options)


def _imports(whole: Path, mixed: Path, folder: Path) -> list[Goal]:
    """CPU seconds and peak of imports, beside a loop that only parses and writes."""
    cots = f"{QUESTIONS * SAMPLES:,} CoTs"
    loop = cost(STREAMING, whole, folder / "loop.parquet")
    imported, spilled = _import(whole, folder / "a"), _import(mixed, folder / "mixed")
    shared = _import(whole, folder / "shared", "--workers", "2")
    times = (
        f"{imported.cpu_s / loop.cpu_s:.1f} x a loop that parses and writes ({loop.cpu_s:.0f} s,"
        f" {loop.mb:.0f} MB)"
    )
    return [
        Goal(f"import of {cots}", imported.cpu_s, 60, "s", note=times),
        Goal(
            f"import of {cots}, peak",
            imported.mb,
            400,
            "MB",
            note=f"{whole.stat().st_size / 1e6:.0f} MB of JSON Lines",
        ),
        Goal(
            f"import of {SHUFFLED * SAMPLES:,} CoTs in any order",
            spilled.cpu_s,
            None,
            "s",
            note=f"{spilled.mb:.0f} MB",
        ),
        _speed("import", imported, shared),
    ]


def _speed(command: str, alone: Cost, shared: Cost) -> Goal:
    took = (
        f"{shared.cpu_s:.0f} s of CPU against {alone.cpu_s:.0f}, {shared.mb:.0f} MB in the process"
        " that started them"
    )
    times = alone.seconds / shared.seconds
    return Goal(
        f"{command}, throughput of 2 workers over 1", times, None, "x", at_least=True, note=took
    )


def _derived(folder: Path) -> list[Goal]:
    """CPU seconds and peak of what is done with the recording of `_imports`."""
    recording = folder / "a"
    commands = {
        "verify": ("verify", recording),
        "extract": ("extract", recording, "--out", folder / "b"),
        "select of half of the CoTs": (
            "select",
            recording,
            "--samples",
            SAMPLES // 2,
            "--out",
            folder / "c",
        ),
        "exact curve": ("curve", "self-consistency", "--recording", recording, "--n", "1..40"),
        "seeded run": (
            "run",
            "adaptive-consistency",
            "--recording",
            recording,
            "--replicates",
            20,
            "--order",
            "seeded",
        ),
    }
    took = {name: feval(*command) for name, command in commands.items()}
    return [
        *(
            Goal(f"{name}, {QUESTIONS:,} x {SAMPLES}", c.cpu_s, None, "s", note=f"{c.mb:.0f} MB")
            for name, c in took.items()
        ),
        _speed("verify", took["verify"], feval("verify", recording, "--workers", 2)),
        *_exports(recording, folder),
        *_comparison(recording, folder / "plan.toml", folder / "compared"),
    ]


def _exports(recording: Path, folder: Path) -> list[Goal]:
    """CPU and peak of writing the CoTs as each format, and what a second worker brings."""
    took = {
        to: feval("export", recording, "--to", to, "--out", folder / to)
        for to in ("jsonl", "csv", "parquet")
    }
    shared = feval(
        "export", recording, "--to", "jsonl", "--out", folder / "shared.jsonl", "--workers", 2
    )
    return [
        *(
            Goal(
                f"export as {to}, {QUESTIONS:,} x {SAMPLES}",
                c.cpu_s,
                None,
                "s",
                note=f"{c.mb:.0f} MB",
            )
            for to, c in took.items()
        ),
        _speed("export as jsonl", took["jsonl"], shared),
    ]


def _comparison(recording: Path, plan: Path, out: Path) -> list[Goal]:
    """CPU per question and peak of a comparison with all its files, large enough for columns to lie
    in a file.
    """
    feval(
        "compare", plan, "--init", "--recording", recording, "--order", "seeded", "--replicates", 10
    )
    took = feval("compare", plan, "--out", out)
    name, size = (
        f"compare with --out, {QUESTIONS:,} x {SAMPLES}",
        sum(path.stat().st_size for path in out.iterdir()),
    )
    per_question = 1e3 * took.cpu_s / QUESTIONS
    return [
        Goal(
            f"{name}, per question",
            per_question,
            1,
            "ms",
            note=f"{took.cpu_s:.0f} s; {size / 1e6:.0f} MB of files",
        ),
        Goal(f"{name}, peak", took.mb, 400, "MB"),
    ]

"""CPU time of actions and of whole processes, goals, and the files that several benchmarks share.

Every ratio is CPU time over CPU time, both measured in one run of one process and alternating,
medians of at least `RUNS`. Nothing here looks at the wall clock: the machine may be shared.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from benchmarks import reference

ROOT = Path(__file__).resolve().parents[1]
RUNS = 7


@dataclass(frozen=True)
class Goal:
    """One measured number and what it should be.

    Attributes:
        name: what was measured.
        measured: the number.
        limit: what it should be at least, or at most; `None` for a number that is only reported.
        unit: of both.
        at_least: whether more is better.
        note: the numbers behind a ratio.
    """

    name: str
    measured: float
    limit: float | None
    unit: str
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the number is on the right side of its limit."""
        if self.limit is None:
            return True
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def row(self) -> str:
        """A line of the table."""
        goal = (
            "-"
            if self.limit is None
            else f"{'>=' if self.at_least else '<='} {self.limit:,g} {self.unit}"
        )
        verdict = "" if self.limit is None else "pass" if self.met else "MISS"
        return (
            f"{self.name:<58} {goal:>16}  {_number(self.measured):>10} {self.unit:<5} {verdict:<5}"
            f" {self.note}"
        )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cpu_ms(
    actions: Mapping[str, Callable[[], object]],
    runs: int = RUNS,
    batch_ms: float = 5.0,
    pick: Callable[[list[float]], float] = median,
) -> dict[str, float]:
    """Median CPU milliseconds of each action, in alternating runs.

    An action that is shorter than `batch_ms` is repeated within a run until the run is long enough
    for the clock.

    Args:
        actions: name -> action. Each is called once before anything is timed.
        runs: at least 7.
        batch_ms: least CPU time of one run.
        pick: `min`, the least disturbed run, where a number is no ratio and a busy neighbour would
            not cancel out.
    """
    repeats = {}
    for name, action in actions.items():
        action()
        repeats[name] = max(1, round(batch_ms / max(_once(action, 1), 1e-3)))
    timed: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(runs):
        for name, action in actions.items():
            timed[name].append(_once(action, repeats[name]))
    return {name: pick(values) for name, values in timed.items()}


def _once(action: Callable[[], object], repeats: int) -> float:
    gc.collect()
    started = time.process_time_ns()
    for _ in range(repeats):
        action()
    return (time.process_time_ns() - started) / repeats / 1e6


def process_ms(programs: Mapping[str, list[str]], runs: int = RUNS) -> dict[str, float]:
    """Median CPU milliseconds (user + system) of whole Python processes, in alternating runs.

    Args:
        programs: name -> arguments of the interpreter. Each runs once before anything is timed:
            files are in the page cache, modules are compiled.
        runs: at least 7.
    """
    for arguments in programs.values():
        python(arguments)
    timed: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(runs):
        for name, arguments in programs.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            python(arguments)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            timed[name].append(
                1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            )
    return {name: median(values) for name, values in timed.items()}


@cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="feval-bench-bytecode-")


def python(arguments: list[str]) -> str:
    """Run this interpreter in a fresh process at the root of the checkout; gives what it printed.

    Modules are compiled once per run of the benchmarks, whatever the environment says of bytecode:
    an installed package is compiled, and a checkout should be measured alike.
    """
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    environment["PYTHONPYCACHEPREFIX"] = _bytecode().name
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{arguments} failed:\n{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class Workspace:
    """The synthetic files, made when they are first asked for and kept for every later benchmark of
    the run.

    Attributes:
        folder: where they lie.
        questions: of the synthetic recording; fewer for a quick look, which proves nothing.
    """

    folder: Path
    questions: int = 1319

    def content(self, llms: int) -> reference.Synthetic:
        """The synthetic content with its first `llms` LLMs."""
        return reference.Synthetic(questions=self.questions, llms=reference.LLM_NAMES[:llms])

    def archive(self, llms: int) -> Path:
        """The baseline's zip."""
        path = self.folder / f"{self.questions}-{llms}.zip"
        if not path.exists():
            partial = path.with_suffix(".partial")
            reference.write_archive(self.content(llms), partial)
            partial.rename(path)
        return path

    def recording(self, llms: int) -> Path:
        """The same content as a recording."""
        path = self.folder / f"{self.questions}-{llms}-recording"
        if not path.exists():
            reference.write_recording(self.content(llms), path)
        return path

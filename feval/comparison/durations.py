"""What a comparison will take, before it starts: every method measured on the first questions, in
this process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from feval.comparison.plan import ComparedMethod, Plan
from feval.comparison.runner import FailedMethod, Runner, kinds_of, prepared
from feval.evaluation.user_methods import TIME_LIMIT, MethodFile

_FIRST_QUESTIONS, _MOST_QUESTIONS = 4, 4096
# a trial is enough if it takes the one and grew, or the other
_TRIAL_SECONDS, _LONG_SECONDS = 0.1, 1.0


@dataclass(frozen=True)
class MethodDuration:
    """Seconds that a method will take at all its budgets in one process, from those on
    `measured_questions`.
    """

    label: str
    kinds: tuple[str, ...]
    points: int
    measured_questions: int
    seconds: float


@dataclass(frozen=True)
class Durations:
    """What the evaluations of a comparison will take; its statistics and files are not among them.

    Attributes:
        plan: what was planned, with its number of replicates.
        questions: number of questions, those learnt from included.
        methods: those that can be evaluated, in the plan's order.
        missing: the methods and points that cannot, and why.
    """

    plan: Plan
    questions: int
    methods: tuple[MethodDuration, ...]
    missing: tuple[FailedMethod, ...]

    def seconds(self, workers: int = 1) -> float:
        """All methods together; exact ones stay in one process, others are shared by the
        workers.
        """
        return sum(
            each.seconds / (1 if each.kinds == ("exact",) else workers) for each in self.methods
        )

    def to_dict(self, workers: int = 1) -> dict[str, Any]:
        """The durations as JSON values."""
        return {
            "plan": self.plan.to_dict(),
            "questions": self.questions,
            "replicates": self.plan.replicates,
            "workers": workers,
            "seconds": self.seconds(workers),
            "methods": [asdict(each) for each in self.methods],
            "missing": [asdict(each) for each in self.missing],
        }


def durations(
    plan: Plan,
    *,
    base: Path | None = None,
    time_limit: float | None = TIME_LIMIT,
    methods: Sequence[str | MethodFile] | Mapping[str, Any] = (),
) -> Durations:
    """Measure what `compare` will take; arguments and errors are its own."""
    missing: list[FailedMethod] = []
    runner = prepared(
        plan, plan.folder if base is None else base, missing, methods=methods, time_limit=time_limit
    ).runner

    def measured(runner: Runner) -> tuple[list[MethodDuration], list[FailedMethod]]:
        failed: list[FailedMethod] = []
        return [
            one for entry in plan.entries if (one := _measured(runner, entry, failed)) is not None
        ], failed

    found, failed = runner.or_seeded(measured)
    return Durations(runner.plan, len(runner.rows), tuple(found), (*missing, *failed))


def _measured(
    runner: Runner, entry: ComparedMethod, missing: list[FailedMethod]
) -> MethodDuration | None:
    """Evaluate a method on ever more questions until that takes a while; the first trial also loads
    what it needs.
    """
    if not set(entry.llms) <= set(runner.llms):
        return None  # said already
    # a user's method runs in another process
    clock = time.perf_counter if ":" in entry.method else time.process_time
    trials: list[tuple[int, float]] = []
    most = min(_MOST_QUESTIONS, len(runner.rows))
    size = min(_FIRST_QUESTIONS, most)
    while True:
        failed: list[FailedMethod] = []
        began = clock()
        curve = replace(runner, rows=runner.rows[:size]).curve(entry, failed)
        for point in () if curve is None else curve.points:
            point.errors()
        trials.append((size, max(clock() - began, 1e-9)))
        if size == most or (
            len(trials) > 1 and _is_enough(trials[-2][1], trials[-1][1], len(trials))
        ):
            break
        size = min(4 * size, most)
    missing.extend(failed)
    if curve is None:
        return None
    kinds = kinds_of([curve])
    seconds = _extrapolated(trials, len(runner.rows), exact=kinds == ("exact",))
    return MethodDuration(entry.label, kinds, len(curve.points), size, seconds)


def _is_enough(shorter: float, seconds: float, trials: int) -> bool:
    """Whether a trial says enough, after a shorter one."""
    return seconds >= _LONG_SECONDS or (trials > 2 and seconds >= max(_TRIAL_SECONDS, 2 * shorter))


def _extrapolated(trials: Sequence[tuple[int, float]], questions: int, *, exact: bool) -> float:
    """Seconds for all questions: in proportion beside a fixed part; a power for exact methods,
    which solve each vector once.
    """
    size, seconds = trials[-1]
    before, shorter = trials[-2] if len(trials) > 2 else (0, 0.0)
    if exact and before:
        power = min(max(math.log(seconds / shorter) / math.log(size / before), 0.0), 1.0)
        return seconds * float((questions / size) ** power)
    each = (seconds - shorter) / (size - before)
    return seconds + (questions - size) * (each if each > 0 else seconds / size)

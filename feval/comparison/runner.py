"""Evaluate the methods of a comparison, each on the same questions and draws, and note which fail
and why.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from feval.comparison.plan import ComparedMethod, Plan
from feval.errors import FevalError, NotExactError, StorageError, UnknownNameError, UsageError
from feval.evaluation import TIME_LIMIT, Evaluation, MethodFile, budgets, evaluate
from feval.evaluation.cautions import swept_text
from feval.evaluation.questions import NONE_LEFT_OUT, LeftOut, Rows, question_set
from feval.executors import Progress, silent
from feval.hub import open_place
from feval.methods import Oracle, SelfConsistency, SingleCall
from feval.methods.protocol import is_exact
from feval.replay import load
from feval.replay.draws import SharedDraws
from feval.values import Record, RecordLike, frozen

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.cards import PriceList
    from feval.recording import Recording
    from feval.replay import LLM, Dataset


_Result = TypeVar("_Result")
_EXACT = 40  # CoTs whose handing out takes about as long as an expectation
_CEILING = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 60, 80, 100)


@frozen
class MethodCurve:
    """One method over its budgets.

    Attributes:
        label: what tables and pictures call it.
        entry: the method as the plan has it.
        points: evaluations in the order of the sweep, all on the same questions, without those that
            failed.
    """

    label: str
    entry: ComparedMethod
    points: tuple[Evaluation, ...]

    def budget(self, point: int) -> str:
        """The value of the swept field at a point, as text; empty without a sweep."""
        field = self.entry.swept
        return field and str(self.points[point].fields.get(field))

    def budget_text(self, point: int) -> str:
        """The swept field and its value, such as "n=5"; empty without a sweep. A budget in USD is
        that of 1,000 questions.
        """
        field, result = self.entry.swept, self.points[point]
        unit = result.learnt[0].unit if result.learnt else None
        return swept_text(field, result.fields.get(field), unit)


@frozen
class FailedMethod:
    """A method, or one of its points, that could not be evaluated, and why."""

    label: str
    reason: str


def prepared(
    plan: Plan,
    base: Path,
    missing: list[FailedMethod],
    *,
    recordings: Sequence[Recording] | None = None,
    prices: PriceList | None = None,
    methods: Sequence[str | MethodFile] | RecordLike = (),
    executor: Executor | None = None,
    time_limit: float | None = None,
    progress: Progress = silent,
) -> Runner:
    """Load what a plan names, choose its questions and the number of replicates; methods with LLMs
    that were not recorded go missing. Arguments and errors are those of `compare`.
    """
    methods = methods if isinstance(methods, Mapping) else plan.users_methods(methods, base)
    places, listed_prices = plan.places(base)
    recordings = recordings or [open_place(place) for place in places]
    recorded = [name for recording in recordings for name in recording.llm_names(plan.dataset)]
    for entry in plan.entries:
        absent = next((llm for llm in entry.llms if recorded and llm not in recorded), None)
        if absent is not None:
            advice = f"These are recorded on {plan.dataset}; record it, or change the comparison."
            with _noted(entry.label, missing):
                raise UnknownNameError.among("recorded LLM", absent, recorded, advice)
    named = dict.fromkeys(llm for entry in plan.entries for llm in entry.llms)
    names = [name for name in named if not recorded or name in recorded]
    if not names:
        raise UsageError(
            f"No LLM of the comparison is recorded on {plan.dataset}: {missing[0].reason}"
        )
    loading = plan.loading() | {"prices": prices or listed_prices}
    dataset, loaded = load(plan.dataset, names, list(recordings), **loading)
    llms = {llm.name: llm for llm in loaded}
    drawing = {name: llm.drawing(SharedDraws().orders) for name, llm in llms.items()}
    everything, work = np.arange(len(dataset)), Work(progress)
    runner = Runner(plan, (dataset, llms), drawing, everything, executor, time_limit, methods, work)
    # the most that any point of any method may ask for; points that cannot be made ask for none
    possible = runner.possible() if plan.short_pools == "drop" else ()
    largest = [budget for method, asked in possible for budget in _budgets(method, asked)]
    questions = question_set(
        dataset, largest, unlabelled=plan.unlabelled, short_pools=plan.short_pools, by_cot=True
    )
    plan = plan.with_replicates(len(plan.judged(dataset, questions.rows)))
    return replace(runner, plan=plan, rows=questions.rows, left_out=questions.left_out)


@dataclass
class Work:
    """Work that was done, in CoTs handed out per question, and a function that is told of it and of
    all work.
    """

    report: Progress
    done: int = 0


@contextmanager
def _noted(
    label: str, missing: list[FailedMethod], through: type[FevalError] = StorageError
) -> Iterator[None]:
    """Note why something fails; that there is no room for its numbers stops them all, and so does
    an error that goes `through`.
    """
    try:
        yield
    except (StorageError, through):
        raise
    except FevalError as error:
        missing.append(FailedMethod(label, str(error)))


@dataclass(frozen=True)
class Runner:
    """Evaluates the methods of a plan on the questions in some rows, and notes why one fails.

    Attributes:
        loaded: the dataset, and the LLMs of the plan that were recorded.
        llms: those that share their draws among the methods.
        inexact: why all draws are seeded though every method has an exact expectation; `None` where
            they are not.
        left_out: questions that were left out.
    """

    plan: Plan
    loaded: tuple[Dataset, dict[str, LLM]]
    llms: dict[str, LLM]
    rows: Rows
    executor: Executor | None
    time_limit: float | None
    methods: RecordLike
    work: Work
    inexact: str | None = None
    left_out: LeftOut = NONE_LEFT_OUT

    def each(
        self, compute: Callable[[Runner, ComparedMethod, list[FailedMethod]], Iterator[_Result]]
    ) -> tuple[Runner, list[_Result], list[FailedMethod]]:
        """What a function makes of each method, and those that fail; where an expectation by
        default cannot be computed, of a runner of seeded draws.
        """
        failed: list[FailedMethod] = []
        try:
            results = [one for entry in self.loaded_entries for one in compute(self, entry, failed)]
        except NotExactError as error:
            if self.inexact is not None:
                raise
            seeded = replace(self, inexact=error.reason, work=Work(self.work.report))
            return seeded.each(compute)
        return self, results, failed

    @property
    def loaded_entries(self) -> list[ComparedMethod]:
        """The methods whose LLMs are loaded; of the others it was noted that they are not."""
        return [entry for entry in self.plan.entries if set(entry.llms) <= set(self.llms)]

    @cached_property
    def order(self) -> str | None:
        """The kind of every evaluation; `None` where the plan lets each method have its own."""
        if self.plan.order is not None:
            return None if self.plan.order == "mixed" else self.plan.order
        if self.inexact is not None:
            return "seeded"
        return "exact" if all(self._is_exact(method) for method, _ in self.possible()) else "seeded"

    def _is_exact(self, method: Any) -> bool:
        return is_exact(method, self.plan.cost, self.plan.parallel)

    def possible(self) -> Iterator[tuple[Any, list[LLM]]]:
        """The methods that can be made, with their LLMs; the others go missing when they are
        evaluated.
        """
        for entry in self.loaded_entries:
            for _, settings in entry.points():
                with suppress(FevalError):
                    yield self._method(entry, settings), [self.llms[name] for name in entry.llms]

    @cached_property
    def all_work(self) -> int:
        """Work of all methods, the few calls of baselines and ceilings left out."""
        return sum(self._size(method, llms, self.order) for method, llms in self.possible())

    def _size(self, method: Any, llms: Sequence[LLM], order: str | None) -> int:
        if order == "exact" or (order is None and self._is_exact(method)):
            return _EXACT
        cots = sum(most for _, most in _budgets(method, llms)) or len(llms)
        return cots * (1 if order == "recorded" else self.plan.replicates or 1)

    def curve(self, entry: ComparedMethod, missing: list[FailedMethod]) -> Iterator[MethodCurve]:
        """A method over its budgets; nothing, and a reason among `missing`, where none can be
        evaluated.
        """
        llms = [self.llms[name] for name in entry.llms]
        points: list[Evaluation] = []
        failed: list[FailedMethod] = []
        through = NotExactError if self.plan.order is None else StorageError
        for label, settings in entry.points():
            with _noted(label, failed, through):
                method = self._method(entry, settings)
                points.append(self._evaluated(method, llms, self.order, self.plan.learning(entry)))
        if not points and len({one.reason for one in failed}) == 1:
            failed = [FailedMethod(entry.label, failed[0].reason)]
        missing.extend(failed)
        if points:
            yield MethodCurve(entry.label, entry, tuple(points))

    def baseline(self, llm: LLM, missing: list[FailedMethod]) -> Iterator[Evaluation]:
        """A single call of an LLM."""
        # a vote of one is no call where a CoT without an answer may be right
        by_cot = self.loaded[0].rightness is not None
        with _noted(f"single call of {llm.name}", missing):
            call = SingleCall() if by_cot else SelfConsistency(1)
            yield self._evaluated(call, [llm], self.order)

    def ceiling(self, llm: LLM, missing: list[FailedMethod]) -> Iterator[MethodCurve]:
        """pass@n of an LLM."""
        most = int(llm.pool.sizes[self.rows].min())
        counts = (*(n for n in _CEILING if n < most), most)
        entry = ComparedMethod(
            label=llm.name, method="oracle", llms=(llm.name,), sweep=("n", counts)
        )
        with _noted(f"pass@n of {llm.name}", missing):
            points = [self._evaluated(Oracle(n), [llm], "exact") for n in counts]
            yield MethodCurve(llm.name, entry, tuple(points))

    def _method(self, entry: ComparedMethod, settings: Record) -> Any:
        if entry.method == "oracle":
            raise UsageError(
                "The oracle looks at the gold answers, so it cannot be compared with methods; its"
                " curve is always drawn, as the ceiling of each LLM."
            )
        return entry.make(settings, self.methods)

    def _evaluated(
        self, method: Any, llms: Sequence[LLM], order: str | None, plan: Plan | None = None
    ) -> Evaluation:
        # The questions are chosen already, once for all methods.
        chosen = {"order": order, "unlabelled": "refuse", "short_pools": "refuse"}
        options = (plan or self.plan).arguments() | chosen
        before, size = self.work.done, self._size(method, llms, order)

        def progress(done: int, total: int) -> None:
            self.work.done = before + size * done // total
            self.work.report(min(self.work.done, self.all_work), self.all_work)

        evaluation = evaluate(
            method,
            self.loaded[0],
            llms,
            rows=self.rows,
            executor=self.executor,
            time_limit=self.time_limit,
            progress=progress,
            **options,
        )
        progress(1, 1)
        if not evaluation.known_costs(self.plan.cost).mean() > 0:
            raise UsageError(
                f"It costs nothing in {self.plan.cost}, and the axis of costs is logarithmic;"
                " choose another cost."
            )
        return evaluation


def _budgets(method: Any, llms: Sequence[LLM]) -> list[tuple[LLM, int]]:
    with suppress(FevalError):
        return budgets(method, llms)
    return []


def kinds_of(curves: Sequence[MethodCurve]) -> tuple[str, ...]:
    """How the points of some curves were computed, each kind once."""
    return tuple(dict.fromkeys(point.kind for curve in curves for point in curve.points))


_FIRST_QUESTIONS, _MOST_QUESTIONS = 4, 4096
_TRIAL_SECONDS, _LONG_SECONDS = 0.1, 1.0


@frozen
class MethodDuration:
    """Seconds that a method will take at all its budgets in one process, from those on
    `measured_questions`.
    """

    label: str
    kinds: tuple[str, ...]
    points: int
    measured_questions: int
    seconds: float


@frozen
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

    def to_dict(self, workers: int = 1) -> Record:
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
    methods: Sequence[str | MethodFile] | RecordLike = (),
) -> Durations:
    """Measure what `compare` will take; arguments and errors are its own."""
    missing: list[FailedMethod] = []
    base = plan.folder if base is None else base
    runner = prepared(plan, base, missing, methods=methods, time_limit=time_limit)
    runner, found, failed = runner.each(_measured)
    return Durations(runner.plan, len(runner.rows), tuple(found), (*missing, *failed))


def _measured(
    runner: Runner, entry: ComparedMethod, missing: list[FailedMethod]
) -> Iterator[MethodDuration]:
    """Evaluate a method on ever more questions until that takes a while; the first trial also loads
    what it needs.
    """
    # a user's method runs in another process
    clock = time.perf_counter if ":" in entry.method else time.process_time
    trials: list[tuple[int, float]] = []
    most = min(_MOST_QUESTIONS, len(runner.rows))
    size = min(_FIRST_QUESTIONS, most)
    while True:
        failed: list[FailedMethod] = []
        began = clock()
        curves = list(replace(runner, rows=runner.rows[:size]).curve(entry, failed))
        for point in (point for curve in curves for point in curve.points):
            point.errors()
        trials.append((size, max(clock() - began, 1e-9)))
        # a trial is enough if it takes the one and grew, or the other; the first is none
        seconds = trials[-1][1] if len(trials) > 1 else 0.0
        grew = len(trials) > 2 and seconds >= max(_TRIAL_SECONDS, 2 * trials[-2][1])
        # a budget to learn by may be too small for the few questions of a trial
        longer = bool(failed) and entry.train_fraction is not None
        if size == most or ((grew or seconds >= _LONG_SECONDS) and not longer):
            break
        size = min(4 * size, most)
    missing.extend(failed)
    for curve in curves:
        kinds = kinds_of(curves)
        seconds = _extrapolated(trials, len(runner.rows), exact=kinds == ("exact",))
        yield MethodDuration(entry.label, kinds, len(curve.points), size, seconds)


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

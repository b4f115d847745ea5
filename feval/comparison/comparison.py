"""Compare methods on the same questions and the same draws: differences, savings, the frontier, areas, a ranking.

Accuracies have score intervals, differences sign-flip tests, all else one set of bootstrap resamples of questions, in which every
method sees the same questions. `docs/comparing.md` says what each number means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import executors
from feval.comparison.columns import ColumnFile
from feval.comparison.plan import AXES, ComparedMethod, Plan
from feval.comparison.statistics import (
    AccuracyDifference,
    CostToReach,
    FrontierPoint,
    HullArea,
    Rank,
    Saving,
    by_key,
    costs_of,
    statistics,
)
from feval.errors import FevalError, StorageError, UnknownNameError, UsageError
from feval.estimators.inference.bootstrap import MOST_QUESTIONS
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.inference.sign_flips import MOST_EXACT
from feval.evaluation.cautions import billed_once, few_questions
from feval.evaluation.evaluation import Evaluation, budgets, evaluate
from feval.evaluation.oracle import Oracle
from feval.evaluation.question_set import NONE_LEFT_OUT, LeftOut, Rows, question_set
from feval.evaluation.user_methods import TIME_LIMIT, MethodFile
from feval.hub.places import open_place
from feval.methods import METHODS, SelfConsistency
from feval.methods.protocol import has_exact_form
from feval.replay import load
from feval.replay.shared_draws import SharedDraws

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.cards.prices import PriceList
    from feval.recording import Recording
    from feval.replay import LLM, Dataset

_ERRORS = ("no_answer", "stopped_early", "routed_wrong")
_MOST_NUMBERS = 1 << 23  # of intervals computed at once
_CEILING = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 60, 80, 100)


@dataclass(frozen=True)
class MethodCurve:
    """One method over its budgets.

    Attributes:
        label: what tables and pictures call it.
        entry: the method as the plan has it.
        points: evaluations in the order of the sweep, all on the same questions, without those that failed.
    """

    label: str
    entry: ComparedMethod
    points: tuple[Evaluation, ...]

    def budget(self, point: int) -> str:
        """The value of the swept field at a point, as text; empty without a sweep."""
        return "" if self.entry.sweep is None else str(self.points[point].fields.get(self.entry.sweep[0]))

    def budget_text(self, point: int) -> str:
        """The swept field and its value, such as "n=5"; empty without a sweep."""
        return "" if self.entry.sweep is None else f"{self.entry.sweep[0]}={self.budget(point)}"


@dataclass(frozen=True)
class FailedMethod:
    """A method, or one of its points, that could not be evaluated, and why."""

    label: str
    reason: str


@dataclass(frozen=True)
class Comparison:
    """Methods on the same questions and draws.

    Attributes:
        plan: what was compared.
        curves: the methods that could be evaluated, in the plan's order.
        missing: the methods and points that could not, and why.
        baselines: a single call of each LLM.
        ceilings: pass@n of each LLM over n, labelled by the LLM: no method that chooses among its answers can do better.
        frontier: the Pareto frontier, by cost.
        areas: one per curve; none where all points cost the same.
        differences: every pair of curves at the plan's costs, or at some that the pair shares.
        savings: every pair at the plan's accuracies, or at some that the curves share.
        reaches: the cost at which every curve reaches those accuracies.
        ranking: strongest first; empty for a single curve.
        left_out: questions that were left out because they have no gold or too few CoTs.
        methods: users' methods by their name in the plan, with the source that was run.
    """

    plan: Plan
    curves: tuple[MethodCurve, ...]
    missing: tuple[FailedMethod, ...]
    baselines: tuple[Evaluation, ...]
    ceilings: tuple[MethodCurve, ...]
    frontier: tuple[FrontierPoint, ...]
    areas: tuple[HullArea, ...]
    differences: tuple[AccuracyDifference, ...]
    savings: tuple[Saving, ...]
    reaches: tuple[CostToReach, ...]
    ranking: tuple[Rank, ...]
    left_out: LeftOut = NONE_LEFT_OUT
    methods: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """How the methods were computed: "exact", "recorded" or "seeded"; several of these if the plan mixes them."""
        return _kinds(self.curves)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that keep a reader from being misled."""
        points = [(curve.label, point) for curve in self.curves for point in curve.points]
        few = few_questions(points[0][1].questions) if points else []
        return (*few, *billed_once(self.plan.billing, points), *self._not_exact())

    def _not_exact(self) -> list[str]:
        """A warning that kinds are mixed, or why figures differ from those of `feval curve`."""
        if len(self.kinds) > 1:
            return ["Exact and seeded methods are mixed: differences between them include the noise of the draws."]
        names = list(dict.fromkeys(curve.entry.method for curve in self.curves))
        exact = [name for name in names if name in METHODS and has_exact_form(METHODS[name])]
        if self.kinds != ("seeded",) or not exact:
            return []
        without = next((name for name in names if name not in exact), None)
        why = f"{without} has no exact expectation" if self.plan.order is None and without else "their order is seeded"
        sentence = (
            f"All methods are averaged over the same {self.plan.replicates:,} seeded draws, since {why}. Where `feval run` and "
            f"`feval curve` show exact expectations ({', '.join(exact)}), these figures differ by the noise of the draws."
        )
        return [sentence]

    @property
    def tests(self) -> int:
        """Number of p-values, which are adjusted for each other."""
        return sum(row.p_value is not None for row in self.differences)

    @property
    def smallest_p(self) -> float:
        """The smallest adjusted p-value possible with this many questions, random sign flips and tests."""
        questions = self.curves[0].points[0].questions
        least = 2.0 ** (1 - min(questions, MOST_EXACT))
        if questions > MOST_EXACT:
            least = min(least, 1.0 / (self.plan.resamples + 1))
        return min(1.0, max(self.tests, 1) * least)

    def per_question(self) -> dict[str, Any]:
        """Columns of one row per point of a method and question: lists of text, and arrays.

        `method` (label), `point` (its place in the curve), `budget` (value of the swept field, as text), `llms`, `kind`,
        `question` (id), and means over the draws: `right` (probability), `usd` and `tokens` (NaN where not known), `samples`,
        `calls`, and how errors came about: `no_answer`, `stopped_early`, `routed_wrong` (NaN where not known).
        """
        points = [point_columns(curve, place) for curve in self.curves for place in range(len(curve.points))]
        columns: dict[str, Any] = {}
        for name in points[0]:
            values = [(point[name], len(point["question"])) for point in points]
            if isinstance(values[0][0], str):
                columns[name] = [text for text, questions in values for _ in range(questions)]
            elif name == "question":
                columns[name] = [question for ids, _ in values for question in ids]
            else:
                columns[name] = np.concatenate([np.broadcast_to(value, questions) for value, questions in values])
        return columns

    def to_frame(self, library: str | None = None) -> Any:
        """The columns of `per_question` as a DataFrame.

        Args:
            library: "pandas" or "polars"; `None` for the first of them that is installed.

        Raises:
            UsageError: the library is not installed, or is another one.
        """
        known = ("pandas", "polars")
        if library not in (None, *known):
            raise UnknownNameError.of("library of DataFrames", str(library), known)
        for name in known if library is None else (library,):
            try:
                frames = import_module(name)
            except ImportError:
                continue
            return frames.DataFrame(self.per_question())
        raise UsageError(
            f"A DataFrame needs {library or 'pandas or polars'}, which feval does not install. Install it, or use "
            "per_question(), whose columns are plain lists and arrays."
        )

    def to_dict(self) -> dict[str, Any]:
        """All averages and statistics as JSON values; `None` for what has no finite value, see the classes."""
        first = self.curves[0].points[0]
        content: dict[str, Any] = {
            "dataset": self.plan.dataset,
            "questions": first.questions,
            "train_questions": first.train_questions,
            "axis": self.plan.axis,
            "recording_hashes": list(first.recording_hashes),
            "plan": self.plan.to_dict(),
            "curves": [_curve_dict(curve) for curve in self.curves],
            "missing": [asdict(missing) for missing in self.missing],
            "baselines": [point.to_dict() for point in self.baselines],
            "ceilings": [_curve_dict(curve) for curve in self.ceilings],
            "tests": self.tests,
            "kinds": list(self.kinds),
            "warnings": list(self.warnings),
        }
        for name in ("frontier", "areas", "differences", "savings", "reaches", "ranking"):
            content[name] = [asdict(row) for row in getattr(self, name)]
        return content | ({"left_out": self.left_out.to_dict()} if self.left_out else {})


def point_columns(curve: MethodCurve, place: int) -> dict[str, Any]:
    """The columns of `Comparison.per_question` for one point: ids and numbers of its questions, and what all of them share."""
    point = curve.points[place]
    numbers = {name: getattr(point, name) for name in ("right", "usd", "tokens", "samples", "calls", *_ERRORS)}
    return {
        "method": curve.label,
        "budget": curve.budget(place),
        "llms": " > ".join(point.llms),
        "kind": point.kind,
        "point": place,
        "question": point.question_ids,
        **{name: np.nan if value is None else value for name, value in numbers.items()},
    }


def _curve_dict(curve: MethodCurve) -> dict[str, Any]:
    sweep = None if curve.entry.sweep is None else curve.entry.sweep[0]
    points = [point.to_dict() for point in curve.points]
    return {"label": curve.label, "llms": list(curve.entry.llms), "sweep": sweep, "points": points}


def compare(
    plan: Plan,
    *,
    workers: int = 1,
    executor: Executor | None = None,
    base: Path = Path(),
    time_limit: float | None = TIME_LIMIT,
    recordings: Sequence[Recording] | None = None,
    prices: PriceList | None = None,
    methods: Sequence[str | MethodFile] | Mapping[str, Any] = (),
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Comparison:
    """Evaluate the methods of a plan and compare them.

    Args:
        plan: what to compare.
        workers: processes for all evaluations together; the numbers are the same for any number.
        executor: takes their place, see `evaluate`.
        base: the folder that the plan's paths start from: that of its file.
        time_limit: seconds that a user's method may take on one question; `None` for no limit.
        recordings: opened recordings, in place of those that the plan names.
        prices: a price list, in place of the one that the plan names.
        methods: users' methods that it may run, as FILE.py:FUNCTION, since a plan runs no code by itself; or methods by their
            name in the plan, in place of the files it names: for an error, the method is missing and the error is the reason.
        progress: called with (methods done, methods in all).

    Raises:
        NotRecordedError: the recordings lack the dataset.
        UnlabelledError: questions have no gold answer that can be read.
        ShortPoolError: every question is to be left out because a pool is too small for the plan's largest budget.
        RecordingError: a recording cannot be read.
        UsageError: the plan names a user's method that was not given, or no method of it could be evaluated; the message gives
            the reasons.
    """
    if executor is None and workers != 1:
        with executors.opened(workers) as opened:
            same: dict[str, Any] = {"base": base, "time_limit": time_limit, "recordings": recordings, "prices": prices}
            return compare(plan, executor=opened, methods=methods, progress=progress, **same)
    methods = methods if isinstance(methods, Mapping) else plan.users_methods(methods, base)
    missing: list[FailedMethod] = []
    dataset, llms = _load(plan, base, missing, recordings, prices)
    runner = _Runner(plan, dataset, llms, np.arange(len(dataset)), executor, time_limit, methods, progress)
    largest = runner.largest_budgets() if plan.short_pools == "drop" else ()
    questions = question_set(dataset, largest, unlabelled=plan.unlabelled, short_pools=plan.short_pools)
    judged = len(plan.split(dataset, questions.rows)[1])
    plan = plan.with_replicates(judged)
    columns = ColumnFile(judged) if judged > MOST_QUESTIONS else None
    runner = replace(runner, plan=plan, rows=questions.rows, columns=columns)
    curves = _marked([curve for entry in plan.entries if (curve := runner.curve(entry, missing)) is not None])
    if not curves:
        reasons = "; ".join(f"{one.label}: {one.reason}" for one in missing[:5])
        raise UsageError(f"No method of the comparison could be evaluated. {reasons}")
    names = list(dict.fromkeys(llm for curve in curves for llm in curve.entry.llms))
    baselines = [point for name in names if (point := runner.baseline(llms[name], missing)) is not None]
    ceilings = [curve for name in names if (curve := runner.ceiling(llms[name], missing)) is not None]
    curves, baselines, ceilings = _with_intervals(plan, curves, baselines, ceilings)
    results = statistics(plan, {curve.label: curve.points for curve in curves})
    return Comparison(
        plan=plan,
        curves=tuple(curves),
        missing=tuple(missing),
        baselines=tuple(baselines),
        ceilings=tuple(ceilings),
        left_out=questions.left_out,
        methods=methods,
        **{part.name: getattr(results, part.name) for part in fields(results)},
    )


def _load(
    plan: Plan,
    base: Path,
    missing: list[FailedMethod],
    recordings: Sequence[Recording] | None,
    price_list: PriceList | None,
) -> tuple[Dataset, dict[str, LLM]]:
    """The dataset and the LLMs of the plan that were recorded; methods with others go missing."""
    places, prices = plan.places(base)
    recordings = recordings or [open_place(place) for place in places]
    recorded = [name for recording in recordings for name in recording.llm_names(plan.dataset)]
    llm_names = dict.fromkeys(llm for entry in plan.entries for llm in entry.llms)
    for entry in plan.entries:
        absent = next((llm for llm in entry.llms if recorded and llm not in recorded), None)
        if absent is not None:
            advice = f"These are recorded on {plan.dataset}; record it, or change the comparison."
            missing.append(
                FailedMethod(entry.label, str(UnknownNameError.of("recorded LLM", absent, recorded, advice)))
            )
    names = [name for name in llm_names if not recorded or name in recorded]
    if not names:
        raise UsageError(f"No LLM of the comparison is recorded on {plan.dataset}: {missing[0].reason}")
    dataset, llms = load(plan.dataset, names, list(recordings), **plan.loading() | {"prices": price_list or prices})
    return dataset, {llm.name: llm.drawing(SharedDraws().orders) for llm in llms}


@dataclass(frozen=True)
class _Runner:
    """Evaluates the methods of a plan, and notes why one fails."""

    plan: Plan
    dataset: Dataset
    llms: dict[str, LLM]
    rows: Rows
    executor: Executor | None
    time_limit: float | None
    methods: Mapping[str, Any]
    progress: Callable[[int, int], None]
    columns: ColumnFile | None = None

    def largest_budgets(self) -> list[tuple[LLM, int]]:
        """The most CoTs that any point of any method may ask each LLM for; points that cannot be made ask for none."""
        return [budget for method, llms in self._possible() for budget in _budgets(method, llms)]

    @cached_property
    def order(self) -> str | None:
        """The kind of every evaluation; `None` where the plan lets each method have its own."""
        if self.plan.order is not None:
            return None if self.plan.order == "mixed" else self.plan.order
        return "exact" if all(has_exact_form(method) for method, _ in self._possible()) else "seeded"

    def _possible(self) -> Iterator[tuple[Any, list[LLM]]]:
        """The methods that can be made, with their LLMs; the others go missing when they are evaluated."""
        for entry in self.plan.entries:
            for _, settings in entry.points() if set(entry.llms) <= set(self.llms) else ():
                with suppress(FevalError):
                    yield self._method(entry, settings), [self.llms[name] for name in entry.llms]

    def curve(self, entry: ComparedMethod, missing: list[FailedMethod]) -> MethodCurve | None:
        self.progress(self.plan.entries.index(entry), len(self.plan.entries))
        if not set(entry.llms) <= set(self.llms):
            return None
        llms = [self.llms[name] for name in entry.llms]
        points, failed = [], []
        for label, settings in entry.points():
            try:
                points.append(self._evaluated(self._method(entry, settings), llms, self.order))
            except FevalError as error:
                failed.append(FailedMethod(label, _reason(error)))
        if not points and len({one.reason for one in failed}) == 1:
            failed = [FailedMethod(entry.label, failed[0].reason)]
        missing.extend(failed)
        return MethodCurve(entry.label, entry, tuple(points)) if points else None

    def baseline(self, llm: LLM, missing: list[FailedMethod]) -> Evaluation | None:
        try:
            return self._evaluated(SelfConsistency(1), [llm], self.order)
        except FevalError as error:
            missing.append(FailedMethod(f"single call of {llm.name}", _reason(error)))
            return None

    def ceiling(self, llm: LLM, missing: list[FailedMethod]) -> MethodCurve | None:
        most = int(llm.pool.sizes[self.rows].min())
        counts = (*(n for n in _CEILING if n < most), most)
        entry = ComparedMethod(label=llm.name, method="oracle", llms=(llm.name,), sweep=("n", counts))
        try:
            points = tuple(self._evaluated(Oracle(n), [llm], "exact") for n in counts)
        except FevalError as error:
            missing.append(FailedMethod(f"pass@n of {llm.name}", _reason(error)))
            return None
        return MethodCurve(llm.name, entry, points)

    def _method(self, entry: ComparedMethod, settings: dict[str, Any]) -> Any:
        if entry.method == "oracle":
            raise UsageError(
                "The oracle looks at the gold answers, so it cannot be compared with methods; its curve is always drawn, as the "
                "ceiling of each LLM."
            )
        return entry.make(settings, self.methods)

    def _evaluated(self, method: Any, llms: Sequence[LLM], order: str | None) -> Evaluation:
        # The questions are chosen already, once for all methods, and so are the intervals, later.
        chosen = {"order": order, "unlabelled": "refuse", "short_pools": "refuse", "confidence": None}
        options = self.plan.arguments() | chosen
        evaluation = evaluate(
            method, self.dataset, llms, rows=self.rows, executor=self.executor, time_limit=self.time_limit, **options
        )
        axis = self.plan.axis
        costs = costs_of(evaluation, axis)
        if costs is None:
            others = ", ".join(axis for axis in AXES if costs_of(evaluation, axis) is not None)
            raise UsageError(
                f"Its {axis} per question are not known (no price for an LLM, or no prompt tokens recorded); compare by "
                f"another axis: {others}."
            )
        if not costs.mean() > 0:
            raise UsageError(
                f"It costs nothing in {axis}, and the axis of costs is logarithmic; compare by another axis."
            )
        return evaluation if self.columns is None else self.columns.stored(evaluation)


def _reason(error: FevalError) -> str:
    """Why a method is missing; that there is no room for its numbers stops them all."""
    if isinstance(error, StorageError):
        raise error
    return str(error)


def _budgets(method: Any, llms: Sequence[LLM]) -> list[tuple[LLM, int]]:
    with suppress(FevalError):
        return budgets(method, llms)
    return []


def _marked(curves: list[MethodCurve]) -> list[MethodCurve]:
    """The curves, their labels with their kind where kinds differ: exact and seeded points are not on the same draws."""
    if len(_kinds(curves)) < 2:
        return curves
    return [replace(curve, label=f"{curve.label} [{', '.join(_kinds([curve]))}]") for curve in curves]


def _kinds(curves: Sequence[MethodCurve]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(point.kind for curve in curves for point in curve.points))


def _with_intervals(
    plan: Plan, curves: Sequence[MethodCurve], baselines: Sequence[Evaluation], ceilings: Sequence[MethodCurve]
) -> tuple[list[MethodCurve], list[Evaluation], list[MethodCurve]]:
    """The same with the intervals that `evaluate` would have given each point, computed for many points at once."""
    everything = [point for curve in (*curves, *ceilings) for point in curve.points] + list(baselines)
    order = by_key(everything[0])
    step = max(1, _MOST_NUMBERS // len(order))
    complete: list[Evaluation] = []
    for start in range(0, len(everything), step):
        some = everything[start : start + step]
        ends = accuracy_interval(np.stack([point.right[order] for point in some], axis=1), plan.confidence)
        complete += map(partial(_with_interval, plan.confidence), some, ends.low.tolist(), ends.high.tolist())
    rest = iter(complete)
    methods, tops = (
        [replace(curve, points=tuple(islice(rest, len(curve.points)))) for curve in part] for part in (curves, ceilings)
    )
    return methods, list(rest), tops


def _with_interval(confidence: float, point: Evaluation, low: float, high: float) -> Evaluation:
    """A copy of an evaluation, wherever its columns are, with an interval."""
    other = copy(point)
    vars(other).update(accuracy_low=low, accuracy_high=high, confidence=confidence)
    return other

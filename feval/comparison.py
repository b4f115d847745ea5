"""Compare methods on the same questions and the same draws: differences, savings, the frontier, areas, a ranking.

Everything beyond a point estimate comes from one set of bootstrap resamples of questions (`feval.estimators.bootstrap`), in which
every method sees the same questions. `docs/comparing.md` says what each number means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import FevalError, UnknownNameError, UsageError
from feval.evaluation import Evaluation, evaluate
from feval.plans import AXES, Entry, Plan

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset

__all__ = [
    "Area",
    "Comparison",
    "Difference",
    "Entry",
    "FrontierPoint",
    "MethodCurve",
    "Missing",
    "Plan",
    "Rank",
    "Reach",
    "Saving",
    "compare",
    "costs_of",
]

Floats = npt.NDArray[np.float64]

_GRID = 3
"""Costs (of a pair) and accuracies (of all) at which methods are compared where the plan names none: few, since each is a
comparison that Holm's adjustment has to pay for."""
_CEILING = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 60, 80, 100)
_CHUNK = 1000  # resamples worked on at once where arrays are [R, K, K] or several times [R, P]


@dataclass(frozen=True)
class MethodCurve:
    """One method over its budgets.

    Attributes:
        label: of the entry.
        entry: what was asked for.
        points: evaluations in the order of the sweep, all on the same questions; those that failed are missing.
    """

    label: str
    entry: Entry
    points: tuple[Evaluation, ...]


@dataclass(frozen=True)
class Missing:
    """A method or one of its points that failed.

    Attributes:
        label: of the method, with the budget where only that point failed.
        reason: a sentence.
    """

    label: str
    reason: str


@dataclass(frozen=True)
class FrontierPoint:
    """A point that no other point of any method dominates.

    Attributes:
        label: of its curve.
        point: its place in the curve.
        cost: mean per question, in the plan's axis.
        accuracy: mean.
        stays: share of resamples in which it is on the frontier.
    """

    label: str
    point: int
    cost: float
    accuracy: float
    stays: float


@dataclass(frozen=True)
class Area:
    """Average height of a curve's non-decreasing convex hull over the costs that all curves share (RouterBench's AIQ).

    Attributes:
        label: of the curve.
        low_cost: lower end of the costs: the dearest of the curves' cheapest points.
        high_cost: upper end: the dearest point of all; a hull is level beyond its own.
        area: in accuracy, [0, 1].
        area_low: lower end of the confidence interval.
        area_high: upper end.
    """

    label: str
    low_cost: float
    high_cost: float
    area: float
    area_low: float
    area_high: float


@dataclass(frozen=True)
class Difference:
    """Accuracy of one method minus another's at one cost.

    Attributes:
        a: label of the one.
        b: label of the other.
        cost: mean per question, in the plan's axis; `None` where the two share no cost: then each is taken at its dearest point.
        accuracy_a: of the one.
        accuracy_b: of the other.
        difference: accuracy_a - accuracy_b, in [-1, 1].
        low: lower end of the confidence interval.
        high: upper end.
        flips: share of resamples in which the sign is the other; ties count half.
        p_value: two-sided, of "no difference".
        p_holm: adjusted for all differences of the comparison.
    """

    a: str
    b: str
    cost: float | None
    accuracy_a: float
    accuracy_b: float
    difference: float
    low: float
    high: float
    flips: float
    p_value: float
    p_holm: float


@dataclass(frozen=True)
class Reach:
    """What one method costs at a given accuracy.

    Attributes:
        label: of the curve.
        accuracy: the target.
        cost: mean per question; `None` where the curve never reaches it.
        cost_low: lower end of the confidence interval, `None` where even that is beyond the curve.
        cost_high: upper end, `None` where it is beyond the curve.
        never: share of resamples in which the curve never reaches it.
    """

    label: str
    accuracy: float
    cost: float | None
    cost_low: float | None
    cost_high: float | None
    never: float


@dataclass(frozen=True)
class Saving:
    """What one method costs more or less than another at the same accuracy.

    Attributes:
        a: label of the one.
        b: label of the other.
        accuracy: that both are to reach.
        cost_a: of the one, `None` where it never reaches the accuracy.
        cost_b: of the other.
        difference: cost_a - cost_b, `None` where one of them never reaches it.
        difference_low: lower end of the confidence interval; `None` for minus infinity.
        difference_high: upper end; `None` for infinity.
        ratio: cost_a / cost_b; savings are 1 - ratio. `None` where one of them never reaches the accuracy.
        ratio_low: lower end; `None` where nothing is known.
        ratio_high: upper end; `None` for infinity.
        never_a: share of resamples in which the one never reaches it.
        never_b: share in which the other never does. Resamples where neither does say nothing, and are left out of the ends.
    """

    a: str
    b: str
    accuracy: float
    cost_a: float | None
    cost_b: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    never_a: float
    never_b: float


@dataclass(frozen=True)
class Rank:
    """A method's place among all.

    Attributes:
        label: of the curve.
        rank: from 1; equals share one.
        cost: at which it is taken: the dearest that all curves share, or its own dearest point where they share none.
        accuracy: there.
        strength: Bradley-Terry, natural logarithm, mean 0 over the methods.
        low: lower end of the confidence interval.
        high: upper end.
        first: share of resamples in which it is the strongest; ties are shared out.
    """

    label: str
    rank: int
    cost: float
    accuracy: float
    strength: float
    low: float
    high: float
    first: float


@dataclass(frozen=True)
class Comparison:
    """Methods on the same questions and draws.

    Attributes:
        plan: what was asked for.
        curves: the methods that could be evaluated, in the plan's order.
        missing: what could not, and why.
        baselines: a single call of each LLM.
        ceilings: pass@n of each LLM over n, labelled by the LLM: no method that chooses among its answers can do better.
        frontier: by cost.
        areas: one per curve; none where all points cost the same.
        differences: of every pair of curves, at the plan's costs or some that the pair shares.
        savings: of every pair, at the plan's accuracies or some that the curves share.
        reaches: of every curve, at those accuracies.
        ranking: strongest first; none for a single curve.
    """

    plan: Plan
    curves: tuple[MethodCurve, ...]
    missing: tuple[Missing, ...]
    baselines: tuple[Evaluation, ...]
    ceilings: tuple[MethodCurve, ...]
    frontier: tuple[FrontierPoint, ...]
    areas: tuple[Area, ...]
    differences: tuple[Difference, ...]
    savings: tuple[Saving, ...]
    reaches: tuple[Reach, ...]
    ranking: tuple[Rank, ...]

    @property
    def tests(self) -> int:
        """How many p-values are shown together, and adjusted for each other."""
        return len(self.differences)

    @property
    def smallest_p(self) -> float:
        """The least adjusted p-value that so many resamples can show among so many tests."""
        return min(1.0, 2.0 * max(self.tests, 1) / (self.plan.resamples + 1))

    def to_dict(self) -> dict[str, Any]:
        """All averages and statistics as JSON values; `None` is what has no finite value, see the classes."""
        first = self.curves[0].points[0]
        told: dict[str, Any] = {
            "dataset": self.plan.dataset,
            "questions": first.questions,
            "train_questions": first.train_questions,
            "axis": self.plan.axis,
            "recording_hashes": list(first.recording_hashes),
            "plan": self.plan.to_dict(),
            "curves": [_curve_dict(curve) for curve in self.curves],
            "missing": [asdict(missing) for missing in self.missing],
            "baselines": [told.to_dict() for told in self.baselines],
            "ceilings": [_curve_dict(curve) for curve in self.ceilings],
            "tests": self.tests,
        }
        for name in ("frontier", "areas", "differences", "savings", "reaches", "ranking"):
            told[name] = [asdict(row) for row in getattr(self, name)]
        return told


def _curve_dict(curve: MethodCurve) -> dict[str, Any]:
    sweep = None if curve.entry.sweep is None else curve.entry.sweep[0]
    points = [point.to_dict() for point in curve.points]
    return {"label": curve.label, "llms": list(curve.entry.llms), "sweep": sweep, "points": points}


def costs_of(told: Evaluation, axis: str) -> Floats | None:
    """[Q] costs of an evaluation in one of `AXES`; `None` where they are not known."""
    values: Floats | None = getattr(told, axis)
    return values


def compare(plan: Plan, *, workers: int = 1, base: Path = Path(), time_limit: float | None = None) -> Comparison:
    """Evaluate the methods of a plan and compare them.

    Args:
        plan: what to compare.
        workers: processes per evaluation; the numbers are the same for any number.
        base: the folder that the plan's paths start from: that of its file.
        time_limit: seconds that a user's method may take on one question; `None` for the usual limit.

    Raises:
        NotRecordedError: the recordings lack the dataset.
        RecordingError: a recording cannot be read.
        UsageError: no method of the plan could be evaluated; the message gives the reasons.
    """
    missing: list[Missing] = []
    dataset, llms = _opened(plan, base, missing)
    runner = _Runner(plan, dataset, llms, workers, base, time_limit)
    curves = [curve for entry in plan.entries if (curve := runner.curve(entry, missing)) is not None]
    if not curves:
        reasons = "; ".join(f"{one.label}: {one.reason}" for one in missing[:5])
        raise UsageError(f"No method of the plan could be evaluated. {reasons}")
    names = list(dict.fromkeys(llm for curve in curves for llm in curve.entry.llms))
    baselines = [told for name in names if (told := runner.baseline(llms[name], missing)) is not None]
    ceilings = [curve for name in names if (curve := runner.ceiling(llms[name], missing)) is not None]
    return _compared(plan, *_with_intervals(plan, curves, baselines, ceilings), missing)


# -- evaluations --------------------------------------------------------------------------------------------------------


def _opened(plan: Plan, base: Path, missing: list[Missing]) -> tuple[Dataset, dict[str, LLM]]:
    """The dataset and those of the plan's LLMs that were recorded; entries with others go missing."""
    from feval.recording import open_recording
    from feval.replay import load

    recordings = [open_recording(base / folder) for folder in plan.recordings]
    held = [name for recording in recordings for name in recording.llm_names(plan.dataset)]
    wanted = dict.fromkeys(llm for entry in plan.entries for llm in entry.llms)
    for entry in plan.entries:
        absent = next((llm for llm in entry.llms if held and llm not in held), None)
        if absent is not None:
            advice = f"These are recorded on {plan.dataset}; record it, or mend the plan."
            missing.append(Missing(entry.label, str(UnknownNameError.of("recorded LLM", absent, held, advice))))
    names = [name for name in wanted if not held or name in held]
    if not names:
        raise UsageError(f"No LLM of the plan is recorded on {plan.dataset}: {missing[0].reason}")
    prices = plan.prices if not plan.prices or not (base / plan.prices).is_file() else str(base / plan.prices)
    dataset, llms = load(plan.dataset, names, recordings, seed=plan.seed, prices=prices, billing=plan.billing)
    return dataset, dict(zip(names, llms, strict=True))


@dataclass(frozen=True)
class _Runner:
    """Evaluates methods, and keeps the sentence of what fails."""

    plan: Plan
    dataset: Dataset
    llms: dict[str, LLM]
    workers: int
    base: Path
    time_limit: float | None

    def curve(self, entry: Entry, missing: list[Missing]) -> MethodCurve | None:
        if not set(entry.llms) <= set(self.llms):
            return None
        llms = [self.llms[name] for name in entry.llms]
        points, failed = [], []
        for label, settings in entry.points():
            try:
                points.append(self._evaluated(self._method(entry, settings), llms, self.plan.order))
            except FevalError as error:
                failed.append(Missing(label, str(error)))
        if not points and len({one.reason for one in failed}) == 1:
            failed = [Missing(entry.label, failed[0].reason)]
        missing.extend(failed)
        return MethodCurve(entry.label, entry, tuple(points)) if points else None

    def baseline(self, llm: LLM, missing: list[Missing]) -> Evaluation | None:
        from feval.methods import SelfConsistency

        try:
            return self._evaluated(SelfConsistency(1), [llm], self.plan.order)
        except FevalError as error:
            missing.append(Missing(f"single call of {llm.name}", str(error)))
            return None

    def ceiling(self, llm: LLM, missing: list[Missing]) -> MethodCurve | None:
        from feval.exact import Oracle

        most = int(llm.pool.sizes.min())
        budgets = (*(n for n in _CEILING if n < most), most)
        entry = Entry(llm.name, "oracle", {}, (llm.name,), ("n", budgets))
        try:
            points = tuple(self._evaluated(Oracle(n), [llm], "exact") for n in budgets)
        except FevalError as error:
            missing.append(Missing(f"pass@n of {llm.name}", str(error)))
            return None
        return MethodCurve(llm.name, entry, points)

    def _method(self, entry: Entry, settings: dict[str, Any]) -> Any:
        from feval.specs import make_method

        if entry.method == "oracle":
            raise UsageError(
                "The oracle looks at the gold answers, so it is no method to compare; its curve is drawn as the ceiling of each "
                "LLM without being asked for."
            )
        path, colon, function = entry.method.rpartition(":")
        return make_method(f"{self.base / path}:{function}" if colon else entry.method, settings)

    def _evaluated(self, method: Any, llms: Sequence[LLM], order: str | None) -> Evaluation:
        from feval.calling import TIME_LIMIT

        plan = self.plan
        told = evaluate(
            method,
            self.dataset,
            llms,
            order=order,
            replicates=plan.replicates,
            train_fraction=plan.train_fraction,
            split_seed=plan.split_seed,
            workers=self.workers,
            time_limit=TIME_LIMIT if self.time_limit is None else self.time_limit,
            confidence=None,
        )
        costs = costs_of(told, plan.axis)
        if costs is None:
            others = ", ".join(axis for axis in AXES if costs_of(told, axis) is not None)
            raise UsageError(
                f"Its {plan.axis} per question are not known (no price for an LLM, or no prompt tokens recorded); compare by "
                f"another axis: {others}."
            )
        if not costs.mean() > 0:
            raise UsageError(
                f"It costs nothing in {plan.axis}, and costs stand on a log axis; compare by another axis."
            )
        return told


def _with_intervals(
    plan: Plan, curves: Sequence[MethodCurve], baselines: Sequence[Evaluation], ceilings: Sequence[MethodCurve]
) -> tuple[list[MethodCurve], list[Evaluation], list[MethodCurve]]:
    """The intervals that `evaluate` would have given each point, from one bootstrap of all."""
    from feval.estimators.bootstrap import bootstrap_interval

    everything = [point for curve in (*curves, *ceilings) for point in curve.points] + list(baselines)
    right = _by_key(everything, [told.right for told in everything])
    ends = bootstrap_interval(right, confidence=plan.confidence, resamples=plan.resamples, seed=plan.seed % (1 << 64))
    told = iter(
        replace(one, accuracy_low=low, accuracy_high=high, confidence=plan.confidence, resamples=plan.resamples)
        for one, low, high in zip(everything, ends.low.tolist(), ends.high.tolist(), strict=True)
    )

    def dressed(bare: Sequence[MethodCurve]) -> list[MethodCurve]:
        return [replace(curve, points=tuple(next(told) for _ in curve.points)) for curve in bare]

    lines, tops = dressed(curves), dressed(ceilings)
    return lines, list(told), tops


def _by_key(evaluations: Sequence[Evaluation], values: Sequence[Floats]) -> Floats:
    """[Q, P] values, questions in the order of their keys: their order in the recording makes no difference."""
    order = np.argsort(evaluations[0].question_keys, kind="stable")
    return np.stack([own[order] for own in values], axis=1)


# -- statistics ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Line:
    """A curve by cost: what was observed (resample -1, if one likes) and R resamples of its P points.

    Attributes:
        label: of the curve.
        places: [P] places of the points in the curve; of several at the same cost the first.
        cost: [P] mean costs, ascending.
        right: [P] mean accuracies.
        costs: [R, P] resampled mean costs.
        rights: [R, P] resampled mean accuracies.
    """

    label: str
    places: npt.NDArray[np.intp]
    cost: Floats
    right: Floats
    costs: Floats
    rights: Floats

    def at(self, cost: float) -> tuple[float, Floats]:
        from feval.estimators.paired import accuracy_at

        return float(accuracy_at(cost, self.cost, self.right)), accuracy_at(cost, self.cost, self.rights)

    def reaches(self, accuracy: float) -> tuple[float, Floats]:
        """Least cost for an accuracy, infinite for never: observed and resampled."""
        from feval.estimators.paired import cost_to_reach

        observed = cost_to_reach(accuracy, self.cost[None], self.right[None])
        return float(observed[0]), cost_to_reach(accuracy, self.costs, self.rights)


def _compared(
    plan: Plan,
    curves: Sequence[MethodCurve],
    baselines: Sequence[Evaluation],
    ceilings: Sequence[MethodCurve],
    missing: Sequence[Missing],
) -> Comparison:
    lines = _lines(plan, curves)
    targets = plan.accuracies or _targets(lines)
    return Comparison(
        plan=plan,
        curves=tuple(curves),
        missing=tuple(missing),
        baselines=tuple(baselines),
        ceilings=tuple(ceilings),
        frontier=_frontier(lines),
        areas=_areas(plan, lines),
        differences=_differences(plan, lines),
        savings=tuple(_saving(plan, a, b, target) for a, b in combinations(lines, 2) for target in targets),
        reaches=tuple(_reach(plan, line, target) for line in lines for target in targets),
        ranking=_ranking(plan, lines),
    )


def _lines(plan: Plan, curves: Sequence[MethodCurve]) -> list[_Line]:
    from feval.estimators.bootstrap import bootstrap_means

    points = [point for curve in curves for point in curve.points]
    costs = [values for point in points if (values := costs_of(point, plan.axis)) is not None]
    means = _by_key(points, [*(point.right for point in points), *costs])
    resampled = bootstrap_means(means, resamples=plan.resamples, seed=plan.seed % (1 << 64))
    lines, start = [], 0
    for curve in curves:
        columns = np.arange(start, start + len(curve.points))
        start += len(curve.points)
        cost = means[:, len(points) + columns].mean(axis=0)
        first = np.unique(cost, return_index=True)[1]
        own = columns[first]
        right = means[:, own].mean(axis=0)
        lines.append(_Line(curve.label, first, cost[first], right, resampled[:, len(points) + own], resampled[:, own]))
    return lines


def _targets(lines: Sequence[_Line]) -> tuple[float, ...]:
    """Accuracies between the best of the cheapest points and the worst of the best ones; where there is no room, between all."""
    low = max(float(line.right[0]) for line in lines)
    high = min(float(line.right.max()) for line in lines)
    if not high > low:
        low = min(float(line.right[0]) for line in lines)
        high = max(float(line.right.max()) for line in lines)
    return tuple(np.unique(np.linspace(low, high, _GRID + 2)[1:-1]).tolist())


def _frontier(lines: Sequence[_Line]) -> tuple[FrontierPoint, ...]:
    from feval.estimators.frontier import pareto

    cost = np.concatenate([line.cost for line in lines])
    right = np.concatenate([line.right for line in lines])
    stays = np.zeros(len(cost))
    resamples = len(lines[0].costs)
    for start in range(0, resamples, _CHUNK):
        some = slice(start, start + _CHUNK)
        costs, rights = (
            np.concatenate([getattr(line, k)[some] for line in lines], axis=1) for k in ("costs", "rights")
        )
        stays += pareto(costs, rights).sum(axis=0)
    names = [(line.label, int(place)) for line in lines for place in line.places]
    on = np.flatnonzero(pareto(cost, right))
    on = on[np.argsort(cost[on], kind="stable")]
    return tuple(FrontierPoint(*names[i], float(cost[i]), float(right[i]), float(stays[i] / resamples)) for i in on)


def _areas(plan: Plan, lines: Sequence[_Line]) -> tuple[Area, ...]:
    from feval.estimators.frontier import hull_area
    from feval.estimators.paired import percentiles

    low, high = max(float(line.cost[0]) for line in lines), max(float(line.cost[-1]) for line in lines)
    if not high > low:
        return ()
    areas = []
    for line in lines:
        observed = float(hull_area(line.cost, line.right[None], low, high)[0])
        ends = percentiles(hull_area(line.cost, line.rights, low, high), plan.confidence)
        areas.append(Area(line.label, low, high, observed, *ends))
    return tuple(areas)


def _differences(plan: Plan, lines: Sequence[_Line]) -> tuple[Difference, ...]:
    from feval.estimators.paired import flip_probability, holm, percentiles, two_sided_p

    rows = []
    for a, b in combinations(lines, 2):
        for cost in _shared_costs(plan, a, b):
            (right_a, rights_a), (right_b, rights_b) = (
                line.at(float(line.cost[-1]) if cost is None else cost) for line in (a, b)
            )
            observed, resampled = right_a - right_b, rights_a - rights_b
            ends = percentiles(resampled, plan.confidence)
            flips, p = flip_probability(observed, resampled), two_sided_p(resampled)
            rows.append(Difference(a.label, b.label, cost, right_a, right_b, observed, *ends, flips, p, p))
    adjusted = holm([row.p_value for row in rows]).tolist()
    return tuple(replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True))


def _shared_costs(plan: Plan, a: _Line, b: _Line) -> list[float | None]:
    low, high = max(a.cost[0], b.cost[0]), min(a.cost[-1], b.cost[-1])
    if low > high:
        return [None]
    if plan.costs:
        return [cost for cost in plan.costs if low <= cost <= high]
    return list(np.unique(np.geomspace(low, high, _GRID)).tolist())


def _reach(plan: Plan, line: _Line, target: float) -> Reach:
    from feval.estimators.paired import percentiles

    observed, resampled = line.reaches(target)
    low, high = percentiles(resampled, plan.confidence)
    never = float(np.isinf(resampled).mean())
    return Reach(line.label, target, _finite(observed), _finite(low), _finite(high), never)


def _saving(plan: Plan, a: _Line, b: _Line, target: float) -> Saving:
    from feval.estimators.paired import percentiles

    (cost_a, costs_a), (cost_b, costs_b) = a.reaches(target), b.reaches(target)
    with np.errstate(invalid="ignore"):  # neither reaches it: undefined
        differences = percentiles(costs_a - costs_b, plan.confidence)
        ratios = percentiles(costs_a / costs_b, plan.confidence)
    both = np.isfinite(cost_a) and np.isfinite(cost_b)
    return Saving(
        a=a.label,
        b=b.label,
        accuracy=target,
        cost_a=_finite(cost_a),
        cost_b=_finite(cost_b),
        difference=cost_a - cost_b if both else None,
        difference_low=_finite(differences[0]),
        difference_high=_finite(differences[1]),
        ratio=cost_a / cost_b if both else None,
        ratio_low=_finite(ratios[0]),
        ratio_high=_finite(ratios[1]),
        never_a=float(np.isinf(costs_a).mean()),
        never_b=float(np.isinf(costs_b).mean()),
    )


def _ranking(plan: Plan, lines: Sequence[_Line]) -> tuple[Rank, ...]:
    from feval.estimators.bradley_terry import bradley_terry, pairwise_wins
    from feval.estimators.paired import percentiles

    if len(lines) < 2:
        return ()
    shared = min(float(line.cost[-1]) for line in lines)
    common = shared >= max(float(line.cost[0]) for line in lines)
    costs = [shared if common else float(line.cost[-1]) for line in lines]
    right, rights = zip(*(line.at(cost) for line, cost in zip(lines, costs, strict=True)), strict=True)
    strength = bradley_terry(pairwise_wins(np.array([right])))[0]
    resampled = np.concatenate([bradley_terry(pairwise_wins(some)) for some in _chunks(np.stack(rights, axis=1))])
    strongest = resampled >= resampled.max(axis=1, keepdims=True) - 1e-9
    first = (strongest / strongest.sum(axis=1, keepdims=True)).mean(axis=0)
    ranks = [1 + int((strength > own + 1e-9).sum()) for own in strength]
    ends = [percentiles(column, plan.confidence) for column in resampled.T]
    rows = [
        Rank(line.label, ranks[i], costs[i], right[i], float(strength[i]), *ends[i], float(first[i]))
        for i, line in enumerate(lines)
    ]
    return tuple(sorted(rows, key=lambda row: row.rank))


def _chunks(values: Floats) -> Iterator[Floats]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

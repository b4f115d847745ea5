"""Statistics of curves on the same questions: differences, savings, the frontier, areas, a ranking.

Differences in accuracy have tests over questions (`difference_test`). Every other interval comes
from one set of bootstrap resamples of questions, in which every curve sees the same questions, so
whatever is compared between curves is paired. `low` and `high` are the ends of confidence
intervals; costs are means per question, counted as the plan says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.comparison.flips import FlipPrice, VariedPrice, flip_price
from feval.errors import UsageError
from feval.estimators.arrays import Result, pareto
from feval.estimators.comparisons import (
    accuracy_at,
    bradley_terry,
    cost_to_reach,
    flip_probability,
    holm,
    hull_area,
    pairwise_wins,
    percentiles,
)
from feval.estimators.intervals import (
    Clusters,
    DifferenceTest,
    accuracy_interval,
    bootstrap_means,
    difference_test,
)
from feval.methods.protocol import Bools, Floats, Integers, Rows

if TYPE_CHECKING:
    from feval.comparison.plan import Plan
    from feval.evaluation import Evaluation

_GRID = 3
"""Number of costs (per pair) and accuracies (for all) at which methods are compared where the plan
names none. Few, since Holm's adjustment pays for each.
"""
_SAME_COST = 1e-9
_ROUNDING = 1e-12
# relative difference of costs below which interpolation between points is meaningless
_SAME_POINT = 0.01
_SAME_ANSWERS = 1e-9
_ALIKE = (
    "Both curves begin with the same answers at the same cost, to 1 %; only interpolation differs"
    " there."
)
_CHUNK = 1000  # resamples worked on at once where arrays are [R, K, K] or several times [R, P]


@dataclass(frozen=True)
class FrontierPoint:
    """A point that no other point of any method dominates.

    Attributes:
        point: its index in the curve.
        cost, accuracy: on the questions that all curves have.
        stays: share of resamples in which it is on the frontier.
    """

    label: str
    point: int
    cost: float
    accuracy: float
    stays: float


@dataclass(frozen=True)
class BestPoint:
    """The most accurate point within a budget, of equals the cheapest, and those that may be as
    good.

    Attributes:
        budget: mean cost per question.
        chosen: label of the curve and index of the point; `None` where no point is that cheap.
        settings: number of points within the budget, of all curves, that it was chosen from.
        accuracy: of the point, on the questions that all curves have; with the ends of its
            interval. `None` without a point.
        close: the others whose paired difference from it is within noise, the most accurate first:
            p times the number of the others is above 1 - confidence. With this confidence the truly
            best point is among these and the one that was chosen (subset selection, S. S. Gupta
            1965, doi:10.1080/00401706.1965.10490251, by Bonferroni's bound).
    """

    budget: float
    chosen: tuple[str, int] | None
    settings: int
    close: tuple[tuple[str, int], ...] = ()
    accuracy: float | None = None
    accuracy_low: float | None = None
    accuracy_high: float | None = None


@dataclass(frozen=True)
class HullArea:
    """Average height of a curve's non-decreasing convex hull over the costs that all curves share
    (RouterBench's AIQ).

    Attributes:
        low_cost: lower end of the range of costs: the most expensive of the curves' cheapest
            points.
        high_cost: upper end: the most expensive point of all; a hull is level beyond its own.
        area: in accuracy, [0, 1].
    """

    label: str
    low_cost: float
    high_cost: float
    area: float
    area_low: float
    area_high: float


@dataclass(frozen=True)
class AccuracyDifference:
    """Accuracy of one method minus another's: at one cost, or each at its most expensive point
    where they share none.

    Attributes:
        cost_a, cost_b: where each is taken.
        difference: accuracy_a - accuracy_b, in [-1, 1]; its interval holds those that the test does
            not reject.
        flips: share of resamples in which the difference has the other sign; ties count half.
        p_value: two-sided, for "no difference"; `None` where it is not tested.
        p_holm: adjusted for all tested differences of its table (`differences` or `unequal_costs`).
        untested: a sentence that says why it is not tested; `None` where it is.
        skewness: of the questions' differences, or of clusters' sums of them, over the square root
            of their number: far from 0 where few decide.
    """

    a: str
    b: str
    cost_a: float
    cost_b: float
    accuracy_a: float
    accuracy_b: float
    difference: float
    low: float
    high: float
    flips: float
    p_value: float | None
    p_holm: float | None
    untested: str | None = None
    skewness: float = 0.0


@dataclass(frozen=True)
class CostToReach:
    """What one method costs at a given accuracy.

    Attributes:
        cost: `None` where the curve never reaches the accuracy; so is an end of the interval that
            is beyond the curve.
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

    A cost is `None` where the method never reaches the accuracy; then so are the difference and the
    ratio. An end of an interval is `None` where it is infinite, or for `ratio_low` where nothing is
    known.

    Attributes:
        difference: cost_a - cost_b.
        ratio: cost_a / cost_b; savings are 1 - ratio.
        never_a: share of resamples in which the first never reaches it.
        never_b: share in which the second never does. Resamples in which neither does are left out
            of the interval.
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
        rank: from 1; equals share one.
        cost: where it is judged: the highest cost that all curves share, or its own most expensive
            point where they share none.
        strength: Bradley-Terry, natural logarithm, mean 0 over the methods.
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


class _CostCurve(Result):
    """A curve by cost: P points in ascending order of cost, and R resamples of them.

    Attributes:
        places: [P] indices of the points in the curve.
        points: P evaluations; their columns are read one by one.
        shared: [all questions of the points] the Q of them that are compared.
        cost, right: [P] means.
        costs, rights: [R, P] resampled means.
    """

    label: str
    places: Rows
    points: Sequence[Evaluation]
    shared: Bools
    cost: Floats
    right: Floats
    costs: Floats
    rights: Floats

    def answers(self, point: int) -> Floats:
        """[Q] accuracies of a point."""
        return self.points[point].right[self.shared]

    def at(self, cost: float) -> tuple[float, Floats]:
        """Accuracy at a cost, observed and resampled; of points at the same cost the first listed
        counts.
        """
        first = np.unique(self.cost, return_index=True)[1]
        observed, resampled = (
            accuracy_at(cost, self.cost[first], values[..., first])
            for values in (self.right, self.rights)
        )
        return float(observed), resampled

    def questions_at(self, cost: float) -> Floats:
        """[Q] accuracies at a cost, from the points on either side of it."""
        first = np.unique(self.cost, return_index=True)[1]
        above = int(np.searchsorted(self.cost[first], cost))
        near = first[max(above - 1, 0) : above + 1]
        return accuracy_at(
            cost, self.cost[near], np.stack([self.answers(i) for i in near.tolist()], axis=1)
        )

    def reaches(self, accuracy: float) -> tuple[float, Floats]:
        """Lowest cost for an accuracy, infinite for never: observed and resampled."""
        observed = cost_to_reach(accuracy, self.cost[None], self.right[None])
        return float(observed[0]), cost_to_reach(accuracy, self.costs, self.rights)


_Lines = Sequence[_CostCurve]


@dataclass(frozen=True)
class Statistics:
    """All statistics of several curves.

    Attributes:
        best: the best points at three budgets.
        frontier: the Pareto frontier, by cost.
        areas: one per curve; none where all points cost the same.
        differences: every pair of curves at the plan's costs, or at some that the pair shares.
        unequal_costs: every pair of curves that share no cost, each at its most expensive point;
            tested apart from the others.
        savings: every pair at the plan's accuracies, or at some that the curves share.
        reaches: the cost at which every curve reaches those accuracies.
        ranking: strongest first; empty for a single curve.
        flips: every pair of curves, where the plan varies a price.
    """

    best: tuple[BestPoint, ...]
    frontier: tuple[FrontierPoint, ...]
    areas: tuple[HullArea, ...]
    differences: tuple[AccuracyDifference, ...]
    unequal_costs: tuple[AccuracyDifference, ...]
    savings: tuple[Saving, ...]
    reaches: tuple[CostToReach, ...]
    ranking: tuple[Rank, ...]
    flips: tuple[FlipPrice, ...]


class _PairTests(Result):
    """Tests of differences [Q] between two points, taken in the order of the questions' keys, so
    that their order in the recording makes no difference.
    """

    confidence: float
    order: Rows
    clusters: Integers | None  # in that order

    def test(self, differences: Floats) -> DifferenceTest:
        return difference_test(differences[self.order, None], self.confidence, self.clusters)

    def skewness(self, differences: Floats) -> float:
        """Third standardised moment of differences, or sums of clusters, over the square root of
        their number; 0 where all are equal.
        """
        values = differences[self.order]
        distances = values - values.mean()
        if self.clusters is not None:
            distances = np.bincount(self.clusters, weights=distances)
        spread = float(np.sqrt((distances**2).mean()))
        if spread <= _SAME_ANSWERS:
            return 0.0
        return float((distances**3).mean() / spread**3 / np.sqrt(len(distances)))

    def resampled(self, plan: Plan, columns: Iterable[Floats]) -> tuple[Floats, Floats]:
        """[C] means of columns [Q], which are read one by one, and [R, C] resampled ones."""
        seed = plan.seed % (1 << 64)
        dealt = Clusters(len(self.order), seed, self.clusters)
        means, sums = [], []
        for column in columns:
            ordered = column[self.order]
            means.append(ordered.mean())
            sums.append(dealt.sums(ordered))
        values = np.stack(sums, axis=1)
        return np.array(means), bootstrap_means(
            values, resamples=plan.resamples, seed=seed, dealt=dealt
        )


def statistics(
    plan: Plan, curves: Mapping[str, Sequence[Evaluation]], clusters: Integers | None = None
) -> Statistics:
    """Compare curves, given as label -> points, with known costs; `clusters` as for
    `difference_test`, of the questions of the curve that has most.

    A curve may lack questions that it learnt from. What compares others with it, or chooses among
    all, such as the frontier, is on the questions that all have; the rest is as it would be without
    it.
    """
    keys = [points[0].question_keys for points in curves.values()]
    every = max(keys, key=len)
    common = min(keys, key=len)  # splits of one seed are nested
    shared = _on_the_same(plan, curves, common, clusters, every)
    if len(common) == len(every):
        return shared
    whole = {
        label: points
        for (label, points), own in zip(curves.items(), keys, strict=True)
        if len(own) == len(every)
    }
    result = _on_the_same(plan, whole, every, clusters, every)

    def joined(name: str) -> tuple[Any, ...]:
        own = (
            row
            for row in getattr(shared, name)
            if not {getattr(row, of, None) for of in ("label", "a", "b")} <= {*whole, None}
        )
        return (*getattr(result, name), *own)

    return replace(
        shared,
        differences=_adjusted(joined("differences")),
        unequal_costs=_adjusted(joined("unequal_costs")),
        **{name: joined(name) for name in ("areas", "savings", "reaches", "flips")},
    )


def _on_the_same(
    plan: Plan,
    curves: Mapping[str, Sequence[Evaluation]],
    keys: Integers,
    clusters: Integers | None,
    clustered: Integers,
) -> Statistics:
    """The statistics of curves on the questions with these keys; `clusters` are of others, too."""
    order = np.argsort(keys, kind="stable")
    if clusters is not None:
        clusters = clusters[np.isin(clustered, keys)][order]
    paired = _PairTests(plan.confidence, order, clusters)
    lines = _lines(plan, curves, keys, paired)
    savings, reaches = _at_equal_accuracy(plan, lines)
    return Statistics(
        best=_best(plan, lines, paired),
        frontier=_frontier(lines),
        areas=_areas(plan, lines),
        **_differences(plan, lines, paired),
        savings=savings,
        reaches=reaches,
        ranking=_ranking(plan, lines),
        flips=_flips(plan, lines, paired),
    )


def _lines(
    plan: Plan, curves: Mapping[str, Sequence[Evaluation]], keys: Integers, paired: _PairTests
) -> list[_CostCurve]:
    points = [point for points in curves.values() for point in points]
    shared = [np.isin(point.question_keys, keys) for point in points]
    own = list(zip(points, shared, strict=True))
    columns = chain(
        (point.right[at] for point, at in own),
        (point.known_costs(plan.cost)[at] for point, at in own),
    )
    means, resampled = paired.resampled(plan, columns)
    right, cost = means.reshape(2, -1)
    lines, start = [], 0
    for label, curve in curves.items():
        end = start + len(curve)
        places = np.argsort(cost[start:end], kind="stable")
        at, start = start + places, end
        costs, rights = resampled[:, len(points) + at], resampled[:, at]
        ordered = [points[i] for i in at]
        lines.append(
            _CostCurve(label, places, ordered, shared[at[0]], cost[at], right[at], costs, rights)
        )
    return lines


def _targets(lines: _Lines) -> tuple[float, ...]:
    """Accuracies between the best of the cheapest points and the worst of the best points; without
    room there, between all.
    """
    cheapest = [float(line.right[0]) for line in lines]
    best = [float(line.right.max()) for line in lines]
    low, high = max(cheapest), min(best)
    if not high > low:
        low, high = min(cheapest), max(best)
    return tuple(np.unique(np.linspace(low, high, _GRID + 2)[1:-1]).tolist())


def _ends_of_costs(lines: _Lines) -> tuple[list[float], list[float]]:
    """The costs of the curves' cheapest points, and of their most expensive ones."""
    return [float(line.cost[0]) for line in lines], [float(line.cost[-1]) for line in lines]


def _budgets(plan: Plan, lines: _Lines) -> list[float]:
    """Three of the plan's costs, or thirds of the range of costs on a log axis."""
    if planned := sorted(plan.costs):
        return list(dict.fromkeys((planned[0], planned[len(planned) // 2], planned[-1])))
    cheapest, dearest = _ends_of_costs(lines)
    return list(dict.fromkeys(np.geomspace(min(cheapest), max(dearest), 4)[1:].tolist()))


def _best(plan: Plan, lines: _Lines, paired: _PairTests) -> tuple[BestPoint, ...]:
    """The best points at `_budgets`; differences that several budgets need are tested once."""
    ordered = sorted(
        (-round(float(line.right[i]), 11), float(line.cost[i]), curve, int(line.places[i]), i)
        for curve, line in enumerate(lines)
        for i in range(len(line.points))
    )

    @cache
    def p_value(best: tuple[int, int], other: tuple[int, int]) -> float:
        right, others = (lines[curve].answers(i) for curve, i in (best, other))
        return float(paired.test(right - others).p_value[0])

    found = []
    for budget in _budgets(plan, lines):
        rows = [row[2:] for row in ordered if row[1] <= budget * (1 + _SAME_COST)]
        if not rows:
            found.append(BestPoint(budget, None, 0))
            continue
        (curve, place, i), *others = rows
        close = tuple(
            (lines[other].label, at)
            for other, at, k in others
            if p_value((curve, i), (other, k)) * len(others) > 1 - plan.confidence
        )
        line = lines[curve]
        right = line.answers(i)[paired.order, None]
        ends = accuracy_interval(right, plan.confidence, paired.clusters)
        accuracies = float(line.right[i]), float(ends.low[0]), float(ends.high[0])
        found.append(BestPoint(budget, (line.label, place), len(rows), close, *accuracies))
    return tuple(found)


def _frontier(lines: _Lines) -> tuple[FrontierPoint, ...]:
    cost = np.concatenate([line.cost for line in lines])
    right = np.concatenate([line.right for line in lines])
    stays = np.zeros(len(cost))
    resamples = len(lines[0].costs)
    for start in range(0, resamples, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        costs, rights = (
            np.concatenate([getattr(line, name)[chunk] for line in lines], axis=1)
            for name in ("costs", "rights")
        )
        stays += pareto(costs, rights).sum(axis=0)
    names = [(line.label, int(place)) for line in lines for place in line.places]
    on = np.flatnonzero(pareto(cost, right))
    on = on[np.argsort(cost[on], kind="stable")]
    return tuple(
        FrontierPoint(*names[i], float(cost[i]), float(right[i]), float(stays[i] / resamples))
        for i in on
    )


def _areas(plan: Plan, lines: _Lines) -> tuple[HullArea, ...]:
    low, high = map(max, _ends_of_costs(lines))
    if not high > low:
        return ()
    areas = []
    for line in lines:
        observed = float(hull_area(line.cost, line.right[None], low, high)[0])
        ends = percentiles(hull_area(line.cost, line.rights, low, high), plan.confidence)
        areas.append(HullArea(line.label, low, high, observed, *ends))
    return tuple(areas)


def _differences(
    plan: Plan, lines: _Lines, paired: _PairTests
) -> dict[str, tuple[AccuracyDifference, ...]]:
    """Differences at equal costs, and those of pairs that share none; each of the two is adjusted
    by itself.
    """
    rows = [
        _difference(a, b, *costs, paired)
        for a, b in combinations(lines, 2)
        for costs in _compared_costs(plan, a, b)
    ]
    equal, unequal = (
        [row for row in rows if (row.cost_a == row.cost_b) is same] for same in (True, False)
    )
    return {"differences": _adjusted(equal), "unequal_costs": _adjusted(unequal)}


def _adjusted(rows: Sequence[AccuracyDifference]) -> tuple[AccuracyDifference, ...]:
    adjusted = iter(holm([row.p_value for row in rows if row.p_value is not None]).tolist())
    return tuple(
        row if row.p_value is None else replace(row, p_holm=next(adjusted)) for row in rows
    )


def _difference(
    a: _CostCurve, b: _CostCurve, x: float, y: float, paired: _PairTests
) -> AccuracyDifference:
    """A difference with its test, not yet adjusted."""
    differences = a.questions_at(x) - b.questions_at(y)
    test = paired.test(differences)
    (right_a, rights_a), (right_b, rights_b) = a.at(x), b.at(y)
    observed = right_a - right_b
    flips = flip_probability(observed, rights_a - rights_b)
    same = x == y and _begin_alike(a, b, x)
    p = None if same else float(test.p_value[0])
    ends = float(test.low[0]), float(test.high[0])
    return AccuracyDifference(
        *(a.label, b.label, x, y, right_a, right_b, observed, *ends, flips, p, p),
        untested=_ALIKE if same else None,
        skewness=paired.skewness(differences),
    )


def _begin_alike(a: _CostCurve, b: _CostCurve, cost: float) -> bool:
    """Whether two curves differ at a cost only because each is interpolated away from the same
    first point.
    """
    if max(abs(line.cost[0] - cost) for line in (a, b)) > _SAME_POINT * cost:
        return False
    return bool((np.abs(a.answers(0) - b.answers(0)) <= _SAME_ANSWERS).all())


def _shared_range(lines: _Lines) -> tuple[float, float] | None:
    """The range of costs that all curves have, if only one cost to rounding; `None` where they
    share none.
    """
    cheapest, dearest = _ends_of_costs(lines)
    low, high = max(cheapest), min(dearest)
    return (low, high) if low <= high * (1 + _ROUNDING) else None


def _compared_costs(plan: Plan, a: _CostCurve, b: _CostCurve) -> list[tuple[float, float]]:
    """Where each of two curves is taken: at the costs that both have, else at its most expensive
    point.
    """
    if (shared := _shared_range((a, b))) is None:
        return [(float(a.cost[-1]), float(b.cost[-1]))]
    low, high = shared
    if plan.costs:
        costs = [cost for cost in plan.costs if low <= cost <= high]
    elif high <= low * (1 + _SAME_COST):  # rounding would make three comparisons of one
        costs = [high]
    else:
        costs = np.unique(np.geomspace(low, high, _GRID)).tolist()
    return [(cost, cost) for cost in costs]


def _at_equal_accuracy(
    plan: Plan, lines: _Lines
) -> tuple[tuple[Saving, ...], tuple[CostToReach, ...]]:
    targets = plan.accuracies or _targets(lines)
    costs = {(line.label, target): line.reaches(target) for line in lines for target in targets}
    never = {key: float(np.isinf(resampled).mean()) for key, (_, resampled) in costs.items()}
    reaches = tuple(
        CostToReach(*key, _finite(cost), *_ends(plan, resampled), never[key])
        for key, (cost, resampled) in costs.items()
    )
    savings = []
    for (a, b), target in product(combinations(lines, 2), targets):
        key_a, key_b = (a.label, target), (b.label, target)
        (cost_a, costs_a), (cost_b, costs_b) = costs[key_a], costs[key_b]
        with np.errstate(invalid="ignore"):  # neither reaches it: undefined
            differences, ratios = _ends(plan, costs_a - costs_b), _ends(plan, costs_a / costs_b)
        both = np.isfinite(cost_a) and np.isfinite(cost_b)
        difference, ratio = (cost_a - cost_b, cost_a / cost_b) if both else (None, None)
        known = _finite(cost_a), _finite(cost_b), difference, *differences, ratio, *ratios
        savings.append(Saving(a.label, b.label, target, *known, never[key_a], never[key_b]))
    return tuple(savings), reaches


def _ends(plan: Plan, resampled: Floats) -> tuple[float | None, float | None]:
    low, high = percentiles(resampled, plan.confidence)
    return _finite(low), _finite(high)


def _ranking(plan: Plan, lines: _Lines) -> tuple[Rank, ...]:
    if len(lines) < 2:
        return ()
    shared = _shared_range(lines)
    costs = [float(line.cost[-1]) if shared is None else shared[1] for line in lines]
    right, rights = zip(
        *(line.at(cost) for line, cost in zip(lines, costs, strict=True)), strict=True
    )
    strength = bradley_terry(pairwise_wins(np.array([right])))[0]
    # of a few questions, many resamples are equal
    distinct, which = np.unique(np.stack(rights, axis=1), axis=0, return_inverse=True)
    chunks = [distinct[start : start + _CHUNK] for start in range(0, len(distinct), _CHUNK)]
    resampled = np.concatenate([bradley_terry(pairwise_wins(chunk)) for chunk in chunks])
    resampled = resampled[which.ravel()]
    strongest = resampled >= resampled.max(axis=1, keepdims=True) - 1e-9
    first = (strongest / strongest.sum(axis=1, keepdims=True)).mean(axis=0)
    ranks = [1 + int((strength > value + 1e-9).sum()) for value in strength]
    ends = [percentiles(column, plan.confidence) for column in resampled.T]
    columns = zip(lines, ranks, costs, right, strength.tolist(), ends, first.tolist(), strict=True)
    rows = [
        Rank(line.label, rank, cost, accuracy, own, low, high, share)
        for line, rank, cost, accuracy, own, (low, high), share in columns
    ]
    return tuple(sorted(rows, key=lambda row: row.rank))


def _flips(plan: Plan, lines: _Lines, paired: _PairTests) -> tuple[FlipPrice, ...]:
    """Where the cheaper of two curves changes, each at its most accurate point, of these the
    cheapest.
    """
    if plan.vary is None:
        return ()
    varied = VariedPrice.parse(plan.vary)
    varied.today([point for line in lines for point in line.points])
    chosen = [int(np.lexsort((line.cost, -line.right.round(11)))[0]) for line in lines]
    columns = (
        column[line.shared]
        for line, i in zip(lines, chosen, strict=True)
        for column in varied.lines(line.points[i])
    )
    means, resampled = paired.resampled(plan, columns)
    if not means[1::2].any():
        raise UsageError(f"Nothing is billed at the price that varies ({plan.vary}); vary another.")
    ends = np.reshape(resampled, (plan.resamples, -1, 2))
    rows = []
    for a, b in combinations(range(len(lines)), 2):
        prices = flip_price(*ends[:, [a, b]].transpose(2, 0, 1))
        fixed, slope = means.reshape(-1, 2)[[a, b]].T
        price = _finite(flip_price(fixed, slope))
        # below the price, or, where there is none, at any
        costs = fixed + slope * (1.0 if price is None else price / 2)
        same = abs(costs[0] - costs[1]) <= _ROUNDING * costs.max()
        rows.append(
            FlipPrice(
                lines[a].label,
                lines[b].label,
                int(lines[a].places[chosen[a]]),
                int(lines[b].places[chosen[b]]),
                plan.vary,
                price,
                *_ends(plan, prices),
                float(np.isnan(prices).mean()),
                None if same else lines[a if costs[0] < costs[1] else b].label,
            )
        )
    return tuple(rows)


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None

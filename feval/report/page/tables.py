"""The tables of a report page as JSON values: cells have their text and their sort key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from feval.comparison.comparison import budget_label
from feval.evaluation.cautions import mixed_counters
from feval.report.tables.comparisons import (
    NO_SHARED_COST,
    UNEQUAL_COSTS,
    area_range,
    chosen_note,
    named_point,
    ranked_at,
    within_noise,
)
from feval.report.tables.cost_axes import (
    OTHER_COSTS,
    cost_decimals,
    cost_words,
    questions_of,
    usd_scale,
)
from feval.report.tables.results import ERROR_COLUMNS, ERROR_NOTES, estimate_note
from feval.report.tables.tables import cost_mark, per_round_column
from feval.report.text import (
    counted,
    decimals_for,
    fixed,
    interval_name,
    p_value,
    percent,
    percents,
    plain_number,
    signed_points,
)

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.comparison.statistics import AccuracyDifference
    from feval.evaluation.evaluation import Evaluation

Cell = str | dict[str, Any] | None
_MEANINGS = {
    "on the frontier, % of resamples": (
        "in how many resampled sets of questions no other point is as cheap and as accurate"
    ),
    "p (Holm)": "p, adjusted for all differences that are tested together",
    "reversed, % of resamples": (
        "in how many resampled sets of questions the other method is the more accurate one"
    ),
    "not reached, % of resamples": (
        "in how many resampled sets of questions the curve stays below this accuracy"
    ),
    "first, % of resamples": "in how many resampled sets of questions no other method is stronger",
}
"""What a heading means, shown when a pointer rests on it."""


_BY_COST = ("first saves", "area %")
"""What compares costs, though its heading does not name their unit."""


def page_tables(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the tables of a page in order, without empty ones."""
    makers = (
        _best,
        _results,
        _errors,
        _frontier,
        _differences,
        _unequal_costs,
        _savings,
        _reaches,
        _ranking,
        _areas,
        _missing,
    )
    tables = [table for make in makers if (table := make(comparison))["rows"]]
    counters, unit = comparison.counters, cost_words(comparison.plan.cost, comparison.timing)[1]
    for table in tables:
        for head in table["columns"]:
            head["name"] += cost_mark(unit if head["name"] in _BY_COST else head["name"], counters)
        if any(head["name"].endswith(" *") for head in table["columns"]):
            table["notes"] = list(dict.fromkeys((*table["notes"], *mixed_counters(counters))))
    return tables


def _table(
    name: str,
    link: str,
    title: str,
    intro: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    notes: Sequence[str] = (),
    pairs: str | None = None,
) -> dict[str, Any]:
    """A table; columns that begin with "#" hold numbers, and a long table shows the pairs of method
    `pairs` first.
    """
    names = [column.removeprefix("#") for column in columns]
    heads = [
        {"name": name, "number": column.startswith("#"), "title": _MEANINGS.get(name)}
        for name, column in zip(names, columns, strict=True)
    ]
    return {
        "id": name,
        "link": link,
        "title": title,
        "intro": intro,
        "columns": heads,
        "rows": rows,
        "notes": list(notes),
        "pairs": pairs,
    }


def _strongest(comparison: Comparison) -> str | None:
    return comparison.ranking[0].label if comparison.ranking else None


def _cell(shown: str, value: float | None) -> Cell:
    return {"t": shown, "s": value}


def _percent(share: float | None) -> Cell:
    return _cell("-" if share is None else percent(share), share)


def _count(value: float | None, decimals: int = 2) -> Cell:
    return _cell(fixed(value, decimals), value)


def page_scale(comparison: Comparison) -> int:
    """Return for how many questions the page writes USD, see `usd_scale`."""
    points = [
        *(point for curve in comparison.curves for point in curve.points),
        *comparison.baselines,
    ]
    return usd_scale(point.usd_per_question for point in points)


def _costs(
    comparison: Comparison, values: Iterable[float | None]
) -> tuple[str, Callable[..., str], Callable[..., Cell]]:
    """Unit of the plan's costs, and functions that write them as text and as cells, with equal
    decimals.
    """
    name = comparison.plan.cost
    scale = page_scale(comparison) if name == "usd" else 1
    decimals = cost_decimals(name, (scale * value for value in values if value))

    def written(value: float | None, never: str = "-") -> str:
        return never if value is None else fixed(scale * value, decimals)

    def cell(value: float | None, never: str = "-") -> Cell:
        return _cell(written(value, never), None if value is None else scale * value)

    return f"{cost_words(name, comparison.timing)[1]} / {questions_of(scale)}", written, cell


def _p_value(share: float | None) -> Cell:
    return _cell(p_value(share), share)


def _points(comparison: Comparison) -> list[tuple[str, str, Evaluation]]:
    """Label, budget and evaluation of every point of a method."""
    return [
        (curve.label, budget_label(curve.entry, point), point)
        for curve in comparison.curves
        for point in curve.points
    ]


def _best(comparison: Comparison) -> dict[str, Any]:
    unit, _, cost = _costs(comparison, (best.budget for best in comparison.best))
    rows: list[Sequence[Cell]] = []
    for best in comparison.best:
        if best.chosen is None:
            rows.append(
                (cost(best.budget), "none is as cheap", "", *(_cell("-", None) for _ in "123"), "")
            )
            continue
        point, budget = named_point(comparison, best.chosen)
        interval = _cell(percents(point.accuracy_low, point.accuracy_high), point.accuracy_low)
        numbers = (_percent(point.accuracy), interval, _count(best.settings, 0))
        rows.append(
            (cost(best.budget), best.chosen[0], budget, *numbers, within_noise(comparison, best))
        )
    columns = (
        f"#up to {unit}",
        "method",
        "budget",
        "#accuracy %",
        _interval(comparison),
        "#chosen from",
        "within noise",
    )
    intro = f"The most accurate setting within a cost. {chosen_note(comparison)}"
    return _table("best", "Best", "Best within a budget", intro, columns, rows)


def _results(comparison: Comparison) -> dict[str, Any]:
    points = [*_points(comparison), *(("single call", "", point) for point in comparison.baselines)]
    scale = page_scale(comparison)
    decimals = decimals_for(scale * (point.usd_per_question or 0.0) for _, _, point in points)
    several = len({point.kind for _, _, point in points}) > 1
    by_round = per_round_column((comparison.plan.billing, point) for _, _, point in points)
    own = comparison.plan.cost in OTHER_COSTS
    own_unit, _, own_cost = _costs(
        comparison, (point.mean_cost(comparison.plan.cost) for _, _, point in points)
    )
    usd = f"USD / {questions_of(scale)}"
    dollars = any(point.usd_per_question is not None for _, _, point in points)
    costs = (
        *((f"#{usd}",) if dollars else ()),
        "#tokens",
        "#CoTs",
        "#calls",
        *((f"#{own_unit}",) if own else ()),
    )
    if by_round:
        costs = (*costs, f"#{by_round.replace('USD/question', usd)}")
    columns = (
        "method",
        "budget",
        "#accuracy %",
        _interval(comparison),
        *costs,
        "LLMs",
        *(("kind",) if several else ()),
    )
    rows = [
        (
            label,
            budget,
            _percent(point.accuracy),
            _cell(percents(point.accuracy_low, point.accuracy_high), point.accuracy_low),
            *((_count(_scaled(point.usd_per_question, scale), decimals),) if dollars else ()),
            _count(point.tokens_per_question, 1),
            _count(point.samples_per_question),
            _count(point.calls_per_question),
            *((own_cost(point.mean_cost(comparison.plan.cost)),) if own else ()),
            *((_per_round(point, scale, decimals),) if by_round else ()),
            " > ".join(point.llms),
            *((point.kind,) if several else ()),
        )
        for label, budget, point in points
    ]
    intro = "Every method at every budget; costs are means per question. Press a heading to sort."
    return _table("results", "Results", "Results", intro, columns, rows, comparison.warnings)


def _per_round(point: Evaluation, scale: int, decimals: int) -> Cell:
    if point.usd_per_question is None:
        return _count(point.tokens_per_question_per_round, 1)
    return _count(_scaled(point.usd_per_question_per_round, scale), decimals)


def _scaled(usd: float | None, scale: int) -> float | None:
    return None if usd is None else scale * usd


def _errors(comparison: Comparison) -> dict[str, Any]:
    points = [each for each in _points(comparison) if None not in each[2].errors().values()]
    rows = [
        (label, budget, *map(_percent, point.errors().values())) for label, budget, point in points
    ]
    notes = [
        estimate_note(f"{label} {budget}", point.errors_estimate)
        for label, budget, point in points
        if point.errors_estimate
    ]
    intro = "Wrong answers in percent of all questions."
    columns = ("method", "budget", *(f"#{name}" for name in ERROR_COLUMNS))
    return _table(
        "errors",
        "Errors",
        "How wrong answers came about",
        intro,
        columns,
        rows,
        [*ERROR_NOTES, *notes],
    )


def _interval(comparison: Comparison) -> str:
    return f"#{interval_name(comparison.plan.confidence)}"


def _frontier(comparison: Comparison) -> dict[str, Any]:
    curves = {curve.label: curve for curve in comparison.curves}
    unit, _, cost = _costs(comparison, (point.cost for point in comparison.frontier))
    rows = []
    for point in comparison.frontier:
        curve = curves[point.label]
        budget = budget_label(curve.entry, curve.points[point.point])
        rows.append(
            (point.label, budget, cost(point.cost), _percent(point.accuracy), _percent(point.stays))
        )
    columns = ("method", "budget", f"#{unit}", "#accuracy %", "#on the frontier, % of resamples")
    intro = "Points that no other point matches at the same cost or less."
    return _table("frontier", "Frontier", "Pareto frontier", intro, columns, rows)


def _differences(comparison: Comparison) -> dict[str, Any]:
    intro = (
        "Accuracy of one method minus another's, in percentage points, at the same cost and on the"
        " same questions. A filled dot: the interval leaves 0 out; where nothing was tested the dot"
        " is open."
    )
    note = "Between two budgets a curve is taken to be linear in the logarithm of its cost."
    unit, _, cost = _costs(comparison, (row.cost_a for row in comparison.differences))
    cells = [(row, (cost(row.cost_a),)) for row in comparison.differences]
    named = ("differences", "Differences", "Paired differences", intro)
    return _difference_table(comparison, named, (f"#{unit}",), cells, note)


def _unequal_costs(comparison: Comparison) -> dict[str, Any]:
    unit, _, cost = _costs(
        comparison, (end for row in comparison.unequal_costs for end in (row.cost_a, row.cost_b))
    )
    cells = [(row, (cost(row.cost_a), cost(row.cost_b))) for row in comparison.unequal_costs]
    named = ("unequal-costs", "At unequal cost", UNEQUAL_COSTS, NO_SHARED_COST)
    return _difference_table(comparison, named, (f"#first, {unit}", f"#second, {unit}"), cells)


def _difference_table(
    comparison: Comparison,
    named: tuple[str, str, str, str],
    costs: Sequence[str],
    cells: Sequence[tuple[AccuracyDifference, Sequence[Cell]]],
    *notes: str,
) -> dict[str, Any]:
    """A table of differences that are tested together, each with the cells of its costs."""
    rows = [
        (
            row.a,
            row.b,
            *at,
            _percent(row.accuracy_a),
            _percent(row.accuracy_b),
            _cell(
                "{} ({} to {})".format(
                    *(signed_points(x, small=False) for x in (row.difference, row.low, row.high))
                ),
                row.difference,
            ),
            {
                "t": "",
                "s": row.difference,
                "i": [row.low, row.difference, row.high],
                "open": row.untested is not None,
            },
            _p_value(row.p_value),
            _p_value(row.p_holm),
            _percent(row.flips),
        )
        for row, at in cells
    ]
    difference = (f"#difference ({interval_name(comparison.plan.confidence)})", "#around 0")
    accuracies = (*costs, "#first %", "#second %")
    columns = (
        "first",
        "second",
        *accuracies,
        *difference,
        "#p",
        "#p (Holm)",
        "#reversed, % of resamples",
    )
    tests = sum(row.p_value is not None for row, _ in cells)
    least = comparison.least_p(tests)
    floor = (
        f", and {plain_number(least)} is the least it can be with so many questions"
        if least >= 0.001
        else ""
    )
    tested = (
        "Intervals and p come from the questions' differences, two imaginary ones among them,"
        f" reversals from {comparison.plan.resamples:,} bootstrap resamples of questions."
        f" {counted(tests, 'difference')} {'is' if tests == 1 else 'are'} tested together: p (Holm)"
        f" is adjusted for that{floor}."
    )
    untested = dict.fromkeys(f"No p value: {row.untested}" for row, _ in cells if row.untested)
    return _table(*named, columns, rows, (tested, *untested, *notes), _strongest(comparison))


def _savings(comparison: Comparison) -> dict[str, Any]:
    unit, _, cost = _costs(
        comparison, (end for row in comparison.savings for end in (row.cost_a, row.cost_b))
    )
    rows = [
        (
            row.a,
            row.b,
            _percent(row.accuracy),
            cost(row.cost_a, "never"),
            cost(row.cost_b, "never"),
            _cell(
                "-" if row.ratio is None else _saved(row.ratio),
                None if row.ratio is None else 1 - row.ratio,
            ),
            _cell(
                _savings_range(row.ratio_low, row.ratio_high),
                None if row.ratio_high is None else 1 - row.ratio_high,
            ),
        )
        for row in comparison.savings
    ]
    costs = (f"#first, {unit}", f"#second, {unit}")
    columns = ("first", "second", "#at accuracy %", *costs, "#first saves", _interval(comparison))
    intro = (
        "What the first method saves of the second's cost at the same accuracy; below 0 it costs"
        " more, and above the double it is said how many times the second's cost."
    )
    notes = ["never: the curve does not reach that accuracy."]
    best = _strongest(comparison)
    return _table(
        "savings", "Savings", "Savings at equal accuracy", intro, columns, rows, notes, best
    )


def _savings_range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "-"
    return " to ".join("unbounded" if ratio is None else _saved(ratio) for ratio in (high, low))


def _saved(ratio: float) -> str:
    """What a method saves that costs so many times as much as another."""
    return f"{ratio:,.1f} times the cost" if ratio > 2 else f"{100 * (1 - ratio):+.1f} %"


def _reaches(comparison: Comparison) -> dict[str, Any]:
    ends = (end for row in comparison.reaches for end in (row.cost, row.cost_low, row.cost_high))
    unit, written, cost = _costs(comparison, ends)
    rows = [
        (
            row.label,
            _percent(row.accuracy),
            cost(row.cost, "never"),
            _cell(
                " to ".join(written(end, "never") for end in (row.cost_low, row.cost_high)),
                row.cost_low,
            ),
            _percent(row.never),
        )
        for row in comparison.reaches
    ]
    columns = (
        "method",
        "#accuracy %",
        f"#{unit}",
        _interval(comparison),
        "#not reached, % of resamples",
    )
    return _table("reaches", "Cost to reach", "Cost to reach an accuracy", "", columns, rows)


def _ranking(comparison: Comparison) -> dict[str, Any]:
    unit, _, cost = _costs(comparison, (row.cost for row in comparison.ranking))
    rows = [
        (
            row.label,
            _cell(str(row.rank), row.rank),
            cost(row.cost),
            _percent(row.accuracy),
            _cell(f"{row.strength:+.3f} ({row.low:+.3f} to {row.high:+.3f})", row.strength),
            {"t": "", "s": row.strength, "i": [row.low, row.strength, row.high]},
            _percent(row.first),
        )
        for row in comparison.ranking
    ]
    strength = (f"#strength ({interval_name(comparison.plan.confidence)})", "#around 0")
    columns = ("method", "#rank", f"#{unit}", "#accuracy %", *strength, "#first, % of resamples")
    where = ranked_at(comparison)
    intro = (
        f"Bradley-Terry strengths from question-by-question wins, {where}; 0 is the average of the"
        " methods."
    )
    return _table("ranking", "Ranking", "Ranking", intro, columns, rows)


def _areas(comparison: Comparison) -> dict[str, Any]:
    rows = [
        (row.label, _percent(row.area), _cell(percents(row.area_low, row.area_high), row.area_low))
        for row in comparison.areas
    ]
    unit, written, _ = _costs(
        comparison, (end for row in comparison.areas for end in (row.low_cost, row.high_cost))
    )
    of = f" {area_range(comparison, written, unit)}" if rows else ""
    intro = f"Average height of each curve's convex hull{of} (RouterBench's AIQ)."
    columns = ("method", "#area %", _interval(comparison))
    return _table("areas", "Areas", "Area under each curve", intro, columns, rows)


def _missing(comparison: Comparison) -> dict[str, Any]:
    rows = [(missing.label, missing.reason) for missing in comparison.missing]
    intro = (
        "What was asked for and could not be evaluated; everything else on this page is not"
        " affected by it."
    )
    return _table("missing", "Missing", "What is missing", intro, ("method", "reason"), rows)

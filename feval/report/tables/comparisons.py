"""Comparisons as tables and CSV; computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from feval.report.tables.cost_axes import OTHER_COSTS, cost_decimals, cost_words
from feval.report.tables.csv import csv_text
from feval.report.tables.tables import (
    Column,
    Table,
    columns,
    cost_mark,
    marked,
    per_round_cell,
    per_round_column,
    point_cells,
    timing_notes,
)
from feval.report.text import (
    counted,
    counted_questions,
    decimals_for,
    fixed,
    interval_name,
    p_value,
    percent,
    percents,
    price_words,
    signed_points,
)

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.comparison.statistics import AccuracyDifference, BestPoint, Rank, Saving
    from feval.evaluation.evaluation import Evaluation


def comparison_tables(comparison: Comparison) -> list[Table]:
    """All tables of a comparison for a terminal: results, frontier, ranking with areas, pairs of
    methods, and what is missing.

    Where there are too many pairs to read, only those with the strongest method are shown.
    """
    tables = [
        _results(comparison), frontier_table(comparison), _ranking(comparison),
        differences_table(comparison),
        _unequal_costs(comparison), _savings(comparison), _reaches(comparison),
        _missing(comparison),
    ]  # fmt: skip
    return [marked_costs(comparison, table) for table in tables if table.rows]


def marked_costs(comparison: Comparison, table: Table) -> Table:
    """A table with an asterisk at its costs where the LLMs' token counters differ."""
    own = ("cost", "cost of other", "ratio", "AIQ %", "its interval")
    return marked(
        table,
        comparison.counters,
        own if cost_mark(per_question(comparison), comparison.counters) else (),
    )


UNEQUAL_COSTS = "Difference in accuracy, not at equal cost"
NO_SHARED_COST = (
    "These pairs share no cost: each method is at its most expensive point, and one may win by"
    " spending more."
)

_MOST_ROWS = 30
_Pair = TypeVar("_Pair", "AccuracyDifference", "Saving")


def _readable(
    comparison: Comparison, rows: Sequence[_Pair]
) -> tuple[Sequence[_Pair], tuple[str, ...]]:
    """The rows that a terminal shows, and a note on the others."""
    if len(rows) <= _MOST_ROWS or not comparison.ranking:
        return rows, ()
    best = comparison.ranking[0].label
    note = (
        f"pairs with {best}, the first of the ranking; all {len(rows):,} lines: comparison.json and"
        " report.html (--out)"
    )
    return [row for row in rows if best in (row.a, row.b)], (note,)


def _results(comparison: Comparison) -> Table:
    rows = [row for row in comparison.named_points() if row[0] != "ceiling"]
    kinds = list(dict.fromkeys(point.kind for *_, point in rows))
    dollars = decimals_for(point.usd_per_question or 0.0 for *_, point in rows)
    first = rows[0][-1]
    own = comparison.plan.cost if comparison.plan.cost in OTHER_COSTS else None
    costs = [
        Column(
            f"{cost_words(cost, comparison.timing)[1]}/question",
            number=True,
            spare=cost != comparison.plan.cost,
        )
        for cost in ("usd", "tokens", "samples", "calls", *((own,) if own else ()))
    ]
    decimals = (
        1 if own is None else cost_decimals(own, (point.mean_cost(own) for *_, point in rows))
    )
    several = len(kinds) > 1
    by_round = per_round_column((comparison.plan.billing, point) for *_, point in rows)
    return Table(
        title=(
            f"{comparison.plan.dataset}, {counted_questions(first.questions, comparison.left_out)}"
        ),
        columns=(
            *columns("method", "budget", *(("kind",) if several else ()), "#accuracy %"),
            Column(interval_name(comparison.plan.confidence), number=True),
            *costs,
            *(columns(f"#{by_round}") if by_round else ()),
        ),
        rows=tuple(
            (
                label,
                budget or "-",
                *((point.kind,) if several else ()),
                *point_cells(point, dollars),
                *((fixed(point.mean_cost(own), decimals),) if own else ()),
                *((per_round_cell(point, dollars),) if by_round else ()),
            )
            for _, label, _, budget, point in rows
        ),
        notes=results_notes(comparison),
    )


def results_notes(comparison: Comparison) -> tuple[str, ...]:
    """How the points were computed and paid, and the warnings."""
    first, kinds = comparison.curves[0].points[0], list(comparison.kinds)
    usd = (point.usd_per_question for curve in comparison.curves for point in curve.points)
    split = (
        f"; {first.train_questions:,} other questions were learnt from"
        if first.train_questions
        else ""
    )
    draws = (
        f"; seeded points average {comparison.plan.replicates} draws of each question, seed"
        f" {comparison.plan.seed}"
    )
    return (
        f"{', '.join(kinds)}{draws if 'seeded' in kinds else ''}{split}",
        f"billing {first.billing}; {price_words(first.prices, usd)}",
        *timing_notes(comparison.timing),
        *comparison.warnings,
    )


def named_point(comparison: Comparison, chosen: tuple[str, int]) -> tuple[Evaluation, str]:
    """A point of a method, by label and index, and its budget."""
    label, place = chosen
    curve = next(curve for curve in comparison.curves if curve.label == label)
    return curve.points[place], curve.budget_text(place)


def within_noise(comparison: Comparison, best: BestPoint, most: int | None = None) -> str:
    """The settings that may be as good as the best, by method; the first `most` methods, more
    settings of one as a number.
    """
    settings: dict[str, list[str]] = {}
    for close in best.close:
        settings.setdefault(close[0], []).append(named_point(comparison, close)[1])
    listed = {
        label: (
            counted(len(budgets), "setting")
            if most and len(budgets) > most
            else ", ".join(filter(None, budgets))
        )
        for label, budgets in settings.items()
    }
    named = [f"{label} ({budgets})" if budgets else label for label, budgets in listed.items()]
    more = (
        f"; and {counted(len(named) - most, 'method')} more" if most and len(named) > most else ""
    )
    return "; ".join(named[:most]) + more if named else "none"


def chosen_note(comparison: Comparison) -> str:
    """How the best points were chosen, and what is within noise of one."""
    return (
        "Chosen on the questions that it is judged on, which flatters its accuracy; with"
        f" {100 * comparison.plan.confidence:g} % confidence, the truly best setting is this one or"
        " one within noise of it."
    )


def frontier_table(comparison: Comparison) -> Table:
    """The Pareto frontier, by cost."""
    curves = {curve.label: curve for curve in comparison.curves}
    cost = cost_writer(comparison, (point.cost for point in comparison.frontier))
    return Table(
        title="Pareto frontier",
        columns=columns(
            "method", "budget", f"#{per_question(comparison)}", "#accuracy %", "#frontier %"
        ),
        rows=tuple(
            (
                p.label,
                curves[p.label].budget_text(p.point) or "-",
                cost(p.cost),
                percent(p.accuracy),
                percent(p.stays),
            )
            for p in comparison.frontier
        ),
        notes=(
            (
                "frontier %: share of resampled question sets in which no other point is as cheap"
                " and as good"
            ),
        ),
    )


def differences_table(
    comparison: Comparison,
    selection: Sequence[AccuracyDifference] | None = None,
    notes: tuple[str, ...] = (),
) -> Table:
    """A table of differences in accuracy at equal cost: a selection with `notes`, or all that fit a
    terminal, explained.
    """
    rows, rest = _readable(comparison, comparison.differences)
    cost = cost_writer(comparison, (row.cost_a for row in comparison.differences))
    return Table(
        title="Difference in accuracy at equal cost, in percentage points",
        columns=_difference_columns(comparison, *columns(f"#{per_question(comparison)}")),
        rows=tuple(
            _difference_cells(row, cost(row.cost_a))
            for row in (rows if selection is None else selection)
        ),
        notes=(
            (*rest, *_difference_notes(comparison, rows, comparison.differences))
            if selection is None
            else notes
        ),
    )


def _unequal_costs(comparison: Comparison) -> Table:
    rows, rest = _readable(comparison, comparison.unequal_costs)
    cost = cost_writer(
        comparison, (end for row in comparison.unequal_costs for end in (row.cost_a, row.cost_b))
    )
    unit = per_question(comparison)
    return Table(
        title=f"{UNEQUAL_COSTS}, in percentage points",
        columns=_difference_columns(
            comparison,
            *(Column(name, number=True, spare=True) for name in (unit, f"{unit} of other")),
        ),
        rows=tuple(_difference_cells(row, cost(row.cost_a), cost(row.cost_b)) for row in rows),
        notes=(
            *rest,
            NO_SHARED_COST,
            *_difference_notes(comparison, rows, comparison.unequal_costs),
        ),
    )


def _difference_columns(comparison: Comparison, *costs: Column) -> tuple[Column, ...]:
    return (
        *columns("method", "minus"),
        *costs,
        *columns("#points"),
        Column(interval_name(comparison.plan.confidence), number=True),
        Column("reversed %", number=True, spare=True),
        Column("p", number=True, spare=True),
        Column("p (Holm)", number=True),
    )


def _difference_cells(row: AccuracyDifference, *costs: str) -> tuple[str, ...]:
    return (
        row.a,
        row.b,
        *costs,
        signed_points(row.difference),
        f"{signed_points(row.low)} to {signed_points(row.high)}",
        percent(row.flips),
        p_value(row.p_value),
        p_value(row.p_holm),
    )


def _difference_notes(
    comparison: Comparison, rows: Sequence[AccuracyDifference], family: Sequence[AccuracyDifference]
) -> tuple[str, ...]:
    tests = sum(row.p_value is not None for row in family)
    least = comparison.least_p(tests)
    floor = (
        f", on {counted(*comparison.evidence)} it cannot be less than {least:.2g}"
        if least >= 0.001
        else ""
    )
    return (
        (
            f"{counted(tests, 'comparison')}; p (Holm) is adjusted for all{floor}; intervals are"
            " not adjusted"
        ),
        *(
            f"no p value: {reason}"
            for reason in dict.fromkeys(row.untested for row in rows if row.untested)
        ),
    )


def _savings(comparison: Comparison) -> Table:
    rows, rest = _readable(comparison, comparison.savings)
    cost = cost_writer(
        comparison, (value for row in comparison.savings for value in (row.cost_a, row.cost_b))
    )
    return Table(
        title="Cost at equal accuracy",
        columns=(
            *columns("method", "over", "#accuracy %"),
            *(Column(name, number=True, spare=True) for name in ("cost", "cost of other")),
            *columns("#ratio", f"#{interval_name(comparison.plan.confidence)}"),
            *(Column(name, number=True, spare=True) for name in ("never %", "other never %")),
        ),
        rows=tuple(
            (
                row.a,
                row.b,
                percent(row.accuracy),
                cost(row.cost_a) if row.cost_a is not None else "never",
                cost(row.cost_b) if row.cost_b is not None else "never",
                fixed(row.ratio, 3),
                (
                    "-"
                    if row.ratio_low is None
                    else f"{row.ratio_low:.3f} to {_or_more(row.ratio_high)}"
                ),
                percent(row.never_a),
                percent(row.never_b),
            )
            for row in rows
        ),
        notes=(
            *rest,
            (
                "never: share of resampled question sets in which no budget of the method reaches"
                " the accuracy"
            ),
            *(
                ("to any: the first fails to reach it so often that the ratio has no upper end",)
                if any(row.ratio_low is not None and row.ratio_high is None for row in rows)
                else ()
            ),
        ),
    )


def _or_more(high: float | None) -> str:
    return "any" if high is None else f"{high:.3f}"


def _reaches(comparison: Comparison) -> Table:
    cost = cost_writer(
        comparison,
        (value for row in comparison.reaches for value in (row.cost, row.cost_low, row.cost_high)),
    )
    numbers = (
        "#accuracy %",
        f"#{per_question(comparison)}",
        f"#{interval_name(comparison.plan.confidence)}",
        "#never %",
    )
    return Table(
        title="Cost to reach an accuracy",
        columns=columns("method", *numbers),
        rows=tuple(
            (
                row.label,
                percent(row.accuracy),
                "never" if row.cost is None else cost(row.cost),
                f"{cost(row.cost_low, 'never')} to {cost(row.cost_high, 'never')}",
                percent(row.never),
            )
            for row in comparison.reaches
        ),
    )


def _ranking(comparison: Comparison) -> Table:
    cost = cost_writer(comparison, (row.cost for row in comparison.ranking))
    areas = {area.label: area for area in comparison.areas}

    def cells(row: Rank) -> tuple[str, ...]:
        area = areas.get(row.label)
        return (
            str(row.rank), row.label, cost(row.cost), percent(row.accuracy), f"{row.strength:+.3f}",
            f"{row.low:+.3f} to {row.high:+.3f}", percent(row.first),
            "-" if area is None else percent(area.area),
            "-" if area is None else percents(area.area_low, area.area_high),
        )  # fmt: skip

    return Table(
        title="Ranking (Bradley-Terry over questions) and area under the hull (AIQ)",
        columns=(
            *columns("#", "method"),
            Column(per_question(comparison), number=True, spare=True),
            *columns(
                "#accuracy %",
                "#strength",
                f"#{interval_name(comparison.plan.confidence)}",
                "#first %",
                "#AIQ %",
            ),
            Column("its interval", number=True, spare=True),
        ),
        rows=tuple(map(cells, comparison.ranking)),
        notes=(
            *((f"ranking: {ranked_at(comparison)}",) if comparison.ranking else ()),
            *(
                (
                    (
                        "AIQ: mean height of the hull"
                        f" {area_range(comparison, cost, per_question(comparison))}"
                    ),
                )
                if comparison.areas
                else ()
            ),
        ),
    )


def ranked_at(comparison: Comparison) -> str:
    """At which costs the methods are ranked."""
    if len({row.cost for row in comparison.ranking}) == 1:
        return "at the highest cost that all methods share"
    return "each at its most expensive point, not at equal cost, since no cost is common to all"


def area_range(comparison: Comparison, cost: Callable[..., str], unit: str) -> str:
    """Over which costs the areas are."""
    first = comparison.areas[0]
    ends = f"from {cost(first.low_cost)} to {cost(first.high_cost)} {unit}"
    return f"{ends}; beyond a method's last point its hull is level"


def _missing(comparison: Comparison) -> Table:
    return Table(
        title="Missing",
        columns=columns("method", "reason"),
        rows=tuple((one.label, one.reason) for one in comparison.missing),
    )


def per_question(comparison: Comparison) -> str:
    """The unit of costs."""
    return f"{cost_words(comparison.plan.cost, comparison.timing)[1]}/question"


def cost_writer(comparison: Comparison, values: Iterable[float | None]) -> Callable[..., str]:
    """A function that writes costs with as many decimals as the smallest needs."""
    decimals = cost_decimals(comparison.plan.cost, values)

    def written(value: float | None, unknown: str = "-") -> str:
        return unknown if value is None else fixed(value, decimals)

    return written


def results_csv(comparison: Comparison) -> str:
    """CSV text of `Comparison.records`, floats in full, an empty cell for what is not known."""
    rows = [row | {"frontier": "yes" if row["frontier"] else "no"} for row in comparison.records()]
    return csv_text(tuple(rows[0]), (row.values() for row in rows))

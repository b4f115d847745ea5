"""A comparison on one screen: the best method at three budgets, the frontier, significant differences, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from feval.evaluation.costs import mean_cost
from feval.report.tables.comparisons import cost_writer, differences_table, frontier_table, per_question, results_notes
from feval.report.tables.tables import Table, columns
from feval.report.text import counted, counted_questions, interval_name, percent, percents

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison

_FRONTIER_ROWS, _DIFFERENCE_ROWS, _MISSING_ROWS = 6, 5, 3
_LONGEST_REASON = 160


def headline(comparison: Comparison, *, complete: bool = False) -> list[str | Table]:
    """What `feval compare` prints first, in at most 40 lines; where all tables follow (`complete`), without a hint at them."""
    first = comparison.curves[0].points[0]
    title = f"{comparison.plan.dataset}, {counted_questions(first.questions, comparison.left_out)}"
    pieces: list[str | Table] = [title, *(f"  {note}" for note in results_notes(comparison)), "", _best(comparison), ""]
    pieces += [_frontier(comparison), "", *_significant(comparison), *_missing(comparison)]
    if not complete:
        pieces += ["", "All points, differences, savings and the ranking: --all, or report.html with --out DIR."]
    return pieces


def best_at(comparison: Comparison, budgets: Sequence[float]) -> list[tuple[int, int] | None]:
    """The most accurate point within each mean cost per question, of equals the cheapest: curve and point by index.

    `None` where no point is that cheap.
    """
    points = [
        (cost, -point.accuracy, i, j)
        for i, curve in enumerate(comparison.curves)
        for j, point in enumerate(curve.points)
        if (cost := mean_cost(point, comparison.plan.cost)) is not None
    ]
    best = []
    for budget in budgets:
        paid = [(accuracy, cost, i, j) for cost, accuracy, i, j in points if cost <= budget * (1 + 1e-9)]
        best.append(min(paid)[2:] if paid else None)
    return best


def three_budgets(comparison: Comparison) -> list[float]:
    """Three of the plan's costs, or thirds of the range of costs on a log axis."""
    if planned := sorted(comparison.plan.costs):
        return list(dict.fromkeys((planned[0], planned[len(planned) // 2], planned[-1])))
    means = [mean_cost(point, comparison.plan.cost) for curve in comparison.curves for point in curve.points]
    costs = [mean for mean in means if mean is not None]
    return list(dict.fromkeys(np.geomspace(min(costs), max(costs), 4)[1:].tolist()))


def _best(comparison: Comparison) -> Table:
    budgets = three_budgets(comparison)
    cost = cost_writer(comparison, budgets)
    rows = []
    for budget, place in zip(budgets, best_at(comparison, budgets), strict=True):
        if place is None:
            rows.append((cost(budget), "none is as cheap", "-", "-", "-"))
            continue
        curve, index = comparison.curves[place[0]], place[1]
        point = curve.points[index]
        ends = percents(point.accuracy_low, point.accuracy_high)
        rows.append((cost(budget), curve.label, curve.budget_text(index) or "-", percent(point.accuracy), ends))
    return Table(
        title="Best at three budgets" if len(rows) == 3 else "Best",
        columns=columns(
            f"#up to {per_question(comparison)}",
            "method",
            "budget",
            "#accuracy %",
            f"#{interval_name(comparison.plan.confidence)}",
        ),
        rows=tuple(rows),
    )


def _frontier(comparison: Comparison) -> Table:
    """The frontier; of a long one, some points from its cheapest to its most expensive."""
    table = frontier_table(comparison)
    more = len(table.rows) - _FRONTIER_ROWS
    if more <= 0:
        return table
    places = np.linspace(0, len(table.rows) - 1, _FRONTIER_ROWS).round().astype(int).tolist()
    notes = (*table.notes, f"{more:,} points between these: --all")
    return replace(table, rows=tuple(table.rows[place] for place in places), notes=notes)


def _significant(comparison: Comparison) -> list[str | Table]:
    """The clearest significant difference of each pair, the strongest method first; or a sentence that there is none."""
    if not comparison.differences:
        return []
    level = 1 - comparison.plan.confidence
    rows = [row for row in comparison.differences if row.p_holm is not None and row.p_holm <= level]
    tests = counted(comparison.tests, "comparison")
    if not rows:
        sentence = f"No difference in accuracy at equal cost is significant: p (Holm) is above {level:.2g} in {tests}."
        if comparison.smallest_p > level:
            count = counted(comparison.curves[0].points[0].questions, "question")
            sentence += f" On {count} it cannot be less than {comparison.smallest_p:.2g}."
        return [sentence]
    best = comparison.ranking[0].label
    rows.sort(key=lambda row: (best not in (row.a, row.b), row.p_holm, -abs(row.difference)))
    pairs = list({(row.a, row.b): row for row in reversed(rows)}.values())[::-1]
    note = f"{len(rows):,} of {tests} have p (Holm) up to {level:.2g}"
    notes = (f"{note}; shown: one of each pair, those with {best} first",) if len(pairs) > _DIFFERENCE_ROWS else (note,)
    return [differences_table(comparison, pairs[:_DIFFERENCE_ROWS], notes=notes)]


def _missing(comparison: Comparison) -> list[str | Table]:
    if not comparison.missing:
        return []
    more = len(comparison.missing) - _MISSING_ROWS
    lines = [f"  {one.label}: {_cut(one.reason)}" for one in islice(comparison.missing, _MISSING_ROWS)]
    return ["", "Missing", *lines, *([f"  and {more:,} more (--all)"] if more > 0 else [])]


def _cut(reason: str) -> str:
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."

"""A comparison on one screen: the best method at three budgets, the frontier, significant
differences, and what failed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from feval.report.tables.comparisons import (
    chosen_note,
    cost_writer,
    differences_table,
    frontier_table,
    marked_costs,
    named_point,
    per_question,
    results_notes,
    within_noise,
)
from feval.report.tables.tables import Table, columns
from feval.report.text import counted, counted_questions, interval_name, percent, percents

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison

_FRONTIER_ROWS, _DIFFERENCE_ROWS, _MISSING_ROWS, _CLOSE = 6, 5, 3, 3
_LONGEST_REASON = 160


def headline(comparison: Comparison, *, complete: bool = False) -> list[str | Table]:
    """What `feval compare` prints first, in at most 40 lines; where all tables follow (`complete`),
    without a hint at them.
    """
    first = comparison.curves[0].points[0]
    title = f"{comparison.plan.dataset}, {counted_questions(first.questions, comparison.left_out)}"
    pieces: list[str | Table] = [
        title,
        *(f"  {note}" for note in results_notes(comparison)),
        "",
        _best(comparison),
        "",
    ]
    pieces += [_frontier(comparison), "", *_significant(comparison), *_missing(comparison)]
    if not complete:
        pieces += [
            "",
            (
                "All points, differences, savings and the ranking: --all, or report.html with --out"
                " DIR."
            ),
        ]
    # what the marks mean is among the notes at the top
    tables = (
        (
            replace(marked_costs(comparison, piece), notes=piece.notes)
            if isinstance(piece, Table)
            else piece
        )
        for piece in pieces
    )
    return list(tables)


def _best(comparison: Comparison) -> Table:
    cost = cost_writer(comparison, (best.budget for best in comparison.best))
    rows, notes = [], []
    for best in comparison.best:
        if best.chosen is None:
            rows.append((cost(best.budget), "none is as cheap", *"---"))
            continue
        point, budget = named_point(comparison, best.chosen)
        ends = percents(point.accuracy_low, point.accuracy_high)
        rows.append(
            (cost(best.budget), best.chosen[0], budget or "-", percent(point.accuracy), ends)
        )
        near = within_noise(comparison, best, _CLOSE)
        notes.append(
            f"up to {cost(best.budget)}: of {counted(best.settings, 'setting')}; within noise of"
            f" it: {near}"
        )
    names = ("method", "budget", "#accuracy %", f"#{interval_name(comparison.plan.confidence)}")
    return Table(
        title="Best at three budgets" if len(rows) == 3 else "Best",
        columns=columns(f"#up to {per_question(comparison)}", *names),
        rows=tuple(rows),
        notes=(chosen_note(comparison), *notes),
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
    """The clearest significant difference of each pair, the strongest method first; or a sentence
    that there is none.
    """
    apart = _apart(comparison)
    if not comparison.differences:
        return apart
    level = 1 - comparison.plan.confidence
    rows = [row for row in comparison.differences if row.p_holm is not None and row.p_holm <= level]
    tests = counted(comparison.tests, "comparison")
    if not rows:
        sentence = (
            f"No difference in accuracy at equal cost is significant: p (Holm) is above {level:.2g}"
            f" in {tests}."
        )
        if comparison.smallest_p > level:
            sentence += (
                f" On {counted(*comparison.evidence)} it cannot be less than"
                f" {comparison.smallest_p:.2g}."
            )
        return [sentence, *apart]
    best = comparison.ranking[0].label
    rows.sort(key=lambda row: (best not in (row.a, row.b), row.p_holm, -abs(row.difference)))
    pairs = list({(row.a, row.b): row for row in reversed(rows)}.values())[::-1]
    note = f"{len(rows):,} of {tests} have p (Holm) up to {level:.2g}"
    notes = (
        (f"{note}; shown: one of each pair, those with {best} first",)
        if len(pairs) > _DIFFERENCE_ROWS
        else (note,)
    )
    return [differences_table(comparison, pairs[:_DIFFERENCE_ROWS], notes=notes), *apart]


def _apart(comparison: Comparison) -> list[str | Table]:
    """A sentence on the pairs that are not compared at equal cost, where there are any."""
    count = len(comparison.unequal_costs)
    words = "shares no cost and is" if count == 1 else "share no cost and are"
    return [f"{counted(count, 'pair')} of methods {words} compared apart."] if count else []


def _missing(comparison: Comparison) -> list[str | Table]:
    if not comparison.missing:
        return []
    more = len(comparison.missing) - _MISSING_ROWS
    lines = [
        f"  {one.label}: {_cut(one.reason)}" for one in islice(comparison.missing, _MISSING_ROWS)
    ]
    return ["", "Missing", *lines, *([f"  and {more:,} more (--all)"] if more > 0 else [])]


def _cut(reason: str) -> str:
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."

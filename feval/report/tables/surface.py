"""The width x depth surface as a table of its Pareto frontier, and `surface.csv` with all
points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.report.tables.csv import csv_text
from feval.report.tables.tables import Table, columns
from feval.report.text import (
    counted,
    counted_questions,
    decimals_for,
    fixed,
    interval_name,
    percent,
    percents,
    price_words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from feval.evaluation.surface import Surface, SurfacePoint

SURFACE_COLUMNS = (
    "n", "tokens", "accuracy", "accuracy_low", "accuracy_high", "output_tokens", "probe_tokens",
    "tokens_per_question", "usd_per_question", "frontier",
)  # fmt: skip
"""The columns of `surface.csv`, in order; an empty cell is an unknown number, or no limit of
tokens.
"""

_STEPS = 20


def surface_csv(surface: Surface) -> str:
    """Return the CSV text of all points."""
    return csv_text(
        SURFACE_COLUMNS,
        [[getattr(point, name) for name in SURFACE_COLUMNS] for point in surface.points],
    )


def surface_table(surface: Surface) -> Table:
    """Return the table of the points on the Pareto frontier, the cheapest first."""
    shown = _spread(surface.frontier)
    decimals = decimals_for(point.usd_per_question or 0.0 for point in shown)
    others = len(surface.frontier) - len(shown)
    left_out = [
        f"{counted(others, 'more point')} on the frontier, between those, in --json and surface.csv"
    ] * (others > 0)
    return Table(
        title=f"width x depth on {surface.dataset}, {surface.llm}: the Pareto frontier",
        columns=columns(
            "#traces",
            "#tokens each",
            "#accuracy %",
            f"#{interval_name(surface.confidence)}",
            "#USD/question",
            "#output tokens",
        ),
        rows=tuple(
            (
                str(point.n),
                depth_name(point),
                percent(point.accuracy),
                percents(point.accuracy_low, point.accuracy_high),
                fixed(point.usd_per_question, decimals),
                fixed(point.output_tokens, 1),
            )
            for point in shown
        ),
        notes=(*left_out, *surface_notes(surface), *surface.warnings),
    )


def _spread(frontier: Sequence[SurfacePoint]) -> list[SurfacePoint]:
    """Return the ends of the frontier and, between them, points whose accuracy is a twentieth of
    its range further on.
    """
    step = (frontier[-1].accuracy - frontier[0].accuracy) / _STEPS
    shown = [frontier[0]]
    for point in frontier[1:-1]:
        if point.accuracy >= shown[-1].accuracy + step:
            shown.append(point)
    return shown + [frontier[-1]] * (len(frontier) > 1)


def depth_name(point: SurfacePoint) -> str:
    """Return the limit of tokens of a point, for people."""
    return "no limit" if point.tokens is None else f"{point.tokens:,}"


def surface_notes(surface: Surface) -> tuple[str, str]:
    """Return two lines on what a surface rests on: kind, questions and probes; billing, prices and
    token counter.
    """
    probed = (
        "at various offsets" if surface.interval is None else f"every {surface.interval:,} tokens"
    )
    questions = counted_questions(surface.questions, surface.left_out)
    grid = f"{counted(len(surface.widths), 'width')} x {counted(len(surface.depths), 'depth')}"
    prices = price_words(surface.prices, (point.usd_per_question for point in surface.points[:1]))
    return (
        f"exact: expectation over all subsets of the recorded traces, probed {probed}; {questions}",
        f"{grid}; billing {surface.billing}; {prices}; token counter {surface.counter}",
    )

"""Comparisons as tables, CSV and Parquet; computes nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from feval.report import tables
from feval.report.tables.tables import Column, Table, per_round_cell, per_round_column
from feval.report.text import counted_questions, decimals_for, fixed, percent, signed_points

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison, MethodCurve
    from feval.comparison.statistics import Difference, Rank, Saving
    from feval.evaluation.evaluation import Evaluation

__all__ = ["RESULT_COLUMNS", "comparison_tables", "questions_parquet", "results_csv", "results_parquet"]

RESULT_COLUMNS = (
    "role", "label", "point", "budget", "llms", "kind", "accuracy", "accuracy_low", "accuracy_high", "usd_per_question",
    "tokens_per_question", "calls_per_question", "samples_per_question", "frontier",
)  # fmt: skip
"""Columns of `results.csv` and `results.parquet`.

One row per point of a method, per single call of an LLM, and per point of its pass@n ceiling.
"""

UNITS = {"usd": "USD", "tokens": "tokens", "calls": "calls", "samples": "CoTs"}


def comparison_tables(told: Comparison) -> list[Table]:
    """Tables of a comparison for a terminal: results, frontier, ranking with areas, pairs of methods, and what is missing.

    Pairs grow with the square of the methods. Where there are too many to be read, those with the strongest method are shown.
    """
    tables = [
        _results(told), _frontier(told), _ranking(told), _differences(told), _savings(told), _reaches(told), _missing(told),
    ]  # fmt: skip
    return [table for table in tables if table.rows]


_MOST_ROWS = 30
_Pair = TypeVar("_Pair", "Difference", "Saving")


def _readable(told: Comparison, rows: Sequence[_Pair]) -> tuple[Sequence[_Pair], tuple[str, ...]]:
    """Those rows that a terminal shows, and a note on the others."""
    if len(rows) <= _MOST_ROWS or not told.ranking:
        return rows, ()
    best = told.ranking[0].label
    note = (
        f"pairs with {best}, the first of the ranking; all {len(rows):,} lines: comparison.json and report.html (--out)"
    )
    return [row for row in rows if best in (row.a, row.b)], (note,)


def _numbers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, number=True) for name in names)


def _interval_name(told: Comparison) -> str:
    return f"{100 * told.plan.confidence:g} % interval"


def _results(told: Comparison) -> Table:
    rows = [row for row in _points(told) if row[0] != "ceiling"]
    kinds = list(dict.fromkeys(point.kind for *_, point in rows))
    dollars = decimals_for(point.usd_per_question or 0.0 for *_, point in rows)
    first = rows[0][-1]
    split = f"; {first.train_questions:,} other questions were learnt from" if first.train_questions else ""
    draws = f"; seeded points average {told.plan.replicates} draws of each question, seed {told.plan.seed}"
    costs = {"usd": "USD/question", "tokens": "tokens/question", "samples": "CoTs/question", "calls": "calls/question"}
    several = len(kinds) > 1
    by_round = per_round_column((told.plan.billing, point) for *_, point in rows)
    return Table(
        title=f"{told.plan.dataset}, {counted_questions(first.questions, told.left_out)}",
        columns=(
            Column("method"),
            Column("budget"),
            *((Column("kind"),) if several else ()),
            *_numbers("accuracy %", _interval_name(told)),
            *(Column(name, number=True, spare=axis != told.plan.axis) for axis, name in costs.items()),
            *(_numbers(by_round) if by_round else ()),
        ),
        rows=tuple(
            (
                label,
                budget or "-",
                *((point.kind,) if several else ()),
                percent(point.accuracy),
                _percents(point.accuracy_low, point.accuracy_high),
                fixed(point.usd_per_question, dollars),
                fixed(point.tokens_per_question, 1),
                fixed(float(point.samples.mean()), 2),
                fixed(point.calls_per_question, 2),
                *((per_round_cell(point, dollars),) if by_round else ()),
            )
            for _, label, _, budget, point in rows
        ),
        notes=(
            f"{', '.join(kinds)}{draws if 'seeded' in kinds else ''}{split}",
            f"billing {first.billing}; prices {first.prices or 'none'}",
            *told.warnings,
        ),
    )


def _points(told: Comparison) -> Iterator[tuple[str, str, int, str, Evaluation]]:
    """Role, label, place, budget and evaluation of every point, in the order of the report."""
    for role, curves in (("method", told.curves), ("ceiling", told.ceilings)):
        for curve in curves:
            label = curve.label if role == "method" else f"pass@n of {curve.label}"
            yield from ((role, label, i, budget_of(curve, i), point) for i, point in enumerate(curve.points))
    for point in told.baselines:
        yield "baseline", f"single call of {point.llms[0]}", 0, "", point


def budget_of(curve: MethodCurve, place: int) -> str:
    """The value of a curve's swept field at one of its points, as text; empty without a sweep."""
    if curve.entry.sweep is None:
        return ""
    name = curve.entry.sweep[0]
    return f"{name}={curve.points[place].fields.get(name)}"


def _frontier(told: Comparison) -> Table:
    curves = {curve.label: curve for curve in told.curves}
    cost = _costs(told, (point.cost for point in told.frontier))
    return Table(
        title="Pareto frontier",
        columns=(
            Column("method"),
            Column("budget"),
            *_numbers(_per_question(told), "accuracy %", "stays %"),
        ),
        rows=tuple(
            (p.label, budget_of(curves[p.label], p.point) or "-", cost(p.cost), percent(p.accuracy), percent(p.stays))
            for p in told.frontier
        ),
        notes=("stays: share of resampled question sets in which nothing is both as cheap and as good",),
    )


def _differences(told: Comparison) -> Table:
    cost = _costs(told, (row.cost for row in told.differences))
    rows, left = _readable(told, told.differences)
    floor = f"on {told.curves[0].points[0].questions:,} questions it cannot be less than {told.smallest_p:.2g}"
    untested = list(dict.fromkeys(row.untested for row in rows if row.untested))
    return Table(
        title="Difference in accuracy at equal cost, in percentage points",
        columns=(
            Column("method"),
            Column("minus"),
            *_numbers(_per_question(told), "points", _interval_name(told)),
            Column("flips %", number=True, spare=True),
            Column("p", number=True, spare=True),
            Column("p (Holm)", number=True),
        ),
        rows=tuple(
            (
                row.a,
                row.b,
                cost(row.cost),
                signed_points(row.difference),
                f"{signed_points(row.low)} to {signed_points(row.high)}",
                percent(row.flips),
                "-" if row.p_value is None else f"{row.p_value:.4f}",
                "-" if row.p_holm is None else f"{row.p_holm:.4f}",
            )
            for row in rows
        ),
        notes=(
            *left,
            f"{told.tests} comparisons by sign flips; p (Holm) is adjusted for all of them, {floor}; intervals are not adjusted",
            *(f"- for p: {reason}" for reason in untested),
            *(("- for the cost: the two share none, and each is taken at its dearest point",) if _apart(told) else ()),
        ),
    )


def _apart(told: Comparison) -> bool:
    return any(row.cost is None for row in told.differences)


def _savings(told: Comparison) -> Table:
    rows, left = _readable(told, told.savings)
    cost = _costs(told, (value for row in told.savings for value in (row.cost_a, row.cost_b)))
    return Table(
        title="Cost at equal accuracy",
        columns=(
            Column("method"),
            Column("over"),
            Column("accuracy %", number=True),
            *(Column(name, number=True, spare=True) for name in ("cost", "cost of other")),
            *_numbers("ratio", _interval_name(told)),
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
                "-" if row.ratio_low is None else f"{row.ratio_low:.3f} to {_or_more(row.ratio_high)}",
                percent(row.never_a),
                percent(row.never_b),
            )
            for row in rows
        ),
        notes=(
            *left,
            "never: share of resampled question sets in which the method does not reach the accuracy at any budget",
            *(
                ("to any: so often does the first not reach it that the ratio has no upper end",)
                if _unbounded(rows)
                else ()
            ),
        ),
    )


def _unbounded(rows: Iterable[Saving]) -> bool:
    return any(row.ratio_low is not None and row.ratio_high is None for row in rows)


def _or_more(high: float | None) -> str:
    return "any" if high is None else f"{high:.3f}"


def _reaches(told: Comparison) -> Table:
    cost = _costs(told, (value for row in told.reaches for value in (row.cost, row.cost_low, row.cost_high)))
    return Table(
        title="Cost to reach an accuracy",
        columns=(Column("method"), *_numbers("accuracy %", _per_question(told), _interval_name(told), "never %")),
        rows=tuple(
            (
                row.label,
                percent(row.accuracy),
                "never" if row.cost is None else cost(row.cost),
                f"{cost(row.cost_low, 'never')} to {cost(row.cost_high, 'never')}",
                percent(row.never),
            )
            for row in told.reaches
        ),
    )


def _ranking(told: Comparison) -> Table:
    cost, areas = _costs(told, (row.cost for row in told.ranking)), {area.label: area for area in told.areas}

    def cells(row: Rank) -> tuple[str, ...]:
        area = areas.get(row.label)
        return (
            str(row.rank), row.label, cost(row.cost), percent(row.accuracy), f"{row.strength:+.3f}",
            f"{row.low:+.3f} to {row.high:+.3f}", percent(row.first),
            "-" if area is None else percent(area.area),
            "-" if area is None else _percents(area.area_low, area.area_high),
        )  # fmt: skip

    span = told.areas[0] if told.areas else None
    return Table(
        title="Ranking (Bradley-Terry over questions) and area under the hull (AIQ)",
        columns=(
            Column("", number=True),
            Column("method"),
            Column(_per_question(told), number=True, spare=True),
            *_numbers("accuracy %", "strength", _interval_name(told), "first %", "AIQ %"),
            Column("its interval", number=True, spare=True),
        ),
        rows=tuple(map(cells, told.ranking)),
        notes=()
        if span is None
        else (f"AIQ: mean height of the hull from {cost(span.low_cost)} to {cost(span.high_cost)} per question",),
    )


def _missing(told: Comparison) -> Table:
    return Table(
        title="Missing",
        columns=(Column("method"), Column("reason")),
        rows=tuple((one.label, one.reason) for one in told.missing),
    )


def _per_question(told: Comparison) -> str:
    return f"{UNITS[told.plan.axis]}/question"


def _percents(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{percent(low)} to {percent(high)}"


def _costs(told: Comparison, values: Iterable[float | None]) -> Callable[..., str]:
    """A writer of costs, with as many decimals as the smallest needs."""
    decimals = decimals_for(value for value in values if value) if told.plan.axis == "usd" else 1

    def written(value: float | None, unknown: str = "-") -> str:
        return unknown if value is None else fixed(value, decimals)

    return written


# -- files --------------------------------------------------------------------------------------------------------------


def _result_rows(told: Comparison) -> Iterator[tuple[str | int | float | bool | None, ...]]:
    """Rows of `RESULT_COLUMNS`; `None` for what is not known."""
    on = {(point.label, point.point) for point in told.frontier}
    for role, label, place, budget, point in _points(told):
        numbers = (
            point.accuracy, point.accuracy_low, point.accuracy_high, point.usd_per_question, point.tokens_per_question,
            float(point.calls.mean()), float(point.samples.mean()),
        )  # fmt: skip
        plain = (None if number is None else float(number) for number in numbers)
        frontier = role == "method" and (label, place) in on
        yield role, label, place, budget, " > ".join(point.llms), point.kind, *plain, frontier


def results_csv(told: Comparison) -> str:
    """CSV text with `RESULT_COLUMNS`, floats in full, an empty cell for what is not known, LF line ends."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(RESULT_COLUMNS)
    for *cells, frontier in _result_rows(told):
        writer.writerow([*cells, "yes" if frontier else "no"])
    return out.getvalue()


def results_parquet(told: Comparison) -> bytes:
    """Parquet bytes with the rows of `results_csv`, null for what is not known."""
    import pyarrow as pa

    words = dict.fromkeys(("role", "label", "budget", "llms", "kind"), pa.string())
    types = words | {"point": pa.int32(), "frontier": pa.bool_()}
    columns = zip(RESULT_COLUMNS, zip(*_result_rows(told), strict=True), strict=True)
    return tables.table_bytes(pa.table({name: pa.array(own, types.get(name, pa.float64())) for name, own in columns}))


def questions_parquet(told: Comparison) -> bytes:
    """Parquet bytes with what `Comparison.per_question` gives, one row per point and question."""
    import pyarrow as pa

    columns = told.per_question()
    words = ("method", "budget", "llms", "kind", "question")
    types = {name: pa.float64() for name in columns if name not in words} | {"point": pa.int32()}
    # Labels and LLMs repeat over all questions of a point; dictionaries keep them small.
    table = pa.table(
        {
            name: pa.array(values, types[name]) if name in types else pa.array(values, pa.string()).dictionary_encode()
            for name, values in columns.items()
        }
    )
    return tables.table_bytes(table)

"""`estimate.png`: estimated vote curves over the curve of the whole pool, byte for byte the same
every time.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from feval.report.palette import COLOURS
from feval.report.pictures.drawing import (
    DASHED,
    DOTTED,
    accuracy_axis,
    heading,
    log_axis,
    look,
    new_figure,
    on_axes,
    png,
    vertical_room,
    with_legend,
)
from feval.report.text import counted, interval_name

if TYPE_CHECKING:
    from feval.forecast import BudgetPlan, EstimatedCurve, Forecast

_INK = "#222222"
_SIZE = (6.8, 0.74 * 6.8)
_POINTS = 12
_FEW = 3  # estimates whose bands can be told apart
_WHISKERS = 1.025


def forecast_png(forecast: Forecast, *, dpi: int = 200) -> bytes:
    """Draw one estimate or more over votes M and return the PNG's bytes.

    The pool's plurality is a thick black line, its majority of right calls a dashed one. Each
    estimate has a colour, and its interval as a band or, if there are many, a whisker at its last
    point. The two-call bounds are two lines within the band of their region. Points right of the
    dotted line at M = G are extrapolated.
    """
    return png(lambda: _figure(forecast), dpi)


def plot_forecast(forecast: Forecast, axes: Axes | None = None) -> Axes:
    """The same picture on a caller's axes, or on a new figure of pyplot's."""
    return on_axes(axes, _SIZE, partial(_draw_on, forecast=forecast))


def plot_budget(plan: BudgetPlan, axes: Axes | None = None) -> Axes:
    """Draw accuracy over cost per question of the votes that a budget could buy; the vote to buy is
    a filled marker.
    """
    return on_axes(axes, _SIZE, partial(_draw_votes, plan=plan))


def _draw_votes(axes: Axes, plan: BudgetPlan) -> dict[str, Any]:
    colour, options = COLOURS[0], plan.options
    cost = [option.cost_per_question for option in options]
    plurality = [100 * option.plurality for option in options]
    low, high = (
        [100 * getattr(option, f"plurality_{end}") for option in options] for end in ("low", "high")
    )
    band = axes.fill_between(cost, low, high, color=colour, alpha=0.14, linewidth=0)
    [line] = axes.plot(
        cost, plurality, color=colour, marker="o", markerfacecolor="white", markersize=4
    )
    [bound] = axes.plot(
        cost, [_number(option.majority_low) for option in options], color=_INK, linestyle=DASHED
    )
    bought = next(option for option in options if option.votes == plan.purchase.votes)
    [chosen] = axes.plot(
        [bought.cost_per_question],
        [100 * bought.plurality],
        "o",
        color=colour,
        markersize=8,
        zorder=5,
    )
    log_axis(axes, min(cost) / 1.1, max(cost) * 1.1, usd=plan.budget.unit == "usd")
    bottom = min(
        *low, *(100 * option.majority_low for option in options if option.majority_low is not None)
    )
    room = vertical_room(bottom, max(high))
    axes.set_ylim(max(bottom - room, -1.0), min(max(high) + room, 101.0))
    accuracy_axis(axes)
    unit = plan.budget.unit.replace("usd", "USD")
    axes.set_xlabel(f"mean {unit} per question (log scale)")
    pilot = (
        f"pilot: {counted(plan.pilot_questions, 'question')}, {counted(plan.pilot_calls, 'call')}"
        " each"
    )
    heading(
        axes,
        f"What {plan.budget.amount:g} {unit} buy on {plan.dataset}, {plan.llm}",
        (
            f"for {counted(plan.questions, 'question')}; {pilot}",
            f"to buy: {counted(bought.votes, 'vote')}",
        ),
    )
    interval = interval_name(plan.confidence)
    return {
        "plurality of M calls": line,
        interval: band,
        "to buy": chosen,
        "lower bound of a majority": bound,
    }


def _figure(forecast: Forecast) -> Figure:
    figure = new_figure(*_SIZE)
    with_legend(figure, partial(_draw_on, forecast=forecast))
    return figure


def _draw_on(axes: Axes, forecast: Forecast) -> dict[str, Any]:
    handles: dict[str, Any] = {}
    few = len(forecast.estimates) <= _FEW
    for position, curve in enumerate(forecast.estimates):
        if any(point.low is not None for point in curve.points):
            handles[curve.method] = _draw(axes, curve, position, few=few)
    handles |= _draw_pool(axes, forecast)
    axes.axvline(forecast.g, color="#666666", linestyle=DOTTED, linewidth=1.1, zorder=1)
    _frame(axes, forecast)
    _label(axes, forecast)
    return handles


def _draw(axes: Axes, curve: EstimatedCurve, position: int, *, few: bool) -> Any:
    # the pool is black
    colour, marker = look(position if position < len(COLOURS) - 1 else position + 1)
    m = [point.m for point in curve.points]
    low, high = (
        [_number(end) for end in ends]
        for ends in zip(*((p.low, p.high) for p in curve.points), strict=True)
    )
    bounds = curve.method == "two-call"
    if len(m) == 1 and bounds:  # a band at a single M is invisible
        axes.vlines(m, low, high, color=colour, linewidth=6, alpha=0.35, zorder=1.5)
    elif len(m) > 1 and (few or bounds):
        axes.fill_between(m, low, high, color=colour, alpha=0.14, linewidth=0, zorder=1.5)
    else:  # too many bands: one whisker per estimate, right of its last point
        known = [place for place, end in enumerate(low) if not math.isnan(end)]
        for last in known[-1:]:
            at = m[last] * _WHISKERS ** (1 + (position if last == len(m) - 1 else 0))
            axes.vlines(at, low[last], high[last], color=colour, linewidth=1.6, alpha=0.8, zorder=4)
    if bounds:
        lower, upper = (
            [_number(p.bound_low) for p in curve.points],
            [_number(p.bound_high) for p in curve.points],
        )
        for end in (lower, upper):
            axes.plot(
                m, end, color=colour, linewidth=1.1, marker="_" if len(m) == 1 else None, zorder=3
            )
        return Patch(facecolor=colour, alpha=0.35, edgecolor=colour, linewidth=1.1)
    values = [_number(point.accuracy) for point in curve.points]
    every = max(1, math.ceil(len(m) / _POINTS))
    offset = position % every
    [line] = axes.plot(
        m,
        values,
        color=colour,
        marker=marker,
        markersize=3.6,
        markevery=(offset, every),
        linewidth=1.5,
        zorder=4,
    )
    return line


def _draw_pool(axes: Axes, forecast: Forecast) -> dict[str, Any]:
    pool, handles = forecast.pool, {}
    kinds = {estimate.of for estimate in forecast.estimates}
    for kind, values, style in (
        ("plurality", pool.plurality, "-"),
        ("majority", pool.majority, DASHED),
    ):
        if (kind in kinds or kind == "plurality") and any(value is not None for value in values):
            [line] = axes.plot(
                forecast.m,
                [_number(v) for v in values],
                color=_INK,
                linestyle=style,
                linewidth=2.2,
                zorder=5,
            )
            if sum(value is not None for value in values) == 1:
                line.set_marker("o")
            handles["whole pool" if kind == "plurality" else "whole pool, majority"] = line
    return handles


def _number(value: float | None) -> float:
    return math.nan if value is None else 100 * value


def _frame(axes: Axes, forecast: Forecast) -> None:
    low, high = forecast.m[0], forecast.m[-1]
    margin = 1.06 if high > low else 1.6
    beyond = margin * _WHISKERS ** len(forecast.estimates)
    log_axis(axes, low / margin, high * beyond, whole=True)
    axes.set_xlabel("votes M (log scale)")
    bottom, top = _vertical(forecast)
    axes.set_ylim(bottom, top)
    accuracy_axis(axes, bins=8)
    if not low <= forecast.g <= high:
        return
    axes.annotate(
        f" M = G = {forecast.g}",
        (forecast.g, bottom),
        xytext=(1, 3),
        textcoords="offset points",
        fontsize=7.5,
        color="#444444",
    )


def _vertical(forecast: Forecast) -> tuple[float, float]:
    values = [v for v in (*forecast.pool.plurality, *forecast.pool.majority) if v is not None]
    for curve in forecast.estimates:
        for point in curve.points:
            values += [
                v
                for v in (point.accuracy, point.bound_low, point.bound_high, point.low, point.high)
                if v is not None
            ]
    if not values:
        return 0.0, 103.0
    low, high = 100 * min(values), 100 * max(values)
    room = vertical_room(low, high)
    return max(low - room, -3.0), min(high + room, 103.0)


def _extrapolated(forecast: Forecast) -> str:
    if forecast.m[-1] <= forecast.g:
        return ""
    if forecast.m[0] > forecast.g:
        return f"; all M are above G = {forecast.g}, so everything is extrapolated"
    return "; extrapolated right of the dotted line"


def _label(axes: Axes, forecast: Forecast) -> None:
    title = f"Accuracy of M votes on {forecast.dataset}, {forecast.llm}"
    evidence = f"{counted(forecast.g, 'call')} on each of {counted(forecast.questions, 'question')}"
    drawing = f"seed {forecast.seed}, replicate {forecast.replicate}"
    lines = (
        f"from {evidence}; {drawing}; intervals: {100 * forecast.confidence:g} %",
        f"pool: exact over all subsets of {forecast.pool.size} calls{_extrapolated(forecast)}",
    )
    heading(axes, title, lines, longest=115)

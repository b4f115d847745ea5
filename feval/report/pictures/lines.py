"""Pictures on one axes: accuracy over cost or votes, and questions sorted by a share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from feval.evaluation.cautions import mixed_counters
from feval.report.palette import COLOURS, DASHES, places
from feval.report.pictures.drawing import (
    DASHED,
    DOTTED,
    GREY,
    HALO,
    INK,
    Entries,
    Picture,
    accuracy_axis,
    band,
    band_ends,
    handle,
    heading,
    legend_label,
    log_axis,
    look,
    percents,
    picture,
    shade,
    shares,
)
from feval.report.tables.results import subtitles
from feval.report.tables.tables import billing_note, cost_mark, cost_words, timing_notes
from feval.report.text import counted, counted_questions, interval_name, shortened

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.evaluation.curves import Curve, CurvePoint
    from feval.evaluation.evaluation import Evaluation
    from feval.forecast import BudgetPlan, EstimatedCurve, Forecast
    from feval.methods.protocol import Floats

_BEYOND = 1e6  # factor to the far right of every axis, so that the baseline runs to the edge
_ROUND_COUNTS = frozenset({1, 5, 10, 20, 40, 80, 160, 320, 640})
_FEW_POINTS = 6
_MOST_BANDS = 4  # of more lines, bands would hide each other: they are left out
_CEILINGS: tuple[Any, ...] = (DASHED, DOTTED, (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
_AXES = (
    ("usd_per_question", "mean USD per question (log scale)"),
    ("tokens_per_question", "mean tokens per question, prompt + output (log scale); USD not known"),
)


_DRAWN: WeakKeyDictionary[Axes, tuple[list[Curve], set[Any]]] = WeakKeyDictionary()
"""Axes -> the curves on them, and what was drawn for these."""


def plot_curve(curve: Curve, axes: Axes | None = None) -> Axes:
    """Draw a curve on a caller's axes, or on a new figure of pyplot's; curves drawn there earlier
    are drawn anew beside it.
    """
    earlier, artists = ([], set()) if axes is None else _DRAWN.get(axes, ([], set()))
    for artist in artists:
        artist.remove()
    others = set() if axes is None else _artists(axes)
    axes = curves([*earlier, curve]).plot(axes)
    _DRAWN[axes] = [*earlier, curve], _artists(axes) - others
    return axes


def _artists(axes: Axes) -> set[Any]:
    legends = [*axes.figure.legends, axes.get_legend()]
    return {*axes.collections, *axes.lines, *axes.texts, *legends} - {None}


def along(shown: Sequence[Curve]) -> tuple[str, str]:
    """Return field and label of the curves' own cost, else of the first cost that is positive at
    every point, as a log axis needs.
    """
    points = [point for curve in shown for point in curve.points]
    first = shown[0]
    own: list[tuple[str, str]] = []
    if first.cost is not None and {curve.cost for curve in shown} == {first.cost}:
        own = [("cost", f"{cost_words(first.cost, first.timing)[0]} (log scale)")]
    name = "CoTs per question, n" if first.field == "n" else first.field
    for field, label in (*own, *_AXES):
        if all(place(point, field) > 0 for point in points):
            return field, label
    return "n", f"{name} (log scale); cost not known"


def place(point: CurvePoint, field: str) -> float:
    """Return where a point stands on the axis of a field."""
    return float(getattr(point, field) or 0.0)


def frame_curves(
    axes: Axes, shown: Sequence[Curve], axis: tuple[str, str], ceilings: Sequence[float] = ()
) -> None:
    """Set both axes of curves, with room for a name right of the last marker."""
    field, label = axis
    points = [point for curve in shown for point in curve.points]
    values = [place(point, field) for point in points]
    log_axis(axes, values, label, right=2, usd=label.startswith("mean USD"))
    accuracy_axis(axes, [*ceilings, *(end for point in points for end in band_ends(point))])


@picture()
def curves(axes: Axes, shown: Sequence[Curve]) -> Entries:
    """Return cost against accuracy of one method on one dataset, one line per LLM.

    Each line has its confidence band; the single CoT (n = 1) is a hollow marker with a dotted
    baseline to its right; pass@n, the ceiling of every method that picks among n CoTs, is dashed.
    If an LLM has no price, the axis shows tokens instead of USD.
    """
    first, axis = shown[0], along(shown)
    several = len({(curve.method, curve.dataset) for curve in shown}) > 1
    entries: Entries = {}
    for position, curve in enumerate(shown):
        name = f"{curve.method}, {curve.llm}" if several else curve.llm
        entries[legend_label(name, entries)] = _draw_curve(axes, curve, axis[0], position)
    points = [point for curve in shown for point in curve.points]
    ceilings = [share for share in shares(points, "pass_at_n") if share == share]
    frame_curves(axes, shown, axis, ceilings)
    whose = f", {first.llm}" if len(shown) == 1 else ""
    methods, datasets = (
        ", ".join(dict.fromkeys(getattr(curve, name) for curve in shown))
        for name in ("method", "dataset")
    )
    heading(axes, f"{methods} on {datasets}{whose}", subtitles(first))
    if first.confidence is not None:
        entries[f"{100 * first.confidence:g} % band"] = shade()
    if ceilings:
        entries["pass@n (ceiling)"] = handle(color=GREY, linestyle=DASHED, linewidth=1.2)
    if first.field == "n" and any(point.n == 1 for point in points):
        entries["single CoT"] = handle(
            color=GREY, linestyle=DOTTED, marker="o", markerfacecolor="white", markersize=5
        )
    return entries


def _draw_curve(axes: Axes, curve: Curve, field: str, position: int) -> Any:
    points, style = curve.points, look(position)
    colour, last = style["color"], len(points) - 1
    x = [place(point, field) for point in points]
    y = shares(points)
    band(axes, x, map(band_ends, points), colour)
    axes.plot(
        x,
        shares(points, "pass_at_n"),
        color=colour,
        linestyle=DASHED,
        linewidth=1.2,
        marker=None if last else "_",
        markersize=11,
        zorder=3,
    )
    # all of a few points have a marker, else the ends and round numbers of CoTs
    marked = [
        i
        for i, point in enumerate(points)
        if last < _FEW_POINTS or i in (0, last) or point.n in _ROUND_COUNTS
    ]
    [line] = axes.plot(x, y, linewidth=1.9, markersize=5, markevery=marked, zorder=4, **style)
    for i in marked:
        if curve.field == "n" and points[i].n == 1:
            baseline = {"linestyle": DOTTED, "linewidth": 1.2, "markerfacecolor": "white"}
            ends = [x[i], _BEYOND * x[i]]
            axes.plot(ends, [y[i]] * 2, markersize=5, markevery=[0], zorder=5, **style | baseline)
        name = f"{curve.field} = {points[i].n}" if i in (0, last) else str(points[i].n)
        _name_marker(axes, (x[i], y[i]), name, colour, dearest=x[i] == max(x))
    return line


def _name_marker(
    axes: Axes, at: tuple[float, float], name: str, colour: str, *, dearest: bool
) -> None:
    """Write a name below its marker, or above to the right of the last one, clear of the line."""
    long = "=" in name and len(name) > 8  # a centred one would run into the tick labels
    axes.annotate(
        name,
        at,
        xytext=(5, 2) if dearest else (-3 if long else 0, -6),
        textcoords="offset points",
        ha="left" if long or dearest else "center",
        va="bottom" if dearest else "top",
        fontsize=7.5,
        color=colour,
        zorder=6,
        path_effects=[HALO],
    )


@picture(height=0.62 * 6.4)
def comparison(axes: Axes, shown: Comparison) -> Entries:
    """Return a comparison of one curve or more, cost against accuracy.

    One line per method, of four and fewer with its confidence band; a hollow circle for a single
    call of each LLM; the Pareto frontier as steps; the pass@n ceiling of each LLM in grey.
    """
    entries: Entries = {}
    cost, bands = shown.plan.cost, len(shown.curves) <= _MOST_BANDS
    ceilings: Entries = {}
    for position, curve in enumerate(shown.ceilings):
        how = "" if shown.kinds == ("exact",) else " [exact]"
        name = legend_label(f"pass@n of {curve.label.rpartition('/')[2]}{how}", ceilings)
        x, points = _placed(curve.points, cost)
        [ceilings[name]] = axes.plot(
            x,
            shares(points),
            color=GREY,
            linewidth=1.2,
            linestyle=_CEILINGS[position % len(_CEILINGS)],
            marker="_" if len(x) == 1 else None,
            markersize=10,
            zorder=3,
        )
    for position, curve in enumerate(shown.curves):
        style = look(position) | {"markersize": 5, "markeredgecolor": "white"}
        x, points = _placed(curve.points, cost)
        if bands:
            band(axes, x, map(band_ends, points), style["color"])
        [entries[legend_label(curve.label, entries)]] = axes.plot(
            x,
            shares(points),
            linewidth=1.8,
            linestyle=(0, pattern) if (pattern := DASHES[places(position)[2]]) else "solid",
            markeredgewidth=0.6,
            zorder=5,
            **style,
        )
    entries |= {legend_label(name, entries): line for name, line in ceilings.items()}
    _frame_comparison(axes, shown, bands=bands)
    if shown.baselines:
        entries["single call"] = _draw_baselines(axes, shown)
    corners = [(point.cost, 100 * point.accuracy) for point in shown.frontier if point.cost > 0]
    if corners:
        corners.append((axes.get_xlim()[1], corners[-1][1]))
        steps: Entries = {"color": INK, "linewidth": 0.9, "alpha": 0.75}
        axes.plot(*zip(*corners, strict=True), drawstyle="steps-post", zorder=4, **steps)
        entries["Pareto frontier"] = handle(**steps)
    if bands:
        entries[interval_name(shown.plan.confidence)] = shade()
    return entries


def _placed(points: Iterable[Evaluation], cost: str) -> tuple[list[float], list[Evaluation]]:
    """Costs and points, without those that a log axis cannot show."""
    costs = [(point.mean_cost(cost) or 0.0, point) for point in points]
    return [x for x, _ in costs if x > 0], [point for x, point in costs if x > 0]


def _frame_comparison(axes: Axes, shown: Comparison, *, bands: bool) -> None:
    plan, first = shown.plan, shown.curves[0].points[0]
    drawn = [point for curve in (*shown.curves, *shown.ceilings) for point in curve.points]
    x, points = _placed([*drawn, *shown.baselines], plan.cost)
    label = cost_words(plan.cost, shown.timing)[0]
    label += f"{cost_mark(label, shown.counters)} (log scale)"
    if points:
        log_axis(axes, x, label, usd=plan.cost == "usd")
        ends = [band_ends(point) if bands else (100 * point.accuracy,) for point in points]
        accuracy_axis(axes, (end for each in ends for end in each))
    else:
        axes.set(xlabel=label, ylabel="accuracy")
    own = [point for curve in shown.curves for point in curve.points]
    kinds = dict.fromkeys(point.kind for point in own)
    seeded = f" ({plan.replicates:,} draws, seed {plan.seed})" if "seeded" in kinds else ""
    questions = counted_questions(first.questions, shown.left_out)
    lines = (
        f"{questions}; {' and '.join(kinds)}{seeded}; paired on questions and draws",
        billing_note(first.billing, first.prices, own, "; ".join(shown.counters)),
        *mixed_counters(shown.counters),
        *timing_notes(shown.timing),
    )
    heading(axes, f"Methods compared on {first.dataset}", lines)


def _draw_baselines(axes: Axes, shown: Comparison) -> Any:
    """Draw a hollow circle per LLM, and its name where it hides least."""
    root: Any = axes.get_figure(root=True)
    root.draw_without_rendering()  # positions depend on the layout
    pixels = root.dpi / 72
    box = axes.get_window_extent().get_points() / pixels
    crowd = _crowd(axes, pixels)
    hollow: Entries = {"color": INK, "linestyle": "", "marker": "o", "markersize": 6.5}
    hollow |= {"markerfacecolor": "none", "markeredgewidth": 1.3}
    for x, point in zip(*_placed(shown.baselines, shown.plan.cost), strict=True):
        y = 100 * point.accuracy
        axes.plot([x], [y], zorder=7, **hollow)
        name = shortened(", ".join(point.llms).rpartition("/")[2], 26)
        origin = axes.transData.transform((x, y)) / pixels
        offset, crowd = _quiet_place(origin, box, 4.2 * len(name), crowd)
        axes.annotate(
            name,
            (x, y),
            xytext=offset,
            textcoords="offset points",
            va="center",
            fontsize=7,
            color=INK,
            zorder=8,
            path_effects=[HALO],
        )
    return handle(**hollow)


def _crowd(axes: Axes, pixels: float) -> Floats:
    """[K, 2] positions (in points) of lines and markers, which names should avoid."""
    places = [np.zeros((0, 2))]
    for line in axes.lines:
        if len(corners := axes.transData.transform(line.get_xydata()) / pixels):
            shares = np.linspace(0, 1, 25)[:, None, None]
            places.append((corners[:-1] * (1 - shares) + corners[1:] * shares).reshape(-1, 2))
            # a marker weighs more than a piece of line
            places.append(np.repeat(corners, 12, axis=0))
    return np.concatenate(places)


def _quiet_place(
    origin: Floats, box: Floats, length: float, crowd: Floats
) -> tuple[tuple[float, float], Floats]:
    """Offset of a name's left end from its point (in points) where it hides least, and the crowd
    including it.
    """

    def hidden(offset: tuple[float, float]) -> float:
        low = origin + offset - (2, 5)
        high = origin + offset + (length, 5)
        outside = bool((low < box[0]).any() or (high > box[1]).any())
        return 1e6 * outside + float(((crowd > low) & (crowd < high)).all(axis=1).sum())

    ups = (-11, 11, -20, 20, -29, 29)
    offsets = [(across, up) for up in ups for across in (-3, -length + 3, -length / 2)]
    best = min([*offsets, (8, 0), (-length - 7, 0)], key=hidden)
    along = np.stack(np.meshgrid(np.linspace(0, length, 40), (-5, 0, 5)), axis=-1).reshape(-1, 2)
    return best, np.concatenate([crowd, np.repeat(along + origin + best, 5, axis=0)])


_FEW_ESTIMATES = 3  # whose bands can be told apart
_MOST_MARKERS = 12
_WHISKERS = 1.025


@picture(6.8, 4.5)
def forecast(axes: Axes, shown: Forecast) -> Entries:
    """Return one estimate or more over votes M.

    The pool's plurality is a thick black line, its majority of right calls a dashed one. Each
    estimate has a colour, and its interval as a band or, if there are many, a whisker at its last
    point. The two-call bounds are two lines within the band of their region. Points right of the
    dotted line at M = G are extrapolated.
    """
    entries: Entries = {}
    few = len(shown.estimates) <= _FEW_ESTIMATES
    for position, curve in enumerate(shown.estimates):
        if any(point.low is not None for point in curve.points):
            entries[curve.method] = _draw_estimate(axes, curve, position, few=few)
    pool, kinds = shown.pool, {"plurality", *(estimate.of for estimate in shown.estimates)}
    for kind, values, name, style in (
        ("plurality", pool.plurality, "whole pool", "-"),
        ("majority", pool.majority, "whole pool, majority", DASHED),
    ):
        some = sum(value is not None for value in values)
        if kind in kinds and some:
            [entries[name]] = axes.plot(
                shown.m,
                percents(values),
                color=INK,
                linestyle=style,
                linewidth=2.2,
                marker="o" if some == 1 else None,
                zorder=5,
            )
    axes.axvline(shown.g, color=GREY, linestyle=DOTTED, linewidth=1.1, zorder=1)
    low, high = shown.m[0], shown.m[-1]
    log_axis(
        axes, [low, high * _WHISKERS ** len(shown.estimates)], "votes M (log scale)", whole=True
    )
    points = [point for curve in shown.estimates for point in curve.points]
    ends = [(p.accuracy, p.bound_low, p.bound_high, p.low, p.high) for p in points]
    every = (pool.plurality, pool.majority, *ends)
    accuracy_axis(axes, percents(share for each in every for share in each), bins=8)
    if low <= shown.g <= high:
        axes.annotate(
            f" M = G = {shown.g}",
            (shown.g, axes.get_ylim()[0]),
            xytext=(1, 3),
            textcoords="offset points",
            fontsize=7.5,
            color="#444444",
            annotation_clip=False,
        )
    extrapolated = "; extrapolated right of the dotted line" if high > shown.g else ""
    if low > shown.g:
        extrapolated = f"; all M are above G = {shown.g}, so everything is extrapolated"
    evidence = f"{counted(shown.g, 'call')} on each of {counted(shown.questions, 'question')}"
    drawing = f"seed {shown.seed}, replicate {shown.replicate}"
    lines = (
        f"from {evidence}; {drawing}; intervals: {100 * shown.confidence:g} %",
        f"pool: exact over all subsets of {pool.size} calls{extrapolated}",
    )
    title = f"Accuracy of M votes on {shown.dataset}, {shown.llm}"
    heading(axes, title, lines, longest=115)
    return entries


def _draw_estimate(axes: Axes, curve: EstimatedCurve, position: int, *, few: bool) -> Any:
    # the pool is black
    style = look(position if position < len(COLOURS) - 1 else position + 1)
    colour = style["color"]
    m = [point.m for point in curve.points]
    ends = [*zip(shares(curve.points, "low"), shares(curve.points, "high"), strict=True)]
    bounds = curve.method == "two-call"
    if bounds or (few and len(m) > 1):
        band(axes, m, ends, colour, 6)
    else:  # too many bands: one whisker per estimate, right of its last point
        last = max(i for i, (low, _) in enumerate(ends) if not math.isnan(low))
        at = m[last] * _WHISKERS ** (1 + (position if last == len(m) - 1 else 0))
        axes.vlines(at, *ends[last], color=colour, linewidth=1.6, alpha=0.8, zorder=4)
    if bounds:
        for name in ("bound_low", "bound_high"):
            axes.plot(
                m,
                shares(curve.points, name),
                color=colour,
                linewidth=1.1,
                marker="_" if len(m) == 1 else None,
                zorder=3,
            )
        return Patch(facecolor=colour, alpha=0.35, edgecolor=colour, linewidth=1.1)
    every = max(1, math.ceil(len(m) / _MOST_MARKERS))
    [line] = axes.plot(
        m,
        shares(curve.points),
        markersize=3.6,
        markevery=(position % every, every),
        linewidth=1.5,
        zorder=4,
        **style,
    )
    return line


@picture(6.8, 4.5)
def budget(axes: Axes, shown: BudgetPlan) -> Entries:
    """Return accuracy over cost per question of the votes that a budget could buy; the vote to buy
    is a filled marker.
    """
    style, options = look(0), shown.options
    cost = [option.cost_per_question for option in options]
    plurality, lower = shares(options, "plurality"), shares(options, "majority_low")
    low, high = shares(options, "plurality_low"), shares(options, "plurality_high")
    region = band(axes, cost, zip(low, high, strict=True), style["color"])
    [line] = axes.plot(cost, plurality, markerfacecolor="white", markersize=4, **style)
    [bound] = axes.plot(cost, lower, color=INK, linestyle=DASHED)
    bought = next(i for i, each in enumerate(options) if each.votes == shown.purchase.votes)
    [chosen] = axes.plot(
        cost[bought], plurality[bought], linestyle="", markersize=8, zorder=5, **style
    )
    unit = shown.budget.unit.replace("usd", "USD")
    log_axis(axes, cost, f"mean {unit} per question (log scale)", usd=unit == "USD")
    accuracy_axis(axes, [*lower, *low, *high])
    calls = counted(shown.pilot_calls, "call")
    pilot = f"{counted(shown.pilot_questions, 'question')}, {calls} each"
    lines = (
        f"for {counted(shown.questions, 'question')}; pilot: {pilot}",
        f"to buy: {counted(shown.purchase.votes, 'vote')}",
    )
    title = f"What {shown.budget.amount:g} {unit} buy on {shown.dataset}, {shown.llm}"
    heading(axes, title, lines)
    return {
        "plurality of M calls": line,
        interval_name(shown.confidence): region,
        "to buy": chosen,
        "lower bound of a majority": bound,
    }


def questions(
    values: Mapping[str, Floats], *, title: str, lines: Sequence[str], label: str
) -> Picture:
    """Return shares over questions, sorted by them.

    Args:
        values: label -> [Q] shares between 0 and 1; NaN, where there is none, is left out.
        title: above the picture.
        lines: small ones below the title.
        label: of the vertical axis.
    """

    def draw(axes: Axes) -> Entries:
        entries: Entries = {}
        for position, (name, own) in enumerate(values.items()):
            colour = look(position)["color"]
            ranked = np.sort(100 * own[~np.isnan(own)])[::-1]
            [entries[legend_label(name, entries)]] = axes.plot(
                np.arange(1, len(ranked) + 1),
                ranked,
                color=colour,
                linewidth=1.8,
                drawstyle="steps-mid",
            )
            if len(ranked):
                axes.axhline(
                    float(ranked.mean()), color=colour, linestyle=DASHED, linewidth=1.0, alpha=0.7
                )
        axes.set_xlabel("questions, sorted; dashed: mean")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        accuracy_axis(axes, (0.0, 100.0))
        axes.set_ylabel(label)
        heading(axes, title, lines)
        return entries

    return Picture(draw)

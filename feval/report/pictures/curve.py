"""`curve.png` and `curve.svg`: cost against accuracy, byte for byte the same every time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from feval.report.pictures.drawing import (
    DASHED,
    DOTTED,
    accuracy_axis,
    band_ends,
    heading,
    legend_label,
    log_axis,
    look,
    new_figure,
    on_axes,
    png,
    shortened,
    svg,
    vertical_room,
    with_legend,
)
from feval.report.tables.cost_axes import cost_words
from feval.report.tables.tables import subtitles

if TYPE_CHECKING:
    from feval.evaluation.curves import Curve, CurvePoint

_BEYOND = 1e6  # factor to the far right of every axis, so that the baseline runs to the edge
_ROUND_COUNTS = frozenset({1, 5, 10, 20, 40, 80, 160, 320, 640})
_FEW_POINTS = 6
_SIZE, _PANELS_WIDTH = (6.4, 0.72 * 6.4), 9.6
_MOST_COLUMNS = 4
_LETTERS_PER_INCH = 15.6
_CROWDED_TICKS = 5


@dataclass(frozen=True, slots=True)
class _Axis:
    """A horizontal axis: a field of `CurvePoint` and its label."""

    field: str
    label: str

    def of(self, point: CurvePoint) -> float:
        return float(getattr(point, self.field) or 0.0)


_AXES = (
    _Axis("usd_per_question", "mean USD per question (log scale)"),
    _Axis(
        "tokens_per_question",
        "mean tokens per question, prompt + output (log scale); USD not known",
    ),
    _Axis("n", "{field} (log scale); cost not known"),
)


def curves_png(curves: Sequence[Curve], *, dpi: int = 200) -> bytes:
    """Draw cost against accuracy of one method on one dataset, one line per LLM, and return the
    PNG's bytes.

    Each line has its confidence band; the single CoT (n = 1) is a hollow marker with a dotted
    baseline to its right; pass@n, the ceiling of every method that picks among n CoTs, is dashed.
    If an LLM has no price, the axis shows tokens instead of USD.
    """
    return png(lambda: _figure(curves), dpi)


def curves_svg(curves: Sequence[Curve]) -> bytes:
    """The same picture as SVG."""
    return svg(lambda: _figure(curves))


def curve_panels_png(panels: Sequence[Sequence[Curve]]) -> bytes:
    """Draw cost against accuracy with a panel for the curves of each dataset, and return the PNG's
    bytes.

    An LLM has the same colour and marker in every panel, at its first point (hollow) and its last.
    Bands and ceilings are left out; `curves_png` has them.
    """
    return png(lambda: _panels(panels), 160)


def _panels(panels: Sequence[Sequence[Curve]]) -> Figure:
    columns = min(_MOST_COLUMNS, math.ceil(math.sqrt(len(panels))))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(_PANELS_WIDTH, 0.78 * _PANELS_WIDTH / columns * rows + 0.6)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    axis = _horizontal([curve for curves in panels for curve in curves])
    places = {
        llm: place
        for place, llm in enumerate(
            dict.fromkeys(curve.llm for curves in panels for curve in curves)
        )
    }
    for place, (axes, curves) in enumerate(zip(grid, panels, strict=False)):
        _draw_panel(axes, curves, axis, places)
        if place + columns < len(panels):  # a panel stands below it
            axes.set_xlabel("")
        if place % columns:
            axes.set_ylabel("")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    handles = [
        Line2D([], [], color=c, marker=m, markersize=5, linewidth=1.9)
        for c, m in map(look, places.values())
    ]
    labels = [legend_label(llm) for llm in places]
    fitting = int(_LETTERS_PER_INCH * _PANELS_WIDTH) // (9 + max(map(len, labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, min(columns, fitting)))
    return figure


def _draw_panel(
    axes: Axes, curves: Sequence[Curve], axis: _Axis, places: Mapping[str, int]
) -> None:
    for curve in curves:
        colour, marker = look(places[curve.llm])
        x, y = (
            [axis.of(point) for point in curve.points],
            [100 * point.accuracy for point in curve.points],
        )
        axes.plot(x, y, color=colour, linewidth=1.6, zorder=3)
        axes.plot(
            x[:1],
            y[:1],
            color=colour,
            marker=marker,
            markersize=4,
            markerfacecolor="white",
            zorder=4,
        )
        axes.plot(x[-1:], y[-1:], color=colour, marker=marker, markersize=4, zorder=5)
    points = [point for curve in curves for point in curve.points]
    _frame_horizontal(axes, axis, [axis.of(point) for point in points], curves[0].field)
    _frame_vertical(axes, [replace(point, pass_at_n=None) for point in points])
    ticks = [tick for tick in axes.get_xticks() if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    axes.set_xticks(ticks[:: 1 + len(ticks) // _CROWDED_TICKS])
    axes.tick_params(labelsize=7.5)
    axes.xaxis.label.set_fontsize(7.5)
    axes.set_title(shortened(curves[0].dataset, 32), loc="left", fontsize=9)


_DRAWN: WeakKeyDictionary[Axes, tuple[list[Curve], list[Artist]]] = WeakKeyDictionary()
"""Axes -> the curves on them, and what was drawn for these."""


def plot_curve(curve: Curve, axes: Axes | None = None) -> Axes:
    """Draw a curve on a caller's axes, or on a new figure of pyplot's; curves drawn there earlier
    are drawn anew beside it.
    """
    curves, artists = ([], []) if axes is None else _DRAWN.get(axes, ([], []))
    for artist in artists:
        artist.remove()
    others = set() if axes is None else set(axes.get_children())
    axes = on_axes(axes, _SIZE, partial(_draw_on, curves=[*curves, curve]))
    legends = [] if curves or others else axes.figure.legends
    drawn = [
        *legends,
        *(
            artist
            for artist in axes.get_children()
            if _is_data(axes, artist) and artist not in others
        ),
    ]
    _DRAWN[axes] = [*curves, curve], drawn
    return axes


def _is_data(axes: Axes, artist: Artist) -> bool:
    """Whether an artist is not a part that all axes have."""
    return artist in (*axes.collections, *axes.lines, *axes.texts, axes.get_legend())


def _figure(curves: Sequence[Curve]) -> Figure:
    figure = new_figure(*_SIZE)
    with_legend(figure, partial(_draw_on, curves=curves))
    return figure


def _draw_on(axes: Axes, curves: Sequence[Curve]) -> dict[str, Any]:
    points = [point for curve in curves for point in curve.points]
    axis = _horizontal(curves)
    for position, curve in enumerate(curves):
        _draw(axes, curve.points, axis, position, curve.field)
    _frame_horizontal(axes, axis, [axis.of(point) for point in points], curves[0].field)
    _frame_vertical(axes, points)
    _label(axes, curves)
    return _entries(curves)


def _horizontal(curves: Sequence[Curve]) -> _Axis:
    """Return the axis of the curves' own cost, else the first on which every point is positive, as
    a log axis needs.
    """
    points = [point for curve in curves for point in curve.points]
    costs = {curve.cost for curve in curves}
    if (
        len(costs) == 1
        and (own := costs.pop()) is not None
        and all((point.cost or 0) > 0 for point in points)
    ):
        return _Axis("cost", f"{cost_words(own, curves[0].timing)[0]} (log scale)")
    return next((axis for axis in _AXES if all(axis.of(point) > 0 for point in points)), _AXES[-1])


def _draw(axes: Axes, points: Sequence[CurvePoint], axis: _Axis, position: int, field: str) -> None:
    colour, marker = look(position)
    x = [axis.of(point) for point in points]
    low, high = zip(*map(band_ends, points), strict=True)
    ceiling = [math.nan if point.pass_at_n is None else 100 * point.pass_at_n for point in points]
    if len(points) > 1:
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0, zorder=2)
        axes.plot(x, ceiling, color=colour, linestyle=DASHED, linewidth=1.2, zorder=3)
    else:  # a band and a line need two points
        axes.vlines(x, low, high, color=colour, linewidth=2.5, alpha=0.35, zorder=2)
        axes.plot(x, ceiling, color=colour, marker="_", markersize=11, zorder=3)
    axes.plot(x, [100 * point.accuracy for point in points], color=colour, linewidth=1.9, zorder=4)
    for point in _landmarks(points):
        ends = point in (points[0], points[-1])
        name = f"{field} = {point.n}" if ends else str(point.n)
        single = field == "n" and point.n == 1
        _mark(
            axes,
            point,
            axis,
            colour,
            marker,
            name,
            single=single,
            last=point is max(points, key=axis.of),
        )


def _landmarks(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the points with a marker: all of a few, else the ends and round numbers of CoTs."""
    if len(points) <= _FEW_POINTS:
        return list(points)
    ends = {points[0].n, points[-1].n}
    return [point for point in points if point.n in ends or point.n in _ROUND_COUNTS]


def _mark(
    axes: Axes,
    point: CurvePoint,
    axis: _Axis,
    colour: str,
    marker: str,
    name: str,
    *,
    single: bool,
    last: bool,
) -> None:
    """Draw a marker and its name below it, or above to the right of the last one, clear of the
    line.
    """
    x, y = axis.of(point), 100 * point.accuracy
    if single:
        axes.plot([x, _BEYOND * x], [y, y], color=colour, linestyle=DOTTED, linewidth=1.2, zorder=3)
    long = "=" in name and len(name) > 8  # a centred one would run into the tick labels
    fill = "white" if single else colour
    axes.plot(
        [x],
        [y],
        marker=marker,
        markersize=5,
        color=colour,
        markerfacecolor=fill,
        markeredgewidth=1.3,
        zorder=5,
    )
    axes.annotate(
        name,
        (x, y),
        xytext=(5, 2) if last else (-3 if long else 0, -6),
        textcoords="offset points",
        ha="left" if long or last else "center",
        va="bottom" if last else "top",
        fontsize=7.5,
        color=colour,
        zorder=6,
        # readable across a baseline
        path_effects=[withStroke(linewidth=1.8, foreground="white", alpha=0.85)],
    )


def _frame_horizontal(axes: Axes, axis: _Axis, values: Sequence[float], field: str) -> None:
    low, high = min(values), max(values)
    margin = 1.6 if high < 1.2 * low else (high / low) ** 0.06
    low, high = low / margin, high * margin**2  # room for the name right of the last marker
    log_axis(axes, low, high, usd=axis.label.startswith("mean USD"))
    name = "CoTs per question, n" if field == "n" else field
    axes.set_xlabel(axis.label.format(field=name))


def _frame_vertical(axes: Axes, points: Sequence[CurvePoint]) -> None:
    low = min(band_ends(point)[0] for point in points)
    high = max(max(band_ends(point)[1], 100 * (point.pass_at_n or 0.0)) for point in points)
    room = vertical_room(low, high)
    axes.set_ylim(
        max(low - room, -0.04 * high), min(high + room, 100 + 0.05 * (high - low + 2 * room))
    )
    accuracy_axis(axes)


def _label(axes: Axes, curves: Sequence[Curve]) -> None:
    first = curves[0]
    whose = f", {first.llm}" if len(curves) == 1 else ""
    methods, datasets = (
        {getattr(curve, name): None for curve in curves} for name in ("method", "dataset")
    )
    heading(axes, f"{', '.join(methods)} on {', '.join(datasets)}{whose}", subtitles(first))


def _entries(curves: Sequence[Curve]) -> dict[str, Any]:
    """Label -> legend handle of the LLMs, and of the kinds of lines, bands and markers."""
    entries: dict[str, Any] = {}
    several = len({(curve.method, curve.dataset) for curve in curves}) > 1
    for position, curve in enumerate(curves):
        colour, marker = look(position)
        handle = Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=1.9)
        entries[legend_label(f"{curve.method}, {curve.llm}" if several else curve.llm, entries)] = (
            handle
        )
    return entries | _meanings(curves)


def _meanings(curves: Sequence[Curve]) -> dict[str, Any]:
    """Return label -> legend handle for the kinds of lines, bands and markers."""
    grey, confidence = "#666666", curves[0].confidence
    band = Patch(facecolor=grey, alpha=0.25, linewidth=0)
    ceiling = Line2D([], [], color=grey, linestyle=DASHED, linewidth=1.2)
    single = Line2D(
        [], [], color=grey, linestyle=DOTTED, marker="o", markerfacecolor="white", markersize=5
    )
    meanings: dict[str, Any] = {} if confidence is None else {f"{100 * confidence:g} % band": band}
    if any(point.pass_at_n is not None for curve in curves for point in curve.points):
        meanings["pass@n (ceiling)"] = ceiling
    if any(curve.field == "n" and point.n == 1 for curve in curves for point in curve.points):
        meanings["single CoT"] = single
    return meanings

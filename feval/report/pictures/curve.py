"""`curve.png` and `curve.svg`: cost against accuracy, drawn the same way, byte for byte, every time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from feval.report.pictures.drawing import DASHED, DOTTED, heading, legend_columns, log_ticks, look, png, shortened, svg
from feval.report.tables.tables import subtitles
from feval.report.text import plain_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from feval.evaluation.curves import Curve, CurvePoint

__all__ = ["curve_panels_png", "curves_png", "curves_svg"]

_BEYOND = 1e6  # far right of every axis: the baseline runs to the edge
_ROUND_COUNTS = frozenset({1, 5, 10, 20, 40, 80, 160, 320, 640})
_FEW_POINTS = 6
_MOST_COLUMNS = 4
_LETTERS_PER_INCH = 15.6
_CROWDED_TICKS = 5


@dataclass(frozen=True, slots=True)
class _Axis:
    """What the horizontal axis shows: a field of `CurvePoint` and its label."""

    field: str
    label: str

    def of(self, point: CurvePoint) -> float:
        return float(getattr(point, self.field) or 0.0)


_AXES = (
    _Axis("usd_per_question", "mean USD per question (log scale)"),
    _Axis("tokens_per_question", "mean tokens per question, prompt + output (log scale); USD not known"),
    _Axis("n", "{field} (log scale); cost not known"),
)


def curves_png(curves: Sequence[Curve], *, width: float = 6.4, dpi: int = 200) -> bytes:
    """Draw cost against accuracy, one line per LLM, and return the PNG's bytes.

    Each line has its confidence band; the single CoT (n = 1) is a hollow marker with a dotted baseline to its right; pass@n, the
    ceiling of everything that picks among n CoTs, is dashed. Where an LLM has no price, tokens take the place of USD, and
    the axis says so. The bytes depend on the numbers and on matplotlib's version only: neither on a style file nor on the
    date.

    Args:
        curves: one at least, of one method on one dataset, each with a point at least.
        width: of the picture, inches.
        dpi: dots per inch.
    """
    return png(lambda: _figure(curves, width), dpi)


def curves_svg(curves: Sequence[Curve], *, width: float = 6.4) -> bytes:
    """The same picture as SVG.

    Args:
        curves: as for `curves_png`.
        width: of the picture, inches.
    """
    return svg(lambda: _figure(curves, width))


def curve_panels_png(panels: Sequence[Sequence[Curve]], *, width: float = 9.6, dpi: int = 160) -> bytes:
    """Draw cost against accuracy with a panel for each dataset, and return the PNG's bytes.

    An LLM has the same colour and marker in every panel; the marker stands at the first point of its line (hollow) and the last.
    Bands and ceilings are left out: one dataset at a time has room for them, see `curves_png`.

    Args:
        panels: the curves of each dataset, one at least, each with a point at least.
        width: of the picture, inches.
        dpi: dots per inch.
    """
    return png(lambda: _panels(panels, width), dpi)


def _panels(panels: Sequence[Sequence[Curve]], width: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = min(_MOST_COLUMNS, math.ceil(math.sqrt(len(panels))))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(width, 0.78 * width / columns * rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    axis = _horizontal([point for curves in panels for curve in curves for point in curve.points])
    places = {llm: place for place, llm in enumerate(dict.fromkeys(curve.llm for curves in panels for curve in curves))}
    for place, (axes, curves) in enumerate(zip(grid, panels, strict=False)):
        _draw_panel(axes, curves, axis, places)
        if place + columns < len(panels):  # a panel stands below it
            axes.set_xlabel("")
        if place % columns:
            axes.set_ylabel("")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    handles = [Line2D([], [], color=c, marker=m, markersize=5, linewidth=1.9) for c, m in map(look, places.values())]
    labels = [f" {name}" if name.startswith("_") else name for name in (shortened(llm, 40) for llm in places)]
    fitting = int(_LETTERS_PER_INCH * width) // (9 + max(map(len, labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, min(columns, fitting)))
    return figure


def _draw_panel(axes: Axes, curves: Sequence[Curve], axis: _Axis, places: Mapping[str, int]) -> None:
    for curve in curves:
        colour, marker = look(places[curve.llm])
        x, y = [axis.of(point) for point in curve.points], [100 * point.accuracy for point in curve.points]
        axes.plot(x, y, color=colour, linewidth=1.6, zorder=3)
        axes.plot(x[:1], y[:1], color=colour, marker=marker, markersize=4, markerfacecolor="white", zorder=4)
        axes.plot(x[-1:], y[-1:], color=colour, marker=marker, markersize=4, zorder=5)
    points = [point for curve in curves for point in curve.points]
    _frame_horizontal(axes, axis, [axis.of(point) for point in points], curves[0].field)
    _frame_vertical(axes, [replace(point, pass_at_n=None) for point in points])
    ticks = [tick for tick in axes.get_xticks() if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    axes.set_xticks(ticks[:: 1 + len(ticks) // _CROWDED_TICKS])
    axes.tick_params(labelsize=7.5)
    axes.xaxis.label.set_fontsize(7.5)
    axes.set_title(shortened(curves[0].dataset, 32), loc="left", fontsize=9)


def _figure(curves: Sequence[Curve], width: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.72 * width), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    points = [point for curve in curves for point in curve.points]
    axis = _horizontal(points)
    for position, curve in enumerate(curves):
        _draw(axes, curve.points, axis, position, curve.field)
    _frame_horizontal(axes, axis, [axis.of(point) for point in points], curves[0].field)
    _frame_vertical(axes, points)
    _label(axes, curves)
    _legend(figure, curves)
    return figure


def _horizontal(points: Sequence[CurvePoint]) -> _Axis:
    """Return the first axis on which every point is a positive number: a log axis has no place for others."""
    return next((axis for axis in _AXES if all(axis.of(point) > 0 for point in points)), _AXES[-1])


def _draw(axes: Axes, points: Sequence[CurvePoint], axis: _Axis, position: int, field: str) -> None:
    colour, marker = look(position)
    x = [axis.of(point) for point in points]
    low, high = [_low(point) for point in points], [_high(point) for point in points]
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
        _mark(axes, point, axis, colour, marker, name, single=single, last=point is max(points, key=axis.of))


def _low(point: CurvePoint) -> float:
    """Lower end of the band in per cent; a point without an interval has a band of no width."""
    return 100 * (point.accuracy if point.accuracy_low is None else point.accuracy_low)


def _high(point: CurvePoint) -> float:
    return 100 * (point.accuracy if point.accuracy_high is None else point.accuracy_high)


def _landmarks(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the points that carry a marker: all of a few, else the ends and the round numbers of CoTs between them."""
    if len(points) <= _FEW_POINTS:
        return list(points)
    ends = {points[0].n, points[-1].n}
    return [point for point in points if point.n in ends or point.n in _ROUND_COUNTS]


def _mark(
    axes: Axes, point: CurvePoint, axis: _Axis, colour: str, marker: str, name: str, *, single: bool, last: bool
) -> None:
    """Draw a marker and its name: below it, or right above the last one, so that no line runs through it."""
    from matplotlib.patheffects import withStroke

    x, y = axis.of(point), 100 * point.accuracy
    if single:
        axes.plot([x, _BEYOND * x], [y, y], color=colour, linestyle=DOTTED, linewidth=1.2, zorder=3)
    long = "=" in name and len(name) > 8  # centred, it would run into the numbers of the axis
    fill = "white" if single else colour
    axes.plot([x], [y], marker=marker, markersize=5, color=colour, markerfacecolor=fill, markeredgewidth=1.3, zorder=5)
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
        path_effects=[withStroke(linewidth=1.8, foreground="white", alpha=0.85)],  # readable across a baseline
    )


def _frame_horizontal(axes: Axes, axis: _Axis, values: Sequence[float], field: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min(values), max(values)
    margin = 1.6 if high < 1.2 * low else (high / low) ** 0.06
    low, high = low / margin, high * margin**2  # the name of the last marker stands to its right
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    name = "CoTs per question, n" if field == "n" else field
    axes.set_xlabel(axis.label.format(field=name))


def _frame_vertical(axes: Axes, points: Sequence[CurvePoint]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low = min(_low(point) for point in points)
    high = max(max(_high(point), 100 * (point.pass_at_n or 0.0)) for point in points)
    # A flat curve is shown flat: eight points of accuracy at the least, or noise would fill the picture.
    room = max(0.06 * (high - low), (8 - (high - low)) / 2)
    axes.set_ylim(max(low - room, -0.04 * high), min(high + room, 100 + 0.05 * (high - low + 2 * room)))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %" if -1e-9 < value < 100 + 1e-9 else ""))
    axes.set_ylabel("accuracy")


def _label(axes: Axes, curves: Sequence[Curve]) -> None:
    first = curves[0]
    whose = f", {first.llm}" if len(curves) == 1 else ""
    heading(axes, f"{first.method} on {first.dataset}{whose}", subtitles(first))


def _legend(figure: Figure, curves: Sequence[Curve]) -> None:
    """Put the legend below the axes, where there is no data to hide."""
    from matplotlib.lines import Line2D

    handles: list[Any] = [
        Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=1.9)
        for colour, marker in map(look, range(len(curves)))
    ]
    # matplotlib leaves out labels that begin with an underscore.
    labels = [f" {name}" if name.startswith("_") else name for name in (shortened(curve.llm, 40) for curve in curves)]
    meanings = _meanings(curves)
    handles += meanings.values()
    labels += meanings
    figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels))


def _meanings(curves: Sequence[Curve]) -> dict[str, Any]:
    """Return label -> handle of what a line, band or marker means, whichever LLM's it is."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    grey, confidence = "#666666", curves[0].confidence
    band = Patch(facecolor=grey, alpha=0.25, linewidth=0)
    ceiling = Line2D([], [], color=grey, linestyle=DASHED, linewidth=1.2)
    single = Line2D([], [], color=grey, linestyle=DOTTED, marker="o", markerfacecolor="white", markersize=5)
    meanings: dict[str, Any] = {} if confidence is None else {f"{100 * confidence:g} % band": band}
    if any(point.pass_at_n is not None for curve in curves for point in curve.points):
        meanings["pass@n (ceiling)"] = ceiling
    if any(curve.field == "n" and point.n == 1 for curve in curves for point in curve.points):
        meanings["single CoT"] = single
    return meanings

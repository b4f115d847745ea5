"""Pictures of `feval.forecast.figures`: panels side by side with series of points, byte for byte
the same every time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from feval.report.palette import COLOURS
from feval.report.pictures.drawing import (
    DASHED,
    heading,
    legend_below,
    legend_label,
    log_axis,
    look,
    new_figure,
    png,
    svg,
)

if TYPE_CHECKING:
    from feval.forecast.figures import Figure, Panel, Series

_WIDTH, _SINGLE_WIDTH, _HEIGHT = 4.1, 6.8, 4.3
_GREY = "#B5B5B5"
_MOST_MARKERS = 25


def figure_png(figure: Figure, *, dpi: int = 200) -> bytes:
    """Draw the panels of a figure and return the PNG's bytes."""
    return png(lambda: _drawing(figure), dpi)


def figure_svg(figure: Figure) -> bytes:
    """The same picture as SVG."""
    return svg(lambda: _drawing(figure))


def _drawing(figure: Figure) -> Drawing:
    count = len(figure.panels)
    drawing = new_figure(_SINGLE_WIDTH if count == 1 else _WIDTH * count, _HEIGHT)
    panels: list[Axes] = drawing.subplots(1, count, squeeze=False)[0].tolist()
    looks = {label: place for place, label in enumerate(_labels(figure.panels))}
    handles: dict[str, Any] = {}
    for axes, panel in zip(panels, figure.panels, strict=True):
        for series in panel.series:
            handle = _draw(axes, series, looks.get(series.label, 0), _scales(panel))
            handles.setdefault(series.label, handle)
        _frame(axes, panel)
    whose = f", {figure.llms[0]}" if len(figure.llms) == 1 else ""
    heading(
        panels[0],
        f"{figure.title}: {figure.dataset}{whose}",
        figure.lines,
        longest=105 if count == 1 else 70 * count,
    )
    names: list[str] = []
    for label in handles:
        names.append(legend_label(label, names))
    drawing.legend(
        handles.values(), names, **legend_below(names) | ({"ncols": 3} if count > 1 else {})
    )
    return drawing


def _labels(panels: Sequence[Panel]) -> Iterable[str]:
    """The labels of all series but clouds, which are grey, in the order in which they come."""
    return dict.fromkeys(
        series.label for panel in panels for series in panel.series if series.look != "cloud"
    )


def _scales(panel: Panel) -> tuple[float, float]:
    return (100.0 if "x" in panel.percent else 1.0), (
        100.0 if panel.points or "y" in panel.percent else 1.0
    )


def _draw(axes: Axes, series: Series, position: int, scales: tuple[float, float]) -> Any:
    colour, marker = look(position)
    x, left, right = (
        [scales[0] * value for value in values] for values in (series.x, series.left, series.right)
    )
    y, low, high = (
        [scales[1] * value for value in values] for values in (series.y, series.low, series.high)
    )
    if series.look == "cloud":
        return axes.scatter(x, y, s=7, color=_GREY, linewidths=0, zorder=1.5)
    if series.look == "points":
        if low:
            axes.vlines(x, low, high, color=colour, linewidth=1.3, alpha=0.7, zorder=3)
        if left:
            axes.hlines(y, left, right, color=colour, linewidth=1.3, alpha=0.7, zorder=3)
        return axes.plot(
            x, y, color=colour, marker=marker, markersize=6, linestyle="none", zorder=4
        )[0]
    if low:
        axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0, zorder=1.5)
    dashed = series.look == "dashed"
    style: dict[str, Any] = (
        {"linestyle": DASHED, "linewidth": 1.3} if dashed else {"linewidth": 1.6}
    )
    if not dashed or len(x) <= _MOST_MARKERS:
        style |= {
            "marker": marker,
            "markersize": 4,
            "markevery": max(1, math.ceil(len(x) / _MOST_MARKERS)),
        }
    return axes.plot(x, y, color=colour, zorder=3, **style)[0]


def _frame(axes: Axes, panel: Panel) -> None:
    axes.set_xlabel(f"{panel.x_label} (log scale)" if panel.log else panel.x_label)
    axes.set_ylabel(f"{panel.y_label}, points" if panel.points else panel.y_label)
    known = [x for series in panel.series for x in series.x]
    if panel.log:
        log_axis(axes, min(known) / 1.1, max(known) * 1.1, whole=True)
    elif panel.ticks:
        axes.xaxis.set_major_locator(FixedLocator(list(panel.ticks)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: panel.ticks.get(x, "")))
        axes.margins(x=0.08)
    elif all(float(x).is_integer() for x in known):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    for axis, name in ((axes.xaxis, "x"), (axes.yaxis, "y")):
        if name in panel.percent:
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    low, high = axes.get_ylim()
    if low < 0.0 < high:
        axes.axhline(0.0, color=COLOURS[-1], linewidth=0.8, zorder=1)

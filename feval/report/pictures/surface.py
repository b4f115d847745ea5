"""`surface.png` and `surface.svg`: accuracy over width and depth as a heat map, byte for byte the
same every time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from feval.report.palette import COLOURS
from feval.report.pictures.drawing import heading, new_figure, png, svg
from feval.report.tables.surface import surface_notes
from feval.report.text import dollars, plain_number

if TYPE_CHECKING:
    from feval.evaluation.surface import Surface, SurfacePoint
    from feval.methods.arrays import Floats

_WIDTH = 7.2
_MAP = "cividis"  # made to look the same with and without colour blindness (Nuñez et al. 2018)
_FRONTIER = COLOURS[1]


def surface_png(surface: Surface, *, dpi: int = 200) -> bytes:
    """Draw accuracy over tokens per trace and traces, and return the PNG's bytes.

    White lines join points of equal cost, in USD where it is known, else in output tokens; dots are
    the Pareto frontier. Traces without a limit stand apart at the right.
    """
    return png(lambda: _figure(surface), dpi)


def surface_svg(surface: Surface) -> bytes:
    """The same picture as SVG."""
    return svg(lambda: _figure(surface))


def _figure(surface: Surface) -> Figure:
    figure = new_figure(_WIDTH, 0.72 * _WIDTH)
    widths, limits = surface.widths, [depth for depth in surface.depths if depth is not None]
    accuracy = (
        100 * np.array([point.accuracy for point in surface.points]).reshape(-1, len(widths)).T
    )
    low = min(float(accuracy.min()), 99.0)  # a scale of a point or more, none of it above 100 %
    scale = Normalize(low, max(float(accuracy.max()), low + 1.0))
    unlimited = None in surface.depths
    parts: list[list[Any]] = [part for part in (limits, [None] * unlimited) if part]
    panels = figure.subplots(
        1, len(parts), sharey=True, width_ratios=(14, 1)[: len(parts)], squeeze=False
    )[0].tolist()
    mesh: Any = None
    for axes, part in zip(panels, parts, strict=True):
        first = 0 if part is limits else len(limits)
        mesh = _draw(axes, widths, part, accuracy[:, first : first + len(part)], scale)
    if limits:
        _cost_lines(panels[0], surface, widths, limits)
    _frontier(panels, surface, len(limits))
    _frame(panels, widths, limits, unlimited=unlimited)
    bar = figure.colorbar(mesh, ax=panels, fraction=0.05, pad=0.02)
    bar.set_label("accuracy")
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    bar.outline.set_visible(False)
    heading(
        panels[0], f"Width and depth on {surface.dataset}, {surface.llm}", surface_notes(surface)
    )
    unit = "USD" if _known(surface) else "output tokens"
    handles = [
        Line2D([], [], color="#8A8A8A", linewidth=1.0),
        Line2D([], [], color=_FRONTIER, marker="o", markersize=4, linewidth=0),
    ]
    figure.legend(
        handles,
        [f"equal cost, {unit} per question", "Pareto frontier"],
        loc="outside lower center",
        ncols=2,
    )
    return figure


def _draw(
    axes: Axes, widths: list[int], depths: list[Any], accuracy: Floats, scale: Normalize
) -> Any:
    x = [0.5, 1.5] if depths == [None] else _edges(depths)
    mesh = axes.pcolormesh(x, _edges(widths), accuracy, cmap=_MAP, norm=scale, rasterized=True)
    axes.grid(visible=False)
    return mesh


def _edges(values: list[int]) -> Floats:
    """Return edges of cells around values on a log scale, halfway between neighbours."""
    logs = np.log(np.array(values, np.float64))
    if len(logs) == 1:
        return np.exp([logs[0] - 0.3, logs[0] + 0.3])
    middle = (logs[1:] + logs[:-1]) / 2
    edges: Floats = np.exp(
        np.concatenate([[2 * logs[0] - middle[0]], middle, [2 * logs[-1] - middle[-1]]])
    )
    return edges


def _known(surface: Surface) -> bool:
    return all(point.usd_per_question is not None for point in surface.points)


def _cost_lines(axes: Axes, surface: Surface, widths: list[int], limits: list[int]) -> None:
    """Draw lines of equal cost, two per decade."""
    if len(widths) < 2 or len(limits) < 2:
        return
    field = "usd_per_question" if _known(surface) else "output_tokens"
    shown = surface.points[: len(limits) * len(widths)]
    costs = (
        np.array([getattr(point, field) for point in shown], np.float64).reshape(-1, len(widths)).T
    )
    if not float(costs.min()) > 0:
        return
    low, high = float(costs.min()), float(costs.max())
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    levels = [
        level
        for decade in decades
        for level in (10.0**decade, 3 * 10.0**decade)
        if low < level < high
    ]
    if not levels:
        return
    # Costs are linear in widths, and nearly so between neighbouring depths: lines of the costs
    # themselves are true.
    lines = axes.contour(
        limits, widths, costs, levels=levels, colors="white", linewidths=0.9, alpha=0.85
    )
    first, last = np.log([(limits[0], widths[0]), (limits[-1], widths[-1])])
    # its name stands where it crosses the diagonal
    for level, line in zip(levels, lines.get_paths(), strict=True):
        places = np.asarray(line.vertices)
        off_diagonal = np.abs(np.diff((np.log(places) - first) / (last - first)).ravel())
        x, y = places[off_diagonal.argmin()].tolist()
        name = axes.text(
            x,
            y,
            _written(level, usd=_known(surface)),
            fontsize=7,
            color="white",
            ha="center",
            va="center",
        )
        name.set_path_effects([withStroke(linewidth=2.0, foreground="#333333", alpha=0.7)])


def _written(cost: float, *, usd: bool) -> str:
    return dollars(cost) if usd else f"{cost:,.0f}" if cost >= 1 else plain_number(cost)


def _frontier(panels: list[Axes], surface: Surface, limits: int) -> None:
    look: dict[str, Any] = {
        "color": _FRONTIER,
        "marker": "o",
        "markersize": 4,
        "linestyle": "none",
        "zorder": 5,
    }
    look |= {"markeredgecolor": "white", "markeredgewidth": 0.5, "clip_on": False}

    def place(point: SurfacePoint) -> tuple[float, int]:
        return (1.0 if point.tokens is None else float(point.tokens)), point.n

    for axes, part in ((panels[0], True), (panels[-1], False)):
        points = [place(point) for point in surface.frontier if (point.tokens is not None) is part]
        if points and (limits or not part):
            axes.plot(*zip(*points, strict=True), **look)


def _frame(panels: list[Axes], widths: list[int], limits: list[int], *, unlimited: bool) -> None:
    first = panels[0]
    edges = _edges(widths)
    for axes in panels:
        axes.set_yscale("log")
        axes.set_ylim(float(edges[0]), float(edges[-1]))
        axes.yaxis.set_minor_locator(NullLocator())
    first.yaxis.set_major_locator(FixedLocator(_whole_ticks(widths)))
    first.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    first.set_ylabel("traces per question, n (log scale)")
    if limits:
        ends = _edges(limits)
        first.set_xscale("log")
        first.set_xlim(float(ends[0]), float(ends[-1]))
        first.xaxis.set_minor_locator(NullLocator())
        first.xaxis.set_major_locator(FixedLocator(_whole_ticks(limits)))
        first.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        first.set_xlabel("tokens after which a trace is cut (log scale)")
    if unlimited:
        last = panels[-1]
        last.set_xlim(0.5, 1.5)
        last.xaxis.set_major_locator(FixedLocator([1]))
        last.xaxis.set_major_formatter(FuncFormatter(lambda _value, _: "no limit"))
        last.tick_params(axis="y", left=not limits, labelleft=not limits)


def _whole_ticks(values: list[int]) -> list[float]:
    """Return ticks at doublings of the first value, and at the last, which has room for its
    name.
    """
    ticks: list[float] = []
    tick = float(values[0])
    while tick * max((values[-1] / values[0]) ** 0.1, 1.3) < values[-1]:
        ticks.append(tick)
        tick *= 2
    return [*ticks, float(values[-1])]

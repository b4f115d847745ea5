"""`comparison.png` and `comparison.svg`: the methods of a comparison, cost against accuracy, the
same bytes every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from feval.evaluation.cautions import mixed_counters
from feval.evaluation.costs import mean_cost
from feval.report.pictures.drawing import (
    MOST_BANDS,
    accuracy_axis,
    band_ends,
    dashes,
    heading,
    legend_below,
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
from feval.report.tables.tables import cost_mark, timing_notes
from feval.report.text import counted_questions, interval_name, price_words

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.comparison.runner import MethodCurve
    from feval.evaluation.evaluation import Evaluation

Places = npt.NDArray[np.float64]

_GREY = "#777777"
_INK = "#222222"
_CEILINGS: tuple[Any, ...] = (
    (0, (5, 2)),
    (0, (1, 1.6)),
    (0, (6, 2, 1, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
_HOLLOW: dict[str, Any] = {
    "linestyle": "",
    "marker": "o",
    "markersize": 6.5,
    "markerfacecolor": "none",
    "markeredgecolor": _INK,
    "markeredgewidth": 1.3,
}
_WIDTH = 6.4
_SHORT_NAME = 26
_LEAST_BAND = 2


def comparison_png(comparison: Comparison) -> bytes:
    """Draw a comparison of one curve or more and return the PNG's bytes.

    One line per method, of four and fewer with its confidence band; a hollow circle for a single
    call of each LLM; the Pareto frontier as steps; the pass@n ceiling of each LLM in grey. The
    legend is below the axes.
    """
    return png(lambda: _figure(comparison))


def comparison_svg(comparison: Comparison) -> bytes:
    """The same picture as SVG."""
    return svg(lambda: _figure(comparison))


def plot_comparison(comparison: Comparison, axes: Axes | None = None) -> Axes:
    """The same picture on a caller's axes, or on a new figure of pyplot's."""
    return on_axes(axes, _size(comparison), partial(_draw_on, comparison=comparison))


def _size(comparison: Comparison) -> tuple[float, float]:
    entries = list(_entries(comparison))
    legend = legend_below(entries)
    return _WIDTH, 0.62 * _WIDTH - 0.021 * legend["fontsize"] * (-len(entries) // legend["ncols"])


def _figure(comparison: Comparison) -> Figure:
    figure = new_figure(*_size(comparison))
    with_legend(figure, partial(_draw_on, comparison=comparison))
    return figure


def _draw_on(axes: Axes, comparison: Comparison) -> dict[str, Any]:
    axis = comparison.plan.cost
    for position, ceiling in enumerate(comparison.ceilings):
        _draw_ceiling(axes, ceiling, axis, position)
    for position, curve in enumerate(comparison.curves):
        _draw(axes, curve, axis, position, band=_has_bands(comparison))
    _frame(axes, comparison)
    _draw_frontier(axes, comparison)
    _draw_baselines(axes, comparison)
    _title(axes, comparison)
    return _entries(comparison)


def _placed(points: Sequence[Evaluation], axis: str) -> list[tuple[float, Evaluation]]:
    """Points with their costs, without those that a log axis cannot show."""
    costs = [(mean_cost(point, axis), point) for point in points]
    return [(x, point) for x, point in costs if x is not None and x > 0]


def _has_bands(comparison: Comparison) -> bool:
    return len(comparison.curves) <= MOST_BANDS


def _draw(axes: Axes, curve: MethodCurve, axis: str, position: int, *, band: bool) -> None:
    colour, marker = look(position)
    points = _placed(curve.points, axis)
    x = [place for place, _ in points]
    low, high = zip(*(band_ends(point) for _, point in points), strict=True) if points else ((), ())
    if band and len(points) >= _LEAST_BAND:
        axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0, zorder=2)
    elif band:
        axes.vlines(x, low, high, color=colour, linewidth=2.5, alpha=0.35, zorder=2)
    y = [100 * point.accuracy for _, point in points]
    axes.plot(x, y, color=colour, linewidth=1.8, linestyle=dashes(position), zorder=5)
    edge: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.6}
    axes.plot(x, y, color=colour, linestyle="", marker=marker, markersize=5, zorder=6, **edge)


def _draw_ceiling(axes: Axes, ceiling: MethodCurve, axis: str, position: int) -> None:
    points = _placed(ceiling.points, axis)
    x, y = [place for place, _ in points], [100 * point.accuracy for _, point in points]
    alone: dict[str, Any] = {"marker": "_", "markersize": 10} if len(points) == 1 else {}
    axes.plot(
        x,
        y,
        color=_GREY,
        linewidth=1.2,
        linestyle=_CEILINGS[position % len(_CEILINGS)],
        zorder=3,
        **alone,
    )


def _draw_frontier(axes: Axes, comparison: Comparison) -> None:
    corners = [
        (point.cost, 100 * point.accuracy) for point in comparison.frontier if point.cost > 0
    ]
    if corners:
        corners.append((axes.get_xlim()[1], corners[-1][1]))
        axes.plot(
            *zip(*corners, strict=True),
            color=_INK,
            linewidth=0.9,
            alpha=0.75,
            drawstyle="steps-post",
            zorder=4,
        )


def _draw_baselines(axes: Axes, comparison: Comparison) -> None:
    """Draw a hollow circle per LLM, and its name where it hides least."""
    axis = comparison.plan.cost
    axes.figure.canvas.draw()  # positions depend on the layout
    crowd = _crowd(axes, comparison)
    for x, point in _placed(comparison.baselines, axis):
        y = 100 * point.accuracy
        axes.plot([x], [y], zorder=7, **_HOLLOW)
        name = shortened(", ".join(point.llms).rpartition("/")[2], _SHORT_NAME)
        (across, up), crowd = _quiet_place(axes, (x, y), 4.2 * len(name), crowd)
        axes.annotate(
            name,
            (x, y),
            xytext=(across, up),
            textcoords="offset points",
            va="center",
            fontsize=7,
            color=_INK,
            zorder=8,
            path_effects=[withStroke(linewidth=2, foreground="white", alpha=0.85)],
        )


def _crowd(axes: Axes, comparison: Comparison) -> Places:
    """[K, 2] positions (in points) of lines and markers, which names should avoid."""
    axis = comparison.plan.cost
    places = [np.zeros((0, 2))]
    for curve in (*comparison.curves, *comparison.ceilings):
        points = [(x, 100 * point.accuracy) for x, point in _placed(curve.points, axis)]
        if points:
            corners = axes.transData.transform(points) / _pixels(axes)
            shares = np.linspace(0, 1, 25)[:, None, None]
            places.append((corners[:-1] * (1 - shares) + corners[1:] * shares).reshape(-1, 2))
            # a marker weighs more than a piece of line
            places.append(np.repeat(corners, 12, axis=0))
    return np.concatenate(places)


def _quiet_place(
    axes: Axes, at: tuple[float, float], length: float, crowd: Places
) -> tuple[tuple[float, float], Places]:
    """Offset of a name's left end from its point (in points) where it hides least, and the crowd
    including it.
    """
    origin = axes.transData.transform(at) / _pixels(axes)
    box = axes.get_window_extent()
    ends = np.array([[box.x0, box.y0], [box.x1, box.y1]]) / _pixels(axes)

    def hidden(offset: tuple[float, float]) -> float:
        low = origin + offset - (2, 5)
        high = origin + offset + (length, 5)
        outside = bool((low < ends[0]).any() or (high > ends[1]).any())
        return 1e6 * outside + float(((crowd > low) & (crowd < high)).all(axis=1).sum())

    ups = (-11, 11, -20, 20, -29, 29)
    offsets = [(across, up) for up in ups for across in (-3, -length + 3, -length / 2)] + [
        (8, 0),
        (-length - 7, 0),
    ]
    best = min(offsets, key=hidden)
    along = np.stack(np.meshgrid(np.linspace(0, length, 40), (-5, 0, 5)), axis=-1).reshape(-1, 2)
    return best, np.concatenate([crowd, np.repeat(along + origin + best, 5, axis=0)])


def _pixels(axes: Axes) -> float:
    """Pixels in a point."""
    return float(axes.figure.dpi) / 72


def _frame(axes: Axes, comparison: Comparison) -> None:
    curves = [*comparison.curves, *comparison.ceilings]
    points = _placed(
        [*(point for curve in curves for point in curve.points), *comparison.baselines],
        comparison.plan.cost,
    )
    label = cost_words(comparison.plan.cost, comparison.timing)[0]
    axes.set_xlabel(f"{label}{cost_mark(label, comparison.counters)} (log scale)")
    axes.set_ylabel("accuracy")
    if not points:
        return
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    margin = 1.6 if high < 1.2 * low else (high / low) ** 0.05
    log_axis(axes, low / margin, high * margin, usd=comparison.plan.cost == "usd")
    ends = [
        band_ends(point) if _has_bands(comparison) else (100 * point.accuracy,) * 2
        for _, point in points
    ]
    bottom, top = min(low for low, _ in ends), max(high for _, high in ends)
    room = vertical_room(bottom, top, 0.05 if _has_bands(comparison) else 0.1)
    axes.set_ylim(max(bottom - room, -1), min(top + room, 101))
    accuracy_axis(axes)


def _title(axes: Axes, comparison: Comparison) -> None:
    first = comparison.curves[0].points[0]
    kinds = dict.fromkeys(point.kind for curve in comparison.curves for point in curve.points)
    seeded = (
        f" ({comparison.plan.replicates:,} draws, seed {comparison.plan.seed})"
        if "seeded" in kinds
        else ""
    )
    prices = price_words(
        first.prices,
        (point.usd_per_question for curve in comparison.curves for point in curve.points),
    )
    questions = counted_questions(first.questions, comparison.left_out)
    lines = (
        f"{questions}; {' and '.join(kinds)}{seeded}; paired on questions and draws",
        f"billing {first.billing}; {prices}; token counter {'; '.join(comparison.counters)}",
        *mixed_counters(comparison.counters),
        *timing_notes(comparison.timing),
    )
    heading(axes, f"Methods compared on {first.dataset}", lines)


def _entries(comparison: Comparison) -> dict[str, Any]:
    """Label -> legend handle of everything in the picture."""
    entries: dict[str, Any] = {}
    for position, curve in enumerate(comparison.curves):
        colour, marker = look(position)
        handle = Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=1.8,
            linestyle=dashes(position),
        )
        entries[legend_label(curve.label, entries)] = handle
    for position, ceiling in enumerate(comparison.ceilings):
        style = _CEILINGS[position % len(_CEILINGS)]
        name = (
            "pass@n of"
            f" {ceiling.label.rpartition('/')[2]}{'' if comparison.kinds == ('exact',) else ' [exact]'}"  # noqa: E501
        )
        entries[legend_label(name, entries)] = Line2D(
            [], [], color=_GREY, linestyle=style, linewidth=1.2
        )
    if comparison.baselines:
        entries["single call"] = Line2D([], [], **_HOLLOW)
    if comparison.frontier:
        entries["Pareto frontier"] = Line2D([], [], color=_INK, linewidth=0.9, alpha=0.75)
    if _has_bands(comparison):
        entries[interval_name(comparison.plan.confidence)] = Patch(
            facecolor="#666666", alpha=0.25, linewidth=0
        )
    return entries

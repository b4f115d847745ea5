"""Pictures of several panels: curves of several datasets, width and depth, coupled LLMs, and the
figures of `feval.forecast.figures`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from feval.comparison.flips import VariedPrice, price_map as price_map_of
from feval.report.palette import COLOURS
from feval.report.pictures.drawing import (
    DASHED,
    DOTTED,
    GREY,
    INK,
    PER_1000,
    Contents,
    Entries,
    PlotOptions,
    band,
    cost_axis,
    handle,
    heading,
    legend_label,
    log_ticks,
    look,
    name_axes,
    name_ticks,
    picture,
    shares,
    thin,
)
from feval.report.pictures.lines import along, frame_curves, place
from feval.report.tables.forecasts import short_names
from feval.report.tables.tables import surface_notes
from feval.report.text import counted, plain_number, shortened

if TYPE_CHECKING:
    from feval.comparison import Comparison
    from feval.evaluation import Curve, Surface
    from feval.forecast.coupled import Coupling
    from feval.forecast.figures import Figure, Panel, Series
    from feval.methods.protocol import Floats

_WIDTH = 9.6
_MOST_COLUMNS = 4
_FEW_POINTS = 6


@picture(has_panels=True)
def curve_panels(figure: Drawing, panels: Sequence[Sequence[Curve]], _: PlotOptions) -> Contents:
    """Return cost against accuracy with a panel for the curves of each dataset, or of each price
    list where it is one dataset.

    An LLM, or a method where they are several, has the same colour and marker in every panel, at
    its first point (hollow) and its last.
    Bands and ceilings are left out; `curves` has them.
    """
    columns = min(_MOST_COLUMNS, math.ceil(math.sqrt(len(panels))))
    rows = math.ceil(len(panels) / columns)
    figure.set_size_inches(_WIDTH, 0.78 * _WIDTH / columns * rows + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    everything = [curve for curves in panels for curve in curves]
    axis = along(everything)
    title = "dataset" if len({curve.dataset for curve in everything}) > 1 else "prices"
    several = title == "prices" or len({curve.method for curve in everything}) > 1
    differs = "method" if several else "llm"
    titles = [str(getattr(curves[0], title)) for curves in panels]
    begin = len(commonprefix(titles)) * (len(titles) > 1)  # noqa: RUF071  they are no paths
    width = 96 // columns
    names = dict.fromkeys(getattr(curve, differs) for curve in everything)
    looks = {name: look(i) for i, name in enumerate(names)}
    for i, (axes, curves) in enumerate(zip(grid, panels, strict=False)):
        for curve in curves:
            x = [place(point, axis[0]) for point in curve.points]
            y = shares(curve.points)
            style = looks[getattr(curve, differs)] | {"markersize": 4}
            few = range(1, len(x)) if len(x) <= _FEW_POINTS else [-1]
            axes.plot(x, y, markevery=[*few], zorder=3, **style)
            axes.plot(x[:1], y[:1], markerfacecolor="white", zorder=4, **style)
        # prices are compared on the same axes
        frame_curves(axes, everything if title == "prices" else curves, axis)
        axes.tick_params(labelsize=7.5)
        axes.xaxis.label.set_fontsize(7.5)
        words = titles[i] if len(titles[i]) <= width else f"… {titles[i][begin:]}"
        axes.set_title(shortened(words, width), loc="left", fontsize=9)
        if i + columns < len(panels):  # a panel stands below it
            axes.set_xlabel("")
        if i % columns:
            axes.set_ylabel("")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return Contents({legend_label(name): handle(**style) for name, style in looks.items()})


_ON_MAP: Entries = {
    "fontsize": "x-small",
    "color": "white",
    "ha": "center",
    "va": "center",
    "path_effects": [withStroke(linewidth=2.0, foreground="#333333", alpha=0.7)],
}
_MAP = "cividis"  # made to look the same with and without colour blindness (Nuñez et al. 2018)


@picture(7.2, 5.0)
def surface(axes: Axes, shown: Surface, options: PlotOptions) -> Contents:
    """Return accuracy over tokens per trace and traces.

    White lines join points of equal cost, in USD where it is known, else in output tokens; dots are
    the Pareto frontier. Traces without a limit stand apart at the right.
    """
    widths, limits = shown.widths, [depth for depth in shown.depths if depth is not None]
    accuracy = _grid(shown, "accuracy") * 100
    low = min(float(accuracy.min()), 99.0)  # a scale of a point or more, none of it above 100 %
    scale = Normalize(low, max(float(accuracy.max()), low + 1.0))
    # the tokens of a trace, and 1 in the narrow part of traces without a limit
    parts = [part for part in (limits, [1] if None in shown.depths else []) if part]
    panels = [axes]
    if len(parts) > 1:
        panels.append(axes.inset_axes((1.02, 0, 0.07, 1), sharey=axes))
    size = 0.8 * mpl.rcParams["lines.markersize"]
    dots: Entries = {"color": COLOURS[1], "marker": "o", "markersize": size, "linestyle": "none"}
    mesh: Any = None
    for panel, part in zip(panels, parts, strict=True):
        limited, first = part is limits, 0 if part is limits else len(limits)
        cells, edges = accuracy[:, first : first + len(part)], _edges(part)
        mesh = panel.pcolormesh(
            edges, _edges(widths), cells, cmap=_MAP, norm=scale, rasterized=True
        )
        panel.grid(visible=False)
        frontier = [p for p in shown.frontier if (p.tokens is not None) is limited]
        if frontier and options.frontier:
            panel.plot(
                [p.tokens or 1 for p in frontier],
                [p.n for p in frontier],
                zorder=5,
                markeredgecolor="white",
                markeredgewidth=0.5,
                clip_on=False,
                **dots,
            )
        panel.set(xscale="log", yscale="log", xlim=edges[[0, -1]], ylim=_edges(widths)[[0, -1]])
        name_ticks(panel.yaxis, _whole_ticks(widths), plain_number)
        if limited:
            name_ticks(panel.xaxis, _whole_ticks(limits), "{:,.0f}".format)
        elif limits:
            panel.tick_params(axis="y", left=False, labelleft=False)
            name_ticks(panel.xaxis, [], plain_number)
            at: Entries = {"transform": panel.transAxes, "rotation": 90}
            panel.text(0.5, 0.5, "no limit", **at, **_ON_MAP)
        else:
            name_ticks(panel.xaxis, [1.0], lambda _: "no limit")
    name_axes(axes, "tokens after which a trace is cut" if limits else "", "traces per question, n")
    usd = all(point.usd_per_question is not None for point in shown.points)
    if len(widths) > 1 and len(limits) > 1:
        _cost_lines(axes, shown, limits, options, usd=usd)
    figure: Any = axes.figure
    bar = figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label("accuracy")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    bar.outline.set_visible(False)
    title = f"Width and depth on {shown.dataset}, {shown.llm}"
    heading(axes, title, surface_notes(shown), options)
    unit = PER_1000 if usd else "output tokens per question"
    signs = {f"equal cost, {unit}": handle(color="#8A8A8A", **thin(0.6))}
    return Contents(signs=signs | ({"Pareto frontier": handle(**dots)} if options.frontier else {}))


@picture(7.2, 5.0)
def price_map(axes: Axes, shown: Comparison, options: PlotOptions) -> Contents:
    """Return which method is the most accurate within a budget as the plan's price varies; a dotted
    line is today's.
    """
    varied = VariedPrice.parse(shown.plan.vary or "")
    found = price_map_of({curve.label: curve.points for curve in shown.curves}, varied)
    used = np.unique(found.best[found.best >= 0]).tolist()
    colours = ["white", *(look(place)["color"] for place in range(len(used)))]
    codes = np.searchsorted(used, found.best) + 1
    codes[found.best < 0] = 0
    today = float(np.median(found.prices))
    x, y = found.prices, 1000 * found.budgets
    axes.pcolormesh(
        x, y, codes, shading="nearest", cmap=ListedColormap(colours), vmin=-0.5,
        vmax=len(used) + 0.5, rasterized=True, alpha=0.85,
    )  # fmt: skip
    axes.axvline(today, color=INK, linestyle=DOTTED, linewidth=1.2)
    axes.grid(visible=False)
    axes.set(xscale="log", yscale="log", xlim=x[[0, -1]], ylim=y[[0, -1]])
    for axis, ends in ((axes.xaxis, x), (axes.yaxis, y)):
        name_ticks(axis, log_ticks(float(ends[0]), float(ends[-1])), plain_number)
    beyond = f" beyond {varied.beyond:,} input tokens" if varied.beyond else ""
    label = f"{varied.rate} price of {varied.llm}{beyond}, USD per million tokens"
    name_axes(axes, label, f"budget, {PER_1000}")
    title = f"Most accurate method within a budget on {shown.plan.dataset}"
    heading(
        axes,
        title,
        (f"prices {shown.widest.prices}; dotted: today's, {plain_number(today)}",),
        options,
    )
    lines = {
        legend_label(found.labels[place]): Patch(facecolor=colour)
        for place, colour in zip(used, colours[1:], strict=True)
    }
    return Contents(
        lines, signs={"no method is as cheap": Patch(facecolor="white", edgecolor=GREY)}
    )


def _grid(shown: Surface, field: str) -> Floats:
    """[widths, depths] a field of the points."""
    values = np.array([getattr(point, field) for point in shown.points], np.float64)
    return values.reshape(-1, len(shown.widths)).T


def _edges(values: list[int]) -> Floats:
    """Return edges of cells around values on a log scale, halfway between neighbours."""
    logs = np.log(np.array(values, np.float64))
    half = np.diff(logs) / 2 if len(logs) > 1 else np.array([0.3])
    edges: Floats = np.exp([logs[0] - half[0], *(logs[:-1] + half), logs[-1] + half[-1]])
    return edges


def _cost_lines(
    axes: Axes, shown: Surface, limits: list[int], options: PlotOptions, *, usd: bool
) -> None:
    """Draw lines of equal cost, two per decade."""
    widths = shown.widths
    field, scale = ("usd_per_question", 1000) if usd else ("output_tokens", 1)
    costs = scale * _grid(shown, field)[:, : len(limits)]
    low, high = float(costs.min()), float(costs.max())
    if not low > 0:
        return
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    both = [level for decade in decades for level in (10.0**decade, 3 * 10.0**decade)]
    levels = [level for level in both if low < level < high]
    if not levels:
        return
    # Costs are linear in widths, and nearly so between neighbouring depths: lines of the costs
    # themselves are true.
    style: Entries = {"colors": "white", "linewidths": thin(0.5)["linewidth"], "alpha": 0.85}
    lines = axes.contour(limits, widths, costs, levels=levels, **style)
    if not options.annotate:
        return
    first, last = np.log([(limits[0], widths[0]), (limits[-1], widths[-1])])
    # its name stands where it crosses the diagonal
    for level, line in zip(levels, lines.get_paths(), strict=True):
        places = np.asarray(line.vertices)
        off_diagonal = np.abs(np.diff((np.log(places) - first) / (last - first)).ravel())
        x, y = places[off_diagonal.argmin()].tolist()
        axes.text(x, y, plain_number(level), **_ON_MAP)


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


@picture(has_panels=True)
def coupling(figure: Drawing, shown: Coupling, _: PlotOptions) -> Contents:
    """Return covariances, variances with the diagonal, errors against samples and win-rates.

    Without golds, win-rates only.
    """
    figure.set_size_inches(_WIDTH, (0.78 if shown.pairs else 0.45) * _WIDTH)
    short = short_names(shown.llms)
    title = f"Coupled generation on {shown.dataset}: {', '.join(short.values())}"
    figure.suptitle(shortened(title, 90), x=0.01, ha="left", fontweight="bold")
    if not shown.pairs:  # without golds
        _winrates(figure.subplots(), shown)
        return Contents()
    panels = figure.subplots(2, 2)
    handles = _covariances(panels[0, 0], shown)
    _variances(panels[0, 1], shown)
    _errors(panels[1, 0], shown)
    _winrates(panels[1, 1], shown)
    names = (f"{short[first]} - {short[second]}" for first, second in shown.covariances)
    return Contents(dict(zip((shortened(name, 60) for name in names), handles, strict=True)))


def _covariances(axes: Axes, shown: Coupling) -> list[Any]:
    """Share of questions by covariance, as steps: there are few distinct values."""
    handles = []
    values = list(shown.covariances.values())
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    edges = np.linspace(low, max(high, low + 1e-9), 25)
    for position, covariances in enumerate(values):
        colour = look(position)["color"]
        shares = np.histogram(covariances, edges)[0] / len(covariances)
        handles.append(axes.stairs(100 * shares, edges, color=colour, linewidth=1.4, zorder=3))
        mean = float(covariances.mean())
        axes.axvline(mean, color=colour, linestyle=DASHED, linewidth=1.1, zorder=4)
    axes.axvline(0.0, color=GREY, linewidth=0.8, zorder=1)
    axes.set(xlabel="covariance of being right, within a question", ylabel="questions, %")
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(0.0, 160.0)
    name_ticks(axes.yaxis, [0, 1, 10, 100], plain_number)
    lines = ("dashed: mean over questions", "step height on a log scale above 1 %")
    heading(axes, "Covariance under shared noise", lines)
    return handles


def _variances(axes: Axes, shown: Coupling) -> None:
    top = max(float(variances.max()) for variances in shown.variances.values()) * 1.08 or 1.0
    axes.plot([0, top], [0, top], color=GREY, linestyle=DASHED, linewidth=1.0, zorder=2)
    for position, variances in enumerate(shown.variances.values()):
        (x, y), counts = np.unique(variances, axis=1, return_counts=True)
        # All pairs share a few values, so pairs are drawn side by side.
        aside = (position - (len(shown.variances) - 1) / 2) * 0.013 * top
        sizes = 4 + 500 * counts / counts.sum()
        style = look(position)
        axes.scatter(x + aside, y, s=sizes, alpha=0.55, linewidth=0, zorder=3, **style)
        x, y = variances.mean(axis=1)
        axes.scatter(x, y, s=60, edgecolor="black", linewidth=0.9, zorder=5, **style)
    axes.set(xlim=(-0.06 * top, top), ylim=(-0.06 * top, top))
    scheme = "variance of the difference, {}".format
    axes.set(xlabel=scheme("coupled"), ylabel=scheme("independent"))
    lines = (
        "outlined: mean over questions; area: number of questions",
        "coupling helps above the diagonal; pairs are shifted sideways",
    )
    heading(axes, "Variance within a question", lines)


def _errors(axes: Axes, shown: Coupling) -> None:
    sizes: list[float] = []
    shown_errors: list[float] = []
    for position, curve in enumerate(shown.curves.values()):
        style: Entries = {"color": look(position)["color"], "zorder": 4}
        points = [100 * np.array(errors) for errors in (curve.coupled, curve.independent)]
        axes.plot(curve.samples, points[0], linewidth=1.6, **style)
        axes.plot(curve.samples, points[1], linewidth=1.3, linestyle=DASHED, **style)
        sizes += curve.samples
        shown_errors += [error for errors in points for error in errors.tolist() if error > 0]
    axes.set_xscale("log")
    if shown_errors:
        axes.set_yscale("log")
    for axis, values in ((axes.xaxis, sizes), (axes.yaxis, shown_errors)):
        ticks = log_ticks(min(values), 1.000001 * max(values)) if values else []
        name_ticks(axis, ticks, "{:g}".format)
    axes.set(xlabel="pairs of calls (log scale)", ylabel="mean |error| of the difference, points")
    lines = ("solid: coupled; dashed: independent", "exact, over all choices of recorded pairs")
    heading(axes, "Error against samples", lines)


def _winrates(axes: Axes, shown: Coupling) -> None:
    count = len(shown.llms)
    for half, (offset, face, label) in enumerate(
        [(-0.14, "black", "coupled"), (0.14, "white", "independent")]
    ):
        entries = shown.ranking[half * count : (half + 1) * count]
        rates, low, high = 100 * np.array([(e.winrate, e.low, e.high) for e in entries]).T
        axes.errorbar(
            rates, np.arange(count) + offset, xerr=np.maximum([rates - low, high - rates], 0),
            fmt="o", color="black", markerfacecolor=face, markersize=5, linewidth=1.2, capsize=2.5,
            label=label, zorder=3,
        )  # fmt: skip
    names = [shortened(name, 30) for name in short_names(shown.llms).values()]
    axes.set_yticks(np.arange(count), names)
    axes.set(ylim=(count - 0.5, -0.5), xlabel="average win-rate, %")
    axes.legend(loc="best")
    evidence = counted(shown.ranked_questions, "question")
    lines = (f"{evidence}; intervals: {100 * shown.confidence:g} %", "")
    heading(axes, f"Win-rates by {shown.compared_by}", lines)


_MOST_MARKERS = 25


def figure_png(shown: Figure, *, dpi: int = 200) -> bytes:
    """Draw the panels of a figure and return the PNG's bytes."""
    return figure(shown).png(dpi)


def figure_svg(shown: Figure) -> bytes:
    """The same picture as SVG."""
    return figure(shown).svg()


@picture(has_panels=True)
def figure(drawing: Drawing, shown: Figure, options: PlotOptions) -> Contents:
    """Return the panels of a figure of `feval.forecast.figures`, side by side."""
    count = len(shown.panels)
    drawing.set_size_inches(6.8 if count == 1 else 4.1 * count, 3.9)
    panels: list[Axes] = drawing.subplots(1, count, squeeze=False)[0].tolist()
    # clouds are grey
    every = [series for panel in shown.panels for series in panel.series]
    labels = list(dict.fromkeys(series.label for series in every if series.look != "cloud"))
    handles: Entries = {}
    for axes, panel in zip(panels, shown.panels, strict=True):
        for series in panel.series:
            position = labels.index(series.label) if series.label in labels else 0
            handles.setdefault(series.label, _draw_series(axes, series, panel, position))
        _frame(axes, panel)
    whose = f", {shown.llms[0]}" if len(shown.llms) == 1 else ""
    title = f"{shown.title}: {shown.dataset}{whose}"
    heading(panels[0], title, shown.lines, options)
    entries: Entries = {}
    for label, drawn in handles.items():
        entries[legend_label(label, entries)] = drawn
    return Contents(entries)


def _draw_series(axes: Axes, series: Series, panel: Panel, position: int) -> Any:
    across = 100.0 if "x" in panel.percent else 1.0
    up = 100.0 if panel.points or "y" in panel.percent else 1.0
    style = look(position)
    colour, dashed = style["color"], series.look == "dashed"
    x, y = [across * value for value in series.x], [up * value for value in series.y]
    low, high = up * np.array([series.low, series.high])
    if series.look == "cloud":
        return axes.scatter(x, y, s=7, color="#B5B5B5", linewidths=0, zorder=1.5)
    if series.look == "points":
        whiskers: Entries = {"color": colour, "linewidth": 1.3, "alpha": 0.7, "zorder": 3}
        if series.low:
            axes.vlines(x, low, high, **whiskers)
        if series.left:
            axes.hlines(y, *(across * np.array([series.left, series.right])), **whiskers)
        return axes.plot(x, y, markersize=6, zorder=4, **style | {"linestyle": "none"})[0]
    if series.low:
        band(axes, x, zip(low, high, strict=True), colour)
    style |= {"linestyle": DASHED, "linewidth": 1.3} if dashed else {"linewidth": 1.6}
    every = max(1, math.ceil(len(x) / _MOST_MARKERS))
    if dashed and every > 1:
        del style["marker"]
    return axes.plot(x, y, zorder=3, markersize=4, markevery=every, **style)[0]


def _frame(axes: Axes, panel: Panel) -> None:
    known = [x for series in panel.series for x in series.x]
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(f"{panel.y_label}, points" if panel.points else panel.y_label)
    if panel.log:
        cost_axis(axes, known, f"{panel.x_label} (log scale)", whole=True)
    elif panel.ticks:
        name_ticks(axes.xaxis, list(panel.ticks), panel.ticks.__getitem__)
        axes.margins(x=0.08)
    elif all(float(x).is_integer() for x in known):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    for axis, name in ((axes.xaxis, "x"), (axes.yaxis, "y")):
        if name in panel.percent:
            axis.set_major_formatter(lambda value, _: f"{value:g} %")
    low, high = axes.get_ylim()
    if low < 0.0 < high:
        axes.axhline(0.0, color=COLOURS[-1], linewidth=0.8, zorder=1)

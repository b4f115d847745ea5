"""`couple.png`: the effect of shared noise in four panels, byte for byte the same every time."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from feval.forecast.coupling_results import Coupling
from feval.report.pictures.drawing import (
    DASHED,
    heading,
    legend_below,
    log_ticks,
    look,
    new_figure,
    png,
    shortened,
)
from feval.report.tables.coupled import short_names
from feval.report.text import counted, plain_number

_GREY = "#666666"
_WIDTH = 9.6


def coupling_png(coupling: Coupling) -> bytes:
    """Draw covariances, variances with the diagonal, errors against samples and win-rates, and
    return the PNG's bytes.

    Without golds, win-rates only.
    """
    return png(lambda: _figure(coupling))


def _figure(coupling: Coupling) -> Figure:
    figure = new_figure(_WIDTH, (0.82 if coupling.pairs else 0.45) * _WIDTH)
    short = short_names(coupling.llms)
    if coupling.pairs:
        panels = figure.subplots(2, 2)
        handles = _covariances(panels[0, 0], coupling)
        _variances(panels[0, 1], coupling)
        _errors(panels[1, 0], coupling)
        _winrates(panels[1, 1], coupling)
        names = [
            shortened(f"{short[first]} - {short[second]}", 60)
            for first, second in coupling.covariances
        ]
        figure.legend(handles, names, **legend_below(names))
    else:  # without golds
        _winrates(figure.subplots(), coupling)
    figure.suptitle(
        shortened(f"Coupled generation on {coupling.dataset}: {', '.join(short.values())}", 90),
        x=0.01,
        ha="left",
        fontweight="bold",
    )
    return figure


def _covariances(axes: Axes, coupling: Coupling) -> list[Any]:
    """Share of questions by covariance, as steps: there are few distinct values."""
    handles = []
    values = list(coupling.covariances.values())
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    edges = np.linspace(low, max(high, low + 1e-9), 25)
    for position, covariances in enumerate(values):
        colour, _ = look(position)
        shares = np.histogram(covariances, edges)[0] / len(covariances)
        handles.append(axes.stairs(100 * shares, edges, color=colour, linewidth=1.4, zorder=3))
        axes.axvline(
            float(covariances.mean()), color=colour, linestyle=DASHED, linewidth=1.1, zorder=4
        )
    axes.axvline(0.0, color=_GREY, linewidth=0.8, zorder=1)
    axes.set_xlabel("covariance of being right, within a question")
    axes.set_ylabel("questions, %")
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(0.0, 160.0)
    axes.set_yticks([0, 1, 10, 100])
    axes.yaxis.set_major_formatter(lambda value, _: plain_number(value))
    heading(
        axes,
        "Covariance under shared noise",
        ("dashed: mean over questions", "step height on a log scale above 1 %"),
    )
    return handles


def _variances(axes: Axes, coupling: Coupling) -> None:
    top = max(float(variances.max()) for variances in coupling.variances.values()) * 1.08 or 1.0
    axes.plot([0, top], [0, top], color=_GREY, linestyle=DASHED, linewidth=1.0, zorder=2)
    for position, variances in enumerate(coupling.variances.values()):
        colour, marker = look(position)
        points, counts = np.unique(variances, axis=1, return_counts=True)
        # All pairs share a few values, so pairs are drawn side by side.
        aside = (position - (len(coupling.variances) - 1) / 2) * 0.013 * top
        sizes = 4 + 500 * counts / counts.sum()
        axes.scatter(
            points[0] + aside,
            points[1],
            s=sizes,
            color=colour,
            marker=marker,
            alpha=0.55,
            linewidth=0,
            zorder=3,
        )
        mean = variances.mean(axis=1)
        axes.scatter(
            [mean[0]],
            [mean[1]],
            s=60,
            color=colour,
            marker=marker,
            edgecolor="black",
            linewidth=0.9,
            zorder=5,
        )
    axes.set_xlim(-0.06 * top, top)
    axes.set_ylim(-0.06 * top, top)
    axes.set_xlabel("variance of the difference, coupled")
    axes.set_ylabel("variance of the difference, independent")
    heading(
        axes,
        "Variance within a question",
        (
            "outlined: mean over questions; area: number of questions",
            "coupling helps above the diagonal; pairs are shifted sideways",
        ),
    )


def _errors(axes: Axes, coupling: Coupling) -> None:
    sizes: list[float] = []
    errors: list[float] = []
    for position, curve in enumerate(coupling.curves.values()):
        colour, _ = look(position)
        axes.plot(curve.samples, curve.coupled, color=colour, linewidth=1.6, zorder=4)
        axes.plot(
            curve.samples,
            curve.independent,
            color=colour,
            linewidth=1.3,
            linestyle=DASHED,
            zorder=3,
        )
        sizes += curve.samples
        errors += [error for error in (*curve.coupled, *curve.independent) if error > 0]
    axes.set_xscale("log")
    if errors:
        axes.set_yscale("log")
    for axis, values, scale in ((axes.xaxis, sizes, 1), (axes.yaxis, errors, 100)):
        if values:
            axis.set_major_locator(FixedLocator(log_ticks(min(values), 1.000001 * max(values))))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _, scale=scale: f"{scale * value:g}"))
    axes.set_xlabel("pairs of calls (log scale)")
    axes.set_ylabel("mean |error| of the difference, points")
    heading(
        axes,
        "Error against samples",
        ("solid: coupled; dashed: independent", "exact, over all choices of recorded pairs"),
    )


def _winrates(axes: Axes, coupling: Coupling) -> None:
    count = len(coupling.llms)
    for half, (offset, face, label) in enumerate(
        [(-0.14, "black", "coupled"), (0.14, "white", "independent")]
    ):
        entries = coupling.ranking[half * count : (half + 1) * count]
        places = np.arange(count) + offset
        rates = np.array([100 * entry.winrate for entry in entries])
        ends = np.array(
            [[100 * (e.winrate - e.low), 100 * (e.high - e.winrate)] for e in entries]
        ).T
        axes.errorbar(
            rates, places, xerr=np.maximum(ends, 0), fmt="o", color="black", markerfacecolor=face,
            markersize=5,
            linewidth=1.2, capsize=2.5, label=label, zorder=3,
        )  # fmt: skip
    axes.set_yticks(
        np.arange(count), [shortened(name, 30) for name in short_names(coupling.llms).values()]
    )
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_xlabel("average win-rate, %")
    axes.legend(loc="best")
    evidence = counted(coupling.ranked_questions, "question")
    heading(
        axes,
        f"Win-rates by {coupling.compared_by}",
        (f"{evidence}; intervals: {100 * coupling.confidence:g} %", ""),
    )

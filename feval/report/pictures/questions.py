"""The questions of a dataset, sorted: how hard they are for each LLM, or for a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from feval.report.pictures.drawing import (
    DASHED,
    accuracy_axis,
    heading,
    legend_label,
    look,
    on_axes,
)

if TYPE_CHECKING:
    from feval.methods.arrays import Floats

_SIZE = (6.4, 0.62 * 6.4)


def plot_questions(
    shares: Mapping[str, Floats], axes: Axes | None, *, title: str, lines: Sequence[str], label: str
) -> Axes:
    """Draw shares over questions, sorted by them.

    Args:
        shares: label -> [Q] shares between 0 and 1; NaN, where there is none, is left out.
        axes: a caller's axes; `None` for a new figure of pyplot's.
        title: above the picture.
        lines: small ones below the title.
        label: of the vertical axis.
    """
    return on_axes(
        axes, _SIZE, partial(_draw, shares=shares, title=title, lines=lines, label=label)
    )


def _draw(
    axes: Axes, shares: Mapping[str, Floats], title: str, lines: Sequence[str], label: str
) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for position, (name, values) in enumerate(shares.items()):
        colour, _ = look(position)
        known = np.sort(100 * values[~np.isnan(values)])[::-1]
        [line] = axes.plot(
            np.arange(1, len(known) + 1), known, color=colour, linewidth=1.8, drawstyle="steps-mid"
        )
        if len(known):
            axes.axhline(
                float(known.mean()), color=colour, linestyle=DASHED, linewidth=1.0, alpha=0.7
            )
        entries[legend_label(name, entries)] = line
    axes.set_xlabel("questions, sorted; dashed: mean")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(-3, 103)
    accuracy_axis(axes)
    axes.set_ylabel(label)
    heading(axes, title, lines)
    return entries

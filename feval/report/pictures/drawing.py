"""What all pictures share: style, saving, axes, bands, legends. All of it is fixed, so that the
same numbers always give the same bytes.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from feval.report.palette import COLOURS, MARKERS, places
from feval.report.text import dollars, plain_number, shortened

if TYPE_CHECKING:
    from feval.evaluation.curves import CurvePoint
    from feval.evaluation.evaluation import Evaluation

DASHED = (0, (5, 2))
DOTTED = (0, (1, 1.6))
INK, GREY = "#222222", "#777777"
HALO = withStroke(linewidth=1.8, foreground="white", alpha=0.85)
"""Keeps letters readable across lines."""

_ENOUGH_TICKS = 4
_LONGEST_NAME = 72
_SMALL = "heading"
"""Id of the small lines below a title."""

_STYLE: dict[Any, Any] = {
    # ships with matplotlib, so pictures are the same on every machine
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10.5,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "legend.frameon": False,
    # ids of SVG elements are hashes of their content and this salt, which is random by default
    "svg.hashsalt": "feval",
    "svg.fonttype": "path",
    "legend.fontsize": 8.5,
    "legend.handlelength": 3.2,  # shows a whole pattern of dashes
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


@contextmanager
def own_style() -> Iterator[None]:
    """Draw with matplotlib's defaults and our style, ignoring the user's style file (usetex, fonts,
    sizes).
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


Entries = dict[str, Any]
"""Label -> handle of what a legend explains."""

Shown = TypeVar("Shown")


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that is drawn when it is saved or plotted.

    Attributes:
        draw: draws on axes, or on a whole figure, whose size it may change, and returns what the
            legend explains.
        size: width and height in inches, without the legend, which is below the axes, where there
            is no data to hide.
        has_panels: whether it draws on a figure.
    """

    draw: Callable[[Any], Entries]
    size: tuple[float, float] = (6.4, 4.1)
    has_panels: bool = False

    def png(self, dpi: int = 200) -> bytes:
        """Return the PNG's bytes, which depend on matplotlib's version but not on the date."""
        return self._saved(format="png", dpi=dpi, metadata={"Software": None})

    def svg(self) -> bytes:
        """Return the SVG's bytes; letters are shapes, so it looks the same everywhere."""
        return self._saved(format="svg", metadata={"Date": None, "Creator": None})

    def _saved(self, **how: Any) -> bytes:
        with own_style(), warnings.catch_warnings():
            # Names in a script that DejaVu lacks are drawn as boxes, without a warning.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            out = io.BytesIO()
            self.figure().savefig(out, **how)
        return out.getvalue()

    def figure(self) -> Figure:
        """Return it on a new figure that needs no display; call it in `own_style`."""
        figure = Figure(figsize=self.size, layout="constrained")
        self._draw_with_legend(figure)
        return figure

    def _draw_with_legend(self, figure: Figure) -> Any:
        place: Any = figure if self.has_panels else figure.subplots()
        if entries := self.draw(place):
            width, height = figure.get_size_inches()
            # An inch has about 17 letters of the usual size, a handle takes 11 of them.
            font = 8.5 if len(entries) <= len(COLOURS) + 4 else 7.0
            fitting = int(142 * width / font) // (11 + max(map(len, entries)))
            columns = max(1, min(4 if len(entries) == 4 else 3, fitting))
            figure.set_size_inches(width, height + 0.021 * font * -(-len(entries) // columns))
            below: Any = {"loc": "outside lower center", "fontsize": font, "ncols": columns}
            figure.legend(entries.values(), entries.keys(), **below)
        return place

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw on a caller's axes, or on those of a new figure of pyplot's."""
        from matplotlib import pyplot as plt  # it chooses a backend, which files do not need

        if axes is None:
            # Made before the style is ours: pyplot may choose its backend here, which sets whether
            # it is interactive.
            figure = plt.figure(figsize=self.size, layout="constrained", facecolor="white")
            with own_style():
                axes = self._draw_with_legend(figure)
        else:
            with own_style():
                self._draw_among_others(axes)
        with own_style():
            # ticks take their style when they are first laid out
            root: Any = axes.get_figure(root=True)
            root.draw_without_rendering()
        return axes

    def _draw_among_others(self, axes: Axes) -> None:
        """Draw with the title only, where callers expect it: they have panels, and captions of
        their own.
        """
        axes.spines[["top", "right"]].set_visible(False)
        entries = self.draw(axes)
        for text in [text for text in axes.texts if text.get_gid() == _SMALL]:
            text.remove()
        axes.set_title(axes.get_title(loc="left"), loc="left", fontweight="bold", pad=6)
        # More entries than lines can be told apart by colour stand beside the axes, where they hide
        # no data.
        where: dict[str, Any] = {"fontsize": 7.5}
        if len(entries) > len(COLOURS) + 4:
            where = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
            where |= {"fontsize": 6.0, "labelspacing": 0.15}
        axes.legend(entries.values(), entries.keys(), **where)


def picture(
    width: float = 6.4, height: float = 4.1, *, has_panels: bool = False
) -> Callable[[Callable[[Any, Shown], Entries]], Callable[[Shown], Picture]]:
    """Make what draws something into a function that returns its picture."""

    def make(draw: Callable[[Any, Shown], Entries]) -> Callable[[Shown], Picture]:
        @wraps(draw)
        def made(shown: Shown) -> Picture:
            return Picture(lambda place: draw(place, shown), (width, height), has_panels)

        return made

    return make


def look(position: int) -> dict[str, Any]:
    """Return colour and marker of a line, see `feval.report.palette`."""
    colour, marker, _ = places(position)
    return {"color": COLOURS[colour], "marker": list(MARKERS)[marker]}


def handle(**style: Any) -> Line2D:
    """Return a line for the legend only."""
    return Line2D([], [], **style)


def shade() -> Patch:
    """Return what stands for all bands in a legend."""
    return Patch(facecolor="#666666", alpha=0.25, linewidth=0)


def shares(points: Iterable[Any], name: str = "accuracy") -> list[float]:
    """Return a share of some points in per cent; NaN where it is unknown."""
    return percents(getattr(point, name) for point in points)


def percents(values: Iterable[float | None]) -> list[float]:
    """Return shares in per cent; NaN for an unknown one."""
    return [math.nan if value is None else 100 * value for value in values]


def band_ends(point: CurvePoint | Evaluation) -> tuple[float, float]:
    """Return the ends of a point's band in per cent; the accuracy itself without an interval."""
    low = point.accuracy if point.accuracy_low is None else point.accuracy_low
    high = point.accuracy if point.accuracy_high is None else point.accuracy_high
    return 100 * low, 100 * high


def band(
    axes: Axes,
    x: Sequence[float],
    ends: Iterable[tuple[float, float]],
    colour: str,
    width: float = 2.5,
) -> Any:
    """Draw the area between ends, or a bar of some width where one point has no area."""
    low, high = np.reshape(list(ends), (-1, 2)).T
    if len(x) > 1:
        return axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0, zorder=1.5)
    return axes.vlines(x, low, high, color=colour, linewidth=width, alpha=0.35, zorder=1.5)


def log_axis(
    axes: Axes,
    values: Collection[float],
    label: str,
    *,
    right: int = 1,
    whole: bool = False,
    usd: bool = False,
) -> None:
    """Make the horizontal axis logarithmic, with room around some values; `right` margins on the
    right.

    `whole` keeps ticks at whole numbers if there are any; `usd` writes them as amounts of money.
    """
    low, high = min(values), max(values)
    margin = 1.6 if high < 1.2 * low else (high / low) ** 0.06
    low, high = low / margin, high * margin**right
    ticks = log_ticks(low, high)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [tick for tick in ticks if whole and float(tick).is_integer()] or ticks
    name_ticks(axes.xaxis, ticks, dollars if usd else plain_number)
    axes.set_xlabel(label)


def name_ticks(axis: Any, ticks: Sequence[float], write: Callable[[float], str]) -> None:
    """Put ticks at some values of an axis only, and write them."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


def accuracy_axis(axes: Axes, values: Iterable[float], *, bins: int = 7) -> None:
    """Make the vertical axis one of accuracies in per cent with room around some values, and at
    most so many intervals between ticks.

    It spans eight points, so that a flat curve looks flat.
    """
    shown = [value for value in values if not math.isnan(value)] or [0.0, 100.0]
    low, high = min(shown), max(shown)
    room = max(0.06 * (high - low), (8 - (high - low)) / 2)
    beyond = 0.04 * (high - low + 2 * room)  # a marker at 0 or 100 % is whole
    axes.set_ylim(max(low - room, -beyond), min(high + room, 100 + beyond))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=bins, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:g} %" if -1e-9 < value < 100 + 1e-9 else "")
    )
    axes.set_ylabel("accuracy")


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between `low` and `high`: the coarsest set with four of them, or else
    the finest set.
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= _ENOUGH_TICKS:
            break
    return ticks


def legend_label(name: str, others: Collection[str] = ()) -> str:
    """Return a name for a legend that no other entry has.

    Matplotlib leaves out labels that begin with an underscore, so a blank goes before it.
    """
    name = shortened(name, _LONGEST_NAME)
    name = f" {name}" if name.startswith("_") else name
    while name in others:
        name += " "
    return name


def heading(axes: Any, title: str, lines: Sequence[str], *, longest: int = 100) -> None:
    """Put a title and small lines above a picture; long ones go on in a second line, are cut, and
    never squeeze the axes.
    """
    lines = [part for line in lines for part in wrap(shortened(line, 2 * longest - 10), longest)]
    axes.set_title(
        shortened(title, 66), loc="left", fontweight="bold", pad=29 + 10 * max(len(lines) - 2, 0)
    )
    small = axes.annotate(
        "\n".join(lines),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 6),
        textcoords="offset points",
        fontsize=7.5,
        linespacing=1.35,
        color="#444444",
        annotation_clip=False,
    )
    small.set_in_layout(False)
    small.set_gid(_SMALL)

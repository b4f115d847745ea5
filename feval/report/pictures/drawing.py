"""What all pictures share: palette, markers, fonts, axes. Fixed, so that the same numbers always
give the same bytes.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from feval.report.palette import COLOURS, DASHES, MARKERS, places
from feval.report.text import dollars, plain_number, visible

if TYPE_CHECKING:
    from feval.evaluation.curves import CurvePoint
    from feval.evaluation.evaluation import Evaluation

MOST_BANDS = 4
"""Of more lines, bands would hide each other: they are left out."""

DASHED = (0, (5, 2))
DOTTED = (0, (1, 1.6))
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


def png(draw: Callable[[], Figure], dpi: int = 200) -> bytes:
    """Draw a picture in our style and return the PNG's bytes, which depend on matplotlib's version
    but not on the date.
    """
    return _saved(draw, format="png", dpi=dpi, metadata={"Software": None})


def svg(draw: Callable[[], Figure]) -> bytes:
    """Draw a picture in our style and return the SVG's bytes; letters are shapes, so it looks the
    same everywhere.
    """
    return _saved(draw, format="svg", metadata={"Date": None, "Creator": None})


def _saved(draw: Callable[[], Figure], **how: Any) -> bytes:
    with own_style(), warnings.catch_warnings():
        # Names in a script that DejaVu lacks are drawn as boxes, without a warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        out = io.BytesIO()
        draw().savefig(out, **how)
    return out.getvalue()


@contextmanager
def own_style() -> Iterator[None]:
    """Draw with matplotlib's defaults and our style, ignoring the user's style file (usetex, fonts,
    sizes).
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


Draw = Callable[[Axes], Mapping[str, Any]]
"""Draws on axes, and returns label -> handle of what the legend explains."""


def with_legend(figure: Figure, draw: Draw) -> Axes:
    """Draw on new axes of a figure, with the legend below them, where there is no data to hide."""
    axes = figure.subplots()
    if entries := draw(axes):
        figure.legend(entries.values(), entries.keys(), **legend_below(list(entries)))
    return axes


def on_axes(axes: Axes | None, size: tuple[float, float], draw: Draw) -> Axes:
    """Draw in our style on a caller's axes, or on those of a new figure of pyplot's, `size` inches
    wide and high.
    """
    from matplotlib import pyplot as plt  # it chooses a backend, which files do not need

    # Made before the style is ours: pyplot may choose its backend here, which sets whether it is
    # interactive.
    figure: Any = (
        plt.figure(figsize=size, layout="constrained", facecolor="white") if axes is None else None
    )
    with own_style():
        if axes is None:
            axes = with_legend(figure, draw)
        else:
            axes.spines[["top", "right"]].set_visible(False)
            entries = draw(axes)
            _short_heading(axes)
            # More entries than lines can be told apart by colour stand beside the axes, where they
            # hide no data.
            beside: dict[str, Any] = {
                "loc": "upper left",
                "bbox_to_anchor": (1.01, 1.0),
                "borderaxespad": 0.0,
            }
            few = len(entries) <= len(COLOURS) + 4
            axes.legend(
                entries.values(),
                entries.keys(),
                **({"fontsize": 7.5} if few else beside | {"fontsize": 6.0, "labelspacing": 0.15}),
            )
        figure = axes.get_figure(root=True)
        figure.draw_without_rendering()  # ticks take their style when they are first laid out
    return axes


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches that is drawn without a display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def log_axis(
    axes: Axes, low: float, high: float, *, whole: bool = False, usd: bool = False
) -> None:
    """Make the horizontal axis logarithmic from `low` to `high`.

    `whole` keeps ticks at whole numbers if there are any; `usd` writes them as amounts of money.
    """
    ticks = log_ticks(low, high)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(
        FixedLocator([tick for tick in ticks if whole and float(tick).is_integer()] or ticks)
    )
    axes.xaxis.set_minor_locator(NullLocator())
    written = dollars if usd else plain_number
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value)))


def accuracy_axis(axes: Axes, *, bins: int = 7) -> None:
    """Label the vertical axis as an accuracy in per cent, with at most so many intervals between
    ticks.
    """
    axes.yaxis.set_major_locator(MaxNLocator(nbins=bins, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:g} %" if -1e-9 < value < 100 + 1e-9 else "")
    )
    axes.set_ylabel("accuracy")


def band_ends(point: CurvePoint | Evaluation) -> tuple[float, float]:
    """Return the ends of a point's band in per cent; the accuracy itself without an interval."""
    low = point.accuracy if point.accuracy_low is None else point.accuracy_low
    high = point.accuracy if point.accuracy_high is None else point.accuracy_high
    return 100 * low, 100 * high


def vertical_room(low: float, high: float, margin: float = 0.06) -> float:
    """Return what to add below and above accuracies in per cent; the axis spans eight points, so
    that a flat curve looks flat.
    """
    return max(margin * (high - low), (8 - (high - low)) / 2)


def look(position: int) -> tuple[str, str]:
    """Return colour and marker of a line, see `feval.report.palette`."""
    colour, marker, _ = places(position)
    return COLOURS[colour], list(MARKERS)[marker]


def dashes(position: int) -> Any:
    """Return the dashes of a line."""
    pattern = DASHES[places(position)[2]]
    return (0, pattern) if pattern else "solid"


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


def shortened(text: str, length: int) -> str:
    """Return a text cut to a length, safe to show."""
    text = visible(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def legend_label(name: str, others: Collection[str] = ()) -> str:
    """Return a name for a legend that no other entry has.

    Matplotlib leaves out labels that begin with an underscore, so a blank goes before it.
    """
    name = shortened(name, _LONGEST_NAME)
    name = f" {name}" if name.startswith("_") else name
    while name in others:
        name += " "
    return name


def legend_below(labels: Sequence[str]) -> dict[str, Any]:
    """Return the options of a legend below the axes: how many entries fit side by side, and small
    letters for many entries.

    A line has about 107 letters of the usual size, a handle takes 11 of them.
    """
    size = 8.5 if len(labels) <= len(COLOURS) + 4 else 7.0
    fitting = int(910 / size) // (11 + max(map(len, labels)))
    columns = max(1, min(4 if len(labels) == 4 else 3, fitting))
    return {"loc": "outside lower center", "fontsize": size, "ncols": columns}


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


def _short_heading(axes: Axes) -> None:
    """Leave the title only, where callers expect it: they have panels, and captions of their
    own.
    """
    for text in [text for text in axes.texts if text.get_gid() == _SMALL]:
        text.remove()
    axes.set_title(axes.get_title(loc="left"), loc="left", fontweight="bold", pad=6)

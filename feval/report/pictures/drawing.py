"""What all pictures share: palette, markers, fonts, ticks; fixed, so that the same numbers give the same bytes every day."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from feval.report.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "DASHED",
    "DOTTED",
    "MARKERS",
    "heading",
    "legend_columns",
    "log_ticks",
    "look",
    "own_style",
    "png",
    "shortened",
    "svg",
]

# Okabe and Ito's palette (2008), told apart with every common colour blindness; its yellow is too light for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

DASHED = (0, (5, 2))
DOTTED = (0, (1, 1.6))
_ENOUGH_TICKS = 4

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so the picture is the same on every machine
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
    "svg.hashsalt": "feval",  # names of SVG elements are hashes of their content and this, which would otherwise be random
    "svg.fonttype": "path",
    "legend.fontsize": 8.5,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


def png(draw: Callable[[], Figure], dpi: int) -> bytes:
    """Draw a picture in our style and return the PNG's bytes, which depend on it and on matplotlib's version only."""
    # Software would name matplotlib's version; there is no creation date in a PNG by default.
    return _saved(draw, format="png", dpi=dpi, metadata={"Software": None})


def svg(draw: Callable[[], Figure]) -> bytes:
    """The same as SVG; letters are drawn as shapes, so that it looks alike everywhere."""
    return _saved(draw, format="svg", metadata={"Date": None, "Creator": None})


def _saved(draw: Callable[[], Figure], **how: Any) -> bytes:
    with own_style(), warnings.catch_warnings():
        # A name in a script that DejaVu lacks is drawn with boxes; that is no reason to warn on the terminal.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        out = io.BytesIO()
        draw().savefig(out, **how)
    return out.getvalue()


@contextmanager
def own_style() -> Iterator[None]:
    """Draw with matplotlib's defaults and ours, whatever the user's style file says (usetex, fonts, sizes)."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def look(position: int) -> tuple[str, str]:
    """Return colour and marker of a line; the first 49 differ from each other."""
    return COLOURS[position % len(COLOURS)], MARKERS[(position + position // len(COLOURS)) % len(MARKERS)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between `low` and `high`: the coarsest set that has four of them, the finest if none has."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= _ENOUGH_TICKS:
            break
    return ticks


def shortened(text: str, length: int) -> str:
    """Return at most so many characters of a text, safe to show."""
    text = visible(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def legend_columns(labels: Sequence[str]) -> int:
    """Return how many legend entries fit side by side: a line holds about 100 letters, a handle takes 9 of them."""
    return max(1, min(4 if len(labels) == 4 else 3, 100 // (9 + max(map(len, labels)))))


def heading(axes: Any, title: str, lines: Sequence[str], *, longest: int = 110) -> None:
    """Put a title above a picture, and small lines between the two; what is too long is cut, and never squeezes the axes."""
    axes.set_title(shortened(title, 66), loc="left", fontweight="bold", pad=29)
    small = axes.annotate(
        "\n".join(shortened(line, longest) for line in lines),
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

"""What all pictures share: style, saving, axes, bands, names, legends. Files have a fixed style, so
that the same numbers always give the same bytes; on a caller's axes Matplotlib's own settings hold.
"""

from __future__ import annotations

import io
import math
import shutil
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, Locator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

from feval.errors import UsageError, require_known
from feval.evaluation.measures import COSTS
from feval.report.palette import CEILINGS, COLOURS, DASHES, MARKERS, Look, places
from feval.report.text import plain_number, shortened
from feval.values import frozen

if TYPE_CHECKING:
    from feval.evaluation import CurvePoint, Evaluation

DASHED, DOTTED = ((0, each) for each in CEILINGS[:2])
INK, GREY = "#222222", "#777777"
PER_1000 = "USD per 1,000 questions"

_ENOUGH_TICKS = 4
_WIDEST = 1.7  # times an axis is stretched for names at the ends of its lines

_STYLE: dict[Any, Any] = {
    # ships with matplotlib, so pictures are the same on every machine
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
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
_COLUMN = {1: 3.3, 2: 6.8}


@contextmanager
def own_style() -> Iterator[None]:
    """Draw with matplotlib's defaults and our style, ignoring the user's style file (usetex, fonts,
    sizes).
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


@contextmanager
def style(name: str, *, columns: int = 1) -> Iterator[None]:
    """Draw and save pictures for a paper or for slides, within a `with` statement.

    The files are Matplotlib's styles `feval.paper` and `feval.slides`, for `plt.style.use` as well.
    Figures saved as .pgf are laid out by the LaTeX that is found.

    Args:
        name: "paper" (8 pt, fonts embedded in PDF) or "slides".
        columns: of a paper's page that a figure spans: 1 (3.3 inches wide) or 2 (6.8 inches).

    Raises:
        UnknownNameError: there is no such style.
        UsageError: a paper has one column or two; slides have none.
    """
    require_known("style", name, ("paper", "slides"))
    if columns not in _COLUMN or (name == "slides" and columns != 1):
        raise UsageError(
            f"A figure of {name} over {columns!r} columns was asked for: a paper's figure spans 1"
            " or 2 (columns=), and slides have none."
        )
    with mpl.rc_context():
        mpl.style.use(f"feval.{name}")
        if name == "paper":
            height = mpl.rcParams["figure.figsize"][1]
            mpl.rcParams["figure.figsize"] = (_COLUMN[columns], height)
        tex = next(filter(shutil.which, ("xelatex", "lualatex", "pdflatex")), "xelatex")
        mpl.rcParams["pgf.texsystem"] = tex
        yield


@frozen
class PlotOptions:
    """What `Plottable.plot` was asked for; it says what each means."""

    methods: Collection[str] | None = None
    llms: Collection[str] | None = None
    legend: str | bool = "auto"
    title: str | bool = True
    ceilings: bool = True
    frontier: bool = True
    intervals: str | bool = "band"
    annotate: bool = True
    cost: str | None = None
    log: bool = True
    alone: bool = True
    """Whether the axes are the picture's own: captions are for these."""

    def __post_init__(self) -> None:
        """Refuse what no picture takes."""
        for name, known in (
            ("legend", ("auto", "outside", "inside", "direct", False)),
            ("intervals", ("band", "bar", False)),
        ):
            if (given := getattr(self, name)) not in known:
                listed = ", ".join(map(repr, known))
                raise UsageError(f"{name}={given!r} was asked for; it is one of {listed}.")
        if self.cost is not None:
            require_known("cost", self.cost, COSTS)


DEFAULT = PlotOptions()
Entries = dict[str, Any]
"""Label -> handle of what a legend explains."""

Shown = TypeVar("Shown")


@frozen
class Name:
    """A text that stands near a point, where it hides nothing.

    Attributes:
        text: itself.
        at: the point, in data coordinates.
        colour: of its letters.
        line: whether it names the line that ends there.
    """

    text: str
    at: tuple[float, float]
    colour: str
    line: bool = False


@dataclass(slots=True)
class Contents:
    """What was drawn on axes, and what explains it.

    Attributes:
        lines: label -> handle of the lines, in the order of a legend.
        ends: the same names, for the ends of the lines; none where a legend is better.
        signs: label -> handle of all else.
        names: names of points.
        options: as asked for.
        shown: the curves that were drawn.
        others: what was on the axes before.
        limits: of the horizontal axis, before names had room; `None` where they asked for none.
        put: names that stand on the axes, and the legend beneath all, which the first has.
    """

    lines: Entries = field(default_factory=dict)
    ends: list[Name] = field(default_factory=list)
    signs: Entries = field(default_factory=dict)
    names: list[Name] = field(default_factory=list)
    options: PlotOptions = DEFAULT
    shown: Any = None
    others: Any = None
    limits: tuple[float, float] | None = None
    put: list[Any] = field(default_factory=list)


@frozen
class Picture:
    """A picture that is drawn when it is saved or plotted.

    Attributes:
        draw: draws on axes, or on a whole figure, whose size it may change.
        size: width and height in inches of files, without the legend, which is below the axes,
            where there is no data to hide.
        has_panels: whether it draws on a figure.
        options: what the legend does.
    """

    draw: Callable[[Any, PlotOptions], Contents]
    size: tuple[float, float] = (6.4, 4.1)
    has_panels: bool = False
    options: PlotOptions = DEFAULT

    def png(self, dpi: int = 200) -> bytes:
        """Return the PNG's bytes, which depend on matplotlib's version but not on the date."""
        return self._saved(format="png", dpi=dpi, metadata={"Software": None})

    def svg(self) -> bytes:
        """Return the SVG's bytes; letters are shapes, so it looks the same everywhere."""
        return self._saved(format="svg", metadata={"Date": None, "Creator": None})

    def _saved(self, **how: Any) -> bytes:
        with own_style(), _quiet():
            out = io.BytesIO()
            self.figure().savefig(out, **how)
        return out.getvalue()

    def figure(self) -> Figure:
        """Return it on a new figure that needs no display; call it in `own_style`."""
        figure = Figure(figsize=self.size, layout="constrained")
        self._draw(figure if self.has_panels else figure.subplots(), figure, grows=True)
        return figure

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw on a caller's axes, or on those of a new figure of pyplot's, by the style that is
        set.
        """
        from matplotlib import pyplot as plt  # it chooses a backend, which files do not need

        place = axes or plt.figure(layout="constrained").subplots()
        # Ticks take their style when they are first laid out, which `arrange` does.
        with mpl.rc_context({"text.parse_math": False}), _quiet():
            self._draw(place, place.figure, grows=axes is None)
        return place

    def _draw(self, place: Any, figure: Any, *, grows: bool) -> None:
        contents = self.draw(place, replace(self.options, alone=grows))
        contents.options = self.options
        vars(place)["feval"] = contents  # goes with the axes
        arrange(figure, grows=grows)


@contextmanager
def _quiet() -> Iterator[None]:
    """Names in a script that the font lacks are drawn as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def arrange(figure: Any, *, grows: bool = False) -> None:
    """Put names on all pictures of a figure, and one legend beneath them: of lines, unless all of
    them have their names at their ends, and of all else.

    `grows` makes the figure higher by its legend.
    """
    panels = [
        (each, vars(each)["feval"]) for each in (figure, *figure.axes) if "feval" in vars(each)
    ]
    size = figure.get_size_inches().copy() if grows else None
    beneath = [own for _, own in panels if own.options.legend in ("auto", "outside", "direct")]
    at_ends = beneath and all(own.ends and own.options.legend != "outside" for own in beneath)
    for named in (bool(at_ends), False):
        for axes, own in panels:  # of an earlier arrangement
            for artist in own.put:
                artist.remove()
            own.put = []
            if own.limits is not None:
                axes.set_xlim(own.limits)
        entries: Entries = {}
        for own in beneath:
            entries |= {} if named or own.options.legend == "direct" else own.lines
        for own in beneath:
            entries |= own.signs
        if entries:
            panels[0][1].put.append(_legend_beneath(figure, entries, size))
        if _put_names(figure, panels, at_ends=named):
            break
    for axes, own in panels:
        if own.options.legend == "inside" and (entries := own.lines | own.signs):
            axes.legend(entries.values(), entries.keys(), loc="best")


def _legend_beneath(figure: Any, entries: Entries, size: Any) -> Any:
    """Put a legend below all axes, in as many columns as its width has room for."""
    root = figure.get_figure(root=True)
    if root.get_layout_engine() is None:
        root.set_layout_engine("constrained")  # else the legend would lie on labels
    width = figure.bbox.width
    letters = 72 * width / root.dpi / (0.6 * points_of("legend.fontsize"))
    names = [shortened(name, max(int(letters) - 8, 12)) for name in entries]
    for columns in range(min(len(entries), 4), 0, -1):
        legend = figure.legend(entries.values(), names, loc="outside lower center", ncols=columns)
        extent = legend.get_window_extent()
        if extent.width <= width or columns == 1:
            break
        legend.remove()
    if size is not None:
        figure.set_size_inches(size[0], size[1] + extent.height / root.dpi)
    return legend


def _put_names(figure: Any, panels: Sequence[tuple[Any, Contents]], *, at_ends: bool) -> bool:
    """Put names on axes; return whether all names of lines stand clear, where these are wanted."""
    root = figure.get_figure(root=True)
    root.draw_without_rendering()
    for axes, own in panels:
        if (at_ends or own.options.legend == "direct") and own.ends and not _stretch(axes, own):
            return False
    root.draw_without_rendering()  # positions depend on the layout
    clear = True
    for axes, own in panels:
        forced = own.options.legend == "direct"
        names = [*own.ends * (at_ends or forced), *own.names]
        if not names:
            continue
        room = Room(axes)
        for name in names:
            if text := room.put(name, forced=forced and name.line):
                own.put.append(text)
            elif name.line:
                clear = False
    return clear


def _stretch(axes: Axes, own: Contents) -> bool:
    """Make room for names right of the lines' ends; return whether that leaves most of the axes to
    the lines.
    """
    box = axes.get_window_extent()
    low, _ = own.limits = axes.get_xlim()
    longest = 1.0
    for name in own.ends:
        text = axes.text(0, 0, f"  {name.text} ", fontsize="small")
        needed = min(text.get_window_extent().width / box.width, 0.9)
        text.remove()
        end = (axes.transData.transform(name.at)[0] - box.x0) / box.width
        longest = max(longest, end / (1 - needed))
    if longest > _WIDEST and own.options.legend != "direct":
        return False
    ends = axes.transData.inverted().transform([(box.x0 + box.width * longest, box.y0)])
    axes.set_xlim(low, float(ends[0, 0]))
    return True


class Room:
    """Where names on axes hide nothing: in pixels, the lines, markers and texts that are there."""

    def __init__(self, axes: Axes) -> None:
        root: Any = axes.get_figure(root=True)
        self.axes, self.pixels = axes, root.dpi / 72
        self.box = axes.get_window_extent()
        self.texts = [text.get_window_extent() for text in axes.texts if text.get_text()]
        self.paths: list[Any] = []
        markers: list[Any] = [np.empty((0, 2))]
        for line in axes.lines:
            path = line.get_path().transformed(line.get_transform())
            if line.get_linestyle() != "None":
                self.paths.append(path)
            if line.get_marker() != "None":
                markers.append(path.vertices)
        for bars in axes.findobj(LineCollection):
            self.paths += [bars.get_transform().transform_path(each) for each in bars.get_paths()]
        self.markers = np.concatenate(markers)

    def put(self, name: Name, *, forced: bool = False) -> Any:
        """Write a name; `None` where it would lie on a line, a marker or another text or leave the
        axes, unless it is `forced`.
        """
        text = self.axes.annotate(
            name.text,
            name.at,
            xytext=(0, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            color=name.colour,
            zorder=8,
        )
        extent = text.get_window_extent()
        width, height = extent.size / self.pixels

        def at(offset: tuple[float, float]) -> Bbox:
            return extent.translated(*(self.pixels * side for side in offset))

        def hidden(offset: tuple[float, float]) -> float:
            box = at(offset)
            outside = not (self.box.contains(*box.min) and self.box.contains(*box.max))
            lines = sum(path.intersects_bbox(box, filled=False) for path in self.paths)
            around = box.padded(self.pixels * mpl.rcParams["lines.markersize"] / 2)
            # a marker weighs more than a line
            lines += 9 * sum(around.contains(*marker) for marker in self.markers)
            return float(lines + 99 * (outside + box.count_overlaps(self.texts)))

        gap = mpl.rcParams["lines.markersize"] / 2 + 2
        up = height / 2 + gap
        offsets = [(gap + 1, 0.0), (gap, up), (gap, -up)]
        if not name.line:
            sides = (-width / 2, 2.0, -width - 2)
            offsets = [
                (side, up * rise) for rise in (-1, 1, -1.8, 1.8, -2.6, 2.6) for side in sides
            ]
            offsets += [(gap + 1, 0.0), (-width - gap - 1, 0.0)]
        best = min(offsets, key=hidden)
        if hidden(best) and not forced:
            text.remove()
            return None
        text.set_position(best)
        self.texts.append(at(best))
        return text


def picture(
    width: float = 6.4, height: float = 4.1, *, has_panels: bool = False
) -> Callable[[Callable[[Any, Shown, PlotOptions], Contents]], Callable[..., Picture]]:
    """Make what draws something into a function that returns its picture."""

    def make(draw: Callable[[Any, Shown, PlotOptions], Contents]) -> Callable[..., Picture]:
        @wraps(draw)
        def made(shown: Shown, options: PlotOptions = DEFAULT) -> Picture:
            size = width, height
            return Picture(lambda place, own: draw(place, shown, own), size, has_panels, options)

        return made

    return make


def points_of(key: str) -> float:
    """Return a size of letters in Matplotlib's settings in points, such as "axes.titlesize"."""
    settings: Any = mpl.rcParams
    return float(FontProperties(size=settings[key]).get_size_in_points())


def thin(share: float = 0.65) -> Entries:
    """Return the width of a line that matters less, as a share of the usual one."""
    return {"linewidth": share * mpl.rcParams["lines.linewidth"]}


def look(position: int) -> Entries:
    """Return colour, marker and dashes of a line, see `feval.report.palette`."""
    return styled(places(position))


def styled(own: Look) -> Entries:
    """Return the look of a line as Matplotlib takes it."""
    colour, marker, dashes = own
    style = {"color": COLOURS[colour], "marker": list(MARKERS)[marker]}
    return style | {"linestyle": (0, DASHES[dashes]) if dashes else "solid"}


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
    intervals: str | bool = "band",
) -> Any:
    """Draw the area between ends, or bars: where they are asked for, or one point has no area."""
    low, high = np.reshape(list(ends), (-1, 2)).T
    if not intervals:
        return None
    if intervals == "band" and len(x) > 1:
        return axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0, zorder=1.5)
    wide: Any = {"alpha": 0.35, **thin(1.4)}
    return axes.vlines(x, low, high, color=colour, zorder=1.5, **wide)


def cost_axis(
    axes: Axes,
    values: Collection[float],
    label: str,
    *,
    log: bool = True,
    right: int = 1,
    whole: bool = False,
) -> None:
    """Make the horizontal axis one of costs or counts with room around some values, logarithmic or
    from 0; `right` margins on the right. `whole` keeps ticks at whole numbers if there are any.
    """
    low, high = _with_siblings(axes, "x", min(values), max(values))
    if log:
        margin = 1.6 if high < 1.2 * low else (high / low) ** 0.06
        low, high = low / margin, high * margin**right
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(RoundTicks(whole=whole))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        low, high = 0.0, 1.04 * high
    axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(lambda value, _: plain_number(value))
    name_axes(axes, label)


def _with_siblings(axes: Axes, name: str, low: float, high: float) -> tuple[float, float]:
    """Return a range widened by those of pictures that share the axis."""
    for other in getattr(axes, f"get_shared_{name}_axes")().get_siblings(axes):
        if other is not axes and "feval" in vars(other):
            own = getattr(other, f"get_{name}lim")()
            low, high = min(low, own[0]), max(high, own[1])
    return low, high


def name_axes(axes: Axes, across: str, up: str = "") -> None:
    """Name the axes below and beside them, in lines that are no longer than they are."""
    size, box = points_of("axes.labelsize"), axes.get_window_extent()
    letters = letters_across(axes, size)
    axes.set_xlabel("\n".join(wrap(across, max(int(letters), 12))))
    if up:
        axes.set_ylabel("\n".join(wrap(up, max(int(letters * box.height / box.width), 12))))


def letters_across(axes: Any, size: float) -> float:
    """Return how many letters of some size in points stand beside each other above axes."""
    return float(72 * axes.get_window_extent().width / axes.get_figure(root=True).dpi / (size / 2))


_FEW = 8  # whole numbers that are all named


class RoundTicks(Locator):
    """Round numbers along a log axis, as many as have room."""

    def __init__(self, *, whole: bool = False) -> None:
        self.whole = whole

    def __call__(self) -> Sequence[float]:
        """Return the ticks of the part in view."""
        low, high = sorted(self.axis.get_view_interval())  # type: ignore[union-attr]  # of a log axis
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the ticks between two values."""
        ticks = log_ticks(vmin, vmax) if vmin > 0 else []
        if self.whole and vmax < _FEW:
            ticks = [*map(float, range(math.ceil(vmin), int(vmax) + 1))]
        elif len(ticks) < 2:  # a range too narrow for round numbers of a log axis
            ticks = [x for x in MaxNLocator(4).tick_values(vmin, vmax) if vmin <= x <= vmax]
        ticks = [tick for tick in ticks if self.whole and float(tick).is_integer()] or ticks
        return ticks[:: 1 + len(ticks) // max(self.axis.get_tick_space(), 3)]  # type: ignore[union-attr]  # likewise


def name_ticks(axis: Any, ticks: Sequence[float], write: Callable[[float], str]) -> None:
    """Put ticks at some values of an axis only, and write them."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(lambda value, _: write(value))


def accuracy_axis(axes: Axes, values: Iterable[float], *, bins: int = 7) -> None:
    """Make the vertical axis one of accuracies in per cent with room around some values, and at
    most so many intervals between ticks.

    It spans eight points, so that a flat curve looks flat.
    """
    shown = [value for value in values if not math.isnan(value)] or [0.0, 100.0]
    low, high = min(shown), max(shown)
    room = max(0.06 * (high - low), (8 - (high - low)) / 2)
    beyond = 0.04 * (high - low + 2 * room)  # a marker at 0 or 100 % is whole
    axes.set_ylim(
        _with_siblings(axes, "y", max(low - room, -beyond), min(high + room, 100 + beyond))
    )
    axes.yaxis.set_major_locator(MaxNLocator(nbins=bins, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(
        lambda value, _: f"{value:g} %" if -1e-9 < value < 100 + 1e-9 else ""
    )
    if axes.yaxis.get_tick_params().get("labelleft", True):  # else another panel says it
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
    name = shortened(name, 72)
    name = f" {name}" if name.startswith("_") else name
    while name in others:
        name += " "
    return name


def heading(
    axes: Any,
    title: str,
    lines: Sequence[str],
    options: PlotOptions = DEFAULT,
    always: Sequence[str] = (),
) -> None:
    """Put a title and small lines above a picture; long ones go on in a second line, and are cut.
    What is `always` said, whole, stands on a caller's axes and without a title, too.
    """
    if not options.title:
        title, lines = "", ()
    elif isinstance(options.title, str):
        title = options.title
    size = points_of("font.size") / 1.2
    longest = max(int(1.06 * letters_across(axes, size)), 20)
    # the layout may still make the axes of a panel narrower
    larger, beside = (1.05, int(0.9 * longest)) if options.alone else (1.4, int(0.77 * longest))
    widest = max(int(letters_across(axes, larger * points_of("axes.titlesize"))), 12)
    short = [shortened(line, 2 * longest - 10) for line in (lines if options.alone else ())]
    said = [part for line in short for part in wrap(line, longest)]
    for line in always:
        said += wrap(line, beside, break_on_hyphens=False, break_long_words=False)
    small = axes.annotate(
        "\n".join(said),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 6),
        textcoords="offset points",
        fontsize=size,
        linespacing=1.35,
        color="#444444",
        annotation_clip=False,
    )
    small.set_in_layout(not title)
    rows = 2 if options.alone else 3
    title = "\n".join(wrap(shortened(title, rows * widest - 4), widest, break_on_hyphens=False))
    axes.set_title(title, loc="left", pad=6 + 1.45 * size * len(said))

"""Pictures on one axes: accuracy over cost or votes, and questions sorted by a share."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from feval.errors import UsageError, require_known
from feval.estimators.arrays import pareto
from feval.estimators.routing import mixture_line
from feval.evaluation.cautions import mixed_counters
from feval.evaluation.measures import COSTS, MEASURES
from feval.report.palette import COLOURS, ceiling_looks, curve_looks, method_parts
from feval.report.pictures.drawing import (
    DASHED,
    DEFAULT,
    DOTTED,
    GREY,
    INK,
    PER_1000,
    Contents,
    Entries,
    Name,
    Picture,
    PlotOptions,
    accuracy_axis,
    band,
    band_ends,
    cost_axis,
    handle,
    heading,
    legend_label,
    look,
    percents,
    picture,
    shade,
    shares,
    styled,
    thin,
)
from feval.report.tables.tables import billing_note, cost_mark, cost_words, subtitles, timing_notes
from feval.report.text import counted, counted_questions, interval_name, shortened

if TYPE_CHECKING:
    from feval.comparison import Comparison, MethodCurve
    from feval.comparison.plan import ComparedMethod
    from feval.evaluation import Curve, CurvePoint, Evaluation
    from feval.forecast import BudgetPlan, EstimatedCurve, Forecast
    from feval.methods.protocol import Floats

_BEYOND = 1e6  # factor to the far right of every axis, so that the baseline runs to the edge
_ROUND_COUNTS = frozenset({1, 5, 10, 20, 40, 80, 160, 320, 640})
_FEW_POINTS = 6
_MOST_BANDS = 4  # of more lines, bands would hide each other: the frontier's methods keep theirs
_AXES = (
    ("usd_per_question", PER_1000),
    ("tokens_per_question", "mean tokens per question, prompt + output; USD not known"),
)


def plot_curve(curve: Curve, axes: Axes | None = None, options: PlotOptions = DEFAULT) -> Axes:
    """Draw a curve on a caller's axes, or on a new figure of pyplot's; curves drawn there earlier
    are drawn anew beside it.
    """
    shown = [curve]
    if axes is not None and (earlier := vars(axes).pop("feval", None)) is not None:
        shown = [*earlier.shown, curve]
        own = {*axes.collections, *axes.lines, *axes.texts, axes.get_legend(), *earlier.put}
        for artist in own - earlier.others - {None}:
            artist.remove()
    others = set() if axes is None else {*axes.collections, *axes.lines, *axes.texts}
    axes = curves(shown, options).plot(axes)
    vars(axes)["feval"].shown, vars(axes)["feval"].others = shown, others
    return axes


def along(shown: Sequence[Curve], cost: str | None = None, *, log: bool = True) -> tuple[str, str]:
    """Return field and label of a cost, or the curves' own, else of the first cost that is positive
    at every point, as a log axis needs.
    """
    points = [point for curve in shown for point in curve.points]
    first = shown[0]
    if cost is not None:
        own = "cost" if cost == first.cost else MEASURES[COSTS[cost]].key
        known = [getattr(point, own) for point in points]
        if any(value is None or (log and value <= 0) for value in known):
            raise UsageError(
                f"cost={cost!r} was asked for, and points of {first.method} on {first.dataset} do"
                " not have one that its axis can show; leave cost= out, or choose another."
            )
        return own, cost_words(cost, first.timing)[0]
    named: list[tuple[str, str]] = []
    if first.cost is not None and {curve.cost for curve in shown} == {first.cost}:
        named = [("cost", cost_words(first.cost, first.timing)[0])]
    if first.measures:
        return "n", "CoTs per question, k"
    name = "CoTs per question, n" if first.field == "n" else first.field
    for field, label in (*named, *_AXES):
        if all(place(point, field) > 0 for point in points):
            return field, label
    return "n", f"{name}; cost not known"


def place(point: CurvePoint, field: str) -> float:
    """Return where a point stands on the axis of a field: USD are those of 1,000 questions."""
    return float(getattr(point, field) or 0.0) * (1000 if field.startswith("usd") else 1)


def frame_curves(
    axes: Axes,
    shown: Sequence[Curve],
    axis: tuple[str, str],
    ceilings: Sequence[float] = (),
    *,
    log: bool = True,
) -> None:
    """Set both axes of curves, with room for a name right of the last marker."""
    field, label = axis
    points = [point for curve in shown for point in curve.points]
    places = [place(point, field) for point in points]
    cost_axis(axes, places, label, right=2, log=log, whole=field == "n")
    accuracy_axis(axes, [*ceilings, *(end for point in points for end in band_ends(point))])


@picture()
def curves(axes: Axes, shown: Sequence[Curve], options: PlotOptions) -> Contents:
    """Return cost against accuracy of one method on one dataset, one line per LLM; of curves of
    measures k against each of them.

    Each line has its confidence band; a dotted baseline runs from the single call (n = 1); pass@n,
    the ceiling of every method that picks among n CoTs, is dashed. If an LLM has no price, the axis
    shows tokens instead of USD.
    """
    whose = f", {shown[0].llm}" if len(shown) == 1 else ""
    if shown[0].measures:  # lines that fall as k grows, among them ceilings
        shown = [measure for curve in shown for measure in curve.by_measure()]
        options = replace(options, ceilings=False, annotate=False)
    first, axis = shown[0], along(shown, options.cost, log=options.log)
    several = len({(curve.method, curve.dataset) for curve in shown}) > 1
    contents = Contents()
    for position, curve in enumerate(shown):
        name = f"{curve.method}, {curve.llm}".removesuffix(whose) if several else curve.llm
        _draw_curve(axes, curve, axis[0], (position, name), contents, options)
    beside = {name: point for curve in shown for name, point in curve.beside.items()}
    if beside and axis[0] != "n":
        _draw_mixture(axes, beside, axis[0], contents)
    points = [point for curve in shown for point in curve.points]
    ceilings = [share for share in shares(points, "pass_at_n") if share == share]
    ceilings *= options.ceilings
    frame_curves(axes, shown, axis, [*ceilings, *shares([*beside.values()])], log=options.log)
    if first.measures:
        axes.set_ylabel("mean over questions")
    methods, datasets = (
        ", ".join(dict.fromkeys(getattr(curve, name) for curve in shown))
        for name in ("method", "dataset")
    )
    heading(axes, f"{methods} on {datasets}{whose}", subtitles(first), options)
    if first.confidence is not None and options.intervals:
        contents.signs[interval_name(first.confidence)] = shade()
    if ceilings:
        contents.signs["pass@n ceiling"] = handle(color=GREY, linestyle=DASHED, **thin())
    if first.field == "n" and any(point.n == 1 for point in points):
        contents.signs["single call"] = handle(color=GREY, linestyle=DOTTED, **thin())
    return contents


def _draw_curve(
    axes: Axes,
    curve: Curve,
    field: str,
    named: tuple[int, str],
    contents: Contents,
    options: PlotOptions,
) -> None:
    points = sorted(curve.points, key=lambda point: place(point, field))
    style, last = look(named[0]), len(points) - 1
    colour = style["color"]
    x = [place(point, field) for point in points]
    y = shares(points)
    band(axes, x, map(band_ends, points), colour, options.intervals)
    if options.ceilings:
        axes.plot(
            x,
            shares(points, "pass_at_n"),
            color=colour,
            linestyle=DASHED,
            marker=None if last else "_",
            zorder=3,
            **thin(),
        )
    # all of a few points have a marker, else the ends and round numbers of CoTs
    marked = [
        i
        for i, point in enumerate(points)
        if last < _FEW_POINTS or i in (0, last) or point.n in _ROUND_COUNTS
    ]
    label = legend_label(named[1], contents.lines)
    ranked = not curve.measures  # more calls are not worse where all of them must be right
    contents.lines[label] = _draw_line(axes, x, y, style, marked, contents, ranked=ranked)
    contents.ends.append(Name(label, (x[last], y[last]), colour, line=True))
    for i in marked:
        if curve.field == "n" and points[i].n == 1:
            ends = [x[i], _BEYOND * x[i]]
            axes.plot(ends, [y[i]] * 2, color=colour, linestyle=DOTTED, zorder=2, **thin())
        name = f"{curve.field} = {points[i].n}" if i in (0, last) else str(points[i].n)
        if options.annotate:
            contents.names.append(Name(name, (x[i], y[i]), colour))


def _draw_mixture(
    axes: Axes, beside: Mapping[str, CurvePoint], field: str, contents: Contents
) -> None:
    """Draw single LLMs with the line of their mixtures, which a router has to beat, and the oracle
    of them.
    """
    alone = [point for name, point in beside.items() if name != "oracle"]
    costs, right = np.array([[place(point, field), point.accuracy] for point in alone]).T
    grid = np.linspace(costs.min(), costs.max(), 999)[None]  # curved where costs are logarithms
    looks: Entries = {"color": GREY, "linestyle": DASHED, "zorder": 3, **thin()}
    axes.plot(grid[0], 100 * mixture_line(grid, costs[None], right[None])[0], **looks)
    contents.signs["mixtures of single LLMs"] = handle(**looks)
    mark: Entries = {"color": GREY, "linestyle": "none"}
    for marker, name, known in (("s", "single LLM", alone), ("*", "oracle", [beside["oracle"]])):
        x, y = [place(point, field) for point in known], shares(known)
        axes.plot(x, y, zorder=3, marker=marker, **mark)
        contents.signs[name] = handle(marker=marker, **mark)


def _draw_line(
    axes: Axes,
    x: Sequence[float],
    y: Sequence[float],
    style: Entries,
    marked: Sequence[int],
    contents: Contents,
    *,
    ranked: bool = True,
) -> Any:
    """Draw points joined by a line, and return it; some are marked, those hollow that another of
    them dominates, where they are `ranked`.
    """
    best = pareto(np.array(x), np.array(y) / 100) | (not ranked)
    full, hollow = ([i for i in marked if best[i] == is_best] for is_best in (True, False))
    [line] = axes.plot(x, y, zorder=4, markevery=full, **style)
    if hollow:
        empty: Entries = {"linestyle": "none", "markerfacecolor": "white"}
        axes.plot(x, y, markevery=hollow, zorder=4.5, **style | empty)
        contents.signs["dominated"] = handle(color=GREY, marker="o", **empty)
    return line


@picture(height=0.62 * 6.4)
def comparison(axes: Axes, shown: Comparison, options: PlotOptions) -> Contents:
    """Return a comparison of one curve or more, cost against accuracy.

    One line per method with its confidence band, of more than four those on the frontier; a ring
    for a single call of each LLM; the Pareto frontier as steps; the pass@n ceiling of each LLM in
    grey.
    """
    cost = options.cost or shown.plan.cost
    options = replace(options, cost=cost)
    shown = replace(
        shown,
        baselines=tuple(each for each in shown.baselines if _wanted(each.llms, options)),
        ceilings=tuple(
            curve for curve in shown.ceilings * options.ceilings if _wanted([curve.label], options)
        ),
    )
    drawn = [(curve, *_placed(curve.points, options)) for curve in _chosen(shown, options)]
    missing = _left_out(shown, options)
    missing += [curve.label for curve, x, _ in drawn if not x]
    drawn = [each for each in drawn if each[1]]
    own = [curve for curve, _, _ in drawn]
    contents = Contents()
    frontier = shown.frontier_of(own, cost)
    on = {label for label, _, _ in frontier}
    bands = []
    looks = curve_looks(shown.curves, own)
    factors = [each for each in looks if not each.name]
    contents.lines |= {each.llms: handle(color=COLOURS[each.look[0]]) for each in factors}
    contents.lines |= {
        each.method: handle(**styled(each.look) | {"color": INK}) for each in factors
    }
    _draw_ceilings(axes, shown, ceiling_looks(shown.ceilings, looks), contents, options)
    for (curve, x, points), (look_of, _, _, name) in zip(drawn, looks, strict=True):
        style, y = styled(look_of), shares(points)
        if options.intervals and (len(drawn) <= _MOST_BANDS or curve.label in on):
            band(axes, x, map(band_ends, points), style["color"], options.intervals)
            bands += points
        line = _draw_line(axes, x, y, style, range(len(x)), contents)
        if name:
            name = legend_label(name, contents.lines)
            contents.lines[name] = line
        if (name and not factors) or options.legend == "direct":
            end = (x[-1], y[-1])
            contents.ends.append(Name(name or curve.label, end, style["color"], line=True))
    _frame_comparison(axes, shown, drawn, bands, options, missing)
    if shown.baselines:
        _draw_baselines(axes, shown, contents, options)
    if frontier and options.frontier:
        scale = 1000 if cost == "usd" else 1
        corners = [(scale * mean, 100 * right) for _, mean, right in frontier]
        corners.append((_BEYOND * corners[-1][0], corners[-1][1]))
        steps: Entries = {"color": INK, "alpha": 0.75, "zorder": 3.5, **thin(0.5)}
        if any(curve.label in shown.learners for curve in own):  # beside points on other questions
            steps |= {"marker": ".", "zorder": 6, "markersize": mpl.rcParams["lines.linewidth"] * 2}
        axes.plot(*zip(*corners, strict=True), drawstyle="steps-post", **steps)
        contents.signs["Pareto frontier"] = handle(**steps)
    if bands:
        contents.signs[interval_name(shown.plan.confidence)] = shade()
    return contents


def _compared(drawn: Sequence[tuple[MethodCurve, Any, Any]]) -> str:
    """What the title of a comparison names: the one method and its budgets, where there is one."""
    entries = [curve.entry for curve, _, _ in drawn]
    swept = {(one.method, one.sweep and one.sweep[0]) for one in entries}
    values = [value for one in entries if one.sweep for value in one.sweep[1]]
    if len(swept) != 1 or not all(isinstance(value, int) for value in values or [None]):
        return "Methods compared"
    [(method, field)] = swept
    return f"{method}, {field} = {min(values)} to {max(values)},"


def _chosen(shown: Comparison, options: PlotOptions) -> list[MethodCurve]:
    """The curves of the methods and LLMs that are wanted."""
    names = {name for each in shown.curves for name in _names(each.label, each.entry)}
    _check_known("method of the comparison", options.methods, names)
    llms = {name for each in shown.curves for name in each.entry.llms}
    _check_known("LLM of the comparison", options.llms, llms)
    chosen = [curve for curve in shown.curves if _is_chosen(curve.label, curve.entry, options)]
    if not chosen:
        raise UsageError(
            "No method of the comparison is both among the methods= and of one of the llms= that"
            f" were asked for; it has {', '.join(curve.label for curve in shown.curves)}."
        )
    return chosen


def _check_known(noun: str, wanted: Iterable[str] | None, known: Collection[str]) -> None:
    for name in wanted or ():
        require_known(noun, name, known)


def _names(label: str, entry: ComparedMethod) -> set[str]:
    """What a method is asked for by."""
    return {label, entry.method, method_parts(label, entry.llms)[0]}


def _is_chosen(label: str, entry: ComparedMethod, options: PlotOptions) -> bool:
    named = options.methods is None or not _names(label, entry).isdisjoint(options.methods)
    return named and _wanted(entry.llms, options)


def _left_out(shown: Comparison, options: PlotOptions) -> list[str]:
    """Labels of what could not be evaluated, without methods that are not wanted."""
    unwanted = {
        label
        for entry in shown.plan.entries
        if not _is_chosen(entry.label, entry, options)
        for label in (entry.label, *dict(entry.points()))
    }
    llms = (llm for entry in shown.plan.entries for llm in entry.llms)
    unwanted |= {f"single call of {llm}" for llm in llms if not _wanted([llm], options)}
    # several points of one label are said once
    return list(dict.fromkeys(each.label for each in shown.missing if each.label not in unwanted))


def _placed(
    points: Iterable[Evaluation], options: PlotOptions
) -> tuple[list[float], list[Evaluation]]:
    """Costs in their order and their points, without those that the axis cannot show; USD are those
    of 1,000 questions.
    """
    cost = options.cost or "usd"
    scale = 1000 if cost == "usd" else 1
    costs = [
        (scale * mean, point)
        for point in points
        if (mean := point.mean_cost(cost)) is not None and (mean > 0 or not options.log)
    ]
    costs.sort(key=itemgetter(0))
    return [x for x, _ in costs], [point for _, point in costs]


def _wanted(llms: Sequence[str], options: PlotOptions) -> bool:
    """Whether LLMs are, or are several: `llms=` chooses among methods of one."""
    return options.llms is None or len(llms) > 1 or llms[0] in options.llms


def _draw_ceilings(
    axes: Axes,
    shown: Comparison,
    looks: Sequence[tuple[int | None, Sequence[float]]],
    contents: Contents,
    options: PlotOptions,
) -> None:
    alike = len({dashes for _, dashes in looks}) == 1
    for curve, (colour, dashes) in zip(shown.ceilings, looks, strict=True):
        whose = "" if alike else f" of {curve.label.rpartition('/')[2]}"
        x, points = _placed(curve.points, options)
        style: Entries = {"linestyle": (0, dashes), "marker": "_" if len(x) == 1 else None}
        style |= thin()
        of = GREY if colour is None else COLOURS[colour]
        axes.plot(x, shares(points), color=of, zorder=3, **style)
        contents.signs[legend_label(f"pass@n ceiling{whose}")] = handle(color=GREY, **style)


def _frame_comparison(
    axes: Axes,
    shown: Comparison,
    drawn: Sequence[tuple[MethodCurve, Sequence[float], Sequence[Evaluation]]],
    bands: Sequence[Evaluation],
    options: PlotOptions,
    missing: Sequence[str],
) -> None:
    plan, first = shown.plan, shown.curves[0].points[0]
    cost = options.cost or plan.cost
    own = [point for _, _, points in drawn for point in points]
    ceilings = (point for curve in shown.ceilings for point in curve.points)
    x, points = _placed([*own, *shown.baselines, *ceilings], options)
    label = cost_words(cost, shown.timing)[0]
    label += cost_mark(label, shown.counters)
    if points:
        cost_axis(axes, x, label, log=options.log)
        ends = [end for point in bands for end in band_ends(point)]
        accuracy_axis(axes, [*ends, *shares(points)])
    else:
        axes.set(xlabel=label, ylabel="accuracy")
    kinds = dict.fromkeys(point.kind for point in own)
    seeded = f" ({plan.replicates:,} draws, seed {plan.seed})" if "seeded" in kinds else ""
    most = shown.widest.questions
    questions = counted_questions(most, shown.left_out, shown.widest.judges)
    lines = (
        f"{questions}; {' and '.join(kinds)}{seeded}; paired on questions and draws",
        billing_note(first.billing, first.prices, own, "; ".join(shown.counters)),
        *mixed_counters(shown.counters),
        *timing_notes(shown.timing),
    )
    labels, judged = {curve.label for curve, _, _ in drawn}, dict[int, list[str]]()
    for name, fewer in shown.learners.items():
        if name in labels:
            judged.setdefault(fewer, []).append(name)
    if judged and options.frontier:
        judged[min(judged)].append("frontier")
    always = [
        f"{', '.join(names)}: {counted(fewer, 'question')}, {most - fewer:,} to learn"
        for fewer, names in judged.items()
    ]
    always += [f"left out: {', '.join(missing)}"] * bool(missing)
    alone = {curve.entry.llms for curve, _, _ in drawn if len(curve.entry.llms) == 1}
    # panels are narrow
    title = f"{_compared(drawn)} on {first.dataset}" if options.alone else first.dataset
    if len(alone) == 1:
        [llm] = alone.pop()
        title += f", {llm if options.alone else llm.rpartition('/')[2]}"
    heading(axes, title, lines, options, always)


def _draw_baselines(
    axes: Axes, shown: Comparison, contents: Contents, options: PlotOptions
) -> None:
    """Draw a ring per LLM, which has its name where there is room; its colour or the pass@n ceiling
    that starts there say it, too.
    """
    ring: Entries = {"color": INK, "linestyle": "", "marker": "o", "markerfacecolor": "none"}
    ring["markersize"] = 1.7 * mpl.rcParams["lines.markersize"]
    for x, point in zip(*_placed(shown.baselines, options), strict=True):
        y = 100 * point.accuracy
        axes.plot([x], [y], zorder=7, **ring)
        name = shortened(", ".join(point.llms).rpartition("/")[2], 26)
        if options.annotate and len(shown.baselines) > 1:
            contents.names.append(Name(name, (x, y), INK))
    contents.signs["single call"] = handle(**ring)


_FEW_ESTIMATES = 3  # whose bands can be told apart
_MOST_MARKERS = 12
_WHISKERS = 1.025


@picture(6.8, 4.5)
def forecast(axes: Axes, shown: Forecast, options: PlotOptions) -> Contents:
    """Return one estimate or more over votes M.

    The pool's plurality is a thick black line, its majority of right calls a dashed one. Each
    estimate has a colour, and its interval as a band or, if there are many, a whisker at its last
    point. The two-call bounds are two lines within the band of their region. Points right of the
    dotted line at M = G are extrapolated.
    """
    contents, known = Contents(), [curve.method for curve in shown.estimates]
    _check_known("estimator of the forecast", options.methods, known)
    estimates = [
        curve
        for curve in shown.estimates
        if options.methods is None or curve.method in options.methods
    ]
    few = len(estimates) <= _FEW_ESTIMATES
    for position, curve in enumerate(estimates):
        if any(point.low is not None for point in curve.points):
            _draw_estimate(axes, curve, position, contents, options, few=few)
    pool, kinds = shown.pool, {"plurality", *(estimate.of for estimate in estimates)}
    for kind, values, name, style in (
        ("plurality", pool.plurality, "whole pool", "-"),
        ("majority", pool.majority, "whole pool, majority", DASHED),
    ):
        known_at = [i for i, value in enumerate(values) if value is not None]
        if kind in kinds and known_at:
            y = percents(values)
            [contents.lines[name]] = axes.plot(
                shown.m,
                y,
                color=INK,
                linestyle=style,
                marker="o" if len(known_at) == 1 else None,
                zorder=5,
                **thin(1.2),
            )
            end = (shown.m[known_at[-1]], y[known_at[-1]])
            contents.ends.append(Name(name, end, INK, line=True))
    axes.axvline(shown.g, color=GREY, linestyle=DOTTED, zorder=1, **thin())
    low, high = shown.m[0], shown.m[-1]
    most = high * _WHISKERS ** len(estimates)
    label = f"votes M{' (log scale)' * options.log}"
    cost_axis(axes, [low, most], label, log=options.log, whole=True)
    points = [point for curve in estimates for point in curve.points]
    ends = [(p.accuracy, p.bound_low, p.bound_high, p.low, p.high) for p in points]
    every = (pool.plurality, pool.majority, *ends)
    accuracy_axis(axes, percents(share for each in every for share in each), bins=8)
    if low <= shown.g <= high and options.annotate:
        at = (shown.g, axes.get_ylim()[0])
        contents.names.append(Name(f"M = G = {shown.g}", at, GREY))
    extrapolated = "; extrapolated right of the dotted line" if high > shown.g else ""
    if low > shown.g:
        extrapolated = f"; all M are above G = {shown.g}, so everything is extrapolated"
    evidence = f"{counted(shown.g, 'call')} on each of {counted(shown.questions, 'question')}"
    drawing = f"seed {shown.seed}, replicate {shown.replicate}"
    lines = (
        f"from {evidence}; {drawing}; intervals: {100 * shown.confidence:g} %",
        f"pool: exact over all subsets of {pool.size} calls{extrapolated}",
    )
    heading(axes, f"Accuracy of M votes on {shown.dataset}, {shown.llm}", lines, options)
    return contents


def _draw_estimate(
    axes: Axes,
    curve: EstimatedCurve,
    position: int,
    contents: Contents,
    options: PlotOptions,
    *,
    few: bool,
) -> None:
    # the pool is black
    style = look(position if position < len(COLOURS) - 1 else position + 1)
    colour = style["color"]
    m = [point.m for point in curve.points]
    ends = [*zip(shares(curve.points, "low"), shares(curve.points, "high"), strict=True)]
    last = max(i for i, (low, _) in enumerate(ends) if not math.isnan(low))
    bounds = curve.method == "two-call"
    if bounds or options.intervals == "bar" or (few and len(m) > 1):
        band(axes, m, ends, colour, options.intervals)
    elif options.intervals:  # too many bands: one whisker per estimate, right of its last point
        at = m[last] * _WHISKERS ** (1 + (position if last == len(m) - 1 else 0))
        axes.vlines(at, *ends[last], color=colour, alpha=0.8, zorder=4, **thin(0.9))
    if bounds:
        for name in ("bound_low", "bound_high"):
            axes.plot(
                m,
                shares(curve.points, name),
                color=colour,
                marker="_" if len(m) == 1 else None,
                zorder=3,
                **thin(),
            )
        contents.lines[curve.method] = Patch(facecolor=colour, alpha=0.35, edgecolor=colour)
        contents.ends.append(Name(curve.method, (m[last], ends[last][0]), colour, line=True))
        return
    every, y = max(1, math.ceil(len(m) / _MOST_MARKERS)), shares(curve.points)
    markers: Entries = {"markevery": (position % every, every)}
    [contents.lines[curve.method]] = axes.plot(m, y, zorder=4, **markers, **thin(0.85), **style)
    contents.ends.append(Name(curve.method, (m[last], y[last]), colour, line=True))


@picture(6.8, 4.5)
def budget(axes: Axes, shown: BudgetPlan, options: PlotOptions) -> Contents:
    """Return accuracy over cost per question of the votes that a budget could buy; the vote to buy
    is a filled marker.
    """
    style, bought = look(0), shown.options
    unit = shown.budget.unit.replace("usd", "USD")
    scale = 1000 if unit == "USD" else 1
    cost = [scale * option.cost_per_question for option in bought]
    plurality, lower = shares(bought, "plurality"), shares(bought, "majority_low")
    low, high = shares(bought, "plurality_low"), shares(bought, "plurality_high")
    ends = zip(low, high, strict=True)
    region = band(axes, cost, ends, style["color"], options.intervals)
    [line] = axes.plot(cost, plurality, markerfacecolor="white", **style)
    [bound] = axes.plot(cost, lower, color=INK, linestyle=DASHED, **thin())
    at = next(i for i, each in enumerate(bought) if each.votes == shown.purchase.votes)
    [chosen] = axes.plot(
        cost[at],
        plurality[at],
        markersize=1.6 * mpl.rcParams["lines.markersize"],
        zorder=5,
        **style | {"linestyle": ""},
    )
    label = PER_1000 if unit == "USD" else f"mean {unit} per question"
    cost_axis(axes, cost, label, log=options.log)
    accuracy_axis(axes, [*lower, *low, *high])
    calls = counted(shown.pilot_calls, "call")
    pilot = f"{counted(shown.pilot_questions, 'question')}, {calls} each"
    votes = counted(shown.purchase.votes, "vote")
    lines = (f"for {counted(shown.questions, 'question')}; pilot: {pilot}", f"to buy: {votes}")
    title = f"What {shown.budget.amount:g} {unit} buy on {shown.dataset}, {shown.llm}"
    heading(axes, title, lines, options)
    names = [Name(votes, (cost[at], plurality[at]), style["color"])] * options.annotate
    signs = {
        "plurality of M calls": line,
        interval_name(shown.confidence): region,
        "to buy": chosen,
        "lower bound of a majority": bound,
    }
    return Contents(signs={name: sign for name, sign in signs.items() if sign}, names=names)


def questions(
    values: Mapping[str, Floats],
    options: PlotOptions = DEFAULT,
    *,
    title: str,
    lines: Sequence[str],
    label: str,
) -> Picture:
    """Return shares over questions, sorted by them.

    Args:
        values: label -> [Q] shares between 0 and 1; NaN, where there is none, is left out.
        options: of its title and legend.
        title: above the picture.
        lines: small ones below the title.
        label: of the vertical axis.
    """

    def draw(axes: Axes, options: PlotOptions) -> Contents:
        entries: Entries = {}
        for position, (name, own) in enumerate(values.items()):
            colour = look(position)["color"]
            ranked = np.sort(100 * own[~np.isnan(own)])[::-1]
            [entries[legend_label(name, entries)]] = axes.plot(
                np.arange(1, len(ranked) + 1), ranked, color=colour, drawstyle="steps-mid"
            )
            if len(ranked):
                axes.axhline(
                    float(ranked.mean()), color=colour, linestyle=DASHED, alpha=0.7, **thin(0.55)
                )
        axes.set_xlabel("questions, sorted; dashed: mean")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        accuracy_axis(axes, (0.0, 100.0))
        axes.set_ylabel(label)
        heading(axes, title, lines, options)
        return Contents(lines=entries)

    return Picture(draw, options=options)

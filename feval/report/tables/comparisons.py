"""Comparisons as tables, for terminals and pages, and as tidy records; computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from feval.comparison import Comparison
from feval.comparison.statistics import AccuracyDifference, BestPoint
from feval.evaluation import Evaluation
from feval.report.tables.tables import (
    OTHER_COSTS,
    POINT_COSTS,
    Cell,
    Fields,
    Table,
    Write,
    accuracy,
    billing_note,
    cost_fields,
    cost_mark,
    cost_number,
    cost_unit,
    errors_table,
    get,
    make_table,
    marked,
    number,
    numbers,
    per_round_field,
    records_csv,
    rightness,
    share,
    timing_notes,
)
from feval.report.text import (
    counted,
    counted_questions,
    interval_name,
    p_value,
    plain_number,
    shortened,
    signed_points,
)

_MEANINGS = {
    "frontier %": (
        "in how many resampled sets of questions no other point is as cheap and as accurate"
    ),
    "p (Holm)": "p, adjusted for all differences that are tested together",
    "reversed %": (
        "in how many resampled sets of questions the other method is the more accurate one"
    ),
    "never %": "in how many resampled sets of questions the curve stays below this accuracy",
    "first %": "in how many resampled sets of questions no other method is stronger",
}
"""What a heading means, shown when a pointer rests on it."""

_BY_COST = ("ratio", "saves", "AIQ %", "its interval")
"""What compares costs, though its heading does not name their unit."""

_MOST_ROWS = 30


def comparison_tables(comparison: Comparison, *, page: bool = False) -> list[Table]:
    """All tables of a comparison: results, frontier, ranking with areas, pairs of methods, and what
    is missing; on a page also the best points, errors, and the areas apart.

    Where there are too many pairs to read on a terminal, only those with the strongest method are
    shown.
    """
    shown = _Shown(comparison, page)
    pairs = [shown.differences, shown.unequal_costs, shown.savings, shown.reaches, shown.flips]
    makers: list[Callable[[], Table]] = [shown.results, shown.frontier, shown.ranking, *pairs]
    if page:
        first = [shown.best, shown.results, shown.errors, shown.frontier]
        makers = [*first, *pairs, shown.ranking, shown.areas]
    tables = [make() for make in (*makers, shown.missing)]
    return [shown.marked(table) for table in tables if table.rows]


def named_point(comparison: Comparison, chosen: tuple[str, int]) -> tuple[Evaluation, str]:
    """A point of a method, by label and index, and its budget."""
    label, place = chosen
    curve = next(curve for curve in comparison.curves if curve.label == label)
    return curve.points[place], curve.budget_text(place)


def questions_text(comparison: Comparison) -> str:
    """How many questions there are, and which methods learnt from some of them."""
    most, judges = comparison.widest.questions, comparison.widest.judges
    learners = "; ".join(
        f"{label} is judged on {own:,}, after learning from {most - own:,}"
        for label, own in comparison.learners.items()
    )
    return counted_questions(most, comparison.left_out, judges) + f" ({learners})" * bool(learners)


def cost_text(comparison: Comparison, mean: float) -> str:
    """Write a mean cost, counted as the comparison counts it, with its unit."""
    cost = comparison.plan.cost
    return f"{cost_number(cost, mean)} {cost_unit(cost, comparison.timing, ' per question')}"


@dataclass(frozen=True)
class _Shown:
    """A comparison for a terminal, or for a page."""

    comparison: Comparison
    page: bool

    @cached_property
    def unit(self) -> str:
        return cost_unit(self.comparison.plan.cost, self.comparison.timing)

    @cached_property
    def interval(self) -> str:
        return f"#{interval_name(self.comparison.plan.confidence)}"

    @cached_property
    def strongest(self) -> str | None:
        ranking = self.comparison.ranking
        return ranking[0].label if ranking else None

    def marked(self, table: Table) -> Table:
        """A table with an asterisk at its costs where the LLMs' token counters differ, and the
        meanings of its headings.
        """
        counters = self.comparison.counters
        columns = tuple(replace(c, meaning=_MEANINGS.get(c.name)) for c in table.columns)
        also = _BY_COST if cost_mark(self.unit, counters) else ()
        return marked(replace(table, columns=columns), counters, also)

    def cost(self, *names: str, none: str = "-") -> Write:
        """What writes a cost, or an interval of them."""
        return numbers(*names, write=partial(cost_number, self.comparison.plan.cost), none=none)

    def best(self) -> Table:
        """The most accurate setting within a cost; on a terminal what is within noise of it is in
        the notes.
        """
        comparison, confidence = self.comparison, self.comparison.plan.confidence
        cost = self.cost("budget")
        fields: Fields = {
            f"#up to {self.unit}": cost,
            "method": "method",
            "budget": "setting",
            **accuracy(confidence),
            **({"#chosen from": "settings", "within noise": "close to it"} if self.page else {}),
        }
        flattered = (
            "Chosen on the questions that all methods are judged on, which flatters its accuracy;"
            f" with {100 * confidence:g} % confidence, the truly best setting is this one or one"
            " within noise of it."
        )
        notes = [flattered]
        records: list[Any] = []
        for best in comparison.best:
            if best.chosen is None:
                records.append([best, {"method": "none is as cheap", "close to it": ""}])
                continue
            setting = named_point(comparison, best.chosen)[1] or "-"
            close = _within_noise(comparison, best, None if self.page else _CLOSE)
            own = {"method": best.chosen[0], "setting": setting, "close to it": close}
            records.append([best, own])
            if not self.page:
                of = f"of {counted(best.settings, 'setting')}; within noise of it: {close}"
                notes.append(f"up to {cost(best)}: {of}")
        title = "Best at three budgets" if len(comparison.best) == 3 else "Best"
        return make_table(title, fields, records, notes, link="Best")

    def results(self) -> Table:
        """Every point of a method, and the single calls."""
        comparison = self.comparison
        records = [each for each in self.points() if each[0]["role"] != "ceiling"]
        points = [point for _, point in records]
        cost = comparison.plan.cost
        every = (*POINT_COSTS, *([cost] if cost in OTHER_COSTS else []))
        costs = {
            # a narrow terminal may leave out all but the cost that is compared
            (heading if own == cost else heading.replace("#", "~")): write
            for own in every
            for heading, write in cost_fields([own], comparison.timing).items()
        }
        fields = {
            "method": "label",
            "budget": "budget",
            **({"kind": "kind"} if len({point.kind for point in points}) > 1 else {}),
            **accuracy(comparison.plan.confidence),
            **costs,
            **per_round_field(comparison.plan.billing, points),
            **({"LLMs": "llm"} if self.page else {}),
        }
        questions = questions_text(comparison)
        # the page has that on fewer questions above its chart
        own = (note for note in comparison.warnings if note not in comparison.on_fewer)
        notes = own if self.page else results_notes(comparison)
        return make_table(
            "Results" if self.page else f"{comparison.plan.dataset}, {questions}",
            fields,
            [[own | {"budget": own["budget"] or "-"}, point] for own, point in records],
            notes,
            link="Results",
            intro=(
                "Every method at every budget; costs are means per question. Press a heading to"
                " sort."
            ),
        )

    def errors(self) -> Table:
        named = [
            ({name: own[name] for name in ("label", "budget")}, point)
            for own, point in self.points()
            if own["role"] == "method"
        ]
        intro = "Wrong answers in percent of all questions."
        fields = {"method": "label", "budget": "budget"}
        return errors_table(fields, named, link="Errors", intro=intro)

    def points(self) -> list[list[Any]]:
        """What names every point, and its evaluation, in the order of the report."""
        names = ("role", "label", "point", "budget")
        return [
            [dict(zip(names, own, strict=True)), point] for *own, point in self.comparison.points
        ]

    def frontier(self) -> Table:
        """The Pareto frontier, by cost."""
        comparison = self.comparison
        fields: Fields = {
            "method": "label",
            "budget": lambda point: named_point(comparison, (point.label, point.point))[1] or "-",
            f"#{self.unit}": self.cost("cost"),
            "#accuracy %": share("accuracy"),
            "#frontier %": share("stays"),
        }
        notes = (
            (
                "frontier %: share of resampled question sets in which no other point is as cheap"
                " and as good"
            ),
        )
        intro = "Points that no other point matches at the same cost or less."
        page = {"link": "Frontier", "intro": intro}
        title = "Pareto frontier"
        if fewer := comparison.learners.values():
            title += f" on the {min(fewer):,} questions that all are judged on"
        return make_table(title, fields, comparison.frontier, notes, **page)

    def differences(
        self, selection: Sequence[AccuracyDifference] | None = None, notes: tuple[str, ...] = ()
    ) -> Table:
        """Differences in accuracy at equal cost: a selection with `notes`, or all that can be read,
        explained.
        """
        every = self.comparison.differences
        intro = (
            "Accuracy of one method minus another's, in percentage points, at the same cost and on"
            " the same questions."
        )
        table = self._differences(
            "Difference in accuracy at equal cost, in percentage points",
            {f"#{self.unit}": self.cost("cost_a")},
            every,
            selection,
            link="Differences",
            intro=intro,
        )
        if selection is not None:
            return replace(table, notes=notes)
        if not self.page:
            return table
        note = "Between two budgets a curve is taken to be linear in the logarithm of its cost."
        return replace(table, notes=(*table.notes, note))

    def unequal_costs(self) -> Table:
        every = self.comparison.unequal_costs
        intro = (
            "These pairs share no cost: each method is at its most expensive point, and one may win"
            " by spending more."
        )
        table = self._differences(
            "Difference in accuracy, not at equal cost, in percentage points",
            {f"~{self.unit}": self.cost("cost_a"), f"~{self.unit} of other": self.cost("cost_b")},
            every,
            id="unequal-costs",
            link="At unequal cost",
            intro=intro,
        )
        return table if self.page else replace(table, notes=(intro, *table.notes))

    def _differences(
        self,
        title: str,
        costs: Fields,
        every: Sequence[AccuracyDifference],
        selection: Sequence[AccuracyDifference] | None = None,
        **page: Any,
    ) -> Table:
        """A table of differences that are tested together."""
        comparison = self.comparison
        rows, rest = self._readable(every)
        # on a page numbers of a column have equally many decimals
        points = partial(signed_points, small=not self.page)
        accuracies = {"#accuracy %": share("accuracy_a"), "#of other %": share("accuracy_b")}
        fields = {
            "method": "a",
            "minus": "b",
            **costs,
            **(accuracies if self.page else {}),
            "#points": numbers("difference", write=points),
            self.interval: numbers("low", "high", write=points),
            **({"#around 0": _around_0("difference")} if self.page else {}),
            "~reversed %": share("flips"),
            "~p": numbers("p_value", write=p_value),
            "#p (Holm)": numbers("p_holm", write=p_value),
        }
        tests = sum(row.p_value is not None for row in every)
        least = comparison.least_p(tests)
        floor = (
            f", on {counted(*comparison.evidence)} it cannot be less than {least:.2g}"
            if least >= 0.001
            else ""
        )
        notes = [
            (
                f"{counted(tests, 'comparison')}; p (Holm) is adjusted for all{floor}; intervals"
                " are not adjusted"
            )
        ]
        if self.page:
            notes.append(
                "Intervals and p come from the questions' differences, two imaginary ones among"
                f" them, reversals from {comparison.plan.resamples:,} bootstrap resamples of"
                " questions."
            )
        untested = dict.fromkeys(f"no p value: {row.untested}" for row in rows if row.untested)
        shown = rows if selection is None else selection
        page |= {"pairs": self.strongest}
        return make_table(title, fields, shown, (*rest, *notes, *untested), **page)

    def _readable(self, rows: Sequence[Any]) -> tuple[Sequence[Any], tuple[str, ...]]:
        """The rows that are shown, and a note on the others."""
        if self.page or len(rows) <= _MOST_ROWS or self.strongest is None:
            return rows, ()
        note = (
            f"pairs with {self.strongest}, the first of the ranking; all {len(rows):,} lines:"
            " comparison.json and report.html"
        )
        return [row for row in rows if self.strongest in (row.a, row.b)], (note,)

    def savings(self) -> Table:
        """Costs at equal accuracy: the ratio, and on a page what the first method saves."""
        every = self.comparison.savings
        rows, rest = self._readable(every)
        ratio: Fields = {"#ratio": number(3, "ratio"), self.interval: _ratio_range}
        fields = {
            "method": "a",
            "over": "b",
            "#accuracy %": share("accuracy"),
            f"~{self.unit}": self.cost("cost_a", none="never"),
            f"~{self.unit} of other": self.cost("cost_b", none="never"),
            **({"#saves": _saved("ratio"), self.interval: _saved_range} if self.page else ratio),
            "~never %": share("never_a"),
            "~other never %": share("never_b"),
        }
        unbounded = any(row.ratio_low is not None and row.ratio_high is None for row in rows)
        notes = (
            (
                "never: share of resampled question sets in which no budget of the method reaches"
                " the accuracy"
            ),
            *(
                "to any: the first fails to reach it so often that the ratio has no upper end"
                for _ in range(unbounded and not self.page)
            ),
        )
        intro = (
            "What the first method saves of the second's cost at the same accuracy; below 0 it"
            " costs more, and above the double it is said how many times the second's cost."
        )
        page = {"link": "Savings", "intro": intro, "pairs": self.strongest}
        return make_table("Cost at equal accuracy", fields, rows, (*rest, *notes), **page)

    def reaches(self) -> Table:
        every = self.comparison.reaches
        low, high = (self.cost(f"cost_{end}", none="never") for end in ("low", "high"))
        fields: Fields = {
            "method": "label",
            "#accuracy %": share("accuracy"),
            f"#{self.unit}": self.cost("cost", none="never"),
            self.interval: lambda row: Cell(f"{low(row)} to {high(row)}", row.cost_low),
            "#never %": share("never"),
        }
        title = "Cost to reach an accuracy"
        return make_table(title, fields, every, id="reaches", link="Cost to reach")

    def ranking(self) -> Table:
        """Strengths, and on a terminal the areas."""
        comparison = self.comparison
        every, areas = comparison.ranking, {area.label: area for area in comparison.areas}
        strength = "{:+.3f}".format
        hull = {"#AIQ %": share("area"), "~its interval": share("area_low", "area_high")}
        fields: Fields = {
            "#": "rank",
            "method": "label",
            f"~{self.unit}": self.cost("cost"),
            "#accuracy %": share("accuracy"),
            "#strength": numbers("strength", write=strength),
            self.interval: numbers("low", "high", write=strength),
            **({"#around 0": _around_0("strength")} if self.page else {}),
            "#first %": share("first"),
            **({} if self.page else hull),
        }
        where = (
            "each at its most expensive point, not at equal cost, since no cost is common to all"
        )
        if len({row.cost for row in every}) == 1:
            where = "at the highest cost that all methods share"
        of = [] if self.page or not areas else [f"AIQ: mean height of the hull {self._range()}"]
        intro = (
            f"Bradley-Terry strengths from question-by-question wins, {where}; 0 is the average of"
            " the methods."
        )
        return make_table(
            "Ranking"
            if self.page
            else "Ranking (Bradley-Terry over questions) and area under the hull (AIQ)",
            fields,
            [[row, areas.get(row.label)] for row in every],
            [] if self.page else [f"ranking: {where}", *of],
            link="Ranking",
            intro=intro,
        )

    def flips(self) -> Table:
        """The price at which the cheaper of two methods changes."""
        comparison = self.comparison
        points = {curve.label: curve for curve in comparison.curves}

        def setting(label: str, point: str) -> Write:
            return lambda row: (
                f"{get(row, label)} {points[get(row, label)].budget_text(get(row, point))}".strip()
            )

        fields: Fields = {
            "A": setting("a", "point_a"),
            "B": setting("b", "point_b"),
            "cheaper": lambda row: (
                "the same" if row.cheaper is None
                else f"{row.cheaper} {'always' if row.price is None else 'below'}"
            ),
            "#USD per million": numbers("price", write=plain_number, none="no price"),
            self.interval: numbers("low", "high", write=plain_number),
            "#no flip %": share("no_flip"),
        }  # fmt: skip
        notes = (
            "Each method where it is most accurate; which is cheaper, not which is more accurate.",
            "The interval is of the resamples in which it flips.",
        )
        title = f"Where the cheaper method changes as {comparison.plan.vary} varies"
        return make_table(title, fields, comparison.flips, notes)

    def areas(self) -> Table:
        every = self.comparison.areas
        interval = share("area_low", "area_high")
        fields: Fields = {"method": "label", "#AIQ %": share("area"), self.interval: interval}
        of = f" {self._range()}" if every else ""
        intro = f"Average height of each curve's convex hull{of} (RouterBench's AIQ)."
        title = "Area under each curve"
        return make_table(title, fields, every, link="Areas", intro=intro)

    def _range(self) -> str:
        """Over which costs the areas are."""
        costs = self.cost("low_cost", "high_cost")(self.comparison.areas[0])
        return f"from {costs} {self.unit}; beyond a method's last point its hull is level"

    def missing(self) -> Table:
        fields = {"method": "label", "reason": "reason"}
        intro = (
            "What was asked for and could not be evaluated; everything else on this page is not"
            " affected by it."
        )
        page = {"link": "Missing", "intro": intro}
        missing = self.comparison.missing + self.comparison.absent
        return make_table("Missing", fields, missing, **page)


def _around_0(middle: str) -> Write:
    """A picture of an interval; its dot is open where nothing was tested."""

    def write(row: Any) -> str:
        low, value, high, untested = (
            get(row, name) for name in ("low", middle, "high", "untested")
        )
        return Cell("", value, [low, value, high], is_open=untested is not None)

    return write


def _ratio_range(row: Any) -> str:
    if row.ratio_low is None:
        return "-"
    high = "any" if row.ratio_high is None else f"{row.ratio_high:.3f}"
    return f"{row.ratio_low:.3f} to {high}"


def _saved(name: str) -> Write:
    """What a method saves that costs so many times as much as another."""

    def write(row: Any) -> str:
        ratio = get(row, name)
        if ratio is None:
            return Cell("-", None)
        times = f"{ratio:,.1f} times the cost"
        return Cell(times if ratio > 2 else f"{100 * (1 - ratio):+.1f} %", 1 - ratio)

    return write


def _saved_range(row: Any) -> str:
    low, high = _saved("ratio_high")(row), _saved("ratio_low")(row)
    if row.ratio_low is None and row.ratio_high is None:
        return low
    ends = ("unbounded" if end == "-" else end for end in (low, high))
    return Cell(" to ".join(ends), None if row.ratio_high is None else 1 - row.ratio_high)


def results_notes(comparison: Comparison) -> tuple[str, ...]:
    """How the points were computed and paid, and the warnings."""
    first, kinds = comparison.widest, list(comparison.kinds)
    points = [point for curve in comparison.curves for point in curve.points]
    others = counted(first.train_questions, "other question")
    split = f"; learnt from {others}" if first.train_questions else ""
    draws = (
        f"; seeded points average {comparison.plan.replicates} draws of each question, seed"
        f" {comparison.plan.seed}"
    )
    return (
        f"{', '.join(kinds)}{draws if 'seeded' in kinds else ''}{split}",
        billing_note(first.billing, first.prices, points),
        *timing_notes(comparison.timing),
        *dict.fromkeys(
            f"{each.label}: {each.points[-1].learnt_text}"
            for each in comparison.curves
            if each.points[-1].learnt
        ),
        *comparison.warnings,
    )


def _within_noise(comparison: Comparison, best: BestPoint, most: int | None = None) -> str:
    """The settings that may be as good as the best, by method; the first `most` methods, more
    settings of one as a number.
    """
    settings: dict[str, list[str]] = {}
    for close in best.close:
        settings.setdefault(close[0], []).append(named_point(comparison, close)[1])
    named = []
    for label, budgets in settings.items():
        several = counted(len(budgets), "setting")
        listed = several if most and len(budgets) > most else ", ".join(filter(None, budgets))
        named.append(f"{label} ({listed})" if listed else label)
    others = len(named) - (most or len(named))
    more = f"; and {counted(others, 'method')} more" if others > 0 else ""
    return "; ".join(named[:most]) + more if named else "none"


def comparison_answer(comparison: Comparison) -> str:
    """Return what was compared, and the best of it."""
    points = sum(len(curve.points) for curve in comparison.curves)
    best = comparison.best[-1]
    most = cost_text(comparison, best.budget)
    said = "none is as cheap as was asked for"
    if best.chosen is not None:
        budget = named_point(comparison, best.chosen)[1]
        said = f"{best.chosen[0]}{f', {budget}' if budget else ''}, {rightness(best)}"
        # on the questions that it was chosen on, as its accuracy is
        cost = {(point.label, point.point): point.cost for point in comparison.frontier}
        if (own := cost_text(comparison, cost.get(best.chosen, best.budget))) != most:
            said += f" for {own.partition(' ')[0]}"
    missing = f"; {counted(len(comparison.missing), 'missing point')}" if comparison.missing else ""
    return (
        f"{comparison.plan.dataset}, {questions_text(comparison)},"
        f" {counted(len(comparison.curves), 'method')}, {counted(points, 'point')}; best up to"
        f" {most}: {said}{missing}"
    )


_FRONTIER_ROWS, _DIFFERENCE_ROWS, _MISSING_ROWS, _CLOSE = 6, 5, 3, 3
_LONGEST_REASON = 160


def headline(
    comparison: Comparison, every: str | None = "--all", page: str = "--out DIR"
) -> list[str | Table]:
    """What `feval compare` prints first, in at most 40 lines: the best method at three budgets, the
    frontier, significant differences, and what failed.

    `every` is what shows the rest, `None` where all tables follow, and `page` what writes it.
    """
    rest = "" if every is None else f": {every}"
    shown = _Shown(comparison, page=False)
    frontier = shown.frontier()
    if (more := len(frontier.rows) - _FRONTIER_ROWS) > 0:
        # some points from the cheapest to the most expensive
        places = np.linspace(0, len(frontier.rows) - 1, _FRONTIER_ROWS).round().astype(int)
        notes = (*frontier.notes, f"{more:,} points between these{rest}")
        rows = tuple(frontier.rows[place] for place in places.tolist())
        frontier = replace(frontier, rows=rows, notes=notes)
    pieces: list[str | Table] = [
        comparison_answer(comparison),
        "",
        shown.best(),
        "",
        frontier,
        "",
        *_significant(shown),
    ]
    if comparison.flips:
        pieces += ["", shown.flips()]
    if missing := comparison.missing + comparison.absent:
        pieces += ["", "Missing"]
        for one in missing[:_MISSING_ROWS]:
            pieces.append(f"  {one.label}: {shortened(one.reason, _LONGEST_REASON)}")
        if (more := len(missing) - _MISSING_ROWS) > 0:
            pieces.append(f"  and {more:,} more{rest}")
    if every is not None:
        hint = f"All points, differences, savings and the ranking{rest}, or report.html with {page}"
        pieces += ["", *results_notes(comparison), "", f"{hint}."]
    # what the marks mean is among the notes at the end
    return [
        replace(shown.marked(piece), notes=piece.notes) if isinstance(piece, Table) else piece
        for piece in pieces
    ]


def _significant(shown: _Shown) -> list[str | Table]:
    """The clearest significant difference of each pair, the strongest method first, or a sentence
    that there is none; and one on pairs that are not compared at equal cost.
    """
    comparison = shown.comparison
    apart: list[str | Table] = []
    if count := len(comparison.unequal_costs):
        words = "shares no cost and is" if count == 1 else "share no cost and are"
        apart = [f"{counted(count, 'pair')} of methods {words} compared apart."]
    if not comparison.tests:
        return apart or ["No two methods were compared at equal cost."]
    level = 1 - comparison.plan.confidence
    rows = comparison.significant(comparison.differences)
    tests = counted(comparison.tests, "comparison")
    if not rows:
        sentence = (
            f"No difference in accuracy at equal cost is significant: p (Holm) is above {level:.2g}"
            f" in {tests}."
        )
        if (least := comparison.least_p(comparison.tests)) > level:
            sentence += f" On {counted(*comparison.evidence)} it cannot be less than {least:.2g}."
        return [sentence, *apart]
    best = shown.strongest
    rows.sort(key=lambda row: (best not in (row.a, row.b), row.p_holm, -abs(row.difference)))
    pairs = list({(row.a, row.b): row for row in reversed(rows)}.values())[::-1]
    note = f"{len(rows):,} of {tests} have p (Holm) up to {level:.2g}"
    if len(pairs) > _DIFFERENCE_ROWS:
        note += f"; shown: one of each pair, those with {best} first"
    return [shown.differences(pairs[:_DIFFERENCE_ROWS], (note,)), *apart]


def results_csv(comparison: Comparison) -> str:
    """Return `results.csv`: yes or no for what is on the frontier or not."""
    words = {True: "yes", False: "no"}
    records = comparison.records()
    return records_csv([each | {"frontier": words[each["frontier"]]} for each in records])

"""`report.html`: a comparison as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from feval import __version__
from feval.comparison.comparison import budget_label
from feval.replay.draws import SCHEME
from feval.report import pictures
from feval.report.page.document import UNVERIFIED, html_page
from feval.report.page.questions import Caps, question_book
from feval.report.page.surface import surface_picture
from feval.report.page.tables import page_scale, page_tables
from feval.report.palette import page_shapes, places
from feval.report.tables.comparisons import named_point
from feval.report.tables.cost_axes import AXES, cost_words, questions_of
from feval.report.tables.tables import cost_mark
from feval.report.text import counted, counted_questions, percent, plain_number

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison, Traces
    from feval.comparison.runner import MethodCurve
    from feval.evaluation.evaluation import Evaluation
    from feval.evaluation.surface import Surface
    from feval.replay import LLM, Dataset

_KINDS = {
    "exact": "expectation over all draws",
    "recorded": "recorded order",
    "seeded": "mean over seeded draws",
}
_SURFACE = (
    "Accuracy of votes over n traces that are each cut after so many tokens; feval surface --out"
    " has all points."
)
_DRAWN = {
    "exact": "exact expectations",
    "recorded": "CoTs in recorded order",
    "seeded": "{:,} replicates",
}
_BILLINGS = {
    "once": "once per LLM and question",
    "per_round": "with each request",
    "per_sample": "with each CoT",
}


def comparison_page(
    comparison: Comparison,
    dataset: Dataset,
    llms: Sequence[LLM],
    *,
    traces: Traces | None = None,
    surfaces: Sequence[Surface] = (),
    caps: Caps | None = None,
    verify: Sequence[str] = (),
) -> str:
    """Return a comparison as an HTML page, to be written as UTF-8.

    The dataset and all LLMs that it names are from the same `load`. Without `traces`, the questions
    are left out. Sentences in `verify` say how to check the receipt; one that begins with "$ " is
    shown as a command.
    """
    data = _data(comparison)
    data["facts"] = _facts(comparison, llms, __version__)
    data["verify"] = list(verify) or UNVERIFIED
    data["pictures"] = [
        surface_picture(surface, pictures.surface(surface).svg()) | {"note": _SURFACE}
        for surface in surfaces
    ]
    if traces is not None:
        data["explorer"] = question_book(
            dataset, llms, traces, comparison.plan.seed, caps or Caps()
        )
    title = f"Methods compared on {comparison.plan.dataset}"
    return html_page(title, _lede(comparison), data, result=_result(comparison))


def _evaluations(comparison: Comparison) -> list[Evaluation]:
    return [
        *(point for curve in comparison.curves for point in curve.points),
        *comparison.baselines,
    ]


def _result(comparison: Comparison) -> list[str]:
    """The result in two sentences, methods in every second piece: the best at three budgets, and
    whether methods differ.
    """
    if not comparison.curves:
        return []
    scale = page_scale(comparison) if comparison.plan.cost == "usd" else 1
    unit = f" {cost_words(comparison.plan.cost, comparison.timing)[1]} per {questions_of(scale)}"
    pieces, before = ["Most accurate: "], None
    for best in comparison.best:
        most = scale * best.budget
        pieces[-1] += "; " if before else ""
        pieces[-1] += f"within {f'{most:,.0f}' if most >= 1000 else plain_number(most)}{unit}, "
        unit, noise = (
            "",
            (
                f" (of {counted(best.settings, 'setting')}, {counted(len(best.close), 'other')}"
                " within noise of it)"
            ),
        )
        if best.chosen is None:
            pieces[-1] += "there is none"
        elif before and best.chosen == before.chosen:
            pieces[-1] += f"the same{noise}"
        else:
            point, label = named_point(comparison, best.chosen)
            right = (
                f"{f' ({label})' if label else ''} with"
                f" {percent(point.accuracy)}\N{NO-BREAK SPACE}% right{noise}"
            )
            pieces += [best.chosen[0], right]
        before = best
    pieces[-1] += "."
    if comparison.tests:
        level = 1 - comparison.plan.confidence
        clear = sum(
            row.p_holm is not None and row.p_holm <= level for row in comparison.differences
        )
        significant = f"{'is' if clear < 2 else 'are'} significant (p (Holm) up to {level:.2g})"
        pieces[-1] += (
            f" At equal cost, {clear or 'none'} of {counted(comparison.tests, 'difference')}"
            f" {significant}."
        )
    if count := len(comparison.unequal_costs):
        pieces[-1] += (
            f" {counted(count, 'pair')} of methods {'shares' if count == 1 else 'share'} no cost."
        )
    return pieces


def _lede(comparison: Comparison) -> list[str]:
    evaluations = _evaluations(comparison)
    if not evaluations:
        return ["No method could be evaluated; see what is missing below."]
    names = list(dict.fromkeys(name for one in evaluations for name in one.llms))
    kinds = list(dict.fromkeys(_kind(one) for one in evaluations))
    methods = f"{len(comparison.curves)} method{'' if len(comparison.curves) == 1 else 's'}"
    same = (
        f"the same {evaluations[0].questions:,} questions and the same recorded CoTs of"
        f" {', '.join(names)}"
    )
    return [f"{methods} on {same}. Numbers: {'; '.join(kinds)}."]


def _kind(evaluation: Evaluation) -> str:
    return (
        f"mean over {evaluation.replicates} seeded draws"
        if evaluation.kind == "seeded"
        else _KINDS[evaluation.kind]
    )


def _facts(comparison: Comparison, llms: Sequence[LLM], version: str) -> list[tuple[str, str]]:
    """Name and value of everything the numbers rest on."""
    plan, evaluations = comparison.plan, _evaluations(comparison)
    first = evaluations[0] if evaluations else None
    prices = llms[0].prices if llms else None
    unpriced = (
        "" if any(llm.price is not None for llm in llms) else "; it has no price of these LLMs"
    )
    kinds = " and ".join(_DRAWN[kind].format(plan.replicates) for kind in comparison.kinds)
    facts = [
        ("dataset", plan.dataset),
        ("questions", counted_questions(first.questions, comparison.left_out) if first else "-"),
        ("recordings", ", ".join(first.recording_hashes) if first else "-"),
        ("LLMs", ", ".join(llm.name for llm in llms)),
        ("price list", f"{prices.id}, digest {prices.digest}{unpriced}" if prices else "none"),
        ("billing", f"prompts are charged {_BILLINGS[plan.billing]} ({plan.billing})"),
        ("token counter", ", ".join(dict.fromkeys(llm.counter for llm in llms))),
        ("draws", f"{SCHEME}, seed {plan.seed}; {kinds}"),
        (
            "intervals",
            (
                f"{100 * plan.confidence:g} % over questions; for costs, ratios and areas from"
                f" {plan.resamples:,} resamples"
            ),
        ),
        ("feval", version),
    ]
    if comparison.timing is not None:
        facts.insert(-1, ("seconds", str(comparison.timing)))
    if (split := plan.split_text()) is not None:
        facts.insert(2, ("learnt from", split))
    return facts


def _data(comparison: Comparison) -> dict[str, Any]:
    evaluations = _evaluations(comparison)
    known = [name for name in AXES if any(one.mean_cost(name) for one in evaluations)]
    return {
        "axes": [_axis(comparison, name) for name in known],
        "axis": comparison.plan.cost,
        "band": f"{100 * comparison.plan.confidence:g} % interval",
        "curves": [
            {
                "label": curve.label,
                "llms": curve.entry.llms,
                "points": _points(curve),
                "look": places(i),
            }
            for i, curve in enumerate(comparison.curves)
        ],
        "shapes": page_shapes(),
        "baselines": [
            {**_point(one, ""), "label": ", ".join(one.llms)} for one in comparison.baselines
        ],
        "ceilings": [
            {"label": curve.label, "points": _points(curve)} for curve in comparison.ceilings
        ],
        "frontier": [[point.cost, point.accuracy] for point in comparison.frontier],
        "tables": page_tables(comparison),
    }


def _axis(comparison: Comparison, name: str) -> dict[str, Any]:
    scale = page_scale(comparison) if name == "usd" else 1
    words = cost_words(name, comparison.timing)
    mark = cost_mark(words[1], comparison.counters)
    label, short, unit = (text.replace("question", questions_of(scale)) + mark for text in words)
    return {"key": name, "label": label, "short": short, "unit": unit, "scale": scale}


def _points(curve: MethodCurve) -> list[dict[str, Any]]:
    return [_point(one, budget_label(curve.entry, one)) for one in curve.points]


def _point(evaluation: Evaluation, budget: str) -> dict[str, Any]:
    return {
        "b": budget,
        "x": {name: evaluation.mean_cost(name) for name in AXES},
        "y": evaluation.accuracy,
        "low": evaluation.accuracy_low,
        "high": evaluation.accuracy_high,
        "kind": _kind(evaluation),
    }

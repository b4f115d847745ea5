"""Forecasts, budget plans and coupled LLMs as tables, and as tidy records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from feval.forecast.coupled import CoupledPair
from feval.forecast.forecasts import COMPLETIONS, PLUG_IN
from feval.report.tables.results import Records
from feval.report.tables.tables import (
    Fields,
    Table,
    Write,
    billing_note,
    columns,
    csv_text,
    make_table,
    number,
    per_questions,
    share,
)
from feval.report.text import (
    counted,
    counted_questions,
    decimals_for,
    fixed,
    interval_name,
    percent,
    percents,
)

if TYPE_CHECKING:
    from feval.forecast import BudgetPlan, EstimatePoint, Forecast
    from feval.forecast.coupled import Coupling

FORECAST_COLUMNS = (
    "method", "of", "m", "accuracy", "bound_low", "bound_high", "low", "high", "pool", "error",
    "reason",
)  # fmt: skip
"""Columns of `estimate.csv`; an empty cell is a missing number, and `reason` says why it is
missing.
"""

_FEW = 12
_ROUND = frozenset(
    (1, 2, 3, 5, 7, 9, 10, 15, 20, 21, 30, 31, 40, 41, 60, 80, 100, 101, 200, 300, 500, 501, 1000,
     1001)
)  # fmt: skip


def landmarks(m: Sequence[int], *always: int) -> tuple[int, ...]:
    """Return the numbers of votes in ascending `m` that a table shows: all of a few, else the ends,
    round ones and `always`.
    """
    kept = {*_ROUND, *always, *m[:1], *m[-1:]}
    return tuple(votes for votes in m if len(m) <= _FEW or votes in kept)


def forecast_tables(forecast: Forecast) -> list[Table]:
    """Return a table of the curves at some numbers of votes, and one of the estimators' errors."""
    return [_curves(forecast), _errors(forecast)]


def _curves(forecast: Forecast) -> Table:
    shown = landmarks(forecast.m, forecast.g, forecast.pool.size)
    majority = any(curve.of == "majority" for curve in forecast.estimates)
    cells = {
        "#M": map(str, forecast.m),
        "#pool %": map(percent, forecast.pool.plurality),
        **({"#majority %": map(percent, forecast.pool.majority)} if majority else {}),
        **{f"#{curve.method} %": map(_estimate, curve.points) for curve in forecast.estimates},
    }
    rows = zip(forecast.m, zip(*cells.values(), strict=True), strict=True)
    questions = counted_questions(forecast.questions, forecast.left_out)
    evidence = f"pool: exact, all subsets of M of {counted(forecast.pool.size, 'recorded call')}"
    calls = counted(forecast.g, "call")
    return Table(
        f"Accuracy of M votes on {forecast.dataset}, {forecast.llm}, from {calls} per question",
        columns(*cells),
        tuple(row for votes, row in rows if votes in shown),
        (
            f"{questions}; replicate {forecast.replicate}, seed {forecast.seed} of draws-v1",
            f"{evidence}; majority: of right calls" if majority else evidence,
        ),
    )


def _estimate(point: EstimatePoint) -> str:
    if point.accuracy is not None:
        return percent(point.accuracy)
    return percents(point.bound_low, point.bound_high)


def _errors(forecast: Forecast) -> Table:
    fields: Fields = {
        "method": "method",
        "#largest M": "m",
        f"#{interval_name(forecast.confidence)} there %": share("low", "high"),
        "#mean |error|": share("mean"),
        "#largest |error|": share("worst"),
        "#at M": "at",
    }
    records: list[Any] = []
    for curve in forecast.estimates:
        last = next((point for point in reversed(curve.points) if point.low is not None), None)
        errors = zip(forecast.errors(curve), forecast.m, strict=True)
        known = [(abs(error), m) for error, m in errors if error is not None and last is not None]
        mean = sum(error for error, _ in known) / len(known) if known else None
        worst, at = max(known, key=itemgetter(0), default=(None, None))
        records.append([curve, last, {"mean": mean, "worst": worst, "at": at if worst else None}])
    title = "Error against the whole pool, in points"
    return make_table(title, fields, records, _covered(forecast))


def _covered(forecast: Forecast) -> tuple[str, ...]:
    """Notes on what the intervals cover and what they do not."""
    names = [curve.method for curve in forecast.estimates]
    biased, models = (
        ", ".join(name for name in names if name in group) for group in (PLUG_IN, COMPLETIONS)
    )
    not_covered = [
        *([f"the bias of {biased}"] if biased else []),
        *([f"whether the law that {models} assumes is the right one"] if models else []),
        "calls that depend on each other",
    ]
    bounds = ["two-call: how far the pool lies outside its bounds"] if "two-call" in names else []
    return (
        *bounds,
        "intervals cover the luck of which questions and which calls were drawn",
        f"they do not cover {', or '.join(not_covered)}",
    )


def forecast_csv(forecast: Forecast) -> str:
    """Return the CSV text of a forecast: `FORECAST_COLUMNS`, one line per estimator and number of
    votes.
    """
    return csv_text(FORECAST_COLUMNS, (each.values() for each in forecast_records(forecast)))


def forecast_records(forecast: Forecast) -> Records:
    """Return a record of `FORECAST_COLUMNS` per estimator and number of votes."""
    size = forecast.pool.size
    beyond = f"The pool has {counted(size, 'call')} per question."
    records = []
    for curve in forecast.estimates:
        pool = forecast.pool.plurality if curve.of == "plurality" else forecast.pool.majority
        for point, true, error in zip(curve.points, pool, forecast.errors(curve), strict=True):
            numbers = [getattr(point, name) for name in FORECAST_COLUMNS[3:8]] + [true, error]
            written = (None if each is None else float(each) for each in numbers)
            why = filter(None, (point.reason, beyond if point.m > size else None))
            values = (curve.method, curve.of, point.m, *written, " ".join(why))
            records.append(dict(zip(FORECAST_COLUMNS, values, strict=True)))
    return records


def plan_tables(plan: BudgetPlan) -> list[Table]:
    """Return a table of what to buy, and one of the votes considered."""
    return [_summary(plan), _votes(plan)]


def _unit(plan: BudgetPlan) -> str:
    return "USD" if plan.budget.unit == "usd" else "tokens"


def _summary(plan: BudgetPlan) -> Table:
    bought, split = plan.purchase, plan.estimating
    rho = f"correlation of two calls {fixed(plan.rho, 3)}"
    if plan.rho_reason is not None:
        rho += f" ({plan.rho_reason})"
    certified = [str(option.votes) for option in plan.options if option.certified]
    together = [str(option.votes) for option in plan.options if option.certified_together]
    prompt, output = fixed(plan.prompt_tokens, 1), fixed(plan.output_tokens, 1)
    error = f"self-consistency error within {percent(split.bound**0.5)} points (root mean square)"
    interval = percents(bought.plurality_low, bought.plurality_high)
    beyond = "" if bought.plurality_kind == "subsets" else ", at the pilot's shares"
    usd = "" if bought.usd is None else f"{fixed(bought.usd, decimals_for([bought.usd]))} USD, "
    budget = f"{plan.budget.amount:,.10g} {_unit(plan)}"
    rows = (
        ("budget", f"{budget} for {counted(plan.questions, 'question')}"),
        (
            "pilot",
            f"{counted_questions(plan.pilot_questions, plan.left_out)} x {plan.pilot_calls} calls",
        ),
        (
            "a question costs",
            f"{prompt} prompt tokens, {output} output tokens per call; billing {plan.billing}",
        ),
        ("one call", f"{percent(plan.options[0].plurality)} %, {rho}"),
        ("buy", f"{counted(bought.votes, 'vote')} on {counted(bought.questions, 'question')}"),
        (
            "expect",
            f"{percent(bought.plurality)} % of questions right by plurality, {interval}{beyond}",
        ),
        ("it costs", f"{usd}{bought.tokens:,.0f} tokens"),
        ("why", bought.why),
        ("certified to help", ", ".join(certified) or "no odd vote that was looked at"),
        ("all at once", ", ".join(together) or "none"),
        (
            "to estimate",
            f"{counted(split.questions, 'question')} x {counted(split.calls, 'call')}: {error}",
        ),
    )
    return Table(f"Plan for {plan.llm} on {plan.dataset}", columns("", ""), rows)


def _votes(plan: BudgetPlan) -> Table:
    shown = landmarks([option.votes for option in plan.options], plan.purchase.votes)
    options = [option for option in plan.options if option.votes in shown]
    decimals = decimals_for(option.cost_per_question for option in options)
    level = f"{100 * plan.confidence:g} %"
    beyond = options[-1].plurality_kind == "plug-in"
    plurality, marks = share("plurality"), {"subsets": "  ", "plug-in": " *"}
    fields: Fields = {
        "#votes": lambda option: str(option.votes),
        "#plurality %": lambda option: (
            plurality(option) + (marks[option.plurality_kind] if beyond else "")
        ),
        f"#{level} interval": share("plurality_low", "plurality_high"),
        "#majority, surely %": share("majority_low", "majority_high"),
        "#sure gain": lambda option: (
            f"{100 * option.majority_gain_low:+.2f}"
            if option.votes > 1 and option.majority_low is not None
            else "-"
        ),
        "#certified": "certified",
        "#together": "certified_together",
        f"#{per_questions(_unit(plan))}": number(decimals, "cost_per_question"),
        "#questions paid": "questions",
    }
    rests = billing_note(plan.billing, plan.prices, plan.options)
    notes = (
        "plurality: exact, over all subsets of M of a question's calls"
        + f"; *: beyond M = {plan.pilot_calls}, at the pilot's shares, where it levels off"
        * beyond,
        (
            "majority, surely: over half of the calls right, as far as the pilot's calls and pairs"
            f" of calls tell, at {level}"
        ),
        (
            "sure gain: the least that a majority, and so a plurality, gains over one call, in"
            " points; certified: it is above 0"
        ),
        "together: certified with all other votes at once, by one region for all"
        + (f", over a family of {plan.family} plans" if plan.family > 1 else ""),
        f"{rests}; seed {plan.seed}",
    )
    return make_table("Votes", fields, options, notes)


def short_names(llms: Sequence[str]) -> dict[str, str]:
    """LLM -> its name without maker and variant, or the full name if short names are not unique."""
    short = {name: name.partition("@")[0].rpartition("/")[2] for name in llms}
    return short if len(set(short.values())) == len(short) else {name: name for name in llms}


def coupling_tables(coupling: Coupling) -> list[Table]:
    """Tables of pairs and of what coupling saves (both only with golds), and of ranks under both
    schemes.
    """
    pairs = [_pairs(coupling), _savings(coupling)] if coupling.pairs else []
    return [*pairs, _ranks(coupling)]


def coupling_csv(coupling: Coupling) -> str:
    """Return all numbers of every pair and area as CSV."""
    names = [field.name for field in dataclasses.fields(CoupledPair)]
    return csv_text(names, ([getattr(pair, name) for name in names] for pair in coupling.pairs))


def _named(coupling: Coupling) -> Fields:
    short = short_names(coupling.llms)
    return {
        "LLMs": lambda pair: f"{short[pair.first]} - {short[pair.second]}",
        "area": lambda pair: pair.area or "all",
    }


def _pairs(coupling: Coupling) -> Table:
    def ratio(pair: CoupledPair) -> str:
        independent = pair.variance_independent
        return fixed(pair.variance_coupled / independent if independent > 0 else None, 3)

    fields: Fields = {
        **_named(coupling),
        "#questions": "questions",
        "#difference": number(4, "difference"),
        "#covariance": number(4, "covariance"),
        "#interval": number(4, "covariance_low", "covariance_high"),
        "#of answer laws": number(4, "law_covariance"),
        "#coupled": number(4, "variance_coupled"),
        "#independent": number(4, "variance_independent"),
        "#ratio": ratio,
    }
    source = (
        "recordings with noise of their own"
        if coupling.independent_from == "recordings"
        else "other calls of the same recordings"
    )
    scheme, seed = coupling.noise
    notes = (
        (
            "difference: of accuracies; covariance: of being right, within a question, under shared"
            " noise"
        ),
        (
            "of answer laws: the covariance if each answer were one token; the variances are over"
            " questions and noise"
        ),
        f"independent pairs: {source}; intervals: {100 * coupling.confidence:g} %, over questions",
    )
    title = (
        f"Variance of the difference in being right on {coupling.dataset}, noise {scheme} {seed}"
    )
    return make_table(title, fields, coupling.pairs, notes)


def _savings(coupling: Coupling) -> Table:
    def known(write: Write) -> Write:
        return lambda pair: "-" if None in (pair.error, pair.ratio) else write(pair)

    fields: Fields = {
        **_named(coupling),
        "#independent pairs": lambda pair: str(pair.independent_samples),
        "#mean |error|": known(number(4, "error")),
        "#coupled pairs": known(lambda pair: str(pair.coupled_samples)),
        "#ratio": known(number(3, "ratio")),
        "#interval": known(number(3, "ratio_low", "ratio_high")),
        "#same answer %": share("agreement_coupled"),
        "#independent %": share("agreement_independent"),
    }
    notes = (
        (
            "errors: exact, over all choices of so many of the recorded pairs; ratio: coupled for"
            " each independent pair"
        ),
    )
    title = "Pairs of calls for the same error of the estimated difference"
    return make_table(title, fields, coupling.pairs, notes)


def _ranks(coupling: Coupling) -> Table:
    count = len(coupling.llms)
    halves = zip(coupling.ranking[:count], coupling.ranking[count:], strict=True)
    rows = sorted(halves, key=lambda half: (half[0].rank, -half[0].winrate))
    change = "no two LLMs change places between the two"
    if coupling.changes:
        moved = "; ".join(
            f"{first} and {second} (p = {p:.3g})" for first, second, p in coupling.changes
        )
        pairs = counted(count * (count - 1) // 2, "pair")
        change = f"change places between the two: {moved}; Holm's p over {pairs}"
    numbers: dict[str, Write] = {
        "#rank": lambda entry: " to ".join(map(str, dict.fromkeys((entry.rank, entry.worst_rank)))),
        "#win-rate %": share("winrate"),
        "#interval": share("low", "high"),
        "#ties %": share("ties"),
        "#Bradley-Terry": number(3, "strength"),
    }
    return Table(
        title=f"Average win-rates by {coupling.compared_by}: coupled, then independent",
        columns=columns("LLM", *numbers, *numbers),
        rows=tuple(
            (half[0].llm, *(write(entry) for entry in half for write in numbers.values()))
            for half in rows
        ),
        notes=(
            "ranks: LLMs whose intervals overlap share one; a span is the interval of the rank",
            f"win-rate: share of comparisons won, averaged over the other LLMs; {change}",
        ),
    )

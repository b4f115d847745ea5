"""Forecasts, budget plans and coupled LLMs as tables, and as tidy records."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter

from feval.forecast import BudgetPlan, EstimatedCurve, EstimatePoint, Forecast
from feval.forecast.coupled import CoupledPair, Coupling
from feval.report.tables.tables import (
    Fields,
    Records,
    Table,
    Write,
    billing_note,
    columns,
    cost_number,
    cost_unit,
    csv_text,
    make_table,
    number,
    numbers,
    share,
)
from feval.report.text import (
    counted,
    counted_questions,
    fixed,
    percent,
    percents,
    plain_number,
    price_words,
    usd_per_1000,
)

FORECAST_COLUMNS = (
    "method", "of", "m", "accuracy", "bound_low", "bound_high", "low", "high", "pool", "error",
    "tokens_per_question", "usd_per_question", "reason",
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
    """Return a table of the curves of pluralities and one of majorities, where an estimator has
    them, at some numbers of votes, with intervals and errors below; the first note of the first is
    the answer in a sentence.
    """
    shown = landmarks(forecast.m, forecast.g, forecast.pool.size)
    level = f"{100 * forecast.confidence:g} %"
    notes = (
        (
            f"{level} low, high: at the largest M of an estimator; they cover which questions"
            " and calls were drawn, not an estimator's bias, a wrong model, or calls that"
            " depend on each other"
        ),
        (
            "*: recommended; errors: against the whole pool, in points, and M of the worst; of"
            " two-call, how far the pool lies outside"
        ),
        (
            f"pool: exact, all subsets of M of {counted(forecast.pool.size, 'recorded call')};"
            f" {counted_questions(forecast.questions, forecast.left_out)}; replicate"
            f" {forecast.replicate}, seed {forecast.seed} of draws-v1"
        ),
        f"billing {forecast.billing}; {price_words(forecast.prices, forecast.usd_per_question)}",
    )
    tables: list[Table] = []
    for of, words in (("plurality", "M votes"), ("majority", "a majority of M right calls")):
        curves = [curve for curve in forecast.estimates if curve.of == of]
        if not curves:
            continue
        costs = {} if tables else _costs(forecast)
        cells = {
            "#M": map(str, forecast.m),
            "#pool %": map(percent, getattr(forecast.pool, of)),
            **{
                f"#{curve.method} %{' *' * (curve is forecast.recommended)}": map(
                    _estimate, curve.points
                )
                for curve in curves
            },
            **costs,
        }
        rows = zip(forecast.m, zip(*cells.values(), strict=True), strict=True)
        ends = [_last(curve) for curve in curves]
        below = {
            f"{level} low": [percent(end.low if end else None) for end in ends],
            f"{level} high": [percent(end.high if end else None) for end in ends],
            **_errors(forecast, curves),
        }
        table = Table(
            f"Accuracy of {words} on {forecast.dataset}, {forecast.llm}, from"
            f" {counted(forecast.g, 'call')} per question",
            columns(*cells),
            (
                *(row for votes, row in rows if votes in shown),
                *((name, "", *own, *[""] * len(costs)) for name, own in below.items()),
            ),
            () if tables else (forecast_answer(forecast),),
        )
        tables.append(table)
    tables[-1] = dataclasses.replace(tables[-1], notes=(*tables[-1].notes, *notes))
    return tables


def forecast_answer(forecast: Forecast) -> str:
    """Return what to expect of votes, by the recommended estimator, and what the pool measures."""
    curve, pool, g = forecast.recommended, forecast.pool, forecast.g
    if curve is None:
        return (
            f"No estimator asked for is recommended: unbiased is, up to M = {g}; for more votes,"
            " estimate from more calls."
        )
    point = _last(curve) or curve.points[0]
    place = forecast.m.index(point.m)
    dollars, measured = forecast.usd_per_question[place], pool.plurality[place]
    cost = "" if dollars is None else f", for {usd_per_1000(dollars)} USD per 1,000 questions"
    others = [at for at, m in enumerate(forecast.m) if g < m <= pool.size][-1:]
    more = "".join(
        f", and {percent(pool.plurality[at])} % for {forecast.m[at]} votes" for at in others
    )
    return (
        f"Expect {percent(point.accuracy)} % right from {counted(point.m, 'vote')}"
        f" ({percents(point.low, point.high)}){cost}, by {curve.method}, the recommended estimator;"
        f" the whole pool measures {percent(measured)} %{more}."
    )


def _costs(forecast: Forecast) -> dict[str, Iterable[str]]:
    """A column of USD where they are known, else of tokens where these are."""
    for cost in ("usd", "tokens"):
        means = getattr(forecast, f"{cost}_per_question")
        if means[0] is not None:
            return {f"#{cost_unit(cost, None)}": [cost_number(cost, each) for each in means]}
    return {}


def _estimate(point: EstimatePoint) -> str:
    if point.accuracy is not None:
        return percent(point.accuracy)
    return percents(point.bound_low, point.bound_high)


def _last(curve: EstimatedCurve) -> EstimatePoint | None:
    """The point of the largest M with an interval."""
    return next((point for point in reversed(curve.points) if point.low is not None), None)


def _errors(forecast: Forecast, curves: Sequence[EstimatedCurve]) -> dict[str, list[str]]:
    """The mean and the worst error of each estimator."""
    means, worst = [], []
    for curve in curves:
        errors = zip(forecast.errors(curve), forecast.m, strict=True)
        known = [(abs(error), m) for error, m in errors if error is not None]
        means.append(percent(sum(error for error, _ in known) / len(known)) if known else "-")
        most, at = max(known, key=itemgetter(0), default=(None, None))
        worst.append(percent(most) + (f" at {at}" if most else ""))
    return {"mean |error|": means, "worst |error|": worst}


def forecast_records(forecast: Forecast) -> Records:
    """Return a record of `FORECAST_COLUMNS` per estimator and number of votes."""
    size = forecast.pool.size
    beyond = f"The pool has {counted(size, 'call')} per question."
    records = []
    for curve in forecast.estimates:
        pool = forecast.pool.plurality if curve.of == "plurality" else forecast.pool.majority
        known = pool, forecast.errors(curve), forecast.tokens_per_question
        for point, *others in zip(curve.points, *known, forecast.usd_per_question, strict=True):
            values = [getattr(point, name) for name in FORECAST_COLUMNS[3:8]] + others
            written = (None if each is None else float(each) for each in values)
            why = filter(None, (point.reason, beyond if point.m > size else None))
            record = (curve.method, curve.of, point.m, *written, " ".join(why))
            records.append(dict(zip(FORECAST_COLUMNS, record, strict=True)))
    return records


def plan_tables(plan: BudgetPlan) -> list[Table]:
    """Return a table of the votes considered, with the one to buy; its first note is the answer in
    a sentence.
    """
    shown = landmarks([option.votes for option in plan.options], plan.purchase.votes)
    options = [option for option in plan.options if option.votes in shown]
    level, cost = f"{100 * plan.confidence:g} %", plan.budget.unit
    beyond = options[-1].plurality_kind == "plug-in"
    plurality, marks = share("plurality"), {"subsets": "  ", "plug-in": " *"}
    fields: Fields = {
        "": lambda option: "buy" * (option.votes == plan.purchase.votes),
        "#votes": lambda option: str(option.votes),
        "#plurality %": lambda option: (
            plurality(option) + (marks[option.plurality_kind] if beyond else "")
        ),
        f"#{level} interval": share("plurality_low", "plurality_high"),
        "~majority, surely %": share("majority_low", "majority_high"),
        "~sure gain": lambda option: (
            f"{100 * option.majority_gain_low:+.2f}"
            if option.votes > 1 and option.majority_low is not None
            else "-"
        ),
        "certified": lambda option: (
            "together" if option.certified_together else "alone" if option.certified else "no"
        ),
        f"#{cost_unit(cost, None)}": numbers("cost_per_question", write=partial(cost_number, cost)),
        "#questions paid": "questions",
    }
    title = (
        f"{plan.budget.amount:,.10g} {cost.replace('usd', 'USD')} for"
        f" {counted(plan.questions, 'question')} of {plan.dataset}, {plan.llm}"
    )
    return [make_table(title, fields, options, _plan_notes(plan, level, beyond=beyond))]


def plan_answer(plan: BudgetPlan) -> str:
    """Return what to buy, what to expect of it, and what it costs."""
    bought = plan.purchase
    cost = "" if bought.tokens is None else f"{bought.tokens:,.0f} tokens"
    if bought.usd is not None:
        cost = f"{plain_number(bought.usd)} USD{f' ({cost})' * bool(cost)}"
    interval = percents(bought.plurality_low, bought.plurality_high)
    shares = "" if bought.plurality_kind == "subsets" else ", at the pilot's shares"
    return (
        f"Buy {counted(bought.votes, 'vote')} on {counted(bought.questions, 'question')} for"
        f" {cost}, and expect {percent(bought.plurality)} % right"
        f" ({interval}{shares})."
    )


def _plan_notes(plan: BudgetPlan, level: str, *, beyond: bool) -> Iterator[str]:
    split, votes = plan.estimating, [option.votes for option in plan.options]
    certified, together = (
        _runs(votes, [option.votes for option in plan.options if getattr(option, name)])
        for name in ("certified", "certified_together")
    )
    yield plan_answer(plan)
    yield f"why: {plan.purchase.why}"
    yield (
        f"certified to help, by the pilot's calls and pairs of calls at {level}: {certified}"
        + (f"; all at once: {together}" if certified != _NO_VOTE else "")
        + (f", over a family of {plan.family} plans" if plan.family > 1 else "")
    )
    yield (
        "to measure how often the LLM departs from its own most likely answer, ask"
        f" {counted(split.questions, 'question')} {counted(split.calls, 'time')} each: the result"
        f" is off by {percent(split.bound**0.5)} points or less on average"
    )
    rho = f"correlation of two calls {fixed(plan.rho, 3)}"
    if plan.rho_reason is not None:
        rho += f" ({plan.rho_reason})"
    yield (
        f"pilot: {counted_questions(plan.pilot_questions, plan.left_out)} x {plan.pilot_calls}"
        f" calls; a call: {percent(plan.options[0].plurality)} % right,"
        f" {fixed(plan.prompt_tokens, 1)} prompt and {fixed(plan.output_tokens, 1)} output tokens;"
        f" {rho}"
    )
    where = f"; *: beyond M = {plan.pilot_calls}, at the pilot's shares" * beyond
    yield f"plurality: exact, over all subsets of M of a question's calls{where}"
    yield (
        "majority, surely: over half of the calls right; sure gain: the least that it, and so a"
        " plurality, gains over one call, in points; certified: it is above 0, alone or together"
        " with all other votes"
    )
    yield f"{billing_note(plan.billing, plan.prices, plan.options)}; seed {plan.seed}"


_NO_VOTE = "no vote"


def _runs(votes: Sequence[int], some: Sequence[int]) -> str:
    """Write some of the votes as ranges, such as "3 to 21, 31 votes"."""
    if not some:
        return _NO_VOTE
    begins = [each for each in some if each == votes[0] or each - 2 not in some]
    ends = [each for each in some if each + 2 not in some]
    runs = [
        f"{begin} to {end}" if begin < end else str(end)
        for begin, end in zip(begins, ends, strict=True)
    ]
    return f"{', '.join(runs)} votes"


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

"""Forecasts and budget plans as tables and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from feval.forecast.forecasts import COMPLETIONS, PLUG_IN
from feval.report.tables.csv import csv_text
from feval.report.tables.tables import Table, columns
from feval.report.text import (
    counted,
    counted_questions,
    decimals_for,
    fixed,
    interval_name,
    percent,
    percents,
    price_words,
)

if TYPE_CHECKING:
    from feval.forecast import (
        BudgetPlan,
        EstimatedCurve,
        EstimatePoint,
        Forecast,
        Purchase,
        VoteOption,
    )

FORECAST_COLUMNS = (
    "method", "of", "m", "accuracy", "bound_low", "bound_high", "low", "high", "pool", "error",
    "reason",
)  # fmt: skip
"""Columns of `estimate.csv`; an empty cell is a missing number, and `reason` says why it is
missing.
"""

_FEW = 12
_ROUND = frozenset(
    {
        1,
        2,
        3,
        5,
        7,
        9,
        10,
        15,
        20,
        21,
        30,
        31,
        40,
        41,
        60,
        80,
        100,
        101,
        200,
        300,
        500,
        501,
        1000,
        1001,
    }
)


def landmarks(m: Sequence[int], *always: int) -> tuple[int, ...]:
    """Return the numbers of votes in ascending `m` that a table shows: all of a few, else the ends,
    round ones and `always`.
    """
    if len(m) <= _FEW:
        return tuple(m)
    return tuple(
        votes for votes in m if votes in _ROUND or votes in always or votes in (m[0], m[-1])
    )


def forecast_tables(forecast: Forecast) -> list[Table]:
    """Return a table of the curves at some numbers of votes, and one of the estimators' errors."""
    return [_curves(forecast), _errors(forecast)]


def _curves(forecast: Forecast) -> Table:
    shown = landmarks(forecast.m, forecast.g, forecast.pool.size)
    majority = any(curve.of == "majority" for curve in forecast.estimates)
    estimates = (f"#{curve.method} %" for curve in forecast.estimates)
    rows = []
    for at, votes in enumerate(forecast.m):
        if votes not in shown:
            continue
        pool = [
            _known(forecast.pool.plurality[at]),
            *([_known(forecast.pool.majority[at])] if majority else []),
        ]
        rows.append(
            (str(votes), *pool, *(_estimate(curve.points[at]) for curve in forecast.estimates))
        )
    questions = counted_questions(forecast.questions, forecast.left_out)
    evidence = f"pool: exact, all subsets of M of {counted(forecast.pool.size, 'recorded call')}"
    return Table(
        title=(
            f"Accuracy of M votes on {forecast.dataset}, {forecast.llm}, from"
            f" {counted(forecast.g, 'call')} per question"
        ),
        columns=columns("#M", "#pool %", *(("#majority %",) if majority else ()), *estimates),
        rows=tuple(rows),
        notes=(
            f"{questions}; replicate {forecast.replicate}, seed {forecast.seed} of draws-v1",
            f"{evidence}; majority: of right calls" if majority else evidence,
        ),
    )


def _errors(forecast: Forecast) -> Table:
    interval = f"#{interval_name(forecast.confidence)} there %"
    return Table(
        title="Error against the whole pool, in points",
        columns=columns(
            "method", "#largest M", interval, "#mean |error|", "#largest |error|", "#at M"
        ),
        rows=tuple(_error_row(forecast, curve) for curve in forecast.estimates),
        notes=_covered(forecast),
    )


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
    notes = [
        "intervals cover the luck of which questions and which calls were drawn",
        f"they do not cover {', or '.join(not_covered)}",
    ]
    bounds = ["two-call: how far the pool lies outside its bounds"] if "two-call" in names else []
    return (*bounds, *notes)


def _error_row(forecast: Forecast, curve: EstimatedCurve) -> tuple[str, ...]:
    last = next((point for point in reversed(curve.points) if point.low is not None), None)
    if last is None:
        return (curve.method, "-", "-", "-", "-", "-")
    known = [
        (abs(error), m)
        for error, m in zip(forecast.errors(curve), forecast.m, strict=True)
        if error is not None
    ]
    if not known:
        return (curve.method, str(last.m), percents(last.low, last.high), "-", "-", "-")
    worst, at = max(known, key=lambda pair: pair[0])
    mean = sum(error for error, _ in known) / len(known)
    where = str(at) if worst > 0 else "-"
    return (
        curve.method,
        str(last.m),
        percents(last.low, last.high),
        percent(mean),
        percent(worst),
        where,
    )


def _estimate(point: EstimatePoint) -> str:
    if point.accuracy is not None:
        return percent(point.accuracy)
    return percents(point.bound_low, point.bound_high)


def _known(value: float | None) -> str:
    return "-" if value is None else percent(value)


def forecast_csv(forecast: Forecast) -> str:
    """Return the CSV text of a forecast: `FORECAST_COLUMNS`, one line per estimator and number of
    votes.
    """
    return csv_text(FORECAST_COLUMNS, forecast_rows(forecast))


def forecast_rows(forecast: Forecast) -> Iterator[tuple[object, ...]]:
    """Return the rows of `FORECAST_COLUMNS`; `None` is a missing number."""
    for curve in forecast.estimates:
        pool = forecast.pool.plurality if curve.of == "plurality" else forecast.pool.majority
        for point, true, error in zip(curve.points, pool, forecast.errors(curve), strict=True):
            numbers = (
                point.accuracy,
                point.bound_low,
                point.bound_high,
                point.low,
                point.high,
                true,
                error,
            )
            written = (None if x is None else float(x) for x in numbers)
            yield curve.method, curve.of, point.m, *written, _why(forecast, point)


def _why(forecast: Forecast, point: EstimatePoint) -> str:
    """Say why a number of a line is missing."""
    size = forecast.pool.size
    beyond = f"The pool has {counted(size, 'call')} per question." if point.m > size else None
    return " ".join(reason for reason in (point.reason, beyond) if reason)


def plan_tables(plan: BudgetPlan) -> list[Table]:
    """Return a table of what to buy, and one of the votes considered."""
    return [_summary(plan), _votes(plan)]


def _summary(plan: BudgetPlan) -> Table:
    bought, split = plan.purchase, plan.estimating
    unit = "USD" if plan.budget.unit == "usd" else "tokens"
    rho = f"correlation of two calls {'-' if plan.rho is None else fixed(plan.rho, 3)}"
    if plan.rho_reason is not None:
        rho += f" ({plan.rho_reason})"
    certified = [str(option.votes) for option in plan.options if option.certified]
    together = [str(option.votes) for option in plan.options if option.certified_together]
    prompt, output = fixed(plan.prompt_tokens, 1), fixed(plan.output_tokens, 1)
    error = f"self-consistency error within {percent(split.bound**0.5)} points (root mean square)"
    rows = (
        ("budget", f"{plan.budget.amount:,.10g} {unit} for {counted(plan.questions, 'question')}"),
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
        ("expect", _expected(bought)),
        ("it costs", f"{_dollars(bought.usd)}{bought.tokens:,.0f} tokens"),
        ("why", bought.why),
        ("certified to help", ", ".join(certified) or "no odd vote that was looked at"),
        ("all at once", ", ".join(together) or "none"),
        (
            "to estimate",
            f"{counted(split.questions, 'question')} x {counted(split.calls, 'call')}: {error}",
        ),
    )
    return Table(f"Plan for {plan.llm} on {plan.dataset}", columns("", ""), rows)


def _expected(bought: Purchase) -> str:
    interval = percents(bought.plurality_low, bought.plurality_high)
    beyond = "" if bought.plurality_kind == "subsets" else ", at the pilot's shares"
    return f"{percent(bought.plurality)} % of questions right by plurality, {interval}{beyond}"


def _dollars(usd: float | None) -> str:
    return "" if usd is None else f"{fixed(usd, decimals_for([usd]))} USD, "


def _votes(plan: BudgetPlan) -> Table:
    shown = landmarks([option.votes for option in plan.options], plan.purchase.votes)
    options = [option for option in plan.options if option.votes in shown]
    decimals = decimals_for(option.cost_per_question for option in options)
    unit = "USD" if plan.budget.unit == "usd" else "tokens"
    level = f"{100 * plan.confidence:g} %"
    votes = ("#votes", "#plurality %", f"#{level} interval", "#majority, surely %", "#sure gain")
    costs = ("#certified", "#together", f"#{unit}/question", "#questions paid")
    beyond = options[-1].plurality_kind == "plug-in"
    prices = price_words(plan.prices, [plan.purchase.usd])
    return Table(
        title="Votes",
        columns=columns(*votes, *costs),
        rows=tuple(_option_row(option, decimals, marked=beyond) for option in options),
        notes=(
            "plurality: exact, over all subsets of M of a question's calls"
            + (
                f"; *: beyond M = {plan.pilot_calls}, at the pilot's shares, where it levels off"
                if beyond
                else ""
            ),
            (
                "majority, surely: over half of the calls right, as far as the pilot's calls and"
                f" pairs of calls tell, at {level}"
            ),
            (
                "sure gain: the least that a majority, and so a plurality, gains over one call, in"
                " points; certified: it is above 0"
            ),
            "together: certified with all other votes at once, by one region for all"
            + (f", over a family of {plan.family} plans" if plan.family > 1 else ""),
            f"billing {plan.billing}; {prices}; seed {plan.seed}",
        ),
    )


def _option_row(option: VoteOption, decimals: int, *, marked: bool) -> tuple[str, ...]:
    mark = "" if not marked else "  " if option.plurality_kind == "subsets" else " *"
    return (
        str(option.votes),
        percent(option.plurality) + mark,
        percents(option.plurality_low, option.plurality_high),
        percents(option.majority_low, option.majority_high),
        (
            f"{100 * option.majority_gain_low:+.2f}"
            if option.votes > 1 and option.majority_low is not None
            else "-"
        ),
        "yes" if option.certified else "no",
        "yes" if option.certified_together else "no",
        fixed(option.cost_per_question, decimals),
        f"{option.questions:,}",
    )

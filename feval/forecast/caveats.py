"""Sentences that a reader of a forecast needs in order not to be misled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feval.evaluation.cautions import few_questions
from feval.forecast.estimators import DrawnCalls, exact_values, gaussian_values
from feval.forecast.evidence import rare_pairs
from feval.forecast.forecasts import COMPLETIONS, OF_MAJORITY, PLUG_IN, EstimatedCurve

_MANY_RIVALS = 3
_SHARE_OF_QUESTIONS = 0.05


def forecast_warnings(
    calls: DrawnCalls, methods: Sequence[str], estimates: Sequence[EstimatedCurve], pool: int
) -> list[str]:
    """Return the warnings of a forecast; `pool` is the size of the smallest pool."""
    sentences = [
        *few_questions(len(calls.keys)),
        _biased(calls, [name for name in methods if name in PLUG_IN]),
        _saturation(calls, [name for name in methods if name in PLUG_IN]),
        *_missing(estimates),
        _rivals(calls) if "gaussian" in methods else None,
        _cells(calls) if "two-call" in methods else None,
        *_completions(calls, [name for name in methods if name in COMPLETIONS]),
        _majority(calls, [name for name in methods if name in OF_MAJORITY]),
        _reach(calls.votes, pool),
    ]
    return [sentence for sentence in sentences if sentence is not None]


def _biased(calls: DrawnCalls, names: Sequence[str]) -> str | None:
    within = [votes for votes in calls.votes if 1 < votes <= calls.g]
    if not within or not names:
        return None
    return (
        f"{', '.join(names)}: biased for every M above 1, since shares of {calls.g} calls replace"
        f" the LLM's probabilities. Up to M = {calls.g} an unbiased estimate exists: use unbiased"
        " there."
    )


def _saturation(calls: DrawnCalls, names: Sequence[str]) -> str | None:
    g, most = calls.g, calls.votes[-1]
    if most <= g or not names:
        return None
    few = f"{g} call{'s' if g > 1 else ''}"
    instead = "record more calls, or use the two-call bounds" if g > 1 else "record more calls"
    return (
        f"{', '.join(names)}: made from {few} per question and extended to M = {most}. Beyond M ="
        f" {g} it levels off at the accuracy of a {g}-call vote, whatever more votes would do;"
        f" {instead}."
    )


def _missing(estimates: Sequence[EstimatedCurve]) -> list[str]:
    """Why values are missing, once per estimator and reason."""
    reasons_by_method = {
        curve.method: [point.reason for point in curve.points if point.reason]
        for curve in estimates
    }
    return [
        f"{method}: {reason}"
        for method, reasons in reasons_by_method.items()
        for reason in dict.fromkeys(reasons)
    ]


def _rivals(calls: DrawnCalls) -> str | None:
    many = float((np.count_nonzero(calls.counts.rivals, axis=1) >= _MANY_RIVALS).mean())
    if many < _SHARE_OF_QUESTIONS:
        return None
    gap = gaussian_values(calls).mean() - exact_values(calls).mean()
    worst = int(np.abs(gap).argmax())
    return (
        f"gaussian: {100 * many:.0f} % of the questions have {_MANY_RIVALS} or more different wrong"
        f" answers among their {calls.g} calls. It treats rivals as independent, and at M ="
        f" {calls.votes[worst]} it is {100 * gap[worst]:+.1f} points off the exact value at the"
        " same shares; use exact."
    )


def _cells(calls: DrawnCalls) -> str | None:
    table = calls.pairs
    if not bool(table.sparse):
        return None
    cells = {
        "both right": table.both_right,
        "one right": table.disagree,
        "both wrong": table.both_wrong,
    }
    few = [f"{name} {int(count)}" for name, count in cells.items() if count < 5]
    total = int(table.questions)
    questions = f"{total} question{'s' if total > 1 else ''}"
    what = "is empty" if 0 in map(int, cells.values()) else "is nearly empty"
    return (
        f"two-call: a cell of the pair table ({questions}) {what} ({', '.join(few)}). A Wald region"
        " would be too narrow, so the interval is from the likelihood; record more questions."
    )


def _completions(calls: DrawnCalls, names: Sequence[str]) -> list[str | None]:
    if not names:
        return []
    rare = rare_pairs(calls.counts.gold, calls.counts.size)
    narrow = (
        f"{', '.join(names)}: a cell of the pair table holds fewer than 5 questions ({rare}). The"
        " intervals resample questions and are too narrow; record more questions."
    )
    return [_clipped(calls, names), None if rare is None else narrow]


def _clipped(calls: DrawnCalls, names: Sequence[str]) -> str | None:
    if not calls.moments().clipped:
        return None
    return (
        f"{', '.join(names)}: the calls on a question disagree more often than independent calls"
        " would, which happens by chance on few questions. The curve assumes that all questions"
        " are equally hard."
    )


def _majority(calls: DrawnCalls, names: Sequence[str]) -> str | None:
    if not names:
        return None
    even = next((votes for votes in calls.votes if votes % 2 == 0), None)
    equals = (
        ""
        if even is None
        else f" An even M equals M - 1 (ties broken at random): M = {even} equals M = {even - 1}."
    )
    return (
        f"{', '.join(names)}: estimates of a majority of right calls. A plurality needs fewer right"
        " calls where wrong answers differ, so these are compared with the pool's majority"
        f" curve.{equals}"
    )


def _reach(votes: list[int], pool: int) -> str | None:
    if votes[-1] <= pool:
        return None
    return f"The pool has {pool} calls per question: beyond M = {pool} the error is unknown."

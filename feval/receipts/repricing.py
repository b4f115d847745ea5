"""Results at other prices, without evaluating again: they hold the tokens that are billed.

Answers and decisions stay as they were: what was fitted to a budget in USD says at which prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.arguments import checked
from feval.cards import PriceList, price_list
from feval.cards.billing import usd
from feval.errors import UsageError
from feval.estimators.arrays import pareto
from feval.evaluation import Curve, CurvePoint
from feval.evaluation.cautions import mixed_counters, swept_text
from feval.methods import METHODS
from feval.receipts.document import local_receipt, read_receipt
from feval.replay import Judges

if TYPE_CHECKING:
    from feval.comparison import Comparison
    from feval.evaluation import Evaluation
    from feval.recording.layout.format import Record

PRICED = ("run", "curve", "compare")
"""The commands whose receipts hold the tokens that are billed."""
_LONGEST = 500
_ROUNDING = 1e-9


@checked
def reprice(
    result: str | Path | Evaluation | Curve | Comparison, prices: Sequence[str | Path | PriceList]
) -> list[list[Curve]]:
    """Put other prices to the tokens that a result billed.

    Args:
        result: an evaluation, a curve or a comparison; or the receipt of one: its file, the folder
            that it lies in, or an address on the Hub.
        prices: the lists, as `price_list` takes them.

    Returns:
        For each list the curves of the result. Their points have `usd_per_question`;
        `usd_per_right`, mean USD over accuracy, `None` where nothing is right; `setting`, the field
        that varies with its value; and `frontier`, whether no other point at these prices is as
        right for as little, `None` for methods that are judged on fewer questions.

    Raises:
        UsageError: no such receipt; no list; USD that CoTs state; tokens that are not known, or not
            by the steps of a list.
        PriceNotFoundError: a list has no price of an LLM.
    """
    if not prices:
        raise UsageError("No price list was named to put to the result; name one or several.")
    if not isinstance(result, str | Path):
        if not hasattr(result, "to_dict"):
            raise UsageError(f"A result has prices; {result!r:.80} is none, and no receipt of one.")
        basis: Any = getattr(result, "plan", result)
        return _repriced(result.to_dict(), result.counters, basis.confidence, prices)
    place = Path(result)
    receipt = read_receipt(local_receipt(place / "receipt.json" if place.is_dir() else place))
    if receipt.kind not in PRICED:
        raise UsageError(
            f"{place} is a receipt of feval {receipt.kind}; those of {', '.join(PRICED)} hold the"
            " tokens that are billed."
        )
    level = receipt.request.get("plan", receipt.request).get("confidence")
    try:
        return _repriced(receipt.numbers, receipt.counters.values(), level, prices)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"{place} is a damaged receipt: its numbers are not those of feval {receipt.kind}."
            " Take an unchanged copy."
        ) from error


def _repriced(
    numbers: Record, counters: Any, level: float | None, prices: Sequence[Any]
) -> list[list[Curve]]:
    """Return JSON values of a result at other prices."""
    methods: list[Record] = numbers.get("curves", [numbers])
    rows = [row for each in methods for point in _points(each) for row in point["billed"]]
    llms = sorted({_text(row["llm"]) for row in rows if "llm" in row})
    most = max(_facts(numbers, method)["questions"] for method in methods)
    cautions, lists = mixed_counters(counters), []
    for given in prices:
        is_list = isinstance(given, PriceList)
        listed = given if is_list else price_list(given, llms, known=llms)
        curves = [_curve(numbers, method, listed, cautions) for method in methods]
        judged = [point for curve in curves for point in curve.points if curve.questions == most]
        best = pareto(*np.array([(it.usd_per_question, it.accuracy) for it in judged]).T)
        for point, on in zip(judged, best.tolist(), strict=True):
            point["frontier"] = on
        lists.append([replace(curve, confidence=level) for curve in curves])
    return lists


def _text(value: Any) -> str:
    """Return a name of a receipt, checked."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
        raise ValueError("a name is a line of text")
    return value


def _number(value: Any, most: float = 1e15) -> float:
    """Return a number of a receipt, checked; the mean of shares may be above 1 by rounding."""
    if isinstance(value, bool) or not -_ROUNDING <= float(value) <= most + _ROUNDING:
        raise ValueError("a number is out of range")
    return float(value)


def _facts(numbers: Record, method: Record) -> Record:
    """Return what a method rests on; in a comparison, each point says it."""
    return numbers | method | _points(method)[0]


def _points(method: Record) -> list[Record]:
    points: list[Record] = method.get("points", [method])
    return points


def _curve(numbers: Record, method: Record, prices: PriceList, cautions: Sequence[str]) -> Curve:
    """Return one method of a result at other prices."""
    points = _points(method)
    facts = _facts(numbers, method)
    label, field = (
        _text(method.get("label") or facts["method"]),
        facts.get("sweep", facts.get("field")),
    )
    fields: Record = facts["fields" if "fields" in facts else "settings"]
    unit = facts["learnt"][0]["unit"] if facts.get("learnt") else None
    in_usd = unit == "USD" and (field == "budget" or fields.get("budget") is not None)
    questions, every = (int(_number(each["questions"])) for each in (facts, numbers))
    # a cascade may decide by votes
    scored = hasattr(METHODS.get(facts["method"]), "scorer")
    scored = scored and fields.get("score", "recorded") == "recorded"
    said = (
        (in_usd, f"is fitted to budgets in USD: decided at {facts['prices']}"),
        (scored, f"pays for scores what it paid at {facts['prices']}, if anything"),
        (questions < every, f"is judged on {questions} of {every}, and not on the frontier"),
    )
    return Curve(
        dataset=_text(facts["dataset"]),
        llms=tuple(map(_text, facts["llms"] if "llms" in facts else [facts["llm"]])),
        counters=(),
        recording_hashes=(),
        recording_hash="",
        prices=prices.id,
        billing=facts["billing"],
        seed=facts["seed"],
        questions=questions,
        judges=Judges(**facts["judges"]) if "judges" in facts else None,
        cautions=(*cautions, *(f"{label} {words}." for is_so, words in said if is_so)),
        method=label,
        replicates=facts["replicates"],
        points=tuple(_point(point, field or "", unit, label, prices) for point in points),
        field=_text(field or "point"),
        settings=fields,
    )


def _point(
    numbers: Record, field: str, unit: str | None, label: str, prices: PriceList
) -> CurvePoint:
    """Return the numbers of a point at other prices."""
    if not numbers["billed"]:
        raise UsageError(
            f"The tokens that {label} bills are not known, or its USD are those that CoTs state:"
            " other prices cannot be put to it."
        )
    shares = {name: numbers[name] for name in ("accuracy", "accuracy_low", "accuracy_high")}
    own = {name: None if value is None else _number(value, 1) for name, value in shares.items()}
    paid, right = 0.0, _number(numbers["accuracy"], 1)
    for row in numbers["billed"]:
        if "usd" in row:
            paid += _number(row["usd"])
            continue
        price, longest = prices.price(row["llm"]), _number(row["longest"])
        for start, _ in price.steps:
            if row["beyond"] < start < longest:
                raise UsageError(
                    f"The price of {row['llm']} in {prices.id} changes at {start:,} input tokens,"
                    f" and the result does not say how much {label} bills beyond: its requests have"
                    f" up to {longest:,.0f}. Evaluate it again, with --prices {prices.id}."
                )
        tokens = {f"{name}_tokens": row.get(name) for name in ("cached", "written")}
        tokens = {
            name: value if value is None else _number(value) for name, value in tokens.items()
        }
        sent, output = _number(row["input"]), _number(row["output"])
        paid += float(usd(price, sent, output, context=longest, **tokens))
    value = numbers["n"] if "n" in numbers else numbers["fields"].get(field)
    return CurvePoint(
        n=1 if value is None else value,
        setting=_text(swept_text(field, value, unit)),
        kind=_text(numbers["kind"]),
        pass_at_n=None,
        frontier=None,
        **own,
        usd_per_question=paid,
        usd_per_right=paid / right if right > 1e-12 else None,
    )

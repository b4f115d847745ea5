"""Results at other prices, without evaluating again: they hold the tokens that are billed.

Answers and decisions stay as they were: what was fitted to a budget in USD says at which prices.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        that varies with its value; and `frontier`, whether no other point at these prices, on as
        many questions, is as right for as little.

    Raises:
        UsageError: no such receipt; no list; USD that CoTs state; tokens that are not known, or not
            by the steps of a list.
        PriceNotFoundError: a list has no price of an LLM.
    """
    if not prices:
        raise UsageError("Name the prices to put to a result: --prices LIST, once for each list.")
    if not isinstance(result, (str, Path)):
        return _repriced(result.to_dict(), result.counters, prices)
    place = Path(result)
    receipt = read_receipt(local_receipt(place / "receipt.json" if place.is_dir() else place))
    if receipt.kind not in ("run", "curve", "compare"):
        raise UsageError(
            f"{place} is a receipt of feval {receipt.kind}; those of run, curve and compare hold"
            " the tokens that are billed."
        )
    try:
        return _repriced(receipt.numbers, receipt.counters.values(), prices)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"{place} is a damaged receipt: its numbers are not those of feval {receipt.kind}"
            f" ({error!r:.80}). Take an unchanged copy."
        ) from error


def _repriced(numbers: Record, counters: Any, prices: Sequence[Any]) -> list[list[Curve]]:
    """Return JSON values of a result at other prices."""
    methods: list[Record] = numbers.get("curves", [numbers])
    rows = [row for each in methods for point in _points(each) for row in point["billed"]]
    llms = sorted({row["llm"] for row in rows if "llm" in row})
    cautions, lists = mixed_counters(counters), []
    for given in prices:
        listed = given if isinstance(given, PriceList) else price_list(given, llms)
        curves = [_curve(numbers, method, listed, cautions) for method in methods]
        points = [
            (point.usd_per_question, point.accuracy)
            for curve in curves
            for point in curve.points
            if curve.questions == numbers["questions"]
        ]
        best = iter(pareto(*np.array(points).T).tolist())
        for curve in curves:
            for point in curve.points:
                point["frontier"] = curve.questions == numbers["questions"] and next(best)
        lists.append(curves)
    return lists


def _points(method: Record) -> list[Record]:
    points: list[Record] = method.get("points", [method])
    return points


def _curve(numbers: Record, method: Record, prices: PriceList, cautions: Sequence[str]) -> Curve:
    """Return one method of a result at other prices."""
    points = _points(method)
    facts = numbers | method | points[0]  # in a comparison, each point says what it rests on
    label, field = method.get("label") or facts["method"], facts.get("sweep", facts.get("field"))
    fields: Record = facts["fields" if "fields" in facts else "settings"]
    questions, every = facts["questions"], numbers["questions"]
    scored = hasattr(METHODS.get(facts["method"]), "scorer")
    said = (
        (fields.get("prices"), f"is fitted to budgets in USD: decided at {facts['prices']}"),
        (scored, f"pays for scores what it paid at {facts['prices']}, if anything"),
        (questions < every, f"is judged on {questions} of {every}, and not on the frontier"),
    )
    return Curve(
        dataset=facts["dataset"],
        llms=tuple(facts["llms"] if "llms" in facts else [facts["llm"]]),
        counters=(),
        recording_hashes=(),
        recording_hash="",
        prices=prices.id,
        billing=facts["billing"],
        seed=facts["seed"],
        questions=questions,
        confidence=facts.get("confidence"),
        judges=Judges(**facts["judges"]) if "judges" in facts else None,
        cautions=(*cautions, *(f"{label} {words}." for is_so, words in said if is_so)),
        method=label,
        replicates=facts["replicates"],
        points=tuple(_point(point, field or "", fields, label, prices) for point in points),
        field=field or "",
        settings=fields,
    )


def _point(
    numbers: Record, field: str, fields: Record, label: str, prices: PriceList
) -> CurvePoint:
    """Return the numbers of a point at other prices."""
    if not numbers["billed"]:
        raise UsageError(
            f"The tokens that {label} bills are not known, or its USD are those that CoTs state:"
            " other prices cannot be put to it."
        )
    shares = {name: numbers[name] for name in ("accuracy", "accuracy_low", "accuracy_high")}
    own = {name: None if value is None else float(value) for name, value in shares.items()}
    paid, right = 0.0, own["accuracy"]
    for row in numbers["billed"]:
        if "usd" in row:
            paid += row["usd"]
            continue
        price, longest = prices.price(row["llm"]), row["longest"]
        for start, _ in price.steps:
            if row["beyond"] < start < longest:
                raise UsageError(
                    f"The price of {row['llm']} in {prices.id} changes at {start:,} input tokens,"
                    f" and the result does not say how much {label} bills beyond: its requests have"
                    f" up to {longest:,}. Evaluate it again, with --prices {prices.id}."
                )
        tokens = {f"{name}_tokens": row.get(name) for name in ("cached", "written")}
        paid += float(usd(price, row["input"], row["output"], context=longest, **tokens))
    value = numbers.get("n", numbers.get("fields", {}).get(field))
    return CurvePoint(
        n=value,
        setting=swept_text(field, value, fields),
        kind=str(numbers["kind"]),
        **own,
        usd_per_question=paid,
        usd_per_right=paid / right if right else None,
    )

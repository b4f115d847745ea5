"""Results at other prices, without evaluating again: they hold the tokens that are billed.

Answers and decisions stay as they were: what was fitted to a budget in USD says at which prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.arguments import checked
from feval.cards.billing import usd
from feval.cards.prices import PriceList, price_list
from feval.errors import UsageError
from feval.estimators.arrays import pareto
from feval.evaluation.cautions import mixed_counters, swept_text
from feval.evaluation.curves import Curve, CurvePoint
from feval.lazy import Plottable
from feval.receipts.document import local_receipt, read_receipt
from feval.replay import Judges

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.evaluation.evaluation import Evaluation
    from feval.recording.layout.format import Record


@dataclass(frozen=True, repr=False)
class Repricing(Plottable):
    """A result at the prices of several lists, each with the same answers.

    Attributes:
        source: the price list of the result; `None` for no prices.
        lists: the curves of the result, once for each list.
    """

    source: str | None
    lists: tuple[tuple[Curve, ...], ...]

    def by_list(self) -> list[list[dict[str, Any]]]:
        """Rows of name -> value, per list and point: what it costs on average, and per right answer
        (`None` where nothing is right); and whether no other point of the list, on as many
        questions, is as right for as little.
        """
        found = []
        for curves in self.lists:
            points = [(curve, point) for curve in curves for point in curve.points]
            widest = max(curve.questions for curve in curves)
            whole = np.array([curve.questions == widest for curve, _ in points])
            costs, rights = np.array([(it.usd_per_question, it.accuracy) for _, it in points]).T
            best = pareto(np.where(whole, costs, np.inf), np.where(whole, rights, -1.0)) & whole
            rows = [
                {"prices": curve.prices, "method": curve.method, "llms": curve.llm}
                | {"setting": swept_text(curve.field, point.n, curve.settings)}
                | {"questions": curve.questions, **point, "frontier": on}
                for (curve, point), on in zip(points, best.tolist(), strict=True)
            ]
            found.append(rows)
        return found

    def records(self) -> list[dict[str, Any]]:
        """All of these rows."""
        return [row for rows in self.by_list() for row in rows]

    @property
    def cautions(self) -> tuple[str, ...]:
        """Sentences on what stays as it was, and what cannot be compared."""
        every = (curve.cautions for curves in self.lists for curve in curves)
        return tuple(dict.fromkeys(chain.from_iterable(every)))

    def to_dict(self) -> dict[str, Any]:
        """The records as JSON values."""
        return {"source": self.source, "points": self.records(), "warnings": list(self.cautions)}


@checked
def reprice(
    result: str | Path | Evaluation | Curve | Comparison, prices: Sequence[str | Path | PriceList]
) -> Repricing:
    """Put other prices to the tokens that a result billed.

    Args:
        result: an evaluation, a curve or a comparison; or the receipt of one: its file, the folder
            that it lies in, or an address on the Hub.
        prices: the lists, as `price_list` takes them.

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
        return _repriced(receipt.numbers, tuple(receipt.counters.values()), prices)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise UsageError(
            f"{place} is a damaged receipt: its numbers are not those of feval {receipt.kind}"
            f" ({error!r:.80}). Take an unchanged copy."
        ) from error


def _repriced(
    numbers: Record, counters: Sequence[str], prices: Sequence[str | Path | PriceList]
) -> Repricing:
    """Return JSON values of a result at other prices."""
    methods: list[Any] = numbers.get("curves", [numbers])
    llms = {
        row["llm"]
        for method in methods
        for point in method.get("points", [method])
        for row in point["billed"]
        if "llm" in row
    }
    cautions, lists = mixed_counters(counters), []
    for given in prices:
        listed = given if isinstance(given, PriceList) else price_list(given, sorted(llms))
        lists.append(tuple(_curve(numbers, method, listed, cautions) for method in methods))
    return Repricing(_facts(numbers, methods[0])["prices"], tuple(lists))


def _facts(numbers: Record, method: Record) -> Record:
    """Return what a method of a result rests on: in a comparison each point says it."""
    first: Record = method.get("points", [{}])[0]
    return numbers | method | first


def _curve(numbers: Record, method: Record, prices: PriceList, cautions: Sequence[str]) -> Curve:
    """Return one method of a result at other prices."""
    facts, points = _facts(numbers, method), method.get("points", [method])
    label, field = method.get("label") or facts["method"], facts.get("sweep", facts.get("field"))
    fields = facts.get("fields") or facts.get("settings") or {}
    own = [*cautions]
    if fields.get("prices"):
        own.append(f"{label} is fitted to budgets in USD: decided at {facts['prices']}.")
    if any("usd" in row for point in points for row in point["billed"]):
        own.append(f"What the scores cost that {label} reads is as in {facts['prices']}.")
    if facts["questions"] < numbers["questions"]:
        own.append(
            f"{label} is judged on {facts['questions']:,} of {numbers['questions']:,} questions,"
            " and is not on the frontier."
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
        questions=facts["questions"],
        confidence=facts.get("confidence"),
        judges=Judges(**facts["judges"]) if "judges" in facts else None,
        cautions=tuple(own),
        method=label,
        replicates=facts["replicates"],
        points=tuple(_point(point, field, label, prices) for point in points),
        field=field or "",
        settings={name: value for name, value in fields.items() if name != field},
    )


def _point(numbers: Record, field: str | None, label: str, prices: PriceList) -> CurvePoint:
    """Return the numbers of a point at other prices."""
    if not numbers["billed"]:
        raise UsageError(
            f"The tokens that {label} bills are not known, or its USD are those that CoTs state:"
            " other prices cannot be put to it."
        )
    paid = sum(_usd(row, label, prices) for row in numbers["billed"])
    own = {name: numbers[name] for name in ("accuracy", "accuracy_low", "accuracy_high", "kind")}
    return CurvePoint(
        n=numbers.get("n", numbers.get("fields", {}).get(field)),
        **own,
        usd_per_question=paid,
        usd_per_right=paid / own["accuracy"] if own["accuracy"] else None,
        tokens_per_question=numbers["tokens_per_question"],
    )


def _usd(row: Mapping[str, Any], label: str, prices: PriceList) -> float:
    """Return what a row of `QuestionLedger.bill_rows` costs."""
    if "usd" in row:
        return float(row["usd"])
    price = prices.price(row["llm"])
    between = [start for start, _ in price.steps if row["beyond"] < start < row["longest"]]
    if between:
        raise UsageError(
            f"The price of {row['llm']} in {prices.id} changes at {between[0]:,} input tokens, and"
            f" the result does not say how much {label} bills beyond: its requests have up to"
            f" {row['longest']:,}. Evaluate it again, with --prices {prices.id}."
        )
    tokens = {f"{name}_tokens": row.get(name) for name in ("cached", "written")}
    amount = usd(price, row["input"], row["output"], context=row["longest"], **tokens)
    return float(amount)

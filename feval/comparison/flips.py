"""When the winner changes as one price varies.

Costs are linear in any one price, so that two methods cost the same at one value of it at most:

    USD_A(p) = a_A + b_A p,   USD_A(p) = USD_B(p)  at  p = (a_B - a_A) / (b_A - b_B)

Answers, cached tokens, what was decided and what scores cost stay as they are. `a` is what a method
costs where the price is 0, and `a + b` where it is 1, so that both come from its ledger, whatever
its bill is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from feval.cards.billing import PRICE_FIELDS
from feval.cards.names import base_of
from feval.errors import UnknownNameError, UsageError, require_known
from feval.estimators.arrays import Result

if TYPE_CHECKING:
    from feval.cards import Price
    from feval.evaluation import Evaluation
    from feval.methods.protocol import Floats, Integers

RATES = dict(zip(("input", "output", "cached", "written"), PRICE_FIELDS, strict=False))
"""What `VariedPrice` may vary -> the field of a price."""
FACTORS = 10.0 ** np.linspace(-1, 1, 161)
"""Of today's price, on a map."""
_BUDGETS = 121


@dataclass(frozen=True)
class FlipPrice:
    """The price of one LLM at which two methods cost the same, each where it is most accurate. It
    says which is cheaper, not which is more accurate.

    Attributes:
        a, b: labels of the methods.
        point_a, point_b: index of the points in their curves.
        varied: the price, such as "o3=output".
        price: USD per million tokens; `None` where they cost the same at no price above 0, or at
            every price.
        low, high: of the interval over the resamples in which it flips at a price.
        no_flip: share of resamples without one.
        cheaper: label of the cheaper method below the price, or at every price; `None` where both
            cost the same at every price.
    """

    a: str
    b: str
    point_a: int
    point_b: int
    varied: str
    price: float | None
    low: float | None
    high: float | None
    no_flip: float
    cheaper: str | None


class VariedPrice(NamedTuple):
    """One price of one LLM.

    Attributes:
        llm: name of the LLM, or of the base of its variants.
        rate: one of `RATES`.
        beyond: input tokens of a request, at which a step of the price begins; 0 for the price
            below all steps.
    """

    llm: str
    rate: str
    beyond: int = 0

    @classmethod
    def parse(cls, text: str) -> VariedPrice:
        """Return what "o3=output" or "o3=output:200000" says; a `UsageError` for what is no such
        text.
        """
        llm, _, rest = text.rpartition("=")
        rate, colon, beyond = rest.partition(":")
        if not llm or (colon and not re.fullmatch("[0-9]{1,9}", beyond)):
            raise UsageError(
                "A price that varies is LLM=RATE, such as o3=output, or o3=output:200000 for that"
                f" beyond 200,000 input tokens; {text!r:.80} was given."
            )
        require_known("rate of a price", rate, RATES)
        return cls(llm, rate, int(beyond or 0))

    def _at(self, price: Price, value: float) -> Price:
        field: dict[str, Any] = {RATES[self.rate]: value}
        if not self.beyond:
            return replace(price, **field)
        starts = [start for start, _ in price.steps]
        if self.beyond not in starts:
            raise UsageError(
                f"The price of {self.llm} has no step at {self.beyond:,} input tokens; its steps"
                f" begin at {', '.join(map(str, starts)) or 'none'}."
            )
        steps = (
            (start, replace(step, **field) if start == self.beyond else step)
            for start, step in price.steps
        )
        return replace(price, steps=tuple(steps))

    def today(self, points: Sequence[Evaluation]) -> float:
        """Return the price in the points' own list.

        Raises:
            UnknownNameError: no point pays this LLM.
            UsageError: there is no such price.
        """
        payers = {payer.name: payer for point in points for payer in point.ledger.payers}
        own = next((payer for name, payer in payers.items() if self._means(name)), None)
        if own is None:
            raise UnknownNameError.among("LLM of the comparison", self.llm, payers)
        price = own.price
        if price is not None and self.beyond:
            self._at(price, 0.0)
            price = dict(price.steps)[self.beyond]
        rate: float | None = None if price is None else getattr(price, RATES[self.rate])
        if not rate:
            raise UsageError(
                f"There is no {self.rate} price of {self.llm} above 0 that could vary. Give a price"
                " list that has one: --prices LIST."
            )
        return rate

    def _means(self, name: str) -> bool:
        return self.llm in (name, base_of(name))

    def lines(self, point: Evaluation) -> tuple[Floats, Floats]:
        """Return [Q] USD of a point where the price is 0, and [Q] what each USD per million tokens
        adds.
        """
        costs: list[Any] = []
        for value in (0.0, 1.0):
            changed = {
                payer.name: self._at(payer.price, value)
                for payer in point.ledger.payers
                if payer.price is not None and self._means(payer.name)
            }
            costs.append(point.ledger.at(changed).column("usd"))
        if costs[0] is None:
            raise UsageError(
                "What varies with a price are dollars, and those of"
                f" {point.method} are not known (feval info shows why)."
            )
        return costs[0], costs[1] - costs[0]


def flip_price(fixed: Floats, slope: Floats) -> Floats:
    """Return the price at which two lines meet; NaN where they meet at none above 0.

    Args:
        fixed: [..., 2] costs at price 0.
        slope: [..., 2] what a unit of the price adds.
    """
    rise = slope[..., 0] - slope[..., 1]
    # of equal methods they differ by rounding, also that of resampled means
    steep = np.abs(rise) > 1e-10 * np.abs(slope).max(axis=-1)
    price = (fixed[..., 1] - fixed[..., 0]) / np.where(steep, rise, np.nan)
    return np.where(price > 0, price, np.nan)


class PriceMap(Result):
    """Which method is the most accurate within a budget as one price varies.

    Attributes:
        prices: [F] USD per million tokens.
        budgets: [B] USD per question.
        labels: of the methods.
        best: [B, F] index of the method; -1 where none is that cheap.
    """

    prices: Floats
    budgets: Floats
    labels: tuple[str, ...]
    best: Integers


def price_map(curves: Mapping[str, Sequence[Evaluation]], varied: VariedPrice) -> PriceMap:
    """Return the map of methods, given as label -> points, for prices from a tenth of today's to
    ten times it, on the questions that all are judged on. Of equally accurate points the cheapest
    counts.
    """
    common = min((points[0].question_keys for points in curves.values()), key=len)
    rows = []
    for place, points in enumerate(curves.values()):
        for point in points:
            shared = np.isin(point.question_keys, common)
            means = [float(each[shared].mean()) for each in (point.right, *varied.lines(point))]
            rows.append([place, *means])
    methods, right, fixed, slope = np.array(rows).T
    prices = varied.today([point for points in curves.values() for point in points]) * FACTORS
    costs = fixed[:, None] + slope[:, None] * prices
    budgets = np.geomspace(costs[costs > 0].min(), 1.1 * costs.max(), _BUDGETS)
    best = np.full((_BUDGETS, len(prices)), -1)
    for place, own in enumerate(costs.T):
        order = np.lexsort((own, -right.round(11)))
        affordable = own[order] <= budgets[:, None] * (1 + 1e-9)
        first = methods[order][affordable.argmax(axis=1)].astype(int)
        best[:, place] = np.where(affordable.any(axis=1), first, -1)
    return PriceMap(prices, budgets, (*curves,), best)

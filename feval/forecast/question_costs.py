"""What calls on a question cost, and how many questions a budget pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from feval.cards.billing import Price, billed_prompts, usd
from feval.errors import OutOfRangeError, PriceNotFoundError
from feval.estimators.cost import mean_output_tokens
from feval.estimators.self_consistency_bounds import self_consistency_bound
from feval.evaluation.questions import Rows
from feval.forecast.budget_plan import EstimationSplit, PlanBudget
from feval.replay import LLM, Dataset

_MOST_CALLS = 100_000  # per question, in the split for estimating


@dataclass(frozen=True, slots=True)
class QuestionCosts:
    """Mean costs of a question; `price` is `None` if USD are neither known nor needed."""

    budget: PlanBudget
    billing: str
    prompt_tokens: float
    output_tokens: float
    price: Price | None

    @classmethod
    def of(cls, dataset: Dataset, llm: LLM, rows: Rows, budget: PlanBudget) -> Self:
        """Take the means over some questions of a pilot.

        Raises:
            PriceNotFoundError: a budget in USD without a price, or unknown prompt tokens.
        """
        if budget.unit == "usd" and llm.price is None:
            if llm.prices is not None:
                llm.prices.price(llm.name)  # says which price list, and what to do
            raise PriceNotFoundError(
                f"A budget in USD needs prices, and {llm.name} was loaded without a price list."
                " Give one (`--prices`), or a budget in tokens."
            )
        pool = llm.pool.rows(rows)
        unknown = rows[pool.prompt_tokens < 0]
        if len(unknown):
            name = dataset.question_ids[int(unknown[0])]
            raise PriceNotFoundError(
                "A plan needs prompt tokens, and the recording does not say how many the prompts"
                f" of {llm.name} have on {len(unknown)} of {len(rows)} questions of {dataset.id},"
                f" {name!r} first. Import or record it with a token counter."
            )
        output = float(mean_output_tokens(pool.output_tokens, pool.sizes).mean())
        return cls(budget, llm.billing, float(pool.prompt_tokens.mean()), output, llm.price)

    def tokens(self, calls: int) -> float:
        """Mean tokens of a question with so many calls in one request."""
        return self._prompts(calls) + calls * self.output_tokens

    def usd(self, calls: int) -> float | None:
        """Mean USD; `None` without a price."""
        return (
            None
            if self.price is None
            else usd(self.price, self._prompts(calls), calls * self.output_tokens)
        )

    def cost(self, calls: int) -> float:
        """Mean cost in the budget's unit."""
        dollars = self.usd(calls)
        return self.tokens(calls) if self.budget.unit == "tokens" or dollars is None else dollars

    def _prompts(self, calls: int) -> float:
        return self.prompt_tokens * billed_prompts(self.billing, 1, calls)

    def paid(self, calls: int) -> int:
        """Number of questions that the budget pays for, with so many calls each."""
        return int(self.budget.amount / self.cost(calls) * (1.0 + 1e-12))

    def require(self, calls: int) -> None:
        """Refuse a budget that pays no question, or any number of them.

        Raises:
            OutOfRangeError: either of these.
        """
        if not self.cost(calls) > 0.0:
            raise OutOfRangeError(
                f"Calls cost nothing in {self.budget.unit} at these prices, so"
                f" {self.budget.amount:g} {self.budget.unit} pay any number of them. Give a budget"
                " in tokens."
            )
        if self.paid(calls) < 1:
            unit = self.budget.unit
            raise OutOfRangeError(
                f"A budget of {_plain(self.budget.amount)} {unit} does not pay a single call: one"
                f" on a mean question costs {_plain(self.cost(calls))} {unit}. Raise the budget."
            )


def estimation_split(costs: QuestionCosts) -> EstimationSplit:
    """Return the integers n and m = floor(B / cost(n)) that minimise Theorem 1's bound; the fewest
    calls among equals.
    """
    candidates: list[tuple[int, int]] = []
    for calls in range(1, _MOST_CALLS + 1):
        questions = costs.paid(calls)
        if questions < 1:
            break
        candidates.append((questions, calls))
    m, n = np.array(candidates, np.float64).T
    bounds = self_consistency_bound(m, n)
    best = int(bounds.argmin())
    questions, calls = candidates[best]
    return EstimationSplit(questions, calls, float(bounds[best]), questions * costs.cost(calls))


def _plain(amount: float) -> str:
    """An amount with at most three significant digits and no exponent."""
    return np.format_float_positional(amount, precision=3, fractional=False, trim="-")

"""Budgets and the plans they buy, as data."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Self

from feval.errors import OutOfRangeError, UsageError
from feval.evaluation.questions import NONE_LEFT_OUT, LeftOut
from feval.lazy import Plottable

_FORM = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*(usd|tokens)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlanBudget:
    """A budget for calls, above 0, in the unit "usd" or "tokens" (prompt and output tokens
    together).
    """

    amount: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "20usd", "0.5 usd" or "500000tokens"; "," or "_" may separate thousands.

        Raises:
            UsageError: another form.
            OutOfRangeError: 0, or more than 10^15.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise UsageError(
                "A budget is a number above 0, written in digits, with its unit, usd or tokens,"
                f" such as 20usd or 500000tokens; {text!r:.100} was given."
            )
        return cls.checked(float(match[1].replace(",", "").replace("_", "")), match[2].lower())

    @classmethod
    def checked(cls, amount: float, unit: str) -> Self:
        """The budget; an `OutOfRangeError` for 0, or more than 10^15."""
        if not 0.0 < amount <= 1e15:
            raise OutOfRangeError(
                f"A budget is more than 0 and at most 10^15; {amount:g} {unit} was given."
            )
        return cls(amount, unit)


@dataclass(frozen=True, slots=True)
class EstimationSplit:
    """How to estimate the LLM's self-consistency error from scratch (arXiv 2509.19489, Theorem 1),
    costs included.

    Attributes:
        questions: m.
        calls: n, calls per question.
        bound: bound on the mean squared error of the average over questions: 1 / (pi n) + 1 / (8 m)
            + 1 / (2 n m).
        cost: cost of m questions with n calls each, in the budget's unit.
    """

    questions: int
    calls: int
    bound: float
    cost: float


@dataclass(frozen=True, slots=True)
class VoteOption:
    """What one odd number of votes costs and gives.

    Attributes:
        votes: M.
        plurality: accuracy of a plurality of M calls, ties broken at random. Up to the pilot's
            pool, the mean over all subsets of M of its calls, which is unbiased; beyond it, of M
            independent calls at the pool's shares, which levels off at the accuracy of the pool's
            own vote. Its interval is over the pilot's questions and covers no bias.
        plurality_kind: "subsets" up to the pilot's pool, "plug-in" beyond it.
        majority_bound_low: L, least accuracy of a majority of M calls for any distribution with the
            pilot's mu and nu.
        majority_bound_high: U, greatest.
        majority_low: lower end of the interval of L and U with sampling error: a lower bound on the
            accuracy of a majority, and of a plurality, which wins whenever a majority does; `None`
            where nothing can be certified.
        majority_high: upper end; it does not bound a plurality.
        majority_gain_bound: L - mu, the gain over one call that mu and nu prove.
        majority_gain_low: its lower confidence limit (one-sided, over the pilot's questions).
        certified: whether that limit is above 0, given 20 or more questions, 5 or more of them with
            each kind of pair of calls (both right, one right, both wrong): on fewer, resampling
            proves nothing.
        majority_gain_low_together: the least L - mu over one confidence region of (mu, nu) for all
            votes; `None` where nothing can be certified.
        certified_together: whether the vote is certified and this is above 0 too: all such votes
            help, at the plan's confidence for all together.
        cost_per_question: in the budget's unit.
        usd_per_question: mean; `None` without a price.
        tokens_per_question: mean billed prompt and output tokens.
        questions: number of questions the budget pays for.
        affordable: whether that is all of them.
    """

    votes: int
    plurality: float
    plurality_low: float
    plurality_high: float
    plurality_kind: str
    majority_bound_low: float
    majority_bound_high: float
    majority_low: float | None
    majority_high: float | None
    majority_gain_bound: float
    majority_gain_low: float
    certified: bool
    majority_gain_low_together: float | None
    certified_together: bool
    cost_per_question: float
    usd_per_question: float | None
    tokens_per_question: float
    questions: int
    affordable: bool


@dataclass(frozen=True, slots=True)
class Purchase:
    """What to buy: M votes on a number of questions, with the expected accuracy of `VoteOption` and
    totals of dollars and tokens.

    `usd` is `None` without a price; `why` gives the reason as a sentence.
    """

    votes: int
    questions: int
    plurality: float
    plurality_low: float
    plurality_high: float
    plurality_kind: str
    usd: float | None
    tokens: float
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class BudgetPlan(Plottable):
    """What a budget buys from one LLM, judged by a pilot.

    Attributes:
        questions: number of questions to answer.
        pilot_questions: number of recorded questions.
        pilot_calls: calls of the smallest pool.
        prices: id of the price list; `None` without one, or where it has no price for the LLM.
        prompt_tokens: mean per prompt.
        output_tokens: mean per call.
        mu: accuracy of one call.
        nu: probability that two calls on a question are both right.
        rho: correlation of two calls; `None` where mu is 0 or 1, for the reason `rho_reason`.
        family: number of plans made together: joint certificates hold over all of them
            (Bonferroni).
        estimating: the split for estimating the self-consistency error.
        options: one per number of votes.
        warnings: what a reader must know.
        left_out: pilot questions left out because they have no gold or fewer than two calls.
    """

    dataset: str
    llm: str
    recording_hashes: tuple[str, ...]
    budget: PlanBudget
    questions: int
    pilot_questions: int
    pilot_calls: int
    prices: str | None
    billing: str
    prompt_tokens: float
    output_tokens: float
    mu: float
    nu: float
    rho: float | None
    rho_reason: str | None
    confidence: float
    family: int
    resamples: int
    seed: int
    estimating: EstimationSplit
    options: tuple[VoteOption, ...]
    purchase: Purchase
    warnings: tuple[str, ...]
    left_out: LeftOut = NONE_LEFT_OUT

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        values = dataclasses.asdict(self)
        del values["left_out"]
        return values | ({"left_out": self.left_out.to_dict()} if self.left_out else {})

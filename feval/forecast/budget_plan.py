"""Budgets and the plans they buy, as data."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Self

from feval.errors import OutOfRangeError, UsageError
from feval.evaluation.question_set import NONE_LEFT_OUT, LeftOut

__all__ = ["BudgetPlan", "EstimationSplit", "PlanBudget", "Purchase", "VoteOption"]

_FORM = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*(usd|tokens)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlanBudget:
    """What may be spent.

    Attributes:
        amount: more than 0.
        unit: "usd" or "tokens" (prompt and output tokens together).
    """

    amount: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "20usd", "0.5 usd" or "500000tokens".

        Args:
            text: a number and its unit; thousands may be set apart by "," or "_".

        Raises:
            UsageError: something else.
            OutOfRangeError: nothing, or more than 10^15.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise UsageError(
                "A budget is a number above 0, written in digits, with its unit, usd or tokens, such as 20usd or 500000tokens; "
                f"{text!r:.100} was given."
            )
        return cls._checked(float(found[1].replace(",", "").replace("_", "")), found[2].lower())

    @classmethod
    def of(cls, usd: float | None, tokens: float | None) -> Self:
        """From one of two numbers.

        Raises:
            UsageError: none or both.
            OutOfRangeError: nothing, or more than 10^15.
        """
        if (usd is None) == (tokens is None):
            raise UsageError("A plan has one budget: give budget_usd or budget_tokens, and not both.")
        return cls._checked(float(usd), "usd") if usd is not None else cls._checked(float(tokens or 0.0), "tokens")

    @classmethod
    def _checked(cls, amount: float, unit: str) -> Self:
        if not 0.0 < amount <= 1e15:
            raise OutOfRangeError(f"A budget is more than 0 and at most 10^15; {amount:g} {unit} was given.")
        return cls(amount, unit)


@dataclass(frozen=True, slots=True)
class EstimationSplit:
    """How to estimate the LLM's self-consistency error from scratch (arXiv 2509.19489, Theorem 1), costs included.

    Attributes:
        questions: m.
        calls: n, per question.
        bound: on the mean squared error of the average over questions: 1 / (pi n) + 1 / (8 m) + 1 / (2 n m).
        cost: of m questions with n calls each, in the budget's unit.
    """

    questions: int
    calls: int
    bound: float
    cost: float


@dataclass(frozen=True, slots=True)
class VoteOption:
    """One odd number of votes.

    Attributes:
        votes: M.
        plurality: accuracy of a plurality of M calls, ties by lot. Up to the pilot's pool the mean over all subsets of M of its
            calls, which is unbiased; beyond it that of M independent calls at the pool's shares, which levels off at the accuracy
            of the pool's own vote.
        plurality_low: lower end of its interval, by resampling the pilot's questions; that holds no bias.
        plurality_high: upper end.
        plurality_kind: "subsets" up to the pilot's pool, "plug-in" beyond it.
        majority_bound_low: L, least accuracy of a majority of M calls for any law with the pilot's mu and nu.
        majority_bound_high: U, greatest.
        majority_low: lower end of the interval of L and U with sampling error: what is certain of a majority, at the plan's
            confidence, and of a plurality, too, which wins whenever a majority does; `None` where nothing can be certified.
        majority_high: upper end; it bounds no plurality.
        majority_gain_bound: L - mu, the gain over one call that mu and nu prove.
        majority_gain_low: lower confidence limit of that (one-sided, over the pilot's questions).
        certified: whether that limit is above 0, from 20 questions or more, 5 of them or more with each kind of pair of calls
            (both right, one right, both wrong): on fewer, resampling proves nothing.
        majority_gain_low_together: the least L - mu over one confidence region of (mu, nu) for all votes; `None` where nothing
            can be certified.
        certified_together: whether the vote is certified and this, too, is above 0: all such votes help, at the plan's
            confidence for all at once.
        cost_per_question: in the budget's unit.
        usd_per_question: mean USD; `None` without a price.
        tokens_per_question: mean prompt and output tokens billed.
        questions: how many questions the budget pays.
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
    """What to buy.

    Attributes:
        votes: M.
        questions: on how many.
        plurality: expected accuracy of a plurality of M calls.
        plurality_low: lower end of its interval.
        plurality_high: upper end.
        plurality_kind: "subsets" or "plug-in", as in `VoteOption`.
        usd: in all; `None` without a price.
        tokens: in all.
        why: a sentence.
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


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """What a budget buys of one LLM, judged by a pilot.

    Attributes:
        dataset: id.
        llm: name.
        recording_hashes: of the pilot.
        budget: what may be spent.
        questions: to be answered.
        pilot_questions: recorded.
        pilot_calls: of the smallest pool.
        prices: id of the price list; `None` without one, or where it has no price for the LLM.
        billing: how prompts are charged.
        prompt_tokens: mean per prompt.
        output_tokens: mean per call.
        mu: accuracy of one call.
        nu: chance that two calls on a question are both right.
        rho: correlation of two calls; `None` where mu is 0 or 1.
        rho_reason: why it is `None`; `None` where it is a number.
        confidence: of intervals and certificates.
        family: how many plans are made at once: certificates that hold together do so over all of them (Bonferroni).
        resamples: of the moments' bootstrap.
        seed: of it.
        estimating: the split for estimating; `None` where the budget pays no question.
        options: by votes.
        purchase: the choice.
        warnings: sentences that a reader needs.
        left_out: questions of the pilot that were left out because they have no gold or fewer than two calls.
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
        told = dataclasses.asdict(self)
        del told["left_out"]
        return told | ({"left_out": self.left_out.to_dict()} if self.left_out else {})

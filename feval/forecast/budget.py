"""What a budget buys, from a pilot recording: how many questions, how many calls, which vote, at
what cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feval.arguments import checked
from feval.errors import OutOfRangeError
from feval.estimators.two_call.vote_intervals import vote_interval
from feval.evaluation.cautions import mixed_parties
from feval.evaluation.questions import question_set
from feval.executors.progress import reports
from feval.forecast.budget_plan import BudgetPlan, PlanBudget, Purchase, VoteOption
from feval.forecast.evidence import moments_of, ordered_by_key
from feval.forecast.pilot import Pilot, plan_warnings
from feval.forecast.question_costs import QuestionCosts, estimation_split
from feval.replay import LLM, Dataset

_AS_GOOD = 1e-3
_MOST_VOTES = 1001


@checked
@reports("planning")
def plan(
    dataset: Dataset,
    llm: LLM,
    *,
    budget_usd: float | None = None,
    budget_tokens: float | None = None,
    questions: int | None = None,
    most_votes: int = 41,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    confidence: float = 0.95,
    resamples: int = 10_000,
    family: int = 1,
) -> BudgetPlan:
    """Plan what a budget buys, from a pilot: the split for estimating, the votes with accuracies
    and certificates, and the cost.

    Costs are the pilot's means: prompt tokens by the LLM's billing, output tokens per call, at its
    price list. The purchase is the smallest vote whose expected plurality accuracy is within a
    tenth of a point of the best that the budget pays on all questions; a vote beyond the pilot's
    pool is chosen only if the lower bound of its majority beats that. Each vote is certified alone
    and together with all others, by one region of (mu, nu) (`simultaneous_gains`). Gains are
    certified by arXiv 2605.03379, Theorem 4.1, from mu and nu of all pairs of the pilot's calls,
    for a majority of right calls, hence for every plurality.

    Args:
        dataset: the pilot's questions, from `load`.
        llm: the pilot's LLM, from the same `load`.
        budget_usd: the budget in USD; or
        budget_tokens: in prompt and output tokens.
        questions: number of questions to answer; by default the pilot's.
        most_votes: the largest M to consider, up to 1,001.
        unlabelled: "refuse" or "drop" questions of the pilot without a gold answer that can be
            read.
        short_pools: "refuse" or "drop" questions of the pilot with fewer than two calls.
        confidence: of intervals and certificates.
        resamples: of the bootstrap over the pilot's questions.
        family: number of plans made together, for several LLMs or datasets: joint certificates hold
            over all of them, each plan's region at the level 1 - (1 - confidence) / family.

    Raises:
        UsageError: no budget or two; dataset and LLM from different loads.
        OutOfRangeError: a budget that does not pay a single call, or numbers out of range.
        ShortPoolError: a pilot with a single call on a question.
        UnlabelledError: questions have no gold answer that can be read.
        PriceNotFoundError: a budget in USD without a price, or no prompt tokens.
    """
    budget = PlanBudget.of(budget_usd, budget_tokens)
    dataset.require([llm])
    pilot_set = question_set(dataset, [(llm, 2)], unlabelled=unlabelled, short_pools=short_pools)
    number = len(pilot_set.rows) if questions is None else questions
    if number < 1 or not 1 <= most_votes <= _MOST_VOTES:
        raise OutOfRangeError(
            f"A plan is for 1 question or more and 1 to {_MOST_VOTES:,} votes; {number} questions"
            f" and {most_votes} votes were asked for."
        )
    if not 1 <= family <= 10**6:
        raise OutOfRangeError(
            f"A family has 1 plan or more, and at most a million; {family} was given."
        )
    costs = QuestionCosts.of(dataset, llm, pilot_set.rows, budget)
    costs.require(1)
    pilot = Pilot.of(
        dataset, llm, ordered_by_key(dataset, pilot_set.rows), confidence, resamples, family
    )
    options = _options(pilot, costs, number, range(1, most_votes + 1, 2))
    sample, _ = moments_of(pilot.moments)
    rho = float(sample.rho)
    return BudgetPlan(
        dataset=dataset.id,
        llm=llm.name,
        recording_hashes=dataset.recording_hashes,
        budget=budget,
        questions=number,
        pilot_questions=len(pilot_set.rows),
        pilot_calls=pilot.pool,
        prices=llm.prices.id if llm.prices is not None and llm.price is not None else None,
        billing=llm.billing,
        prompt_tokens=costs.prompt_tokens,
        output_tokens=costs.output_tokens,
        mu=pilot.moments.mu,
        nu=pilot.moments.nu,
        rho=None if np.isnan(rho) else rho,
        rho_reason=str(sample.reasons) or None,
        confidence=confidence,
        family=family,
        resamples=resamples,
        seed=llm.seed,
        estimating=estimation_split(costs),
        options=tuple(options),
        purchase=_purchase(options, costs, number),
        warnings=(*plan_warnings(options, pilot, number), *mixed_parties(dataset)),
        left_out=pilot_set.left_out,
    )


def _options(
    pilot: Pilot, costs: QuestionCosts, questions: int, votes: Sequence[int]
) -> list[VoteOption]:
    sample, resampled = moments_of(pilot.moments)
    pluralities, together = pilot.pluralities(votes).T.tolist(), pilot.gains_together(votes)
    tail = (1.0 - pilot.confidence) / 2.0
    options = []
    for m, (accuracy, low, high), at_once in zip(votes, pluralities, together, strict=True):
        sharp, spread = vote_interval(m // 2, sample), vote_interval(m // 2, resampled)
        limit = float(np.quantile(spread.low - resampled.mu, 1.0 - pilot.confidence))
        sure = float(np.quantile(spread.low, tail)), float(np.quantile(spread.high, 1.0 - tail))
        certified = m > 1 and limit > 1e-12 and pilot.can_certify
        options.append(
            VoteOption(
                votes=m,
                plurality=accuracy,
                plurality_low=low,
                plurality_high=high,
                plurality_kind="subsets" if m <= pilot.pool else "plug-in",
                majority_bound_low=float(sharp.low),
                majority_bound_high=float(sharp.high),
                majority_low=sure[0] if pilot.can_certify else None,
                majority_high=sure[1] if pilot.can_certify else None,
                majority_gain_bound=float(sharp.low) - pilot.moments.mu,
                majority_gain_low=limit,
                certified=certified,
                majority_gain_low_together=at_once,
                certified_together=certified and at_once is not None and at_once > 1e-12,
                cost_per_question=costs.cost(m),
                usd_per_question=costs.usd(m),
                tokens_per_question=costs.tokens(m),
                questions=costs.paid(m),
                affordable=costs.paid(m) >= questions,
            )
        )
    return options


def _purchase(options: Sequence[VoteOption], costs: QuestionCosts, questions: int) -> Purchase:
    paid = [option for option in options if option.affordable]
    known = [option for option in paid if option.plurality_kind == "subsets"]
    if not known:
        single = options[0]
        why = (
            f"The budget pays one call on {single.questions:,} of {questions:,} questions, and no"
            " vote on all of them."
        )
        return _bought(single, min(single.questions, questions), costs, why)
    best = max(known, key=lambda option: option.plurality)
    beyond = [
        option
        for option in paid
        if option.plurality_kind == "plug-in"
        and option.majority_low is not None
        and option.majority_low > best.plurality
    ]
    if beyond:
        chosen = beyond[0]
        sure, measured = 100 * (chosen.majority_low or 0.0), 100 * best.plurality
        why = (
            f"Its majority reaches at least {sure:.2f} %, more than the {measured:.2f} % of the"
            " best vote the pilot measures."
        )
    else:
        chosen = next(option for option in known if option.plurality >= best.plurality - _AS_GOOD)
        why = (
            "One call: no vote that the budget pays is expected to be better by more than a tenth"
            " of a point."
            if chosen.votes == 1
            else (
                "The smallest vote within a tenth of a point of the best that the budget pays"
                f" ({best.votes} votes)."
            )
        )
    return _bought(chosen, questions, costs, why)


def _bought(option: VoteOption, questions: int, costs: QuestionCosts, why: str) -> Purchase:
    dollars = costs.usd(option.votes)
    return Purchase(
        option.votes,
        questions,
        option.plurality,
        option.plurality_low,
        option.plurality_high,
        option.plurality_kind,
        None if dollars is None else questions * dollars,
        questions * costs.tokens(option.votes),
        why,
    )

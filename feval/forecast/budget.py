"""What a budget buys, from a pilot recording: how many questions, how many calls, which vote, at
what cost.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Self

import numpy as np

from feval.arguments import checked
from feval.errors import OutOfRangeError, PriceNotFoundError, UsageError
from feval.estimators.arrays import Floats, Result
from feval.estimators.intervals import accuracy_interval
from feval.estimators.multinomial import plugin_plurality_accuracy
from feval.estimators.plurality import VoteCounts, subset_plurality_accuracy, vote_counts
from feval.estimators.self_consistency import self_consistency_bound
from feval.estimators.vote_intervals import vote_interval
from feval.estimators.wald_regions import simultaneous_gains
from feval.evaluation.cautions import judged_by
from feval.evaluation.questions import NONE_LEFT_OUT, LeftOut, Rows, question_set
from feval.executors import reports
from feval.forecast.forecasts import (
    MeanCosts,
    SampleMoments,
    moments_of,
    ordered_by_key,
    rare_pairs,
    sample_moments,
)
from feval.lazy import Plottable
from feval.replay import LLM, Dataset
from feval.values import Record, frozen

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
    if (budget_usd is None) == (budget_tokens is None):
        raise UsageError("A plan has one budget: give budget_usd or budget_tokens, and not both.")
    given = (budget_tokens, "tokens") if budget_usd is None else (budget_usd, "usd")
    budget = PlanBudget.checked(float(given[0] or 0.0), given[1])
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
    costs = QuestionCosts.at_mean_question(dataset, llm, pilot_set.rows, budget)
    costs.require_one_call()
    rows = ordered_by_key(dataset, pilot_set.rows)
    counts = vote_counts(llm.pool.codes[rows], dataset.gold[rows])
    draws = min(resamples, _MOMENT_RESAMPLES)
    pilot = Pilot(
        counts,
        sample_moments(counts, resamples=draws, seed=llm.seed % (1 << 64)),
        int(llm.pool.sizes[rows].min()),
        rare_pairs(counts),
        confidence,
        family,
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
        pilot_questions=len(rows),
        pilot_calls=pilot.pool,
        prices=llm.prices.id if llm.prices and (llm.price or llm.states_usd) else None,
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
        purchase=_purchase(options, number),
        warnings=(*_warnings(options, pilot, number), *judged_by(dataset, rows)),
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
        sure: tuple[float | None, float | None] = None, None
        if pilot.can_certify:
            sure = float(np.quantile(spread.low, tail)), float(np.quantile(spread.high, 1.0 - tail))
        certified = m > 1 and limit > 1e-12 and pilot.can_certify
        paid = costs.paid(m)
        options.append(
            VoteOption(
                votes=m,
                plurality=accuracy,
                plurality_low=low,
                plurality_high=high,
                plurality_kind="subsets" if m <= pilot.pool else "plug-in",
                majority_bound_low=float(sharp.low),
                majority_bound_high=float(sharp.high),
                majority_low=sure[0],
                majority_high=sure[1],
                majority_gain_bound=float(sharp.low) - pilot.moments.mu,
                majority_gain_low=limit,
                certified=certified,
                majority_gain_low_together=at_once,
                certified_together=certified and at_once is not None and at_once > 1e-12,
                cost_per_question=costs.cost(m),
                usd_per_question=costs.usd(m),
                tokens_per_question=costs.tokens(m),
                questions=paid,
                affordable=paid >= questions,
            )
        )
    return options


def _purchase(options: Sequence[VoteOption], questions: int) -> Purchase:
    paid = [option for option in options if option.affordable]
    known = [option for option in paid if option.plurality_kind == "subsets"]
    if not known:
        chosen = options[0]
        why = (
            f"The budget pays one call on {chosen.questions:,} of {questions:,} questions, and no"
            " vote on all of them."
        )
        questions = min(chosen.questions, questions)
    else:
        best = max(known, key=lambda option: option.plurality)
        chosen = next(option for option in known if option.plurality >= best.plurality - _AS_GOOD)
        why = (
            "One call: no vote that the budget pays is expected to be better by more than a tenth"
            " of a point."
            if chosen.votes == 1
            else "The smallest vote within a tenth of a point of the best that the budget pays"
            f" ({best.votes} votes)."
        )
        for option in paid:
            sure = option.majority_low or 0.0
            if option.plurality_kind == "plug-in" and sure > best.plurality:
                chosen = option
                why = (
                    f"Its majority reaches at least {100 * sure:.2f} %, more than the"
                    f" {100 * best.plurality:.2f} % of the best vote the pilot measures."
                )
                break
    dollars, tokens = chosen.usd_per_question, chosen.tokens_per_question
    return Purchase(
        chosen.votes,
        questions,
        chosen.plurality,
        chosen.plurality_low,
        chosen.plurality_high,
        chosen.plurality_kind,
        None if dollars is None else questions * dollars,
        None if tokens is None else questions * tokens,
        why,
    )


_MOST_CALLS = 100_000  # per question, in the split for estimating


@frozen
class QuestionCosts(MeanCosts):
    """Mean costs of a question, and what a budget pays of them."""

    budget: PlanBudget

    @classmethod
    def at_mean_question(cls, dataset: Dataset, llm: LLM, rows: Rows, budget: PlanBudget) -> Self:
        """Take the means over some questions of a pilot.

        Raises:
            PriceNotFoundError: a budget in USD without a price, or unknown prompt tokens.
        """
        stated = budget.unit == "usd" and llm.states_usd
        if budget.unit == "usd" and llm.price is None and not stated:
            if llm.prices is not None:
                llm.prices.price(llm.name)  # says which price list, and what to do
            raise PriceNotFoundError(
                f"A budget in USD needs prices, and {llm.name} was loaded without a price list."
                " Give one (--prices), or a budget in tokens."
            )
        unknown = rows[(llm.pool.rows(rows).prompt_tokens < 0) | (not llm.is_counted)]
        if len(unknown) and not stated:
            name = dataset.question_ids[int(unknown[0])]
            raise PriceNotFoundError(
                "A plan needs prompt tokens, and the recording does not say how many the prompts"
                f" of {llm.name} have on {len(unknown)} of {len(rows)} questions of {dataset.id},"
                f" {name!r} first. Import or record it with a token counter."
            )
        return cls.from_pool(llm, rows, budget)

    def cost(self, calls: int) -> Any:
        """Mean cost in the budget's unit, which is known."""
        return self.tokens(calls) if self.budget.unit == "tokens" else self.usd(calls)

    def paid(self, calls: int) -> int:
        """Number of questions that the budget pays for, with so many calls each."""
        return int(self.budget.amount / self.cost(calls) * (1.0 + 1e-12))

    def require_one_call(self) -> None:
        """Refuse a budget that pays no question, or any number of them.

        Raises:
            OutOfRangeError: either of these.
        """
        amount, unit = _plain(self.budget.amount), self.budget.unit
        if not self.cost(1) > 0.0:
            raise OutOfRangeError(
                f"Calls cost nothing in {unit} at these prices, so {amount} {unit} pay any number"
                " of them. Give a budget in tokens."
            )
        if self.paid(1) < 1:
            raise OutOfRangeError(
                f"A budget of {amount} {unit} does not pay a single call: one on a mean question"
                f" costs {_plain(self.cost(1))} {unit}. Raise the budget."
            )


def estimation_split(costs: QuestionCosts) -> EstimationSplit:
    """Return the integers n and m = floor(B / cost(n)) that minimise Theorem 1's bound; the fewest
    calls among equals.
    """
    payable = ((costs.paid(calls), calls) for calls in range(1, _MOST_CALLS + 1))
    candidates = list(takewhile(lambda split: split[0] >= 1, payable))
    bounds = self_consistency_bound(*np.array(candidates, np.float64).T)
    best = int(bounds.argmin())
    questions, calls = candidates[best]
    return EstimationSplit(questions, calls, float(bounds[best]), questions * costs.cost(calls))


def _plain(amount: float) -> str:
    """An amount with at most three significant digits and no exponent."""
    return np.format_float_positional(amount, precision=3, fractional=False, trim="-")


_MOMENT_RESAMPLES = 400  # of the bounds, each over all votes
_FEWEST_QUESTIONS = 20  # below, percentiles of resampled means are far too narrow to certify by


class Pilot(Result):
    """A pilot's votes and moments, and the settings of the plan."""

    counts: VoteCounts
    moments: SampleMoments
    pool: int
    rare: str | None
    confidence: float
    family: int

    @property
    def can_certify(self) -> bool:
        """Whether there are enough questions for the resampled limit to prove a gain."""
        return self.rare is None and len(self.counts.gold) >= _FEWEST_QUESTIONS

    def gains_together(self, votes: Sequence[int]) -> list[float | None]:
        """Least gains of all votes together; `None` where nothing can be certified."""
        if not self.can_certify:
            return [None] * len(votes)
        level = 1.0 - (1.0 - self.confidence) / self.family
        gains = simultaneous_gains(
            self.counts.gold, self.counts.size, [m // 2 for m in votes], level
        )
        return [None if np.isnan(gain) else gain for gain in gains.tolist()]

    def pluralities(self, votes: Sequence[int]) -> Floats:
        """[3, len(votes)] accuracy, low and high of pluralities: over subsets up to the pool, at
        its shares beyond.
        """
        within, beyond = [m for m in votes if m <= self.pool], [m for m in votes if m > self.pool]
        values = subset_plurality_accuracy(*self.counts.parts, within)
        if beyond:
            values = values.beside(plugin_plurality_accuracy(*self.counts.parts, beyond))
        ends = accuracy_interval(values, self.confidence)
        return np.stack([values.mean(), ends.low, ends.high])


def _warnings(options: Sequence[VoteOption], pilot: Pilot, questions: int) -> Iterator[str]:
    """Yield the warnings of a plan for so many questions."""
    number = len(pilot.counts.gold)
    if options[-1].plurality_kind == "plug-in":
        yield _beyond(options, pilot)
    if pilot.moments.clipped:
        yield (
            "The pilot's calls on a question disagree more often than independent calls would,"
            " which happens by chance on few questions; the bounds assume that all questions are"
            " equally hard."
        )
    if not pilot.can_certify:
        why = f"{number} question{'s' if number > 1 else ''}"
        if pilot.rare is not None:
            why += f", and a cell of its pair table holds fewer than 5 of them ({pilot.rare})"
        yield (
            f"The pilot has {why}: resampling them would look too certain, so no vote is certified,"
            " and intervals may be too narrow. Record more questions."
        )
    yield from _family(options, pilot)
    if questions != number:
        yield (
            f"The intervals are for the pilot's {number} questions; the {questions:,} to answer are"
            " assumed to be like them."
        )


def _beyond(options: Sequence[VoteOption], pilot: Pilot) -> str:
    """Say what is wrong with pluralities beyond the pool, and by how much where that is visible."""
    last = max(option.votes for option in options if option.plurality_kind == "subsets")
    [measured], [predicted] = (
        estimate(*pilot.counts.parts, [last]).mean()
        for estimate in (subset_plurality_accuracy, plugin_plurality_accuracy)
    )
    over = [
        option.votes
        for option in options
        if option.plurality_kind == "plug-in" and (option.majority_low or 0.0) > option.plurality
    ]
    instead = (
        f" At M = {over[0]} even the lower bound of a majority exceeds them: use that."
        if over
        else ""
    )
    pool, vote = "pool", f"the {pilot.pool}-call vote"
    if int(pilot.counts.size.max()) > pilot.pool:
        pool, vote = "smallest pool", "the vote of all calls that a question has"
    return (
        f"Beyond M = {pilot.pool}, the pilot's {pool}, pluralities are those of independent calls"
        f" at the pool's shares: they level off at {vote}, whatever more votes would do, and their"
        f" intervals do not cover that bias. At M = {last} the pilot measures"
        f" {100 * measured:.2f} %, and the shares predict {100 * predicted:.2f} %.{instead} Record"
        " more calls to measure them."
    )


def _family(options: Sequence[VoteOption], pilot: Pilot) -> Iterator[str]:
    """Say how certain the certificates are, taken together."""
    certified = sum(option.certified for option in options)
    together = sum(option.certified_together for option in options)
    if certified < 2 and not (certified and pilot.family > 1):
        return
    level = f"{100 * pilot.confidence:g} %"
    plans = f" in all {pilot.family} plans of the family" if pilot.family > 1 else ""
    which = {0: "none of them is", certified: "all of them are"}.get(
        together, f"{together} of them are"
    )
    alone = "The vote is" if certified == 1 else f"Each of the {certified} votes is"
    how = f"by one region of mu and nu for every vote, at {level} for all together."
    if options[-1].majority_gain_low_together is None:
        how = (
            "the questions show no spread in some direction, so there is no region of mu and nu to"
            " prove it with."
        )
    yield f"{alone} certified alone, at {level}. Together{plans}, {which}: {how}"


_FORM = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*(usd|tokens)\s*", re.IGNORECASE)


@frozen
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


@frozen
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


@frozen
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
        tokens_per_question: mean billed prompt and output tokens; `None` where not counted.
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
    tokens_per_question: float | None
    questions: int
    affordable: bool


@frozen
class Purchase:
    """What to buy: M votes on a number of questions, with the expected accuracy of `VoteOption` and
    totals of dollars and tokens.

    `usd` is `None` without a price, `tokens` where they were not counted; `why` gives the reason as
    a sentence.
    """

    votes: int
    questions: int
    plurality: float
    plurality_low: float
    plurality_high: float
    plurality_kind: str
    usd: float | None
    tokens: float | None
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
    prompt_tokens: float | None
    output_tokens: float | None
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

    def to_dict(self) -> Record:
        """The plan as JSON values."""
        values = dataclasses.asdict(self)
        del values["left_out"]
        return values | ({"left_out": self.left_out.to_dict()} if self.left_out else {})

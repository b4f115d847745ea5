"""From a pilot recording and a budget to numbers: how many questions, how many calls, which vote, what it costs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from feval.cards.prices import billed_prompts, usd
from feval.errors import OutOfRangeError, PriceNotFoundError, UsageError
from feval.estimators.cost import mean_output_tokens
from feval.estimators.counts import vote_counts
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.self_consistency_bounds import self_consistency_bound
from feval.estimators.two_call.vote_intervals import vote_interval
from feval.estimators.two_call.wald_regions import simultaneous_gains
from feval.estimators.votes.multinomial import plugin_plurality_accuracy
from feval.estimators.votes.plurality import subset_plurality_accuracy
from feval.evaluation.question_set import NONE_LEFT_OUT, LeftOut, Rows, question_set
from feval.forecast.evidence import moments_of, ordered_by_key, rare_pairs, sample_moments

if TYPE_CHECKING:
    from feval.cards.prices import Price
    from feval.estimators.counts import VoteCounts
    from feval.estimators.per_question import PerQuestion
    from feval.forecast.evidence import SampleMoments
    from feval.replay.loading import LLM, Dataset

__all__ = ["Budget", "BudgetPlan", "Purchase", "Split", "VoteOption", "plan"]

Floats = npt.NDArray[np.float64]

_FORM = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*(usd|tokens)\s*", re.IGNORECASE)
_MOMENT_RESAMPLES = 400  # of the bounds, each over all votes
_MOST_CALLS = 100_000  # per question, in the split for estimating
_AS_GOOD = 1e-3
_FEWEST_QUESTIONS = 20  # below, percentiles of resampled means are far too narrow to certify by
MOST_VOTES_PLANNED = 1001


@dataclass(frozen=True, slots=True)
class Budget:
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
class Split:
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
    budget: Budget
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
    estimating: Split
    options: tuple[VoteOption, ...]
    purchase: Purchase
    warnings: tuple[str, ...]
    left_out: LeftOut = NONE_LEFT_OUT

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        told = dataclasses.asdict(self)
        del told["left_out"]
        return told | ({"left_out": self.left_out.to_dict()} if self.left_out else {})


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
    """Say what a budget buys, from a pilot: the split for estimating, the votes, their accuracies and certificates, the cost.

    Costs are the pilot's means: prompt tokens once per question or per call, by the LLM's billing, output tokens per call, at its
    price list. The vote that is bought is the smallest whose expected plurality accuracy is within a tenth of a point of the best
    that the budget pays on all questions; a vote beyond the pilot's pool only where what is certain of its majority beats that.
    Each vote is certified by itself and together with all others, by one region of (mu, nu) (`simultaneous_gains`). Gains are
    certified by arXiv 2605.03379, Theorem 4.1, from mu and nu of all pairs of the pilot's calls, for a majority of
    right calls, hence for every plurality (which wins whenever a majority does).

    Args:
        dataset: the pilot's questions, from `load`.
        llm: the pilot's LLM, from the same `load`.
        budget_usd: what may be spent, in USD; or
        budget_tokens: in prompt and output tokens.
        questions: how many are to be answered; the pilot's number if left out.
        most_votes: the largest M that is looked at, up to 1,001.
        unlabelled: "refuse" or "drop" questions of the pilot without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions of the pilot with fewer than two calls.
        confidence: of intervals and certificates.
        resamples: over the pilot's questions.
        family: how many plans are made at once, of several LLMs or datasets: the certificates that hold together hold over all of
            them, each plan's region at the level 1 - (1 - confidence) / family.

    Raises:
        UsageError: no budget, or two; dataset and LLM from different loads.
        OutOfRangeError: a budget that does not pay a single call, or numbers out of range.
        ShortPoolError: a pilot with a single call on a question.
        UnlabelledError: questions have no gold answer that can be read.
        PriceNotFoundError: dollars, and no price or no prompt tokens.
    """
    budget = Budget.of(budget_usd, budget_tokens)
    dataset.require([llm])
    asked = question_set(dataset, [(llm, 2)], unlabelled=unlabelled, short_pools=short_pools)
    wanted = len(asked.rows) if questions is None else questions
    if wanted < 1 or not 1 <= most_votes <= MOST_VOTES_PLANNED:
        raise OutOfRangeError(
            f"A plan is for 1 question or more and 1 to {MOST_VOTES_PLANNED:,} votes; {wanted} questions and {most_votes} votes "
            "were asked for."
        )
    if not 1 <= family <= 10**6:
        raise OutOfRangeError(f"A family has 1 plan or more, and at most a million; {family} was given.")
    costs = _Costs.of(dataset, llm, asked.rows, budget)
    costs.require(1)
    pilot = _Pilot.of(dataset, llm, ordered_by_key(dataset, asked.rows), confidence, resamples, family)
    options = _options(pilot, costs, wanted, range(1, most_votes + 1, 2))
    sample, _ = moments_of(pilot.moments)
    rho = float(sample.rho)
    return BudgetPlan(
        dataset=dataset.id,
        llm=llm.name,
        recording_hashes=dataset.recording_hashes,
        budget=budget,
        questions=wanted,
        pilot_questions=len(asked.rows),
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
        estimating=_split(costs),
        options=tuple(options),
        purchase=_purchase(options, costs, wanted),
        warnings=tuple(_warnings(options, pilot, wanted)),
        left_out=asked.left_out,
    )


# -- what calls cost ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Costs:
    """Mean costs of a question; `price` is `None` where dollars are not known and not needed."""

    budget: Budget
    billing: str
    prompt_tokens: float
    output_tokens: float
    price: Price | None

    @classmethod
    def of(cls, dataset: Dataset, llm: LLM, rows: Rows, budget: Budget) -> Self:

        if budget.unit == "usd" and llm.price is None:
            if llm.prices is not None:
                llm.prices.price(llm.name)  # says which price list, and what to do
            raise PriceNotFoundError(
                f"A budget in dollars needs prices, and {llm.name} was loaded without a price list. Give one (`--prices`), or a "
                "budget in tokens."
            )
        pool = llm.pool.rows(rows)
        unknown = rows[pool.prompt_tokens < 0]
        if len(unknown):
            name = dataset.question_ids[int(unknown[0])]
            raise PriceNotFoundError(
                f"A plan needs prompt tokens, and the recording does not say how many the prompts of {llm.name} have on "
                f"{len(unknown)} of {len(rows)} questions of {dataset.id}, {name!r} first. Import or record it with a token "
                "counter."
            )
        output = float(mean_output_tokens(pool.output_tokens, pool.sizes).mean())
        return cls(budget, llm.billing, float(pool.prompt_tokens.mean()), output, llm.price)

    def tokens(self, calls: int) -> float:
        """Of one question with so many calls in one request."""
        return self._prompts(calls) + calls * self.output_tokens

    def usd(self, calls: int) -> float | None:
        """The same in USD."""
        return None if self.price is None else usd(self.price, self._prompts(calls), calls * self.output_tokens)

    def cost(self, calls: int) -> float:
        """The same in the budget's unit."""
        dollars = self.usd(calls)
        return self.tokens(calls) if self.budget.unit == "tokens" or dollars is None else dollars

    def _prompts(self, calls: int) -> float:

        return self.prompt_tokens * billed_prompts(self.billing, 1, calls)

    def paid(self, calls: int) -> int:
        """How many questions the budget pays with so many calls each."""
        return int(self.budget.amount / self.cost(calls) * (1.0 + 1e-12))

    def require(self, calls: int) -> None:
        """Make sure that the budget pays one question, and not any number of them."""
        if not self.cost(calls) > 0.0:
            raise OutOfRangeError(
                f"Calls cost nothing in {self.budget.unit} at these prices, so {self.budget.amount:g} {self.budget.unit} pay any "
                "number of them. Give a budget in tokens."
            )
        if self.paid(calls) < 1:
            unit = self.budget.unit
            raise OutOfRangeError(
                f"A budget of {_plain(self.budget.amount)} {unit} does not pay a single call: one on a mean question costs "
                f"{_plain(self.cost(calls))} {unit}. Raise the budget."
            )


def _split(costs: _Costs) -> Split:
    """The integers n and m = floor(B / cost(n)) that minimise Theorem 1's bound; the fewest calls among equals."""
    tried: list[tuple[int, int]] = []
    for calls in range(1, _MOST_CALLS + 1):
        questions = costs.paid(calls)
        if questions < 1:
            break
        tried.append((questions, calls))
    m, n = np.array(tried, np.float64).T
    bounds = self_consistency_bound(m, n)
    best = int(bounds.argmin())
    questions, calls = tried[best]
    return Split(questions, calls, float(bounds[best]), questions * costs.cost(calls))


# -- what votes give ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Pilot:
    """The pilot's calls, questions by key."""

    counts: VoteCounts
    moments: SampleMoments
    pool: int
    rare: str | None
    confidence: float
    family: int

    @classmethod
    def of(cls, dataset: Dataset, llm: LLM, rows: Rows, confidence: float, resamples: int, family: int) -> Self:

        counts = vote_counts(llm.pool.codes[rows], dataset.gold[rows])
        some = min(resamples, _MOMENT_RESAMPLES)
        moments = sample_moments(counts.gold, counts.size, resamples=some, seed=llm.seed % (1 << 64))
        rare = rare_pairs(counts.gold, counts.size)
        return cls(counts, moments, int(llm.pool.sizes[rows].min()), rare, confidence, family)

    @property
    def can_certify(self) -> bool:
        """Whether there are questions enough for the resampled limit to prove a gain."""
        return self.rare is None and len(self.counts.gold) >= _FEWEST_QUESTIONS

    def gains_together(self, votes: Sequence[int]) -> list[float | None]:
        """Least gains of all votes at once, or nothing where nothing can be certified."""
        if not self.can_certify:
            return [None] * len(votes)
        level = 1.0 - (1.0 - self.confidence) / self.family
        gains = simultaneous_gains(self.counts.gold, self.counts.size, [m // 2 for m in votes], level)
        return [None if np.isnan(gain) else gain for gain in gains.tolist()]

    def pluralities(self, votes: Sequence[int]) -> Floats:
        """[3, len(votes)] accuracy, low and high of pluralities: over subsets up to the pool, at its shares beyond."""
        within, beyond = [m for m in votes if m <= self.pool], [m for m in votes if m > self.pool]
        values = self._subsets(within).beside(self._plug_in(beyond)) if beyond else self._subsets(within)
        ends = accuracy_interval(values, self.confidence)
        return np.stack([values.mean(), ends.low, ends.high])

    def seam(self, votes: int) -> tuple[float, float]:
        """What the subsets show of a vote within the pool, and what its shares would have told."""
        return float(self._subsets([votes]).mean()[0]), float(self._plug_in([votes]).mean()[0])

    def _subsets(self, votes: Sequence[int]) -> PerQuestion:

        return subset_plurality_accuracy(self.counts.gold, self.counts.rivals, self.counts.no_answer, votes)

    def _plug_in(self, votes: Sequence[int]) -> PerQuestion:

        return plugin_plurality_accuracy(self.counts.gold, self.counts.rivals, self.counts.no_answer, votes)


def _options(pilot: _Pilot, costs: _Costs, questions: int, votes: Sequence[int]) -> list[VoteOption]:

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


def _purchase(options: Sequence[VoteOption], costs: _Costs, questions: int) -> Purchase:
    paid = [option for option in options if option.affordable]
    known = [option for option in paid if option.plurality_kind == "subsets"]
    if not known:
        single = options[0]
        why = (
            f"The budget pays one call on {single.questions:,} of {questions:,} questions, and no vote on all of them."
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
        why = f"Its majority surely reaches {sure:.2f} %, more than the {measured:.2f} % of the best vote the pilot measures."
    else:
        chosen = next(option for option in known if option.plurality >= best.plurality - _AS_GOOD)
        why = (
            "One call: no vote that the budget pays is expected to be better by more than a tenth of a point."
            if chosen.votes == 1
            else f"The smallest vote within a tenth of a point of the best that the budget pays ({best.votes} votes)."
        )
    return _bought(chosen, questions, costs, why)


def _bought(option: VoteOption, questions: int, costs: _Costs, why: str) -> Purchase:
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


def _warnings(options: Sequence[VoteOption], pilot: _Pilot, questions: int) -> list[str]:
    said, asked = [], len(pilot.counts.gold)
    if options[-1].plurality_kind == "plug-in":
        said.append(_beyond(options, pilot))
    if pilot.moments.clipped:
        said.append(
            "The pilot's calls on a question disagree more often than independent calls would, which happens by chance on few "
            "questions; the bounds take all questions for equally hard."
        )
    if not pilot.can_certify:
        why = f"{asked} question{'s' if asked > 1 else ''}"
        if pilot.rare is not None:
            why += f", and a cell of its pair table holds fewer than 5 of them ({pilot.rare})"
        said.append(
            f"The pilot has {why}: resampling them would prove too much, so no vote is certified, and intervals may be too "
            "narrow. Record more questions."
        )
    said += _family(options, pilot)
    if questions != asked:
        said.append(
            f"The intervals are those of the pilot's questions, {asked}; the {questions:,} to be answered are taken to be "
            "like them."
        )
    return said


def _beyond(options: Sequence[VoteOption], pilot: _Pilot) -> str:
    """What is wrong with pluralities beyond the pool, and by how much where that can be seen."""
    last = max(option.votes for option in options if option.plurality_kind == "subsets")
    measured, told = pilot.seam(last)
    beyond = [option for option in options if option.plurality_kind == "plug-in"]
    over = [option.votes for option in beyond if (option.majority_low or 0.0) > option.plurality]
    instead = f" At M = {over[0]} even what is sure of a majority exceeds them: go by that." if over else ""
    alike = int(pilot.counts.size.max()) == pilot.pool
    pool = "the pilot's pool" if alike else "the pilot's smallest pool"
    vote = f"the {pilot.pool}-call vote" if alike else "the vote of all calls that a question has"
    return (
        f"Beyond M = {pilot.pool}, {pool}, pluralities are those of independent calls at the pool's shares: they level "
        f"off at {vote}, whatever more votes would do, and their intervals hold no such bias. At M = {last}, "
        f"where the pilot shows {100 * measured:.2f} %, the shares tell {100 * told:.2f} %.{instead} Record more calls to "
        "measure them."
    )


def _family(options: Sequence[VoteOption], pilot: _Pilot) -> list[str]:
    """How sure the certificates are, taken together."""
    certified = sum(option.certified for option in options)
    together = sum(option.certified_together for option in options)
    if certified < 2 and not (certified and pilot.family > 1):
        return []
    level = f"{100 * pilot.confidence:g} %"
    plans = f" in all {pilot.family} plans of the family" if pilot.family > 1 else ""
    which = (
        "none of them does" if not together else "all of them do" if together == certified else f"{together} of them do"
    )
    alone = "The vote is" if certified == 1 else f"Each of the {certified} votes is"
    if options[-1].majority_gain_low_together is None:
        how = "the questions show no spread in some direction, so there is no region of mu and nu to prove it by."
    else:
        how = f"by one region of mu and nu that serves every vote, at {level} for all at once."
    return [f"{alone} certified by itself, at {level}. Taken together{plans}, {which}: {how}"]


def _plain(amount: float) -> str:
    """An amount with at most three significant digits and no exponent."""
    return np.format_float_positional(amount, precision=3, fractional=False, trim="-")

"""AutoMix: a small LLM answers and verifies itself; where it doubts, a larger one is asked (arXiv
2310.12963).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf, prod
from typing import Annotated, Any, Literal, Self

import numpy as np
import scipy
from pydantic import Field

from feval import replay
from feval.errors import NotRecordedError, OutOfRangeError, UsageError
from feval.estimators.arrays import Result
from feval.methods.cascade import known_costs
from feval.methods.fields import AS_TUPLE, Aggregate, Cost, Share, as_fraction, frozen_method
from feval.methods.protocol import (
    STATED,
    Bools,
    Capabilities,
    Decisions,
    Floats,
    Integers,
    InTurn,
    Pool,
    PoolOrders,
    Pools,
    Predicting,
    Rows,
    Training,
    require_pool,
    with_calls,
)
from feval.methods.vote import reaches

Path = tuple[float | int | None, ...]
"""What happened: the level of the first LLM's verification, the next LLM by its place, its level,
and so on; `None` is the level of a CoT that has no verification.
"""

Plan = Sequence[Rows]
"""Of each LLM, [L_0 + 1, L_1 + 1, ..., L] by how many places further the LLM is that is asked next,
0 where its answer is kept, for each level of every LLM before, the last for one that was not asked,
and its own level.
"""

Tables = Sequence[tuple[Floats, Floats]]
"""Of each LLM, for the same levels the probability of these and that it is right; and without its
own level, the expected cost of asking it.
"""

Paths = Annotated[
    tuple[Annotated[Path, AS_TUPLE], ...],
    AS_TUPLE,
    Field(description="lists of a level, an LLM's place, a level, and so on"),
]


@frozen_method
class AutoMix(Predicting):
    """The small LLM's answer where its self-verification v says so, else a larger LLM's.

    v is the mean of several few-shot verifications of the same answer, recorded as the scores of a
    scorer. Verification costs one request to the LLM that answered, whether it helps or not. A CoT
    without an answer is not verified.

    `rule="threshold"` keeps the answer where v reaches the threshold; a CoT without v goes to the
    large LLM. `rule="pomdp"` takes v as an observation of a hidden state, z = which of the LLMs
    are right. p(z) and p(v | z) are those of training questions, and at a price lambda of accuracy
    the large LLM is asked iff E[R_large - R_small | v] > lambda C_large: a set of levels of v, and
    no threshold. With three or four LLMs, backward induction over the beliefs p(z | v, v', ...)
    keeps the last answer or asks any later LLM; verifications of different LLMs are independent
    given z, and the last LLM is not verified. `fit` takes the lambda whose plan has the largest
    benefit per cost on training questions, IBC = (P - P_small) / (C - C_small), C_small without
    verification; or with a budget, the most accurate of those plans within it. So it does among
    thresholds.

    Aggarwal, Madaan et al., "AutoMix: Automatically Mixing Language Models", sections 3 and 4.
    https://arxiv.org/abs/2310.12963

    Attributes:
        threshold: t in [0, 1], compared exactly; `None` until `fit` has chosen it.
        scorer: whose recorded verifications; `None` for the only scorer there is.
        aggregate: "score" where v itself was recorded, "mean" where each verification was recorded
            as a step score; "last", "min" and "prod" as for best-of-N.
        strict: keep the answer only where v > t.
        verification: "recorded" bills the recorded tokens of the verifications; "as-answer" bills
            the request and CoT of the answer a second time; "free" bills nothing.
        rule: "threshold" with two LLMs, "pomdp" with two to four, each but the first with
            verifications or without.
        belief: p(v | z) by counts of each of its "levels", or their smoothed density ("kde").
        budget: largest mean cost per training question, in USD where every LLM has a price, else in
            tokens; `None` for the largest IBC.
        plan: what `fit` has decided for "pomdp", see `Path`: one that ends with an LLM goes on to
            it, one that ends with a level keeps the answer. v counts as the nearest level.
    """

    capabilities = Capabilities(
        chooses=True,
        bills_scores=True,
        needs="Its scores are verifications of the small LLM's answers, by a judge (judge:MODEL) or"
        " a function that returns several.",
        learns=("threshold", "plan"),
    )

    threshold: Share | None = 0.5
    scorer: str | None = None
    aggregate: Aggregate = "score"
    # The paper keeps the answer at v = t, its code goes to the large LLM there. It matters: v has
    # only k + 1 levels.
    strict: bool = False
    # The paper sets the cost of verifying to that of answering ("as-answer"). A recording has the
    # real tokens.
    verification: Literal["recorded", "as-answer", "free"] = "recorded"
    rule: Literal["threshold", "pomdp"] = "threshold"
    # The paper's section 4 estimates the density by kernels; v has few levels, so counts are exact.
    belief: Literal["levels", "kde"] = "levels"
    budget: Cost | None = None
    plan: Paths | None = None

    def draws(self, llms: int) -> tuple[int, ...]:
        """One CoT of each LLM; of a later one only if it is asked."""
        most = 2 if self.rule == "threshold" else _MOST_LLMS
        if not 2 <= llms <= most:
            later = "a large one" if most == 2 else f"up to {most - 1} larger ones"
            raise UsageError(
                f"AutoMix asks a small LLM and then {later}; {llms}"
                f" {'was' if llms == 1 else 'were'} given."
            )
        for path in self.plan or ():
            if list(path[1::2]) != sorted(set(range(1, llms)) & set(path[1::2])):
                raise UsageError(
                    f"A plan of AutoMix asks later and later LLMs by their places, and {llms} were"
                    f" given; {list(path)} is in it."
                )
        return (1,) * llms

    @property
    def fitted(self) -> bool:
        """Whether it has its threshold or its plan."""
        return (self.threshold if self.rule == "threshold" else self.plan) is not None

    def __call__(
        self,
        question: str,  # noqa: ARG002  a replayed LLM already has its question
        *llms: replay.MeteredLLM,
    ) -> str | None:
        """The answer to one question; `None` if the last LLM that was asked has none."""
        self._require(len(llms))
        path: Path = ()
        while True:
            llm = llms[_last(path)]
            response = llm.sample(1)
            [answer] = response.answers
            level = np.array([np.nan])
            if answer is not None and self._verifies(path):
                [verified] = response.scores(self.scorer, self.aggregate)
                level[0] = np.nan if verified is None else verified
                tokens = None
                if self.verification == "as-answer":
                    tokens = _known(response.request.tokens), response.tokens
                elif self.verification == "recorded":
                    [tokens] = response.scoring_tokens(self.scorer)
                if tokens is not None:
                    llm.charge(prompt_tokens=tokens[0], output_tokens=tokens[1])
            onward = [row for row, goes in self._onward(path, level) if goes[0]]
            if not onward:
                return answer
            [path] = onward

    def ratings(self, pools: Pools) -> list[Floats | None]:
        """The verifications of every LLM but the last; see `feval.methods.protocol`."""
        return [
            p.aggregated(self.scorer, self.aggregate) if self._verifiable(pools, at) else None
            for at, p in enumerate(pools)
        ]

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        self._require(len(pools))
        turn, shape = InTurn(self, pools, orders), orders[0].shape[:2]
        spent = {
            llm: np.zeros((3, turn.answer.size), np.int64)
            for llm in range(len(pools))
            if self.verification != "free" and self._verifiable(pools, llm)
        }
        paths: list[tuple[Path, Rows]] = [((), np.arange(turn.answer.size))]
        while paths:
            path, places = paths.pop()
            llm = _last(path)
            samples = turn.llms[llm].sample(places)
            [cells], [codes] = samples.cells, samples.codes
            turn.answer[places], turn.answered_by[places] = codes, llm
            levels = np.full(len(places), np.nan)
            if self._verifies(path):
                every = pools[llm].aggregated(self.scorer, self.aggregate).ravel()
                levels = np.where(codes >= 0, every[cells], np.nan)
                for total, each in zip(spent.get(llm, ()), self._calls(pools[llm]), strict=False):
                    total[places] = np.where(codes >= 0, each.ravel()[cells], 0)
            onward = [(row, places[goes]) for row, goes in self._onward(path, levels)]
            paths += [each for each in onward if len(each[1])]
        decisions = turn.decisions()
        for llm, calls in spent.items():
            decisions = with_calls(decisions, [*calls.reshape(3, *shape)], llm)
        return decisions

    def _calls(self, pool: Pool) -> tuple[Integers, ...]:
        """[Q, S] requests, prompt and output tokens of verifying each CoT; nothing where that is
        free.
        """
        if self.verification != "as-answer":
            return pool.scoring_tokens(self.scorer) if self.verification == "recorded" else ()
        _known(int(pool.prompt_tokens.min(initial=0)))
        prompts = np.broadcast_to(pool.prompt_tokens[:, None], pool.codes.shape)
        return np.ones_like(prompts), prompts, pool.output_tokens

    def _require(self, llms: int) -> None:
        self.draws(llms)
        if not self.fitted:
            raise UsageError(
                "AutoMix decides by what it has learnt. Let it learn from questions that are then"
                " not evaluated (--train-fraction, --folds, or `method.fit(train)`)."
            )

    def _verifiable(self, pools: Pools, llm: int) -> bool:
        """Whether an LLM verifies itself: the first one must."""
        return llm < len(pools) - 1 and (llm == 0 or bool(pools[llm].channels.scorers()))

    def _verifies(self, path: Path) -> bool:
        """Whether the LLM at the end of a path verifies its answer."""
        if self.rule == "threshold":
            return not path
        return any(level is not None for level in self._rows(path))

    def _rows(self, path: Path) -> dict[Any, Path]:
        """The plan at the LLM at the end of a path: by its level the row that ends with that, or
        with the next LLM.
        """
        end = len(path)
        rows = (row for row in self.plan or () if row[:end] == path and 0 < len(row) - end <= 2)
        return {row[end]: row for row in rows}

    def _onward(self, path: Path, levels: Floats) -> Iterator[tuple[Path, Bools]]:
        """Each path that goes on from one, and which [N] levels of verifications (NaN for none)
        take it; the others keep the answer.
        """
        if self.rule == "threshold":
            if not path:
                bar = as_fraction(self.threshold or 0)
                yield (None, 1), ~reaches(levels, bar, strict=self.strict)
            return
        rows = self._rows(path)
        if not rows:
            return  # the last LLM
        # A CoT without a verification is not trusted, unless training says better.
        without = rows.pop(None, (*path, None, _last(path) + 1))
        known = sorted(rows)
        at = np.array(known, np.float64)
        place = np.searchsorted((at[1:] + at[:-1]) / 2, levels)
        place[np.isnan(levels)] = len(known)
        for number, row in enumerate([*map(rows.__getitem__, known), without]):
            if len(row) > len(path) + 1:
                yield row, place == number

    def fit(self, train: Training) -> Self:
        """The method with the threshold, or the plan, that is best on training questions; see
        `Learner.fit`.

        Questions weigh the same, and so do an LLM's CoTs on each: what counts is the expectation
        over all draws. Plans are made with mean costs of the LLMs, as in the paper, and then
        compared by what their own calls cost.

        Raises:
            UsageError: no training question, or the same LLMs are right on all of them.
            OutOfRangeError: no plan stays within the budget, or verifications have too many levels.
            NotRecordedError: no verifications, or no prompt tokens.
        """
        for pool, draws in zip(train.pools, self.draws(len(train.pools)), strict=True):
            require_pool(self, pool, draws)
        if not len(train.gold):
            raise UsageError(
                "AutoMix cannot be fitted on no question; use a larger training split."
            )
        costs = known_costs(train)
        seen = [self._seen(train, llm, cost) for llm, cost in enumerate(costs)]
        levels = [own.levels for own in seen]
        if max(len(train.gold), 2 ** len(seen)) * prod(map(len, levels)) > _MOST_CELLS:
            raise OutOfRangeError(
                "AutoMix plans for each sequence of levels of verifications, and"
                f" {' x '.join(str(len(own)) for own in levels)} levels on {len(train.gold)}"
                " questions are too many. Record means of a few verifications, or give it fewer"
                " LLMs."
            )
        tables = tables_of(np.full(len(train.gold), 1 / len(train.gold)), seen)
        bars = np.unique(np.clip([0.0, 1.0, *np.nan_to_num(levels[0])], 0, 1)).tolist()
        plans: list[Plan] = [
            [1 - reaches(levels[0], as_fraction(bar), strict=self.strict)] for bar in bars
        ]
        if self.rule == "pomdp":
            plans = [each.plan for each in frontier(tables_of(*states_of(seen, self.belief)))]
        outcomes = [outcome(tables, plan) for plan in plans]
        best = self._best(outcomes, seen[0], float(np.nanmean(costs[0], axis=1).mean()), train.unit)
        if self.rule == "threshold":
            return replace(self, threshold=bars[best]).having(learnt_from=train)
        paths = tuple(_paths(plans[best], levels))
        return replace(self, plan=paths).having(learnt_from=train)

    def _seen(self, train: Training, llm: int, cost: Floats) -> Seen:
        """What training questions say of one LLM, whose CoTs cost [Q, S]."""
        pool = train.pools[llm]
        there, answered = pool.codes > -2, pool.codes >= 0
        verified, verifying = np.full(cost.shape, np.nan), np.zeros(cost.shape)
        if self._verifiable(train.pools, llm):
            verified = np.where(answered, pool.aggregated(self.scorer, self.aggregate), np.nan)
            if STATED in train.prices and self.verification != "free":
                raise NotRecordedError(
                    f"CoTs of {pool.llm} state what they cost, and verifications do not, so that"
                    " AutoMix cannot weigh what one gains. Name a price list (prices), or take"
                    " verification='free'."
                )
            for calls, *tokens in filter(None, [self._calls(pool)]):
                verifying = np.where(answered & (calls > 0), train.price(llm, *tokens), 0.0)
        levels, level = np.unique(verified[there], return_inverse=True)
        mass = np.zeros((len(cost), 2, len(levels)))
        rows = np.nonzero(there)[0]
        right = train.right[llm][there].astype(np.intp)
        np.add.at(mass, (rows, right, level), 1 / pool.sizes[rows])
        return Seen(levels, mass, (cost + verifying).sum(axis=1, where=there) / pool.sizes)

    def _best(self, outcomes: Sequence[Outcome], small: Seen, asking: float, unit: str) -> int:
        """Which of some plans is best by its accuracy and mean cost, the cheapest of several;
        `asking` is the mean cost of the small LLM without verification.
        """
        right, cost = np.array([(each.right, each.cost) for each in outcomes]).T
        if self.budget is None:
            # Where verification is free, a plan that asks no other LLM gains nothing at no cost.
            gain = np.round(right - small.mass[:, 1].sum(axis=1).mean(), 12)
            more = cost - asking
            value = np.divide(gain, more, out=np.where(gain > 0, inf, 0.0), where=more > 0)
        else:
            value = np.where(cost <= self.budget * (1 + 1e-12), right, -inf)  # rounding
        if value.max() == -inf:
            raise OutOfRangeError(
                f"AutoMix cannot stay within {self.budget} {unit} per question; the small LLM with"
                f" its verifications takes {cost.min():.6g}."
            )
        return int(np.lexsort((cost, -value))[0])


_MOST_LLMS = 4
_MOST_CELLS = 1 << 22  # of a table of all sequences of levels, on all questions
_EQUAL = 1e-12  # values that differ by less are equal, and the cheaper plan wins


class Seen(Result):
    """What one LLM did on K training questions, or does in K states.

    Attributes:
        levels: [L] those of its verifications, ascending, NaN last for none.
        mass: [K, 2, L] probability that it is wrong (0) or right (1) at each level.
        cost: [K] mean cost of a CoT and its verification.
    """

    levels: Floats
    mass: Floats
    cost: Floats


def tables_of(weights: Floats, seen: Sequence[Seen]) -> Tables:
    """What comes of asking each LLM.

    Args:
        weights: [K] probability of each state.
        seen: of each LLM; independent of each other in a state.
    """
    tables, joint = [], weights  # [K, L_0 + 1, ...], the levels of the LLMs so far
    for own in seen:
        mass = own.mass.reshape(len(weights), *(1,) * (joint.ndim - 1), *own.mass.shape[1:])
        here = joint[..., None, None] * mass
        tables.append((here[..., 1, :].sum(axis=0), np.tensordot(own.cost, joint, 1)))
        joint = np.concatenate([here.sum(axis=-2), joint[..., None]], axis=-1)
    return tables


class Outcome(Result):
    """A plan, its accuracy and its mean cost."""

    plan: Plan
    right: float
    cost: float

    def worth(self, price: float) -> float:
        """What it is worth where accuracy is worth 1."""
        return self.right - price * self.cost


def outcome(tables: Tables, plan: Plan = (), price: float = 0.0) -> Outcome:
    """What a plan comes to; without one, that which is worth most at a price, by backward
    induction.
    """
    made: list[Rows] = []
    values: list[Floats] = []  # [2, L_0 + 1, ...] accuracy and cost of asking each further LLM
    for llm, (kept, asking) in reversed([*enumerate(tables)]):
        options = np.stack([(kept, 0 * kept), *(own[..., :-1] for own in values)])
        worth = options[:, 0] - price * options[:, 1]
        further = (worth >= worth.max(axis=0) - _EQUAL).argmax(axis=0)
        if plan:
            further = plan[llm] if llm < len(plan) else 0 * further
        value = np.take_along_axis(options, further[None, None], axis=0)[0].sum(axis=-1)
        value[1] += asking
        made, values = [further, *made], [value, *(own[..., -1] for own in values)]
    [right, cost] = values[0].tolist()
    return Outcome(made, right, cost)


def states_of(seen: Sequence[Seen], belief: str) -> tuple[Floats, list[Seen]]:
    """p(z) of each state, and what each LLM does in it: right or wrong as z says, at levels of
    probability p(v | z) and mean cost.
    """
    states = list(product((0, 1), repeat=len(seen)))
    masses = [np.zeros((len(states), *own.mass.shape[1:])) for own in seen]
    for at, z in enumerate(states):
        right = [own.mass[:, own_z].sum(axis=1) for own, own_z in zip(seen, z, strict=True)]
        for llm, (own, mass) in enumerate(zip(seen, masses, strict=True)):
            count = prod(right[:llm] + right[llm + 1 :]) @ own.mass[:, z[llm]]
            mass[at, z[llm]] = count if belief == "levels" else _smoothed(own.levels, count)
    weights = masses[0].sum(axis=(1, 2)) / len(seen[0].cost)
    if np.count_nonzero(weights) == 1:
        raise UsageError(
            "AutoMix learns when a larger LLM is right and a smaller one wrong, and the same LLMs"
            f" are right on all {len(seen[0].cost)} of the training questions. Take others."
        )
    scale = np.maximum(weights, 1e-300)[:, None, None] * len(seen[0].cost)
    return weights, [
        Seen(own.levels, mass / scale, np.full(len(states), own.cost.mean()))
        for own, mass in zip(seen, masses, strict=True)
    ]


def _smoothed(levels: Floats, count: Floats) -> Floats:
    """Counts of the levels of some questions by the density of a Gaussian kernel, as wide as
    `gaussian_kde` makes it for those questions; where there is one level, as they are.
    """
    known = ~np.isnan(levels)
    total = count[known].sum()
    if np.count_nonzero(count[known]) < 2:
        return count
    share, questions = count[known] / total, max(total, 2.0)
    # SciPy takes the number of weights for that of data; here they are sums over questions.
    width = questions**-0.2 * np.sqrt((1 - share @ share) * questions / (questions - 1))
    density = scipy.stats.gaussian_kde(levels[known], width, share)(levels[known])
    smoothed = count.copy()
    smoothed[known] = total * density / density.sum()
    return smoothed


def frontier(tables: Tables) -> list[Outcome]:
    """Every plan that is best at some price, with several of equal worth one of them."""
    found = [outcome(tables, price=price) for price in (1e100, 0.0)]
    between = [tuple(found)]
    while between:
        low, high = between.pop()
        # At the price at which both ends are worth the same, is another plan worth more?
        gain, more = high.right - low.right, high.cost - low.cost
        price = gain / more if more > 0 else 0.0
        own = outcome(tables, price=price)
        if low.cost < own.cost < high.cost and own.worth(price) > low.worth(price) + _EQUAL:
            between += [(low, own), (own, high)]
            found.append(own)
    return found


def _paths(
    plan: Plan, levels: Sequence[Floats], at: tuple[int, ...] = (), path: Path = ()
) -> Iterator[Path]:
    """A plan as data: every level of the last LLM asked, and where it goes on, all behind that."""
    last = len(at)
    for place, level in enumerate(levels[last].tolist() if last + 1 < len(levels) else ()):
        further = int(plan[last][*at, place])
        row: Path = (*path, None if np.isnan(level) else level)
        if not further:
            yield row
            continue
        row = (*row, last + further)
        yield row
        yield from _paths(plan, levels, (*at, place, *(-1,) * (further - 1)), row)


def _last(path: Path) -> int:
    """The LLM at the end of a path, by its place."""
    return int(path[-1] or 0) if path else 0


def _known(prompt_tokens: int | None) -> int:
    if prompt_tokens is None or prompt_tokens < 0:
        raise NotRecordedError(
            "The prompt tokens of the small LLM are not known, so a verification cannot be billed"
            " as its answer; use verification='recorded' or 'free'."
        )
    return prompt_tokens

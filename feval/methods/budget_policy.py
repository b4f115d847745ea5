"""Budget policies in the manner of TREACLE (arXiv 2404.13082): ask the same LLM again, go on to a
later one, or stop, as backward induction over recorded CoTs says.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field

from feval import replay
from feval.cards.billing import billing_rule
from feval.errors import NotRecordedError, OutOfRangeError, UsageError
from feval.estimators.arrays import Numbers, UInt64
from feval.methods.budget_induction import (
    STOP,
    VIEWS,
    Paths,
    Rules,
    after,
    decisive,
    induct,
    keys_of,
    last,
    plan_rules,
)
from feval.methods.fields import (
    AS_TUPLE,
    Cost,
    Count,
    CountPerLLM,
    ListOf,
    Whole,
    frozen_method,
    per_llm,
)
from feval.methods.learners import deal_folds, fit_learner, make_learner, out_of_fold
from feval.methods.protocol import (
    Capabilities,
    Decisions,
    Floats,
    Integers,
    Orders,
    PoolOrders,
    Pools,
    Predicting,
    Predictions,
    Questions,
    Rows,
    Training,
    drawn,
    require_draws,
)
from feval.methods.vote import decide_on_first, plurality, plurality_codes
from feval.replay.draws import orders as seeded_orders, pool_key

_LOG = logging.getLogger(__name__)
_FOLDS, _DRAWS, _PRICES = 5, 100, 16
_MOST_CELLS, _MOST_LAYERS = 4_000_000, 1000

Decision = Annotated[
    tuple[
        Literal["parties", "counts", "unanimity", "plan"],
        Whole,
        ListOf[Whole],
        ListOf[Whole | ListOf[Whole]],
        Whole,
    ],
    AS_TUPLE,
]
PricedPolicies = Annotated[
    tuple[Annotated[tuple[Cost, ListOf[Decision]], AS_TUPLE], ...],
    AS_TUPLE,
    Field(description="policies that `fit` has found"),
]


@frozen_method
class BudgetPolicy(Predicting):
    """After each CoT, ask the same LLM again, go on to a later one, or stop with the plurality of
    all answers.

    `fit` weighs a right answer against what CoTs cost, by backward induction (`induct`) on draws of
    the training questions. The policies on the states of each view, and all fixed plans, then
    compete by their value on questions that they were not fitted on (5 folds); the simplest wins of
    those whose value is less than the best one's by no more than a standard error of the
    difference: a plan with the fewest CoTs, then unanimity, counts and parties. Ties among answers
    go to the one seen first; for the induction, each of m leaders is the answer with 1/m.

    With a `total_budget` it has only the batch form, since it decides on a question by what earlier
    ones have left: at each it follows the policy for (left) / (questions left), and takes no step
    whose largest training cost exceeds what is left. A CoT may cost more than any in training;
    runs that so exceed the budget are counted in a warning.

    Zhang, Huang, Taga, Joe-Wong, Oymak, Chen, "Efficient Contextual LLM Cascades through
    Budget-Constrained Policy Learning", which learns the policy by a deep network.
    https://arxiv.org/abs/2404.13082

    Attributes:
        price: lambda, of a unit of cost (a USD; a token where some LLM has no price) in right
            answers: 1500 pays USD 1/1500 for a right answer.
        total_budget: instead, in a unit of cost, for all questions of a run together.
        samples: most CoTs of each LLM, or one number per LLM.
        states: "best" of all, or the only ones there are: "parties", "counts", "unanimity", or
            "plan" for fixed plans.
        least_questions: a state that fewer training questions reach is taken as one of the next
            coarser view.
        difficulty: "none", or the learner that predicts how often the first LLM is right, from a
            question's text ("logistic", "knn") or a feature ("mean"); see `router`.
        feature: for "mean".
        bins: how many equal shares of the training questions tell predictions apart.
        limits: largest cost of a CoT of each LLM in training; `fit` finds it.
        policies: what `fit` has found, one policy for a price, several for a budget: its mean cost
            of a question, and decisions: view, bin, how often each LLM was asked, state, and the
            place of the LLM to ask, -1 to stop. The finest view that has the state decides.
    """

    capabilities = Capabilities(reads_answers=True, learns=("limits", "policies"))

    price: Cost | None = None
    total_budget: Cost | None = None
    samples: CountPerLLM = 4
    states: Literal["best", "parties", "counts", "unanimity", "plan"] = "best"
    least_questions: Count = 10
    difficulty: Literal["none", "logistic", "knn", "mean"] = "none"
    feature: str | None = None
    bins: Annotated[Count, Field(le=1000, description="a whole number from 1 to 1,000")] = 3
    limits: ListOf[Cost] = ()
    policies: PricedPolicies | None = None

    def __post_init__(self) -> None:
        for _, _, asked, _, action in (own for _, rules in self.policies or () for own in rules):
            most = per_llm("samples", self.samples, len(asked))
            if action != STOP and not (
                last(asked) <= action < len(asked) and asked[action] < most[action]
            ):
                raise UsageError(
                    f"No budget policy for {', '.join(map(str, most))} CoTs asks LLM {action} when"
                    f" {asked} were asked for."
                )

    def draws(self, llms: int) -> tuple[int, ...]:
        """The most CoTs of each LLM."""
        known = {len(asked) for _, rules in self.policies or () for _, _, asked, _, _ in rules}
        if llms < 1 or known - {llms}:
            raise UsageError(
                f"This budget policy decides among {min(known, default=1)} LLMs; {llms} were given."
            )
        return per_llm("samples", self.samples, llms)

    def first_request(self, llms: int) -> tuple[int, ...]:
        """One CoT at a time."""
        return (1,) * llms

    @property
    def whole_set(self) -> bool:
        """Whether it decides on a question by what earlier ones have left of the budget."""
        return self.total_budget is not None

    @property
    def fitted(self) -> bool:
        """Whether it has decisions."""
        return self.policies is not None

    def __call__(self, question: str, *llms: replay.MeteredLLM) -> str | None:
        """The answer to one question; `None` where no CoT has one."""
        if self.total_budget is not None:
            raise UsageError(
                "A budget for a whole run is spent question by question, and a budget policy with"
                " one has only the batch form; give it a price of a unit of cost instead."
            )
        self.draws(len(llms))
        _, rules = self._rules()[-1]
        is_plain = self.difficulty == "none"
        number = 0 if is_plain else int(self.predicts_of(question)["difficulty"])
        asked, answers = (0,) * len(llms), list[str | None]()
        votes = defaultdict[str, list[int]](lambda: [0] * len(llms))
        while True:
            action = rules.get(decisive(rules, keys_of(asked, votes.values(), number)), STOP)
            if action == STOP:
                return plurality(answers)
            answers += llms[action].sample(1).answers
            asked = after(asked, action)
            if answers[-1] is not None:
                votes[answers[-1]][action] += 1

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        needed, keys = require_draws(self, pools, orders), pools[0].question_keys
        taken = [order[:, :, :n] for order, n in zip(orders, needed, strict=True)]
        codes = [drawn(pool.codes, order) for pool, order in zip(pools, taken, strict=True)]
        shape = taken[0].shape[:2]
        rows = np.arange(prod(shape)).reshape(shape)
        said = (
            {} if self.difficulty == "none" and self.total_budget is None else self.predicts(keys)
        )
        costs = [] if self.total_budget is None else self._costs(said, taken)
        bins = (
            np.tile(said["difficulty"].astype(np.uint64), shape[0])
            if "difficulty" in said
            else None
        )
        paths = Paths([*map(_by_draw, codes)], costs, 0 * rows.ravel() - 1, rows.ravel(), bins)
        rules = self._rules()
        if self.total_budget is None:
            asked = paths.play(rules[-1][1], rows.ravel()).asked
        else:
            asked = self._spend(self.total_budget, paths, rows)
        ledgers = [
            decide_on_first(pool, order, own, n, n).ledgers[0]
            for pool, order, own, n in zip(
                pools, taken, codes, asked.reshape(len(pools), *shape), strict=True
            )
        ]
        return Decisions(plurality_codes(np.concatenate(codes, axis=2)), tuple(ledgers))

    def _spend(self, budget: float, paths: Paths, rows: Rows) -> Rows:
        """[L, R * Q] CoTs of each LLM on rows [R, Q], in runs that spend a budget each."""
        rules, (replicates, questions) = self._rules(), rows.shape
        means = np.array([cost for cost, _ in rules])
        if budget < questions * means[0]:
            raise OutOfRangeError(
                f"A budget of {budget:.6g} for {questions} questions is {budget / questions:.6g}"
                f" for each, and the cheapest policy, a CoT of the cheapest LLM, takes"
                f" {means[0]:.6g}. Raise total_budget, or leave questions out."
            )
        asked, left = np.zeros((len(paths.codes), rows.size), np.intp), np.full(replicates, budget)
        for question in range(questions):
            affordable = np.searchsorted(means, left / (questions - question), side="right")
            choice = np.maximum(affordable - 1, 0)
            for place in np.unique(choice).tolist():
                runs = np.flatnonzero(choice == place)
                own = rows[runs, question]
                played = paths.play(rules[place][1], own, left[runs], self.limits)
                asked[:, own] = played.asked
                left[runs] -= played.cost
        if (over := left < 0).any():
            _LOG.warning(
                "%d of %d runs of the budget policy cost more than their budget of %.6g, by %.6g at"
                " most: CoTs cost more than any in training.",
                over.sum(), replicates, budget, -left.min(),
            )  # fmt: skip
        return asked

    def _rules(self) -> list[tuple[float, Rules]]:
        """The policies, by their cost, as rules."""
        if not self.policies:
            raise UsageError(
                "The budget policy has learnt nothing yet. Let it learn from questions that are"
                " then not evaluated: --train-fraction or --folds, or `method.fit(train)`."
            )
        return [(cost, {own[:4]: own[4] for own in rules}) for cost, rules in self.policies]

    def fit(self, train: Training) -> Self:
        """The method with the decisions that are worth most on training questions; see
        `Learner.fit`.

        Raises:
            UsageError: neither a price nor a budget, or both; or too few training questions.
            OutOfRangeError: too many LLMs and CoTs for an induction.
            NotRecordedError: the cost of a CoT is not known.
            ShortPoolError: a question has fewer CoTs than `samples`.
        """
        pools, gold, unfitted = train.pools, train.gold, replace(self, policies=None)
        least = max(self.least_questions, _FOLDS)
        if (self.price is None) == (self.total_budget is None):
            raise UsageError(
                "A budget policy learns what is worth its cost at a price, or within a budget for"
                f" all questions together; price={self.price} and"
                f" total_budget={self.total_budget} were given. Give one of them, such as"
                f" price=1000: a right answer is worth 0.001 {train.unit}"
                " (--set price=1000)."
            )
        needed = unfitted.draws(len(pools))
        layers = prod(n + 1 for n in needed)
        if layers > _MOST_LAYERS:
            raise OutOfRangeError(
                f"samples={self.samples} of {len(pools)} LLMs can be asked for in {layers:,} ways,"
                f" and an induction takes {_MOST_LAYERS:,} at most. Set fewer."
            )
        if len(gold) < least:
            raise UsageError(
                f"A budget policy learns from {least} questions or more (least_questions, {_FOLDS}"
                f" folds); {len(gold)} {'is' if len(gold) == 1 else 'are'} for training. Use a"
                " larger training split."
            )
        require_draws(unfitted, pools, [np.empty((0, len(gold), n), np.uint16) for n in needed])
        said = self._requests(train)
        draws = min(_DRAWS, max(1, _MOST_CELLS // (layers * len(gold))))
        orders = [
            seeded_orders(pool_key(0, "fit", pool.llm), train.keys, pool.sizes, range(draws), n)
            for pool, n in zip(pools, needed, strict=True)
        ]
        folds = deal_folds(train.apart, _FOLDS)
        model, bins = self._difficulty(train, folds)
        codes = [
            _by_draw(drawn(pool.codes, order)) for pool, order in zip(pools, orders, strict=True)
        ]
        rows = np.tile(np.arange(len(gold)), draws)
        paths = Paths(codes, self._costs(said, orders), gold[rows], rows, bins[rows])
        policies: Any = tuple(
            (cost, tuple((*key, action) for key, action in rules.items()))
            for cost, rules in self._best(paths, folds)
        )
        limits = tuple(float(np.nanmax(said[f"request {llm}"])) for llm in range(len(pools)))
        fitted = replace(self, policies=policies, limits=limits)
        return fitted.having(model=model, learnt_from=train)

    def predicted(self, questions: Questions) -> Self:
        """The method with the bins of difficulty of some questions, and for a budget what their
        CoTs cost, each looked at when it is drawn.
        """
        values = {} if self.total_budget is None else self._requests(questions)
        if self.difficulty != "none":
            learner, edges, known = self.model
            scores = learner.predict_proba(questions.texts, questions.features)
            own = np.searchsorted(edges, scores, side="right")
            # a bin of no training question is taken as the nearest of some
            values["difficulty"] = known[np.abs(known - own[:, None]).argmin(axis=1)]
        return self.having(predictions=Predictions(questions.keys, values))

    def _requests(self, questions: Questions) -> dict[str, Floats]:
        """Of each LLM, what a request for each CoT costs [Q, S], and what of that is not paid again
        with the next one [Q]: the prompt, where it is billed once.
        """
        values, once = {}, billing_rule(questions.billing).prompts == "once"
        for llm, (pool, costs) in enumerate(zip(questions.pools, questions.costs, strict=True)):
            if unknown := int((np.isnan(costs) & (pool.codes > -2)).sum()):
                raise NotRecordedError(
                    f"The cost of {unknown:,} CoTs of {pool.llm} is not known, and a budget policy"
                    " weighs what CoTs cost. Record the LLM with a token counter."
                )
            values[f"request {llm}"] = costs
            values[f"prompt {llm}"] = once * questions.price(llm, pool.prompt_tokens, 0)
        return values

    def _costs(self, said: Mapping[str, Floats], orders: Sequence[Orders]) -> list[Floats]:
        """Of each LLM, [K, N] what its CoTs cost, in draw order."""
        costs = []
        for llm, order in enumerate(orders):
            own = drawn(said[f"request {llm}"], order)
            own[:, :, 1:] -= said[f"prompt {llm}"][:, None]
            costs.append(_by_draw(own))
        return costs

    def _difficulty(self, train: Training, folds: Integers) -> tuple[Any, UInt64]:
        """The learner with the edges of its bins, and [Q] the bin of each training question, as
        predicted out of fold.
        """
        if self.difficulty == "none":
            return (), np.zeros(len(folds), np.uint64)
        data = train.texts, train.features, train.shares[0]
        what = f"of {train.pools[0].llm}"
        make = partial(make_learner, self.difficulty, self.feature)
        scores = out_of_fold(make, *data, folds, what)
        edges = np.quantile(scores, np.arange(1, self.bins) / self.bins)
        learner = fit_learner(make(), *data, what)
        own = np.searchsorted(edges, scores, side="right")
        return (learner, edges, 1.0 * np.unique(own)), own.astype(np.uint64)

    def _best(self, paths: Paths, folds: Integers) -> list[tuple[float, Rules]]:
        """The policies that win, by their mean cost of a question, ascending."""
        means = [float(own[0].mean()) for own in paths.costs]
        cheapest = min((cost for cost in means if cost > 0), default=1.0)
        # from where no CoT is worth its cost
        prices = [self.price] if self.price is not None else 2.0 ** -np.arange(_PRICES) / cheapest
        every = np.arange(len(paths.gold))
        # the simplest first
        plans = sorted(paths.layers[1:], key=lambda plan: (sum(plan), plan[::-1]))
        plans = plans if self.states in ("best", "plan") else []
        views = [view for view in VIEWS[2::-1] if self.states in ("best", view)]
        # [2, plan, Q] and [2, price, view, Q] shares of right answers and costs, out of fold
        fixed = np.empty((2, len(plans), len(folds)))
        for place, plan in enumerate(plans):
            paid = sum(own[:n].sum(axis=0) for own, n in zip(paths.costs, plan, strict=True))
            each = paths.seen(plan).right, paid
            fixed[:, place] = [own.reshape(-1, len(folds)).mean(axis=0) for own in each]
        learnt = np.empty((2, len(prices), len(views), len(folds)))
        for fold in range(_FOLDS if views else 0):
            held = np.flatnonzero(folds[paths.question] == fold)
            rest = paths.take(np.flatnonzero(folds[paths.question] != fold))
            questions = np.flatnonzero(folds == fold)
            for (at, price), (place, view) in product(enumerate(prices), enumerate(views)):
                played = paths.play(self._induced(rest, price, view), held)
                each = played.right, played.cost
                means = [own.reshape(-1, len(questions)).mean(axis=0) for own in each]
                learnt[:, at, place, questions] = means
        found = []
        for at, price in enumerate(prices):
            right, cost = np.concatenate([fixed, learnt[:, at]], axis=1)
            worth = right - price * cost
            less = worth[worth.mean(axis=1).argmax()] - worth
            error = less.std(axis=1, ddof=1) / np.sqrt(len(folds))
            place = int((less.mean(axis=1) <= error).argmax())
            if place < len(plans):
                rules = plan_rules(plans[place])
            else:
                rules = paths.play(
                    self._induced(paths, price, views[place - len(plans)]), every
                ).used
            found.append((float(cost[place].mean()), float(right[place].mean()), rules))
        found.sort(key=lambda each: (each[0], -each[1]))
        most = np.maximum.accumulate([-1.0, *(right for _, right, _ in found)])
        return [
            (cost, rules) for (cost, right, rules), m in zip(found, most, strict=False) if right > m
        ]

    def _induced(self, paths: Paths, price: float, view: str) -> Rules:
        return induct(paths, price, VIEWS[VIEWS.index(view) : 3], self.least_questions)[1]


def _by_draw(values: Numbers) -> Numbers:
    """[K, R * Q] the values [R, Q, K]."""
    return values.transpose(2, 0, 1).reshape(values.shape[2], -1)

"""Router: each question goes to one LLM, chosen before any is asked (arXiv 2410.10347)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from feval import replay
from feval.errors import NotRecordedError, OutOfRangeError, UsageError
from feval.estimators.arrays import TIED
from feval.estimators.routing import Routes, best_values, routing_line
from feval.methods.fields import Cost, Finite, frozen_method
from feval.methods.learners import (
    TextLearner,
    deal_folds,
    feature_numbers,
    fit_learner,
    make_learner,
    out_of_fold,
)
from feval.methods.protocol import (
    Capabilities,
    Decisions,
    Expectation,
    Floats,
    InTurn,
    PoolOrders,
    Pools,
    Predicting,
    Predictions,
    Questions,
    Rows,
    Training,
    require_pool,
)

_FOLDS = 5


@frozen_method
class Router(Predicting):
    """One CoT of argmax_i q_i(x) - lambda c_i(x), of the cheaper LLM among equals.

    q_i(x) is how likely LLM i is right on question x, learnt for each LLM from training questions;
    c_i(x) what a call costs: its known prompt tokens and the mean of the output tokens of its CoTs
    on training questions, in USD, or in tokens where an LLM has no price.

    Dekoninck, Baader and Vechev, "A Unified Approach to Routing and Cascading for LLMs", section 2.
    https://arxiv.org/abs/2410.10347

    Attributes:
        learner: "logistic" or "knn" on the question's text, "mean" over the groups of a feature,
            FILE.py:NAME, see `feval.methods.learners`; "score" takes a feature as it is: of two
            LLMs the dearer one is asked where the feature is larger than the price.
        feature: name of the feature, for "mean" and "score".
        price: lambda, of a USD (a token where some LLM has no price) in right answers: the paper's
            trade-off of quality and cost. Below 0, dearer LLMs are preferred.
        budget: largest mean cost per training question; `fit` takes the price within it that is
            right most often, as predicted out of fold.
    """

    capabilities = Capabilities(exact=True, chooses=True, learns=("price",))
    n = 1

    learner: str = "logistic"
    feature: str | None = None
    price: Finite = 0.0
    budget: Cost | None = None

    def draws(self, llms: int) -> tuple[int, ...]:
        """One CoT of whichever LLM is asked."""
        if llms < 2 or (self.learner == "score" and llms > 2):
            takes = "two" if self.learner == "score" else "two LLMs or more"
            raise UsageError(
                f"A router chooses between LLMs, with learner={self.learner!r} between {takes};"
                f" {llms} {'was' if llms == 1 else 'were'} given."
            )
        return (1,) * llms

    @property
    def fitted(self) -> bool:
        """Whether it has learnt from some questions, or says something of some."""
        return self.model is not None or self.predictions is not None

    def fit(self, train: Training) -> Self:
        """The router fitted on training questions; see `Learner.fit`.

        Raises:
            UsageError: another number of LLMs, all CoTs of an LLM right or all wrong, no texts, or
                a feature that some questions lack.
            NotRecordedError: what a call costs is not known.
            OutOfRangeError: the cheapest LLM is above the budget.
        """
        self.draws(len(train.pools))
        for pool in train.pools:
            require_pool(self, pool, 1)
        right = np.stack(train.shares)
        tokens = [float(pool.output_tokens.sum() / pool.sizes.sum()) for pool in train.pools]
        costs, texts, features = _known_costs(train, tokens), [*train.texts], [*train.features]
        owned = [(own, f"of {pool.llm}") for own, pool in zip(right, train.pools, strict=True)]
        by_score = self.learner == "score"
        learners = (
            [] if by_score else [fit_learner(self._new(), texts, features, *each) for each in owned]
        )
        dearer = int(costs.mean(axis=1).argmax())
        model = learners, tokens, dearer
        if self.budget is None:
            return self.having(model=model, learnt_from=train)
        paid = np.stack([np.nanmean(own, axis=1) for own in train.costs])
        if (least := paid.mean(axis=1).min()) > self.budget * (1 + TIED):
            raise OutOfRangeError(
                f"No router stays within {self.budget} {train.unit} per question; the cheapest LLM"
                f" alone takes {least:.6g}. Raise the budget."
            )
        if by_score:
            quality, costs = self._scored(texts, features, costs, dearer)
        else:
            folds = deal_folds(train.apart, _FOLDS)
            quality = np.stack(
                [out_of_fold(self._new, texts, features, own, folds, whose) for own, whose in owned]
            )
        line = routing_line(best_values(quality, costs), right, paid)
        allowed = line.cost[0] <= self.budget * (1 + TIED)
        best = int(np.where(allowed, line.accuracy[0], -1.0).argmax())
        fitted = replace(self, price=float(line.bars[best]))
        return fitted.having(model=model, learnt_from=train)

    def _new(self) -> TextLearner:
        return make_learner(self.learner, self.feature)

    def _scored(
        self, texts: Sequence[str], features: Any, costs: Floats, place: int
    ) -> tuple[Floats, Floats]:
        """[L, Q] the feature as quality of the dearer LLM, which alone costs something: 1."""
        if self.feature is None:
            raise UsageError(
                "The learner 'score' takes a feature as it is, and none is named; set it, such as"
                " feature='length' (--set feature=length)."
            )
        dearer = 1.0 * (np.arange(len(costs)) == place)[:, None]
        scores = feature_numbers(texts, features, self.feature)
        return dearer * scores, dearer + 0 * costs

    def predicted(self, questions: Questions) -> Self:
        """The router with qualities and costs of these questions, [Q, L] each; see `Predicting`."""
        learners, tokens, dearer = self.model
        costs = _known_costs(questions, tokens)
        texts, features = [*questions.texts], [*questions.features]
        if learners:
            quality = np.stack([each.predict_proba(texts, features) for each in learners])
        else:
            quality, costs = self._scored(texts, features, costs, dearer)
        said = {"quality": quality.T, "cost": costs.T}
        return self.having(predictions=Predictions(questions.keys, said))

    def routes(self, keys: Any) -> Routes:
        """Which LLM each question goes to at every price, of questions by their keys."""
        said = self.predicts(keys)
        return best_values(said["quality"].T, said["cost"].T)

    def chosen(self, keys: Any) -> Rows:
        """[Q] the place of the LLM that is asked, of questions by their keys."""
        return self._best(self.predicts(keys))

    def _best(self, said: Mapping[str, Floats]) -> Rows:
        """[...] the place of the LLM of the best value, the cheapest of several."""
        value = said["quality"] - self.price * said["cost"]
        best = value == value.max(axis=-1, keepdims=True)
        places: Rows = np.where(best, -said["cost"], -np.inf).argmax(axis=-1)
        return places

    def __call__(self, question: str, *llms: replay.MeteredLLM) -> str | None:
        """The answer to one question, which has its key; `None` if the LLM has none."""
        llm = llms[int(self._best(self.predicts_of(question)))]
        return llm.sample(1).answers[0]

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        turn = InTurn(self, pools, orders)
        chosen = np.tile(self.chosen(pools[0].question_keys), orders[0].shape[0])
        for place, llm in enumerate(turn.llms):
            rows = np.flatnonzero(chosen == place)
            [turn.answer[rows]] = llm.sample(rows).codes
            turn.answered_by[rows] = place
        return turn.decisions()

    def among(
        self,
        pools: Pools,
        right: Sequence[Floats],
        costs: Sequence[Floats],  # noqa: ARG002  of calls: a router has predicted them
    ) -> list[Expectation]:
        """What each LLM gives and takes, over all draws; see `Oracle.among`."""
        chosen, found = self.chosen(pools[0].question_keys), []
        for place, (pool, own) in enumerate(zip(pools, right, strict=True)):
            require_pool(self, pool, 1)
            asked = (chosen == place) / 1.0
            tokens = pool.output_tokens.sum(axis=1) / pool.sizes
            mean = own.sum(axis=1) / pool.sizes
            found.append(Expectation(asked * mean, asked, asked, asked * tokens))
        return found


def _known_costs(questions: Questions, tokens: Sequence[float]) -> Floats:
    """[L, Q] what one call is to cost, from the mean output tokens of each LLM."""
    costs = np.stack(
        [
            np.broadcast_to(questions.price(place, pool.prompt_tokens, own), pool.sizes.shape)
            for place, (pool, own) in enumerate(zip(questions.pools, tokens, strict=True))
        ]
    )
    unknown = np.isnan(costs).any(axis=1)
    if unknown.any():
        name = questions.pools[int(unknown.argmax())].llm
        raise NotRecordedError(
            f"What a call of {name} costs is not known on every question, since its prompt tokens"
            " are not; a router compares costs. Record them with a token counter, or import prompt"
            " tokens."
        )
    return costs

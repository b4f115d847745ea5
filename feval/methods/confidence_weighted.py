"""CISC: self-consistency in which each CoT votes with its own confidence (Taubenfeld et al. 2025,
arXiv 2502.06233).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self

from feval import replay
from feval.errors import UsageError
from feval.methods.fields import Count, Positive, frozen_method
from feval.methods.protocol import (
    Capabilities,
    Decisions,
    Floats,
    OneLLM,
    PoolOrders,
    Pools,
    Predicting,
    Training,
    decide_at_once,
    sums_of_draws,
    with_calls,
)
from feval.methods.vote import (
    confidence_weights,
    rated,
    rated_codes,
    weighted_plurality,
    weighted_plurality_codes,
)
from feval.replay.draws import orders as seeded_orders, pool_key

SEQUENCE_PROBABILITY = "sequence-probability"
"""The confidence that needs no further call: the CoT's own probability, length-normalised."""

TEMPERATURES = tuple(10.0 ** (8 * i / 79 - 4) for i in range(80))
"""The values that `fit` chooses from: 80, as in the paper; their range, 1e-4 to 1e4 evenly in the
exponent, is our choice.
"""

_FIT_REPLICATES = 32


@frozen_method
class ConfidenceWeighted(OneLLM, Predicting):
    """The answer with the largest sum of exp(c_i / T) over the n CoTs that give it, c_i the
    confidence of CoT i (CISC).

    T towards infinity is self-consistency, T towards 0 the most confident CoT. CoTs without an
    answer, or without a confidence, do not vote. Weights are summed in draw order; sums within
    1e-12 of the largest are equal, and of several answers the first drawn wins. Unless T is given,
    `fit` learns it from questions that are then not evaluated.

    Attributes:
        n: CoTs per question.
        confidence: "sequence-probability", from recorded log-probabilities, or the name of a scorer
            that asked the LLM itself, such as one made by `feval score --scorer p-true:MODEL` (the
            paper's best) or `verbal:MODEL`.
        temperature: T, above 0, infinity included; `None` until it is fitted.
        self_check: how a scorer's requests are billed, as auxiliary calls at the LLM's price: with
            the "whole" prefix, with a "cached" one, or "free".
    """

    scope = "CISC votes over the CoTs of one LLM"
    capabilities = Capabilities(
        bills_scores=True,
        needs="Or take recorded self-checks (`feval score --scorer p-true:MODEL`) as its"
        " confidence.",
        learns=("temperature",),
    )

    n: Count = 20
    confidence: str = SEQUENCE_PROBABILITY
    temperature: Positive | None = None
    # A self-check follows request and CoT in one conversation. The paper counts only what is new,
    # about 20 tokens and 1 of output ("cached"); providers differ in what they charge for a cached
    # prefix, so the default is the whole recorded request.
    self_check: Literal["whole", "cached", "free"] = "whole"

    @property
    def fitted(self) -> bool:
        """Whether it has a temperature."""
        return self.temperature is not None

    def fit(self, train: Training) -> Self:
        """The method with the temperature from `TEMPERATURES` that is right most often on training
        questions; see `Learner.fit`.

        Of several, the largest wins, as it is closest to self-consistency. Each is judged on the
        same 32 draws of n CoTs.

        Raises:
            UsageError: no training question.
            NotRecordedError: the confidences were not recorded.
        """
        self.draws(len(train.pools))
        [pool], gold = train.pools, train.gold
        if not len(gold):
            raise UsageError(
                "CISC learns its temperature from training questions; there is none. Raise"
                " --train-fraction."
            )
        order = seeded_orders(
            pool_key(0, "fit", pool.llm), train.keys, pool.sizes, range(_FIT_REPLICATES), self.n
        )

        def right(temperature: float) -> int:
            method = replace(self, self_check="free", temperature=temperature)
            decided = method.decide([pool], [order]).answer
            return int(((decided == gold) & (gold >= 0)).sum())

        best = max(TEMPERATURES, key=lambda temperature: (right(temperature), temperature))
        return replace(self, temperature=best).having(learnt_from=train)

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; raises `UsageError` where no temperature was given or
        learnt.
        """
        temperature = self._temperature()
        response = llm.sample(self.n)
        checked = self.confidence != SEQUENCE_PROBABILITY
        answers, confidences = rated(
            response.answers,
            response.scores(self.confidence) if checked else response.sequence_probabilities,
        )
        if self._checks:
            for tokens in response.scoring_tokens(
                self.confidence, prefix_cached=self.self_check == "cached"
            ):
                if tokens is not None:
                    llm.charge(prompt_tokens=tokens[0], output_tokens=tokens[1])
        return weighted_plurality(answers, confidence_weights(confidences, temperature))

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        temperature = self._temperature()
        [pool], [order] = pools, orders
        codes, confidences = rated_codes(pool.codes, *self.ratings(pools))
        decisions = decide_at_once(
            self,
            pools,
            orders,
            lambda own: weighted_plurality_codes(
                own.drawn(codes), confidence_weights(own.drawn(confidences), temperature)
            ),
        )
        if not self._checks:
            return decisions
        checks = pool.scoring_tokens(self.confidence, prefix_cached=self.self_check == "cached")
        return with_calls(decisions, sums_of_draws(order, self.n, *checks))

    def ratings(self, pools: Pools) -> list[Floats]:
        """The confidences of CoTs; see `feval.methods.protocol`."""
        [pool] = pools
        probabilities = self.confidence == SEQUENCE_PROBABILITY
        return [
            pool.sequence_probabilities() if probabilities else pool.aggregated(self.confidence)
        ]

    def _temperature(self) -> float:
        if self.temperature is None:
            raise UsageError(
                "CISC needs a temperature. Let it learn one from questions that are then not"
                " evaluated (`method.fit(train)`, --train-fraction, --folds), or give it:"
                " temperature=0.5."
            )
        return self.temperature

    @property
    def _checks(self) -> bool:
        return self.confidence != SEQUENCE_PROBABILITY and self.self_check != "free"

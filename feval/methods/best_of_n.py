"""Best-of-N: sample n CoTs; the best-scored one answers, or the answer whose scores have the
largest sum.

Cobbe et al. 2021, arXiv 2110.14168 (a verifier ranks the samples); Uesato et al. 2022, arXiv
2211.14275, section 3 (weighted: scores of equal answers are added up); Wang et al. 2023
(Math-Shepherd), arXiv 2312.08935, section 3.4.
"""

from __future__ import annotations

from dataclasses import replace

from feval import replay
from feval.estimators.per_question import by_blocks
from feval.estimators.plurality import subset_best_accuracy
from feval.methods.fields import Aggregate, Count, Transform, frozen_method
from feval.methods.protocol import (
    EXACT,
    Capabilities,
    Decisions,
    Floats,
    Integers,
    OneLLM,
    Pool,
    PoolOrders,
    Pools,
    decide_at_once,
)
from feval.methods.self_consistency import OneRequest
from feval.methods.vote import (
    best_rated,
    best_rated_codes,
    hits,
    no_answer_probability,
    rated,
    rated_codes,
    vote_weights,
    weighable,
    weighted_plurality,
    weighted_plurality_codes,
)


@frozen_method
class _ChoiceByScore(OneLLM):
    """A choice among n scored CoTs: the fields and the batch form of both methods."""

    scope = "Best-of-N chooses among the CoTs of one LLM"
    capabilities = Capabilities(
        needs="Its scores are those of a reward model, such as transformers:FOLDER, or of a judge"
        " (judge:MODEL)."
    )

    n: Count = 20
    scorer: str | None = None
    # The published implementations take the last step's score, so that figures are comparable with
    # theirs by default. A report should name the aggregate: it moves the result more than the tie
    # rule does.
    aggregate: Aggregate = "last"

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        codes, scores = self._votes(pools[0])
        return decide_at_once(
            self, pools, orders, lambda own: self._chosen(own.drawn(codes), own.drawn(scores))
        )

    def _votes(self, pool: Pool) -> tuple[Integers, Floats]:
        """[Q, S] codes and scores; a CoT without a score counts as one without an answer."""
        return rated_codes(pool.codes, *self.ratings([pool]))

    def ratings(self, pools: Pools) -> list[Floats]:
        """The scores of CoTs; see `feval.methods.protocol`."""
        [pool] = pools
        return [pool.aggregated(self.scorer, self.aggregate)]

    def _chosen(self, codes: Integers, scores: Floats) -> Integers:
        """[N] the answer among drawn CoTs [N, n]; where one has none, its score is NaN."""
        raise NotImplementedError


@frozen_method
class BestOfN(_ChoiceByScore, OneRequest):
    """The answer of the best-scored of n CoTs of one LLM: argmax over CoTs of the aggregated step
    scores.

    CoTs without an answer, or without a score, are dropped. Of several best CoTs the first drawn
    wins. The scorer costs nothing here, as in FEval-TTC: it is another model, often a local one,
    and its price is not the LLM's.

    Attributes:
        n: CoTs per question.
        scorer: whose recorded scores; `None` for the only scorer there is.
        aggregate: how step scores become one number: "last" (FEval-TTC and search-and-learn, the
            default), "min" (as the Math- Shepherd paper is remembered), "prod" or "mean"; "score"
            for scorers that give a CoT one score.
    """

    capabilities = replace(EXACT, chooses=True, needs=_ChoiceByScore.capabilities.needs)

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no CoT has one with a score."""
        response = llm.sample(self.n)
        return best_rated(response.answers, response.scores(self.scorer, self.aggregate))

    def _chosen(self, codes: Integers, scores: Floats) -> Integers:
        return best_rated_codes(codes, scores)

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] probability that the best-scored CoT is right; see `OneRequest.right`."""
        codes, scores = self._votes(pool)
        right = hits(codes, gold)
        return by_blocks(
            lambda block: subset_best_accuracy(
                scores[block], right[block], pool.sizes[block], self.n
            ),
            len(gold),
        )

    def silent(self, pool: Pool) -> Floats:
        """[Q] probability that no CoT has an answer with a score."""
        codes, _ = self._votes(pool)
        return no_answer_probability(replace(pool, codes=codes), self.n)


@frozen_method
class WeightedBestOfN(_ChoiceByScore):
    """The answer whose CoTs have the largest sum of scores among n CoTs of one LLM: argmax_a of the
    sum over CoTs that say a.

    CoTs without an answer, or without a score, are dropped. Weights are summed in draw order; sums
    within 1e-12 of the largest are equal, and of several answers the first drawn wins. With all
    scores equal this is self-consistency. Scorers are free, see `BestOfN`. Scores below 0 are
    refused unless they are transformed: a sum of them would count votes against an answer.

    Attributes:
        n: CoTs per question.
        scorer: whose recorded scores; `None` for the only scorer there is.
        aggregate: how step scores become one number, see `BestOfN`.
        transform: how scores become weights: as they are ("none"), "exp", "sigmoid" or "rank" (1
            for the least of the n).
    """

    transform: Transform = "none"

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no CoT has one with a score."""
        response = llm.sample(self.n)
        answers, scores = rated(response.answers, response.scores(self.scorer, self.aggregate))
        return weighted_plurality(answers, vote_weights(scores, self.transform, self.scorer))

    def ratings(self, pools: Pools) -> list[Floats]:
        """The scores of CoTs; see `feval.methods.protocol`."""
        [pool], [scores] = pools, super().ratings(pools)
        return [weighable(pool, scores, self.transform, self.scorer)]

    def _chosen(self, codes: Integers, scores: Floats) -> Integers:
        return weighted_plurality_codes(codes, vote_weights(scores, self.transform, self.scorer))

"""Sequential revision: chains of turns, each written with the turns before it in view, beside
several such chains.

Snell et al. 2024, "Scaling LLM Test-Time Compute Optimally can be More Effective than Scaling Model
Parameters", arXiv 2408.03314, section 6: a budget of samples is split between revisions in sequence
and chains in parallel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from feval import replay
from feval.errors import NotExactError, OutOfRangeError, UsageError
from feval.estimators.per_question import by_blocks
from feval.estimators.plurality import mean_output_tokens, subset_best_accuracy
from feval.methods.fields import Aggregate, Count, Transform, frozen_method
from feval.methods.protocol import (
    Capabilities,
    Decisions,
    Expectation,
    Floats,
    Integers,
    OneLLM,
    Pool,
    PoolOrders,
    Pools,
)
from feval.methods.self_consistency import SelfConsistency, longest_of_draws
from feval.methods.trees import NOBODY, REQUEST, Places, Searches
from feval.methods.vote import (
    best_rated,
    hits,
    plurality,
    plurality_codes,
    rated,
    rated_codes,
    vote_weights,
    weighable,
    weighted_plurality,
    weighted_plurality_codes,
)


@frozen_method
class SequentialRevision(OneLLM):
    """n / turns chains, each a CoT and its revisions, one turn after the other; every chain gives
    an answer, and the chains vote.

    Within a chain the answer is that of its last turn, the majority of its turns, or that of its
    best-scored turn. Across chains it is the plurality of the chains' answers; with scores, the
    best of all. Of tied answers the one seen first wins, within a chain in the order of its turns,
    across chains in the order of the draw. A turn without an answer does not vote, one without an
    answer or a score is never the best, and a chain without an answer does not vote. A turn replies
    to the only messages that were recorded behind the one before it, such as those of `feval record
    --protocol`.

    The paper (appendix I) selects in two ways: with a verifier, "weighted", the answer with the
    largest sum of weights within each chain, then among these, each with the best weight that a
    turn of the chain gave it; or by "all", one majority of all turns. Neither has an exact form.
    Its models are trained to revise, see up to four answers before, and may revise on beyond that;
    here each turn sees the conversation that was recorded.

    Attributes:
        n: CoTs and turns in all; a multiple of turns.
        turns: of a chain, its first CoT included.
        answer: of a chain: of its "last" turn, the "majority" of its turns, or of its "best"-scored
            turn; or "weighted" or "all".
        scorer: whose scores, for "best" and "weighted"; `None` for the only one.
        aggregate: the score of a turn, for these: its "score", or an aggregate of its step scores.
        transform: for "weighted": how the scores of all turns become weights, see
            `WeightedBestOfN`.
    """

    scope, most = "Sequential revision follows the turns of one LLM", "chains"
    capabilities = Capabilities(searches=True, exact=True, exact_latency=True)

    n: Count = 16
    turns: Count = 4
    answer: Literal["last", "majority", "best", "weighted", "all"] = "last"
    scorer: str | None = None
    aggregate: Aggregate = "score"
    transform: Transform = "none"

    def __post_init__(self) -> None:
        """Refuse chains that cannot be shared out."""
        if self.n % self.turns:
            raise OutOfRangeError(
                f"Sequential revision has n / turns chains, so n is a multiple of turns; n={self.n}"
                f" and turns={self.turns} were given."
            )

    @property
    def chains(self) -> int:
        """How many run side by side."""
        return self.n // self.turns

    @property
    def seeded_only(self) -> bool:
        """Whether no exact expectation is known."""
        return self.answer in ("weighted", "all")

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no chain has one."""
        turns = [llm.sample(self.chains)]
        while len(turns) < self.turns:
            turns.append(llm.reply(turns[-1]))
        answers = list(zip(*(turn.answers for turn in turns), strict=True))
        if self.answer == "all":
            return plurality([answer for chain in answers for answer in chain])
        if self.answer in ("last", "majority"):
            return plurality(
                [each[-1] if self.answer == "last" else plurality(each) for each in answers]
            )
        scores = zip(*(turn.scores(self.scorer, self.aggregate) for turn in turns), strict=True)
        chains = [rated(*chain) for chain in zip(answers, scores, strict=True)]
        flat = np.concatenate([known for _, known in chains])
        if self.answer == "best":
            return best_rated([each for said, _ in chains for each in said], flat.tolist())
        weights = iter(vote_weights(flat, self.transform, self.scorer).tolist())
        own: list[str | None] = []
        best = []
        for said, _ in chains:
            each = [next(weights) for _ in said]
            own.append(weighted_plurality(said, each))
            votes = zip(said, each, strict=True)
            best.append(max((weight for answer, weight in votes if answer == own[-1]), default=0.0))
        return weighted_plurality(own, best)

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        searches, [pool] = Searches(self, pools, orders), pools
        turns = [searches.first(self.chains)]
        while len(turns) < self.turns:
            turns.append(searches.reply(turns[-1]))
        places = np.stack(turns, axis=2)
        flat = places.reshape(len(places), -1)
        if self.answer in ("best", "weighted"):
            codes, score = searches.scored(flat, self._scores(pool))
            if self.answer == "best":
                return searches.best(flat, codes, score)
            codes = codes.reshape(places.shape)
            weights = vote_weights(score, self.transform, self.scorer).reshape(places.shape)
            own = weighted_plurality_codes(codes, weights)
            best = np.where((codes == own[:, :, None]) & (codes >= 0), weights, 0.0).max(axis=2)
            return searches.decisions(weighted_plurality_codes(own, best), flat)
        codes = searches.of(pool.codes, flat, -1)
        if self.answer == "all":
            return searches.decisions(plurality_codes(codes), flat)
        chosen = plurality_codes(self._of_chains(codes.reshape(places.shape)))
        return searches.decisions(chosen, turns[-1] if self.answer == "last" else flat)

    def ratings(self, pools: Pools) -> list[Floats | None]:
        """The scores of turns, where they choose; see `feval.methods.protocol`."""
        return [self._scores(pools[0]) if self.answer in ("best", "weighted") else None]

    def _scores(self, pool: Pool) -> Floats:
        scores = pool.aggregated(self.scorer, self.aggregate)
        if self.answer == "best":
            return scores
        return weighable(pool, scores, self.transform, self.scorer)

    def _of_chains(self, codes: Integers) -> Integers:
        """[..., chains] the answers of chains of turns [..., chains, turns]."""
        last: Integers = codes[..., -1]
        return last if self.answer == "last" else plurality_codes(codes)

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws, where every chain was recorded unbranched: that of a vote
        of whole chains.

        Raises:
            UsageError: a CoT has several replies, or the answer is "weighted" or "all".
            NotRecordedError: a chain has fewer turns.
            ShortPoolError: too few chains.
        """
        searches, turns, sizes = self._recorded(pool)
        extra = pool.extra_prompt_tokens()
        beyond = np.sum([searches.of(extra, turn, 0) for turn in turns], axis=0)
        tokens = [searches.of(pool.output_tokens, turn, 0) for turn in turns]
        codes = np.stack([searches.of(pool.codes, turn, -1) for turn in turns], axis=2)
        if self.answer == "best":
            each = np.stack([searches.of(self._scores(pool), t, np.nan) for t in turns], axis=2)
            codes, each = rated_codes(codes, each)
            best = np.nan_to_num(each, nan=-np.inf).argmax(axis=2)[:, :, None]
            codes = np.take_along_axis(codes, best, axis=2)[..., 0]
            scores: Floats = np.take_along_axis(each, best, axis=2)[..., 0]
        else:
            codes = self._of_chains(codes)
        # a pool whose CoTs are the chains
        whole = replace(
            pool,
            codes=np.where(turns[0] < 0, -2, codes),
            output_tokens=np.sum(tokens, axis=0, dtype=np.int64),
            sizes=sizes,
        )
        expected = SelfConsistency(self.chains).exact(whole, gold)
        right = expected.right
        if self.answer == "best":
            won = hits(codes, gold)
            right = by_blocks(
                lambda block: subset_best_accuracy(
                    scores[block], won[block], sizes[block], self.chains
                ),
                len(gold),
            )
        return replace(
            expected,
            right=right,
            rounds=np.full(len(gold), 1.0 + self.chains * (self.turns - 1)),
            cots=np.full(len(gold), float(self.n)),
            auxiliary_prompt_tokens=self.chains * mean_output_tokens(beyond, sizes),
        )

    def exact_sequential_tokens(self, pool: Pool) -> Floats:
        """Expected tokens one after the other: of each round the longest turn; see
        `ExactMethod.exact_sequential_tokens`.
        """
        searches, turns, sizes = self._recorded(pool)
        total = np.zeros(len(sizes))
        for turn in turns:
            tokens = searches.of(pool.output_tokens, turn, 0)
            total += longest_of_draws(replace(pool, output_tokens=tokens, sizes=sizes), self.chains)
        return total

    def _recorded(self, pool: Pool) -> tuple[Searches, list[Places], Integers]:
        """All turns of every recorded chain [Q, W], and the number of chains [Q]."""
        pool.channels.require_turns()
        if self.seeded_only:
            raise UsageError(
                f"No exact expectation is known of answer={self.answer!r}; take seeded draws with"
                " --order seeded."
            )
        order = np.arange(pool.codes.shape[1], dtype=np.uint16)
        searches = Searches(self, [pool], [np.broadcast_to(order, (1, *pool.codes.shape))])
        sizes = searches.recorded(np.full((len(pool.sizes), 1), REQUEST))[:, 0]
        chain = np.arange(int(sizes.max(initial=0)))
        turns = [np.where(chain < sizes[:, None], chain, NOBODY)]
        while len(turns) < self.turns:
            if (searches.recorded(turns[-1]) > 1).any():
                raise NotExactError(
                    f"Some CoTs of {pool.llm} have several replies, and no exact expectation is"
                    " known then."
                )
            turns.append(searches.reply(turns[-1]))
        return searches, turns, sizes

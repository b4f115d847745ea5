"""Particle filtering over steps: paths are resampled by their scores, so that promising ones are
gone on from more often.

Puri et al. 2025, arXiv 2502.01618, algorithm 1; the authors' code is `its_hub`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from feval import replay
from feval.errors import UsageError
from feval.methods.fields import Count, Whole, frozen_method
from feval.methods.protocol import (
    Capabilities,
    Decisions,
    Floats,
    Integers,
    OneLLM,
    PoolOrders,
    Pools,
)
from feval.methods.trees import NOBODY, Aggregate, Searches, path_scores
from feval.replay.draws import more_uniforms, uniforms

_LEAST = 1e-7  # scores are kept so far from 0 and 1, as its_hub does


@frozen_method
class ParticleFiltering(OneLLM):
    """n particles, which are paths: each round resamples them by their weights and gives every
    unfinished one its next step.

    The weights are softmax(logit(score)), that is score / (1 - score), of the latest step; a
    finished particle keeps its own and takes part in the resampling. A step without a score has the
    least weight. A particle that was drawn c times asks for c steps. The last particles are not
    resampled (its_hub does, which can only lose the heaviest). Those unfinished after the last
    round give no answer.

    Attributes:
        n: particles.
        rounds: the most rounds.
        scorer: whose scores of steps, from 0 to 1; `None` for the only one.
        aggregate: the score of a path: of its last step, or the minimum, product or mean of all its
            steps.
        answer: that of the "heaviest" particle, or of one "sampled" by weight; among finished
            particles with an answer.
        seed: of the resampling.
    """

    scope = "Particle filtering searches the trees of one LLM"
    capabilities = Capabilities(searches=True)

    n: Count = 16
    rounds: Count = 40
    scorer: str | None = None
    aggregate: Aggregate = "last"
    answer: Literal["heaviest", "sampled"] = "heaviest"
    seed: Whole = 0

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no finished particle has one."""
        particles: list[replay.Node] = llm.expand(None, self.n)
        for _ in range(self.rounds - 1):
            if all(particle.ends for particle in particles):
                break
            places = _drawn(self._weights(particles), self._random(llm, self.n)).tolist()
            particles = [particles[place] for place in places]
            running = [particle for particle in particles if not particle.ends]
            steps = iter(llm.expand(running) if running else ())
            particles = [particle if particle.ends else next(steps)[0] for particle in particles]
        weights = self._weights(particles)
        answers = [(particle.answer if particle.ends else None) for particle in particles]
        valid = np.where([answer is None for answer in answers], 0.0, weights)
        if self.answer == "heaviest":
            return answers[int(valid.argmax())]
        # A number that has resampled no particle.
        return answers[int(_drawn(valid, self._random(llm, self.n + 1)[self.n :])[0])]

    def ratings(self, pools: Pools) -> list[Floats]:
        """The scores of paths; see `feval.methods.protocol`."""
        [pool], scores = pools, path_scores(pools[0], self.scorer, self.aggregate)
        _weights(scores, pool.scores(self.scorer).scorer.name)  # refuses others than from 0 to 1
        return [scores]

    def _weights(self, particles: Sequence[replay.Node]) -> Floats:
        scores = [particle.score(self.scorer, self.aggregate) for particle in particles]
        return _weights(
            np.array([np.nan if score is None else score for score in scores]), self.scorer
        )

    def _random(self, llm: replay.MeteredLLM, count: int) -> Floats:
        return more_uniforms(np.array(llm.uniform(self.seed)), count)

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        searches, [pool], [order] = Searches(self, pools, orders), pools, orders
        [scores] = self.ratings(pools)
        weights, keys = _weights(scores, self.scorer), pool.question_keys
        keys = np.zeros(order.shape[1], np.uint64) if keys is None else keys
        streams = uniforms(keys, order, self.seed).reshape(len(searches.question), -1)

        def random(count: int) -> Floats:
            last = np.maximum(searches.cots, 1)[:, None] - 1
            return more_uniforms(np.take_along_axis(streams, last, axis=1)[:, 0], count)

        particles = searches.expand(searches.roots(self.n))
        for _ in range(self.rounds - 1):
            waits = searches.ends(particles).all(axis=1, keepdims=True)
            if waits.all():
                break
            places = _drawn(searches.of(weights, particles, 0.0), random(self.n))
            drawn = np.take_along_axis(particles, places, axis=1)
            particles = np.where(waits, particles, drawn)
            stays = searches.ends(particles)
            grown = searches.expand(np.where(stays, NOBODY, particles))
            particles = np.where(stays, particles, grown)
        codes = np.where(searches.ends(particles), searches.of(pool.codes, particles, -1), -1)
        valid = np.where(codes < 0, 0.0, searches.of(weights, particles, 0.0))
        if self.answer == "heaviest":
            return searches.best(particles, codes, valid)
        # a number that has resampled no particle
        place = _drawn(valid, random(self.n + 1)[:, self.n :])
        chosen = np.take_along_axis(codes, place, axis=1)[:, 0]
        return searches.decisions(chosen, np.take_along_axis(particles, place, axis=1))


def _weights(scores: Floats, scorer: str | None) -> Floats:
    """The weights of scores: their odds, which is what softmax makes of logits; NaN weighs
    least.
    """
    if ((scores < 0) | (scores > 1)).any():
        raise UsageError(
            f"Particle filtering takes scores from 0 to 1; those of {scorer or 'the scorer'} range"
            f" from {np.nanmin(scores)} to {np.nanmax(scores)}. Take a scorer of probabilities."
        )
    clipped = np.clip(np.nan_to_num(scores, nan=0.0), _LEAST, 1 - _LEAST)
    return clipped / (1 - clipped)


def _drawn(weights: Floats, numbers: Floats) -> Integers:
    """[..., k] places drawn with replacement by weights [..., n], one for each number [..., k] in
    [0, 1).
    """
    ends = np.cumsum(weights, axis=-1)
    places: Integers = (ends[..., None, :] <= (numbers * ends[..., -1:])[..., None]).sum(axis=-1)
    last: Integers = np.minimum(places, weights.shape[-1] - 1)
    return last

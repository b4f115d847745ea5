"""Beam search over steps, and diverse verifier tree search (DVTS): keep the best-scored paths and
go on from them.

Beam search: Snell et al. 2024, arXiv 2408.03314, section 5.2. DVTS, and the code whose parameters
both have: Beeching, Tunstall, Rush 2024, "Scaling test-time compute with open models",
`search-and-learn`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feval import replay
from feval.errors import OutOfRangeError
from feval.methods.fields import Count, Transform, frozen_method
from feval.methods.protocol import Capabilities, Decisions, Floats, OneLLM, Pool, PoolOrders, Pools
from feval.methods.trees import NOBODY, Aggregate, Choice, Places, Searches, path_scores
from feval.methods.vote import (
    best_rated,
    plurality,
    plurality_codes,
    rated,
    vote_weights,
    weighable,
    weighted_plurality,
    weighted_plurality_codes,
)


@frozen_method
class _ScoredSearch(OneLLM):
    """The fields of both searches."""

    scope = "A search by scores takes the trees of one LLM"
    capabilities = Capabilities(searches=True)

    n: Count = 16
    width: Count = 4
    rounds: Count = 40
    scorer: str | None = None
    aggregate: Aggregate = "last"
    answer: Choice = "weighted"
    transform: Transform = "none"

    def __post_init__(self) -> None:
        """Refuse beams that cannot be shared out."""
        if self.n % self.width:
            raise OutOfRangeError(
                f"{type(self).__name__} keeps n / width paths, so n is a multiple of width;"
                f" n={self.n} and width={self.width} were given."
            )

    def ratings(self, pools: Pools) -> list[Floats]:
        """The scores of paths; see `feval.methods.protocol`."""
        [pool], scores = pools, path_scores(pools[0], self.scorer, self.aggregate)
        if self.answer == "weighted":
            return [weighable(pool, scores, self.transform, self.scorer)]
        return [scores]

    def _score(self, node: replay.Node) -> float:
        """What a node is compared with others by: least where it has no score."""
        score = node.score(self.scorer, self.aggregate)
        return -np.inf if score is None else score

    def _chosen(self, finished: Sequence[replay.Node]) -> str | None:
        """The answer among finished paths, in the order in which they ended; those without a score
        vote in a majority only.
        """
        answers = [node.answer for node in finished]
        if self.answer == "majority":
            return plurality(answers)
        scores = [node.score(self.scorer, self.aggregate) for node in finished]
        if self.answer == "best":
            return best_rated(answers, scores)
        known, each = rated(answers, scores)
        return weighted_plurality(known, vote_weights(each, self.transform, self.scorer))

    def _decided(
        self, searches: Searches, pool: Pool, scores: Floats, finished: Sequence[Places]
    ) -> Decisions:
        """The same for all searches."""
        paths = np.concatenate(finished, axis=1)
        codes, score = searches.scored(paths, scores)
        if self.answer == "best":
            return searches.best(paths, codes, score)
        if self.answer == "majority":
            chosen = plurality_codes(searches.of(pool.codes, paths, -1))
        else:
            chosen = weighted_plurality_codes(
                codes, vote_weights(score, self.transform, self.scorer)
            )
        return searches.decisions(chosen, paths)


@frozen_method
class BeamSearch(_ScoredSearch):
    """Beam search: every round expands the best n / width paths by `width` children each; finished
    paths are set aside.

    The first round takes n first steps. A path is judged by the scores of its steps, and one
    without a score comes last; of equal ones the first is kept. What is not finished after the last
    round gives no answer: a recorder generates the steps of that round to the end. Where fewer than
    n / width paths go on, fewer are expanded (search-and-learn repeats them up to n).

    Attributes:
        n: beams, steps of a round.
        width: children of each path that is kept.
        rounds: the most rounds.
        scorer: whose scores of steps; `None` for the only one.
        aggregate: the score of a path: of its last step, or the minimum, product or mean of all its
            steps.
        answer: among finished paths that of the "best" score, the "majority", or the "weighted"
            majority (largest sum).
        transform: for "weighted": how scores of finished paths become weights, see
            `WeightedBestOfN`.
    """

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no finished path has one."""
        steps: list[replay.Node] = llm.expand(None, self.n)
        finished = [step for step in steps if step.ends]
        for _ in range(self.rounds - 1):
            running = sorted(
                (step for step in steps if not step.ends), key=self._score, reverse=True
            )
            kept = running[: self.n // self.width]
            if not kept:
                break
            steps = [child for children in llm.expand(kept, self.width) for child in children]
            finished += [step for step in steps if step.ends]
        return self._chosen(finished)

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        searches = Searches(self, pools, orders)
        [scores] = self.ratings(pools)
        steps = searches.expand(searches.roots(self.n))
        finished = [np.where(searches.ends(steps), steps, NOBODY)]
        for _ in range(self.rounds - 1):
            score = np.nan_to_num(searches.of(scores, steps, np.nan), nan=-np.inf)
            running = (steps >= 0) & ~searches.ends(steps)
            # Those that go on come first, the best of them before the others, and equal ones as
            # they were expanded.
            best = np.lexsort((-score, ~running), axis=1)[:, : self.n // self.width]
            kept = np.take_along_axis(np.where(running, steps, NOBODY), best, axis=1)
            if (kept == NOBODY).all():
                break
            steps = searches.expand(np.repeat(kept, self.width, axis=1))
            finished.append(np.where(searches.ends(steps), steps, NOBODY))
        return self._decided(searches, pools[0], scores, finished)


@frozen_method
class DVTS(_ScoredSearch):
    """Diverse verifier tree search: n / width independent greedy searches; each goes on with the
    best of `width` children.

    A search ends where its best child ends a solution, and that is its answer (search-and-learn
    votes with all children of the last step). Scores, ties and the last round are as for
    `BeamSearch`.

    Attributes:
        n: steps of a round.
        width: children among which each search chooses.
        rounds: the most rounds.
        scorer: whose scores of steps; `None` for the only one.
        aggregate: the score of a path: of its last step, or the minimum, product or mean of all its
            steps.
        answer: among the finished searches that of the "best" score, the "majority", or the
            "weighted" majority.
        transform: for "weighted": how their scores become weights, see `WeightedBestOfN`.
    """

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no finished path has one."""
        paths: list[replay.Node | None] = [None] * (self.n // self.width)
        finished: list[replay.Node] = []
        for _ in range(self.rounds):
            best: list[replay.Node] = [
                max(children, key=self._score) for children in llm.expand(paths, self.width)
            ]
            finished += [step for step in best if step.ends]
            paths = [step for step in best if not step.ends]
            if not paths:
                break
        return self._chosen(finished)

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        searches = Searches(self, pools, orders)
        [scores] = self.ratings(pools)
        paths = searches.roots(self.n)[:, : self.n // self.width]
        finished = []
        for _ in range(self.rounds):
            steps = searches.expand(np.repeat(paths, self.width, axis=1))
            score = np.nan_to_num(searches.of(scores, steps, np.nan), nan=-np.inf)
            by_path = (*paths.shape, self.width)
            best = score.reshape(by_path).argmax(axis=2)[..., None]
            step = np.take_along_axis(steps.reshape(by_path), best, axis=2)[..., 0]
            ends = searches.ends(step)
            finished.append(np.where(ends, step, NOBODY))
            paths = np.where(ends, NOBODY, step)
            if (paths == NOBODY).all():
                break
        return self._decided(searches, pools[0], scores, finished)

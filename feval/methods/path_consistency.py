"""Path-consistency: go on from the prefixes of paths whose answer is ahead, so that later branches
repeat less of them.

Zhu et al. 2024, "Path-Consistency: Prefix Enhancement for Efficient Inference in LLM", arXiv
2409.01281.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from feval import replay
from feval.estimators.stopping_criteria import Criterion
from feval.methods.fields import Count, PositiveShare, as_fraction, frozen_method
from feval.methods.protocol import Capabilities, Decisions, OneLLM, PoolOrders, Pools
from feval.methods.trees import NOBODY, Places, Searches, path_depths
from feval.methods.vote import plurality, plurality_codes


@frozen_method
class PathConsistency(OneLLM):
    """n branches in windows, each from the current prefix to its end; where the vote is sure, the
    prefix grows by a step.

    After each window all branches so far vote. Where the beta confidence of the two largest counts
    (equation 3 of Adaptive-Consistency) reaches the threshold, the prefix becomes one step longer,
    along the first branch through it that gives the leading answer and goes on behind that step;
    where there is none, it stays. No scores are needed. Kept of the paper: the confidence of the
    answers so far, prefixes that grow with it, and the vote over all branches. A tree gives no
    prefix that ends within a step, and no more branches from a prefix than children were recorded.
    The paper's experiments draw 20 branches, and set window and threshold per task (reviews at
    openreview.net/forum?id=xIW3HfQmta); those two defaults, and the choice of the first of several
    such branches (in the order of the draw, so at random), are ours.

    Attributes:
        n: branches.
        window: branches between two looks at the vote, side by side.
        threshold: the confidence at which the prefix grows.
        rounds: the most steps of a path; one that is not finished then gives no answer.
    """

    scope = "Path-consistency searches the trees of one LLM"
    capabilities = Capabilities(searches=True)

    n: Count = 20
    window: Count = 5
    threshold: PositiveShare = "0.8"
    rounds: Count = 40

    @property
    def rule(self) -> Criterion:
        """The confidence at which the prefix grows."""
        return Criterion("beta", as_fraction(self.threshold), self.n)

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no branch has one."""
        prefix: replay.Node | None = None
        branches: list[replay.Node] = []
        for drawn in range(0, self.n, self.window):
            window: list[replay.Node] = llm.expand(prefix, min(self.window, self.n - drawn))
            while running := [
                step for step in window if not step.ends and step.depth < self.rounds
            ]:
                following = {
                    step: child for step, [child] in zip(running, llm.expand(running), strict=True)
                }
                window = [following.get(step, step) for step in window]
            branches += window
            votes = Counter(step.answer for step in branches if step.answer is not None)
            if self.rule.stops(tuple(sorted(votes.values(), reverse=True)), len(branches)):
                prefix = _longer(prefix, branches)
        return plurality([step.answer for step in branches])

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        searches, [pool] = Searches(self, pools, orders), pools
        depths = path_depths(searches.steps)
        prefix = searches.roots(1)
        branches = np.empty((len(prefix), 0), np.intp)
        for drawn in range(0, self.n, self.window):
            window = searches.expand(np.repeat(prefix, min(self.window, self.n - drawn), axis=1))
            while (
                running := ~searches.ends(window)
                & (searches.of(depths, window, self.rounds) < self.rounds)
            ).any():
                window = np.where(
                    running, searches.expand(np.where(running, window, NOBODY)), window
                )
            branches = np.concatenate([branches, window], axis=1)
            codes = searches.of(pool.codes, branches, -1)
            leader = plurality_codes(codes)[:, None]
            answers = np.arange(int(codes.max(initial=-1)) + 1)
            counts = -np.sort(-(codes[:, :, None] == answers).sum(axis=1), axis=1)
            sure = self.rule.stop_mask(counts, branches.shape[1])[:, None]
            after = _steps_after(searches, prefix, branches)
            follows = sure & (codes == leader) & (after >= 0)
            first = np.take_along_axis(after, follows.argmax(axis=1)[:, None], axis=1)
            prefix = np.where(follows.any(axis=1, keepdims=True), first, prefix)
        return searches.decisions(plurality_codes(codes), branches)


def _longer(prefix: replay.Node | None, branches: Sequence[replay.Node]) -> replay.Node | None:
    """The prefix with one step more, of the first branch with the leading answer that goes on
    behind it; else as it is.
    """
    depth = 0 if prefix is None else prefix.depth
    leader = plurality([step.answer for step in branches])
    for path in (step.path for step in branches if step.answer == leader):
        if len(path) > depth + 1 and (prefix is None or path[depth - 1] is prefix):
            return path[depth]
    return prefix


def _steps_after(searches: Searches, prefix: Places, branches: Places) -> Places:
    """[B, n] the step after the prefix on the path to each branch; `NOBODY` where the path is
    another, or ends with it.
    """
    after, step = np.full(branches.shape, NOBODY), branches
    while (step >= 0).any():
        before = searches.of(searches.steps.parents, step, NOBODY)
        after = np.where((step >= 0) & (before == prefix) & (step != branches), step, after)
        step = before
    return after

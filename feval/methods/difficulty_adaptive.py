"""Difficulty-Adaptive Self-Consistency, DSC (Wang et al., arXiv 2408.13457): one CoT for easy
questions, more for hard ones.

Three steps over a whole set of questions: rank them by difficulty; find the easy ones from the hard
end; allocate CoTs to the others from what their neighbours in the ranking needed.
"""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal

import numpy as np

from feval.errors import NotRecordedError, OutOfRangeError
from feval.estimators.arrays import Result
from feval.estimators.stopping_criteria import Criterion
from feval.methods.fields import Count, ExactNumber, as_fraction, frozen_method
from feval.methods.protocol import (
    Bools,
    Capabilities,
    Decisions,
    Floats,
    Integers,
    OneLLM,
    Pool,
    PoolOrders,
    Pools,
    Rows,
    drawn,
    most_tokens,
    with_calls,
)
from feval.methods.vote import decide_on_first


@frozen_method
class DifficultyAdaptive(OneLLM):
    """DSC: rank, partition, pre-allocate. It sees the whole set of questions, so it has only the
    batch form.

    A hard question is answered by the plurality of its CoTs (of tied answers the one seen first
    wins), an easy one by its first CoT: the authors' code takes a CoT at temperature 0, Figure 3 of
    the paper one draw, and a recording holds draws. CoTs without an answer cast no vote and are
    never unanimous.

    Attributes:
        ranking: "scorer": by the mean recorded score of a question's CoTs, higher is harder: the
            paper's mean rank over R batches, recorded as a scorer. "prompt-length": by prompt
            tokens, which costs nothing. Of two equal questions the first in recorded order is the
            easier.
        scorer: whose scores rank; `None` for the only scorer there is.
        window: p, CoTs pre-drawn, and drawn at a time (4 in the paper).
        judged: k, consecutive questions from the hard end that must each be unanimous on their p
            CoTs (32).
        neighbours: m, questions whose needs set the next first draw (16).
        budget: most CoTs per question (40).
        threshold: the Beta criterion of Adaptive-Consistency that ends drawing: 0.95. The paper
            calls the step Dirichlet, the authors' code tests Beta(v1 + 1, v2 + 1), and so do we.
        judged_are: "easy" as in the authors' code, or "hard" as Figure 3 draws it.
        preallocate: `False` starts every hard question with p CoTs (the partition alone).
        allocate_over: whose needs set a first draw: the m "hard" questions before it, as Figure 3
            draws it, or "all" as in the authors' code, where the m questions before it count
            whether they are easy or hard, so that the hardest of the easy questions set where the
            hard ones start. In both, the need of a question is the authors': the number of its CoTs
            at which the criterion first holds, not rounded up to whole windows as the figure's
            totals are.
        requests: "made": 1 + (CoTs - first draw) / p, as Figure 3 counts; or "billed" by the
            authors' code: CoTs // first draw, and at least 1, which is fewer than it makes. Only
            the cost of prompts per round depends on it.
    """

    scope, most = "DSC draws CoTs of one LLM", "budget"
    capabilities = Capabilities(
        whole_set=True,
        needs="Its scores rank the questions by difficulty; ranking='prompt-length' needs none.",
    )

    ranking: Literal["scorer", "prompt-length"] = "scorer"
    scorer: str | None = None
    window: Count = 4
    judged: Count = 32
    neighbours: Count = 16
    budget: Count = 40
    threshold: Annotated[str | float, ExactNumber(above=0, below=1)] = 0.95
    judged_are: Literal["easy", "hard"] = "easy"
    preallocate: bool = True
    allocate_over: Literal["hard", "all"] = "hard"
    requests: Literal["made", "billed"] = "made"

    def __post_init__(self) -> None:
        if self.budget < self.window:
            raise OutOfRangeError(
                f"The budget of DSC is at least a window; window={self.window} and"
                f" budget={self.budget} were given."
            )

    def first_request(self, _: int) -> None:
        """Those of questions differ."""

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """Answers and ledgers [R, Q] of the whole set of questions; see `BatchMethod.decide`."""
        allocation = self.allocation(pools, orders)
        easy, first = allocation.easy, allocation.first
        # its first draw, then a window at a time until the criterion or the budget
        size = np.minimum(first, self.budget)
        going = np.ones(size.shape, np.bool_)
        for _ in range(-(-self.budget // self.window)):
            place = (size - 1)[..., None]
            reached = np.take_along_axis(allocation.confident, place, axis=-1)[..., 0]
            going &= ~reached & (size < self.budget)
            size = np.where(going, np.minimum(size + self.window, self.budget), size)
        size = np.where(easy, 1, size)
        # the authors' script counts every request as large as the first
        billed, made = np.maximum(size // first, 1), 1 + -(-(size - first) // self.window)
        rounds = np.where(easy, 1, billed if self.requests == "billed" else made)

        pool, order = self.only(pools, orders)
        decisions = decide_on_first(
            pool,
            order,
            allocation.codes,
            size,
            rounds,
            lambda tokens: self._sequential(tokens, first, pool.at_once),
        )
        return with_calls(decisions, allocation.ranking_calls)

    def _sequential(self, tokens: Integers, first: Integers, at_once: int | None) -> Integers:
        """[R, Q] the longest CoT of each request, summed, of tokens [R, Q, budget] that are 0 where
        nothing was drawn.
        """
        later = np.arange(self.budget) - first[..., None]
        opens = (later >= 0) & (later % self.window == 0)
        opens[..., 0] = True
        requests = np.flatnonzero(opens)
        longest = np.maximum.reduceat(tokens.ravel(), requests) if len(requests) else requests
        if at_once is not None:
            request = np.cumsum(opens.ravel()) - 1
            # the CoTs of each request in a row of its own
            rows = np.zeros((len(requests), self.budget), np.int64)
            rows[request, np.arange(tokens.size) - requests[request]] = tokens.ravel()
            longest = most_tokens(rows, at_once)
        total = np.bincount(requests // self.budget, longest, first.size)
        return total.astype(np.int64).reshape(first.shape)

    def ratings(self, pools: Pools) -> list[Floats | None]:
        """The scores that rank questions; see `feval.methods.protocol`."""
        return [pools[0].aggregated(self.scorer) if self.ranking == "scorer" else None]

    def allocation(self, pools: Pools, orders: PoolOrders) -> Allocation:
        """The outcome of ranking, partition and pre-allocation; arguments as for `decide`."""
        pool, order = self.only(pools, orders)
        ranked, ranking_calls = self._ranked(pool, order.shape[:2])
        codes = drawn(pool.codes, order)
        confident = _confident(codes, Criterion("beta", as_fraction(self.threshold), self.budget))
        unanimous = (codes[:, :, : self.window] == codes[:, :, :1]).all(axis=-1) & (
            codes[:, :, 0] >= 0
        )
        easy = self._easy(unanimous[:, ranked])
        true_size = np.where(confident.any(axis=-1), confident.argmax(axis=-1) + 1, self.budget)
        first = self._first_draws(true_size[:, ranked], unanimous[:, ranked], easy)
        place = np.empty_like(ranked)  # back from the ranking to the order of the questions
        place[ranked] = np.arange(len(ranked))
        return Allocation(codes, confident, easy[:, place], first[:, place], ranking_calls)

    def _ranked(self, pool: Pool, shape: tuple[int, ...]) -> tuple[Rows, list[Integers]]:
        """[Q] rows from easy to hard, and the calls and tokens of ranking them."""
        if self.ranking == "prompt-length":
            if int(pool.prompt_tokens.min(initial=0)) < 0:
                raise NotRecordedError(
                    f"The prompt tokens of {pool.llm} were not recorded; rank by a scorer instead."
                )
            return np.argsort(pool.prompt_tokens, kind="stable"), []
        scores = pool.scores(self.scorer)
        scored = np.isfinite(scores.values)
        if not scored.any(axis=1).all():
            row = int((~scored.any(axis=1)).argmax())
            raise NotRecordedError(
                f"{pool.llm} has no score by {scores.scorer.name} on the question in row {row} to"
                " rank by."
            )
        difficulty = np.where(scored, scores.values, 0).sum(axis=1) / scored.sum(axis=1)
        spent = [
            np.where(t > 0, t, 0).sum(axis=1) for t in (scores.prompt_tokens, scores.output_tokens)
        ]
        each = (scores.prompt_tokens >= 0).sum(axis=1), *spent
        calls = [np.broadcast_to(sums, shape) for sums in each]
        return np.argsort(difficulty, kind="stable"), calls

    def _easy(self, unanimous: Bools) -> Bools:
        """[R, Q] by rank: which questions are easy. From the hard end, k unanimous ones in a row
        make all easier ones easy.
        """
        easy = np.zeros_like(unanimous)
        run, past_border = np.zeros(len(easy), np.int64), np.zeros(len(easy), np.bool_)
        for rank in range(unanimous.shape[1])[::-1]:
            easy[:, rank] = past_border
            run = np.where(unanimous[:, rank], run + 1, 0)
            at_border = ~past_border & (run >= self.judged)
            if self.judged_are == "easy":
                easy[at_border, rank : rank + self.judged] = True
            past_border |= at_border
        return easy

    def _first_draws(self, true_size: Integers, unanimous: Bools, easy: Bools) -> Integers:
        """[R, Q] by rank: CoTs of the first request of each question that is allocated for; p for
        the others.
        """
        first = np.full(true_size.shape, self.window, np.int64)
        if not self.preallocate:
            return first
        # Figure 3 starts at the hard questions; the authors' allocate_run is given all of them,
        # from the easiest on.
        counted = ~easy if self.allocate_over == "hard" else np.ones_like(easy)
        for row, own in enumerate(counted):
            ranks = np.flatnonzero(own)
            needs = np.append(0, np.cumsum(true_size[row, ranks]))
            # of the questions before each one that has enough of them
            total = needs[self.neighbours : -1] - needs[: -self.neighbours - 1]
            # half to even, as Python rounds; a quotient of so small numbers is a half only if it is
            means = np.rint(total / (self.neighbours * self.window)).astype(np.int64)
            guess = np.clip(means * self.window, self.window, self.budget)
            ranks = ranks[self.neighbours :]
            first[row, ranks] = np.where(unanimous[row, ranks], self.window, guess)
        return first


class Allocation(Result):
    """Which of Q questions are easy in R replicates, and how the others begin.

    Attributes:
        codes: [R, Q, budget] drawn answer codes.
        confident: [R, Q, budget] whether the Beta criterion holds after each draw.
        easy: [R, Q] which questions are easy.
        first: [R, Q] CoTs of the first request of the others. For easy ones, which do not draw
            them, it is p where first draws are allocated over the hard questions, else what the
            allocation over all gives.
        ranking_calls: calls, prompt tokens and output tokens of ranking, [R, Q] each; empty where
            it is free.
    """

    codes: Integers
    confident: Bools
    easy: Bools
    first: Integers
    ranking_calls: list[Integers]


def _confident(codes: Integers, rule: Criterion) -> Bools:
    """[R, Q, N] whether the Beta criterion holds for the first n draws, n = 1..N."""
    confident, settled = np.empty(codes.shape, np.bool_), rule.of_two_counts()
    *grid, draws = codes.shape
    rows = np.arange(prod(grid))
    votes = np.zeros((len(rows), int(codes.max(initial=0)) + 2), np.intp)
    first = second = np.zeros(len(rows), np.intp)
    for n in range(draws):
        code = codes[..., n].ravel()
        votes[rows, code] += 1  # no answer, -1, in the last column
        count = np.where(code < 0, 0, votes[rows, code])
        # A count that passes the largest was the largest, or tied with it.
        second = np.where(count > first, second, np.maximum(second, count))
        first = np.maximum(first, count)
        confident[..., n] = settled(first, second, n + 1).reshape(grid)
    return confident

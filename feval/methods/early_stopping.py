"""Early-stopping self-consistency, ESC: draw window by window, stop when a window is unanimous (Li
et al., arXiv 2401.10480).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from feval import replay
from feval.errors import OutOfRangeError
from feval.estimators.early_stopping import (
    MOST_WINDOWS_IN_FLOATS,
    EarlyStops,
    early_plurality,
    early_stops,
    window_ends,
)
from feval.estimators.per_question import question_blocks
from feval.estimators.plurality import VoteCounts
from feval.estimators.stopping_orders import wrong_ends
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import (
    Capabilities,
    Decisions,
    Expectation,
    Floats,
    Integers,
    Pool,
    PoolOrders,
    Pools,
    drawn,
    most_tokens,
)
from feval.methods.stops import (
    StoppingMethod,
    counts_and_tokens,
    distinct_pools,
    early_votes_of_whole_pool,
    right_over_orders,
)
from feval.methods.vote import decide_on_first, no_answer_probability, plurality

_TOLERANCE = 1e-10  # most that rounding may change a probability


@frozen_method
class EarlyStopping(StoppingMethod):
    """Self-consistency that stops after the first window of CoTs that all give the same answer
    (ESC, algorithm 1).

    Windows of `window` CoTs are drawn, one request each, until one is unanimous or floor(budget /
    window) are drawn; the rest of the budget is never drawn. A window that holds a CoT without an
    answer is not unanimous. Of tied answers the one seen first wins; swapping two answers
    everywhere also swaps their windows, so that over all draws this is a uniform tie-break.

    Attributes:
        window: CoTs per request.
        budget: most CoTs.
        answer: the answer when it stops: "all", the plurality of everything drawn, or "window",
            that of the unanimous window.
    """

    scope, most = "Early stopping draws windows of one LLM", "whole"
    capabilities = Capabilities(exact=True, exact_errors=True, reads_answers=True)

    window: Count = 5
    budget: Count = 40
    # The paper's text leaves the answer of a stop open. The authors' script returns the window's;
    # the authors of DSC vote over everything drawn when they run ESC. The vote is the default: it
    # is self-consistency on the CoTs that were paid for.
    answer: Literal["all", "window"] = "all"

    def __post_init__(self) -> None:
        if self.window > self.budget:
            raise OutOfRangeError(
                f"Early stopping draws windows of 1 CoT up to the budget; window={self.window} and"
                f" budget={self.budget} were given."
            )

    @property
    def windows(self) -> int:
        """Most windows drawn."""
        return self.budget // self.window

    @property
    def whole(self) -> int:
        """CoTs of all windows."""
        return self.windows * self.window

    def first_request(self, _: int) -> tuple[int, ...]:
        """CoTs of the first request."""
        return (self.window,)

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no CoT has one."""
        seen: list[str | None] = []
        for _ in range(self.windows):
            window = llm.sample(self.window).answers
            seen += window
            if window[0] is not None and len(set(window)) == 1:
                return window[0] if self.answer == "window" else plurality(seen)
        return plurality(seen)

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        pool, order = self.only(pools, orders)
        codes = drawn(pool.codes, order)
        windows = codes.reshape(*codes.shape[:2], self.windows, self.window)
        unanimous = (windows == windows[..., :1]).all(axis=3) & (windows[..., 0] >= 0)
        stopped = unanimous.any(axis=2)
        rounds = np.where(stopped, unanimous.argmax(axis=2) + 1, self.windows).astype(np.int32)
        last = np.take_along_axis(windows[..., 0], rounds[:, :, None] - 1, axis=2)[:, :, 0]
        shape, at_once = windows.shape, pool.at_once
        decisions = decide_on_first(
            pool,
            order,
            codes,
            rounds * self.window,
            rounds,
            lambda each: most_tokens(each.reshape(shape), at_once).sum(axis=2),
        )
        if self.answer == "all":
            return decisions
        return replace(decisions, answer=np.where(stopped, last, decisions.answer))

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws; see `ExactMethod.exact`.

        In closed form. Only where rounding could reach 1e-10 (many small windows) is the vote
        summed over all counts.
        """
        every = np.empty((4, len(gold)))
        for block in question_blocks(len(gold)):
            counts, tokens = counts_and_tokens(pool, gold, "drop", block)
            part = early_stops(counts, tokens, window=self.window, windows=self.windows)
            every[:, block] = [*vars(part).values()]
        stops = EarlyStops(*every)
        pools, rows = distinct_pools(pool, gold, "drop")
        if self.window == 1:  # the first answer stops and is the only vote
            right = stops.gold_window
        elif self.answer == "all":
            right = self._right_votes(pools)[rows]
        elif bool((pool.sizes == self.whole).all()):  # without a stop the whole pool votes
            right = stops.gold_window + stops.no_stop * pools.share_of_lead[rows]
        else:
            right = stops.gold_window + self._right_votes(pools)[rows]
        return Expectation(
            np.minimum(right, 1.0), stops.windows, stops.windows * self.window, stops.output_tokens
        )

    def _right_votes(self, pools: VoteCounts) -> Floats:
        """[Q] probability that everything drawn votes for the gold; if a stop answers its window,
        and nothing stopped.
        """
        unstopped = self.answer == "window"
        shape = {"window": self.window, "windows": self.windows}
        votes = early_plurality(pools, only_unstopped=unstopped, **shape)
        inexact = np.flatnonzero(votes.error > _TOLERANCE)
        if not len(inexact):
            return votes.right
        few = pools.take(inexact)
        right = votes.right.copy()
        right[inexact] = right_over_orders(
            few, window_ends(few.bounds(), only_unstopped=unstopped, **shape)
        )
        return right

    def silent(self, pool: Pool) -> Floats:
        """[Q] probability of no answer."""
        return no_answer_probability(pool, self.whole)

    @property
    def fraction_windows(self) -> int:
        """See `StoppingMethod`."""
        in_fractions = self.windows > MOST_WINDOWS_IN_FLOATS and not self._answers_window
        return self.windows if in_fractions else 0

    @property
    def _answers_window(self) -> bool:
        """Whether a stop answers with its window; a window of one is the only vote."""
        return self.answer == "window" or self.window == 1

    def early_of_whole_pool(self, pools: VoteCounts, wrong: Floats) -> Floats:
        """See `StoppingMethod`."""
        if self._answers_window:
            return pools.share_of_lead * self._wrong_windows(pools)
        return early_votes_of_whole_pool(
            pools, wrong, lambda tied: tied.share_of_lead * self._before_last(tied).no_stop
        )

    def wrong_before_budget(self, pools: VoteCounts) -> Floats:
        """See `StoppingMethod`."""
        if self._answers_window:
            return self._wrong_windows(pools)
        ends = window_ends(
            pools.bounds(), window=self.window, windows=self.windows, only_unstopped=False
        )
        return wrong_ends(pools, ends.ending, self.whole - 1)

    def _wrong_windows(self, pools: VoteCounts) -> Floats:
        """[Q] probability of stopping at a window with another answer than the gold, before the
        last window.
        """
        stops = self._before_last(pools)
        return np.maximum(1.0 - stops.no_stop - stops.gold_window, 0.0)

    def _before_last(self, pools: VoteCounts) -> EarlyStops:
        """Where the windows before the last one stop."""
        return early_stops(pools, pools, window=self.window, windows=self.windows - 1)

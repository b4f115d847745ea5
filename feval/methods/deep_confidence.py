"""DeepConf: confident traces vote, the others are left out or cut short (Fu et al. 2025, arXiv
2508.15260).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np

from feval import replay
from feval.errors import OutOfRangeError, UsageError
from feval.estimators.arrays import Int64, Numbers
from feval.estimators.trace_confidence import (
    known_percentiles,
    low_groups,
    tokens_until_below,
    trace_confidences,
)
from feval.methods.fields import Count, ExactNumber, Share, as_fraction, frozen_method
from feval.methods.protocol import (
    Capabilities,
    Decisions,
    Floats,
    Ledger,
    OneLLM,
    Pool,
    PoolOrders,
    Pools,
    drawn,
    most_tokens,
)
from feval.methods.vote import rated, weighted_plurality, weighted_plurality_codes

Votes = list[tuple[str, float]]

_KEEP: dict[str | float, int] = {"low": 10, "high": 90}
_ROUNDING = 1e-6  # log-probabilities of certain tokens may come out a little above 0


@frozen_method
class DeepConfidence(OneLLM):
    """The vote of the most confident of n traces of one LLM, each with its confidence as weight
    (DeepConf, sections 3.2 and 3.3).

    A token's confidence is minus the mean log-probability of the k likeliest tokens (k = 20 in the
    paper; a recording has its own k). *Offline*, all n traces are drawn; of those with an answer,
    the traces whose confidence is at least the percentile 100 - eta (linear interpolation) vote.
    *Online*, the bar is that percentile over `warm_up` traces, with or without an answer; each
    later trace is cut where its first full group falls below the bar, billed up to that group's
    last token, and does not vote; no trace below the bar does. CoTs without recorded token
    confidences do not vote and are not cut. Weights are summed in draw order; sums within 1e-12 of
    the largest are equal, and of several answers the first drawn wins.

    Attributes:
        n: traces per question.
        mode: "offline" or "online".
        keep: eta, percent of traces to keep: "low" (10), "high" (90) or a number above 0 and at
            most 100.
        measure: confidence of a trace: "lowest-group", "mean", "tail" or "bottom-10%". Online it is
            the lowest group.
        vote: "weighted" by confidence, or "plain".
        group: tokens in a sliding group; a shorter trace has one group, all of it, and is never
            cut.
        tail: tokens at the end of a trace that "tail" looks at.
        warm_up: traces that set the bar online.
        consensus: online, stop when the leading answer has this share of the votes' weight; `None`
            to draw all n.
    """

    scope = "DeepConf votes over the traces of one LLM"
    capabilities = Capabilities(cuts_cots=True)

    # The paper draws 512; recordings usually have 40.
    n: Count = 40
    mode: Literal["offline", "online"] = "offline"
    # The official package keeps 90 percent by default (its `confidence_percentile=90` means the
    # 10th percentile). The paper's "low" saves more and errs more.
    keep: Literal["low", "high"] | Annotated[str | float, ExactNumber(above=0, at_most=100)] = (
        "high"
    )
    # The only one that is known while a trace is being generated. Offline the paper also reports
    # tail and bottom-10%.
    measure: Literal["mean", "tail", "lowest-group", "bottom-10%"] = "lowest-group"
    # The package replaces its weighted result by the plain majority unless told not to; the paper's
    # method is the weighted one.
    vote: Literal["weighted", "plain"] = "weighted"
    group: Count = 2048
    tail: Count = 2048
    warm_up: Count = 16
    # The paper's adaptive sampling, with 0.95; the package does not have it.
    consensus: Share | None = None

    def __post_init__(self) -> None:
        if self.mode == "online" and self.n < self.warm_up:
            raise OutOfRangeError(
                f"DeepConf warms up with {self.warm_up} traces; n={self.n} has no room for them."
            )
        if self.mode == "online" and self.measure != "lowest-group":
            raise UsageError(
                f"Online, DeepConf cuts a trace by its lowest group; {self.measure!r} is known at"
                " the end only. Take mode='offline'."
            )
        if self.mode == "offline" and self.consensus is not None:
            raise UsageError(
                "Offline, DeepConf draws all traces at once; consensus stops it in mode='online'"
                " only."
            )

    def confidences(self, pool: Pool) -> Floats:
        """[Q, S] confidence of each trace; NaN where no token confidences were recorded.

        Raises:
            UsageError: there is one below 0, so that votes for an answer would count against it.
        """
        shape = self.measure, self.group, self.tail

        def measured() -> Floats:
            return np.array(
                [trace_confidences(values, lengths, *shape) for values, lengths in _traces(pool)]
            )

        confidences = pool.channels.derived(("trace confidences", *shape), measured).reshape(
            pool.codes.shape  # of no question, too
        )
        if (confidences < -_ROUNDING).any():
            raise UsageError(
                "Confidences of tokens are minus mean log-probabilities, hence 0 or more; the"
                f" least of a trace of {pool.llm} is {np.nanmin(confidences):.6g}. If they are mean"
                " log-probabilities, import them negated."
            )
        return confidences

    def ratings(self, pools: Pools) -> list[Floats]:
        """The confidences of traces; see `feval.methods.protocol`."""
        [pool] = pools
        return [self.confidences(pool)]

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no CoT has one."""
        votes = self._votes(llm)
        return weighted_plurality(
            [answer for answer, _ in votes], [self._weight(c) for _, c in votes]
        )

    def _votes(self, llm: replay.MeteredLLM) -> Votes:
        response = llm.sample(self._until)
        confidences = self._measured(response)
        # Online, traces without an answer set the bar, too.
        known = [
            confidence
            for answer, confidence in zip(response.answers, confidences, strict=True)
            if confidence is not None and (answer is not None or self.mode == "online")
        ]
        bar = float(np.percentile(known, 100 - self._eta)) if known else -np.inf
        votes = _above(response, confidences, bar)
        count = self._until
        while count < self.n and not self._agreed(votes):
            # Unless the votes are looked at in between, all later traces are one request.
            response = llm.sample(self.n - count if self.consensus is None else 1)
            for trace in response.token_confidences:
                if trace is not None and (tokens := self._cut(trace, bar)) is not None:
                    llm.truncate(count, tokens)
                count += 1
            votes += _above(response, self._measured(response), bar)
        return votes

    def _measured(self, response: replay.LLMResponse) -> list[float | None]:
        shape = self.measure, self.group, self.tail
        return [
            None
            if each is None
            else float(trace_confidences(each, np.array([len(each)]), *shape)[0])
            for each in response.token_confidences
        ]

    def _cut(self, trace: Numbers, bar: float) -> int | None:
        """Tokens of a trace up to the end of its first group below the bar; `None` if it is not
        cut.
        """
        sums = np.concatenate([[0.0], np.cumsum(trace, dtype=np.float64)])
        below = np.flatnonzero((sums[self.group :] - sums[: -self.group]) / self.group < bar)
        return int(below[0]) + self.group if below.size else None

    def _agreed(self, votes: Votes) -> bool:
        if self.consensus is None:
            return False
        sums: dict[str, float] = defaultdict(float)
        total = 0.0
        for answer, confidence in votes:
            sums[answer] += self._weight(confidence)
            total += self._weight(confidence)
        share = as_fraction(self.consensus)
        return total > 0 and max(sums.values()) * share.denominator >= share.numerator * total

    def _weight(self, confidence: float) -> float:
        return confidence if self.vote == "weighted" else 1.0

    @property
    def _eta(self) -> float:
        return float(as_fraction(_KEEP.get(self.keep, self.keep)))

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        pool, order = self.only(pools, orders)
        confidences = self.confidences(pool)
        if self.mode == "offline":  # traces without an answer are no part of the percentile
            confidences = np.where(pool.codes < 0, np.nan, confidences)
        known = drawn(confidences, order)
        bars = known_percentiles(known[:, :, : self._until], 100 - self._eta)[:, :, None]
        codes = np.where(known >= bars, drawn(pool.codes, order), -1)
        weights = np.where(known >= bars, known if self.vote == "weighted" else 1.0, 0.0)
        cots = self._traces_drawn(codes, weights)
        seen = np.arange(self.n) < cots[:, :, None]
        answer = weighted_plurality_codes(np.where(seen, codes, -1), weights)
        billed = drawn(pool.output_tokens, order).astype(np.int64)
        if self.mode == "online":
            cut = known < bars
            cut[:, :, : self.warm_up] = False
            low = pool.channels.derived(
                ("low groups", self.group), lambda: low_groups(list(_traces(pool)), self.group)
            )
            places = np.nonzero(cut)[1] * pool.codes.shape[1] + order[cut]
            below = tokens_until_below(low, places, np.broadcast_to(bars, known.shape)[cut])
            billed[cut] = np.minimum(billed[cut], below)
        billed = np.where(seen, billed, 0)
        tokens, longest = billed.sum(axis=2), most_tokens(billed)
        if pool.clock is not None:
            billed = pool.clock.after(billed, lambda values: drawn(values, order))
        first, later = billed[:, :, : self._until], billed[:, :, self._until :]
        sequential = most_tokens(first, pool.at_once) + (
            most_tokens(later, pool.at_once) if self.consensus is None else later.sum(axis=2)
        )
        # later ones are one request each, or one together
        asked = cots - self._until
        rounds = 1 + (np.minimum(asked, 1) if self.consensus is None else asked)
        ledger = Ledger(
            rounds, cots, tokens, sequential_tokens=sequential, longest_trace_tokens=longest
        )
        return Decisions(answer, (ledger,))

    @property
    def _until(self) -> int:
        """How many traces set the bar."""
        return self.warm_up if self.mode == "online" else self.n

    def _traces_drawn(self, codes: Numbers, weights: Floats) -> Int64:
        """[R, Q] traces drawn until the votes [R, Q, n] agree."""
        if self.consensus is None:
            return np.full(codes.shape[:2], self.n, np.int64)
        share = as_fraction(self.consensus)
        by_draw, cast = (each.reshape(-1, self.n).T for each in (codes, weights))
        size = by_draw.shape[1]
        cast = np.where(by_draw < 0, 0.0, cast)
        # A table [candidates, N]; traces that do not vote add nothing to the first candidate.
        cells = np.maximum(by_draw, 0).astype(np.intp) * size + np.arange(size)
        sums = np.zeros((int(codes.max(initial=0)) + 1) * size)
        leader, total = np.zeros((2, size))
        traces = np.full(size, self.n, np.int64)
        for k, (cell, weight) in enumerate(zip(cells, cast, strict=True), start=1):
            reached = sums[cell] + weight
            sums[cell] = reached
            np.maximum(leader, reached, out=leader)
            total += weight
            if k >= self.warm_up:
                agreed = (total > 0) & (leader * share.denominator >= share.numerator * total)
                traces[agreed & (traces == self.n)] = k
        return traces.reshape(codes.shape[:2])


def _above(response: replay.LLMResponse, confidences: Sequence[float | None], bar: float) -> Votes:
    """The votes of traces at or above the bar."""
    answers, known = rated(response.answers, confidences)
    each = zip(answers, known.tolist(), strict=True)
    return [(answer, confidence) for answer, confidence in each if confidence >= bar]


def _traces(pool: Pool) -> Iterator[tuple[Numbers, Int64]]:
    """Per question, the token confidences of all its traces, one after the other, and the length of
    each.
    """
    confidences = pool.logprobs().confidences
    for row, lengths in enumerate(confidences.lengths()):
        yield confidences.of_question(row), lengths

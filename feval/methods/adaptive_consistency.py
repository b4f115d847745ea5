"""Adaptive-Consistency: draw one CoT at a time until the vote looks settled (Aggarwal et al., arXiv
2305.11860, algorithm 1).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from feval import replay
from feval.errors import UsageError
from feval.estimators.arrays import Int64
from feval.estimators.plurality import (
    VoteCounts,
    answered_counts,
    distinct_vote_counts,
    mean_output_tokens,
    pass_at_k,
)
from feval.estimators.stopping_criteria import Criterion
from feval.estimators.stopping_orders import Ending, Ends, ending_of_rule, ends_of_rule, wrong_ends
from feval.methods.fields import (
    Count,
    ExactNumber,
    PositiveShare,
    Whole,
    as_fraction,
    frozen_method,
)
from feval.methods.protocol import (
    EXACT,
    Decisions,
    Expectation,
    Floats,
    Integers,
    Orders,
    Pool,
    PoolOrders,
    Pools,
    drawn,
)
from feval.methods.stops import (
    StoppingMethod,
    early_votes_of_whole_pool,
    mean_over_orders,
    right_over_orders,
)
from feval.methods.vote import (
    NoAnswerRule,
    decide_on_first,
    no_answer_probability,
    no_answer_wins,
    plurality,
    plurality_is_right,
)
from feval.replay.draws import uniforms

THRESHOLDS = {
    "beta": "0.95",
    "dirichlet": "0.95",
    "entropy": "0.75",
    "majority": "0.8",
    "random": "0.1",
    "crp": "0.95",
}
"""Criterion -> the threshold of the authors' code; "crp" is named only in its documentation, and
takes beta's.
"""

_DROPPED_FROM = 16


@frozen_method
class AdaptiveConsistency(StoppingMethod):
    """Self-consistency that draws one CoT per request, looks at the vote after each, and stops when
    the vote looks settled.

    The criteria are those of section 3: beta (equation 3), Dirichlet (equation 2), entropy,
    majority and random; their formulas are in `feval.estimators.stopping_criteria`. Shares and
    probabilities are compared with the threshold exactly. Of tied answers the one seen first wins,
    which over all draws is a uniform tie-break.

    Attributes:
        criterion: "beta", "dirichlet", "entropy", "majority", "random" or "crp".
        threshold: where it stops: a probability or share at least this high (beta, dirichlet,
            majority, crp), an entropy at most this high, or the probability to stop after each draw
            (random). `None` for the criterion's own: 0.95 (beta, dirichlet, crp), 0.75 (entropy),
            0.8 (majority), 0.1 (random).
        budget: most CoTs.
        no_answer: "drop": a CoT without an answer casts no vote; "vote": no answer is one more
            answer, which is never right.
        top: how many of the largest counts "dirichlet" looks at; `None` for all.
        concentration: of the Chinese-restaurant process of "crp".
        seed: of the coins of "random".
    """

    scope, most = "Adaptive-Consistency draws CoTs of one LLM", "budget"
    # What it draws one by one is all of its output.
    capabilities = replace(EXACT, reads_answers=True)

    criterion: Literal["beta", "dirichlet", "entropy", "majority", "random", "crp"] = "beta"
    # The text "0.95" and the float 0.95 are the same rational number, 19/20.
    threshold: PositiveShare | None = None
    budget: Count = 40
    # The authors' evaluation of string answers counts a failed extraction as the answer "None";
    # their library leaves the choice to its caller. As everywhere in feval a failure is no opinion,
    # unless a figure made with votes is to be reproduced.
    no_answer: NoAnswerRule = "drop"
    # The paper integrates over all answers; the authors' code keeps the five largest counts to
    # bound its Monte-Carlo integral. The integral here is exact whatever the number of answers, so
    # the paper's form is the default; 5 gives the code's.
    top: Annotated[Whole, Field(ge=2, description="a whole number, 2 or more")] | None = None
    # No paper fixes it. With 1, a new answer is as likely as the repetition of one seen once.
    concentration: Annotated[str | float, ExactNumber(above=0)] = 1.0
    seed: Whole = 0

    @property
    def rule(self) -> Criterion:
        """The criterion with its exact threshold."""
        threshold = THRESHOLDS[self.criterion] if self.threshold is None else self.threshold
        return Criterion(
            self.criterion,
            as_fraction(threshold),
            self.budget,
            self.top,
            as_fraction(self.concentration),
        )

    def first_request(self, _: int) -> tuple[int, ...]:
        """CoTs of the first request."""
        return (1,)

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no CoT has one. For "random", the LLM also has
        `uniform()`.
        """
        answers: list[str | None] = []
        rule, votes = self.rule, Counter[str | None]()
        for drawn_so_far in range(1, self.budget + 1):
            [answer] = llm.sample(1).answers
            answers.append(answer)
            if answer is not None or self.no_answer == "vote":
                votes[answer] += 1
            if rule.name == "random":
                settled = llm.uniform(self.seed) < float(rule.threshold)
            else:
                settled = rule.stops(tuple(sorted(votes.values(), reverse=True)), drawn_so_far)
            if settled:
                break
        return plurality(answers, no_answer=self.no_answer)

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        pool, order = self.only(pools, orders)
        codes = drawn(pool.codes, order)
        cots = self.stops(pool, order, codes)
        return decide_on_first(pool, order, codes, cots, cots, no_answer=self.no_answer)

    def stops(self, pool: Pool, order: Orders, codes: Integers) -> Integers:
        """[R, Q] CoTs drawn until the stop, in orders [R, Q, budget] that have these answer
        codes.
        """
        rule = self.rule
        if rule.name == "random":
            if pool.question_keys is None:
                raise UsageError(
                    f"The pool of {pool.llm} has no question keys, from which coins are tossed;"
                    " take it from `load`."
                )
            coins = uniforms(pool.question_keys, order, self.seed)  # one per draw
            stops = coins < float(rule.threshold)
            stops[:, :, -1] = True
            cots: Integers = stops.argmax(axis=2) + 1
            return cots
        voting = np.ascontiguousarray(codes.reshape(-1, self.budget).T)
        if self.no_answer == "vote":
            voting = voting.astype(np.int32) + 1
        stopped = _first_two(rule, voting) if rule.columns in (1, 2) else _all_counts(rule, voting)
        return stopped.reshape(codes.shape[:2])

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws; see `ExactMethod.exact`."""
        if self.criterion == "random":
            # The coin does not look at the answers: a mixture of self-consistency over numbers of
            # CoTs.
            n, share = np.arange(1, self.budget + 1), self._coin_stops
            right = plurality_is_right(pool, gold, self.no_answer, n).mixed(share)
            cots = np.broadcast_to(share @ n, right.shape)
            tokens = cots * mean_output_tokens(pool.output_tokens, pool.sizes)
            expected = Expectation(right, cots, cots, tokens)
        else:
            means = mean_over_orders(pool, gold, self.no_answer, self.rule.stop_mask, self.budget)
            expected = Expectation(means.right, means.samples, means.samples, means.output_tokens)
        return replace(expected, sequential_tokens=expected.output_tokens)

    def silent(self, pool: Pool) -> Floats:
        """[Q] probability of no answer."""
        if self.criterion == "random":
            n, share = np.arange(1, self.budget + 1), self._coin_stops
            if self.no_answer == "vote":
                return no_answer_wins(pool, n).mixed(share)
            answered = pass_at_k(answered_counts(pool.codes), pool.sizes, n)
            return np.maximum(1.0 - answered.mixed(share), 0.0)  # rounding
        if self.no_answer == "drop":  # no criterion stops without a vote
            return no_answer_probability(pool, self.budget)
        counts, rows = distinct_vote_counts(pool.codes, np.full(len(pool.codes), -1))
        nobody = np.zeros_like(counts.no_answer)
        pools = VoteCounts(counts.no_answer, counts.rivals, nobody).ordered()
        return right_over_orders(pools, self.ends(pools.bounds()))[rows]

    def ends(self, bounds: Int64, *, only_last: bool = False) -> Ends:
        """Where a criterion that looks at the votes ends, in pools within some bounds; see
        `ends_of_rule`.
        """
        return ends_of_rule(self.rule.stop_mask, bounds, self.budget, only_last=only_last)

    @property
    def _coin_stops(self) -> Floats:
        """[budget] probability that the coin stops after 1, 2, ... CoTs."""
        n, stop = np.arange(1, self.budget + 1), float(self.rule.threshold)
        share: Floats = np.where(n < self.budget, stop, 1.0) * (1.0 - stop) ** (n - 1)
        return share

    def early_of_whole_pool(self, pools: VoteCounts, wrong: Floats) -> Floats:
        """See `StoppingMethod`."""
        return early_votes_of_whole_pool(pools, wrong, self._right_at_budget)

    def _right_at_budget(self, pools: VoteCounts) -> Floats:
        voting = pools.with_no_answer_as_rival().ordered() if self.no_answer == "vote" else pools
        if self.criterion == "random":
            return voting.share_of_lead * float(self._coin_stops[-1])
        return right_over_orders(voting, self.ends(voting.bounds(), only_last=True))

    def wrong_before_budget(self, pools: VoteCounts) -> Floats:
        """See `StoppingMethod`."""
        if self.criterion == "random":
            share = self._coin_stops
            ending: Ending = lambda counts, draws, _: np.full(len(counts), share[draws - 1])  # noqa: E731  one of several rules
        else:
            ending = ending_of_rule(self.rule.stop_mask, self.budget)
        return wrong_ends(pools, ending, self.budget - 1, none_votes=self.no_answer == "vote")


def _first_two(rule: Criterion, codes: Integers) -> Integers:
    """[N] CoTs drawn until each of N orders [budget, N] stops, by a criterion that looks only at
    the two largest counts.

    One pass over the draws that keeps the two largest counts and drops orders that have stopped. A
    count that passes the largest was the largest, or tied with it, so the second largest does not
    change.
    """
    stopped = np.full(codes.shape[1], rule.budget)
    width = int(codes.max(initial=0)) + 2  # the first column is for no answer, which does not vote
    rows = np.arange(codes.shape[1])
    base = rows * width + 1
    some_silent = int(codes.min(initial=0)) < 0
    votes = np.zeros(codes.shape[1] * width, np.intp)
    first: Integers = np.zeros(codes.shape[1], np.intp)
    second = first
    settled = rule.of_two_counts()
    for draws in range(1, rule.budget):
        code = codes[draws - 1].take(rows)
        place = base + code
        count = votes.take(place)
        count += 1
        votes[place] = count
        if some_silent:
            count[code < 0] = 0
        second = np.where(count > first, second, np.maximum(second, count))
        first = np.maximum(first, count)
        stops = settled(first, second, draws)
        ended = stops.nonzero()[0]
        if len(ended):
            places = rows.take(ended)
            stopped[places] = np.minimum(stopped[places], draws)
        # dropping a few costs more than carrying them along
        if len(ended) * _DROPPED_FROM > len(rows):
            going = (~stops).nonzero()[0]
            rows, base = rows.take(going), base.take(going)
            first, second = first.take(going), second.take(going)
            if not len(rows):
                break
    return stopped


def _all_counts(rule: Criterion, codes: Integers) -> Integers:
    """[N] the same for a criterion that looks at all counts; each distinct set of counts is judged
    once.
    """
    stopped = np.full(codes.shape[1], rule.budget)
    rows = np.arange(codes.shape[1])
    votes = np.zeros((codes.shape[1], int(codes.max(initial=0)) + 1), np.int16)
    for draws in range(1, rule.budget):
        code = codes[draws - 1, rows]
        voting = np.flatnonzero(code >= 0)
        votes[voting, code[voting]] += 1
        counts = -np.sort(-votes, axis=1)
        stops = rule.stop_mask(
            counts[:, : max(int((counts > 0).sum(axis=1).max(initial=0)), 1)], draws
        )
        if stops.any():
            stopped[rows[stops]] = draws
            rows, votes = rows[~stops], votes[~stops]
            if not len(rows):
                break
    return stopped

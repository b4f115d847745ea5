"""Adaptive-Consistency: draw one CoT at a time until the vote looks settled (Aggarwal et al., arXiv 2305.11860, algorithm 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, UnknownNameError, UsageError
from feval.estimators.stopping.criteria import Criterion
from feval.methods.decisions import Decisions, Ledger
from feval.methods.fields import require_types
from feval.methods.protocol import Response, drawn, require_draws, seen_tokens
from feval.methods.vote import plurality, plurality_codes, require_no_answer_rule
from feval.replay.draws import uniforms

if TYPE_CHECKING:
    from feval.replay.pools import Pool

__all__ = ["THRESHOLDS", "AdaptiveConsistency"]

THRESHOLDS = {
    "beta": "0.95",
    "dirichlet": "0.95",
    "entropy": "0.75",
    "majority": "0.8",
    "random": "0.1",
    "crp": "0.95",
}
"""Criterion -> the threshold of the authors' code; "crp" is named in its documentation only, and takes beta's."""

_DROPPED_FROM = 16

Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class _Coin(Protocol):
    """An LLM in front of one question that can also toss a coin."""

    def sample(self, k: int = 1, /) -> Response: ...

    def uniform(self, seed: int = 0) -> float: ...


@dataclass(frozen=True)
class AdaptiveConsistency:
    """Self-consistency that looks at its vote after every CoT, each a request of its own, and stops when it looks settled.

    The criteria are those of section 3: beta (equation 3), Dirichlet (equation 2), entropy, majority and random; they are written
    down in `feval.estimators.stopping.criteria`. Shares and probabilities are compared with the threshold exactly. Of tied answers the one
    seen first wins, which over all draws is a uniform tie-break.

    Attributes:
        criterion: "beta", "dirichlet", "entropy", "majority", "random" or "crp".
        threshold: where it stops: a probability or share at least this high (beta, dirichlet, majority, crp), an entropy at most
            this high, or the probability to stop after each draw (random). `None` for the criterion's own: 0.95 (beta,
            dirichlet, crp), 0.75 (entropy), 0.8 (majority), 0.1 (random).
        budget: most CoTs.
        no_answer: "drop": a CoT without an answer casts no vote; "vote": no answer is one more answer, which is never right.
        top: "dirichlet" looks at so many of the largest counts; `None` for all.
        concentration: of the Chinese-restaurant process of "crp".
        seed: of the coins of "random".
    """

    criterion: str = "beta"
    # A text such as "0.95" and the float 0.95 are the same rational number, 19/20.
    threshold: str | float | None = None
    budget: int = 40
    # The authors' evaluation of string answers counts a failed extraction as the answer "None"; their library leaves the choice
    # to its caller. As everywhere in feval a failure is no opinion, unless a figure made with votes is to be reproduced.
    no_answer: str = "drop"
    # The paper integrates over all answers; the authors' code keeps the five largest counts to bound its Monte-Carlo integral.
    # The integral here is exact whatever the number of answers, so the paper's form is the default; 5 gives the code's.
    top: int | None = None
    # No paper fixes it: with 1 an answer unlike any before is as likely as a repetition of one seen once.
    concentration: str | float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_types(self)
        require_no_answer_rule(self.no_answer)
        if self.criterion not in THRESHOLDS:
            raise UnknownNameError.of("criterion", self.criterion, THRESHOLDS)
        if self.budget < 1 or (self.top is not None and self.top < 2):
            raise OutOfRangeError(
                "Adaptive-Consistency draws 1 CoT or more and compares 2 counts or more; "
                f"budget={self.budget} and top={self.top} were given."
            )
        if not 0 < _exact("threshold", self._given_threshold) <= 1 or _exact("concentration", self.concentration) <= 0:
            raise OutOfRangeError(
                "Adaptive-Consistency takes a threshold above 0 and at most 1, and a concentration above 0; "
                f"threshold={self.threshold} and concentration={self.concentration} were given."
            )

    @property
    def _given_threshold(self) -> str | float:
        return THRESHOLDS[self.criterion] if self.threshold is None else self.threshold

    @property
    def rule(self) -> Criterion:
        """The criterion with its threshold, exact."""
        concentration = _exact("concentration", self.concentration)
        return Criterion(
            self.criterion, _exact("threshold", self._given_threshold), self.budget, self.top, concentration
        )

    def draws(self, llms: int) -> tuple[int, ...]:
        """The most CoTs asked of the one LLM."""
        if llms != 1:
            raise UsageError(f"Adaptive-Consistency draws CoTs of one LLM; {llms} were given.")
        return (self.budget,)

    def __call__(self, question: str, llm: _Coin) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no CoT has one.

        Args:
            question: the text.
            llm: anything with `sample(k)`, recorded or live, and for "random" with `uniform()`.
        """
        answers: list[str | None] = []
        for _ in range(self.budget):
            answers += llm.sample(1).answers
            if self._settled(answers, llm):
                break
        return plurality(answers, no_answer=self.no_answer)

    def _settled(self, answers: Sequence[str | None], llm: _Coin) -> bool:
        rule = self.rule
        if rule.name == "random":
            return llm.uniform(self.seed) < float(rule.threshold)
        votes = Counter(answer for answer in answers if answer is not None or self.no_answer == "vote")
        return rule.stops(tuple(sorted(votes.values(), reverse=True)), len(answers))

    def decide(self, pools: Sequence[Pool], orders: Sequence[npt.NDArray[np.uint16]]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        require_draws(self, pools, orders)
        pool, order = pools[0], orders[0][:, :, : self.budget]
        codes = drawn(pool.codes, order)
        cots = self.stops(pool, order, codes)
        seen = np.arange(self.budget, dtype=np.int16) < cots[:, :, None].astype(np.int16)
        np.putmask(codes, ~seen, -2)  # which votes under neither rule
        answer = plurality_codes(codes, no_answer=self.no_answer)
        tokens = seen_tokens(drawn(pool.output_tokens, order), seen)
        return Decisions(answer, (Ledger(cots, cots, tokens),))

    def stops(self, pool: Pool, order: npt.NDArray[np.uint16], codes: npt.NDArray[np.integer]) -> Integers:
        """[R, Q] CoTs drawn until the stop.

        Args:
            pool: of Q questions.
            order: [R, Q, budget] recorded places, in draw order.
            codes: [R, Q, budget] what stands there.
        """
        rule = self.rule
        if rule.name == "random":
            stops = _coins(pool, order, self.seed) < float(rule.threshold)
            stops[:, :, -1] = True
            cots: Integers = stops.argmax(axis=2) + 1
            return cots
        voting = np.ascontiguousarray(codes.reshape(-1, self.budget).T)
        if self.no_answer == "vote":
            voting = voting.astype(np.int32) + 1
        stopped = _first_two(rule, voting) if rule.columns in (1, 2) else _all_counts(rule, voting)
        return stopped.reshape(codes.shape[:2])


def _exact(name: str, given: str | float) -> Fraction:
    try:
        return Fraction(str(given))
    except (ValueError, ZeroDivisionError) as error:
        raise OutOfRangeError(
            f"Adaptive-Consistency takes a number as {name}, such as 0.95; {given!r} is none."
        ) from error


def _coins(pool: Pool, order: npt.NDArray[np.uint16], seed: int) -> npt.NDArray[np.float64]:

    if pool.question_keys is None:
        raise UsageError(
            f"The pool of {pool.llm} has no question keys, from which coins are tossed; take it from `load`."
        )
    return uniforms(pool.question_keys, order, seed)


def _first_two(rule: Criterion, codes: npt.NDArray[np.integer]) -> Integers:
    """[N] where each of N orders [budget, N] stops, by a criterion that looks at the two largest counts only.

    One pass over the draws that keeps the two largest counts; orders that have stopped are dropped. A count that passes the
    largest was the largest, or tied with it, so the second largest stays what it was.
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
        if len(ended) * _DROPPED_FROM > len(rows):  # dropping a few costs more than carrying them along
            going = (~stops).nonzero()[0]
            rows, base = rows.take(going), base.take(going)
            first, second = first.take(going), second.take(going)
            if not len(rows):
                break
    return stopped


def _all_counts(rule: Criterion, codes: npt.NDArray[np.integer]) -> Integers:
    """[N] the same for a criterion that looks at all counts, each distinct set of them once."""
    stopped = np.full(codes.shape[1], rule.budget)
    rows = np.arange(codes.shape[1])
    votes = np.zeros((codes.shape[1], int(codes.max(initial=0)) + 1), np.int16)
    for draws in range(1, rule.budget):
        code = codes[draws - 1, rows]
        voting = np.flatnonzero(code >= 0)
        votes[voting, code[voting]] += 1
        counts = -np.sort(-votes, axis=1)
        stops = rule.stop_mask(counts[:, : max(int((counts > 0).sum(axis=1).max(initial=0)), 1)], draws)
        if stops.any():
            stopped[rows[stops]] = draws
            rows, votes = rows[~stops], votes[~stops]
            if not len(rows):
                break
    return stopped

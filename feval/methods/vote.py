"""Plurality vote: the answer given most often; of tied answers the one seen first. CoTs without an
answer do not vote.

First seen, in draw order, is the rule of `Counter.most_common(1)` and of every published
implementation in Python. Over random draws its expectation is that of the uniform tie-break of the
exact estimators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor, prod
from typing import Any, Literal

import numpy as np

from feval.errors import UsageError
from feval.estimators.arrays import Numbers
from feval.estimators.per_question import PerQuestion, slices
from feval.estimators.plurality import (
    VoteCounts,
    answered_counts,
    distinct_vote_counts,
    pass_at_k,
    subset_plurality_accuracy,
    vote_counts,
)
from feval.methods.protocol import (
    Bools,
    Decisions,
    Floats,
    Integers,
    Ledger,
    Orders,
    Pool,
    PoolOrders,
    Pools,
    Rows,
    drawn,
    most_tokens,
)

_TIE = 1e-12  # relative: sums of weights that are equal on paper may differ by their rounding
_BLOCK = 1 << 17  # codes worked on at once: they stay in a core's own cache

NoAnswerRule = Literal["drop", "vote"]
"""What a CoT without an answer does in a vote: casts none, or votes for no answer, which is never
right.
"""


def plurality(answers: Sequence[str | None], *, no_answer: str = "drop") -> str | None:
    """The most frequent answer; of tied answers the one seen first; `None` if no CoT has one.

    Args:
        answers: canonical answers in draw order, `None` for no answer.
        no_answer: "drop", or "vote": `None` then votes like the others, and can win.
    """
    votes = Counter(answer for answer in answers if answer is not None or no_answer == "vote")
    return max(votes, key=votes.__getitem__) if votes else None


def plurality_codes(codes: Integers, *, no_answer: str = "drop") -> Integers:
    """The same vote over answer codes, for any number of draws at once.

    Args:
        codes: [..., n] answer codes in draw order, equal codes for equal answers; negative ones do
            not vote.
        no_answer: "drop", or "vote": then -1 votes, too.

    Returns:
        [...] the winning codes, -1 where there is no vote or no answer wins; of the type of
        `codes`.
    """
    if no_answer == "vote":
        shifted: Integers = plurality_codes(codes.astype(np.int32) + 1) - 1
        return shifted.astype(codes.dtype)
    return weighted_plurality_codes(codes)


def decide_on_first(
    pool: Pool,
    order: Orders,
    codes: Integers,
    cots: Integers,
    rounds: Integers,
    sequential: Callable[[Integers], Integers] | None = None,
    no_answer: str = "drop",
) -> Decisions:
    """The plurality of the first CoTs of each order, and what they cost.

    Args:
        pool: of the one LLM.
        order: [R, Q, n].
        codes: [R, Q, n] of the drawn CoTs; those beyond the first ones are overwritten.
        cots: [R, Q] how many were drawn.
        rounds: [R, Q] in how many requests.
        sequential: [R, Q] sequential tokens, from those of the drawn CoTs [R, Q, n], 0 beyond the
            first ones; `None` where they came one after the other.
        no_answer: see `plurality`.
    """
    seen = np.arange(order.shape[2], dtype=np.int16) < cots[:, :, None].astype(np.int16)
    np.putmask(codes, ~seen, -2)  # which votes under neither rule
    answer = plurality_codes(codes, no_answer=no_answer)
    each = drawn(pool.output_tokens, order) * seen
    tokens = each.sum(axis=2, dtype=np.int64)
    ledger = Ledger(
        rounds,
        cots,
        tokens,
        sequential_tokens=tokens if sequential is None else sequential(each),
        longest_trace_tokens=most_tokens(each),
    )
    return Decisions(answer, (ledger,))


def weighted_plurality_codes(codes: Integers, weights: Floats | None = None) -> Integers:
    """The same vote over answer codes [..., n] with weights of the same shape, as
    `weighted_plurality`; without them all weigh the same. Some rows at a time.

    Returns:
        [...] the winning codes, -1 where there is no vote; of the type of `codes`.
    """
    rows = codes.reshape(prod(codes.shape[:-1]), codes.shape[-1])
    winners = np.full(len(rows), -1, codes.dtype)
    if rows.size:
        candidates = int(codes.max(initial=-1)) + 1
        for block in slices(len(rows), _BLOCK // rows.shape[1]):
            if weights is None:
                winners[block] = _winners(rows[block], candidates)
            else:
                winners[block] = _weighted_winners(
                    rows[block], weights.reshape(rows.shape)[block], candidates
                )
    return winners.reshape(codes.shape[:-1])


def _winners(rows: Integers, candidates: int) -> Integers:
    """[N] winners of [N, n] draws."""
    by_draw = np.ascontiguousarray(rows.T)
    kind = np.uint8 if len(by_draw) <= np.iinfo(np.uint8).max else np.uint32
    votes = np.empty((candidates, len(rows)), kind)
    for candidate, row in enumerate(votes):
        np.add.reduce((by_draw == candidate).view(np.uint8), axis=0, dtype=kind, out=row)
    most = np.maximum.reduce(votes, axis=0, initial=0)
    leads = (votes == most).view(np.int8)
    leaders = np.add.reduce(leads, axis=0, dtype=np.int32)
    winner: Integers = np.maximum.reduce(
        leads * np.arange(candidates, dtype=rows.dtype)[:, None], axis=0, initial=0
    )
    winner[most == 0] = -1
    tied = np.flatnonzero((leaders > 1) & (most > 0))
    draws = by_draw[:, tied]
    leading = (draws >= 0) & (leads[np.maximum(draws, 0), tied] == 1)
    winner[tied] = draws[leading.argmax(axis=0), np.arange(len(tied))]
    return winner


def reaches(value: Any, bar: Fraction, *, strict: bool) -> Any:
    """Whether a score, or each of an array, reaches a bar, or exceeds it if `strict`; NaN does not.

    A score is a float, so the bar is taken to the nearest one: 1/3 is reached by one in three.
    """
    return value > float(bar) if strict else value >= float(bar)


def votes_needed(share: Fraction, votes: int, *, strict: bool) -> int:
    """The fewest votes whose share of all reaches, or exceeds, a share, in exact arithmetic."""
    return floor(share * votes) + 1 if strict else ceil(share * votes)


def split_errors(
    decisions: Decisions, right: Bools, gold: Integers, pools: Pools, orders: PoolOrders
) -> tuple[Floats, Floats]:
    """How far each decision was stopped too early, and how far it was routed wrong: [R, Q] each,
    from 0 to 1.

    A wrong answer was stopped too early if the vote over all CoTs that the method might have drawn,
    from an LLM that it asked and did not exhaust, is right. If the gold is one of m answers that
    lead there, it counts as 1/m. What remains was routed wrong, in the same sense, by LLMs that
    were not asked. With several LLMs each vote breaks its ties independently. A method's
    `exact_errors` is what these counts tend to.

    Args:
        decisions: answers and ledgers [R, Q].
        right: [R, Q] whether the answer is the gold.
        gold: [Q] code of the gold answer, -1 where there is none.
        pools: one per LLM.
        orders: one per LLM, with all CoTs that the method might have drawn.
    """
    wrong = ~right & (decisions.answer >= 0) & (gold >= 0)
    no_stop, no_route = np.ones((2, *right.shape))  # probability that none of the votes is right
    for pool, order, ledger in zip(pools, orders, decisions.ledgers, strict=True):
        replicate, question = np.nonzero(wrong & (ledger.cots < order.shape[2]))
        codes = pool.codes[question[:, None], order[replicate, question]]
        missed = 1.0 - vote_counts(codes, gold[question]).share_of_lead
        asked = ledger.cots[replicate, question] > 0
        no_stop[replicate, question] *= np.where(asked, missed, 1.0)
        no_route[replicate, question] *= np.where(asked, 1.0, missed)
    return 1.0 - no_stop, no_stop * (1.0 - no_route)


def hits(codes: Integers, gold: Integers) -> Numbers:
    """[Q, S] which CoTs give the gold [Q]; how right they are where `gold` says that, [Q, S]."""
    return gold if gold.ndim > 1 else (codes == gold[:, None]) & (codes >= 0)


def distinct_votes(pool: Pool, gold: Integers, no_answer: str) -> tuple[VoteCounts, Rows | slice]:
    """The distinct counts of a pool, and which are each question's; if `no_answer` is "vote", no
    answer is one more rival.
    """
    counts, rows = distinct_vote_counts(pool.codes, gold)
    return (counts.with_no_answer_as_rival() if no_answer == "vote" else counts), rows


def plurality_is_right(
    pool: Pool, gold: Integers, no_answer: str, n: Sequence[int] | Integers
) -> PerQuestion:
    """Probability, over all draws, that the plurality of each of N numbers n of CoTs is the
    gold.
    """
    counts, rows = distinct_votes(pool, gold, no_answer)
    return subset_plurality_accuracy(*counts.parts, n).of_questions(rows)


def no_answer_wins(pool: Pool, n: Sequence[int] | Integers) -> PerQuestion:
    """Probability, over all draws, that no answer wins the vote of each of N numbers n of CoTs, in
    which it takes part.
    """
    counts, rows = distinct_vote_counts(pool.codes, np.full(len(pool.codes), -1))
    nobody = np.zeros_like(counts.no_answer)
    return subset_plurality_accuracy(counts.no_answer, counts.rivals, nobody, n).of_questions(rows)


def no_answer_probability(pool: Pool, n: int) -> Floats:
    """[Q] probability that none of n CoTs has an answer."""
    return 1.0 - pass_at_k(answered_counts(pool.codes), pool.sizes, [n]).column(0)


def confidence_weights(confidences: Floats, temperature: float) -> Floats:
    """exp(c / T) over the confidences of a question's CoTs, in proportion: the most confident one
    has weight 1.

    CISC's paper divides by the sum, which changes no winner.

    Args:
        confidences: [..., n], NaN for CoTs that do not vote.
        temperature: T; with infinity every weight is 1.

    Returns:
        [..., n] weights, 0 for CoTs that do not vote.
    """
    votes = ~np.isnan(confidences)
    most = np.where(votes, confidences, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(over="ignore", under="ignore"):  # far below the most confident: weight 0
        weights: Floats = np.exp(
            np.where(votes, confidences - np.where(votes, most, 0.0), 0.0) / temperature
        )
    weights[~votes] = 0.0
    return weights


def vote_weights(scores: Floats, transform: str, scorer: str | None) -> Floats:
    """The weights with which scored CoTs vote.

    Args:
        scores: [..., n] of the CoTs of a vote in draw order, NaN for those that do not vote.
        transform: "none", "exp" (exp(score), in proportion), "sigmoid" (1 / (1 + exp(-score))) or
            "rank": the least score of the vote weighs 1, the next 2; equal scores share the mean of
            their ranks.
        scorer: whose scores, for the message.

    Returns:
        [..., n] weights, 0 for CoTs that do not vote.

    Raises:
        UsageError: there is a score below 0, and no transform.
    """
    if transform == "exp":
        return confidence_weights(scores, 1.0)
    if transform == "sigmoid":
        with np.errstate(over="ignore"):  # far below 0: weight 0
            return np.nan_to_num(1 / (1 + np.exp(-scores)))
    if transform == "rank":
        ranks = np.where(np.isnan(scores), 0.0, 0.5)
        for place in range(scores.shape[-1]):
            other = scores[..., place, None]
            ranks += (other < scores) + 0.5 * (other == scores)
        return ranks
    if (scores < 0).any():
        # More votes for an answer would count against it: the sum of equal negative scores elects
        # the minority.
        raise UsageError(
            "Scores are to be weights of votes, and weights are 0 or more; the least by"
            f" {scorer or 'the scorer'} is {np.nanmin(scores):.6g}. Choose what makes weights of"
            " them: transform=exp, sigmoid or rank (--set transform=rank)."
        )
    return np.nan_to_num(scores)


def weighable(pool: Pool, scores: Floats, transform: str, scorer: str | None) -> Floats:
    """The scores [Q, S] of a pool, of which those of CoTs with an answer can be weights; else the
    error of `vote_weights`.
    """
    if transform == "none":
        vote_weights(
            np.where(pool.codes < 0, np.nan, scores), transform, pool.scores(scorer).scorer.name
        )
    return scores


def rated(
    answers: Sequence[str | None], ratings: Sequence[float | None]
) -> tuple[list[str], Floats]:
    """The answers that have a rating, and their ratings."""
    pairs = [
        (answer, rating)
        for answer, rating in zip(answers, ratings, strict=True)
        if answer is not None and rating is not None
    ]
    return [answer for answer, _ in pairs], np.array([rating for _, rating in pairs])


def rated_codes(codes: Integers, ratings: Floats) -> tuple[Integers, Floats]:
    """The same over answer codes [...]: -1 and NaN for those without a rating, or an answer."""
    known = np.where(np.isnan(ratings), -1, np.maximum(codes, -1))
    return known, np.where(known < 0, np.nan, ratings)


def best_rated(answers: Sequence[str | None], ratings: Sequence[float | None]) -> str | None:
    """The answer with the highest rating, of several the first; `None` where none has one."""
    known, each = rated(answers, ratings)
    return known[int(each.argmax())] if known else None


def best_rated_codes(codes: Integers, ratings: Floats) -> Integers:
    """The same over answer codes [..., n]: [...] the code, -1 where none has a rating."""
    known = np.nan_to_num(np.where(codes < 0, np.nan, ratings), nan=-np.inf)
    best = known.argmax(axis=-1)[..., None]
    return np.maximum(np.take_along_axis(codes, best, axis=-1)[..., 0], -1)


def weighted_plurality(
    answers: Sequence[str | None], weights: Sequence[float] | Floats
) -> str | None:
    """The answer with the largest sum of weights; of tied answers the one seen first; `None` if no
    CoT has one.

    Args:
        answers: canonical answers in draw order, `None` for no answer.
        weights: one per answer, summed in draw order; sums that differ by less than 1e-12 of the
            largest are equal.
    """
    sums: dict[str, float] = {}
    for answer, weight in zip(answers, weights, strict=True):
        if answer is not None:
            sums[answer] = sums.get(answer, 0.0) + weight
    most = max(sums.values(), default=0.0)
    return next(
        (answer for answer, total in sums.items() if total >= most - _TIE * abs(most)), None
    )


def _weighted_winners(rows: Integers, weights: Floats, candidates: int) -> Integers:
    """[N] winners of [N, n] draws."""
    by_draw = np.ascontiguousarray(rows.T).astype(np.intp)
    column = np.arange(len(rows))
    silent = by_draw < 0
    # of a table [candidates + 1, N], whose last row takes draws that do not vote
    cells = by_draw * len(rows) + column
    cells[silent] = np.broadcast_to(column + candidates * len(rows), by_draw.shape)[silent]
    sums = np.zeros((candidates + 1) * len(rows))
    for cell, weight in zip(cells, weights.T, strict=True):
        sums[cell] += weight
    reached = np.where(silent, -np.inf, sums[cells])
    most = reached.max(axis=0)
    # no votes: minus infinity everywhere, and the first draw has no answer either
    with np.errstate(invalid="ignore"):
        first = (reached >= most - _TIE * np.abs(most)).argmax(axis=0)
    winner: Integers = np.maximum(rows[column, first], -1)
    return winner

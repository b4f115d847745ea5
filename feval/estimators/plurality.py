"""Exact accuracy of self-consistency: the mean over all draws of n recorded samples, without
replacement.

Self-consistency (Wang et al., arXiv 2203.11171) answers with the plurality of n samples. Let a pool
have S samples: g with the gold answer, c_1 >= c_2 >= ... with each rival, the rest without an
answer. Samples without an answer cast no vote, ties are broken uniformly among the leaders, and an
empty vote is wrong. Over the C(S, n) equally likely subsets

    C(S, n) P_n = [x^n]  sum_{k >= 1} C(g, k) x^k
                  int_0^1 prod_j ( sum_{i < k} C(c_j, i) x^i + y C(c_j, k) x^k ) dy  (1 + x)^z

where k is the gold answer's votes and y marks a rival that ties with it: int_0^1 y^t dy = 1 / (t +
1) is the gold answer's share of a tie with t rivals. The formula is feval's own (no paper states
it), checked against enumeration in the tests. How it is evaluated:

1. A rival with fewer than k samples always loses: its factor is (1 + x)^{c_j}, which joins (1 +
   x)^z. So for the k in the *band* c_{b+1} < k <= c_b only the b largest rivals need a product, and
   all k of a band share the power of (1 + x):

       C(S, n) P_n = [x^n]  sum_b (1 + x)^{m_b} W_b(x),      m_b = S - g - c_1 - ... - c_b

   The polynomials of W_b are short (degree (b + 1) k), and the power is one matrix product for all
   bands with the same m_b.
2. The integrand has degree b in y: Gauss-Legendre with floor(b / 2) + 1 nodes is exact.
3. Every term is positive: nothing cancels, and the relative error stays near 1e-15. Binomials fit a
   double up to S = 1,029.
4. One pass gives every n; questions with the same (g, sorted c, S) are solved once.

In expectation over random orders this equals a vote in which the answer seen first wins a tie.
Assumes calls on a question that are exchangeable.

The votes of recorded pools are counted here, too.

The best and the largest of n CoTs, over all draws without replacement, in closed form.

V_n from recorded calls: how often a majority of m of a question's K recorded right/wrong bits is
right.

A question with c right calls counts with the hypergeometric probability that m of the K calls,
drawn without replacement, have a right majority (arXiv 2605.03379, section 6.1). That is unbiased
for V_n, m = 2n + 1, for every m up to K, assuming that the calls on a question are exchangeable;
P_n(c / K) is biased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import ceil, comb

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, ShortPoolError
from feval.estimators.arrays import (
    Bools,
    Floats,
    Int64,
    Integers,
    Numbers,
    Result,
    Rows,
    broadcast,
    is_whole,
    require_counts,
    require_each,
)
from feval.estimators.per_question import (
    PerQuestion,
    by_blocks,
    check_ties,
    descending,
    distinct,
    question_blocks,
    require_shapes,
    slices,
    tie_nodes,
)

LARGEST_POOL = 1000
"""Most samples per question for which binomials and their sums fit a double."""

# numbers in the larger arrays of one chunk of questions, to stay near the caches
_CHUNK_NUMBERS = 1 << 18


NO_ANSWER = -1
"""Code of a sample without an answer; it casts no vote."""

ABSENT = -2
"""Code of a missing sample (ragged pools)."""

_BLOCK = 1 << 17  # codes per block, which fit a core's cache


class VoteCounts(Result):
    """The votes of Q pools.

    Attributes:
        gold: [Q] samples with the gold answer.
        rivals: [Q, K] samples of each other candidate, in any order; 0 in the gold candidate's
            place.
        no_answer: [Q] samples without an answer.
    """

    gold: Integers
    rivals: Integers
    no_answer: Integers

    @property
    def size(self) -> Int64:
        """[Q] recorded samples."""
        size: Int64 = self.gold + self.rivals.sum(axis=1, dtype=np.int64) + self.no_answer
        return size

    @property
    def parts(self) -> tuple[Integers, Integers, Integers]:
        """The votes for the gold answer, for its rivals, and for none."""
        return self.gold, self.rivals, self.no_answer

    @property
    def share_of_lead(self) -> Floats:
        """[Q] the gold answer's share of the lead when all samples vote: 1/m if it is one of m
        leaders, 0 if it is none.
        """
        return plurality_credit(self.gold, self.rivals)

    def ordered(self) -> VoteCounts:
        """The same pools with the rivals in descending order, as 64-bit integers."""
        gold, rivals, no_answer = (part.astype(np.int64) for part in self.parts)
        return VoteCounts(gold, descending(rivals), no_answer)

    def with_no_answer_as_rival(self) -> VoteCounts:
        """The same pools where no answer is one more candidate, which votes and is never
        correct.
        """
        rivals = np.column_stack([self.rivals, self.no_answer])
        return VoteCounts(self.gold, rivals, np.zeros_like(self.no_answer))

    def bounds(self) -> Int64:
        """[1 + K + 1] largest counts over the pools: samples without an answer, the leading
        candidate, the next, and so on.
        """
        widest = -np.sort(-np.column_stack([self.gold, self.rivals]), axis=1)
        return np.concatenate([[self.no_answer.max(initial=0)], widest.max(axis=0, initial=0)])


def plurality_credit(gold: Integers, rivals: Integers, *, ties: str = "uniform") -> Floats:
    """Credit of a vote: 1 if the gold answer leads alone, 0 if it does not lead, otherwise the
    credit of a tie.

    Eq. (3) of CEV, with ties by `ties`; eq. (7) is the strict rule.

    Args:
        gold, rivals: [N] and [N, K] votes of the gold answer and of the rivals; zeros pad rows.
        ties: what a tie for the lead with t rivals is worth: 1 / (t + 1) for "uniform", 0 for
            "strict", 1 for "lenient".

    Returns:
        [N] credits; 0 for an empty vote.

    Raises:
        UnknownNameError: an unknown rule for ties.
    """
    check_ties(ties)
    top = rivals.max(axis=1, initial=0)
    level = (rivals == gold[:, None]).sum(axis=1)
    worth = {"uniform": 1.0 / (level + 1.0), "strict": 0.0, "lenient": 1.0}[ties]
    return np.where(gold > top, 1.0, np.where((gold == top) & (gold > 0), worth, 0.0))


def distinct_vote_counts(codes: Integers, gold: Integers) -> tuple[VoteCounts, Rows | slice]:
    """Count the votes of many questions, block by block, and keep each distinct vector of counts
    once.

    An estimate that depends on counts alone is made once per vector, over all blocks: index it with
    the second result to have one per question. A single block is left as it is, since estimators
    look for distinct questions themselves.

    Args:
        codes, gold: as for `vote_counts`.

    Returns:
        The counts of G vectors, with the rivals in descending order, and [Q] the vector of each
        question.
    """
    _check(codes, gold)
    if len(cuts := list(question_blocks(len(codes)))) == 1:
        return vote_counts(codes, gold), slice(None)
    tables, places, found = [], [], 0
    for block in cuts:
        counts = vote_counts(codes[block], gold[block])
        rivals = np.sort(counts.rivals.T, axis=0)[::-1]
        columns = np.vstack(
            [counts.gold, counts.no_answer, rivals[: np.count_nonzero(rivals.any(axis=1))]]
        )
        first, rows = distinct(columns)
        tables.append(columns[:, first])
        places.append(rows.astype(np.int32) + np.int32(found))
        found += len(first)
    most = max(map(len, tables))
    table = np.hstack([np.pad(part, ((0, most - len(part)), (0, 0))) for part in tables])
    first, rows = distinct(table)
    whole, of_table = table[:, first], rows.astype(np.int32)
    return VoteCounts(whole[0], whole[2:].T, whole[1]), np.concatenate(
        [of_table[place] for place in places]
    )


def answered_counts(codes: Integers) -> Integers:
    """[Q] how many samples of each question have an answer."""
    return by_blocks(lambda block: (codes[block] >= 0).sum(axis=1, dtype=np.uint16), len(codes))


def vote_counts(codes: Integers, gold: Integers) -> VoteCounts:
    """Count the votes of each question's pool: c_a = #{samples with answer a}, C_M in eq. (2) of
    CEV (docs/estimators.md).

    One pass over the codes per candidate, in blocks; memory beyond the result does not grow with Q.

    Args:
        codes: [Q, S] which candidate each sample answers, per question from 0; -1 no answer, -2 no
            such sample.
        gold: [Q] code of the gold answer; negative where there is none or no sample can have it:
            then all candidates are rivals.

    Returns:
        Counts as uint8 where S allows, as uint16 otherwise.

    Raises:
        OutOfRangeError: shapes that do not match, codes that are not integers or lie below -2, or S
            above 65,535.
    """
    codes, gold = np.asarray(codes), np.asarray(gold)
    _check(codes, gold)
    questions, samples = codes.shape
    candidates = int(codes.max(initial=-1)) + 1
    kind = np.uint8 if samples <= np.iinfo(np.uint8).max else np.uint16
    votes: Integers = np.empty((candidates, questions), kind)
    no_answer: Integers = np.empty(questions, kind)
    for block in slices(questions, _BLOCK // max(samples, 1)):
        # then the sums below run over contiguous bytes
        by_sample = np.ascontiguousarray(codes[block].T)
        for candidate, row in enumerate(votes):
            _count(by_sample, candidate, row[block])
        _count(by_sample, NO_ANSWER, no_answer[block])
    right: Integers = np.zeros(questions, kind)
    has = np.flatnonzero((gold >= 0) & (gold < candidates))
    right[has] = votes[gold[has], has]
    votes[gold[has], has] = 0
    return VoteCounts(right, votes.T, no_answer)


def _count(codes: Integers, code: int, out: Integers) -> None:
    """Count a code along the first axis into `out`."""
    np.add.reduce((codes == code).view(np.uint8), axis=0, dtype=out.dtype, out=out)


def _check(codes: Integers, gold: Integers) -> None:
    if codes.ndim != 2 or gold.shape != codes.shape[:1]:
        raise OutOfRangeError(
            "Votes are counted from codes [questions, samples] and gold [questions]; the shapes"
            f" are {codes.shape} and {gold.shape}."
        )
    if codes.dtype.kind not in "iu" or gold.dtype.kind not in "iu":
        raise OutOfRangeError(
            f"Answer codes are integers; codes are {codes.dtype} and gold is {gold.dtype}."
        )
    if codes.shape[1] > np.iinfo(np.uint16).max:
        raise OutOfRangeError(
            f"Pools of up to 65,535 samples can be counted; these have {codes.shape[1]:,}. Select"
            " fewer."
        )
    if (lowest := int(codes.min(initial=0))) < ABSENT:
        raise OutOfRangeError(
            f"Answer codes start at -2 (no such sample); {lowest} was found. Number the answers of"
            " each question from 0."
        )


def mean_output_tokens(output_tokens: Integers, size: Integers) -> Floats:
    """Mean output tokens of a question's recorded samples.

    Every sample is equally likely to stand at every place of a random draw without replacement, so
    n draws cost n times this in expectation, exactly (eq. (1) of FEval-TTC, arXiv 2511.01203, is
    linear in the tokens). Assumes only that every order of a question's samples is equally likely.

    Args:
        output_tokens: [Q, S] tokens of each sample, 0 where no sample was recorded.
        size: [Q] recorded samples, 1 or more.

    Returns:
        [Q] tokens per sample.

    Raises:
        OutOfRangeError: shapes that do not match, or a question without samples.
    """
    if output_tokens.ndim != 2 or size.shape != output_tokens.shape[:1]:
        raise OutOfRangeError(
            "Tokens are averaged from output_tokens [questions, samples] and size [questions]; the"
            f" shapes are {output_tokens.shape} and {size.shape}."
        )
    if size.size and int(size.min()) < 1:
        raise OutOfRangeError(
            f"Question {int(size.argmin())} has no samples, so no mean tokens; leave it out."
        )
    result: Floats = output_tokens.sum(axis=1, dtype=np.int64) / size
    return result


def subset_plurality_accuracy(
    gold: Integers,
    rivals: Integers,
    no_answer: Integers,
    draws: Sequence[int] | Integers,
    *,
    ties: str = "uniform",
) -> PerQuestion:
    """Probability that the plurality of n samples, drawn without replacement, is the gold answer;
    for many n at once.

    Unbiased for the accuracy of n fresh samples, for every n up to the pool's size: the mean over
    all subsets, which the empirical estimator (eqs. 5-6 of CEV) samples. See the module for formula
    and method.

    Args:
        gold, rivals, no_answer: [Q], [Q, K] and [Q] samples with the gold answer (0 where there is
            no gold), with each other one, in any order, and without one, which cast no vote. To
            reproduce papers that let them vote, pass them as another column of `rivals`. Pools may
            differ in size.
        draws: D numbers of samples n, each from 1 to the smallest pool.
        ties: credit of a tie for the lead, see `ties`.

    Returns:
        D probabilities per question, in the order of `draws`. Absolute error below 1e-12.

    Raises:
        UnknownNameError: an unknown rule for ties.
        ShortPoolError: an n above a question's pool.
        OutOfRangeError: an n below 1, shapes that do not match, negative counts, or a pool above
            1,000 samples.
    """
    check_ties(ties)
    counts = checked_counts(gold, rivals, no_answer)
    numbers = _checked_draws(draws, counts.size)
    first, rows = distinct((counts.gold, counts.no_answer, *counts.rivals.T))
    values = np.empty((len(first), len(numbers)))
    for block in slices(len(first), _CHUNK_NUMBERS // (int(numbers.max()) + 1)):
        values[block] = _accuracy(counts.take(first[block]).ordered(), numbers, ties)
    return PerQuestion(values, rows)


def pass_at_k(gold: Integers, size: Integers, draws: Sequence[int] | Integers) -> PerQuestion:
    """Probability that at least one of n samples, drawn without replacement, has the gold answer;
    for many n at once.

    1 - C(S - g, n) / C(S, n), as the product prod_{i < n} (S - g - i) / (S - i), which neither
    overflows nor cancels (Chen et al., arXiv 2107.03374, with c = g). It is the ceiling of every
    method that chooses among the samples.

    Args:
        gold, size: [Q] samples with the gold answer, and all recorded ones.
        draws: D numbers of samples n, each from 1 to the smallest pool.

    Returns:
        D probabilities per question, in the order of `draws`.

    Raises:
        ShortPoolError: an n above a question's pool.
        OutOfRangeError: an n below 1, shapes that do not match, or a gold count outside 0..size.
    """
    numbers, g, s, rows = _checked_right(gold, size, draws)
    i = np.arange(int(numbers.max()))
    missed = np.cumprod(np.maximum((s - g)[:, None] - i, 0) / (s[:, None] - i), axis=1)
    return PerQuestion(1.0 - missed[:, numbers - 1], rows)


def pass_hat_k(gold: Integers, size: Integers, draws: Sequence[int] | Integers) -> PerQuestion:
    """Probability that all of k samples, drawn without replacement, have the gold answer: pass^k =
    C(g, k) / C(S, k) of tau-bench (arXiv 2406.12045), for many k at once.

    Args:
        gold, size, draws: as for `pass_at_k`.

    Returns:
        As `pass_at_k`.

    Raises:
        ShortPoolError, OutOfRangeError: as `pass_at_k`.
    """
    return g_pass_at_k(gold, size, draws, 1)


def g_pass_at_k(
    gold: Integers,
    size: Integers,
    draws: Sequence[int] | Integers,
    threshold: Fraction | str | float,
) -> PerQuestion:
    """Probability that at least the share `threshold` of k samples, drawn without replacement, and
    at least one, have the gold answer: G-Pass@k of arXiv 2412.13147, for many k at once.

        sum_{j >= max(1, ceil(threshold k))} C(g, j) C(S - g, k - j) / C(S, k)

    A threshold of 0 gives pass@k, one of 1 pass^k.

    Args:
        gold, size, draws: as for `pass_at_k`.
        threshold: from 0 to 1. It is taken as it is written, so that ceil(0.1 x 30) is 3: "0.1",
            "1/3", 0.1 or a fraction, without an exponent.

    Returns:
        As `pass_at_k`.

    Raises:
        ShortPoolError, OutOfRangeError: as `pass_at_k`; or the threshold is no number from 0 to 1.
    """
    try:
        share = Fraction(
            str(threshold).lower().replace("e", "?")
        )  # 1e999999999 is a number for hours
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 <= share <= 1:
        raise OutOfRangeError(
            "The threshold of G-Pass@k is the share of k samples that must be right, from 0 to 1,"
            f" such as g-pass@k:0.5; {threshold!r:.80} was given."
        )
    return _expected(gold, size, draws, lambda k: np.arange(k + 1) >= max(1, ceil(share * k)))


def mg_pass_at_k(gold: Integers, size: Integers, draws: Sequence[int] | Integers) -> PerQuestion:
    """Mean G-Pass@k over thresholds above one half, mG-Pass@k of arXiv 2412.13147, for many even
    k at once: 2 / k times the sum over i = k / 2 + 1, ..., k of G-Pass@k at i / k.

    Args:
        gold, size: as for `pass_at_k`.
        draws: as for `pass_at_k`, even numbers.

    Returns:
        As `pass_at_k`.

    Raises:
        ShortPoolError, OutOfRangeError: as `pass_at_k`; or a k is odd.
    """
    if len(odd := [k for k in draws if k % 2]):
        raise OutOfRangeError(
            f"mG-Pass@k is defined for even k, such as 2, 4, 8; {odd[0]} was asked for."
        )
    # j right samples reach the thresholds of i = k / 2 + 1, ..., j
    return _expected(gold, size, draws, lambda k: np.maximum(2 * np.arange(k + 1) / k - 1, 0))


def _expected(
    gold: Integers, size: Integers, draws: Sequence[int] | Integers, worth: Callable[[int], Numbers]
) -> PerQuestion:
    """Expectation of what j of k drawn samples with the gold answer are worth, [k + 1], for many k
    at once.

    The hypergeometric law of j is made sample by sample: all terms are positive, and none
    overflows, so that pools may be of any size.
    """
    numbers, g, s, rows = _checked_right(gold, size, draws)
    values = np.empty((len(g), len(numbers)))
    most = int(numbers.max())
    j = np.arange(most + 1)[:, None]
    chance = np.zeros((most + 1, len(g)))  # of j = 0, 1, ... after so many samples
    chance[0] = 1.0
    for drawn in range(most):
        left = s - drawn
        grown = chance[:-1] * ((g - j[:-1]) / left)
        chance *= (left - g + j) / left
        chance[1:] += grown
        for place in np.flatnonzero(numbers == drawn + 1):
            values[:, place] = worth(drawn + 1) @ chance[: drawn + 2]
    return PerQuestion(values, rows)


def _checked_right(
    gold: Integers, size: Integers, draws: Sequence[int] | Integers
) -> tuple[Int64, Int64, Int64, Rows]:
    """The numbers of samples, [G] the distinct counts of samples with the gold answer and of all,
    and [Q] which of them a question has.
    """
    gold, size = np.asarray(gold), np.asarray(size)
    require_counts("Right samples", gold=gold, size=size)
    if gold.ndim != 1 or size.shape != gold.shape:
        raise OutOfRangeError(
            f"Right samples are gold [questions] and size [questions]; the shapes are"
            f" {gold.shape} and {size.shape}."
        )
    if len(over := np.flatnonzero(gold > size)):
        raise OutOfRangeError(
            f"At most all samples have the gold answer; question {over[0]} has {gold[over[0]]} of"
            f" {size[over[0]]}."
        )
    numbers = _checked_draws(draws, size)
    first, rows = distinct((gold, size))
    return numbers, gold[first].astype(np.int64), size[first].astype(np.int64), rows


def checked_counts(gold: Integers, rivals: Integers, no_answer: Integers) -> VoteCounts:
    """The counts that a caller gave, checked, in a small type: with the rivals in descending order,
    without those that are 0 on every question.
    """
    gold, rivals, no_answer = np.asarray(gold), np.asarray(rivals), np.asarray(no_answer)
    require_shapes("Counts of samples", "gold", gold, rivals, no_answer)
    require_counts("Plurality accuracy", gold=gold, rivals=rivals, no_answer=no_answer)
    size = VoteCounts(gold, rivals, no_answer).size
    if (largest := int(size.max(initial=0))) > LARGEST_POOL:
        raise OutOfRangeError(
            f"Question {int(size.argmax())} has a pool of {largest:,} samples; beyond"
            f" {LARGEST_POOL:,} the exact accuracy does not fit double precision. Select fewer"
            " samples."
        )
    kind = np.uint8 if largest <= np.iinfo(np.uint8).max else np.uint16
    ordered = np.sort(rivals.T.astype(kind), axis=0)[::-1]
    used = int(np.count_nonzero(ordered.any(axis=1)))
    return VoteCounts(gold.astype(kind), ordered[:used].T, no_answer.astype(kind))


def _checked_draws(draws: Sequence[int] | Integers, size: Integers) -> Int64:
    numbers = np.asarray(draws)
    if (
        numbers.ndim != 1
        or not numbers.size
        or numbers.dtype.kind not in "iu"
        or int(numbers.min()) < 1
    ):
        raise OutOfRangeError(
            f"Numbers of samples are integers from 1, in a list such as [1, 5, 20]; not {draws}."
        )
    if size.size and (smallest := int(size.min())) < int(numbers.max()):
        raise ShortPoolError(
            f"Question {int(size.argmin())} has a pool of {smallest} samples; draws of"
            f" {int(numbers.max())} were asked for. Ask for {smallest} or fewer, or leave the"
            " question out."
        )
    return numbers.astype(np.int64)


class Bands(Result):
    """The N non-empty bands of all questions, sorted by `rest`.

    Attributes:
        question: [N] the band's question.
        rank: [N] b, number of rivals that can reach the votes of this band.
        low, high: [N] the band is low < k <= high, with high at most the gold count and the largest
            n.
        rest: [N] m_b, samples of the smaller rivals and without an answer.
    """

    question: Int64
    rank: Int64
    low: Integers
    high: Integers
    rest: Integers

    @classmethod
    def from_counts(cls, counts: VoteCounts, most: int) -> Bands:
        """Bands of counts in descending order whose leader has at most `most` votes."""
        edges = np.vstack(
            [np.full_like(counts.gold, most), counts.rivals.T, np.zeros_like(counts.gold)]
        )
        high = np.minimum(edges[:-1], np.minimum(counts.gold, most))
        rest = (
            counts.size
            - counts.gold
            - np.cumsum(edges[:-1] * (np.arange(len(high)) > 0)[:, None], axis=0)
        )
        rank, question = np.nonzero(high > edges[1:])
        order = np.argsort(rest[rank, question], kind="stable")
        rank, question = rank[order], question[order]
        return cls(
            question, rank, edges[rank + 1, question], high[rank, question], rest[rank, question]
        )


def _accuracy(counts: VoteCounts, draws: Int64, ties: str) -> Floats:
    """[G, D] exact accuracies of G questions."""
    length = int(draws.max()) + 1  # coefficients that matter: x^0 .. x^max(n)
    choose = binomials(int(counts.size.max(initial=0)), length)
    bands = Bands.from_counts(counts, length - 1)
    polynomials = np.zeros((len(bands.rank), length))
    alone = np.flatnonzero(bands.rank == 0)  # no rival reaches k: W_0 has the coefficients C(g, k)
    above = np.arange(length) > bands.low[alone, None]
    polynomials[alone] = choose[counts.gold[bands.question[alone]]] * above
    for rank in range(1, int(bands.rank.max(initial=0)) + 1):
        _add_contested(polynomials, np.flatnonzero(bands.rank == rank), bands, counts, choose, ties)
    total = _times_rest(polynomials, bands, len(counts.gold), choose, draws)
    return np.minimum(total / choose[counts.size][:, draws], 1.0)


def _add_contested(
    polynomials: Floats, chosen: Rows, bands: Bands, counts: VoteCounts, choose: Floats, ties: str
) -> None:
    """Add W_b of bands with the same b >= 1 rivals: the sum over k of C(g, k) x^k times the rivals'
    product.
    """
    if not len(chosen):
        return
    length, rank = polynomials.shape[1], int(bands.rank[chosen[0]])
    widths = bands.high[chosen] - bands.low[chosen]
    band = np.repeat(chosen, widths)
    k = np.arange(len(band)) - np.repeat(np.cumsum(widths) - widths, widths) + bands.low[band] + 1
    order = np.argsort(-k, kind="stable")
    band, k = band[order], k[order]
    for block in slices(len(k), _CHUNK_NUMBERS // (length * (rank // 2 + 1))):
        rows, votes_of_rows = band[block], k[block]
        question = bands.question[rows]
        product = _rival_product(
            votes_of_rows, counts.rivals[question, :rank].T, choose, length, ties
        )
        product *= choose[counts.gold[question], votes_of_rows]
        for votes, same in _runs(votes_of_rows):  # within a run of equal k no band comes twice
            degrees = min(len(product), rank * votes + 1, length - votes)
            polynomials[rows[same], votes : votes + degrees] += product[:degrees, same].T


def _rival_product(k: Int64, rivals: Integers, choose: Floats, length: int, ties: str) -> Floats:
    """[degree + 1, N] coefficients of int_0^1 prod_j ( sum_{i < k} C(c_j, i) x^i + y C(c_j, k) x^k
    ) dy for N tuples of rivals.

    `k` [N] is the gold answer's votes, largest first; `rivals` [b, N] their samples, each at least
    k; `length` the number of relevant coefficients.
    """
    nodes, weights = tie_nodes(len(rivals), ties)
    powers = np.arange(int(k[0]) + 1)
    # Shape [k + 1, nodes, N].
    share = (powers[:, None] < k)[:, None] + (powers[:, None] == k)[:, None] * nodes[:, None]
    reaching = np.searchsorted(-k, -powers, side="right").tolist()  # how many of the N have k >= i
    product = _factor(rivals[0], share, choose)
    for rival in rivals[1:]:
        factor = _factor(rival, share, choose)
        longer = np.zeros((min(length, len(product) + len(powers) - 1), *product.shape[1:]))
        for i, wide in enumerate(reaching[: len(longer)]):
            degrees = min(len(product), len(longer) - i)
            longer[i : i + degrees, :, :wide] += factor[i, :, :wide] * product[:degrees, :, :wide]
        product = longer
    if len(weights) == 1:
        return product[:, 0]
    return np.tensordot(weights, product, (0, 1))


def _factor(rival: Integers, share: Floats, choose: Floats) -> Floats:
    return choose[:, : len(share)].T.take(rival, axis=1)[:, None] * share


def _times_rest(
    polynomials: Floats, bands: Bands, questions: int, choose: Floats, draws: Int64
) -> Floats:
    """[questions, D] the coefficients at `draws` of the sum over bands of (1 + x)^{m_b} W_b(x)."""
    length = polynomials.shape[1]
    padded = np.hstack([np.zeros((len(choose), length)), choose])  # C(m, negative) = 0
    shift = draws - np.arange(length)[:, None] + length
    total = np.zeros((questions, len(draws)))
    for rest, same in _runs(bands.rest):  # within a run of equal m_b no question comes twice
        total[bands.question[same]] += polynomials[same] @ padded[rest].take(shift)
    return total


def _runs(ordered: Integers) -> Iterator[tuple[int, slice]]:
    """Runs of equal values: the value and its slice."""
    edges = np.flatnonzero(np.diff(ordered)) + 1
    for start, stop in pairwise([0, *edges.tolist(), len(ordered)]):
        if stop > start:
            yield int(ordered[start]), slice(start, stop)


def binomials(most: int, length: int, kind: npt.DTypeLike = np.float64) -> Numbers:
    """[most + 1, length] C(m, i) by Pascal's rule: exact up to m = 56 in doubles, correctly rounded
    sums beyond.
    """
    choose = np.zeros((most + 1, length), kind)
    choose[:, 0] = 1
    for m in range(1, most + 1):
        np.add(choose[m - 1, 1:], choose[m - 1, :-1], out=choose[m, 1:])
    return choose


def subset_best_accuracy(scores: Floats, right: Bools | Floats, sizes: Numbers, n: int) -> Floats:
    """Probability that the best-scored of n CoTs is right.

    Let H(v) be the CoTs with score v or higher, m of them with exactly v. The best of a draw has
    score v with probability [C(T - |H(v)| + m, n) - C(T - |H(v)|, n)] / C(T, n), and the first
    drawn of the m is each of them equally often.

    Feval's own closed form. Assumes only that every order of a question's samples is equally
    likely; unbiased for n fresh calls if calls are independent given the question.

    Args:
        scores: [Q, S] NaN for CoTs that cannot be chosen.
        right: [Q, S] whether a CoT is right, or how right it is, from 0 to 1.
        sizes: [Q] recorded CoTs of each question, n or more.
        n: CoTs per draw.

    Returns:
        [Q] probabilities.
    """
    order = np.argsort(-scores, axis=1, kind="stable")  # NaN comes last
    ordered = np.take_along_axis(scores, order, axis=1)
    hits = np.take_along_axis(np.where(np.isnan(scores), 0.0, right), order, axis=1)
    leads = np.ones(ordered.shape, bool)  # the first of equal scores
    leads[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    group = np.cumsum(leads).reshape(leads.shape) - 1
    first, alike = np.nonzero(leads)[1][group], np.bincount(group.ravel())[group]
    missed = _missed(sizes, n, ordered.shape[1])
    chance = np.take_along_axis(missed, first, 1) - np.take_along_axis(missed, first + alike, 1)
    result: Floats = (hits * (chance / alike)).sum(axis=1)
    return result


def subset_largest(values: Numbers, sizes: Numbers, n: int) -> Floats:
    """Expectation of the largest of n values drawn without replacement.

    The i-th largest of T values is that of a draw with probability C(T - i, n - 1) / C(T, n): the
    draw misses the i - 1 larger ones, and not this one.

    Feval's own closed form. Assumes only that every order of a question's samples is equally
    likely.

    Args:
        values: [Q, S] one per sample, 0 or more; 0 where no sample was recorded.
        sizes: [Q] recorded samples of each question, n or more.
        n: samples per draw.

    Returns:
        [Q] expectations.
    """
    ordered = np.sort(values, axis=1)[:, ::-1]
    result: Floats = np.einsum(
        "qs,qs->q", ordered, -np.diff(_missed(sizes, n, ordered.shape[1]), axis=1)
    )
    return result


def _missed(sizes: Numbers, n: int, most: int) -> Floats:
    """[Q, most + 1] probability that a draw of n out of a size misses the k best, for k = 0, 1,
    ...
    """
    k, size = np.arange(most), sizes[:, None]
    missed = np.ones((len(sizes), most + 1))
    np.cumprod(np.clip((size - n - k) / np.maximum(size - k, 1), 0, 1), axis=1, out=missed[:, 1:])
    return missed


def hypergeometric_majority(right: npt.ArrayLike, size: npt.ArrayLike, votes: int) -> Floats:
    """Probability that most of `votes` calls, drawn without replacement, are right.

        sum_{j > m/2} C(c, j) C(K - c, m - j) / C(K, m)

    From c to c + 1 right calls it grows by C(c, h) C(K - 1 - c, h) / C(K, m), m = 2h + 1: that call
    is drawn and decides. So the values for all c are partial sums of positive integers, divided
    once. An even m with fair ties equals m - 1.

    Args:
        right, size: [...] c right of K recorded calls; K may be one number for all.
        votes: m, from 1 to the smallest K.

    Returns:
        [...] probabilities, correctly rounded.

    Raises:
        ShortPoolError: more votes than recorded calls.
        OutOfRangeError: votes below 1, or right calls outside 0..K; the message has the index.
    """
    c, k = broadcast(right=right, size=size)
    require_counts("A vote of recorded calls", right=c, size=k)
    if not is_whole(votes) or votes < 1:
        raise OutOfRangeError(
            f"A vote needs 1 call or more, a whole number; {votes!r} were asked for."
        )
    require_each(c <= k, "{0} of {1} calls are right{at}; counts lie in 0..K.", c, k)
    require_each(
        k >= votes,
        f"{votes} votes were asked for, and {{0}} calls are recorded{{at}}. Ask for fewer votes or"
        " record more.",
        k,
        error=ShortPoolError,
    )
    accuracy = np.empty(c.shape)
    for calls in np.unique(k).tolist():
        accuracy[k == calls] = _table(calls, int(votes) - 1 + int(votes) % 2)[c[k == calls]]
    return accuracy


@cache
def _table(calls: int, votes: int) -> Floats:
    """[K + 1] the probability for c = 0..K."""
    half, all_draws = votes // 2, comb(calls, votes)
    total, values = 0, [0.0]
    for c in range(calls):
        total += comb(c, half) * comb(calls - 1 - c, half)
        values.append(total / all_draws)
    return np.array(values)

"""Count votes: how often each candidate of a question was answered. Feval's own; assumes nothing
about the calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators import per_question
from feval.estimators.arrays import Integers, Rows
from feval.estimators.per_question import by_blocks, distinct, question_blocks

NO_ANSWER = -1
"""Code of a sample without an answer; it casts no vote."""

ABSENT = -2
"""Code of a missing sample (ragged pools)."""

_BLOCK = 1 << 17  # codes per block, which fit a core's cache


@dataclass(frozen=True, eq=False)
class VoteCounts:
    """The votes of Q pools.

    Attributes:
        gold: [Q] samples with the gold answer.
        rivals: [Q, K] samples of each other candidate, in any order; 0 in the gold candidate's
            place.
        no_answer: [Q] samples without an answer.
        size: [Q] recorded samples: gold + rivals.sum(axis=1) + no_answer.
    """

    gold: Integers
    rivals: Integers
    no_answer: Integers
    size: Integers

    def with_no_answer_as_rival(self) -> VoteCounts:
        """The same pools where no answer is one more candidate, which votes and is never
        correct.
        """
        rivals = np.column_stack([self.rivals, self.no_answer])
        return VoteCounts(self.gold, rivals, np.zeros_like(self.no_answer), self.size)


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
    if len(codes) <= per_question.QUESTIONS_AT_ONCE:
        return vote_counts(codes, gold), slice(None)
    tables, places, found = [], [], 0
    for block in question_blocks(len(codes)):
        counts = vote_counts(codes[block], gold[block])
        rivals = np.sort(counts.rivals.T, axis=0)[::-1]
        columns = np.vstack(
            [counts.gold, counts.no_answer, rivals[: np.count_nonzero(rivals.any(axis=1))]]
        )
        first, rows = distinct(columns)
        tables.append(columns[:, first])
        places.append(rows.astype(np.int32) + np.int32(found))
        found += len(first)
    table = np.zeros_like(tables[0], shape=(max(map(len, tables)), found))
    for start, part in zip(
        np.cumsum([0, *(part.shape[1] for part in tables)]).tolist(), tables, strict=False
    ):
        table[: len(part), start : start + part.shape[1]] = part
    first, rows = distinct(table)
    whole, of_table = table[:, first], rows.astype(np.int32)
    size = whole.sum(axis=0, dtype=whole.dtype)  # at most the number of samples, which fits
    return VoteCounts(whole[0], whole[2:].T, whole[1], size), np.concatenate(
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
    no_answer, size = np.empty((2, questions), kind)
    step = max(1, _BLOCK // max(samples, 1))
    for start in range(0, questions, step):
        block = slice(start, start + step)
        # then the sums below run over contiguous bytes
        by_sample = np.ascontiguousarray(codes[block].T)
        for candidate, row in enumerate(votes):
            _count(by_sample, candidate, row[block])
        _count(by_sample, NO_ANSWER, no_answer[block])
        _count(by_sample, ABSENT, size[block])
    np.subtract(samples, size, out=size, casting="unsafe")
    right: Integers = np.zeros(questions, kind)
    has = np.flatnonzero((gold >= 0) & (gold < candidates))
    right[has] = votes[gold[has], has]
    votes[gold[has], has] = 0
    return VoteCounts(right, votes.T, no_answer, size)


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

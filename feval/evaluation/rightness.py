"""How right a method is on questions whose parties do not say it all; see `feval.replay.rightness`.

A method that chooses among CoTs (`chooses`) is as right as the CoT it chooses: it is given pools in
which each CoT is a party of its own. A vote is as right as the first drawn CoT of the party that it
elects. Given the counts that CoT is uniform in its party, so that the expectation of a method that
reads one LLM's sequence of answers (`reads_answers`) is the sum over parties of the probability
that it is elected times the mean rightness of its CoTs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import methods
from feval.errors import NotExactError, NotRecordedError, UsageError
from feval.methods.protocol import (
    Decisions,
    Expectation,
    Floats,
    Integers,
    Pool,
    PoolOrders,
    Pools,
    Rows,
    capabilities,
    drawn,
)
from feval.replay import Rightness

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset


class Judged(Rightness):
    """How right the CoTs of some LLMs are, on some questions, and what that makes of methods."""

    @property
    def right(self) -> list[Floats]:
        """Of each LLM, [Q, S] from 0 to 1."""
        return [*self.of_llm.values()]

    def to_learn_from(self, method: Any, pools: Pools) -> tuple[list[Pool], Integers]:
        """What a method that chooses among CoTs learns from: pools in which those that are right
        are one party, and its code for each question.

        Raises:
            UsageError: the method does not choose, or some CoT is neither right nor wrong.
        """
        name, mixed = methods.method_name(method), int(self.is_mixed.sum())
        if not capabilities(method).chooses:
            raise UsageError(
                f"{name} learns from one right answer to each question, and on {mixed} of"
                f" {len(self.gold)} training questions several are right, or CoTs with equal"
                " answers are not equally right. Give it what it would learn, or take --right gold"
                " (in Python: right='gold')."
            )
        if self.is_partial:
            raise UsageError(
                f"{name} learns from CoTs that are right or wrong, and verdicts between 0 and 1 are"
                " partial credit. Say from which one on a CoT is right, such as --right"
                " 'verdict>=0.5' (in Python: right='verdict>=0.5')."
            )
        apart = self.apart(pools)
        gold = apart[0].candidates
        found = [
            replace(pool, codes=np.where(right > 0, gold[:, None], pool.codes), candidates=gold + 1)
            for pool, right in zip(apart, self.right, strict=True)
        ]
        return found, gold

    def apart(self, pools: Pools) -> list[Pool]:
        """The same pools, with a party for each CoT that can be right."""
        codes, first = [], 0
        for pool in pools:
            own = np.where(pool.codes == -1, np.where(self.by_verdict[:, None], 0, -1), pool.codes)
            places = np.arange(first, first + own.shape[1])
            codes.append(np.where(own >= 0, places, own))
            first += own.shape[1]
        number = np.full(len(self.gold), first)
        return [
            replace(pool, codes=own, candidates=number)
            for pool, own in zip(pools, codes, strict=True)
        ]

    def expectation(self, method: Any, pool: Pool) -> Expectation:
        """The expectation of a method of one LLM over all draws.

        Raises:
            NotExactError: what it answers with depends on more than the answers drawn.
        """
        [right] = self.right
        if capabilities(method).chooses:
            [apart] = self.apart([pool])
            expected: Expectation = method.exact(apart, right)
            return expected
        if not capabilities(method).reads_answers:
            raise NotExactError(
                "Some CoTs with equal answers are not equally right, and the method does not choose"
                " among them by their answers alone."
            )
        parts = [(method.exact(pool, party), share) for party, share in self.parties(pool)]
        right = np.sum([each.right * share for each, share in parts], axis=0)
        first: Expectation = replace(parts[0][0], right=right)
        return first

    def parties(self, pool: Pool) -> list[tuple[Integers, Floats]]:
        """The parties that are right, one of each question at a time: [Q] their codes, -1 where
        there are no more, and the mean rightness of their CoTs.
        """
        [right] = self.right
        codes, shares = right_parties(pool.codes, right)
        plain = ~self.is_mixed
        codes[plain], shares[plain] = -1, 0.0
        codes[plain, 0], shares[plain, 0] = self.gold[plain], 1.0
        return list(zip(codes.T, shares.T, strict=True))

    def of_decisions(
        self, method: Any, decisions: Decisions, pools: Pools, orders: PoolOrders
    ) -> Floats:
        """[R, Q] how right the answers of some replicates are."""
        answer = decisions.answer
        if capabilities(method).chooses:
            every = np.concatenate(self.right, axis=1)
            chosen = every[np.arange(len(every)), np.maximum(answer, 0)]
            right: Floats = np.where(answer >= 0, chosen, 0.0)
            return right
        right = ((answer == self.gold) & (self.gold >= 0)).astype(np.float64)
        rows = np.flatnonzero(self.is_mixed)
        if len(rows):
            right[:, rows] = self._of_members(decisions, pools, orders, rows)
        return right

    def _of_members(
        self, decisions: Decisions, pools: Pools, orders: PoolOrders, rows: Rows
    ) -> Floats:
        """[R, Q'] how right the first drawn CoT of each elected party is, on some questions; where
        nobody drew one, as right as the party's CoTs are on average.
        """
        answer = decisions.answer[:, rows]
        right = np.full(answer.shape, np.nan)
        by = None if decisions.answered_by is None else decisions.answered_by[:, rows]
        for place, pool in enumerate(pools):
            there, members = (answer >= 0)[..., None], decisions.members
            if members is None:
                members, cots = orders[place], decisions.ledgers[place].cots[:, rows, None]
                there = there & (np.arange(members.shape[2]) < cots)
            own: Any = members[:, rows]
            there = there & (own >= 0)
            own = np.where(there, own, 0)
            found = there & (drawn(pool.codes[rows], own) == answer[..., None])
            first = found.argmax(axis=2)[..., None]
            values = drawn(self.right[place][rows], np.take_along_axis(own, first, 2))[..., 0]
            counts = np.isnan(right) | (by == place)
            right = np.where(counts & found.any(axis=2), values, right)
        if np.isnan(right).any():
            every = np.concatenate([pool.codes[rows] for pool in pools], axis=1)
            share = np.concatenate([each[rows] for each in self.right], axis=1)
            for replicate, place in np.argwhere(np.isnan(right)):
                equal = (every[place] == answer[replicate, place]) & (answer[replicate, place] >= 0)
                right[replicate, place] = share[place][equal].mean() if equal.any() else 0.0
        return right


def judged(method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> Judged | None:
    """How right the CoTs of some questions are; `None` where the gold says it all.

    Raises:
        NotRecordedError: no CoT has an answer, and the method needs some.
    """
    rightness = dataset.rightness
    if rightness is None:
        return None
    needs_answers = rightness.by_verdict.any() and not capabilities(method).chooses
    if needs_answers and all((llm.pool.codes < 0).all() for llm in llms):
        raise NotRecordedError(
            f"{methods.method_name(method)} needs answers, and only verdicts were recorded of"
            f" {' and '.join(llm.name for llm in llms)} on {dataset.id}. What chooses among CoTs"
            " works: single-call, best-of-n and cascades by recorded scores, router, and pass@n."
        )
    # by a verdict, a CoT without an answer can be chosen
    own = rightness.by_verdict[rows] & bool(capabilities(method).chooses)
    own &= np.any([(llm.pool.codes[rows] == -1).any(axis=1) for llm in llms], axis=0)
    if not (own | rightness.is_mixed[rows]).any():
        return None
    right = {llm.name: rightness.of_llm[llm.name][rows] for llm in llms}
    known = dataset.gold[rows], rightness.is_mixed[rows], rightness.by_verdict[rows]
    return Judged(right, *known, rightness.graders)


def right_parties(codes: Integers, right: Floats) -> tuple[Integers, Floats]:
    """Return [Q, K] the codes of the parties with a CoT that is right, -1 behind the last, and the
    mean rightness of their CoTs, from [Q, S] codes and rightness.
    """
    width = int(codes.max(initial=-1)) + 3  # no answer, and one party more than there are
    place = np.arange(len(codes))[:, None] * width + np.maximum(codes, -1) + 1
    total = np.bincount(place.ravel(), right.ravel(), len(codes) * width)
    number = np.bincount(place.ravel(), minlength=len(codes) * width)
    shares = (total / np.maximum(number, 1)).reshape(len(codes), width)[:, 1:]
    most = max(int((shares > 0).sum(axis=1).max(initial=0)), 1)
    found = np.argsort(-shares, axis=1, kind="stable")[:, :most]
    values = np.take_along_axis(shares, found, 1)
    return np.where(values > 0, found, -1), values

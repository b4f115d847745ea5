"""ModelSwitch: ask one LLM after the other until one agrees with itself, else a vote weighted by
consistency (2504.00762).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import log
from typing import Literal

import numpy as np

from feval import replay
from feval.errors import UsageError
from feval.methods.fields import Cost, CountPerLLM, ListOf, frozen_method, per_llm
from feval.methods.protocol import Decisions, Floats, Integers, InTurn, PoolOrders, Pools
from feval.methods.vote import weighted_plurality, weighted_plurality_codes


def consistency_weight(counts: Collection[int], normaliser: str = "distinct") -> float:
    """How much an LLM agrees with itself: 1/n + (1 - 1/n) (1 - H / H_max), with H the entropy of
    its n answers.

    Args:
        counts: how often it gave each of its answers, each 1 or more.
        normaliser: whether H_max is the log of the number of "distinct" answers or of "samples",
            see `ModelSwitch`.

    Returns:
        1 for one answer only, at least 1/n otherwise; 0 for no answer at all.
    """
    n = sum(counts)
    if len(counts) <= 1:
        return float(len(counts))
    entropy = log(n) - sum(count * log(count) for count in counts) / n
    return 1 / n + (1 - 1 / n) * (1 - entropy / log(len(counts) if normaliser == "distinct" else n))


@frozen_method
class ModelSwitch:
    """Ask LLMs in order; the first whose CoTs all agree decides. If none does, all CoTs vote,
    weighted by consistency.

    After the last LLM the answer is argmax_a sum_i beta_i w_i count_i(a), with the external weight
    beta_i of LLM i and its consistency w_i (`consistency_weight`). Ties go to the answer seen
    first, in the order of the LLMs. LLMs that are not asked cost nothing.

    Chen et al., "Do We Truly Need So Many Samples? Multi-LLM Repeated Sampling Efficiently Scales
    Test-Time Compute", arXiv 2504.00762, Algorithm 1; their repository JianhaoChen-nju/ModelSwitch,
    `Analyze.py`. https://arxiv.org/abs/2504.00762

    Attributes:
        samples: CoTs of each LLM, or one number per LLM; the scripts of the paper take 5.
        normaliser: what the entropy is divided by, "distinct" or "samples".
        gate: which CoTs must agree for an LLM to decide, "all" or those that "answered".
        weights: external weight of each LLM, from its performance elsewhere; `None` for 1 each.
    """

    samples: CountPerLLM = 5
    # The authors' code divides by the log of the number of distinct answers; FEval-TTC's example by
    # the log of the number of samples. We follow the authors, though five against five and ten
    # different answers then weigh the same.
    normaliser: Literal["distinct", "samples"] = "distinct"
    # The authors stop only if all CoTs have an answer and the same one; FEval-TTC's example first
    # drops those without, so that one answer out of five stops. We follow the authors: a CoT that
    # fails is a sign of doubt.
    gate: Literal["all", "answered"] = "all"
    weights: ListOf[Cost] | None = None

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs drawn from each LLM, if it is asked."""
        if llms < 1 or (self.weights is not None and len(self.weights) != llms):
            raise UsageError(
                f"ModelSwitch asks one LLM or more, each with its weight; {llms} were given."
            )
        return per_llm("samples", self.samples, llms)

    def __call__(self, question: str, *llms: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question, from LLMs in the order in which to ask them; `None` if no CoT
        has one.
        """
        votes: list[str | None] = []
        weights: list[float] = []
        for llm, samples, external in zip(
            llms, self.draws(len(llms)), self._external(len(llms)), strict=True
        ):
            answers = llm.sample(samples).answers
            counts = Counter(answer for answer in answers if answer is not None)
            if len(counts) == 1 and (self.gate == "answered" or None not in answers):
                return next(iter(counts))
            votes += answers
            weights += [external * consistency_weight(counts.values(), self.normaliser)] * samples
        return weighted_plurality(votes, weights)

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        turn = InTurn(self, pools, orders)
        for left in turn.blocks():
            votes, weights = np.empty((0, len(left)), turn.answer.dtype), np.empty((0, len(left)))
            for place, external in enumerate(self._external(len(turn.llms))):
                codes = turn.llms[place].sample(left).codes
                one = codes.max(axis=0)
                silent = (codes < 0) & (self.gate == "answered")
                agreed = ((codes == one) | silent).all(axis=0) & (one >= 0)
                turn.answer[left[agreed]] = one[agreed]
                turn.answered_by[left[agreed]] = place
                goes_on = np.flatnonzero(~agreed)
                left, codes = left[goes_on], codes[:, goes_on]
                own = external * _consistency_weights(codes, self.normaliser)
                votes = np.concatenate([votes[:, goes_on], codes.astype(votes.dtype)])
                weights = np.concatenate([weights[:, goes_on], np.broadcast_to(own, codes.shape)])
            turn.answer[left] = weighted_plurality_codes(votes.T, weights.T)
        return turn.decisions()

    def _external(self, llms: int) -> tuple[float, ...]:
        return (1.0,) * llms if self.weights is None else self.weights


def _consistency_weights(codes: Integers, normaliser: str) -> Floats:
    """[N] the consistency weights of draws [n, N]."""
    answered = codes >= 0
    n = np.maximum(answered.sum(axis=0), 1)
    # how often each CoT's answer was given
    count = np.zeros(codes.shape, np.uint16)
    for code in codes:
        count += codes == code
    logarithm = np.log(np.maximum(np.arange(len(codes) + 1), 1))
    distinct = np.rint((answered / count).sum(axis=0))
    entropy = logarithm[n] - (answered * logarithm[count]).sum(axis=0) / n
    parties = distinct if normaliser == "distinct" else n
    weight: Floats = 1 / n + (1 - 1 / n) * (1 - entropy / np.log(np.maximum(parties, 2)))
    return np.where(distinct > 1, weight, distinct)

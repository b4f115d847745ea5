"""pass@n: the accuracy of a picker that knows the gold answers, the ceiling of every method that
chooses among n CoTs, or among LLMs; and what else k calls reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from feval.errors import UnknownNameError, UsageError
from feval.estimators.per_question import PerQuestion, by_blocks
from feval.estimators.plurality import g_pass_at_k, mg_pass_at_k, pass_at_k, pass_hat_k
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import EXACT, Expectation, Floats, Integers, Pool, Pools, require_pool
from feval.methods.self_consistency import OneRequest


@frozen_method
class Oracle(OneRequest):
    """pass@n: right wherever one of n CoTs has the gold answer. It knows the golds, so it is no
    method and has no batch form.

    Of several LLMs it is the ceiling of every router, as outcome tables give it: it asks one LLM
    for n CoTs, the one whose best CoT is best. Where several are equal, and so where none is right,
    it asks the one whose calls cost least on that question: the cost is that of the cheapest right
    LLM, else of the cheapest.

    Attributes:
        n: CoTs per question, of each LLM.
    """

    capabilities = replace(EXACT, chooses=True)

    n: Count = 20

    def draws(self, llms: int) -> tuple[int, ...]:
        """The CoTs that it draws from each LLM."""
        return (self.n,) * llms

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] probability that one of n CoTs is right; see `OneRequest.right`.

        Raises:
            UsageError: some CoT is neither right nor wrong.
        """
        return CallMeasure(self.n, "pass@k").right(pool, gold)

    def among(
        self, pools: Pools, right: Sequence[Floats], costs: Sequence[Floats]
    ) -> list[Expectation]:
        """What each of several LLMs gives and takes where it is asked, over all draws.

        Args:
            pools: one per LLM.
            right: of each LLM, [Q, S] how right its CoTs are.
            costs: of each LLM, [Q] what decides among equals.
        """
        for pool in pools:
            require_pool(self, pool, self.n)

        def parts(rows: slice) -> Floats:
            values = np.sort(np.concatenate([own[rows] for own in right], axis=1), axis=1)
            # [Q, K] of each LLM: the probability that its best CoT is at most that right, and its
            # tokens then
            most, spent = [], []
            for pool, own in zip(pools, right, strict=True):
                within = (own[rows, :, None] <= values[:, None]) & (pool.codes > -2)[rows, :, None]
                count, tokens = within.sum(axis=1), pool.output_tokens[rows]
                drawn = [
                    np.maximum(count - i, 0) / (pool.sizes[rows, None] - i) for i in range(self.n)
                ]
                most.append(np.prod(drawn, axis=0))
                mean = np.einsum("qsk,qs->qk", within, tokens) / np.maximum(count, 1)
                spent.append(most[-1] * self.n * mean)
            found = []
            for place, cost in enumerate(costs):
                beaten = np.ones(values.shape)
                for other, dearer in enumerate(costs):
                    if other != place:
                        first = (dearer < cost) | ((dearer == cost) & (other < place))
                        less = np.pad(most[other], ((0, 0), (1, 0)))[:, :-1]
                        beaten *= np.where(first[rows, None], less, most[other])
                asked, used = (np.diff(own[place], prepend=0) * beaten for own in (most, spent))
                found.append([(asked * values).sum(1), asked.sum(1), used.sum(1)])
            return np.moveaxis(np.array(found), 2, 0)

        return [
            Expectation(own[:, 0], own[:, 1], own[:, 1] * self.n, own[:, 2])
            for own in np.moveaxis(by_blocks(parts, len(right[0])), 1, 0)
        ]


_ESTIMATORS: Mapping[str, Callable[..., PerQuestion]] = {
    "pass@k": pass_at_k, "pass^k": pass_hat_k, "g-pass@k:": g_pass_at_k, "mg-pass@k": mg_pass_at_k,
}  # fmt: skip


@frozen_method
class CallMeasure(OneRequest):
    """What n calls of an LLM reach. It knows the golds, as the oracle does.

    Attributes:
        measure: "accuracy", which is the mean of the calls, "pass@k", "pass^k", "mg-pass@k", or
            "g-pass@k:T" with a threshold.
    """

    scope = "Measures such as pass@k are of the calls of one LLM"
    capabilities = replace(EXACT, chooses=True)

    n: Count
    measure: str = "accuracy"

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] the measure; see `OneRequest.right`.

        Raises:
            UsageError: some CoT is neither right nor wrong, and the measure counts right ones.
            UnknownNameError: no such measure.
        """
        right = gold if gold.ndim > 1 else (pool.codes == gold[:, None]) & (pool.codes >= 0)
        if self.measure == "accuracy":
            mean: Floats = right.sum(axis=1) / pool.sizes
            return mean
        name, colon, threshold = self.measure.partition(":")
        if name + colon not in _ESTIMATORS:
            names = ("accuracy", "pass@k", "pass^k", "g-pass@k:0.5", "mg-pass@k")
            raise UnknownNameError.among("measure", self.measure, names)
        if ((right > 0) & (right < 1)).any():
            raise UsageError(
                f"{self.measure} counts CoTs that are right, and verdicts between 0 and 1 are"
                " partial credit. Say from which one on a CoT is right, such as --right"
                " 'verdict>=0.5' (in Python: right='verdict>=0.5')."
            )
        more = [threshold] if colon else []
        estimator = _ESTIMATORS[name + colon]
        return estimator((right > 0).sum(axis=1), pool.sizes, [self.n], *more).column(0)

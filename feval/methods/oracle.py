"""pass@n: the accuracy of a picker that knows the gold answers, the ceiling of every method that
chooses among n CoTs, or among LLMs; and what else k calls reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from feval.errors import UnknownNameError, UsageError
from feval.estimators.per_question import PerQuestion
from feval.estimators.plurality import g_pass_at_k, mg_pass_at_k, pass_at_k, pass_hat_k
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import EXACT, Expectation, Floats, Integers, Pool, Pools, require_pool
from feval.methods.self_consistency import OneRequest, SingleCall
from feval.methods.vote import hits


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
        owners = np.repeat(np.arange(len(pools)), [pool.codes.shape[1] for pool in pools])
        every = np.concatenate(right, axis=1)
        # [Q, K] the CoTs from the worst on; of equal ones, the LLM that is asked first stands last
        worst = np.lexsort((0 * every - owners, -np.array(costs)[owners].T, every), axis=1)
        tokens, codes = (
            np.concatenate([getattr(pool, name) for pool in pools], axis=1)
            for name in ("output_tokens", "codes")
        )
        values, tokens, codes = (
            np.take_along_axis(each, worst, axis=1) for each in (every, tokens, codes)
        )
        # of each LLM: the probability that it draws nothing that stands behind, and its tokens then
        most, spent = [], []
        for llm, pool in enumerate(pools):
            require_pool(self, pool, self.n)
            own = (owners[worst] == llm) & (codes > -2)
            count, total = own.cumsum(axis=1), np.cumsum(own * tokens, axis=1)
            missed = [(count - i) / (pool.sizes[:, None] - i) for i in range(self.n)]
            most.append(np.prod(np.maximum(missed, 0), axis=0))
            spent.append(most[-1] * self.n * total / np.maximum(count, 1))
        found = []
        for llm in range(len(pools)):
            others = np.prod(most[:llm] + most[llm + 1 :], axis=0)
            asked, used = (np.diff(own[llm], prepend=0) * others for own in (most, spent))
            cots = asked.sum(axis=1)
            found.append(
                Expectation((asked * values).sum(axis=1), cots, cots * self.n, used.sum(axis=1))
            )
        return found


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
        if self.measure == "accuracy":
            return SingleCall().right(pool, gold)
        right = hits(pool.codes, gold)
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

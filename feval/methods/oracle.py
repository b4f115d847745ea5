"""pass@n: the accuracy of a picker that knows the gold answers, the ceiling of every method that
chooses among n CoTs; and what else k calls reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from feval.errors import UnknownNameError, UsageError
from feval.estimators.per_question import PerQuestion
from feval.estimators.plurality import g_pass_at_k, mg_pass_at_k, pass_at_k, pass_hat_k
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import EXACT, Floats, Integers, Pool
from feval.methods.self_consistency import OneRequest


@frozen_method
class Oracle(OneRequest):
    """pass@n: right wherever one of n CoTs has the gold answer. It knows the golds, so it is no
    method and has no batch form.

    Attributes:
        n: CoTs per question.
    """

    scope = "The oracle is the ceiling of one LLM"
    capabilities = replace(EXACT, chooses=True)

    n: Count = 20

    def right(self, pool: Pool, gold: Integers) -> Floats:
        """[Q] probability that one of n CoTs is right; see `OneRequest.right`.

        Raises:
            UsageError: some CoT is neither right nor wrong.
        """
        return CallMeasure(self.n, "pass@k").right(pool, gold)


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

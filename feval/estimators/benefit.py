"""AutoMix's incremental benefit per cost (IBC) of a cascade of a small and a large LLM.

    IBC_M = (P_M - P_SLM) / (C_M - C_SLM)

with performance P and mean cost C of the cascade M and of the small LLM alone. Assumes nothing
about the calls. Aggarwal, Madaan et al., section 4, https://arxiv.org/abs/2310.12963
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats


def incremental_benefit_per_cost(
    performance: npt.ArrayLike,
    cost: npt.ArrayLike,
    small_performance: npt.ArrayLike,
    small_cost: npt.ArrayLike,
) -> Floats:
    """IBC: performance gained over the small LLM per unit of extra cost, (P - P_SLM) / (C - C_SLM).

    Args:
        performance, cost: accuracy (or any score where more is better) and mean cost per question
            of the cascades, any shape.
        small_performance, small_cost: the same of the small LLM alone; broadcast against the
            cascades.

    Returns:
        One number per cascade; NaN where it costs no more than the small LLM, which leaves IBC
        undefined.

    Raises:
        OutOfRangeError: a negative cost.
    """
    costs, small_costs = np.asarray(cost, np.float64), np.asarray(small_cost, np.float64)
    if min(costs.min(initial=0), small_costs.min(initial=0)) < 0:
        raise OutOfRangeError(
            "Costs are 0 or more; a negative one was given. Give costs, not savings."
        )
    gained = np.asarray(performance, np.float64) - np.asarray(small_performance, np.float64)
    gained, spent = np.broadcast_arrays(gained, costs - small_costs)
    benefit: Floats = np.full(spent.shape, np.nan)
    np.divide(gained, spent, out=benefit, where=spent > 0)
    return benefit

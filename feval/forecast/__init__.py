"""What voting will buy, before it is paid for: the estimators of `feval.estimators` applied to
loaded LLMs.

`estimate` forecasts the accuracy of votes, `plan` says what a budget buys, and `coupled.couple`
compares LLMs that share noise.
"""

from feval.forecast.budget import (
    BudgetPlan,
    EstimationSplit,
    PlanBudget,
    Purchase,
    VoteOption,
    plan,
)
from feval.forecast.forecasts import (
    METHODS,
    EstimatedCurve,
    EstimatePoint,
    Forecast,
    PoolCurves,
    estimate,
)

__all__ = [
    "METHODS",
    "BudgetPlan",
    "EstimatePoint",
    "EstimatedCurve",
    "EstimationSplit",
    "Forecast",
    "PlanBudget",
    "PoolCurves",
    "Purchase",
    "VoteOption",
    "estimate",
    "plan",
]

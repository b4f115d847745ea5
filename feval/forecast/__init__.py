"""What voting will buy, before it is paid for: the estimators of `feval.estimators` applied to
loaded LLMs.

`estimate` forecasts the accuracy of votes, `plan` says what a budget buys, and `coupled.couple`
compares LLMs that share noise.
"""

from __future__ import annotations

from feval.forecast.budget import plan
from feval.forecast.budget_plan import BudgetPlan, EstimationSplit, PlanBudget, Purchase, VoteOption
from feval.forecast.estimation import estimate
from feval.forecast.forecasts import METHODS, EstimatedCurve, EstimatePoint, Forecast, PoolCurves

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

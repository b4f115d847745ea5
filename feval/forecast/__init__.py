"""What voting will buy, before it is paid for: the estimators of `feval.estimators` applied to loaded LLMs.

`estimate` draws a few calls per question and forecasts the accuracy of M-fold votes, beside what the whole pool says;
`plan` turns a pilot recording and a budget into numbers of questions, calls and votes.
"""

from __future__ import annotations

from feval.forecast.budget import Budget, BudgetPlan, Purchase, Split, VoteOption, plan
from feval.forecast.estimation import METHODS, Estimate, EstimatePoint, Forecast, Reference, estimate

__all__ = [
    "METHODS",
    "Budget",
    "BudgetPlan",
    "Estimate",
    "EstimatePoint",
    "Forecast",
    "Purchase",
    "Reference",
    "Split",
    "VoteOption",
    "estimate",
    "plan",
]

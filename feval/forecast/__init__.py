"""What voting will buy, before it is paid for: the estimators of `feval.estimators` applied to loaded LLMs.

| module | what it does |
| --- | --- |
| `estimation` | `estimate`: accuracy of M-fold votes from a few calls per question, beside the whole pool |
| `forecasts` | its results: curves, points, errors |
| `estimators`, `caveats` | the estimators by name; what a reader of a forecast must know |
| `budget` | `plan`: questions, calls and votes that a budget buys, from a pilot recording |
| `budget_plan` | its results: budget, options, purchase |
| `question_costs`, `pilot` | what calls cost; what a pilot tells about votes |
| `evidence` | right calls per question and the moments they estimate |
| `coupled` | `couple`: LLMs with shared noise compared; `coupled_pairs`, `coupled_winrates` do the work |
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

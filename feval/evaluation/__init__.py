"""Evaluate a method on a recording: exactly, on recorded draws or on seeded ones; curves over budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.evaluation.curves import Curve as Curve
    from feval.evaluation.curves import CurvePoint as CurvePoint
    from feval.evaluation.curves import method_curve as method_curve
    from feval.evaluation.curves import self_consistency_curve as self_consistency_curve
    from feval.evaluation.environment import BudgetEnvironment as BudgetEnvironment
    from feval.evaluation.environment import as_method as as_method
    from feval.evaluation.evaluation import Evaluation as Evaluation
    from feval.evaluation.evaluation import evaluate as evaluate
    from feval.evaluation.oracle import Oracle as Oracle
    from feval.evaluation.training import train_test_rows as train_test_rows

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "evaluation": (
            "Evaluation",
            "evaluate",
        ),
        "curves": (
            "Curve",
            "CurvePoint",
            "method_curve",
            "self_consistency_curve",
        ),
        "oracle": ("Oracle",),
        "training": ("train_test_rows",),
        "environment": (
            "BudgetEnvironment",
            "as_method",
        ),
    },
)

"""Compare methods: the plan, the curves, paired statistics, traces."""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison as Comparison, compare as compare
    from feval.comparison.plan import Plan as Plan
    from feval.comparison.runner import MethodCurve as MethodCurve

__getattr__, __dir__ = lazy_names(
    __name__, {"runner": "MethodCurve", "comparison": "Comparison compare", "plan": "Plan"}
)

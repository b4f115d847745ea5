"""Evaluate a method on a recording: exactly, on recorded draws or on seeded ones; curves over
budgets.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.evaluation.curves import Curve as Curve, CurvePoint as CurvePoint
    from feval.evaluation.evaluation import (
        Evaluation as Evaluation,
        budgets as budgets,
        evaluate as evaluate,
    )
    from feval.evaluation.fitting import fits as fits
    from feval.evaluation.method_names import field_names as field_names, make_method as make_method
    from feval.evaluation.rightness import (
        Judged as Judged,
        judged as judged,
        right_parties as right_parties,
    )
    from feval.evaluation.surfaces import Surface as Surface, surface as surface
    from feval.evaluation.user_methods import MethodFile as MethodFile

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "user_methods": "MethodFile",
        "curves": "Curve CurvePoint",
        "surfaces": "Surface surface",
        "evaluation": "budgets evaluate Evaluation",
        "fitting": "fits",
        "method_names": "field_names make_method",
        "rightness": "Judged judged right_parties",
    },
)

TIME_LIMIT = 60.0
"""Seconds that a method from a file may take on one question: replayed CoTs come at once."""

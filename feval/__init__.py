"""feval: record chains of thought once, replay test-time-compute methods on them for ever.

`import feval` is cheap: every public name is loaded when it is first used (PEP 562), so neither NumPy nor pydantic nor pyarrow
stands between `import feval` and the next line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feval.comparison import Comparison, compare
    from feval.curves import Curve, CurvePoint, self_consistency_curve
    from feval.errors import FevalError
    from feval.evaluation import Evaluation, evaluate
    from feval.importers import import_recording
    from feval.methods import METHODS, SelfConsistency
    from feval.methods.vote import plurality
    from feval.names import DatasetType, LLMType
    from feval.plans import Plan
    from feval.prices import PriceList, price_list
    from feval.recording import merge, open_recording, select, verify_recording
    from feval.replay import LLM, Dataset, load

__version__ = "0.1.0"

_HOMES = {
    "Comparison": "feval.comparison",
    "compare": "feval.comparison",
    "Curve": "feval.curves",
    "CurvePoint": "feval.curves",
    "self_consistency_curve": "feval.curves",
    "Evaluation": "feval.evaluation",
    "evaluate": "feval.evaluation",
    "FevalError": "feval.errors",
    "import_recording": "feval.importers",
    "METHODS": "feval.methods",
    "SelfConsistency": "feval.methods",
    "plurality": "feval.methods.vote",
    "DatasetType": "feval.names",
    "LLMType": "feval.names",
    "Plan": "feval.plans",
    "PriceList": "feval.prices",
    "price_list": "feval.prices",
    "merge": "feval.recording",
    "open_recording": "feval.recording",
    "select": "feval.recording",
    "verify_recording": "feval.recording",
    "Dataset": "feval.replay",
    "LLM": "feval.replay",
    "load": "feval.replay",
}

__all__ = [
    "LLM",
    "METHODS",
    "Comparison",
    "Curve",
    "CurvePoint",
    "Dataset",
    "DatasetType",
    "Evaluation",
    "FevalError",
    "LLMType",
    "Plan",
    "PriceList",
    "SelfConsistency",
    "__version__",
    "compare",
    "evaluate",
    "import_recording",
    "load",
    "merge",
    "open_recording",
    "plurality",
    "price_list",
    "select",
    "self_consistency_curve",
    "verify_recording",
]


def __getattr__(name: str) -> object:
    """Load a public name from its home on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'feval' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

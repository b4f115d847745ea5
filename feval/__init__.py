"""feval: record chains of thought once, replay test-time-compute methods on them for ever.

`import feval` is cheap: every public name is loaded when it is first used (PEP 562), so neither NumPy nor pydantic nor pyarrow
stands between `import feval` and the next line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feval.comparison import Comparison, compare
    from feval.curves import Curve, CurvePoint, method_curve, self_consistency_curve
    from feval.environment import BudgetEnvironment, as_method
    from feval.errors import FevalError
    from feval.evaluation import Evaluation, evaluate, train_test_rows
    from feval.exact import Oracle
    from feval.importers import import_recording
    from feval.methods import (
        METHODS,
        AdaptiveConsistency,
        AutoMix,
        BestOfN,
        Cascade,
        ConfidenceWeighted,
        DeepConfidence,
        DifficultyAdaptive,
        EarlyStopping,
        MixtureOfThoughts,
        ModelSwitch,
        SelfConsistency,
        SingleCall,
        WeightedBestOfN,
    )
    from feval.methods.vote import plurality
    from feval.names import DatasetType, LLMType
    from feval.plans import Plan
    from feval.prices import PriceList, price_list
    from feval.receipts import verify_receipt
    from feval.recording import merge, open_recording, select, verify_recording
    from feval.replay import LLM, Dataset, load

__version__ = "0.1.0"

_HOMES = {
    "Comparison": "feval.comparison",
    "compare": "feval.comparison",
    "Curve": "feval.curves",
    "CurvePoint": "feval.curves",
    "method_curve": "feval.curves",
    "self_consistency_curve": "feval.curves",
    "BudgetEnvironment": "feval.environment",
    "as_method": "feval.environment",
    "Evaluation": "feval.evaluation",
    "evaluate": "feval.evaluation",
    "train_test_rows": "feval.evaluation",
    "Oracle": "feval.exact",
    "FevalError": "feval.errors",
    "import_recording": "feval.importers",
    "METHODS": "feval.methods",
    "AdaptiveConsistency": "feval.methods",
    "AutoMix": "feval.methods",
    "BestOfN": "feval.methods",
    "Cascade": "feval.methods",
    "ConfidenceWeighted": "feval.methods",
    "DeepConfidence": "feval.methods",
    "DifficultyAdaptive": "feval.methods",
    "EarlyStopping": "feval.methods",
    "MixtureOfThoughts": "feval.methods",
    "ModelSwitch": "feval.methods",
    "SelfConsistency": "feval.methods",
    "SingleCall": "feval.methods",
    "WeightedBestOfN": "feval.methods",
    "plurality": "feval.methods.vote",
    "DatasetType": "feval.names",
    "LLMType": "feval.names",
    "Plan": "feval.plans",
    "PriceList": "feval.prices",
    "price_list": "feval.prices",
    "verify_receipt": "feval.receipts",
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
    "AdaptiveConsistency",
    "AutoMix",
    "BestOfN",
    "BudgetEnvironment",
    "Cascade",
    "Comparison",
    "ConfidenceWeighted",
    "Curve",
    "CurvePoint",
    "Dataset",
    "DatasetType",
    "DeepConfidence",
    "DifficultyAdaptive",
    "EarlyStopping",
    "Evaluation",
    "FevalError",
    "LLMType",
    "MixtureOfThoughts",
    "ModelSwitch",
    "Oracle",
    "Plan",
    "PriceList",
    "SelfConsistency",
    "SingleCall",
    "WeightedBestOfN",
    "__version__",
    "as_method",
    "compare",
    "evaluate",
    "import_recording",
    "load",
    "merge",
    "method_curve",
    "open_recording",
    "plurality",
    "price_list",
    "select",
    "self_consistency_curve",
    "train_test_rows",
    "verify_receipt",
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

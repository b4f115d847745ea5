"""feval: record chains of thought once, replay test-time-compute methods on them forever.

`import feval` is cheap: every public name is loaded when it is first used (PEP 562), so neither
NumPy nor pydantic nor pyarrow stands between `import feval` and the next line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.cards.names import DatasetType, LLMType
    from feval.cards.prices import PriceList, price_list
    from feval.comparison.comparison import Comparison, compare
    from feval.comparison.plan import Plan
    from feval.errors import FevalError
    from feval.evaluation.curves import Curve, CurvePoint, method_curve, self_consistency_curve
    from feval.evaluation.environment import BudgetEnvironment, as_method
    from feval.evaluation.evaluation import Evaluation, evaluate
    from feval.evaluation.fitting import training
    from feval.evaluation.questions import train_test_rows
    from feval.executors.progress import set_progress
    from feval.executors.workers import distributed
    from feval.exporters import export_recording
    from feval.importers import from_dataframe, import_recording
    from feval.methods import (
        DVTS,
        METHODS,
        AdaptiveConsistency,
        AnswerConvergence,
        AutoMix,
        BeamSearch,
        BestOfN,
        BudgetPolicy,
        Cascade,
        ConfidenceWeighted,
        DeepConfidence,
        DifficultyAdaptive,
        EarlyStopping,
        MixtureOfThoughts,
        ModelSwitch,
        ParallelProbe,
        ParticleFiltering,
        PathConsistency,
        ProbeConfidence,
        Router,
        SelfConsistency,
        SequentialRevision,
        SingleCall,
        TokenBudget,
        WeightedBestOfN,
    )
    from feval.methods.oracle import Oracle
    from feval.methods.vote import plurality
    from feval.receipts.repricing import reprice
    from feval.receipts.verifying import verify_receipt
    from feval.recording import merge, open_recording, select, verify_recording
    from feval.replay import LLM, Dataset, load
    from feval.report.pictures import style
    from feval.serving.replaying import replaying


__version__ = "0.9.0"

__all__ = [
    "DVTS",
    "LLM",
    "METHODS",
    "AdaptiveConsistency",
    "AnswerConvergence",
    "AutoMix",
    "BeamSearch",
    "BestOfN",
    "BudgetEnvironment",
    "BudgetPolicy",
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
    "ParallelProbe",
    "ParticleFiltering",
    "PathConsistency",
    "Plan",
    "PriceList",
    "ProbeConfidence",
    "Router",
    "SelfConsistency",
    "SequentialRevision",
    "SingleCall",
    "TokenBudget",
    "WeightedBestOfN",
    "__version__",
    "as_method",
    "compare",
    "distributed",
    "evaluate",
    "export_recording",
    "from_dataframe",
    "import_recording",
    "load",
    "merge",
    "method_curve",
    "open_recording",
    "plurality",
    "price_list",
    "replaying",
    "reprice",
    "select",
    "self_consistency_curve",
    "set_progress",
    "style",
    "train_test_rows",
    "training",
    "verify_receipt",
    "verify_recording",
]

_MODULES = {
    "comparison.comparison": "Comparison compare",
    "evaluation.curves": "Curve CurvePoint method_curve self_consistency_curve",
    "evaluation.environment": "BudgetEnvironment as_method",
    "errors": "FevalError",
    "executors": "distributed set_progress",
    "evaluation.evaluation": "Evaluation evaluate",
    "methods.oracle": "Oracle",
    "evaluation.fitting": "training",
    "evaluation.questions": "train_test_rows",
    "exporters": "export_recording",
    "importers": "from_dataframe import_recording",
    "methods.vote": "plurality",
    "cards.names": "DatasetType LLMType",
    "comparison.plan": "Plan",
    "cards.prices": "PriceList price_list",
    "receipts.repricing": "reprice",
    "receipts.verifying": "verify_receipt",
    "recording": "merge open_recording select verify_recording",
    "replay": "LLM Dataset load",
    "serving.replaying": "replaying",
    "report.pictures": "style",
}
# every other name is a method
_MODULES["methods"] = " ".join({*__all__} - {"__version__", *" ".join(_MODULES.values()).split()})
__getattr__, __dir__ = lazy_names(__name__, _MODULES)

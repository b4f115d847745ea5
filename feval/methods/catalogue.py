"""All built-in methods by name. Whatever needs only one of them imports its module, which is quicker."""

from __future__ import annotations

from typing import Any

from feval.methods.cascades.automix import AutoMix
from feval.methods.cascades.cascade import Cascade
from feval.methods.cascades.mixture_of_thoughts import MixtureOfThoughts
from feval.methods.cascades.model_switch import ModelSwitch
from feval.methods.scored.best_of_n import BestOfN, WeightedBestOfN
from feval.methods.scored.confidence_weighted import ConfidenceWeighted
from feval.methods.scored.deep_confidence import DeepConfidence
from feval.methods.stopping.adaptive_consistency import AdaptiveConsistency
from feval.methods.stopping.difficulty_adaptive import DifficultyAdaptive
from feval.methods.stopping.early_stopping import EarlyStopping
from feval.methods.voting.self_consistency import SelfConsistency
from feval.methods.voting.single_call import SingleCall

METHODS: dict[str, type[Any]] = {
    "single-call": SingleCall,
    "self-consistency": SelfConsistency,
    "adaptive-consistency": AdaptiveConsistency,
    "early-stopping": EarlyStopping,
    "difficulty-adaptive": DifficultyAdaptive,
    "best-of-n": BestOfN,
    "weighted-best-of-n": WeightedBestOfN,
    "model-switch": ModelSwitch,
    "mixture-of-thoughts": MixtureOfThoughts,
    "cascade": Cascade,
    "automix": AutoMix,
    "confidence-weighted": ConfidenceWeighted,
    "deep-confidence": DeepConfidence,
}
"""Name on the command line -> method."""


def method_name(method: object) -> str:
    """A method's name: its key in `METHODS`, else the name of the function or class."""
    for name, kind in METHODS.items():
        if type(method) is kind:
            return name
    return getattr(method, "__name__", type(method).__name__.lower())

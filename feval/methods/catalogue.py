"""All built-in methods by name. The module of a method is imported when the method is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feval.lazy import LazyMapping

_HOMES = {
    "single-call": "voting.single_call:SingleCall",
    "self-consistency": "voting.self_consistency:SelfConsistency",
    "adaptive-consistency": "stopping.adaptive_consistency:AdaptiveConsistency",
    "early-stopping": "stopping.early_stopping:EarlyStopping",
    "difficulty-adaptive": "stopping.difficulty_adaptive:DifficultyAdaptive",
    "best-of-n": "scored.best_of_n:BestOfN",
    "weighted-best-of-n": "scored.best_of_n:WeightedBestOfN",
    "model-switch": "cascades.model_switch:ModelSwitch",
    "mixture-of-thoughts": "cascades.mixture_of_thoughts:MixtureOfThoughts",
    "cascade": "cascades.cascade:Cascade",
    "automix": "cascades.automix:AutoMix",
    "confidence-weighted": "scored.confidence_weighted:ConfidenceWeighted",
    "deep-confidence": "scored.deep_confidence:DeepConfidence",
    "token-budget": "depth.token_budget:TokenBudget",
    "answer-convergence": "depth.answer_convergence:AnswerConvergence",
    "probe-confidence": "depth.probe_confidence:ProbeConfidence",
    "parallel-probe": "depth.parallel_probe:ParallelProbe",
    "beam-search": "search.beam_search:BeamSearch",
    "dvts": "search.beam_search:DVTS",
    "particle-filtering": "search.particle_filtering:ParticleFiltering",
    "path-consistency": "search.path_consistency:PathConsistency",
    "sequential-revision": "search.sequential_revision:SequentialRevision",
}

METHODS: Mapping[str, type[Any]] = LazyMapping("feval.methods", _HOMES)
"""Name on the command line -> method."""


def method_name(method: object) -> str:
    """A method's name: its key in `METHODS`, else the name of the function or class."""
    kind = type(method)
    home = f"{kind.__module__.removeprefix('feval.methods.')}:{kind.__name__}"
    names = {path: name for name, path in _HOMES.items()}
    return names.get(home) or str(getattr(method, "__name__", kind.__name__.lower()))

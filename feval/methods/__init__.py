"""Test-time-compute methods, one file per published method.

A method is a frozen dataclass whose fields are its hyper-parameters, with two forms: called with a
question and LLMs it is the readable definition, which also runs live; `decide` does the same over
integer answer codes for all questions and many replicates. Where its expectation over all draws can
be computed, it also has `exact`; see `protocol`. To add a method, write its file and enter it in
`METHODS`: the contract tests run every entry, in all its forms. The module of a method is imported
when the method is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feval.lazy import LazyMapping, lazy_names

if TYPE_CHECKING:
    from feval.methods.adaptive_consistency import AdaptiveConsistency as AdaptiveConsistency
    from feval.methods.answer_convergence import AnswerConvergence as AnswerConvergence
    from feval.methods.automix import AutoMix as AutoMix
    from feval.methods.beam_search import DVTS as DVTS, BeamSearch as BeamSearch
    from feval.methods.best_of_n import BestOfN as BestOfN, WeightedBestOfN as WeightedBestOfN
    from feval.methods.budget_policy import BudgetPolicy as BudgetPolicy
    from feval.methods.cascade import Cascade as Cascade
    from feval.methods.confidence_weighted import ConfidenceWeighted as ConfidenceWeighted
    from feval.methods.deep_confidence import DeepConfidence as DeepConfidence
    from feval.methods.difficulty_adaptive import DifficultyAdaptive as DifficultyAdaptive
    from feval.methods.early_stopping import EarlyStopping as EarlyStopping
    from feval.methods.mixture_of_thoughts import MixtureOfThoughts as MixtureOfThoughts
    from feval.methods.model_switch import ModelSwitch as ModelSwitch
    from feval.methods.oracle import CallMeasure as CallMeasure, Oracle as Oracle
    from feval.methods.parallel_probe import ParallelProbe as ParallelProbe
    from feval.methods.particle_filtering import ParticleFiltering as ParticleFiltering
    from feval.methods.path_consistency import PathConsistency as PathConsistency
    from feval.methods.probe_confidence import ProbeConfidence as ProbeConfidence
    from feval.methods.router import Router as Router
    from feval.methods.self_consistency import (
        SelfConsistency as SelfConsistency,
        SingleCall as SingleCall,
    )
    from feval.methods.sequential_revision import SequentialRevision as SequentialRevision
    from feval.methods.token_budget import TokenBudget as TokenBudget

_HOMES = {
    "single-call": "self_consistency:SingleCall",
    "self-consistency": "self_consistency:SelfConsistency",
    "adaptive-consistency": "adaptive_consistency:AdaptiveConsistency",
    "early-stopping": "early_stopping:EarlyStopping",
    "difficulty-adaptive": "difficulty_adaptive:DifficultyAdaptive",
    "best-of-n": "best_of_n:BestOfN",
    "weighted-best-of-n": "best_of_n:WeightedBestOfN",
    "model-switch": "model_switch:ModelSwitch",
    "mixture-of-thoughts": "mixture_of_thoughts:MixtureOfThoughts",
    "cascade": "cascade:Cascade",
    "automix": "automix:AutoMix",
    "budget-policy": "budget_policy:BudgetPolicy",
    "router": "router:Router",
    "confidence-weighted": "confidence_weighted:ConfidenceWeighted",
    "deep-confidence": "deep_confidence:DeepConfidence",
    "token-budget": "token_budget:TokenBudget",
    "answer-convergence": "answer_convergence:AnswerConvergence",
    "probe-confidence": "probe_confidence:ProbeConfidence",
    "parallel-probe": "parallel_probe:ParallelProbe",
    "beam-search": "beam_search:BeamSearch",
    "dvts": "beam_search:DVTS",
    "particle-filtering": "particle_filtering:ParticleFiltering",
    "path-consistency": "path_consistency:PathConsistency",
    "sequential-revision": "sequential_revision:SequentialRevision",
}

METHODS: Mapping[str, type[Any]] = LazyMapping(__name__, _HOMES)
"""Name on the command line -> method."""

_names = {"oracle": "CallMeasure Oracle"}
for _module, _, _class in (home.partition(":") for home in _HOMES.values()):
    _names[_module] = f"{_names.get(_module, '')} {_class}"
__getattr__, __dir__ = lazy_names(__name__, _names)


def method_name(method: object) -> str:
    """A method's name: its key in `METHODS`, else the name of the function or class."""
    kind = type(method)
    home = f"{kind.__module__.removeprefix('feval.methods.')}:{kind.__name__}"
    names = {path: name for name, path in _HOMES.items()}
    return names.get(home) or str(getattr(method, "__name__", kind.__name__.lower()))

"""Test-time-compute methods, one file per published method.

A method is a frozen dataclass whose fields are its hyper-parameters, with two forms: called with a
question and LLMs it is the readable definition, which also runs live; `decide` does the same over
integer answer codes for all questions and many replicates. Where its expectation over all draws can
be computed, it also has `exact` and `exact_errors`; see `protocol`. To add a method, write its file
and enter it in `catalogue`: the contract tests run every entry, in all its forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.methods.cascades.automix import AutoMix as AutoMix
    from feval.methods.cascades.cascade import Cascade as Cascade
    from feval.methods.cascades.mixture_of_thoughts import MixtureOfThoughts as MixtureOfThoughts
    from feval.methods.cascades.model_switch import ModelSwitch as ModelSwitch
    from feval.methods.catalogue import METHODS as METHODS
    from feval.methods.catalogue import method_name as method_name
    from feval.methods.depth.answer_convergence import AnswerConvergence as AnswerConvergence
    from feval.methods.depth.parallel_probe import ParallelProbe as ParallelProbe
    from feval.methods.depth.probe_confidence import ProbeConfidence as ProbeConfidence
    from feval.methods.depth.token_budget import TokenBudget as TokenBudget
    from feval.methods.scored.best_of_n import BestOfN as BestOfN
    from feval.methods.scored.best_of_n import WeightedBestOfN as WeightedBestOfN
    from feval.methods.scored.confidence_weighted import ConfidenceWeighted as ConfidenceWeighted
    from feval.methods.scored.deep_confidence import DeepConfidence as DeepConfidence
    from feval.methods.search.beam_search import DVTS as DVTS
    from feval.methods.search.beam_search import BeamSearch as BeamSearch
    from feval.methods.search.particle_filtering import ParticleFiltering as ParticleFiltering
    from feval.methods.search.path_consistency import PathConsistency as PathConsistency
    from feval.methods.search.sequential_revision import SequentialRevision as SequentialRevision
    from feval.methods.stopping.adaptive_consistency import (
        AdaptiveConsistency as AdaptiveConsistency,
    )
    from feval.methods.stopping.difficulty_adaptive import DifficultyAdaptive as DifficultyAdaptive
    from feval.methods.stopping.early_stopping import EarlyStopping as EarlyStopping
    from feval.methods.voting.self_consistency import SelfConsistency as SelfConsistency
    from feval.methods.voting.single_call import SingleCall as SingleCall

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "catalogue": ("METHODS", "method_name"),
        "cascades.automix": ("AutoMix",),
        "cascades.cascade": ("Cascade",),
        "cascades.mixture_of_thoughts": ("MixtureOfThoughts",),
        "cascades.model_switch": ("ModelSwitch",),
        "depth.answer_convergence": ("AnswerConvergence",),
        "depth.parallel_probe": ("ParallelProbe",),
        "depth.probe_confidence": ("ProbeConfidence",),
        "depth.token_budget": ("TokenBudget",),
        "scored.best_of_n": ("BestOfN", "WeightedBestOfN"),
        "scored.confidence_weighted": ("ConfidenceWeighted",),
        "scored.deep_confidence": ("DeepConfidence",),
        "search.beam_search": ("DVTS", "BeamSearch"),
        "search.particle_filtering": ("ParticleFiltering",),
        "search.path_consistency": ("PathConsistency",),
        "search.sequential_revision": ("SequentialRevision",),
        "stopping.adaptive_consistency": ("AdaptiveConsistency",),
        "stopping.difficulty_adaptive": ("DifficultyAdaptive",),
        "stopping.early_stopping": ("EarlyStopping",),
        "voting.self_consistency": ("SelfConsistency",),
        "voting.single_call": ("SingleCall",),
    },
)

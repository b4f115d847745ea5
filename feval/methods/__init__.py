"""Test-time-compute methods, one file per published method.

A method is a frozen dataclass whose fields are its hyper-parameters, with two forms: called with a question and LLMs it is the
readable definition, which also runs live; `decide` does the same over integer answer codes for all questions and many replicates.
`tests/test_methods_contract.py` runs every entry of `METHODS` in both forms on the same draws.
"""

from __future__ import annotations

from typing import Any

from feval.methods.adaptive_consistency import AdaptiveConsistency
from feval.methods.early_stopping import EarlyStopping
from feval.methods.self_consistency import SelfConsistency
from feval.methods.single_call import SingleCall

__all__ = ["METHODS", "AdaptiveConsistency", "EarlyStopping", "SelfConsistency", "SingleCall", "method_name"]

METHODS: dict[str, type[Any]] = {
    "single-call": SingleCall,
    "self-consistency": SelfConsistency,
    "adaptive-consistency": AdaptiveConsistency,
    "early-stopping": EarlyStopping,
}
"""Name on the command line -> method."""


def method_name(method: object) -> str:
    """What a method is called: its name in `METHODS`, else the name of the function or class."""
    for name, kind in METHODS.items():
        if type(method) is kind:
            return name
    return getattr(method, "__name__", type(method).__name__)

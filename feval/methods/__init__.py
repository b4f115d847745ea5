"""Test-time-compute methods, one file per published method.

A method is a frozen dataclass whose fields are its hyper-parameters, with two forms: called with a question and LLMs it is the
readable definition, which also runs live; `decide` does the same over integer answer codes for all questions and many replicates.
`tests/test_methods_contract.py` runs every entry of `METHODS` in both forms on the same draws.
"""

from __future__ import annotations

from feval.methods.self_consistency import SelfConsistency

__all__ = ["METHODS", "SelfConsistency"]

METHODS = {"self-consistency": SelfConsistency}
"""Name on the command line -> method."""

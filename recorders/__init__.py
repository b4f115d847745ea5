"""From a live LLM to a recording: prompts, requests, backends, the journal, and the seal.

`recorders` imports `feval`; `feval` imports `recorders` in commands only. Public names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recorders.recording import Work, estimate_dataset, record_dataset
    from recorders.request import Backend, Completion, Decoding, Message, Request
    from recorders.twin import live

__all__ = [
    "Backend",
    "Completion",
    "Decoding",
    "Message",
    "Request",
    "Work",
    "estimate_dataset",
    "live",
    "record_dataset",
]

_HOMES = {
    "Backend": "request",
    "Completion": "request",
    "Decoding": "request",
    "Message": "request",
    "Request": "request",
    "Work": "recording",
    "estimate_dataset": "recording",
    "live": "twin",
    "record_dataset": "recording",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'recorders' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"recorders.{_HOMES[name]}"), name)

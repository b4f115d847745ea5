"""OpenAI-compatible replay: what asks a live LLM over HTTP asks a recording instead.

One application without a web framework (`application`) answers requests. It stands behind two doors: an HTTP client's transport
in this process (`transport`), and a server (`server`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Application": "feval.serving.application",
    "AsyncReplayTransport": "feval.serving.transport",
    "ReplayTransport": "feval.serving.transport",
    "grade": "feval.serving.grading",
    "replay_async_http_client": "feval.serving.transport",
    "replay_http_client": "feval.serving.transport",
    "serve": "feval.serving.server",
}

__all__ = [
    "Application",
    "AsyncReplayTransport",
    "ReplayTransport",
    "grade",
    "replay_async_http_client",
    "replay_http_client",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""OpenAI-compatible replay: what asks a live LLM over HTTP asks a recording instead.

One application without a web framework (`application`) answers requests. It stands behind two doors: an HTTP client's transport
in this process (`transport`), and a server (`server`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.serving.application import Application
    from feval.serving.grading import grade
    from feval.serving.server import serve
    from feval.serving.transport import (
        AsyncReplayTransport,
        ReplayTransport,
        replay_async_http_client,
        replay_http_client,
    )

__all__ = [
    "Application",
    "AsyncReplayTransport",
    "ReplayTransport",
    "grade",
    "replay_async_http_client",
    "replay_http_client",
    "serve",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "application": ("Application",),
        "transport": (
            "AsyncReplayTransport",
            "ReplayTransport",
            "replay_async_http_client",
            "replay_http_client",
        ),
        "grading": ("grade",),
        "server": ("serve",),
    },
)

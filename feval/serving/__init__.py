"""Replay over HTTP: code that asks a live LLM in the dialect of OpenAI, Anthropic, Google or Ollama
asks a recording instead.

An application without a web framework (`application`) answers requests. It is used by an HTTP
client's transport in this process (`transport`) and by a server (`server`).
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.serving import grading as grading
    from feval.serving.application import Application, grade
    from feval.serving.server import replay_server, serve
    from feval.serving.transport import (
        AsyncReplayTransport,
        ReplayTransport,
        replay_async_http_client,
        replay_http_client,
    )
    from feval.serving.wire.calls import Call, Reply

__all__ = [
    "Application",
    "AsyncReplayTransport",
    "Call",
    "ReplayTransport",
    "Reply",
    "grade",
    "replay_async_http_client",
    "replay_http_client",
    "replay_server",
    "serve",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "application": "Application grade",
        "grading": "",
        "server": "replay_server serve",
        "transport": "AsyncReplayTransport ReplayTransport replay_async_http_client"
        " replay_http_client",
        "wire.calls": "Call Reply",
    },
)

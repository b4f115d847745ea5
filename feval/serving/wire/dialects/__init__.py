"""Dialects of other vendors, and OpenAI's Responses, over the one application.

Each module has `request`, which makes a chat completion of what its clients ask, `whole`, which
makes their reply of the completion, `pieces`, which cuts that for a stream, `completion`, which
makes a chat completion of a vendor's own reply, and `error`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import ModuleType

from feval.serving.wire.calls import Reply, ServingError, json_reply, openai_error, split_run
from feval.serving.wire.dialects import anthropic, gemini, ollama, responses
from feval.serving.wire.parts import Asked, streamed
from feval.values import RecordLike

_DIALECTS = [(re.compile(each.PATH), each) for each in (responses, anthropic, gemini, ollama)]
_LISTS = {"/api/tags": ollama, "/v1beta/models": gemini, "/v1alpha/models": gemini}
_AZURE = re.compile(
    r"(?:/openai/deployments|(?:/v1)?/engines)/(?P<model>.+?)/(?P<path>(?:chat/)?completions)"
)


def of_path(path: str) -> tuple[ModuleType, dict[str, str]] | None:
    """Return the dialect whose path this is, and what the path says; `None` for OpenAI's own."""
    for pattern, dialect in _DIALECTS:
        if found := pattern.fullmatch(path):
            return dialect, {name: value for name, value in found.groupdict().items() if value}
    return None


def reply(
    dialect: ModuleType, whole: RecordLike, asked: Asked, headers: Mapping[str, str]
) -> Reply:
    """Return a whole reply of a dialect as it was asked for: as one object, or as a stream."""
    if not asked.stream:
        return json_reply(whole, headers=headers)
    return streamed(asked.stream, dialect.pieces(whole), headers)


def error_shape(path: str) -> Callable[[ServingError], object]:
    """Return what makes an error as clients of a path expect it."""
    found = of_path(split_run(path)[1])
    return found[0].error if found else openai_error


def list_of(path: str, headers: Mapping[str, str]) -> ModuleType | None:
    """Return the dialect in which LLMs are listed at a path; `None` for OpenAI's own."""
    if path == "/v1/models":
        if "anthropic-version" in headers:
            return anthropic
        return gemini if "x-goog-api-key" in headers else None
    return _LISTS.get(path)


def openai_path(path: str) -> tuple[str, str | None]:
    """Return OpenAI's path for one of Azure or of an engine, and the LLM that it names."""
    if found := _AZURE.fullmatch(path):
        return f"/v1/{found['path']}", found["model"]
    return path.removeprefix("/openai") if path.startswith("/openai/v1/") else path, None

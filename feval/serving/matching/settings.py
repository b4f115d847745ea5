"""Sampling settings of a request, compared with the recorded ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from feval.recording.content import LLMInfo
from feval.serving.wire.requests import CompletionRequest, Conversation

_SHOWN = 60

# The defaults of every server, which are the same as no value.
_NEUTRAL: Mapping[str, Any] = {
    "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "stop": [], "tools": [], "functions": [],
    "parallel_tool_calls": True, "tool_choice": "none", "response_format": {"type": "text"}, "modalities": ["text"],
    "best_of": 1, "suffix": "",
}  # fmt: skip
LIMITS = ("max_completion_tokens", "max_tokens")
"""Fields of requests that bound the output tokens."""

_SAMPLING = (*LIMITS, "temperature", "top_p", "stop")
OFFERS = ("tools", "functions")
"""Fields of requests that offer tools."""

SCHEMAS = ("response_format", "guided_json", "structured_outputs")
"""Fields of requests that demand JSON."""

_CALLS = ("tool_choice", "function_call")


class IgnoredSetting(NamedTuple):
    """Something that a request asks for and replies do not reflect.

    Attributes:
        kind: "temperature", "limit", "system prompt", "tools", ...; a run is warned once of each kind.
        what: the rest of a sentence whose subject is the run.
    """

    kind: str
    what: str


def ignored(request: CompletionRequest, info: LLMInfo, conversation: Conversation) -> tuple[str, ...]:
    """Return the fields of a request without effect, because other values were recorded."""
    fields = [name for name in request.settings if differs(request.settings, name, info)]
    if conversation.messages and not conversation.text_only and request.kind == "chat":
        fields.append("messages")
    return tuple(fields)


def warnings(
    request: CompletionRequest,
    name: str,
    info: LLMInfo,
    fields: tuple[str, ...],
    system: str,
    recorded_system: str | None,
) -> Iterator[IgnoredSetting]:
    """Yield the settings without effect that a reader of the replies would expect to have had one.

    `fields` are those of `ignored`; a system prompt is empty for none, and the recorded one is `None` if it is not known.
    """
    for field in fields:
        if field in _SAMPLING:
            value = recorded(info, field)
            but = (
                f"the recording of {name} states none" if value is None else f"{name} was recorded with {brief(value)}"
            )
            kind = "limit" if field in LIMITS else field
            yield IgnoredSetting(kind, f"asks for {field} {brief(request.settings[field])}, but {but}.")
        elif field in OFFERS:
            yield IgnoredSetting("tools", f"offers tools, but {name} was recorded without them, and calls none.")
    if system and recorded_system is not None and system != recorded_system:
        how = f"with {recorded_system[:_SHOWN]!r}" if recorded_system else "without one"
        yield IgnoredSetting("system prompt", f"sends a system prompt of its own, but {name} was recorded {how}.")


def other_format(settings: Mapping[str, Any], info: LLMInfo) -> str | None:
    """Return the field of a request that demands JSON or a tool call, if that was not demanded of the recorded CoTs."""
    for name in SCHEMAS:
        if name in settings and _demands_json(name, settings[name], info) and differs(settings, name, info):
            return name
    for name in _CALLS:
        if name in settings and _is_forced(settings[name]) and differs(settings, name, info):
            return name
    return None


def _demands_json(name: str, value: Any, info: LLMInfo) -> bool:
    if name != "response_format" or _kind(value) == "json_schema":
        return True
    # A reply that follows a schema is an object, too.
    return _kind(value) == "json_object" and _kind(recorded(info, name)) != "json_schema"


def _kind(value: Any) -> object:
    return value.get("type") if isinstance(value, Mapping) else None


def _is_forced(choice: Any) -> bool:
    """Whether a tool choice rules out a reply in prose."""
    if not isinstance(choice, Mapping):
        return choice in ("required", "any")
    allowed = choice.get("allowed_tools")
    mode = choice.get("mode", allowed.get("mode") if isinstance(allowed, Mapping) else None)
    return bool(mode != "auto" and _kind(choice) not in ("auto", "none"))


def differs(settings: Mapping[str, Any], name: str, info: LLMInfo) -> bool:
    """Whether a field of a request differs from what was recorded."""
    value, expected = _canonical(name, settings[name]), _canonical(name, recorded(info, name))
    if expected is None and name in _NEUTRAL:
        expected = _canonical(name, _NEUTRAL[name])
    return bool(value != expected)


def _canonical(name: str, value: Any) -> Any:
    if name == "stop" and isinstance(value, str):
        return [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**53 else value
    return list(value) if isinstance(value, tuple) else value


def recorded(info: LLMInfo, name: str) -> Any:
    """Return the recorded value of a field; `None` if none was sent or the recording does not say."""
    if name == "temperature":
        return info.temperature
    if name in LIMITS:
        return info.max_tokens
    extra = info.decoding.get("extra_body")
    return info.decoding.get(name, extra.get(name) if isinstance(extra, Mapping) else None)


def decoding(info: LLMInfo) -> str:
    """Return temperature and limit in words."""
    temperature = "temperature not known" if info.temperature is None else f"temperature {info.temperature:g}"
    return temperature if info.max_tokens is None else f"{temperature}, max_tokens {info.max_tokens}"


def brief(value: object) -> str:
    """Return a value in a few characters."""
    if value is None:
        return "none"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return repr(value)[:_SHOWN] if isinstance(value, str | int | bool) else type(value).__name__

"""Sampling settings of a request, compared with the recorded ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from feval.recording import LLMInfo
from feval.serving.wire.openai import CompletionRequest, Conversation
from feval.values import RecordLike, inside, without_none

_SHOWN = 60

# The defaults of every server, which are the same as no value.
_NEUTRAL: RecordLike = {
    "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "stop": [],
    "tools": [], "functions": [],
    "parallel_tool_calls": True, "tool_choice": "none", "response_format": {"type": "text"},
    "modalities": ["text"],
    "best_of": 1, "suffix": "",
}  # fmt: skip
LIMITS = ("max_completion_tokens", "max_tokens")
"""Fields of requests that bound the output tokens."""

ENDS = (*LIMITS, "stop")
"""Fields of requests that end CoTs before they would end by themselves."""

_SAMPLING = (*ENDS, "temperature", "top_p")
# of OpenAI's API, lm-eval, inspect-ai, lighteval
_STOP_NAMES = ("stop", "until", "stop_seqs", "stop_tokens")
OFFERS = ("tools", "functions")
"""Fields of requests that offer tools."""

SCHEMAS = ("response_format", "guided_json", "structured_outputs")
"""Fields of requests that demand JSON."""

_CALLS = ("tool_choice", "function_call")


class IgnoredSetting(NamedTuple):
    """Something that a request asks for and replies do not reflect.

    Attributes:
        kind: "temperature", "limit", "system prompt", "tools", ...; a run is warned once of each
            kind.
        what: the rest of a sentence whose subject is the run.
    """

    kind: str
    what: str


class Bounds(NamedTuple):
    """What ends the CoTs of a request earlier, or would have ended them later, than it was
    recorded.

    Attributes:
        stops: texts that end a reply; only those that were not among the recorded ones.
        limit: most output tokens; `None` unless it is below the recorded limit, or none was
            recorded.
        field: the field of the request that says so.
        is_longer: whether the limit asked for is above the recorded one, or none is known.
    """

    stops: tuple[str, ...] = ()
    limit: int | None = None
    field: str = LIMITS[1]
    is_longer: bool = False


def bounds(settings: RecordLike, info: LLMInfo) -> Bounds | None:
    """Return what ends the CoTs of a request elsewhere than the recording has it; `None` if nothing
    does.
    """
    field = min(
        (name for name in LIMITS if name in settings), key=settings.__getitem__, default=LIMITS[1]
    )
    asked, known = settings.get(field), info.max_tokens
    stops = tuple(
        dict.fromkeys(
            each for each in _stops(settings.get("stop")) if each not in _recorded_stops(info)
        )
    )
    limit = asked if asked is not None and (known is None or asked < known) else None
    is_longer = asked is not None and (known is None or asked > known)
    return (
        Bounds(stops, limit, field, is_longer) if stops or limit is not None or is_longer else None
    )


def _stops(value: Any) -> list[str]:
    return [
        text
        for text in (value if isinstance(value, list | tuple) else [value])
        if isinstance(text, str)
    ]


def _recorded_stops(info: LLMInfo) -> list[str]:
    return _stops(recorded(info, "stop"))


def ignored(
    request: CompletionRequest, info: LLMInfo, conversation: Conversation
) -> tuple[str, ...]:
    """Return the fields of a request without effect, because other values were recorded."""
    fields = [name for name in request.settings if not _heeded(request.settings, name, info)]
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

    `fields` are those of `ignored`; a system prompt is empty for none, and the recorded one is
    `None` if it is not known.
    """
    for field in fields:
        if field in _SAMPLING:
            value = recorded(info, field)
            but = (
                f"the recording of {name} states none"
                if value is None
                else f"{name} was recorded with {brief(value)}"
            )
            kind = "limit" if field in LIMITS else field
            yield IgnoredSetting(
                kind, f"asks for {field} {brief(request.settings[field])}, but {but}."
            )
    if system and recorded_system is not None and system != recorded_system:
        how = f"with {recorded_system[:_SHOWN]!r}" if recorded_system else "without one"
        yield IgnoredSetting(
            "system prompt", f"sends a system prompt of its own, but {name} was recorded {how}."
        )


def other_format(settings: RecordLike, info: LLMInfo) -> str | None:
    """Return the field of a request that demands JSON, offers tools or demands a call of one, if
    other things were demanded and offered when the CoTs were recorded.
    """
    for name in SCHEMAS:
        if (
            name in settings
            and _demands_json(name, settings[name], info)
            and differs(settings, name, info)
        ):
            return name
    for name in OFFERS:
        if settings.get(name) and differs(settings, name, info):
            return name
    for name in _CALLS:
        if name in settings and _is_forced(settings[name]) and differs(settings, name, info):
            return name
    return None


def _demands_json(name: str, value: Any, info: LLMInfo) -> bool:
    kind = inside(value, "type")
    if name != "response_format" or kind == "json_schema":
        return True
    # A reply that follows a schema is an object, too.
    return bool(kind == "json_object" and inside(recorded(info, name), "type") != "json_schema")


def _is_forced(choice: Any) -> bool:
    """Whether a tool choice rules out a reply in prose."""
    if not isinstance(choice, Mapping):
        return choice in ("required", "any")
    allowed = choice.get("allowed_tools")
    mode = choice.get("mode", inside(allowed, "mode"))
    return bool(mode != "auto" and inside(choice, "type") not in ("auto", "none"))


def _heeded(settings: RecordLike, name: str, info: LLMInfo) -> bool:
    """Whether replies have a field's value: it was recorded, or a recorded CoT can be cut to it."""
    if name in LIMITS:
        return info.max_tokens is None or (name in settings and settings[name] <= info.max_tokens)
    if name == "stop":
        return set(_recorded_stops(info)) <= set(_stops(settings.get(name)))
    return not differs(settings, name, info)


def telling(settings: RecordLike, infos: Sequence[LLMInfo]) -> list[str]:
    """Return the fields by which a request can tell variants of an LLM apart: those that were
    recorded with several values.
    """
    names = {*settings, *_SAMPLING, *_NEUTRAL, *SCHEMAS, *_CALLS}
    names = names.union(
        *(extra for info in infos if isinstance(extra := info.decoding.get("extra_body"), Mapping))
    )
    limits = [name for name in LIMITS if name in settings] or ["max_tokens"]
    names -= {"seed", *LIMITS}.difference(limits)  # a pool has CoTs of many seeds
    return [
        name
        for name in sorted(names)
        if any(differs({name: recorded(infos[0], name)}, name, o) for o in infos)
    ]


def differences(
    settings: RecordLike, info: LLMInfo, names: Sequence[str], *, cuts: bool
) -> list[str]:
    """Return those of some fields in which a request differs from what was recorded.

    With `cuts`, a stop or a limit that a recorded CoT can be cut to is no difference.
    """
    return [
        name
        for name in names
        if differs(settings, name, info) and not (cuts and _heeded(settings, name, info))
    ]


def excess(settings: RecordLike, info: LLMInfo) -> tuple[float, int]:
    """Return how far recorded CoTs go beyond a request: by how many tokens at most, and beyond how
    many of its stops.
    """
    asked, stops = (
        [settings[name] for name in LIMITS if name in settings],
        set(_stops(settings.get("stop"))),
    )
    tokens = (math.inf if info.max_tokens is None else info.max_tokens) - min(asked) if asked else 0
    return tokens, len(stops.difference(_recorded_stops(info)))


def differs(settings: RecordLike, name: str, info: LLMInfo) -> bool:
    """Whether a field of a request differs from what was recorded."""
    values = [_canonical(name, value) for value in (settings.get(name), recorded(info, name))]
    value, expected = (
        _canonical(name, _NEUTRAL.get(name)) if each is None else each for each in values
    )
    return bool(value != expected)


def both_sides(settings: RecordLike, names: Sequence[str], info: LLMInfo) -> str:
    """Return the values of some fields of a request, and the recorded ones, in words."""
    return ", ".join(
        f"{name} {brief(settings.get(name))} (recorded: {brief(recorded(info, name))})"
        for name in names
    )


def _canonical(name: str, value: Any) -> Any:
    if name == "stop":
        return sorted(_stops(value))
    if name in OFFERS and isinstance(value, list):
        return [_tool(own) for own in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**53 else value
    return list(value) if isinstance(value, tuple) else value


def _tool(own: Any) -> Any:
    """A tool as it is compared: without what is null."""
    function = inside(own, "function")
    if not isinstance(function, dict):
        return own
    return own | {"function": without_none(function)}


def names_of(tools: Any) -> str:
    """Return the names of tools in words."""
    own = [tool.get("function", tool) for tool in tools or () if isinstance(tool, dict)]
    names = [str(each.get("name")) for each in own if isinstance(each, dict)]
    return ", ".join(names)[:_SHOWN] or "none"


def recorded(info: LLMInfo, name: str) -> Any:
    """Return the recorded value of a field; `None` if none was sent or the recording does not
    say.
    """
    if name == "temperature":
        return info.temperature
    if name in LIMITS:
        return info.max_tokens
    extra = info.decoding.get("extra_body")
    extra = extra if isinstance(extra, Mapping) else {}
    names = _STOP_NAMES if name == "stop" else (name,)
    return next(
        (where[each] for where in (info.decoding, extra) for each in names if each in where), None
    )


def decoding(info: LLMInfo) -> str:
    """Return temperature and limit in words."""
    temperature = (
        "temperature not known" if info.temperature is None else f"temperature {info.temperature:g}"
    )
    return (
        temperature if info.max_tokens is None else f"{temperature}, max_tokens {info.max_tokens}"
    )


def brief(value: object) -> str:
    """Return a value in a few characters."""
    if value is None:
        return "none"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return repr(list(value))[:_SHOWN]
    return repr(value)[:_SHOWN] if isinstance(value, str | int | bool) else type(value).__name__

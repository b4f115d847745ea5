"""What dialects share: pieces of requests, checked and as OpenAI has them, and streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from feval.serving.wire.calls import MissError, wrong
from feval.serving.wire.openai import as_body
from feval.values import Record, RecordLike

_BLOCKS = {"text", "thinking"}  # of a reply


class Asked(NamedTuple):
    """A request of a dialect.

    Attributes:
        fields: of the chat completion that it asks for.
        stream: whether as a stream.
        path: what the path and the query say.
        previous: id of the reply that it continues, if any.
        instructions: how many of its messages, the first ones, are no part of the conversation.
        kept: whether a later request may continue it.
    """

    fields: Record
    stream: bool
    path: Mapping[str, str]
    previous: str | None = None
    instructions: int = 0
    kept: bool = False


def as_record(value: object, where: str) -> Record:
    """Return a copy of an object; `RequestError` of anything else. `None` is an empty one."""
    if not isinstance(value, dict | None):
        raise wrong(where, "an object", value)
    return dict(value or {})


def records(value: object, where: str) -> Iterator[tuple[str, Record]]:
    """Yield where each object of a list is, and a copy of it; `RequestError` of anything else.
    `None` is an empty list.
    """
    if not isinstance(value, list | None):
        raise wrong(where, "a list", value)
    for number, own in enumerate(value or ()):
        yield f"{where}[{number}]", as_record(own, f"{where}[{number}]")


def as_text(value: object, where: str) -> str:
    """Return a text; `RequestError` of anything else."""
    if not isinstance(value, str):
        raise wrong(where, "text", value)
    return value


def streams(fields: Record, *, usual: bool = False) -> bool:
    """Take `stream` out of the fields; `RequestError` if it is neither true nor false."""
    value = fields.pop("stream", None)
    if not isinstance(value, bool | None):
        raise wrong("stream", "true or false", value)
    return usual if value is None else value


def renamed(fields: RecordLike, names: Mapping[str, str]) -> Record:
    """Return fields by OpenAI's names, without those that are null or whose new name is empty."""
    own = {names.get(name, name): value for name, value in fields.items() if value is not None}
    own.pop("", None)
    return own


def message(role: str, parts: Sequence[str | Record], calls: Sequence[Record] = ()) -> Record:
    """Return a message of texts and other parts, which are named only."""
    content: Any = [
        {"type": "text", "text": part} if isinstance(part, str) else part for part in parts
    ]
    if all(isinstance(part, str) for part in parts):
        content = "".join(map(str, parts))
    return {"role": role, "content": content} | ({"tool_calls": [*calls]} if calls else {})


def call(name: object, arguments: object, number: object = None) -> Record:
    """Return a call of a tool; arguments that are no text become JSON."""
    text = arguments if isinstance(arguments, str) else as_body(arguments or {}).decode()
    return {"id": number, "type": "function", "function": {"name": name, "arguments": text}}


def tool(own: RecordLike, parameters: object) -> Record:
    """Return a tool by its name, description and parameters; one of the vendor's own, which has a
    type of its own, as it is.
    """
    if own.get("type", "function") not in ("function", "custom"):
        return dict(own)
    function = {name: own[name] for name in ("name", "description", "strict") if name in own}
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function}


def schema(own: object, name: object = "reply", strict: object = True) -> Record:
    """Return the format that demands JSON by a schema."""
    return {"type": "json_schema", "json_schema": {"name": name, "schema": own, "strict": strict}}


def thoughts(choice: RecordLike) -> str:
    """Return the reasoning of a choice; empty without any."""
    return str(choice["message"].get("reasoning") or "")


def text(choice: RecordLike) -> str:
    """Return the text of a choice, or its refusal; empty where none was recorded."""
    return str(choice["message"]["content"] or choice["message"].get("refusal") or "")


def reason(choice: RecordLike) -> str:
    """Return why a choice ended."""
    refused = choice["message"].get("refusal") is not None
    return "refusal" if refused else str(choice["finish_reason"])


def refuse(fields: RecordLike, *names: str) -> None:
    """Refuse fields that add to the conversation what no request shows."""
    for name in names:
        if fields.get(name):
            raise MissError(
                f"`{name}` adds to the conversation what the request does not show, and a recorded"
                " conversation cannot be compared with. Send all messages themselves.",
                parameter=name,
            )


def arguments(text: str) -> Record:
    """Return the arguments of a call as an object; text that is none as its only member."""
    with suppress(ValueError):
        own = orjson.loads(text or "{}")
        if isinstance(own, dict):
            return own
    return {"arguments": text}


def calls(choice: RecordLike) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of each tool that a choice calls."""
    return [
        (own["id"], own["function"]["name"], own["function"]["arguments"])
        for own in choice["message"].get("tool_calls") or ()
    ]


def completion(
    reply: RecordLike, messages: Sequence[tuple[Record, str | None]], counts: Sequence[int | None]
) -> Record:
    """Return a vendor's reply as a chat completion.

    Args:
        reply: its id and model.
        messages: the message of each choice, and its finish reason.
        counts: tokens of the prompt, of these cached ones, of the output, of these thoughts;
            `None` where they are not known.

    Raises:
        ValueError: a message has more than text, thoughts and calls of tools.
    """
    prompt, cached, output, thought = counts
    choices = []
    for index, (message, reason) in enumerate(messages):
        content, made = message["content"], message.get("tool_calls")
        if not isinstance(content, str) and {own["type"] for own in content} - _BLOCKS:
            raise ValueError("a block that is neither text nor thoughts")
        reason = "tool_calls" if made and reason == "stop" else reason
        choices.append({"index": index, "message": message, "finish_reason": reason})
    return {
        "id": reply.get("id"),
        "model": reply.get("model"),
        "choices": choices,
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": thought},
        },
    }


def events(named: Iterable[Record]) -> Iterator[bytes]:
    """Yield server-sent events, each named by its type."""
    for own in named:
        yield b"event: %b\ndata: %b\n\n" % (own["type"].encode(), orjson.dumps(own))

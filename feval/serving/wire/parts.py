"""What dialects share: fields that are checked, messages, tools and completions in OpenAI's forms,
and streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import orjson

from feval.serving.wire.calls import EVENT_STREAM, JSON, MissError, Reply, wrong
from feval.serving.wire.openai import as_body
from feval.values import Record, RecordLike


class Asked(NamedTuple):
    """A request of a dialect.

    Attributes:
        fields: of the chat completion that it asks for.
        stream: what as a stream, see `streamed`; empty for a whole reply.
        path: what the path and the query say.
        previous: id of the reply that it continues, if any.
        instructions: how many of its messages, the first ones, are no part of the conversation.
        kept: whether a later request may continue it.
    """

    fields: Record
    stream: str
    path: Mapping[str, str]
    previous: str | None = None
    instructions: int = 0
    kept: bool = False


class Fields(dict[str, Any]):
    """A copy of an object, whose values are taken out of it as what they must be; `RequestError`
    of anything else. `where` is its place in the request, with a full stop behind.
    """

    def __init__(self, value: object = None, where: str = "") -> None:
        if not isinstance(value, dict | None):
            raise wrong(where.rstrip("."), "an object", value)
        super().__init__({self.spelt(name): own for name, own in (value or {}).items()})
        self.where = where

    def spelt(self, name: str) -> str:
        """Return the name of a field in the dialect."""
        return name

    def text(self, name: str, usual: str | None = None) -> str:
        """Take a text; in place of none, the usual one."""
        value = self.pop(name, None)
        value = usual if value is None else value
        if not isinstance(value, str):
            raise wrong(self.where + name, "text", value)
        return value

    def record(self, name: str) -> Self:
        """Take an object; an empty one in place of none."""
        return type(self)(self.pop(name, None), f"{self.where}{name}.")

    def records(self, name: str) -> list[Self]:
        """Take a list of objects; an empty one in place of none."""
        value, where = self.pop(name, None), self.where + name
        if not isinstance(value, list | None):
            raise wrong(where, "a list", value)
        return [type(self)(own, f"{where}[{number}].") for number, own in enumerate(value or ())]

    def blocks(self, name: str) -> list[Self]:
        """Take a list of objects, or a text, which is one of them."""
        if isinstance(self.get(name), str):
            return [type(self)({"type": "text", "text": self.pop(name)}, f"{self.where}{name}.")]
        return self.records(name)

    def stream(self, kind: str, usual: bool = False) -> str:
        """Take whether a stream is asked for; return its kind, or an empty text."""
        value = self.pop("stream", None)
        if not isinstance(value, bool | None):
            raise wrong("stream", "true or false", value)
        return kind if (usual if value is None else value) else ""

    def tools(self, schema: str) -> list[Record]:
        """Take the tools, whose parameters have a schema in a field of this name."""
        return [tool(own, own.get(schema)) for own in self.records("tools")]

    def rest(self, names: Mapping[str, str] = MappingProxyType({})) -> Record:
        """Return what was not taken, by OpenAI's names; not what is null or whose name is empty."""
        self.pop("n", None)
        own = {names.get(name, name): value for name, value in self.items() if value is not None}
        own.pop("", None)
        return own

    def refuse(self, *names: str) -> None:
        """Refuse fields that add to the conversation what no request shows."""
        for name in names:
            if self.get(name):
                raise MissError(
                    f"`{name}` adds to the conversation what the request does not show, and a"
                    " recorded conversation cannot be compared with. Send all messages themselves.",
                    parameter=name,
                )


class Said:
    """What a message of a dialect says: texts and other parts, which are named only; thoughts;
    calls of tools; messages with results of tools; and whether that is a refusal.
    """

    def __init__(self) -> None:
        self.content: list[str | Record] = []
        self.thoughts: list[str] = []
        self.calls: list[Record] = []
        self.results: list[Record] = []
        self.refused = False

    def call(self, name: object, arguments: object, number: object = None) -> None:
        """Add a call of a tool; arguments that are no text become JSON."""
        text = arguments if isinstance(arguments, str) else as_body(arguments or {}).decode()
        function = {"name": name, "arguments": text}
        self.calls.append({"id": number, "type": "function", "function": function})

    def result(self, content: Sequence[str | Record], number: object) -> None:
        """Add the result of a call, by the id of that."""
        self.results.append(message("tool", content) | {"tool_call_id": number})

    def messages(self, role: str) -> list[Record]:
        """Return the results, and the message with what else is said, but for thoughts."""
        if (self.results or self.thoughts) and not (self.content or self.calls):
            return self.results
        own = message(role, self.content) | ({"tool_calls": self.calls} if self.calls else {})
        return [*self.results, own]


def message(role: str, content: Sequence[str | Record]) -> Record:
    """Return a message of texts and other parts, which are named only."""
    if all(isinstance(part, str) for part in content):
        return {"role": role, "content": "".join(map(str, content))}
    texts = [{"type": "text", "text": own} if isinstance(own, str) else own for own in content]
    return {"role": role, "content": texts}


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


def choice(name: object) -> Record:
    """Return the choice of a tool by its name."""
    return {"type": "function", "function": {"name": name}}


def form(schema: object = None, name: object = "reply", strict: object = True) -> Record:
    """Return the format that demands JSON, by a schema if there is one."""
    if schema is None:
        return {"type": "json_object"}
    own = {"name": name, "schema": schema, "strict": strict}
    return {"type": "json_schema", "json_schema": own}


class Told(NamedTuple):
    """What a choice of a completion tells: thoughts and text (a refusal, too), none or one of each;
    id, name and arguments of each tool that it calls; and why it ended ("refusal" also where a
    filter ended it).
    """

    thoughts: list[str]
    texts: list[str]
    calls: list[tuple[str, str, str]]
    reason: str


def told(choice: RecordLike) -> Told:
    """Return what a choice of a completion tells."""
    message, reason = choice["message"], choice["finish_reason"]
    text = message["content"] or message.get("refusal") or ""
    calls = [
        (own["id"], own["function"]["name"], own["function"]["arguments"])
        for own in message.get("tool_calls") or ()
    ]
    if message.get("refusal") is not None or reason == "content_filter":
        reason = "refusal"
    thoughts = message.get("reasoning")
    return Told([thoughts] if thoughts else [], [text] if text or not calls else [], calls, reason)


def when(seconds: int) -> str:
    """Return a time in Unix seconds as ISO 8601 has it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def arguments(text: str) -> Record:
    """Return the arguments of a call as an object; text that is none as its only member."""
    with suppress(ValueError):
        own = orjson.loads(text or "{}")
        if isinstance(own, dict):
            return own
    return {"arguments": text}


def completion(
    reply: RecordLike, ended: Sequence[tuple[Said, str | None]], counts: Sequence[int | None]
) -> Record:
    """Return a vendor's reply as a chat completion.

    Args:
        reply: its id and model.
        ended: what each choice says, and its finish reason.
        counts: tokens of the prompt, of these cached ones, of the output, of these thoughts;
            `None` where they are not known.

    Raises:
        TypeError: a choice has more than text, thoughts and calls of tools.
    """
    choices: list[Record] = []
    for said, reason in ended:
        own = message("assistant", said.content) | {"reasoning": "".join(said.thoughts)}
        own["tool_calls"] = said.calls
        if not isinstance(own["content"], str):
            raise TypeError("a part that is neither text nor thoughts")
        reason = "tool_calls" if said.calls and reason == "stop" else reason
        reason = "refusal" if said.refused else reason
        choices.append({"index": len(choices), "message": own, "finish_reason": reason})
    prompt, cached, output, thought = counts
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


def streamed(kind: str, pieces: Iterable[Record], headers: Mapping[str, str]) -> Reply:
    """Return objects as a stream of a kind: server-sent "events", which may be "named" by their
    types, "lines", or the elements of an "array".
    """
    types = {"lines": {"content-type": "application/x-ndjson"}, "array": {"content-type": JSON}}
    return Reply(200, types.get(kind, EVENT_STREAM) | dict(headers), _framed(kind, pieces))


def _framed(kind: str, pieces: Iterable[Record]) -> Iterator[bytes]:
    before = {"named": b"event: %b\ndata: ", "events": b"data: ", "lines": b"", "array": b"["}[kind]
    after = {"lines": b"\n", "array": b""}.get(kind, b"\r\n\r\n")
    for own in pieces:
        name = own["type"].encode() if kind == "named" else ()
        yield before % name + orjson.dumps(own) + after
        before = b",\r\n" if kind == "array" else before
    if kind == "array":
        yield b"]"

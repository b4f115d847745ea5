"""OpenAI's dialect: what requests ask for, how completions and their streams look."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import unquote

import orjson
from pydantic import BaseModel, Field, ValidationError, WithJsonSchema

from feval.serving.wire.calls import EVENT_STREAM, Reply, RequestError, json_reply, named, wrong
from feval.values import Record, RecordLike, inside

_REASONING = ("reasoning", "reasoning_content")
_LONG_NUMBER = re.compile(r"\d{19}")
_WORD = re.compile(r"\s*\S+|\s+")


def usage(prompt: int, output: int, *, reasoning: Sequence[int | None], cached: int = 0) -> Record:
    """Return the usage of a completion; its reasoning tokens are null unless those of every part
    are known.
    """
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "reasoning_tokens": (
                None if None in reasoning else sum(count or 0 for count in reasoning)
            )
        },
    }


def completion_reply(
    completion: RecordLike,
    *,
    stream: bool,
    with_usage: bool = True,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Return a chat or text completion as one object, or as the events of a stream, which may end
    with the usage.
    """
    if not stream:
        return json_reply(completion, 200, headers)
    return Reply(
        200, EVENT_STREAM | dict(headers or {}), _events(completion, with_usage=with_usage)
    )


def _events(completion: RecordLike, *, with_usage: bool) -> Iterator[bytes]:
    chunk = {name: value for name, value in completion.items() if name not in {"choices", "usage"}}
    parts = _text_parts
    if chunk["object"] != "text_completion":
        chunk["object"], parts = "chat.completion.chunk", _chat_parts
    empty = {"usage": None} if with_usage else {}
    for choice in completion["choices"]:
        for part in parts(choice):
            yield b"data: %b\n\n" % orjson.dumps(chunk | {"choices": [part]} | empty)
    if with_usage:
        total: Record = {"choices": [], "usage": completion.get("usage")}
        yield b"data: %b\n\n" % orjson.dumps(chunk | total)
    yield b"data: [DONE]\n\n"


def _text_parts(choice: RecordLike) -> Iterator[Record]:
    """The text word by word, then the finish reason with the log-probabilities."""
    for word in words(choice["text"] or ""):
        yield {**choice, "text": word, "logprobs": None, "finish_reason": None}
    yield {**choice, "text": ""}


def _chat_parts(choice: RecordLike) -> Iterator[Record]:
    """The role, the reasoning, the text token by token (or word by word), then the finish
    reason.
    """
    message = dict(choice["message"])
    content = message.pop("content", None)
    reasoning = _pop_reasoning(message)
    if calls := message.pop("tool_calls", None):  # a stream numbers them
        message["tool_calls"] = [{"index": number} | call for number, call in enumerate(calls)]
    part = {"index": choice.get("index", 0), "delta": {}, "logprobs": None, "finish_reason": None}
    if "feval" in choice:
        part["feval"] = choice["feval"]
    first = "" if isinstance(content, str) else content
    yield part | {"delta": {"role": "assistant"} | message | {"content": first}}
    for word in words(next(iter(reasoning.values()), "")):
        yield part | {"delta": dict.fromkeys(reasoning, word)}
    if isinstance(content, str):
        for piece, logprobs in _pieces(content, choice.get("logprobs")):
            yield part | {"delta": {"content": piece}, "logprobs": logprobs}
    yield part | {"finish_reason": choice.get("finish_reason")}


def _pop_reasoning(message: Record) -> dict[str, str]:
    """Take the reasoning out of a message: the fields that hold the same text as the first of
    them.
    """
    fields = {name: message[name] for name in _REASONING if isinstance(message.get(name), str)}
    first = next(iter(fields.values()), "")
    return {name: message.pop(name) for name, text in fields.items() if text == first}


def _pieces(content: str, logprobs: object) -> Iterator[tuple[str, Record | None]]:
    tokens = inside(logprobs, "content")
    if not isinstance(tokens, list) or not tokens:
        yield from ((word, None) for word in words(content))
        return
    texts = [inside(token, "token") for token in tokens]
    if not all(isinstance(text, str) for text in texts) or "".join(map(str, texts)) != content:
        # a stop text was cut off, so the tokens do not add up to the content
        yield content, {"content": tokens}
        return
    for text, token in zip(texts, tokens, strict=True):
        yield str(text), {"content": [token]}


_SHOWN = 80
OWN_HEADERS = ("x-feval-question", "x-feval-dataset", "x-feval-sample", "x-feval-few-shot")
"""Headers that only feval reads."""

FEW_SHOT = ("last", "none")
"""How a client can treat exemplars; see `Library`."""

# Fields that do not shape a CoT, or that are served.
_APART = frozenset(
    (
        "model", "messages", "prompt", "n", "stream", "stream_options", "logprobs", "top_logprobs",
        "user", "metadata", "store",
        "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier", "feval",
        "echo",
    )
)  # fmt: skip


# Fields of a message that are compared, and thoughts, which are no part of the conversation.
_SAID = {"role", "content", "tool_calls", "tool_call_id", *_REASONING, "reasoning_details"}


class Conversation(NamedTuple):
    """The messages of a request as they are compared: (role, text) of each, text parts joined as
    when a recording is made.
    """

    messages: tuple[tuple[str, str], ...]
    not_text: frozenset[int] = frozenset()
    """Indices of messages with more than text and tools, such as images."""
    tools: tuple[str, ...] = ()
    """What each message says of tools, as canonical JSON: the calls, or the call whose result it
    is, numbered by their places; empty for nothing. No entries where no message says any.
    """

    def first(self, number: int) -> Conversation:
        """Return its first messages."""
        tools = self.tools[:number]
        return Conversation(self.messages[:number], tools=tools if any(tools) else ())

    @property
    def text_only(self) -> bool:
        """Whether no message holds more than text."""
        return not self.not_text

    @property
    def last_user_place(self) -> int:
        """Index of the last message whose role is "user"; -1 without one."""
        return max(
            (place for place, (role, _) in enumerate(self.messages) if role == "user"), default=-1
        )

    @property
    def last_user_text(self) -> str:
        """Text of the last message whose role is "user"; empty without one."""
        place = self.last_user_place
        return "" if place < 0 else self.messages[place][1]


_Words = Annotated[str, Field(min_length=1)]
_Positive = Annotated[int, Field(ge=1)]
_Count = Annotated[int, Field(ge=0)]
_PART = {"type": "object", "required": ["type"], "properties": {"type": {"const": "image_url"}}}
_TEXT_PART = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}
_CONTENT = [
    {"type": "string"},
    {"type": "null"},
    {"type": "array", "items": {"oneOf": [_TEXT_PART, _PART]}},
]
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {"role": {"type": "string", "minLength": 1}, "content": {"anyOf": _CONTENT}},
}
_Messages = Annotated[
    list[Any],
    Field(min_length=1),
    WithJsonSchema({"type": "array", "items": _MESSAGE, "minItems": 1}),
]


class StreamOptions(BaseModel, strict=True):
    """How a stream ends."""

    include_usage: bool | None = None


class Extension(BaseModel, strict=True, extra="forbid"):
    """What only feval understands."""

    question: str | None = None
    dataset: str | None = None
    sample: _Count | None = None
    few_shot: Literal["last", "none"] | None = None


class _Fields(BaseModel, strict=True, extra="allow"):
    model: Annotated[_Words, Field(description="Name of a recorded LLM; see /v1/models.")]
    n: _Positive | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: _Positive | None = None
    max_completion_tokens: _Positive | None = None
    seed: int | None = None
    stop: _Words | list[_Words] | None = None
    metadata: Record | None = None
    feval: Extension | None = None


class ChatRequest(_Fields):
    """The fields of a chat completion that are checked; all others are kept as they are."""

    messages: _Messages
    logprobs: bool | None = None
    top_logprobs: _Count | None = None
    tools: list[Any] | None = None
    response_format: Record | None = None


class TextRequest(_Fields):
    """The fields of a text completion that are checked; all others are kept as they are."""

    prompt: str | Annotated[list[str], Field(min_length=1, max_length=1024)]
    logprobs: bool | _Count | None = None
    best_of: int | None = None
    echo: Literal[False] | None = None


_KINDS = {
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
}
_EXPECTED = {
    "messages": "a list of at least one message",
    "prompt": "text, or a list of at most 1,024 texts (token ids cannot be matched)",
    "stop": "text that is not empty, or a list of such texts",
    "echo": "false, since a recording does not hold prompts token by token",
    "logprobs": "true, false or a whole number of at least 0",
    "feval.sample": "the position of a recorded CoT: 0, 1, 2, ...",
    "feval.few_shot": (
        '"last" (the last question in the message is asked, the others are exemplars) or "none"'
    ),
}


class CompletionRequest(NamedTuple):
    """A request for n completions of a chat, or of each prompt of a text completion (`kind` "chat"
    or "completion").

    `question`, `dataset`, `sample` and `few_shot` are `None` unless the client chooses them;
    `settings` are all other fields.
    """

    kind: str
    model: str
    conversations: tuple[Conversation, ...]
    n: int
    stream: bool
    include_usage: bool
    logprobs: bool
    top_logprobs: int
    question: str | None
    dataset: str | None
    sample: int | None
    few_shot: str | None
    settings: RecordLike


def parse(
    kind: str, body: bytes, headers: Mapping[str, str], *, models: str = "recorded LLM"
) -> CompletionRequest:
    """Read a request. Of the headers, whose names are in lower case, those of `OWN_HEADERS` are
    read; ids may be percent-encoded.

    Raises:
        RequestError: the body is not such a request; the message names the field.
    """
    fields = parse_object(body)
    chat = kind == "chat"
    expected = {**_EXPECTED, "model": f"the name of a {models}; GET /v1/models lists them"}
    asked: ChatRequest | TextRequest
    try:
        asked = (ChatRequest if chat else TextRequest).model_validate(fields)
    except ValidationError as error:
        raise _refusal(error, fields, expected) from None
    if isinstance(asked, ChatRequest):
        conversations: tuple[Conversation, ...] = (conversation(asked.messages),)
        logprobs, top_logprobs = bool(asked.logprobs), asked.top_logprobs
    else:
        prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
        conversations = tuple(Conversation((("user", each),)) for each in prompts)
        logprobs, top_logprobs = asked.logprobs not in (None, False), int(asked.logprobs or 0)
        top_logprobs = 0 if asked.logprobs is True else top_logprobs
    request = CompletionRequest(
        kind=kind,
        model=asked.model,
        conversations=conversations,
        n=asked.n or 1,
        stream=bool(asked.stream),
        include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        logprobs=logprobs,
        top_logprobs=top_logprobs or 0,
        settings={
            name: value
            for name, value in fields.items()
            if name not in _APART and value is not None
        },
        **_extension(asked, headers),
    )
    if request.sample is not None and (request.n > 1 or len(request.conversations) > 1):
        raise RequestError(
            f"The request names one recorded CoT (sample {request.sample}) and asks for "
            f"{request.n * len(request.conversations)}. Ask for one CoT, or leave the sample out.",
            parameter="n",
        )
    return request


def parse_object(body: bytes) -> Record:
    """Read the object that a body is; `RequestError` if it is none."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(
            f"The body is not valid JSON: {str(error).splitlines()[0][:_SHOWN]}. Send a JSON object"
            " in UTF-8, without NaN and Infinity.",
            code="invalid_json",
        ) from error
    if not isinstance(fields, dict):
        raise RequestError(
            f"The body is {named(fields)}; a request is a JSON object with `model` and more."
        )
    return fields


def conversation(messages: Sequence[Any]) -> Conversation:
    """Return the messages of a request or of a recorded prompt as they are compared; `RequestError`
    if one is not a message.
    """
    texts, not_text = [], set()
    tools, calls = list[str](), _Calls()
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, dict):
            raise wrong(where, "an object with role and content", message)
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise wrong(f"{where}.role", 'text, such as "user"', role)
        text, whole = _text(message.get("content"), f"{where}.content")
        texts.append((role, text))
        said = calls.said(message)
        tools.append(said or "")
        own = _SAID | {"name"} if role == "tool" else _SAID
        more = any(value for name, value in message.items() if name not in own)
        if said is None or more or not (whole or (said and not message.get("content"))):
            not_text.add(number)
    if any(tools) and not not_text:
        # results that follow each other, by their calls
        runs = groupby(zip(texts, tools, strict=True), key=lambda pair: pair[0][0] == "tool")
        both = [
            each
            for is_result, run in runs
            for each in (sorted(run, key=itemgetter(1)) if is_result else run)
        ]
        texts, tools = [text for text, _ in both], [own for _, own in both]
    return Conversation(tuple(texts), frozenset(not_text), tuple(tools) if any(tools) else ())


def words(text: str) -> list[str]:
    """Return a text word by word, with the white space before each."""
    return _WORD.findall(text)


def as_body(fields: object) -> bytes:
    """Return a body; `RequestError` for what is nested too deep to be written."""
    try:
        return orjson.dumps(fields)
    except TypeError as error:
        raise RequestError("The body is nested too deep.", code="invalid_json") from error


def canonical(value: object) -> str:
    """Return JSON with sorted keys, so that equal values are equal texts."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


class _Calls:
    """The calls of a conversation so far: their places by id, and the names of those without a
    result. Some dialects have no ids, and name the tool.
    """

    def __init__(self) -> None:
        self._ids = defaultdict[str, list[str]](list)
        self._waiting: dict[str, str] = {}
        self._made = 0

    def said(self, message: RecordLike) -> str | None:
        """What a message says of tools, see `Conversation`; `None` where that cannot be
        compared.
        """
        if message["role"] == "tool":
            asked = str(message.get("tool_call_id") or message.get("name") or "")
            named = (own for own, name in self._waiting.items() if asked in ("", name))
            own = self._ids.get(asked, ())  # of calls under one id, the first that waits
            answered = next((each for each in own if each in self._waiting), None)
            answered = answered or (own[-1] if own else next(named, None))
            self._waiting.pop(answered or "", None)
            return None if answered is None else canonical({"tool_call_id": answered})
        made = message.get("tool_calls") or []
        calls = [self._call(own) for own in made] if isinstance(made, list) else [None]
        if None in calls:
            return None
        return canonical({"tool_calls": calls}) if calls else ""

    def _call(self, call: Any) -> Record | None:
        function = inside(call, "function")
        if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
            return None
        number, name = f"call_{self._made}", str(function.get("name"))
        self._made += 1
        self._waiting[number] = name
        self._ids[str(call.get("id") or number)].append(number)
        arguments = function["arguments"] or "{}"
        with suppress(ValueError, TypeError):  # no JSON, or too deep
            if not _LONG_NUMBER.search(arguments):  # which would be rounded
                orjson.loads(arguments)  # which takes neither NaN nor Infinity
                arguments = canonical(json.loads(arguments, parse_float=_number))
        return {
            "id": number,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }


def _number(text: str) -> float:
    """A number as RFC 8785 has it: 1.0 is 1."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _refusal(
    error: ValidationError, fields: RecordLike, expected: Mapping[str, str]
) -> RequestError:
    """Return the first thing that is wrong, by the name of its field."""
    first = error.errors(include_url=False)[0]
    kind, place = first["type"], first["loc"]
    if kind == "extra_forbidden":
        return RequestError(
            "`feval` takes question, dataset, sample and few_shot;"
            f" {str(place[1])[:_SHOWN]!r} is none of these.",
            parameter="feval",
        )
    # of a value of several types, the place goes on with the type
    parts = place[: 2 if place[0] in {"feval", "stream_options"} else 1]
    value: Any = fields
    for part in parts:
        value = value.get(part)
    name = ".".join(map(str, parts))
    if kind == "greater_than_equal":
        what = f"a whole number of at least {first['ctx']['ge']}"
    else:
        what = _KINDS.get(kind, "an object")
    return wrong(name, expected.get(name, what), value)


def _extension(asked: _Fields, headers: Mapping[str, str]) -> Record:
    """Read what only feval understands: question, dataset, sample and few_shot."""
    extension, metadata = asked.feval or Extension(), asked.metadata or {}
    values: Record = {}
    for name in ("question", "dataset"):
        tag = metadata.get(f"feval_{name}")
        if not isinstance(tag, str | None):
            raise wrong(f"metadata.feval_{name}", "text", tag)
        header = headers.get(f"x-feval-{name}")
        names = [getattr(extension, name), header and unquote(header), tag]
        distinct = list(dict.fromkeys(value for value in names if value is not None))
        if len(distinct) > 1:
            raise RequestError(
                f"The request names two {name}s, {distinct[0][:_SHOWN]!r} and"
                f" {distinct[1][:_SHOWN]!r}; name one.",
                parameter=f"feval.{name}",
            )
        values[name] = distinct[0] if distinct else None
    sample, header = extension.sample, headers.get("x-feval-sample")
    if header is not None:
        if not (header.isascii() and header.isdigit() and len(header) < 10):
            raise RequestError(
                f"The header X-Feval-Sample is {header[:_SHOWN]!r}; it must be the position of a"
                " recorded CoT: 0, 1, 2, ..."
            )
        if sample not in (None, int(header)):
            raise RequestError(
                f"The request names two samples, {str(sample)[:_SHOWN]} and {header}; name one."
            )
        sample = int(header)
    values["sample"] = sample
    header = headers.get("x-feval-few-shot")
    if header not in (None, *FEW_SHOT):
        raise wrong("feval.few_shot", _EXPECTED["feval.few_shot"], header)
    # the header is for a whole run, the field for one request
    values["few_shot"] = extension.few_shot or header
    return values


def _text(content: object, where: str) -> tuple[str, bool]:
    """Return the text of a content, and whether it holds nothing else."""
    if isinstance(content, str):
        return content, True
    if content is None:
        return "", False
    if not isinstance(content, list):
        raise wrong(where, "text, or a list of parts", content)
    texts = []
    for number, part in enumerate(content):
        kind = inside(part, "type")
        if not isinstance(kind, str):
            raise wrong(f"{where}[{number}]", 'a part, such as {"type": "text", "text": ...}', part)
        if kind == "text" and not isinstance(part.get("text"), str):
            raise wrong(f"{where}[{number}].text", "text", part.get("text"))
        texts.append(part["text"] if kind == "text" else None)
    return "".join(filter(None, texts)), bool(texts) and None not in texts

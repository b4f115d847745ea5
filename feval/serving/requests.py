"""Requests: what a client asks for, read from the body and checked. A wrong field is a
`RequestError` that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from feval.serving.replies import RequestError

_SHOWN = 80
OWN_HEADERS = ("x-feval-question", "x-feval-dataset", "x-feval-sample", "x-feval-few-shot")
"""Headers that only feval reads."""

_OWN_FIELDS = ("question", "dataset", "sample", "few_shot")
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


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a request as they are compared: (role, text) of each, text parts joined as
    when a recording is made.
    """

    messages: tuple[tuple[str, str], ...]
    not_text: frozenset[int] = frozenset()
    """Indices of messages with more than text, such as images or tool calls."""

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


@dataclass(frozen=True, slots=True)
class CompletionRequest:
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
    settings: Mapping[str, Any]


def parse(
    kind: str, body: bytes, headers: Mapping[str, str], *, models: str = "recorded LLM"
) -> CompletionRequest:
    """Read a request. Of the headers, whose names are in lower case, those of `OWN_HEADERS` are
    read; ids may be percent-encoded.

    Raises:
        RequestError: the body is not such a request; the message names the field.
    """
    fields = _fields(body)
    chat = kind == "chat"
    options = _typed(fields, "stream_options", dict, "an object") or {}
    for name, (check, what) in _CHECKS.items():
        if fields.get(name) is not None and not check(fields[name]):
            raise _wrong(name, what, fields[name])
    if chat:
        logprobs = bool(_typed(fields, "logprobs", bool, "true or false"))
        top_logprobs = fields.get("top_logprobs")
    else:
        top_logprobs = _logprobs_of_completion(fields)
        logprobs = top_logprobs is not None
    request = CompletionRequest(
        kind=kind,
        model=_model(fields, models),
        conversations=(_chat(fields),) if chat else _prompts(fields),
        n=_count(fields),
        stream=bool(_typed(fields, "stream", bool, "true or false")),
        include_usage=bool(
            _typed(options, "include_usage", bool, "true or false", "stream_options.include_usage")
        ),
        logprobs=logprobs,
        top_logprobs=top_logprobs or 0,
        settings={
            name: value
            for name, value in fields.items()
            if name not in _APART and value is not None
        },
        **_extension(fields, headers),
    )
    if request.sample is not None and (request.n > 1 or len(request.conversations) > 1):
        raise RequestError(
            f"The request names one recorded CoT (sample {request.sample}) and asks for "
            f"{request.n * len(request.conversations)}. Ask for one CoT, or leave the sample out.",
            parameter="n",
        )
    if not chat and fields.get("echo"):
        raise RequestError(
            "A recording does not hold prompts token by token, so `echo` cannot be answered. Send"
            " echo=false.",
            parameter="echo",
        )
    return request


def conversation(messages: Sequence[Any]) -> Conversation:
    """Return the messages of a request or of a recorded prompt as they are compared; `RequestError`
    if one is not a message.
    """
    texts, not_text = [], set()
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, dict):
            raise _wrong(where, "an object with role and content", message)
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise _wrong(f"{where}.role", 'text, such as "user"', role)
        text, whole = _text(message.get("content"), f"{where}.content")
        texts.append((role, text))
        if not whole or any(
            value is not None for name, value in message.items() if name not in {"role", "content"}
        ):
            not_text.add(number)
    return Conversation(tuple(texts), frozenset(not_text))


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(
            f"The body is not valid JSON: {_first_words(error)}. Send a JSON object in UTF-8,"
            " without NaN and Infinity.",
            code="invalid_json",
        ) from error
    if not isinstance(fields, dict):
        raise RequestError(
            f"The body is {_named(fields)}; a request is a JSON object with `model` and more."
        )
    return fields


def _extension(fields: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Read what only feval understands: question, dataset, sample and few_shot."""
    if fields.keys().isdisjoint(("feval", "metadata")) and headers.keys().isdisjoint(OWN_HEADERS):
        return dict.fromkeys(_OWN_FIELDS)
    extension = (
        _typed(fields, "feval", dict, "an object with question, dataset, sample or few_shot") or {}
    )
    if strange := sorted(extension.keys() - set(_OWN_FIELDS)):
        raise RequestError(
            f"`feval` takes question, dataset, sample and few_shot; {strange[0][:_SHOWN]!r} is none"
            " of these.",
            parameter="feval",
        )
    metadata = _typed(fields, "metadata", dict, "an object") or {}
    values: dict[str, Any] = {}
    for name in ("question", "dataset"):
        names = [
            _typed(extension, name, str, "text", f"feval.{name}"),
            unquote(headers[f"x-feval-{name}"]) if f"x-feval-{name}" in headers else None,
            _typed(metadata, f"feval_{name}", str, "text", f"metadata.feval_{name}"),
        ]
        distinct = list(dict.fromkeys(value for value in names if value is not None))
        if len(distinct) > 1:
            raise RequestError(
                f"The request names two {name}s, {distinct[0][:_SHOWN]!r} and"
                f" {distinct[1][:_SHOWN]!r}; name one.",
                parameter=f"feval.{name}",
            )
        values[name] = distinct[0] if distinct else None
    values["sample"] = _sample(extension.get("sample"), headers.get("x-feval-sample"))
    values["few_shot"] = _few_shot(extension.get("few_shot"), headers.get("x-feval-few-shot"))
    return values


def _few_shot(field: object, header: str | None) -> str | None:
    for value in (field, header):  # the header is for a whole run, the field for one request
        if value is not None and value not in FEW_SHOT:
            raise _wrong(
                "feval.few_shot",
                '"last" (the last question in the message is asked, the others are exemplars) or'
                ' "none"',
                value,
            )
    return header if field is None else str(field)


def _sample(field: object, header: str | None) -> int | None:
    if header is not None:
        if not (header.isascii() and header.isdigit() and len(header) < 10):
            raise RequestError(
                f"The header X-Feval-Sample is {header[:_SHOWN]!r}; it must be the position of a"
                " recorded CoT: 0, 1, 2, ..."
            )
        if field is not None and field != int(header):
            raise RequestError(
                f"The request names two samples, {str(field)[:_SHOWN]} and {header}; name one."
            )
        return int(header)
    if field is not None and not (type(field) is int and field >= 0):
        raise _wrong("feval.sample", "the position of a recorded CoT: 0, 1, 2, ...", field)
    return field if isinstance(field, int) else None


def _model(fields: Mapping[str, Any], models: str) -> str:
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise _wrong("model", f"the name of a {models}; GET /v1/models lists them", model)
    return model


def _count(fields: Mapping[str, Any]) -> int:
    n = fields.get("n")
    n = 1 if n is None else n
    if type(n) is not int or n < 1:
        raise _wrong("n", "a whole number of at least 1", n)
    return n


def _chat(fields: Mapping[str, Any]) -> Conversation:
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "a list of at least one message", messages)
    return conversation(messages)


def _prompts(fields: Mapping[str, Any]) -> tuple[Conversation, ...]:
    prompt = fields.get("prompt")
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if (
        not isinstance(prompts, list)
        or not prompts
        or not all(isinstance(each, str) for each in prompts)
    ):
        raise _wrong("prompt", "text, or a list of texts (token ids cannot be matched)", prompt)
    if len(prompts) > _MAX_PROMPTS:
        raise RequestError(
            f"{len(prompts):,} prompts were sent; at most {_MAX_PROMPTS:,} are answered at once.",
            parameter="prompt",
        )
    return tuple(Conversation((("user", each),)) for each in prompts)


def _logprobs_of_completion(fields: Mapping[str, Any]) -> int | None:
    value = fields.get("logprobs")
    if value is None or value is False:
        return None
    if value is True:
        return 0
    if not _is_int(value) or value < 0:
        raise _wrong("logprobs", "a whole number of at least 0", value)
    return int(value)


def _text(content: object, where: str) -> tuple[str, bool]:
    """Return the text of a content, and whether it holds nothing else."""
    if isinstance(content, str):
        return content, True
    if content is None:
        return "", False
    if not isinstance(content, list):
        raise _wrong(where, "text, or a list of parts", content)
    texts = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            raise _wrong(
                f"{where}[{number}]", 'a part, such as {"type": "text", "text": ...}', part
            )
        if kind == "text" and not isinstance(part.get("text"), str):
            raise _wrong(f"{where}[{number}].text", "text", part.get("text"))
        texts.append(part["text"] if kind == "text" else None)
    return "".join(text for text in texts if text is not None), bool(texts) and None not in texts


def _typed(
    fields: Mapping[str, Any], name: str, kind: type, what: str, shown: str | None = None
) -> Any:
    value = fields.get(name)
    if value is not None and not isinstance(value, kind):
        raise _wrong(shown or name, what, value)
    return value


def _wrong(name: str, what: str, value: object) -> RequestError:
    return RequestError(
        f"`{name[:_SHOWN]}` must be {what}; {_named(value)} was sent.", parameter=name
    )


def _named(value: object) -> str:
    """Describe a JSON value briefly, never in full."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an empty list" if not value else "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value[:_SHOWN]!r}" if value else "an empty text"
    return f"the number {value}"[:_SHOWN]


def _first_words(error: Exception) -> str:
    return str(error).splitlines()[0][:_SHOWN]


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_stop(value: object) -> bool:
    """Whether a value is one or more texts; an empty one would end every CoT at once."""
    return all(
        isinstance(text, str) and text for text in (value if isinstance(value, list) else [value])
    )


_MAX_PROMPTS = 1024
_NUMBER = (_is_number, "a number")
_INTEGER = (_is_int, "a whole number")
_POSITIVE = (lambda value: type(value) is int and value >= 1, "a whole number of at least 1")
_CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "max_tokens": _POSITIVE,
    "max_completion_tokens": _POSITIVE,
    "seed": _INTEGER,
    "top_logprobs": (
        lambda value: type(value) is int and value >= 0,
        "a whole number of at least 0",
    ),
    "best_of": _INTEGER,
    "stop": (_is_stop, "text that is not empty, or a list of such texts"),
    "tools": (lambda value: isinstance(value, list), "a list"),
    "response_format": (lambda value: isinstance(value, dict), "an object"),
    "echo": (lambda value: isinstance(value, bool), "true or false"),
}

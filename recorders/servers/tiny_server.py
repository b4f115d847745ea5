"""The tiny models behind a real HTTP endpoint that speaks OpenAI's chat completions: to try a client, and for tests.

    with Service(TinyServer()) as service:
        client = openai.OpenAI(base_url=service.url, api_key="none")

Samples are the models' own: with a seed, choice i of a reply is the model's sample number `seed + i`, the same as the backend
`tiny` draws; without one, the numbers are fresh. A model reads the last user message alone. Fields that mean nothing here are
ignored, as other servers do; values that cannot work are errors in OpenAI's shape.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from feval.errors import OutOfRangeError
from recorders.servers.service import Answer, Call, ProblemError, chat_answer, json_answer
from recorders.tiny.model import load_model, weights_file
from recorders.tiny.sampling import Completion, Decoding, sample, stopped
from recorders.tiny.shapes import FAMILY
from recorders.tiny.tokenizer import END, tokenizer

__all__ = ["TinyServer"]

_MOST_CHOICES = 128
_MOST_STOPS = 16
_LONGEST_SHOWN = 80
_SEEDS = 2**63 - _MOST_CHOICES
_FINGERPRINT = "feval-tiny-1"
_CREATED = 1_761_955_200  # November 2025; the field must be there, and says little


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request's fields, checked."""

    model: str
    question: str
    choices: int
    first: int
    decoding: Decoding
    stops: tuple[str, ...]
    logprobs: bool
    stream: bool
    stream_usage: bool


class TinyServer:
    """The application for `recorders.servers.service.Service`.

    Args:
        models: names that are served; by default those of the family that are installed.

    Raises:
        UnknownNameError: no such model.
    """

    def __init__(self, models: Iterable[str] | None = None) -> None:
        self.models = tuple(filter(_is_installed, FAMILY) if models is None else models)
        for name in self.models:
            load_model(name)
        self._drawing = threading.Lock()  # one at a time: most of the time Python's lock is held anyway

    def __call__(self, call: Call) -> Answer:
        """Answer a request."""
        path = call.path.partition("?")[0].rstrip("/")
        reading = call.method in {"GET", "HEAD"}
        if path == "/v1/models" and reading:
            return json_answer({"object": "list", "data": [_card(name) for name in self.models]})
        if path.startswith("/v1/models/") and reading:
            return json_answer(_card(self._known(path.removeprefix("/v1/models/").replace("%2F", "/"))))
        if path == "/v1/models" or path.startswith("/v1/models/"):
            raise ProblemError(405, f"{path[:80]} takes GET.")
        if path != "/v1/chat/completions":
            raise ProblemError(404, "There is nothing at this path; POST /v1/chat/completions or GET /v1/models.")
        if call.method != "POST":
            raise ProblemError(405, f"{path} takes POST.")
        asked = _read(call.body, self._known)
        return chat_answer(self._reply(asked), stream=asked.stream, usage=asked.stream_usage)

    def _known(self, name: str) -> str:
        if name not in self.models:
            raise ProblemError(
                404,
                f"The model {name[:80]!r} does not exist here; there are {', '.join(self.models)}.",
                parameter="model",
                code="model_not_found",
            )
        return name

    def _reply(self, asked: _Asked) -> dict[str, Any]:
        numbers = range(asked.first, asked.first + asked.choices)
        try:
            with self._drawing:
                drawn = sample(load_model(asked.model), asked.question, numbers, asked.decoding)
        except OutOfRangeError as error:
            raise ProblemError(400, str(error), parameter="messages", code="context_length_exceeded") from error
        choices, counts = [], []
        for index, completion in enumerate(drawn):
            count, text = stopped(completion, asked.stops)
            whole = count == len(completion.tokens) and text == completion.text
            message = {"role": "assistant", "content": text, "refusal": None}
            logprobs = {"content": _logprobs(completion, count), "refusal": None} if asked.logprobs else None
            finish = completion.finish_reason if whole else "stop"
            choices.append({"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish})
            counts.append(count)
        return {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": asked.model,
            "system_fingerprint": _FINGERPRINT,
            "choices": choices,
            "usage": _usage(drawn[0].prompt_tokens, sum(counts)),
        }


def _is_installed(name: str) -> bool:
    with weights_file(name) as path:
        return path.exists()


def _card(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "feval"}


def _usage(prompt: int, output: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _logprobs(completion: Completion, count: int) -> list[dict[str, Any]]:
    """The tokens as the API states them; their texts together are the CoT's text, before a stop text cut it."""
    found = []
    for place in range(count):
        entry = _token(int(completion.tokens[place]), float(completion.logprobs[place]), first=place == 0)
        alternatives = zip(completion.top_tokens[place], completion.top_logprobs[place], strict=True)
        entry["top_logprobs"] = [_token(int(token), float(value), first=place == 0) for token, value in alternatives]
        found.append(entry)
    return found


def _token(token: int, logprob: float, *, first: bool) -> dict[str, Any]:
    text = "" if token == END else tokenizer().piece(token)
    if first:
        text = text.removeprefix(" ")
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _read(body: bytes, known: Callable[[str], str]) -> _Asked:
    """Check a request's body field by field.

    Raises:
        ProblemError: a field that cannot work.
    """
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProblemError(400, f"The body is not JSON in UTF-8 ({error}).") from error
    if not isinstance(fields, dict):
        raise ProblemError(400, "The body is JSON but no object.")
    model = fields.get("model")
    if not isinstance(model, str):
        raise _wrong("model", "the name of a model, as a string", model)
    name = known(model)
    seed = _integer(fields, "seed", 0, _SEEDS)
    return _Asked(
        name,
        _question(fields.get("messages")),
        _integer(fields, "n", 1, _MOST_CHOICES) or 1,
        secrets.randbelow(_SEEDS) if seed is None else seed,
        _decoding(fields, load_model(name).shape.context),
        _stops(fields.get("stop")),
        _flag(fields, "logprobs"),
        _flag(fields, "stream"),
        _stream_usage(fields.get("stream_options")),
    )


def _decoding(fields: Mapping[str, Any], context: int) -> Decoding:
    top = _integer(fields, "top_logprobs", 0, len(tokenizer()))
    if top is not None and not _flag(fields, "logprobs"):
        raise ProblemError(400, "'top_logprobs' needs 'logprobs' to be true.", parameter="top_logprobs")
    most = [_integer(fields, name, 1, 2**31) for name in ("max_completion_tokens", "max_tokens")]
    temperature, top_p = _number(fields, "temperature", 0, 1e6), _number(fields, "top_p", 0, 1)
    if top_p == 0:
        raise _wrong("top_p", "a number above 0 and at most 1", top_p)
    return Decoding(
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        max_tokens=next((limit for limit in most if limit is not None), context),
        top_logprobs=top or 0,
    )


def _question(messages: object) -> str:
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "a list of at least one message", messages)
    texts = []
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _wrong(f"messages[{number}]", "an object with a role", message)
        if message["role"] == "user":
            texts.append(_text(message.get("content"), number))
    if not texts:
        raise ProblemError(400, "There is no user message, which is what a tiny model reads.", parameter="messages")
    return texts[-1]


def _text(content: object, number: int) -> str:
    """A message's text: a string, or a list of text parts."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise _wrong(f"messages[{number}].content", "text alone", content)
    return "".join(map(str, texts))


def _stops(value: object) -> tuple[str, ...]:
    stops: Sequence[object] = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = tuple(stop for stop in stops if isinstance(stop, str) and stop)
    if (value is not None and not isinstance(value, str | list)) or len(texts) < len(stops) or len(stops) > _MOST_STOPS:
        raise _wrong("stop", f"a text, or a list of at most {_MOST_STOPS}, none of them empty", value)
    return texts


def _stream_usage(options: object) -> bool:
    if options is not None and not isinstance(options, dict):
        raise _wrong("stream_options", "an object", options)
    return bool(options and options.get("include_usage"))


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return bool(value)


def _integer(fields: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise _wrong(name, f"a whole number from {least:,} to {most:,}", value)
    return value


def _number(fields: Mapping[str, Any], name: str, least: float, most: float) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most or math.isnan(value):
        raise _wrong(name, f"a number from {least:g} to {most:g}", value)
    return float(value)


def _shown(value: object) -> str:
    """A value as JSON writes it: what was sent was JSON."""
    if value is None:
        return "nothing"
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."


def _wrong(name: str, rule: str, value: object) -> ProblemError:
    return ProblemError(400, f"{name!r} takes {rule}; {_shown(value)} was sent.", parameter=name, code="invalid_value")

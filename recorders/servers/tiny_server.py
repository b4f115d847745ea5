"""The tiny models behind an HTTP endpoint that speaks OpenAI's chat completions: to try a client, and for tests.

    with tiny_server() as server:
        client = openai.OpenAI(base_url=server.url, api_key="none")

With a seed, choice i of a reply is the model's sample number `seed + i`, the same as the backend `tiny` draws; without one, the
samples are fresh. A model reads only the last user message. Unknown fields are ignored, as other servers do; wrong values are
errors in OpenAI's shape.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from feval.errors import OutOfRangeError
from feval.serving.server import Server
from feval.serving.web import guarded, response
from feval.serving.wire.errors import RequestError
from feval.serving.wire.replies import completion_reply, json_reply
from recorders.tiny.model import load_model, weights_file
from recorders.tiny.sampling import Completion, Decoding, sample, stopped
from recorders.tiny.shapes import FAMILY
from recorders.tiny.tokenizer import END, tokenizer

_MAX_CHOICES = 128
_MAX_STOPS = 16
_MAX_SHOWN = 80
_SEEDS = 2**63 - _MAX_CHOICES
_FINGERPRINT = "feval-tiny-1"
_CREATED = 1_761_955_200  # November 2025; the field must be there, and says little


@dataclass(frozen=True, slots=True)
class _Request:
    """The checked fields of a request."""

    model: str
    question: str
    choices: int
    first: int
    decoding: Decoding
    stops: tuple[str, ...]
    logprobs: bool
    stream: bool
    stream_usage: bool


class TinyModels:
    """Answers requests with the tiny models of these names (`UnknownNameError`), or all that are installed."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        self.names = tuple(filter(_is_installed, FAMILY) if names is None else names)
        for name in self.names:
            load_model(name)
        self._drawing = threading.Lock()  # one request at a time: most of the time Python's lock is held anyway
        self.routes: list[BaseRoute] = [
            Route("/v1/models", self.list_models),
            Route("/v1/models/{name:path}", self._model),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]

    async def chat(self, request: Request) -> Response:
        """Answer a chat completion."""
        asked = self._read(await request.body())
        completion = await run_in_threadpool(self._completion, asked)
        return response(completion_reply(completion, stream=asked.stream, usage=asked.stream_usage), request)

    async def list_models(self, request: Request) -> Response:
        """List the models."""
        return response(json_reply({"object": "list", "data": [_card(name) for name in self.names]}), request)

    def close(self) -> None:
        """Do nothing: the models stay loaded."""

    async def _model(self, request: Request) -> Response:
        return response(json_reply(_card(self._known(request.path_params["name"]))), request)

    def _known(self, name: str) -> str:
        if name not in self.names:
            raise RequestError(
                f"The model {name[:80]!r} does not exist here; there are {', '.join(self.names)}.",
                status=404,
                parameter="model",
                code="model_not_found",
            )
        return name

    def _read(self, body: bytes) -> _Request:
        """Check the fields of a request."""
        try:
            fields = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise RequestError(f"The body is not JSON in UTF-8 ({error}).") from error
        if not isinstance(fields, dict):
            raise RequestError("The body is JSON, but not an object.")
        model = fields.get("model")
        if not isinstance(model, str):
            raise _wrong("model", "the name of a model, as a string", model)
        name = self._known(model)
        seed = _integer(fields, "seed", 0, _SEEDS)
        return _Request(
            name,
            _question(fields.get("messages")),
            _integer(fields, "n", 1, _MAX_CHOICES) or 1,
            secrets.randbelow(_SEEDS) if seed is None else seed,
            _decoding(fields, load_model(name).shape.context),
            _stops(fields.get("stop")),
            _flag(fields, "logprobs"),
            _flag(fields, "stream"),
            _stream_usage(fields.get("stream_options")),
        )

    def _completion(self, asked: _Request) -> dict[str, Any]:
        numbers = range(asked.first, asked.first + asked.choices)
        try:
            with self._drawing:
                drawn = sample(load_model(asked.model), asked.question, numbers, asked.decoding)
        except OutOfRangeError as error:
            raise RequestError(str(error), parameter="messages", code="context_length_exceeded") from error
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


def tiny_server(names: Iterable[str] | None = None, *, host: str = "127.0.0.1", port: int = 0) -> Server[TinyModels]:
    """Return a server of the tiny models; see `TinyModels` and `Server`."""
    models = TinyModels(names)
    return Server(models, guarded(models.routes, host=host), host=host, port=port)


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
    """The tokens in the API's shape; their texts add up to the CoT's text, before a stop text cut it."""
    tokens = []
    for place in range(count):
        entry = _token(int(completion.tokens[place]), float(completion.logprobs[place]), first=place == 0)
        alternatives = zip(completion.top_tokens[place], completion.top_logprobs[place], strict=True)
        entry["top_logprobs"] = [_token(int(token), float(value), first=place == 0) for token, value in alternatives]
        tokens.append(entry)
    return tokens


def _token(token: int, logprob: float, *, first: bool) -> dict[str, Any]:
    text = "" if token == END else tokenizer().piece(token)
    if first:
        text = text.removeprefix(" ")
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _decoding(fields: Mapping[str, Any], context: int) -> Decoding:
    top = _integer(fields, "top_logprobs", 0, len(tokenizer()))
    if top is not None and not _flag(fields, "logprobs"):
        raise RequestError("'top_logprobs' needs 'logprobs' to be true.", parameter="top_logprobs")
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
        raise RequestError("There is no user message, and a tiny model reads nothing else.", parameter="messages")
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
    if (value is not None and not isinstance(value, str | list)) or len(texts) < len(stops) or len(stops) > _MAX_STOPS:
        raise _wrong("stop", f"a text, or a list of at most {_MAX_STOPS}, none of them empty", value)
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
    """A value as JSON, shortened."""
    if value is None:
        return "nothing"
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def _wrong(name: str, rule: str, value: object) -> RequestError:
    return RequestError(f"{name!r} takes {rule}; {_shown(value)} was sent.", parameter=name, code="invalid_value")

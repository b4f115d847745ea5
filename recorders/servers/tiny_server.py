"""The tiny models behind an HTTP endpoint that speaks OpenAI's chat completions: to try a client,
and for tests.

    with tiny_server() as server:
        client = openai.OpenAI(base_url=server.url, api_key="none")

With a seed, choice i of a reply is the model's sample number `seed + i`, the same as the backend
`tiny` draws; without one, the samples are fresh. A model reads only the last user message, and with
`continue_final_message` continues the assistant's message at the end. Unknown fields are ignored,
as other servers do; wrong values are errors in OpenAI's shape.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable
from typing import Any

# First, since it says how to install Starlette.
from feval.serving.server import Server, response  # isort: skip

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from feval.errors import OutOfRangeError
from feval.serving.wire.calls import RequestError, UnknownError, json_reply
from feval.serving.wire.openai import CompletionRequest, completion_reply, parse, usage
from feval.values import Record
from recorders.tiny.model import (
    END,
    FAMILY,
    TinyCompletion,
    TinyDecoding,
    load_model,
    sample,
    stopped,
    tokenizer,
)

_MAX_CHOICES = 128
_MAX_STOPS = 16
_SEEDS = 2**63 - _MAX_CHOICES
_FINGERPRINT = "feval-tiny-1"
_CREATED = 1_761_955_200  # November 2025; the field must be there, and says little


class TinyModels:
    """Answers requests with the tiny models of these names (`UnknownNameError`), or with all."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        self.names = tuple(FAMILY if names is None else names)
        for name in self.names:
            load_model(name)
        # one request at a time: most of the time Python's lock is held anyway
        self._drawing = threading.Lock()
        self.routes: list[BaseRoute] = [
            Route("/v1/models", self.list_models),
            Route("/v1/models/{name:path}", self._model),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]

    async def chat(self, request: Request) -> Response:
        """Answer a chat completion."""
        parsed = self._parsed(await request.body())
        completion = await run_in_threadpool(self._completion, parsed)
        return response(
            completion_reply(completion, stream=parsed.stream, with_usage=parsed.include_usage),
            request,
        )

    async def list_models(self, request: Request) -> Response:
        """List the models."""
        await request.body()  # within its bounds; what is left unread would hold the connection
        return response(
            json_reply({"object": "list", "data": [_card(name) for name in self.names]}), request
        )

    def close(self) -> None:
        """Do nothing: the models stay loaded."""

    async def _model(self, request: Request) -> Response:
        await request.body()
        return response(json_reply(_card(self._known(request.path_params["name"]))), request)

    def _known(self, name: str) -> str:
        if name not in self.names:
            raise UnknownError(
                f"The model {name[:80]!r} does not exist here; there are {', '.join(self.names)}.",
                parameter="model",
            )
        return name

    def _parsed(self, body: bytes) -> CompletionRequest:
        request = parse("chat", body, {}, models="tiny model")
        self._known(request.model)
        if not 1 <= request.n <= _MAX_CHOICES:
            raise _wrong("n", f"a whole number from 1 to {_MAX_CHOICES}", request.n)
        [messages] = request.conversations
        if messages.last_user_place < 0:
            raise RequestError(
                "There is no user message, and a tiny model reads nothing else.",
                parameter="messages",
            )
        if messages.last_user_place in messages.not_text:
            raise RequestError(
                "A tiny model reads text alone.",
                parameter=f"messages[{messages.last_user_place}].content",
            )
        return request

    def _completion(self, request: CompletionRequest) -> Record:
        model = load_model(request.model)
        seed = _bounded(request, "seed", 0, _SEEDS)
        first = secrets.randbelow(_SEEDS) if seed is None else seed
        stops = request.settings.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        if not all(stops) or len(stops) > _MAX_STOPS:
            raise RequestError(
                f"`stop` must be at most {_MAX_STOPS} texts, none of them empty.", parameter="stop"
            )
        decoding = _decoding(request, model.shape.context)
        [conversation] = request.conversations
        role, text = conversation.messages[-1]
        continues = role == "assistant" and request.settings.get("continue_final_message")
        try:
            with self._drawing:
                completions = sample(
                    model,
                    conversation.last_user_text,
                    range(first, first + request.n),
                    decoding,
                    beginning=text if continues else None,
                )
        except OutOfRangeError as error:
            raise RequestError(
                str(error), parameter="messages", code="context_length_exceeded"
            ) from error
        choices, counts = [], []
        for index, completion in enumerate(completions):
            count, text, finish, ended_at = stopped(completion, stops)
            message = {"role": "assistant", "content": text, "refusal": None}
            choice = {"index": index, "message": message, "finish_reason": finish, "logprobs": None}
            if request.logprobs:
                choice["logprobs"] = {"content": _logprobs(completion, count), "refusal": None}
            if stops:  # as vLLM states it
                choice["stop_reason"] = ended_at
            choices.append(choice)
            counts.append(count)
        return {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request.model,
            "system_fingerprint": _FINGERPRINT,
            "choices": choices,
            "usage": usage(completions[0].prompt_tokens, sum(counts), reasoning=[0]),
        }


def tiny_server(
    names: Iterable[str] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> Server[TinyModels]:
    """Return a server of the tiny models; see `TinyModels` and `Server`."""
    models = TinyModels(names)
    return Server(models, models.routes, host=host, port=port, token=token)


def _card(name: str) -> Record:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "feval"}


def _logprobs(completion: TinyCompletion, count: int) -> list[Record]:
    """The tokens in the API's shape; their texts add up to the CoT's text, before a stop text cut
    it.
    """
    tokens = []
    for place in range(count):
        first = place == 0 and not completion.text.startswith(" ")
        entry = _token(
            int(completion.tokens[place]), float(completion.logprobs[place]), first=first
        )
        alternatives = zip(
            completion.top_tokens[place], completion.top_logprobs[place], strict=True
        )
        entry["top_logprobs"] = [
            _token(int(token), float(value), first=first) for token, value in alternatives
        ]
        tokens.append(entry)
    return tokens


def _token(token: int, logprob: float, *, first: bool) -> Record:
    text = "" if token == END else tokenizer().piece(token)
    if first:
        text = text.removeprefix(" ")
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _decoding(request: CompletionRequest, context: int) -> TinyDecoding:
    if request.top_logprobs > len(tokenizer()):
        raise _wrong(
            "top_logprobs",
            f"at most the {len(tokenizer())} tokens that there are",
            request.top_logprobs,
        )
    if request.top_logprobs and not request.logprobs:
        raise RequestError("`top_logprobs` needs `logprobs` to be true.", parameter="top_logprobs")
    limits = [_bounded(request, name, 1, 2**31) for name in ("max_completion_tokens", "max_tokens")]
    temperature, top_p = _bounded(request, "temperature", 0, 1e6), _bounded(request, "top_p", 0, 1)
    if top_p == 0:
        raise _wrong("top_p", "a number above 0 and at most 1", top_p)
    return TinyDecoding(
        temperature=1.0 if temperature is None else float(temperature),
        top_p=1.0 if top_p is None else float(top_p),
        max_tokens=next((limit for limit in limits if limit is not None), context),
        top_logprobs=request.top_logprobs,
    )


def _bounded(request: CompletionRequest, name: str, least: float, most: float) -> Any:
    value = request.settings.get(name)
    if value is not None and not least <= value <= most:
        raise _wrong(name, f"a number from {least:,} to {most:,}", value)
    return value


def _wrong(name: str, rule: str, value: float) -> RequestError:
    return RequestError(f"`{name}` must be {rule}; {value:,} was sent.", parameter=name)

"""Calls and replies without a web framework, and replies in OpenAI's shape: completions, streams,
errors.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from feval.errors import FevalError, NotRecordedError, StorageError, UsageError

_LOG = logging.getLogger("feval.serving")
_JSON = "application/json"
_STREAM = "text/event-stream; charset=utf-8"
_REASONING = ("reasoning", "reasoning_content")
_WORD = re.compile(r"\s*\S+|\s+")


Sender = tuple[Callable[[], bool], bool]
"""What waits for a reply before it sends its next request, as a function, and what that returns
once it has gone.
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        method: "GET", "POST", ...
        path: percent-decoded once, without the query, such as "/v1/chat/completions" or
            "/run/NAME/v1/chat/completions".
        query: as it was sent, without the question mark.
        headers: names in lower case; the last of repeated ones.
        body: its bytes.
        warn: receives each sentence that a run should be told once; a reply does not hold it.
        sender: the connection, thread or task that it comes from, if known.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    warn: Callable[[str], object] = _LOG.warning
    sender: Sender | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back.

    Attributes:
        status: HTTP status.
        headers: content-type among them; not the length.
        body: all of it, or the events of a stream (`data: ...` and two line feeds each).
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | Iterable[bytes]


def json_reply(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a reply with a JSON value."""
    return Reply(status, {"content-type": _JSON, **(headers or {})}, orjson.dumps(value))


def error_reply(error: FevalError) -> Reply:
    """Return an error in OpenAI's shape; its text is the message."""
    status = status_of(error)
    fields = (
        (error.parameter, error.code, error.headers)
        if isinstance(error, ServingError)
        else (None, None, None)
    )
    content = {
        # lone surrogates are not valid JSON
        "message": str(error).encode("utf-8", "replace").decode(),
        "type": "invalid_request_error" if status < 500 else "server_error",
        "param": fields[0],
        "code": fields[1],
    }
    return json_reply({"error": content}, status, fields[2])


def usage(
    prompt: int, output: int, *, reasoning: Sequence[int | None], cached: int = 0
) -> dict[str, Any]:
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
    completion: Mapping[str, Any],
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
    chunks = _text_chunks if completion["object"] == "text_completion" else _chat_chunks
    shared = {"content-type": _STREAM, "cache-control": "no-cache"}
    return Reply(
        200,
        shared | dict(headers or {}),
        _events(chunks(completion), completion.get("usage"), with_usage=with_usage),
    )


def _events(
    chunks: Iterator[dict[str, Any]], total: object, *, with_usage: bool
) -> Iterator[bytes]:
    chunk: dict[str, Any] = {}
    for chunk in chunks:
        yield b"data: %b\n\n" % orjson.dumps(chunk | {"usage": None} if with_usage else chunk)
    if with_usage:
        yield b"data: %b\n\n" % orjson.dumps(chunk | {"choices": [], "usage": total})
    yield b"data: [DONE]\n\n"


def _chat_chunks(completion: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of each choice the role, the reasoning, the text token by token (or word by word), then the
    finish reason.
    """
    base = {name: value for name, value in completion.items() if name not in {"choices", "usage"}}
    base["object"] = "chat.completion.chunk"
    for choice in completion["choices"]:
        extra = {name: choice[name] for name in ("feval",) if name in choice}
        for delta, logprobs, finish in _deltas(choice):
            part = {
                "index": choice.get("index", 0),
                "delta": delta,
                "logprobs": logprobs,
                "finish_reason": finish,
            }
            yield base | {"choices": [part | extra]}


def _text_chunks(completion: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of each choice the text word by word, then the finish reason with the log-probabilities."""
    base = {name: value for name, value in completion.items() if name not in {"choices", "usage"}}
    for choice in completion["choices"]:
        for word in _WORD.findall(choice["text"] or ""):
            yield base | {
                "choices": [choice | {"text": word, "logprobs": None, "finish_reason": None}]
            }
        yield base | {"choices": [choice | {"text": ""}]}


_Delta = tuple[dict[str, Any], dict[str, Any] | None, str | None]


def _deltas(choice: Mapping[str, Any]) -> Iterator[_Delta]:
    message = dict(choice["message"])
    content = message.pop("content", None)
    reasoning = _pop_reasoning(message)
    if calls := message.pop("tool_calls", None):  # a stream numbers them
        message["tool_calls"] = [{"index": number} | call for number, call in enumerate(calls)]
    yield (
        {"role": "assistant"} | message | {"content": "" if isinstance(content, str) else content},
        None,
        None,
    )
    for word in _WORD.findall(next(iter(reasoning.values()), "")):
        yield dict.fromkeys(reasoning, word), None, None
    if isinstance(content, str):
        for piece, logprobs in _pieces(content, choice.get("logprobs")):
            yield {"content": piece}, logprobs, None
    yield {}, None, choice.get("finish_reason")


def _pop_reasoning(message: dict[str, Any]) -> dict[str, str]:
    """Take the reasoning out of a message: the fields that hold the same text as the first of
    them.
    """
    fields = {name: message[name] for name in _REASONING if isinstance(message.get(name), str)}
    first = next(iter(fields.values()), "")
    return {name: message.pop(name) for name, text in fields.items() if text == first}


def _pieces(content: str, logprobs: object) -> Iterator[tuple[str, dict[str, Any] | None]]:
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(tokens, list) or not tokens:
        yield from ((word, None) for word in _WORD.findall(content))
        return
    texts = [token.get("token") if isinstance(token, dict) else None for token in tokens]
    if not all(isinstance(text, str) for text in texts) or "".join(map(str, texts)) != content:
        # a stop text was cut off, so the tokens do not add up to the content
        yield content, {"content": tokens}
        return
    for text, token in zip(texts, tokens, strict=True):
        yield str(text), {"content": [token]}


class ServingError(FevalError):
    """An error that is sent to the client in OpenAI's shape, with an HTTP status, the field at
    fault and a word for programs.
    """

    default_status = 400
    default_code: str | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        parameter: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status or self.default_status
        self.parameter, self.code = parameter, code or self.default_code
        self.headers = headers or {}


class RequestError(ServingError):
    """The request itself is wrong."""


class MissError(ServingError):
    """The recording does not hold what was asked for."""

    default_code = "not_recorded"


class UnknownError(ServingError):
    """There is no such model, or nothing at the path of the request."""

    default_status = 404
    default_code = "model_not_found"


class AmbiguousError(ServingError):
    """Several recorded things match equally well; feval never guesses which is meant."""

    default_code = "ambiguous"


class UsedUpError(ServingError):
    """The pool has fewer CoTs left than were asked for."""

    default_code = "pool_exhausted"


def status_of(error: FevalError) -> int:
    """Return the HTTP status that an error is sent with."""
    if isinstance(error, ServingError):
        return error.status
    if isinstance(error, NotRecordedError):
        return 404
    return 400 if isinstance(error, UsageError) else 507 if isinstance(error, StorageError) else 500

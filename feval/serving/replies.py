"""Replies in OpenAI's shape: completions, the events of a stream, errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import orjson

from feval.errors import FevalError
from feval.serving.errors import ServingError

__all__ = [
    "JSON",
    "STREAM",
    "choices",
    "closed_choices",
    "completion_events",
    "ending",
    "error_body",
    "events",
    "finish_word",
    "lines",
    "rich_ending",
    "usage",
]

JSON = "application/json"
STREAM = "text/event-stream; charset=utf-8"

_REASONING = ("reasoning", "reasoning_content")
_PIECE = re.compile(r"\s*\S+|\s+")
_AROUND = {  # what stands before and after the text of a choice
    "chat": (b'"message":{"role":"assistant","content":', b',"refusal":null}'),
    "completion": (b'"text":', b""),
}
_HEADS = {  # those of the first choices, made once
    kind: [b'%b{"index":%d,%b' % (b"," if index else b"", index, before) for index in range(64)]
    for kind, (before, _) in _AROUND.items()
}


def finish_word(reason: str) -> str:
    """Return a recorded finish reason as OpenAI spells it; one that is not known reads "stop", as most CoTs end."""
    return "stop" if reason == "unknown" else reason


def ending(kind: str, finish: str) -> bytes:
    """Return what stands after the text of a choice without log-probabilities.

    Args:
        kind: "chat" or "completion".
        finish: the finish reason as OpenAI spells it.
    """
    return _ending(kind, b"null", finish, b"")


def choices(
    kind: str,
    contents: Iterable[bytes],
    endings: Iterable[bytes],
    *,
    first: int = 0,
) -> list[bytes]:
    """Return the choices of a completion as pieces of JSON, to be joined.

    Args:
        kind: "chat" or "completion".
        contents: the texts, as JSON.
        endings: what stands after each; see `ending` and `rich_ending`.
        first: index of the first one.
    """
    tails = list(endings)
    return list(chain.from_iterable(zip(_heads(kind, first, len(tails)), contents, tails, strict=True)))


def closed_choices(closed: Sequence[bytes], *, first: int = 0) -> list[bytes]:
    """Return the choices of a chat as pieces of JSON, to be joined.

    Args:
        closed: the texts, as JSON, with what stands after each.
        first: index of the first one.
    """
    pieces = [b""] * (2 * len(closed))
    pieces[::2] = _heads("chat", first, len(closed))
    pieces[1::2] = closed
    return pieces


def _heads(kind: str, first: int, count: int) -> list[bytes]:
    """What stands before the texts of so many choices."""
    heads = _HEADS[kind][first : first + count]
    made = range(first + len(heads), first + count)
    return heads + [b',{"index":%d,%b' % (index, _AROUND[kind][0]) for index in made] if made else heads


def rich_ending(kind: str, finish: str, *, logprobs: object = None, own: Mapping[str, Any] | None = None) -> bytes:
    """Return what stands after the text of a choice.

    Args:
        kind: "chat" or "completion".
        finish: as for `ending`.
        logprobs: of its tokens, as JSON values.
        own: what feval says of the choice, if anything.
    """
    return _ending(kind, orjson.dumps(logprobs), finish, b',"feval":%b' % orjson.dumps(own) if own else b"")


def _ending(kind: str, logprobs: bytes, finish: str, further: bytes) -> bytes:
    return b'%b,"logprobs":%b,"finish_reason":%b%b}' % (_AROUND[kind][1], logprobs, orjson.dumps(finish), further)


def usage(prompt_tokens: int, completion_tokens: int, reasoning_tokens: int | None) -> bytes:
    """Return the usage as JSON.

    Args:
        prompt_tokens: of the requests.
        completion_tokens: of the replies, reasoning included.
        reasoning_tokens: how many of those were reasoning; `None` where it was not recorded.
    """
    return (
        b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0},'
        b'"completion_tokens_details":{"reasoning_tokens":%b}}'
        % (prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, orjson.dumps(reasoning_tokens))
    )


def error_body(error: FevalError, status: int) -> bytes:
    """Return an error as JSON.

    Args:
        error: its text is the message.
        status: of HTTP.
    """
    parameter, code = (error.parameter, error.code) if isinstance(error, ServingError) else (None, None)
    kind = "invalid_request_error" if status < 500 else "server_error"
    message = str(error).encode("utf-8", "replace").decode()  # halves of surrogate pairs are no JSON
    return orjson.dumps({"error": {"message": message, "type": kind, "param": parameter, "code": code}})


def lines(chunks: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Return chunks as the events of a stream, the end among them."""
    for chunk in chunks:
        yield b"data: %b\n\n" % orjson.dumps(chunk)
    yield b"data: [DONE]\n\n"


def events(reply: Mapping[str, Any], *, usage: bool) -> Iterator[dict[str, Any]]:
    """Cut a chat completion into chunks: of each choice the role, the reasoning, the text token by token (or word), the end.

    Args:
        reply: a chat completion.
        usage: whether a last chunk without choices states the usage.
    """
    base = {name: value for name, value in reply.items() if name not in {"choices", "usage", "object"}}
    base["object"] = "chat.completion.chunk"
    for choice in reply["choices"]:
        own = {name: choice[name] for name in ("feval",) if name in choice}
        for delta, logprobs, finish in _deltas(choice):
            part = {"index": choice.get("index", 0), "delta": delta, "logprobs": logprobs, "finish_reason": finish}
            yield base | {"choices": [part | own]} | ({"usage": None} if usage else {})
    if usage:
        yield base | {"choices": [], "usage": reply.get("usage")}


def completion_events(reply: Mapping[str, Any], *, usage: bool) -> Iterator[dict[str, Any]]:
    """Cut a text completion into chunks: of each choice the text word by word, then the end with its log-probabilities.

    Args:
        reply: a text completion.
        usage: whether a last chunk without choices states the usage.
    """
    base = {name: value for name, value in reply.items() if name not in {"choices", "usage"}}
    for choice in reply["choices"]:
        for piece in _PIECE.findall(choice["text"] or ""):
            part = choice | {"text": piece, "logprobs": None, "finish_reason": None}
            yield base | {"choices": [part]} | ({"usage": None} if usage else {})
        yield base | {"choices": [choice | {"text": ""}]} | ({"usage": None} if usage else {})
    if usage:
        yield base | {"choices": [], "usage": reply.get("usage")}


_Delta = tuple[dict[str, Any], dict[str, Any] | None, str | None]


def _deltas(choice: Mapping[str, Any]) -> Iterator[_Delta]:
    message = dict(choice["message"])
    content = message.pop("content", None)
    thoughts = _thoughts(message)
    calls = message.pop("tool_calls", None)
    if calls:  # a stream numbers them
        message["tool_calls"] = [{"index": number} | call for number, call in enumerate(calls)]
    yield {"role": "assistant"} | message | {"content": "" if isinstance(content, str) else content}, None, None
    for piece in _PIECE.findall(next(iter(thoughts.values()), "")):
        yield dict.fromkeys(thoughts, piece), None, None
    if isinstance(content, str):
        for piece, logprobs in _pieces(content, choice.get("logprobs")):
            yield {"content": piece}, logprobs, None
    yield {}, None, choice.get("finish_reason")


def _thoughts(message: dict[str, Any]) -> dict[str, str]:
    """Take the reasoning out of a message: the fields that hold it, of several the same text."""
    found = {name: message[name] for name in _REASONING if isinstance(message.get(name), str)}
    first = next(iter(found.values()), "")
    return {name: message.pop(name) for name, text in found.items() if text == first}


def _pieces(content: str, logprobs: object) -> Iterator[tuple[str, dict[str, Any] | None]]:
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(tokens, list) or not tokens:
        yield from ((piece, None) for piece in _PIECE.findall(content))
        return
    texts = [token.get("token") if isinstance(token, dict) else None for token in tokens]
    if not all(isinstance(text, str) for text in texts) or "".join(map(str, texts)) != content:
        yield content, {"content": tokens}  # the tokens' texts are not the content's pieces: a stop text was cut off
        return
    for text, token in zip(texts, tokens, strict=True):
        yield str(text), {"content": [token]}

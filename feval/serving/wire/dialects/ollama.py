"""Ollama's chat and generate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import orjson

from feval.serving.wire.calls import Reply, ServingError
from feval.serving.wire.dialects import parts
from feval.serving.wire.dialects.parts import Asked
from feval.serving.wire.openai import words
from feval.values import Record, RecordLike

PATH = r"/api/(?P<kind>chat|generate)"
_NAMES = {"num_predict": "max_tokens", "keep_alive": "", "options": "", "n": ""}


def request(fields: Record, path: Mapping[str, str]) -> Asked:
    """Return a request as a chat completion."""
    parts.refuse(fields, "context", "suffix", "template", "raw")
    stream = parts.streams(fields, usual=True)
    chat = parts.renamed(parts.as_record(fields.get("options"), "options") | fields, _NAMES)
    if (chat.get("max_tokens") or 0) in (-1, -2):  # no limit
        del chat["max_tokens"]
    form = chat.pop("format", None) or None
    if form is not None:
        own = form == "json"
        chat["response_format"] = {"type": "json_object"} if own else parts.schema(form)
    if path["kind"] == "chat":
        sent = parts.records(chat.get("messages"), "messages")
        chat["messages"] = [_message(own, where) for where, own in sent]
    else:
        asked = {"role": "user", "content": chat.pop("prompt", ""), "images": chat.pop("images", 0)}
        system = {"role": "system", "content": chat.pop("system", "")}
        chat["messages"] = [
            _message(own, name)
            for name, own in (("system", system), ("prompt", asked))
            if name == "prompt" or own["content"]
        ]
    return Asked(chat, stream, path)


def _message(own: Record, where: str) -> Record:
    content: list[str | Record] = [parts.as_text(own.get("content") or "", where)]
    content += [{"type": "image_url"}] if own.get("images") else []
    calls = [
        parts.call(made.get("name"), made.get("arguments"))
        for each, call in parts.records(own.get("tool_calls"), f"{where}.tool_calls")
        for made in [parts.as_record(call.get("function"), each)]
    ]
    said = {"tool_call_id": own.get("tool_name")} if own.get("role") == "tool" else {}
    return parts.message(own.get("role", ""), content, calls) | said


def whole(completion: RecordLike, asked: Asked, _: Mapping[str, str]) -> Record:
    """Return a completion as one object."""
    [choice] = completion["choices"]
    text, thoughts = parts.text(choice), parts.thoughts(choice)
    said: Record = {"thinking": thoughts} if thoughts else {}
    if asked.path["kind"] == "chat":
        made = [
            {"function": {"name": name, "arguments": parts.arguments(arguments)}}
            for _, name, arguments in parts.calls(choice)
        ]
        said |= {"role": "assistant", "content": text} | ({"tool_calls": made} if made else {})
        said = {"message": said}
    else:
        said["response"] = text
    return {
        "model": completion["model"],
        "created_at": _time(completion["created"]),
        **said,
        "done": True,
        "done_reason": "length" if choice["finish_reason"] == "length" else "stop",
        "total_duration": 0,
        "load_duration": 0,
        "prompt_eval_count": completion["usage"]["prompt_tokens"],
        "prompt_eval_duration": 0,
        "eval_count": completion["usage"]["completion_tokens"],
        "eval_duration": 0,
    }


def stream(whole: RecordLike, _: Asked, headers: Mapping[str, str]) -> Reply:
    """Return an object as lines of such."""
    lines = (orjson.dumps(each) + b"\n" for each in _pieces(whole))
    return Reply(200, {"content-type": "application/x-ndjson", **headers}, lines)


def _pieces(whole: RecordLike) -> Iterator[Record]:
    shared = {name: whole.get(name) for name in ("model", "created_at")} | {"done": False}
    is_chat = "message" in whole
    said: RecordLike = whole["message"] if is_chat else whole
    empty: Record = {"role": "assistant", "content": ""} if is_chat else {"response": ""}
    pieces: list[Record] = [
        {name: word}
        for name in ("thinking", "content" if is_chat else "response")
        for word in words(said.get(name) or "")
    ]
    pieces += [{"tool_calls": said["tool_calls"]}] if said.get("tool_calls") else []
    for own in pieces:
        yield shared | ({"message": empty | own} if is_chat else empty | own)
    rest = {name: own for name, own in whole.items() if name != "thinking"}
    yield rest | ({"message": empty} if is_chat else empty)


def completion(reply: RecordLike) -> Record:
    """Return a vendor's reply as a chat completion."""
    said = reply.get("message") or {**reply, "content": reply["response"]}
    message = {
        "content": said["content"],
        "reasoning": said.get("thinking"),
        "tool_calls": [
            parts.call(own["function"]["name"], own["function"]["arguments"], own.get("id"))
            for own in said.get("tool_calls") or ()
        ],
    }
    counts = (reply.get("prompt_eval_count"), None, reply.get("eval_count"), None)
    return parts.completion(reply, [(message, reply.get("done_reason"))], counts)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def error(problem: ServingError) -> Record:
    """Return an error as clients of this dialect expect it."""
    return {"error": str(problem)}


def models(known: Mapping[str, int]) -> Record:
    """Return the list of LLMs, with when each was recorded in Unix seconds."""
    return {
        "models": [
            {
                "name": name,
                "model": name,
                "modified_at": _time(seconds),
                "size": 0,
                "digest": "",
                "details": {"format": "recorded", "family": ""},
            }
            for name, seconds in known.items()
        ]
    }

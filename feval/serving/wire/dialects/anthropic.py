"""Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from feval.serving.wire.calls import EVENT_STREAM, Reply, ServingError
from feval.serving.wire.dialects import parts
from feval.serving.wire.dialects.parts import Asked
from feval.serving.wire.openai import words
from feval.values import Record, RecordLike

PATH = r"/v1/messages(?P<count>/count_tokens)?"
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
}
_CHOICES = {"any": "required", "auto": "auto", "none": "none"}
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_REASONS["refusal"] = "refusal"
_STREAMED = ("text", "thinking", "tool_use")  # blocks; others come at once
_FINISHED = {own: reason for reason, own in _REASONS.items()}
_FINISHED |= {"end_turn": "stop", "stop_sequence": "stop"}


def request(fields: Record, path: Mapping[str, str]) -> Asked:
    """Return a request as a chat completion."""
    parts.refuse(fields, "mcp_servers")
    messages = []
    if system := fields.pop("system", None):
        messages.append(parts.message("system", _content(system, "system")[0]))
    for where, own in parts.records(fields.pop("messages", None), "messages"):
        content, calls, results = _content(own.get("content"), f"{where}.content")
        messages += results
        if content or calls or not results:
            messages.append(parts.message(own.get("role", ""), content, calls))
    stream = parts.streams(fields)
    chat = parts.renamed(fields, {"stop_sequences": "stop", "output_config": "", "n": ""})
    config = parts.as_record(fields.get("output_config"), "output_config")
    if form := chat.pop("output_format", None) or config.get("format"):
        chat["response_format"] = parts.schema(parts.as_record(form, "output_format").get("schema"))
    offered = parts.records(chat.pop("tools", None), "tools")
    chat["tools"] = [parts.tool(own, own.get("input_schema")) for _, own in offered]
    if choice := parts.as_record(chat.pop("tool_choice", None), "tool_choice"):
        named = {"type": "function", "function": {"name": choice.get("name")}}
        chat["tool_choice"] = _CHOICES.get(str(choice.get("type")), named)
    return Asked(chat | {"messages": messages}, stream, path)


def _content(value: object, where: str) -> tuple[list[str | Record], list[Record], list[Record]]:
    """Texts and other parts of a content, calls of tools, and messages with their results."""
    if isinstance(value, str):
        return [value], [], []
    own: list[str | Record] = []
    calls, results = [], []
    for each, block in parts.records(value, where):
        kind = parts.as_text(block.get("type"), f"{each}.type")
        if kind == "text":
            own.append(parts.as_text(block.get("text"), f"{each}.text"))
        elif kind == "tool_use":
            calls.append(parts.call(block.get("name"), block.get("input"), block.get("id")))
        elif kind == "tool_result":
            said = _content(block.get("content") or "", f"{each}.content")[0]
            said += [{"type": "error"}] if block.get("is_error") else []
            asked = {"tool_call_id": block.get("tool_use_id")}
            results.append(parts.message("tool", said) | asked)
        elif kind not in ("thinking", "redacted_thinking"):
            own.append({"type": kind})
    return own, calls, results


def whole(completion: RecordLike, asked: Asked, headers: Mapping[str, str]) -> Record:
    """Return a completion as a message."""
    [choice] = completion["choices"]
    blocks: list[Record] = []
    if thoughts := parts.thoughts(choice):
        blocks.append({"type": "thinking", "thinking": thoughts, "signature": ""})
    if (text := parts.text(choice)) or not parts.calls(choice):
        blocks.append({"type": "text", "text": text})
    blocks += [
        {"type": "tool_use", "id": number, "name": name, "input": parts.arguments(arguments)}
        for number, name, arguments in parts.calls(choice)
    ]
    usage, reason = completion["usage"], parts.reason(choice)
    if parts.calls(choice) and reason != "length":
        reason = "tool_calls"  # also where it was forced
    stops = asked.fields.get("stop")
    stopped = reason == "stop" and "x-feval-cut" in headers
    return {
        "id": completion["id"].replace("chatcmpl-", "msg_"),
        "type": "message",
        "role": "assistant",
        "model": completion["model"],
        "content": blocks,
        "stop_reason": "stop_sequence" if stopped else _REASONS.get(reason, "end_turn"),
        # which of several texts it was is not known
        "stop_sequence": stops[0] if stopped and stops and len(stops) == 1 else None,
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": usage["completion_tokens"],
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def stream(whole: RecordLike, _: Asked, headers: Mapping[str, str]) -> Reply:
    """Return a message as its events."""
    return Reply(200, EVENT_STREAM | dict(headers), parts.events(_events(whole)))


def completion(reply: RecordLike) -> Record:
    """Return a vendor's reply as a chat completion."""
    blocks, usage = reply["content"], reply["usage"]
    made = [
        parts.call(own["name"], own["input"], own["id"])
        for own in blocks
        if own["type"] == "tool_use"
    ]
    hidden = ("tool_use", "redacted_thinking")
    message: Record = {"content": [own for own in blocks if own["type"] not in hidden]}
    message["tool_calls"] = made
    cached = usage.get("cache_read_input_tokens") or 0
    prompt = usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0)
    counts = (prompt, cached, usage["output_tokens"], None)
    return parts.completion(reply, [(message, _FINISHED.get(reply["stop_reason"]))], counts)


def _events(whole: RecordLike) -> Iterator[Record]:
    ends = {name: whole.get(name) for name in ("stop_reason", "stop_sequence")}
    usage: Record = whole.get("usage") or {}
    begun: Record = {"content": [], **dict.fromkeys(ends), "usage": usage | {"output_tokens": 0}}
    yield {"type": "message_start", "message": {**whole, **begun}}
    for index, block in enumerate(whole["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": _begun(block)}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": ends, "usage": usage}
    yield {"type": "message_stop"}


def _begun(block: RecordLike) -> RecordLike:
    empty: Record = {"text": "", "thinking": "", "signature": "", "input": {}}
    if block["type"] not in _STREAMED:
        return block
    return {name: empty.get(name, value) for name, value in block.items() if name != "type"} | {
        "type": block["type"]
    }


def _deltas(block: RecordLike) -> Iterator[Record]:
    kind = block["type"]
    if kind == "tool_use":
        yield {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
    elif kind in _STREAMED:
        for word in words(block.get(kind) or ""):
            yield {"type": f"{kind}_delta", kind: word}
    if block.get("signature"):
        yield {"type": "signature_delta", "signature": block["signature"]}


def error(problem: ServingError) -> Record:
    """Return an error as clients of this dialect expect it."""
    usual = "invalid_request_error" if problem.status < 500 else "api_error"
    kind = _ERRORS.get(problem.status, usual)
    return {"type": "error", "error": {"type": kind, "message": str(problem)}}


def counted(tokens: int) -> Record:
    """Return the reply of a count of tokens."""
    return {"input_tokens": tokens}


def models(known: Mapping[str, int]) -> Record:
    """Return the list of LLMs, with when each was recorded in Unix seconds."""
    data: list[dict[str, Any]] = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": datetime.fromtimestamp(seconds, UTC).isoformat(),
        }
        for name, seconds in known.items()
    ]
    ends = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"data": data, "has_more": False, "first_id": ends[0], "last_id": ends[1]}

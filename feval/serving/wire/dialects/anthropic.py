"""Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import orjson

from feval.serving.wire import parts
from feval.serving.wire.calls import ServingError
from feval.serving.wire.openai import words
from feval.serving.wire.parts import Asked, Fields, Said
from feval.values import Record, RecordLike

PATH = r"/v1/messages(?P<count>/count_tokens)?"
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
}
_CHOICES = {"any": "required", "auto": "auto", "none": "none"}
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "refusal": "refusal"}
_FINISHED = {own: reason for reason, own in _REASONS.items()}
_FINISHED |= {"end_turn": "stop", "stop_sequence": "stop"}
_BEGUN: Record = {"text": "", "thinking": "", "signature": "", "input": {}}  # of streamed blocks


def request(fields: Fields, path: Mapping[str, str]) -> Asked:
    """Return a request as a chat completion."""
    fields.refuse("mcp_servers")
    system, messages = _said(fields.blocks("system")), []
    if system.content:
        messages.append(parts.message("system", system.content))
    for own in fields.records("messages"):
        messages += _said(own.blocks("content")).messages(own.get("role", ""))
    stream, tools = fields.stream("named"), fields.tools("input_schema")
    form = fields.record("output_format") or fields.record("output_config").record("format")
    chosen = fields.record("tool_choice")
    chat = fields.rest({"stop_sequences": "stop"}) | {"messages": messages, "tools": tools}
    if form:
        chat["response_format"] = parts.form(form.get("schema"))
    if chosen:
        usual = parts.choice(chosen.get("name"))
        chat["tool_choice"] = _CHOICES.get(chosen.text("type", ""), usual)
    return Asked(chat, stream, path)


def _said(blocks: Iterable[Fields]) -> Said:
    said = Said()
    for block in blocks:
        kind = block.text("type")
        if kind == "text":
            said.content.append(block.text("text"))
        elif kind == "thinking":
            said.thoughts.append(block.text("thinking"))
        elif kind == "tool_use":
            said.call(block.get("name"), block.get("input"), block.get("id"))
        elif kind == "tool_result":
            result = _said(block.blocks("content")).content
            result += [{"type": "error"}] if block.get("is_error") else []
            said.result(result, block.get("tool_use_id"))
        elif kind != "redacted_thinking":
            said.content.append({"type": kind})
    return said


def whole(completion: RecordLike, asked: Asked, is_cut: bool) -> Record:
    """Return a completion as a message."""
    told, usage = parts.told(completion["choices"][0]), completion["usage"]
    # also where a call was forced
    reason = "tool_calls" if told.calls and told.reason != "length" else told.reason
    stops = asked.fields.get("stop")
    stopped = reason == "stop" and is_cut
    return {
        "id": completion["id"].replace("chatcmpl-", "msg_"),
        "type": "message",
        "role": "assistant",
        "model": completion["model"],
        "content": [
            *({"type": "thinking", "thinking": own, "signature": ""} for own in told.thoughts),
            *({"type": "text", "text": own} for own in told.texts),
            *(
                {"type": "tool_use", "id": number, "name": name, "input": parts.arguments(text)}
                for number, name, text in told.calls
            ),
        ],
        "stop_reason": "stop_sequence" if stopped else _REASONS.get(reason, "end_turn"),
        # which of several texts it was is not known
        "stop_sequence": stops[0] if stopped and stops and len(stops) == 1 else None,
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": usage["completion_tokens"],
        },
    }


def completion(reply: Fields) -> Record:
    """Return a vendor's reply as a chat completion."""
    usage = reply.record("usage")
    cached = usage.get("cache_read_input_tokens") or 0
    prompt = usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0)
    ended = [(_said(reply.records("content")), _FINISHED.get(reply["stop_reason"]))]
    return parts.completion(reply, ended, (prompt, cached, usage["output_tokens"], None))


def pieces(whole: RecordLike) -> Iterator[Record]:
    """Yield the events of a stream of a message."""
    ends = {name: whole.get(name) for name in ("stop_reason", "stop_sequence")}
    usage: Record = whole.get("usage") or {}
    begun: Record = {"content": [], **dict.fromkeys(ends), "usage": usage | {"output_tokens": 0}}
    yield {"type": "message_start", "message": {**whole, **begun}}
    for index, block in enumerate(whole["content"]):
        deltas = list(_deltas(block))  # none of those that come at once
        empty = {name: own for name, own in _BEGUN.items() if deltas and name in block}
        yield {"type": "content_block_start", "index": index, "content_block": block | empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": ends, "usage": usage}
    yield {"type": "message_stop"}


def _deltas(block: RecordLike) -> Iterator[Record]:
    kind = block["type"]
    if kind == "tool_use":
        yield {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
    elif kind in ("text", "thinking"):
        for word in words(block[kind]):
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
    data = [
        {"type": "model", "id": name, "display_name": name, "created_at": parts.when(seconds)}
        for name, seconds in known.items()
    ]
    ends = {"first_id": next(iter(known), None), "last_id": next(reversed([*known]), None)}
    return {"data": data, "has_more": False, **ends}

"""OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from feval.serving.wire.calls import EVENT_STREAM, Reply, openai_error
from feval.serving.wire.dialects import parts
from feval.serving.wire.dialects.parts import Asked
from feval.serving.wire.openai import words
from feval.values import Record, RecordLike

PATH = r"(?:/v1|/openai(?:/v1)?)/responses"
error = openai_error
_NAMES = {
    "max_output_tokens": "max_tokens", "include": "", "truncation": "", "text": "",
    "reasoning": "", "background": "", "n": "",
}  # fmt: skip


_FINISHED = {
    "completed": "stop", "max_output_tokens": "length", "content_filter": "content_filter",
}  # fmt: skip


def request(fields: Record, path: Mapping[str, str]) -> Asked:
    """Return a request as a chat completion."""
    parts.refuse(fields, "prompt", "conversation")
    given, stream = fields.pop("input", None), parts.streams(fields)
    system, previous = fields.pop("instructions", None), fields.pop("previous_response_id", None)
    if previous is not None:
        parts.as_text(previous, "previous_response_id")
    turn: list[Record] = []
    if isinstance(given, str):
        turn.append(parts.message("user", [given]))
    else:
        for where, item in parts.records(given, "input"):
            _add(turn, item, where)
    chat = parts.renamed(fields, _NAMES)
    effort = parts.as_record(fields.get("reasoning"), "reasoning").get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    form = parts.as_record(parts.as_record(fields.get("text"), "text").get("format"), "text.format")
    if form.get("type") == "json_schema":
        form = parts.schema(form.get("schema"), form.get("name"), form.get("strict"))
    if form:
        chat["response_format"] = form
    offered = parts.records(chat.pop("tools", None), "tools")
    chat["tools"] = [parts.tool(own, own.get("parameters")) for _, own in offered]
    if isinstance(choice := chat.get("tool_choice"), dict) and choice.get("type") == "function":
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    before = [parts.message("system", [parts.as_text(system, "instructions")])] if system else []
    chat["messages"] = before + turn
    return Asked(chat, stream, path, previous, len(before), fields.get("store") is not False)


def _add(turn: list[Record], item: Record, where: str) -> None:
    """Add an item to messages; calls of tools belong to one message of the assistant."""
    kind = item.get("type", "message")
    if kind == "function_call":
        made = parts.call(item.get("name"), item.get("arguments"), item.get("call_id"))
        if not (turn and turn[-1]["role"] == "assistant"):
            turn.append(parts.message("assistant", []))
        turn[-1].setdefault("tool_calls", []).append(made)
    elif kind == "function_call_output":
        said = _content(item.get("output"), f"{where}.output")
        turn.append(parts.message("tool", said) | {"tool_call_id": item.get("call_id")})
    elif kind == "message":
        content = _content(item.get("content"), f"{where}.content")
        turn.append(parts.message(item.get("role", ""), content))
    elif kind != "reasoning":
        turn.append(parts.message("user", [{"type": str(kind)}]))


def _content(value: object, where: str) -> list[str | Record]:
    if isinstance(value, str):
        return [value]
    own: list[str | Record] = []
    for each, part in parts.records(value, where):
        kind = parts.as_text(part.get("type"), f"{each}.type")
        is_text = kind in ("input_text", "output_text", "text")
        own.append(parts.as_text(part.get("text"), f"{each}.text") if is_text else {"type": kind})
    return own


def whole(completion: RecordLike, asked: Asked, _: Mapping[str, str]) -> Record:
    """Return a completion as a response."""
    [choice] = completion["choices"]
    name, limited = completion["id"].partition("-")[2], choice["finish_reason"] == "length"
    status = "incomplete" if limited else "completed"
    output: list[Record] = []
    if thoughts := parts.thoughts(choice):
        content = [{"type": "reasoning_text", "text": thoughts}]
        output.append({"type": "reasoning", "id": f"rs_{name}", "summary": [], "content": content})
    if (text := parts.text(choice)) or not parts.calls(choice):
        said: Record = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        if parts.reason(choice) == "refusal":
            said = {"type": "refusal", "refusal": text}
        own = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": status}
        output.append(own | {"content": [said]})
    for at, (number, called, arguments) in enumerate(parts.calls(choice)):
        made = {"call_id": number, "name": called, "arguments": arguments, "status": "completed"}
        output.append({"type": "function_call", "id": f"fc_{at}_{name}"} | made)
    usage, fields = completion["usage"], asked.fields
    counts = {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"],
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {
            "reasoning_tokens": usage["completion_tokens_details"]["reasoning_tokens"] or 0
        },
        "total_tokens": usage["total_tokens"],
    }
    return {
        "id": response_id(completion),
        "object": "response",
        "created_at": completion["created"],
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if limited else None,
        "model": completion["model"],
        "output": output,
        "previous_response_id": asked.previous,
        "instructions": None,
        "metadata": fields.get("metadata") or {},
        "parallel_tool_calls": True,
        "temperature": fields.get("temperature"),
        "top_p": fields.get("top_p"),
        "tool_choice": "auto",
        "tools": [],
        "usage": counts,
    }


def stream(whole: RecordLike, _: Asked, headers: Mapping[str, str]) -> Reply:
    """Return a response as its events."""
    numbered = (own | {"sequence_number": at} for at, own in enumerate(_events(whole)))
    return Reply(200, EVENT_STREAM | dict(headers), parts.events(numbered))


def completion(reply: RecordLike) -> Record:
    """Return a vendor's reply as a chat completion."""
    if reply["status"] not in ("completed", "incomplete"):
        raise ValueError(f"a response that is {reply['status']}")
    blocks: list[Record] = []
    message: Record = {"content": blocks, "tool_calls": []}
    for item in reply["output"]:
        if item["type"] == "function_call":
            made = parts.call(item["name"], item["arguments"], item["call_id"])
            message["tool_calls"].append(made)
        elif item["type"] == "reasoning":
            said = item.get("content") or item["summary"]
            blocks += [{"type": "thinking", "thinking": own["text"]} for own in said]
        elif item["type"] != "message":
            blocks.append({"type": item["type"]})
        for own in item["content"] if item["type"] == "message" else ():
            if own["type"] == "refusal":
                message["refusal"] = own["refusal"]
            else:
                kind = "text" if own["type"] == "output_text" else own["type"]
                blocks.append({"type": kind, "text": own.get("text")})
    reason = str((reply.get("incomplete_details") or {}).get("reason", reply["status"]))
    usage = reply["usage"]
    counts = (
        usage["input_tokens"],
        (usage.get("input_tokens_details") or {}).get("cached_tokens"),
        usage["output_tokens"],
        (usage.get("output_tokens_details") or {}).get("reasoning_tokens"),
    )
    return parts.completion(reply, [(message, _FINISHED.get(reason))], counts)


def response_id(completion: RecordLike) -> str:
    """Return the id by which a later request may continue a reply."""
    return f"resp_{completion['id'].partition('-')[2]}"


def _events(whole: RecordLike) -> Iterator[Record]:
    begun = {**whole} | {"status": "in_progress", "output": [], "usage": None}
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": begun}
    for index, item in enumerate(whole["output"]):
        place: Record = {"output_index": index}
        empty: Record = {"content": []} if "content" in item else {}
        empty |= {"arguments": ""} if "arguments" in item else {}
        started = item | empty | {"status": "in_progress"}
        yield {"type": "response.output_item.added", "item": started} | place
        place["item_id"] = item.get("id")
        for at, part in enumerate(item.get("content") or ()):
            kind, where = part["type"], place | {"content_index": at}
            name = "refusal" if kind == "refusal" else "text"
            more: Record = {"logprobs": []} if kind == "output_text" else {}
            yield {"type": "response.content_part.added", "part": part | {name: ""}} | where
            for word in words(part.get(name) or ""):
                yield {"type": f"response.{kind}.delta", "delta": word} | where | more
            yield {"type": f"response.{kind}.done", name: part.get(name)} | where | more
            yield {"type": "response.content_part.done", "part": part} | where
        if item["type"] == "function_call":
            made, kind = item["arguments"], "response.function_call_arguments"
            yield {"type": f"{kind}.delta", "delta": made} | place
            yield {"type": f"{kind}.done", "arguments": made, "name": item["name"]} | place
        yield {"type": "response.output_item.done", "item": item, "output_index": index}
    yield {"type": f"response.{whole['status']}", "response": whole}

"""OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from feval.serving.wire import parts
from feval.serving.wire.calls import openai_error
from feval.serving.wire.openai import words
from feval.serving.wire.parts import Asked, Fields, Said
from feval.values import Record, RecordLike

PATH = r"(?:/v1|/openai(?:/v1)?)/responses"
error = openai_error
_NAMES = {"max_output_tokens": "max_tokens", "include": "", "truncation": "", "background": ""}
_FINISHED = {
    "completed": "stop", "max_output_tokens": "length", "content_filter": "content_filter",
}  # fmt: skip
_EMPTY: Record = {
    "content": [],
    "arguments": "",
    "input": "",
    "status": "in_progress",
}  # of an item begun
_ROLES = dict.fromkeys(("function_call", "reasoning"), "assistant")


def request(fields: Fields, path: Mapping[str, str]) -> Asked:
    """Return a request as a chat completion."""
    fields.refuse("prompt", "conversation")
    stream, is_kept = fields.stream("named"), fields.get("store") is not False
    system, previous = fields.text("instructions", ""), fields.text("previous_response_id", "")
    if isinstance(fields.get("input"), str):
        fields["input"] = [{"role": "user", "content": fields["input"]}]
    said: list[tuple[str, Said]] = []
    for item in fields.records("input"):
        role = str(item.get("role") or _ROLES.get(str(item.get("type")), "user"))
        if not said or (said[-1][0], role) != ("assistant", "assistant"):
            said.append((role, Said()))
        _add(said[-1][1], item)
    first = [{"role": "system", "content": system}] if system else []
    tools, effort = fields.tools("parameters"), fields.record("reasoning").get("effort")
    form: Record = fields.record("text").record("format")
    if form.get("type") == "json_schema":
        form = parts.form(form.get("schema"), form.get("name"), form.get("strict"))
    chat = fields.rest(_NAMES) | {"tools": tools, "reasoning_effort": effort}
    chat["messages"] = first + [each for role, own in said for each in own.messages(role)]
    if form:
        chat["response_format"] = form
    if isinstance(choice := chat.get("tool_choice"), dict) and choice.get("type") == "function":
        chat["tool_choice"] = parts.choice(choice.get("name"))
    return Asked(chat, stream, path, previous or None, len(first), is_kept)


def _add(said: Said, item: Fields) -> None:
    kind, own = item.text("type", "message"), Said()
    if kind == "function_call":
        said.call(item.get("name"), item.get("arguments"), item.get("call_id"))
    elif kind == "function_call_output":
        said.result(_read(own, item, "output").content, item.get("call_id"))
    elif kind == "reasoning":
        _read(own, item, "content" if item.get("content") else "summary")
        said.thoughts += [text for text in own.content if isinstance(text, str)]
    elif kind == "message":
        _read(said, item, "content")
    else:
        said.content.append({"type": kind})


def _read(said: Said, item: Fields, name: str) -> Said:
    for part in item.blocks(name):
        kind = part.text("type")
        said.refused |= kind == "refusal"
        text = part.get("refusal", part.get("text"))
        said.content.append(text if isinstance(text, str) else {"type": kind})
    return said


def whole(completion: RecordLike, asked: Asked, _: bool) -> Record:
    """Return a completion as a response."""
    told, usage = parts.told(completion["choices"][0]), completion["usage"]
    name, is_limited = completion["id"].partition("-")[2], told.reason == "length"
    status = "incomplete" if is_limited else "completed"
    output: list[Record] = []
    for text in told.thoughts:
        content = [{"type": "reasoning_text", "text": text}]
        output.append({"type": "reasoning", "id": f"rs_{name}", "summary": [], "content": content})
    for text in told.texts:
        said: Record = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        if told.reason == "refusal":
            said = {"type": "refusal", "refusal": text}
        own = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": status}
        output.append(own | {"content": [said]})
    for at, (number, called, text) in enumerate(told.calls):
        made = {"call_id": number, "name": called, "arguments": text, "status": "completed"}
        output.append({"type": "function_call", "id": f"fc_{at}_{name}"} | made)
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"] or 0
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": completion["created"],
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if is_limited else None,
        "model": completion["model"],
        "output": output,
        "previous_response_id": asked.previous,
        "metadata": asked.fields.get("metadata") or {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **{own: asked.fields.get(own) for own in ("temperature", "top_p", "error", "instructions")},
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage["prompt_tokens_details"],
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": usage["total_tokens"],
        },
    }


def completion(reply: Fields) -> Record:
    """Return a vendor's reply as a chat completion."""
    said, usage = Said(), reply.record("usage")
    for item in reply.records("output"):
        _add(said, item)
    # one that failed has no reply
    reason = _FINISHED[reply.record("incomplete_details").get("reason", reply["status"])]
    counts = (
        usage["input_tokens"],
        usage.record("input_tokens_details").get("cached_tokens"),
        usage["output_tokens"],
        usage.record("output_tokens_details").get("reasoning_tokens"),
    )
    return parts.completion(reply, [(said, reason)], counts)


def pieces(whole: RecordLike) -> Iterator[Record]:
    """Yield the events of a stream of a response."""
    for number, own in enumerate(_events(whole)):
        yield own | {"sequence_number": number}


def _events(whole: RecordLike) -> Iterator[Record]:
    begun = {**whole} | {"status": "in_progress", "output": [], "usage": None}
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": begun}
    for index, item in enumerate(whole["output"]):
        place: Record = {"output_index": index}
        started = {name: _EMPTY.get(name, own) for name, own in item.items()}
        yield {"type": "response.output_item.added", "item": started} | place
        place["item_id"] = item.get("id")
        for field, before in (("summary", "reasoning_summary"), ("content", "content")):
            for at, part in enumerate(item.get(field) or ()):
                kind, where = part["type"], place | {f"{field}_index": at}
                name = "refusal" if kind == "refusal" else "text"
                more: Record = {"logprobs": []} if kind == "output_text" else {}
                said = f"response.{kind}" if field == "content" else f"response.reasoning_{kind}"
                begun = part | {name: ""}
                yield {"type": f"response.{before}_part.added", "part": begun} | where
                for word in words(part.get(name) or ""):
                    yield {"type": f"{said}.delta", "delta": word} | where | more
                yield {"type": f"{said}.done", name: part.get(name)} | where | more
                yield {"type": f"response.{before}_part.done", "part": part} | where
        for field in {"arguments", "input"} & item.keys():
            own, said = {field: item[field]}, f"response.{item['type']}_{field}"
            yield {"type": f"{said}.delta", "delta": item[field]} | place
            yield {"type": f"{said}.done", "name": item.get("name")} | own | place
        yield {"type": "response.output_item.done", "item": item, "output_index": index}
    yield {"type": f"response.{whole['status']}", "response": whole}

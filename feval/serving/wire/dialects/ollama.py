"""Ollama's chat and generate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from feval.serving.wire import parts
from feval.serving.wire.calls import ServingError
from feval.serving.wire.openai import words
from feval.serving.wire.parts import Asked, Fields, Said
from feval.values import Record, RecordLike

PATH = r"/api/(?P<kind>chat|generate)"


def request(fields: Fields, path: Mapping[str, str]) -> Asked:
    """Return a request as a chat completion."""
    fields.refuse("context", "suffix", "template", "raw")
    stream, form = fields.stream("lines", usual=True), fields.pop("format", None)
    if path["kind"] == "generate":
        asked = {"role": "user", "content": fields.text("prompt", "")}
        asked["images"] = fields.pop("images", None)
        system = {"role": "system", "content": fields.text("system", "")}
        fields["messages"] = [system, asked] if system["content"] else [asked]
    messages = [
        each | ({"tool_call_id": own["tool_name"]} if "tool_name" in own else {})
        for own in fields.records("messages")
        for each in _said(own).messages(own.get("role", ""))
    ]
    chat = fields.record("options").rest({"num_predict": "max_tokens"})
    chat |= fields.rest({"keep_alive": ""}) | {"messages": messages}
    if chat.get("max_tokens") in (-1, -2):  # no limit
        del chat["max_tokens"]
    if form:
        chat["response_format"] = parts.form(None if form == "json" else form)
    return Asked(chat, stream, path)


def _said(own: Fields) -> Said:
    said = Said()
    said.content.append(own.text("content", ""))
    said.content += [{"type": "image_url"}] if own.get("images") else []
    said.thoughts.append(own.text("thinking", ""))
    for made in own.records("tool_calls"):
        call = made.record("function")
        said.call(call.get("name"), call.get("arguments"), made.get("id"))
    return said


def whole(completion: RecordLike, asked: Asked, _: bool) -> Record:
    """Return a completion as one object."""
    choice, usage = completion["choices"][0], completion["usage"]
    told = parts.told(choice)
    said: Record = {"thinking": told.thoughts[0]} if told.thoughts else {}
    if asked.path["kind"] == "chat":
        made = [
            {"function": {"name": name, "arguments": parts.arguments(text)}}
            for _, name, text in told.calls
        ]
        said |= {"role": "assistant", "content": "".join(told.texts)}
        said = {"message": said | ({"tool_calls": made} if made else {})}
    else:
        said["response"] = "".join(told.texts)
    return {
        "model": completion["model"],
        "created_at": parts.when(completion["created"]),
        **said,
        "done": True,
        "done_reason": "length" if choice["finish_reason"] == "length" else "stop",
        "prompt_eval_count": usage["prompt_tokens"],
        "eval_count": usage["completion_tokens"],
    }


def pieces(whole: RecordLike) -> Iterator[Record]:
    """Yield the objects of a stream of one."""
    shared = {name: whole.get(name) for name in ("model", "created_at")} | {"done": False}
    chat = whole.get("message")
    said, name = (chat, "content") if chat else (whole, "response")
    told = [{each: word} for each in ("thinking", name) for word in words(said.get(each) or "")]
    told += [{"tool_calls": said["tool_calls"]}] if said.get("tool_calls") else []
    rest = {each: own for each, own in whole.items() if each != "thinking"}
    for before, own in [*((shared, own) for own in told), (rest, {})]:
        piece = {name: ""} | own
        yield before | ({"message": {"role": "assistant"} | piece} if chat else piece)


def completion(reply: Fields) -> Record:
    """Return a vendor's reply as a chat completion."""
    said = reply.record("message") or Fields(reply | {"content": reply["response"]})
    counts = (reply.get("prompt_eval_count"), None, reply.get("eval_count"), None)
    return parts.completion(reply, [(_said(said), reply.get("done_reason"))], counts)


def error(problem: ServingError) -> Record:
    """Return an error as clients of this dialect expect it."""
    return {"error": str(problem)}


def models(known: Mapping[str, int]) -> Record:
    """Return the list of LLMs, with when each was recorded in Unix seconds."""
    data = [
        {"name": name, "model": name, "modified_at": parts.when(seconds)}
        for name, seconds in known.items()
    ]
    return {"models": data}

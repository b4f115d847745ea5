"""Google's Gemini: `generateContent` and its stream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

import orjson

from feval.serving.wire.calls import EVENT_STREAM, Reply, ServingError
from feval.serving.wire.dialects import parts
from feval.serving.wire.dialects.parts import Asked
from feval.serving.wire.openai import as_body, words
from feval.values import Record, RecordLike

PATH = (
    r"/v1(?:beta1?|alpha)?/(?:.+?/)?models/(?P<model>.+):"
    r"(?:(?P<stream>streamG)|g)enerateContent"
    r"|/v1(?:beta1?|alpha)?/(?:.+?/)?models/(?P<counted>.+):(?P<count>countTokens)"
)
_NAMES = {
    "candidateCount": "n", "maxOutputTokens": "max_tokens", "stopSequences": "stop",
    "topP": "top_p", "topK": "top_k", "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "responseModalities": "", "responseMimeType": "", "responseSchema": "",
    "responseJsonSchema": "",
}  # fmt: skip
_MODES = {"ANY": "required", "NONE": "none"}
_ERRORS = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
_REASONS = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "refusal": "SAFETY"}
_FINISHED = {own: reason for reason, own in _REASONS.items()} | {"STOP": "stop"}
_FINISHED |= dict.fromkeys(
    ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), "content_filter"
)
_SNAKE = re.compile(r"_([a-z])")


def request(fields: Record, path: Mapping[str, str]) -> Asked:
    """Return a request as a chat completion."""
    fields = _camel(fields)
    if path.get("count") and "generateContentRequest" in fields:
        fields = _camel(fields["generateContentRequest"])
    parts.refuse(fields, "cachedContent")
    messages = []
    if system := fields.pop("systemInstruction", None):
        messages += _messages(system, "systemInstruction", "system")
    for where, own in parts.records(fields.pop("contents", None), "contents"):
        messages += _messages(own, where, "user")
    config = _camel(fields.pop("generationConfig", None), "generationConfig")
    chat = parts.renamed(config, _NAMES)
    rules = config.get("responseJsonSchema") or _schema(config.get("responseSchema"))
    if rules:
        chat["response_format"] = parts.schema(rules)
    elif config.get("responseMimeType") == "application/json":
        chat["response_format"] = {"type": "json_object"}
    chat["tools"] = [
        parts.tool(own, own.get("parametersJsonSchema") or _schema(own.get("parameters")))
        for where, group in parts.records(fields.pop("tools", None), "tools")
        for _, own in parts.records(
            group.get("functionDeclarations") or [group | {"type": "builtin"}], where
        )
    ]
    calling = parts.as_record(fields.pop("toolConfig", None), "toolConfig")
    calling = parts.as_record(calling.get("functionCallingConfig"), "functionCallingConfig")
    chat["tool_choice"] = _MODES.get(str(calling.get("mode")))
    model = path.get("model") or path.get("counted")
    chat |= parts.renamed(fields, {"model": "", "n": ""}) | {"model": model, "messages": messages}
    return Asked(chat, "stream" in path, path)


def _schema(rules: object) -> object:
    """A schema of Google's as JSON Schema: types in lower case."""
    if isinstance(rules, list):
        return [*map(_schema, rules)]
    if not isinstance(rules, dict):
        return rules
    return {
        name: own.lower() if name == "type" and isinstance(own, str) else _schema(own)
        for name, own in rules.items()
    }


def _camel(value: object, where: str = "The body") -> Record:
    """An object with the names of its fields as JSON has them; both spellings are taken."""
    own = parts.as_record(value, where)
    return {_SNAKE.sub(lambda m: m[1].upper(), name): each for name, each in own.items()}


def _messages(value: object, where: str, usual: str) -> list[Record]:
    """A content as messages: of each result of a function one of its own."""
    if isinstance(value, str):
        return [parts.message(usual, [value])]
    content = parts.as_record(value, where)
    role = content.get("role") or usual
    own: list[str | Record] = []
    calls, results = [], []
    for each, sent in parts.records(content.get("parts"), f"{where}.parts"):
        part = _camel(sent)
        part.pop("thoughtSignature", None)
        if part.pop("thought", None) and role == "model":
            continue
        if "text" in part:
            own.append(parts.as_text(part["text"], f"{each}.text"))
        elif "functionCall" in part:
            made = parts.as_record(part["functionCall"], each)
            calls.append(parts.call(made.get("name"), made.get("args"), made.get("id")))
        elif "functionResponse" in part:
            said = parts.as_record(part["functionResponse"], each)
            result = as_body(said.get("response")).decode()
            asked = {"tool_call_id": said.get("id") or said.get("name")}
            others = [{"type": "parts"}] if said.get("parts") else []
            results.append(parts.message("tool", [result, *others]) | asked)
        if len(part) != 1 or not {"text", "functionCall", "functionResponse"} & part.keys():
            own.append({"type": "part"})
    if own or calls or not results:
        role = "system" if usual == "system" else "assistant" if role == "model" else role
        results.append(parts.message(role, own, calls))
    return results


def whole(completion: RecordLike, _: Asked, __: Mapping[str, str]) -> Record:
    """Return a completion as a response with candidates."""
    usage = completion["usage"]
    thought = usage["completion_tokens_details"]["reasoning_tokens"]
    counts: dict[str, Any] = {
        "promptTokenCount": usage["prompt_tokens"],
        # thoughts are counted apart
        "candidatesTokenCount": usage["completion_tokens"] - (thought or 0),
        "totalTokenCount": usage["total_tokens"],
    }
    if thought:
        counts["thoughtsTokenCount"] = thought
    return {
        "candidates": [
            {
                "index": choice["index"],
                "content": {"role": "model", "parts": _parts(choice)},
                "finishReason": _REASONS.get(parts.reason(choice), "STOP"),
            }
            for choice in completion["choices"]
        ],
        "usageMetadata": counts,
        "modelVersion": completion["model"],
        "responseId": completion["id"],
    }


def stream(whole: RecordLike, asked: Asked, headers: Mapping[str, str]) -> Reply:
    """Return a response as a stream of such: events where the query says `alt=sse`, else the
    elements of an array.
    """
    pieces = map(orjson.dumps, _pieces(whole))
    if parse_qs(asked.path.get("query", "")).get("alt") == ["sse"]:
        return Reply(
            200, EVENT_STREAM | dict(headers), (b"data: %b\r\n\r\n" % piece for piece in pieces)
        )
    return Reply(200, {"content-type": "application/json", **headers}, _array(pieces))


def _array(pieces: Iterator[bytes]) -> Iterator[bytes]:
    before = b"["
    for piece in pieces:
        yield before + piece
        before = b",\r\n"
    yield b"]"


def _pieces(whole: RecordLike) -> Iterator[Record]:
    """The responses of a stream: each with a word of a candidate, the last one with all ends."""
    labels = {name: whole.get(name) for name in ("modelVersion", "responseId")}
    ends = []
    for candidate in whole.get("candidates", ()):
        content = candidate.get("content") or {}
        for part in content.get("parts", ()):
            said = part.get("text") if part.keys() <= {"text", "thought"} else None
            for own in [part | {"text": word} for word in words(said)] if said else [part]:
                piece = {"index": candidate.get("index", 0), "content": content | {"parts": [own]}}
                yield labels | {"candidates": [piece]}
        ends.append(candidate | {"content": content | {"parts": [{"text": ""}]}})
    yield {**whole, "candidates": ends}


def _parts(choice: RecordLike) -> list[Record]:
    own: list[Record] = []
    if thoughts := parts.thoughts(choice):
        own.append({"text": thoughts, "thought": True})
    if (text := parts.text(choice)) or not parts.calls(choice):
        own.append({"text": text})
    return own + [
        {"functionCall": {"id": number, "name": name, "args": parts.arguments(arguments)}}
        for number, name, arguments in parts.calls(choice)
    ]


def completion(reply: RecordLike) -> Record:
    """Return a vendor's reply as a chat completion."""
    messages: list[tuple[Record, str | None]] = []
    for candidate in reply["candidates"]:
        own = candidate.get("content", {}).get("parts", ())
        made = [part["functionCall"] for part in own if "functionCall" in part]
        message: Record = {
            "content": [
                {"type": "text" if "text" in part else "other"} | part
                for part in own
                if "functionCall" not in part
            ],
            "tool_calls": [
                parts.call(call["name"], call.get("args"), call.get("id")) for call in made
            ],
        }
        messages.append((message, _FINISHED.get(candidate.get("finishReason"))))
    usage = reply["usageMetadata"]
    thought, said = usage.get("thoughtsTokenCount") or 0, usage.get("candidatesTokenCount") or 0
    counts = (
        usage["promptTokenCount"], usage.get("cachedContentTokenCount"), thought + said, thought,
    )  # fmt: skip
    labels = {"id": reply.get("responseId"), "model": reply.get("modelVersion")}
    return parts.completion(labels, messages, counts)


def error(problem: ServingError) -> Record:
    """Return an error as clients of this dialect expect it."""
    usual = "INVALID_ARGUMENT" if problem.status < 500 else "INTERNAL"
    status = _ERRORS.get(problem.status, usual)
    return {"error": {"code": problem.status, "message": str(problem), "status": status}}


def counted(tokens: int) -> Record:
    """Return the reply of a count of tokens."""
    return {"totalTokens": tokens}


def models(known: Mapping[str, int]) -> Record:
    """Return the list of LLMs."""
    methods = ["generateContent", "countTokens"]
    return {
        "models": [
            {
                "name": f"models/{name}",
                "displayName": name,
                "version": "recorded",
                "supportedGenerationMethods": methods,
            }
            for name in known
        ]
    }

"""Google's Gemini: `generateContent` and its stream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from feval.serving.wire import parts
from feval.serving.wire.calls import ServingError
from feval.serving.wire.openai import as_body, words
from feval.serving.wire.parts import Asked, Fields, Said
from feval.values import Record, RecordLike

PATH = (
    r"/v1(?:beta1?|alpha)?/(?:.+?/)?models/(?P<model>.+):"
    r"(?:generateContent|(?P<stream>streamGenerateContent)|(?P<count>countTokens))"
)
_NAMES = {
    "candidateCount": "n", "maxOutputTokens": "max_tokens", "stopSequences": "stop",
    "topP": "top_p", "topK": "top_k", "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty", "responseModalities": "",
}  # fmt: skip
_MODES = {"ANY": "required", "NONE": "none"}
_ERRORS = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
_REASONS = {"length": "MAX_TOKENS", "refusal": "SAFETY"}
_FINISHED = {"STOP": "stop", "MAX_TOKENS": "length"} | dict.fromkeys(
    ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), "content_filter"
)
_SNAKE = re.compile(r"_([a-z])")


class _Fields(Fields):
    """Fields by their names in JSON; both spellings are taken."""

    def spelt(self, name: str) -> str:
        return _SNAKE.sub(lambda found: found[1].upper(), name)


def request(fields: Fields, path: Mapping[str, str]) -> Asked:
    """Return a request as a chat completion."""
    sent = _Fields(fields)
    if "count" in path and "generateContentRequest" in sent:
        sent = sent.record("generateContentRequest")
    sent.refuse("cachedContent")
    system, messages = _said(sent.record("systemInstruction")), []
    if system.content:
        messages.append(parts.message("system", system.content))
    for own in sent.records("contents"):
        role = own.get("role", "user")
        messages += _said(own).messages("assistant" if role == "model" else role)
    tools = []
    for group in sent.records("tools"):
        for own in group.records("functionDeclarations"):
            schema = own.get("parametersJsonSchema") or _schema(own.get("parameters"))
            tools.append(parts.tool(own, schema))
        if group:  # tools of Google's own
            tools.append(group | {"type": "builtin"})
    mode = sent.record("toolConfig").record("functionCallingConfig").get("mode")
    config = sent.record("generationConfig")
    kind, google = config.pop("responseMimeType", None), config.pop("responseSchema", None)
    rules = config.pop("responseJsonSchema", None) or _schema(google)
    chat: Record = config.rest(_NAMES) | sent.rest()
    chat |= {"model": path["model"], "messages": messages, "tools": tools}
    if rules or kind == "application/json":
        chat["response_format"] = parts.form(rules)
    chat["tool_choice"] = _MODES.get(str(mode))
    stream = "events" if "alt=sse" in path.get("query", "").split("&") else "array"
    return Asked(chat, stream if "stream" in path else "", path)


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


def _said(content: Fields) -> Said:
    said = Said()
    for part in content.records("parts"):
        part.pop("thoughtSignature", None)
        if part.pop("thought", None) and content.get("role") != "user":
            said.thoughts.append(part.text("text", ""))
        elif "text" in part:
            said.content.append(part.text("text"))
        elif call := part.record("functionCall"):
            said.call(call.get("name"), call.get("args"), call.get("id"))
        elif result := part.record("functionResponse"):
            others = [{"type": "parts"}] if result.get("parts") else []
            text = as_body(result.get("response")).decode()
            said.result([text, *others], result.get("id") or result.get("name"))
        if part:  # more than was taken
            said.content.append({"type": "part"})
    return said


def whole(completion: RecordLike, _: Asked, __: bool) -> Record:
    """Return a completion as a response with candidates."""
    usage, candidates = completion["usage"], []
    for choice in completion["choices"]:
        told = parts.told(choice)
        own: list[Record] = [
            *({"text": text, "thought": True} for text in told.thoughts),
            *({"text": text} for text in told.texts),
            *(
                {"functionCall": {"id": number, "name": name, "args": parts.arguments(text)}}
                for number, name, text in told.calls
            ),
        ]
        reason = _REASONS.get(told.reason, "STOP")
        candidates.append(_candidate(choice["index"], own) | {"finishReason": reason})
    thought = usage["completion_tokens_details"]["reasoning_tokens"] or 0
    counts = {
        "promptTokenCount": usage["prompt_tokens"],
        # thoughts are counted apart
        "candidatesTokenCount": usage["completion_tokens"] - thought,
        "thoughtsTokenCount": thought,
        "totalTokenCount": usage["total_tokens"],
    }
    return {
        "candidates": candidates,
        "usageMetadata": counts,
        "modelVersion": completion["model"],
        "responseId": completion["id"],
    }


def _candidate(index: int, own: list[Record]) -> Record:
    return {"index": index, "content": {"role": "model", "parts": own}}


def pieces(whole: RecordLike) -> Iterator[Record]:
    """Yield the responses of a stream: each with a word of a candidate, the last one with all
    ends.
    """
    labels = {name: whole.get(name) for name in ("modelVersion", "responseId")}
    ends = []
    for candidate in whole.get("candidates", ()):
        index = candidate.get("index", 0)
        for part in candidate.get("content", {}).get("parts", ()):
            said = words(part["text"]) if part.keys() <= {"text", "thought"} else []
            for own in [part | {"text": word} for word in said] or [part]:
                yield labels | {"candidates": [_candidate(index, [own])]}
        ends.append(candidate | _candidate(index, [{"text": ""}]))
    yield {**whole, "candidates": ends}


def completion(reply: Fields) -> Record:
    """Return a vendor's reply as a chat completion."""
    ended = [
        (_said(_Fields(own.get("content"))), _FINISHED.get(own.get("finishReason", "")))
        for own in reply.records("candidates")
    ]
    usage = reply.record("usageMetadata")
    thought, said = usage.get("thoughtsTokenCount") or 0, usage.get("candidatesTokenCount") or 0
    counts = (
        usage["promptTokenCount"], usage.get("cachedContentTokenCount"), thought + said, thought,
    )  # fmt: skip
    labels = {"id": reply.get("responseId"), "model": reply.get("modelVersion")}
    return parts.completion(labels, ended, counts)


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
    data = [
        {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
        for name in known
    ]
    return {"models": data}

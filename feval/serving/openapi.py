"""The server described in OpenAPI 3.1: every request and every reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from feval import __version__
from feval.serving.runs import COUNTED
from feval.serving.wire.openai import FEW_SHOT, ChatRequest, TextRequest
from feval.values import Record

RUN_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@(recorded|[0-9]{1,9}))?$"

_Schema = dict[str, Any]


def description(models: Sequence[str] = ()) -> Record:
    """Return the description as a JSON object, with the names of some served models as examples."""
    paths: Record = {}
    for path, method, name, operation in _operations(models):
        paths.setdefault(path, {})[method] = {"operationId": name} | operation
        in_run = paths.setdefault(f"/run/{{run}}{path}", {"parameters": [_RUN_IN_PATH]})
        in_run[method] = {"operationId": f"{name}InRun"} | operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "feval replay",
            "version": __version__,
            "summary": "Recorded chains of thought in OpenAI's dialect.",
            "description": (
                "Identical requests walk through the recorded CoTs of a question without"
                " replacement. Every run (path prefix, header X-Feval-Run, or API key) has its own"
                " place in every pool and its own ledger. Responses, Anthropic's Messages, Gemini's"
                " and Ollama's requests are answered, too, as their vendors describe them."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": _requests(models) | _replies() | _accounts(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operations(models: Sequence[str]) -> list[tuple[str, str, str, Record]]:
    """Path, method, id and the rest of every operation."""
    name = {"type": "string", "minLength": 1} | ({"examples": list(models[:8])} if models else {})
    model = {"name": "model", "in": "path", "required": True, "schema": name}
    up, ledger = "Whether the server is up, and what it serves.", "What was handed out."
    grade = "Accuracy and cost of a run's final answers, with a receipt for `feval verify`."
    reset = "Start a run again: its draws, its place in every pool and its ledger."
    return [
        ("/v1/chat/completions", "post", "createChatCompletion", _completion("Chat")),
        ("/v1/completions", "post", "createCompletion", _completion("Text")),
        ("/v1/models", "get", "listModels", _operation("The LLMs that are served.", "Models")),
        ("/v1/models/{model}", "get", "readModel", _operation("One of them.", "Model", [model])),
        ("/feval/health", "get", "readHealth", _operation(up, "Anything")),
        ("/feval/ledger", "get", "readLedger", _operation(ledger, "LedgerOrLedgers", _QUERY)),
        ("/feval/grade", "post", "gradeAnswers", _operation(grade, "Graded", body="Answers")),
        ("/feval/reset", "post", "resetRun", _operation(reset, "Anything", _HEADERS[:1])),
        ("/openapi.json", "get", "readDescription", _operation("This description.", "Anything")),
    ]


def _completion(what: str) -> Record:
    ok = {
        "description": "Recorded CoTs; as events where the request says `stream`.",
        "headers": {
            name: {"schema": {"type": "string"}, "description": text}
            for name, text in _REPLY_HEADERS.items()
        },
        "content": {
            "application/json": {"schema": _ref(f"{what}Completion")},
            "text/event-stream": {"schema": _ref("Event")},
        },
    }
    summary = f"{what} completions from the recording."
    return _operation(summary, f"{what}Completion", _HEADERS, f"{what}Request", ok)


def _operation(
    summary: str,
    reply: str,
    parameters: Sequence[_Schema] = (),
    body: str | None = None,
    ok: _Schema | None = None,
) -> Record:
    statuses = ("400", "404", "401", "403", "405", *(["413"] if body else []))
    errors = {status: _content("Error", _STATUSES[status]) for status in statuses}
    operation = {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {"200": ok or _content(reply, "The result.")} | errors,
    }
    if body:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(body)}},
        }
    return operation


def _content(schema: str, text: str) -> Record:
    return {"description": text, "content": {"application/json": {"schema": _ref(schema)}}}


_STATUSES = {
    "400": (
        "The request is wrong, was not recorded, matches several things, or asks for more CoTs than"
        " are left."
    ),
    "401": "The server requires its token.",
    "403": "The request came from a web page, or for another host.",
    "404": "There is no such model, run or path.",
    "405": "The path takes other methods.",
    "413": "The body is too long.",
}
_REPLY_HEADERS = {
    "X-Feval-Run": "The run.",
    "X-Feval-Question": "Id of the question, percent-encoded where it is not ASCII.",
    "X-Feval-Dataset": "Id of its dataset.",
    "X-Feval-Llm": "Name of the recorded LLM.",
    "X-Feval-Samples": "Recorded positions of the CoTs, such as 17,3,22.",
    "X-Feval-Cost-Usd": "What the request added to the ledger.",
    "X-Feval-Remaining": "CoTs of the pool that the run has not got yet.",
    "X-Feval-Match": "How the question was found: request, question, few-shot or id.",
    "X-Feval-Ignored": "Fields of the request without effect.",
    "X-Feval-Pass": (
        "In which pass of the run the question is asked, if not in the first; another run starts"
        " again."
    ),
    "X-Feval-Recycled": "How many of the CoTs the run had got before.",
    "X-Feval-Cut": "How many of the CoTs `stop` or the limit of the request cut.",
    "X-Feval-Limited": "How many of the CoTs ended at a recorded limit below the one asked for.",
    "X-Feval-Unknown": "Parts of the reply that were not recorded.",
}
_RUN_IN_PATH = {
    "name": "run",
    "in": "path",
    "required": True,
    "description": "Name of the run, with @R for replicate R or @recorded for recorded order.",
    "schema": {
        "type": "string",
        "pattern": RUN_PATTERN,
        "examples": ["my-run", "my-run@3", "my-run@recorded"],
    },
}


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(**schemas: _Schema) -> dict[str, _Schema]:
    return {name: {"anyOf": [each, {"type": "null"}]} for name, each in schemas.items()}


def _object(
    required: Mapping[str, _Schema], optional: Mapping[str, _Schema] | None = None
) -> _Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }


_TEXT: _Schema = {"type": "string"}
_ANYTHING: _Schema = {"type": "object"}
_TEXT_OR_NULL: _Schema = {"type": ["string", "null"]}
_COUNT: _Schema = {"type": "integer", "minimum": 0}
_INTEGER: _Schema = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_ANSWER: _Schema = {"type": ["string", "number", "null"]}
_BY_QUESTION: _Schema = {
    "type": "object",
    "additionalProperties": _ANSWER,
    "description": "Id or text of a question to the final answer, or null.",
}
_ONE_ANSWER: Mapping[str, _Schema] = {"question": _TEXT, "answer": _ANSWER}
_ID_HEADER: _Schema = {"type": "string", "pattern": "^[!-~]+$"}
_HEADERS: list[_Schema] = [
    {"name": "X-Feval-Run", "in": "header", "schema": {"type": "string", "pattern": RUN_PATTERN}},
    {"name": "X-Feval-Question", "in": "header", "schema": _ID_HEADER},
    {"name": "X-Feval-Dataset", "in": "header", "schema": _ID_HEADER},
    {
        "name": "X-Feval-Sample",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[0-9]{1,9}$"},
    },
    {"name": "X-Feval-Few-Shot", "in": "header", "schema": {"enum": list(FEW_SHOT)}},
]
_QUERY: list[_Schema] = [
    {"name": "run", "in": "query", "schema": {"type": "string", "pattern": RUN_PATTERN}},
    {"name": "detail", "in": "query", "schema": {"enum": ["0", "1"]}},
]


def _requests(models: Sequence[str]) -> dict[str, _Schema]:
    kinds: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (ChatRequest, "validation"),
        (TextRequest, "validation"),
    ]
    _, definitions = models_json_schema(kinds, ref_template="#/components/schemas/{model}")
    schemas: dict[str, _Schema] = definitions["$defs"]
    if models:
        for kind, _ in kinds:
            schemas[kind.__name__]["properties"]["model"]["examples"] = list(models[:8])
    answers = {"anyOf": [_BY_QUESTION, {"type": "array", "items": _object(_ONE_ANSWER)}]}
    return schemas | {"Answers": _object({"answers": answers}, _or_null(run=_TEXT, dataset=_TEXT))}


def _replies() -> dict[str, _Schema]:
    message = _object(
        {"role": {"const": "assistant"}, "content": _TEXT, "refusal": _TEXT_OR_NULL},
        {"reasoning": _TEXT, "reasoning_content": _TEXT},
    )
    logprobs: _Schema = {"type": ["object", "null"]}
    choice = {"index": _COUNT, "finish_reason": _TEXT, "logprobs": logprobs}
    whole = {
        "id": _TEXT,
        "created": _INTEGER,
        "model": _TEXT,
        "system_fingerprint": _TEXT,
        "usage": _ref("Usage"),
    }

    def completion(kind: str, **content: _Schema) -> _Schema:
        each = _object(choice | content, {"feval": _ANYTHING})
        choices = {"type": "array", "items": each, "minItems": 1}
        return _object(whole | {"object": {"const": kind}, "choices": choices})

    model = _object(
        {"id": _TEXT, "object": {"const": "model"}, "created": _INTEGER, "owned_by": _TEXT}
    )
    error = {"message": _TEXT, "type": _TEXT, "param": _TEXT_OR_NULL, "code": _TEXT_OR_NULL}
    return {
        "Usage": _object(
            {"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT},
            {
                "prompt_tokens_details": _ANYTHING,
                "completion_tokens_details": _object(_or_null(reasoning_tokens=_COUNT)),
            },
        ),
        "ChatCompletion": completion("chat.completion", message=message),
        "TextCompletion": completion("text_completion", text=_TEXT),
        "Model": model,
        "Models": _object({"object": {"const": "list"}, "data": {"type": "array", "items": model}}),
        "Error": (
            _object({"error": _object(error) | {"additionalProperties": False}})
            | {"additionalProperties": False}
        ),
        "Anything": _ANYTHING,
        "Event": {"description": "A chunk of the completion; the last one is [DONE]."},
    }


def _accounts() -> dict[str, _Schema]:
    run = {
        "run": _TEXT,
        **dict.fromkeys(COUNTED, _COUNT),
        **_or_null(replicate=_INTEGER, prompt_tokens=_COUNT, usd={"type": "number", "minimum": 0}),
        "llms": {"type": "object", "additionalProperties": _ANYTHING},
    }
    optional = {"asked": {"type": "array"}, "prompts": {"type": "array"}, "usd_missing": _TEXT}
    return {
        "Ledger": _object(run, optional),
        "Graded": _object(
            {"grade": _ANYTHING, "remarks": {"type": "array", "items": _TEXT}, "receipt": _ANYTHING}
        ),
        "Ledgers": _object({"runs": {"type": "array", "items": _ref("Ledger")}}),
        "LedgerOrLedgers": {"anyOf": [_ref("Ledger"), _ref("Ledgers")]},
    }

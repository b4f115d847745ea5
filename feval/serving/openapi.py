"""The server described in OpenAPI 3.1: every request and every reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feval import __version__
from feval.serving.requests import FEW_SHOT

RUN_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@(recorded|[0-9]{1,9}))?$"

_Schema = dict[str, Any]


def description(models: Sequence[str] = ()) -> dict[str, Any]:
    """Return the description as a JSON object, with the names of some served models as examples."""
    paths: dict[str, Any] = {}
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
                " place in every pool and its own ledger."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(models),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operations(models: Sequence[str]) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Path, method, id and the rest of every operation."""
    name = {"type": "string", "minLength": 1} | ({"examples": list(models[:8])} if models else {})
    model = {"name": "model", "in": "path", "required": True, "schema": name}
    up, ledger = "Whether the server is up, and what it serves.", "What was handed out."
    grade = _content("Graded", "The grade, and a receipt that `feval verify` computes again.")
    reset = "Start a run again: its draws, its place in every pool and its ledger."
    return [
        (
            "/v1/chat/completions",
            "post",
            "createChatCompletion",
            _completion("Chat", "ChatRequest", "ChatCompletion"),
        ),
        (
            "/v1/completions",
            "post",
            "createCompletion",
            _completion("Text", "CompletionRequest", "TextCompletion"),
        ),
        (
            "/v1/models",
            "get",
            "listModels",
            _operation("The LLMs that are served.", _result("Models")),
        ),
        (
            "/v1/models/{model}",
            "get",
            "readModel",
            _operation("One of these LLMs.", _result("Model"), [model]),
        ),
        ("/feval/health", "get", "readHealth", _operation(up, _result("Health"))),
        (
            "/feval/ledger",
            "get",
            "readLedger",
            _operation(ledger, _result("LedgerOrLedgers"), _LEDGER_QUERY),
        ),
        (
            "/feval/grade",
            "post",
            "gradeAnswers",
            _operation("Accuracy and cost of a run's final answers.", grade, body="Answers"),
        ),
        ("/feval/reset", "post", "resetRun", _operation(reset, _result("Anything"), _HEADERS[:1])),
        (
            "/openapi.json",
            "get",
            "readDescription",
            _operation("This description.", _result("Anything")),
        ),
    ]


def _completion(what: str, request: str, reply: str) -> dict[str, Any]:
    ok = {
        "description": "Recorded CoTs; as events where the request says `stream`.",
        "headers": {
            name: {"schema": {"type": "string"}, "description": text}
            for name, text in _REPLY_HEADERS.items()
        },
        "content": {
            "application/json": {"schema": _ref(reply)},
            "text/event-stream": {"schema": _ref("Event")},
        },
    }
    return _operation(f"{what} completions from the recording.", ok, _HEADERS, body=request)


def _operation(
    summary: str, reply: dict[str, Any], parameters: Sequence[_Schema] = (), body: str | None = None
) -> dict[str, Any]:
    statuses = ("400", "404", "401", "403", "405", *(["413"] if body else []))
    errors = {status: _content("Error", _STATUSES[status]) for status in statuses}
    operation = {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {"200": reply} | errors,
    }
    if body:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(body)}},
        }
    return operation


def _result(schema: str) -> dict[str, Any]:
    return _content(schema, "The result.")


def _content(schema: str, text: str) -> dict[str, Any]:
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


def _or_null(schema: _Schema) -> _Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(
    required: Mapping[str, _Schema], optional: Mapping[str, _Schema] | None = None
) -> _Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }


_TEXT: _Schema = {"type": "string"}
_COUNT: _Schema = {"type": "integer", "minimum": 0}
_INTEGER: _Schema = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_NUMBER: _Schema = {"type": "number"}
_FLAG: _Schema = {"type": "boolean"}
_ANSWER: _Schema = {"type": ["string", "number", "null"]}
_BY_QUESTION: _Schema = {
    "type": "object",
    "additionalProperties": _ANSWER,
    "description": "Id or text of a question to the final answer, or null.",
}
_ONE_ANSWER: Mapping[str, _Schema] = {"question": _TEXT, "answer": _ANSWER}
_N: _Schema = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
_WORDS: _Schema = {"type": "string", "minLength": 1}
_OPTIONAL_TEXTS: _Schema = {"anyOf": [_WORDS, {"type": "array", "items": _WORDS}, {"type": "null"}]}
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
_LEDGER_QUERY: list[_Schema] = [
    {"name": "run", "in": "query", "schema": {"type": "string", "pattern": RUN_PATTERN}},
    {"name": "detail", "in": "query", "schema": {"enum": ["0", "1"]}},
]


def _schemas(models: Sequence[str]) -> dict[str, _Schema]:
    model: _Schema = {
        "type": "string",
        "minLength": 1,
        "description": "Name of a recorded LLM; see /v1/models.",
    }
    if models:
        model |= {"examples": list(models[:8])}
    return _requests(model) | _replies() | _accounts()


def _requests(model: _Schema) -> dict[str, _Schema]:
    extension = _object(
        {},
        {
            "question": _or_null(_TEXT),
            "dataset": _or_null(_TEXT),
            "sample": _or_null(_COUNT),
            "few_shot": _or_null({"enum": list(FEW_SHOT)}),
        },
    )
    shared = {
        "n": _or_null(_N),
        "stream": _or_null(_FLAG),
        "stream_options": _or_null(_object({}, {"include_usage": _or_null(_FLAG)})),
        "temperature": _or_null(_NUMBER),
        "top_p": _or_null(_NUMBER),
        "presence_penalty": _or_null(_NUMBER),
        "frequency_penalty": _or_null(_NUMBER),
        "max_tokens": _or_null(_N),
        "seed": _or_null(_INTEGER),
        "stop": _OPTIONAL_TEXTS,
        "metadata": _or_null({"type": "object", "additionalProperties": _TEXT}),
        "feval": _or_null(extension | {"additionalProperties": False}),
    }
    part = {
        "oneOf": [
            _object({"type": {"const": "text"}, "text": _TEXT}),
            _object({"type": {"const": "image_url"}}),
        ]
    }
    content = {"anyOf": [_TEXT, {"type": "array", "items": part}, {"type": "null"}]}
    chat = {
        "max_completion_tokens": _or_null(_N),
        "logprobs": _or_null(_FLAG),
        "top_logprobs": _or_null(_COUNT | {"maximum": 20}),
        "tools": _or_null({"type": "array"}),
        "response_format": _or_null({"type": "object"}),
    }
    text = {
        "logprobs": _or_null(_COUNT | {"maximum": 20}),
        "best_of": _or_null(_INTEGER),
        "echo": _or_null({"const": False}),
    }
    prompt = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 1024}]}
    return {
        "Message": _object({"role": {"type": "string", "minLength": 1}}, {"content": content}),
        "ChatRequest": _object(
            {
                "model": model,
                "messages": {"type": "array", "items": _ref("Message"), "minItems": 1},
            },
            shared | chat,
        ),
        "CompletionRequest": _object({"model": model, "prompt": prompt}, shared | text),
        "Answers": _object(
            {
                "answers": {
                    "anyOf": [_BY_QUESTION, {"type": "array", "items": _object(_ONE_ANSWER)}]
                }
            },
            {name: {"type": ["string", "null"]} for name in ("run", "dataset")},
        ),
    }


def _replies() -> dict[str, _Schema]:
    finish: _Schema = {"type": "string"}
    logprobs: _Schema = {"type": ["object", "null"]}
    extra = {"feval": {"type": "object"}}
    message = _object(
        {
            "role": {"const": "assistant"},
            "content": {"type": "string"},
            "refusal": {"type": ["string", "null"]},
        },
        {"reasoning": _TEXT, "reasoning_content": _TEXT},
    )
    choice = {"index": _COUNT, "finish_reason": finish, "logprobs": logprobs}
    whole = {
        "id": _TEXT,
        "created": _INTEGER,
        "model": _TEXT,
        "system_fingerprint": _TEXT,
        "usage": _ref("Usage"),
    }
    model = _object(
        {"id": _TEXT, "object": {"const": "model"}, "created": _INTEGER, "owned_by": _TEXT}
    )
    error = {
        "message": _TEXT,
        "type": _TEXT,
        "param": {"type": ["string", "null"]},
        "code": {"type": ["string", "null"]},
    }
    return {
        "Usage": _object(
            {"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT},
            {
                "prompt_tokens_details": {"type": "object"},
                "completion_tokens_details": _object(
                    {"reasoning_tokens": {"type": ["integer", "null"], "minimum": 0}}
                ),
            },
        ),
        "ChatCompletion": _object(
            whole
            | {
                "object": {"const": "chat.completion"},
                "choices": {
                    "type": "array",
                    "items": _object(choice | {"message": message}, extra),
                    "minItems": 1,
                },
            }
        ),
        "TextCompletion": _object(
            whole
            | {
                "object": {"const": "text_completion"},
                "choices": {
                    "type": "array",
                    "items": _object(choice | {"text": _TEXT}, extra),
                    "minItems": 1,
                },
            }
        ),
        "Model": model,
        "Models": _object({"object": {"const": "list"}, "data": {"type": "array", "items": model}}),
        "Error": (
            _object({"error": _object(error) | {"additionalProperties": False}})
            | {"additionalProperties": False}
        ),
        "Anything": {"type": "object"},
        "Event": {"description": "A chunk of the completion; the last one is [DONE]."},
        "Health": {"type": "object"},
    }


def _accounts() -> dict[str, _Schema]:
    counts = {
        "requests": _COUNT,
        "cots": _COUNT,
        "prompt_tokens": {"type": ["integer", "null"], "minimum": 0},
        "output_tokens": _COUNT,
        "usd": {"type": ["number", "null"], "minimum": 0},
        "questions": _COUNT,
        "recycled": _COUNT,
        "cut": _COUNT,
        "limited": _COUNT,
        "asked_again": _COUNT,
    }
    run = {
        "run": _TEXT,
        "replicate": {"type": ["integer", "null"]},
        "llms": {"type": "object", "additionalProperties": {"type": "object"}},
    }
    optional = {"asked": {"type": "array"}, "prompts": {"type": "array"}, "usd_missing": _TEXT}
    return {
        "Ledger": _object(run | counts, optional),
        "Graded": _object(
            {
                "grade": {"type": "object"},
                "remarks": {"type": "array", "items": _TEXT},
                "receipt": {"type": "object"},
            }
        ),
        "Ledgers": _object({"runs": {"type": "array", "items": _ref("Ledger")}}),
        "LedgerOrLedgers": {"anyOf": [_ref("Ledger"), _ref("Ledgers")]},
    }

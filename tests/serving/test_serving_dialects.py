"""Dialects of other vendors: the same CoTs, tokens and ledger as in OpenAI's, in the shapes that
their clients read; the real clients vote in `tests/clients`.
"""

import io
import json
from collections import Counter

import httpx2
import orjson
import pytest
from hypothesis import given, settings, strategies as st
from json_values import json_values
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter
from serving_doubles import (
    asked_by_text,
    assistant,
    body,
    chat,
    get,
    opened,
    rows,
    simple,
    texts_of,
    user,
    write,
)

from feval.cli.output import Output
from feval.cli.servers import runs_table
from feval.recording import LLMInfo
from feval.serving import Call, ReplayTransport
from feval.serving.wire.dialects import error_shape, of_path, responses
from feval.serving.wire.parts import Fields

MODEL = "gpt-3.5-turbo"
QUESTIONS = [f"What is the answer to question number {i}, please?" for i in range(3)]
PATHS = {
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": f"/v1beta/models/{MODEL}:generateContent",
    "ollama": "/api/chat",
    "generate": "/api/generate",
}


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return simple(tmp_path_factory.mktemp("dialects") / "r", QUESTIONS, size=70)


@pytest.fixture
def app(recording):
    with opened(recording) as application:
        yield application


def fields_of(name, text, **fields):
    if name == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]} | fields
    own = {
        "responses": {"input": text},
        "anthropic": {"messages": [user(text)], "max_tokens": 64},
        "ollama": {"messages": [user(text)], "stream": False},
        "generate": {"prompt": text, "stream": False},
    }[name]
    return {"model": MODEL} | own | fields


def asked(name, text=QUESTIONS[0], *, path=None, query="", headers=None, **fields):
    raw = json.dumps(fields_of(name, text, **fields)).encode()
    return Call("POST", path or PATHS[name], query, headers or {}, raw)


def said(name, reply):
    """Text, output tokens and whether it ended by itself."""
    assert reply.status == 200, reply.body
    own = body(reply)
    if name == "responses":
        tokens, whole = own["usage"]["output_tokens"], own["status"] == "completed"
        return own["output"][-1]["content"][0]["text"], tokens, whole
    if name == "anthropic":
        return (
            own["content"][-1]["text"],
            own["usage"]["output_tokens"],
            own["stop_reason"][:3] != "max",
        )
    if name == "gemini":
        [choice], usage = own["candidates"], own["usageMetadata"]
        return (
            choice["content"]["parts"][-1]["text"],
            usage["candidatesTokenCount"],
            (choice["finishReason"] == "STOP"),
        )
    text = own["response"] if name == "generate" else own["message"]["content"]
    return text, own["eval_count"], own["done_reason"] == "stop"


@pytest.mark.parametrize("name", PATHS)
def test_each_walks_through_the_same_draw(name, recording):
    with opened(recording) as app:
        plain = [app.respond(chat(text)) for text in QUESTIONS for _ in range(3)]
        ledger = app.ledger("default")
    with opened(recording) as app:
        replies = [app.respond(asked(name, text)) for text in QUESTIONS for _ in range(3)]
        assert app.ledger("default") == ledger
    assert [said(name, own) for own in replies] == [
        (texts_of(own)[0], body(own)["usage"]["completion_tokens"], True) for own in plain
    ]
    same = [name for name in plain[0].headers if name.startswith("x-feval")]
    assert [[own.headers[each] for each in same] for own in replies] == [
        [own.headers[each] for each in same] for own in plain
    ]


def data_of(reply):
    """The objects of a stream of events, whose names are their types."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = []
    for event in b"".join(reply.body).replace(b"\r\n", b"\n").decode().split("\n\n")[:-1]:
        *named, data = event.split("\n")
        found.append(orjson.loads(data.removeprefix("data: ")))
        assert named in ([], [f"event: {found[-1].get('type')}"])
    return found


def test_streams_hold_the_whole_reply(app, recording):
    with opened(recording) as other:
        whole = {name: said(name, other.respond(asked(name))) for name in ("anthropic",)}
        text, tokens, _ = whole["anthropic"]
    own = {"x-feval-run": "a"}
    events = data_of(app.respond(asked("anthropic", stream=True, headers=own)))
    assert [each["type"] for each in events[:2]] == ["message_start", "content_block_start"]
    deltas = [each["delta"]["text"] for each in events if each["type"] == "content_block_delta"]
    assert ("".join(deltas), len(deltas) > 3) == (text, True)
    assert events[-2]["usage"]["output_tokens"] == tokens
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}

    own = {"x-feval-run": "b"}
    events = data_of(app.respond(asked("responses", stream=True, headers=own)))
    assert [each["sequence_number"] for each in events] == [*range(len(events))]
    deltas = [each["delta"] for each in events if each["type"].endswith("text.delta")]
    final = events[-1]["response"]
    assert (events[-1]["type"], final["usage"]["output_tokens"]) == ("response.completed", tokens)
    assert "".join(deltas) == final["output"][0]["content"][0]["text"] == text

    path = PATHS["gemini"].replace(":g", ":streamG")
    for query, run in (("alt=sse", "c"), ("", "d")):
        call = asked("gemini", path=path, query=query, headers={"x-feval-run": run})
        reply = app.respond(call)
        parts = data_of(reply) if query else body(reply)
        words = [each["candidates"][0]["content"]["parts"][0]["text"] for each in parts]
        assert "".join(words) == text
        assert parts[-1]["usageMetadata"]["candidatesTokenCount"] == tokens
        assert parts[-1]["candidates"][0]["finishReason"] == "STOP"

    for name, run in (
        ("ollama", "e"),
        ("generate", "f"),
    ):  # these stream unless they are told not to
        reply = app.respond(asked(name, stream=None, headers={"x-feval-run": run}))
        lines = [orjson.loads(line) for line in b"".join(reply.body).splitlines()]
        words = [
            each.get("response") or each.get("message", {}).get("content", "") for each in lines
        ]
        assert "".join(words) == text
        assert [each["done"] for each in lines] == [False] * (len(lines) - 1) + [True]
        assert lines[-1]["eval_count"] == tokens


def test_candidates_and_limits_follow_the_dialect(app):
    config = {"candidateCount": 3}
    several = body(app.respond(asked("gemini", generationConfig=config)))
    assert [each["index"] for each in several["candidates"]] == [0, 1, 2]
    assert (
        several["usageMetadata"]["candidatesTokenCount"] == app.ledger("default")["output_tokens"]
    )
    for name, fields in {
        "responses": {"max_output_tokens": 4},
        "anthropic": {"max_tokens": 4},
        "gemini": {"generationConfig": {"max_output_tokens": 4}},  # both spellings are taken
        "ollama": {"options": {"num_predict": 4}},
    }.items():
        text, tokens, whole = said(name, app.respond(asked(name, **fields)))
        assert (text[:2], len(text) < 24, tokens, whole) == ("q0", True, 4, False)
    assert said("ollama", app.respond(asked("ollama", options={"num_predict": -1})))[2]
    for stops, named in ((["thought"], "thought"), (["thought", "answer"], None)):
        own = body(app.respond(asked("anthropic", stop_sequences=stops)))
        assert (own["stop_reason"], own["stop_sequence"]) == ("stop_sequence", named)
        assert own["content"][0]["text"].endswith(", ")
    for name, fields in {
        "gemini": {"generationConfig": {"stopSequences": ["thought"]}},
        "generate": {"options": {"stop": "thought"}},
    }.items():
        assert said(name, app.respond(asked(name, **fields)))[0].endswith(", ")


def test_instructions_are_the_recorded_system_prompt(tmp_path):
    [question] = asked_by_text(QUESTIONS[:1])
    prompt = orjson.dumps(
        [{"role": "system", "content": "Be brief."}, user(question.text)]
    ).decode()
    own = rows(question, size=9, prompt=prompt)
    with opened(write(tmp_path / "r", [(LLMInfo(MODEL, 0.7, 64), [own])], [question])) as app:
        for name, fields in {
            "responses": {"instructions": "Be brief."},
            "anthropic": {"system": [{"type": "text", "text": "Be brief."}]},
            "gemini": {"system_instruction": {"parts": [{"text": "Be brief."}]}},
            "ollama": {
                "messages": [{"role": "system", "content": "Be brief."}, user(question.text)]
            },
            "generate": {"system": "Be brief."},
        }.items():
            reply = app.respond(asked(name, **fields))
            assert reply.headers["x-feval-match"] == "request", name


def test_recorded_thoughts_are_blocks_of_their_own(tmp_path):
    path = simple(
        tmp_path / "r", QUESTIONS[:1], texts=["It is 1."] * 4, reasoning=["I think so."] * 4,
        extra={"reasoning_tokens": [3] * 4}, output_tokens=[6] * 4,
    )  # fmt: skip
    with opened(path) as app:
        blocks = body(app.respond(asked("anthropic")))["content"]
        assert [each.get("thinking") or each["text"] for each in blocks] == [
            "I think so.",
            "It is 1.",
        ]
        own = body(app.respond(asked("responses")))
        assert [each["type"] for each in own["output"]] == ["reasoning", "message"]
        assert own["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}
        own = body(app.respond(asked("gemini")))
        assert own["candidates"][0]["content"]["parts"][0] == {
            "text": "I think so.",
            "thought": True,
        }
        assert own["usageMetadata"] == {
            "promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 13,
            "thoughtsTokenCount": 3,
        }  # fmt: skip
        own = body(app.respond(asked("ollama")))
        assert (own["message"]["thinking"], own["message"]["content"]) == (
            "I think so.",
            "It is 1.",
        )


def test_a_response_is_continued_within_its_run(tmp_path):
    first, second = asked_by_text(QUESTIONS[:2])
    replies = ["Why?"] * 2
    turns = [user(first.text), assistant("Why?"), user(second.text)]
    path = write(
        tmp_path / "r",
        [(LLMInfo(MODEL, 0.7, 64), [
            rows(first, 2, texts=replies), rows(second, 2, prompt=orjson.dumps(turns).decode()),
        ])],
        [first, second],
    )  # fmt: skip
    with opened(path) as app:
        name = body(app.respond(asked("responses", store=True)))["id"]
        again = {"input": second.text, "previous_response_id": name}
        reply = app.respond(asked("responses", **again))
        assert reply.headers["x-feval-match"] == "request"
        assert body(reply)["previous_response_id"] == name
        other = app.respond(asked("responses", **again, headers={"x-feval-run": "other"}))
        assert (other.status, body(other)["error"]["code"]) == (400, "previous_response_not_found")
        unkept = body(app.respond(asked("responses", store=False)))["id"]
        assert (
            app.respond(asked("responses", **again | {"previous_response_id": unkept})).status
            == 400
        )


def test_tokens_are_counted_of_recorded_prompts_only(app):
    path = "/v1/messages/count_tokens"
    assert body(app.respond(asked("anthropic", path=path))) == {"input_tokens": 7}
    path = PATHS["gemini"].replace("generateContent", "countTokens")
    assert body(app.respond(asked("gemini", path=path))) == {"totalTokens": 7}
    wrapped = {"generateContentRequest": fields_of("gemini", QUESTIONS[0])}
    assert body(app.respond(asked("gemini", "", path=path, **wrapped))) == {"totalTokens": 7}
    other = app.respond(asked("gemini", f"So: {QUESTIONS[0]}", path=path))
    assert other.status == 400
    assert "Only the tokens of recorded prompts are known" in body(other)["error"]["message"]
    assert app.ledger()["runs"] == []


def test_llms_are_listed_in_each_shape(app):
    def listed(path, **headers):
        call = Call("GET", path, "", {name.replace("_", "-"): "x" for name in headers}, b"")
        return body(app.respond(call))

    assert listed("/v1/models")["data"][0]["object"] == "model"
    assert listed("/v1/models", anthropic_version="")["data"][0]["type"] == "model"
    gemini = f"models/{MODEL}"
    assert listed("/v1/models", x_goog_api_key="")["models"][0]["name"] == gemini
    assert listed("/run/x/v1beta/models")["models"][0]["name"] == gemini
    assert listed("/api/tags")["models"][0]["name"] == MODEL


@pytest.mark.parametrize(
    ("path", "query", "headers", "run"),
    [
        ("/run/mine@1{}", "", {}, "mine@1"),
        ("{}", "", {"x-feval-run": "mine"}, "mine"),
        ("{}", "", {"authorization": "Bearer mine"}, "mine"),
        ("{}", "", {"x-api-key": "mine"}, "mine"),
        ("{}", "", {"api-key": "mine"}, "mine"),
        ("{}", "", {"x-goog-api-key": "mine"}, "mine"),
        ("{}", "key=mine&alt=sse", {}, "mine"),
    ],
)
def test_runs_are_named_as_the_dialect_sends_keys(path, query, headers, run, app):
    for name in PATHS:
        call = asked(name, path=path.format(PATHS[name]), query=query, headers=headers)
        assert app.respond(call).headers["x-feval-run"] == run


def test_azure_and_engines_name_the_llm_in_the_path(app):
    for path in (
        f"/openai/deployments/{MODEL}/chat/completions",
        f"/run/mine/v1/engines/{MODEL}/chat/completions",
        f"/engines/{MODEL}/chat/completions",
        "/openai/v1/chat/completions",
    ):
        body_of = {"messages": [user(QUESTIONS[0])]}
        model = {"model": MODEL if "/v1/chat" in path else "another"}
        call = Call("POST", path, "api-version=1", {}, orjson.dumps(body_of | model))
        assert app.respond(call).status == 200, path
    reply = app.respond(asked("responses", path="/openai/responses"))
    assert reply.status == 200


def test_errors_have_the_status_and_shape_that_clients_read(app):
    for name, path in PATHS.items():
        unknown = {"path": path.replace(MODEL, "gpt-9")} if name == "gemini" else {"model": "gpt-9"}
        problems = {
            404: app.respond(asked(name, **unknown)),
            400: app.respond(asked(name, "Is this asked nowhere?")),
            405: app.respond(Call("GET", path, "", {}, b"")),
        }
        for status, reply in problems.items():
            assert reply.status == status, (name, status, reply)
            own = body(reply)["error"]
            if name == "anthropic":
                kind = {404: "not_found_error"}.get(status, "invalid_request_error")
                assert (body(reply)["type"], own["type"]) == ("error", kind)
            elif name == "gemini":
                kind = {404: "NOT_FOUND"}.get(status, "INVALID_ARGUMENT")
                assert (own["code"], own["status"]) == (status, kind)
            elif name == "responses":
                assert own["code"] in ("model_not_found", "not_recorded", None)
            message = own if name in ("ollama", "generate") else own["message"]
            assert message.endswith((".", ")")), message


ARGS, RESULT = {"args": {"a": 1}}, {"name": "add", "response": 2}
CALLED = {"name": "add", "arguments": '{"a":1}'}
TOOL = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("anthropic", {
            "tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any"},
            "messages": [
                user("Add."),
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "...", "signature": ""},
                    {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "2"},
                ]},
            ],
        }),
        ("responses", {
            "tools": [{"type": "function", **TOOL}],
            "tool_choice": "required",
            "input": [
                user("Add."),
                {"type": "reasoning", "id": "r", "summary": []},
                {"type": "function_call", "call_id": "c", **CALLED},
                {"type": "function_call_output", "call_id": "c", "output": "2"},
            ],
        }),
        ("gemini", {
            "tools": [{"functionDeclarations": [TOOL]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            "contents": [
                {"role": "user", "parts": [{"text": "Add."}]},
                {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "add", **ARGS}}]},
                {"role": "user", "parts": [{"functionResponse": {"id": "c", **RESULT}}]},
            ],
        }),
        ("ollama", {
            "tools": [{"type": "function", "function": TOOL}],
            "tool_choice": "required",
            "messages": [
                user("Add."),
                {"role": "assistant", "content": "", "tool_calls": [
                    {"function": {"name": "add", "arguments": {"a": 1}}},
                ]},
                {"role": "tool", "tool_name": "c", "content": "2"},
            ],
        }),
    ],
)  # fmt: skip
def test_tools_and_their_results_are_those_of_openai(name, fields):
    dialect, path = of_path(PATHS[name])
    own = dialect.request(Fields(fields_of(name, "", **fields)), path).fields
    function = {"type": "function", "function": TOOL}
    assert own["tools"] == [function]
    assert own["tool_choice"] == "required"
    asked, made, result = own["messages"]
    assert asked == user("Add.")
    [call] = made["tool_calls"]
    assert (made["role"], made["content"], call["function"]) == ("assistant", "", CALLED)
    assert result == {"role": "tool", "content": "2", "tool_call_id": "c"}


KNOWN = [
    "model", "messages", "contents", "input", "prompt", "system", "role", "content", "parts",
    "text", "type", "tools", "tool_choice", "generationConfig", "options", "format",
    "systemInstruction", "function_call", "tool_use", "functionCall", "toolConfig",
    "functionCallingConfig", "reasoning",
]  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(
    fields=st.dictionaries(
        st.sampled_from(KNOWN), json_values(st.sampled_from([*KNOWN, MODEL])), max_size=5
    )
)
def test_whatever_is_sent_is_refused_in_the_shape_of_the_dialect(fields, fuzzed):
    for name, path in PATHS.items():
        for own in (fields, fields_of(name, QUESTIONS[0]) | fields):
            raw = json.dumps(own).encode()
            call = Call("POST", path, "", {"x-feval-run": "fuzz"}, raw)
            reply = fuzzed.respond(call)
            assert reply.status in (200, 400, 404), (name, own, reply.body)
            if reply.status != 200:
                message = body(reply)["error"]
                assert isinstance(
                    message, str if error_shape(path).__module__.endswith("ollama") else dict
                )


@pytest.fixture(scope="module")
def fuzzed(recording):
    with opened(recording, recycle=True) as application:
        yield application


def test_what_adds_to_a_conversation_unseen_is_refused(app):
    for name, fields in (
        ("responses", {"prompt": {"id": "p"}}),
        ("responses", {"conversation": "c"}),
        ("anthropic", {"mcp_servers": [{"name": "m"}]}),
        ("gemini", {"cachedContent": "cachedContents/c"}),
        ("gemini", {"tools": [{"googleSearch": {}}]}),
        ("generate", {"context": [1, 2]}),
        ("ollama", {"stream": "false"}),
    ):
        assert app.respond(asked(name, **fields)).status == 400, fields
    image = {"inlineData": {"mimeType": "image/png", "data": ""}}
    for part in ({"text": QUESTIONS[0]} | image, image):
        contents = [{"role": "user", "parts": [{"text": QUESTIONS[0]}, part]}]
        reply = app.respond(asked("gemini", contents=contents))
        assert reply.headers.get("x-feval-match") != "request"


def test_arguments_that_are_too_deep_are_refused(app):
    deep = json.loads("[" * 300 + "]" * 300)
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": deep}}
    made = [{"role": "assistant", "content": [block]}]
    assert app.respond(asked("anthropic", messages=[user("Go."), *made])).status == 400
    part = {"functionCall": {"name": "f", "args": {"a": deep}}}
    contents = [{"role": "model", "parts": [part]}]
    assert app.respond(asked("gemini", contents=contents)).status == 400


def test_what_is_no_json_is_refused(app):
    for path in PATHS.values():
        deep = b'{"model": "m", "x": ' + b"[" * 400 + b"]" * 400 + b"}"
        assert app.respond(Call("POST", path, "", {}, deep)).status in (400, 404)
        for raw in (b"", b"{", b"[]", b"\xff", b'{"model": NaN}'):
            assert app.respond(Call("POST", path, "", {}, raw)).status == 400
    assert app.respond(get("/api/chat")).status == 405


def test_a_transport_answers_whichever_host_is_asked(recording):
    hosts = {
        "anthropic": "https://api.anthropic.com",
        "gemini": "https://generativelanguage.googleapis.com",
        "ollama": "http://localhost:11434",
        "responses": "https://openrouter.ai/api",
    }
    with (
        ReplayTransport(recording, run="mine") as replay,
        httpx2.Client(transport=replay) as client,
    ):
        urls = {f"{host}{PATHS[name]}": name for name, host in hosts.items()}
        urls["https://gateway.example/run/mine@1/anthropic/v1/messages"] = "anthropic"
        for url, name in urls.items():
            reply = client.post(url, json=fields_of(name, QUESTIONS[0]), headers={"x-api-key": "k"})
            assert reply.status_code == 200, reply.text
            assert reply.headers["x-feval-run"] == ("mine@1" if "@1" in url else "mine")
        azure = f"https://x.openai.azure.com/openai/deployments/{MODEL}/chat/completions"
        body_of = {"messages": [user(QUESTIONS[0])]}
        assert client.post(azure, json=body_of, params={"api-version": "1"}).status_code == 200


def test_a_terminal_shows_what_each_run_asked_and_what_was_refused(app):
    for run, text in (("a", QUESTIONS[0]), ("a", QUESTIONS[1]), ("b", "Is it?"), ("a", "Is it?")):
        app.respond(asked("anthropic", text, headers={"x-feval-run": run}))
    shown = runs_table(app)
    rows = [dict(zip((c.name for c in shown.columns), row, strict=True)) for row in shown.rows]
    assert [(row["run"], row["requests"], row["CoTs"]) for row in rows] == [
        ("a", "2", "2"),
        ("b", "0", "0"),
    ]
    assert rows[0]["found by"] == "request 2"
    assert [row["refused"] for row in rows] == ["not_recorded 1"] * 2
    app.reset("a")
    assert app.refusals() == {"b": {"not_recorded": 1}}


@pytest.mark.parametrize(("quiet", "is_shown"), [(False, True), (True, False)])
def test_a_table_lives_on_terminals_only(app, monkeypatch, quiet, is_shown):
    app.respond(asked("ollama", headers={"x-feval-run": "mine"}))
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", screen)
    with Output(as_json=False, quiet=quiet).live(lambda: runs_table(app)):
        pass
    assert ("mine" in screen.getvalue()) == is_shown


def test_a_refusal_comes_back_as_one(tmp_path):
    text = "I cannot help with that."
    own = {"texts": [text] * 4, "finish_reasons": ["refusal"] * 4}
    with opened(simple(tmp_path / "r", QUESTIONS[:1], **own)) as app:
        said, streamed = (app.respond(chat(QUESTIONS[0], stream=on)) for on in (False, True))
        [choice] = body(said)["choices"]
        assert (choice["message"]["refusal"], choice["message"]["content"]) == (text, None)
        assert choice["finish_reason"] == "stop"
        assert sum(text.encode() in event for event in streamed.body) == 1
        message = body(app.respond(asked("anthropic")))
        assert (message["stop_reason"], message["content"][0]["text"]) == ("refusal", text)
        [candidate] = body(app.respond(asked("gemini")))["candidates"]
        assert candidate["finishReason"] == "SAFETY"
    with opened(tmp_path / "r") as app:
        [item] = body(app.respond(asked("responses")))["output"]
        assert item["content"] == [{"type": "refusal", "refusal": text}]
        events = data_of(app.respond(asked("responses", stream=True)))
        words = [own["delta"] for own in events if own["type"] == "response.refusal.delta"]
        assert ("".join(words), events[-1]["response"]["output"][0]["content"]) == (
            text, item["content"],
        )  # fmt: skip
        assert body(app.respond(asked("ollama")))["message"]["content"] == text


def test_events_of_a_response_are_those_that_openai_declares():
    said = [{"type": "summary_text", "text": "It adds up."}]
    call = {"call_id": "c", "name": "sh"}
    output = [
        {"id": "r", "type": "reasoning", "summary": said},
        {"id": "t", "type": "custom_tool_call", "input": "ls -l", **call},
        {"id": "f", "type": "function_call", "arguments": "{}", **call},
    ]
    whole = {"id": "w", "object": "response", "status": "completed", "output": output, "tools": []}
    whole |= {"model": MODEL, "created_at": 1, "parallel_tool_calls": True, "tool_choice": "auto"}
    told = Counter()
    declared = TypeAdapter(ResponseStreamEvent)
    for number, event in enumerate(responses.pieces(whole)):
        own = declared.validate_python(event)
        assert own.sequence_number == number
        if event["type"].endswith(".delta"):
            told[event["type"].split(".")[1]] += len(event["delta"])
    assert told == {
        "reasoning_summary_text": 11, "custom_tool_call_input": 5, "function_call_arguments": 2,
    }  # fmt: skip

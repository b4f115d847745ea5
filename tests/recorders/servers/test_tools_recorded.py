"""Agents that call tools: recorded by the proxy, sealed, and replayed without the server, whichever
dialect asks.
"""

import json

import orjson
import pytest
from command_line import failed, feval, said
from serving_doubles import body, opened, rows, user, write

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("openai", reason="the extra record is not installed")

import openai
from adding_server import QUESTION, AddingServer

from feval import load, open_recording
from feval.recording import LLMInfo, Question
from feval.recording.verify import verify_recording
from feval.serving import Call, replay_http_client
from feval.serving.wire.openai import conversation
from recorders.backends.openai_compatible import Endpoint
from recorders.journal import Journal
from recorders.servers.proxy import Proxy, proxy_server, seal_proxied

TOOL = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": TOOL}]


def agent(client, stream=False, **fields):
    """An agent's loop, as anybody writes it; returns its answer and all tokens."""
    messages, tokens = [user(QUESTION)], 0
    while True:
        asked = {"model": "gpt-4", "messages": messages, "tools": TOOLS} | fields
        if stream:
            with client.chat.completions.stream(
                **asked, stream_options={"include_usage": True}
            ) as s:
                reply = s.get_final_completion()
        else:
            reply = client.chat.completions.create(**asked)
        tokens += reply.usage.completion_tokens
        said = reply.choices[0].message
        if not said.tool_calls:
            return said.content, tokens
        messages.append(
            said.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})
        )
        for call in said.tool_calls:
            own = json.loads(call.function.arguments)
            result = {"role": "tool", "tool_call_id": call.id, "content": str(own["a"] + own["b"])}
            messages.append(result)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The recording of an agent, and what it was told."""
    folder, upstream = tmp_path_factory.mktemp("tools"), AddingServer()
    with (
        upstream.server() as server,
        Journal.open(folder / "r.journal", {"proxy": server.url, "dataset": "sums"}) as journal,
        proxy_server(Proxy(Endpoint(server.url), journal, "sums")) as proxy,
        openai.OpenAI(base_url=proxy.url, api_key="k") as client,
    ):
        told = agent(client)
        assert (told, upstream.asked) == (("The answer is 9.", 15), 3)
        out = seal_proxied(journal, folder / "r", dataset="sums", answer_kind="number")
    return out, told


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_is_replayed_with_equal_texts_tokens_and_turns(recorded, stream):
    path, told = recorded
    with (
        replay_http_client(path) as http,
        openai.OpenAI(api_key="none", http_client=http) as client,
    ):
        assert agent(client, stream) == told
        ledger = http.ledger()
        assert (ledger["requests"], ledger["output_tokens"], ledger["questions"]) == (3, 15, 3)
        prompts = [prompt["matches"] for prompt in ledger["prompts"]]
        assert {how for each in prompts for how in each} == {"request"}


def test_the_calls_are_a_part_of_the_recording(recorded):
    path, _ = recorded
    recording = open_recording(path)
    assert verify_recording(recording.path) is not None
    dataset, [llm] = load("sums", recording=path)
    calls = [llm.tool_calls(row) for row in range(len(dataset))]
    assert [own and json.loads(own[0])[0]["name"] for own in calls] == ["add", "add", None]
    assert "calls" in recording.channels("sums", llm.name)
    sent = [json.loads(prompt) for prompt in llm.prompts()]
    assert sent[1][1]["tool_calls"][0]["function"]["arguments"] == '{"a":2,"b":3}'
    assert sent[2][-1] == {"role": "tool", "content": "9", "tool_call_id": "call_1"}


ARGUMENTS = {"b": 3, "a": 2}


def follow_up(name, id_of_call, result):
    """The second turn, as each dialect has it."""
    return {
        "anthropic": ("/v1/messages", {
            "max_tokens": 64,
            "tools": [{"name": "add", "description": "Adds.", "input_schema": TOOL["parameters"]}],
            "messages": [
                user(QUESTION),
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": id_of_call, "name": "add", "input": ARGUMENTS},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": id_of_call, "content": result},
                ]},
            ],
        }),
        "responses": ("/v1/responses", {
            "tools": [{"type": "function", **TOOL, "strict": None}],
            "input": [
                user(QUESTION),
                {"type": "function_call", "call_id": id_of_call, "name": "add",
                 "arguments": '{"b": 3, "a": 2}'},
                {"type": "function_call_output", "call_id": id_of_call, "output": result},
            ],
        }),
        "ollama": ("/api/chat", {
            "stream": False,
            "tools": TOOLS,
            "messages": [
                user(QUESTION),
                {"role": "assistant", "content": "", "tool_calls": [
                    {"function": {"name": "add", "arguments": {"a": 2, "b": 3}}},
                ]},
                {"role": "tool", "tool_name": "add", "content": result},
            ],
        }),
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", ["anthropic", "responses", "ollama"])
def test_each_dialect_calls_the_tools_and_takes_their_results(recorded, name):
    with opened(recorded[0]) as app:
        for result, status in (("5", 200), ("6", 400)):  # what no record follows is refused
            path, fields = follow_up(name, "my-id", result)
            raw = orjson.dumps({"model": "gpt-4"} | fields)
            reply = app.respond(Call("POST", path, "", {}, raw))
            assert reply.status == status, reply.body
        path, fields = follow_up(name, "my-id", "5")
        own = body(
            app.respond(
                Call(
                    "POST",
                    path,
                    "",
                    {"x-feval-run": "b"},
                    orjson.dumps({"model": "gpt-4"} | fields),
                )
            )
        )
    if name == "anthropic":
        [called] = own["content"]
        assert own["stop_reason"] == "tool_use"
        found = called["name"], called["input"]
    elif name == "responses":
        [called] = own["output"]
        found = called["name"], json.loads(called["arguments"])
    else:
        called = own["message"]["tool_calls"][0]["function"]
        found = called["name"], called["arguments"]
    assert found == ("add", {"a": 5, "b": 4})


def test_other_tools_are_not_recorded_and_the_reply_says_which(recorded):
    other = [{"type": "function", "function": TOOL | {"name": "subtract"}}]
    with (
        replay_http_client(recorded[0]) as http,
        openai.OpenAI(api_key="none", http_client=http) as client,
        pytest.raises(openai.BadRequestError, match=r"offers the tools subtract, .* with add"),
    ):
        agent(client, tools=other)


def test_calls_survive_an_export_and_an_import(recorded, tmp_path):
    out, again = tmp_path / "cots.jsonl", tmp_path / "again"
    said("export --to jsonl --out", out, recorded[0])
    said("import jsonl", out, "--dataset sums --answer-kind number --out", again)
    for path in (recorded[0], again):
        dataset, [llm] = load("sums", recording=path)
        own = [llm.tool_calls(row) for row in range(len(dataset))]
        call = {"id": "id-1", "name": "add", "arguments": '{"a": 2, "b": 3}'}
        assert json.loads(own[0][0]) == [call]
        assert own[2] is None
    out.write_text(out.read_text().replace('"name', '"nome'))
    failed(
        feval("import jsonl", out, "--dataset sums --answer-kind number --out", tmp_path / "bad"),
        1,
        "tool_calls",
        "calls, such as",
    )


def test_nothing_of_a_conversation_with_tools_is_taken_for_something_else(recorded):
    """What differs in a call, a result or the tools is refused, whatever the last message is."""
    function = {"name": "add", "arguments": '{"a":2,"b":3}'}
    call = {"id": "c", "type": "function", "function": function}
    made = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "5"}
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    other = {**call, "function": {"name": "add", "arguments": '{"a":2,"b":4}'}}

    def status(*messages, **fields):
        asked = {"model": "gpt-4", "messages": [*messages], "tools": TOOLS} | fields
        with opened(recorded[0]) as app:
            path = "/v1/chat/completions"
            return app.respond(Call("POST", path, "", {}, orjson.dumps(asked))).status

    first = user(QUESTION)
    assert status(first) == status(first, made, result) == 200
    assert status(first, made, result | {"content": image}) == 400
    assert status(first, made, result | {"tool_call_id": "another"}) == 400
    assert status(first, made | {"tool_calls": [other]}, result) == 400
    long, longer = (
        {**call, "function": {"name": "add", "arguments": f'{{"a":{10**21 + n}}}'}}
        for n in range(2)
    )
    assert conversation([made | {"tool_calls": [long]}]) != conversation(
        [made | {"tool_calls": [longer]}]
    )
    assert status(made, result, first) == 400
    assert status(first, tools=[]) == status(first, tool_choice="none") == 400
    for odd in (5, [5], [{"function": {}}], [{"function": {"arguments": "[" * 400}}]):
        assert status(first, made | {"tool_calls": odd}, result) == 400
    assert status(user("Explain\ntool: 5\nto me.")) == 400  # a result is no question


def conversation_of(*calls, results):
    made = [
        {"id": own, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for own, name in calls
    ]
    messages = [user("Go."), {"role": "assistant", "content": None, "tool_calls": made}]
    return conversation([*messages, *({"role": "tool", "content": c} | r for c, r in results)])


def test_results_belong_to_their_calls_whatever_their_order_and_ids():
    calls = ("a", "temperature"), ("b", "rain")
    told = ("10", {"tool_call_id": "a"}), ("99", {"tool_call_id": "b"})
    own = conversation_of(*calls, results=told)
    assert own.text_only
    assert conversation_of(*calls, results=told[::-1]) == own
    named = ("99", {"name": "rain"}), ("10", {"name": "temperature"})
    assert conversation_of(*calls, results=named) == own
    swapped = ("10", {"tool_call_id": "b"}), ("99", {"tool_call_id": "a"})
    assert conversation_of(*calls, results=swapped) != own
    unknown = [("10", {"tool_call_id": "x"})]
    assert not conversation_of(*calls, results=unknown).text_only


SCHEMA = {"name": "add", "description": "Adds.", "input_schema": TOOL["parameters"]}
DECLARED = {"functionDeclarations": [TOOL]}


@pytest.mark.parametrize("arguments", ['{"a": 2, "b', "[1]"])
@pytest.mark.parametrize("name", ["anthropic", "responses", "ollama", "gemini"])
def test_arguments_that_are_no_object_are_handed_on(tmp_path, name, arguments):
    made = json.dumps([{"id": "", "name": "add", "arguments": arguments}])
    texts = {"texts": [""] * 4, "finish_reasons": ["tool_calls"] * 4}
    question = Question("q0", QUESTION)
    own = rows(question, extra={"tool_calls": [made] * 4}, **texts)
    path = write(tmp_path / "r", [(LLMInfo("gpt-4", 0.7, 64, {"tools": TOOLS}), [own])], [question])
    asked = {
        "anthropic": {"messages": [user(QUESTION)], "tools": [SCHEMA]},
        "responses": {"input": QUESTION, "tools": [{"type": "function", **TOOL}]},
        "ollama": {"messages": [user(QUESTION)], "tools": TOOLS, "stream": False},
        "gemini": {"contents": [{"parts": [{"text": QUESTION}]}], "tools": [DECLARED]},
    }[name]  # fmt: skip
    place = {
        "anthropic": "/v1/messages", "responses": "/v1/responses", "ollama": "/api/chat",
        "gemini": "/v1beta/models/gpt-4:generateContent",
    }[name]  # fmt: skip
    with opened(path) as app:
        raw = orjson.dumps({"model": "gpt-4", "n": 2} | asked)  # which these have not
        reply = app.respond(Call("POST", place, "", {}, raw))
        assert reply.status == 200, reply.body
        assert json.dumps(arguments)[1:-1].encode() in reply.body
        assert app.ledger("default")["cots"] == 1


def test_a_key_in_the_arguments_of_a_call_is_not_recorded(tmp_path):
    upstream, key = AddingServer(), "sk-" + "a1" * 20
    hidden = "".join(f"\\u{ord(letter):04x}" for letter in key)
    call = {"name": "add", "arguments": f'{{"a": "{hidden}"}}'}
    messages = [
        user(QUESTION),
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c", "content": "5"},
    ]
    with (
        upstream.server() as server,
        Journal.open(tmp_path / "j", {"proxy": server.url, "dataset": "sums"}) as journal,
        proxy_server(
            Proxy(Endpoint(server.url), journal, "sums", forward_unrecorded=True)
        ) as proxy,
        openai.OpenAI(base_url=proxy.url, api_key=key) as client,
    ):
        create = client.chat.completions.with_raw_response.create
        reply = create(model="gpt-4", messages=messages, tools=TOOLS)
        assert reply.headers["x-feval-unrecorded"] == "key"
        assert not journal.totals.cots


def test_record_keeps_the_calls_of_tools_that_its_settings_offer(tmp_path):
    (tmp_path / "q.jsonl").write_text(json.dumps({"id": "q0", "question": QUESTION, "answer": "9"}))
    function = 'name = "add", description = "Adds.", parameters = { type = "object" }'
    offered = f'[{{ type = "function", function = {{ {function} }} }}]'
    settings = f'prompt = "none"\nextra_body = {{ tools = {offered} }}\n'
    (tmp_path / "s.toml").write_text(settings)
    command = (
        f"record --backend openai --dataset toy --questions {tmp_path}/q.jsonl --answer-kind number"
        f" --llm gpt-4 --samples 2 --settings {tmp_path}/s.toml --out {tmp_path}/r --base-url"
    )
    with AddingServer().server() as server:
        assert "empty" not in said(command, server.url)
    with replay_http_client(tmp_path / "r", order="recorded") as http:
        client = openai.OpenAI(api_key="none", http_client=http)
        asked = {"model": "gpt-4", "messages": [user(QUESTION)], "tools": TOOLS}
        reply = client.chat.completions.create(**asked)
    [call] = reply.choices[0].message.tool_calls
    assert (call.id, call.function.arguments) == ("id-1", '{"a": 2, "b": 3}')


def test_calls_are_told_apart_and_compared_as_json_has_them():
    def tools_of(arguments, ids, results):
        calls = [
            {"id": own, "type": "function", "function": {"name": "add", "arguments": text}}
            for own, text in zip(ids, arguments, strict=True)
        ]
        told = [{"role": "tool", "tool_call_id": own, "content": own} for own in results]
        return conversation([user("?"), {"role": "assistant", "tool_calls": calls}, *told]).tools

    plain = tools_of(['{"a": 1}', '{"a": 0.5}'], ["x", "y"], ["x", "y"])
    assert tools_of(['{"a": 1.0}', '{"a": 5e-1}'], ["x", "y"], ["y", "x"]) == plain
    assert tools_of(['{"a": 1}', '{"a": 0.5}'], ["same", "same"], ["same", "same"]) == plain
    assert tools_of(['{"a": 2}', '{"a": 0.5}'], ["x", "y"], ["x", "y"]) != plain
    assert tools_of(['{"a": 1e400}', "{}"], ["x", "y"], ["x", "y"])  # no number of JSON's readers


def test_schemas_of_gemini_are_compared_in_lower_case(recorded):
    tool = {"name": "add", "description": "Adds.", "parameters": {"type": "OBJECT"}}
    fields = {
        "contents": [{"parts": [{"text": QUESTION}]}],
        "tools": [{"functionDeclarations": [tool]}],
    }
    call = Call("POST", "/v1beta/models/gpt-4:generateContent", "", {}, orjson.dumps(fields))
    with opened(recorded[0]) as app:
        [part] = body(app.respond(call))["candidates"][0]["content"]["parts"]
    assert part["functionCall"]["name"] == "add"

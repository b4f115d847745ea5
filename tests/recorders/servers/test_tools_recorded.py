"""Agents that call tools: recorded by the proxy, sealed, and replayed without the server, whichever
dialect asks.
"""

import json

import orjson
import pytest
from command_line import failed, feval, said
from serving_doubles import body, opened, user

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("openai", reason="the extra record is not installed")

import openai
from adding_server import QUESTION, AddingServer

from feval import load, open_recording
from feval.recording.verify import verify_recording
from feval.serving import Call, replay_http_client
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

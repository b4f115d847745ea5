"""The proxy in other dialects: a served recording is the vendor, and what passes through is recorded
and given again, whole and streamed, with thoughts and calls of tools.
"""

import json
from contextlib import contextmanager

import pytest
from serving_doubles import rows, simple, user, write

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

import httpx2

from feval import load
from feval.recording import LLMInfo, Question
from feval.serving import serve
from feval.serving.wire.dialects import gemini, of_path, ollama
from recorders.backends.openai_compatible import Endpoint
from recorders.journal import Journal
from recorders.servers.proxy import Proxy, proxy_server, seal_proxied

TEXT = "How many?"
MODEL = "gpt-3.5-turbo"
CHAT = {"model": MODEL, "messages": [user(TEXT)]}
GEMINI = {"contents": [{"parts": [{"text": TEXT}]}]}
ASKED = {
    "responses": ("/v1/responses", {"model": MODEL, "input": TEXT}),
    "anthropic": ("/v1/messages", CHAT | {"max_tokens": 64}),
    "gemini": (f"/v1beta/models/{MODEL}:generateContent", GEMINI),
    "ollama": ("/api/chat", CHAT | {"stream": False}),
    "generate": ("/api/generate", {"model": MODEL, "prompt": TEXT, "stream": False}),
    "azure": (f"/openai/deployments/{MODEL}/chat/completions?api-version=2024-10-21", CHAT),
}
CALL = {"id": "call-1", "name": "add", "arguments": '{"a": 2, "b": 3}'}
SAID = {
    "texts": ["It is 7.", "It is 8."],
    "reasoning": ["I think so.", "Or not?"],
    "extra": {"reasoning_tokens": [3, 4]},
    "output_tokens": [6, 8],
    "finish_reasons": ["stop", "length"],
    "raw_answers": ["7", "8"], "answers": ["7", "8"],
}  # fmt: skip


@contextmanager
def proxied(folder, url, **options):
    journal = Journal.open(folder / "new.journal", {"proxy": url, "dataset": "toy"})
    with (
        journal,
        proxy_server(Proxy(Endpoint(url), journal, "toy", **options)) as server,
        httpx2.Client(base_url=server.url.removesuffix("/v1")) as client,
    ):
        yield client, journal


def asked(client, name, **fields):
    path, body = ASKED[name]
    reply = client.post(path, json=body | fields, headers={"authorization": "Bearer votes"})
    assert reply.status_code == 200, reply.text
    return reply


def without_ids(reply):
    """What a reply says, without what is made anew each time."""
    text = json.dumps(reply.json(), sort_keys=True)
    own = json.loads(text, object_hook=lambda own: {k: own[k] for k in own if k not in MADE})
    return own


UNCOUNTED = ("anthropic", "ollama", "generate")  # they do not count thoughts apart
MADE = {"id", "created", "created_at", "responseId", "system_fingerprint", "feval"}


@pytest.mark.parametrize("name", ASKED)
def test_replies_pass_through_and_are_given_again_as_they_were(name, tmp_path):
    recording = simple(tmp_path / "r", [TEXT], size=2, **SAID)
    with serve(recording, order="recorded") as vendor:
        with httpx2.Client(base_url=vendor.url.removesuffix("/v1")) as direct:
            plain = [asked(direct, name) for _ in range(2)]
            vendor.application.reset("votes")
        with proxied(tmp_path, vendor.url) as (client, journal):
            first = [asked(client, name) for _ in range(2)]
            if name != "azure":  # OpenAI's own is made anew
                assert [own.content for own in first] == [own.content for own in plain]
            assert [own.headers["x-feval-recorded"] for own in first] == ["1", "1"]
            out = seal_proxied(journal, tmp_path / "new", dataset="toy", answer_kind="number")
    with proxied(tmp_path, vendor.url) as (client, _):  # the vendor is gone
        again = [asked(client, name) for _ in range(2)]
        assert list(map(without_ids, again)) == list(map(without_ids, first))
        assert [own.headers["x-feval-replayed"] for own in again] == ["1", "1"]
    dataset, [llm] = load("toy", recording=out)
    assert ([dataset[0].question], llm.pool.sizes.tolist()) == ([TEXT], [2])
    with Journal.open(tmp_path / "new.journal", {"proxy": vendor.url, "dataset": "toy"}) as journal:
        cots = [own.record for own in journal.entries() if own.kind == "cot"]
    thoughts = [None, None] if name in UNCOUNTED else [3, 4]
    for own, values in {
        "text": SAID["texts"], "reasoning": SAID["reasoning"], "output_tokens": [6, 8],
        "reasoning_tokens": thoughts, "finish_reason": ["stop", "length"], "prompt_tokens": [7, 7],
    }.items():  # fmt: skip
        assert [cot.get(own) for cot in cots] == values, own


def streamed(client, name):
    """All that a stream says, with its shape."""
    path, body = ASKED[name]
    body = body if name == "gemini" else body | {"stream": True}
    reply = client.post(path.replace(":g", ":streamG"), json=body)
    assert reply.status_code == 200, reply.text
    return "".join(c for c in reply.text if c not in '",\n')


@pytest.mark.parametrize("name", ["responses", "anthropic", "gemini", "ollama", "generate"])
def test_streams_are_asked_for_whole_and_given_as_streams(name, tmp_path):
    recording = simple(tmp_path / "r", [TEXT], size=2, **SAID)
    with serve(recording, order="recorded") as vendor:
        with proxied(tmp_path, vendor.url) as (client, _):
            first = streamed(client, name)
        with httpx2.Client(base_url=vendor.url.removesuffix("/v1")) as direct:
            vendor.application.reset("default")
            plain = streamed(direct, name)
    with proxied(tmp_path, vendor.url) as (client, _):
        again = asked(client, name)  # the same request, whatever its shape
    for word in ("8", "not?") if "7" not in first else ("7", "so."):
        assert word in first
        assert word in plain
    assert "It is 7." in again.text


def test_several_candidates_are_several_cots(tmp_path):
    recording = simple(tmp_path / "r", [TEXT], size=4)
    several = {"generationConfig": {"candidateCount": 3}}
    with serve(recording) as vendor, proxied(tmp_path, vendor.url) as (client, journal):
        reply = asked(client, "gemini", **several).json()
        assert len(reply["candidates"]) == journal.totals.cots == 3
    with proxied(tmp_path, vendor.url) as (client, _):
        assert asked(client, "gemini", **several).json()["candidates"] == reply["candidates"]


def offered(name):
    own = {"name": "add", "description": "Adds."}
    rules = {"type": "object"}
    return {
        "responses": [{"type": "function", **own, "parameters": rules}],
        "anthropic": [{**own, "input_schema": rules}],
        "gemini": [{"functionDeclarations": [{**own, "parameters": rules}]}],
        "ollama": [{"type": "function", "function": {**own, "parameters": rules}}],
    }[name]


def called(name, reply):
    """Name and arguments of the tool that a reply calls."""
    if name == "responses":
        [own] = reply["output"]
        return own["name"], json.loads(own["arguments"])
    if name == "anthropic":
        [own] = reply["content"]
        return own["name"], own["input"]
    if name == "gemini":
        [own] = reply["candidates"][0]["content"]["parts"]
        return own["functionCall"]["name"], own["functionCall"]["args"]
    [own] = reply["message"]["tool_calls"]
    return own["function"]["name"], own["function"]["arguments"]


@pytest.mark.parametrize("name", ["responses", "anthropic", "gemini", "ollama"])
def test_calls_of_tools_are_recorded_sealed_and_replayed(name, tmp_path):
    tool = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
    decoding = {"tools": [{"type": "function", "function": tool}]}
    question = Question("q0", TEXT)
    pool = rows(
        question, 1, texts=[""], extra={"tool_calls": [json.dumps([CALL])]},
        finish_reasons=["tool_calls"], raw_answers=[None], answers=[None],
    )  # fmt: skip
    recording = write(tmp_path / "r", [(LLMInfo(MODEL, 0.7, 64, decoding), [pool])], [question])
    with serve(recording) as vendor, proxied(tmp_path, vendor.url) as (client, journal):
        first = asked(client, name, tools=offered(name))
        assert called(name, first.json()) == ("add", {"a": 2, "b": 3})
        out = seal_proxied(journal, tmp_path / "new", dataset="toy", answer_kind="number")
    with serve(out) as server:
        client = httpx2.Client(base_url=server.url.removesuffix("/v1"))
        with client:
            again = asked(client, name, tools=offered(name))
            assert called(name, again.json()) == ("add", {"a": 2, "b": 3})

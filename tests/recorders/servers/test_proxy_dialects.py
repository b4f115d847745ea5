"""The proxy in other dialects: a served recording is the vendor, and what passes through is
recorded and given again, whole and streamed, with thoughts and calls of tools.
"""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from command_line import failed, feval
from recording_doubles import cots, records
from serving_doubles import asked_by_text, rows, simple, user, write

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

import httpx2
from starlette.responses import JSONResponse
from starlette.routing import Route

from feval import load
from feval.errors import PriceNotFoundError
from feval.recording import LLMInfo, Question
from feval.recording.verify import verify_recording
from feval.serving import Application, serve
from feval.serving.server import METHODS, Server
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


def client_of(server):
    return httpx2.Client(base_url=server.url.removesuffix("/v1"))


@contextmanager
def proxied(folder, url, dataset="toy", mode="new_episodes", **options):
    journal = Journal.open(folder / "new.journal", {"proxy": url, "dataset": dataset}, mode=mode)
    with (
        journal,
        proxy_server(Proxy(Endpoint(url), journal, dataset, **options)) as server,
        client_of(server) as client,
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
    return json.loads(text, object_hook=lambda own: {k: own[k] for k in own if k not in MADE})


UNCOUNTED = ("anthropic", "ollama", "generate")  # they do not count thoughts apart
MADE = {"id", "created", "created_at", "responseId", "system_fingerprint", "feval"}


@pytest.mark.parametrize("name", ASKED)
def test_replies_pass_through_and_are_given_again_as_they_were(name, tmp_path):
    recording = simple(tmp_path / "r", [TEXT], size=2, **SAID)
    with serve(recording, order="recorded") as vendor:
        with client_of(vendor) as direct:
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
    said = cots(tmp_path / "new.journal", {"proxy": vendor.url, "dataset": "toy"})
    thoughts = [None, None] if name in UNCOUNTED else [3, 4]
    for own, values in {
        "text": SAID["texts"], "reasoning": SAID["reasoning"], "output_tokens": [6, 8],
        "reasoning_tokens": thoughts, "finish_reason": ["stop", "length"], "prompt_tokens": [7, 7],
    }.items():  # fmt: skip
        assert [cot.get(own) for cot in said] == values, own


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
        with client_of(vendor) as direct:
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
    with serve(out) as server, client_of(server) as client:
        again = asked(client, name, tools=offered(name))
        assert called(name, again.json()) == ("add", {"a": 2, "b": 3})


OTHER = "How many more?"


def on_miss(recording, vendor, folder, **options):
    """A recording that is served, with the vendor behind it."""
    served = Application.open(recording)
    return proxied(folder, vendor.url, "more", served=served, **options)


@contextmanager
def both_served(recording, journal):
    """The recording, and beside it what the journal has."""
    own = {"dataset": "more", "answer_kind": "number", "prices": "2025-06-02"}
    new = seal_proxied(journal, journal.folder.parent / "new", **own)
    with serve([recording, new]) as server, client_of(server) as client:
        yield client


def chat(client, text, path="", **fields):
    return client.post(
        f"{path}/v1/chat/completions", json=CHAT | {"messages": [user(text)]} | fields
    )


@pytest.fixture
def both(tmp_path):
    """A recording, and a vendor who knows one question more."""
    recording = simple(tmp_path / "r", [TEXT], size=2)
    other = simple(tmp_path / "vendor", [TEXT, OTHER], size=3)
    with serve(other, order="recorded") as vendor:
        yield recording, vendor


def test_only_a_miss_is_forwarded_and_recorded(both, tmp_path):
    recording, vendor = both
    asked_of = vendor.application.ledger
    with on_miss(recording, vendor, tmp_path) as (client, journal):
        assert chat(client, TEXT, "/run/a").headers["x-feval-match"] == "request"
        assert asked_of()["runs"] == []
        said = chat(client, OTHER, "/run/a")
        assert said.headers["x-feval-recorded"] == "1"
        assert asked_of()["runs"][0]["requests"] == 1
        # a used-up pool is no miss, nor is a request that is wrong
        refused = [chat(client, TEXT, "/run/b", n=9), chat(client, TEXT, n=0)]
        assert [own.status_code for own in refused] == [400, 400]
        assert [own.headers.get("x-feval-error") for own in refused] == ["pool_exhausted", None]
        assert client.get("/v1/models/none").status_code == 404
        assert asked_of()["runs"][0]["requests"] == 1
        assert client.get("/feval/ledger?run=a").json()["requests"] == 1
        with both_served(recording, journal) as client:
            assert chat(client, TEXT).status_code == 200
            own = [reply.json()["choices"][0]["message"] for reply in (said, chat(client, OTHER))]
            assert own[0]["content"] == own[1]["content"]
            assert chat(client, "Who knows?").status_code == 400


def test_misses_at_two_settings_are_found_beside_the_recording(both, tmp_path):
    recording, vendor = both
    with on_miss(recording, vendor, tmp_path) as (client, journal):
        asked = [{"temperature": 0.5}, {"temperature": 0.9}]
        first = [chat(client, OTHER, **own).json()["choices"] for own in asked]
        with both_served(recording, journal) as client:
            replies = [chat(client, OTHER, **own) for own in asked]
            assert [own.json()["choices"][0]["message"] for own in replies] == [
                own[0]["message"] for own in first
            ]
            assert chat(client, TEXT).headers["x-feval-match"] == "request"


def test_once_records_into_a_new_folder_only(both, tmp_path):
    recording, vendor = both
    for _ in range(2):
        with on_miss(recording, vendor, tmp_path, mode="once") as (client, journal):
            first = chat(client, OTHER)  # again from the journal
            assert first.status_code == 200
            assert journal.totals.cots == 1
            more = chat(client, OTHER) if journal.existed else None
    assert (more.status_code, more.headers["x-feval-error"]) == (400, "not_recorded")
    assert vendor.application.ledger()["runs"][0]["requests"] == 1


def test_a_cost_limit_holds_over_restarts(both, tmp_path):
    recording, vendor = both
    price = 0.5e-6 * 7 + 1.5e-6 * 11  # USD of one reply, prompt and output
    limited = {"prices": "2025-06-02", "cost_limit_usd": 2.5 * price}
    statuses = []
    for _ in range(2):
        with on_miss(recording, vendor, tmp_path, **limited) as (client, journal):
            journal_had = journal.totals.cots
            statuses += [chat(client, OTHER).status_code for _ in range(journal_had + 2)]
            last = chat(client, OTHER, max_tokens=64)
    assert statuses == [200, 200, 200, 200, 200, 400]
    assert last.headers["x-feval-error"] == "cost_limit"
    assert "USD are spent" in last.json()["error"]["message"]
    with pytest.raises(PriceNotFoundError):
        on_miss(recording, vendor, tmp_path / "b", cost_limit_usd=1.0).__enter__()


def test_the_command_records_what_another_llm_says_with_the_golds(tmp_path):
    [question] = asked_by_text([TEXT], answer="1", answer_key="1")
    known = write(
        tmp_path / "r", [(LLMInfo(MODEL, 0.7, 64), [rows(question)])], [question], kind="number"
    )
    other = write(tmp_path / "v", [(LLMInfo("gpt-4"), [rows(question)])], [question], kind="number")
    with serve(other) as vendor:
        line = f"serve {known} --port 0 --json --on-miss record --upstream {vendor.url}"
        line = [sys.executable, "-m", "feval", *line.split(), "--record", tmp_path / "new"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            where = json.loads(process.stdout.readline())
            with httpx2.Client(base_url=where["url"][:-3]) as client:
                for model, ids in ((MODEL, "x-feval-samples"), ("gpt-4", "x-feval-recorded")):
                    assert chat(client, TEXT, model=model).headers[ids] in "0123"
            process.send_signal(signal.SIGINT)
            told = json.loads(process.communicate(timeout=60)[0])
    assert told["recorded"] == 1
    dataset, [llm] = load("toy-new", recording=told["recording"])
    assert (dataset[0].id, dataset[0].answer, llm.name) == ("q0", "1", "gpt-4")
    verify_recording(known)  # unchanged, as its hash says


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--on-miss new_episodes", "new_episodes is record"),
        ("--on-miss record", "take --upstream and --record"),
        ("--upstream http://127.0.0.1:9/v1 --record R", "take --upstream and --record"),
        ("--on-miss once --upstream http://127.0.0.1:9/v1 --record R --cost-limit 0", "above 0"),
    ],
)
def test_what_cannot_be_recorded_on_a_miss_is_said(options, words, tmp_path):
    recording = simple(tmp_path / "r", [TEXT], size=2)
    failed(feval("serve", recording, options.replace("R", str(tmp_path / "new"))), 2, words)
    assert not (tmp_path / "new.journal").exists()


@pytest.mark.parametrize("name", ["responses", "anthropic", "azure"])
def test_a_refusal_is_recorded_as_one(name, tmp_path):
    own = {"texts": ["I cannot."], "finish_reasons": ["refusal"], "answers": [None]}
    recording = simple(tmp_path / "r", [TEXT], size=1, raw_answers=[None], **own)
    with serve(recording) as vendor, proxied(tmp_path, vendor.url) as (client, journal):
        first = asked(client, name)
        [cot] = records(journal)
        assert (cot["text"], cot["finish_reason"]) == ("I cannot.", "refusal")
    with proxied(tmp_path, vendor.url) as (client, _):
        assert without_ids(asked(client, name)) == without_ids(first)


class Vendor:
    """A server that says `says` to everything, and remembers what it was asked."""

    def __init__(self, says=None):
        self.says, self.asked = says, []

    def close(self):
        pass

    def server(self):
        async def answer(request):
            self.asked.append((request.url.path, dict(request.headers), await request.body()))
            return JSONResponse(self.says)

        return Server(self, [Route("/{path:path}", answer, methods=METHODS)])


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "SIG=="}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": "END",
    "content": [THOUGHT, {"type": "text", "text": "It is 7."}], "stop_reason": "stop_sequence",
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 60},
}  # fmt: skip


def events_of(reply):
    lines = reply.text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def test_streams_and_repeated_replies_hold_all_that_a_vendor_said(tmp_path):
    vendor = Vendor(MESSAGE)
    path, fields = ASKED["anthropic"]
    with vendor.server() as server:
        for _ in range(2):  # the second time they come from the journal
            with proxied(tmp_path, server.url) as (client, journal):
                whole = [client.post(path, json=fields).json() for _ in range(2)]
                streams = [client.post(path, json=fields | {"stream": True}) for _ in range(2)]
                assert journal.totals.cots == 4
            assert whole == [MESSAGE] * 2
            for stream in streams:
                events = events_of(stream)
                deltas = [own["delta"] for own in events if own["type"] == "content_block_delta"]
                assert deltas[1] == {"type": "signature_delta", "signature": "SIG=="}
                ends = {"stop_reason": "stop_sequence", "stop_sequence": "END"}
                assert events[-2]["delta"] == ends
    assert len(vendor.asked) == 4
    cot = cots(tmp_path / "new.journal", {"proxy": server.url, "dataset": "toy"})[0]
    assert (cot["prompt_tokens"], cot["output_tokens"]) == (100, 60)  # of hidden thoughts


def test_a_stream_stays_one_where_its_reply_cannot_be_recorded(tmp_path):
    vendor = Vendor(MESSAGE | {"content": [SEARCH]})
    path, fields = ASKED["anthropic"]
    with vendor.server() as server, proxied(tmp_path, server.url) as (client, journal):
        reply = client.post(path, json=fields | {"stream": True})
        assert reply.headers["x-feval-unrecorded"] == "reply"
        begun = next(own for own in events_of(reply) if own["type"] == "content_block_start")
        assert (begun["content_block"], journal.totals.cots) == (SEARCH, 0)


def test_what_may_shape_a_reply_tells_requests_apart(tmp_path):
    vendor = Vendor({"choices": [{"message": {"content": "7"}, "finish_reason": "stop"}]})
    with vendor.server() as server:
        with proxied(tmp_path, server.url) as (client, journal):
            for name in ("A", "B"):
                client.post(f"/openai/deployments/{name}/chat/completions", json=CHAT)
            assert journal.totals.cots == 2
            vendor.says, before = MESSAGE, len(vendor.asked)
            path, fields = ASKED["anthropic"]
            others = {"metadata": {"user_id": "u"}}, {"feval": {}, "prompt_cache_retention": "24h"}
            for more in ({}, {"output_config": {"effort": "low"}}, *others):
                client.post(path, json=fields | more)
            client.post(path, json=fields, headers={"anthropic-beta": "context-1m"})
            assert len(vendor.asked) - before == 5
        with proxied(tmp_path, server.url) as (client, _):  # the user is none of them
            replies = [client.post(path, json=fields) for _ in range(3)]
            assert [own.headers.get("x-feval-replayed") for own in replies] == ["1"] * 3


def test_keys_and_base_urls_are_those_of_the_vendor(tmp_path):
    vendor = Vendor(MESSAGE)
    paths = ["/v1/messages", "/v1beta/models/m:generateContent", "/api/chat", "/v1beta/models"]
    with vendor.server() as server:
        root = server.url.removesuffix("/v1")
        for number, base in enumerate((root, server.url, f"{root}/proxied")):
            endpoint = Endpoint(base, "sk-of-the-vendor-0123456789")
            with (
                Journal.open(tmp_path / str(number), {}) as journal,
                proxy_server(Proxy(endpoint, journal, "toy", forward_unrecorded=True)) as proxy,
                client_of(proxy) as client,
            ):
                vendor.asked.clear()
                for path in paths:
                    ask = client.get if path.endswith("models") else client.post
                    ask(f"{path}?%6Bey=mine", headers={"x-api-key": "mine", "cookie": "mine"})
            prefix = "/proxied" * (number == 2)
            assert [path for path, *_ in vendor.asked] == [prefix + path for path in paths]
            names = ["x-api-key", "x-goog-api-key", "authorization", "x-goog-api-key"]
            for (_, headers, _), name in zip(vendor.asked, names, strict=True):
                assert headers[name].removeprefix("Bearer ") == "sk-of-the-vendor-0123456789"
                assert "mine" not in str(headers)


OLLAMA = {
    "model": MODEL, "created_at": "2026-11-29T00:00:00Z", "done": True, "done_reason": "stop",
    "message": {"role": "assistant", "content": "It is 7."}, "prompt_eval_count": 7,
    "eval_count": 5,
}  # fmt: skip


def test_seeds_share_an_llm_and_other_fields_of_a_dialect_make_one(tmp_path):
    vendor = Vendor(OLLAMA)
    with vendor.server() as server, proxied(tmp_path, server.url) as (client, journal):
        for seed in (1, 2, 3):
            asked(client, "ollama", options={"seed": seed}, keep_alive=seed)
        alone = seal_proxied(journal, tmp_path / "one", dataset="toy", answer_kind="number")
        asked(client, "ollama", think="high")
        assert len(vendor.asked) == 4
        both = seal_proxied(journal, tmp_path / "two", dataset="toy", answer_kind="number")
    _, [llm] = load("toy", recording=alone)
    assert (llm.name, llm.pool.sizes.tolist()) == (MODEL, [3])
    assert "x-feval-dialect" not in str(llm.info)
    assert sorted(own.pool.sizes.tolist() for own in load("toy", recording=both)[1]) == [[1], [3]]
    with serve(alone) as served, client_of(served) as client:
        for name in ("ollama", "anthropic"):  # whichever dialect asks
            assert asked(client, name).headers["x-feval-match"] == "request"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("anthropic", {"content": [{"type": "text", "text": None}], "stop_reason": "end_turn"}),
        ("anthropic", {"content": [{"type": "text", "text": "7"}], "usage": None}),
        ("gemini", {"candidates": [{"content": {"parts": [{"text": None}]}}]}),
        ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}),
        ("responses", {"status": "failed", "output": [], "usage": {}}),
        ("responses", {"status": "completed", "output": [{"type": "mcp_call", "arguments": "{}"}]}),
        ("ollama", {"message": {"content": None}}),
        ("ollama", []),
        ("generate", OLLAMA),
    ],
)
def test_odd_replies_reach_clients_that_asked_for_streams(name, says, tmp_path):
    vendor = Vendor(says)
    path, fields = ASKED[name]
    fields = fields if name == "gemini" else fields | {"stream": True}
    with vendor.server() as server, proxied(tmp_path, server.url) as (client, _):
        for _ in range(2):
            reply = client.post(path.replace(":g", ":streamG"), json=fields)
            assert reply.status_code == 200, reply.text
            assert reply.content


def test_many_candidates_are_paid_and_no_limit_is_none(tmp_path):
    parts = [{"text": "It is 7."}]
    candidates = [{"content": {"parts": parts}, "finishReason": "STOP"}] * 8
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 80, "totalTokenCount": 87}
    vendor = Vendor({"candidates": candidates, "usageMetadata": usage})
    limited = {"prices": "2025-06-02", "cost_limit_usd": 2 * 1.5e-6 * 100}
    with vendor.server() as server, proxied(tmp_path, server.url, **limited) as (client, journal):
        path, fields = ASKED["gemini"]
        config = {"candidateCount": 8, "maxOutputTokens": 100}
        refused = client.post(path, json=fields | {"generationConfig": config})
        assert refused.headers["x-feval-error"] == "cost_limit"
        refused = client.post("/v1/chat/completions", json=CHAT | {"max_tokens": -100000})
        assert "x-feval-unrecorded" in refused.headers  # forwarded, alone
        assert (len(vendor.asked), journal.totals.cots) == (1, 0)

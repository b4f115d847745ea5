"""Recording by running: the official client through the proxy to the tiny server, again without it,
and into a recording.
"""

import gzip
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import chain

import pytest
from command_line import feval
from recording_doubles import records
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

from feval.errors import StorageError
from feval.recording import Question, open_recording, verify_recording
from feval.serving.server import METHODS, Server
from recorders.backends.openai_compatible import Endpoint
from recorders.journal import Journal
from recorders.servers.proxy import Proxy, match, proxy_server, seal_proxied
from recorders.servers.tiny_server import TinyModels
from recorders.tiny import test_questions as problems

openai = pytest.importorskip(
    "openai", reason="the official client (extra `record`) is not installed"
)

KEY = "sk-proj-MARKED0123456789abcdefghijkl"
MODEL = "feval/tiny-42k"
PROBLEMS = problems()[:4]
FRAGMENTS = [KEY[start : start + 8] for start in range(len(KEY) - 7)]


class Upstream(TinyModels):
    """The tiny server, counted; or whatever a test puts in its place."""

    def __init__(self):
        super().__init__([MODEL])
        self.calls = []
        self.bodies = []
        self.instead = None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def server(self):
        tiny = {"/v1/chat/completions": self.chat, "/v1/models": self.list_models}

        async def answer(request):
            self.calls.append(request.headers)
            self.bodies.append(await request.body())
            await run_in_threadpool(self.may_answer.wait, 30)
            return self.instead or await tiny[request.url.path](request)

        return Server(self, [Route("/{path:path}", answer, methods=METHODS)])

    def body(self, number):
        return dict(json.loads(self.bodies[number]))


def json_answer(value, status=200, headers=None):
    return Response(
        json.dumps(value), status, {"content-type": "application/json", **(headers or {})}
    )


def choice(content, **message):
    message = {"role": "assistant", "content": content} | message
    return {"index": 0, "message": message, "finish_reason": "stop"}


@pytest.fixture
def upstream():
    return Upstream()


class Run:
    """One run of the proxy on `folder`."""

    def __init__(self, client, proxy, journal):
        self.client, self.proxy, self.journal = client, proxy, journal

    def ask(self, text=PROBLEMS[0].question, **more):
        messages = [{"role": "system", "content": "Think."}, {"role": "user", "content": text}]
        return self.client.chat.completions.create(
            **({"model": MODEL, "messages": messages} | more)
        )

    def texts(self, *args, **more):
        return [choice.message.content for choice in self.ask(*args, **more).choices]


@contextmanager
def running(folder, url, *allowed_fields, **options):
    with ExitStack() as stack:
        journal = stack.enter_context(
            Journal.open(folder / "r.journal", {"proxy": url, "dataset": "sums"})
        )
        proxy = Proxy(Endpoint(url), journal, "sums", allowed_fields=allowed_fields, **options)
        service = stack.enter_context(proxy_server(proxy))
        client = openai.OpenAI(base_url=service.url, api_key=KEY, max_retries=0)
        yield Run(stack.enter_context(client), proxy, journal)


@pytest.fixture
def run(upstream, tmp_path):
    with upstream.server() as server, running(tmp_path, server.url) as run:
        yield run


@pytest.fixture
def lenient(upstream, tmp_path):
    """A run that passes on what it cannot record."""
    with upstream.server() as server, running(tmp_path, server.url, forward_unrecorded=True) as run:
        yield run


def twice(upstream, folder, ask):
    """What a run is told with the server, and the next one without it."""
    with upstream.server() as server, running(folder, server.url) as run:
        first = ask(run)
    with running(folder, server.url) as run:
        return first, ask(run)


@pytest.fixture(autouse=True)
def no_key(tmp_path):
    """No test leaves a piece of the key in a file."""
    yield
    for path in tmp_path.rglob("*"):
        content = path.read_bytes().decode("latin-1") if path.is_file() else str(path)
        assert not [fragment for fragment in FRAGMENTS if fragment in content], path


def test_what_was_recorded_is_given_again_without_the_server(upstream, tmp_path):
    with upstream.server() as server, running(tmp_path, server.url) as run:
        first = [run.texts(temperature=0.9) for _ in range(3)]
        one = run.texts(PROBLEMS[1].question, n=4)
        assert len(upstream.calls) == 4
        assert upstream.calls[0]["authorization"] == f"Bearer {KEY}"
        assert run.proxy.recorded == 7
        cots = records(run.journal)
        assert len({record["duration_s"] for record in cots}) == 4  # one of each request
    with running(tmp_path, server.url) as run:  # the server is gone
        assert [run.texts(temperature=0.9) for _ in range(3)] == first
        assert run.texts(PROBLEMS[1].question, n=3) + run.texts(PROBLEMS[1].question) == one
        assert run.proxy.replayed == 7
        with pytest.raises(openai.APIStatusError, match="did not answer") as caught:
            run.texts(temperature=0.9)
        assert caught.value.status_code == 502
        with pytest.raises(openai.APIStatusError):
            run.texts(temperature=0.8)


def test_what_the_journal_lacks_is_asked_for(upstream, tmp_path):
    with upstream.server() as server:
        with running(tmp_path, server.url) as run:
            two = run.texts(n=2)
            run.texts(n=2)
            # a run never gets a sample twice
            assert (run.proxy.recorded, run.proxy.replayed) == (4, 0)
        with running(tmp_path, server.url) as run:
            parts = [{"type": "text", "text": PROBLEMS[0].question}]
            messages = [{"role": "system", "content": "Think."}, {"role": "user", "content": parts}]
            raw = run.client.chat.completions.with_raw_response
            reply = raw.create(model=MODEL, n=6, messages=messages)
            counts = reply.headers["x-feval-replayed"], reply.headers["x-feval-recorded"]
            assert counts == ("4", "2")
            choices = reply.parse().choices
            assert [choice.message.content for choice in choices][:2] == two
            assert [choice.index for choice in choices] == list(range(6))
    assert upstream.body(-1)["n"] == 2


def test_a_seed_finds_its_own_samples(upstream, tmp_path):
    with upstream.server() as server, running(tmp_path, server.url) as run:
        first = {seed: run.texts(seed=seed, n=2, temperature=1.5) for seed in (1, 2, 3)}
    with running(tmp_path, server.url) as run:
        assert {seed: run.texts(seed=seed, n=2, temperature=1.5) for seed in (3, 1, 2)} == first
        with pytest.raises(openai.APIStatusError, match="did not answer"):
            run.texts(seed=4)
        assert not run.proxy._unused  # nothing is kept for what was given


def test_log_probabilities_and_usage_come_back_as_they_were(upstream, tmp_path):
    asked = {"n": 2, "logprobs": True, "top_logprobs": 3, "stop": ["zzz"]}
    asked["max_completion_tokens"] = 90
    fresh, again = twice(upstream, tmp_path, lambda run: run.ask(**asked))
    assert fresh.to_dict() | {"created": 0} == again.to_dict() | {"created": 0}
    assert len(again.choices[0].logprobs.content[0].top_logprobs) == 3


@pytest.mark.parametrize("logprobs", [None, True])
def test_streams_are_recorded_and_given_again(upstream, tmp_path, logprobs):
    def streamed(run):
        texts, usage = ["", ""], None
        more = {"stream_options": {"include_usage": True}, "extra_body": {"logprobs": logprobs}}
        for chunk in run.ask(stream=True, n=2, **more):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        return texts, usage

    fresh, again = twice(upstream, tmp_path, streamed)
    assert again == fresh
    assert not {"stream", "stream_options"} & upstream.body(0).keys()


def test_many_clients_at_once_lose_nothing(upstream, tmp_path):
    def all_texts(run):
        with ThreadPoolExecutor(8) as threads:
            replies = threads.map(lambda _: run.texts(n=2, temperature=2), range(24))
            return sorted(chain.from_iterable(replies))

    fresh, again = twice(upstream, tmp_path, all_texts)
    assert (fresh, len(fresh)) == (again, 48)


def test_errors_are_passed_on_and_not_recorded(upstream, tmp_path, run):
    error = {"message": f"Slow down, {KEY}.", "type": "requests", "code": "rate_limit_exceeded"}
    upstream.instead = json_answer({"error": error}, 429, {"Retry-After": "7"})
    with pytest.raises(openai.RateLimitError) as caught:
        run.ask()
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.code == "rate_limit_exceeded"
    upstream.instead = None
    with pytest.raises(openai.BadRequestError):
        run.ask(temperature=-1)
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        run.ask(model="gpt-4o")
    upstream.instead = json_answer({"strange": True})
    assert run.ask().choices is None
    assert run.journal.totals.cots == 0
    assert run.proxy.unrecorded == 1


def test_other_requests_are_passed_on(lenient):
    assert [model.id for model in lenient.client.models.list()] == [MODEL]
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    with pytest.raises(openai.BadRequestError):
        lenient.ask(messages=image)
    asked = [
        {"role": "assistant", "tool_calls": []},
        {"role": "user", "content": PROBLEMS[0].question},
    ]
    assert lenient.texts(messages=asked)
    assert lenient.ask(f"My key is {KEY}.").choices
    assert lenient.proxy.unrecorded == 3
    assert lenient.journal.totals.cots == 0


def test_what_is_not_recorded_is_said_at_once(upstream, tmp_path, caplog):
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "audio": {"id": "a"}}
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    called = json_answer(
        {"choices": [{"message": message, "finish_reason": "tool_calls"}], "model": "m"}
    )

    def unrecorded(run, path="/v1/chat/completions", **body):
        with sent(run, json.dumps(body_of(PROBLEMS[0].question) | body), path) as response:
            return response.getheader("x-feval-unrecorded")

    with upstream.server() as server, running(tmp_path, server.url, forward_unrecorded=True) as run:
        assert unrecorded(run) is None
        assert caplog.records == []
        assert unrecorded(run, tools=tools) is None  # answered in words
        upstream.instead = called
        for _ in range(2):
            assert unrecorded(run, tools=tools, tool_choice="required") == "audio"
        assert (
            unrecorded(run, messages=[{"role": "user", "content": [{"type": "image_url"}]}])
            == "messages"
        )
        assert unrecorded(run, seed="x") == "seed"
        assert unrecorded(run, "/v1/embeddings") == "/v1/embeddings"
        upstream.instead = json_answer({"strange": True})
        assert unrecorded(run, temperature=0.3) == "reply"
        asked = len(upstream.calls)
    with running(tmp_path, server.url, forward_unrecorded=True) as run:  # from the journal
        assert unrecorded(run, tools=tools, tool_choice="required") == "audio"
    assert len(upstream.calls) == asked
    told = [record.getMessage() for record in caplog.records]
    parts = ["'audio'", "its messages", "its seed", "POST /v1/embeddings", "cannot be read"]
    assert [part for part, sentence in zip(parts, told, strict=False) if part in sentence] == parts
    assert len(told) == len(parts) + 1  # the second proxy says it anew


def test_a_key_in_a_reply_is_masked(upstream, tmp_path, run):
    upstream.instead = json_answer({"id": KEY, "choices": [choice(f"It is {KEY}.")], "model": "m"})
    assert run.texts() == ["It is [key]."]


@contextmanager
def sent(run, body, path="/v1/chat/completions", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", run.client.base_url.port, timeout=30)
    with closing(connection):
        connection.request("POST", path, body, {"Authorization": f"bearer {KEY}", **headers})
        yield connection.getresponse()


def posted(run, body, *path, **headers):
    with sent(run, body, *path, **headers) as response:
        return response.status, response.read()


def body_of(text, **more):
    return {"model": MODEL, "messages": [{"role": "user", "content": text}]} | more


def test_a_key_is_found_however_it_is_sent_or_written(lenient):
    escaped = json.dumps(body_of("My key is KEY.")).replace(
        "KEY", "".join(f"\\u{ord(c):04x}" for c in KEY)
    )
    other = json.dumps(body_of(f"My key is {KEY}."))
    assert posted(lenient, escaped.encode())[0] == 200
    for name in ("X-Goog-Api-Key", "Api-Key", "X-Auth-Token", "Cookie"):
        assert posted(lenient, other.encode(), Authorization="none", **{name: KEY})[0] == 200
    assert (lenient.proxy.unrecorded, lenient.proxy.recorded) == (5, 0)


def test_a_field_that_is_named_like_a_key_is_refused_unless_it_is_allowed(upstream, tmp_path):
    allowed = json.dumps(body_of("Hi", api_key="abc"))
    other = json.dumps(body_of("Hi", extra_headers={"Authorization": "abc"}))
    with upstream.server() as server, running(tmp_path, server.url, "api_key") as run:
        assert posted(run, allowed)[0] == 200
        status, content = posted(run, other)
        assert (status, json.loads(content)["error"]["code"]) == (400, "key_field")
        assert "start the proxy with `allow_field` Authorization" in content.decode()
        assert (run.proxy.recorded, len(upstream.calls)) == (1, 1)


def test_a_key_of_the_environment_is_neither_recorded_nor_given(upstream, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", KEY)
    with upstream.server() as server, running(tmp_path, server.url, forward_unrecorded=True) as run:
        other = {"Authorization": "Bearer none"}
        assert posted(run, json.dumps(body_of(f"Is it {KEY}?")).encode(), **other)[0] == 200
        upstream.instead = json_answer({"choices": [choice(f"It is {KEY}.")], "model": KEY})
        assert b"It is [key]." in posted(run, json.dumps(body_of("Hi")), **other)[1]
        assert (run.proxy.unrecorded, run.proxy.recorded) == (1, 1)


def test_the_proxys_own_key_is_not_told_to_clients(upstream, tmp_path):
    told = {
        "error": {"message": f"Incorrect API key provided: {KEY}."},
        "headers": {"authorization": KEY},
    }
    with upstream.server() as server, ExitStack() as stack:
        journal = stack.enter_context(Journal.open(tmp_path / "r.journal", {}))
        service = stack.enter_context(
            proxy_server(Proxy(Endpoint(server.url, KEY), journal, "sums", forward_unrecorded=True))
        )
        client = stack.enter_context(
            openai.OpenAI(base_url=service.url, api_key="none", max_retries=0)
        )
        for status in (401, 200):
            upstream.instead = json_answer(told, status, {"X-Seen": KEY})
            for path in ("/chat/completions", "/echo"):
                try:
                    reply = client.post(path, body=body_of("Hello"), cast_to=object, options={})
                    shown = json.dumps(reply)
                except openai.AuthenticationError as error:
                    shown = f"{error} {dict(error.response.headers)}"
                assert "[key]" in shown
                assert not [fragment for fragment in FRAGMENTS if fragment in shown]
        assert upstream.calls[-1]["authorization"] == f"Bearer {KEY}"


def status_of(service, key):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    with closing(connection):
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
        return connection.getresponse().status


def test_with_a_token_the_clients_key_is_the_token_and_goes_no_further(upstream, tmp_path):
    token = "a-token-of-some-length"  # noqa: S105  opens nothing
    with upstream.server() as server, ExitStack() as stack:
        journal = stack.enter_context(Journal.open(tmp_path / "r.journal", {}))
        proxies = [
            Proxy(Endpoint(server.url, key), journal, "sums", token=token, forward_unrecorded=True)
            for key in (KEY, None)
        ]
        for proxy, sent in zip(proxies, (f"Bearer {KEY}", None), strict=True):
            service = stack.enter_context(proxy_server(proxy))
            assert status_of(service, "none") == 401
            calls = len(upstream.calls)
            headers = {"X-Api-Key": token, "X-Seen": f"key {token}"}
            client = openai.OpenAI(
                base_url=service.url, api_key=token, max_retries=0, default_headers=headers
            )
            with client:
                assert client.chat.completions.create(**body_of(PROBLEMS[calls].question)).choices
                assert client.chat.completions.create(**body_of(f"The token is {token}.")).choices
            assert [call.get("authorization") for call in upstream.calls[calls:]] == [sent, sent]
            assert token not in str(upstream.calls)
            assert (proxy.recorded, proxy.unrecorded) == (1, 1)
    assert token not in (tmp_path / "r.journal" / "journal.jsonl").read_text()


def test_the_command_demands_a_token_on_another_host(tmp_path, monkeypatch):
    monkeypatch.delenv("FEVAL_SERVE_TOKEN", raising=False)
    monkeypatch.setattr(Server, "run", lambda self: self.close())
    command = f"proxy --upstream https://api.example/v1 --record {tmp_path}/r --host 0.0.0.0"
    refused = feval(command)
    assert (refused.exit_code, "FEVAL_SERVE_TOKEN" in refused.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []  # an empty journal would refuse the corrected command
    monkeypatch.setenv("FEVAL_SERVE_TOKEN", "a-token-of-some-length")
    result = feval(command)
    assert result.exit_code == 0, result.output
    assert "so api.example gets none; --api-key-env names one" in result.stderr
    assert "a-token" not in result.output


def test_a_deeply_nested_body_is_answered_and_not_half_recorded(lenient):
    plain = json.dumps(body_of(PROBLEMS[0].question, max_tokens=4))
    for depth in (100, *range(240, 258), 1000, 2000):
        body = plain.replace("{", '{"deep": ' + "[" * depth + "]" * depth + ", ", 1).encode()
        assert posted(lenient, body)[0] == (200 if depth <= 1000 else 400), depth
    assert lenient.proxy.recorded + lenient.proxy.unrecorded == 21
    assert lenient.journal.totals.cots == lenient.proxy.recorded
    assert lenient.proxy.recorded in {7, 8}  # orjson's limits differ by one between its versions


def test_a_redirection_does_not_lead_past_the_proxy(upstream, run):
    upstream.instead = Response(
        b"", 308, {"Location": f"https://u:{KEY}@elsewhere.example/v1/chat/completions?key={KEY}"}
    )
    with pytest.raises(
        openai.InternalServerError,
        match=r"redirects requests to https://elsewhere\.example/v1/chat/completions\. Start",
    ) as caught:
        run.ask()
    assert KEY not in str(caught.value)
    assert len(upstream.calls) == 1


def test_a_compressed_reply_is_recorded(upstream, run):
    whole = json.dumps({"choices": [choice("It is 7.")], "model": MODEL}).encode()
    for name, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        upstream.instead = Response(pack(whole), 200, {"Content-Encoding": name})
        assert run.texts() == ["It is 7."]
    assert run.proxy.recorded == 2
    upstream.instead = Response(b"no gzip at all", 200, {"Content-Encoding": "gzip"})
    assert posted(run, json.dumps(body_of("?")))[0] == 502


def test_a_reply_whose_usage_is_odd_is_recorded(upstream, run):
    said = {"choices": [choice("It is 7.")], "model": MODEL, "usage": [7]}
    upstream.instead = json_answer(said)
    assert (run.texts(), run.proxy.recorded) == (["It is 7."], 1)


def test_a_reply_that_no_file_can_hold_is_recorded_as_far_as_it_can(upstream, tmp_path):
    message = b'{"role":"assistant","content":"a\\ud800 \\ud83d\\ude00"}'
    strange = b'{"choices":[{"index":0,"message":%b,"finish_reason":"stop"}]}' % message
    upstream.instead = Response(strange, 200, {"Content-Type": "application/json"})
    assert twice(upstream, tmp_path, Run.texts) == (["a\ufffd \U0001f600"],) * 2


@pytest.mark.parametrize("depth", [1000, 5000])
def test_a_reply_that_nests_too_deeply_to_be_stored_reaches_the_client(depth, upstream, run):
    deep = b"[" * depth + b"]" * depth
    reply = (
        b'{"choices":[{"index":0,"message":{"role":"assistant","content":"a","deep":%b}}]}' % deep
    )
    upstream.instead = Response(reply, 200, {"Content-Type": "application/json"})
    assert posted(run, json.dumps(body_of(PROBLEMS[0].question)).encode()) == (200, reply)
    assert (run.proxy.recorded, run.proxy.unrecorded) == (0, 1)


def test_what_a_client_did_not_wait_for_is_given_to_the_next(upstream, tmp_path, monkeypatch):
    """A client that times out asks again: the reply that was paid for is then given, in the same
    run.
    """
    given_back = threading.Event()
    give_back = Proxy._give_back

    def giving_back(*arguments):
        give_back(*arguments)
        given_back.set()

    monkeypatch.setattr(Proxy, "_give_back", giving_back)

    upstream.may_answer.clear()
    request = body_of(PROBLEMS[0].question, n=2)
    with upstream.server() as server, running(tmp_path, server.url) as run:
        connection = http.client.HTTPConnection("127.0.0.1", run.client.base_url.port)
        connection.request("POST", "/v1/chat/completions", json.dumps(request))
        while not upstream.calls:
            time.sleep(0.01)
        connection.close()
        upstream.may_answer.set()
        assert given_back.wait(30)
        first = run.client.chat.completions.create(**request)
        assert (len(upstream.calls), run.proxy.recorded, run.proxy.replayed) == (1, 2, 2)
        run.client.chat.completions.create(**request)
        assert len(upstream.calls) == 2  # given once, not forever
    with running(tmp_path, server.url) as run:
        assert run.client.chat.completions.create(**request).choices == first.choices


def test_limits_tell_requests_apart(lenient):
    for limit in (5, 60):
        lenient.ask(max_tokens=limit, extra_body={"max_completion_tokens": None})
    assert lenient.ask(max_tokens=5, extra_body={"max_completion_tokens": 6}).choices
    assert (lenient.proxy.recorded, lenient.proxy.unrecorded) == (2, 1)
    requests = records(lenient.journal, "request")
    assert [record["decoding"]["max_tokens"] for record in requests] == [5, 60]


def test_a_path_does_not_climb_out_of_v1(upstream, run):
    for path in ("/v1/../admin", "/v1/%2e%2e/admin", "/v2/models"):
        status, said = posted(run, b"{}", path)
        assert (status, b"such as those under /v1" in said) == (404, True)
    assert upstream.calls == []


def test_a_path_does_not_lead_to_another_server(upstream, tmp_path):
    """Where the base URL has no path, what a path begins with could end its host."""
    other = Upstream()
    with upstream.server() as server, other.server() as elsewhere:
        for number, base in enumerate((f"http://127.0.0.1:{server.port}", "http://127.0.0.1")):
            with running(tmp_path / str(number), base, forward_unrecorded=True) as run:
                there = f"127.0.0.1:{elsewhere.port}/v1/models"
                starts = ("/v1%2f@", "/v1%2F:x@", "/v1%2f.", "/v1//", "/v1/@", "/v1/%2f%2f")
                for path in starts:
                    assert posted(run, b"{}", path + there)[0] >= 400, path
    assert (bool(upstream.calls), other.calls) == (True, [])


def test_a_folder_that_cannot_be_sealed_into_is_refused_at_once(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("mine")
    result = feval(f"proxy --upstream http://127.0.0.1:9/v1 --record {tmp_path}/thesis")
    assert result.exit_code == 1
    assert "holds no recording" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


def test_what_cannot_be_written_is_neither_given_nor_paid_for_again(upstream, monkeypatch, run):
    def full(self):
        raise StorageError("The disk is full.")

    monkeypatch.setattr(Journal, "commit", full)
    for _ in range(2):
        with pytest.raises(openai.InternalServerError, match="The disk is full"):
            run.ask()
    assert len(upstream.calls) == 1


def test_the_question_is_the_longest_that_stands_in_the_message():
    texts = ("How many?", "Tom has 2. How many?", "Twin", "Twin")
    short, long, *_ = every = [Question(str(number), text) for number, text in enumerate(texts)]
    assert match("Q: Tom has 2. How many?\nA:", every) is long
    assert match("How many?", every) is short
    assert match("Twin How", every) is None
    assert match("something else", every) is None


def test_a_run_becomes_a_recording(tmp_path, run):
    golds = [
        Question(f"q{i}", p.question, str(p.answer), str(p.answer))
        for i, p in enumerate(PROBLEMS[:3])
    ]
    out = tmp_path / "r"
    told = {p.question: run.texts(f"Question: {p.question}\nAnswer:", n=3) for p in PROBLEMS}
    seal = lambda: seal_proxied(  # noqa: E731
        run.journal, out, dataset="sums", answer_kind="number", questions=golds
    )
    assert seal() == seal() == out
    run.texts(f"Question: {PROBLEMS[0].question}\nAnswer:", n=2, temperature=0.5)
    (tmp_path / ".r.partial-0").mkdir()  # as a process leaves it that is killed while it seals
    assert seal() == tmp_path / "r-2"  # a recording is never changed
    assert verify_recording(out).ok
    recording = open_recording(out)
    assert recording.llm_names("sums") == [MODEL]
    questions = recording.questions("sums")
    assert [(q.id, q.answer_key) for q in questions[:3]] == [(q.id, q.answer_key) for q in golds]
    assert re.fullmatch("sums/[0-9a-f]{16}", questions[3].id)
    assert (questions[3].text, questions[3].answer) == (
        f"Question: {PROBLEMS[3].question}\nAnswer:",
        None,
    )
    assert [pool.texts for pool in recording.pools("sums", MODEL)] == list(told.values())
    assert verify_recording(tmp_path / "r-2").ok
    names = open_recording(tmp_path / "r-2").llm_names("sums")
    assert len(names) == 2
    assert all(re.fullmatch(rf"{MODEL}@[0-9a-f]{{8}}", name) for name in names)
    assert not list(tmp_path.glob(".*"))


def test_the_command_records_seals_and_replays(upstream, tmp_path):
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        "\n".join(
            json.dumps({"id": f"q{i}", "question": p.question, "answer": str(p.answer)})
            for i, p in enumerate(PROBLEMS)
        )
    )

    def command(url):
        folder = f"--record {tmp_path}/r --dataset sums --answer-kind number --json"
        return f"proxy --upstream {url} {folder} --questions {questions}"

    def through(url):
        line = [sys.executable, "-m", "feval", *command(url).split()]
        with subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            where = json.loads(process.stdout.readline())
            with openai.OpenAI(base_url=where["url"], api_key=KEY, max_retries=0) as client:
                reply = client.chat.completions.create(**body_of(PROBLEMS[0].question, n=5))
                texts = [choice.message.content for choice in reply.choices]
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
            return texts, json.loads(process.stdout.read())

    with upstream.server() as server:
        texts, told = through(server.url)
    assert told == {"recording": str(tmp_path / "r"), "recorded": 5, "replayed": 0, "unrecorded": 0}
    assert through(server.url) == (texts, told | {"recorded": 0, "replayed": 5})
    result = feval(command(server.url), "--seal")
    assert result.exit_code == 0, result.output
    assert open_recording(tmp_path / "r").questions("sums")[0].id == "q0"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--upstream nowhere", 2, "names no server"),
        ("--answer-kind verbatim", 2, "choose another"),
        ("--answer-kind colour", 2, "colour"),
        ("--api-key-env NO_SUCH_KEY", 2, "NO_SUCH_KEY"),
        ("--seal", 1, "There is no journal"),
    ],
)
def test_what_cannot_work_is_said(tmp_path, options, code, words):
    result = feval(f"proxy --upstream http://127.0.0.1:9/v1 --record {tmp_path}/r {options}")
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_thoughts_are_recorded_given_again_and_split_off_the_text(upstream, tmp_path):
    choices = [
        choice("The answer is 4.", reasoning="It is 7."),
        choice("<think>It is 7.</think>The answer is 5.") | {"index": 1},
    ]
    contents = [each["message"]["content"] for each in choices]
    usage = {"completion_tokens_details": {"reasoning_tokens": 8}}
    usage |= {"prompt_tokens": 3, "completion_tokens": 20}
    upstream.instead = json_answer({"choices": choices, "usage": usage})
    with upstream.server() as server, running(tmp_path, server.url) as run:
        run.ask(n=2)
    with running(tmp_path, server.url) as run:
        deltas = [chunk.choices[0].delta for chunk in run.ask(n=2, stream=True) if chunk.choices]
        seal_proxied(run.journal, tmp_path / "r", dataset="sums", answer_kind="number")
    assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == "It is 7."
    assert "".join(delta.content or "" for delta in deltas) == "".join(contents)
    recording = open_recording(tmp_path / "r")
    (pool,) = recording.pools("sums", MODEL)
    assert (list(pool.texts), pool.reasoning) == (
        ["The answer is 4.", "The answer is 5."],
        ["It is 7.", "It is 7."],
    )
    assert pool.raw_texts() == contents
    assert recording.manifest.pairs["sums", MODEL]["counter"] == "usage, split by length"

"""Whole programs on a recording: what asks an LLM is answered, and nothing else leaves."""

import asyncio
import socket
import sys
import threading

import openai
import orjson
import pytest
from serving_doubles import opened, simple, user

import feval
from feval.errors import UsageError

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
httpx2 = pytest.importorskip("httpx2")

QUESTION = "What is the answer to question number 0, please?"
ASKED = {"model": "gpt-3.5-turbo", "messages": [user(QUESTION)]}
URL = "https://api.openai.com/v1/chat/completions"


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return simple(tmp_path_factory.mktemp("replaying") / "r", [QUESTION], size=40)


@pytest.fixture(scope="module")
def draw(recording):
    _, [llm] = feval.load("toy", recording=recording)
    return [cot.raw_text for cot in llm(0, 8).cots]


def test_an_official_client_is_answered_as_it_is(recording, draw):
    client = openai.OpenAI(api_key="sk-secret", max_retries=0)
    with feval.replaying(recording) as replay:
        replies = [client.chat.completions.create(**ASKED) for _ in range(2)]
        said = [reply.choices[0].message.content for reply in replies]

        async def ask():
            async with openai.AsyncOpenAI(api_key="x") as own:
                return await own.chat.completions.create(**ASKED)

        said.append(asyncio.run(ask()).choices[0].message.content)
        assert said == draw[:3]
        assert replay.ledger()["cots"] == 3


def test_other_libraries_are_answered(recording, draw):
    requests = pytest.importorskip("requests")
    aiohttp = pytest.importorskip("aiohttp")

    async def ask():
        async with aiohttp.ClientSession() as session, session.post(URL, json=ASKED) as reply:
            return (await reply.json())["choices"][0]["message"]["content"]

    with feval.replaying(recording) as replay:
        reply = requests.post(URL, json=ASKED, timeout=9)
        assert reply.json()["choices"][0]["message"]["content"] == draw[0]
        assert asyncio.run(ask()) == draw[1]
        assert replay.ledger()["cots"] == 2
        streamed = requests.post(URL, json=ASKED | {"stream": True}, stream=True, timeout=9)
        assert b"[DONE]" in b"".join(streamed.iter_content(chunk_size=None))
        raw = iter([orjson.dumps(ASKED)])
        named = requests.post(URL, data=raw, headers={"X-Feval-Run": b"other"}, timeout=9)
        assert (named.reason, named.headers["X-Feval-Run"]) == ("OK", "other")

        async def named_ask():
            url = URL.replace("/v1", "/run/third/v1")
            own = {"Origin": "https://x.example"}
            async with aiohttp.ClientSession() as session:
                replies = [await session.post(url, json=ASKED, headers=own) for url in (url, URL)]
                return [reply.headers["X-Feval-Run"] for reply in replies]

        assert asyncio.run(named_ask()) == ["third", "default"]
        with pytest.raises(UsageError, match=r"example\.com was refused"):
            requests.get("https://example.com/", timeout=9)
        listed = requests.get("https://api.openai.com/v1/models", timeout=9).json()["data"]
        assert [each["id"] for each in listed] == ["gpt-3.5-turbo"]
        with pytest.raises(UsageError, match=r"huggingface\.co was refused"):
            requests.get("https://huggingface.co/api/models", timeout=9)


def test_every_other_connection_is_refused(recording):
    with feval.replaying(recording):
        for host in ("example.com", "93.184.215.14"):
            with pytest.raises(UsageError, match=f"to {host} was refused"):
                socket.create_connection((host, 443), timeout=1)
        with pytest.raises(UsageError, match=r"to example\.com was refused"):
            httpx2.get("https://example.com/robots.txt")
        told = []

        def ask():
            try:
                socket.getaddrinfo("example.com", 80)
            except UsageError as error:
                told.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert told


def test_loopback_and_allowed_hosts_pass(recording):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with feval.replaying(recording):
            socket.create_connection(("localhost", port)).close()
        with feval.replaying(recording, allow=["192.0.2.1"]):
            with pytest.raises(OSError, match=r"closed|timed out|unreachable"):
                socket.create_connection(("192.0.2.1", 9), timeout=0.05)
            with pytest.raises(UsageError):
                socket.create_connection(("192.0.2.2", 9), timeout=0.05)
    with pytest.raises(UsageError, match="a list of hosts"), feval.replaying(recording, allow="x"):
        pass


def test_all_addresses_of_an_allowed_host_pass(recording, monkeypatch):
    def looked_up(*arguments, **_):
        sys.audit("socket.getaddrinfo", *arguments, 0, 0, 0)
        found = [("192.0.2.7", 0), ("2001:db8::7", 0, 0, 0)]
        return [(None, None, None, "", address) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    with feval.replaying(recording, allow=["host.example"]):
        with pytest.raises(UsageError):
            sys.audit("socket.connect", None, ("2001:db8::7", 443, 0, 0))
        socket.getaddrinfo("host.example", 443)
        sys.audit("socket.connect", None, ("2001:db8::7", 443, 0, 0))
        sys.audit("socket.connect", None, (b"127.0.0.1", 443))
        sys.audit("socket.connect", None, ("0.0.0.0", 8000))  # noqa: S104  this machine's own


def test_blocks_that_overlap_leave_nothing_behind(recording):
    before = httpx2.HTTPTransport.handle_request
    first, second = (feval.replaying(recording, run=run) for run in "ab")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert httpx2.post(URL, json=ASKED).headers["x-feval-run"] == "b"
    second.__exit__(None, None, None)
    assert httpx2.HTTPTransport.handle_request is before


def test_blocks_nest_and_leave_nothing_behind(recording, draw):
    before = httpx2.HTTPTransport.handle_request
    with feval.replaying(recording, run="outer"), opened(recording) as app:
        with feval.replaying(app, run="inner@1") as inner:
            httpx2.post(URL, json=ASKED)
            assert inner.ledger()["cots"] == 1
        reply = httpx2.post(URL, json=ASKED)
        assert reply.headers["x-feval-run"] == "outer"
        assert reply.json()["choices"][0]["message"]["content"] == draw[0]
    assert httpx2.HTTPTransport.handle_request is before
    with pytest.raises(ZeroDivisionError), feval.replaying(recording):
        raise ZeroDivisionError
    assert httpx2.HTTPTransport.handle_request is before
    sys.audit("socket.connect", None, ("example.com", 1))  # idle outside

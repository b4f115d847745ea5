"""Replay inside the official client: the same CoTs as `load` hands out, the client's own errors and
streams, and no socket.
"""

import asyncio
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain

import pytest
from small import write_toy

from feval import load
from feval.errors import ReplayWarning, UsageError
from feval.serving.application import Application
from feval.serving.server import replay_server
from feval.serving.transport import (
    AsyncReplayTransport,
    ReplayTransport,
    replay_async_http_client,
    replay_http_client,
)

openai = pytest.importorskip(
    "openai", reason="the official client (extra `record`) is not installed"
)

MODEL = "gpt-3.5-turbo"
POOLS = [["a", "a", "b", "a"], ["x", "y", None, "y"], [*"bcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbc"]]
GOLDS = ["a", "y", "b"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("served") / "toy", {MODEL: POOLS}, GOLDS)


@pytest.fixture(scope="module")
def llm(toy):
    return load("toy", recording=toy)[1][0]


@pytest.fixture
def client(toy):
    with openai.OpenAI(api_key="anything", http_client=replay_http_client(toy)) as made:
        yield made


@pytest.fixture
def loop():
    """A loop wakes itself through a pair of sockets, which it makes here, before none can be
    made.
    """
    # which ends the streams that a client left, as `asyncio.run` does
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture
def closed(monkeypatch):
    """No socket can be made, and no name looked up."""

    def refuse(*_, **__):
        raise AssertionError("a socket was made")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def asked(question=0, **fields):
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"What is question {question}?"}],
        **fields,
    }


def texts(reply):
    return [choice.message.content for choice in reply.choices]


def drawn(llm, question, n, replicate=0):
    return [cot.raw_text for cot in llm(f"toy/{question}", n, replicate=replicate).cots]


def test_the_client_gets_the_draw_of_load_without_a_socket(closed, toy, llm):
    with openai.OpenAI(api_key="anything", http_client=replay_http_client(toy)) as client:
        first = client.chat.completions.create(**asked(2, n=3))
        others = [client.chat.completions.create(**asked(2)) for _ in range(2)]
    assert texts(first) + [text for each in others for text in texts(each)] == drawn(llm, 2, 5)
    assert first.usage.prompt_tokens == 7


def test_the_key_is_neither_kept_nor_a_run(client, toy):
    key = "sk-" + "a1" * 20
    with openai.OpenAI(api_key=key, http_client=replay_http_client(toy, run="mine")) as with_key:
        with_key.chat.completions.create(**asked())
        application = with_key._client.replay.application
        assert [run["run"] for run in application.ledger()["runs"]] == ["mine"]
        assert key not in json.dumps(application.ledger())


def test_a_reply_that_ignores_the_temperature_warns_once(client):
    with pytest.warns(
        ReplayWarning,
        match=r"The run 'default' asks for temperature 0, but gpt-3.5-turbo was recorded with 0.7",
    ):
        client.chat.completions.create(**asked(temperature=0))
    client.chat.completions.create(**asked(temperature=0))


def test_a_run_is_reset(toy, llm):
    with openai.OpenAI(api_key="k", http_client=replay_http_client(toy, run="mine")) as client:
        for _ in range(2):
            assert texts(client.chat.completions.create(**asked(2, n=5))) == drawn(llm, 2, 5)
            client._client.reset()


@pytest.mark.parametrize(
    "base_url",
    [
        "https://api.openai.com/v1",
        "http://127.0.0.1:9/v1/",
        "https://llm.invalid",
        "https://llm.invalid/v1beta/openai/",
        "https://llm.invalid/inference/deployments/any",
        "https://llm.invalid/api/run/mine/v1",
    ],
)
def test_the_base_url_makes_no_difference(base_url, closed, toy, llm):
    with openai.OpenAI(
        api_key="k", base_url=base_url, http_client=replay_http_client(toy)
    ) as client:
        assert texts(client.chat.completions.create(**asked(0, n=4))) == drawn(llm, 0, 4)
        assert [model.id for model in client.models.list()] == [MODEL]
        assert client.models.retrieve(MODEL).id == MODEL


def test_a_stream_is_the_clients_own(closed, client, llm):
    events = list(
        client.chat.completions.create(
            **asked(0, n=2, stream=True, stream_options={"include_usage": True})
        )
    )
    written = ["", ""]
    for event in events:
        for choice in event.choices:
            written[choice.index] += choice.delta.content or ""
    assert written == drawn(llm, 0, 2)
    assert events[-1].usage.completion_tokens == llm("toy/0", 2).tokens
    with client.chat.completions.create(**asked(0, stream=True)) as stream:
        next(iter(stream))  # and no more: the rest is let go of
    assert (
        client.chat.completions.create(**asked(0)).choices[0].message.content == drawn(llm, 0, 4)[3]
    )


def test_errors_are_the_clients_own_and_cost_one_request(client, monkeypatch):
    calls = []
    transport = client._client.replay
    answer = transport.application.respond
    monkeypatch.setattr(
        transport.application, "respond", lambda call: calls.append(call) or answer(call)
    )
    wrong = [
        ({"model": "gpt-9"}, "NotFoundError", "model_not_found", "gpt-9"),
        (
            {"messages": [{"role": "user", "content": "?"}]},
            "BadRequestError",
            "not_recorded",
            "none of the recorded",
        ),
        ({"n": 5}, "BadRequestError", "pool_exhausted", "5"),
        ({"n": 0}, "BadRequestError", None, "`n`"),
        ({"n": 10**9}, "BadRequestError", None, None),
        ({"temperature": "hot"}, "BadRequestError", None, "`temperature`"),
        ({"extra_headers": {"X-Feval-Run": "../../etc"}}, "BadRequestError", "bad_run", None),
        (
            {"extra_body": {"feval": {"question": "toy/99"}}},
            "BadRequestError",
            "not_recorded",
            "toy/99",
        ),
    ]
    for fields, error, code, words in wrong:
        with pytest.raises(getattr(openai, error), match=words) as caught:
            client.chat.completions.create(**asked() | fields)
        assert code is None or caught.value.code == code
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=MODEL, input="text")
    assert len(calls) == len(wrong) + 1


def test_the_client_grades_its_run(toy):
    http = replay_http_client(toy, run="mine@0")
    with openai.OpenAI(api_key="k", http_client=http) as client:
        client.chat.completions.create(**asked(0, n=3))
        client.chat.completions.create(**asked(1, n=1))
        result = http.grade({"toy/0": "a", "What is question 1?": "x"}).grade
    assert (result.run, result.replicate, result.questions, result.accuracy) == ("mine", 0, 2, 0.5)
    assert result.to_dict()["usd"] == pytest.approx(http.ledger()["usd"])


def test_the_asynchronous_client(loop, closed, toy, llm):
    http = replay_async_http_client(toy, run="async@2")

    async def ask():
        async with openai.AsyncOpenAI(api_key="k", http_client=http) as client:
            replies = await asyncio.gather(
                *(client.chat.completions.create(**asked(2)) for _ in range(31))
            )
            stream = await client.chat.completions.create(**asked(2, stream=True))
            streamed = "".join(
                [event.choices[0].delta.content or "" async for event in stream if event.choices]
            )
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(**asked(2))
            return replies, streamed

    replies, streamed = loop.run_until_complete(ask())
    assert sorted([streamed, *(text for reply in replies for text in texts(reply))]) == sorted(
        llm.texts(2)
    )
    assert http.ledger()["replicate"] == 2


def test_one_application_behind_several_clients(toy, llm):
    with Application.open(toy) as application:
        for _ in range(2):
            with openai.OpenAI(
                api_key="k", http_client=replay_http_client(application, run="both")
            ) as client:
                client.chat.completions.create(**asked(0, n=2))
        assert application.ledger("both")["cots"] == 4
        with pytest.raises(UsageError, match="seed cannot be chosen any more"):
            replay_http_client(application, seed=1)


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_a_transport_speaks_the_library_that_asks(library, loop, toy, llm):
    http = pytest.importorskip(library)
    body = asked(0, n=1)
    with http.Client(transport=ReplayTransport(toy), base_url="http://recording.invalid") as client:
        reply = client.post("/v1/chat/completions", json=body)
        assert isinstance(reply, http.Response)
        assert [choice["message"]["content"] for choice in reply.json()["choices"]] == drawn(
            llm, 0, 1
        )
        assert client.get("/feval/ledger", params={"run": "default"}).json()["cots"] == 1

    async def ask():
        async with http.AsyncClient(
            transport=AsyncReplayTransport(toy), base_url="http://recording.invalid"
        ) as client:
            return int((await client.post("/v1/chat/completions", json=body)).status_code)

    assert loop.run_until_complete(ask()) == 200


def test_a_request_of_neither_library_is_refused(toy):
    class Url:
        path, query = "/v1/models", b""

    class Request:
        method, url, headers = "GET", Url(), {}

        def read(self):
            return b""

    with pytest.raises(UsageError, match="Request is a request of neither"):
        ReplayTransport(toy).handle_request(Request())


def test_importing_the_transport_imports_no_http_library():
    script = (
        "import feval.serving.transport, sys; print(sorted({'httpx', 'httpx2', 'openai'} &"
        " set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


ROUNDS = [1, 3, 2, 1, 5, 1, 2, 8] * 3  # of 24 questions, as an adaptive method asks them


@pytest.mark.parametrize(
    "way", ["async server", "async", "threads server", "threads", "one by one server", "one by one"]
)
def test_questions_that_are_asked_at_once_are_one_pass_and_the_program_again_is_another(
    tmp_path, way
):
    """Eight at a time, each in rounds of one CoT; then the program is run once more."""
    recording = write_toy(
        tmp_path / "toy", {MODEL: [["a", "b"] * 8] * len(ROUNDS)}, ["a"] * len(ROUNDS)
    )
    workers = 1 if way.startswith("one") else 8
    with ExitStack() as stack:
        application = stack.enter_context(Application.open(recording))
        server = stack.enter_context(replay_server(application)) if way.endswith("server") else None
        kind, inside = (
            (openai.AsyncOpenAI, replay_async_http_client)
            if way.startswith("async")
            else (openai.OpenAI, replay_http_client)
        )
        options = (
            {"base_url": server.url} if server else {"http_client": inside(application, run="mine")}
        )

        def passes(client, question):
            ask = client.chat.completions.with_raw_response.create
            return [
                ask(**asked(question)).headers.get("x-feval-pass") for _ in range(ROUNDS[question])
            ]

        async def at_once():
            turn, found = asyncio.Semaphore(workers), []

            async def rounds(question):
                async with turn:
                    for _ in range(ROUNDS[question]):
                        reply = await client.chat.completions.with_raw_response.create(
                            **asked(question)
                        )
                        found.append(reply.headers.get("x-feval-pass"))
                        await asyncio.sleep(0)

            async with kind(api_key="mine", **options) as client:
                await asyncio.gather(*map(rounds, range(len(ROUNDS))))
            return found

        def program():
            if way.startswith("async"):
                return asyncio.run(at_once())
            with kind(api_key="mine", **options) as client, ThreadPoolExecutor(workers) as threads:
                return [
                    *chain(
                        *threads.map(lambda question: passes(client, question), range(len(ROUNDS)))
                    )
                ]

        assert set(program()) == {None}
        if server is None:
            options = {"http_client": inside(application, run="mine")}
        again = program()
        assert again.count("2") >= len(again) - 1
        assert application.ledger("mine")["asked_again"] >= len(ROUNDS) - 1

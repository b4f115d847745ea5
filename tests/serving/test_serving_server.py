"""`feval serve` and its server at work: the official client, raw clients by the dozen, kills and
restarts.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from places import ROOT
from pydantic import BaseModel
from raw_http import Raw, ask, request
from serving_doubles import simple
from small import write_toy
from typer.testing import CliRunner

from feval.cli import app
from feval.errors import StorageError
from feval.replay import load

pytest.importorskip("openai")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

import openai

from feval.serving import serve

QUESTIONS = 4
COTS = 12


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    answers = [[str((i * j) % 5) for j in range(COTS)] for i in range(QUESTIONS)]
    out = tmp_path_factory.mktemp("serving") / "toy"
    return write_toy(
        out, {"alpha": answers, "beta": answers}, [str(i) for i in range(QUESTIONS)], prices="none"
    )


@pytest.fixture
def server(toy):
    with serve(toy) as running:
        yield running


def messages(index):
    return [{"role": "user", "content": f"What is question {index}?"}]


def drawn(recording, llm, index, k, replicate=0):
    """The texts that `feval.load` draws."""
    _, [opened] = load("toy", [llm], recording, prices="none")
    return [cot.raw_text for cot in opened.ask(f"toy/{index}", replicate).sample(k).cots]


def client(server, run="my-run", **settings):
    return openai.OpenAI(base_url=server.url, api_key=run, **settings)


def texts(completion):
    return [choice.message.content for choice in completion.choices]


def chat(index, llm="alpha", run="raw", **fields):
    body = {"model": llm, "messages": messages(index)} | fields
    return request("POST", f"/run/{run}/v1/chat/completions", body)


def test_parse_works_and_tools_are_refused(tmp_path):
    class Answer(BaseModel):
        answer: int

    own = [f'{{"answer": {number}}}' for number in range(4)]
    path = simple(tmp_path / "json", ["What is question 0?"], llm="alpha", texts=own)
    tool = {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
    }
    with serve(path) as server, client(server) as asks:
        parsed = asks.chat.completions.parse(
            model="alpha", messages=messages(0), response_format=Answer
        )
        with pytest.raises(openai.BadRequestError, match="offers the tools f, and alpha"):
            asks.chat.completions.create(model="alpha", messages=messages(0), tools=[tool])
    assert parsed.choices[0].message.parsed.answer in range(4)


def test_10_mb_of_conversation_are_answered_in_time(server):
    for content in ("x" * 9_900_000, "What is question 0?" * 500_000, "Wh" * 4_900_000):
        body = {"model": "alpha", "messages": [{"role": "user", "content": content}]}
        received = ask(server.port, "POST", "/v1/chat/completions", body)
        assert received.status in {200, 400, 404}, received.body[:500]
        assert len(received.body) < 100_000


def test_unicode_goes_both_ways(tmp_path):
    worst = 'Grüße 🧮 "quoted\\" \u2028 \u202eabc\u202c e\u0301 \ufeff \x7f \x00'
    path = simple(tmp_path / "unicode", [worst], llm="modèle/🧮", texts=[worst] * 4)
    with serve(path) as server, client(server) as asks:
        raw = asks.chat.completions.with_raw_response.create(
            model="modèle/🧮", messages=[{"role": "user", "content": worst}]
        )
        assert texts(raw.parse()) == [worst]
        assert asks.models.retrieve("modèle/🧮").id == "modèle/🧮"
        assert [model.id for model in asks.models.list()] == ["modèle/🧮"]


@contextlib.contextmanager
def command(*arguments, as_json=True, **variables):
    """`feval serve` and the line it is ready with."""
    given = [
        sys.executable,
        "-m",
        "feval",
        "serve",
        *map(str, arguments),
        "--port",
        "0",
        *["--json"] * as_json,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("FEVAL_SERVE_TOKEN", None)
    environment |= variables
    with subprocess.Popen(
        given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            line = process.stdout.readline()
            yield process, json.loads(line) if as_json else line
        finally:
            process.kill()


def take(port, number, run="raw"):
    """Recorded places of the next CoTs, one by one."""
    with Raw(port) as connection:
        return [
            connection.send(chat(0, run=run)).receive().headers["x-feval-samples"]
            for _ in range(number)
        ]


def test_the_command_says_where_it_is_and_what_to_paste(toy):
    with command(toy, as_json=False) as (process, line):
        assert line.startswith("Serving alpha, beta at http://127.0.0.1:")
        url = line.split(" at ")[1].split()[0]
        assert process.stdout.readline() == f"OPENAI_BASE_URL={url} OPENAI_API_KEY=my-run\n"
        with openai.OpenAI(base_url=url, api_key="my-run") as asks:
            assert texts(
                asks.chat.completions.create(model="alpha", messages=messages(0))
            ) == drawn(toy, "alpha", 0, 1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "Served 1 CoT in 1 request of 1 run." in said


@pytest.mark.slow
@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGTERM])
def test_with_its_ledger_a_server_goes_on_where_it_stood(toy, tmp_path, ended):
    file = tmp_path / "ledger.jsonl"
    with command(toy, "--ledger", file) as (process, ready):
        got = take(ready["port"], 5)
        # what was written is on its way to the disk for at most 0.2 seconds
        if ended == signal.SIGKILL:
            while len(file.read_bytes().splitlines()) < 6:
                pass
        process.send_signal(ended)
        process.wait()
    with pytest.raises(StorageError, match="`resume`"):
        serve(toy, ledger=file)
    with command(toy, "--ledger", file, "--resume") as (_, ready):
        assert ask(ready["port"], "GET", "/feval/ledger").json["runs"][0]["cots"] == 5
        got += take(ready["port"], COTS - 5)
    assert len(set(got)) == COTS
    _, [llm] = load("toy", ["alpha"], toy, prices="none")
    assert [int(sample) for sample in got] == list(llm.order(0, 0))


def test_the_terminal_says_once_what_replies_do_not_heed_and_who_goes_on(toy, tmp_path):
    file = tmp_path / "ledger.jsonl"
    with command(toy, "--ledger", file, as_json=False) as (process, line):
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        with Raw(port) as connection:
            for temperature in (0, 0, 1):
                connection.send(chat(0, temperature=temperature)).receive()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert said.count("The run 'raw' asks for temperature 0, but alpha was recorded with 0.7.") == 1
    assert said.count("temperature") == 1
    with command(toy, "--ledger", file, "--resume") as (process, _):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert "A run that asks again continues with its next CoTs" in said


@pytest.mark.parametrize("options", [("--few-shot", "last"), ("--allow-mismatch",)])
def test_the_switches_of_the_command(toy, options):
    several = "Q: What is question 0? A: 0\nQ: What is question 1? A:"
    asked = (
        {"messages": [{"role": "user", "content": several}]},
        {"messages": messages(0), "response_format": {"type": "json_object"}},
    )
    with command(toy, *options) as (_, ready):
        got = [
            ask(ready["port"], "POST", "/run/mine/v1/chat/completions", {"model": "alpha"} | each)
            for each in asked
        ]
    assert [reply.status == 200 for reply in got] == ["last" in options, "last" not in options]


def test_what_cannot_be_served_is_a_sentence(server, toy, tmp_path):
    for arguments, token, code, words in (
        ([toy, "--host", "0.0.0.0"], "", 2, "FEVAL_SERVE_TOKEN"),  # noqa: S104
        ([toy, "--order", "random"], "", 2, "recorded, seeded"),
        ([toy, "--few-shot", "first"], "", 2, "last, none"),
        ([toy, "--resume"], "", 2, "--ledger"),
        ([toy], "short", 2, "16 or more"),
        ([toy, "--port", server.port], "", 1, "Name another --port"),
        ([tmp_path / "absent"], "", 1, "does not exist"),
    ):
        command = ["serve", "--port", "0", *map(str, arguments)]
        result = CliRunner(env={"FEVAL_SERVE_TOKEN": token or None}).invoke(
            app, command, prog_name="feval"
        )
        assert (result.exit_code, result.stdout) == (code, "")
        assert words in result.stderr


def test_a_server_that_is_stopped_at_once_ends(toy):
    for _ in range(5):
        with serve(toy, port=0) as running:
            pass
        assert not running._thread.is_alive()


def test_a_token_opens_and_is_never_shown(toy):
    token = "a-token-of-some-length"  # noqa: S105  opens a toy
    with command(toy, "--host", "0.0.0.0", as_json=False, FEVAL_SERVE_TOKEN=token) as (  # noqa: S104
        process,
        line,
    ):
        line += process.stdout.readline()
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        assert ask(port, "GET", "/v1/models").status == 401
        for sent in ({"authorization": f"Bearer {token}"}, {"x_goog_api_key": token}):
            assert ask(port, "GET", "/v1/models", **sent).status == 200
        assert ask(port, "GET", f"/api/tags?key={token}").status == 200
        spelled = "".join(f"%{ord(letter):02x}" for letter in token)
        run = ask(port, "GET", f"/feval/ledger?run=none&key={spelled}")
        assert (run.status, token in str(run)) == (404, False)
        refused = ask(port, "POST", "/v1/messages", b"{}", x_api_key=f"{token}-")
        assert (refused.status, refused.json["error"]["type"]) == (401, "authentication_error")
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=30)
    assert "read the recording" in said
    assert (
        f"OPENAI_BASE_URL=http://127.0.0.1:{port}/run/my-run/v1 OPENAI_API_KEY=$FEVAL_SERVE_TOKEN"
        in line
    )
    assert token not in line + out + said


def test_no_key_and_no_text_of_a_request_is_ever_logged(toy, tmp_path):
    secret = "sk-proj-" + "Secret0123456789" * 4
    file = tmp_path / "ledger.jsonl"
    with command(toy, "--ledger", file) as (process, ready):
        for path in ("/v1/chat/completions", "/nowhere"):
            for body in (
                {"model": "alpha", "messages": messages(0)},
                {"model": "alpha", "messages": [{"role": "user", "content": secret}]},
            ):
                ask(
                    ready["port"],
                    "POST",
                    path,
                    body,
                    authorization=f"Bearer {secret}",
                    x_api_key=secret,
                )
        with Raw(ready["port"]) as connection:
            connection.send(
                f"GET /{secret} HTTP/9\r\nauthorization: {secret}\r\n\r\n".encode()
            ).receive()
        result = ask(ready["port"], "GET", "/feval/ledger")
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=30)
    assert "Secret0123456789" not in result.body.decode() + out + said + file.read_text()
    assert result.json["runs"][0]["cots"] == 1

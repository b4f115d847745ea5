"""A key is nowhere but in the requests: recorded with a marked key through every failure, then
looked for everywhere.
"""

import asyncio
import base64
import json
import logging
import os
import stat
import traceback
from pathlib import Path
from random import Random
from urllib.parse import quote

import httpx2
import pyarrow.parquet as pq
import pytest
from command_line import feval
from faulty_server import FAULTS, FaultyServer
from recording_doubles import reply, request, task
from settings_files import settings_file
from starlette.responses import Response
from starlette.routing import Route
from typer.testing import CliRunner

from feval.cli import app
from feval.errors import FevalError, UsageError
from feval.publish.secrets import forms
from feval.recording import Question
from feval.serving.server import METHODS, Server
from recorders.asking.pace import Limits
from recorders.backends.openai_compatible import Endpoint
from recorders.journal import Journal
from recorders.scoring.scores import CoTKey, Score, ScoreJournal
from recorders.servers.proxy import seal_proxied
from recorders.work.record import record_dataset

pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")

from recorders.backends.openai_compatible import OpenAICompatible
from recorders.servers.proxy import Proxy, proxy_server

KEY = "sk-proj-MARKED/0123456789+abcdefghijkl"
PASSWORD = "MARKED-pass:word/0123"  # noqa: S105  it opens nothing
# Whatever half of the key would show it; the names of these tests hold none.
FRAGMENTS = [
    form[start : start + 8]
    for secret in (KEY, PASSWORD, f"marked-user:{PASSWORD}")
    for form in (secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode())
    for start in range(len(form) - 7)
]
QUICK = Limits(concurrency=2, retries=1, backoff_s=0.001, longest_backoff_s=0.001, timeout_s=0.3)


def assert_no_secret(text, where):
    fragments = [fragment for fragment in FRAGMENTS if fragment in text]
    assert not fragments, (
        f"{where} shows the key: {text[max(0, text.index(fragments[0]) - 80) :][:200]!r}"
    )


def record(endpoint, out, heard, *questions):
    """Record; whatever is said to the user on the way goes to `heard`, with the traceback a
    developer would see.
    """
    notes = []
    backend = OpenAICompatible(
        endpoint, note=lambda sentence: (notes.append(sentence), heard.append(sentence))[1]
    )
    work = task(
        [Question(f"q{number}", text, "3") for number, text in enumerate(questions)], 2, logprobs=1
    )
    heard += [repr(backend), repr(endpoint), repr(endpoint.redaction), repr(vars(backend))]
    try:
        said = {"backend_notes": notes, "progress": lambda progress: heard.append(repr(progress))}
        record_dataset(work, backend, out, limits=QUICK, prices="none", partial=True, **said)
    except FevalError as error:
        heard += [str(error), repr(error), "".join(traceback.format_exception(error))]


def written(folder):
    return {
        path: path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("fault", ["", *(name for name in FAULTS if name != "429 date")])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for ever"])
def test_the_key_is_nowhere(tmp_path, caplog, fault, lasting):
    caplog.set_level(logging.DEBUG)
    heard = []
    with FaultyServer(
        lambda _question, attempt: fault if lasting or not attempt else "", repeats_key=True
    ) as server:
        asked = "How much is 1 + 2? [key]", "How much is 2 + 1?"
        record(Endpoint(server.url, KEY), tmp_path / "out", heard, *asked)
    assert any(seen.headers["authorization"] == f"Bearer {KEY}" for seen in server.seen)
    assert written(tmp_path) or any("nothing is recorded yet" in text for text in heard)
    for path, content in written(tmp_path).items():
        assert_no_secret(content, str(path.relative_to(tmp_path)))
    for text in heard:
        assert_no_secret(text, "what is said")
    assert caplog.records
    for entry in caplog.records:
        assert_no_secret(logging.Formatter().format(entry), f"the log of {entry.name}")
    assert_no_secret(Path("/proc/self/cmdline").read_bytes().decode(), "the command line")


def test_a_masked_key_in_a_reply_is_said(tmp_path):
    heard = []
    with FaultyServer(repeats_key=True) as server:
        record(Endpoint(server.url, KEY), tmp_path / "out", heard, "How much is 1 + 2? [key]")
    assert "A reply held the API key; it is masked in the recording." in heard


def test_credentials_in_the_base_url_are_nowhere(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    heard = []
    with FaultyServer(["500", "401"], repeats_key=True) as server:
        url = f"http://marked-user:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/v1"
        record(Endpoint(url), tmp_path / "out", heard, "How much is 1 + 2?")
    assert server.seen[0].headers["authorization"].startswith("Basic ")
    logged = (logging.Formatter().format(entry) for entry in caplog.records)
    for text in (*written(tmp_path).values(), *heard, *logged):
        assert_no_secret(text, "something")


def test_the_guard_of_the_logs_goes_with_the_backend():
    logger = logging.getLogger("openai._base_client")
    before = list(logger.filters)
    backend = OpenAICompatible(Endpoint("https://host.example/v1", KEY))
    assert len(logger.filters) == len(before) + 1
    asyncio.run(backend.aclose())
    assert logger.filters == before


def test_the_test_would_see_a_key():
    with pytest.raises(AssertionError):
        assert_no_secret(f"... {KEY[5:14]} ...", "this text")


def test_journals_hold_no_known_key_and_are_their_owners_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", KEY)
    before = os.umask(0o022)
    try:
        for _ in range(2):  # the second time the files are there, and open to all
            with Journal.open(tmp_path / "j", {"a": 1}) as journal:
                asked = request(len(journal))
                answer = reply(0, 0, response_id=KEY, reasoning=f"Hm, {KEY}")
                more = {"recorded_at": "now", "refused": KEY, "choices": [{KEY: [KEY]}]}
                journal.add(asked, asked.key(), [0], [answer], **more)
                journal.note(f"It said {quote(KEY, safe='')}.")
                journal.commit()
            with ScoreJournal.open(tmp_path / "s", {"a": 1}) as scores:
                scores.add([(CoTKey("d", "m", "q", len(scores)), Score(verdict=KEY))])
                scores.commit()
            files = [path for path in tmp_path.rglob("*") if path.is_file()]
            assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 2
            for path in files:
                path.chmod(0o644)
        with Journal.open(tmp_path / "j", {"a": 1}, mode="all"):
            assert stat.S_IMODE((tmp_path / "j" / "journal-1.jsonl").stat().st_mode) == 0o600
    finally:
        os.umask(before)
    for path, text in written(tmp_path).items():
        assert_no_secret(text, path.name)


def test_a_task_holds_no_known_key(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", KEY)
    for texts, decoding in (
        ([f"Is it {KEY}?"], {}),
        (["Is it?"], {"stop": (KEY,)}),
        (["?"], {"extra_body": {"a": [KEY]}}),
    ):
        with pytest.raises(UsageError, match="variable SOME_TOKEN is in the"):
            task([Question("q", text, "3") for text in texts], 1, **decoding)
    with pytest.raises(UsageError, match="field 'password'"):
        task([Question("q", "?", "3")], 1, extra_body={"a": {"password": "x"}})


SETTINGS = {"dataset": "tiny_sums", "llm": "m", "backend": "openai", "prompt": "none"}


class Echo:
    """A server that repeats a secret in whatever it can, and whose every third reply is an
    error.
    """

    def __init__(self):
        self.secret = ""
        self.calls = 0

    async def answer(self, request):
        key = self.secret
        self.calls += 1
        headers = {"X-Request-Id": key, "Retry-After": "0", "X-Echo": quote(key)}
        if self.calls % 3 == 0:
            error = {"error": {"message": f"No: {key}", "code": key, "type": key, key: key}}
            return Response(json.dumps(error), (429, 500, 400)[self.calls % 9 // 3], headers)
        said = f"It is {key}. Score: 4. {quote(key, safe='')}"
        message = {"content": said, "reasoning_content": f"Hm, {key}", key: key}
        token = {"token": key, "logprob": -0.5}
        logprobs = {"content": [token | {"top_logprobs": [token]}]}
        choice = dict.fromkeys(("finish_reason", key), key) | {"message": message, "index": 0}
        reply = dict.fromkeys(("id", "model", "system_fingerprint", key), key)
        reply["choices"] = [choice | {"logprobs": logprobs}]
        reply["usage"] = {"completion_tokens": 3, "prompt_tokens": 2, "note": key, key: 1}
        return Response(json.dumps(reply), 200, headers)

    def close(self):
        pass


@pytest.fixture(scope="module")
def echo():
    upstream = Echo()
    with Server(upstream, [Route("/{path:path}", upstream.answer, methods=METHODS)]) as server:
        yield server


def everything(folder):
    for path in folder.rglob("*"):
        yield "a name", str(path)
        if path.is_file():
            yield path.name, path.read_bytes().decode("latin-1")
            if path.suffix == ".parquet":  # which is compressed
                yield path.name, json.dumps(pq.read_table(path).to_pylist(), default=str)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9))
def test_no_command_writes_or_prints_a_known_key(echo, tmp_path, monkeypatch, caplog, seed):
    drawn = Random(seed)  # noqa: S311  it opens nothing
    key = "".join(drawn.choices([chr(code) for code in range(33, 127)], k=drawn.randint(16, 60)))
    variable = ("OPENAI_API_KEY", "OTHER_TOKEN", "ODD")[seed % 3]
    caplog.set_level(logging.DEBUG)
    echo.application.secret, echo.application.calls = key, seed % 9
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv(variable, key)
    monkeypatch.setenv("FEVAL_DEBUG", "1")
    named = f"--set api_key_env={variable} --base-url {echo.url}"
    lines = [
        *(f'{name} = "{value}"' for name, value in SETTINGS.items()),
        *("first = 2", "samples = 2", "retries = 1", "keep_journal = true", "concurrency = 2"),
    ]
    asked = f"record {' '.join(settings_file(tmp_path, *lines))} {named}"
    r, curve = tmp_path / "r", "curve self-consistency --n 1 --recording"
    results = [
        feval(f"{asked} --logprobs 1 --set partial=true --out {r}"),
        feval(f"score {r} --scorer judge:m --out {tmp_path}/scored {named}"),
        feval(f"{curve} {r} --receipt {tmp_path}/receipt.json"),
        feval(f"info {r} --json"),
        CliRunner().invoke(app, [*f"{asked} --out {tmp_path}/again --model".split(), key]),
    ]
    with Journal.open(tmp_path / "p.journal", {"proxy": echo.url, "dataset": "sums"}) as journal:
        endpoint = Endpoint(echo.url, key if variable == "ODD" else None)
        with proxy_server(Proxy(endpoint, journal, "sums")) as proxy:
            for number, place_of_key in enumerate(("nowhere", "message", "field", "headers")):
                text = key if place_of_key == "message" else f"{number}"
                body = {"model": "m", "messages": [{"role": "user", "content": text}]}
                if place_of_key == "field":
                    body["api_key"] = key
                elif place_of_key == "headers":
                    body["extra_headers"] = {"Authorization": key}
                for _ in range(2):
                    headers = {"Authorization": f"Bearer {key}"}
                    httpx2.post(f"{proxy.url}/chat/completions", json=body, headers=headers)
        seal_proxied(journal, tmp_path / "p", dataset="sums", answer_kind="number")
    codes = [result.exit_code for result in results]
    assert (codes[:2], codes[3:]) == ([0, 0], [0, 2]), [result.output for result in results]
    told = [("output", result.output) for result in results]
    told += [(entry.name, logging.Formatter().format(entry)) for entry in caplog.records]
    for where, text in (*everything(tmp_path), *told):
        assert not [form for form in forms(key) if form in text], where

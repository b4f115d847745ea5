"""The tiny models over HTTP, asked by the official client and by raw requests."""

import http.client
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest
from command_line import failed, feval

from feval.errors import UnknownNameError
from feval.recording import open_recording
from feval.serving.server import Server
from recorders import tiny
from recorders.servers.tiny_server import tiny_server

openai = pytest.importorskip(
    "openai", reason="the official client (extra `record`) is not installed"
)

MODEL = "feval/tiny-42k"
QUESTION = "Tom has 49 apples. Tom sells 22. How many apples does Tom have now?"
ASKED = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}]}


@pytest.fixture(scope="module")
def service():
    with tiny_server() as running:
        yield running


@pytest.fixture(scope="module")
def client(service):
    with openai.OpenAI(base_url=service.url, api_key="none", max_retries=0) as made:
        yield made


def direct(numbers, **decoding):
    return tiny.sample(tiny.load_model(MODEL), QUESTION, numbers, tiny.TinyDecoding(**decoding))


def raw(service, body, path="/v1/chat/completions", **more):
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)) as connection:
        connection.request("POST", path, body, **more)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def test_another_host_needs_a_token_and_only_its_bearers_are_answered(monkeypatch):
    command, token = "tiny-server --host 0.0.0.0 --port 0 --json", "a-token-of-some-length"
    monkeypatch.delenv("FEVAL_SERVE_TOKEN", raising=False)
    failed(feval(command), 2, "FEVAL_SERVE_TOKEN")
    monkeypatch.setattr(Server, "run", lambda self: self.close())
    monkeypatch.setenv("FEVAL_SERVE_TOKEN", token)
    result = feval(command)
    assert "Whoever has the token can ask" in result.stderr
    assert token not in result.output
    with tiny_server([MODEL], token=token) as running:
        for key, status in (("none", 401), (token, 200)):
            headers = {"Authorization": f"Bearer {key}"}
            assert raw(running, json.dumps(ASKED), headers=headers)[0] == status


def refused(service, **fields):
    """Status and error of a request with these fields."""
    status, reply = raw(service, json.dumps(ASKED | fields).encode())
    return status, reply["error"]


def test_choice_i_is_the_models_sample_seed_plus_i(client):
    reply = client.chat.completions.create(**ASKED, n=5, seed=7, temperature=0.8)
    drawn = direct(range(7, 12), temperature=0.8)
    assert [choice.message.content for choice in reply.choices] == [
        completion.text for completion in drawn
    ]
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3, 4]
    assert {choice.finish_reason for choice in reply.choices} == {"stop"}
    assert reply.usage.completion_tokens == sum(completion.output_tokens for completion in drawn)
    assert reply.usage.prompt_tokens == drawn[0].prompt_tokens
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    later = client.chat.completions.create(**ASKED, seed=9, temperature=0.8)
    assert later.choices[0].message.content == reply.choices[2].message.content
    assert later.id != reply.id


def test_without_a_seed_samples_are_fresh(client):
    replies = [client.chat.completions.create(**ASKED, n=20, temperature=1.5) for _ in range(2)]
    first, second = ([choice.message.content for choice in reply.choices] for reply in replies)
    assert first != second


def test_temperature_and_top_p_are_honoured(client):
    for settings in ({"temperature": 0}, {"temperature": 5, "top_p": 1e-9}):
        reply = client.chat.completions.create(**ASKED, n=5, **settings)
        assert {choice.message.content for choice in reply.choices} == {
            direct(range(1), temperature=0)[0].text
        }


def test_log_probabilities_are_the_models(client):
    reply = client.chat.completions.create(**ASKED, seed=3, logprobs=True, top_logprobs=4)
    drawn = direct(range(3, 4), top_logprobs=4)[0]
    tokens = reply.choices[0].logprobs.content
    assert [token.logprob for token in tokens] == drawn.logprobs.tolist()
    assert "".join(token.token for token in tokens) == reply.choices[0].message.content
    assert [
        [top.logprob for top in token.top_logprobs] for token in tokens
    ] == drawn.top_logprobs.tolist()
    assert sum(math.exp(top.logprob) for top in tokens[0].top_logprobs) <= 1 + 1e-9
    assert client.chat.completions.create(**ASKED, seed=3).choices[0].logprobs is None


def test_a_limit_ends_with_length_and_a_stop_text_with_stop(client):
    whole = direct(range(1))[0].text
    for name in ("max_tokens", "max_completion_tokens"):
        reply = client.chat.completions.create(**ASKED, seed=0, **{name: 6})
        assert reply.choices[0].finish_reason == "length"
        assert reply.usage.completion_tokens == 6
        assert whole.startswith(reply.choices[0].message.content)
    word = whole.split()[3]
    for stop in (word, [word, "never comes"]):
        reply = client.chat.completions.create(**ASKED, seed=0, stop=stop)
        assert reply.choices[0].message.content == whole[: whole.index(word)]
        assert reply.choices[0].finish_reason == "stop"
        assert reply.usage.completion_tokens < direct(range(1))[0].output_tokens


@pytest.mark.parametrize("logprobs", [False, True])
def test_a_stream_says_the_same(client, logprobs):
    asked = ASKED | {"n": 3, "seed": 5, "logprobs": logprobs}
    whole, ending = client.chat.completions.create(**asked), {"include_usage": True}
    *chunks, last = client.chat.completions.create(**asked, stream=True, stream_options=ending)
    texts = ["", "", ""]
    for part in (chunk.choices[0] for chunk in chunks):
        texts[part.index] += part.delta.content or ""
        assert part.logprobs is None or logprobs
    assert texts == [choice.message.content for choice in whole.choices]
    assert (last.choices, last.usage) == ([], whole.usage)


def test_the_models_are_listed(client):
    assert [model.id for model in client.models.list()] == list(tiny.FAMILY)
    assert client.models.retrieve(MODEL).id == MODEL


def test_text_parts_and_unknown_fields_are_taken(client):
    parts = [{"type": "text", "text": QUESTION[:20]}, {"type": "text", "text": QUESTION[20:]}]
    messages = [{"role": "system", "content": "Think."}, {"role": "user", "content": parts}]
    reply = client.chat.completions.create(
        model=MODEL, messages=messages, seed=0, extra_body={"min_p": 0.1}
    )
    assert reply.choices[0].message.content == direct(range(1))[0].text


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64 - 1}, "seed"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 10_000}, "top_logprobs"),
        ({"messages": [{"role": "system", "content": "Hi"}]}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
        ),
        ({"messages": [{"role": "user", "content": "apples " * 500}]}, "messages"),
    ],
)
def test_a_value_that_cannot_work_is_a_400(client, fields, parameter):
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", body=ASKED | fields, cast_to=object)
    assert caught.value.param == parameter
    assert caught.value.type == "invalid_request_error"
    assert str(caught.value.body["message"]).endswith((".", "sent."))


def test_a_request_without_a_model_is_told_of_tiny_models(service):
    assert refused(service, model=7)[1]["message"].startswith(
        "`model` must be the name of a tiny model; GET /v1/models lists them"
    )


def test_a_long_message_is_refused_at_once_and_holds_up_nobody(service):
    for more in ({}, {"continue_final_message": True}):
        text = "x " * 4_000_000
        messages = [
            {"role": "user", "content": QUESTION if more else text},
            {"role": "assistant", "content": text},
        ]
        began = time.process_time()
        status, error = refused(service, messages=messages[: 1 + len(more)], **more)
        assert (status, error["code"]) == (400, "context_length_exceeded")
        assert "was asked to read 8,000,0" in error["message"]
        assert time.process_time() - began < 2  # splitting it into tokens takes four seconds


def test_an_unknown_model_is_a_404(client):
    with pytest.raises(openai.NotFoundError, match="does not exist") as caught:
        client.chat.completions.create(**(ASKED | {"model": "gpt-4o"}))
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b"{", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/embeddings", b"{}", 404),
    ],
)
def test_raw_requests(service, path, body, status):
    found, reply = raw(service, body, path)
    assert (found, "error" in reply) == (status, True)


def test_an_error_shows_what_was_sent(service):
    for value, shown in ((None, "nothing"), (True, "true"), ("x" * 200, f"the text '{'x' * 80}'")):
        assert (
            refused(service, messages=value)[1]["message"]
            == f"`messages` must be a list of at least one message; {shown} was sent."
        )


def test_the_command_says_where_it_is_and_ends_on_ctrl_c():
    command = f"{sys.executable} -m feval tiny-server {MODEL}".split()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)
        assert found, line
        with openai.OpenAI(base_url=found[0], api_key="none") as client:
            assert [model.id for model in client.models.list()] == [MODEL]
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_an_unknown_model_is_not_served():
    with pytest.raises(UnknownNameError):
        tiny_server(["feval/tiny-9000"])


def test_cots_and_probes_over_http_are_those_of_the_models_themselves(service, tmp_path):
    command = (
        f"record --llm {MODEL} --set prompt=none --dataset tiny_sums --first 2 --samples 2 --seed 3"
        " --max-tokens 60 --temperature 1 --logprobs 0 --probe-every 9"
    )
    for place in (f"http --backend openai --base-url {service.url}", "own"):
        assert feval(f"{command} --out {tmp_path}/{place}").exit_code == 0
    recordings = [open_recording(tmp_path / name) for name in ("http", "own")]
    rows, own = (list(each.probe_rows("tiny_sums", MODEL)) for each in recordings)
    assert rows == own
    assert len(rows) == 2
    theirs, ours = (
        [
            (pool.texts, pool.output_tokens, pool.prompt_tokens)
            for pool in each.pools("tiny_sums", MODEL)
        ]
        for each in recordings
    )
    assert theirs == ours
    notes = recordings[0].manifest.raw["notes"]
    assert not [note for note in notes if "cut by length" in note]

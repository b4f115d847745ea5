"""Replies: what OpenAI's clients expect, from what was recorded; and for whatever else is sent, an
error in OpenAI's shape.
"""

import logging
import math

import numpy as np
import orjson
import pytest
from serving_doubles import (
    asked_by_text,
    body,
    chat,
    error,
    events,
    get,
    opened,
    post,
    reply_to,
    rows,
    samples_of,
    simple,
    texts_of,
    write,
)
from small import write_scored_toy

from feval import load, open_recording
from feval.recording import LLMInfo
from feval.serving import Call
from feval.serving.cots import TextCache
from feval.serving.library import BoundedCache

QUESTIONS = [f"What is the answer to question number {i}, please?" for i in range(3)]


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return simple(tmp_path_factory.mktemp("application") / "r", QUESTIONS, size=70)


@pytest.fixture
def app(recording):
    with opened(recording) as application:
        yield application


def completion(prompt, **fields):
    raw = orjson.dumps({"model": "gpt-3.5-turbo", "prompt": prompt} | fields)
    return post(raw, of="completions")


def test_a_chat_completion_has_what_clients_read(app, recording):
    reply = reply_to(app, QUESTIONS[0], n=3)
    result = body(reply)
    _, [llm] = load("toy", None, recording)
    drawn = llm(0, 3)
    assert result["object"] == "chat.completion"
    assert result["model"] == "gpt-3.5-turbo"
    assert result["id"].startswith("chatcmpl-")
    assert result["system_fingerprint"] == f"fp_{open_recording(recording).hash[:12]}"
    assert result["created"] > 1_700_000_000
    assert result["choices"] == [
        {
            "index": index,
            "message": {"role": "assistant", "content": cot.raw_text, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
        for index, cot in enumerate(drawn.cots)
    ]
    tokens = drawn.tokens
    assert result["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": tokens,
        "total_tokens": 7 + tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": None},
    }
    assert dict(reply.headers) == {
        "content-type": "application/json",
        "x-feval-run": "default",
        "x-feval-question": "q0",
        "x-feval-dataset": "toy",
        "x-feval-llm": "gpt-3.5-turbo",
        "x-feval-match": "request",
        "x-feval-samples": ",".join(map(str, drawn.samples)),
        "x-feval-remaining": "67",
        "x-feval-cost-usd": repr(drawn.dollar_cost),
    }


def test_ids_are_reproducible_and_never_repeat(recording):
    def ids():
        with opened(recording) as app:
            calls = [chat(text, run=run) for text in QUESTIONS for run in ("a", "b", "a@1")]
            return [body(app.respond(call))["id"] for call in calls * 2]

    once = ids()
    assert once == ids()
    assert len(set(once)) == len(once)


def test_texts_survive_as_they_are(tmp_path):
    texts = ['He said "no"\\n', "\x00\x1f\u2028\U0001f600 é %d %b %", "", "line\r\nbreak\ttab"]
    path = simple(tmp_path / "r", QUESTIONS[:1], texts=texts)
    with opened(path) as app:
        reply = reply_to(app, QUESTIONS[0], n=4)
        assert texts_of(reply) == [texts[sample] for sample in samples_of(reply)]


def test_finish_reasons_are_spelled_as_openai_does(tmp_path):
    recorded = ["stop", "length", "content_filter", "unknown"]
    path = simple(tmp_path / "r", QUESTIONS[:1], finish_reasons=recorded)
    with opened(path) as app:
        reply = reply_to(app, QUESTIONS[0], n=4)
        result = [choice["finish_reason"] for choice in body(reply)["choices"]]
        expected = [recorded[sample] for sample in samples_of(reply)]
        assert result == ["stop" if reason == "unknown" else reason for reason in expected]
        assert reply.headers["x-feval-unknown"] == "finish_reason"


def test_a_recording_without_texts_says_so(tmp_path):
    with opened(simple(tmp_path / "r", QUESTIONS[:1], texts=[None] * 4)) as app:
        reply = reply_to(app, QUESTIONS[0])
        assert (reply.status, error(reply)["code"]) == (400, "text_not_recorded")
        assert app.ledger()["runs"] == []  # nothing was handed out, so nothing is paid for


@pytest.mark.parametrize(
    ("tools", "texts", "reasons", "calls"),
    [
        (False, ["It is 1.", "", "", "So."], ["stop", "tool_calls", "function_call", "stop"], 2),
        (
            True,
            ["It is 1.", "", "It is 1.", ""],
            ["stop", "stop", "stop", "length"],
            1,
        ),  # a forced call ends with "stop"
        (True, ["It is 1."] * 4, ["stop"] * 4, 0),
        (False, [""] * 4, ["stop"] * 4, 0),
    ],
)
def test_recorded_calls_of_tools_are_not_replayed_as_empty_replies(
    tmp_path, tools, texts, reasons, calls
):
    [question] = asked_by_text(QUESTIONS[:1])
    info = LLMInfo("gpt-3.5-turbo", 0.7, 64, {"tools": [{"type": "function"}]} if tools else {})
    pool = rows(question, texts=texts, finish_reasons=reasons)
    with opened(write(tmp_path / "r", [(info, [pool])], [question])) as app:
        reply = reply_to(app, QUESTIONS[0])
        if not calls:
            assert reply.status == 200
            return
        assert (reply.status, error(reply)["code"]) == (400, "not_recorded")
        assert (
            f"{calls} of the 4 CoTs of gpt-3.5-turbo on 'q0' of toy called tools"
            in error(reply)["message"]
        )
        assert app.ledger()["runs"] == []


def test_a_text_that_was_not_kept_is_null_and_said(tmp_path):
    texts = ["one", None, "three", "four"]
    with opened(simple(tmp_path / "r", QUESTIONS[:1], texts=texts)) as app:
        reply = reply_to(app, QUESTIONS[0], n=4)
        assert texts_of(reply) == [texts[sample] for sample in samples_of(reply)]
        assert reply.headers["x-feval-unknown"] == "content"
        streamed = events(reply_to(app, QUESTIONS[0], n=4, stream=True, run="b"))
        deltas = [choice["delta"] for chunk in streamed for choice in chunk["choices"]]
        assert [delta.get("content", "") for delta in deltas].count(None) == 1


def test_text_completions_answer_every_prompt(app):
    reply = app.respond(completion([QUESTIONS[1], f"Q: {QUESTIONS[2]}\nA:"], n=2))
    result = body(reply)
    assert result["object"] == "text_completion"
    assert result["id"].startswith("cmpl-")
    assert [choice["index"] for choice in result["choices"]] == [0, 1, 2, 3]
    assert [choice["text"][:3] for choice in result["choices"]] == ["q1,", "q1,", "q2,", "q2,"]
    assert set(result["choices"][0]) == {"index", "text", "logprobs", "finish_reason"}
    assert reply.headers["x-feval-question"] == "q1,q2"
    assert reply.headers["x-feval-match"] == "request,question"
    assert result["usage"]["prompt_tokens"] == 14
    assert float(reply.headers["x-feval-cost-usd"]) == pytest.approx(
        app.ledger("default")["usd"], rel=1e-12
    )


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_adds_up_to_the_reply(recording, usage):
    options = {"stream": True} | ({"stream_options": {"include_usage": True}} if usage else {})
    with opened(recording) as app:
        whole = body(reply_to(app, QUESTIONS[0], n=2))
        reply = reply_to(app, QUESTIONS[0], n=2, run="b", **options)
    assert reply.headers["content-type"].startswith("text/event-stream")
    chunks = events(reply)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    parts = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            parts.setdefault(choice["index"], []).append(choice)
    for choice in whole["choices"]:
        own = parts[choice["index"]]
        assert (
            "".join(part["delta"].get("content") or "" for part in own)
            == choice["message"]["content"]
        )
        assert own[0]["delta"]["role"] == "assistant"
        assert [part["finish_reason"] for part in own] == [None] * (len(own) - 1) + ["stop"]
    if usage:
        assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], whole["usage"])
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
    else:
        assert not any("usage" in chunk for chunk in chunks)


def test_a_text_completion_streams_too(recording):
    with opened(recording) as app:
        whole = body(app.respond(completion(QUESTIONS[0], n=2)))
        call = completion(QUESTIONS[0], n=2, stream=True, stream_options={"include_usage": True})
        chunks = events(
            app.respond(Call(call.method, call.path, "", {"x-feval-run": "b"}, call.body))
        )
    for choice in whole["choices"]:
        own = [
            part
            for chunk in chunks
            for part in chunk["choices"]
            if part["index"] == choice["index"]
        ]
        assert "".join(part["text"] for part in own) == choice["text"]
        assert own[-1]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == whole["usage"]


def test_log_probabilities_are_told_as_far_as_they_were_recorded(tmp_path):
    path = write_scored_toy(
        tmp_path / "r", {"gpt-3.5-turbo": [["1", "2", None, "1", "2", "2"]] * 2}, ["1", "2"]
    )
    _, [llm] = load("toy", None, path)
    kept = llm.pool.logprobs()
    with opened(path) as app:
        reply = reply_to(app, "What is question 1?", n=6, logprobs=True, top_logprobs=3)
        assert reply.headers["x-feval-unknown"] == "logprobs.token,logprobs.top_logprobs"
        for choice, sample in zip(body(reply)["choices"], samples_of(reply), strict=True):
            recorded = kept.logprobs.of(1, sample)
            if not recorded.size:
                assert choice["logprobs"] is None
                assert "sequence_logprob" not in choice.get("feval", {})
                continue
            tokens = choice["logprobs"]["content"]
            assert np.array_equal(
                np.array([token["logprob"] for token in tokens], np.float32), recorded
            )
            assert {
                (token["token"], token["bytes"], len(token["top_logprobs"])) for token in tokens
            } == {("", None, 0)}
            own = choice["feval"]
            assert np.array_equal(
                np.array(own["token_confidences"], np.float32), kept.confidences.of(1, sample)
            )
            assert own["sequence_logprob"] == kept.sequence[1, sample]
            assert not math.isnan(own["sequence_logprob"])
        assert "x-feval-unknown" not in reply_to(app, "What is question 0?").headers
        streamed = events(reply_to(app, "What is question 0?", logprobs=True, stream=True))
        assert any(part["logprobs"] for chunk in streamed for part in chunk["choices"])
        text = body(app.respond(completion("What is question 0?", logprobs=1, n=2)))["choices"]
        assert any(choice["logprobs"] and choice["logprobs"]["token_logprobs"] for choice in text)


def test_log_probabilities_that_were_not_recorded_are_null(app):
    reply = reply_to(app, QUESTIONS[0], n=2, logprobs=True)
    assert [choice["logprobs"] for choice in body(reply)["choices"]] == [None, None]
    assert reply.headers["x-feval-unknown"] == "logprobs"


def test_models_lists_every_llm(tmp_path):
    questions = asked_by_text(QUESTIONS)
    own = [rows(question) for question in questions]
    path = write(
        tmp_path / "r", [(LLMInfo("org/model-7B"), own), (LLMInfo("gpt-4"), own)], questions
    )
    with opened(path) as app:
        listed = body(app.respond(get("/v1/models")))
        assert listed["object"] == "list"
        assert [model["id"] for model in listed["data"]] == ["org/model-7B", "gpt-4"]
        assert body(app.respond(get("/v1/models/org/model-7B"))) == listed["data"][0]
        assert body(app.respond(get("/run/x@2/v1/models/gpt-4")))["object"] == "model"
        missing = app.respond(get("/v1/models/gpt-5"))
        assert (missing.status, error(missing)["code"]) == (404, "model_not_found")


def test_the_server_says_what_it_is_and_what_is_served(app, recording):
    assert body(app.respond(get("/openapi.json")))["openapi"].startswith("3.1")
    result = body(app.respond(get("/feval/health")))
    assert result["status"] == "ok"
    assert result["recordings"] == [open_recording(recording).hash]
    assert result["datasets"] == {"toy": 3}


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "/v1", "/chat/completions", "/v1/embeddings", "/../etc/passwd",
        "/run", "/run/a",
        "/v2/models", "/V1/models", "//v1/models", "/feval", "/docs", "/favicon.ico",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_said(app, path):
    reply = app.respond(Call("POST", path, "", {}, b"{}"))
    assert (reply.status, error(reply)["code"]) == (404, "unknown_url")
    if path == "/chat/completions":
        assert "ends with /v1" in error(reply)["message"]


def test_a_wrong_method_is_said(app):
    for method, path, right in (
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/models", "GET"),
        ("PUT", "/feval/ledger", "GET"),
    ):
        reply = app.respond(Call(method, path, "", {}, b""))
        assert (reply.status, reply.headers["allow"]) == (405, right)
        error(reply)


def test_a_bug_is_answered_without_what_it_knows(app, monkeypatch, caplog):
    def broken(*_):
        raise ValueError("the secret sk-123")

    monkeypatch.setattr(app._matcher, "match", broken)
    with caplog.at_level(logging.ERROR):
        reply = reply_to(app, QUESTIONS[0], headers={"authorization": "Bearer sk-456"})
    assert reply.status == 500
    assert "ValueError" in error(reply)["message"]
    assert "ValueError" in caplog.text
    for result in (str(reply.body), caplog.text):
        assert "sk-" not in result


def test_a_damaged_recording_is_an_error_of_the_server(tmp_path):
    path = simple(tmp_path / "r", QUESTIONS)
    with opened(path) as app:
        next(path.glob("texts/*/*.parquet")).write_bytes(b"nothing")
        reply = reply_to(app, QUESTIONS[0])
        assert reply.status == 500
        assert error(reply)["type"] == "server_error"


def test_a_cache_stays_within_its_bound_and_drops_what_was_used_least_recently():
    cache = BoundedCache(100)
    for key, size in (("a", 40), ("b", 40), ("too large", 101), ("a", 50)):
        cache.put(key, key.upper(), size)
    assert [cache.get(key) for key in ("a", "b", "too large")] == ["A", "B", None]
    cache.get("a")
    cache.put("c", "C", 20)
    assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
    cache.put("d", "D", 100)
    assert [cache.get(key) for key in "acd"] == [None, None, "D"]


def test_texts_are_those_of_the_recording_however_small_the_cache(tmp_path):
    questions = [f"What is it that number {i} stands for, exactly?" for i in range(40)]
    path = simple(tmp_path / "r", questions, size=5)
    _, [llm] = load("toy", None, path)
    for max_bytes in (0, 3000, 1 << 30):
        texts = TextCache(max_bytes)
        for row in [*range(40), *reversed(range(40))]:
            assert [cot.text for cot in texts.of(llm, row)] == llm.texts(row)


def test_recordings_opened_together_keep_their_texts_apart(tmp_path):
    questions = asked_by_text(
        [f"What is it that number {i} stands for, exactly?" for i in range(6)]
    )
    one = write(tmp_path / "a", [(LLMInfo("gpt-4"), [rows(q) for q in questions])], questions)
    turned = questions[::-1]
    pools = [rows(q, texts=[f"{q.id} by the other, {i}" for i in range(4)]) for q in turned]
    other = write(tmp_path / "b", [(LLMInfo("gpt-3.5-turbo"), pools)], turned)
    with opened([one, other]) as app:
        for question in questions:
            result = texts_of(reply_to(app, question.text, n=4))
            assert sorted(result) == [f"{question.id} by the other, {i}" for i in range(4)]
            result = texts_of(reply_to(app, question.text, model="gpt-4", n=4))
            assert all(text.startswith(f"{question.id}, thought") for text in result)

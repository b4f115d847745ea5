"""The backend for OpenAI-compatible servers, through the real client, against a real server that
fails as it is told to.
"""

import asyncio
import gzip
import json
import math
import resource
import socket
import zlib
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from faulty_server import BIG, FAULTS, HALF, REASONING, REFUSAL, WORST, FaultyServer, Reply, text_of
from hypothesis import given, settings, strategies as st
from places import read_data
from recording_doubles import completions

from feval.cards.names import FINISH_REASONS
from feval.errors import OutOfRangeError, UsageError
from recorders.backends import replies
from recorders.backends.openai_compatible import Endpoint, Redaction, error_in_reply, retry_after
from recorders.errors import (
    BackendError,
    Fatal,
    RateLimitError,
    RefusalError,
    Transient,
    Unreachable,
)
from recorders.request import Completion, Decoding, Message, Prefill, Request

openai = pytest.importorskip(
    "openai", reason="the official client (extra `record`) is not installed"
)

from recorders.backends.openai_compatible import OpenAICompatible  # noqa: E402  after the skip

REPLIES = read_data("replies.json")

KEY = "sk-test-0123456789abcdef"


def request(question="What is 2 + 2?", **decoding):
    return Request("gsm8k", "q1", (Message("user", question),), "some/model", Decoding(**decoding))


def complete(server, asked, samples=(0,), *, timeout_s=20.0):
    return completions(
        OpenAICompatible(Endpoint(server.url, KEY), timeout_s=timeout_s), asked, samples
    )


def noted(server, asked, samples=(0,)):
    """The completions, and what the backend notes about the server."""
    notes = []
    backend = OpenAICompatible(Endpoint(server.url, KEY), note=notes.append)
    return completions(backend, asked, samples), notes


def texts(replies):
    return [reply.text for reply in replies]


def told(number):
    return [text_of("What is 2 + 2?", index) for index in range(number)]


def error_of(fault, kind, **options):
    """The error of a request that a server spoils, which is sent once."""
    with FaultyServer([fault]) as server, pytest.raises(kind) as caught:
        complete(server, request(), **options)
    assert len(server.seen) == 1  # the client does not retry
    return caught.value


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with FaultyServer() as server:
        yield server


def test_a_reply_becomes_a_completion_with_all_that_the_server_states(server):
    asked = request(
        temperature=0.5,
        top_p=0.9,
        max_tokens=640,
        stop=("\n\n",),
        seed=100,
        extra_body={"min_p": 0.1},
    )
    [completion] = complete(server, asked, [7])
    text = text_of("What is 2 + 2?", 107)
    assert completion == Completion(
        text=text,
        finish_reason="stop",
        output_tokens=len(text),
        reasoning_tokens=0,
        prompt_tokens=5,
        cached_tokens=1,
        response_id=completion.response_id,
        served_model="some/model-2026",
        system_fingerprint="fp_1",
        duration_s=completion.duration_s,
    )
    assert completion.response_id.startswith("chatcmpl-")
    assert server.seen[0].body == {
        "model": "some/model",
        "messages": [{"role": "user", "content": "What is 2 + 2?"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 640,
        "stop": ["\n\n"],
        "seed": 107,
        "min_p": 0.1,
    }
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"


def test_what_is_none_is_not_sent(server):
    complete(server, request(temperature=None, max_tokens=None))
    assert sorted(server.seen[0].body) == ["messages", "model"]


def test_samples_asked_for_together_are_one_request_and_their_tokens_add_up(server):
    replies, notes = noted(server, request(), range(5))
    assert texts(replies) == told(5)
    # The server's tokens are bytes, so that the split by length is exact.
    assert [reply.output_tokens for reply in replies] == [len(reply.text) for reply in replies]
    assert [seen.body["n"] for seen in server.seen] == [5]
    assert len(notes) == 1
    assert "split by length" in notes[0]


def test_with_a_seed_every_sample_is_a_request_of_its_own(server):
    replies, notes = noted(server, request(seed=3), [4, 5, 6])
    assert texts(replies) == told(8)[7:]
    assert server.seen[0].body["seed"] == 7
    assert "n" not in server.seen[0].body
    assert notes == []


def test_choices_are_taken_in_the_order_of_their_index():
    choices = [
        {"index": index, "message": {"content": str(index)}, "finish_reason": "stop"}
        for index in (2, 0, 1)
    ]
    reading = replies.read({"choices": choices}, 3, None, str)
    assert [completion.text for completion in reading.completions] == ["0", "1", "2"]


@pytest.mark.parametrize(("fault", "wait_s"), REPLIES["rate limits"])
def test_a_rate_limit_says_how_long_to_wait(fault, wait_s):
    error = error_of(fault, RateLimitError)
    assert error.retry_after == wait_s
    assert error.reason.endswith("" if wait_s is None else f"; it asks to wait {wait_s:g} s")


@pytest.mark.parametrize(("fault", "words"), REPLIES["transient"])
def test_what_may_work_next_time_is_transient(fault, words):
    error = error_of(fault, Transient, timeout_s=0.3 if fault == "slow" else 20.0)
    assert words in error.reason
    assert len(error.reason) < 400
    assert error.retry_after == (0.01 if fault == "503 seconds" else None)


def test_a_connection_that_nobody_takes_is_waited_for_some_seconds(monkeypatch):
    monkeypatch.setattr("recorders.backends.openai_compatible._CONNECT_TIMEOUT_S", 0.05)
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # nobody accepts them, so the queue is full and the next one is dropped
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        backend = OpenAICompatible(Endpoint(f"http://127.0.0.1:{full.getsockname()[1]}/v1", KEY))
        with pytest.raises(Unreachable, match=r"took no connection within 0\.05 s") as caught:
            completions(backend, request(), [0])
    assert caught.value.after_s == 0.05


@pytest.mark.parametrize(("fault", "finish_reason"), REPLIES["refused"])
def test_what_never_works_for_this_request_is_refused(fault, finish_reason):
    assert error_of(fault, RefusalError).finish_reason == finish_reason


@pytest.mark.parametrize(("fault", "advice"), REPLIES["fatal"])
def test_what_never_works_at_all_is_fatal_and_says_what_to_do(fault, advice):
    assert advice in error_of(fault, Fatal).reason


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(("location", "target"), REPLIES["redirections"])
def test_a_redirection_is_not_followed(status, location, target, monkeypatch):
    monkeypatch.setitem(
        FAULTS, "moved", lambda _: Reply(status, b"<h1>Moved</h1>", {"location": location})
    )
    reason = error_of("moved", Fatal).reason
    assert f"answered {status}, a redirection to {target}" in reason
    assert "which is not followed" in reason
    assert "s3cret" not in reason


def test_a_redirection_to_what_is_no_address_is_not_followed(monkeypatch):
    monkeypatch.setitem(FAULTS, "moved", lambda _: Reply(301, b"", {"location": "http://[::1"}))
    reason = error_of("moved", BackendError).reason
    # Clients on httpx read the address themselves, and report a broken connection.
    expected = (
        "a redirection to an address that cannot be read, which is not followed",
        "Invalid URL in location header",
    )
    assert any(words in reason for words in expected)


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity"])
def test_no_more_of_a_reply_is_read_than_a_bound(coding, status, monkeypatch):
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[coding]
    body = pack(b" " * 3_000_000)
    monkeypatch.setattr(replies, "MOST_BYTES", 2_000_000)
    monkeypatch.setitem(FAULTS, "big", lambda _: Reply(status, body, {"content-encoding": coding}))
    assert "a reply of more than 2,000,000 bytes" in error_of("big", Transient).reason


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
def test_a_reply_in_a_coding_that_was_not_asked_for_is_an_error(coding, monkeypatch):
    monkeypatch.setitem(FAULTS, "coded", lambda _: Reply(200, b"x", {"content-encoding": coding}))
    with (
        FaultyServer(["coded"]) as server,
        pytest.raises(Fatal, match=f"content encoding '{coding}'"),
    ):
        complete(server, request())
    assert server.seen[0].headers["accept-encoding"] == "gzip"


def test_a_reply_in_gzip_is_read(monkeypatch):
    packed = {"content-encoding": "gzip"}
    monkeypatch.setitem(
        FAULTS, "packed", lambda reply: Reply(200, gzip.compress(reply.body), packed)
    )
    with FaultyServer(["packed"]) as server:
        [completion] = complete(server, request())
    assert completion.text == text_of("What is 2 + 2?", 0)


@pytest.mark.slow
def test_a_megabyte_that_stands_for_a_gigabyte_takes_little_memory(monkeypatch):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(1024)) + packer.flush()
    monkeypatch.setitem(FAULTS, "bomb", lambda _: Reply(200, bomb, {"content-encoding": "gzip"}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        FaultyServer(["bomb"]) as server,
        pytest.raises(Transient, match="more than 67,108,864 bytes"),
    ):
        complete(server, request())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes


def test_every_fault_is_tested():
    tested = {
        str(values[0] if isinstance(values, list | tuple) else values)
        for test in globals().values()
        for mark in getattr(test, "pytestmark", [])
        if mark.name == "parametrize" and str(mark.args[0][0]) == "fault"
        for values in mark.args[1]
    }
    # which have tests of their own, below
    assert set(FAULTS) - tested == {"fewer", "more", "no usage"}


def test_nobody_listening_is_transient():
    with FaultyServer() as gone:
        pass
    with pytest.raises(Transient, match="the connection to 127"):
        complete(gone, request())


def test_errors_are_not_chained_to_the_clients_which_quote_the_server():
    for fault in ("500", "reset", "slow", "401"):
        error = error_of(fault, BackendError, timeout_s=0.3)
        assert error.__cause__ is error.__context__ is None


@pytest.mark.parametrize("options", [{"takes_n": False}, {"faults": ["fewer"]}])
def test_a_server_that_ignores_n_is_noticed(options):
    with FaultyServer(**options) as server:
        replies, notes = noted(server, request(), range(4))
    assert len(replies) == 1
    assert "ignores n" in notes[-1]


def test_more_choices_than_asked_for_are_dropped_and_said():
    with FaultyServer(["more"]) as server:
        replies, notes = noted(server, request(), range(2))
    assert texts(replies) == told(2)
    assert "more choices" in notes[-1]


def test_a_server_that_refuses_n_is_asked_for_one_at_a_time():
    with FaultyServer(refuses_n=True) as server:
        replies, notes = noted(server, request(), range(4))
        assert len(replies) == 1
        assert [seen.body.get("n") for seen in server.seen] == [4, None]
    assert notes == ["The server refuses n above 1: each sample is asked for in its own request."]


def test_a_server_that_wants_max_completion_tokens_gets_it_from_then_on():
    with FaultyServer(wants="max_completion_tokens") as server:

        async def run():
            backend = OpenAICompatible(Endpoint(server.url, KEY))
            asked = (backend.complete(request(seed=number), [0]) for number in range(4))
            await asyncio.gather(*asked)
            before = len(server.seen)
            await backend.complete(request(), [0, 1])
            assert len(server.seen) == before + 1
            await backend.aclose()

        asyncio.run(run())
    assert "max_tokens" not in server.seen[-1].body
    assert server.seen[-1].body["max_completion_tokens"] == 2048


def test_a_duration_is_that_of_the_request_that_was_answered_whole_for_each_sample(monkeypatch):
    looks = iter([0.0, 10.0, 13.25])  # refused; sent again; answered
    monkeypatch.setattr("recorders.backends.openai_compatible.perf_counter", lambda: next(looks))
    with FaultyServer(wants="max_completion_tokens") as server:
        assert [each.duration_s for each in complete(server, request(), range(3))] == [3.25] * 3


def test_both_adaptations_may_be_needed_for_one_request():
    with FaultyServer(wants="max_completion_tokens", refuses_n=True) as server:
        assert len(complete(server, request(), range(3))) == 1
    assert len(server.seen) == 3


@pytest.mark.parametrize("name", ["n", "seed", "stream", "model"])
def test_an_extra_body_does_not_contradict_what_is_recorded(server, name):
    with pytest.raises(Fatal, match=f"extra body holds '{name}'"):
        complete(server, request(extra_body={name: 1}))
    assert server.seen == []


@pytest.mark.parametrize(("code", "kind"), REPLIES["codes of errors"])
def test_an_error_in_the_place_of_a_reply_is_what_its_code_says(code, kind):
    asked, error = (Endpoint("https://host/v1"), "some/model"), {"message": "No", "code": code}
    assert type(error_in_reply({"error": error}, *asked)).__name__ == kind
    assert error_in_reply({"error": None, "choices": []}, *asked) is None


def test_many_requests_at_a_time_share_connections_that_are_used_again():
    with FaultyServer(delay_s=0.2) as server:

        async def run():
            backend = OpenAICompatible(Endpoint(server.url))
            for _ in range(2):
                asked = (backend.complete(request(f"{number}?"), [0]) for number in range(80))
                assert len(await asyncio.gather(*asked)) == 80
            await backend.aclose()

        asyncio.run(run())
    assert server.connections == 80
    assert len(server.seen) == 160


def test_missing_usage_is_none_and_said():
    with FaultyServer(["no usage"]) as server:
        [completion], notes = noted(server, request())
    assert completion.output_tokens is completion.prompt_tokens is None
    assert notes == ["The server states no token usage: its replies are recorded without."]


@pytest.mark.parametrize(
    ("kind", "text", "reason", "note"),
    [
        ("length", "{}", "length", ""),
        ("content_filter", "", "content_filter", ""),
        ("refusal", REFUSAL, "refusal", "refused"),
        ("finish", "{}", "unknown", "that OpenAI does not have"),
        ("unicode", f"{WORST} {{}}", "stop", ""),
        ("half", "\ufffd {}", "stop", "surrogate"),
        ("big", f"{BIG}{{}}", "stop", ""),  # more than a megabyte
    ],
)
def test_what_a_server_writes_comes_through_and_oddities_are_said(server, kind, text, reason, note):
    [completion], notes = noted(server, request(f"[{kind}]"))
    whole = text.format(text_of(f"[{kind}]", 0))
    assert completion.text == (whole[: len(whole) // 2] if kind == "length" else whole)
    assert completion.finish_reason == reason
    assert len(notes) == bool(note)
    assert note in "".join(notes)


def test_reasoning_is_kept_apart(server):
    replies = complete(server, request("[reasoning]"), range(2))
    assert {reply.reasoning for reply in replies} == {REASONING}
    assert [reply.reasoning_tokens for reply in replies] == [len(REASONING)] * 2


def test_a_question_with_half_a_surrogate_pair_is_refused(server):
    with pytest.raises(RefusalError, match="surrogate"):
        complete(server, request("\ud83e"))


def test_log_probabilities_become_confidences(server):
    replies = complete(server, request(logprobs=4), range(2))
    assert server.seen[0].body["logprobs"] is True
    assert server.seen[0].body["top_logprobs"] == 4
    for completion in replies:
        words = len(completion.text.split())
        assert completion.token_logprobs == (-0.25,) * words
        assert completion.token_confidences == (0.625,) * words  # (0.25 + 0.5 + 0.75 + 1) / 4
    [sampled] = complete(server, request(logprobs=0))
    assert "top_logprobs" not in server.seen[1].body
    assert sampled.token_logprobs
    assert sampled.token_confidences is None


def test_a_server_that_ignores_logprobs_is_noticed():
    with FaultyServer(takes_logprobs=False) as server:
        [completion], notes = noted(server, request(logprobs=5))
    assert (completion.token_logprobs, completion.token_confidences) == (None, None)
    assert "ignores logprobs" in notes[0]


def test_a_note_is_said_once():
    notes = []
    with FaultyServer(takes_n=False) as server:

        async def run():
            backend = OpenAICompatible(Endpoint(server.url), note=notes.append)
            for _ in range(3):
                await backend.complete(request(), [0, 1])
            await backend.aclose()

        asyncio.run(run())
    assert len(notes) == 1


def test_a_local_server_needs_no_key(server):
    endpoint = Endpoint.from_environment(server.url)
    assert endpoint.client_key == "none"
    assert endpoint.warning is None


def test_credentials_in_the_base_url_are_sent_as_basic_and_shown_nowhere():
    with FaultyServer() as server:
        endpoint = Endpoint(f"http://user:s3cret-pass%2Fword@127.0.0.1:{server.port}/v1")

        completions(OpenAICompatible(endpoint), request())
    assert server.seen[0].headers["authorization"] == "Basic dXNlcjpzM2NyZXQtcGFzcy93b3Jk"
    assert "s3cret" not in f"{endpoint!r} {endpoint.url} {endpoint.host}"
    assert (
        endpoint.redaction.reason("s3cret-pass/word dXNlcjpzM2NyZXQtcGFzcy93b3Jk") == "[key] [key]"
    )


def grouped(name):
    return [case for cases in REPLIES[name].values() for case in cases]


def choice(message, **fields):
    return {"index": 0, "message": message, "finish_reason": "stop"} | fields


def token(logprob, *top):
    return {"logprob": logprob, "top_logprobs": [{"logprob": each} for each in top]}


def read_one(message, top=None, usage=None, **fields):
    [completion] = replies.read(
        {"choices": [choice(message, **fields)], "usage": usage}, 1, top, str
    ).completions
    return completion


@pytest.mark.parametrize(("message", "text", "reasoning"), REPLIES["forms of a message"])
def test_the_forms_of_a_message(message, text, reasoning):
    completion = read_one(message)
    assert (completion.text, completion.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    "content",
    [7, True, {"text": "a"}, [None, {"type": "text", "text": "a"}], ["a"], [{"type": "image"}]],
)
def test_content_that_is_not_text_is_an_error_of_that_reply(content):
    with pytest.raises(Transient, match="the content of a reply is not text"):
        read_one({"content": content})


def test_names_that_a_server_sends_have_bounds():
    reply = {"choices": [choice({"content": "a"})], "id": "i" * 1_000_000, "model": "m" * 1_000_000}
    [completion] = replies.read(reply, 1, None, str).completions
    assert len(completion.response_id or "") == len(completion.served_model or "") == 1000


@pytest.mark.parametrize(("output", "counts", "more"), grouped("forms of usage"))
def test_the_forms_of_usage(output, counts, more):
    found = read_one({"content": "a"}, usage={"completion_tokens": output} | more)
    assert counts == [
        found.prompt_tokens,
        found.output_tokens,
        found.reasoning_tokens,
        found.cached_tokens,
    ]
    assert read_one({"content": "a"}, usage=[]).output_tokens is None


@pytest.mark.parametrize(("size", "output", "doubt", "more"), grouped("doubtful counts"))
def test_token_counts_that_cannot_be_are_not_taken(size, output, doubt, more):
    usage = {"completion_tokens": output} | more
    reply = {"choices": [choice({"content": "a" * size})], "usage": usage}
    [completion] = replies.read(reply, 1, None, str, max_tokens=1000).completions
    assert completion.usage_doubt == doubt
    assert completion.output_tokens == (output if doubt is None else None)
    assert completion.prompt_tokens is None


def test_calls_of_tools_are_not_taken_for_missing_text():
    completion = read_one(
        {"content": "So", "tool_calls": [{"id": "1"}]}, usage={"completion_tokens": 300}
    )
    assert (completion.output_tokens, completion.usage_doubt) == (300, None)


@pytest.mark.parametrize(
    ("tokens", "sampled", "confidences"),
    [
        (None, None, None),
        (["a"], None, None),
        ([], (), ()),
        ([{"logprob": -1}], (-1.0,), None),
        ([token(-1)], (-1.0,), None),
        ([token("-1")], None, None),
        ([token(math.nan)], None, None),
        ([token(-math.inf, -1, -2)], (-9999.0,), (1.5,)),
        # Of k + 1 the k likeliest count: some servers add the sampled token.
        ([token(-9, -9, -1, -2)], (-9.0,), (1.5,)),
        ([token(-1, -1, None)], (-1.0,), None),
    ],
)
def test_the_forms_of_logprobs(tokens, sampled, confidences):
    completion = read_one({"content": "a"}, top=2, logprobs={"content": tokens})
    assert (completion.token_logprobs, completion.token_confidences) == (sampled, confidences)
    assert read_one({"content": "a"}, top=2, logprobs=None).token_logprobs is None


def test_exact_counts_come_from_the_log_probabilities_where_they_add_up():
    choices = [
        choice({"content": "aaaa"}, logprobs={"content": [token(-1.0)] * count}) for count in (1, 3)
    ]
    reading = replies.read({"choices": choices, "usage": {"completion_tokens": 4}}, 2, 0, str)
    assert [completion.output_tokens for completion in reading.completions] == [1, 3]
    assert not any("split" in note for note in reading.notes)


def test_shares_of_tokens_add_up():
    choices = [choice({"content": "a" * length}) for length in (1, 1, 1, 0)]
    reading = replies.read({"choices": choices, "usage": {"completion_tokens": 100}}, 4, None, str)
    assert [completion.output_tokens for completion in reading.completions] == [34, 33, 33, 0]


@pytest.mark.parametrize(
    "content", [b"{", b'{"a": ', b"\xff\xfe", b"[" * 100_000, b'"text"', b"null", b""]
)
def test_a_body_that_is_no_object_is_transient(content):
    with pytest.raises(Transient):
        replies.parse(content)


def test_a_body_with_nan_is_read():
    assert math.isnan(replies.parse(b'{"a": NaN}')["a"])


@pytest.mark.parametrize(("value", "seconds"), REPLIES["retry-after"])
def test_the_forms_of_retry_after(value, seconds):
    noon = {"date": "Thu, 01 Jan 2026 12:00:00 GMT"}
    assert retry_after(noon if value is None else noon | {"retry-after": value}) == seconds


def test_a_retry_after_may_be_of_our_clock_or_in_milliseconds():
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(minutes=1), usegmt=True)
    assert 50 < retry_after({"retry-after": in_a_minute}) <= 60
    for milliseconds, seconds in (("250", 0.25), ("many", 9.0)):
        assert retry_after({"retry-after-ms": milliseconds, "retry-after": "9"}) == seconds


@pytest.mark.parametrize("url", REPLIES["no base URLs"])
def test_a_base_url_that_names_no_server_is_refused_and_keeps_its_secrets(url):
    with pytest.raises(UsageError, match="Give http:// or https://") as caught:
        Endpoint(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "key",
    ["sk-0123456789\nabcdef", "sk-0123456789 abcdef", "sk-0123456789abcdéf", "sk-0123456789\x00"],
)
def test_a_key_no_header_can_carry_is_refused_and_not_shown(key):
    with pytest.raises(UsageError) as caught:
        Endpoint("https://host/v1", key)
    assert "0123456789" not in str(caught.value)


def test_the_environment_is_read_as_the_official_client_reads_it(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://one.example/v1/")
    monkeypatch.setenv("OTHER_KEY", "sk-other-0123456789")
    endpoint = Endpoint.from_environment()
    assert (endpoint.url, endpoint.client_key) == ("https://one.example/v1", KEY)
    other = Endpoint.from_environment("https://two.example:8443/v1", "OTHER_KEY")
    assert (other.url, other.host, other.client_key) == (
        "https://two.example:8443/v1",
        "two.example:8443",
        "sk-other-0123456789",
    )
    assert KEY not in repr(endpoint)


def test_openai_and_a_named_variable_need_a_key():
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        Endpoint.from_environment()
    with pytest.raises(UsageError, match="'NEBIUS_API_KEY'; it is not set"):
        Endpoint.from_environment("http://127.0.0.1/v1", "NEBIUS_API_KEY")


@pytest.mark.parametrize(("url", "warns"), REPLIES["connections"])
def test_unencrypted_connections_to_elsewhere_warn(url, warns):
    warning = Endpoint(url, KEY).warning
    assert (warning is not None) == warns
    assert warning is None or "credentials travel unencrypted" in warning


def test_the_warning_is_a_note():
    notes = []
    backend = OpenAICompatible(Endpoint("http://api.example/v1"), note=notes.append)
    asyncio.run(backend.aclose())
    assert notes == [Endpoint("http://api.example/v1").warning]


def test_a_timeout_is_positive():
    with pytest.raises(OutOfRangeError):
        OpenAICompatible(Endpoint("https://host/v1"), timeout_s=0)


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (f"key {KEY} is wrong", "key [key] is wrong"),
        (f"{KEY}{KEY}", "[key][key]"),
        (f"{KEY[:15]}*** is wrong", "[key]*** is wrong"),
        (f"***{KEY[-9:]}", "***[key]"),
        ("c2stdGVzdC0wMTIzNDU2Nzg5YWJjZGVm", "[key]"),
        ("no secret: sk-test", "no secret: sk-test"),
        ("two\nlines\x1b[31m", "two lines\ufffd[31m"),
        ("x" * 400, "x" * 300 + "..."),
        ("x" * 295 + KEY, "x" * 295 + "[key]"),
        ("y" * 30_000, "y" * 300 + "..."),
    ],
)
def test_what_a_server_said_is_masked_and_shortened(said, heard):
    assert Redaction(KEY).reason(said) == heard


def test_short_keys_of_local_servers_are_no_secrets():
    redaction = Redaction("EMPTY")
    assert redaction.reason("an EMPTY text") == "an EMPTY text"
    assert not redaction


def test_in_replies_only_long_keys_are_masked():
    assert Redaction("password").reply("The password is password.") == "The password is password."
    assert Redaction(KEY).reply(f"{KEY[:12]} {KEY}.") == f"{KEY[:12]} [key]."


NAMES = [
    "index", "message", "finish_reason", "logprobs", "content", "reasoning", "refusal", "type",
    "text", "thinking", "logprob", "top_logprobs", "completion_tokens", "prompt_tokens",
]  # fmt: skip
NUMBERS = (
    st.integers() | st.floats() | st.sampled_from([10**400, math.inf, -math.inf, math.nan, 2.0**70])
)
LEAVES = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.text()
    | st.sampled_from(["stop", "text", "thinking", HALF])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
    ),
    max_leaves=20,
)
MESSAGES = VALUES | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("content", "reasoning", "refusal"), VALUES)
)
ALTERNATIVES = st.fixed_dictionaries({"logprob": NUMBERS})
TOKENS = st.fixed_dictionaries(
    {"logprob": NUMBERS | VALUES, "top_logprobs": st.lists(ALTERNATIVES, max_size=3) | VALUES}
)
LOGPROBS = VALUES | st.fixed_dictionaries({"content": st.lists(TOKENS, max_size=3) | VALUES})
CHOICES = VALUES | st.fixed_dictionaries(
    {"message": MESSAGES}, optional={"finish_reason": VALUES, "logprobs": LOGPROBS, "index": VALUES}
)
COUNTS = st.integers(0, 10**30) | VALUES
USAGES = VALUES | st.fixed_dictionaries(
    {"completion_tokens": COUNTS}, optional={"prompt_tokens": COUNTS, "total_tokens": COUNTS}
)


@settings(max_examples=50, deadline=None)
@given(
    reply=st.fixed_dictionaries(
        {"choices": VALUES | st.lists(CHOICES, max_size=4)},
        optional={"usage": USAGES, "id": VALUES},
    ),
    asked=st.integers(1, 4),
    top=st.none() | st.integers(0, 3),
)
def test_any_json_is_read_or_transient(reply, asked, top):
    try:
        reading = replies.read(reply, asked, top, str)
    except Transient:
        return
    assert 1 <= len(reading.completions) <= asked
    for completion in reading.completions:
        assert completion.finish_reason in FINISH_REASONS
        for text in (completion.text, completion.reasoning, completion.response_id):
            assert text is None or text.encode() is not None
        for name in ("output_tokens", "reasoning_tokens", "prompt_tokens"):
            assert 0 <= (getattr(completion, name) or 0) < 2**32
        assert all(
            math.isfinite(value)
            for value in (*(completion.token_logprobs or ()), *(completion.token_confidences or ()))
        )


def test_a_chat_continues_the_beginning_of_a_reply(server):
    [completion] = complete(
        server, replace(request(max_tokens=20), prefill=Prefill("a b</think>So", "<think>\n"))
    )
    assert completion.text
    body = server.seen[0].body
    assert body["messages"] == [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "<think>\na b</think>So"},
    ]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_a_text_completion_continues_a_template(monkeypatch):
    tokens = {"tokens": [" 4", ".", "<|end|>"], "token_logprobs": [-0.5, -0.25, 0.0]}
    choice = {"index": 0, "text": " 4.", "finish_reason": "stop", "logprobs": tokens}
    usage = {"prompt_tokens": 9, "completion_tokens": 3}
    sent = []

    async def post(url, body, **_):
        sent.append((body, url))

    async def answer(_self, ask):
        await ask(SimpleNamespace(post=post))
        return json.dumps({"choices": [choice], "usage": usage}).encode()

    def ask(asked):
        return completions(OpenAICompatible(Endpoint("http://127.0.0.1:1/v1", KEY)), asked)

    monkeypatch.setattr(OpenAICompatible, "_answer", answer)
    prefill = Prefill("Two and two. The answer is", "not sent", "<user>{prompt}<assistant>")
    asked = replace(request(temperature=0.0, max_tokens=20, logprobs=0), prefill=prefill)
    [completion] = ask(asked)
    body = {
        "model": "some/model",
        "prompt": "<user>What is 2 + 2?<assistant>Two and two. The answer is",
        "temperature": 0.0,
        "max_tokens": 20,
        "logprobs": 0,
    }
    assert sent == [(body, "http://127.0.0.1:1/v1/completions")]
    assert (completion.text, completion.output_tokens) == (" 4.", 3)
    assert (completion.token_logprobs, completion.token_lengths) == ((-0.5, -0.25, 0.0), (2, 1, 0))
    exchange = Prefill("", template="<user>{prompt}<assistant>{reply}<end>")
    conversation = (Message("assistant", "5."), Message("user", "Sure?"))
    ask(replace(asked, conversation=conversation, prefill=exchange))
    assert sent[1][0]["prompt"] == "<user>What is 2 + 2?<assistant>5.<end><user>Sure?<assistant>"
    ask(replace(asked, conversation=conversation, prefill=None))
    assert [said["content"] for said in sent[2][0]["messages"]] == ["What is 2 + 2?", "5.", "Sure?"]
    with pytest.raises(Fatal, match="turn_template hold one user message, and the prompt has"):
        ask(replace(asked, messages=(Message("system", "Be brief."), *asked.messages)))


@pytest.mark.parametrize(
    ("tokens", "reasoning", "text", "expected"),
    [
        *REPLIES["tokens and their characters"],
        ([b"\xe2\x89", b"\xa4", " 4"], None, "≤ 4", (0, 1, 2)),
    ],
)
def test_tokens_say_which_characters_they_wrote(tokens, reasoning, text, expected):
    content = [
        {"token": "?", "bytes": [*each]} if isinstance(each, bytes) else {"token": each}
        for each in tokens
    ]
    logprobs = {"content": [each | {"logprob": -0.1} for each in content]}
    message = {"content": text, "reasoning_content": reasoning}
    assert read_one(message, top=0, logprobs=logprobs).token_lengths == (
        expected and tuple(expected)
    )

"""Thousands of hostile requests, as bytes, to each of the three servers: no 5xx but those that name
a limit, and no traceback.

`corpus` builds every kind of request that ever got through; the rest are seeded changes of these.
"""

import json
import logging
import random
import re
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from raw_http import ask
from small import write_toy

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from feval.serving import serve
from recorders.backends.openai_compatible import Endpoint
from recorders.journal import Journal
from recorders.servers.proxy import Proxy, proxy_server
from recorders.servers.tiny_server import tiny_server

pytestmark = pytest.mark.slow

REQUESTS = 2000
QUIET_S, BUSY_S = 0.1, 20
ALLOWED = {"serve": {503, 507}, "tiny-server": {503}, "proxy": {502, 503, 507}}
MODELS = {"serve": "alpha", "tiny-server": "feval/tiny-30k", "proxy": "feval/tiny-30k"}
PATHS = (
    "/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/x",
    "/feval/ledger?run=a&detail=1", "/feval/grade",
    "/feval/reset", "/feval/health", "/openapi.json", "/run/mine/v1/chat/completions",
    "/run/%2e%2e/v1/models", "/run/\xff/",
    "/v1/../../etc/passwd", "/v1/%2e%2e%2f", "//", "*", "http://evil.example/v1/models",
    "/v1/models#x", "/" + "a" * 9000,
)  # fmt: skip
HEADERS = (
    "host: evil.example", "host: ", "origin: null", "origin: http://localhost",
    "authorization: Bearer \xff\xfe",
    "authorization:", "authorization: Bearer " + "k" * 5000, "x-feval-run: ../x",
    "x-feval-run: mine@1e9",
    "x-feval-sample: " + "9" * 5000,
    "x-feval-question: %ff%00", "x-feval-dataset: \xff", "x-feval-few-shot: last",
    "content-length: 2", "content-length: +2",
    "content-length: " + "9" * 4300, "content-length: " + "0" * 4300 + "2", "content-length: 2, 2",
    "content-length: 20000000",
    "transfer-encoding: chunked", "transfer-encoding: x, chunked", "transfer-encoding: identity",
    "expect: 100-continue",
    "expect: 200-ok", "connection: upgrade", "upgrade: websocket", "upgrade: h2c",
    "connection: close", "x: y\r\n folded",
    "content-encoding: gzip", "content-type: text/plain; charset=utf-16", "te: trailers", "x: \x00",
    "x: a\nb: c", ": empty",
    "accept-encoding: gzip", "cookie: a=b", "proxy-authorization: Basic x", "x" * 3000 + ": y",
    "x: " + "y" * 70_000,
)  # fmt: skip
VALUES = (
    b"null", b"true", b"-1", b"0", b"1.5", b"1e999", b"-1e999", b"1" + b"0" * 5000,
    b"9223372036854775808",
    b"-9223372036854775809", b"18446744073709551616", b"NaN", b"Infinity", b'""', b'"\\ud800"',
    b'"\\u0000"', b'"\xff\xfe"',
    b"[]", b"{}", b"[null]",
    b'[{"role":"user","content":"\\udfff"}]', b'{"type":"json_object"}',
    b'"' + b"x" * 20_000 + b'"', b"1e-400",
    b"0.1" + b"1" * 400,
    *(b"[" * depth + b"]" * depth for depth in (50, 240, 245, 250, 253, 254, 255, 1000, 1030)),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in (246, 252, 900, 1100)),
    b"[" * 5000, b'{"__proto__":1,"constructor":{}}', b'"../../etc/passwd"',
    b'{"question":"toy/0","sample":1e3}',
)  # fmt: skip
FIELDS = (
    "model", "messages", "prompt", "n", "temperature", "top_p", "max_tokens",
    "max_completion_tokens", "stop", "seed", "stream",
    "stream_options", "logprobs", "top_logprobs", "feval", "metadata", "response_format", "tools",
    "tool_choice", "echo",
    "best_of", "user", "answers", "dataset", "run", "logit_bias", "extra", "",
)  # fmt: skip


def plain(chance, model):
    """The fields of a request that is answered, each as JSON."""
    text = (
        "What is question 1?"
        if model == MODELS["serve"]
        else "Tom has 4 apples. Tom sells 2. How many apples has Tom?"
    )
    fields = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "n": chance.choice([1, 1, 3]),
    }
    if chance.random() < 0.2:
        fields = {"model": model, "prompt": text}
    return {name: json.dumps(value).encode() for name, value in fields.items()} | {
        "max_tokens": b"5"
    }


def body_of(fields):
    return (
        b"{"
        + b",".join(json.dumps(name).encode() + b":" + value for name, value in fields.items())
        + b"}"
    )


def wrapped(body, path, headers, *, chunked=False):
    lengths = ["transfer-encoding: chunked"] if chunked else [f"content-length: {len(body)}"]
    lines = [f"POST {path} HTTP/1.1", "host: localhost", *headers, *lengths]
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked and body else body
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + framed


def corpus(model):
    """Every kind of request that ever got through, and each hostile part in an otherwise good
    request.
    """
    good = plain(random.Random(0), model)  # noqa: S311  not for secrets
    path = PATHS[0]
    yield from (wrapped(body_of(good), path, [header]) for header in HEADERS)
    yield from (wrapped(body_of(good), each, []) for each in PATHS)
    yield from (
        wrapped(body_of(good | {field: value}), path, []) for field in FIELDS for value in VALUES
    )
    yield from (wrapped(value, each, []) for value in VALUES for each in PATHS[:7:2])
    yield from (
        wrapped(body_of(good), path, []).replace(b"\r\n", end, count)
        for end in (b"\n", b"\r")
        for count in (1, 3, 99)
    )
    for line in (
        "GET / HTTP/1.1",
        "GET /",
        "PRI * HTTP/2.0",
        "GET / HTTP/9.9",
        "BREW / HTTP/1.1",
        "CONNECT a:1 HTTP/1.1",
        "",
    ):
        yield f"{line}\r\nhost: localhost\r\n\r\n".encode()
        yield f"{line}\r\n\r\n".encode()
    yield wrapped(body_of(good), path, [], chunked=True).replace(
        b"0\r\n\r\n", b"ffffffffffffffffff\r\n"
    )
    yield wrapped(body_of(good), path, []) * 3
    yield (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 12000000\r\n\r\n"
        + b"x" * 12_000_000
    )


def mutated(chance, model):
    """A request with some hostile parts, whose bytes may be changed, too."""
    fields = plain(chance, model)
    for _ in range(chance.choice([0, 1, 1, 2])):
        fields[chance.choice(FIELDS)] = chance.choice(VALUES)
    headers = [chance.choice(HEADERS) for _ in range(chance.choice([0, 0, 1, 2]))]
    path = chance.choice(PATHS) if chance.random() < 0.4 else PATHS[0]
    sent = bytearray(wrapped(body_of(fields), path, headers, chunked=chance.random() < 0.2))
    for _ in range(chance.choice([0, 0, 1, 3, 10])):
        at, size = chance.randrange(len(sent)), chance.choice([1, 1, 4, 30])
        what = chance.choice(
            [
                b"",
                b"\n",
                b"\r\n",
                b"\x00",
                b"\xff",
                b"0",
                b":",
                chance.randbytes(size),
                bytes(sent[at : at + size]),
            ]
        )
        sent[at : at + chance.choice([0, size])] = what
    return bytes(sent[: chance.randrange(len(sent))] if chance.random() < 0.05 else sent)


def statuses(port, sent):
    """Send bytes and read until the server is quiet; a whole request, which it never leaves
    without a reply, waits for that as long as a busy machine takes.
    """
    received, (head, _, body) = bytearray(), sent.partition(b"\r\n\r\n")
    sizes = re.findall(rb"(?i)(?:content-length|transfer-encoding|expect)\W*(\w*)", head)
    quiet_s = QUIET_S if len(sent) < 100_000 else 1
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        try:
            connection.sendall(sent)
            connection.settimeout(BUSY_S if sizes == [b"%d" % len(body)] else quiet_s)
            while piece := connection.recv(1 << 16):
                connection.settimeout(quiet_s)
                received += piece
                head, _, body = received.partition(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                if length is not None and len(body) == int(length[1]):
                    break
        except OSError:  # closed or silent: what counts is what it said before
            pass
    return [int(status) for status in re.findall(rb"(?:^|\n|\}})HTTP/1\.1 (\d{3})", received)]


@contextmanager
def running(name, folder):
    """One of the three servers; its port."""
    with ExitStack() as stack:
        if name == "serve":
            answers = [[str(j) for j in range(12)] for _ in range(3)]
            recording = write_toy(folder / "toy", {"alpha": answers}, ["0", "1", "2"])
            yield stack.enter_context(
                serve(recording, recycle=True, ledger=folder / "ledger.jsonl")
            ).port
            return
        tiny = stack.enter_context(tiny_server([MODELS[name]]))
        if name == "tiny-server":
            yield tiny.port
            return
        journal = stack.enter_context(Journal.open(folder / "r.journal", {}))
        yield stack.enter_context(proxy_server(Proxy(Endpoint(tiny.url), journal, "sums"))).port


def all_statuses(port, requests, wrong):
    seen = Counter()

    def sent_one(sent):
        result = statuses(port, sent)
        assert not any(map(wrong, result)), (result, sent[:2000])
        seen.update(result)

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(sent_one, sent) for sent in requests]:
            done.result()
    return seen


# A connection that its client reset is closed when the event loop lets go of it.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("name", list(MODELS))
def test_no_bytes_cause_a_bug(name, tmp_path, caplog):
    chance = random.Random(17)  # noqa: S311  not for secrets
    with running(name, tmp_path) as port:
        # tracebacks, which are off otherwise
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        wrong = lambda status: status >= 500 and status not in ALLOWED[name]  # noqa: E731
        seen = all_statuses(port, corpus(MODELS[name]), wrong)
        seen += all_statuses(port, (mutated(chance, MODELS[name]) for _ in range(REQUESTS)), wrong)
        assert ask(port, "GET", "/v1/models").status == 200
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    # A client that sends its next request and leaves: uvicorn tells only that one, and uvloop
    # refuses to write the earlier reply.
    left = [
        record
        for record in logged
        if record.exc_info and "handler is closed" in str(record.exc_info[1])
    ]
    rest = [record.getMessage() for record in logged if record not in left]
    assert [said.partition(" at ")[0] for said in rest] == [
        "A request could not be answered: RuntimeError"
    ] * len(left)
    assert seen[200] > 200
    assert seen[400] > 1000

"""What two readers of a request could read in two ways is refused, and heads have bounds. Raw
bytes, a stub application.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest
from raw_http import Raw, ask, request

from feval.serving import Reply

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from feval.serving import server as serving_server
from feval.serving.server import replay_server

HOST = b"host: localhost\r\n"
CHUNKS = b"2\r\nab\r\n0\r\n\r\n"


class Stub:
    """Answers everything; notes the bodies."""

    def __init__(self):
        self.bodies: list[bytes] = []

    def respond(self, call):
        self.bodies.append(call.body)
        return Reply(200, {"content-type": "application/json"}, b"{}")

    def close(self): ...


@pytest.fixture(scope="module")
def server():
    application: Any = Stub()
    with replay_server(application) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing(server):
    server.application.bodies.clear()


def status(server, sent):
    with Raw(server.port, timeout_s=5) as connection:
        line = connection.send(sent).socket.makefile("rb").readline()
        return int(line.split()[1])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        HOST + HOST,
        HOST + b"host: evil.example\r\n",
        HOST + b"origin: http://evil.example\r\norigin: http://localhost\r\n",
        HOST + b"origin: http://localhost\r\nOrigin: http://localhost\r\n",
    ],
)
def test_a_host_that_is_missing_or_repeated_and_a_repeated_origin_are_400(server, head):
    assert status(server, b"GET / HTTP/1.1\r\n" + head + b"\r\n") == 400
    assert server.application.bodies == []


@pytest.mark.parametrize(
    "rest",
    [
        b"content-length: 2\r\ncontent-length: 2\r\n\r\nab",
        b"content-length: 2\r\ncontent-length: 3\r\n\r\nab",
        b"content-length: 2, 2\r\n\r\nab",
        b"content-length: " + b"9" * 4301 + b"\r\n\r\nab",
        b"content-length: " + b"0" * 4300 + b"2\r\n\r\nab",
        b"content-length: +2\r\n\r\nab",
        b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNKS,
        b"transfer-encoding: x, chunked\r\n\r\n" + CHUNKS,
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n" + CHUNKS,
        b"transfer-encoding: chunked\r\n\r\n2\nab\n0\n\n",
        b"transfer-encoding: chunked\r\n\r\n2;x\nab\r\n0\r\n\r\n",
        b"x: y\ncontent-length: 2\r\n\r\nab",
        b"x: y\r\n folded: content-length: 2\r\n\r\n",
        b"x: y\rz: 1\r\n\r\n",
        b"content-length : 2\r\n\r\nab",
        b"\n",
    ],
)
def test_a_body_that_could_be_read_in_two_ways_is_400(server, rest):
    assert status(server, b"POST / HTTP/1.1\r\n" + HOST + rest) == 400
    assert server.application.bodies == []


def test_a_line_feed_alone_ends_no_line(server):
    assert status(server, b"GET / HTTP/1.1\nhost: localhost\n\n") == 400


@pytest.mark.parametrize(
    "how",
    [
        {"content_length": "20000000"},
        {"transfer_encoding": "chunked"},
        {"expect": "100-continue", "content_length": "20000000"},
    ],
)
def test_who_sends_20_mb_without_reading_gets_the_413(server, how):
    chunk = (
        b"4c4b40\r\n" + b"x" * 5_000_000 + b"\r\n"
        if "transfer_encoding" in how
        else b"x" * 5_000_000
    )
    with Raw(server.port) as connection:
        received = connection.send(
            request("POST", "/", **how), *[chunk] * 4, b"0\r\n\r\n" * (len(chunk) > 5_000_000)
        ).receive()
        assert (received.status, received.error["code"]) == (413, "body_too_long")
        assert received.headers["connection"] == "close"
    assert server.application.bodies == []


def test_what_follows_a_refusal_is_dropped_within_bounds(server, monkeypatch):
    monkeypatch.setattr(serving_server, "_LINGER_S", 0.05)
    monkeypatch.setattr(serving_server, "_MOST_DROPPED", 1_000_000)
    with Raw(server.port) as slow, Raw(server.port) as long:
        sent = request("POST", "/", content_length=str(1 << 40))
        assert slow.send(sent).receive().status == 413
        assert slow.ended
        with contextlib.suppress(OSError):
            long.send(sent, *[b"x" * 1_000_000] * 100)
            pytest.fail("all of it was read")


@pytest.mark.parametrize("part", [b"x: " + b"y" * 100_000, b"x: y\r\n" * 20_000])
def test_a_head_without_end_is_431_and_given_up(server, part):
    with Raw(server.port) as connection:
        connection.send(b"GET / HTTP/1.1\r\n" + HOST + part)
        assert connection.socket.recv(12) == b"HTTP/1.1 431"
    assert ask(server.port, "GET", "/", x="y" * 60_000).status == 200


@pytest.mark.parametrize("part", [b"x" * 1_000, b"x: y\r\n" * 200])
def test_trailers_without_end_are_given_up(server, part):
    with Raw(server.port) as connection:
        connection.send(request("POST", "/", transfer_encoding="chunked") + b"2\r\nab\r\n0\r\n")
        with contextlib.suppress(OSError):
            connection.send(*[part] * 50_000)
            pytest.fail("all of them were read")
    chunks = b"186a0\r\n" + b"x" * 100_000 + b"\r\n0\r\nx: y\r\n\r\n"
    with Raw(server.port) as connection:
        assert (
            connection.send(request("POST", "/", transfer_encoding="chunked"), chunks)
            .receive()
            .status
            == 200
        )


def test_bytes_that_trickle_in_after_a_refusal_hold_no_connection(server, monkeypatch):
    monkeypatch.setattr(serving_server, "_LONGEST_LINGER_S", 0.2, raising=False)
    with Raw(server.port) as connection:
        connection.send(request("POST", "/", host="evil.example", content_length="1000"))
        with contextlib.suppress(OSError):
            for _ in range(40):
                connection.send(b"x")
                time.sleep(0.05)
            pytest.fail("the connection is open")


def test_heads_that_do_not_come_hold_no_thread_and_end(server, monkeypatch):
    monkeypatch.setattr(serving_server, "_MOST_S", 0.5)
    threads = threading.active_count()
    halves = []
    with contextlib.ExitStack() as stack:
        for number in range(200):
            half = stack.enter_context(Raw(server.port))
            halves.append(half)
            if number % 3 == 0:  # a connection that was used before
                assert half.send(request("GET", "/")).receive().status == 200
            half.send((b"GET / HTTP/1.1\r\n", b"\r\n\r\nG", b"")[number % 3])
        assert ask(server.port, "GET", "/").status == 200
        assert threading.active_count() == threads
        for half in halves:
            with contextlib.suppress(ConnectionResetError):
                assert half.socket.recv(1) == b""


def test_blank_lines_do_not_keep_a_connection_open(monkeypatch):
    monkeypatch.setattr(serving_server, "_KEEP_ALIVE_S", 0.2)
    application: Any = Stub()
    with replay_server(application) as running, Raw(running.port, timeout_s=5) as connection:
        assert connection.send(request("GET", "/"), b"\r\n\r\n").receive().status == 200
        connection.send(b"\r\n")
        assert connection.ended

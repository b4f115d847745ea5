"""The server at the edge: what clients may do wrong, slowly or in bulk. Raw sockets, a stub
application.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

import pytest
from places import ROOT
from raw_http import Raw, ask, request

from feval.errors import StorageError, UsageError
from feval.serving import Reply

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from feval.serving import server as serving_server
from feval.serving.server import ServerLimits, replay_server

TOKEN = "a-token-of-some-length"  # noqa: S105  opens a stub
EVENT = b"data: " + b"x" * 4096 + b"\n\n"


class Stub:
    """Answers with what it was asked; notes it."""

    def __init__(self, answer=None):
        self.calls = []
        self.closed = self.sent = 0
        self._answer = answer

    def respond(self, call):
        self.calls.append(call)
        if self._answer is not None:
            return self._answer(call)
        if call.path == "/stream":
            return Reply(
                200, {"content-type": "text/event-stream"}, self._events(int(call.query or 3))
            )
        result = {
            "method": call.method,
            "path": call.path,
            "query": call.query,
            "bytes": len(call.body),
        }
        return Reply(200, {"content-type": "application/json"}, json.dumps(result).encode())

    def _events(self, number):
        for _ in range(number):
            self.sent += 1
            yield EVENT

    def close(self):
        self.closed += 1


@contextlib.contextmanager
def serving(stub=None, *, token=None, **limits):
    application = stub or Stub()
    with replay_server(application, token=token, limits=ServerLimits(**limits)) as server:
        yield server


def check_that_it_answers(server):
    assert ask(server.port, "GET", "/feval/health").status == 200


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS to a plain port\r\n\r\n",
        b"GET\r\n\r\n",
        b"BREW /pot HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nno colon here\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nbad\x00name: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        (
            b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nno"
            b" size\r\nabc\r\n0\r\n\r\n"
        ),
        b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_hostile_bytes_are_refused_or_cut_off_and_harm_nobody(server, sent):
    with Raw(server.port, timeout_s=5) as connection:
        with contextlib.suppress(OSError):  # closed while the rest was sent
            connection.send(sent)
            connection.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            line = connection.socket.makefile("rb").readline()
            assert line == b"" or 400 <= int(line.split()[1]) < 500, line
    check_that_it_answers(server)


def test_requests_on_one_connection_are_answered_in_order(server):
    with Raw(server.port) as connection:
        connection.send(
            b"".join(request("POST", f"/{number}", b"x" * number) for number in range(20))
        )
        echoes = [connection.receive().json for _ in range(20)]
    assert [(echo["path"], echo["bytes"]) for echo in echoes] == [
        (f"/{number}", number) for number in range(20)
    ]


def test_a_path_is_decoded_once_and_the_query_stays_as_it_was_sent(server):
    echo = ask(server.port, "GET", "/run/..%2f..%2F%252e/%C3%A4?run=%C3%A4&x=1").json
    assert (echo["path"], echo["query"]) == ("/run/../../%2e/ä", "run=%C3%A4&x=1")


def test_http_1_0_is_answered_without_chunks_and_closed(server):
    with Raw(server.port) as connection:
        received = connection.send(b"GET /stream HTTP/1.0\r\n\r\n").receive()
        assert received.body == 3 * EVENT
        assert connection.ended


def test_the_server_names_itself_and_nothing_else(server):
    headers = ask(server.port, "GET", "/").headers
    assert headers["server"].startswith("feval/")
    assert "uvicorn" not in str(headers)


def test_a_bug_is_a_500_that_shows_nothing_of_it(caplog):
    def broken(_):
        raise ValueError("a secret")

    with serving(Stub(broken)) as server:
        received = ask(server.port, "GET", "/", authorization="Bearer secret-key")
    assert received.status == 500
    assert received.error["type"] == "server_error"
    assert "secret" not in received.body.decode() + caplog.text


def test_a_body_of_10_mb_is_taken_and_a_longer_one_is_413():
    stub = Stub()
    with serving(stub) as server:
        assert ask(server.port, "POST", "/", b"x" * 10_000_000).json["bytes"] == 10_000_000
        received = ask(server.port, "POST", "/", b"x" * 10_000_001)
        assert (received.status, received.error["code"]) == (413, "body_too_long")
        assert "10,000,001 bytes" in received.error["message"]
    assert [len(call.body) for call in stub.calls] == [10_000_000]


def test_a_client_that_goes_away_in_the_middle_of_its_body_draws_nothing():
    stub = Stub()
    with serving(stub) as server:
        for how in (b"", struct.pack("ii", 1, 0)):
            with Raw(server.port) as connection:
                connection.send(request("POST", "/", content_length="100"), b"half")
                if how:
                    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)
        check_that_it_answers(server)
    assert [call.path for call in stub.calls] == ["/feval/health"]


@pytest.mark.parametrize(
    ("headers", "part"),
    [({"content_length": "9"}, b"ab"), ({"transfer_encoding": "chunked"}, b"1\r\na\r\n")],
)
def test_a_body_that_comes_too_slowly_is_400(headers, part):
    stub = Stub()
    with serving(stub, body_s=0.3) as server, Raw(server.port) as connection:
        received = connection.send(request("POST", "/", **headers), part).receive()
        assert received.status == 400
        assert "within 0.3 seconds" in received.error["message"]
        assert connection.ended
    assert stub.calls == []


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_quiet_connections_lock_nobody_out(monkeypatch, loop):
    """Of 8 connections, 3 say nothing, 2 stop in a head, 2 in a body; one was used, is quiet for
    least long, and stays.
    """
    if loop == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    with serving(connections=8) as server, contextlib.ExitStack() as stack:
        for part in (
            b"",
            b"",
            b"",
            b"GET / HT",
            b"GET / HT",
            *[request("POST", "/", content_length="9") + b"abc"] * 2,
        ):
            stack.enter_context(Raw(server.port)).send(part)
        used = stack.enter_context(Raw(server.port))
        for _ in range(7):
            assert (
                stack.enter_context(Raw(server.port)).send(request("GET", "/")).receive().status
                == 200
            )
            assert used.send(request("GET", "/")).receive().status == 200
        for _ in range(40):
            stack.enter_context(Raw(server.port))
        check_that_it_answers(server)
        assert used.ended


def busy_with(server, stack):
    """Two connections on which replies are going on, so that another one is turned away."""
    busy = [stack.enter_context(Raw(server.port)) for _ in range(2)]
    for each in busy:  # a reply that is not read is not over
        each.send(request("GET", "/stream?20000")).socket.recv(1)
    with Raw(server.port) as last:
        assert last.send(request("GET", "/")).socket.recv(12) == b"HTTP/1.1 503"
    return busy


@pytest.mark.parametrize(("connections", "files"), [(2, None), (1024, 66)])
def test_more_requests_at_once_than_allowed_are_turned_away(monkeypatch, connections, files):
    if files is not None:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    with serving(connections=connections) as server, contextlib.ExitStack() as stack:
        busy = busy_with(server, stack)
        busy.pop().__exit__(None, None, None)
        until(lambda: len(server._uvicorn.server_state.connections) == 1)
        check_that_it_answers(server)


def test_one_address_holds_a_fourth_of_the_connections(monkeypatch):
    with serving(connections=8) as server, contextlib.ExitStack() as stack:
        monkeypatch.setattr(serving_server, "is_loopback", lambda host: host == "127.0.0.2")
        mine = [stack.enter_context(Raw(server.port)) for _ in range(2)]
        others = [stack.enter_context(Raw(server.port, source="127.0.0.2")) for _ in range(4)]
        check_that_it_answers(server)
        assert mine[0].ended
        assert all(other.send(request("GET", "/")).receive().status == 200 for other in others)
        busy_with(server, stack)
        assert others[0].send(request("GET", "/")).receive().status == 200


def test_a_reply_does_not_wait_for_the_clients_acknowledgement(monkeypatch):
    """On plain asyncio it took 44 ms, since head and body are sent apart."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    seconds = []
    with serving() as server, Raw(server.port) as connection:
        for _ in range(25):
            began = time.perf_counter()
            connection.send(request("POST", "/", b"{}")).receive()
            seconds.append(time.perf_counter() - began)
    assert statistics.median(seconds) < 0.02


def test_a_stream_ends_when_its_reader_has_gone():
    stub = Stub()
    with serving(stub) as server:
        with Raw(server.port) as connection:
            connection.send(request("GET", "/stream?1000000000"))
            assert connection.socket.recv(100).startswith(b"HTTP/1.1 200")

        def is_over():
            before = stub.sent
            time.sleep(0.2)
            return stub.sent == before

        until(is_over)
        check_that_it_answers(server)
        assert stub.sent < 1_000_000


def test_other_clients_get_their_turn_during_a_stream():
    stub = Stub()
    with serving(stub) as server, Raw(server.port) as connection:
        connection.send(request("GET", "/stream?20000"))
        reader = threading.Thread(target=connection.receive)
        reader.start()
        until(lambda: stub.sent > 100)
        check_that_it_answers(server)
        assert stub.sent < 20_000
        reader.join()


EVIL, OWN = "http://evil.example", "http://localhost:8888"


@pytest.mark.parametrize(
    ("name", "values", "status"),
    [
        ("host", ["evil.example", "127.0.0.1.evil.example", "[::2]", "10.0.0.1:80", "[", ""], 403),
        ("host", ["127.0.0.1:1", "localhost", "LOCALHOST:9", "[::1]:80", "a.localhost"], 200),
        ("origin", [EVIL, "null", "http://["], 403),
        ("origin", [OWN], 200),
        ("sec_fetch_site", ["cross-site"], 403),  # an image of a page elsewhere, or a link there
        ("sec_fetch_site", ["none", "same-origin"], 200),  # none: typed into the address bar
    ],
)
def test_other_hosts_and_their_pages_are_refused(server, name, values, status):
    for value in values:
        received = ask(server.port, "GET", "/", **{name: value})
        assert received.status == status
        assert name != "host" or status == 200 or "loopback" in received.error["message"]
    own = {"sec_fetch_site": "cross-site", "origin": OWN}
    assert ask(server.port, "GET", "/", **own).status == 200


WRONG_KEYS = [
    "Bearer",
    "Bearer ",
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN[:-1]}",
    f"Basic {TOKEN}",
    TOKEN,
    "Bearer \xff\xfe",
]


@pytest.mark.parametrize("authorization", [None, "", *WRONG_KEYS])
def test_without_the_token_nothing_is_answered(authorization):
    stub = Stub()
    sent = {} if authorization is None else {"authorization": authorization}
    with serving(stub, token=TOKEN) as server:
        received = ask(server.port, "POST", "/v1/chat/completions", b"{}", **sent)
    assert received.status == 401
    assert received.error["code"] == "invalid_api_key"
    assert TOKEN not in str(received)
    assert stub.calls == []


def test_with_the_token_the_application_sees_no_key():
    stub = Stub()
    with serving(stub, token=TOKEN) as server:
        sent = {
            "authorization": f"bearer {TOKEN}",
            "x_api_key": "a",
            "api_key": "b",
            "x_feval_run": "mine",
        }
        assert ask(server.port, "GET", "/", **sent).status == 200
    [call] = stub.calls
    assert TOKEN not in str(call)
    assert {name for name in call.headers if "key" in name or name == "authorization"} == set()
    assert call.headers["x-feval-run"] == "mine"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])  # noqa: S104  they are refused
def test_another_host_needs_a_token(host):
    with pytest.raises(UsageError, match=r"other machines.*FEVAL_SERVE_TOKEN"):
        replay_server(Stub(), host=host)


@pytest.mark.parametrize(
    "token", ["", "short", "with a blank in its middle", "ü" * 20, "x" * 20 + "\n"]
)
def test_a_token_that_protects_nothing_or_fits_no_header_is_refused(token):
    with pytest.raises(UsageError, match="16 or more ASCII characters"):
        replay_server(Stub(), token=token)


def test_every_machine_is_served_with_a_token():
    application = Stub()
    with replay_server(application, host="0.0.0.0", token=TOKEN) as server:  # noqa: S104
        assert not server.only_loopback
        sent = {"authorization": f"Bearer {TOKEN}", "host": "gpu-7.cluster.example"}
        assert ask(server.port, "GET", "/", **sent).status == 200
        assert ask(server.port, "GET", "/", origin="http://evil.example", **sent).status == 403


def test_a_port_that_is_taken_and_a_host_of_elsewhere_are_sentences():
    application = Stub()
    with (
        serving() as server,
        pytest.raises(StorageError, match=rf"port {server.port}: .*Name another `port`"),
    ):
        replay_server(application, port=server.port)
    with pytest.raises(StorageError, match="Name a `host`"):
        replay_server(application, host="192.0.2.1", token=TOKEN)
    with pytest.raises(StorageError, match="Nothing can listen"):
        replay_server(application, port=65_536)
    with pytest.raises(UsageError, match="empty"):
        replay_server(application, host=" ")


def test_leaving_the_block_finishes_what_is_answered_and_closes_the_application():
    stub = Stub()
    with contextlib.ExitStack() as held:
        with serving(stub) as server:
            connection = held.enter_context(Raw(server.port)).send(request("GET", "/stream?2000"))
            until(lambda: stub.sent > 0)
            received = []
            reader = threading.Thread(target=lambda: received.append(connection.receive().body))
            reader.start()
        reader.join()
    assert received == [2000 * EVENT]
    assert stub.closed == 1
    with pytest.raises(ConnectionRefusedError):
        Raw(server.port)


def test_a_port_can_be_listened_on_again_at_once():
    application = Stub()
    with serving() as server:
        check_that_it_answers(server)
    with replay_server(application, port=server.port) as again:
        check_that_it_answers(again)


HOST = b"host: localhost\r\n"


CHUNKS = b"2\r\nab\r\n0\r\n\r\n"


@pytest.fixture(autouse=True)
def nothing(server):
    server.application.calls.clear()


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
    assert server.application.calls == []


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
    assert server.application.calls == []


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
    assert server.application.calls == []


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
    with serving() as running, Raw(running.port, timeout_s=5) as connection:
        assert connection.send(request("GET", "/"), b"\r\n\r\n").receive().status == 200
        connection.send(b"\r\n")
        assert connection.ended


STUB = """
import signal
import sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as it is where no nohup stands in front of the tests
from feval.serving import Reply
from feval.serving.server import replay_server
class Application:
    def respond(self, call):
        return Reply(200, {"content-type": "application/json"}, b"{}")
    def close(self):
        print("closed", flush=True)
server = replay_server(Application())
print(server.port, flush=True)
print("signal", server.run(), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(number):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", STUB], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        port = int(process.stdout.readline())
        with Raw(port) as idle:
            assert idle.send(request("GET", "/")).receive().status == 200
            process.send_signal(number)
            assert process.stdout.read().split() == ["closed", "signal", str(int(number))]
        assert process.wait() == 0

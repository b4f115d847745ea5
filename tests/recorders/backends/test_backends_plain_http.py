"""The transport for fast servers: it reads what the client's own transport reads, and keeps a connection only where it may."""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

openai = pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")

from recorders.backends import plain_http  # noqa: E402  after the skip
from recorders.backends.plain_http import PlainHTTP, is_direct  # noqa: E402

LIBRARY: Any = sys.modules[
    next(
        base.__module__.partition(".")[0]
        for base in openai.DefaultAsyncHttpxClient.__mro__
        if base.__module__.startswith("httpx")
    )
]
OK = b"HTTP/1.1 200 OK\r\n"
PLAIN = OK + b"content-length: 5\r\n\r\nhello"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
ZIPPED = gzip.compress(b"hello", mtime=0)
GOOD = {
    "length": PLAIN,
    "no body": OK + b"content-length: 0\r\n\r\n",
    "chunks": CHUNKED + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
    "chunks with extension and trailer": CHUNKED + b"5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nx-end: 1\r\n\r\n",
    "no chunk": CHUNKED + b"0\r\n\r\n",
    "until the end": OK + b"content-type: text/plain\r\n\r\nhello",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\nhello",
    "announced": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + PLAIN,
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "429": b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\ncontent-length: 2\r\n\r\n{}",
    "no reason": b"HTTP/1.1 200 \r\ncontent-length: 5\r\n\r\nhello",
    "bare line feeds": b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello",
    "odd fields": OK + b"X-Two: a\r\nx-two:\tb \r\nx-none:\r\nx-latin: \xe4\r\ncontent-length: 5\r\n\r\nhello",
    "gzip": OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(ZIPPED) + ZIPPED,
}
BAD = {
    "nothing": b"",
    "half a head": OK + b"content-le",
    "half a body": OK + b"content-length: 5\r\n\r\nhel",
    "half a chunk": CHUNKED + b"5\r\nhel",
    "no last chunk": CHUNKED + b"5\r\nhello\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "no number": b"HTTP/1.1 abc OK\r\n\r\n",
    "no field": OK + b"nonsense\r\ncontent-length: 5\r\n\r\nhello",
    "bad length": OK + b"content-length: -5\r\n\r\nhello",
    "bad chunk": CHUNKED + b"xyz\r\nhello\r\n0\r\n\r\n",
    "long chunk": CHUNKED + b"3\r\nhello\r\n0\r\n\r\n",
    "bad gzip": OK + b"content-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello",
    "unknown coding": OK + b"transfer-encoding: zip\r\n\r\nhello",
}


class Server:
    """Answers the k-th request with the k-th reply, piece by piece, and closes after the last."""

    def __init__(self, replies: Sequence[Sequence[bytes]], close_after: int | None = None) -> None:
        self.replies, self.connections = list(replies), 0
        self.close_after = len(self.replies) if close_after is None else close_after
        self.bodies: list[bytes] = []
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.bodies.append(await reader.readexactly(length))
                for piece in self.replies[len(self.bodies) - 1]:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if len(self.bodies) >= self.close_after:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()
        self.closed.set()


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"


async def seen(transport: Any, pieces: Sequence[bytes]) -> tuple[object, ...]:
    """What a client makes of a reply: everything in it, or the class of the error."""
    async with serving(Server([pieces])) as url, LIBRARY.AsyncClient(transport=transport) as client:
        try:
            reply = await client.post(url, content=b"{}")
        except LIBRARY.TransportError as error:
            return (type(error).__name__,)
        except LIBRARY.DecodingError as error:
            return (type(error).__name__,)
        return reply.status_code, reply.content, reply.headers.multi_items()


@pytest.mark.parametrize("reply", [*GOOD, *BAD])
def test_a_reply_is_to_the_client_what_it_is_by_its_own_transport(reply: str) -> None:
    pieces = [(GOOD | BAD)[reply]]
    ours, theirs = (
        asyncio.run(seen(PlainHTTP(LIBRARY), pieces)),
        asyncio.run(seen(LIBRARY.AsyncHTTPTransport(), pieces)),
    )
    assert ours == theirs
    assert len(ours) == (3 if reply in GOOD else 1)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(GOOD)), st.lists(st.integers(1, 80), max_size=6))
@example("chunks with extension and trailer", list(range(1, 80)))
def test_where_the_network_cuts_a_reply_does_not_matter(reply: str, cuts: list[int]) -> None:
    whole = GOOD[reply]
    ends = [0, *sorted({cut for cut in cuts if cut < len(whole)}), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(ends)]
    assert asyncio.run(seen(PlainHTTP(LIBRARY), pieces)) == asyncio.run(seen(PlainHTTP(LIBRARY), [whole]))


def connections_for_two(
    first: bytes, *, close_after: int = 2, between: Callable[[Server], Awaitable[None]] | None = None
) -> int:
    """Connections that two requests took, the first of which got this reply."""

    async def run() -> int:
        server = Server([[first], [PLAIN]], close_after)
        async with serving(server) as url, LIBRARY.AsyncClient(transport=PlainHTTP(LIBRARY)) as client:
            assert (await client.post(url, content=b"1")).content == b"hello"
            if between is not None:
                await between(server)
            assert (await client.post(url, content=b"2")).content == b"hello"
        assert server.bodies == [b"1", b"2"]
        return server.connections

    return asyncio.run(run())


def test_a_connection_is_used_again() -> None:
    assert connections_for_two(PLAIN) == 1


@pytest.mark.parametrize(
    "first",
    [
        OK + b"Connection: Close\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        PLAIN + b"HTTP/1.1 408 Request Timeout\r\n\r\n",
    ],
    ids=["announced to close", "HTTP/1.0", "more than a reply"],
)
def test_a_connection_with_no_future_is_not_used_again(first: bytes) -> None:
    assert connections_for_two(first) == 2


def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async def closed(server: Server) -> None:
        await server.closed.wait()
        for _ in range(20):  # rounds of the loop, in which the end of the connection is read
            await asyncio.sleep(0)

    assert connections_for_two(PLAIN, close_after=1, between=closed) == 2


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_http, "_KEEP_IDLE_S", 0.0)
    assert connections_for_two(PLAIN) == 2


def test_a_cancelled_request_leaves_no_half_reply_to_the_next() -> None:
    async def run() -> tuple[bytes, int]:
        server = Server([[OK + b"content-length: 5\r\n\r\nhel"], [PLAIN]])
        async with serving(server) as url, LIBRARY.AsyncClient(transport=PlainHTTP(LIBRARY)) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.post(url, content=b"1")
            return (await client.post(url, content=b"2")).content, server.connections

    assert asyncio.run(run()) == (b"hello", 2)


def test_a_head_without_end_is_given_up() -> None:
    async def run(reply: list[bytes]) -> None:
        with pytest.raises(LIBRARY.RemoteProtocolError, match=r"longer than|more than"):
            async with serving(Server([reply])) as url, LIBRARY.AsyncClient(transport=PlainHTTP(LIBRARY)) as client:
                await client.post(url, content=b"1")

    asyncio.run(run([OK, b"x" * 100_000]))
    asyncio.run(run([OK, b"x: y\r\n" * 1000]))


def test_no_server_is_a_connect_error() -> None:
    async def run() -> None:
        async with serving(Server([])) as url:
            pass
        async with LIBRARY.AsyncClient(transport=PlainHTTP(LIBRARY)) as client:
            with pytest.raises(LIBRARY.ConnectError):
                await client.post(url, content=b"1")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("url", "variables", "direct"),
    [
        ("http://127.0.0.1:8000/v1", {}, True),
        ("http://127.0.0.1:8000/v1", {"https_proxy": "http://proxy:3128"}, True),
        ("http://127.0.0.1:8000/v1", {"http_proxy": "http://proxy:3128"}, False),
        ("http://127.0.0.1:8000/v1", {"all_proxy": "socks5://proxy:1080"}, False),
        ("https://api.openai.com/v1", {}, False),
    ],
)
def test_encrypted_and_proxied_servers_are_left_to_the_client(
    monkeypatch: pytest.MonkeyPatch, url: str, variables: dict[str, str], direct: bool
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_direct(url) is direct

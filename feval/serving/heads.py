"""Bounds of heads and of connections, which neither llhttp nor uvicorn has."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from heapq import nsmallest
from time import monotonic
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from feval.serving.loopback import is_loopback
from feval.serving.wire.replies import Sender

_MOST_BYTES = 1 << 16
_MOST_S = 30.0
_SHARE = 4  # of all connections, one address of another machine may hold a fourth
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length:"
    b" 0\r\n\r\n"
)


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol on httptools, with a bound on the bytes of a request's head and trailers,
    and the seconds of its head.

    Beyond the bound of connections (`limit_concurrency` of the configuration), or a fourth of it
    from one address that is not loopback, the connection ends that has been quiet for longest: on
    which no complete request is being answered. Only where there is none, the request of the new
    connection is answered 503.

    httptools and not h11, which accepts bare line feeds, folded headers, and a Content-Length
    beside chunks: what another server in front may read as two requests. Overridden are callbacks
    of asyncio and of httptools, and uvicorn's at the end of a reply.
    """

    _connection: asyncio.BaseTransport
    _sender: Sender
    address: str | None
    _deadline: asyncio.TimerHandle | None = None
    _is_idle = True
    _in_head = _in_trailers = False
    _head_bytes = 0
    heard = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._connection = transport
        self.heard = monotonic()
        self.address = (
            None if self.client is None or is_loopback(self.client[0]) else self.client[0]
        )
        self._sender = transport.is_closing, True
        self._wait()
        self._is_surplus()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what came, and count and time it while a head is incomplete."""
        if self._is_idle:  # blank lines between requests would keep an idle connection open
            data = data.lstrip(b"\r\n")
            if not data:
                return
        self.heard = monotonic()
        were_trailers = self._in_trailers
        super().data_received(data)
        if self._in_head or (were_trailers and self._in_trailers):
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_BYTES:
                self._connection.write(_TOO_LARGE)  # type: ignore[attr-defined]  # of a transport that writes
                self._connection.close()
            elif self._in_head and self._deadline is None:
                self._wait()

    def on_message_begin(self) -> None:
        """Note that a head begins, and of which connection."""
        self._is_idle, self._in_head, self._head_bytes = False, True, 0
        super().on_message_begin()
        self.scope["feval.sender"] = self._sender  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        """Note that the head is complete."""
        self._in_head = False
        self._arrived()
        self.limit_concurrency = 0 if self._is_surplus() else None  # at 0, uvicorn answers 503
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """Note that a chunk's bytes come, or trailers after the last one."""
        self._in_trailers, self._head_bytes = True, 0

    def on_body(self, body: bytes) -> None:
        """Note that no trailers came."""
        self._in_trailers = False
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the body is complete."""
        self._is_idle, self._in_trailers = True, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note when the connection became quiet."""
        self.heard = monotonic()
        super().on_response_complete()

    @property
    def is_quiet(self) -> bool:
        """Whether no complete request is being answered."""
        if self.pipeline:
            return False
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body  # type: ignore[redundant-expr]  # before the first

    def _is_surplus(self) -> bool:
        """End the connections that have been quiet for longest, until the bounds hold; return
        whether they still do not.
        """
        most, peers = (
            cast("int", self.config.limit_concurrency),
            cast("set[BoundedHeads]", self.connections),
        )
        share = max(most // _SHARE, 1)
        if len(peers) <= share:
            return False
        if self.address is not None:
            own = [peer for peer in peers if peer.address == self.address]
            if self._exceeds(own, share):
                return True
        return self._exceeds(peers, most)

    def _exceeds(self, peers: Collection[BoundedHeads], most: int) -> bool:
        surplus = len(peers) - most
        if surplus <= 0:
            return False
        quiet = [peer for peer in peers if peer is not self and peer.is_quiet]
        for peer in nsmallest(surplus, quiet, key=lambda peer: peer.heard):
            self.connections.discard(peer)  # it may yet have to flush what its client does not read
            peer.transport.close()
        return surplus > len(quiet)

    def _wait(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(_MOST_S, self._connection.close)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

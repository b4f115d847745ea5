"""What uvicorn leaves open about connections: deadlines, bounds, errors in OpenAI's shape, and replies at once.

Without these, uvicorn waits for ever for the rest of a request and keeps headers of any length; and it makes a task, an event
and a timer for every request, which cost more than answering it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from feval.serving.application import Reply
from feval.serving.asgi import OF_DOOR, OF_FEVAL, OF_KEYS, Door, Limits, deliver, error_reply

__all__ = ["Connection", "Uvicorn"]

_LOOKED_AT = tuple((name.encode(), name) for name in dict.fromkeys((*OF_DOOR, *OF_KEYS, *OF_FEVAL)))
_UNUSUAL = frozenset((b"transfer-encoding", b"upgrade", b"expect"))


class _Joined:
    """A transport that sends the head of a reply together with what follows: one system call, and the client wakes once."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Keep a head; send anything else, behind the head that was kept."""
        if data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100") and data.endswith(b"\r\n\r\n"):
            self.flush()
            self._head = data
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def write_whole(self, head: bytes, body: bytes) -> None:
        """Send a whole reply, without a copy of its body."""
        self.flush()
        self._transport.writelines((head, body))

    def flush(self) -> None:
        """Send a head that nothing followed."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Send what was kept, and close."""
        self.flush()
        self._transport.close()


class _BrokenReplyError(Exception):
    """A header of a reply has more than one line."""


class _AtOnce:
    """A request whose head has come and that is answered as soon as its body has."""

    __slots__ = ("body", "headers", "method", "path")

    def __init__(self, method: str, path: str, headers: dict[str, str]) -> None:
        self.method, self.path, self.headers = method, path, headers
        self.body: list[bytes] = []


class Connection(HttpToolsProtocol):
    """One connection. Its states: a request is arriving, is being answered, or none has begun.

    A usual request (its length is stated, nothing before it waits, the connection stays) is answered at once, when its last
    byte is parsed. Every other one, and every stream, is uvicorn's: a task of its own.
    """

    def __init__(self, *args: Any, limits: Limits, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.limits = limits
        self.since = time.monotonic()
        self._arriving = True  # a client that connects is expected to ask
        self._in_head = False
        self._head_bytes = 0
        self._stalled_since: float | None = None
        self._at_once: _AtOnce | None = None
        self._ends = False
        self._defaults: list[tuple[bytes, bytes]] = []
        self._default_head = b""

    @property
    def answering(self) -> bool:
        """Whether a request that has arrived is being answered."""
        return not self._arriving and self._current is not None and not self._current.response_complete

    @property
    def _current(self) -> Any:
        """The latest request and its response; `None` before the first, which uvicorn's types do not say."""
        return self.cycle

    def connection_made(self, transport: Any) -> None:
        """Make room for the connection by closing the one that has waited for the longest."""
        super().connection_made(transport)
        self._joined = _Joined(transport)
        self.transport = cast("asyncio.Transport", self._joined)
        if len(self.connections) > self.limits.connections:
            waiting = [other for other in self.connections if isinstance(other, Connection) and not other.answering]
            min(waiting, key=lambda other: other.since).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse, and give up a request whose head has no end."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
        if self._head_bytes > self.limits.head_bytes or (self.headers and len(self.headers) > self.limits.headers):
            self._head_bytes = 0
            self._refuse(431, "The headers of this request are too long, or too many. Send fewer.")

    def eof_received(self) -> bool | None:  # type: ignore[override]  # uvicorn's returns nothing: close
        """Answer a client that will say nothing more but still listens."""
        if not self.answering:
            return None
        self.cycle.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        """Start the clock of a request."""
        super().on_message_begin()
        self.since = time.monotonic()
        self._arriving = self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Note the end of the head."""
        self._in_head = False
        self._head_bytes = 0
        self._at_once = self._usual()
        if self._at_once is None:
            self._as_usual()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of a body."""
        if self._at_once is not None:
            self._at_once.body.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the clock, and answer."""
        self._arriving = False
        self.since = time.monotonic()
        request, self._at_once = self._at_once, None
        if request is None:
            super().on_message_complete()
        elif not self.transport.is_closing():
            self._answer(request)

    def on_response_complete(self) -> None:
        """Send the head of a reply without a body."""
        self._joined.flush()
        self.since = time.monotonic()
        super().on_response_complete()

    def shutdown(self) -> None:
        """Close the connection, or let a request that is arriving be its last."""
        if self._at_once is None:
            super().shutdown()
        else:
            self._ends = True

    def _usual(self) -> _AtOnce | None:
        """Return the request whose head has come, if it can be answered at once."""
        url, headers, before = self.url, dict(self.headers), self._current
        if (
            (before is not None and not before.response_complete)
            or self.pipeline
            or self.flow.write_paused
            or not url.startswith(b"/")
            or b"%" in url
            or b"?" in url
            or b"#" in url
            or not url.isascii()
            or not _UNUSUAL.isdisjoint(headers)
            or not self.parser.should_keep_alive()
            or self.parser.get_http_version() != "1.1"
        ):
            return None
        method, path = self.parser.get_method().decode("ascii"), url.decode("ascii")
        if method in {"HEAD", "CONNECT"} or self._door.is_slow(path):
            return None
        wanted = {told: headers[name].decode("latin-1") for name, told in _LOOKED_AT if name in headers}
        return _AtOnce(method, path, wanted) if self._door.refused(wanted) is None else None

    @property
    def _door(self) -> Door:
        return cast("Door", self.app)

    def _as_usual(self) -> None:
        """Hand the request whose head has come to uvicorn."""
        self.expect_100_continue = any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers
        )
        super().on_headers_complete()

    def _answer(self, request: _AtOnce) -> None:
        body = request.body[0] if len(request.body) == 1 else b"".join(request.body)
        reply = self._door.at_once(request.method, request.path, request.headers, body)
        if isinstance(reply.body, bytes):
            self._joined.write_whole(*self._whole(reply, reply.body))
            self.server_state.total_requests += 1
            if self._ends:
                self.transport.close()
            return
        door, self.app = self.app, cast("Any", _delivering(reply))
        try:
            self._as_usual()
        finally:
            self.app = door
        self.cycle.keep_alive = not self._ends
        super().on_message_complete()

    def _whole(self, reply: Reply, body: bytes) -> tuple[bytes, bytes]:
        try:
            return self._head(reply, len(body)), body
        except _BrokenReplyError:
            broken = error_reply(500, "Something unexpected happened (a broken header).", code="internal_error")
            body = b"".join([broken.body] if isinstance(broken.body, bytes) else broken.body)
            return self._head(broken, len(body)), body

    def _head(self, reply: Reply, length: int) -> bytes:
        defaults = self.server_state.default_headers
        if defaults is not self._defaults:  # a new list every second, with the date
            self._defaults = defaults
            self._default_head = b"".join(b"%b: %b\r\n" % header for header in defaults)
        headers: Mapping[str, str] = reply.headers
        told = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if told.count("\n") != len(headers) or told.count("\r") != len(headers) or "\0" in told:
            raise _BrokenReplyError
        last = b"content-length: %d\r\n%b\r\n" % (length, b"connection: close\r\n" if self._ends else b"")
        return b"".join((STATUS_LINE[reply.status], self._default_head, told.encode("latin-1"), last))

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than it is sent to."""
        self._stalled_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that it has caught up."""
        self._stalled_since = None
        super().resume_writing()

    def check(self, now: float) -> None:
        """Close the connection if the client's time is up; called about once a second."""
        if self._stalled_since is not None and now - self._stalled_since > self.limits.stalled_s:
            self.transport.abort()
        elif self._arriving and now - self.since > self.limits.request_s:
            if self._current is None and not self._in_head and self._at_once is None:  # nothing was asked
                self.transport.abort()
                return
            # Not 408: the official client would send such a request again.
            self._refuse(400, f"The request did not arrive within {self.limits.request_s:g} seconds. Send it at once.")
        elif not self._arriving and not self.answering and now - self.since > self.limits.idle_s:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's words are for people who know HTTP
        """Say in OpenAI's shape what uvicorn would say in plain text."""
        self._refuse(400, "This is no request that HTTP knows. Use an HTTP client.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer the request that is arriving, unless an answer has begun or others wait for theirs, and close."""
        before, now = self._current, not self.pipeline and not self.transport.is_closing()
        first = before is None or not before.response_started
        self._at_once, arriving = None, self._in_head or self._at_once is not None
        if now and (first or (arriving and before.response_complete)):
            reply = error_reply(status, message, code="bad_request")
            body = b"".join([reply.body] if isinstance(reply.body, bytes) else reply.body)
            headers = {**reply.headers, "content-length": str(len(body)), "connection": "close"}
            head = b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items())
            self.transport.write(STATUS_LINE[status] + head + b"\r\n" + body)
        self.transport.close()


def _delivering(reply: Reply) -> Callable[..., Awaitable[None]]:
    """An ASGI application that sends a reply that was made already."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()  # the body that was answered; what comes next is the end
        await deliver(reply, scope, receive, send)

    return application


class Uvicorn(uvicorn.Server):
    """A uvicorn server that looks at its connections' clocks, and leaves signals to whoever runs it."""

    async def on_tick(self, counter: int) -> bool:
        """Do what is done ten times a second."""
        if counter % 10 == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.check(time.monotonic())
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

"""What uvicorn leaves open about connections: deadlines, bounds, errors in OpenAI's shape, and replies at once.

Without these, uvicorn waits for ever for the rest of a request and keeps headers of any length; and it makes a task, an event
and a timer for every request, and parses the same headers again and again; each costs more than answering does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from feval.serving.application import Reply
from feval.serving.asgi import OF_DOOR, OF_FEVAL, OF_KEYS, Door, Limits, deliver, error_reply
from feval.serving.kept import Kept
from feval.serving.runs.runs import may_be_secret

__all__ = ["Connection", "Head", "Uvicorn"]

_LOOKED_AT = tuple((name.encode(), name) for name in dict.fromkeys((*OF_DOOR, *OF_KEYS, *OF_FEVAL)))
_UNUSUAL = frozenset((b"transfer-encoding", b"upgrade", b"expect"))
_HEAD_END = b"\r\n\r\n"
_KNOWN_BYTES = 1500  # about what a head that is known takes, besides its path and headers
_MAY_BE_SECRET = (*OF_KEYS, "x-feval-run")


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


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request that can be answered as soon as its body has come.

    Attributes:
        method: of HTTP.
        path: decoded.
        headers: those that the door and the application look at.
    """

    method: str
    path: str
    headers: dict[str, str]


class Connection(HttpToolsProtocol):
    """One connection. Its states: a request is arriving, is being answered, or none has begun.

    A usual request (its length is stated, nothing before it waits, the connection stays) is answered at once, when its last
    byte is parsed. Every other one, and every stream, is uvicorn's: a task of its own.

    Clients send the same heads again and again, and parsing one takes longer than the answer. So what a head means is kept, by
    its digest, if the request was usual, came in one piece and was no error; the next one with the same bytes is not parsed.

    Args:
        limits: of requests.
        heads: those that are known, with the lengths of their bodies; shared by all connections.
    """

    def __init__(self, *args: Any, limits: Limits, heads: Kept[bytes, tuple[Head, int]], **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.limits, self._heads = limits, heads
        self.since = time.monotonic()
        self._arriving = True  # a client that connects is expected to ask
        self._in_head = False
        self._head_bytes = 0
        self._stalled_since: float | None = None
        self._at_once: Head | None = None
        self._body: list[bytes] = []
        self._between = True  # the next byte is the first one of a request, and the connection stays
        self._answered: tuple[Head, int] | None = None  # the last head in this piece, and the bytes of its body
        self._begun = 0  # requests in this piece
        self._too_long = False  # a head was: it is refused, and what follows is not looked at
        self._made: Reply | None = None
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
        """Answer a request whose head is known; parse any other."""
        end = data.find(_HEAD_END) + len(_HEAD_END) if self._between else 0
        if end < len(_HEAD_END):
            self._parse(data)
            return
        digest = sha256(data[:end]).digest()
        known = self._heads.get(digest)
        if known is not None and known[1] == len(data) - end and self._free:
            self._answer_known(known[0], data, end)
            return
        self._parse(data)
        answered = self._answered
        # The piece was one request, no more and no less.
        if answered is not None and self._begun == 1 and answered[1] == len(data) - end:
            self._know(digest, *answered)

    def _answer_known(self, head: Head, data: bytes, end: int) -> None:
        self._unset_keepalive_if_required()
        self._arriving = False
        self.since = time.monotonic()
        reply = self._door.at_once(head.method, head.path, head.headers, data[end:])
        if isinstance(reply.body, bytes):
            self._send_whole(reply, reply.body)
        else:  # uvicorn sends it, and has to know what was asked
            self._made = reply
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse, and give up a request whose head has no end."""
        self._answered, self._begun = None, 0
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
        many = self.headers and len(self.headers) > self.limits.headers  # those after a chunked body, too
        if not self._too_long and (many or self._head_bytes > self.limits.head_bytes):
            self._refuse_head()

    def _refuse_head(self) -> None:
        self._too_long = True
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
        self._between = False
        self._begun += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Note the end of the head."""
        if self._too_long or self._is_too_long():
            if not self._too_long:
                self._refuse_head()
            return
        self._in_head = False
        self._head_bytes = 0
        self._at_once = self._usual()
        if self._at_once is None:
            self._as_usual()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of a body."""
        if self._too_long:
            return
        if self._at_once is not None:
            self._body.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the clock, and answer."""
        if self._too_long:
            return
        self._arriving = False
        self.since = time.monotonic()
        head, self._at_once = self._at_once, None
        if head is None:
            super().on_message_complete()
            return
        body = b"".join(self._body)
        self._body.clear()
        self._between = True
        if not self.transport.is_closing():
            status = self._answer(head, body)
            # What is refused may hold anything, and nobody asks for it often.
            self._answered = (head, len(body)) if status < 400 else None

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

    @property
    def _free(self) -> bool:
        """Whether what is sent now is not in the way of another reply."""
        before = self._current
        return (before is None or before.response_complete) and not self.pipeline and not self.flow.write_paused

    def _is_too_long(self) -> bool:
        """Whether the head that has come is: one that came in one piece was not counted while it arrived."""
        limits, headers = self.limits, self.headers
        return (
            len(headers) > limits.headers
            or len(self.url) + sum([len(name) + len(value) for name, value in headers]) > limits.head_bytes
        )

    def _usual(self) -> Head | None:
        """Return the head that has come, if its request can be answered at once."""
        url, headers = self.url, dict(self.headers)
        if (
            not self._free
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
        return Head(method, path, wanted) if self._door.refused(wanted) is None else None

    def _know(self, digest: bytes, head: Head, length: int) -> None:
        """Keep what a head means, unless it holds what may be a secret."""
        keys = [head.headers[name] for name in _MAY_BE_SECRET if name in head.headers]
        if not any(may_be_secret(key.removeprefix("Bearer ")) for key in keys):
            size = _KNOWN_BYTES + len(head.path) + sum(map(len, head.headers.values()))
            self._heads.put(digest, (head, length), size)

    @property
    def _door(self) -> Door:
        return cast("Door", self.app)

    def _as_usual(self) -> None:
        """Hand the request whose head has come to uvicorn."""
        self.expect_100_continue = any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers
        )
        super().on_headers_complete()

    def _answer(self, head: Head, body: bytes) -> int:
        """Send the reply, or have uvicorn send it; gives its status."""
        reply = self._made or self._door.at_once(head.method, head.path, head.headers, body)
        self._made = None
        if isinstance(reply.body, bytes):
            self._send_whole(reply, reply.body)
            return reply.status
        door, self.app = self.app, cast("Any", _delivering(reply))
        try:
            self._as_usual()
        finally:
            self.app = door
        self.cycle.keep_alive = not self._ends
        super().on_message_complete()
        return reply.status

    def _send_whole(self, reply: Reply, body: bytes) -> None:
        self._joined.write_whole(*self._whole(reply, body))
        self.server_state.total_requests += 1
        if self._ends:
            self.transport.close()

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
            if before is not None and not before.response_complete:
                before.disconnected = True  # it has its answer: nothing is drawn for it
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

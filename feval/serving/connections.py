"""What uvicorn leaves open about connections: deadlines, bounds, and errors in OpenAI's shape.

Without these, uvicorn waits for ever for the rest of a request and keeps headers of any length.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from feval.serving.asgi import Limits, error_reply

__all__ = ["Connection", "Uvicorn"]


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

    def flush(self) -> None:
        """Send a head that nothing followed."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Send what was kept, and close."""
        self.flush()
        self._transport.close()


class Connection(HttpToolsProtocol):
    """One connection. Its states: a request is arriving, is being answered, or none has begun."""

    def __init__(self, *args: Any, limits: Limits, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.limits = limits
        self.since = time.monotonic()
        self._arriving = True  # a client that connects is expected to ask
        self._in_head = False
        self._head_bytes = 0
        self._stalled_since: float | None = None

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

    def on_headers_complete(self) -> None:
        """Note the end of the head."""
        self._in_head = False
        self._head_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop the clock."""
        self._arriving = False
        self.since = time.monotonic()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send the head of a reply without a body."""
        self._joined.flush()
        super().on_response_complete()

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
            if self._current is None and not self._in_head:  # nothing was asked
                self.transport.abort()
                return
            # Not 408: the official client would send such a request again.
            self._refuse(400, f"The request did not arrive within {self.limits.request_s:g} seconds. Send it at once.")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's words are for people who know HTTP
        """Say in OpenAI's shape what uvicorn would say in plain text."""
        self._refuse(400, "This is no request that HTTP knows. Use an HTTP client.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer the request that is arriving, unless an answer has begun or others wait for theirs, and close."""
        before, now = self._current, not self.pipeline and not self.transport.is_closing()
        if now and (before is None or not before.response_started or (self._in_head and before.response_complete)):
            reply = error_reply(status, message, code="bad_request")
            body = b"".join([reply.body] if isinstance(reply.body, bytes) else reply.body)
            headers = {**reply.headers, "content-length": str(len(body)), "connection": "close"}
            head = b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items())
            self.transport.write(STATUS_LINE[status] + head + b"\r\n" + body)
        self.transport.close()


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

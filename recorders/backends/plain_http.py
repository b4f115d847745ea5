"""HTTP/1.1 without TLS, for the servers that are fast: those on this machine or next to it.

The official client's own transport takes a millisecond of CPU per request: four layers, a parser that validates every byte, and
a pool that looks at all of its connections. This one is given to the client in its place, for `http://` alone. It sends a
request in one piece, reads the reply to its end, and keeps the connection; headers, redirects, content encodings and the
server's errors stay the client's. RFC 9112 has the grammar.
"""

from __future__ import annotations

import asyncio
import re
import time
from types import ModuleType
from typing import Any, Self, cast
from urllib.request import getproxies

__all__ = ["PlainHTTP", "is_direct"]

_KEEP_IDLE_S = 5.0  # servers wait longer before they close
_LONGEST_LINE = 1 << 16
_MOST_FIELDS = 256
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\0]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;.*)?")
_WITHOUT_BODY = frozenset({204, 304})


class _BadReplyError(Exception):
    """What came is no HTTP/1.1, or not all of it."""


def is_direct(url: str) -> bool:
    """Whether requests go to the server itself, unencrypted: `PlainHTTP` knows neither TLS nor proxies.

    Args:
        url: of the server.
    """
    return url.startswith("http://") and not {"http", "all"} & getproxies().keys()


class PlainHTTP:
    """A transport for the asynchronous clients of httpx and httpx2: what they call an `AsyncBaseTransport`.

    It knows one timeout, for connecting. The caller limits the time of a whole request by cancelling it.

    Args:
        library: `httpx` or `httpx2`, whose responses and errors are wanted.
    """

    def __init__(self, library: ModuleType) -> None:
        self._library: Any = library
        self._idle: dict[tuple[str, int], list[_Connection]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request and read the whole reply.

        Args:
            request: the library's; its content is bytes.

        Returns:
            The library's response, wholly received.

        Raises:
            httpx.TransportError: no connection, a broken one, or a reply that is no HTTP/1.1.
        """
        place = (request.url.host, request.url.port or 80)
        connection = self._rested(place) or await self._connected(place, request.extensions["timeout"]["connect"])
        try:
            status, fields, body = await connection.exchange(_written(request))
        except _BadReplyError as error:
            raise self._library.RemoteProtocolError(str(error)) from error
        except OSError as error:
            raise self._library.ReadError(str(error)) from error
        finally:
            self._put_away(place, connection)
        return self._library.Response(status, headers=fields, stream=self._library.ByteStream(body))

    async def aclose(self) -> None:
        """Close the connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round, which may be its last

    def _rested(self, place: tuple[str, int]) -> _Connection | None:
        """The connection that was used last: those that are not needed grow old."""
        connections = self._idle.get(place, [])
        while connections:
            connection = connections.pop()
            if connection.is_fresh:
                return connection
            connection.close()
        return None

    async def _connected(self, place: tuple[str, int], timeout_s: float | None) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(_Connection, *place)
        except TimeoutError as error:
            raise self._library.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise self._library.ConnectError(str(error)) from error
        return connection

    def _put_away(self, place: tuple[str, int], connection: _Connection) -> None:
        # After a failure or in a cancelled task, what is left of the reply is still to come: such a connection is closed.
        if connection.is_fresh:
            self._idle.setdefault(place, []).append(connection)
        else:
            connection.close()


class _Connection(asyncio.Protocol):
    """One connection, on which requests and replies alternate."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._more: asyncio.Future[None] | None = None
        self._ended = False
        self._broken: Exception | None = None
        self._good_until = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended, self._broken = True, error
        self._wake()

    def close(self) -> None:
        self._transport.abort()

    @property
    def is_fresh(self) -> bool:
        """Whether a request may be sent: the last reply is over, nothing came after it, and it is not long ago."""
        return not self._ended and not self._received and time.monotonic() < self._good_until

    async def exchange(self, request: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Send a request; the reply's status, header fields and body."""
        self._good_until = 0.0
        self._transport.write(request)
        minor, status = b"1", 100
        while status < 200:  # others only announce the reply
            minor, status = await self._status()
            fields = await self._fields()
        known = {name.lower(): value.lower() for name, value in fields}
        if status in _WITHOUT_BODY:
            body = b""
        elif b"transfer-encoding" in known:
            body = await self._chunks(known[b"transfer-encoding"])
        elif b"content-length" in known:
            body = await self._exactly(int(_matched(_LENGTH, known[b"content-length"])[0]))
        else:
            return status, fields, await self._rest()
        # A server may answer before it has read everything; what is not sent yet would be the next request's beginning.
        if (
            minor == b"1"
            and b"close" not in known.get(b"connection", b"")
            and not self._transport.get_write_buffer_size()
        ):
            self._good_until = time.monotonic() + _KEEP_IDLE_S
        return status, fields, body

    async def _status(self) -> tuple[bytes, int]:
        status = _matched(_STATUS, await self._line())
        return status[1], int(status[2])

    async def _fields(self) -> list[tuple[bytes, bytes]]:
        fields = []
        while line := await self._line():
            field = _matched(_FIELD, line)
            fields.append((field[1], field[2]))
            if len(fields) > _MOST_FIELDS:
                raise _BadReplyError(f"A reply has more than {_MOST_FIELDS} header fields.")
        return fields

    async def _chunks(self, coding: bytes) -> bytes:
        if coding != b"chunked":
            raise _BadReplyError("A reply has a transfer encoding other than chunked.")
        body = bytearray()
        while size := int(_matched(_CHUNK, await self._line())[1], 16):
            body += await self._exactly(size)
            if await self._line():
                raise _BadReplyError("A chunk of a reply is longer than it says.")
        await self._fields()
        return bytes(body)

    async def _line(self) -> bytes:
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > _LONGEST_LINE:
                raise _BadReplyError(f"A line of a reply's head is longer than {_LONGEST_LINE} bytes.")
            await self._wait()
        return (await self._exactly(end + 1)).rstrip(b"\r\n")

    async def _exactly(self, length: int) -> bytes:
        while len(self._received) < length:
            await self._wait()
        taken = bytes(self._received[:length])
        del self._received[:length]
        return taken

    async def _rest(self) -> bytes:
        while not self._ended:
            await self._wait()
        if self._broken:
            raise self._broken
        return bytes(self._received)

    async def _wait(self) -> None:
        if self._ended:
            raise self._broken or _BadReplyError("The server closed the connection before its reply was over.")
        self._more = asyncio.get_running_loop().create_future()
        await self._more

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


def _matched(pattern: re.Pattern[bytes], line: bytes) -> re.Match[bytes]:
    if match := pattern.fullmatch(line):
        return match
    raise _BadReplyError("A reply holds a line that is no HTTP/1.1.")


def _written(request: Any) -> bytes:
    """The request as it goes over the wire."""
    target: bytes = request.url.raw_path
    fields = [name + b": " + value for name, value in request.headers.raw]
    return b"\r\n".join([request.method.encode() + b" " + target + b" HTTP/1.1", *fields, b"", request.content])

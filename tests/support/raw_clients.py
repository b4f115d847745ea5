"""Many HTTP clients at once that cost next to nothing, so that what they ask is what is tested or measured.

Each has one connection and one request under way, as clients of an LLM have: nothing is pipelined.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import cast

TIMEOUT_S = 300.0
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length: "

Each = Callable[[bytes, bytes], None]


class _Client(asyncio.Protocol):
    def __init__(self, requests: Iterator[bytes], each: Each, done: asyncio.Future[None]) -> None:
        self._requests, self._each, self._done = requests, each, done
        self._received, self._missing = bytearray(), 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # which uvloop's is, in all but name
        self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        else:
            self._done.set_result(None)
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < self._missing:
            return
        end = self._received.find(_HEAD_END)
        if end < 0:
            return
        start = self._received.find(_LENGTH, 0, end)
        length = int(self._received[start + len(_LENGTH) : self._received.index(b"\r", start + 2)])
        self._missing = end + len(_HEAD_END) + length
        if len(self._received) >= self._missing:
            head, body = bytes(self._received[:end]), bytes(self._received[end + len(_HEAD_END) : self._missing])
            self._received.clear()
            self._missing = 0
            self._each(head, body)
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionResetError("the server closed the connection before it answered"))


async def _all(port: int, requests: Iterator[bytes], clients: int, each: Each) -> None:
    loop = asyncio.get_running_loop()
    done = [loop.create_future() for _ in range(clients)]
    for one in done:
        await loop.create_connection(lambda one=one: _Client(requests, each, one), "127.0.0.1", port)  # type: ignore[misc]
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*done)


def ask_all(port: int, requests: Iterable[bytes], clients: int, each: Each) -> None:
    """Send every request; `each` is given the head and the body of every reply, in the order they come.

    Raises:
        ConnectionResetError: the server closed a connection, or `each` raised.
        TimeoutError: it took longer than `TIMEOUT_S`.
    """
    factory = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_all(port, iter(requests), clients, each))

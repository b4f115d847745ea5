"""The clients of the benchmark of serving. Run them in a process of their own, so that the server's
CPU time is counted alone.

    python -m benchmarks.asking PORT RECORDING REQUESTS N RUN

16 clients send REQUESTS chat completions, one at a time each, with headers as the official client
has them; every recorded request of every LLM in turn, N CoTs at a time. Fails unless every reply is
a 200.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import cast

import orjson

from feval.recording import open_recording

CLIENTS = 16
_TIMEOUT_S = 300.0
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length: "
_HEAD = (
    "POST /run/{run}/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept:"
    " application/json\r\naccept-encoding: gzip, deflate\r\nconnection: keep-alive\r\ncontent-type:"
    " application/json\r\nuser-agent: OpenAI/Python 3.54.0\r\nx-stainless-lang:"
    " python\r\nx-stainless-package-version: 3.54.0\r\nx-stainless-os: Linux\r\nx-stainless-arch:"
    " x64\r\nx-stainless-runtime: CPython\r\nx-stainless-runtime-version: 3.11.7\r\nauthorization:"
    " Bearer my-run\r\nx-stainless-async: false\r\nx-stainless-retry-count:"
    " 0\r\nx-stainless-read-timeout: 600\r\ncontent-length: {length}\r\n\r\n"
)


def requests(port: int, recording: Path, n: int, run: str) -> Iterator[bytes]:
    """Yield every recorded request in turn, forever."""
    opened = open_recording(recording)
    [dataset] = opened.dataset_ids()
    prompts = {llm: opened.prompts(dataset, llm) for llm in opened.llm_names(dataset)}
    made = []
    for question in next(iter(prompts.values())):
        for llm, texts in prompts.items():
            body = b'{"messages":%b,"model":%b,"n":%d,"temperature":0.7}'
            body %= str(texts[question]).encode(), orjson.dumps(llm), n
            made.append(_HEAD.format(run=run, port=port, length=len(body)).encode() + body)
    return cycle(made)


class _Client(asyncio.Protocol):
    """One connection that costs next to nothing, with one request under way."""

    def __init__(self, waiting: Iterator[bytes], done: asyncio.Future[None]) -> None:
        self._waiting, self._done = waiting, done
        self._received, self._missing = bytearray(), 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        request = next(self._waiting, None)
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
            if not self._received.startswith(b"HTTP/1.1 200"):
                self._done.set_exception(RuntimeError(self._received[:2000].decode()))
                self._transport.close()
                return
            self._received.clear()
            self._missing = 0
            self._ask()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(
                ConnectionResetError("the server closed the connection before it answered")
            )


async def _ask_all(port: int, waiting: Iterator[bytes]) -> None:
    loop = asyncio.get_running_loop()
    done = [loop.create_future() for _ in range(CLIENTS)]
    for one in done:
        await loop.create_connection(lambda one=one: _Client(waiting, one), "127.0.0.1", port)  # type: ignore[misc]
    async with asyncio.timeout(_TIMEOUT_S):
        await asyncio.gather(*done)


if __name__ == "__main__":
    port, folder, number, n, run = (
        int(sys.argv[1]),
        Path(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]),
        sys.argv[5],
    )
    asyncio.run(_ask_all(port, islice(requests(port, folder, n, run), number)))

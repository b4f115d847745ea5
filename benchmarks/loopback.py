"""An OpenAI-compatible server that costs next to nothing, so that what asks it is what is measured.
Run it as a process.

It answers every chat completion after 10 ms with `n` CoTs of about 1 kB, no two of them alike, and
prints its port when it is ready. It reads no more of HTTP than the client sends: one request at a
time per connection, with a Content-Length.
"""

from __future__ import annotations

import asyncio
import re
from itertools import count

_LATENCY_S = 0.01
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")
_N = re.compile(rb'"n": ?(\d+)')
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req\r\ncontent-length:"
    b" %d\r\n\r\n"
)
_CHOICE = (
    b'{"index":%d,"message":{"role":"assistant","content":"%d '
    + b"word " * 200
    + b'","refusal":null},"logprobs":null,"finish_reason":"stop"}'
)
_REPLY = (
    b'{"id":"chatcmpl-%d","object":"chat.completion","created":1700000000,"model":"alpha","choices":[%b],'
    b'"usage":{"prompt_tokens":900,"completion_tokens":%d,"total_tokens":%d},"system_fingerprint":"fp"}'
)
_TOKENS = 273


class _Connection(asyncio.Protocol):
    numbers = count()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._received = transport, b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if blank and len(body) >= (int(length[1]) if length else 0):
            self._received = b""
            asyncio.get_running_loop().call_later(
                _LATENCY_S, self._transport.write, self._reply(body)
            )

    def _reply(self, body: bytes) -> bytes:
        match = _N.search(body)
        n = int(match[1]) if match else 1
        choices = b",".join(_CHOICE % (index, next(self.numbers)) for index in range(n))
        reply = _REPLY % (next(self.numbers), choices, n * _TOKENS, 900 + n * _TOKENS)
        return _HEAD % len(reply) + reply


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(
        _Connection, "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())

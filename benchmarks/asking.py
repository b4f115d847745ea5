"""What asks a replay server in its benchmark. Run it as a process, so that the server's CPU time is its own.

    python -m benchmarks.asking PORT RECORDING REQUESTS N RUN

16 clients send REQUESTS chat completions, one at a time each, with headers as the official client has them; every recorded
request of every LLM in turn, N CoTs at a time. Leaves with an error unless every reply is a 200.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import orjson
from raw_clients import ask_all

from feval.recording import open_recording

CLIENTS = 16
_HEAD = (
    "POST /run/{run}/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept: application/json\r\n"
    "accept-encoding: gzip, deflate\r\nconnection: keep-alive\r\ncontent-type: application/json\r\n"
    "user-agent: OpenAI/Python 3.54.0\r\nx-stainless-lang: python\r\nx-stainless-package-version: 3.54.0\r\n"
    "x-stainless-os: Linux\r\nx-stainless-arch: x64\r\nx-stainless-runtime: CPython\r\n"
    "x-stainless-runtime-version: 3.11.7\r\nauthorization: Bearer my-run\r\nx-stainless-async: false\r\n"
    "x-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\ncontent-length: {length}\r\n\r\n"
)


def requests(port: int, recording: Path, n: int, run: str) -> Iterator[bytes]:
    """Every recorded request, in turn, for ever."""
    opened = open_recording(recording)
    [dataset] = opened.dataset_ids()
    prompts = {llm: opened.prompts(dataset, llm) for llm in opened.llm_names(dataset)}
    made = []
    for question in next(iter(prompts.values())):
        for llm, own in prompts.items():
            body = b'{"messages":%b,"model":%b,"n":%d,"temperature":0.7}'
            body %= str(own[question]).encode(), orjson.dumps(llm), n
            made.append(_HEAD.format(run=run, port=port, length=len(body)).encode() + body)
    return cycle(made)


def _each(head: bytes, body: bytes) -> None:
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"{head.decode()}\n\n{body[:1000].decode()}")


if __name__ == "__main__":
    port, folder, number, n, run = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    ask_all(port, islice(requests(port, folder, n, run), number), CLIENTS, _each)

"""CPU seconds of asking a loopback server through the official client, with and without the
recorder. Run it as a process.

    python -m benchmarks.over_http FOLDER COTS N RUNS

256 requests are in flight, each with messages of 2.5 kB; a reply has N CoTs of 1 kB. Prints, as
JSON, CoTs per CPU second and per second of the wall clock in the least disturbed of RUNS runs of
the recorder, those of one run of the client alone, and the memory by which the process grew while
recording. What the server takes does not count.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai

from benchmarks.open import resident_mb
from recorders.asking.pace import Limits
from recorders.asking.samples import SamplePlan, record_samples
from recorders.backends.openai_compatible import Endpoint, OpenAICompatible
from recorders.journal import Journal
from recorders.request import Decoding, Message, Request

_IN_FLIGHT = 256
_SAMPLES = 40
_DECODING = Decoding(temperature=0.8, max_tokens=512)
_EXEMPLARS = "An exemplar that shows how such a question is reasoned about. " * 40
_KEY = "a-key-of-some-length"


def _request(number: int) -> Request:
    messages = (
        Message("system", "Reason step by step."),
        Message("user", f"{_EXEMPLARS}What is question {number}?"),
    )
    return Request("toy", f"toy/{number}", messages, "alpha", _DECODING)


@contextmanager
def _server() -> Iterator[str]:
    """The base URL of a server that runs meanwhile."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.loopback"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def _record(url: str, folder: Path, cots: int, per_request: int) -> tuple[float, float]:
    plan = SamplePlan([_request(number) for number in range(cots // _SAMPLES)], _SAMPLES)

    async def whole() -> None:
        backend = OpenAICompatible(Endpoint(url, _KEY))
        outcome = await record_samples(
            plan, backend, journal, limits=Limits(_IN_FLIGHT, samples_per_request=per_request)
        )
        await backend.aclose()
        assert outcome.complete, outcome

    with Journal.open(folder, {}) as journal:
        took = _timed(whole)
        journal.remove()
    return took


def _ask(url: str, cots: int, per_request: int) -> tuple[float, float]:
    """The same requests by the official client as it comes: its own transport, its own objects, and
    nothing is kept.
    """
    requests = (_request(cot // _SAMPLES) for cot in range(0, cots, per_request))

    async def worker(client: openai.AsyncOpenAI) -> None:
        for request in requests:
            messages: list[Any] = [
                {"role": message.role, "content": message.content} for message in request.messages
            ]
            await client.chat.completions.create(
                model=request.model,
                messages=messages,
                temperature=0.8,
                max_tokens=512,
                n=per_request,
            )

    async def whole() -> None:
        async with openai.AsyncOpenAI(api_key=_KEY, base_url=url, max_retries=0) as client:
            await asyncio.gather(*(worker(client) for _ in range(_IN_FLIGHT)))

    return _timed(whole)


def _timed(work: Callable[[], Coroutine[Any, Any, None]]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.monotonic()
    asyncio.run(work())
    return time.process_time() - cpu, time.monotonic() - wall


def main(folder: Path, cots: int, per_request: int, runs: int) -> None:
    """Measure and print."""
    with _server() as url:
        _record(url, folder, 10 * _SAMPLES, per_request)
        before = resident_mb("VmRSS")
        recorded = [_record(url, folder, cots, per_request) for _ in range(runs)]
        grown = resident_mb("VmHWM") - before
        fewer = cots // 2
        rates = {
            "recorder": [cots / seconds for seconds in min(recorded)],
            "client": [fewer / seconds for seconds in _ask(url, fewer, per_request)],
        }
    print(json.dumps(rates | {"grown_mb": grown}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(number) for number in sys.argv[2:5]))

"""Requests in batches, as OpenAI and compatible servers take them: a file of lines, which is
submitted, polled and collected.

    lines that come close together ─▶ file ─▶ key in the journal ─▶ batch ─▶ poll ─▶ answers by id

A batch is another way to get the reply to a request: each line's answer goes where the reply to a
request goes, so that retries, refusals, checks, the cost limit and the journal are the same. What
was submitted is never asked for again while its batch may have the answer. The journal holds a
batch's lines before it is submitted, and its key travels as metadata, so that a run that was killed
finds its batches among those of the server. The last batch of a CoT alone can bring it: a line is
sent again only once the batch before had no answer to it.

Source: https://platform.openai.com/docs/guides/batch; vLLM's `run_batch` has the same lines.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from secrets import token_hex
from typing import Any, TypeAlias

from feval.values import Record
from recorders.asking.pace import Limits, backoff
from recorders.asking.samples import MissingSamples, SamplePlan
from recorders.backends import replies
from recorders.backends.openai_compatible import Answer, Endpoint, OpenAICompatible, answer_error
from recorders.errors import (
    LONGEST_WAIT_S,
    BackendError,
    Fatal,
    RateLimitError,
    RefusalError,
    Transient,
    Unreachable,
)
from recorders.journal import Journal
from recorders.request import Completion, Request

Results: TypeAlias = tuple[dict[str, bytes | Answer], BackendError]
"""The answers of a batch by line, and why its other lines have none."""
Bringer: TypeAlias = "tuple[asyncio.Task[Results], asyncio.Event]"
"""What brings the results of a batch, and says when they are there."""


File: TypeAlias = "list[tuple[str, Sequence[int], bytes]]"
"""Lines of a batch: key, samples and content."""

_MOST_LINES = 50_000
_MOST_BYTES = 200_000_000  # both of a file, by OpenAI
_QUIET_S = 0.5  # lines with less between them go into one file
_PATH = "/v1/chat/completions"
_ENDS = {"completed", "expired", "cancelled", "failed"}
_ABSENT = {404, 405, 410}


def line_id(key: str, samples: Sequence[int]) -> str:
    """Return the `custom_id` of a line: of a request's key, and the samples it asks for."""
    return f"{key[:16]}-{samples[0]}"


class BatchedOpenAI(OpenAICompatible):
    """An OpenAI-compatible endpoint that is asked in batches.

    Args:
        endpoint: URL and key.
        poll_s: seconds between two looks at a batch.
        resubmit: ask again, and perhaps pay again, for what was sent in a batch that the server
            does not list or has no more.
        others: of `OpenAICompatible`; `timeout_s` is for one transfer.
    """

    most_bytes = 1 << 31

    def __init__(
        self, endpoint: Endpoint, *, poll_s: float = 60.0, resubmit: bool = False, **others: Any
    ) -> None:
        super().__init__(endpoint, **others)
        self._poll_s, self._resubmit = poll_s, resubmit
        self._most_bytes, self._size = _MOST_BYTES, 0
        self._file: File = []
        self._earlier: dict[tuple[str, int], tuple[Sequence[int], Bringer]] = {}

    def begin(self, journal: Journal, limits: Limits) -> None:
        """Go on with the batches that the journal says were submitted; in a running event loop."""
        self._journal, self._limits = journal, limits
        batches: dict[str, Bringer] = {}
        for place, (name, samples) in journal.sent().items():
            batches[name] = batches.get(name) or _started(self._collected(name))
            self._earlier[place] = samples, batches[name]

    async def complete(self, request: Request, samples: Sequence[int]) -> list[Completion]:
        """Ask in a batch, or take the answer of the one in which these samples were asked for."""
        key = request.key()
        earlier = [self._earlier.pop((key, sample), None) for sample in samples]
        sent, batch = earlier[0] or (samples, None)

        async def send(body: Record) -> bytes | Answer:
            task, is_done = batch or self._added(key, sent, body)
            await is_done.wait()
            try:
                answers, error = task.result()
            except (LookupError, TypeError, AttributeError) as odd:
                name = self._endpoint.host
                raise Fatal(
                    f"{name} does not speak of batches as OpenAI does ({odd!r:.80})"
                ) from None
            answer = answers.get(line_id(key, sent))
            if answer is None:
                raise error.with_traceback(None)
            if batch and isinstance(answer, Answer):
                # It was not paid for, and its reason may be gone since: the line is sent again.
                raise Transient(answer_error(answer, self._endpoint, request.model).reason)
            return answer

        completions = await self._complete(request, sent, send)
        self._note("CoTs came in batches, which do not say how long each took.")
        # The place of a sample in its line is that of its choice, whatever the journal has of it.
        return [
            replace(completion, duration_s=None)
            for sample, completion in zip(sent, completions, strict=False)
            if sample in samples
        ]

    def _added(self, key: str, samples: Sequence[int], body: Record) -> Bringer:
        """Add a line to the file that is being filled, and return what brings its results."""
        name = line_id(key, samples)
        line = {"custom_id": name, "method": "POST", "url": _PATH, "body": body}
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        self._size += len(data)
        if len(self._file) in {0, _MOST_LINES} or self._size > self._most_bytes:
            self._file, self._size = [], len(data)
            self._batch = _started(self._submitted(self._file))
        self._file.append((key, samples, data))
        return self._batch

    async def _submitted(self, file: File) -> Results:
        """Submit a file as a batch, once nothing more comes, and return its results."""
        seen = -1
        while seen < len(file):
            seen = len(file)
            await asyncio.sleep(_QUIET_S)
        if self._file is file:
            self._file = []
        content = b"".join(data for *_, data in file)
        try:
            uploaded = await self._asked_for(
                lambda api: api.files.create(file=("feval.jsonl", content), purpose="batch"),
                otherwise="takes no batches; leave --batch out",
            )
        except RefusalError as error:
            if len(file) == 1:
                raise
            self._most_bytes = len(content) // 2
            raise RateLimitError(error.reason) from None
        name, number = token_hex(8), uploaded["id"]
        lines = [[key, [*samples]] for key, samples, _ in file]
        self._journal.log_batch(name, file=number, lines=lines)
        created = await self._asked_for(
            lambda api: api.batches.create(
                input_file_id=number,
                endpoint=_PATH,
                completion_window="24h",
                metadata={"feval": name},
            ),
            name=name,
        )
        self._journal.log_batch(name, id=created["id"])
        return await self._collected(name)

    async def _collected(self, name: str) -> Results:
        """Wait for a batch, and return its results."""
        batch = self._journal.batches[name]
        if "id" not in batch:  # a run was killed while it submitted it
            found = await self._found(name)
            if found is None:
                await asyncio.sleep(self._poll_s)  # it may be listed a bit later
                found = await self._found(name)
            self._journal.log_batch(name, id=found["id"] if found else "")
        if not (number := batch["id"]):
            raise Transient("a batch of an earlier run did not reach the server")
        status = ""
        while status not in _ENDS:
            if status:
                await asyncio.sleep(self._poll_s)
            state = await self._asked_for(
                lambda api: api.batches.retrieve(number),
                name=name,
                otherwise=f"does not know the batch {number}",
            )
            status = str(state.get("status")).lower()
        answers: dict[str, bytes | Answer] = {}
        for kind in ("output_file_id", "error_file_id"):
            if file := state.get(kind):
                content = await self._asked_for(
                    lambda api, file=file: api.files.content(file),
                    bytes.splitlines,
                    name=name,
                    otherwise=f"no longer has the file {file}, results of the batch {number}",
                )
                self._read(content, answers)
        failure = Answer(0, {}, (state.get("errors") or {}).get("data"))
        reason = f"the batch {number} is {status} and has no answer to a request: {failure.words}"
        # What was not taken may have been too much at once: then there is less in the next file.
        kind_of_error = RateLimitError if status == "failed" else Transient
        return answers, kind_of_error(self._endpoint.redaction.reason(reason))

    def _read(self, content: Sequence[bytes], answers: dict[str, bytes | Answer]) -> None:
        """Read results, in whatever order they are: the first answer to a request counts."""
        for data in content:
            try:
                said = replies.parse(data)
                name, response = said["custom_id"], said["response"] or {"status_code": 408}
                status = int(response.get("status_code", 200))
                if isinstance(answers.get(name), bytes):
                    raise KeyError(name)
            except (Transient, LookupError, TypeError, ValueError, AttributeError):
                self._note(
                    "Lines of a batch's results could not be read or came again; they were left"
                    " out."
                )
                continue
            body = response.get("body") or said.get("error")
            answers[name] = json.dumps(body).encode() if status == 200 else Answer(status, {}, body)

    async def _found(self, name: str) -> Any:
        """Look for a batch on the server's list, by its key, or by its file where the server keeps
        no metadata.
        """
        file, after = self._journal.batches[name]["file"], Record()
        while True:
            page = await self._asked_for(
                lambda api, after=after: api.batches.list(limit=100, **after),
                name=name,
                otherwise="lists no batches, so that nobody knows whether the last one was taken",
            )
            for batch in page["data"]:
                key = (batch.get("metadata") or {}).get("feval")
                if name == key or file == batch.get("input_file_id"):
                    return batch
            if not page.get("has_more") or after == (after := {"after": batch["id"]}):
                return None

    async def _asked_for(
        self,
        ask: Callable[..., Awaitable[Any]],
        read: Callable[[bytes], Any] = replies.parse,
        *,
        name: str = "",
        otherwise: str = "",
    ) -> Any:
        """Return what the server answers. Failures that may pass are waited out, as those of
        requests are. `otherwise` says what it means that nothing is there; what is missing of a
        batch, by its name, is resubmitted if that was wished. With a name alone the batch is
        created, and may be there although the reply was lost.
        """
        attempt = 0
        while True:
            try:
                answer = await self._answer(lambda client: ask(client.with_raw_response))
                if isinstance(answer, bytes):
                    return read(answer)
                error = answer_error(answer, self._endpoint, str(self._journal.header["model"]))
                if not isinstance(error, RateLimitError | Transient):
                    break
            except Transient as failure:
                error = failure
                if isinstance(error, Unreachable) and not self._journal.batches:
                    raise  # nothing is there yet, and the engine knows what to say
            attempt += 1
            wait = max(backoff(self._limits, attempt, ""), error.retry_after or 0)
            if attempt > self._limits.retries or wait > LONGEST_WAIT_S:
                raise Fatal(error.reason)
            await asyncio.sleep(wait)
            is_lost = name and not otherwise and isinstance(error, Transient)
            if is_lost and (found := await self._found(name)):
                return found
        is_absent = answer.status in _ABSENT and otherwise
        if name and (not otherwise or (is_absent and self._resubmit)):
            self._journal.log_batch(name, id="")
        if not is_absent:
            raise error if answer.status == 413 else Fatal(error.reason)
        reason = self._endpoint.redaction.reason(f"{self._endpoint.host} {otherwise}")
        if name and self._resubmit:
            raise Transient(reason)
        advice = (
            ". Look there what became of it; with --resubmit (in Python: resubmit=True) what was in"
            " it is sent again, and may be paid twice."
        )
        raise Fatal(reason + advice if name else reason)


def _started(work: Coroutine[Any, Any, Results]) -> Bringer:
    # Fifty thousand wait for one event: a shield or callback each would take long to cancel.
    task, is_done = asyncio.create_task(work), asyncio.Event()
    task.add_done_callback(lambda _: is_done.set())
    return task, is_done


class BatchedSamples(MissingSamples):
    """The samples of a plan that a journal lacks, asked for in batches: what was sent together
    stays together.
    """

    goes_on = True

    def __init__(self, plan: SamplePlan, *arguments: Any) -> None:
        super().__init__(plan, *arguments)
        self.timeout_s = None
        if plan.decoding.seed is not None:  # a request takes one
            self._per_request = 1

    def _find(self) -> tuple[int, int]:
        """Keep apart what is in different lines of batches."""
        counts, sent = super()._find(), self.journal.sent()
        self._lacks = iter(
            [
                replace(lack, samples=[*samples])
                for lack in self._lacks
                for _, samples in groupby(
                    lack.samples, partial(lambda key, sample: sent.get((key, sample)), lack.key)
                )
            ]
        )
        return counts

    def left(self) -> str:
        """Say which batches go on."""
        batches = {name for name, _ in self.journal.sent().values()}
        said = f" Batches that go on at the server: {len(batches)}; the same command collects them."
        return said if batches else ""

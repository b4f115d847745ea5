"""Any endpoint with OpenAI's chat completions, through the official client: OpenAI, vLLM, SGLang,
Ollama, llama.cpp.

The beginning of a reply is continued by chat completions that take one (`continue_final_message` of
vLLM and SGLang; llama.cpp does so by itself), or with a template by text completions.

The client's own retries are off: the engine retries and counts. Every request is sent once, except
if the server says what to change: it wants `max_completion_tokens` instead of `max_tokens`
(reasoning models), or takes no `n` above 1. Both are remembered.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from feval.errors import OutOfRangeError, UsageError
from recorders.backends import replies
from recorders.backends.endpoint import Answer, Endpoint, answer_error, error_in_reply
from recorders.errors import BackendError, Fatal, Refused, Transient, Unreachable
from recorders.request import Completion, Request, as_json, ignore_note

if TYPE_CHECKING:
    import openai

_CONNECT_TIMEOUT_S = 8.0
_CONNECTIONS_PER_CLIENT = 32
_OWN_FIELDS = {
    "model", "messages", "temperature", "top_p", "max_tokens", "stop", "seed", "n", "logprobs",
    "top_logprobs", "stream",
}  # fmt: skip
_ONLY_ONE = re.compile(
    r"\bn\b.{0,60}(?:must be|at most|only|supported|allowed|not)|(?:multiple|several)"
    r" (?:choices|completions)"
)


class OpenAICompatible:
    """A backend over HTTP.

    Several samples are requested with `n`. With a seed, each sample has its own, `seed + i`, and a
    request takes one seed: then only the first sample is requested.

    Args:
        endpoint: URL and key.
        timeout_s: for one request, from its first byte to the last byte of the reply.
        note: called once with each thing that the server does not do as asked.

    Raises:
        UsageError: the official client is not installed.
        OutOfRangeError: the timeout is not a positive number.
    """

    name = "openai"
    takes_seed = True
    shares_noise = False

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout_s: float = 600.0,
        note: Callable[[str], None] = ignore_note,
    ) -> None:
        if not timeout_s > 0:
            raise OutOfRangeError(
                f"A request was to time out after {timeout_s} seconds; give more than 0."
            )
        self._endpoint = endpoint
        # A whole URL: a path would be joined to the base URL, and parsed, anew for every request.
        self._text_url = f"{endpoint.url}/completions"
        self._url = f"{endpoint.url}/chat/completions"
        self._timeout_s = timeout_s
        self._note = cache(note)  # each sentence once
        self._limit_name = "max_tokens"
        self._takes_n = True
        self._clients = _Clients(endpoint, timeout_s)
        endpoint.redaction.guard_logs()
        if endpoint.warning:
            note(endpoint.warning)

    async def complete(self, request: Request, samples: Sequence[int]) -> list[Completion]:
        """Ask once; return between one completion and one per sample, for the first samples."""
        if reserved := sorted(_OWN_FIELDS & request.decoding.extra_body.keys()):
            raise Fatal(
                f"The extra body holds {reserved[0]!r}, which the recorder sets itself; leave it"
                " out there."
            )
        decoding, prefill = request.decoding, request.prefill
        url = None if prefill is None or prefill.template is None else self._text_url
        body = self._body(request, samples)
        reply, count, seconds = await self._asked(body, decoding.max_tokens, url)
        clean = self._endpoint.redaction.reply
        reading = replies.read(reply, count, decoding.logprobs, clean, decoding.max_tokens, seconds)
        for sentence in reading.notes:
            self._note(sentence)
        return list(reading.completions)

    async def chat(self, body: dict[str, Any], max_tokens: int) -> Mapping[str, Any]:
        """Ask once with a body of one's own, but for the limit on output tokens."""
        reply, _, _ = await self._asked(body, max_tokens)
        return reply

    async def _asked(
        self, body: dict[str, Any], max_tokens: int | None, url: str | None = None
    ) -> tuple[Mapping[str, Any], int, float]:
        """Return the reply to a body, how many choices were asked for, and the seconds it took."""
        while True:
            if not self._takes_n:
                body.pop("n", None)
            count, limit_name = body.get("n", 1), self._limit_name
            limit = {} if max_tokens is None else {limit_name: max_tokens}
            began = perf_counter()
            answer = await self._send(body | limit, url)
            if isinstance(answer, bytes):
                seconds = round(perf_counter() - began, 6)
                reply = replies.parse(answer)
                if error := error_in_reply(reply, self._endpoint, body["model"]):
                    raise error
                return reply, count, seconds
            # Each of the two adaptations changes what is sent, and happens at most once per
            # request.
            if not self._adapts(answer, count, limit_name):
                raise answer_error(answer, self._endpoint, body["model"])

    def token_lengths(self, model: str, text: str) -> None:
        """Return `None`: only the server knows its tokens."""

    async def aclose(self) -> None:
        """Close the connections."""
        await self._clients.close()
        self._endpoint.redaction.leave_logs()

    async def _send(self, body: dict[str, Any], url: str | None = None) -> bytes | Answer:
        """Return the reply's bytes, or the HTTP error that came instead; a `BackendError` says why
        neither came.
        """
        openai: Any = _official_client()
        try:
            with self._clients.one() as client:
                async with asyncio.timeout(self._timeout_s):
                    response = await client.post(
                        url or self._url, cast_to=self._clients.response_type, body=body
                    )
            content: bytes = response.content
            return content
        except openai.APIStatusError as error:
            return Answer(error.status_code, error.response.headers, error.body)
        except (openai.APITimeoutError, TimeoutError) as error:
            failure: BackendError = Transient(
                f"{self._endpoint.host} did not answer within {self._timeout_s:g} s"
            )
            if type(error.__cause__).__name__ == "ConnectTimeout":
                after_s = min(self._timeout_s, _CONNECT_TIMEOUT_S)
                failure = Unreachable(
                    f"{self._endpoint.host} took no connection within {after_s:g} s", after_s
                )
        except BackendError as error:
            failure = error
        except openai.APIConnectionError as error:
            cause = error.__cause__  # openai 2 wraps whatever is raised while a reply is read
            if not isinstance(cause, BackendError):
                kind = Unreachable if type(cause).__name__ == "ConnectError" else Transient
                words = type(cause or error).__name__
                words += f": {cause}" if cause and str(cause) else ""
                reason = f"the connection to {self._endpoint.host} failed ({words})"
                cause = kind(self._endpoint.redaction.reason(reason))
            failure = cause
        except UnicodeEncodeError:
            failure = Refused(
                "the messages hold halves of surrogate pairs, which cannot be sent; correct the"
                " question's text"
            )
        # Raised here and not above, where Python would chain the client's error to it: see
        # `endpoint`.
        raise failure

    def _body(self, request: Request, samples: Sequence[int]) -> dict[str, Any]:
        """Return the body but for the limit on output tokens; what is `None` is left out."""
        decoding = request.decoding
        fields = {
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "stop": list(decoding.stop) or None,
            "seed": None if decoding.seed is None else decoding.seed + samples[0],
            "n": len(samples) if len(samples) > 1 and decoding.seed is None else None,
            "logprobs": None if decoding.logprobs is None else True,
            "top_logprobs": decoding.logprobs or None,
        }
        sent = {name: value for name, value in fields.items() if value is not None}
        prefill = request.prefill
        if prefill is not None and prefill.template is not None:
            prompt = _as_text(prefill.template, request) + prefill.text
            if decoding.logprobs is not None:
                sent["logprobs"] = sent.pop("top_logprobs", 0)
            return {"model": request.model, "prompt": prompt} | sent | dict(decoding.extra_body)
        messages = as_json(request.sent)
        if prefill is not None:
            messages.append({"role": "assistant", "content": prefill.opening + prefill.text})
            sent |= {"continue_final_message": True, "add_generation_prompt": False}
        return {"model": request.model, "messages": messages} | sent | dict(decoding.extra_body)

    def _adapts(self, answer: Answer, count: int, limit_name: str) -> bool:
        """Return whether the server said what to change, and adapt: then ask again."""
        if answer.status not in {400, 422}:
            return False
        if limit_name == "max_tokens" and "max_completion_tokens" in answer.message:
            # Other requests may have learned it in the meantime.
            self._limit_name = "max_completion_tokens"
            return True
        if count > 1 and (answer.parameter == "n" or _ONLY_ONE.search(answer.message)):
            self._takes_n = False
            self._note("The server refuses n above 1: each sample is asked for in its own request.")
            return True
        return False


class _Clients:
    """The official client, several times if many requests are in flight: its pool scans all of its
    connections.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._openai: Any = _official_client()
        self._endpoint, self._timeout_s = endpoint, timeout_s
        # The client stands on httpx, or from its version 3 on, on httpx2.
        bases = (
            base.__module__.partition(".")[0]
            for base in self._openai.DefaultAsyncHttpxClient.__mro__
        )
        self._library = import_module(next(base for base in bases if base.startswith("httpx")))
        # Asked for this type, the client hands out replies as they came.
        self.response_type: Any = self._library.Response
        self._bounded = _bounded(
            self._openai.DefaultAsyncHttpxClient, self.response_type, endpoint.host
        )
        self._in_flight = {self._made(): 0}

    @contextmanager
    def one(self) -> Iterator[openai.AsyncOpenAI]:
        """Lend the first client that has room, so that connections are used again."""
        free = (
            client for client, count in self._in_flight.items() if count < _CONNECTIONS_PER_CLIENT
        )
        client = next(free, None) or self._made()
        self._in_flight[client] = self._in_flight.get(client, 0) + 1
        try:
            yield client
        finally:
            self._in_flight[client] -= 1

    async def close(self) -> None:
        """Close all connections."""
        for client in self._in_flight:
            await client.close()

    def _made(self) -> openai.AsyncOpenAI:
        timeout = self._openai.Timeout(
            self._timeout_s, connect=min(self._timeout_s, _CONNECT_TIMEOUT_S)
        )
        client: openai.AsyncOpenAI = self._openai.AsyncOpenAI(
            api_key=self._endpoint.client_key,
            base_url=self._endpoint.url,
            default_headers=replies.ACCEPTED | self._endpoint.headers,
            max_retries=0,
            timeout=timeout,
            # A redirection would carry question and key to another host.
            http_client=self._bounded(timeout=timeout, follow_redirects=False),
        )
        return client


def _bounded(client_type: Any, response_type: Any, host: str) -> Any:
    """Return an HTTP client's type, made to read no more of a reply than `replies.body` does."""

    class Bounded(client_type):  # type: ignore[misc]  # known only once the client is imported
        async def send(self, request: Any, **options: Any) -> Any:
            response = await super().send(request, **options | {"stream": True})
            try:
                content = await replies.body(response, host)
            finally:
                await response.aclose()
            coded = {"content-encoding", "content-length", "transfer-encoding"}
            headers = [
                (name, value) for name, value in response.headers.multi_items() if name not in coded
            ]
            return response_type(
                response.status_code, headers=headers, content=content, request=request
            )

    return Bounded


def _as_text(template: str, request: Request) -> str:
    """Return what was said as the LLM reads it, up to where its reply begins; a "{reply}" in the
    template ends an exchange.
    """
    turns = request.sent
    further = len(turns) // 2 if "{reply}" in template else 0
    if [turn.role for turn in turns] != ["user", *("assistant", "user") * further]:
        raise Fatal(
            "The settings probe_template, step_template and turn_template hold one user message,"
            " and the prompt has others, too; leave the template out, so that the server takes"
            " messages, or choose a prompt of one user message."
        )
    before, _, after = template.partition("{reply}")
    pieces = [
        (
            turn.content + after
            if turn.role == "assistant"
            else before.replace("{prompt}", turn.content)
        )
        for turn in turns
    ]
    return "".join(pieces)


def _official_client() -> ModuleType:
    try:
        import openai
    except ModuleNotFoundError as error:
        raise UsageError(
            "Asking an OpenAI-compatible endpoint needs the package openai, which is not installed:"
            " pip install 'feval[record]'."
        ) from error
    return openai

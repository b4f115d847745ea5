"""Any endpoint with OpenAI's chat completions, through the official client: OpenAI, vLLM, SGLang,
Ollama, llama.cpp.

The beginning of a reply is continued by chat completions that take one (`continue_final_message` of
vLLM and SGLang; llama.cpp does so by itself), or with a template by text completions.

The client's own retries are off: the engine retries and counts. Every request is sent once, except
if the server says what to change: it wants `max_completion_tokens` instead of `max_tokens`
(reasoning models), or takes no `n` above 1. Both are remembered.

`Endpoint` is the one place that holds a key. Servers repeat keys in error texts ("Incorrect API key
provided: sk-..."), debugging proxies in headers and replies. So everything a server says is
redacted here before anyone sees it, and so are the HTTP libraries' log records. The client's errors
are never chained to ours: their messages quote the server word for word, and a traceback would
print them.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from importlib import import_module
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from feval.errors import OutOfRangeError, UsageError
from feval.publish.secrets import MASK, Mask, check_variable, forms, known_secrets
from feval.serving.loopback import is_loopback
from feval.values import Record, RecordLike, inside, without_none
from recorders.backends import replies
from recorders.errors import (
    BackendError,
    Fatal,
    RateLimitError,
    RefusalError,
    Transient,
    Unreachable,
)
from recorders.request import Completion, Request, as_json, ignore_note

if TYPE_CHECKING:
    import openai


_CONNECT_TIMEOUT_S = 8.0
_CONNECTIONS_PER_CLIENT = 32
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
    most_bytes: int | None = None
    """Of one reply; `None`: `replies.MOST_BYTES`."""

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
        self._clients = _Clients(endpoint, timeout_s, self.most_bytes)
        endpoint.redaction.guard_logs()
        if endpoint.warning:
            note(endpoint.warning)

    async def complete(self, request: Request, samples: Sequence[int]) -> list[Completion]:
        """Ask once; return between one completion and one per sample, for the first samples."""
        return await self._complete(request, samples, self._send)

    async def _complete(
        self, request: Request, samples: Sequence[int], send: Send
    ) -> list[Completion]:
        """Return the completions in the reply to a body that is sent in some way."""
        if reserved := sorted(_OWN_FIELDS & request.decoding.extra_body.keys()):
            raise Fatal(
                f"The extra body holds {reserved[0]!r}, which the recorder sets itself; leave it"
                " out there."
            )
        decoding, body = request.decoding, self._body(request, samples)
        reply, count, seconds = await self._asked(body, decoding.max_tokens, send)
        clean = self._endpoint.redaction.reply
        reading = replies.read(reply, count, decoding.logprobs, clean, decoding.max_tokens, seconds)
        for sentence in reading.notes:
            self._note(sentence)
        return list(reading.completions)

    async def chat(self, body: Record, max_tokens: int) -> RecordLike:
        """Ask once with a body of one's own, but for the limit on output tokens."""
        reply, _, _ = await self._asked(body, max_tokens, self._send)
        return reply

    async def _asked(
        self, body: Record, max_tokens: int | None, send: Send
    ) -> tuple[RecordLike, int, float]:
        """Return the reply to a body, how many choices were asked for, and the seconds it took."""
        while True:
            if not self._takes_n:
                body.pop("n", None)
            count, limit_name = body.get("n", 1), self._limit_name
            limit = {} if max_tokens is None else {limit_name: max_tokens}
            began = perf_counter()
            try:
                answer = await send(body | limit)
            except UnicodeEncodeError:
                raise RefusalError(
                    "the messages hold halves of surrogate pairs, which cannot be sent; correct the"
                    " question's text"
                ) from None
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

    async def _send(self, body: Record) -> bytes | Answer:
        return await self.post(self._text_url if "prompt" in body else self._url, body)

    async def post(self, url: str, body: object) -> bytes | Answer:
        """Send JSON once; return the reply's bytes, or the HTTP error that came instead."""
        kind = self._clients.response_type
        return await self._answer(lambda client: client.post(url, cast_to=kind, body=body))

    async def _answer(self, ask: Callable[[openai.AsyncOpenAI], Awaitable[Any]]) -> bytes | Answer:
        """Return the reply's bytes, or the HTTP error that came instead; a `BackendError` says why
        neither came.
        """
        openai: Any = _official_client()
        try:
            with self._clients.one() as client:
                async with asyncio.timeout(self._timeout_s):
                    response = await ask(client)
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
        # Raised here and not above, where Python would chain the client's error to it.
        raise failure

    def _body(self, request: Request, samples: Sequence[int]) -> Record:
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
        sent = without_none(fields)
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

    def __init__(self, endpoint: Endpoint, timeout_s: float, most_bytes: int | None) -> None:
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
            self._openai.DefaultAsyncHttpxClient, self.response_type, endpoint.host, most_bytes
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


def _bounded(client_type: Any, response_type: Any, host: str, most_bytes: int | None) -> Any:
    """Return an HTTP client's type, made to read no more of a reply than so many bytes."""

    class Bounded(client_type):  # type: ignore[misc]  # known only once the client is imported
        async def send(self, request: Any, **options: Any) -> Any:
            response = await super().send(request, **options | {"stream": True})
            try:
                content = await replies.body(response, host, most_bytes)
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


DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"

_FRAGMENT = 8  # anything shorter is not secret: "none", "EMPTY" and "x", as keys of local servers
_LONGEST_REASON = 300
_READ_AT_MOST = 20_000  # characters of an error page
_PLACEHOLDER = "none"  # the client needs some key, and servers without keys take any
_LOGGERS = (
    "openai", "openai._base_client", "openai._response", "openai._legacy_response",
    *(
        f"{library}{version}{part}"
        for version in ("", "2")
        for library, parts in (("httpx", ("",)), ("httpcore", ("", ".connection", ".http11",
        ".http2", ".proxy", ".socks")))
        for part in parts
    ),
)  # fmt: skip


class Endpoint:
    """A base URL and the credentials for it, which `repr` and `url` (what is recorded and shown)
    leave out.

    Credentials inside the base URL are removed from it and sent as HTTP Basic authentication
    instead of the key.

    Attributes:
        url: without credentials.
        host: with its port.
        client_key: the key for the official client; a placeholder if there is none.
        headers: that carry the credentials, if there are any.
        redaction: removes the credentials from texts.
    """

    def __init__(self, base_url: str, key: str | None = None) -> None:
        parts = _split(base_url)
        self.host = parts.netloc.rpartition("@")[2]
        self.url = f"{parts.scheme}://{self.host}{parts.path.rstrip('/')}"
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(
                "The API key holds a blank, a line break or a character outside ASCII, which no"
                " HTTP header can carry. Check the environment variable it comes from; the key is"
                " not shown here."
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        secrets = [key] if key else []
        self.client_key = key or _PLACEHOLDER
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        if user or password:
            pair = f"{user}:{password}"
            basic = base64.b64encode(pair.encode()).decode()
            self.headers = {"Authorization": f"Basic {basic}"}
            secrets += [basic, password or user, pair]
        self.redaction = Redaction(*secrets)

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    @classmethod
    def from_environment(
        cls, base_url: str | None = None, key_variable: str | None = None, *, with_key: bool = True
    ) -> Endpoint:
        """Return the endpoint that the official client would use, and the key if it is needed.

        The variable with the key must be set if it is named; the default, OPENAI_API_KEY, only for
        OpenAI itself.
        """
        url = base_url or os.environ.get("OPENAI_BASE_URL", "").strip() or DEFAULT_BASE_URL
        if not with_key:
            return cls(url)
        name = check_variable(key_variable or DEFAULT_KEY_VARIABLE)
        key = os.environ.get(name, "").strip()
        if not key and key_variable:
            raise UsageError(
                f"The API key was to be read from the environment variable {name!r}; it is not set,"
                " or empty. Set it, or name the variable that holds the key."
            )
        endpoint = cls(url, key or None)
        if not key and endpoint.url == DEFAULT_BASE_URL:
            raise UsageError(
                f"{endpoint.url} wants an API key; the environment variable {DEFAULT_KEY_VARIABLE}"
                " is not set. Set it, name another variable with api_key_env, or another server"
                " with --base-url."
            )
        return endpoint

    def redirection(self, headers: Mapping[str, str]) -> str:
        """Return where a reply redirects to, without what may be secret in the address."""
        try:
            parts = urlsplit(urljoin(self.url, headers.get("location", "")))
        except ValueError:
            return "an address that cannot be read"
        host = parts.netloc.rpartition("@")[2]
        return self.redaction.reason(f"{parts.scheme}://{host}{parts.path}")

    @property
    def warning(self) -> str | None:
        """A sentence if what is sent can be read in transit; `None` otherwise."""
        parts = urlsplit(self.url)
        if parts.scheme == "https" or is_loopback(parts.hostname or ""):
            return None
        what = "Questions, replies and the credentials" if self.headers else "Questions and replies"
        return (
            f"{what} travel unencrypted to {self.host}: its base URL begins with http://. Use"
            " https:// if possible."
        )


class Redaction(logging.Filter):
    """Masks secrets of 8 characters or more in texts and, as a logging filter, in log records; and
    all known secrets.
    """

    def __init__(self, *secrets: str) -> None:
        super().__init__()
        long = [secret for secret in secrets if len(secret) >= _FRAGMENT]
        self._mask = Mask([*long, *known_secrets().values()])
        self._fragments = frozenset(
            form[start : start + _FRAGMENT]
            for secret in long
            for form in forms(secret)
            for start in range(len(form) - _FRAGMENT + 1)
        )

    def __bool__(self) -> bool:
        return bool(self._fragments)

    def masked(self, text: str) -> str:
        """Return the text with every piece of a secret masked that is 8 characters or longer."""
        places = [
            at
            for at in range(len(text) - _FRAGMENT + 1)
            if text[at : at + _FRAGMENT] in self._fragments
        ]
        pieces, end = [], 0
        for at in places:
            if at >= end:
                pieces += [text[end:at], MASK]
            end = at + _FRAGMENT
        return self._mask.text("".join([*pieces, text[end:]]))

    def reason(self, text: str) -> str:
        """Return a server's message as one short printable line without secrets."""
        # Masked before it is cut: half a key is a secret too.
        line = " ".join(self.masked(text[:_READ_AT_MOST]).split())
        line = "".join(each if each.isprintable() else "\ufffd" for each in line)
        return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}..."

    def reply(self, text: str) -> str:
        """Return a model's text with only whole secrets masked, of 16 characters or more: what
        cannot be a word.
        """
        return self._mask.text(text)

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record's message; the record is always kept."""
        message = record.getMessage()
        if (masked := self.masked(message)) != message:
            record.msg, record.args = masked, ()
        return True

    def guard_logs(self) -> None:
        """Filter the loggers of the client and of the HTTP libraries under it."""
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)

    def leave_logs(self) -> None:
        """Undo `guard_logs`."""
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)


def _split(base_url: str) -> SplitResult:
    advice = "Give http:// or https://, a host, and usually /v1, such as http://127.0.0.1:8000/v1."
    try:
        parts = urlsplit(base_url.strip())
        wrong = parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0
    except ValueError as error:
        # The library's message may quote the URL, and with it a password.
        raise UsageError(
            f"The base URL cannot be read as a URL ({type(error).__name__}). {advice}"
        ) from None
    if wrong:
        harmless = re.split(r"[?#]", base_url.rpartition("@")[2])[0][:80]  # no key, no password
        raise UsageError(f"The base URL {harmless!r} names no server. {advice}")
    if parts.query or parts.fragment:
        raise UsageError(
            f"The base URL of {parts.hostname} has a query or a fragment (what follows ? or #),"
            f" which would not be sent and may hold a key. {advice} Keys come from an environment"
            " variable."
        )
    return parts


_POLICY = re.compile(
    r"content[_ ]?(?:filter|policy|management)|responsible[ _]?ai|safety"
    r" (?:system|filter|polic)|usage polic|moderation"
    r"|data_inspection_failed|prompt[_ ]blocked",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|too (?:long|many tokens|large)|maximum.{0,40}tokens",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(
    r"insufficient[_ ](?:quota|balance|credits?|funds)|billing[_ ](?:hard[_ ]limit|not[_ ]active)",
    re.IGNORECASE,
)
# The same in every request: a server that rejects one of these will never answer.
_SETTINGS = {
    "model",
    "temperature",
    "top_p",
    "n",
    "seed",
    "stop",
    "logprobs",
    "top_logprobs",
    "max_completion_tokens",
}
_OWN_FIELDS = _SETTINGS - {"max_completion_tokens"} | {"messages", "max_tokens", "stream"}
_PASSING = {408, 409, 421, 425}
_SECONDS = re.compile(r"\s*-?[0-9]+(?:\.[0-9]*)?\s*")
_LONGEST_WAIT_S = 366 * 86_400.0  # whoever asks for more asks for as long as this


Send: TypeAlias = "Callable[[dict[str, Any]], Awaitable[bytes | Answer]]"
"""Sends a body, and returns the reply's bytes, or the HTTP error that came instead."""


class Answer:
    """An HTTP error; its body is a JSON value, or a text if it is not JSON."""

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        # OpenAI wraps errors in `error`, and its client has already unwrapped them; others give a
        # `detail`, a string, or a list of errors.
        outer = body[0] if isinstance(body, list) and body else body
        inner = outer.get("error", outer) if isinstance(outer, dict) else outer
        fields: RecordLike = inner if isinstance(inner, dict) else {}
        self.status = status
        self.headers = headers
        self.message = str(fields.get("message") or fields.get("detail") or inner or "")
        self.code = " ".join(str(fields[name]) for name in ("code", "type") if fields.get(name))
        self.parameter = str(fields.get("param") or "")

    @property
    def words(self) -> str:
        """Code and message."""
        return f"{self.code} {self.message}"


def answer_error(answer: Answer, endpoint: Endpoint, model: str) -> BackendError:
    """Return the recorder's error for an HTTP error."""
    message = endpoint.redaction.reason(answer.message)
    message = message if message.endswith("...") else message.rstrip(".")
    reason = f"{endpoint.host} answered {answer.status}" + (f": {message}" if message else "")
    wait = retry_after(answer.headers)
    status = answer.status
    if 300 <= status < 400:
        return Fatal(
            f"{endpoint.host} answered {status}, a redirection to"
            f" {endpoint.redirection(answer.headers)},"
            " which is not followed: question and key would go there. If you trust it, give its"
            " base URL."
        )
    if status == 402 or (status in {403, 429} and _NO_MONEY.search(answer.words)):
        return Fatal(
            f"{reason}. The account has no money or quota left; fill it up, then run the same"
            " command again."
        )
    if status == 429:
        return RateLimitError(reason, wait)
    if status >= 500 or status in _PASSING:
        return Transient(reason, wait)
    if status == 401:
        return Fatal(
            f"{reason}. Check the API key in the environment variable, and that it belongs to this"
            " server."
        )
    if status in {400, 403, 422} and _POLICY.search(answer.words):
        return RefusalError(reason, "content_filter")
    if status == 403:
        return Fatal(f"{reason}. The key may not use the model {model!r}, or not from here.")
    if status == 404:
        return Fatal(
            f"{reason}. Check the model's name ({model!r}) and the base URL ({endpoint.url}), which"
            " usually ends in /v1."
        )
    if (
        status in {400, 422}
        and answer.parameter in _SETTINGS
        and not _TOO_LONG.search(answer.words)
    ):
        return Fatal(
            f"{reason}. The server does not take the setting {answer.parameter!r} as it is; change"
            " it or leave it out."
        )
    if status in {400, 413, 422}:
        return RefusalError(reason)
    return Fatal(f"{reason}. Check the base URL ({endpoint.url}), which usually ends in /v1.")


def error_in_reply(reply: RecordLike, endpoint: Endpoint, model: str) -> BackendError | None:
    """Return the error that routers send in place of choices with status 200; `None` if there is
    none.
    """
    error = reply.get("error")
    if not error or reply.get("choices"):
        return None
    code = inside(error, "code")
    status = (
        int(code)
        if isinstance(code, int | str) and re.fullmatch("[45][0-9][0-9]", str(code))
        else 502
    )
    return answer_error(Answer(status, {}, reply), endpoint, model)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds a server asks to wait; `None` if it does not say, or not readably.

    An HTTP date is read against the header `date`, the server's clock, or else ours.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    until, sent = _date(value), _date(headers.get("date")) or datetime.now(UTC)
    return None if until is None else min(max(0.0, (until - sent).total_seconds()), _LONGEST_WAIT_S)


def _number(text: str | None) -> float | None:
    return (
        min(max(0.0, float(text)), _LONGEST_WAIT_S) if text and _SECONDS.fullmatch(text) else None
    )


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)

"""Record by running: a proxy that journals every reply, and gives it again the next time.

A chat completion, or a request of another dialect, is answered from the journal as long as that has
samples of the same request (model, messages, decoding, and the seed if one was sent) that this run
has not given yet; else it is forwarded with the client's own key. Every choice is on disk before
the client gets it. What the journal cannot hold (images, invalid requests), and every other path
that is not only read, is refused, or passed on unrecorded where that is allowed. That, and what the
recording will lack of a reply (such as audio), is said at once: in the header of the reply, and in
the log the first time.

In front of the proxy a recording may be served; then only what that does not hold comes here.

Keys come with the client's requests or from an environment variable. They are sent on and never
written: a reply that repeats a key is masked, and a request whose body holds one is not recorded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import ssl
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import cache, partial
from hashlib import sha256
from types import ModuleType
from typing import Annotated, Any
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode

# First, since it says how to install Starlette.
from feval.serving.server import METHODS, ServerLimits, Server, replayed, response  # isort: skip
import os
import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import httpx2
import orjson
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from feval.appendlog import clean
from feval.errors import FevalError, StorageError, UsageError
from feval.publish.secrets import refuse_key_fields
from feval.recording import Question, merge, open_recording, scratch_beside
from feval.serving.application import Application
from feval.serving.wire import dialects
from feval.serving.wire.calls import (
    RequestError,
    ServingError,
    UnknownError,
    json_reply,
    keys_of,
    split_run,
)
from feval.serving.wire.openai import completion_reply, conversation, usage
from feval.serving.wire.parts import Asked, Fields
from feval.values import Record, RecordLike, frozen, inside
from recorders.asking.pace import Budget, check_cost_limit, find_price
from recorders.backends import replies
from recorders.backends.openai_compatible import Endpoint, Redaction
from recorders.errors import BackendError, JournalError
from recorders.journal import MOST_SAMPLES, Journal, is_written, utc_now
from recorders.request import Completion, Decoding, Message, Request
from recorders.work.record import dataset_info, llm_info
from recorders.work.seal import JournaledLLM, seal

_LOG = logging.getLogger("feval.serving")
_TIMEOUT_S = 600.0
_LIMITS = ServerLimits(body_bytes=64 << 20, body_s=_TIMEOUT_S)
_MAX_BYTES = 256 << 20
_MAX_SEARCHED = 1 << 20
_SHOWN = 80
_REDIRECTS = {301, 302, 303, 307, 308}
_PACKED = {"gzip", "x-gzip", "deflate"}
_SCHEME = re.compile(r"^(bearer|basic)\s+", re.IGNORECASE)
# Headers of this connection only (RFC 9110, section 7.6.1), or made anew.
_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade",
    "host", "content-length", "accept-encoding", "expect", "origin",
}  # fmt: skip
_HOP_OF_REPLY = _HOP | {"server", "date", "set-cookie"}
_KEY_NAME = re.compile(r"authorization$|(^|-)(key|token|secret)$|^cookie$")
# Fields that do not shape a reply, or that a `Request` holds elsewhere.
_APART = {
    "model", "messages", "n", "seed", "stream", "stream_options", "user", "metadata", "store",
    "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "feval",
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "logprobs",
    "top_logprobs",
}  # fmt: skip

# Fields of a reply's message.
_KEPT = {
    "role", "content", "refusal", "reasoning", "reasoning_content", "reasoning_details",
    "tool_calls",
}  # fmt: skip
_MOST_SAID = 64
# Fields of other dialects that hold the conversation, or shape no reply.
_SAID = {
    "model", "messages", "system", "contents", "systemInstruction", "system_instruction", "input",
    "instructions", "prompt", "images", "stream", "stream_options", "metadata", "user", "store",
    "labels", "seed", "keep_alive", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "feval",
}  # fmt: skip
_DIALECT = "x-feval-dialect"
"""Field of a decoding: the dialect, with a digest of what of a request may shape its reply."""

_READ = ("GET", "HEAD")
_MISSES = ("not_recorded", "model_not_found")
_QUERY = {"alt", "api-version", "beta", "key"}  # fields that shape no reply
_STREAMED = re.compile(r"(?<=[?&])alt=[^&]*&?")
_STREAMS = re.compile(r"(:|%3A)streamG", re.IGNORECASE)
_OF_GOOGLE = re.compile(r"/v1(beta|alpha)(?!.*/(openai|projects)/)|/v1/models/.+:[a-zA-Z]+$")
_PASSED = re.compile(r"/(v1|v1beta1?|v1alpha|api|openai|engines)(/|$)")

_Sample = int | Mapping[str, Any]  # a CoT of the journal: the offset of its line, or its record


_Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _Settings(BaseModel, strict=True):
    """The settings of a chat completion that a `Request` holds; `n` is bounded."""

    model: Annotated[str, Field(min_length=1)]
    n: Annotated[int, Field(ge=1, le=1024)] | None = None
    seed: _Int64 | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: _Int64 | None = None
    max_completion_tokens: _Int64 | None = None
    top_logprobs: _Int64 | None = None
    stop: str | list[str] | None = None


# what reading a reply that is none may raise
_NO_REPLY = (AttributeError, LookupError, TypeError, ValueError, RecursionError)


@frozen
class _ChatRequest:
    """A chat completion that can be recorded: what is sent on, and what it asks for. `asked` is
    what it says in another dialect, whose replies are recorded, and given again, whole.
    """

    fields: Record
    request: Request
    key: str
    number: int
    seed: int | None
    dialect: ModuleType | None
    asked: Asked | None

    @property
    def characters(self) -> int:
        """Of all that is read: messages, tools, formats."""
        extra = orjson.dumps(self.request.decoding.extra_body)
        return self.request.characters + len(extra)


class Proxy:
    """Forwards requests to a server, and records its chat completions; each sample in the journal
    is given again once.

    `recorded` counts new CoTs, `replayed` those given again, `unrecorded` requests that were passed
    on unrecorded.

    Args:
        upstream: what requests are forwarded to.
        journal: what replies are written to, and given again from.
        dataset: id of the recorded dataset.
        token: what every client has to send as its key, so that only the upstream's own key is sent
            on.
        allowed_fields: names of fields that may look like a key's.
        forward_unrecorded: whether requests that cannot be recorded are passed on; else they are
            refused.
        served: a recording that answers first; only what it does not hold is forwarded. Closed with
            the proxy.
        prices: id of a price list, for the cost limit.
        cost_limit_usd: most dollars for the journal, earlier runs included. A request is refused
            that could pass it with the limit on tokens that it states; without one, once the limit
            is reached.

    Raises:
        FevalError: a cost limit that is not above 0, or without a price list.
    """

    def __init__(
        self,
        upstream: Endpoint,
        journal: Journal,
        dataset: str,
        *,
        token: str | None = None,
        allowed_fields: Collection[str] = (),
        forward_unrecorded: bool = False,
        served: Application | None = None,
        prices: str = "none",
        cost_limit_usd: float | None = None,
    ) -> None:
        self._upstream, self._journal, self._dataset = upstream, journal, dataset
        self._forward_unrecorded, self._served = forward_unrecorded, served
        if forward_unrecorded and cost_limit_usd is not None:
            raise UsageError(
                "A cost limit holds for what is recorded, and --forward-unrecorded forwards more;"
                " choose one of them."
            )
        check_cost_limit(cost_limit_usd, None if prices == "none" else prices, "what is asked")
        self._prices, self._limit = prices, cost_limit_usd
        self._price = cache(partial(find_price, "none" if cost_limit_usd is None else prices))
        self._budget, self._alone = Budget(None, cost_limit_usd), asyncio.Lock()
        self.token = token
        self._allowed_fields = allowed_fields
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}
        # the next one last; none is empty
        self._unused: dict[tuple[str, int | None], list[_Sample]] = {}
        self._failure: str | None = None
        self._said: set[str] = set()
        self._client: httpx2.AsyncClient
        self.recorded = self.replayed = self.unrecorded = 0
        models: dict[str, tuple[str, str]] = {}  # one string per request
        for entry in journal.entries():
            record = entry.record
            if entry.kind == "request":
                models[record["request"]] = record["request"], record.get("model", "")
            if entry.kind == "cot":
                key, model = models[record["key"]]
                if "choice" in record:
                    self._unused.setdefault((key, record.get("seed")), []).append(entry.offset)
                prompt = record.get("prompt_tokens") if record.get("first_of_reply") else 0
                self._pay(model, [record], prompt or 0)
        for samples in self._unused.values():
            samples.reverse()

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Hold the connections to the server open while requests are answered."""
        async with httpx2.AsyncClient(
            timeout=_TIMEOUT_S,
            limits=httpx2.Limits(max_connections=None),
            verify=ssl.create_default_context(),
            trust_env=False,  # a .netrc would replace the client's key
        ) as self._client:
            self._upstream.redaction.guard_logs()
            yield
            self._upstream.redaction.leave_logs()

    async def answer(self, call: HTTPRequest) -> Response:
        """Answer a request."""
        missed: Response | None = None
        if self._served is not None:
            missed = response(await replayed(self._served, call), call)
            if call.method != "POST" or missed.headers.get("x-feval-error") not in _MISSES:
                return missed
        target = call.scope["raw_path"].decode("latin-1")
        path = call.scope["path"].rstrip("/")
        if missed is not None:
            target, path = split_run(target)[1], split_run(path)[1]
        if query := call.scope["query_string"].decode("latin-1"):
            target += f"?{query}"
        body = await call.body()
        if not _PASSED.match(path) or ".." in unquote(path).split("/"):
            raise UnknownError(
                "Only paths of APIs are passed on, such as those under /v1; give clients a base URL"
                " that ends with /v1.",
                code="unknown_url",
            )
        if call.method in _READ:
            return await self._passed_on(call, target, body)
        what = path[:_SHOWN]
        why = "because it asks for no chat"
        if call.method == "POST" and (found := _chats(path)):
            chat = self._recordable(call, *found, body)
            if isinstance(chat, _ChatRequest):
                return await self._chat(call, target, chat, missed)
            what, why = chat, f"because of its {chat}"
        if missed is not None:
            return missed
        said = f"{call.method} {path[:_SHOWN]} cannot be recorded, {why}, and is"
        if not self._forward_unrecorded:
            said += " not forwarded"
            self._say(what, said)
            raise RequestError(
                f"{said}. Start the proxy with --forward-unrecorded to pass such requests on.",
                code="unrecorded",
            )
        self.unrecorded += 1
        reply = await self._passed_on(call, target, body)
        return self._marked(reply, what, f"{said} passed on as it is")

    def close(self) -> None:
        """Close the recording that is served; the journal is the caller's."""
        if self._served is not None:
            self._served.close()

    def _say(self, what: str, sentence: str) -> None:
        """Tell the log once of each thing that is not recorded."""
        if what not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(what)
            _LOG.warning("%s. This is said once.", sentence)

    def _marked(self, reply: Response, what: str, sentence: str) -> Response:
        """Say of a reply that it is not recorded."""
        self._say(what, sentence)
        reply.headers["X-Feval-Unrecorded"] = what
        return reply

    def _recordable(
        self, call: HTTPRequest, dialect: ModuleType | None, said: Mapping[str, str], body: bytes
    ) -> _ChatRequest | str:
        """Return a chat completion as the journal can hold it; if it cannot, what of it is the
        reason. `said` is what its path says.
        """
        query = parse_qs(call.scope["query_string"].decode("latin-1"))
        if query.keys() - _QUERY:
            return "query"
        try:
            sent = orjson.loads(body)
            # Not as it was sent: JSON may hide a key behind escapes. And deeper, as a line of the
            # journal has it.
            text = orjson.dumps([[[[[[[[sent]]]]]]]]).decode()
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            return "body"
        if not isinstance(sent, dict):
            return "body"
        if self._redaction(call).reply(text) != text:
            return "key"
        asked: Asked | None = None
        if dialect is None:
            fields = {**sent, **said}
            sent.pop("feval", None)
        else:
            try:
                asked = dialect.request(Fields(sent), {**said, "query": urlencode(query, True)})
            except ServingError as error:
                return error.parameter or "body"
            if asked.previous is not None:
                return "previous_response_id"
            if not any(message["content"] for message in asked.fields["messages"]):
                return "messages"  # as those that load a model
            fields = {name: own for name, own in asked.fields.items() if own not in ([], {}, "")}
        try:
            settings = _Settings.model_validate(fields)
        except ValidationError as error:
            return str(error.errors()[0]["loc"][0])
        stated = settings.max_completion_tokens, settings.max_tokens
        limits = {limit for limit in stated if limit is not None and limit > 0}
        if len(limits) > 1:
            return "max_tokens"  # which one applies is up to the server
        if (messages := _messages(fields.get("messages"))) is None:
            return "messages"
        tools = "".join(message.tools for message in messages)
        if self._redaction(call).reply(tools) != tools:  # that JSON within JSON hid
            return "key"
        stop, top = settings.stop or [], settings.top_logprobs or 0
        extra = {
            name: value
            for name, value in fields.items()
            if name not in _APART and value is not None
        }
        if dialect is not None:
            beta = sorted(call.headers.getlist("anthropic-beta"))
            name = dialect.__name__.rpartition(".")[2]
            extra[_DIALECT] = f"{name} {_digest([_shaping(sent), said.get('kind'), beta])}"
        decoding = Decoding(
            settings.temperature,
            settings.top_p,
            limits.pop() if limits else None,
            (stop,) if isinstance(stop, str) else tuple(stop),
            None,
            top if fields.get("logprobs") else None,
            extra,
        )
        try:
            refuse_key_fields(extra, self._allowed_fields, "start the proxy with --allow-field {}")
        except UsageError as error:
            raise RequestError(str(error), code="key_field") from None
        name = f"{self._dataset}/{messages_id(messages)}"
        request = Request(self._dataset, name, messages, settings.model, decoding)
        number = 1 if dialect is not None else settings.n or 1
        return _ChatRequest(sent, request, request.key(), number, settings.seed, dialect, asked)

    async def _chat(
        self, call: HTTPRequest, target: str, chat: _ChatRequest, missed: Response | None
    ) -> Response:
        samples = self._take(chat)
        new: list[Record] = []
        passed: Response | None = None
        if len(samples) < chat.number:
            if missed is not None and not self._journal.may_ask:
                self._give_back(chat, samples)
                return missed
            try:
                new, passed = await self._recorded(call, target, chat, chat.number - len(samples))
            except BaseException:
                self._give_back(chat, samples)
                raise
            if not new:
                self._give_back(chat, samples)
                return passed
        records = [*await run_in_threadpool(self._read, samples), *new]
        if await call.is_disconnected():
            self._give_back(chat, records)
            return Response()
        self.replayed += len(samples)
        headers = {"X-Feval-Replayed": str(len(samples)), "X-Feval-Recorded": str(len(new))}
        if lacking := _lacking(records):
            headers["X-Feval-Unrecorded"] = ",".join(quote(name) for name in lacking)
            for name in lacking:
                self._say(
                    name,
                    f"A reply has {name!r}, which clients get and the sealed recording will not"
                    " hold",
                )
        if chat.dialect is not None and chat.asked is not None:
            if passed is not None and not chat.asked.stream:
                passed.headers.update(headers)
                return passed
            return _shown(chat, records[0]["choice"]["reply"], headers, call)
        stream, options = bool(chat.fields.get("stream")), chat.fields.get("stream_options")
        with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        completion = _completion(records, chat.request.model)
        return response(
            completion_reply(completion, stream=stream, with_usage=with_usage, headers=headers),
            call,
        )

    def _read(self, samples: Sequence[_Sample]) -> list[RecordLike]:
        offsets = [sample for sample in samples if isinstance(sample, int)]
        records = iter(self._journal.read_many(offsets) if offsets else ())
        return [next(records) if isinstance(sample, int) else sample for sample in samples]

    def _take(self, chat: _ChatRequest) -> list[_Sample]:
        """Take samples of the journal that were not given yet."""
        unused = self._unused.get((chat.key, chat.seed), [])
        if chat.seed is not None and len(unused) < chat.number:
            return []  # the rest, asked for with the same seed, would be the same samples
        samples = [unused.pop() for _ in range(min(chat.number, len(unused)))]
        if not unused:
            self._unused.pop((chat.key, chat.seed), None)
        return samples

    def _give_back(self, chat: _ChatRequest, samples: Sequence[_Sample]) -> None:
        """Keep what no client got for the next request: a client that timed out asks again, and
        must not pay again.
        """
        if samples:
            self._unused.setdefault((chat.key, chat.seed), []).extend(reversed(samples))

    async def _recorded(
        self, call: HTTPRequest, target: str, chat: _ChatRequest, number: int
    ) -> tuple[list[Record], Response]:
        """Forward a request and write the reply; return the records of its choices (none if
        something else came) and the reply as it came.
        """
        if self._failure is not None:  # what cannot be written is not paid for
            raise ServingError(
                f"Nothing more is forwarded: {self._failure}", status=507, code="journal"
            )
        fields, asked, body = dict(chat.fields), chat.asked, await call.body()
        if asked is None:
            for name in ("stream", "stream_options"):
                fields.pop(name, None)
            if number > 1 or "n" in fields:
                fields["n"] = number
            body = orjson.dumps(fields)
        elif "stream" in asked.path:  # Gemini's path says so
            target = _STREAMED.sub("", _STREAMS.sub(r"\1g", target))
        elif asked.stream:
            fields.pop("stream_options", None)
            body = orjson.dumps(fields | {"stream": False})
        limit = chat.request.decoding.max_tokens
        # what may take any number of tokens goes alone, so that one reply at most passes the limit
        alone = self._alone if self._limit is not None and limit is None else nullcontext()
        async with alone:
            if await call.is_disconnected():
                return [], Response()
            reserved = self._reserve(chat, number)
            try:
                return await self._asked(call, target, body, chat, number)
            finally:
                self._budget.free(reserved)

    async def _asked(
        self, call: HTTPRequest, target: str, body: bytes, chat: _ChatRequest, number: int
    ) -> tuple[list[Record], Response]:
        began = time.perf_counter()
        status, headers, content = await self._forwarded(call, target, body)
        seconds, redaction = round(time.perf_counter() - began, 6), self._redaction(call)
        if status != 200:
            return [], self._masked(status, content, headers)
        decoding, model = chat.request.decoding, chat.request.model
        try:
            reply = whole = replies.parse(content)
            if chat.dialect is not None:
                reply = chat.dialect.completion(Fields(whole))
                number = max(len(replies.choices_of(reply)), 1)
            reading = replies.read(
                reply, number, decoding.logprobs, redaction.reply, decoding.max_tokens, seconds
            )
            completions = reading.completions
            kept = replies.choices_of(reply) if chat.dialect is None else [{"reply": whole}]
            choices = orjson.loads(redaction.reply(_storable(kept)))[:number]
            choices += [None] * (len(completions) - len(choices))
        # no chat completion: the client may understand it
        except (BackendError, ServingError, *_NO_REPLY):
            self.unrecorded += 1
            self._budget.pay(*self._most_tokens(chat, number), self._price(model))
            said = "A reply to a chat completion cannot be read, and is passed on and not recorded"
            passed = self._masked(status, content, headers)
            if chat.asked is not None and chat.asked.stream:
                with suppress(BackendError):
                    passed = _shown(chat, replies.parse(bytes(passed.body)), {}, call)
            return [], self._marked(passed, "reply", said)
        try:
            await run_in_threadpool(self._commit, chat, completions, choices)
        except FevalError as error:
            self._failure = str(error)
            raise
        self.recorded += len(completions)
        new = [
            asdict(completion) | {"choice": choice}
            for completion, choice in zip(completions, choices, strict=True)
        ]
        prompt = new[0]["prompt_tokens"]
        if prompt is not None:
            self._budget.learn(chat.characters, prompt)
        prompt = self._most_tokens(chat, 0)[0] if prompt is None else prompt
        stated = inside(reply, "usage", "completion_tokens")
        if new[0]["output_tokens"] is None and isinstance(stated, int):  # doubted, but billed
            self._budget.pay(prompt, stated, self._price(model))
        else:
            self._pay(model, new, prompt)
        return new if chat.dialect is None else new[:1], self._masked(status, content, headers)

    def _reserve(self, chat: _ChatRequest, number: int) -> float:
        """Set dollars aside for a request; refuse one that could pass the cost limit."""
        model = chat.request.model
        price = self._price(model)
        try:
            check_cost_limit(self._limit, price, model, self._prices)
        except FevalError as error:
            raise RequestError(str(error), code="price") from error
        reserved = self._budget.reserve(*self._most_tokens(chat, number), price)
        if reserved is None:
            raise RequestError(
                f"{self._budget}, and this request could pass that limit; it is not forwarded. What"
                " was recorded is still given. Start again with a higher limit.",
                code="cost_limit",
            )
        return reserved

    def _most_tokens(self, chat: _ChatRequest, number: int) -> tuple[float, int]:
        """Tokens that a request may take: of its prompt, and of so many CoTs within its limit."""
        prompt = self._budget.prompt_tokens(chat.characters)
        if chat.asked is not None:
            number *= chat.asked.fields.get("n") or 1
        return prompt, number * (chat.request.decoding.max_tokens or 0)

    def _pay(self, model: str, records: Sequence[RecordLike], prompt: float) -> None:
        """Count the CoTs of a reply as paid, and its prompt of so many tokens. A CoT that was not
        counted has at most a token per character.
        """
        output = 0
        for record in records:
            counted = record.get("output_tokens")
            texts = record["text"] or "", record.get("reasoning") or ""
            output += sum(map(len, texts)) if counted is None else counted
        self._budget.pay(prompt, output, self._price(model))

    def _masked(self, status: int, content: bytes, headers: Mapping[str, str]) -> Response:
        """Pass a reply on as it came, without the proxy's own key: clients need not know it."""
        redaction = self._upstream.redaction
        if redaction:
            mask = redaction.masked if len(content) <= _MAX_SEARCHED else redaction.reply
            content = mask(content.decode(errors="surrogateescape")).encode(
                errors="surrogateescape"
            )
            headers = {name: redaction.masked(value) for name, value in headers.items()}
        return Response(content, status, headers)

    def _commit(
        self,
        chat: _ChatRequest,
        completions: Sequence[Completion],
        choices: Sequence[RecordLike | None],
    ) -> None:
        """Write one reply and sync it to the disk."""
        with self._lock:
            first = self._next.get(chat.key, self._journal.next_sample(chat.key))
            self._next[chat.key] = first + len(completions)
            if first + len(completions) > MOST_SAMPLES:
                raise ServingError(
                    "The journal holds a million samples of this request; record into another"
                    " folder.",
                    status=507,
                )
            self._journal.add(
                chat.request,
                chat.key,
                range(first, first + len(completions)),
                completions,
                recorded_at=utc_now(),
                seeds=[chat.seed] * len(completions),
                choices=choices,
            )
        self._journal.commit()

    def _redaction(self, call: HTTPRequest) -> Redaction:
        headers = [value for name, value in call.headers.items() if _KEY_NAME.search(name)]
        headers += [*self._upstream.headers.values(), self.token or ""]
        keys = [_SCHEME.sub("", value).strip() for value in headers]
        keys += keys_of({}, call.scope["query_string"].decode("latin-1"))
        return Redaction(*keys, *(orjson.dumps(key).decode()[1:-1] for key in keys))

    async def _forwarded(
        self, call: HTTPRequest, target: str, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request to the server; return status, headers and the whole body of the reply."""
        reply = await self._sent(call, target, body)
        headers, content = _headers_of(reply), bytearray()
        # Some gateways compress whatever they send, though it was not asked for.
        is_packed = headers.get("content-encoding") in _PACKED
        try:
            async for piece in reply.aiter_bytes() if is_packed else reply.aiter_raw():
                content += piece
                if len(content) > _MAX_BYTES:
                    raise _upstream_error(
                        f"{self._upstream.host} sent more than {_MAX_BYTES:,} bytes."
                    )
        except httpx2.HTTPError as error:
            raise self._broken(error) from None
        finally:
            await reply.aclose()
        if is_packed:
            del headers["content-encoding"]
        return reply.status_code, headers, bytes(content)

    async def _passed_on(self, call: HTTPRequest, target: str, body: bytes) -> Response:
        """Pass a request on as it is, and what comes back piece by piece."""
        # only a whole reply can be searched for the key
        if self._upstream.redaction and b'"stream":' not in body:
            status, headers, content = await self._forwarded(call, target, body)
            return self._masked(status, content, headers)
        reply = await self._sent(call, target, body)
        return StreamingResponse(_pieces(reply), reply.status_code, _headers_of(reply))

    async def _sent(self, call: HTTPRequest, target: str, body: bytes) -> httpx2.Response:
        path, _, query = target.partition("?")
        headers = {
            name: value
            for name, value in call.headers.items()
            if name not in _HOP and not name.startswith("x-feval-")
        }
        headers["accept-encoding"] = "identity"
        if betas := call.headers.getlist("anthropic-beta"):  # may stand on several lines
            headers["anthropic-beta"] = ",".join(betas)
        sent = dict(parse_qsl(query, keep_blank_values=True))
        if key := sent.pop("key", None):  # HTTP libraries log queries
            headers.setdefault("x-goog-api-key", key)
            target = path + (f"?{urlencode(sent)}" if sent else "")
        name = _key_header(path, call.headers)
        own = {each.lower(): value for each, value in self._upstream.headers.items()}
        if key := own.get("authorization"):  # in place of the client's
            headers = {each: headers[each] for each in headers if not _KEY_NAME.search(each)}
            if name != "authorization" and key.lower().startswith("bearer "):
                own[name] = _SCHEME.sub("", own.pop("authorization"))
        headers |= own
        base = self._upstream.url
        place = httpx2.URL(base).path.rstrip("/")
        if place and target.startswith(f"{place}/"):
            base = base.removesuffix(place)
        elif target.startswith("/v1/") and name == "authorization":
            target = target.removeprefix("/v1")  # which base URLs of OpenAI's clients end with
        else:
            base = base.removesuffix("/v1")
        try:
            fields = [
                (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
            ]
            request = httpx2.Request(call.method, base + target, headers=fields, content=body)
            reply = await self._client.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise self._broken(error) from None  # its text may quote a header
        if reply.status_code in _REDIRECTS and call.method == "POST":
            await reply.aclose()
            # A client would follow it past the proxy, and no longer be recorded.
            target = self._upstream.redirection(reply.headers)
            raise _upstream_error(
                f"{self._upstream.host} redirects requests to {target}. Start the proxy with the"
                " --upstream that answers itself."
            )
        return reply

    def _broken(self, error: Exception) -> ServingError:
        return _upstream_error(
            f"{self._upstream.host} did not answer ({_reason(error)}). What the journal holds is"
            " still given; check that the server runs, and that --upstream names it."
        )


_upstream_error = partial(ServingError, status=502, code="upstream")


def proxy_server(proxy: Proxy, *, host: str = "127.0.0.1", port: int = 0) -> Server[Proxy]:
    """Return a server that answers through a proxy; see `Server`."""
    routes = [Route("/{path:path}", proxy.answer, methods=METHODS)]
    return Server(
        proxy,
        routes,
        host=host,
        port=port,
        token=proxy.token,
        limits=_LIMITS,
        lifespan=proxy.lifespan,
    )


def _key_header(path: str, headers: Mapping[str, str]) -> str:
    """Return the header in which servers take a key at a path."""
    path, listed = unquote(path), dialects.list_of(path, headers)
    if path.startswith("/openai/"):
        return "api-key"
    if path.startswith("/v1/messages") or listed is dialects.anthropic:
        return "x-api-key"
    if _OF_GOOGLE.match(path) or listed is dialects.gemini:
        return "x-goog-api-key"
    return "authorization"


def messages_id(messages: Sequence[Message]) -> str:
    """Return 16 hex digits that name messages, whatever model is asked them."""
    return _digest([message.hashed() for message in messages])


def _messages(value: object) -> tuple[Message, ...] | None:
    """The messages, if they are text only."""
    try:
        parsed = conversation(value if isinstance(value, list) else [])
    except RequestError:
        return None
    if not parsed.text_only or parsed.last_user_place < 0:
        return None
    tools = parsed.tools or [""] * len(parsed.messages)
    return tuple(
        Message(role, text, own) for (role, text), own in zip(parsed.messages, tools, strict=True)
    )


def _shown(
    chat: _ChatRequest, whole: RecordLike, headers: Mapping[str, str], call: HTTPRequest
) -> Response:
    """A vendor's reply as it was asked for; as one object where no stream can be made of it."""
    if chat.dialect is not None and chat.asked is not None:
        with suppress(*_NO_REPLY):
            reply = dialects.reply(chat.dialect, whole, chat.asked, headers)
            body = reply.body if isinstance(reply.body, bytes) else [*reply.body]
            return response(reply._replace(body=body), call)
    return response(json_reply(whole, headers=headers), call)


def _shaping(fields: RecordLike) -> Record:
    """What of a body in another dialect may shape the reply, beside the conversation."""
    return {
        name: _shaping(own) if name in ("options", "generationConfig", "generation_config") else own
        for name, own in fields.items()
        if name not in _SAID
    }


def _digest(value: object) -> str:
    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _plain(decoding: Decoding) -> Decoding:
    """A decoding without the digest of a dialect, which says nothing to a reader."""
    extra = {name: own for name, own in decoding.extra_body.items() if name != _DIALECT}
    return replace(decoding, extra_body=extra)


def _chats(path: str) -> tuple[ModuleType | None, dict[str, str]] | None:
    """Return the dialect in which a path asks for a chat (`None`: OpenAI's) and what it says."""
    if found := dialects.of_path(path):
        return None if "count" in found[1] else found
    path, model = dialects.openai_path(path)
    said = {} if model is None else {"model": model}
    return (None, said) if path == "/v1/chat/completions" else None


def _completion(records: Sequence[RecordLike], model: str) -> Record:
    """Make one chat completion of recorded choices."""
    first = records[0]
    output = sum(record.get("output_tokens") or 0 for record in records)
    thoughts = [record.get("reasoning_tokens") for record in records]
    prompt = first.get("prompt_tokens")
    reply = {
        "id": first.get("response_id") or f"chatcmpl-{secrets.token_hex(12)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": first.get("served_model") or model,
        "system_fingerprint": first.get("system_fingerprint"),
        "choices": [
            dict(record["choice"]) | {"index": index} for index, record in enumerate(records)
        ],
    }
    if prompt is None or any(record.get("output_tokens") is None for record in records):
        return reply
    cached = first.get("cached_tokens") or 0
    return reply | {"usage": usage(prompt, output, reasoning=thoughts, cached=cached)}


def _lacking(records: Iterable[RecordLike]) -> list[str]:
    """Return the fields of replies' messages that a recording does not hold."""
    # A choice that was read has a message.
    names = (
        name
        for record in records
        for name, value in record["choice"].get("message", {}).items()
        if value and (name not in _KEPT or (name == "tool_calls" and not record.get(name)))
    )
    return [name[:_SHOWN] for name in dict.fromkeys(names)]


def _storable(choices: Sequence[RecordLike]) -> str:
    """Choices as JSON that a file can hold; lone surrogates become U+FFFD."""
    try:
        return orjson.dumps(choices).decode()
    except TypeError:
        return orjson.dumps(json.loads(clean(json.dumps(choices, ensure_ascii=False)))).decode()


def _headers_of(reply: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name not in _HOP_OF_REPLY}


async def _pieces(reply: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in reply.aiter_raw():
            yield piece
    finally:
        await reply.aclose()


def _reason(error: BaseException | None) -> str:
    """The system's words if there are any, else the class of the error; never its text, which may
    quote a header.
    """
    name = type(error).__name__
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        error = error.__cause__ or error.__context__
    return name


_Pairs = list[tuple[Question, Request]]


def seal_proxied(
    journal: Journal,
    out: Path,
    *,
    dataset: str,
    answer_kind: str,
    questions: Sequence[Question] = (),
    prices: str = "none",
    counter: str = "usage",
    equality: str | None = None,
) -> Path | None:
    """Make a recording of a proxy's open journal, which stays, to be replayed and continued; `None`
    if it has no CoT.

    A recording is never changed: if `out` has fewer CoTs than the journal, the new one is `out-2`,
    `out-3` and so on. A request asks the question that `match` finds in its last user message;
    others are questions of their own, without gold.

    Raises:
        JournalError: the journal is damaged.
        StorageError: the recording cannot be written.
    """
    if not journal.totals.cots:
        return None
    newest, free = _numbered(out)
    if newest is not None:
        pairs = open_recording(newest).manifest.pairs
        if sum(pair["cots"] for pair in pairs.values()) == journal.totals.cots:
            return newest
    info = dataset_info(dataset, answer_kind, equality)
    groups = _groups(_requests(journal, dataset), dataset, questions)
    models = Counter(group[0][1].model for group in groups.values())

    def seal_group(out: Path, llm_text: str, group: _Pairs) -> Path:
        asked, requests = zip(*group, strict=True)
        name = model = requests[0].model
        if models[model] > 1:  # told apart by their decodings
            name += f"@{sha256(llm_text.encode()).hexdigest()[:8]}"
        decoding = requests[0].decoding
        decoding = decoding if _DIALECT in llm_text else _plain(decoding)
        llm = llm_info(name, model, "proxied", decoding)
        source = JournaledLLM(journal, info, asked, requests, llm, counter)
        return seal([source], out, operation={"name": "proxy", **journal.header}, prices=prices)

    if len(groups) == 1:
        ((llm, group),) = groups.items()
        return seal_group(free, llm, group)
    folder, lock = scratch_beside(out, Path.mkdir)
    try:
        parts = [
            seal_group(folder / str(number), llm, group)
            for number, (llm, group) in enumerate(groups.items())
        ]
        return merge(parts, free)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def check_place(out: Path) -> None:
    """Check that a recording can be made at a path later; `StorageError` if something else than a
    recording is there.
    """
    newest, _ = _numbered(out)
    if newest is None:
        return
    try:
        open_recording(newest)
    except FevalError as error:
        raise StorageError(
            f"{newest} exists and holds no recording that can be opened. Name another folder to"
            " record into."
        ) from error


def match(text: str, questions: Sequence[Question]) -> Question | None:
    """Return the question whose text stands verbatim in a message: the longest, unless two have the
    same text.
    """
    contained = [question for question in questions if question.text and question.text in text]
    longest = max((len(question.text) for question in contained), default=0)
    best = [question for question in contained if len(question.text) == longest]
    return best[0] if len(best) == 1 else None


def _requests(journal: Journal, dataset: str) -> list[Request]:
    """The requests of the journal, in its order."""
    requests = []
    for entry in journal.entries():
        if entry.kind != "request":
            continue
        record = entry.record
        try:
            decoding: Record = {**record["decoding"], "stop": tuple(record["decoding"]["stop"])}
            messages = tuple(map(Message.of, record["messages"]))
            request = Request(
                dataset, record["question_id"], messages, record["model"], Decoding(**decoding)
            )
        except (KeyError, TypeError) as error:
            raise JournalError(
                f"Line {entry.number} of {journal.path} was not written by a proxy."
            ) from error
        if request.key() != record["request"]:
            raise JournalError(
                f"Line {entry.number} of {journal.path} is a request that does not match its key."
            )
        if journal.count(record["request"]):  # else its reply was never written
            requests.append(request)
    return requests


def _groups(
    requests: Sequence[Request], dataset: str, questions: Sequence[Question]
) -> dict[str, _Pairs]:
    """The requests of each LLM (model and decoding) with their questions; of two for one question,
    the first one keeps it.
    """
    groups: defaultdict[str, dict[str, tuple[Question, Request]]] = defaultdict(dict)
    for request in requests:
        llm = _llm_text(request.model, _plain(request.decoding))
        message = request.messages[-1]
        last, question = request.prompt(), None  # found by the whole conversation alone
        if not message.tools:
            last = next(each.content for each in request.messages[::-1] if each.role == "user")
            question = match(last, questions)
        if question is None or question.id in groups[llm]:
            question = Question(f"{dataset}/{messages_id(request.messages)}", last)
        if question.id in groups[llm]:  # asked with other fields of a dialect
            llm = _llm_text(request.model, request.decoding)
        groups[llm].setdefault(question.id, (question, replace(request, question_id=question.id)))
    return {llm: list(group.values()) for llm, group in groups.items()}


def _llm_text(model: str, decoding: Decoding) -> str:
    return json.dumps([model, decoding.content()], sort_keys=True)


def _numbered(out: Path) -> tuple[Path | None, Path]:
    """The newest of the numbered recordings, and the first free name."""
    newest, free, number = None, out, 1
    while is_written(free):
        newest, number = free, number + 1
        free = out.with_name(f"{out.name}-{number}")
    return newest, free

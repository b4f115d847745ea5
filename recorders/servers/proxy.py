"""Record by running: an OpenAI-compatible proxy that journals every reply, and gives it again the next time.

A chat completion is answered from the journal as long as that holds samples of the same request (model, messages, decoding, and
the seed if one was sent) that this run has not given yet; else it is forwarded with the client's own key. Every choice is on the
disk before the client has it. What the journal cannot hold (images, tool results, requests that no server would take) and every
other path is passed on unrecorded.

Keys come with the client's requests or from an environment variable. They are sent on and never written: a reply that repeats a
key is masked, and a request whose body holds one is not recorded.
"""

from __future__ import annotations

import http.client
import json
import re
import secrets
import ssl
import threading
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from feval.errors import FevalError
from recorders.backends import replies
from recorders.backends.endpoint import Endpoint, Redaction
from recorders.errors import BackendError
from recorders.journal.journal import Journal, utc_now
from recorders.request import Completion, Decoding, Message, Request
from recorders.servers.service import Answer, Call, ProblemError, chat_answer

__all__ = ["Proxy", "messages_id"]

_TIMEOUT_S = 600.0
_MOST_BYTES = 256 << 20
_PIECE = 64 << 10
_SURROGATES = re.compile("[\ud800-\udfff]")
_MOST_SEARCHED = 1 << 20
_REDIRECTS = {301, 302, 303, 307, 308}
_PACKED = {"gzip", "x-gzip", "deflate"}
_SCHEME = re.compile(r"^(bearer|basic)\s+", re.IGNORECASE)
_MOST_SAMPLES = 1 << 20
# Of this connection only (RFC 9110, section 7.6.1), or made anew.
_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
    "host", "content-length", "accept-encoding", "expect", "origin",
}  # fmt: skip
_OF_REPLY = _HOP | {"server", "date", "set-cookie"}
_KEY_NAME = re.compile(r"authorization$|(^|-)(key|token|secret)$|^cookie$")
# What does not shape a reply, and what a `Request` holds elsewhere.
_APART = {
    "model", "messages", "n", "seed", "stream", "stream_options", "user", "metadata", "store", "safety_identifier",
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "logprobs", "top_logprobs",
}  # fmt: skip


_Held = int | Mapping[str, Any]  # a CoT of the journal: where its line begins, or what stands there


@dataclass(frozen=True, slots=True)
class _Asked:
    """A chat completion that can be recorded."""

    fields: Mapping[str, Any]
    request: Request
    key: str
    number: int
    seed: int | None


class Proxy:
    """The application for `recorders.servers.service.Service`.

    Args:
        upstream: the server; its key, where it has one, takes the place of the client's.
        journal: open; samples that it holds already are given again, each once.
        dataset: id of the dataset that is being recorded.

    Attributes:
        recorded: how many CoTs were recorded.
        replayed: how many were given again.
        unrecorded: how many chat completions were passed on without being recorded.
    """

    def __init__(self, upstream: Endpoint, journal: Journal, dataset: str) -> None:
        self._upstream, self._journal, self._dataset = upstream, journal, dataset
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}
        self._unused: defaultdict[tuple[str, int | None], deque[_Held]] = defaultdict(deque)
        self._failure: str | None = None
        self.recorded = self.replayed = self.unrecorded = 0
        for entry in journal.entries():
            if entry.kind == "cot" and "choice" in entry.record:
                self._unused[entry.record["key"], entry.record.get("seed")].append(entry.offset)

    def __call__(self, call: Call) -> Answer:
        """Answer a request."""
        path, _, query = call.path.partition("?")
        if (path != "/v1" and not path.startswith("/v1/")) or ".." in unquote(path).split("/"):
            raise ProblemError(404, "Only paths under /v1 are passed on; give clients a base URL that ends with /v1.")
        if call.method == "POST" and path.rstrip("/") == "/v1/chat/completions" and not query:
            asked = self._recordable(call)
            if asked is not None:
                return self._chat(call, asked)
            with self._lock:
                self.unrecorded += 1
        return self._passed_on(call)

    def _recordable(self, call: Call) -> _Asked | None:
        """Return a chat completion as the journal can hold it; `None` where it cannot."""
        try:
            fields = orjson.loads(call.body)
        except orjson.JSONDecodeError:
            return None
        text = orjson.dumps(fields).decode()  # not as it was sent: JSON may hide a key behind escapes
        if not isinstance(fields, dict) or self._redaction(call).reply(text) != text:
            return None
        messages, decoding = _messages(fields.get("messages")), _decoding(fields)
        model, number, seed = fields.get("model"), fields.get("n"), fields.get("seed")
        number = 1 if number is None else number
        if not isinstance(model, str) or not model or messages is None or decoding is None:
            return None
        if type(number) is not int or not 1 <= number <= 1024 or not (seed is None or _is_int64(seed)):
            return None
        request = Request(self._dataset, f"{self._dataset}/{messages_id(messages)}", messages, model, decoding)
        return _Asked(fields, request, request.key(), number, seed)

    def _chat(self, call: Call, asked: _Asked) -> Answer:
        held = self._taken(asked)
        if len(held) < asked.number:
            made = self._recorded(call, asked, asked.number - len(held))
            if isinstance(made, Answer):
                self._give_back(asked, held)
                return made
        else:
            made = []
        records = [*self._read(held), *made]
        reply = _reply(records, asked.request.model)
        with self._lock:
            self.replayed += len(held)
        return chat_answer(
            reply,
            stream=bool(asked.fields.get("stream")),
            usage=_wants_usage(asked.fields),
            headers={"X-Feval-Replayed": str(len(held)), "X-Feval-Recorded": str(len(made))},
            undelivered=lambda: self._give_back(asked, records),
        )

    def _read(self, held: Sequence[_Held]) -> list[Mapping[str, Any]]:
        offsets = [one for one in held if isinstance(one, int)]
        read = iter(self._journal.read_many(offsets) if offsets else ())
        return [next(read) if isinstance(one, int) else one for one in held]

    def _taken(self, asked: _Asked) -> list[_Held]:
        """Take samples of the journal that were not given yet."""
        with self._lock:
            unused = self._unused[asked.key, asked.seed]
            if asked.seed is not None and len(unused) < asked.number:
                return []  # the rest, asked for with the same seed, would be the same samples
            return [unused.popleft() for _ in range(min(asked.number, len(unused)))]

    def _give_back(self, asked: _Asked, held: Sequence[_Held]) -> None:
        """Keep for the next request what no client got: one that timed out asks again, and is not to pay again."""
        with self._lock:
            self._unused[asked.key, asked.seed].extendleft(reversed(held))

    def _recorded(self, call: Call, asked: _Asked, number: int) -> list[dict[str, Any]] | Answer:
        """Forward, and write what comes; the choices, or what came instead."""
        if self._failure is not None:  # what cannot be written is not paid for
            raise ProblemError(507, f"Nothing more is forwarded: {self._failure}", code="journal")
        fields = {name: value for name, value in asked.fields.items() if name not in {"stream", "stream_options", "n"}}
        body = orjson.dumps(fields | ({"n": number} if number > 1 or "n" in asked.fields else {}))
        status, headers, content = self._forwarded(call, body)
        redaction = self._redaction(call)
        if status != 200:
            return self._unwritten(status, content, headers)
        try:
            reply = replies.parse(content)
            completions = replies.read(reply, number, asked.request.decoding.logprobs, redaction.reply).completions
            choices = orjson.loads(redaction.reply(_storable(replies.choices_of(reply))))[:number]
        except (BackendError, TypeError, ValueError):  # no chat completion: the client may make more of it
            with self._lock:
                self.unrecorded += 1
            return self._unwritten(status, content, headers)
        return self._written(asked, completions, choices)

    def _unwritten(self, status: int, content: bytes, headers: Mapping[str, str]) -> Answer:
        """What is passed on as it came, but for the proxy's own key: clients need not know it."""
        redaction = self._upstream.redaction
        if redaction:
            mask = redaction.masked if len(content) <= _MOST_SEARCHED else redaction.reply
            content = mask(content.decode(errors="surrogateescape")).encode(errors="surrogateescape")
            headers = {name: redaction.masked(value) for name, value in headers.items()}
        return Answer(status, content, headers)

    def _written(
        self, asked: _Asked, completions: Sequence[Completion], choices: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Write one reply and sync it; as `Journal.read_many` would give it."""
        try:
            self._commit(asked, completions, choices)
        except FevalError as error:
            self._failure = str(error)
            raise
        with self._lock:
            self.recorded += len(completions)
        return [_as_read(completion, choice) for completion, choice in zip(completions, choices, strict=True)]

    def _commit(self, asked: _Asked, completions: Sequence[Completion], choices: Sequence[Mapping[str, Any]]) -> None:
        with self._lock:
            first = self._next.get(asked.key, self._journal.next_sample(asked.key))
            self._next[asked.key] = first + len(completions)
            if first + len(completions) > _MOST_SAMPLES:
                raise ProblemError(
                    507, "The journal holds a million samples of this request; record into another folder."
                )
            self._journal.add(
                asked.request,
                asked.key,
                range(first, first + len(completions)),
                completions,
                recorded_at=utc_now(),
                seeds=[asked.seed] * len(completions),
                choices=choices,
            )
        self._journal.commit()

    def _redaction(self, call: Call) -> Redaction:
        headers = [value for name, value in call.headers.items() if _KEY_NAME.search(name)]
        upstream = self._upstream.headers.get("Authorization", self._upstream.client_key)
        keys = [_SCHEME.sub("", value).strip() for value in (*headers, upstream)]
        return Redaction(*keys, *(orjson.dumps(key).decode()[1:-1] for key in keys))

    def _forwarded(self, call: Call, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send a request upstream; status, headers and the whole body of what came."""
        connection, response = self._sent(call, body)
        try:
            content = response.read(_MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from None
        finally:
            connection.close()
        if len(content) > _MOST_BYTES:
            raise ProblemError(502, f"The reply of {self._upstream.host} is larger than {_MOST_BYTES:,} bytes.")
        return response.status, *self._unpacked(_kept(response), content)

    def _unpacked(self, headers: dict[str, str], content: bytes) -> tuple[dict[str, str], bytes]:
        """Undo a compression that nobody asked for; some gateways compress whatever they send."""
        packed = {name for name, value in headers.items() if name.lower() == "content-encoding" and value in _PACKED}
        if not packed:
            return headers, content
        unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, by its header
        try:
            whole = unpacking.decompress(content, _MOST_BYTES)
        except zlib.error:
            return headers, content  # the client may make more of it
        if unpacking.unconsumed_tail:
            raise ProblemError(502, f"The reply of {self._upstream.host} unpacks to more than {_MOST_BYTES:,} bytes.")
        return {name: value for name, value in headers.items() if name not in packed}, whole

    def _passed_on(self, call: Call) -> Answer:
        """Pass a request on as it is, and what comes back piece by piece."""
        if self._upstream.redaction and b'"stream":' not in call.body:  # only a whole reply can be searched for the key
            status, headers, content = self._forwarded(call, call.body)
            return self._unwritten(status, content, headers)
        connection, response = self._sent(call, call.body)
        return Answer(response.status, _pieces(response), _kept(response), connection.close)

    def _sent(self, call: Call, body: bytes) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        parts = urlsplit(self._upstream.url)
        headers = {name: value for name, value in call.headers.items() if name not in _HOP}
        headers |= {"accept-encoding": "identity", "content-length": str(len(body))}
        if self._upstream.headers:
            headers["authorization"] = self._upstream.headers["Authorization"]
        elif self._upstream.has_key:
            headers["authorization"] = f"Bearer {self._upstream.client_key}"
        connection = (
            http.client.HTTPSConnection(parts.netloc, timeout=_TIMEOUT_S, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)
        )
        try:
            connection.request(call.method, parts.path + call.path.removeprefix("/v1"), body, headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise self._broken(error) from None  # its text may quote a header
        if response.status in _REDIRECTS and call.method == "POST":
            connection.close()
            raise self._moved(response.getheader("Location"))
        return connection, response

    def _moved(self, location: str | None) -> ProblemError:
        """A client would follow a redirection past the proxy, and be recorded no more."""
        there = _origin_and_path(location)
        return ProblemError(
            502,
            f"{self._upstream.host} sends requests on to {there or 'another address'}. Start the proxy with the --upstream that "
            "answers by itself.",
            code="upstream",
        )

    def _broken(self, error: Exception) -> ProblemError:
        why = error.strerror if isinstance(error, OSError) else None  # the system's words, never a header's
        return ProblemError(
            502,
            f"{self._upstream.host} did not answer ({why or type(error).__name__}). What the journal holds is still given; see "
            "that the server runs, and that --upstream names it.",
            code="upstream",
        )


def messages_id(messages: Sequence[Message]) -> str:
    """Return 16 hex digits that name messages, whatever model is asked them."""
    return sha256(orjson.dumps([[message.role, message.content] for message in messages])).hexdigest()[:16]


def _messages(value: object) -> tuple[Message, ...] | None:
    """The messages, if they are text alone."""
    if not isinstance(value, list) or not value:
        return None
    found = []
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            return None
        content = _text(message.get("content"))
        if content is None or any(message[name] is not None for name in message.keys() - {"role", "content"}):
            return None
        found.append(Message(message["role"], content))
    return tuple(found) if any(message.role == "user" for message in found) else None


def _text(content: object) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content]
    return "".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None


def _decoding(fields: Mapping[str, Any]) -> Decoding | None:
    """Everything that shapes a reply; `None` where a value is none that a server would take."""
    stop, limits = fields.get("stop"), [fields.get(name) for name in ("max_completion_tokens", "max_tokens")]
    limit = limits[0] if limits[0] is not None else limits[1]
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    numbers = [fields.get(name) for name in ("temperature", "top_p")]
    top = fields.get("top_logprobs")
    if not all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in numbers):
        return None
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        return None
    if any(value is not None and not _is_int64(value) for value in (*limits, top)):
        return None
    if None not in limits and limits[0] != limits[1]:
        return None  # which of them holds is the server's affair
    extra = {name: value for name, value in fields.items() if name not in _APART and value is not None}
    return Decoding(
        numbers[0], numbers[1], limit, tuple(stops), None, (top or 0) if fields.get("logprobs") else None, extra
    )


def _is_int64(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _wants_usage(fields: Mapping[str, Any]) -> bool:
    options = fields.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


def _as_read(completion: Completion, choice: Mapping[str, Any]) -> dict[str, Any]:
    names = ("output_tokens", "reasoning_tokens", "prompt_tokens", "cached_tokens", "response_id", "served_model")
    record = {name: getattr(completion, name) for name in (*names, "system_fingerprint")}
    return record | {"choice": choice}


def _reply(records: Sequence[Mapping[str, Any]], model: str) -> dict[str, Any]:
    """Put recorded choices together as one chat completion."""
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
        "choices": [dict(record["choice"]) | {"index": index} for index, record in enumerate(records)],
    }
    if prompt is None or any(record.get("output_tokens") is None for record in records):
        return reply
    return reply | {
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": first.get("cached_tokens") or 0},
            "completion_tokens_details": {
                "reasoning_tokens": None if None in thoughts else sum(count or 0 for count in thoughts)
            },
        }
    }


def _storable(choices: Sequence[Mapping[str, Any]]) -> str:
    """Choices as JSON that a file can hold; halves of surrogate pairs become U+FFFD."""
    try:
        return orjson.dumps(choices).decode()
    except TypeError:
        return orjson.dumps(json.loads(_SURROGATES.sub("\ufffd", json.dumps(choices, ensure_ascii=False)))).decode()


def _origin_and_path(url: str | None) -> str | None:
    """A URL without what may be a secret in it."""
    try:
        parts = urlsplit(url or "")
        there = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else parts.path
    except ValueError:
        return None
    return "".join(character if character.isprintable() else "\ufffd" for character in there[:200]) or None


def _kept(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name: value for name, value in response.getheaders() if name.lower() not in _OF_REPLY}


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while piece := response.read1(_PIECE):
            yield piece
    except http.client.HTTPException:
        raise ConnectionResetError from None

"""An application's door for ASGI servers: bodies read within bounds, who may ask, replies whole or event by event."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import orjson

from feval.serving.application import Call, Reply
from feval.serving.loopback import refusal
from feval.serving.requests import OWN_HEADERS

__all__ = ["OF_DOOR", "OF_FEVAL", "OF_KEYS", "Door", "Limits", "deliver", "error_reply"]

_LOG = logging.getLogger(__name__)
_EVENTS_AT_ONCE = 16
OF_KEYS = ("authorization", "x-api-key", "api-key")
"""Headers that a client may send its key in."""

OF_DOOR = ("host", "origin", "content-length", "authorization")
"""Headers that the door looks at before it takes a body."""

OF_FEVAL = ("x-feval-run", *OWN_HEADERS)
"""Headers that the application looks at, besides those with a key."""

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take.

    Attributes:
        body_bytes: of a request's body.
        head_bytes: of a request's line and headers.
        headers: how many of them, those after a chunked body included.
        request_s: seconds within which a request has to arrive whole, counted from its first byte or from the connection.
        stalled_s: seconds that a client may leave a reply unread.
        idle_s: seconds that a connection is kept for the next request.
        connections: open at once; one more closes the one that has been idle or sending its request for the longest.
    """

    body_bytes: int = 10_000_000
    head_bytes: int = 64 << 10
    headers: int = 256
    request_s: float = 30.0
    stalled_s: float = 60.0
    idle_s: int = 120
    connections: int = 1024


def error_reply(status: int, message: str, *, code: str, headers: Mapping[str, str] | None = None) -> Reply:
    """Return an error in OpenAI's shape that the door itself gives.

    Args:
        status: of HTTP.
        message: a sentence or two.
        code: a word for programs.
        headers: further ones.
    """
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return Reply(status, {"content-type": "application/json", **(headers or {})}, orjson.dumps({"error": error}))


class _TooLongError(Exception):
    """The body is longer than allowed."""


class Door:
    """The ASGI application (HTTP only).

    Requests are answered inside the event loop: most take a few dozen microseconds, less than handing one to a thread and
    back. The exceptions are a question whose texts are read for the first time, half a millisecond and once, which a thread
    would shorten for nobody on one core; and grading, which takes longer and goes to a thread.

    Args:
        respond: from a call to a reply; it does not raise.
        only_loopback: whether the server listens on loopback.
        token: that `Authorization` has to carry; `None` lets everybody in who reaches the server. With a token, the run comes
            from header or path: the application sees no key.
        limits: of bodies.
    """

    def __init__(
        self,
        respond: Callable[[Call], Reply],
        *,
        only_loopback: bool = True,
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._respond = respond
        self._only_loopback = only_loopback
        self._token = None if token is None else token.encode()
        self._most = (limits or Limits()).body_bytes

    async def __call__(self, scope: Mapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        reply = self.refused(headers)
        if reply is None:
            try:
                body = await self._body(receive)
            except _TooLongError:
                reply = self._too_long()
            else:
                if body is None:  # the client has gone, or its time is up: nothing is drawn for it
                    return
                reply = await self._answer(scope, headers, body)
        elif "expect" in headers:  # whether the body still comes is up to the client: only a new connection is safe
            reply = Reply(reply.status, {**reply.headers, "connection": "close"}, reply.body)
        await deliver(reply, scope, receive, send)

    def at_once(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Answer a request that has come whole and has no query, and that `refused` lets in; not one that `is_slow`.

        Args:
            method: of HTTP, not HEAD.
            path: decoded.
            headers: names in lower case, of them at least `OF_KEYS` and `OF_FEVAL`; a key may be taken out.
            body: within the limits.
        """
        return self._reply(Call(method, path, "", self._without_keys(headers), body))

    @staticmethod
    def is_slow(path: str) -> bool:
        """Whether requests for a path take so long that a thread has to answer them."""
        return path.endswith("/feval/grade")

    def refused(self, headers: Mapping[str, str]) -> Reply | None:
        """Return the answer to a request whose headers suffice to refuse it.

        Args:
            headers: names in lower case, of them at least `OF_DOOR`.
        """
        said = refusal(headers.get("host"), headers.get("origin"), only_loopback=self._only_loopback)
        if said is not None:
            return error_reply(403, said, code="forbidden")
        if self._token is not None and not _carries(headers.get("authorization", ""), self._token):
            return error_reply(
                401,
                "This server wants its token: send the header 'Authorization: Bearer TOKEN', or give the client the token "
                "as its API key.",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        length = headers.get("content-length")
        # The server has read it: it is a number.
        return self._too_long(int(length)) if length is not None and int(length) > self._most else None

    def _too_long(self, length: int | None = None) -> Reply:
        has = "is longer" if length is None else f"has {length:,} bytes"
        return error_reply(
            413, f"The body {has}; {self._most:,} bytes are the most. Send a shorter one.", code="body_too_long"
        )

    async def _body(self, receive: _Receive) -> bytes | None:
        """Read the body; `None` where the client went away before it was complete."""
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            return bytes(message.get("body", b""))
        body = bytearray()
        while message["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > self._most:
                raise _TooLongError
            if not message.get("more_body"):
                return bytes(body)
            message = await receive()
        return None

    async def _answer(self, scope: Mapping[str, Any], headers: dict[str, str], body: bytes) -> Reply:
        method, path, query = scope["method"], scope["path"], scope["query_string"].decode("latin-1")
        # HEAD is GET without the body, which the server leaves out.
        call = Call("GET" if method == "HEAD" else method, path, query, self._without_keys(headers), body)
        return await asyncio.to_thread(self._reply, call) if self.is_slow(path) else self._reply(call)

    def _without_keys(self, headers: dict[str, str]) -> dict[str, str]:
        if self._token is not None:
            for name in OF_KEYS:
                headers.pop(name, None)
        return headers

    def _reply(self, call: Call) -> Reply:
        try:
            return self._respond(call)
        except Exception as error:  # noqa: BLE001  a bug of ours must not end the connection without a word
            _LOG.error("A request could not be answered: %s.", type(error).__name__)
            return error_reply(500, f"Something unexpected happened ({type(error).__name__}).", code="internal_error")


def _carries(authorization: str, token: bytes) -> bool:
    scheme, _, sent = authorization.partition(" ")
    return hmac.compare_digest(sent.strip().encode("utf-8", "surrogateescape"), token) and scheme.lower() == "bearer"


async def deliver(reply: Reply, scope: Mapping[str, Any], receive: _Receive, send: _Send) -> None:
    """Send a reply, whole or event by event.

    Args:
        reply: what is sent.
        scope: of the request.
        receive: ASGI's.
        send: ASGI's.
    """
    body = reply.body
    if not isinstance(body, bytes) and scope.get("http_version") == "1.0":
        body = b"".join(body)  # that version has no chunks
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
    if isinstance(body, bytes):
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await _stream(body, receive, send)


async def _stream(events: Iterable[bytes], receive: _Receive, send: _Send) -> None:
    """Send events one by one until the client has gone; others get their turn in between."""
    gone = asyncio.ensure_future(receive())  # once the body has come, what is received next is the end
    try:
        for number, event in enumerate(events, 1):
            await send({"type": "http.response.body", "body": event, "more_body": True})
            if number % _EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)
                if gone.done():
                    return
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()

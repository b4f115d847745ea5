"""Starlette applications that speak OpenAI's dialect: who may ask, bounds of bodies, errors. Shared
by all servers of feval.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any

from feval.errors import FevalError, UsageError
from feval.serving.application import Application
from feval.serving.loopback import is_loopback, refusal
from feval.serving.wire.errors import RequestError, ServingError
from feval.serving.wire.replies import Call, Reply, error_reply

try:
    import httptools  # noqa: F401  without these nothing here is of use
    import uvicorn  # noqa: F401  as httptools
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import BaseRoute, Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise UsageError(
        f"A server needs {str(error.name).partition('.')[0]}, which is not installed: pip install"
        " 'feval[serve]' (in a checkout: pip install '.[serve]'). A Python program can replay a"
        " recording without a server: `replay_http_client`."
    ) from error

_LOG = logging.getLogger("feval.serving")
_EVENTS_AT_ONCE = 16
_KEY_HEADERS = (b"authorization", b"x-api-key", b"api-key")
_LONGEST_LENGTH = 20  # digits of a Content-Length, as h11 has it
_MOST_DROPPED = 64 << 20
_LINGER_S, _LONGEST_LINGER_S = 2.0, 30.0
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of bodies, and of connections open at once, beyond which requests are answered 503."""

    body_bytes: int = 10_000_000
    body_s: float = 30.0
    connections: int = 1024


def guarded(
    routes: Sequence[BaseRoute],
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    limits: Limits | None = None,
    lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
) -> Starlette:
    """Return a Starlette application that refuses requests of web pages, checks the token (if any)
    and bounds bodies.
    """
    guard = Middleware(
        _Guard, only_loopback=is_loopback(host), token=token, limits=limits or Limits()
    )
    handlers: Any = {
        FevalError: _feval_error, HTTPException: _http_error, ClientDisconnect: _nobody,
        Exception: _bug
    }  # fmt: skip
    return Starlette(
        routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=lifespan
    )


def replay_routes(application: Application) -> list[BaseRoute]:
    """Return the routes of a recording that is served."""

    async def answer(request: Request) -> Response:
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.scope["headers"]
        }
        query = request.scope["query_string"].decode("latin-1")
        body, sender = await request.body(), request.scope.get("feval.sender")
        call = Call(request.method, request.scope["path"], query, headers, body, sender=sender)
        # Most requests take less time than a thread would take to start; only grading reads a whole
        # pool.
        slow = call.path.endswith("/feval/grade")
        reply = (
            await run_in_threadpool(application.respond, call)
            if slow
            else application.respond(call)
        )
        return response(reply, request)

    return [Route("/{path:path}", answer, methods=METHODS)]


def response(reply: Reply, request: Request) -> Response:
    """Return a reply as Starlette sends it."""
    body = reply.body
    if isinstance(body, bytes):
        return Response(body, reply.status, reply.headers)
    if request.scope["http_version"] == "1.0":  # which has no chunks
        return Response(b"".join(body), reply.status, reply.headers)
    return StreamingResponse(_paced(body), reply.status, reply.headers)


async def _paced(events: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield events, with turns for other requests in between."""
    for number, event in enumerate(events, 1):
        yield event
        if number % _EVENTS_AT_ONCE == 0:
            await asyncio.sleep(0)


class _Guard:
    """ASGI middleware: refuses web pages of other hosts, requests without the token, and bodies too
    large or too slow.

    With a token, what is behind it sees no key, and nothing that holds the token.
    """

    def __init__(
        self, app: ASGIApp, *, only_loopback: bool, token: str | None, limits: Limits
    ) -> None:
        self._app, self._only_loopback, self._limits = app, only_loopback, limits
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = scope["headers"]
            problem = self._problem(headers, scope["http_version"])
            if problem is not None:
                await _Last.of(problem)(scope, receive, send)
                return
            receive = self._bounded(receive)
            if (token := self._token) is not None:
                scope["headers"] = [
                    (name, value)
                    for name, value in headers
                    if name not in _KEY_HEADERS and token not in value
                ]
        await self._app(scope, receive, send)

    def _problem(self, fields: Sequence[tuple[bytes, bytes]], version: str) -> ServingError | None:
        headers = dict(fields)
        problem = _ambiguity(fields, headers, version)
        if problem is not None:
            return problem
        sender = (headers.get(name) for name in (b"host", b"origin", b"sec-fetch-site"))
        reason = refusal(*sender, only_loopback=self._only_loopback)
        if reason is not None:
            return RequestError(reason, status=403, code="forbidden")
        if self._token is not None and not _carries(
            headers.get(b"authorization", b""), self._token
        ):
            return RequestError(
                "This server requires its token: send the header 'Authorization: Bearer TOKEN', or"
                " give the client the token as its API key.",
                status=401,
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        length = int(headers.get(b"content-length", 0))  # httptools has checked that it is a number
        return self._too_long(f"has {length:,} bytes") if length > self._limits.body_bytes else None

    def _bounded(self, receive: Receive) -> Receive:
        loop, limits = asyncio.get_running_loop(), self._limits
        deadline: float | None = loop.time() + limits.body_s
        size = 0

        async def bounded() -> Message:
            nonlocal deadline, size
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                # Not 408, after which clients send the request again.
                raise RequestError(
                    f"The request did not arrive within {limits.body_s:g} seconds.",
                    headers={"connection": "close"},
                ) from None
            was_in_bounds = size <= limits.body_bytes
            size += len(message.get("body", b""))
            if was_in_bounds and size > limits.body_bytes:
                raise self._too_long("is longer")
            # from here on the server waits for the end of the connection
            if not message.get("more_body"):
                deadline = None
            return message

        return bounded

    def _too_long(self, what: str) -> ServingError:
        return RequestError(
            f"The body {what}; at most {self._limits.body_bytes:,} bytes are read. Send a shorter"
            " one.",
            status=413,
            code="body_too_long",
        )


def _ambiguity(
    fields: Sequence[tuple[bytes, bytes]], headers: Mapping[bytes, bytes], version: str
) -> ServingError | None:
    """Return what two readers of a request could read in two ways (RFC 9112), and httptools lets
    pass.
    """
    names = [name for name, _ in fields]
    for name in (b"host", b"origin"):
        if names.count(name) > 1:
            return RequestError(
                f"The request has several headers {name.decode().title()}; send one."
            )
    if b"host" not in headers and version != "1.0":
        return RequestError("The request has no header Host; HTTP/1.1 requires one.")
    if len(headers.get(b"content-length", b"")) > _LONGEST_LENGTH:
        return RequestError(f"The header Content-Length has more than {_LONGEST_LENGTH} digits.")
    if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        return RequestError("The only Transfer-Encoding that is read is chunked.")
    return None


class _Last(Response):
    """The last reply on a connection. What is still sent to it is read and dropped: closed on
    unread bytes, it would be lost.
    """

    @classmethod
    def of(cls, error: FevalError) -> Response:
        """Return an error as such a reply."""
        reply = error_reply(error)
        return cls(reply.body, reply.status, {**reply.headers, "connection": "close"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  as Starlette calls it
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError, FevalError):
            dropped, more = 0, True
            async with asyncio.timeout(_LONGEST_LINGER_S):
                while more and dropped <= _MOST_DROPPED:
                    async with asyncio.timeout(_LINGER_S):
                        message = await receive()
                    dropped, more = (
                        dropped + len(message.get("body", b"")),
                        message.get("more_body", False),
                    )
        await send({"type": "http.response.body"})


def _carries(authorization: bytes, token: bytes) -> bool:
    scheme, _, key = authorization.partition(b" ")
    return hmac.compare_digest(key.strip(), token) and scheme.lower() == b"bearer"


def _error(error: FevalError) -> Response:
    reply = error_reply(error)
    return Response(bytes(reply.body), reply.status, reply.headers)  # type: ignore[arg-type]  # a dict is a mapping


async def _feval_error(_: Request, error: FevalError) -> Response:
    return _Last.of(error) if getattr(error, "code", None) == "body_too_long" else _error(error)


async def _http_error(request: Request, error: HTTPException) -> Response:
    """Starlette's own errors: no such path, or another method."""
    path = request.scope["path"]
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "other methods")
        message = f"{path[:80]} takes {allowed}, not {request.method[:20]}."
    else:
        message = f"There is nothing at {path[:80]}. Give clients a base URL that ends with /v1."
    # its body was not read
    return _Last.of(RequestError(message, status=error.status_code, headers=error.headers))


async def _nobody(_: Request, __: ClientDisconnect) -> Response:
    """The client has gone away in the middle of its body."""
    return Response()


async def _bug(_: Request, error: Exception) -> Response:
    # its text could show what was sent
    _LOG.error("A request could not be answered: %s.", type(error).__name__)
    return _error(
        FevalError(f"An internal error occurred ({type(error).__name__}); the server logged it.")
    )

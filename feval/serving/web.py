"""Starlette applications that speak OpenAI's dialect: who may ask, bounds of bodies, errors. Shared by all servers of feval."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from feval.errors import FevalError, UsageError
from feval.serving.application import Application
from feval.serving.loopback import is_loopback, refusal
from feval.serving.wire.errors import RequestError, ServingError
from feval.serving.wire.replies import Call, Reply, error_reply

try:
    import uvicorn  # noqa: F401  without it nothing here is of use
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
        f"A server needs {str(error.name).partition('.')[0]}, which is not installed: pip install 'feval[serve]' (in a "
        "checkout: pip install '.[serve]'). A Python program can replay a recording without a server: `replay_http_client`."
    ) from error

_LOG = logging.getLogger("feval.serving")
_EVENTS_AT_ONCE = 16
_KEY_HEADERS = ("authorization", "x-api-key", "api-key")
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
    """Return a Starlette application that refuses requests of web pages, checks the token (if any) and bounds bodies."""
    guard = Middleware(_Guard, only_loopback=is_loopback(host), token=token, limits=limits or Limits())
    handlers: Any = {FevalError: _feval_error, HTTPException: _http_error, Exception: _bug}
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=lifespan)


def replay_routes(application: Application, *, has_token: bool = False) -> list[BaseRoute]:
    """Return the routes of a recording that is served; with `has_token` the application sees no keys."""

    async def answer(request: Request) -> Response:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
        if has_token:
            headers = {name: value for name, value in headers.items() if name not in _KEY_HEADERS}
        query = request.scope["query_string"].decode("latin-1")
        call = Call(request.method, request.scope["path"], query, headers, await request.body())
        # Most requests take less time than a thread would take to start; only grading reads a whole pool.
        slow = call.path.endswith("/feval/grade")
        reply = await run_in_threadpool(application.respond, call) if slow else application.respond(call)
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
    """ASGI middleware: refuses web pages of other hosts, requests without the token, and bodies too large or too slow."""

    def __init__(self, app: ASGIApp, *, only_loopback: bool, token: str | None, limits: Limits) -> None:
        self._app, self._only_loopback, self._limits = app, only_loopback, limits
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            problem = self._problem(dict(scope["headers"]))
            if problem is not None:
                await _error(problem)(scope, receive, send)
                return
            receive = self._bounded(receive)
        await self._app(scope, receive, send)

    def _problem(self, headers: Mapping[bytes, bytes]) -> ServingError | None:
        reason = refusal(headers.get(b"host"), headers.get(b"origin"), only_loopback=self._only_loopback)
        if reason is not None:
            return RequestError(reason, status=403, code="forbidden")
        if self._token is not None and not _carries(headers.get(b"authorization", b""), self._token):
            return RequestError(
                "This server requires its token: send the header 'Authorization: Bearer TOKEN', or give the client the token "
                "as its API key.",
                status=401,
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        length = int(headers.get(b"content-length", 0))  # the server has checked that it is a number
        if length > self._limits.body_bytes:
            # A client that waits for "100 Continue" may or may not send the body now, so its connection ends.
            return self._too_long(f"has {length:,} bytes", closes=b"expect" in headers)
        return None

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
                    f"The request did not arrive within {limits.body_s:g} seconds.", headers={"connection": "close"}
                ) from None
            size += len(message.get("body", b""))
            if size > limits.body_bytes:
                raise self._too_long("is longer", closes=True)
            if not message.get("more_body"):  # from here on the server waits for the end of the connection
                deadline = None
            return message

        return bounded

    def _too_long(self, what: str, *, closes: bool) -> ServingError:
        return RequestError(
            f"The body {what}; at most {self._limits.body_bytes:,} bytes are read. Send a shorter one.",
            status=413,
            code="body_too_long",
            headers={"connection": "close"} if closes else None,
        )


def _carries(authorization: bytes, token: bytes) -> bool:
    scheme, _, key = authorization.partition(b" ")
    return hmac.compare_digest(key.strip(), token) and scheme.lower() == b"bearer"


def _error(error: FevalError) -> Response:
    reply = error_reply(error)
    return Response(bytes(reply.body), reply.status, reply.headers)  # type: ignore[arg-type]


async def _feval_error(_: Request, error: FevalError) -> Response:
    return _error(error)


async def _http_error(request: Request, error: HTTPException) -> Response:
    """Starlette's own errors: no such path, or another method."""
    path = request.scope["path"]
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "other methods")
        message = f"{path[:80]} takes {allowed}, not {request.method[:20]}."
    else:
        message = f"There is nothing at {path[:80]}. Give clients a base URL that ends with /v1."
    return _error(RequestError(message, status=error.status_code, headers=error.headers))


async def _bug(_: Request, error: Exception) -> Response:
    if not isinstance(error, ClientDisconnect):
        _LOG.error("A request could not be answered: %s.", type(error).__name__)  # its text could show what was sent
    return _error(FevalError(f"An internal error occurred ({type(error).__name__}); the server logged it."))

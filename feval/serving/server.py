"""Servers of feval, run by uvicorn: an application behind a port, who may ask it, and the bounds of
heads, bodies and connections.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack, cast
from urllib.parse import parse_qsl, urlencode

from feval import __version__
from feval.arguments import checked
from feval.errors import FevalError, StorageError, UsageError
from feval.recording import Recording
from feval.serving.application import Application, ApplicationOptions
from feval.serving.loopback import is_loopback, refusal
from feval.serving.wire.calls import (
    KEY_HEADERS,
    Call,
    Reply,
    RequestError,
    Sender,
    ServingError,
    error_reply,
    keys_of,
)
from feval.serving.wire.dialects import error_shape
from feval.values import frozen

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import BaseRoute, Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:
    raise UsageError(
        f"A server needs {str(error.name).partition('.')[0]}, which is not installed: pip install"
        " 'feval[serve]' (in a checkout: pip install '.[serve]'). A Python program can replay a"
        " recording without a server: `replay_http_client`."
    ) from error

_BACKLOG = 2048
_MIN_TOKEN = 16
_SPARE_FILES = 64
_AT_ONCE = 16
_GRACE_S = 5
_KEEP_ALIVE_S = 120
_SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
]


class _Closable(Protocol):
    def close(self) -> None: ...


_Application = TypeVar("_Application", bound=_Closable)


class Server(Generic[_Application]):
    """Routes of an application that listens on a port; as a context manager it serves in a thread
    of its own.

    It listens from the start: clients that connect before `run` wait. `close` closes the
    application, too. Every request has to carry the token, if there is one; only a server on
    loopback needs none.

    Attributes:
        application: what is behind it.
        host: that it listens on.
        port: that it listens on.
        only_loopback: whether no other machine reaches it.

    Raises:
        UsageError: the host is empty, or other than loopback without a token, or the token is too
            short.
        StorageError: the port is taken, or the host is not this machine's.
    """

    def __init__(
        self,
        application: _Application,
        routes: Sequence[BaseRoute],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        limits: ServerLimits | None = None,
        lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
        grace_s: int | None = None,
    ) -> None:
        if not host.strip():
            raise UsageError(
                "The host to listen on is empty. Name one, such as 127.0.0.1, or 0.0.0.0 to serve"
                " every machine."
            )
        if token is None and not is_loopback(host):
            raise UsageError(
                f"{host} can be reached from other machines, and whoever reaches it could ask. Set"
                " FEVAL_SERVE_TOKEN to a token that clients have to send as their API key, or"
                " listen on 127.0.0.1."
            )
        if token is not None and (
            len(token) < _MIN_TOKEN
            or not token.isascii()
            or not token.isprintable()
            or " " in token
        ):
            raise UsageError(
                f"A token has {_MIN_TOKEN} or more ASCII characters and no blank; the one given has"
                f" {len(token)} characters. `python -c 'import secrets;"
                " print(secrets.token_urlsafe())'` makes one."
            )
        self.application, self.host = application, host
        self.only_loopback = is_loopback(host)
        self._socket = _listening(host, port)
        self.port = int(self._socket.getsockname()[1])
        limits = limits or ServerLimits()
        handlers: Any = {
            **dict.fromkeys((FevalError, ClientDisconnect, Exception), _failed),
            HTTPException: _http_error,
        }
        config = uvicorn.Config(
            Starlette(
                routes=routes,
                middleware=[
                    Middleware(
                        _Guard,
                        self.only_loopback,
                        None if token is None else token.encode(),
                        limits,
                    )
                ],
                exception_handlers=handlers,
                lifespan=lifespan,
            ),
            http=BoundedHeads,
            ws="none",
            log_config=None,
            log_level="critical",  # tracebacks could show keys
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("server", f"feval/{__version__}")],
            # as `BoundedHeads` reads it
            limit_concurrency=_within_files(limits.connections),
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=grace_s,
            backlog=_BACKLOG,
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    @property
    def url(self) -> str:
        """The base URL for clients; `url_of` returns that of a run."""
        return self.url_of(None)

    def url_of(self, run: str | None) -> str:
        """Return the base URL for the clients of a run; with `None`, their key or header names
        it.
        """
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104  not listened on
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}{'' if run is None else f'/run/{run}'}/v1"

    def run(self) -> int:
        """Serve in this thread until SIGINT, SIGTERM or `stop`, then finish open requests and close
        the application.

        Returns:
            The number of the signal; 0 without one.
        """
        seen: list[int] = []

        def handle(number: int, _: FrameType | None) -> None:
            self._uvicorn.should_exit = True
            seen.append(number)

        # uvicorn captures SIGINT and SIGTERM, and raises them again when it has ended
        with _handled(handle):
            self._serve()
        return seen[0] if seen else 0

    def stop(self) -> None:
        """Ask the server to end, from any thread."""
        self._uvicorn.should_exit = True

    def close(self) -> None:
        """Stop listening and close the application; for a server that was not run."""
        self._socket.close()
        self.application.close()

    def _serve(self) -> None:
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self.close()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._serve, name="feval-serve", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            # A uvicorn that is stopped while it starts leaves its sockets open, and uvloop then
            # waits for them forever.
            while self._thread.is_alive() and not self._uvicorn.started:
                time.sleep(0.001)
            self.stop()
            self._thread.join()


def replay_server(application: Application, **options: Any) -> Server[Application]:
    """Return a server of recordings; the options are those of `Server`."""
    return Server(application, replay_routes(application), grace_s=_GRACE_S, **options)


@checked
def serve(
    recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    **options: Unpack[ApplicationOptions],
) -> Server[Application]:
    """Open recordings and listen, as OpenAI would.

    In a `with` block the server runs in a thread: `with serve("my-recording") as server` gives
    clients the base URL `server.url`.

    Args:
        recording: what `feval.load` takes: a folder, an open recording, or several.
        host: to listen on; any but loopback needs a token.
        port: 0 for any free one.
        token: that every request has to carry.
        options: of `Application.open`: datasets, llms, seed, order, recycle, strict, few_shot,
            allow_mismatch, prices, billing, ledger, resume.

    Raises:
        FevalError: whatever `Application.open` and `Server` raise.
    """
    application = Application.open(recording, **options)
    try:
        return replay_server(application, host=host, port=port, token=token)
    except BaseException:
        application.close()
        raise


class _Listener(socket.socket):
    """A socket from which a loop accepts a few connections at a time: a crowd would take all files
    before any is dropped.
    """

    _accepted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection; `BlockingIOError` after some, as if there were none, so that
        the loop asks again.
        """
        self._accepted += 1
        if self._accepted % _AT_ONCE == 0:
            raise BlockingIOError
        return super().accept()


def _listening(host: str, port: int) -> socket.socket:
    # With its protocol named, asyncio sets TCP_NODELAY on what it accepts; else each reply waits 40
    # ms for the client's ACK.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = _Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # not on Windows, where SO_REUSEADDR would share a port that is in use
        if hasattr(socket, "SO_REUSEPORT"):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        advice = "Name another --port, or 0 for any free one."
        if getattr(error, "errno", errno.EACCES) not in {errno.EADDRINUSE, errno.EACCES}:
            advice = "Name a --host that is an address of this machine, such as 127.0.0.1."
        why = getattr(error, "strerror", None) or error
        raise StorageError(f"Nothing can listen on {host}, port {port}: {why}. {advice}") from error
    return listener


def _within_files(connections: int) -> int:
    """Lower a number of connections to the files that this process may open."""
    with suppress(ImportError):  # Windows
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            return max(1, min(connections, files - _SPARE_FILES))
    return connections


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the polite signals meanwhile, in the main thread, which alone receives them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, handle)
        for number in _SIGNALS
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_MOST_BYTES = 1 << 16
_MOST_S = 30.0
_SHARE = 4  # of all connections, one address of another machine may hold a fourth
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length:"
    b" 0\r\n\r\n"
)


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol on httptools, with a bound on the bytes of a request's head and trailers,
    and the seconds of its head.

    Beyond the bound of connections (`limit_concurrency` of the configuration), or a fourth of it
    from one address that is not loopback, the connection ends that has been quiet for longest: on
    which no complete request is being answered. Only where there is none, the request of the new
    connection is answered 503.

    httptools and not h11, which accepts bare line feeds, folded headers, and a Content-Length
    beside chunks: what another server in front may read as two requests. Overridden are callbacks
    of asyncio and of httptools, and uvicorn's at the end of a reply.
    """

    _connection: asyncio.BaseTransport
    _sender: Sender
    address: str | None
    _deadline: asyncio.TimerHandle | None = None
    _is_idle = True
    _in_head = _in_trailers = False
    _head_bytes = 0
    heard = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._connection = transport
        self.heard = monotonic()
        host, _ = self.client or (None, 0)
        self.address = None if host is None or is_loopback(host) else host
        self._sender = transport.is_closing, True
        self._wait()
        self._is_surplus()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what came, and count and time it while a head is incomplete."""
        if self._is_idle:  # blank lines between requests would keep an idle connection open
            data = data.lstrip(b"\r\n")
            if not data:
                return
        self.heard = monotonic()
        were_trailers = self._in_trailers
        super().data_received(data)
        if self._in_head or (were_trailers and self._in_trailers):
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_BYTES:
                self._connection.write(_TOO_LARGE)  # type: ignore[attr-defined]  # of a transport that writes
                self._connection.close()
            elif self._in_head and self._deadline is None:
                self._wait()

    def on_message_begin(self) -> None:
        """Note that a head begins, and of which connection."""
        self._is_idle, self._in_head, self._head_bytes = False, True, 0
        super().on_message_begin()
        self.scope["feval.sender"] = self._sender  # type: ignore[typeddict-unknown-key]  # our own

    def on_headers_complete(self) -> None:
        """Note that the head is complete."""
        self._in_head = False
        self._arrived()
        self.limit_concurrency = 0 if self._is_surplus() else None  # at 0, uvicorn answers 503
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """Note that a chunk's bytes come, or trailers after the last one."""
        self._in_trailers, self._head_bytes = True, 0

    def on_body(self, body: bytes) -> None:
        """Note that no trailers came."""
        self._in_trailers = False
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the body is complete."""
        self._is_idle, self._in_trailers = True, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note when the connection became quiet."""
        self.heard = monotonic()
        super().on_response_complete()

    @property
    def is_quiet(self) -> bool:
        """Whether no complete request is being answered."""
        if self.pipeline:
            return False
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body  # type: ignore[redundant-expr]  # before the first

    def _is_surplus(self) -> bool:
        """End the connections that have been quiet for longest, until the bounds hold; return
        whether they still do not.
        """
        most = cast("int", self.config.limit_concurrency)
        peers = cast("set[BoundedHeads]", self.connections)
        share = max(most // _SHARE, 1)
        if len(peers) <= share:
            return False
        own = [peer for peer in peers if self.address is not None and peer.address == self.address]
        return self._exceeds(own, share) or self._exceeds(peers, most)

    def _exceeds(self, peers: Collection[BoundedHeads], most: int) -> bool:
        surplus = len(peers) - most
        if surplus <= 0:
            return False
        quiet = [peer for peer in peers if peer is not self and peer.is_quiet]
        for peer in nsmallest(surplus, quiet, key=lambda peer: peer.heard):
            self.connections.discard(peer)  # it may yet have to flush what its client does not read
            peer.transport.close()
        return surplus > len(quiet)

    def _wait(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(_MOST_S, self._connection.close)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


_LOG = logging.getLogger("feval.serving")
_EVENTS_AT_ONCE = 16
_KEY_HEADERS = {name.encode() for name in ("authorization", *KEY_HEADERS)}
_LONGEST_LENGTH = 20  # digits of a Content-Length, as h11 has it
_MOST_DROPPED = 64 << 20
_LINGER_S, _LONGEST_LINGER_S = 2.0, 30.0
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@frozen
class ServerLimits:
    """Bounds of bodies, and of connections open at once, beyond which requests are answered 503."""

    body_bytes: int = 10_000_000
    body_s: float = 30.0
    connections: int = 1024


async def replayed(application: Application, request: Request) -> Reply:
    """Return what an application replies to a request."""
    headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]
    }
    query = request.scope["query_string"].decode("latin-1")
    body, sender = await request.body(), request.scope.get("feval.sender")
    call = Call(request.method, request.scope["path"], query, headers, body, sender=sender)
    # Most requests take less time than a thread would take to start; only grading reads a whole
    # pool.
    if call.path.endswith("/feval/grade"):
        return await run_in_threadpool(application.respond, call)
    return application.respond(call)


def replay_routes(application: Application) -> list[BaseRoute]:
    """Return the routes of a recording that is served."""

    async def answer(request: Request) -> Response:
        return response(await replayed(application, request), request)

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


@dataclass
class _Guard:
    """ASGI middleware: refuses web pages of other hosts, requests without the token, and bodies too
    large or too slow.

    With a token, what is behind it sees no key, and nothing that holds the token.
    """

    app: ASGIApp
    only_loopback: bool
    token: bytes | None
    limits: ServerLimits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = scope["headers"]
            problem = self._problem(headers, scope)
            if problem is not None:
                await _last(problem, scope)(scope, receive, send)
                return
            receive = self._bounded(receive)
            if (token := self.token) is not None:
                scope["headers"] = [
                    (name, value)
                    for name, value in headers
                    if name not in _KEY_HEADERS and token not in value
                ]
                sent = parse_qsl(scope["query_string"], keep_blank_values=True)
                rest = [pair for pair in sent if pair[0] != b"key" and token not in pair[1]]
                scope["query_string"] = urlencode(rest).encode()
        await self.app(scope, receive, send)

    def _problem(self, fields: Sequence[tuple[bytes, bytes]], scope: Scope) -> ServingError | None:
        headers, names = dict(fields), [name for name, _ in fields]
        # what two readers could read in two ways (RFC 9112), and httptools lets pass
        for name in (b"host", b"origin"):
            if names.count(name) > 1:
                return RequestError(
                    f"The request has several headers {name.decode().title()}; send one."
                )
        if b"host" not in headers and scope["http_version"] != "1.0":
            return RequestError("The request has no header Host; HTTP/1.1 requires one.")
        if len(headers.get(b"content-length", b"")) > _LONGEST_LENGTH:
            return RequestError(
                f"The header Content-Length has more than {_LONGEST_LENGTH} digits."
            )
        if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            return RequestError("The only Transfer-Encoding that is read is chunked.")
        sender = (headers.get(name) for name in (b"host", b"origin", b"sec-fetch-site"))
        reason = refusal(*sender, only_loopback=self.only_loopback)
        if reason is not None:
            return RequestError(reason, status=403, code="forbidden")
        texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in fields}
        keys = keys_of(texts, scope["query_string"].decode("latin-1"))
        if (token := self.token) is not None and not any(
            hmac.compare_digest(key.encode("latin-1", "replace"), token) for key in keys
        ):
            return RequestError(
                "This server requires its token: send the header 'Authorization: Bearer TOKEN', or"
                " give the client the token as its API key.",
                status=401,
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        length = int(headers.get(b"content-length", 0))  # httptools has checked that it is a number
        return self._too_long(f"has {length:,} bytes") if length > self.limits.body_bytes else None

    def _bounded(self, receive: Receive) -> Receive:
        loop, limits = asyncio.get_running_loop(), self.limits
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
            f"The body {what}; at most {self.limits.body_bytes:,} bytes are read. Send a shorter"
            " one.",
            status=413,
            code="body_too_long",
        )


class _Last(Response):
    """The last reply on a connection. What is still sent to it is read and dropped: closed on
    unread bytes, it would be lost.
    """

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
                    dropped += len(message.get("body", b""))
                    more = message.get("more_body", False)
        await send({"type": "http.response.body"})


def _last(error: Exception, scope: Scope) -> Response:
    reply = error_reply(error, error_shape(scope["path"]))
    return _Last(reply.body, reply.status, {**reply.headers, "connection": "close"})


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):  # in the middle of its body
        return Response()
    if getattr(error, "code", None) == "body_too_long":
        return _last(error, request.scope)
    return response(error_reply(error, error_shape(request.scope["path"])), request)


async def _http_error(request: Request, error: HTTPException) -> Response:
    """Starlette's own errors: no such path, or another method."""
    path = request.scope["path"]
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "other methods")
        message = f"{path[:80]} takes {allowed}, not {request.method[:20]}."
    else:
        message = f"There is nothing at {path[:80]}. Give clients a base URL that ends with /v1."
    # its body was not read
    problem = RequestError(message, status=error.status_code, headers=error.headers)
    return _last(problem, request.scope)

"""A whole program on a recording: `with feval.replaying("my-recording"): ...`.

Requests of httpx, httpx2, requests and aiohttp are answered from the recording, whatever their host
is, and every other connection is refused. What is patched is the place where each library sends a
request; what refuses is one audit hook (PEP 578), which is installed at the first use and does
nothing outside.
"""

from __future__ import annotations

import functools
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.client import responses
from io import BytesIO
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote, unquote, urlsplit

from feval.errors import UsageError
from feval.serving.application import ApplicationOptions
from feval.serving.loopback import is_loopback
from feval.serving.transport import AsyncReplayTransport, ReplayTransport, application_path

if TYPE_CHECKING:
    from feval.serving.transport import Source

_OLLAMA = 11434
_ACTIVE: list[_Replaying] = []
_LOCK = threading.RLock()
_HOOKED, _LOOKING_UP = threading.Event(), threading.local()


class _Replaying:
    """One `with` block."""

    def __init__(self, replay: ReplayTransport, allow: Sequence[str]) -> None:
        self.replay = replay
        self.asynchronous = AsyncReplayTransport(replay.application, run=replay.run)
        self._allowed = {host.lower() for host in allow}
        self._server = ExitStack()
        self._url = ""

    def lets_pass(self, host: str, port: int | None = None) -> bool:
        """Whether a connection is made."""
        name = host.lower().rstrip(".").removeprefix("::ffff:")
        own = name in ("", "0.0.0.0", "::") or is_loopback(name)  # noqa: S104  nothing listens
        return name in self._allowed or (own and port != _OLLAMA)

    def resolve(self, host: str) -> None:
        """Let the addresses of an allowed host pass, too."""
        if host.lower() in self._allowed and not getattr(_LOOKING_UP, "now", False):
            _LOOKING_UP.now = True
            try:
                with suppress(OSError):
                    self._allowed |= {str(own[4][0]) for own in socket.getaddrinfo(host, None)}
            finally:
                _LOOKING_UP.now = False

    def url(self) -> str:
        """A server on loopback, for clients that take no transport."""
        from feval.serving.server import Server, replay_routes  # needs the extra `serve`

        with _LOCK:
            if not self._url:
                routes = replay_routes(self.replay.application)
                server = self._server.enter_context(Server(ExitStack(), routes))
                self._url = server.url.removesuffix("/v1")
        return self._url

    def close(self) -> None:
        self._server.close()


@contextmanager
def replaying(
    recording: Source = None,
    *,
    run: str = "default",
    allow: Sequence[str] = (),
    **options: Unpack[ApplicationOptions],
) -> Iterator[ReplayTransport]:
    """Answer what the program asks of LLMs from a recording, and refuse every other connection.

    It holds for the whole process, all threads included; blocks nest, and the innermost answers.
    Libraries are patched that are imported when the block begins: httpx, httpx2, requests, aiohttp
    (which needs the extra `serve`). Refused are TCP connections, and lookups of names, that Python
    makes: not those of uvloop, gRPC and other processes.

    Args:
        recording: what `feval.load` takes, or an open `feval.serving.Application`.
        run: name of the run: NAME, NAME@R for replicate R, or NAME@recorded.
        allow: hosts that may be reached; loopback may, but for Ollama's port.
        options: of `feval.serving.Application.open`.

    Yields:
        The transport that answers, with `ledger()`, `grade(answers)` and `reset()`.

    Raises:
        FevalError: whatever `Application.open` raises; inside, UsageError where another connection
            is tried.
    """
    if isinstance(allow, str):
        raise UsageError(f"allow takes a list of hosts, such as allow=[{allow!r}].")
    with ReplayTransport(recording, run=run, **options) as replay, ExitStack() as stack:
        own = _Replaying(replay, allow)
        stack.callback(own.close)
        with _LOCK:
            _ACTIVE.append(own)
            _patch()
        try:
            yield replay
        finally:
            with _LOCK:
                _ACTIVE.remove(own)
                if not _ACTIVE:
                    _UNDO.close()


_UNDO = ExitStack()
_PATCHED: set[str] = set()


def _patch() -> None:
    """Patch the libraries that are imported, until the last block ends."""
    if not _HOOKED.is_set():
        _HOOKED.set()
        sys.addaudithook(_refuse)
    for module, kind, name, make in _PATCHES:
        own = f"{module}.{kind}"
        if module in sys.modules and own not in _PATCHED:
            owner = getattr(sys.modules[module], kind)
            before = getattr(owner, name)
            setattr(owner, name, make(before))
            _PATCHED.add(own)
            _UNDO.callback(_PATCHED.discard, own)
            _UNDO.callback(setattr, owner, name, before)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("socket.connect", "socket.getaddrinfo") or not (active := _ACTIVE[-1:]):
        return
    own = active[0]
    host, port = arguments[:2]
    if event == "socket.connect":
        if not isinstance(arguments[1], tuple):
            return  # of this machine
        host, port = arguments[1][:2]
    if isinstance(host, bytes | bytearray):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str):
        return
    if not own.lets_pass(host, port):
        raise _refused(host)
    if event == "socket.getaddrinfo":
        own.resolve(host)


def _refused(host: str) -> UsageError:
    return UsageError(
        f"A connection to {host[:80]} was refused, since `feval.replaying` is active. Requests to"
        " LLMs are answered from the recording where their client is imported before the block and"
        f" sends them through httpx, httpx2, requests or aiohttp; else allow={[host]!r:.100}."
    )


def _answering(method: str, host: str, port: int | None, path: str) -> _Replaying | None:
    """The block whose recording answers a request, if any; `UsageError` if nobody may."""
    for block in _ACTIVE[-1:]:
        if block.lets_pass(host, port):
            break
        # other sites have lists of models, too, so that only a whole path is one of ours
        is_ours = method.upper() == "POST" or path.endswith("/v1/models")
        own = application_path(path) if is_ours else path
        if not block.replay.application.answers(method.upper(), own):
            raise _refused(host)
        return block
    return None


_Handler = Callable[..., Any]


def _httpx(before: _Handler) -> _Handler:
    @functools.wraps(before)
    def handle(self: Any, request: Any) -> Any:
        url = request.url
        if own := _answering(request.method, url.host, url.port, url.path):
            return own.replay.handle_request(request)
        return before(self, request)

    return handle


def _async_httpx(before: _Handler) -> _Handler:
    @functools.wraps(before)
    async def handle(self: Any, request: Any) -> Any:
        url = request.url
        if own := _answering(request.method, url.host, url.port, url.path):
            return await own.asynchronous.handle_async_request(request)
        return await before(self, request)

    return handle


class _Body(BytesIO):
    """A body that is closed at its end, as a connection is."""

    @property
    def closed(self) -> bool:
        return super().closed or not self.getbuffer()[self.tell() :]


def _requests(before: _Handler) -> _Handler:
    @functools.wraps(before)
    def send(self: Any, request: Any, *args: Any, **options: Any) -> Any:
        url, body = urlsplit(request.url), request.body or b""
        path = unquote(url.path)
        own = _answering(request.method, url.hostname or "", url.port, path)
        if own is None:
            return before(self, request, *args, **options)
        if not isinstance(body, str | bytes):
            body = body.read() if hasattr(body, "read") else b"".join(body)
        headers = {
            name: value.decode("latin-1") if isinstance(value, bytes) else value
            for name, value in request.headers.items()
        }
        raw = body.encode() if isinstance(body, str) else body
        reply = own.replay.answer(request.method, path, url.query, headers, raw)
        content = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
        response = sys.modules["urllib3"].HTTPResponse(
            _Body(content), dict(reply.headers), reply.status, reason=responses[reply.status],
            preload_content=False,
        )  # fmt: skip
        return self.build_response(request, response)

    return send


def _aiohttp(before: _Handler) -> _Handler:
    @functools.wraps(before)
    async def request(self: Any, method: str, url: Any, **options: Any) -> Any:
        whole = urlsplit(str(self._build_url(url)))
        path = unquote(whole.path)
        if own := _answering(method, whole.hostname or "", whole.port, path):
            given = dict(options.get("headers") or {})
            sent = {n: value for n, value in given.items() if n.lower() not in _THEIRS}
            named = any(name.lower() == "x-feval-run" for name in (*self.headers, *sent))
            path = application_path(path)
            if not named and not path.startswith("/run/"):
                sent["X-Feval-Run"] = own.replay.run
            query = f"?{whole.query}" if whole.query else ""
            options |= {"headers": sent, "proxy": None}
            url = f"{own.url()}{quote(path, safe='/:@')}{query}"
        return await before(self, method, url, **options)

    return request


_THEIRS = {"host", "origin"}

_PATCHES: Sequence[tuple[str, str, str, Callable[[_Handler], _Handler]]] = (
    ("httpx", "HTTPTransport", "handle_request", _httpx),
    ("httpx", "AsyncHTTPTransport", "handle_async_request", _async_httpx),
    ("httpx2", "HTTPTransport", "handle_request", _httpx),
    ("httpx2", "AsyncHTTPTransport", "handle_async_request", _async_httpx),
    ("requests.adapters", "HTTPAdapter", "send", _requests),
    ("aiohttp", "ClientSession", "_request", _aiohttp),
)

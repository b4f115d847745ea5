"""A whole program on a recording: `with feval.replaying("my-recording"): ...`.

Requests of httpx, httpx2, requests and aiohttp are answered from the recording, whatever their host
is, and every other connection is refused. What is patched is the place where each library sends a
request; what refuses is one audit hook (PEP 578), which is installed at the first use and does
nothing outside.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from feval.errors import UsageError
from feval.serving.application import ApplicationOptions
from feval.serving.loopback import is_loopback
from feval.serving.transport import AsyncReplayTransport, ReplayTransport, application_path

if TYPE_CHECKING:
    from feval.serving.transport import Source

_OLLAMA = 11434
_ACTIVE: list[_Replaying] = []
_HOOKED = threading.Event()


class _Replaying:
    """One `with` block."""

    def __init__(self, replay: ReplayTransport, allow: Sequence[str]) -> None:
        self.replay = replay
        self.asynchronous = AsyncReplayTransport(replay.application, run=replay.run)
        self._allowed = {host.lower() for host in allow}
        self._lock, self._server = threading.Lock(), ExitStack()
        self._url = ""

    def takes(self, method: str, host: str, port: int | None, path: str) -> bool:
        """Whether the recording answers a request; `UsageError` if nobody may."""
        if self.lets_pass(host, port):
            return False
        # other sites have lists of models, too, so that only a whole path is one of ours
        own = application_path(path) if method.upper() == "POST" else path
        if not self.replay.application.answers(own):
            raise _refused(host)
        return True

    def lets_pass(self, host: str, port: int | None = None) -> bool:
        """Whether a connection is made."""
        return host.lower() in self._allowed or (is_loopback(host) and port != _OLLAMA)

    def resolve(self, host: str) -> None:
        """Let the addresses of an allowed host pass, too."""
        if host.lower() in self._allowed and not _is_address(host):
            with suppress(OSError):
                found = socket.gethostbyname_ex(host)[2]
                self._allowed |= {*found}

    def url(self) -> str:
        """A server on loopback, for clients that take no transport."""
        from feval.serving.server import Server, replay_routes  # needs the extra `serve`

        with self._lock:
            if not self._url:
                routes = replay_routes(self.replay.application)
                server = self._server.enter_context(Server(ExitStack(), routes))
                self._url = server.url_of(self.replay.run).removesuffix("/v1")
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
    (which needs the extra `serve`). Connections that Python does not make are not refused: those of
    uvloop, gRPC and other processes.

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
        for module, kind, name, make in _PATCHES:
            if module in sys.modules:
                owner = getattr(sys.modules[module], kind)
                before = getattr(owner, name)
                setattr(owner, name, make(own, before))
                stack.callback(setattr, owner, name, before)
        if not _HOOKED.is_set():
            _HOOKED.set()
            sys.addaudithook(_refuse)
        _ACTIVE.append(own)
        stack.callback(_ACTIVE.remove, own)
        yield replay


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _ACTIVE or event not in ("socket.connect", "socket.getaddrinfo"):
        return
    own = _ACTIVE[-1]
    host, port = arguments[:2]
    if event == "socket.connect":
        if not isinstance(arguments[1], tuple):
            return  # of this machine
        host, port = arguments[1][:2]
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


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


_Make = Callable[[_Replaying, Callable[..., Any]], Callable[..., Any]]


def _httpx(own: _Replaying, before: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(before)
    def handle(self: Any, request: Any) -> Any:
        url = request.url
        if own.takes(request.method, url.host, url.port, url.path):
            return own.replay.handle_request(request)
        return before(self, request)

    return handle


def _async_httpx(own: _Replaying, before: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(before)
    async def handle(self: Any, request: Any) -> Any:
        url = request.url
        if own.takes(request.method, url.host, url.port, url.path):
            return await own.asynchronous.handle_async_request(request)
        return await before(self, request)

    return handle


def _requests(own: _Replaying, before: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(before)
    def send(self: Any, request: Any, *args: Any, **options: Any) -> Any:
        url = urlsplit(request.url)
        if not own.takes(request.method, url.hostname or "", url.port, url.path):
            return before(self, request, *args, **options)
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        reply = own.replay.answer(request.method, url.path, url.query, request.headers, body)
        content = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
        urllib3 = sys.modules["urllib3"]
        raw = urllib3.HTTPResponse(
            BytesIO(content), dict(reply.headers), reply.status, preload_content=False
        )
        return self.build_response(request, raw)

    return send


def _aiohttp(own: _Replaying, before: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(before)
    async def request(self: Any, method: str, url: Any, **options: Any) -> Any:
        whole = urlsplit(str(self._build_url(url)))
        if own.takes(method, whole.hostname or "", whole.port, whole.path):
            query = f"?{whole.query}" if whole.query else ""
            url = f"{own.url()}{application_path(whole.path)}{query}"
        return await before(self, method, url, **options)

    return request


_PATCHES: Sequence[tuple[str, str, str, _Make]] = (
    ("httpx", "HTTPTransport", "handle_request", _httpx),
    ("httpx", "AsyncHTTPTransport", "handle_async_request", _async_httpx),
    ("httpx2", "HTTPTransport", "handle_request", _httpx),
    ("httpx2", "AsyncHTTPTransport", "handle_async_request", _async_httpx),
    ("requests.adapters", "HTTPAdapter", "send", _requests),
    ("aiohttp", "ClientSession", "_request", _aiohttp),
)

"""Servers: an application behind a port, run by uvicorn."""

from __future__ import annotations

import errno
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack

from feval import __version__
from feval.arguments import checked
from feval.errors import StorageError, UsageError
from feval.serving.application import Application, ApplicationOptions
from feval.serving.loopback import is_loopback
from feval.serving.web import Limits, guarded, replay_routes

import uvicorn  # isort: skip  # after `web`, which says how to install it

from starlette.routing import BaseRoute

from feval.recording.reader import Recording
from feval.serving.heads import BoundedHeads

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
        limits: Limits | None = None,
        lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
        grace_s: int | None = None,
    ) -> None:
        if not host.strip():
            raise UsageError(
                "The host to listen on is empty. Name one, such as 127.0.0.1, or 0.0.0.0 to serve"
                " every machine."
            )
        _check_token(host, token)
        self.application, self.host = application, host
        self.only_loopback = is_loopback(host)
        self._socket = _listening(host, port)
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            guarded(routes, host=host, token=token, limits=limits, lifespan=lifespan),
            http=BoundedHeads,
            ws="none",
            log_config=None,
            log_level="critical",  # tracebacks could show keys
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("server", f"feval/{__version__}")],
            # as `BoundedHeads` reads it
            limit_concurrency=_within_files((limits or Limits()).connections),
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


def replay_server(
    application: Application,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    limits: Limits | None = None,
) -> Server[Application]:
    """Return a server of recordings; see `serve` and `Server`."""
    routes = replay_routes(application)
    return Server(
        application, routes, host=host, port=port, token=token, limits=limits, grace_s=_GRACE_S
    )


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
        FevalError: whatever `Application.open` and `replay_server` raise.
    """
    application = Application.open(recording, **options)
    try:
        return replay_server(application, host=host, port=port, token=token)
    except BaseException:
        application.close()
        raise


def _check_token(host: str, token: str | None) -> None:
    if token is None and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, and whoever reaches it could ask. Set"
            " FEVAL_SERVE_TOKEN to a token that clients have to send as their API key, or listen"
            " on 127.0.0.1."
        )
    if token is not None and (
        len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise UsageError(
            f"A token has {_MIN_TOKEN} or more ASCII characters and no blank; the one given has"
            f" {len(token)} characters. `python -c 'import secrets;"
            " print(secrets.token_urlsafe())'` makes one."
        )


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
        is_elsewhere = isinstance(error, OSError) and error.errno not in {
            errno.EADDRINUSE,
            errno.EACCES,
        }
        advice = "Name another --port, or 0 for any free one."
        if is_elsewhere:
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

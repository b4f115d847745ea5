"""An application behind a port, for clients in any language: uvicorn with httptools (and uvloop, where there is one).

With its parser in Python alone, uvicorn answers about 7,000 requests per second of CPU time before anything is looked up; with
these two several times that (`benchmarks/serving.py`), so the extra `serve` brings them.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from feval import __version__
from feval.errors import UsageError
from feval.serving.application import Application
from feval.serving.asgi import Door, Limits
from feval.serving.connections import Connection, Uvicorn
from feval.serving.kept import Kept
from feval.serving.loopback import cannot_listen, is_loopback

if TYPE_CHECKING:
    from feval.cards.prices import PriceList
    from feval.recording.reader import Recording

__all__ = ["Server", "serve"]

_BACKLOG = 2048
_HEADS_BYTES = 8 << 20
_SHORTEST_TOKEN = 16
_SPARE_FILES = 64
_GRACE_S = 5
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]


class Server:
    """An application that listens; as a context manager it serves in a thread of its own.

    It listens from the start: whoever connects before `run` waits.

    Args:
        application: closed when the server is.
        host: to listen on.
        port: 0 for any that is free.
        token: that every request has to carry; needed unless the host is loopback.
        limits: of connections and requests.

    Attributes:
        port: listened on.
        only_loopback: whether no other machine reaches it.

    Raises:
        UsageError: the extra `serve` is missing, another host without a token, or no good token.
        StorageError: the port is taken, or the host is not this machine's.
    """

    def __init__(
        self,
        application: Application,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        _check_extra()
        self.application, self.host = application, host
        self.only_loopback = is_loopback(host)
        _check_token(host, token, only_loopback=self.only_loopback)
        self._socket = _listening(host, port)
        self.port = int(self._socket.getsockname()[1])
        limits = _within_files(limits or Limits())
        door = Door(application.respond, only_loopback=self.only_loopback, token=token, limits=limits)
        self._uvicorn = _uvicorn(door, limits)
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    @property
    def url(self) -> str:
        """The base URL for clients; `url_of` has that of a run."""
        return self.url_of(None)

    def url_of(self, run: str | None) -> str:
        """The base URL for the clients of a run; `None` leaves the run to their key or header."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104  not listened on: asked
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}{'' if run is None else f'/run/{run}'}/v1"

    def run(self) -> int:
        """Serve in this thread until SIGINT, SIGTERM or `stop`, then finish what is being answered and close the application.

        Returns:
            The number of the signal; 0 where there was none.
        """
        seen: list[int] = []

        def handle(number: int, _: FrameType | None) -> None:
            self._uvicorn.force_exit = bool(seen)  # a second one waits for nobody
            self._uvicorn.should_exit = True
            seen.append(number)

        with _handled(handle):
            self._serve()
        return seen[0] if seen else 0

    @property
    def busy(self) -> int:
        """How many requests are being answered, or streams sent."""
        return len(self._uvicorn.server_state.tasks)

    def stop(self) -> None:
        """Ask the server to end, from any thread."""
        self._uvicorn.should_exit = True

    def close(self) -> None:
        """Listen no longer and close the application; for a server that was not run."""
        self._socket.close()
        self.application.close()

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._uvicorn.serve(sockets=[self._socket]))
        finally:
            self.close()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._serve, name="feval-serve", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()


def serve(
    recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    datasets: str | Sequence[str] | None = None,
    llms: str | Sequence[str] | None = None,
    seed: int = 0,
    order: str = "seeded",
    recycle: bool = False,
    strict: bool = False,
    few_shot: str = "none",
    allow_mismatch: bool = False,
    prices: str | Path | PriceList | None = None,
    billing: str = "once",
    ledger: str | Path | None = None,
    resume: bool = False,
) -> Server:
    """Open recordings and listen, as OpenAI would.

    In a `with` block the server runs in a thread: `with serve("my-recording") as server` gives clients the base URL `server.url`.

    Args:
        recording: what `feval.load` takes: a folder, an open recording, or several.
        host: to listen on; any but loopback needs a token.
        port: 0 for any that is free.
        token: that every request has to carry.
        datasets: only these.
        llms: only these.
        seed: what every draw is made from.
        order: of runs that name none: "seeded" or "recorded".
        recycle: whether a used-up pool starts over.
        strict: whether only requests that were recorded are answered.
        few_shot: "last": of several recorded questions in a message the last one is asked.
        allow_mismatch: whether requests are answered that no recorded CoT can answer.
        prices: as in `feval.load`.
        billing: as in `feval.load`.
        ledger: file to write every request to.
        resume: whether to go on where that file ends.

    Raises:
        FevalError: what `Application.open` and `Server` raise.
    """
    application = Application.open(
        recording, datasets=datasets, llms=llms, seed=seed, order=order, recycle=recycle, strict=strict, few_shot=few_shot,
        allow_mismatch=allow_mismatch, prices=prices, billing=billing, ledger=ledger, resume=resume,
    )  # fmt: skip
    try:
        return Server(application, host=host, port=port, token=token)
    except BaseException:
        application.close()
        raise


def _check_extra() -> None:
    try:
        import httptools
        import uvicorn
    except ImportError as error:
        raise UsageError(
            f"Serving over HTTP needs {error.name}, which is not installed: pip install 'feval[serve]'. "
            "Within Python, `replay_http_client` needs no server."
        ) from error
    del httptools, uvicorn


def _check_token(host: str, token: str | None, *, only_loopback: bool) -> None:
    if not host.strip():
        raise UsageError(
            "The host to listen on is empty. Name one, such as 127.0.0.1, or 0.0.0.0 for every machine's use."
        )
    if token is None and not only_loopback:
        raise UsageError(
            f"{host} can be reached from other machines, and what is served holds the recording's texts. Name a --token (or "
            "FEVAL_SERVE_TOKEN) that clients have to send as their API key, or listen on 127.0.0.1."
        )
    if token is not None and (
        len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise UsageError(
            f"A token has {_SHORTEST_TOKEN} or more ASCII characters and no blank; the one given has {len(token)} characters. "
            "`python -c 'import secrets; print(secrets.token_urlsafe())'` makes one."
        )


def _listening(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if hasattr(socket, "SO_REUSEPORT"):  # not on Windows, where SO_REUSEADDR would share a port that is in use
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        raise cannot_listen(host, port, error) from error
    return listener


def _within_files(limits: Limits) -> Limits:
    """Allow no more connections than this process may have files."""
    with suppress(ImportError):  # Windows
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            return replace(limits, connections=max(1, min(limits.connections, files - _SPARE_FILES)))
    return limits


def _uvicorn(door: Door, limits: Limits) -> Any:
    import uvicorn

    connection: Any = functools.partial(Connection, limits=limits, heads=Kept(_HEADS_BYTES))
    config = uvicorn.Config(
        door,
        http=connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",  # a request line or header that is none is the client's own affair
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=[("server", f"feval/{__version__}")],
        timeout_keep_alive=limits.idle_s,
        timeout_graceful_shutdown=_GRACE_S,
        backlog=_BACKLOG,
    )
    return Uvicorn(config)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Send the polite signals there meanwhile; only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, handle) for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Replay inside an HTTP client: the official `openai` client asks a recording in this process,
without a socket.

    client = OpenAI(api_key="anything", http_client=replay_http_client("my-recording"))

An HTTP client hands every request to its transport. These transports hand it to an `Application`
and return its reply, so that everything above them (models, streams, errors, retries) is the
client's own. Host, base URL and API key make no difference.

openai 2 uses httpx and openai 3 httpx2, its successor with the same classes. A transport answers
with the classes of whichever library asks, and imports neither.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, Unpack

from feval.errors import ReplayWarning, UsageError
from feval.serving.application import Application, ApplicationOptions, grade
from feval.serving.wire.calls import KEY_HEADERS, Call, Reply, Sender
from feval.serving.wire.dialects import list_of, of_path, openai_path
from feval.values import Closing

if TYPE_CHECKING:
    from feval.recording import Recording
    from feval.serving.grading import RunGrade

    Source = str | Path | Recording | Sequence[str | Path | Recording] | Application | None

_LIBRARIES = ("httpx2", "httpx")
_KEYS = frozenset({"authorization", *KEY_HEADERS})
_OURS = re.compile(r"/(run/[^/]+/)?(v1|feval)/|/openapi\.json$")
_THEIRS = re.compile(r"(?P<prefix>(/[^/]*)*?)/(?P<route>(chat/)?completions|models(/.+)?)/?")
_RUN = re.compile(r"/run/[^/]+(?=/|$)")


class _Replay:
    """What both transports share."""

    def __init__(
        self,
        recording: Source = None,
        *,
        run: str = "default",
        **options: Unpack[ApplicationOptions],
    ) -> None:
        if not isinstance(run, str):
            raise UsageError(
                f"The name of a run is text; {run!r:.80} ({type(run).__name__}) was given."
            )
        self._owned = not isinstance(recording, Application)
        if isinstance(recording, Application):
            if options:
                raise UsageError(
                    f"The application is open already, so {', '.join(sorted(options))} cannot be"
                    " chosen any more. Give that to Application.open."
                )
            self.application = recording
        else:
            self.application = Application.open(recording, **options)
        self.run = run

    def ledger(self, run: str | None = None, *, detail: bool = False) -> dict[str, Any]:
        """Return what a run (`None`: this transport's own) was given, and what it costs; see
        `Application.ledger`.
        """
        return self.application.ledger(self.run if run is None else run, detail=detail)

    def grade(
        self, answers: object, *, run: str | None = None, dataset: str | None = None
    ) -> RunGrade:
        """Grade a run's answers: accuracy with its interval, cost, and a receipt.

        Args:
            answers: question (its id or text) -> answer, `None` for no answer; see
                `feval.receipts.grading.answers_by_id`.
            run: its name; `None` for this transport's own.
            dataset: which one, if the run asked about several.

        Raises:
            FevalError: whatever `feval.serving.grade` raises.
        """
        return grade(self.application, self.run if run is None else run, answers, dataset=dataset)

    def reset(self, run: str | None = None) -> None:
        """Start a run (`None`: this transport's own) again; see `Application.reset`."""
        self.application.reset(self.run if run is None else run)

    def _respond(self, request: Any, body: bytes, sender: Sender | None) -> Reply:
        url = request.url
        query = url.query.decode()
        return self.answer(request.method, url.path, query, request.headers, body, sender)

    def answer(
        self,
        method: str,
        path: str,
        query: str,
        sent: Mapping[str, str],
        body: bytes,
        sender: Sender | None = None,
    ) -> Reply:
        """Answer a request of any client, see `Call`."""
        headers = {"x-feval-run": self.run}
        for name, value in sent.items():
            if name.lower() not in _KEYS:
                headers[name.lower()] = value
        # without a line of the caller, which says nothing of the recording
        warn = partial(
            warnings.warn_explicit, category=ReplayWarning, filename="feval.serving", lineno=1
        )
        return self.application.respond(
            Call(method, application_path(path), query, headers, body, warn, sender)
        )

    def _close(self) -> None:
        if self._owned:
            self.application.close()


def application_path(path: str) -> str:
    """Return the application's path for a request, without the prefixes of providers."""
    for place in (found.start() for found in re.finditer("/", path)):
        own = path[place:].rstrip("/")
        if of_path(own) or openai_path(own)[1] or list_of(own, {}):
            run = _RUN.search(path[:place])
            return f"{run[0] if run else ''}{own}"
    theirs = None if _OURS.match(path) else _THEIRS.fullmatch(path)
    if theirs is None:
        return path
    run = _RUN.search(theirs["prefix"])
    return f"{run[0] if run else ''}/v1/{theirs['route']}"


class ReplayTransport(_Replay, Closing):
    """A transport for `httpx.Client` and `httpx2.Client` alike:
    `Client(transport=ReplayTransport("my-recording"))`.

    Safe to use from many threads.

    Args:
        recording: what `feval.load` takes, or an `Application`, which the caller then closes.
        run: name of the run: NAME, NAME@R for replicate R, or NAME@recorded. A request's header
            X-Feval-Run, or a base URL with /run/NAME in its path, names another.
        options: of `Application.open`.

    Attributes:
        application: what answers.
        run: as given.
    """

    def handle_request(self, request: Any) -> Any:
        """Answer a request, as the client's transports do."""
        reply = self._respond(request, request.read(), (threading.current_thread().is_alive, False))
        return _library(request).Response(
            reply.status, headers=dict(reply.headers), content=reply.body
        )

    def close(self) -> None:
        """Close the recording, if it was opened here."""
        self._close()


class AsyncReplayTransport(_Replay):
    """A transport for `httpx.AsyncClient` and `httpx2.AsyncClient` alike, with the arguments of
    `ReplayTransport`.
    """

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request, as the client's transports do."""
        # A reply takes well under a millisecond: a thread for each would take longer.
        reply = self._respond(request, await request.aread(), _task())
        body = reply.body if isinstance(reply.body, bytes) else _pieces(reply.body)
        return _library(request).Response(reply.status, headers=dict(reply.headers), content=body)

    async def aclose(self) -> None:
        """Close the recording, if it was opened here."""
        self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _task() -> Sender | None:
    """The task that asks; `None` in another loop than asyncio's."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else (task.done, True)


async def _pieces(body: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in body:
        yield piece


def _library(request: object) -> ModuleType:
    """The package that a request is from; a subclass counts as its base class."""
    for kind in type(request).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in _LIBRARIES:
            return sys.modules[package]
    raise UsageError(
        f"A replay transport answers httpx and httpx2; {type(request).__name__} is a request of"
        " neither."
    )


def replay_http_client(
    recording: Source = None, *, run: str = "default", **options: Unpack[ApplicationOptions]
) -> Any:
    """Return an HTTP client that asks a recording, for `OpenAI(http_client=...)`.

    Args:
        recording: what `feval.load` takes: a folder, an open recording, or several; or an
            `Application`.
        run: name of the run: NAME, NAME@R for replicate R, or NAME@recorded.
        options: of `Application.open`: seed, order, recycle, strict, few_shot, allow_mismatch,
            datasets, llms, prices, billing, ledger.

    Returns:
        An `httpx2.Client`, or an `httpx.Client` if that is what the installed `openai` uses, with
        the transport as `replay`, and the transport's `ledger`, `grade` and `reset`.

    Raises:
        FevalError: whatever `Application.open` raises; UsageError if neither library is installed.
    """
    return _with_ledger(_http_library().Client)(ReplayTransport(recording, run=run, **options))


def replay_async_http_client(
    recording: Source = None, *, run: str = "default", **options: Unpack[ApplicationOptions]
) -> Any:
    """Return the same as `replay_http_client`, but an `AsyncClient`, for
    `AsyncOpenAI(http_client=...)`.
    """
    return _with_ledger(_http_library().AsyncClient)(
        AsyncReplayTransport(recording, run=run, **options)
    )


def _with_ledger(client: type) -> type:
    def __init__(self: Any, transport: _Replay) -> None:  # noqa: N807  of a class made here
        client.__init__(self, transport=transport, trust_env=False)  # type: ignore[misc]  # the class is only known at run time
        self.replay, self.ledger, self.grade = transport, transport.ledger, transport.grade
        self.reset = transport.reset

    return type(
        "Replay" + client.__name__, (client,), {"__init__": __init__, "__module__": __name__}
    )


def _http_library() -> ModuleType:
    """The HTTP library of the installed `openai`; without `openai`, the first that is installed."""
    try:
        openai = import_module("openai")
    except ImportError:
        openai = None
    bases = openai.DefaultHttpxClient.__mro__ if openai is not None else ()
    named = [kind.__module__.partition(".")[0] for kind in bases]
    for library in (*(name for name in named if name in _LIBRARIES), *_LIBRARIES):
        try:
            return import_module(library)
        except ImportError:
            continue
    raise UsageError(
        "No HTTP client that a replay transport knows is installed. Install openai (or httpx)."
    )

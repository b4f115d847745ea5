"""A small HTTP/1.1 service on loopback that speaks OpenAI's dialect: what the tiny server and the recording proxy share.

An application is a function from a `Call` to an `Answer`. The service reads and bounds requests, keeps connections alive, writes
answers and errors in OpenAI's shape, and cuts a chat completion into the events of a stream. Standard library only.

A page in a browser can send requests to loopback too. So a request with a foreign `Origin` is refused, and while the service
listens on loopback also one whose `Host` is another machine's (DNS rebinding).
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import orjson

from feval import __version__
from feval.errors import FevalError, UsageError
from feval.serving.loopback import cannot_listen, is_loopback, refusal
from feval.serving.replies import STREAM, events, lines

__all__ = ["Answer", "Call", "ProblemError", "Service", "chat_answer", "json_answer"]

_LOG = logging.getLogger(__name__)
_IDLE_S = 120.0
_MAX_BODY = 8 << 20


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        method: "GET", "POST", ...
        path: with its query, as it was sent.
        headers: names in lower case; of repeated ones the last.
        body: decoded from its transfer.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back.

    Attributes:
        status: of HTTP.
        body: whole, or pieces that are sent as they come.
        headers: further ones; those of the transfer are the service's.
        close: called when the body was sent or could not be.
        undelivered: called where the client had gone before anything was sent to it.
    """

    status: int
    body: bytes | Iterable[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)
    close: Callable[[], None] | None = None
    undelivered: Callable[[], None] | None = None


class ProblemError(Exception):
    """A request that is answered with an error in OpenAI's shape.

    Args:
        status: of HTTP.
        message: a sentence.
        parameter: which field of the request is wrong.
        code: a word for programs.
    """

    def __init__(self, status: int, message: str, *, parameter: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.parameter, self.code = status, parameter, code

    def answer(self) -> Answer:
        """Return it as it is sent."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": str(self), "type": kind, "param": self.parameter, "code": self.code}
        return json_answer({"error": error}, self.status)


def json_answer(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer with a JSON object."""
    return Answer(status, orjson.dumps(value), {"Content-Type": "application/json", **(headers or {})})


def chat_answer(
    reply: Mapping[str, Any],
    *,
    stream: bool,
    usage: bool = True,
    headers: Mapping[str, str] | None = None,
    undelivered: Callable[[], None] | None = None,
) -> Answer:
    """Return a chat completion as one object, or as the events of a stream.

    Args:
        reply: the chat completion.
        stream: whether it goes out as events.
        usage: whether the stream ends with the usage.
        headers: further ones.
        undelivered: as in `Answer`.
    """
    if not stream:
        return replace(json_answer(reply, 200, headers), undelivered=undelivered)
    kind = {"Content-Type": STREAM, "Cache-Control": "no-cache"}
    return Answer(200, lines(events(reply, usage=usage)), kind | dict(headers or {}), undelivered=undelivered)


class Service:
    """An application behind a port; as a context manager it serves in a thread of its own.

    Args:
        application: from a call to an answer. It runs in one thread per connection; a `ProblemError` becomes an error answer.
        host: to listen on.
        port: 0 for any that is free.
        max_body: bytes of a request's body.

    Attributes:
        port: listened on.

    Raises:
        StorageError: the port is taken, or the host is not this machine's.
        UsageError: the host is empty, which would open the service to every machine unsaid.
    """

    def __init__(
        self,
        application: Callable[[Call], Answer],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        max_body: int = _MAX_BODY,
    ) -> None:
        if not host.strip():
            raise UsageError(
                "The host to listen on is empty. Name one, such as 127.0.0.1, or 0.0.0.0 for every machine's use."
            )
        self.application, self.host, self.max_body = application, host, max_body
        self.only_loopback = is_loopback(host)
        self._idle = threading.Condition()
        self._busy = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        try:
            self._server = _Server((host, port), self)
        except (OSError, OverflowError) as error:
            raise cannot_listen(host, port, error) from error
        self.port = int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The base URL for clients."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}/v1"

    def run(self) -> None:
        """Serve in this thread until something is raised in it, such as Ctrl-C."""
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """Take no more connections and wait for the requests that are being answered."""
        self._server.server_close()
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._busy)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.run, name="service", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        if self._thread is not None:
            self._thread.join()
        self.close()

    def begin(self) -> bool:
        """Note that a request begins; whether it may: connections that were kept alive outlive `close`."""
        with self._idle:
            self._busy += not self._closed
            return not self._closed

    def end(self) -> None:
        """Note that a request was answered."""
        with self._idle:
            self._busy -= 1
            self._idle.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], service: Service) -> None:
        self.service = service
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that went away is no event, and a traceback could show a header."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True
    server: _Server

    def version_string(self) -> str:
        """The header Server: ours alone, without the library's."""
        return f"feval/{__version__}"

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002  as the base class has it
        """Say in OpenAI's shape what the library would say in HTML: a request line or header that is none."""
        self.close_connection = True
        self.request_version = self.protocol_version  # the library's guess is 0.9, which has no status line
        said = message or HTTPStatus(code).phrase
        self._write(ProblemError(code, f"This is no request that HTTP knows: {said}. Use an HTTP client.").answer())

    def _serve(self) -> None:
        service = self.server.service
        if not service.begin():
            self.close_connection = True
            return
        try:
            self._write(self._answer(service))
        finally:
            service.end()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _serve  # noqa: N815  the library's names

    def _answer(self, service: Service) -> Answer:
        try:
            body = self._body(service)
            headers = {name.lower(): value for name, value in self.headers.items()}
            if said := refusal(headers.get("host"), headers.get("origin"), only_loopback=service.only_loopback):
                raise ProblemError(403, said)
            return service.application(Call(self.command, self.path, headers, body))
        except ProblemError as problem:
            return problem.answer()
        except ConnectionError:
            raise
        except FevalError as error:
            return ProblemError(500, str(error)).answer()
        except Exception as error:  # noqa: BLE001  a bug of ours must not end the connection without a word
            _LOG.error("A request could not be answered: %s.", type(error).__name__)
            return ProblemError(500, f"Something unexpected happened ({type(error).__name__}).").answer()

    def _body(self, service: Service) -> bytes:
        """Read the body; where that cannot be done whole, the connection is of no further use."""
        length = self.headers.get("Content-Length")
        if self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            raise ProblemError(411, "Send the body with a Content-Length; chunked bodies are not taken.")
        if length is None:
            return b""
        if not (length.isascii() and length.isdigit() and len(length) <= 12):
            self.close_connection = True
            raise ProblemError(400, "The Content-Length is no number.")
        if int(length) > service.max_body:
            self.close_connection = True
            raise ProblemError(413, f"The body has {int(length):,} bytes; {service.max_body:,} are the most.")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            raise ConnectionResetError
        return body

    def _write(self, answer: Answer) -> None:
        try:
            if answer.undelivered is not None and self._client_has_gone():
                answer.undelivered()
                raise ConnectionResetError
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if isinstance(answer.body, bytes):
                self.send_header("Content-Length", str(len(answer.body)))
                self._end_of_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)
                self.wfile.flush()
            elif self.command == "HEAD":
                self._end_of_headers()
                self.wfile.flush()
            else:
                self._write_pieces(answer.body)
        except OSError:  # the reader, or whoever the pieces came from, has gone: an honest end is a broken one
            self.close_connection = True
        finally:
            if answer.close is not None:
                answer.close()

    def _client_has_gone(self) -> bool:
        """Whether the client closed the connection while it waited: a first write to it would still succeed."""
        self.connection.setblocking(False)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.connection.settimeout(self.timeout)

    def _write_pieces(self, pieces: Iterable[bytes]) -> None:
        chunked = self.request_version == "HTTP/1.1"
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.close_connection = True
        self._end_of_headers()
        for piece in pieces:
            if piece:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                self.wfile.flush()
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

    def _end_of_headers(self) -> None:
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
        """Log nothing: a path or header is the client's own affair."""

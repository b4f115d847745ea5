"""Calls and replies without a web framework, and the errors that are sent.

    FevalError
    └── ServingError            sent with its status, in the shape of the dialect
        ├── RequestError        400: the request itself is wrong; the message names the field
        ├── MissError           400: the recording does not hold what was asked for
        ├── UnknownError        404: no such model, or nothing at that path
        ├── AmbiguousError      400: several recorded things match equally well
        └── UsedUpError         400: the pool has fewer CoTs left than were asked for

Clients retry after 408, 409, 429 and 5xx, so none of these is used for what a retry cannot change.
After a 404, LiteLLM's router asks a model nothing for a while, so a question that was not recorded
is a 400.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from traceback import extract_tb
from typing import NamedTuple
from urllib.parse import parse_qs

import orjson

from feval.errors import FevalError, NotRecordedError, StorageError, UsageError
from feval.values import Record, frozen

_LOG = logging.getLogger("feval.serving")
_SHOWN = 80

JSON = "application/json"
EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
"""Headers of a stream of events."""


Sender = tuple[Callable[[], bool], bool]
"""What waits for a reply before it sends its next request, as a function, and what that returns
once it has gone.
"""


@frozen
class Call:
    """One request.

    Attributes:
        method: "GET", "POST", ...
        path: percent-decoded once, without the query, such as "/v1/chat/completions" or
            "/run/NAME/v1/chat/completions".
        query: as it was sent, without the question mark.
        headers: names in lower case; the last of repeated ones.
        body: its bytes.
        warn: receives each sentence that a run should be told once; a reply does not hold it.
        sender: the connection, thread or task that it comes from, if known.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    warn: Callable[[str], object] = _LOG.warning
    sender: Sender | None = None


class Reply(NamedTuple):
    """What is sent back.

    Attributes:
        status: HTTP status.
        headers: content-type among them; not the length.
        body: all of it, or the events of a stream (`data: ...` and two line feeds each).
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | Iterable[bytes]


KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")
"""Headers in which clients send a key, beside `Authorization: Bearer`."""


def keys_of(headers: Mapping[str, str], query: str) -> list[str]:
    """Return the API keys of a request, in headers or in the query, the one that counts first."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    sent = [key] if scheme.lower() == "bearer" else []
    sent += [headers.get(name, "") for name in KEY_HEADERS]
    return [each.strip() for each in (*sent, *parse_qs(query).get("key", ())) if each]


def split_run(path: str) -> tuple[str | None, str]:
    """Return the name of the run in a path, `None` without one, and the rest of the path."""
    if not path.startswith("/run/"):
        return None, path.rstrip("/")
    name, _, rest = path[5:].partition("/")
    return name, f"/{rest}".rstrip("/")


def json_reply(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a reply with a JSON value."""
    return Reply(status, {"content-type": JSON, **(headers or {})}, orjson.dumps(value))


def openai_error(error: ServingError) -> Record:
    """Return an error as OpenAI's clients expect it."""
    content = {
        "message": str(error),
        "type": "invalid_request_error" if error.status < 500 else "server_error",
        "param": error.parameter,
        "code": error.code,
    }
    return {"error": content}


def error_reply(error: Exception, shape: Callable[[ServingError], object]) -> Reply:
    """Return an error in the shape of a dialect; its text is the message, but for a bug, which is
    logged.
    """
    if not isinstance(error, FevalError):  # its text could show what was sent
        name, where = type(error).__name__, extract_tb(error.__traceback__)[-1]
        place = where.filename, where.lineno
        _LOG.error("A request could not be answered: %s at %s:%s.", name, *place)
        error = FevalError(f"An internal error occurred ({name}); the server logged it.")
    # lone surrogates are not valid JSON
    message = str(error).encode("utf-8", "replace").decode()
    if not isinstance(error, ServingError):
        statuses = ((NotRecordedError, 404), (UsageError, 400), (StorageError, 507))
        status = next((status for kind, status in statuses if isinstance(error, kind)), 500)
        error = ServingError(message, status=status)
    own = ServingError(message, status=error.status, parameter=error.parameter, code=error.code)
    headers = {"x-feval-error": error.code} if error.code else {}
    return json_reply(shape(own), own.status, {**error.headers, **headers})


class ServingError(FevalError):
    """An error that is sent in the shape of the dialect, with an HTTP status, the field at
    fault and a word for programs.
    """

    default_status = 400
    default_code: str | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        parameter: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status or self.default_status
        self.parameter, self.code = parameter, code or self.default_code
        self.headers = headers or {}


class RequestError(ServingError):
    """The request itself is wrong."""


class MissError(ServingError):
    """The recording does not hold what was asked for."""

    default_code = "not_recorded"


class UnknownError(ServingError):
    """There is no such model, or nothing at the path of the request."""

    default_status = 404
    default_code = "model_not_found"


class AmbiguousError(ServingError):
    """Several recorded things match equally well; feval never guesses which is meant."""

    default_code = "ambiguous"


class UsedUpError(ServingError):
    """The pool has fewer CoTs left than were asked for."""

    default_code = "pool_exhausted"


def wrong(name: str, what: str, value: object) -> RequestError:
    """Return the error of a field that must be something else."""
    return RequestError(
        f"`{name[:_SHOWN]}` must be {what}; {named(value)} was sent.", parameter=name
    )


def named(value: object) -> str:
    """Describe a JSON value briefly, never in full."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an empty list" if not value else "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value[:_SHOWN]!r}" if value else "an empty text"
    return f"the number {value}"[:_SHOWN]

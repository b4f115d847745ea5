"""Errors that a client sees: exceptions that know their HTTP status and OpenAI's fields.

    FevalError
    └── ServingError            sent with its status, in OpenAI's shape
        ├── RequestError        400: the request itself is wrong
        ├── MissError           400: the recording does not hold what was asked for
        ├── UnknownError        404: no such model, or nothing at that path
        ├── AmbiguousError      400: several recorded things match equally well
        └── UsedUpError         400: the pool has fewer CoTs left than were asked for

Clients retry after 408, 409, 429 and 5xx, so none of these is used for what a retry cannot change.
After a 404, LiteLLM's router asks a model nothing for a while, so a question that was not recorded
is a 400.
"""

from __future__ import annotations

from collections.abc import Mapping

from feval.errors import FevalError, NotRecordedError, StorageError, UsageError


class ServingError(FevalError):
    """An error that is sent to the client in OpenAI's shape, with an HTTP status, the field at
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


def status_of(error: FevalError) -> int:
    """Return the HTTP status that an error is sent with."""
    if isinstance(error, ServingError):
        return error.status
    if isinstance(error, NotRecordedError):
        return 404
    return 400 if isinstance(error, UsageError) else 507 if isinstance(error, StorageError) else 500

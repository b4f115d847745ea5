"""What a request can be answered with instead of CoTs: an exception that knows its HTTP status and OpenAI's fields.

    FevalError
    └── ServingError            answered with its status, in OpenAI's shape
        ├── RequestError        400: the request itself is wrong
        ├── MissError           404: the recording does not hold what was asked for
        ├── AmbiguousError      400: several recorded things are meant equally well
        └── UsedUpError         400: the pool has fewer CoTs left than were asked for

Clients ask again after 408, 409, 429 and 5xx, so none of these is used for what asking again cannot change.
"""

from __future__ import annotations

from feval.errors import FevalError

__all__ = ["AmbiguousError", "MissError", "RequestError", "ServingError", "UsedUpError"]


class ServingError(FevalError):
    """A request that is answered with an error in OpenAI's shape.

    Args:
        message: a sentence: what was asked, what was found, what to do.
        status: of HTTP.
        parameter: which field of the request is meant.
        code: a word for programs.
        headers: further ones of the reply.
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
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status or self.default_status
        self.parameter, self.code = parameter, code or self.default_code
        self.headers = headers or {}


class RequestError(ServingError):
    """The request itself is wrong."""


class MissError(ServingError):
    """The recording does not hold what was asked for."""

    default_status = 404
    default_code = "not_recorded"


class AmbiguousError(ServingError):
    """Several recorded things are meant equally well; which is never guessed."""

    default_code = "ambiguous"


class UsedUpError(ServingError):
    """The pool has fewer CoTs left than were asked for."""

    default_code = "pool_exhausted"

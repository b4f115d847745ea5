"""What can go wrong while recording, one tree under `RecorderError`.

    RecorderError                what a recorder raises on purpose
    ├── BackendError             what a backend raises when a request brings no completion
    │   ├── RateLimited          too many requests: wait, then again, with fewer at a time
    │   ├── Transient            may work next time: a timeout, a 5xx, a broken reply
    │   ├── Refused              this request can never work; others may
    │   └── Fatal                no request will ever work: a wrong key, an unknown model
    ├── JournalError             a journal that is damaged, of something else, or missing
    │   ├── LockedJournalError   another recorder is writing it
    │   └── MissingError         it lacks something, and the record mode forbids to ask
    └── StoppedError             recording ended early; the journal keeps everything, the same command goes on
        ├── InterruptedByUser    Ctrl-C
        └── CostLimitReached     `cost_limit` would have been passed

A backend's reason is shown to people and written into the journal: it never holds a key, a header or a URL with credentials.
"""

from __future__ import annotations

from feval.errors import FevalError

__all__ = [
    "BackendError",
    "CostLimitReached",
    "Fatal",
    "InterruptedByUser",
    "JournalError",
    "LockedJournalError",
    "MissingError",
    "RateLimited",
    "RecorderError",
    "Refused",
    "StoppedError",
    "Transient",
]


class RecorderError(FevalError):
    """Base of every error that a recorder raises on purpose."""


class BackendError(RecorderError):
    """A request brought no completion.

    Args:
        reason: why, in words for people, free of secrets.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RateLimited(BackendError):  # noqa: N818  the name is what the server said
    """The server asks for patience (429).

    Args:
        retry_after: seconds the server wants us to wait; `None` where it does not say.
        reason: in the server's words, free of secrets.
    """

    def __init__(self, retry_after: float | None = None, reason: str = "the server limits the rate") -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Transient(BackendError):  # noqa: N818  the name is what the failure is
    """The same request may work next time: a timeout, a broken connection, a 5xx, a reply that cannot be read.

    Args:
        reason: why, free of secrets.
        retry_after: seconds the server wants us to wait; `None` where it does not say.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Refused(BackendError):  # noqa: N818  the name is what the server did
    """This request can never work, others may: content policy, a prompt that is too long.

    Args:
        reason: why, free of secrets.
        finish_reason: what its CoTs end with in the recording: "content_filter" where a policy refused, else "error".
    """

    def __init__(self, reason: str, finish_reason: str = "error") -> None:
        super().__init__(reason)
        self.finish_reason = finish_reason


class Fatal(BackendError):  # noqa: N818  the name is what the failure is
    """No request will ever work: a wrong key, an unknown model, a parameter the server does not take."""


class JournalError(RecorderError):
    """A journal that is damaged, of something else, or missing."""


class LockedJournalError(JournalError):
    """Another recorder is writing the journal."""


class MissingError(JournalError):
    """The journal lacks CoTs, and the record mode forbids to ask for them."""


class StoppedError(RecorderError):
    """Recording ended before everything was there; what was acknowledged is in the journal."""


class InterruptedByUser(StoppedError):  # noqa: N818  an event, named by it
    """Ctrl-C."""

    exit_code = 130


class CostLimitReached(StoppedError):  # noqa: N818  an event, named by it
    """The next request could have passed the cost limit."""

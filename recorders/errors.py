"""Errors of recording and scoring, one tree under `RecorderError`.

    RecorderError                base of all errors raised here
    ├── BackendError             a request brought no completion
    │   ├── RateLimitError       too many requests: wait, then retry with fewer at a time
    │   ├── Transient            may work next time: a timeout, a 5xx, a broken reply
    │   │   └── Unreachable      no connection: nothing listens there
    │   ├── RefusalError         this request will never work; others may
    │   └── Fatal                no request will work: a wrong key, an unknown model
    ├── JournalError             a journal that is damaged, of something else, or missing
    │   ├── LockedJournalError   another process is writing it
    │   └── MissingError         it lacks something, and the record mode forbids asking
    └── StoppedError             the run ended early; the same command continues
        ├── InterruptedByUser    Ctrl-C, SIGTERM or SIGHUP
        └── CostLimitError       `cost_limit_usd` could have been passed

A backend's reason is shown to users and written into the journal: it never holds a key, a header or
a URL with credentials.
"""

from __future__ import annotations

from feval.errors import FevalError
from feval.report.text import duration

LONGEST_WAIT_S = 600.0
"""A server that asks to wait longer ends the run."""


class RecorderError(FevalError):
    """Base of all errors of recorders."""


class BackendError(RecorderError):
    """A request brought no completion; `reason` says why, without secrets.

    `retry_after` is how many seconds the server asks to wait, if it says so.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        if retry_after:
            reason += f"; it asks to wait {duration(retry_after)}"
        super().__init__(reason)
        self.reason, self.retry_after = reason, retry_after


class RateLimitError(BackendError):
    """The server limits the rate (429)."""


class Transient(BackendError):  # noqa: N818  named after the kind of failure
    """The same request may work next time: a timeout, a broken connection, a 5xx, a reply that
    cannot be read.
    """


class Unreachable(Transient):
    """No connection to the server; where it never answered, a few seconds decide that nothing
    listens there.

    `after_s` is how long the connection was waited for, 0 where it was refused.
    """

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


class RefusalError(BackendError):
    """This request will never work, others may: content policy, a prompt that is too long.

    The finish reason of its CoTs in the recording is "content_filter" if a policy refused, else
    "error".
    """

    def __init__(self, reason: str, finish_reason: str = "error") -> None:
        super().__init__(reason)
        self.finish_reason = finish_reason


class Fatal(BackendError):  # noqa: N818  named after the kind of failure
    """No request will work: a wrong key, an unknown model, a parameter that the server does not
    take.
    """


class JournalError(RecorderError):
    """A journal that is damaged, of something else, or missing."""


class LockedJournalError(JournalError):
    """Another process is writing the journal."""


class MissingError(JournalError):
    """The journal lacks CoTs, and the record mode forbids asking for them."""


class StoppedError(RecorderError):
    """The run ended before everything was there; what was acknowledged is in the journal."""


class InterruptedByUser(StoppedError):  # noqa: N818  named after the event
    """Ctrl-C, SIGTERM or SIGHUP; the exit code is the one that a shell gives a program that a
    signal ended.
    """

    def __init__(self, sentence: str, exit_code: int = 130) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class CostLimitError(StoppedError):
    """The next request could have passed the cost limit."""

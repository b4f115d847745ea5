"""When answers with different normal forms are equal: the named equalities that a recording may
have.

| name | which normal forms are equal, besides identical ones |
| --- | --- |
| `normal-form` | none |
| `math-verify-VERSION` | those that this math-verify finds equal (the kind `latex`) |
| `tolerance-X` | numbers that differ by at most X times the larger one's size (the kind `number`) |

A recording stores the verdicts, so reading it needs no math-verify. `math-verify` runs in a process
of its own: it limits its work by signals, which only a main thread can use, and a hostile formula
can keep SymPy busy, or use up memory, forever. One worker process (`feval.answers._math_worker`) is
started for the first pair, speaks JSON lines, and is killed and replaced when a pair takes longer
than `SECONDS`: such a pair has no verdict. `feval.answers.equivalence` bounds the pairs of a
question and of a command, and their seconds.

Threads take turns; a forked child starts a worker of its own. The worker ends with the process that
started it.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version as installed
from typing import Any

from feval.answers import NORMAL_FORM, latex
from feval.answers.equivalence import TOLERANCE, PairVerdict, tolerated
from feval.errors import AnswerError, UsageError

MATH_VERIFY = "math-verify"

SECONDS = 5.0
"""Time limit for comparing one pair of answers; those of real recordings take 0.02 on average, 0.4
at most.
"""

_START_SECONDS = 120.0  # importing SymPy takes one second, on a busy or cold machine many


@cache
def version() -> str | None:
    """Return the version of math-verify that is installed, without importing it; `None` where there
    is none.
    """
    try:
        return installed("math-verify")
    except PackageNotFoundError:
        return None


def named_equality(kind: str, name: str | None = None) -> str:
    """Return the full name of an equality for answers of a kind, such as "math-verify-0.9.0".

    Args:
        kind: a key of `feval.answers.KINDS`.
        name: "normal-form", "math-verify" (with or without the installed version), or
            "tolerance-X"; `None` takes math-verify for the kind "latex" and the normal form for
            every other.

    Raises:
        AnswerError: math-verify is needed and not installed, or another version than the one named.
        UsageError: no such equality for this kind.
    """
    name = name or (MATH_VERIFY if kind == "latex" else NORMAL_FORM)
    if name == NORMAL_FORM:
        return name
    if kind == "latex" and name.startswith(MATH_VERIFY):
        return _installed_math_verify(name)
    if kind == "number" and name.startswith(TOLERANCE):
        return tolerance(name.removeprefix(TOLERANCE))
    known = {
        "latex": "normal-form or math-verify",
        "number": "normal-form or tolerance-X, such as tolerance-1e-4",
    }
    raise UsageError(
        f"Answers of the kind {kind!r} have no equality {name!r:.60}; they have"
        f" {known.get(kind, 'normal-form only')}."
    )


def _installed_math_verify(name: str) -> str:
    installed = version()
    if installed is None:
        raise AnswerError(
            "Answers of the kind 'latex' are compared by math-verify, which is not installed."
            " Install it (pip install 'feval[math]'), or compare them by their normal form alone:"
            " --equality normal-form."
        )
    full = f"{MATH_VERIFY}-{installed}"
    if name not in {MATH_VERIFY, full}:
        raise AnswerError(
            f"The recording needs the equality {name!r:.60}, and {full} is installed. Install that"
            " version."
        )
    return full


def tolerance(relative: str | float) -> str:
    """Return the name of the equality of numbers up to a relative tolerance in (0, 1), such as
    "tolerance-0.0001".
    """
    try:
        number = float(relative)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise UsageError(
            f"A tolerance is a number between 0 and 1, such as 1e-4; {relative!r:.40} was given."
        )
    return f"{TOLERANCE}{number!r}"


def comparison(name: str) -> PairVerdict | None:
    """Return how a named equality compares normal forms; `None` where only identical forms are
    equal.

    Comparing a pair raises an `AnswerError` where that version of math-verify is not installed.
    """
    if name == NORMAL_FORM:
        return None
    if near := tolerated(name):
        return PairVerdict(near)
    if name.startswith(MATH_VERIFY):
        return PairVerdict(partial(_equal_under, name), latex.comparable, costly=True)
    raise UsageError(f"There is no equality of answers {name!r:.60}.")


def _equal_under(name: str, left: str, right: str) -> bool | None:
    _installed_math_verify(name)
    return equal(left, right)


def equal(left: str, right: str) -> bool | None:
    """Return whether math-verify finds two keys of `feval.answers.latex` equal; `None` where it
    ends without a verdict.
    """
    return _worker().equal(left, right)


@cache
def _worker() -> MathWorker:
    worker = MathWorker(SECONDS)
    atexit.register(worker.close)
    return worker


class MathWorker:
    """A math-verify process, started on first use and replaced after a pair that took more than
    `seconds`.
    """

    def __init__(
        self,
        seconds: float,
        command: tuple[str, ...] = (sys.executable, "-P", "-m", "feval.answers._math_worker"),
    ):
        self.seconds = seconds
        self.starts = 0
        self._command = command
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process: Any = None

    def equal(self, left: str, right: str) -> bool | None:
        """Return whether two formulas are equal; `None` for a pair that the worker does not
        survive.
        """
        if self._owner != os.getpid():
            self._forget()
        request = {"left": left, "right": right, "seconds": self.seconds + 5}
        with self._lock:
            # it ended since the last comparison
            if self._process is not None and self._process.poll() is not None:
                self._end()
            process = self._process or self._started()
            reply = self._exchange(process, json.dumps(request).encode() + b"\n", self.seconds)
            if reply is None:
                self._end()
        return None if reply is None else reply.get("equal") is True

    def close(self) -> None:
        """End the worker; the next comparison starts another. In a forked child, the parent's
        worker is left alone.
        """
        if self._owner == os.getpid():
            with self._lock:
                self._end()

    def _forget(self) -> None:
        """In a forked child: leave the worker to the parent, which would miss its replies."""
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # not ours to wait for
            _close_pipes(process)
        self._lock, self._owner = threading.Lock(), os.getpid()

    def _started(self) -> Any:
        environment = dict(
            os.environ,
            PYTHONPATH=os.pathsep.join(path or os.getcwd() for path in sys.path),  # noqa: PTH109  as Python reads ""
        )
        try:
            process = subprocess.Popen(  # noqa: S603  our own module, no shell
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends the worker
            )
        except OSError as error:
            raise AnswerError(
                f"The math-verify worker {self._command[0]!r} could not be started: {error}."
            ) from error
        self._process = process
        self.starts += 1
        if self._exchange(process, b"", _START_SECONDS) is None:
            self._end()
            raise AnswerError(
                "math-verify is installed, but its worker did not start. Try `python -m"
                " feval.answers._math_worker` to see why, or compare LaTeX answers by their normal"
                " form alone: --equality normal-form."
            )
        return process

    def _exchange(self, process: Any, request: bytes, seconds: float) -> dict[str, Any] | None:
        """Send a line and return the reply; `None` where the worker ended, sent nonsense or took
        too long.
        """
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except OSError:  # it ended since the last comparison
            return None
        try:
            reply = json.loads(_line(process.stdout.fileno(), time.monotonic() + seconds))
        except ValueError:
            return None
        return reply if isinstance(reply, dict) else None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        _close_pipes(process)
        process.wait()


def _line(descriptor: int, deadline: float) -> bytes:
    """Return the next line of a pipe; empty where there is none by the deadline."""
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready or not (received := os.read(descriptor, 65536)):
                return b""
            line += received
    return line


def _close_pipes(process: Any) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # what was left to be written has no reader
            pipe.close()

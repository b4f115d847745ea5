"""Whether two LaTeX answers are equal as mathematics: math-verify, asked in a process of its own.

math-verify bounds its work with signals, which only a main thread can use, and a hostile formula can keep SymPy busy, or eat
memory, for ever. So one worker process (`feval.answers._math_worker`) is started when the first pair is asked, talks JSON lines,
and is killed and replaced when a pair takes longer than `SECONDS`: such a pair is not equal. Replies are remembered.

Threads take turns; a forked child starts a worker of its own. The worker ends with the process that started it.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from feval.errors import AnswerError

if TYPE_CHECKING:
    from subprocess import Popen

__all__ = ["SECONDS", "MathWorker", "equal", "version"]

SECONDS = 10.0
"""The longest a pair of answers is compared before it counts as not equal."""

_START_SECONDS = 120.0  # importing SymPy takes one second, on a busy or cold machine many


@cache
def version() -> str | None:
    """Return the version of math-verify that is installed, without importing it; `None` where there is none."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("math-verify")
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=100_000)
def equal(gold: str, answer: str) -> bool:
    """Return whether math-verify finds an answer equal to the gold (the order matters to it: "x=5" answers "5").

    Args:
        gold: a key of `feval.answers.latex`.
        answer: another.

    Raises:
        AnswerError: if the worker cannot be started.
    """
    return _worker().equal(gold, answer)


@cache
def _worker() -> MathWorker:
    worker = MathWorker(SECONDS)
    atexit.register(worker.close)
    return worker


class MathWorker:
    """A math-verify process: started when first asked, replaced after a pair that took too long.

    Args:
        seconds: the longest a pair is compared.
        command: what to run instead of the worker (for tests).
    """

    def __init__(
        self, seconds: float, command: tuple[str, ...] = (sys.executable, "-P", "-m", "feval.answers._math_worker")
    ):
        self.seconds = seconds
        self.starts = 0
        self._command = command
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process: Popen[bytes] | None = None
        self._unread = b""

    def equal(self, gold: str, answer: str) -> bool:
        """Return whether the worker says the two are equal; a pair it does not survive is not.

        Raises:
            AnswerError: if the worker cannot be started.
        """
        if self._owner != os.getpid():
            self._forget()
        request = {"gold": gold, "answer": answer, "seconds": self.seconds + 5}
        with self._lock:
            if (
                self._process is not None and self._process.poll() is not None
            ):  # somebody ended it since the last question
                self._end()
            process = self._process or self._started()
            reply = self._asked(process, json.dumps(request).encode() + b"\n", self.seconds)
            if reply is None:
                self._end()
        return reply is not None and reply.get("equal") is True

    def close(self) -> None:
        """End the worker; the next question starts another. In a forked child this leaves the parent's worker alone."""
        if self._owner == os.getpid():
            with self._lock:
                self._end()

    def _forget(self) -> None:
        """In a forked child: leave the worker to the parent, whose replies would go astray."""
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # not ours to wait for
            _close_pipes(process)
        self._lock, self._owner = threading.Lock(), os.getpid()

    def _started(self) -> Popen[bytes]:
        import subprocess

        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path or os.getcwd() for path in sys.path))  # noqa: PTH109  as Python reads ""
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
            raise AnswerError(f"The math-verify worker {self._command[0]!r} could not be started: {error}.") from error
        self._process, self._unread = process, b""
        self.starts += 1
        if self._asked(process, b"", _START_SECONDS) is None:
            self._end()
            raise AnswerError(
                "math-verify is installed, but its worker did not start. Try `python -m feval.answers._math_worker` to see why,"
                " or uninstall math-verify to compare LaTeX answers by their normal form alone."
            )
        return process

    def _asked(self, process: Popen[bytes], request: bytes, seconds: float) -> dict[str, Any] | None:
        """Send a line and return the reply; `None` where the worker ended, broke the rules or took too long."""
        if process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except OSError:  # it ended since the last question
            return None
        line = self._line(process.stdout.fileno(), time.monotonic() + seconds)
        try:
            reply = json.loads(line)
        except ValueError:
            return None
        return reply if isinstance(reply, dict) else None

    def _line(self, descriptor: int, deadline: float) -> bytes:
        """The next line of the worker, read by the deadline; empty where there is none."""
        import selectors

        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return b""
                received = os.read(descriptor, 65536)
                if not received:
                    return b""
                self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        _close_pipes(process)
        process.wait()


def _close_pipes(process: Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was left to be written has no reader
                continue

"""A user's method in a worker process, which is ended when a time limit is up.

Whatever the user's code does (block in C, swallow every exception, exit, crash), evaluation gets an answer or raises a sentence.
The process is started with `subprocess`: workers of a cluster are daemonic, and multiprocessing gives those no children.
`worker` is the other end.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from feval import errors
from feval.errors import FevalError, MethodError
from feval.evaluation.user_methods.calling import LENGTH, MethodAnswer, Training, encoded

if TYPE_CHECKING:
    from feval.replay.loading import LoadRecipe

_SETUP_SECONDS = 600.0
"""Time limit for running the file, which may load something large, and for opening recordings."""

_EXIT_SECONDS = 2.0
_MOST_BYTES = 1 << 28  # of one reply: far above any answer
_ROWS_AT_ONCE = 1000  # such a request fits into the pipe's buffer, so that sending it never waits for the user's code
_ROOT = Path(__file__).parents[3]


class MethodProcess:
    """Runs the method of a user's file. The process starts when first needed, and anew after it had to be ended.

    Only the bytes with the sha256 are run. Every method raises `UsageError` where the file cannot be read or has no such
    callable, and `MethodError` where its code raised or did not come to an end.
    """

    def __init__(self, path: Path, function: str, source_sha256: str) -> None:
        self._path, self._function, self._source_sha256 = path, function, source_sha256
        self._lock = threading.RLock()
        self._channel: _Channel | None = None
        self._learns = False
        self._recipe: LoadRecipe | None = None
        self._training: Training | None = None

    def learns(self) -> bool:
        """Return whether the method has something left to learn."""
        with self._lock:
            self._start()
            return self._learns

    def require_arguments(self, llms: int) -> None:
        """Raise `UsageError` unless the method can be called with a question and so many LLMs."""
        with self._lock:
            self._ask("check", {"llms": llms}, f"Inspecting the method {self._function}")

    def fit(self, training: Training, seconds: float | None) -> None:
        """Let the method learn, unless it has learnt just that, in `seconds` per training question and ten minutes at least."""
        with self._lock:
            self._start()
            if training == self._training:
                return
            recipe, rows = training
            self._open(recipe)
            limit = None if seconds is None else max(_SETUP_SECONDS, seconds * len(rows))
            where = f"The method {self._function}, learning from {len(rows)} questions,"
            self._ask("fit", {"rows": rows}, where, limit)
            self._training = training

    def answers(
        self,
        recipe: LoadRecipe,
        questions: Sequence[tuple[int, str]],
        replicate: int | None,
        seconds: float | None,
        training: Training | None = None,
    ) -> Iterator[MethodAnswer]:
        """Ask the method some questions (row and id of each), after it has learnt from the training questions, if any.

        Each may take so many seconds, `None` for any time; `None` for the replicate hands CoTs out in recorded order.
        """
        with self._lock:
            if training is not None:
                self.fit(training, seconds)
            self._start()
            self._open(recipe)
            for start in range(0, len(questions), _ROWS_AT_ONCE):
                rows, names = zip(*questions[start : start + _ROWS_AT_ONCE], strict=True)
                request = {"rows": rows, "replicate": replicate, "seconds": seconds, "fitted": training is not None}
                places = [f"The method {self._function} on question {name!r}" for name in names]
                for answer, ledgers in self._exchange("ask", request, places, seconds):
                    yield MethodAnswer(answer, ledgers)

    def end(self) -> None:
        """End the process, also while another thread waits for it."""
        if (channel := self._channel) is not None:
            channel.end()

    def _start(self) -> None:
        """Start the process and run the user's file, unless that was done."""
        if self._channel is not None:
            return
        self._channel, self._recipe, self._training = _Channel(), None, None
        file = {"path": str(self._path.absolute()), "function": self._function, "source_sha256": self._source_sha256}
        self._learns = self._ask("load", file | {"module_path": sys.path}, f"The file {self._path}")

    def _open(self, recipe: LoadRecipe) -> None:
        if recipe != self._recipe:
            self._recipe = recipe
            self._ask("open", {"recipe": recipe.to_dict()}, f"Opening recordings for the method {self._function}")

    def _ask(self, command: str, request: dict[str, Any], where: str, seconds: float | None = _SETUP_SECONDS) -> Any:
        self._start()
        [value] = self._exchange(command, request, [where], seconds)
        return value

    def _exchange(
        self, command: str, request: dict[str, Any], places: Sequence[str], seconds: float | None
    ) -> Iterator[Any]:
        """Send a request and yield one reply for each place; where anything goes wrong, the process is ended."""
        channel = self._channel or _Channel()
        try:
            channel.send({"command": command} | request)
            for where in places:
                yield channel.receive(where, seconds)
        except BaseException:  # Ctrl-C, and a caller who leaves before the last reply, too
            channel.end()
            self._channel = None
            raise


class _Channel:
    """A started worker process, and the messages to and from it."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "feval.evaluation.user_methods.worker"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the parent; and what the user's code starts is ended with the group
        )
        self._process = process
        self._requests, self._replies = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        self._buffer = bytearray()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._replies, selectors.EVENT_READ)
        self.end: Callable[[], object] = weakref.finalize(self, _end, process, self._selector, os.getpid())

    def send(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the reply that does not come says so
            self._requests.write(encoded(message))

    def receive(self, where: str, seconds: float | None) -> Any:
        """Return the value of the next reply; messages begin with `where`, which says what is under way.

        Raises:
            FevalError: what the worker says.
            MethodError: no reply came in time, or the process ended.
        """
        deadline = None if seconds is None else time.monotonic() + seconds

        def read(size: int) -> bytes:
            while len(self._buffer) < size:
                left = None if deadline is None else max(deadline - time.monotonic(), 0)
                if not self._selector.select(left):
                    raise MethodError(
                        f"{where} did not come to an end in {seconds:g} s. Fix it, or give it more time (--time-limit)."
                    )
                if not (piece := os.read(self._replies.fileno(), 1 << 16)):
                    raise MethodError(f"{where} ended its process ({self._exit_reason()}).")
                self._buffer += piece
            piece, self._buffer = bytes(self._buffer[:size]), self._buffer[size:]
            return piece

        [size] = LENGTH.unpack(read(LENGTH.size))
        if size > _MOST_BYTES:
            raise MethodError(f"{where} gave a reply of {size:,} bytes; {_MOST_BYTES:,} is the most.")
        reply = json.loads(read(size))
        if "error" not in reply:
            return reply["value"]
        kind = getattr(errors, reply["error"])
        raise kind(reply["message"]) if issubclass(kind, FevalError) else MethodError(reply["message"])

    def _exit_reason(self) -> str:
        try:
            status = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed the pipe to feval"
        if status >= 0:
            return f"exit status {status}"
        return f"signal {signal.Signals(-status).name}"


def _end(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, owner: int) -> None:
    """End a worker process and what the user's code started there."""
    if os.getpid() != owner:
        return  # in a fork of the process that started it, which goes on
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    selector.close()
    for pipe in (process.stdin, process.stdout):
        cast("IO[bytes]", pipe).close()

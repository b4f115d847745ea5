"""A user's method in a worker process, which is ended when a time limit is up.

Whatever the user's code does (block in C, swallow every exception, exit, crash, write nonsense to
its pipe), evaluation gets an answer or raises a sentence. The process is a fresh Python in the
file's folder, not a fork, so that it holds nothing of this one; `handing` says what it is handed.
It is started with `subprocess`: workers of a cluster are daemonic, and multiprocessing gives those
no children. `worker` is the other end.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from feval import errors
from feval.cards.reading import require_shallow
from feval.errors import MethodError
from feval.evaluation.user_methods.calling import TIME_LIMIT, MethodAnswer
from feval.evaluation.user_methods.handing import ID, Desk
from feval.evaluation.user_methods.messages import LENGTH, decoded, encoded
from feval.evaluation.user_methods.sandbox import python_environment, sandboxed
from feval.methods.protocol import LEDGER_FIELDS

if TYPE_CHECKING:
    from feval.methods.protocol import Orders, Rows
    from feval.replay.dataset import Dataset
    from feval.replay.llm import LLM

    Training = tuple[Dataset, Sequence[LLM], Rows]
    """What a method learns from: a dataset with LLMs, and the rows of the training questions."""

_START_SECONDS = 120.0  # for Python and NumPy, before the user's code runs
# Running the file, which may load something large, takes no longer than so many questions may take.
_SETUP_QUESTIONS = 10
_EXIT_SECONDS = 2.0
_MOST_BYTES = 1 << 20  # of one message from the worker: far above any answer
_NOTHING: tuple[tuple[object, ...], Rows] = ((), np.empty(0, np.intp))
_MOST_BILLED = 1 << 40  # tokens or calls on one question
# the worker's sentences that name the file themselves
_VERBATIM_ERRORS = {"UsageError", "UnknownNameError"}


class MethodProcess:
    """Runs the method of a user's file. The process starts when first needed, and anew after it had
    to be ended.

    Every method raises `UsageError` where the file has no such callable, and `MethodError` where
    its code raised or did not end.
    """

    def __init__(self, path: Path, function: str, source: bytes, *, sandbox: bool) -> None:
        self._path, self._function, self._source, self._sandbox = path, function, source, sandbox
        self._lock = threading.RLock()
        self._desk = Desk()
        self._channel: _Channel | None = None
        self._learns = False
        self._training: Training | None = None
        self._opened: tuple[tuple[object, ...], Rows] = _NOTHING

    def start(self, seconds: float | None = TIME_LIMIT) -> None:
        """Start the process and run the user's file, unless that was done; in as much time as ten
        questions may take.
        """
        with self._lock:
            if self._channel is not None:
                return
            self._channel = _Channel(
                self._desk, self._path.absolute().parent, sandbox=self._sandbox
            )
            self._training, self._opened = None, _NOTHING
            self._one("ready", {}, f"Starting the method {self._function}", _START_SECONDS)
            file = {
                "path": str(self._path.absolute()),
                "function": self._function,
                "module_path": sys.path,
            }
            limit = None if seconds is None else seconds * _SETUP_QUESTIONS
            source = b64encode(self._source).decode()
            self._learns = bool(
                self._one("load", file | {"source": source}, f"The file {self._path}", limit)
            )

    def learns(self) -> bool:
        """Return whether the method has something left to learn."""
        with self._lock:
            self.start()
            return self._learns

    def require_arguments(self, llms: int) -> None:
        """Raise `UsageError` unless the method can be called with a question and so many LLMs."""
        with self._lock:
            self.start()
            self._one(
                "check", {"llms": llms}, f"Inspecting the method {self._function}", TIME_LIMIT
            )

    def fit(self, training: Training, seconds: float | None) -> None:
        """Let the method learn, unless it has learnt just that, in `seconds` per training question,
        of ten at least.
        """
        with self._lock:
            self.start(seconds)
            if training is self._training:
                return
            dataset, llms, rows = training
            limit = None if seconds is None else seconds * max(_SETUP_QUESTIONS, len(rows))
            request = self._desk.training(dataset, llms, rows)
            self._one(
                "fit",
                request,
                f"The method {self._function}, learning from {len(rows)} questions,",
                limit,
            )
            self._training = training

    def answers(
        self,
        dataset: Dataset,
        llms: Sequence[LLM],
        rows: Rows,
        replicate: int | None,
        seconds: float | None,
        training: Training | None = None,
        *,
        closely: bool = False,
    ) -> Iterator[MethodAnswer]:
        """Ask the method some questions, after it has learnt from the training questions, if any.

        Each may take so many seconds, `None` for any time; `None` for the replicate hands CoTs out
        in recorded order.
        """
        with self._lock:
            if training is not None:
                self.fit(training, seconds)
            self.start(seconds)
            where, used = f"The method {self._function}", (dataset, *llms)
            if used != self._opened[0] or not np.array_equal(rows, self._opened[1]):
                self._one(
                    "open",
                    self._desk.questions(dataset, llms, rows),
                    f"{where}, taking its questions,",
                    TIME_LIMIT,
                )
                self._opened = used, rows
            drawn = [None if replicate is None else _orders(llm, replicate, rows) for llm in llms]
            request = {
                "orders": drawn,
                "seconds": seconds,
                "fitted": training is not None,
                "closely": closely,
            }
            names = [repr(dataset.question_ids[row]) for row in rows.tolist()]
            sizes = np.stack([llm.pool.sizes[rows] for llm in llms], axis=1).tolist()
            replies = self._exchange(
                "ask", request, [f"{where} on question {name}" for name in names], seconds
            )
            with closing(replies):
                for name, size in zip(names, sizes, strict=True):
                    try:
                        yield _method_answer(next(replies), size, f"{where} on question {name}")
                    except MethodError as error:
                        raise MethodError(str(error).replace(repr(ID), name)) from error
                next(replies, None)  # the process that gave all of them goes on

    def end(self) -> None:
        """End the process, also while another thread waits for it."""
        if (channel := self._channel) is not None:
            channel.kill()

    def _one(self, command: str, request: dict[str, Any], where: str, seconds: float | None) -> Any:
        [value] = self._exchange(command, request, [where], seconds)
        return value

    def _exchange(
        self, command: str, request: dict[str, Any], wheres: Sequence[str], seconds: float | None
    ) -> Generator[Any, None, None]:
        """Send a request and yield one reply for each place; where anything goes wrong, the process
        is ended.
        """
        channel = cast("_Channel", self._channel)
        try:
            for place, where in enumerate(wheres):
                deadline = _Deadline(where, seconds)
                if not place:
                    channel.send({"command": command} | request, deadline)
                yield channel.receive(deadline)
        except BaseException:  # Ctrl-C, and a caller who leaves before the last reply, too
            channel.end()
            self._channel = None
            raise


def _orders(llm: LLM, replicate: int, rows: Rows) -> Orders:
    """Return one draw of whole pools, [Q, S]."""
    orders: Orders = llm.orders([replicate], int(llm.pool.sizes[rows].max(initial=1)), rows)[0]
    return orders


def _method_answer(value: Any, sizes: Sequence[int], where: str) -> MethodAnswer:
    """Return an answer that the worker gave; `MethodError` where it cannot have come about."""
    match value:
        case [None | str() as answer, list(ledgers), list(grown)] if _possible(
            ledgers, sizes
        ) and _possible_growth(grown, sizes):
            return MethodAnswer(answer, ledgers, grown)
    raise MethodError(
        f"{where} gave a reply that is not an answer with what it took ({value!r:.80}). Leave"
        " feval's pipe alone."
    )


def _possible(ledgers: list[Any], sizes: Sequence[int]) -> bool:
    """Whether these are ledgers of pools with so many CoTs."""
    return len(ledgers) == len(sizes) and all(
        isinstance(ledger, list)
        and len(ledger) == len(LEDGER_FIELDS)
        and all(type(number) is int and 0 <= number < _MOST_BILLED for number in ledger)
        and ledger[LEDGER_FIELDS.index("cots")] <= size
        for ledger, size in zip(ledgers, sizes, strict=True)
    )


def _possible_growth(grown: list[Any], sizes: Sequence[int]) -> bool:
    """Whether these are places and tokens of what may have been handed out of such pools, or
    nothing was looked at.
    """
    return not grown or (
        len(grown) == len(sizes)
        and all(
            isinstance(own, list) and all(_possible_cot(each, size) for each in own)
            for own, size in zip(grown, sizes, strict=True)
        )
    )


def _possible_cot(value: Any, size: int) -> bool:
    match value:
        case [int(place), int(tokens)]:
            return 0 <= place < size and 0 <= tokens < _MOST_BILLED
    return False


class _Deadline:
    """The end of the time for one reply; `where` says in messages what is under way."""

    def __init__(self, where: str, seconds: float | None) -> None:
        self.where, self._seconds, self._end = where, seconds, time.monotonic() + (seconds or 0)

    def wait(self, selector: selectors.BaseSelector) -> None:
        """Wait for a pipe; `MethodError` where the time is up."""
        left = None if self._seconds is None else max(self._end - time.monotonic(), 0)
        if not selector.select(left):
            self._end_of_time()

    def check(self) -> None:
        """Raise `MethodError` where the time is up."""
        if self._seconds is not None and time.monotonic() > self._end:
            self._end_of_time()

    def _end_of_time(self) -> NoReturn:
        raise MethodError(
            f"{self.where} did not come to an end in {self._seconds:g} s. Fix it, or give it more"
            " time (--time-limit)."
        )


class _Channel:
    """A started worker process, and the messages to and from it; `desk` answers its calls."""

    def __init__(self, desk: Desk, folder: Path, *, sandbox: bool) -> None:
        command = [sys.executable, "-P", "-m", "feval.evaluation.user_methods.worker"]
        process = subprocess.Popen(  # noqa: S603  the user's own file
            sandboxed(command) if sandbox else command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if sandbox else None,
            cwd=folder if folder.is_dir() else None,  # on another machine it may not be there
            env=python_environment(sandbox=sandbox),
            # Ctrl-C is for the parent; and what the user's code starts is ended with the group
            start_new_session=True,
        )
        self._process, self._desk = process, desk
        self._requests, self._replies = (
            cast("IO[bytes]", process.stdin),
            cast("IO[bytes]", process.stdout),
        )
        os.set_blocking(self._requests.fileno(), False)
        self._buffer = bytearray()
        self._readable, self._writable = selectors.DefaultSelector(), selectors.DefaultSelector()
        self._readable.register(self._replies, selectors.EVENT_READ)
        self._writable.register(self._requests, selectors.EVENT_WRITE)
        selected = (self._readable, self._writable)
        printing = threading.Thread(target=_print, args=(process.stderr,), daemon=True)
        printing.start()
        self.end: Callable[[], object] = weakref.finalize(
            self, _end, process, selected, printing, os.getpid()
        )

    def kill(self) -> None:
        """Kill the process. A thread that waits for it sees its pipe end, which it would not if the
        pipe were closed here.
        """
        _kill(self._process)

    def send(self, message: dict[str, Any], deadline: _Deadline) -> None:
        """Send a message; where the process is gone, the reply that does not come says so."""
        left = memoryview(encoded(message))
        with suppress(BrokenPipeError):
            while left:
                try:
                    left = left[os.write(self._requests.fileno(), left) :]
                except BlockingIOError:
                    deadline.wait(self._writable)

    def receive(self, deadline: _Deadline) -> Any:
        """Answer calls, and return the value of the next reply.

        Raises:
            FevalError: what the worker says.
            MethodError: no reply came in time, it was none, or the process ended.
        """
        while True:
            message = self._message(deadline)
            if "call" in message:
                deadline.check()  # calls that come without end are never waited for
                self.send(self._desk.reply(message["call"]), deadline)
            elif "value" in message:
                return message["value"]
            else:
                kind, text = str(message.get("error")), f"{message.get('message')!s:.4000}"
                if kind in _VERBATIM_ERRORS:
                    raise getattr(errors, kind)(text)
                raise MethodError(f"{deadline.where} {text}")

    def _message(self, deadline: _Deadline) -> dict[str, Any]:
        [size] = LENGTH.unpack(self._read(LENGTH.size, deadline))
        if size > _MOST_BYTES:
            raise MethodError(
                f"{deadline.where} gave a reply of {size:,} bytes; {_MOST_BYTES:,} is the most."
            )
        try:
            message = decoded(self._read(size, deadline))
            require_shallow(message)
        except ValueError as error:
            raise MethodError(
                f"{deadline.where} wrote something to feval's pipe that is not a message"
                f" ({error!s:.80}). Leave that pipe alone."
            ) from error
        return message

    def _read(self, size: int, deadline: _Deadline) -> bytes:
        while len(self._buffer) < size:
            deadline.wait(self._readable)
            if not (piece := os.read(self._replies.fileno(), 1 << 16)):
                raise MethodError(f"{deadline.where} ended its process ({self._exit_reason()}).")
            self._buffer += piece
        piece, self._buffer = bytes(self._buffer[:size]), self._buffer[size:]
        return piece

    def _exit_reason(self) -> str:
        try:
            status = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed the pipe to feval"
        if status >= 0:
            return f"exit status {status}"
        names = {number.value: number.name for number in signal.Signals}  # not those for real time
        return f"signal {names.get(-status, -status)}"


def _print(printed: IO[bytes] | None) -> None:
    """Pass on what is printed in a sandbox, which is not handed feval's standard error: the file
    behind it could be opened.
    """
    if printed is not None:
        with printed, suppress(OSError):
            while piece := printed.read(1 << 16):
                os.write(2, piece)


def _end(
    process: subprocess.Popen[bytes],
    selected: Sequence[selectors.BaseSelector],
    printing: threading.Thread,
    owner: int,
) -> None:
    """End a worker process and what the user's code started there."""
    if os.getpid() != owner:
        return  # in a fork of the process that started it, which goes on
    _kill(process)
    process.wait()
    printing.join(_EXIT_SECONDS)
    for selector in selected:
        selector.close()
    for pipe in (process.stdin, process.stdout):
        cast("IO[bytes]", pipe).close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)

"""Call a user's method on one question, so that whatever it does ends in an answer or in a sentence."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, NoReturn

from feval.errors import FevalError, MethodError, UsageError

__all__ = ["TIME_LIMIT", "call_method", "contained", "require_arguments"]

TIME_LIMIT = 60.0
"""Seconds that a method may take on one question: a replay answers at once."""


class _TimeUpError(BaseException):
    """Beyond `except Exception`, so that a method cannot swallow it by accident."""


def call_method(
    method: Callable[..., Any],
    name: str,
    question_id: str,
    question: str,
    llms: Sequence[Any],
    time_limit: float | None,
) -> str | None:
    """The answer of a user's method to one question.

    Args:
        method: the callable.
        name: what it is called, for messages.
        question_id: for messages; the method does not see it.
        question: the text.
        llms: metered.
        time_limit: seconds; `None` for no limit.

    Raises:
        MethodError: it raised, asked for more CoTs than there are, answered with something that is neither text nor `None`, or
            took too long. The message names method and question.
    """
    where = f"The method {name} on question {question_id!r}"
    with contained(where, time_limit):
        given = method(question, *llms)
    if given is not None and not isinstance(given, str):
        if inspect.iscoroutine(given):
            given.close()
        raise MethodError(
            f"{where} answered with {given!r:.80}, of type {type(given).__name__}. A method returns an answer as text, or None."
        )
    return None if given is None else str.__str__(given)  # a subclass of text may say that it equals anything


def require_arguments(method: Callable[..., Any], name: str, llms: int) -> None:
    """Make sure that a user's method can be called with a question and so many LLMs.

    Raises:
        UsageError: it takes more, or fewer.
    """
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return  # written in C, for example: calling it will tell
    try:
        signature.bind("", *[None] * llms)
    except TypeError as error:
        raise UsageError(
            f"The method {name}{signature} cannot be called with a question and {llms} LLM{'s' * (llms != 1)}: {error}. "
            "Give as many LLMs as it takes; it is called as method(question, llm, ...)."
        ) from error


@contextmanager
def contained(where: str, time_limit: float | None) -> Iterator[None]:
    """Run a user's code so that whatever it does but Ctrl-C ends in a sentence.

    What it prints goes to standard error, since results go to standard output; there is nothing to read for it.

    Args:
        where: what is run, the beginning of the sentence.
        time_limit: seconds; `None` for no limit.

    Raises:
        MethodError: it raised, ended the program, or took too long.
    """
    try:
        with _limited(time_limit), _aside():
            yield
    except _TimeUpError as error:
        raise MethodError(
            f"{where} did not come to an end in {time_limit:g} s. Mend it, or give it more time (--time-limit)."
        ) from error
    except FevalError as error:
        raise MethodError(f"{where} failed: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        said = f": {error}" if str(error) else ""
        raise MethodError(f"{where} raised {type(error).__name__}{said}{_place(error)}.") from error


class _NoKeyboard(io.TextIOBase):
    """What a method reads from."""

    def readline(self, *_: object) -> NoReturn:
        raise OSError("a method has nobody to ask: there is no standard input")

    read = readline


@contextmanager
def _aside() -> Iterator[None]:
    """Keep a user's code off standard output and input. Both belong to the whole process, so only the main thread moves them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, sys.stdin = sys.stdin, _NoKeyboard()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdin = before


_OWN = str(Path(__file__).parents[1])


def _place(error: BaseException) -> str:
    """Where in the user's code it happened; a file by its name alone, since the sentence is kept in reports and receipts."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [(file, line) for file, line in frames if not file.startswith((_OWN, "<"))]
    return f" ({Path(own[-1][0]).name}, line {own[-1][1]})" if own else ""


@contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """Raise `_TimeUpError` in this thread after some seconds."""
    if seconds is None:
        yield
    elif threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        with _by_signal(seconds):
            yield
    else:
        with _by_watchdog(seconds):
            yield


_MACHINERY = (__file__, contextlib.__file__)

_RING_AGAIN = 0.5
"""Seconds after which time is said to be up once more: a bare `except:` may have swallowed it."""


@contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    """In the main thread a signal interrupts even a sleep."""
    traced: list[FrameType] = []
    base = _limiting(inspect.currentframe())

    def ring(_: int, frame: FrameType | None) -> None:
        above = _above(frame, base)
        if above and all(one.f_code.co_filename in _MACHINERY for one in above):
            return  # nobody's code runs: the limit is being set, or taken away, and would never be if this raised
        traced.extend(_trace(above))
        raise _TimeUpError

    tracer, handler = sys.gettrace(), signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _RING_AGAIN)
    started = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.settrace(tracer)
        for frame in traced:
            frame.f_trace = None
        signal.signal(signal.SIGALRM, handler)
        if left:  # somebody else's limit goes on: that of the question in which a file is loaded, for example
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - started), 1e-6), interval)


def _limiting(frame: FrameType | None) -> FrameType | None:
    """The frame whose code is limited: the one that entered `contained`, or what joins it to `_by_signal`."""
    names = {"_by_signal", "_limited", "contained"}
    while frame is not None and (
        frame.f_code.co_filename == contextlib.__file__
        or (frame.f_code.co_filename == __file__ and frame.f_code.co_name in names)
    ):
        frame = frame.f_back
    return frame


def _above(frame: FrameType | None, base: FrameType | None) -> list[FrameType]:
    """The frames that were called from `base`, from the innermost."""
    found = []
    while frame is not None and frame is not base:
        found.append(frame)
        frame = frame.f_back
    return found


def _trace(frames: Sequence[FrameType]) -> Iterator[FrameType]:
    """Raise `_TimeUpError` at the next line, too, of the user's code; gives its frames.

    Where a loop swallows what is raised inside its `try`, the next line is that of its `except`, which is outside.
    """

    def again(_: FrameType, event: str, __: object) -> Callable[..., Any]:
        if event == "line":
            raise _TimeUpError
        return again

    for frame in frames:
        if not frame.f_code.co_filename.startswith(_OWN) and frame.f_trace is None:
            frame.f_trace = again
            yield frame
    sys.settrace(lambda *_: None)  # traces nothing that is called from now on, but without it no frame is traced


@contextmanager
def _by_watchdog(seconds: float) -> Iterator[None]:
    """In another thread the exception is put in between two bytecodes: it ends loops, though not a call that blocks."""
    me = ctypes.c_ulong(threading.get_ident())
    raised, done = ctypes.pythonapi.PyThreadState_SetAsyncExc, threading.Event()

    def watch() -> None:
        late = done.wait(seconds)
        while not late:
            raised(me, ctypes.py_object(_TimeUpError))
            late = done.wait(_RING_AGAIN)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()

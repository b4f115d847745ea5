"""Call a user's method on one question, so that whatever it does ends in an answer or in a sentence."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from feval.errors import FevalError, MethodError

__all__ = ["TIME_LIMIT", "call_method"]

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
    try:
        with _limited(time_limit):
            given = method(question, *llms)
    except _TimeUpError as error:
        raise MethodError(
            f"{where} did not come to an end in {time_limit:g} seconds. Mend it, or give it more time with the time limit."
        ) from error
    except FevalError as error:
        raise MethodError(f"{where} failed: {error}") from error
    except Exception as error:
        raise MethodError(f"{where} raised {type(error).__name__}: {error} {_place(error)}") from error
    if given is not None and not isinstance(given, str):
        raise MethodError(
            f"{where} answered with {given!r:.80}, of type {type(given).__name__}. A method returns an answer as text, or None."
        )
    return given


def _place(error: Exception) -> str:
    """Where in the user's code it happened."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})."


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


@contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    """In the main thread a signal interrupts even a sleep."""

    def ring(*_: object) -> None:
        raise _TimeUpError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_watchdog(seconds: float) -> Iterator[None]:
    """In another thread the exception is put in between two bytecodes: it ends loops, though not a call that blocks."""
    me = threading.get_ident()
    raised = ctypes.pythonapi.PyThreadState_SetAsyncExc
    timer = threading.Timer(seconds, lambda: raised(ctypes.c_ulong(me), ctypes.py_object(_TimeUpError)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

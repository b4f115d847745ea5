"""How far work is: a bar of rich on a terminal, one of tqdm in a notebook, else lines; and who gets to see it."""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, Protocol, Self, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Bar(Protocol):
    """What shows how far work is."""

    def update(self, done: int, total: int | None) -> None:
        """Show that so many of all steps are done; `None` where nobody knows how many there are."""

    def describe(self, label: str) -> None:
        """Change the words beside it."""

    def stop(self) -> None:
        """End it."""


class TerminalBar:
    """A bar of rich on standard error, which goes when the work is done."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task(label, total=None)
        self._progress.start()

    def update(self, done: int, total: int | None) -> None:
        """Show that so many of all steps are done."""
        self._progress.update(self._task, completed=done, total=total)

    def describe(self, label: str) -> None:
        """Change the words beside it."""
        self._progress.update(self._task, description=label)

    def say(self, sentence: str) -> None:
        """Print a sentence above it."""
        self._progress.console.print(sentence, markup=False, highlight=False)

    def stop(self) -> None:
        """End it."""
        self._progress.stop()


class NotebookBar:
    """A bar of tqdm."""

    def __init__(self, label: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets it draws a bar of letters
            from tqdm.auto import tqdm

            self._bar: Any = tqdm(desc=label, leave=False)

    def update(self, done: int, total: int | None) -> None:
        """Show that so many of all steps are done."""
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def describe(self, label: str) -> None:
        """Change the words beside it."""
        self._bar.set_description(label)

    def stop(self) -> None:
        """End it."""
        self._bar.close()


class Lines:
    """A line on standard error whenever another tenth of the work is done."""

    def __init__(self, label: str) -> None:
        self._label, self._tenths = label, -1

    def update(self, done: int, total: int | None) -> None:
        """Print how much is done, if that is a tenth more than the last time."""
        tenths = 10 * done // total if total else 0
        if tenths > self._tenths and sys.stderr is not None:
            self._tenths = tenths
            sys.stderr.write(f"{self._label}: {10 * tenths} %\n")

    def describe(self, label: str) -> None:
        """Change the words before it."""
        self._label = label

    def stop(self) -> None:
        """Nothing is left to end."""


class ProgressBar:
    """Progress that appears after a while, and goes when the work is done.

    Args:
        label: words beside it, safe to print.
        shown: whether it is to appear at all.
    """

    DELAY_SECONDS = 2.0

    def __init__(self, label: str, *, shown: bool = True) -> None:
        self._label, self._shown = label, shown
        self._bar: Bar | None = None
        self._steps: tuple[int, int | None] = (0, None)
        self._lock = threading.Lock()
        self._timer = threading.Timer(self.DELAY_SECONDS, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._shown:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._shown = False
            if self._bar is not None:
                self._bar.stop()

    def __call__(self, done: int, total: int | None) -> None:
        """Report that `done` of `total` steps are done."""
        self._steps = (done, total)
        if self._bar is not None:
            self._bar.update(done, total)

    def describe(self, label: str) -> None:
        """Change the words beside it, which are safe to print."""
        self._label = label
        if self._bar is not None:
            self._bar.describe(label)

    def _show(self) -> None:
        with self._lock:
            if self._shown:
                bar = self._made()
                bar.update(*self._steps)
                self._bar = bar

    def _made(self) -> Bar:
        kind = TerminalBar if _on_terminal() else NotebookBar if _in_notebook() else Lines
        try:
            return kind(self._label)
        except ImportError:
            return Lines(self._label)


_wanted: bool | None = None
_shown = threading.Lock()
"""Held while a bar is shown: work within other work shows none of its own."""


def set_progress(shown: bool | None) -> None:
    """Show how far work of more than two seconds is, or do not.

    Args:
        shown: `None`, as it is at first: on a terminal and in notebooks. `True`: everywhere, where there is neither as lines on
            standard error. `False`: nowhere.
    """
    global _wanted
    _wanted = shown


def reports(label: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Give a function that takes `progress` a bar of its own, where its caller gives none and wants to see one."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        place = list(inspect.signature(function).parameters).index("progress")

        @wraps(function)
        def reporting(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if kwargs.get("progress") is not None or len(args) > place:
                return function(*args, **kwargs)
            kwargs.pop("progress", None)
            wanted = _on_terminal() or _in_notebook() if _wanted is None else _wanted
            if not wanted or not _shown.acquire(blocking=False):
                return function(*args, **kwargs)
            try:
                with ProgressBar(label) as bar:
                    kwargs["progress"] = bar
                    return function(*args, **kwargs)
            finally:
                _shown.release()

        return reporting

    return decorate


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None

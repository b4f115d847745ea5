"""How far work is: a bar of rich on a terminal, one of tqdm in a notebook, else lines; and who gets
to see it.
"""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""

UncountedProgress = Callable[[int, int | None], None]
"""The same, with `None` for all steps where nobody has counted them."""


def silent(_done: int, _total: int | None) -> None:
    """Show no progress."""


class TerminalBar:
    """A bar of rich on standard error, which goes when the work is done."""

    def __init__(self, label: str) -> None:
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
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

            form = "{l_bar}{bar}| {elapsed}<{remaining}"
            # With a delay it is not drawn before `update`, when the total is known.
            self._bar: Any = tqdm(desc=label, leave=False, bar_format=form, delay=1e-9)

    def update(self, done: int, total: int | None) -> None:
        """Show that so many of all steps are done."""
        is_first, self._bar.total = self._bar.total is None, total
        self._bar.update(done - self._bar.n)
        if is_first:
            self._bar.refresh()

    def describe(self, label: str) -> None:
        """Change the words beside it."""
        self._bar.set_description(label, refresh=False)

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
        if tenths > self._tenths:
            self._tenths = tenths
            # nobody reads it: no reason for work to fail
            with suppress(AttributeError, OSError, ValueError):
                sys.stderr.write(f"{self._label}: {10 * tenths} %\n")

    def describe(self, label: str) -> None:
        """Change the words before it."""
        self._label = label

    def stop(self) -> None:
        """Nothing is left to end."""


Bar = TerminalBar | NotebookBar | Lines
"""What shows how far work is."""


class ProgressBar:
    """Progress that appears after two seconds, where somebody wants to see it, and goes when the
    work is done.

    Work within other work shows none of its own. Where nobody knows how many steps there are, only
    a terminal shows that there is work.

    Attributes:
        label: words beside it, safe to print.
        shown: whether it may appear, known once it is entered.
    """

    DELAY_SECONDS = 2.0

    def __init__(self, label: str) -> None:
        self.label, self.shown = label, False
        self._bar: Bar | None = None
        self._due = False
        self._steps: tuple[int, int | None] = (0, None)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        wanted = _on_terminal() or _in_notebook() if _wanted is None else _wanted
        if wanted and _taken.acquire(blocking=False):
            self.shown, self._timer = True, threading.Timer(self.DELAY_SECONDS, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        try:
            with self._lock:
                self.shown = False
                if self._bar is not None:
                    self._bar.stop()
        finally:
            _taken.release()

    def __call__(self, done: int, total: int | None) -> None:
        """Report that `done` of `total` steps are done."""
        self._steps = (done, total)
        if self._bar is not None:
            self._bar.update(done, total)
        elif self._due:
            self._show()

    def describe(self, label: str) -> None:
        """Change the words beside it, which are safe to print."""
        self.label = label
        if self._bar is not None:
            self._bar.describe(label)

    def say(self, sentence: str) -> bool:
        """Print a sentence above a bar on a terminal; return whether there is one."""
        if isinstance(self._bar, TerminalBar):
            self._bar.say(sentence)
        return isinstance(self._bar, TerminalBar)

    def _show(self) -> None:
        with self._lock:
            self._due = True
            if self.shown and self._bar is None and (self._steps[1] or _on_terminal()):
                bar = self._made()
                bar.update(*self._steps)
                self._bar = bar

    def _made(self) -> Bar:
        kind = TerminalBar if _on_terminal() else NotebookBar if _in_notebook() else Lines
        try:
            return kind(self.label)
        except ImportError:
            return Lines(self.label)


_wanted: bool | None = None
_taken = threading.Lock()
"""Held while a bar may appear."""


def set_progress(shown: bool | None) -> bool | None:
    """Show how far work of more than two seconds is, or do not.

    Args:
        shown: `None`, as it is at first: on a terminal and in notebooks. `True`: everywhere, where
            there is neither as lines on standard error. `False`: nowhere.

    Returns:
        What was set before.
    """
    global _wanted
    before, _wanted = _wanted, shown
    return before


def reports(
    label: str, listener: Callable[[ProgressBar], Callable[..., None]] = lambda bar: bar
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Give a function a bar of its own, where its caller wants to see one and does not listen to
    its `progress`.

    Args:
        label: words beside the bar.
        listener: makes what the function gets as `progress` from the bar. A function that takes
            none has a bar without steps.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        names = list(inspect.signature(function).parameters)
        place = names.index("progress") if "progress" in names else None

        @wraps(function)
        def reporting(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if kwargs.get("progress") is not None or (place is not None and len(args) > place):
                return function(*args, **kwargs)
            kwargs.pop("progress", None)
            with ProgressBar(label) as bar:
                if bar.shown and place is not None:
                    kwargs["progress"] = listener(bar)
                return function(*args, **kwargs)

        return reporting

    return decorate


def _on_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    # there is none, it is something else that has `write`, or it is closed
    except (AttributeError, ValueError):
        return False


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None

"""What a command prints: results, notes, errors, progress."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from feval.executors.progress import Progress, ProgressBar
from feval.publish.secrets import shown
from feval.report import tables
from feval.report.tables.tables import plain, plain_text, without_spares
from feval.report.text import duration, visible
from feval.values import Record

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table as RichTable

    from feval.report.tables.tables import Line, Table

_WIDEST_TABLE = 10_000
_LONG_SECONDS = 30


def say(sentence: str) -> None:
    """Print to standard error, if there is one: `print` would fall back on standard output."""
    if sys.stderr is not None:
        print(visible(shown(sentence)), file=sys.stderr)


class Output:
    """Where a command's results and notes go, by --json and --quiet."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.json, self.quiet = as_json, quiet

    def result(self, value: Record, *shown: str | Table, written: Sequence[Path] = ()) -> None:
        """Print the JSON object, or else the sentences, the tables and what files were written, or
        with --quiet nothing.
        """
        shown += tuple(f"wrote {path}" for path in written)
        if self.json:
            # ASCII: no terminal, locale or control character can spoil it.
            print(json.dumps(value, ensure_ascii=True, allow_nan=False))
        elif not self.quiet:
            for before, piece in zip((None, *shown), shown, strict=False):
                if isinstance(piece, str):
                    print(visible(piece))
                else:
                    print_table(piece, apart=before is not None and not isinstance(before, str))

    def pages(self, value: Record, *pieces: Line | Table) -> None:
        """Print the JSON object, or else lines and tables: on a terminal in colour and through a
        pager.
        """
        if self.json or self.quiet:
            self.result(value)
        elif sys.stdout is None or not sys.stdout.isatty():
            print(plain_text(pieces), end="")
        else:
            _page(pieces)

    @contextmanager
    def live(self, make: Callable[[], Table]) -> Iterator[None]:
        """Keep a table on a terminal, anew each second, while something runs."""
        if self.json or self.quiet or sys.stderr is None or not sys.stderr.isatty():
            yield
            return
        from rich.live import Live

        console = _console(stderr=True)

        def drawn() -> RichTable | str:
            table = make()
            return _fitting(table, console) if table.rows else ""

        with Live(
            console=console, get_renderable=drawn, refresh_per_second=1, redirect_stdout=False
        ):
            yield

    def note(self, *sentences: object) -> None:
        """Print remarks to standard error."""
        for sentence in () if self.quiet else sentences:
            say(f"note: {sentence}")

    def progress(self, label: str) -> ProgressBar:
        """Return a progress bar, which `feval.set_progress` switches off."""
        return ProgressBar(visible(label))


def _page(pieces: Sequence[Line | Table]) -> None:
    from rich.text import Text

    # as git does: colours, and no waiting for what fits the screen
    os.environ.setdefault("LESS", "FRX")
    console = _console()
    with console.pager(styles=True):
        for piece in pieces:
            if isinstance(piece, tuple):
                console.print(Text.assemble(*piece))
            else:
                _draw(piece, console)


def print_table(table: Table, *, apart: bool) -> None:
    """Print a table; `apart` leaves a line between it and the table above, which rich does by
    itself.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        print("\n" if apart else "", plain(table), sep="", end="")
        return
    _draw(table, _console())


def _console(*, stderr: bool = False) -> Console:
    """A terminal that shows texts as they are."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def _draw(table: Table, console: Console) -> None:
    """Print the most detailed form of a table that a terminal has room for."""
    # nothing may give way: better wrapped by the terminal than cut
    fitting = _fitting(table, console)
    wide = console.options.update(max_width=_WIDEST_TABLE)
    fits = console.measure(fitting, options=wide).minimum <= console.width
    if not fits and table.columns[-1].number:
        console.print(plain(table), end="", soft_wrap=True)
    else:
        console.print(fitting)


def _fitting(table: Table, console: Console) -> RichTable:
    """The most detailed form of a table that a terminal has room for, or the whole one."""
    short = without_spares(table)
    forms = (
        tables.rich_table(table),
        tables.rich_table(table, narrow=True),
        tables.rich_table(short, narrow=True),
        tables.rich_table(short, narrow=True, folded=True),
    )
    wide = console.options.update(max_width=_WIDEST_TABLE)
    return next(
        (drawn for drawn in forms if console.measure(drawn, options=wide).minimum <= console.width),
        forms[0],
    )


def announce_long_run(bar: ProgressBar, work: Callable[[int], str]) -> Progress:
    """Return progress for a bar that says once, on a terminal, what work of more than half a minute
    will take.

    The sentence comes with the first step after a second of work; what was done by then is its
    measure. `work` puts all steps into words.
    """
    began, told = time.monotonic(), False

    def step(done: int, total: int) -> None:
        nonlocal told
        seconds = time.monotonic() - began
        if not told and seconds >= 1:
            told, left = True, seconds / max(done, 1) * (total - done)
            sentence = visible(f"{work(total)} will take about {duration(left)}.")
            if bar.shown and left > _LONG_SECONDS and not bar.say(sentence):
                say(sentence)
        bar(done, total)

    return step


def quiet_matplotlib() -> None:
    """Keep matplotlib's messages about its font cache off standard error."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)

"""The command line: parses, delegates, prints.

`commands` has the table of commands; the module of a command is imported when the command is asked
for. `options` has the options that commands share, `output` what they print with.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from feval.cli.interrupts import end_at_once
from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.cli.commands import app as app


def main() -> None:
    """Run the command line (the entry point of the `feval` program)."""
    # Until a command works, nothing has to be put away: Ctrl-C ends at once, also in the middle of
    # an import.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from feval.cli.commands import run  # takes most of the first half second

    run()


__getattr__, __dir__ = lazy_names(__name__, {"commands": "app"})

"""The command line: parses, delegates, prints.

`commands` has the table of commands; the module of a command is imported when the command is asked for. `options` has the options
that commands share, `output` what they print with.
"""

from feval.cli.commands import app, main

__all__ = ["app", "main"]

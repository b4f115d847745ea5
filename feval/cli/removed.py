"""Options of earlier versions: the error that names the new way."""

from __future__ import annotations

from collections.abc import Sequence

from feval.errors import UsageError

_IN_PYTHON = "this rare setting is an argument of `{}` in Python"
_REMOVED = (
    ("run curve compare", "--split-seed", "write `split_seed = ...` into a comparison file, for `feval compare FILE`"),
    ("run curve compare estimate grade", "--no-receipt", "use `--receipt none`"),
    ("import merge extract record proxy", "--tolerance", "use `--equality tolerance-X`, such as tolerance-1e-4"),
    ("import", "--temperature --max-tokens --keep-duplicates --prices", _IN_PYTHON.format("feval.import_recording")),
    ("proxy", "--prices", "name a price list where the recording is evaluated"),
    ("plan", "--pilot", "use `--recording`"),
    ("plan", "--most-votes", _IN_PYTHON.format("feval.forecast.plan")),
    ("estimate", "--replicate", _IN_PYTHON.format("feval.forecast.estimate")),
    ("couple", "--samples --resamples", _IN_PYTHON.format("feval.forecast.coupled.couple")),
    ("serve", "--billing", _IN_PYTHON.format("feval.serving.serve")),
    (
        "push",
        "--title --licence --language",
        "write title, license or language into the front matter of `--words FILE`",
    ),
)

REMOVED = {
    (command, option): advice
    for commands, options, advice in _REMOVED
    for command in commands.split()
    for option in options.split()
}
"""(command, option) -> what to do instead."""


def refuse_removed(command: str, arguments: Sequence[str]) -> None:
    """Check the arguments of a command for options that it no longer has.

    Raises:
        UsageError: one is there; the message says what to do instead.
    """
    for argument in arguments:
        option = argument.partition("=")[0]
        if advice := REMOVED.get((command, option)):
            raise UsageError(f"{option} is no longer an option of `feval {command}`; {advice}.")

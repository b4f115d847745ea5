"""Options that several commands share, and the values they are read into."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from feval import executors
from feval.cards.prices import changed_prices
from feval.cards.reading import read_regular
from feval.cli.commands import argument, expanded, keyword, option
from feval.errors import OutOfRangeError, SourceError, UsageError
from feval.hub import split_places as places
from feval.values import Record

if TYPE_CHECKING:
    from feval.cli.output import Output
    from feval.replay import LLM

_MAX_COUNTS = 10_000
_MOST_BYTES = 64 << 20
DEFAULT_COUNTS = 40

DatasetName = Annotated[str | None, option("Needed where there are several.", "ID")]
LLMName = Annotated[str | None, option("Needed where there are several.", "NAME")]
LLMNames = Annotated[
    list[str] | None,
    option("Repeat for several, in the order the method wants them.", "NAME", name="--llm"),
]
RecordingFolders = Annotated[
    list[Path] | None,
    option(
        "Repeat for several. Default: the folders in FEVAL_RECORDING.", "DIR", name="--recording"
    ),
]
OnlyDatasets = Annotated[
    list[str] | None, option("Only this; repeat for several. Default: all.", "ID")
]
OnlyLLMs = Annotated[
    list[str] | None, option("Only this; repeat for several. Default: all.", "NAME")
]
AnswerKind = Annotated[
    str | None, option("See `feval ls answer-kinds`. Default: the dataset's own.", "KIND")
]
Settings = Annotated[
    list[str] | None,
    option(
        "A field of the method (`feval ls METHOD`). Repeat for several.",
        "FIELD=VALUE",
        name="--set",
    ),
]
Drop = Annotated[
    list[str] | None,
    option("Leave out questions: unlabelled (no gold that can be read) or short-pools.", "WHICH"),
]
Prices = Annotated[
    str | None,
    option("Id or file of a price list, recorded, or none. Default: the recording's.", "LIST"),
]
Right = Annotated[
    str | None, option("gold, verdict, 'verdict>=0.5' or verdict:GRADER, as for run.", "RULE")
]
_PRICE_CHANGES: Record = {
    "price": Annotated[
        list[str] | None,
        option(
            "A price by hand, in USD per million tokens (a third number: cached). Repeat.",
            "LLM=IN,OUT",
        ),
    ],
    "price_time": Annotated[
        str | None, option("Of prices of genai-prices: the hour, in UTC.", "HH:MM")
    ],
    "tier": Annotated[str | None, option("What the same would cost in a batch.", "batch")],
}
price_changes = [keyword(name, option) for name, option in _PRICE_CHANGES.items()]
"""--price, --price-time and --tier; `fold_prices` makes a price list of them."""
UsersMethods = Annotated[
    list[str] | None,
    option(
        "A method of your own that may run. Repeat for several.",
        "FILE.py:FUNCTION",
        name="--method",
    ),
]
TimeLimit = Annotated[
    float, option("For a method of your own, per question.", "SECONDS", min=0.001)
]
Sandbox = Annotated[
    bool, option("For a method of your own: run it in bubblewrap, without network and home.")
]
ShowAll = Annotated[
    bool, option("Print every table of a comparison, after the headline.", name="--all")
]
RecordingFolder = Annotated[
    Path, argument("Folder of a recording, or hf://NAMESPACE/NAME@COMMIT.", "RECORDING")
]
Equality = Annotated[
    str | None,
    option("Of answers: normal-form; tolerance-X for numbers; math-verify for LaTeX.", "NAME"),
]
_Workers = Annotated[
    str,
    option(
        "Processes, or a Dask cluster: tcp://HOST:PORT. The numbers do not depend on it.",
        "N|ADDRESS",
    ),
]
DryRun = Annotated[bool, option("Print expected calls, tokens and dollars; send nothing.")]
NewFolder = Annotated[Path, option("The recording to make: a new folder.", "DIR")]


def fold_prices(options: Record, prices: str | None = None) -> Any:
    """Put what `price_changes` gave into the option `prices`, or into a list where there is none;
    return that option.
    """
    by_hand, hour, tier = (options.pop(name, None) for name in _PRICE_CHANGES)
    if by_hand or hour or tier:
        prices = options.get("prices") or prices
        options["prices"] = changed_prices(prices, by_hand or (), hour, tier)
    return options.get("prices")


prices_option = expanded("prices", [keyword("prices", Prices), *price_changes], fold_prices)
"""Gives a command --prices and what changes them; the list's name comes as `prices`."""


Machines = AbstractContextManager[Any]
"""The executor that --workers asks for, or `None`."""


def _machines(values: Record) -> Machines:
    """Return a number of processes, or the cluster of a Dask scheduler; see
    `feval.executors.opened`.
    """
    workers = values["workers"]
    if "://" in workers:
        return executors.opened(scheduler=workers)
    if not re.fullmatch("[0-9]{1,9}", workers):
        raise UsageError(
            "--workers is a number of processes, or the address of a Dask scheduler such as"
            f" tcp://HOST:PORT; {workers!r} was given."
        )
    return executors.opened(int(workers))


machine_options = expanded("machines", [keyword("workers", _Workers, "1")], _machines)
"""Gives a command --workers; what opens the executor comes as `machines`."""


def read_text(path: Path, what: str, option: str) -> str:
    """Return the text of a file that an option names; `SourceError` if it cannot be read."""
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{path} should be {what} as UTF-8 text; it cannot be read:"
            f" {getattr(error, 'strerror', None) or error}. Check {option}."
        ) from error


def recording_folders(options: Sequence[Path] | None) -> list[Path]:
    """Return the folders that options name, else those in FEVAL_RECORDING."""
    folders = options or [Path(place) for place in places(os.environ.get("FEVAL_RECORDING", ""))]
    if not folders:
        raise UsageError(
            "No recording was named; give --recording DIR, or set FEVAL_RECORDING to its folder."
        )
    return list(folders)


def note_missing_dollars(show: Output, prices: str | None, llms: Sequence[LLM]) -> None:
    """Print why and of which LLMs dollars are missing, unless they were switched off; accuracy does
    not need them. Where no prompts were recorded, say which tokens are known.
    """
    unpriced = [llm for llm in llms if llm.price is None]
    llm, names = (unpriced or llms)[0], ", ".join(repr(llm.name) for llm in unpriced or llms)
    if prices == "none":
        return
    if llm.states_usd:
        reason = (
            "recorded USD are of whole CoTs, and nothing states those of probes and verifications."
            " Give a price list with --prices."
        )
    elif None not in (unpaid := [llm.unpaid for llm in llms]):
        cots = sum(int(llm.pool.sizes.sum()) for llm in llms)
        missing = sum(filter(None, unpaid))
        reason = (
            f"{missing:,} of {cots:,} CoTs state no USD."
            if missing
            else f"CoTs of {names} state their own USD. Take these with --prices recorded."
        )
    elif uncounted := ", ".join(repr(llm.name) for llm in llms if not llm.is_counted):
        reason = f"no tokens of {uncounted} were recorded. Import them, or USD (`usd`)."
    elif llm.prices is None:
        reason = (
            "the recording names no price list. Give one with --prices (`feval ls prices`, or a"
            " file)."
        )
    elif unpriced:
        reason = (
            f"price list {llm.prices.id!r} has no price for {names}. Give one that has with"
            " --prices, or --prices none."
        )
    else:
        reason = f"the recording does not say how many tokens the prompts of {names} have."
    show.note(f"No dollars: {reason}")
    if any(llm.is_counted and int(llm.pool.prompt_tokens.min(initial=0)) < 0 for llm in llms):
        show.note("No tokens per question: no prompts recorded. See --cost output-tokens.")


def parse_counts(text: str, option: str = "--n", noun: str = "CoTs") -> list[int]:
    """Read numbers of CoTs: "20", "1,5,10", "1..40", "1..40..3" (every third), or several of these
    with commas.

    Returns them in ascending order, each once; at most 10,000 numbers from 1 up.
    """
    ranges = [_count_range(piece.strip(), text, option, noun) for piece in text.split(",")]
    if sum(map(len, ranges)) > _MAX_COUNTS:
        raise OutOfRangeError(
            f"{option} {text!r} asks for {sum(map(len, ranges)):,} points; {_MAX_COUNTS:,} is the"
            " most."
        )
    return sorted({count for counts in ranges for count in counts})


def _count_range(piece: str, text: str, option: str, noun: str) -> range:
    numbers = piece.split("..")
    if len(numbers) > 3 or not all(re.fullmatch("[0-9]+", number) for number in numbers):
        raise UsageError(
            f"{option} takes numbers of {noun} such as 20, 1,5,10, 1..40 or"
            f" 1..40..3{', or none' * (noun == 'tokens')}; found {text!r:.100}."
        )
    # no pool is larger, and Python refuses to read thousands of digits
    if max(map(len, numbers)) > 9:
        raise OutOfRangeError(
            f"{option} takes numbers of {noun} up to 999,999,999; found {text!r:.100}."
        )
    first, *rest = map(int, numbers)
    last, step = (*rest, 1)[:2] if rest else (first, 1)
    if first < 1 or step < 1 or last < first:
        one = noun.removesuffix("s")
        raise OutOfRangeError(
            f"{option} counts up from 1 {one} or more, by 1 or more; found {text!r}."
        )
    return range(first, last + 1, step)

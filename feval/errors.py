"""Every exception that feval raises on purpose, one tree under `FevalError`.

    FevalError
    ├── UsageError                 a value that can never work: a bad option, an unknown name
    │   ├── UnknownNameError       a name (of a dataset, LLM, method, ...) that does not exist
    │   ├── OutOfRangeError        a number outside its allowed range
    │   └── NotExactError          an exact expectation that cannot be computed on these pools
    ├── CardError                  a card or price list that cannot be read
    ├── PriceNotFoundError         a price list without a price for the LLM
    ├── TokenCounterError          a token counter that is not available here
    ├── MethodError                a user's method that raised, returned nonsense or did not end
    ├── AnswerError                an answer kind that cannot be used: a missing extra or choices
    ├── SourceError                a foreign file that is broken or of another format
    ├── HubError                   the Hub did not deliver: offline, absent, gated, too slow
    ├── ReleaseError               a recording that must not be published as it is
    ├── StorageError               the disk refused: full, read-only, or the path exists
    └── RecordingError             something about a recording
        ├── NotARecordingError     the folder is not a recording
        ├── NewerFormatError       written by a later feval
        ├── DamagedRecordingError  a file is missing, truncated, changed or malformed
        ├── NotFetchedError        a file of it is on the Hub and was not fetched
        ├── NotRecordedError       the recording lacks the dataset, LLM or question
        │   └── UnlabelledError    questions without a gold answer, where answers are to be graded
        ├── ShortPoolError         more CoTs were requested than recorded
        └── ConflictError          two recordings (or two rows) that contradict each other

A message is a sentence: what was asked, what was found, what to do. The command line prints it
without a traceback and leaves with `exit_code`: 2 for wrong usage, 1 for work that failed. Warnings
derive from `FevalWarning`; the command line prints them as notes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

# an option of the command line with the argument that stands for it
_BOTH = re.compile(r"(--[a-z](?:[^(),.;]|\.(?=\w))*?) \(in Python: ([^()]*)\)")
# a whole command, which has no arguments; or an option, and what is its value: a pair, a
# placeholder, or a word that is one
_OPTION = re.compile(
    r"feval [a-z](?:[^`(),.;]|\.(?=\w))*|(?<![\w-])--([a-z][a-z-]+)"
    r"(?: (\w[\w.]*=[\w']+|[A-Z]{2,}\b|(?:exact|merge|normal-form|seeded|short-pools|stored|text"
    r"|unlabelled|verbatim)\b))?"
)
_typed = False


@contextmanager
def command_line(*, typed: bool = True) -> Iterator[None]:
    """Let errors name options, which whoever types commands knows, not arguments."""
    global _typed
    before, _typed = _typed, typed
    try:
        yield
    finally:
        _typed = before


def is_typed() -> bool:
    """Return whether errors name options."""
    return _typed


def spoken(sentence: str) -> str:
    """Return a sentence with the options of the command line where one is typed, else with the
    arguments behind them, which have the names of the options where it names no others.
    """
    if _typed:
        return _BOTH.sub(r"\1", sentence)
    return _OPTION.sub(_argument, _BOTH.sub(r"\2", sentence))


def _argument(option: re.Match[str]) -> str:
    name, value = option.groups()
    if name is None or name == "set":
        return value or option[0]
    if name == "drop":
        name, value = value, name
    return as_arguments([(name, value)]) if value else f"`{name.replace('-', '_')}`"


def as_arguments(options: Iterable[tuple[str, str]], given: Mapping[str, Any] = {}) -> str:
    """Return the arguments of a call, with those that options stand for."""
    arguments = dict(given)
    for option, value in options:
        name = {"score": "scores"}.get(option, option.replace("-", "_"))
        key, equals, column = value.partition("=")
        if key == "ignore":
            arguments[key] = column
        else:
            arguments[name] = {**(arguments.get(name) or {}), key: column} if equals else value
    # a table may be long
    return ", ".join(
        f"{name}={value!r}" if isinstance(value, str | Mapping) else f"{name}={name}"
        for name, value in arguments.items()
        if value is not None
    )


class FevalError(Exception):
    """Base of every error that feval raises on purpose.

    Attributes:
        call: of the function of Python that raised it and has arguments named like options, with
            what would work; else empty.
        add: (option, value) that are missing, such as ("llm", "NAME").
    """

    exit_code = 1
    call = ""
    add: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        sentence = spoken(super().__str__())
        shows_call = self.call and self.add and not _typed
        return f"{sentence} Call {self.call}." if shows_call else sentence


class UsageError(FevalError):
    """A value that can never work, whatever the recording holds."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that does not exist."""

    @classmethod
    def among(
        cls, noun: str, name: str, known: Iterable[str], advice: str = ""
    ) -> UnknownNameError:
        """Build the sentence: the name of this `noun`, the nearest known one, the whole list where
        it is short, and `advice`.
        """
        names = sorted(known)
        name = name if len(name) <= 80 else f"{name[:80]}..."
        near = get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        listed = f" Known: {', '.join(names)}." if names and len(names) <= 40 else ""
        return cls(f"There is no {noun} {name!r}.{hint}{listed}{' ' + advice if advice else ''}")


def require_known(noun: str, name: object, known: Collection[str], advice: str = "") -> None:
    """Raise the `UnknownNameError` of a name that is not known; arguments as for its `among`."""
    if name not in known:
        raise UnknownNameError.among(noun, str(name), known, advice)


class OutOfRangeError(UsageError):
    """A number outside its allowed range."""


class NotExactError(UsageError):
    """An exact expectation that cannot be computed on these pools, while seeded draws can."""

    @property
    def reason(self) -> str:
        """Why, as a sentence without advice."""
        return str(self.args[0])

    def __str__(self) -> str:
        return spoken(f"{self.reason} Take seeded draws with --order seeded.")


class CardError(FevalError):
    """A card or price list that cannot be read."""


class PriceNotFoundError(FevalError):
    """A price list without a price for the LLM."""


class TokenCounterError(FevalError):
    """A token counter that is not available here."""


class AnswerError(FevalError):
    """An answer kind that cannot be used: a missing extra, missing choices."""


class MethodError(FevalError):
    """A user's method failed: it raised, returned no answer, requested too much or did not end."""


class SourceError(FevalError):
    """A foreign file that is broken or of another format."""


class HubError(FevalError):
    """The Hugging Face Hub did not deliver: offline, absent, gated, too slow."""


class ReleaseError(FevalError):
    """A recording that must not be published as it is: it has a secret, a local path or an e-mail
    address in it.
    """


class StorageError(FevalError):
    """The disk refused: full, read-only, or the path exists."""


class RecordingError(FevalError):
    """Something about a recording."""


class NotARecordingError(RecordingError):
    """The folder is not a recording."""


class NewerFormatError(RecordingError):
    """The recording was written by a later feval."""


class DamagedRecordingError(RecordingError):
    """A file of the recording is missing, truncated, changed or malformed."""


class NotFetchedError(RecordingError):
    """A file of the recording is on the Hub and was not fetched."""


class NotRecordedError(RecordingError):
    """The recording lacks the dataset, LLM or question."""


class UnlabelledError(NotRecordedError):
    """Questions without a readable gold answer, where answers are to be graded."""


class ShortPoolError(RecordingError):
    """More CoTs were requested than recorded."""


class ConflictError(RecordingError):
    """Two recordings, or two rows of one source, contradict each other."""


class FevalWarning(UserWarning):
    """Something to know before relying on a number; the command line prints it as a note."""

    def __str__(self) -> str:
        return spoken(super().__str__())


class SeparateAnswersWarning(FevalWarning):
    """Recordings are opened together that were never merged, so their answers were not compared
    with each other.
    """


class SourceWarning(FevalWarning):
    """A note on a table that was made a recording, which has it in its manifest, too."""


class UnpinnedWarning(FevalWarning):
    """A branch was named, which may change; the message has the address that pins it."""


class ReplayWarning(FevalWarning):
    """A replayed request has an option that recorded replies cannot follow, such as another
    temperature.
    """

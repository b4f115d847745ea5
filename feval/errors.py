"""Every exception that feval raises on purpose, one tree under `FevalError`.

    FevalError
    ├── UsageError                 a value that can never work: a bad option, an unknown name
    │   ├── UnknownNameError       a dataset, LLM, price list, format, method or answer kind nobody knows
    │   └── OutOfRangeError        a number outside its allowed range
    ├── CardError                  a card or price list that cannot be read
    ├── PriceNotFoundError         a price list without the LLM whose dollars were asked for
    ├── TokenCounterError          a token counter that cannot be had
    ├── MethodError                a user's method that raised, returned nonsense or did not come to an end
    ├── AnswerError                an answer kind that cannot work here (a missing extra, missing choices)
    ├── SourceError                a foreign file (to be imported) that is broken or not what it was said to be
    ├── HubError                   the Hugging Face Hub did not give what was asked for: offline, absent, gated, too slow
    ├── ReleaseError               a recording that must not be published as it is: it holds a secret, a path, an address
    ├── StorageError               the disk said no: full, read-only, already there
    └── RecordingError             something about a recording
        ├── NotARecordingError     the folder is not a recording
        ├── NewerFormatError       written by a later feval
        ├── DamagedRecordingError  a file is missing, truncated, changed or malformed
        ├── NotFetchedError        a file of it is on the Hub, and was not asked for when the recording was fetched
        ├── NotRecordedError       the recording lacks the dataset, LLM or question asked for
        │   └── UnlabelledError    questions without a gold answer, where answers are to be right or wrong
        ├── ShortPoolError         more CoTs were asked for than were recorded
        └── ConflictError          two recordings (or two rows) that contradict each other

A message is a sentence: what was asked, what was found, what to do. The command line prints it without a traceback and
leaves with `exit_code`: 2 for wrong usage, 1 for work that failed. `UnpinnedWarning` is no error: the command line prints it as a
note. Nor is `ReplayWarning`: programs that replay in process get it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "AnswerError",
    "CardError",
    "ConflictError",
    "DamagedRecordingError",
    "FevalError",
    "HubError",
    "MethodError",
    "NewerFormatError",
    "NotARecordingError",
    "NotFetchedError",
    "NotRecordedError",
    "OutOfRangeError",
    "PriceNotFoundError",
    "RecordingError",
    "ReleaseError",
    "ReplayWarning",
    "ShortPoolError",
    "SourceError",
    "StorageError",
    "TokenCounterError",
    "UnknownNameError",
    "UnlabelledError",
    "UnpinnedWarning",
    "UsageError",
]


class FevalError(Exception):
    """Base of every error that feval raises on purpose."""

    exit_code = 1


class UsageError(FevalError):
    """A value that can never work, whatever the recording holds."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that is in no list feval knows."""

    @classmethod
    def of(cls, noun: str, name: str, known: Iterable[str], advice: str = "") -> UnknownNameError:
        """Build the sentence: the name, the nearest known ones, the whole list where it is short.

        Args:
            noun: what kind of thing was named, such as "price list".
            name: the name that was given.
            known: the names that exist.
            advice: one more sentence on what to do, if any.
        """
        names = sorted(known)
        name = name if len(name) <= 80 else f"{name[:80]}..."
        near = get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        listed = f" Known: {', '.join(names)}." if names and len(names) <= 40 else ""
        return cls(f"There is no {noun} {name!r}.{hint}{listed}{' ' + advice if advice else ''}")


class OutOfRangeError(UsageError):
    """A number outside its allowed range."""


class CardError(FevalError):
    """A card or price list that cannot be read."""


class PriceNotFoundError(FevalError):
    """A price list without the LLM whose dollars were asked for."""


class TokenCounterError(FevalError):
    """A token counter that cannot be had."""


class AnswerError(FevalError):
    """An answer kind that cannot work here: a missing extra, missing choices."""


class MethodError(FevalError):
    """A user's method failed: it raised, returned no answer, asked for too much or did not come to an end."""


class SourceError(FevalError):
    """A foreign file that is broken or not what it was said to be."""


class HubError(FevalError):
    """The Hugging Face Hub did not give what was asked for: offline, absent, gated, too slow."""


class ReleaseError(FevalError):
    """A recording that must not be published as it is: it holds a secret, a path of somebody's machine, an e-mail address."""


class StorageError(FevalError):
    """The disk said no: full, read-only, already there."""


class RecordingError(FevalError):
    """Something about a recording."""


class NotARecordingError(RecordingError):
    """The folder is not a recording."""


class NewerFormatError(RecordingError):
    """The recording was written by a later feval."""


class DamagedRecordingError(RecordingError):
    """A file of the recording is missing, truncated, changed or malformed."""


class NotFetchedError(RecordingError):
    """A file of the recording is on the Hub, and was not asked for when the recording was fetched."""


class NotRecordedError(RecordingError):
    """The recording lacks the dataset, LLM or question asked for."""


class UnlabelledError(NotRecordedError):
    """Questions without a gold answer that can be read, where answers are to be right or wrong."""


class ShortPoolError(RecordingError):
    """More CoTs were asked for than were recorded."""


class ConflictError(RecordingError):
    """Two recordings, or two rows of one source, contradict each other."""


class FevalWarning(UserWarning):
    """Something that a number rests on and that nobody asked for; the command line prints it as a note."""


class GoldAwareWarning(FevalWarning):
    """A recording of an earlier feval is opened in which the gold had a say in which answers vote together."""


class SeparateAnswersWarning(FevalWarning):
    """Recordings that were never merged are opened together, so not all of their answers were compared with each other."""


class UnpinnedWarning(FevalWarning):
    """What was asked for by the name of a branch may be something else tomorrow; the message has the address to pin."""


class ReplayWarning(FevalWarning):
    """A replayed request asked for something that its recorded replies do not heed, such as another temperature."""

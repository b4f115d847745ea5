r"""From a CoT's text to the key it votes with: extraction (text -> raw answer) and canonical form (raw answer -> key).

Each answer kind is one module with the same two functions:

    extract(text[, choices]) -> raw answer as written in the CoT, or None
    canonical(raw[, choices]) -> the voting key, or None

Two answers are equal when their keys are equal strings; no answer is `None`, which never votes. `canonical` is idempotent: a key
is its own key. Text from models is untrusted: every function is linear in its length, none evaluates it.

| kind | key of |
| --- | --- |
| number | "$1,234.50" is "1234.5", "1/2" is "0.5", "1/3" is "1/3" |
| choice | "(b) the cat" is "B" |
| yes-no | "Not plausible." is "no" |
| valid-invalid | "deductively invalid" is "invalid" |
| date | "May 1, 2021" is "05/01/2021" |
| letters | "y-A-j-o" is "yajo" |
| text | " The  Cat. " is "the cat" |
| latex | "\dfrac12" is "0.5", "(3, \infty)" is "(3,\infty)" |
| verbatim | the string as it is |

`EXTRACTOR_VERSION` changes whenever a key could; it is stored with every recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from feval.answers import choice, date, equality, latex, letters, number, valid_invalid, verbatim, yes_no
from feval.answers import text as free_text
from feval.answers.number import decimal_key
from feval.errors import UnknownNameError

__all__ = [
    "EXTRACTOR_VERSION",
    "KINDS",
    "AnswerKeys",
    "AnswerKind",
    "answer_kind",
    "canonical",
    "canonical_gold",
    "decimal_key",
    "extract",
    "extractor_version",
    "keys",
]

EXTRACTOR_VERSION = "feval-answers-2"

Choices = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class AnswerKind:
    """How answers of one kind are read and compared.

    Attributes:
        name: its key in `KINDS`.
        about: what such an answer is, in a few words.
        extract: from a CoT's text to the raw answer.
        canonical: from a raw answer to the voting key.
    """

    name: str
    about: str
    extract: Callable[[str, Choices], str | None]
    canonical: Callable[[str, Choices], str | None]


class AnswerKeys(NamedTuple):
    """The voting keys of one question: one per raw answer (`None`: no answer), and the gold's."""

    answers: list[str | None]
    gold: str | None


def _without_choices(
    name: str, about: str, extract: Callable[[str], str | None], canonical: Callable[[str], str | None]
) -> AnswerKind:
    return AnswerKind(name, about, lambda text, _: extract(text), lambda raw, _: canonical(raw))


KINDS: dict[str, AnswerKind] = {
    kind.name: kind
    for kind in (
        _without_choices("number", "a number, compared exactly", number.extract, number.canonical),
        AnswerKind("choice", "one of the question's options", choice.extract, choice.canonical),
        _without_choices("yes-no", "yes or no", yes_no.extract, yes_no.canonical),
        _without_choices("valid-invalid", "valid or invalid", valid_invalid.extract, valid_invalid.canonical),
        _without_choices("date", "a date, MM/DD/YYYY", date.extract, date.canonical),
        _without_choices("letters", "a string of letters", letters.extract, letters.canonical),
        _without_choices("text", "free text, case and punctuation apart", free_text.extract, free_text.canonical),
        _without_choices("latex", "mathematics in LaTeX", latex.extract, latex.canonical),
        _without_choices("verbatim", "exactly what the source stored", verbatim.extract, verbatim.canonical),
    )
}


def answer_kind(name: str) -> AnswerKind:
    """Return an answer kind by its name.

    Raises:
        UnknownNameError: if there is none of that name.
    """
    if name not in KINDS:
        raise UnknownNameError.of("answer kind", name, KINDS)
    return KINDS[name]


def extract(kind: str, text: str, choices: Choices = ()) -> str | None:
    """Return the raw answer of a CoT, as it is written there.

    Args:
        kind: a key of `KINDS`.
        text: the CoT.
        choices: (label, text) of each option of the question; only the kind "choice" looks at them.

    Returns:
        The raw answer; `None` where none can be extracted. A raw answer may still have no key.

    Raises:
        UnknownNameError: for an unknown kind.
        AnswerError: for the kind "verbatim", which has no extraction.
    """
    return answer_kind(kind).extract(text, choices)


def canonical(kind: str, raw: str | None, choices: Choices = ()) -> str | None:
    """Return the voting key of a raw answer; `None` (no answer) stays `None`.

    Args:
        kind: a key of `KINDS`.
        raw: as extracted, or as a source stored it. One that does not begin with an answer of the kind is read as a text.
        choices: as in `extract`.

    Raises:
        UnknownNameError: for an unknown kind.
    """
    found = answer_kind(kind)
    return None if raw is None else found.canonical(raw, choices)


def canonical_gold(kind: str, gold: str | None, choices: Choices = ()) -> str | None:
    """Return the key a right answer must have; `None` where there is no gold, or none the kind can read.

    A gold of the kind "choice" that names no option keeps the key of its text (`feval.answers.choice`).

    Args:
        kind: a key of `KINDS`.
        gold: as the dataset writes it.
        choices: as in `extract`.

    Raises:
        UnknownNameError: for an unknown kind.
    """
    if kind == "choice" and gold is not None:
        return choice.canonical_gold(gold, choices)
    return canonical(kind, gold, choices)


def keys(kind: str, raw_answers: Sequence[str | None], gold: str | None, choices: Choices = ()) -> AnswerKeys:
    """Return the voting keys of one question's raw answers, and its gold's.

    This is `canonical`, and where the gold is needed to see equality, more: for the kind "latex", where math-verify is installed,
    an answer that it finds equal to the gold gets the gold's key (two equal answers that are both wrong keep their own keys);
    for the kind "choice", so does an answer with the text of a gold that names no option.

    Args:
        kind: a key of `KINDS`.
        raw_answers: any number of them, of one or several LLMs; `None` is no answer.
        gold: as the dataset writes it; `None` where there is none.
        choices: as in `extract`.

    Raises:
        UnknownNameError: for an unknown kind.
        AnswerError: if math-verify is installed but cannot be started.
    """
    found = answer_kind(kind)
    gold_key = canonical_gold(kind, gold, choices)
    key_of = {raw: found.canonical(raw, choices) for raw in dict.fromkeys(raw_answers) if raw is not None}
    if gold_key is not None and kind == "latex" and equality.version() is not None:
        equal = _equal_to_gold(gold_key, key_of.values())
        key_of = {raw: gold_key if key in equal else key for raw, key in key_of.items()}
    elif gold_key is not None and kind == "choice" and gold_key not in (label for label, _ in choices):
        key_of = _with_gold_text(gold_key, key_of)
    return AnswerKeys([None if raw is None else key_of[raw] for raw in raw_answers], gold_key)


def _equal_to_gold(gold: str, answers: Iterable[str | None]) -> set[str]:
    """The keys that differ from the gold's but are equal to it as mathematics."""
    others = {key for key in answers if key is not None and key != gold}
    return {key for key in sorted(others) if latex.comparable(key, gold) and equality.equal(gold, key)}


def _with_gold_text(gold: str, key_of: Mapping[str, str | None]) -> dict[str, str | None]:
    return {raw: gold if free_text.canonical(raw) == gold else key for raw, key in key_of.items()}


def extractor_version(kind: str) -> str:
    """Return what made the keys: feval's version of extraction, and math-verify's where it had a say.

    Raises:
        UnknownNameError: for an unknown kind.
    """
    if answer_kind(kind).name == "latex" and equality.version() is not None:
        return f"{EXTRACTOR_VERSION}+math-verify-{equality.version()}"
    return EXTRACTOR_VERSION

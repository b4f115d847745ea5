r"""From a CoT's text to the key it votes with: extraction (text -> raw answer) and canonical form (raw answer -> key).

Each answer kind is one module with the same two functions:

    extract(text[, choices]) -> raw answer as written in the CoT, or None
    canonical(raw[, choices]) -> the voting key, or None

This key is the answer's *normal form*; no answer is `None`, which never votes. `canonical` is idempotent: a key is its own key.
Answers of equal normal form vote together, and a recording may have a finer equality between normal forms
(`feval.answers.equality`), under which answers form parties (`feval.answers.parties`). The gold has no say in either.

Text from models is untrusted: every function is linear in its length, none evaluates it.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from feval.answers import choice, date, latex, letters, number, valid_invalid, verbatim, yes_no
from feval.answers import text as free_text
from feval.answers.equality import comparison, named_equality
from feval.answers.number import decimal_key
from feval.answers.parties import divide
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
    "keys",
    "normal_forms",
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


def normal_forms(kind: str, raw_answers: Sequence[str | None], choices: Choices = ()) -> list[str | None]:
    """Return `canonical` of some raw answers to one question; equal ones, of which a pool has many, are read once.

    Raises:
        UnknownNameError: for an unknown kind.
    """
    form_of = {raw: canonical(kind, raw, choices) for raw in dict.fromkeys(raw_answers)}
    return [form_of[raw] for raw in raw_answers]


def keys(
    kind: str,
    raw_answers: Sequence[str | None],
    gold: str | None,
    choices: Choices = (),
    *,
    equality: str | None = None,
) -> AnswerKeys:
    """Return the voting keys of one question's raw answers, and the key a right answer has.

    Equal keys vote together. Which answers have equal keys does not depend on the gold.

    Args:
        kind: a key of `KINDS`.
        raw_answers: any number of them, of one or several LLMs; `None` is no answer.
        gold: as the dataset writes it; `None` where there is none.
        choices: as in `extract`.
        equality: between normal forms, see `feval.answers.equality.named_equality`; `None` takes the kind's own: math-verify's
            for "latex", identity for every other kind.

    Raises:
        UnknownNameError: for an unknown kind.
        UsageError: for an equality that the kind does not have.
        AnswerError: if math-verify is needed and is not installed, or cannot be started.
    """
    name = named_equality(answer_kind(kind).name, equality)
    forms = normal_forms(kind, raw_answers, choices)
    parties, _ = divide(
        {form for form in forms if form is not None}, canonical_gold(kind, gold, choices), comparison(name)
    )
    return AnswerKeys([None if form is None else parties.key(form) for form in forms], parties.gold)

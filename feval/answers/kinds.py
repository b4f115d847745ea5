"""The answer kinds, and the functions that read any of them by name.

To add a kind, write a module with `extract` and `canonical` and put one entry into `KINDS`;
`docs/answers.md` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from feval.answers import (
    choice,
    closed,
    date,
    latex,
    letters,
    markers,
    number,
    text as free_text,
    verbatim,
)
from feval.answers.choice import Choices
from feval.answers.equality import comparison, named_equality
from feval.answers.equivalence import classify
from feval.errors import require_known
from feval.values import frozen

EXTRACTOR_VERSION = "feval-answers-3"
"""The version of the rules of extraction, stored with every recording; it changes whenever a key
could.
"""

LONGEST_TEXT = 4_000_000
"""Characters of the longest CoT that is read, a million tokens or so; a longer one has no
answer.
"""


@frozen
class AnswerKind:
    """How answers of one kind are read and compared.

    Attributes:
        name: its key in `KINDS`.
        about: what such an answer is, in a few words.
        extract: from a CoT's text and the choices to the raw answer.
        canonical: from a raw answer and the choices to the voting key.
        gold: from a gold answer and the choices to its key; `None`: as `canonical`, of what the
            gold marks as its answer.
    """

    name: str
    about: str
    extract: Callable[[str, Choices], str | None]
    canonical: Callable[[str, Choices], str | None]
    gold: Callable[[str, Choices], str | None] | None = None


class AnswerKeys(NamedTuple):
    """The voting keys of one question: one per raw answer (`None`: no answer), and the gold's."""

    answers: list[str | None]
    gold: str | None


def _kind(name: str, about: str, rules: Any) -> AnswerKind:
    """The kind of a module, or of another object with its functions."""
    extract, canonical = rules.extract, rules.canonical
    gold = getattr(rules, "canonical_gold", None)
    if rules is choice:
        return AnswerKind(name, about, extract, canonical, gold)
    return AnswerKind(
        name,
        about,
        lambda text, _: extract(text),
        lambda raw, _: canonical(raw),
        gold and (lambda text, _: gold(text)),
    )


KINDS: dict[str, AnswerKind] = {
    name: _kind(name, about, rules)
    for name, about, rules in (
        ("number", "a number, compared exactly", number),
        ("choice", "one of the question's options", choice),
        ("yes-no", "yes or no", closed.YES_NO),
        ("valid-invalid", "valid or invalid", closed.VALIDITY),
        ("date", "a date, MM/DD/YYYY", date),
        ("letters", "a string of letters", letters),
        ("text", "free text, case and punctuation apart", free_text),
        ("latex", "mathematics in LaTeX", latex),
        ("verbatim", "exactly what the source stored", verbatim),
    )
}


def answer_kind(name: str) -> AnswerKind:
    """Return the answer kind of a name; an `UnknownNameError` lists the kinds."""
    require_known("answer kind", name, KINDS)
    return KINDS[name]


def extract(kind: str, text: str, choices: Choices = ()) -> str | None:
    """Return the raw answer of a CoT, as it is written there; `None` where none can be extracted,
    or beyond `LONGEST_TEXT`.

    A raw answer may still have no key. Only the kind "choice" looks at the choices, (label, text)
    of each option. The kind "verbatim" reads nothing in texts: an `AnswerError`.
    """
    rules = answer_kind(kind)
    return rules.extract(text, choices) if len(text) <= LONGEST_TEXT else None


def canonical(kind: str, raw: str | None, choices: Choices = ()) -> str | None:
    """Return the voting key of a raw answer; `None` (no answer) stays `None`.

    The raw answer, as extracted or as a source stored it, is read as a text where it does not begin
    with an answer of the kind. One of more than `LONGEST_TEXT` characters has no key.
    """
    rules = answer_kind(kind)
    return None if raw is None or len(raw) > LONGEST_TEXT else rules.canonical(raw, choices)


def canonical_gold(kind: str, gold: str | None, choices: Choices = ()) -> str | None:
    r"""Return the key of a correct answer; `None` where there is no gold, or none that the kind can
    read.

    It is read as an answer is: of a worked solution that closes with "#### 18", "\boxed{18}" or
    "The answer is 18", it is the key of what is marked there. Only a gold of two numbers, and one
    that names none of a question's options, have no key.
    """
    rules = answer_kind(kind)
    if gold is None or kind == "verbatim":
        return gold
    if len(gold) > LONGEST_TEXT:
        return None
    if rules.gold is not None:
        return rules.gold(gold, choices)
    marked = markers.set_apart(gold) is not None or any(
        segment.final for segment in markers.segments(gold)
    )
    return rules.canonical((rules.extract(gold, choices) if marked else None) or gold, choices)


def normal_forms(
    kind: str, raw_answers: Sequence[str | None], choices: Choices = ()
) -> list[str | None]:
    """Return the keys of several raw answers to one question; equal answers, of which a pool has
    many, are read once.
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
    """Return the voting keys of one question's raw answers, and the key of a correct one.

    Answers with equal keys vote together. The gold has no influence on which answers those are.

    Args:
        kind: a key of `KINDS`.
        raw_answers: any number of them, of one or several LLMs; `None` is no answer.
        gold: as the dataset writes it; `None` where there is none.
        choices: as in `extract`.
        equality: between normal forms, see `feval.answers.equality.named_equality`; `None` takes
            the kind's own.

    Raises:
        UnknownNameError: unknown kind.
        UsageError: the kind has no such equality.
        AnswerError: math-verify is needed, and is not installed or does not start.
    """
    name = named_equality(answer_kind(kind).name, equality)
    forms = normal_forms(kind, raw_answers, choices)
    parties, _ = classify(
        {form for form in forms if form is not None},
        canonical_gold(kind, gold, choices),
        comparison(name),
    )
    return AnswerKeys([None if form is None else parties.key(form) for form in forms], parties.gold)

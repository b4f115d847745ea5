"""Normal forms of answers in any spelling. Reading answers is not needed to vote, so `Dataset`
loads this when it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from feval.answers import canonical
from feval.answers.thoughts import split


def normal_form(kind: str, answer: str, choices: Sequence[tuple[str, str]]) -> str | None:
    """Return the normal form of an answer in any spelling; `None` where the kind cannot read it, or
    where thoughts have no reply.

    Thoughts in the answer are left out, unless the kind is "verbatim". `choices` are (label, text)
    of each option.
    """
    text: str | None = answer
    if kind != "verbatim":
        parts = split(answer)
        text = parts.reply if parts.answers else None
    return canonical(kind, text, choices if kind == "choice" else ())

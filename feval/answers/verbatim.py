"""Verbatim: the answer is exactly the string a source stored, or its importer extracted by the
source's own rule.

Nothing is trimmed or folded. A source's numbers become strings by `feval.answers.decimal_key`, so
that 540 and 540.0 are one answer. This kind reproduces published figures; it has no extraction of
its own.
"""

from __future__ import annotations

from feval.errors import AnswerError


def extract(text: str) -> str | None:  # noqa: ARG001  all kinds have this signature
    """Refuse: a text holds no verbatim answer."""
    raise AnswerError(
        "The answer kind 'verbatim' keeps the answers a source stored and cannot extract one from a"
        " text. Use a source with stored answers, or another answer kind."
    )


def canonical(raw: str) -> str:
    """Return the string as it is."""
    return raw

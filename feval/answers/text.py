r"""Free text: two answers are equal when they differ in case, width, spacing, quotes, markup or
closing punctuation only.

Which text of a CoT is its answer (the first rule that finds one): the one that it sets apart, in a
JSON object or the last `\boxed{...}`; what follows the last answer phrase
(`feval.answers.markers`), up to the end of its line; the CoT itself where it is one line. Anything
else is no answer.

The key is the text in NFKC and casefold, out of `\text{...}`, blanks squeezed, quotes, Markdown and
punctuation trimmed off both ends. An answer longer than `LONGEST` characters is a discourse and has
no key.
"""

from __future__ import annotations

import re
import unicodedata

from feval.answers import markers

LONGEST = 2000
"""Characters of the longest raw answer that has a key."""

_TRIM = " .,;:!?\"'`*_$“”‘’«»…"
_TEX_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf)?|math(?:rm|bf|it|sf)|mbox)\s?\{([^{}]*)\}")
_BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}


def extract(text: str) -> str | None:
    """Return the text a CoT answers with, as it is written there; `None` where there is none."""
    return markers.answer(
        text,
        lambda content: content.strip() if canonical(content) else None,
        lambda segment: segment.text if canonical(segment.text) else None,
        lambda cot: cot if cot and "\n" not in cot and len(cot) <= LONGEST else None,
        str.strip,
    )


def canonical(raw: str) -> str | None:
    """Return the key of a raw answer; `None` where nothing but punctuation is left, or it is too
    long.
    """
    if len(raw) > LONGEST:
        return None
    text = " ".join(fold(raw).split())
    while "\\" in text and text != (bare := " ".join(_TEX_TEXT.sub(r"\1", text).split())):
        text = bare
    key = _trimmed(text)
    return key if 0 < len(key) <= LONGEST else None  # folding may make a text longer


def fold(text: str) -> str:
    """Return the text in NFKC and casefold, stable: folding twice is folding once."""
    if text.isascii():
        return text.lower()
    # normalising can undo casefolding and the other way round, for a few rare characters
    for _ in range(4):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        if folded == text:
            break
        text = folded
    return text


def _trimmed(text: str) -> str:
    """Trim quotes, markup and punctuation, and brackets that enclose the whole."""
    while True:
        bare = text.strip(_TRIM)
        closing = _BRACKETS.get(bare[:1])
        if closing and bare.find(closing) == len(bare) - 1 and bare.count(bare[0]) == 1:
            bare = bare[1:-1]
        if bare == text:
            return bare
        text = bare

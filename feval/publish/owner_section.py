"""The owner's section of a page: the text between two marks, which every new version of the page
keeps.
"""

from __future__ import annotations

import re

from feval.errors import CardError

BEGIN = "<!-- feval:words-begin (your own text up to the next mark; feval push keeps it) -->"
END = "<!-- feval:words-end -->"

_MARK = re.compile(r"feval:words", re.IGNORECASE)
_BEGIN_LINE = re.compile(r"<!-- feval:words-begin [^\n]*-->[ \t]*")
_END_LINE = re.compile(r"<!-- feval:words-end -->[ \t]*")


def check_words(words: str) -> str:
    """Return the text of a section, stripped; raise a `CardError` where it contains a mark."""
    if _MARK.search(words):
        raise CardError(
            'Your section contains the words "feval:words", which mark where it begins and ends.'
            " Leave the marks out."
        )
    return words.strip()


def own_words(page: str, where: str) -> str | None:
    """Return what the owner of a page wrote between the marks; `None` without marks; broken ones
    raise a `CardError`.
    """
    lines = page.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    marks = [number for number, line in enumerate(lines) if _MARK.search(line)]
    if not marks:
        return None
    if (
        len(marks) != 2
        or not _BEGIN_LINE.fullmatch(lines[marks[0]])
        or not _END_LINE.fullmatch(lines[marks[1]])
    ):
        raise CardError(
            f"The marks of your own section in {where} are broken (lines"
            f" {', '.join(str(n + 1) for n in marks[:6])}): there should be one line {BEGIN[:26]}"
            f" ... --> and below it one line {END}. Correct them, or your words would be lost."
        )
    return "\n".join(lines[marks[0] + 1 : marks[1]]).strip()

"""The section of a card that is its owner's: what stands between two marks is kept, whoever generates the card again."""

from __future__ import annotations

import re

from feval.errors import CardError

__all__ = ["BEGIN", "END", "check_words", "own_words", "section"]

BEGIN = "<!-- feval:words-begin (what stands from here to the next mark is yours; feval push keeps it) -->"
END = "<!-- feval:words-end -->"

_MARK = re.compile(r"feval:words", re.IGNORECASE)
_BEGIN_LINE = re.compile(r"<!-- feval:words-begin [^\n]*-->[ \t]*")
_END_LINE = re.compile(r"<!-- feval:words-end -->[ \t]*")


def section(words: str) -> list[str]:
    """The lines of the section with its marks."""
    return [BEGIN, *(["", words, ""] if words else []), END]


def check_words(words: str) -> str:
    """The text of a section without blanks around it.

    Raises:
        CardError: it holds a mark, so that nobody could find its end.
    """
    if _MARK.search(words):
        raise CardError(
            'Your section holds the words "feval:words", which mark where it begins and ends. Leave the marks out.'
        )
    return words.strip()


def own_words(card: str, where: str) -> str | None:
    """What the owner of a card wrote between the marks.

    Args:
        card: the whole Markdown text.
        where: whose card it is, for the error.

    Returns:
        The text without blanks around it, "" where the owner wrote nothing; `None` where the card has no marks at all.

    Raises:
        CardError: the marks are broken, so that nobody can say what was the owner's.
    """
    lines = card.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    marks = [number for number, line in enumerate(lines) if _MARK.search(line)]
    if not marks:
        return None
    if len(marks) != 2 or not _BEGIN_LINE.fullmatch(lines[marks[0]]) or not _END_LINE.fullmatch(lines[marks[1]]):
        raise CardError(
            f"The marks of your own section in {where} are broken (lines {', '.join(str(n + 1) for n in marks[:6])}): there "
            f"should be one line {BEGIN[:26]} ... --> and below it one line {END}. Correct them, or your words would be lost."
        )
    return "\n".join(lines[marks[0] + 1 : marks[1]]).strip()

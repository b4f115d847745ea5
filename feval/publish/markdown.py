"""Markdown from untrusted text: tables, folded sections, fences that nothing in them can close."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence

from feval.errors import CardError
from feval.recording.layout import readme
from feval.report.text import visible

_NUMBER = re.compile(
    r"[-\d,.<% ]*|[\d.]+\u00a0\([\d.]+\u00a0to\u00a0[\d.]+\)|all|not stated|not listed|\d[\d,]*"
    r" (?:to|of) [\d,]+"
)


UNBROKEN = "\u00a0"
"""A blank at which no line breaks."""

_MOST_BULLETS = 12


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; columns of numbers are aligned to the right."""
    body = [list(row) for row in rows]
    right = [
        all(_NUMBER.fullmatch(row[n]) for row in body)
        and any(re.search(r"\d", row[n]) for row in body)
        for n in range(len(header))
    ]
    line = " | ".join("---:" if is_number and n else "---" for n, is_number in enumerate(right))
    return "\n".join(
        [f"| {' | '.join(header)} |", f"| {line} |", *(f"| {' | '.join(row)} |" for row in body)]
    )


def bullets(heading: str, items: Sequence[str]) -> str:
    """Return a bullet list under a line of text, folded where it is long; "" without items."""
    lines = "\n".join(f"- {item}" for item in items)
    if not items:
        return ""
    return f"{heading}\n\n{lines}" if len(items) <= _MOST_BULLETS else folded(heading, lines)


def code(text: str) -> str:
    """Return a name as a code span; characters that hide or reorder others are spelled out."""
    return readme.code(visible(text))


def plain(text: str) -> str:
    """Return words without markup, on one line; characters that hide or reorder others are spelled
    out.
    """
    return readme.plain(visible(text))


def folded(summary: str, body: str) -> str:
    """Return a section that opens on a click; `summary` is HTML."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def fenced(text: str) -> str:
    """Return text as it is, in a fence that nothing in it can close."""
    lines = [
        visible(line)
        for line in text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ").split("\n")
    ]
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return "\n".join([f"{fence}text", *lines, fence])


def cut(text: str, most: int) -> str:
    """Return the beginning of a text, with dots where something is left out."""
    return text if len(text) <= most else f"{text[:most].rstrip()} …"


def listed(names: Iterable[str]) -> str:
    """Return at least one name as in "a, b and c"."""
    *first, last = list(names)
    return f"{', '.join(first)} and {last}" if first else last


def share(value: float | None) -> str:
    """Return a share as a percentage; unknown is a dash, and a share that rounds to zero is not
    shown as zero.
    """
    if value is None:
        return "-"
    return "0 %" if value == 0 else "< 0.01 %" if value < 1e-4 else f"{100 * value:.2f} %"


def python_text(text: str) -> str:
    """Return a Python string literal on one line."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else ascii(text)


def shell_word(text: str) -> str:
    """Return a word quoted for a shell."""
    return shlex.quote(visible(text))


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

"""Markdown from pieces that come from outside: tables, folded lines, fences that nothing in them can close."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence

from feval.recording.layout import readme
from feval.report.text import visible

__all__ = ["code", "cut", "fenced", "folded", "listed", "plain", "python_text", "share", "shell_word", "size", "table"]


_NUMBER = re.compile(
    r"[-\d,.<% ]*|[\d.]+\u00a0\([\d.]+\u00a0to\u00a0[\d.]+\)|all|not stated|not listed|\d[\d,]* (?:to|of) [\d,]+"
)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; columns of numbers stand to the right."""
    body = [list(row) for row in rows]
    right = [
        all(_NUMBER.fullmatch(row[n]) for row in body) and any(re.search(r"\d", row[n]) for row in body)
        for n in range(len(header))
    ]
    line = " | ".join("---:" if is_number and n else "---" for n, is_number in enumerate(right))
    return [f"| {' | '.join(header)} |", f"| {line} |", *(f"| {' | '.join(row)} |" for row in body)]


def code(text: str) -> str:
    """A name as a code span, with what could reorder or hide characters spelled out."""
    return readme.code(visible(text))


def plain(text: str) -> str:
    """Words without markup, on one line, with what could reorder or hide characters spelled out."""
    return readme.plain(visible(text))


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that appear on a click; `summary` is HTML."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def fenced(text: str) -> list[str]:
    """Text as it is, in a fence that nothing in it can close."""
    lines = [visible(line) for line in text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ").split("\n")]
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return [f"{fence}text", *lines, fence]


def cut(text: str, most: int) -> str:
    """The beginning of a text, with dots where something is left out."""
    return text if len(text) <= most else f"{text[:most].rstrip()} …"


def listed(names: Iterable[str]) -> str:
    """One name at least, as in "a, b and c"."""
    *first, last = list(names)
    return f"{', '.join(first)} and {last}" if first else last


def share(value: float | None) -> str:
    """A share as a percentage; nothing known is a dash, and what is rounded away is not called nothing."""
    if value is None:
        return "-"
    return "0 %" if value == 0 else "< 0.01 %" if value < 1e-4 else f"{100 * value:.2f} %"


def size(number: int) -> str:
    """Bytes, with three digits."""
    value = float(number)
    for unit in ("bytes", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} GB"


def python_text(text: str) -> str:
    """A Python string, on one line."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else ascii(text)


def shell_word(text: str) -> str:
    """A word for a shell."""
    return shlex.quote(visible(text))

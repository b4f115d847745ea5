"""Docstrings are plain text with Markdown's backticks, tables and indented code; autodoc expects
reStructuredText.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import groupby
from typing import Any

MARKUP = re.compile(r"(?<![\w*])\*[a-zA-Z][\w -]*\*(?![\w*])|[*|]|(?<=\w)_(?!\w)")
"""Emphasis, and single characters that reStructuredText would read as emphasis, a substitution or a
reference.
"""
LIST_ITEM = re.compile(r" *(?:\d+\.|-) +")
MOST_FIELDS = 16
"""Above this a dataclass is a result that nobody makes, and its fields are listed below its
name.
"""
PARAMETER = re.compile(r" +\*{1,2}\w+:")


def as_rst(lines: list[str]) -> list[str]:
    """Return the lines of a docstring as reStructuredText."""
    result: list[str] = []
    for is_table, block in groupby(lines, lambda line: line.startswith("|")):
        result.extend((_table if is_table else _text)(list(block)))
    return result


def _table(rows: list[str]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "")
    for row in rows:
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        if set("".join(cells)) - set("-: "):
            yield from (
                f"   {'* -' if first else '  -'} {_escaped(cell)}" for first, cell in _marked(cells)
            )
    yield ""


def _marked(cells: list[str]) -> Iterator[tuple[bool, str]]:
    return ((number == 0, cell) for number, cell in enumerate(cells))


def _text(lines: list[str]) -> Iterator[str]:
    """Paragraphs with their markup escaped; what is indented by four after a blank line is code,
    and stays as it is.
    """
    indent, before, in_code, in_list = 0, "", False, False
    for line in lines:
        own = len(line) - len(line.lstrip())
        item = LIST_ITEM.match(line)
        if line and not before and own >= indent + 4:
            if not in_code:
                yield from (" " * indent + "::", "")
            in_code = True
        elif line and (not in_code or own < indent + 4):
            in_code = False
            if item and before and not in_list:
                yield ""  # a list may follow its paragraph without a blank line
            in_list = bool(item) or (in_list and own > 0)
            indent = item.end() if item else own
        yield line if in_code or PARAMETER.match(line) else _escaped(line)
        before = line


def _escaped(line: str) -> str:
    """Escape markup outside backticks; a letter right behind a closing backtick is set apart."""
    parts = line.split("`")
    if len(parts) % 2 == 0:
        return line
    for place in range(0, len(parts), 2):
        parts[place] = MARKUP.sub(
            lambda found: found[0] if len(found[0]) > 1 else "\\" + found[0], parts[place]
        )
        if place and re.match(r"\w", parts[place]):
            parts[place] = "\\ " + parts[place]
    return "`".join(parts)


def _convert(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    lines[:] = as_rst(lines)


def fields_of(value: object) -> str | None:
    """Return a dataclass's signature with its defaults; "" for a result with many fields, `None`
    for what is no dataclass.
    """
    if not (isinstance(value, type) and is_dataclass(value)):
        return None
    known = [field for field in fields(value) if field.init]
    if len(known) > MOST_FIELDS:
        return ""
    return f"({', '.join(map(_default, known))})"


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}={field.default!r}"
    return field.name if field.default_factory is MISSING else f"{field.name}=..."


def _sign(
    _app: Any, _what: str, _name: str, value: object, _options: Any, _signature: str, _returns: str
) -> Any:
    signature = fields_of(value)
    return None if signature is None else (signature, None)


def setup(app: Any) -> dict[str, bool]:
    """Convert docstrings before napoleon reads their sections."""
    app.connect("autodoc-process-docstring", _convert, priority=400)
    app.connect("autodoc-process-signature", _sign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

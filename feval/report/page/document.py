"""A page as one file that opens offline in any browser.

Styles, script and data are in the file; its content security policy forbids the browser to fetch
anything. Questions, CoTs, answers and names are untrusted: they are in a block of JSON that no
character of them can end, and the script turns them into text nodes only, never into markup.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from feval import __version__
from feval.report.palette import page_colours
from feval.report.tables.tables import Cell, Table
from feval.report.text import visible
from feval.values import Record

UNVERIFIED = ["This page has no receipt beside it."]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header class="top"><h1>{title}</h1>{lede}
<noscript><p>This page draws its figure and tables with a script of its own; please allow it to run.</p></noscript>
</header>
<nav aria-label="Sections"><ul></ul></nav>
<main></main>
<footer>Made by feval {version}. This page is one file and fetches nothing.</footer>
<script type="application/json" id="data">{data}</script>
{blocks}<script>
"use strict";
(() => {{
{script}}})();
</script>
</body>
</html>
"""  # noqa: E501  markup
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

# "<" could end the block or begin a comment in it; the separators end a line in old scripts; lone
# surrogates have no UTF-8.
_UNSAFE_IN_SCRIPT = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def html_page(
    title: str,
    lede: Sequence[str],
    data: Record,
    scripts: Sequence[str] = ("figure", "tables", "depth", "questions", "page"),
    blocks: Iterable[str] = (),
    result: Iterable[str] = (),
) -> str:
    """Return a page, to be written as UTF-8, whose scripts show the data.

    They share one scope. `result` says the result before anything else, every second piece in bold.
    `blocks` are more JSON as `escaped_json` writes it, which the scripts read only when it is
    needed.
    """
    words = "".join(
        f"<b>{_text(piece)}</b>" if i % 2 else _text(piece) for i, piece in enumerate(result)
    )
    return _PAGE.format(
        policy=_POLICY,
        title=_text(title),
        lede=(f'<p class="result">{words}</p>' if words else "")
        + "".join(f'<p class="lede">{_text(line)}</p>' for line in lede),
        style=_asset("page.css") + page_colours(),
        script="".join(_asset(f"{name}.js") for name in ("elements", *scripts)),
        version=_text(__version__),
        data=escaped_json(data),
        blocks="".join(
            f'<script type="application/json" class="block">{block}</script>\n' for block in blocks
        ),
    )


def verification(receipt: str, users: str = "") -> list[str]:
    """Return the lines on how numbers are computed again; `users` are options of the command."""
    text = (
        f"{receipt}, beside this page, names the inputs of every number. With the recordings at"
        " hand, this recomputes them and lists those that differ:"
    )
    return [text, f"$ feval verify {receipt}{users}"]


def escaped_json(value: Any) -> str:
    """Return JSON for a `script` element: no character of it can end the element, and it is valid
    UTF-8.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE_IN_SCRIPT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def table_data(table: Table) -> Record:
    """Return a table as JSON values: cells have their text and their sort key."""
    return {
        "id": table.id,
        "link": table.link,
        "title": table.title,
        "intro": table.intro,
        "columns": [
            {"name": column.name, "number": column.number, "title": column.meaning}
            for column in table.columns
        ],
        "rows": [
            [cell.data() if isinstance(cell, Cell) else cell for cell in row] for row in table.rows
        ],
        "notes": table.notes,
        "pairs": table.pairs,
    }


def _asset(name: str) -> str:
    return files("feval.report.page").joinpath(name).read_text("utf-8")


def _text(text: str) -> str:
    return html.escape(visible(text))

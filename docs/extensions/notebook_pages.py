"""Notebooks are pages: their cells and the outputs that are stored in them, as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from myst_parser.parsers.sphinx_ import MystParser

FENCE = "`" * 6  # longer than any in a cell


def as_markdown(notebook: Mapping[str, Any]) -> str:
    """Return the cells of a notebook, each code cell with its outputs behind it."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell))


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
    elif text:
        yield f"{FENCE}python\n{text}\n{FENCE}"
        yield from map(_output, cell.get("outputs", ()))


def _output(output: Mapping[str, Any]) -> str:
    """The richest form of an output: a picture, else a table in HTML, else text."""
    forms = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in forms:
        return (
            "![Output of the cell"
            f" above](data:image/png;base64,{''.join(forms['image/png']).replace(chr(10), '')})"
        )
    if "text/html" in forms:
        return (
            f'{FENCE}{{raw}} html\n<div class="output">{"".join(forms["text/html"])}</div>\n{FENCE}'
        )
    return f"{FENCE}text\n{''.join(forms.get('text/plain', '')).rstrip()}\n{FENCE}"


class NotebookParser(MystParser):  # type: ignore[misc]
    """Reads a notebook as the Markdown of its cells."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: Any) -> None:
        """Parse the JSON of a notebook."""
        super().parse(as_markdown(json.loads(inputstring)), document)


def setup(app: Any) -> dict[str, bool]:
    """Let Sphinx read notebooks."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The texts of all pages as a script: a browser fetches no pages of a site that is opened as files,
so that the search would show no excerpts of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def setup(app: Any) -> dict[str, bool]:
    """Write them beside `search.js`, which gives them to the search."""
    texts: dict[str, str] = {}

    def read(_app: Any, page: str, _template: str, _context: Any, doctree: Any) -> None:
        if doctree is not None:
            texts[f"./{page}.html"] = doctree.astext()

    def write(app: Any, _error: Exception | None) -> None:
        script = f"const TEXTS = {json.dumps(texts)};\n"
        (Path(app.outdir) / "_static" / "texts.js").write_text(script, "utf-8")

    app.connect("html-page-context", read)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": False}

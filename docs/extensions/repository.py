"""Pages of the repository that lie outside `docs/`, such as the changelog, are pages of the site;
links lead to them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from made import write_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "SECURITY.md": "security",
    "benchmarks/README.md": "benchmarks",
    "data_cards/README.md": "cards",
    "examples/README.md": "examples",
}
"""File of the repository -> its name below `docs/project/`."""
HOMES = {ROOT / file: DOCS / "project" / f"{name}.md" for file, name in PAGES.items()}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


def with_links(text: str, folder: Path, home: Path) -> str:
    """Return a page of `folder` with its links as they have to be in the folder `home`."""

    def moved(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        return os.path.relpath(HOMES.get(target, target), home)

    return LINK.sub(moved, text)


def _read(app: Any, name: str, source: list[str]) -> None:
    folder = Path(app.env.doc2path(name)).parent
    source[0] = with_links(source[0], folder, folder)


def setup(app: Any) -> dict[str, bool]:
    """Write the pages, and let links of all others lead to them."""
    pages = {
        name: with_links((ROOT / file).read_text("utf-8"), (ROOT / file).parent, DOCS / "project")
        for file, name in PAGES.items()
    }
    app.connect("builder-inited", lambda _app: write_pages(DOCS / "project", pages))
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Checks what a built wheel holds: both packages, every card, the type markers, the licence; no
tests, nothing stray.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def expected() -> set[str]:
    """Return the names of the files of the checkout that belong into the wheel."""
    code = [path for package in ("feval", "recorders") for path in (ROOT / package).rglob("*")]
    names = {
        path.relative_to(ROOT).as_posix()
        for path in code
        if path.is_file() and "__pycache__" not in path.parts
    }
    cards = (path for path in (ROOT / "data_cards").rglob("*.md"))
    return names | {f"feval/{path.relative_to(ROOT).as_posix()}" for path in cards}


def main(wheel: str) -> str | None:
    """Return what is wrong, as an exit message, or nothing."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = {
            name.partition(".dist-info/")[2] for name in archive.namelist() if ".dist-info/" in name
        }
    if missing := sorted(expected() - held):
        return f"{wheel} lacks {', '.join(missing)}."
    if stray := sorted(held - expected()):
        return f"{wheel} holds what does not belong there: {', '.join(stray)}."
    if not {"licenses/LICENSE", "entry_points.txt"} <= metadata:
        return f"{wheel} lacks its licence or the command `feval`."
    for name in (
        "feval/py.typed",
        "recorders/__init__.py",
        "feval/data_cards/prices/2025-06-02.md",
    ):
        if name not in held:
            return f"{wheel} lacks {name}."
    print(
        f"{Path(wheel).name}: {len(held)} files, {sum('data_cards' in name for name in held)} of"
        " them cards"
    )
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

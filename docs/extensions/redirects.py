"""Pages that were merged into others: their old addresses lead on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MOVED = {
    "calibration": "forecasting.html",
    "draws": "numbers.html#draws",
    "receipts": "numbers.html#receipts-compute-a-number-again",
}
PAGE = '<!doctype html><title>Moved</title><meta http-equiv="refresh" content="0; url={0}">\n'


def setup(app: Any) -> dict[str, bool]:
    """Write them beside the pages of the site."""

    def write(app: Any, _error: Exception | None) -> None:
        for name, target in MOVED.items():
            (Path(app.outdir) / f"{name}.html").write_text(PAGE.format(target), "utf-8")

    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

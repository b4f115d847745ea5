"""The files of a comparison that people look at: the picture as PNG and SVG, and the page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from feval.comparison.traces import load_compared, traces
from feval.evaluation.surface import coarse_surface
from feval.evaluation.user_methods import TIME_LIMIT
from feval.report import pictures
from feval.report.page.document import verification
from feval.report.page.page import comparison_page
from feval.report.page.questions import Caps

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison


def comparison_files(
    comparison: Comparison,
    *,
    base: Path = Path(),
    receipt: str | None = None,
    time_limit: float | None = TIME_LIMIT,
    caps: Caps | None = None,
) -> dict[str, bytes]:
    """Return `comparison.png`, `comparison.svg` and `report.html` by name.

    The plan's paths are relative to `base`; `receipt` is the file name of the receipt beside the page; a user's method may take
    `time_limit` seconds on a question while it is traced for the page.
    """
    dataset, llms = load_compared(comparison, base)
    caps = caps or Caps()
    followed = traces(comparison, dataset, llms, questions=caps.questions, closely=caps.deep, time_limit=time_limit)
    page = comparison_page(
        comparison,
        dataset,
        llms,
        traces=followed,
        surfaces=[surface for llm in llms if (surface := coarse_surface(dataset, llm)) is not None],
        caps=caps,
        verify=_verify(comparison, receipt),
    )
    return {
        "comparison.png": pictures.comparison_png(comparison),
        "comparison.svg": pictures.comparison_svg(comparison),
        "report.html": page.encode(),
    }


def _verify(comparison: Comparison, receipt: str | None) -> Sequence[str]:
    if receipt is None:
        return ()
    methods = dict.fromkeys(curve.entry.method for curve in comparison.curves if ":" in curve.entry.method)
    users = "".join(f" --method {shlex.quote(method)}" for method in methods)
    return verification(receipt, users)

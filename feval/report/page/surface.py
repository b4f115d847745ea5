"""`surface.html`: the width x depth surface as a page; its picture, in that page or another."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from feval import __version__
from feval.report.page.document import UNVERIFIED, html_page
from feval.report.tables.cost_axes import questions_of, usd_scale
from feval.report.tables.surface import depth_name, surface_notes
from feval.report.text import decimals_for, fixed, interval_name, percent, percents

if TYPE_CHECKING:
    from feval.evaluation.surface import Surface, SurfacePoint


def surface_picture(surface: Surface, svg: bytes) -> dict[str, str]:
    """Return the picture as an address that holds all of it, and what it shows in words."""
    drawn = b64encode(svg).decode()
    words = (
        f"Accuracy of votes of {surface.llm} on {surface.dataset} over traces per question and"
        " tokens of each"
    )
    return {"src": f"data:image/svg+xml;base64,{drawn}", "alt": words}


def surface_page(surface: Surface, svg: bytes, verify: Sequence[str] = ()) -> str:
    """Return a surface with its picture as an HTML page, to be written as UTF-8; `verify` says how
    to check its receipt.
    """
    lede = (
        f"Accuracy of votes of {surface.llm} over n traces that are each cut after so many tokens,"
        " for all n and tokens. It is exact: an expectation over all draws."
    )
    data = {name: [] for name in ("axes", "curves", "baselines", "ceilings", "frontier")} | {
        "pictures": [surface_picture(surface, svg)],
        "tables": [_frontier(surface)],
        "facts": _facts(surface),
        "verify": list(verify) or UNVERIFIED,
    }
    return html_page(f"Width and depth on {surface.dataset}", [lede], data)


def _facts(surface: Surface) -> list[tuple[str, str]]:
    kind, grid = surface_notes(surface)
    return [
        ("dataset", surface.dataset),
        ("LLM", surface.llm),
        ("recordings", ", ".join(surface.recording_hashes)),
        ("numbers", kind),
        ("points", grid),
        ("feval", __version__),
    ]


def _frontier(surface: Surface) -> dict[str, Any]:
    points = surface.frontier
    known = all(point.usd_per_question is not None for point in points)
    scale = usd_scale(point.usd_per_question for point in points)
    decimals = decimals_for(scale * (point.usd_per_question or 0.0) for point in points)
    interval = "interval" if surface.confidence is None else interval_name(surface.confidence)
    names = (
        "traces",
        "tokens each",
        "accuracy %",
        interval,
        "output tokens / question",
        *[f"USD / {questions_of(scale)}"] * known,
    )

    def cells(point: SurfacePoint) -> list[dict[str, Any]]:
        dollars = None if point.usd_per_question is None else scale * point.usd_per_question
        usd = {"t": fixed(dollars, decimals), "s": dollars}
        return [
            {"t": str(point.n), "s": point.n},
            {"t": depth_name(point), "s": point.tokens or 1e12},  # no limit is above all
            {"t": percent(point.accuracy), "s": point.accuracy},
            {"t": percents(point.accuracy_low, point.accuracy_high), "s": point.accuracy_low},
            {"t": fixed(point.output_tokens, 1), "s": point.output_tokens},
            *[usd] * known,
        ]

    return {
        "id": "frontier",
        "link": "Frontier",
        "title": "Pareto frontier",
        "intro": (
            f"The {len(points):,} of {len(surface.points):,} points that no other point matches at"
            " the same cost or less; surface.csv has all. Press a heading to sort."
        ),
        "columns": [{"name": name, "number": True} for name in names],
        "rows": [cells(point) for point in points],
        "notes": list(surface.warnings),
    }

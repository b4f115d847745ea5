"""CSV text, and `curve.csv`: the points of a curve, floats in full, so that the picture can be redrawn from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feval.evaluation.curves import Curve, CurvePoint

POINT_COLUMNS = (
    "n", "accuracy", "accuracy_low", "accuracy_high", "usd_per_question", "tokens_per_question", "pass_at_n", "kind",
)  # fmt: skip
"""The columns of `curve.csv`, in order; an empty cell is an unknown number (such as USD without a price)."""


def curve_csv(curve: Curve) -> str:
    """Return the CSV text of one curve: the header of `POINT_COLUMNS`, then one line per point."""
    return csv_text(POINT_COLUMNS, [_cells(point) for point in curve.points])


def curves_csv(curves: Sequence[Curve]) -> str:
    """Return the CSV text of several curves, with columns `dataset` and `llm` before `POINT_COLUMNS`."""
    rows = [[curve.dataset, curve.llm, *_cells(point)] for curve in curves for point in curve.points]
    return csv_text(("dataset", "llm", *POINT_COLUMNS), rows)


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return CSV text with LF line ends; `None` is an empty cell, floats are written in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def _cells(point: CurvePoint) -> list[str]:
    return [_cell(getattr(point, column)) for column in POINT_COLUMNS]


def _cell(value: float | str | None) -> str:
    # float() first: the repr of a NumPy scalar would carry its type.
    if isinstance(value, str):
        return value
    return "" if value is None else repr(int(value) if isinstance(value, int) else float(value))

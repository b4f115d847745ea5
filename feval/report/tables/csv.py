"""CSV text, and `curve.csv`: the points of a curve, floats in full, so that the picture can be
redrawn from it.

A spreadsheet takes a cell that begins with one of `=+-@`, a tab or a line end for a formula, and
names come from strangers. Such text is written behind an apostrophe, which makes it text there;
`text_of_cell` takes the apostrophe away.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from feval.report.tables.cost_axes import MORE_COSTS

if TYPE_CHECKING:
    from feval.evaluation.curves import Curve, CurvePoint

POINT_COLUMNS = (
    "n", "accuracy", "accuracy_low", "accuracy_high", "usd_per_question", "tokens_per_question",
    "pass_at_n", "kind",
)  # fmt: skip
"""The columns of `curve.csv`, in order; an empty cell is an unknown number (such as USD without a
price).
"""

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def curve_csv(curve: Curve) -> str:
    """Return the CSV text of one curve: the header of `curve_rows`, then one line per point."""
    return csv_text(*curve_rows(curve))


def curve_rows(curve: Curve) -> tuple[tuple[str, ...], list[list[object]]]:
    """Return the names of columns, `POINT_COLUMNS` and the curve's own cost, and a row per point;
    `None` is an unknown number.
    """
    more = [f"{curve.cost.replace('-', '_')}_per_question"] if curve.cost in MORE_COSTS else []
    rows = [[*_cells(point), *([point.cost] if more else [])] for point in curve.points]
    return (*POINT_COLUMNS, *more), rows


def curves_csv(curves: Sequence[Curve]) -> str:
    """Return the CSV text of several curves, with columns `dataset` and `llm` before
    `POINT_COLUMNS`.
    """
    rows = [
        [curve.dataset, curve.llm, *_cells(point)] for curve in curves for point in curve.points
    ]
    return csv_text(("dataset", "llm", *POINT_COLUMNS), rows)


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return CSV text with LF line ends; `None` is an empty cell, floats are written in full, text
    is never a formula.
    """
    lines: list[str] = []
    # ends lines by CR LF, and so quotes both in a cell
    writer = csv.writer(SimpleNamespace(write=lines.append))
    writer.writerows(map(_cell, row) for row in (header, *rows))
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def text_of_cell(cell: str) -> str:
    """Return the text that a cell written by `csv_text` stands for."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _cells(point: CurvePoint) -> list[object]:
    return [getattr(point, column) for column in POINT_COLUMNS]

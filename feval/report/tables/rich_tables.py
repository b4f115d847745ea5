"""Tables for terminals, drawn by rich. A module of its own, so that plain tables do not import
rich.
"""

from __future__ import annotations

import re
from typing import Literal

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from feval.report.tables.tables import Table, align_points
from feval.report.text import visible

_BREAKS = re.compile(r"(?<=/)(?=\w)|(?<=[A-Za-z%]) ")


def rich_table(table: Table, *, narrow: bool = False, folded: bool = False) -> RichTable:
    """Return the table as a rich one. Cells are plain text objects, so markup in them is never
    interpreted.

    A `narrow` table has headers broken into lines and one blank between columns; a `folded` one
    wraps words, never numbers.
    """
    table = align_points(table)
    result = RichTable(
        title=Text(visible(table.title)) if table.title else None,
        caption=Text("\n".join(map(visible, table.notes))) if table.notes else None,
        title_justify="left",
        caption_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_header=any(column.name for column in table.columns),
        collapse_padding=narrow,
    )
    shown = [visible(column.name) for column in table.columns]
    names = [_BREAKS.sub("\n", name) for name in shown] if narrow else shown
    # On a narrow terminal the last column wraps first; names and numbers stay in one piece.
    last = len(names) - 1
    for i, (column, name) in enumerate(zip(table.columns, names, strict=True)):
        justify: Literal["left", "right"] = "right" if column.number else "left"
        if column.number or (i < last and not folded):
            # Without a minimum width, rich would break cells at blanks.
            least = max(
                len(line) for line in (*name.split("\n"), *(visible(row[i]) for row in table.rows))
            )
            result.add_column(Text(name), justify=justify, no_wrap=True, min_width=least)
        else:
            result.add_column(Text(name), justify=justify, overflow="fold")
    for row in table.rows:
        result.add_row(*(Text(visible(cell)) for cell in row))
    return result

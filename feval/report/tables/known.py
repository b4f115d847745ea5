"""What feval knows by name (datasets, LLMs, price lists, methods, formats, answer kinds) for `feval
ls`, and questions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from feval.answers import KINDS
from feval.cards.cards import dataset_card, dataset_ids, llm_card, llm_names, price_ids
from feval.cards.prices import price_list
from feval.evaluation.method_names import method_fields
from feval.importers import IMPORTERS
from feval.importers.layouts import layout_names, layout_of
from feval.methods import METHODS
from feval.recording.content import Question
from feval.report.tables.tables import Column, Table, columns

Row = dict[str, Any]


def _datasets() -> list[Row]:
    fields = ("id", "title", "group", "questions", "answer_kind", "licence")
    return [
        {field: getattr(card, field) for field in fields}
        for card in map(dataset_card, dataset_ids())
    ]


def _llms() -> list[Row]:
    fields = ("name", "provider", "reasoning", "cots_to_record", "temperature", "max_tokens")
    return [
        {field: getattr(card, field) for field in fields} for card in map(llm_card, llm_names())
    ]


def _prices() -> list[Row]:
    """One row per list and LLM."""
    return [
        {
            "id": prices.id,
            "llm": llm,
            "input_usd_per_mtok": price.input_usd_per_mtok,
            "output_usd_per_mtok": price.output_usd_per_mtok,
            "note": prices.notes.get(llm),
        }
        for prices in map(price_list, price_ids())
        for llm, price in prices.prices.items()
    ]


def _methods() -> list[Row]:
    return [
        {
            "name": name,
            "description": (inspect.getdoc(method) or "").partition("\n")[0],
            "fields": method_fields(name),
        }
        for name, method in METHODS.items()
    ]


def _formats() -> list[Row]:
    rows = [{"name": name, "description": importer.title} for name, importer in IMPORTERS.items()]
    layouts = [
        {"name": f"table --layout {name}", "description": layout_of(name).title}
        for name in layout_names()
    ]
    return rows + layouts


def _answer_kinds() -> list[Row]:
    return [{"name": name, "description": kind.about} for name, kind in KINDS.items()]


KNOWN: Mapping[str, Callable[[], list[Row]]] = {
    "datasets": _datasets,
    "llms": _llms,
    "prices": _prices,
    "methods": _methods,
    "formats": _formats,
    "answer-kinds": _answer_kinds,
}
"""Name of a list -> its rows (JSON values; all rows of a list have the same keys; lists within rows
are for JSON only).
"""


def known_table(rows: list[Row]) -> Table:
    """Return the rows as a table; without rows, without columns."""
    names = [name for name in rows[0] if not isinstance(rows[0][name], list)] if rows else []
    columns = tuple(Column(_header(name), number=_is_number(rows, name)) for name in names)
    return Table("", columns, tuple(tuple(_cell(row[name]) for name in names) for row in rows))


def _header(name: str) -> str:
    return name.replace("_", " ").replace("llm", "LLM").replace("usd per mtok", "USD/Mtok")


def _is_number(rows: list[Row], name: str) -> bool:
    values = [row[name] for row in rows if row[name] is not None]
    return bool(values) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


_QUESTION_WIDTH = 80


def questions_table(questions: Sequence[Question]) -> Table:
    """Return questions as a table: id, gold, number of options, and the beginning of the text."""
    rows = (
        (q.id, q.answer or "-", str(len(q.choices)) if q.choices else "-", _beginning(q.text))
        for q in questions
    )
    return Table("", columns("id", "gold", "#options", "question"), tuple(rows))


def _beginning(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUESTION_WIDTH else f"{line[: _QUESTION_WIDTH - 3]}..."

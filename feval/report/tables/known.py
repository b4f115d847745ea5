"""What feval knows by name (datasets, LLMs, price lists, methods, formats, columns, answer kinds)
for `feval ls`, and questions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from feval.answers import KINDS
from feval.cards import price_list
from feval.cards.cards import SetCard, dataset_card, llm_card, price_ids, set_card
from feval.cards.front_matter import card_files
from feval.cards.prices import genai_history
from feval.errors import UsageError
from feval.evaluation.method_names import method_fields
from feval.importers import IMPORTERS
from feval.importers.columns import COLUMNS
from feval.importers.layouts import layout_names, layout_of
from feval.methods import METHODS
from feval.recording import Question
from feval.report.tables.tables import Fields, Table, columns, make_table
from feval.report.text import shortened
from feval.values import Record


def _of_cards(card: Callable[[str], Any], names: Iterable[str], *fields: str) -> list[Record]:
    return [{each: getattr(one, each) for each in fields} for one in map(card, names)]


def _known_prices() -> list[Record]:
    """One row per list and LLM."""
    of_llms = [
        {
            "id": prices.id,
            "llm": llm,
            "input_usd_per_mtok": price.input_usd_per_mtok,
            "output_usd_per_mtok": price.output_usd_per_mtok,
            "note": prices.notes.get(llm) if type(price.to_json()) is list else price.words(),
        }
        for prices in map(price_list, price_ids())
        for llm, price in prices.prices.items()
    ]
    none = dict.fromkeys(of_llms[0])
    return [*of_llms, none | {"id": "recorded", "note": "The USD that each CoT states."}]


def model_prices(llm: str) -> list[Record]:
    """What an LLM cost when, by cards and by the package genai-prices.

    Raises:
        UsageError: neither has it.
    """
    lists = [(each, each.find(llm)) for each in map(price_list, price_ids())]
    found = [({"list": each.id, "since": each.date}, price) for each, price in lists if price]
    try:
        packaged = genai_history(llm.split("@", 1)[0])
        found += [({"list": "genai-prices", **facts}, price) for facts, price in packaged]
    except UsageError:  # it is not installed
        if not found:
            raise
    if not found:
        raise UsageError(f"Nobody has a price of {llm!r}. Give one by hand: --price {llm}=IN,OUT.")
    names = ("list", "provider", "model", "tier", "since", "hours")
    return [
        {name: facts.get(name, "") for name in names}
        | {"usd_per_mtok": price.words(), "price": [price.to_json()]}
        for facts, price in found
    ]


def _methods() -> list[Record]:
    return [
        {
            "name": name,
            "description": (inspect.getdoc(method) or "").partition("\n")[0],
            "fields": method_fields(name),
        }
        for name, method in METHODS.items()
    ]


def _formats() -> list[Record]:
    formats = {name: (importer.title, "", "") for name, importer in IMPORTERS.items()}
    for name, layout in ((name, layout_of(name)) for name in layout_names()):
        formats[f"table --layout {name}"] = (layout.title, layout.verified, layout.licence)
    columns = ("description", "verified", "licence")
    return [
        {"name": name} | dict(zip(columns, facts, strict=True)) for name, facts in formats.items()
    ]


def _columns() -> list[Record]:
    return [
        {"name": one.name, "belongs_to": one.of.split()[0], "meaning": one.about,
         "also_written": ", ".join((*one.aliases, *one.usual))}
        for one in COLUMNS
    ]  # fmt: skip


KNOWN: Mapping[str, Callable[[], list[Record]]] = {
    "datasets": lambda: _of_cards(
        dataset_card,
        card_files("datasets"),
        "id",
        "title",
        "group",
        "questions",
        "answer_kind",
        "licence",
    ),
    "llms": lambda: _of_cards(
        llm_card,
        card_files("llms"),
        "name",
        "provider",
        "reasoning",
        "cots_to_record",
        "temperature",
        "max_tokens",
    ),
    "prices": _known_prices,
    "methods": _methods,
    "formats": _formats,
    "columns": _columns,
    "sets": lambda: _of_cards(set_card, card_files("sets"), *SetCard.model_fields),
    "answer-kinds": lambda: [
        {"name": name, "description": kind.about} for name, kind in KINDS.items()
    ],
}
"""Name of a list -> its rows (JSON values; all rows of a list have the same keys; lists within rows
are for JSON only).
"""


def known_table(rows: list[Record]) -> Table:
    """Return the rows as a table; without rows, without columns."""

    def heading(name: str) -> str:
        values = [row[name] for row in rows if row[name] is not None]
        is_number = values and all(type(value) in (int, float) for value in values)
        words = name.replace("_", " ").replace("llm", "LLM").replace("usd per mtok", "USD/Mtok")
        return f"#{words}" if is_number else words

    names = [name for name in rows[0] if not isinstance(rows[0][name], list)] if rows else []
    return make_table("", {heading(name): name for name in names}, rows)


def set_tables(rows: Sequence[Record], *, whole: bool) -> list[Table]:
    """Return sets of samples as a table that cuts what is long, or each as a whole."""
    if whole:
        facts = (((name, str(fact)) for name, fact in row.items() if fact) for row in rows)
        return [Table("", columns("", ""), tuple(own)) for own in facts]
    names = "name", "samples", "datasets", "llms"
    return [known_table([{name: shortened(row[name], 30) for name in names} for row in rows])]


def questions_table(questions: Sequence[Question]) -> Table:
    """Return questions as a table: id, gold, number of options, and the beginning of the text."""
    fields: Fields = {
        "id": "id",
        "gold": "answer",
        "#options": lambda question: str(len(question.choices) or "-"),
        "question": lambda question: shortened(question.text, 80),
    }
    return make_table("", fields, questions)

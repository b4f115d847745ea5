"""Price lists: dated USD per million tokens, never edited, only superseded. `billing` makes dollars
of them.
"""

from __future__ import annotations

import hashlib
import json
import numbers
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core.core_schema import (
    CoreConfig,
    CoreSchema,
    dict_schema,
    no_info_after_validator_function,
    no_info_plain_validator_function,
    str_schema,
    typed_dict_field,
    typed_dict_schema,
)

from feval.arguments import checked
from feval.cards.billing import MOST_USD_PER_MTOK, PRICE_FIELDS, Price
from feval.cards.front_matter import (
    card_files,
    check_card,
    iso_date,
    known_card,
    not_blank,
    read_card_text,
)
from feval.cards.reading import parse_json, sentence, shorten
from feval.errors import CardError, OutOfRangeError, PriceNotFoundError, UsageError


def _list_id(text: str) -> str:
    if text == "none" or "--" in text or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise ValueError("an id has letters, digits, '.', '-' and '_', no '--', and is not 'none'")
    return text


def base_name(llm: str) -> str:
    """Return the name of an LLM without variant; a `ValueError` for another."""
    if not llm.strip() or "@" in llm:
        raise ValueError("a price belongs to a base name, without '@'")
    return llm


def _as_price(value: object) -> Price:
    """Read what may stand for a price: a `Price`, two numbers, or a mapping with its fields."""
    if isinstance(value, Price):
        return value
    facts: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}
    if isinstance(value, (list, tuple)) and len(value) == 2:
        facts = dict(zip(PRICE_FIELDS, value, strict=False))
    rates = {name: facts.pop(name) for name in PRICE_FIELDS if name in facts}
    steps, batch = facts.pop("steps", ()), facts.pop("batch", None)
    if (
        facts
        or not set(PRICE_FIELDS[:2]) <= set(rates)
        or not all(
            type(each) is not bool and isinstance(each, numbers.Real) for each in rates.values()
        )
        or not isinstance(steps, (list, tuple))
        or not all(isinstance(each, (list, tuple)) and len(each) == 2 for each in steps)
        or not all(type(start) is int and start > 0 for start, _ in steps)
    ):
        raise ValueError(
            "give two numbers, [input, output], in USD per million tokens, or a mapping with "
            + " and ".join(PRICE_FIELDS[:2])
            + f", and at will {', '.join(PRICE_FIELDS[2:])}, steps as [[tokens, price], ...] and"
            " batch"
        )
    try:
        return Price(
            **rates,
            steps=tuple((start, _as_price(step)) for start, step in steps),
            batch=None if batch is None else _as_price(batch),
        )
    except OutOfRangeError as error:
        raise ValueError(f"a price is a number from 0 to {MOST_USD_PER_MTOK:,}") from error
    except UsageError as error:
        raise ValueError(str(error).removesuffix(".")) from error


def _check_notes(card: dict[str, Any]) -> dict[str, Any]:
    for llm in card.get("notes", ()):
        if llm not in card["prices"]:
            raise ValueError(f"it has a note on {shorten(llm)} and no price for it")
    return card


def _text(check: Callable[[str], str]) -> CoreSchema:
    return no_info_after_validator_function(check, str_schema())


_FIELDS = {
    "id": _text(_list_id),
    "date": _text(iso_date),
    "source": _text(not_blank),
    "prices": dict_schema(_text(base_name), no_info_plain_validator_function(_as_price)),
    "title": _text(not_blank),
    "notes": dict_schema(str_schema(), str_schema()),
}
"""Those of a price list, in a card, in JSON or in Python, as pydantic's core checks them: the whole
of pydantic takes long to load.
"""
_CARD = SchemaValidator(
    no_info_after_validator_function(
        _check_notes,
        typed_dict_schema(
            {
                name: typed_dict_field(schema, required=name not in {"title", "notes"})
                for name, schema in _FIELDS.items()
            },
            config=CoreConfig(strict=True, extra_fields_behavior="forbid"),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Dated prices of LLMs.

    Attributes:
        id: such as "2025-06-02"; every result names it.
        date: the day the prices were recorded, YYYY-MM-DD.
        source: where they come from.
        prices: base names of LLMs with their prices. (0.5, 1.5), [0.5, 1.5] and
            {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 1.5} are taken for `Price(0.5, 1.5)`;
            the mapping may have the other fields of a `Price`, steps as pairs.
        notes: base names of LLMs with what must be known of one price.

    Raises:
        UsageError: a field is wrong; the message names it.
    """

    id: str
    date: str
    source: str
    prices: Mapping[str, Price] = field(hash=False)
    notes: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)

    def __post_init__(self) -> None:
        facts = {each.name: getattr(self, each.name) for each in fields(self)}
        try:
            card = _CARD.validate_python(facts)
        except ValidationError as error:
            raise UsageError(f"A price list {sentence(error)}.") from error
        object.__setattr__(self, "prices", card["prices"])

    @property
    def digest(self) -> str:
        """The sha256, in hex, over a canonical JSON of id, date and prices: what a receipt pins."""
        prices = {llm: price.to_json() for llm, price in self.prices.items()}
        facts = {"id": self.id, "date": self.date, "prices": prices}
        return hashlib.sha256(
            json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()

    @property
    def is_recorded(self) -> bool:
        """Whether it stands for no price per token: each CoT states its own USD."""
        return self.id == "recorded" and not self.prices

    def find(self, llm: str) -> Price | None:
        """Return the price of an LLM, or of the base of a variant ("gpt-3.5-turbo@t=0.8"); `None`
        where the list has none.
        """
        return self.prices.get(llm.split("@", 1)[0])

    def price(self, llm: str) -> Price:
        """Return the price of an LLM or of a variant's base; raise `PriceNotFoundError` where the
        list has none.
        """
        price = self.find(llm)
        if self.is_recorded:
            raise PriceNotFoundError(
                f"CoTs of {llm!r} state their own USD (prices='recorded'), and an LLM without"
                " prices per token has no other: evaluations and curves give it as usd."
            )
        if price is None:
            known = ", ".join(sorted(self.prices)) or "none"
            raise PriceNotFoundError(
                f"The price list {self.id!r} has no price for the LLM {llm!r}. It has: {known}. Use"
                " another list (an id, a .md card or a .json file), or 'none' to leave dollars"
                " out."
            )
        return price


@checked
def price_list(id_or_path: str | Path) -> PriceList:
    """Read a price list.

    Args:
        id_or_path: the id of a card, such as "2025-06-02"; "recorded", the USD that CoTs state;
            or the path of a file: a card (`.md`), or JSON (`.json`) such as `{"id": "mine",
            "date": "2026-01-31", "source": "...", "prices": {"my-llm": [0.5, 1.5]}}`, each pair
            being USD per million input and output tokens. A string with a slash or one of these
            endings is a path. The file name of a card, and the name of a file here without its
            ending, will do.

    Raises:
        UnknownNameError: no card has this id.
        CardError: the file cannot be read, or is no price list, or gives the id of a published list
            to other prices.
    """
    name = str(id_or_path)
    path, known = Path(name).expanduser(), card_files("prices")
    is_path = isinstance(id_or_path, Path) or name.endswith((".md", ".json"))
    if is_path and path.name == name and path.stem in known and not path.exists():
        name, is_path = path.stem, False  # the file of a card
    elif not is_path and name not in known:
        here = [*Path().glob("*.md"), *Path().glob("*.json")]
        path = next((file for file in here if file.stem == name), path)
        is_path = path.name != name
    if is_path:
        name = ""
    else:
        advice = "A path to a .md card or a .json file works as well."
        path = known_card("prices", name, advice)
    prices = _read_prices(path)
    if name and prices.id != name:
        raise CardError(
            f"The price list {path} has the id {prices.id!r}: rename the file to {prices.id}.md."
        )
    # a published list is superseded under a new id, never changed
    for other in card_files("prices").get(prices.id, ()):
        if other.resolve() != path.resolve() and _read_prices(other).digest != prices.digest:
            raise CardError(
                f"The price lists {path} and {other} both have the id {prices.id!r} but differ."
                " Rename yours."
            )
    return prices


def _read_prices(path: Path) -> PriceList:
    facts = _read_json(path) if path.suffix == ".json" else None
    card = check_card("prices", path, _CARD.validate_python, facts)
    card.pop("title", None)  # for people
    return PriceList(**card)


def _read_json(path: Path) -> dict[str, Any]:
    text = read_card_text(path)
    try:
        facts = parse_json(text)
    except json.JSONDecodeError as error:
        raise CardError(
            f"The price list {path} is not JSON: {error.msg} in line {error.lineno}."
        ) from error
    except ValueError as error:
        raise CardError(f"The price list {path} is not a usable JSON file: {error}.") from error
    if not isinstance(facts, dict):
        raise CardError(
            f"The price list {path} is not a JSON object. Write id, date, source and prices."
        )
    return facts

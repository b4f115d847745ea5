"""Price lists, billing, and eq. (1) of the paper: from tokens to US dollars.

    USD = 1e-6 (C_in · prompt tokens billed + C_out · output tokens)

C_in and C_out are USD per million tokens, from a dated price list that is never edited, only superseded. A recording holds
tokens and no dollars, so pricing it again is choosing another list.

Source: FEval-TTC (arXiv 2511.01203), section 2.3, eq. (1), and Appendix A. Every prompt is billed once there; the other two
billings are what papers without a sampling API that returns many CoTs per request paid.

This module is on the way to every curve: no pydantic, no NumPy of its own (arrays are passed through).
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from feval.cards.front_matter import card_files, read_card_text, read_front_matter
from feval.cards.validation import shorten
from feval.errors import CardError, OutOfRangeError, PriceNotFoundError, UnknownNameError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BILLINGS", "Price", "PriceList", "billed_prompts", "price_list", "usd"]

BILLINGS: tuple[str, ...] = ("once", "per_round", "per_sample")
"""How a prompt is charged: `once` per LLM and question (eq. 1, the default), `per_round` (each request sends it again, as ESC's
windows do), or `per_sample` (each CoT is a request of its own, as in Adaptive-Consistency)."""

_FIELDS = ("id", "date", "source", "prices")
_OPTIONAL_FIELDS = ("title", "notes")
_PRICE_FIELDS = ("input_usd_per_mtok", "output_usd_per_mtok")
_MOST_USD_PER_MTOK = 1_000_000_000  # far above any price, and far below where sums of dollars leave floats


@dataclass(frozen=True, slots=True)
class Price:
    """What an LLM costs.

    Attributes:
        input_usd_per_mtok: C_in, USD per million prompt tokens, 0 to 1e9.
        output_usd_per_mtok: C_out, USD per million output tokens, 0 to 1e9.

    Raises:
        OutOfRangeError: a price is negative, beyond 1e9, or no number.
    """

    input_usd_per_mtok: float
    output_usd_per_mtok: float

    def __post_init__(self) -> None:
        for name in _PRICE_FIELDS:
            given = getattr(self, name)
            try:
                price = float(given)  # an integer, times an array of small integers, would overflow
            except (OverflowError, TypeError, ValueError):
                price = math.nan
            if not 0 <= price <= _MOST_USD_PER_MTOK:  # NaN, too, is refused
                raise OutOfRangeError(
                    f"No LLM costs {shorten(given)} USD per million tokens. Give a number from 0 to {_MOST_USD_PER_MTOK:,}."
                )
            object.__setattr__(self, name, price)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Dated prices of LLMs.

    Attributes:
        id: such as "2025-06-02"; every result names it.
        date: the day the prices were recorded, YYYY-MM-DD.
        source: where they come from.
        prices: base names of LLMs with their prices. (0.5, 1.5), [0.5, 1.5] and
            {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 1.5} are taken for `Price(0.5, 1.5)`.
        notes: base names of LLMs with what must be known of one price.

    Raises:
        UsageError: a field is not what it has to be; the message names it.
        OutOfRangeError: a price is negative or beyond 1e9.
    """

    id: str
    date: str
    source: str
    prices: Mapping[str, Price] = field(hash=False)
    notes: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)

    def __post_init__(self) -> None:
        """Check by hand: pydantic would cost more than the whole curve."""
        for name in ("id", "date", "source"):
            _require_text(name, getattr(self, name))
        if not _is_name(self.id) or self.id == "none":
            raise UsageError(
                f"A price list cannot have the id {shorten(self.id)}. Use letters, digits, '.', '-' and '_'."
            )
        if not _is_date(self.date):
            raise UsageError(f"A price list must give its date as YYYY-MM-DD; it gives {shorten(self.date)}.")
        for name in ("prices", "notes"):
            _require_table(name, getattr(self, name))
        prices = {llm: _as_price(llm, given) for llm, given in self.prices.items()}
        object.__setattr__(self, "prices", prices)
        for llm, note in self.notes.items():
            _require_note(llm, note, prices)

    @property
    def digest(self) -> str:
        """The sha256, in hex, over a canonical JSON of id, date and prices: what a receipt pins."""
        pairs = {llm: [p.input_usd_per_mtok, p.output_usd_per_mtok] for llm, p in self.prices.items()}
        facts = {"id": self.id, "date": self.date, "prices": pairs}
        return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def find(self, llm: str) -> Price | None:
        """Return the price of an LLM or a variant of it; `None` where the list has none.

        Args:
            llm: such as "gpt-3.5-turbo" or "gpt-3.5-turbo@t=0.8"; what stands before "@" finds the price.
        """
        return self.prices.get(llm.split("@", 1)[0])

    def price(self, llm: str) -> Price:
        """Return the price of an LLM or a variant of it.

        Args:
            llm: as for `find`.

        Raises:
            PriceNotFoundError: the list has none.
        """
        price = self.find(llm)
        if price is None:
            held = ", ".join(sorted(self.prices)) or "none"
            raise PriceNotFoundError(
                f"The price list {self.id!r} has no price for the LLM {llm!r}. It holds: {held}."
                " Take another list (an id, a .md card or a .json file), or 'none' to go without dollars."
            )
        return price


def price_list(id_or_path: str | Path) -> PriceList:
    """Read a price list.

    Args:
        id_or_path: the id of a card, such as "2025-06-02"; or the path of a file: a card (`.md`), or JSON (`.json`) such as
            `{"id": "mine", "date": "2026-01-31", "source": "...", "prices": {"my-llm": [0.5, 1.5]}}`, each pair being USD per
            million input and output tokens. A string with a slash or one of these endings is a path.

    Raises:
        UnknownNameError: no card has this id.
        CardError: the file cannot be read, or is no price list, or gives the id of a published list to other prices.
    """
    if isinstance(id_or_path, Path) or id_or_path.endswith((".md", ".json")) or "/" in id_or_path or "\\" in id_or_path:
        given = Path(id_or_path).expanduser()
        read = _read_json(given) if given.suffix == ".json" else _read_card(given)
        _refuse_second(read, given)
        return read
    paths = card_files("prices").get(id_or_path)
    if paths is None:
        advice = "A path to a .md card or a .json file works as well."
        raise UnknownNameError.of("price list", id_or_path, card_files("prices"), advice)
    read = _read_card(paths[0])
    if read.id != id_or_path:
        raise CardError(f"The price list {paths[0]} says it is {read.id!r}: its file must be called {read.id}.md.")
    _refuse_second(read, paths[0])
    return read


def _refuse_second(read: PriceList, path: Path) -> None:
    """Refuse a list that goes by the id of another one: a published list is superseded under a new id, never changed."""
    for other in card_files("prices").get(read.id, ()):
        if other != path and not _same_file(other, path) and _read_card(other).digest != read.digest:
            raise CardError(f"The price lists {path} and {other} are both called {read.id!r} but differ. Rename yours.")


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _read_card(path: Path) -> PriceList:
    return _from_facts(path, read_front_matter(path))


def _read_json(path: Path) -> PriceList:
    text = read_card_text(path)
    try:
        facts = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise CardError(f"The price list {path} is not JSON: {error.msg} in line {error.lineno}.") from error
    except (ValueError, RecursionError) as error:
        raise CardError(f"The price list {path} is not a usable JSON file: {error}.") from error
    if not isinstance(facts, dict):
        raise CardError(f"The price list {path} is no JSON object. Write id, date, source and prices.")
    return _from_facts(path, facts)


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise ValueError(f"the key {shorten(twice)} stands twice in one object")
    return found


def _from_facts(path: Path, facts: Mapping[str, Any]) -> PriceList:
    """The price list that a card or JSON file holds."""
    missing = [name for name in _FIELDS if name not in facts]
    if missing:
        raise CardError(f"The price list {path} lacks the field {missing[0]!r}. It needs {', '.join(_FIELDS)}.")
    foreign = sorted(set(facts) - {*_FIELDS, *_OPTIONAL_FIELDS})
    if foreign:
        raise CardError(
            f"The price list {path} has an unknown field {shorten(foreign[0])}. Remove it or correct its name."
        )
    try:
        if "title" in facts:
            _require_text("title", facts["title"])
        return PriceList(**{name: facts[name] for name in (*_FIELDS, "notes") if name in facts})
    except UsageError as error:
        raise CardError(f"The price list {path} is not usable. {error}") from error


def _require_text(name: str, given: object) -> None:
    if not (isinstance(given, str) and given.strip()):
        raise UsageError(f"A price list must give text in the field {name!r}; it gives {shorten(given)}.")


def _require_table(name: str, given: object) -> None:
    if not isinstance(given, Mapping) or not all(isinstance(llm, str) for llm in given):
        raise UsageError(f"The field {name!r} of a price list must map LLMs; it is {shorten(given)}.")


def _as_price(llm: str, given: object) -> Price:
    """A price from what may stand for one: a `Price`, two numbers, or a mapping with its two fields."""
    if not llm.strip() or "@" in llm:
        raise UsageError(f"A price list prices {shorten(llm)}: a price belongs to a base name, without '@'.")
    if isinstance(given, Price):
        return given
    pair = given
    if isinstance(given, Mapping) and set(given) == set(_PRICE_FIELDS):
        pair = [given[name] for name in _PRICE_FIELDS]
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(map(_is_number, pair)):
        form = f"two numbers, [input, output], in USD per million tokens, a mapping with {' and '.join(_PRICE_FIELDS)}"
        raise UsageError(f"A price list must price {shorten(llm)} with {form}, or a Price; it gives {shorten(given)}.")
    try:
        return Price(*pair)
    except OutOfRangeError as error:
        raise OutOfRangeError(
            f"A price list has an impossible price for {shorten(llm)}: {shorten(given)}. {error}"
        ) from error


def _require_note(llm: str, note: object, prices: Mapping[str, object]) -> None:
    if not isinstance(note, str) or llm not in prices:
        raise UsageError(f"A price list has a note on {shorten(llm)} that is no text or has no price beside it.")


def _is_number(given: object) -> bool:
    return isinstance(given, numbers.Real) and not isinstance(given, bool)


def _is_name(text: str) -> bool:
    return text.isascii() and text[0].isalnum() and all(c.isalnum() or c in ".-_" for c in text) and "--" not in text


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text  # fromisoformat takes 20250602 and week dates, too
    except ValueError:
        return False


@overload
def billed_prompts(billing: str, rounds: int, cots: int) -> int: ...
@overload
def billed_prompts(billing: str, rounds: NDArray[np.integer[Any]], cots: NDArray[np.integer[Any]]) -> NDArray[Any]: ...
def billed_prompts(billing: str, rounds: Any, cots: Any) -> Any:
    """Return how many times the prompt of a question is paid.

    Args:
        billing: one of `BILLINGS`.
        rounds: requests made to one LLM for one question, at least 0: an integer, or an array of any shape.
        cots: CoTs received, of the same shape.

    Returns:
        Integers of the same shape: 1 wherever anything was asked (`once`), `rounds` (`per_round`), or `cots` (`per_sample`);
        0 wherever nothing was asked.

    Raises:
        UnknownNameError: `billing` is none of `BILLINGS`.
    """
    if billing not in BILLINGS:
        raise UnknownNameError.of("billing", billing, BILLINGS)
    times = {"once": 1, "per_round": rounds, "per_sample": cots}[billing]
    return times * (rounds > 0)


@overload
def usd(price: Price, prompt_tokens: float, output_tokens: float) -> float: ...
@overload
def usd(price: Price, prompt_tokens: NDArray[Any], output_tokens: NDArray[Any] | float) -> NDArray[np.float64]: ...
@overload
def usd(price: Price, prompt_tokens: float, output_tokens: NDArray[Any]) -> NDArray[np.float64]: ...
def usd(price: Price, prompt_tokens: Any, output_tokens: Any) -> Any:
    """Return the cost in USD by eq. (1).

    Args:
        price: of the LLM.
        prompt_tokens: input tokens billed: those of the prompt times `billed_prompts`; a number, or an array of any shape.
        output_tokens: of all CoTs paid for; of a shape that broadcasts with it.

    Returns:
        USD: a float, or a float64 array. Unknown token counts (negative in a pool) are the caller's to leave out.
    """
    return 1e-6 * (price.input_usd_per_mtok * prompt_tokens + price.output_usd_per_mtok * output_tokens)

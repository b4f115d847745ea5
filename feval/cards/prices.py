"""Price lists: dated USD per million tokens, never edited, only superseded. `billing` makes dollars
of them.

A list may be changed where it is named: "2025-06-02 with o3=2,8 in batch" is a list with the price
of one LLM given by hand (several between semicolons), and the prices of a batch. Prices of
genai-prices, a dated data set, come as a package (https://github.com/pydantic/genai-prices).
Nothing here uses the network.
"""

from __future__ import annotations

import hashlib
import json
import numbers
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields, replace
from datetime import UTC, date, datetime, time
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    card_folder,
    check_card,
    find_card,
    iso_date,
    known_card,
    not_blank,
    read_card_text,
    read_front_matter,
)
from feval.cards.names import base_of
from feval.cards.reading import parse_json, sentence, shorten
from feval.errors import (
    CardError,
    OutOfRangeError,
    PriceNotFoundError,
    UnknownNameError,
    UsageError,
    require_known,
)
from feval.values import Record, RecordLike, frozen, without_none

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider


GENAI = "genai-prices@"
"""How the id of such a list begins."""
_FORM = re.compile(GENAI + r"([0-9-]*)(?:T([0-9]{2}:[0-9]{2}))?(?::(.+))?")
# in the order of PRICE_FIELDS
_RATES = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")
_HOURS = ("start_time", "end_time")


def genai_facts(name: str, llms: Iterable[str]) -> Record:
    """Return date, source, prices and notes of a list `genai-prices@DATE[THH:MM][:LLM=PROVIDER,..]`
    for some base names of LLMs.

    Raises:
        UsageError: the name has another form, the package is missing, or a price depends on the
            hour and none is named.
        UnknownNameError: no such LLM or provider.
        PriceNotFoundError: several providers sell an LLM at different prices.
    """
    try:
        form: Any = _FORM.fullmatch(name)
        day = date.fromisoformat(iso_date(form[1] if form else ""))
        clock = form[2] and time.fromisoformat(form[2])
    except ValueError as error:
        raise UsageError(
            f"Prices of genai-prices are those of a day, such as {GENAI}2026-11-01, at 00:00 UTC or"
            f" as in {GENAI}2026-11-01T14:30, from the providers in {GENAI}2026-11-01:o3=azure;"
            f" {name!r:.200} was given."
        ) from error
    _snapshot()
    sellers = sellers_of(name)
    prices: dict[str, Price] = {}
    notes: dict[str, str] = {}
    for llm in llms:
        provider, model, of_day = _sold(llm, sellers.get(llm), day)
        if any("requests_kcount" in rates for _, _, rates in _entries(model)):
            raise PriceNotFoundError(
                f"{provider.id} sells {llm!r} for a fee per request, too, which no price here"
                f" holds. Give the price of its tokens by hand: --price {llm}=IN,OUT."
            )
        if clock is None and len({*of_day.values()}) > 1:
            shown = "; ".join(
                f"from {hour:%H:%M} {price.words()}" for hour, price in of_day.items()
            )
            raise UsageError(
                f"What {llm!r} costs depends on the hour (UTC): {shown}. Say which: --price-time"
                f" HH:MM (in Python: prices='{GENAI}{day}THH:MM')."
            )
        prices[llm] = of_day[max(hour for hour in of_day if hour <= (clock or time(0)))]
        rules = [rule for rule, tier, _ in _entries(model) if tier == "standard"]
        starts = [rule.start_date for rule in rules if hasattr(rule, "start_date")]
        since = max((str(each) for each in starts if each <= day), default="when is not known")
        notes[llm] = f"{model.id} of {provider.id}, since {since}"
    source = f"genai-prices {version('genai-prices')}: {'; '.join(notes.values()) or 'no LLM'}"
    return {"date": str(day), "source": source, "prices": prices, "notes": notes}


def sellers_of(name: str) -> dict[str, str]:
    """Return the LLMs for which such a list names a provider, with that."""
    form = _FORM.fullmatch(name)
    pairs = [each.rpartition("=") for each in form[3].split(",")] if form and form[3] else []
    if not all(llm for llm, _, _ in pairs):
        raise UsageError(f"Providers are named as in o3=azure,o3-mini=openai, not as in {name!r}.")
    return {llm: provider for llm, _, provider in pairs}


@cache
def _snapshot() -> DataSnapshot:
    """Return the data that the package comes with, whatever else was fetched in this process."""
    try:
        from genai_prices.data import providers
        from genai_prices.data_snapshot import DataSnapshot
    except ImportError as error:
        raise UsageError(
            f"Prices {GENAI}DATE come from the package genai-prices, which is not installed: pip"
            " install 'feval[prices]'."
        ) from error
    return DataSnapshot(providers=providers, from_auto_update=False)


def _sold(llm: str, seller: str | None, day: date) -> tuple[Provider, ModelInfo, dict[time, Price]]:
    """Return who sells an LLM, and its price from each hour on at which it may change: by the
    provider that is named, else that of the package's own rules, else any, if all ask the same.
    """
    snapshot = _snapshot()
    providers = {provider.id: provider for provider in snapshot.providers}
    sold: list[tuple[Provider, Any]] = [(each, each.find_model(llm)) for each in snapshot.providers]
    if seller is not None:  # who may sell the models of others, at their prices
        require_known("provider in genai-prices", seller, providers)
        model = providers[seller].find_model(llm, all_providers=snapshot.providers)
        sold = [(providers[seller], model)]
    else:
        with suppress(LookupError):
            sold.insert(0, snapshot.find_provider_model(llm, None, None, None))
            sold = sold if None in _prices_of_day(*sold[0], day).values() else sold[:1]
    offers = {
        provider.id: (provider, model, of_day)
        for provider, model in sold
        if model and None not in (of_day := _prices_of_day(provider, model, day)).values()
    }
    by_hand = (
        f"Or give a price by hand, in USD per million tokens: --price {llm}=IN,OUT (in Python:"
        f" prices='{GENAI}{day} with {llm}=IN,OUT')."
    )
    if not offers:
        models = {each.id for provider, _ in sold for each in provider.models}
        noun = "LLM in genai-prices" + (f" from {seller}" if seller else "")
        raise UnknownNameError.among(noun, llm, models, by_hand)
    asked = {name: of_day[time(0)].words() for name, (_, _, of_day) in offers.items()}
    if len({*asked.values()}) > 1:
        shown = "; ".join(f"{words} from {name}" for name, words in asked.items())
        raise PriceNotFoundError(
            f"{len(asked)} providers sell {llm!r} at different prices: {shown}. Choose one, as in"
            f" '{GENAI}{day}:{llm}={next(iter(asked))}'. {by_hand}"
        )
    return next(iter(offers.values()))


def _prices_of_day(provider: Provider, model: ModelInfo, day: date) -> dict[time, Any]:
    hours = {time(0)}
    for rule, *_ in _entries(model):
        for hour in (getattr(rule, name, None) for name in _HOURS):
            if hour is not None:
                moment = datetime.combine(day, hour.replace(tzinfo=hour.tzinfo or UTC))
                hours.add(moment.astimezone(UTC).time())
    # another provider's model has its standard price alone
    own = any(model is each for each in provider.models)
    prices = {}
    for hour in sorted(hours):
        moment = datetime.combine(day, hour, UTC)
        batch: Record = {}
        for rule, tier, rates in _entries(model):
            if own and tier == "batch" and (rule is None or rule.active(moment)):
                batch = rates | batch  # the first has the say
        # the package itself gives the standard price in the place of one that it has not
        price = _price(vars(model.get_prices(moment))) if model.prices else None
        prices[hour] = price and replace(price, batch=_price(batch))
    return prices


def _price(rates: RecordLike) -> Price | None:
    """Return a price; `None` where that of input or output tokens is missing.

    Beyond a start of its tiers all tokens of a kind cost more, as for our steps; a kind that
    changes elsewhere gets a step there, too.
    """
    found = [rates.get(name) for name in _RATES]
    if None in found[:2]:
        return None
    starts = sorted({tier.start for rate in found for tier in getattr(rate, "tiers", ())})

    def beyond(start: int) -> Price:
        values: list[Any] = []
        for rate in found:
            tiers = [tier.price for tier in getattr(rate, "tiers", ()) if tier.start <= start]
            value = tiers[-1] if tiers else getattr(rate, "base", rate)
            values.append(value if value is None else float(value))
        return Price(*values)

    return replace(beyond(0), steps=tuple((start, beyond(start)) for start in starts if start))


def _entries(model: ModelInfo) -> Iterator[tuple[Any, str, Record]]:
    """Yield the condition, the tier and the rates of each price that the package holds."""
    listed = model.prices if isinstance(model.prices, list) else [model]
    for each in (*listed, *(model.price_variants or ())):
        when = getattr(each, "when", {"": "standard"})
        tier = "batch" if when == {"processing": "batch"} else " ".join(when.values())
        rates = without_none(vars(each.prices))
        yield getattr(each, "constraint", None), tier, rates


def genai_history(llm: str) -> Iterator[tuple[dict[str, str], Price]]:
    """Yield each price that the package holds of an LLM, with where it is from and when it holds;
    the package does not know since when the first of a tier held.
    """
    for provider in _snapshot().providers:
        model = provider.find_model(llm)
        for rule, tier, rates in [] if model is None else _entries(model):
            price = _price(rates)
            if model is not None and price is not None:
                hours = [f"{getattr(rule, name):%H:%M}" for name in _HOURS if hasattr(rule, name)]
                since = str(getattr(rule, "start_date", "not known"))
                facts = {"provider": provider.id, "model": model.id, "tier": tier, "since": since}
                yield facts | {"hours": "-".join(hours)}, price


_CHANGED = re.compile(r"(.*?)(?:(?:^|\s)with (\S+=\S+))?(?:(?:^|\s)in (batch))?", re.DOTALL)
TIERS = ("batch",)
"""What `--tier` takes."""


def changed_prices(
    prices: str | None,
    by_hand: Iterable[str] = (),
    hour: str | None = None,
    tier: str | None = None,
) -> str | None:
    """Return the name of a list (`None` for what recordings name) with changes, as `price_list`
    takes it.

    Args:
        prices: its name, which may have changes already.
        by_hand: LLM=IN,OUT or LLM=IN,OUT,CACHED, in USD per million tokens.
        hour: HH:MM in UTC, of a list of genai-prices.
        tier: "batch".

    Raises:
        UsageError: an hour for another list, or a price in another form.
        UnknownNameError: no such tier.
    """
    base, own, batch = _changes(prices or "")
    if hour is not None:
        if not base.startswith(GENAI):
            raise UsageError(
                f"An hour ({hour}) changes the prices of genai-prices alone; name them, as in"
                f" {GENAI}2026-11-01, or leave the hour out."
            )
        day, colon, sellers = base.partition(":")
        base = f"{day}T{hour}{colon}{sellers}"
    if tier is not None:
        require_known("tier", tier, TIERS)
    given = [*by_hand]
    for each in given:
        _price_by_hand(each)
    own = ";".join(filter(None, (own, *given)))
    words = (base, own and f"with {own}", (batch or tier) and f"in {batch or tier}")
    return " ".join(filter(None, words)) or None


def moved_prices(prices: str, move: Callable[[str], str]) -> str:
    """Return the name of a list, whose file is moved, with its changes."""
    base, own, tier = _changes(prices)
    return changed_prices(base and move(base), filter(None, own.split(";")), tier=tier) or prices


def _changes(name: str) -> tuple[str, str, str | None]:
    """Return the name of the list itself, prices given by hand, and the tier."""
    match: Any = _CHANGED.fullmatch(name)  # as does any text
    return match[1], match[2] or "", match[3]


def _price_by_hand(text: str) -> tuple[str, Price]:
    llm, _, rates = text.rpartition("=")
    try:
        base_name(llm)
        if re.search(r"[\s;]", text) or rates.count(",") not in (1, 2):
            raise ValueError("it has two or three numbers")
        numbers: Any = [float(rate) for rate in rates.split(",")]
    except ValueError as error:
        raise UsageError(
            "A price by hand is LLM=IN,OUT or LLM=IN,OUT,CACHED, in USD per million tokens and of"
            f" a base name (without '@'), such as o3=2,8,0.5; {text!r:.200} was given."
        ) from error
    return llm, Price(*numbers)


def _list_id(text: str) -> str:
    base = _changes(text)[0]
    is_plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{,99}", base) and "--" not in base
    if base == "none" or not (is_plain or base.startswith(GENAI)):
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
    facts: Record = dict(value) if isinstance(value, Mapping) else {}
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


def _check_notes(card: Record) -> Record:
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
    "base": _text(not_blank),
}
"""Those of a price list, in a card, in JSON or in Python, as pydantic's core checks them: the whole
of pydantic takes long to load.
"""
_CARD = SchemaValidator(
    no_info_after_validator_function(
        _check_notes,
        typed_dict_schema(
            {
                name: typed_dict_field(schema, required=name not in {"title", "notes", "base"})
                for name, schema in _FIELDS.items()
            },
            config=CoreConfig(strict=True, extra_fields_behavior="forbid"),
        ),
    )
)


@frozen
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
        facts = {name: value for name, value in self.to_json().items() if name != "source"}
        return hashlib.sha256(
            json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()

    def to_json(self) -> Record:
        """JSON values that `PriceList(**values)` takes back, without the notes."""
        prices = {llm: price.to_json() for llm, price in self.prices.items()}
        return {"id": self.id, "date": self.date, "source": self.source, "prices": prices}

    @property
    def is_shipped(self) -> bool:
        """Whether it is a card that comes with feval, so that its id and digest say all."""
        shipped = (card_folder() / "prices").glob("*.md")
        return any(
            path.stem == self.id and _read_prices(path)[0].digest == self.digest for path in shipped
        )

    def in_batch(self, llms: Iterable[str]) -> PriceList:
        """Return the list of what the same costs in a batch; a `PriceNotFoundError` where one of
        some LLMs has a price, and none for that.
        """
        for price, llm in ((self.find(llm), llm) for llm in llms):
            if price is not None and price.batch is None:
                raise PriceNotFoundError(
                    f"The price list {self.id!r} has no price of {llm!r} in a batch: on"
                    f" {self.date} {price.words()} is published. Leave the tier out, or give the"
                    f" price of a batch by hand, in a list of your own (`base: {self.id}`)."
                )
        prices = {llm: each.batch for llm, each in self.prices.items() if each.batch is not None}
        notes = {llm: note for llm, note in self.notes.items() if llm in prices}
        return replace(self, id=f"{self.id} in batch", prices=prices, notes=notes)

    @property
    def is_recorded(self) -> bool:
        """Whether it stands for no price per token: each CoT states its own USD."""
        return self.id == "recorded" and not self.prices

    def find(self, llm: str) -> Price | None:
        """Return the price of an LLM, or of the base of a variant ("gpt-3.5-turbo@t=0.8"); `None`
        where the list has none.
        """
        return self.prices.get(base_of(llm))

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
def price_list(
    id_or_path: str | Path,
    llms: Iterable[str] = (),
    *,
    named: Callable[[], str | PriceList] = str,
    known: Collection[str] = (),
) -> PriceList:
    """Read a price list.

    Args:
        id_or_path: the id of a card, such as "2025-06-02"; "recorded", the USD that CoTs state;
            "genai-prices@2026-11-01", the prices that the package genai-prices knows of a day (also
            with an hour, and with providers: "genai-prices@2026-11-01T14:30:o3=azure"); or the path
            of a file: a card (`.md`), or JSON (`.json`) such as `{"id": "mine", "date":
            "2026-01-31", "source": "...", "prices": {"my-llm": [0.5, 1.5]}}`, each pair being USD
            per million input and output tokens; `"base": LIST` is any list that has the prices of
            other LLMs. The file name of a card, and the name of a file here without its ending,
            will do. Behind any of these, "with o3=2,8,0.5" gives a price by hand and "in batch"
            takes the prices of a batch.
        llms: names of the LLMs that it is for: of genai-prices they are all that it has.
        named: gives the list, or its id, that a name of changes alone changes.
        known: names of all LLMs that a price by hand may be for; none for any.

    Raises:
        UnknownNameError: no card has this id; genai-prices has no such LLM or provider.
        PriceNotFoundError: an LLM has several prices, or none in a batch, or was released later.
        CardError: the file cannot be read, or is no price list, or gives the id of a published list
            to other prices.
        UsageError: changes in another form, or of what is no list.
    """
    return _found(id_or_path, llms, named, known, ())


def _found(
    id_or_path: str | Path,
    llms: Iterable[str],
    named: Callable[[], str | PriceList],
    known: Collection[str],
    above: tuple[Path, ...],
) -> PriceList:
    """Return what `price_list` does; `above` are the files whose base it is."""
    bases = list(dict.fromkeys(base_of(llm) for llm in llms))
    is_file = isinstance(id_or_path, Path)
    base, own, tier = (id_or_path, "", None) if is_file else _changes(str(id_or_path))
    by_hand = [_price_by_hand(each) for each in own.split(";") if each]
    changed = dict(by_hand)
    others = {base_of(llm) for llm in known}
    for llm in (*changed, *sellers_of(str(base))):
        if others:
            require_known("LLM to give a price", llm, others)
    if len(changed) < len(by_hand):
        raise UsageError(f"One price by hand is given for each LLM; {own!r:.200} has two of one.")
    listed = base or named()
    if (changed or tier) and listed in ("", "none"):
        raise UsageError(f"No price list is named that {id_or_path!r:.200} could change.")
    if isinstance(listed, PriceList):
        prices = listed
    else:
        prices = _listed(listed, [llm for llm in bases if llm not in changed], above)
    for llm in bases:
        card = find_card("llms", llm) if llm not in changed and prices.find(llm) else None
        released = card and read_front_matter(card).get("released")
        if released and str(released) > prices.date:
            raise PriceNotFoundError(
                f"Prices of {prices.date} were asked for ({prices.id!r:.200}), and {llm!r} was"
                f" released on {released}, as its card says ({card}). Name prices of that day or a"
                f" later one, or give one by hand: --price {llm}=IN,OUT."
            )
    if prices.is_recorded and (changed or tier):
        raise UsageError(
            "Recorded USD are those of whole CoTs, which no price and no tier changes. Name a list"
            " of prices."
        )
    name = f"{prices.id} with {own}" + f" in {tier}" * bool(tier)
    if tier:
        prices = prices.in_batch(llm for llm in bases if llm not in changed)
    if changed:  # a price by hand is that of a batch, too
        prices = replace(
            prices, id=name, prices={**prices.prices, **changed},
            source=f"{prices.source}; by hand: {own}", notes={},
        )  # fmt: skip
    return prices


def _listed(id_or_path: str | Path, llms: Sequence[str], above: tuple[Path, ...]) -> PriceList:
    """Return a list without changes."""
    name = str(id_or_path)
    if name.startswith(GENAI):
        return PriceList(name, **genai_facts(name, llms))
    path, known = Path(name).expanduser(), card_files("prices")
    is_path = isinstance(id_or_path, Path) or name.endswith((".md", ".json"))
    if is_path and path.name == name and path.stem in known and not path.exists():
        name, is_path = path.stem, False  # the file of a card
    elif not is_path and name not in known:
        here = [*Path().glob("*.md"), *Path().glob("*.json")]
        path = next((file for file in here if file.stem == name), path)
        is_path = path.name != name
    if not is_path:
        advice = "A path to a .md card or a .json file works as well."
        path = known_card("prices", name, advice)
    prices, base = _read_prices(path)
    if not is_path and prices.id != name:
        raise CardError(
            f"The price list {path} has the id {prices.id!r}: rename the file to {prices.id}.md."
        )
    # a published list is superseded under a new id, never changed
    for other in card_files("prices").get(prices.id, ()):
        if other.resolve() != path.resolve() and _read_prices(other)[0].digest != prices.digest:
            raise CardError(
                f"The price lists {path} and {other} both have the id {prices.id!r} but differ."
                " Rename yours."
            )
    if base is None:
        return prices
    files = (*above, path.resolve())
    if len({*files}) < len(files):
        raise CardError(f"Price lists are each other's base: {' > '.join(map(str, files))}.")
    beside = path.parent / base
    place = beside if os.path.isfile(beside) else base  # noqa: PTH113  a name too long is no file
    under = _found(place, [llm for llm in llms if llm not in prices.prices], str, (), files)
    source = f"{prices.source}; others from {under.id}: {under.source}"
    return replace(prices, source=source, prices={**under.prices, **prices.prices})


def _read_prices(path: Path) -> tuple[PriceList, str | None]:
    """Return the list in a file, and the name of the one that it is based on."""
    facts = _read_json(path) if path.suffix == ".json" else None
    card = check_card("prices", path, _CARD.validate_python, facts)
    card.pop("title", None)  # for people
    base = card.pop("base", None)
    if card["id"].startswith(GENAI) or _changes(card["id"])[0] != card["id"]:
        raise CardError(
            f"The price list {path} has the id {card['id']!r:.80}, which says where prices come"
            " from: its own is a name without 'with', 'in batch' and genai-prices@."
        )
    return PriceList(**card), base


def _read_json(path: Path) -> Record:
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

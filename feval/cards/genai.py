"""Prices of genai-prices, a dated data set that comes as a package
(https://github.com/pydantic/genai-prices). Nothing here uses the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from feval.cards.billing import Price
from feval.cards.front_matter import iso_date
from feval.errors import PriceNotFoundError, UnknownNameError, UsageError, require_known
from feval.values import Record, RecordLike

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
        rates = {name: rate for name, rate in vars(each.prices).items() if rate is not None}
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

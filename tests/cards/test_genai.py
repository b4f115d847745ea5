"""Prices of the package genai-prices: as its own `calc_price` has them, resolved once and kept."""

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.types import Tier, TieredPrices
from places import read_data

from feval import errors
from feval.cards.billing import Price, usd
from feval.cards.prices import PriceList, _price, _snapshot, changed_prices, price_list
from feval.errors import CardError, PriceNotFoundError, UnknownNameError, UsageError


def theirs(llm, day, input_tokens, output_tokens, **more):
    usage = genai_prices.Usage(input_tokens=input_tokens, output_tokens=output_tokens, **more)
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return float(genai_prices.calc_price(usage, llm, genai_request_timestamp=moment).total_price)


@pytest.mark.parametrize("day", ["2025-06-01", "2025-07-01", "2026-11-01"])
@pytest.mark.parametrize("llm", ["o3", "gpt-4o-mini"])
def test_dollars_are_those_of_the_package(llm, day):
    price = price_list(f"genai-prices@{day}", [f"{llm}@t=0.8"]).price(llm)
    assert usd(price, 12_345, 6_789) == pytest.approx(theirs(llm, day, 12_345, 6_789), rel=1e-9)
    by_hand = 12_345 * price.input_usd_per_mtok + 6_789 * price.output_usd_per_mtok
    assert usd(price, 12_345, 6_789) == pytest.approx(1e-6 * by_hand, rel=1e-12)


def test_o3_became_cheaper_on_the_tenth_of_june_2025():
    words = [
        price_list(f"genai-prices@{day}", ["o3"]).price("o3").words()
        for day in ("2025-06-09", "2025-06-10")
    ]
    assert words == ["10 in, 40 out, 0.5 cached", "2 in, 8 out, 0.5 cached"]


@pytest.mark.parametrize(
    ("llm", "prompt", "cached", "written"),
    [
        ("gemini-2.5-pro", 200_000, 50_000, 0),
        ("gemini-2.5-pro", 200_001, 50_000, 0),
        ("claude-sonnet-4-5", 9_000, 4_000, 3_000),
        ("claude-sonnet-4-5", 250_000, 4_000, 3_000),
        ("gpt-4o-mini", 9_000, 4_000, 0),
    ],
)
def test_caches_and_long_prompts_cost_what_the_package_says(llm, prompt, cached, written):
    price = price_list("genai-prices@2026-11-01", [llm]).price(llm)
    ours = usd(
        price, prompt - cached - written, 777,
        cached_tokens=cached, written_tokens=written, context=prompt,
    )  # fmt: skip
    more = {"cache_read_tokens": cached, "cache_write_tokens": written}
    assert ours == pytest.approx(theirs(llm, "2026-11-01", prompt, 777, **more), rel=1e-9)
    assert len(price.steps) == (llm != "gpt-4o-mini")


def test_rates_that_change_at_different_lengths_have_all_their_steps():
    tiered = {
        "input_mtok": TieredPrices(Decimal(1), [Tier(100, Decimal(2)), Tier(300, Decimal(3))]),
        "output_mtok": TieredPrices(Decimal(10), [Tier(200, Decimal(20))]),
        "cache_read_mtok": Decimal("0.5"),
    }
    steps = ((100, Price(2, 10, 0.5)), (200, Price(2, 20, 0.5)), (300, Price(3, 20, 0.5)))
    assert _price(tiered) == Price(1, 10, 0.5, steps=steps)
    assert _price({"input_mtok": Decimal(1)}) is None


def test_a_batch_costs_what_is_published_and_never_a_factor():
    prices = price_list("genai-prices@2026-11-01 in batch", ["o3"])
    assert prices.id == "genai-prices@2026-11-01 in batch"
    assert prices.price("o3") == Price(1, 4)  # no cached price of a batch is published
    with pytest.raises(PriceNotFoundError, match=r"'o3' in a batch: on 2025-07-01 2 in, 8 out"):
        price_list("genai-prices@2025-07-01 in batch", ["o3"])  # it is published since 2026-10-14


@pytest.mark.parametrize(
    ("name", "llms", "error", "message"), read_data("cards.json")["no one price"]
)
def test_what_has_no_one_price_is_refused_in_a_sentence(name, llms, error, message):
    with pytest.raises(getattr(errors, error), match=message):
        price_list(f"genai-prices{name}", llms)


def test_an_hour_and_a_provider_decide_on_the_price():
    llm, day = "deepseek-chat", "genai-prices@2026-11-01"
    hours = [
        price_list(f"{day}T{hour}", [llm]).price(llm).input_usd_per_mtok
        for hour in ("00:29", "00:30", "16:29", "16:30")
    ]
    assert hours == [0.135, 0.27, 0.27, 0.135]
    name = "deepseek-ai/DeepSeek-V3"
    sold = price_list(f"genai-prices@2026-11-01:{name}=huggingface_together", [name])
    assert sold.price(name) == Price(1.25, 1.25)
    assert "deepseek-ai/DeepSeek-V3 of huggingface_together, since when is not known" in sold.source


def test_prices_that_were_fetched_in_the_process_change_nothing(monkeypatch):
    monkeypatch.setattr("genai_prices.data_snapshot._custom_snapshot", "of tomorrow")
    assert price_list("genai-prices@2026-11-01", ["o3"]).price("o3").output_usd_per_mtok == 8


def test_without_the_package_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data", None)
    _snapshot.cache_clear()
    with pytest.raises(UsageError, match=r"pip install 'feval\[prices\]'"):
        price_list("genai-prices@2026-11-01")


def test_changes_are_part_of_the_name():
    assert changed_prices(None, ["o3=2,8"], tier="batch") == "with o3=2,8 in batch"
    assert changed_prices("a with o3=2,8", ["b=1,2"]) == "a with o3=2,8;b=1,2"
    hour = changed_prices("genai-prices@2026-11-01:o3=azure", hour="14:30")
    assert hour == "genai-prices@2026-11-01T14:30:o3=azure"
    assert changed_prices("my list.json") == "my list.json"


def test_a_price_by_hand_takes_the_place_of_one():
    prices = price_list("2025-06-02 with o3-mini=3,4;o3=10,40,2.5", ["o3", "gpt-4o-mini"])
    assert (prices.date, prices.price("gpt-4o-mini")) == ("2025-06-02", Price(0.15, 0.6))
    assert [prices.price(llm) for llm in ("o3-mini", "o3")] == [Price(3, 4), Price(10, 40, 2.5)]
    own = PriceList("mine", "2026-01-31", "an invoice", {"o3": (1, 1)})
    assert price_list("with o3=2,8", named=lambda: own).id == "mine with o3=2,8"


@pytest.mark.parametrize(("name", "error", "message"), read_data("cards.json")["changes of prices"])
def test_changes_that_cannot_be_made_are_refused(name, error, message):
    with pytest.raises(getattr(errors, error), match=message):
        price_list(name, known=["o3@t=1"])
    with pytest.raises(UnknownNameError, match=r"no tier 'flex'.*Known: batch"):
        changed_prices(name, tier="flex")
    with pytest.raises(UsageError, match="hour"):
        changed_prices(name, hour="14:30")


def test_a_card_corrects_what_it_names_of_its_base(tmp_path):
    """o3 had another cached price before June 10, 2025 than the package says."""
    card = {"id": "mine", "date": "2025-06-01", "source": "an archived page"}
    card |= {"base": "genai-prices@2025-06-01", "prices": {"o3": Price(10, 40, 2.5).to_json()}}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(card))
    prices = price_list(path, ["o3", "gpt-4o-mini"])
    assert prices.price("o3") == Price(10, 40, 2.5)
    assert prices.price("gpt-4o-mini").cached_input_usd_per_mtok == 0.075
    assert prices.source.startswith("an archived page; others from genai-prices@2025-06-01")
    (tmp_path / "other.json").write_text(json.dumps(card | {"id": "other", "base": "mine.json"}))
    assert price_list(tmp_path / "other.json", ["o3", "gpt-4o-mini"]).prices == prices.prices
    path.write_text(json.dumps(card | {"base": "other.json"}))
    with pytest.raises(CardError, match=r"each other's base: .*mine.json > .*other.json > .*mine"):
        price_list(path)


def test_a_fee_per_request_is_no_price_per_token():
    with pytest.raises(PriceNotFoundError, match="perplexity sells 'sonar' for a fee per request"):
        price_list("genai-prices@2026-11-01", ["sonar"])


def test_a_price_by_hand_is_that_of_a_batch():
    prices = price_list("genai-prices@2026-11-01 with mine=2,8 in batch", ["mine", "o3"])
    assert prices.id == "genai-prices@2026-11-01 with mine=2,8 in batch"
    assert prices.price("mine").to_json() == [2.0, 8.0]
    batch = price_list("genai-prices@2026-11-01 in batch", ["o3"])
    assert prices.price("o3") == batch.price("o3")

import json
from dataclasses import FrozenInstanceError, replace
from datetime import date
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from json_values import json_values
from places import read_data
from real_files import golden
from small import write_toy

from feval import load
from feval.cards.billing import BILLINGS, Price, billed_prompts, usd
from feval.cards.front_matter import card_folder
from feval.cards.names import LLMType
from feval.cards.prices import PriceList, price_list
from feval.errors import (
    CardError,
    FevalError,
    OutOfRangeError,
    PriceNotFoundError,
    UnknownNameError,
    UsageError,
)

# A published price list is never edited. Newer prices are a new list with a new digest.
PUBLISHED = {
    "recorded": "0f0047069f6f0e3e58b247e59f52c23489f25bd67803a35e2c21fa3bbcd30f95",
    "2025-06-02": "b289b140306beeb4081d867c8632cad04ebcb769b9758447071c480b8b0a10a6",
    "tiny-2026-11": "b1fec361fd8e5d5df792f71e7db619e831b02083a38933cb194dbde2a7cb9c2f",
}

PAPER = price_list("2025-06-02")
JSON = {
    "id": "mine",
    "date": "2026-01-31",
    "source": "an invoice",
    "prices": {"my-llm": [0.5, 1.5], "free": [0, 0]},
}


def write_json(folder, facts):
    path = folder / "prices.json"
    path.write_text(json.dumps(facts), encoding="utf-8")
    return path


def card_text(facts):
    return f"---\n{json.dumps(facts)}\n---\n"


def test_published_price_lists_never_change():
    assert {
        path.stem: price_list(path.stem).digest for path in (card_folder() / "prices").glob("*.md")
    } == PUBLISHED


def test_the_published_list_agrees_with_the_reference_package(shared):
    assert (PAPER.id, PAPER.date) == ("2025-06-02", "2025-06-02")
    assert "Table 3" in PAPER.source
    for constant, (per_input, per_output) in golden(shared, "cost.prices")["cost.prices"][
        "expected"
    ].items():
        assert PAPER.price(LLMType[constant]) == Price(per_input, per_output)


def test_the_digest_is_over_id_date_and_prices_alone():
    for changes in (
        {"id": "2025-06-03"},
        {"date": "2025-06-03"},
        {"prices": {**PAPER.prices, "gpt-4o-mini": Price(0.15, 0.61)}},
    ):
        assert replace(PAPER, **changes).digest != PAPER.digest
    reversed_prices = dict(reversed(PAPER.prices.items()))
    assert replace(PAPER, source="elsewhere", prices=reversed_prices).digest == PAPER.digest


def test_price_lists_are_values():
    assert price_list("2025-06-02") == price_list("2025-06-02")
    assert hash(price_list("2025-06-02")) == hash(price_list("2025-06-02"))
    with pytest.raises(FrozenInstanceError):
        price_list("2025-06-02").id = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "llm", ["gpt-3.5-turbo", "gpt-3.5-turbo@t=0.8", "gpt-3.5-turbo@pot@t=0.4", LLMType.GPT3]
)
def test_a_variant_costs_what_its_base_costs(llm):
    assert PAPER.price(llm) == Price(0.5, 1.5)
    assert PAPER.find(llm) == Price(0.5, 1.5)


def test_an_llm_without_a_price_is_named_with_list_and_contents():
    assert PAPER.find("gpt-4") is None
    with pytest.raises(
        PriceNotFoundError,
        match=r"price list '2025-06-02' has no price for the LLM 'gpt-4@pot'.*gpt-4o-mini.*'none'",
    ):
        PAPER.price("gpt-4@pot")
    with pytest.raises(PriceNotFoundError, match="It has: none"):
        PriceList("empty", "2026-01-01", "nowhere", {}).price("gpt-4")


@pytest.mark.parametrize(
    "price", [-1, -1e-300, 1.1e9, float("nan"), float("inf"), float("-inf"), 10**400, "a", None]
)
def test_a_price_is_a_number_from_zero_up(price):
    for pair in ((price, 1), (1, price)):
        with pytest.raises(OutOfRangeError, match="A price cannot be"):
            Price(*pair)
    assert Price(0, 0) == Price(0.0, 0.0)


@pytest.mark.parametrize(
    "price",
    [
        Price(0.5, 1.5),
        (0.5, 1.5),
        [0.5, Fraction(3, 2)],
        {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 1.5},
        (np.float32(0.5), np.float64(1.5)),
    ],
)
def test_what_stands_for_a_price_becomes_one(price):
    made = PriceList("mine", "2026-01-31", "an invoice", {"my-llm": price})
    assert made == PriceList("mine", "2026-01-31", "an invoice", {"my-llm": Price(0.5, 1.5)})
    assert made.price("my-llm@t=1") == Price(0.5, 1.5)


def test_a_list_does_not_change_with_what_it_was_made_from():
    prices = {"my-llm": [0.5, 1.5]}
    made = PriceList("mine", "2026-01-31", "an invoice", prices)
    prices["my-llm"][0] = 9
    prices["other"] = (1, 1)
    assert dict(made.prices) == {"my-llm": Price(0.5, 1.5)}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("id", 7, "has 7 in the field 'id'"),
        ("date", date(2026, 1, 31), "has datetime.date.* in the field 'date'"),
        ("prices", [("my-llm", (0.5, 1.5))], "in the field 'prices' .*mapping"),
        ("prices", {7: (0.5, 1.5)}, "has the key 7 in the field 'prices'"),
    ],
)
def test_a_list_that_could_not_price_is_refused_when_it_is_made(field, value, message):
    with pytest.raises(UsageError, match=message):
        PriceList(**{**JSON, field: value})


def test_a_list_is_read_by_path_from_json_and_from_a_card(tmp_path):
    read = price_list(write_json(tmp_path, JSON))
    assert read == PriceList(
        "mine", "2026-01-31", "an invoice", {"my-llm": Price(0.5, 1.5), "free": Price(0, 0)}
    )
    assert price_list(str(tmp_path / "prices.json")) == read
    (tmp_path / "other.md").write_text(card_text(JSON), encoding="utf-8")
    assert price_list(tmp_path / "other.md") == read
    assert price_list(str(tmp_path / "other.md")).digest == read.digest


def test_a_relative_path_and_a_home_are_paths(tmp_path, monkeypatch):
    write_json(tmp_path, JSON)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("prices.json", "./prices.json", "~/prices.json"):
        assert price_list(path).id == "mine"


def test_a_list_in_a_folder_of_ones_own_is_read_by_id(tmp_path, monkeypatch):
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices/mine.md").write_text(card_text(JSON), encoding="utf-8")
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path))
    assert price_list("mine").price("my-llm@x") == Price(0.5, 1.5)
    assert price_list("2025-06-02").digest == PUBLISHED["2025-06-02"]
    (tmp_path / "prices/mine.md").rename(tmp_path / "prices/yours.md")
    with pytest.raises(CardError, match=r"yours\.md has the id 'mine'.*mine\.md"):
        price_list("yours")


def test_prices_of_a_day_before_an_llm_was_released_are_refused(tmp_path):
    facts = JSON | {"date": "2025-01-30", "prices": {"o3-mini": [1, 4]}}
    path = write_json(tmp_path, facts)
    early = r"Prices of 2025-01-30 .*'mine'.*'o3-mini' was released on 2025-01-31, .*o3-mini\.md"
    with pytest.raises(PriceNotFoundError, match=early):
        price_list(path, ["o3-mini@t=1"])
    recording = write_toy(tmp_path / "toy", {"o3-mini": [["1"]]}, ["1"])
    with pytest.raises(PriceNotFoundError, match=early):
        load("toy", recording=recording, prices=PriceList(**facts))
    assert price_list(f"{path} with o3-mini=1,2", ["o3-mini"]).price("o3-mini") == Price(1, 2)
    assert price_list(write_json(tmp_path, facts | {"date": "2025-01-31"}), ["o3-mini"])


def test_a_published_list_cannot_be_replaced(tmp_path, monkeypatch):
    (tmp_path / "prices").mkdir()
    mine = tmp_path / "prices/2025-06-02.md"
    published = (card_folder() / "prices/2025-06-02.md").read_text("utf-8")
    mine.write_text(published.replace("[0.15, 0.60]", "[0.15, 0.06]"), encoding="utf-8")
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path))
    for named in (mine, "2025-06-02", write_json(tmp_path, {**JSON, "id": "2025-06-02"})):
        with pytest.raises(CardError, match=r"both have the id '2025-06-02' but differ"):
            price_list(named)
    mine.write_text(published, encoding="utf-8")  # a faithful copy is the list
    assert price_list("2025-06-02").digest == PUBLISHED["2025-06-02"]


def test_an_unknown_list_is_answered_with_the_known_ones():
    with pytest.raises(
        UnknownNameError, match=r"no price list '2025-06-01'. Did you mean '2025-06-02'\? .*\.json"
    ) as caught:
        price_list("2025-06-01")
    assert caught.value.exit_code == 2
    for name in ("", "none", "x" * 10_000, "a\0b"):
        with pytest.raises(UnknownNameError):
            price_list(name)


@pytest.mark.parametrize("path", ["absent.md", "absent.json", "a/b", "..", "../2025-06-02"])
def test_a_path_that_leads_nowhere_is_an_error(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FevalError, match=r"absent|a/b|\.\."):
        price_list(path)


BAD = read_data("cards.json")["prices"] | {
    f"lacks the field '{field}'": (field, ...) for field in ("id", "date", "source", "prices")
}
BAD["in the field 'prices.a' (a price is a number from 0"] = ("prices", {"a": [1, 10**400]})


@pytest.mark.parametrize("fragment", BAD)
def test_a_list_with_a_wrong_field_is_refused(fragment, tmp_path):
    field, value = BAD[fragment]
    facts = {**JSON, field: value}
    if value is ...:
        del facts[field]
    path = write_json(tmp_path, facts)
    with pytest.raises(CardError) as caught:
        price_list(path)
    assert fragment in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500


BAD_JSON = {
    "empty": ("", "line 1"),
    "line 3": ('{"id": "a",\n"date": "b"\n"source"', "line 3"),
    "list": ("[]", "not a JSON object"),
    "key twice": ('{"prices": {"a": [1, 1], "a": [2, 2]}}', "'a' occurs twice"),
    "deep": ("[" * 100_000, "not a usable JSON"),
    "digits": ('{"id": ' + "9" * 5000 + "}", "not a usable JSON"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_broken_json_is_refused(name, tmp_path):
    text, fragment = BAD_JSON[name]
    (tmp_path / "prices.json").write_text(text, encoding="utf-8")
    with pytest.raises(CardError) as caught:
        price_list(tmp_path / "prices.json")
    assert fragment in str(caught.value)


@given(st.sampled_from([*JSON, "title", "notes"]), json_values(), st.booleans())
def test_a_list_with_any_value_in_any_field_is_read_or_refused(
    tmp_path_factory, field, value, as_card
):
    path = tmp_path_factory.getbasetemp() / ("prices.md" if as_card else "prices.json")
    text = json.dumps({**JSON, field: value})
    path.write_text(f"---\n{text}\n---\n" if as_card else text, encoding="utf-8")
    try:
        read = price_list(path)
    except CardError:
        return
    assert all(price.input_usd_per_mtok >= 0 for price in read.prices.values())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(data)
    with pytest.raises(CardError):
        price_list(path)


@pytest.mark.parametrize("n", [1, 20])
def test_self_consistency_on_the_recorded_date_questions_costs_what_the_reference_says(n, shared):
    import gzip

    from feval.cards.tokens import count_words

    name = f"cost.first_n.date_cot1_40.N{n}"
    expected = golden(shared, name)[name]
    price = PAPER.price(LLMType.Mixtral8x7B)
    assert [price.input_usd_per_mtok, price.output_usd_per_mtok] == expected["params"]["prices"]
    with gzip.open(shared / "real/mot_cascade/GPT3_result/date_cot1_40.json.gz") as file:
        questions = json.load(file)
    prompts = np.array([count_words(question["question"]) for question in questions])
    outputs = np.array(
        [sum(count_words(text) for text in question["generated"][:n]) for question in questions]
    )
    rounds = np.ones_like(prompts)
    assert int((prompts + outputs).sum()) == expected["expected"]["tokens"]
    total = usd(price, prompts * billed_prompts("once", rounds, rounds * n), outputs).sum()
    assert total == pytest.approx(expected["expected"]["usd"], abs=1e-9)


tokens = st.integers(0, 10**7)
prices = st.builds(Price, st.floats(0, 1000), st.floats(0, 1000))


@given(st.integers(0, 10**6), st.integers(0, 10**6), tokens, tokens)
def test_eq_1_is_exact_to_the_last_digits(per_input, per_output, prompt, output):
    price = Price(per_input / 1000, per_output / 1000)
    exact = (Fraction(per_input, 1000) * prompt + Fraction(per_output, 1000) * output) / 10**6
    assert usd(price, prompt, output) == pytest.approx(float(exact), rel=1e-14)


@given(prices, st.lists(st.tuples(tokens, tokens), min_size=1, max_size=6))
def test_arrays_cost_what_their_entries_cost(price, requests):
    prompts, outputs = np.array(requests).T
    costs = usd(price, prompts, outputs)
    assert costs.dtype == np.float64
    assert costs.tolist() == [usd(price, prompt, output) for prompt, output in requests]


def test_small_integer_arrays_do_not_overflow():
    outputs = np.full((3, 4), 60_000, dtype=np.uint16)
    assert usd(Price(0, 1000), 0, outputs).tolist() == [[pytest.approx(60.0)] * 4] * 3


def test_a_prompt_is_paid_once_per_round_or_per_sample():
    assert BILLINGS == ("once", "per_round", "per_sample")
    assert [billed_prompts(billing, 4, 20) for billing in BILLINGS] == [1, 4, 20]
    assert [billed_prompts(billing, 0, 0) for billing in BILLINGS] == [0, 0, 0]
    assert all(type(billed_prompts(billing, 4, 20)) is int for billing in BILLINGS)


def test_billing_works_on_arrays_of_any_shape():
    rounds, cots = np.array([[0, 1, 3]], dtype=np.int32), np.array([[0, 5, 15]], dtype=np.int32)
    assert [billed_prompts(billing, rounds, cots).tolist() for billing in BILLINGS] == [
        [[0, 1, 1]],
        [[0, 1, 3]],
        [[0, 5, 15]],
    ]
    assert rounds.tolist() == [[0, 1, 3]]
    assert billed_prompts(
        "once", np.array([], dtype=np.int64), np.array([], dtype=np.int64)
    ).shape == (0,)


@pytest.mark.parametrize("billing", ["", "Once", "per round", "per_token"])
def test_an_unknown_billing_is_refused(billing):
    with pytest.raises(UnknownNameError, match=r"no billing.*once, per_round, per_sample"):
        billed_prompts(billing, 1, 1)


LONG = Price(
    1, 10, 0.1, 1.25, 2, steps=((100, Price(2, 20, 0.2)), (200, Price(4, 40))), batch=Price(0.5, 5)
)


def test_beyond_a_step_all_tokens_of_a_request_change_price():
    context = np.array([100, 101, 200, 201])
    expected = [1e-6 * each for each in (1 * 10 + 10 * 5, 2 * 10 + 20 * 5, 120, 4 * 10 + 40 * 5)]
    assert usd(LONG, 10, 5, context=context) == pytest.approx(expected, rel=1e-12)
    assert usd(LONG, 101, 0) == pytest.approx(202e-6, rel=1e-12)
    rates = [LONG.at(tokens).input_usd_per_mtok for tokens in context]
    assert rates == [1, 2, 2, 4]


def test_cached_tokens_cost_what_input_costs_where_no_price_is_published():
    cached = {"cached_tokens": 7, "written_tokens": 3, "context": 20}
    assert usd(LONG, 10, 0, **cached) == pytest.approx(1e-6 * (10 + 0.7 + 3.75), rel=1e-12)
    assert usd(LONG, 10, 0, **cached | {"context": 150}) == pytest.approx(
        1e-6 * (20 + 1.4 + 6), rel=1e-12
    )
    assert usd(Price(1, 1), 10, 0, **cached) == pytest.approx(20e-6, rel=1e-12)


def test_all_that_a_price_holds_can_be_written_read_and_told_apart():
    prices = PriceList("mine", "2026-01-31", "an invoice", {"a": LONG, "b": (0.5, 1)})
    written = json.loads(json.dumps(prices.to_json()))
    assert written["prices"]["b"] == [0.5, 1]
    assert PriceList(**written) == prices
    assert PriceList(**written).digest == prices.digest
    for change in ({"steps": LONG.steps[:1]}, {"batch": None}, {"cache_write_1h_usd_per_mtok": 3}):
        assert replace(prices, prices={"a": replace(LONG, **change)}).digest != prices.digest
    assert LONG.words() == (
        "1 in, 10 out, 0.1 cached, 1.25 written, 2 written for 1 h; beyond 100 tokens 2 in, 20 out,"
        " 0.2 cached; beyond 200 tokens 4 in, 40 out; in a batch 0.5 in, 5 out"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": ((200, Price(1, 1)), (100, Price(1, 1)))},
        {"steps": ((100, LONG),)},
        {"batch": LONG},
        {"steps": ((100, Price(1, 1)), (100, Price(1, 1)))},
    ],
)
def test_steps_rise_and_hold_plain_prices(wrong):
    with pytest.raises(UsageError, match=r"steps of a price begin|no price in a batch of its own"):
        Price(1, 1, **wrong)

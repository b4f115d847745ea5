"""The cards of the tiny models agree with the code that makes them."""

import hashlib
import json

import pytest
from tiny_recipes import parameters

from feval.cards.cards import dataset_card, llm_card
from feval.cards.front_matter import card_files, card_folder
from feval.cards.prices import price_list
from recorders.tiny import DATASET_ID, FAMILY, TinyDecoding, problems

QUESTIONS = problems.test_questions()


def test_the_dataset_card_pins_the_questions():
    card = dataset_card(DATASET_ID)
    rows = [
        [f"{DATASET_ID}/{index}", q.question, str(q.answer), []]
        for index, q in enumerate(QUESTIONS)
    ]
    lines = "".join(
        json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows
    )
    assert card.questions_sha256 == hashlib.sha256(lines.encode()).hexdigest()
    assert (card.questions, card.first_question_id, card.last_question_id) == (
        len(rows),
        rows[0][0],
        rows[-1][0],
    )
    assert card.answer_kind == "number"
    assert card.example.question not in {question.question for question in QUESTIONS}


def test_every_member_of_the_family_has_a_card_and_only_they():
    assert {name for name in card_files("llms") if name.startswith("feval/")} == set(FAMILY)


@pytest.mark.parametrize("name", FAMILY)
def test_a_card_agrees_with_its_model(name):
    card = llm_card(name)
    assert (card.temperature, card.max_tokens) == (
        TinyDecoding().temperature,
        TinyDecoding().max_tokens,
    )
    assert card.family == "feval tiny"
    text = (card_folder() / "llms" / f"{name.replace('/', '--')}.md").read_text("utf-8")
    assert f"{parameters(FAMILY[name]):,} parameters" in text


def test_prices_are_invented_in_proportion_to_the_names():
    prices = price_list("tiny-2026-11")
    assert "Invented" in prices.source
    assert set(prices.prices) == set(FAMILY)
    for name, price in prices.prices.items():
        thousands = int(name.removeprefix("feval/tiny-").removesuffix("k"))
        assert price.output_usd_per_mtok == pytest.approx(thousands / 1000)
        assert price.input_usd_per_mtok == pytest.approx(thousands / 4000)

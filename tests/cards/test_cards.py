import hashlib
import json
import os
import re
import shutil

import pytest
from places import read_data

from feval import answers
from feval.answers.thoughts import FAMILIES
from feval.cards.cards import (
    DatasetCard,
    LLMCard,
    dataset_card,
    find_dataset_card,
    find_llm_card,
    llm_card,
    price_ids,
)
from feval.cards.front_matter import CARD_KINDS, card_files, card_folder, read_front_matter
from feval.cards.names import DatasetType
from feval.errors import CardError, UnknownNameError

PAPER_DATASETS = list(DatasetType)
OTHER_DATASETS = ["bigbench_date", "last_letters", "mmlu", "aime24", "aime25", "hmmt25"]

DATASET = """\
id: my_set
title: My set
group: chemistry
answer_kind: number
questions: 2
first_question_id: my_set/0
last_question_id: my_set/1
licence: CC0-1.0
citation: None yet.
hub: null
example: {question: 'How many moles?', raw_answer: '2.50 mol', answer: '2.5'}
"""
LLM = """\
name: my-org/my-llm
title: My LLM
family: Mine
provider: my own machine
reasoning: false
cots_to_record: 8
temperature: 1
max_tokens: null
source: I trained it.
"""
PRICES = """\
id: 2026-01-31
date: 2026-01-31
source: An invoice.
prices: {my-org/my-llm: [0.1, 0.2]}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A card folder of the user's own, with one card of each kind."""
    put(tmp_path, "datasets/my_set", DATASET)
    put(tmp_path, "llms/my-org--my-llm", LLM)
    put(tmp_path, "prices/2026-01-31", PRICES)
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path))
    return tmp_path


def put(folder, name, facts):
    path = folder / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{facts}---\n\n# Prose\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("dataset_id", [*PAPER_DATASETS, *OTHER_DATASETS])
def test_a_dataset_card_is_complete(dataset_id):
    card = dataset_card(dataset_id)
    assert card.first_question_id == f"{dataset_id}/0"
    assert card.last_question_id == f"{dataset_id}/{card.questions - 1}"
    assert card.source or card.hub
    assert card.checked
    assert (card.answer_kind == "choice") <= bool(card.example.choices)
    assert re.search(r"\d{4}\)\. .*(arXiv:\d{4}\.\d{5}|Examination \d{4})", card.citation)


def real_questions(shared, dataset_id):
    lines = (shared / "real/questions" / f"{dataset_id}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("dataset_id", PAPER_DATASETS)
def test_a_dataset_card_agrees_with_the_questions(dataset_id, shared):
    rows = real_questions(shared, dataset_id)
    card = dataset_card(dataset_id)
    assert (card.questions, card.first_question_id, card.last_question_id) == (
        len(rows),
        rows[0]["id"],
        rows[-1]["id"],
    )
    digest = hashlib.sha256()
    for row in rows:
        choices = [[choice["label"], choice["text"]] for choice in row.get("choices", [])]
        line = json.dumps(
            [row["id"], row["question"], row["answer"], choices],
            ensure_ascii=False,
            separators=(",", ":"),
        )
        digest.update(line.encode() + b"\n")
    assert card.questions_sha256 == digest.hexdigest()


@pytest.mark.parametrize("dataset_id", PAPER_DATASETS)
def test_an_example_is_a_question_of_its_dataset_or_says_that_it_is_our_own(dataset_id, shared):
    card = dataset_card(dataset_id)
    rows = real_questions(shared, dataset_id)
    matches = [row for row in rows if row["question"] == card.example.question]
    body = card_files("datasets")[dataset_id][-1].read_text("utf-8").split("---\n", 2)[2]
    if "our own" in " ".join(body.split()):
        assert not matches
        return
    choices = [{"label": choice.label, "text": choice.text} for choice in card.example.choices]
    pairs = [(choice.label, choice.text) for choice in card.example.choices]
    golds = [
        answers.canonical_gold(card.answer_kind, row["answer"], pairs)
        for row in matches
        if row.get("choices", []) == choices
    ]
    assert card.example.answer in golds


@pytest.mark.parametrize("dataset_id", [*PAPER_DATASETS, *OTHER_DATASETS])
def test_the_raw_answer_of_an_example_has_the_canonical_form_that_the_card_says(dataset_id):
    card = dataset_card(dataset_id)
    choices = [(choice.label, choice.text) for choice in card.example.choices]
    assert (
        answers.canonical(card.answer_kind, card.example.raw_answer, choices) == card.example.answer
    )
    assert answers.canonical(card.answer_kind, card.example.answer, choices) == card.example.answer


def facts_digest(path):
    facts = json.dumps(
        read_front_matter(path), sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    return hashlib.sha256(facts.encode()).hexdigest()


def test_published_cards_do_not_change():
    """A fact that was wrong is corrected with its digest here, in one reviewed change; a price list
    never is.
    """
    published = read_data("published_cards.json")
    present = {
        f"{kind}/{path.name}": facts_digest(path)
        for kind in CARD_KINDS
        for path in sorted((card_folder() / kind).glob("*.md"))
    }
    assert present == published


def test_every_card_has_prose_under_its_title():
    for kind in CARD_KINDS:
        for path in (card_folder() / kind).glob("*.md"):
            text = path.read_text("utf-8")
            title = read_front_matter(path)["title"]
            assert f"\n---\n\n# {title}\n\n" in text, path
            assert text.endswith("\n")
            assert not text.endswith("\n\n")


def test_a_variant_has_the_card_of_its_base():
    assert llm_card("gpt-3.5-turbo@t=0.8") == llm_card("gpt-3.5-turbo")
    assert find_llm_card("deepseek-ai/DeepSeek-V3@pot").name == "deepseek-ai/DeepSeek-V3"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "name",
    [
        "nothing", "GSM8K", "../datasets/gsm8k", "", "gsm8k.md", "deepseek-ai--DeepSeek-V3", ".",
        "a\0b", "/etc/passwd", "gsm8k/", "x" * 5000,
    ],
)  # fmt: skip
def test_a_name_without_a_card_is_unknown(name):
    assert find_dataset_card(name) is None
    assert find_llm_card(name) is None
    with pytest.raises(UnknownNameError, match="no dataset card"):
        dataset_card(name)
    with pytest.raises(UnknownNameError, match="no LLM card"):
        llm_card(name)


def test_an_unknown_name_is_answered_with_the_nearest_and_the_way_to_add_one():
    with pytest.raises(
        UnknownNameError, match=r"Did you mean 'gsm8k'.*Known: aime24,.*FEVAL_CARDS"
    ) as caught:
        dataset_card("gsm8")
    assert caught.value.exit_code == 2
    with pytest.raises(UnknownNameError, match="Did you mean 'gpt-4o-mini'"):
        llm_card("gpt-4o-minni@t=1")


def test_adding_a_card_adds_a_dataset_an_llm_and_a_price_list(folder):
    assert "my_set" in card_files("datasets")
    assert "my-org/my-llm" in card_files("llms")
    assert price_ids() == ["2025-06-02", "2026-01-31", "recorded", "tiny-2026-11"]
    assert dataset_card("my_set").group == "chemistry"
    assert dataset_card("my_set").example.choices == ()
    assert llm_card("my-org/my-llm@t=0").temperature == 1.0
    assert dataset_card("gsm8k").questions == 1319


def test_the_first_folder_wins_for_datasets_and_llms(folder, tmp_path, monkeypatch):
    put(folder, "datasets/gsm8k", DATASET.replace("my_set", "gsm8k"))
    assert dataset_card("gsm8k").title == "My set"
    second = tmp_path / "second"
    put(second, "datasets/gsm8k", DATASET.replace("my_set", "gsm8k").replace("My set", "Second"))
    put(second, "llms/o3-mini", LLM.replace("my-org/my-llm", "o3-mini"))
    monkeypatch.setenv("FEVAL_CARDS", os.pathsep.join([str(second), str(folder)]))
    assert dataset_card("gsm8k").title == "Second"
    assert llm_card("o3-mini").cots_to_record == 8


@pytest.mark.parametrize(
    ("kind", "facts", "find"),
    [("datasets", DATASET, find_dataset_card), ("llms", LLM, find_llm_card)],
)
def test_a_card_in_a_file_of_another_name_is_refused(kind, facts, find, folder):
    put(folder, f"{kind}/other", facts)
    with pytest.raises(CardError, match=r"other\.md describes 'my.*must be called my.*\.md"):
        find("other")


BAD = read_data("cards.json")["cards"] | {
    "and 8 more faults": (DATASET[DATASET.index("title:") :], "id2: x\n")
}


@pytest.mark.parametrize("fragment", BAD)
def test_a_card_with_a_wrong_field_is_refused(fragment, folder):
    old, new = BAD[fragment]
    name, facts = "datasets/my_set", DATASET
    if old not in facts:
        name, facts = "llms/my-org--my-llm", LLM
    path = put(folder, name, facts.replace(old, new, 1))
    with pytest.raises(CardError) as caught:
        find_dataset_card("my_set")
        find_llm_card("my-org/my-llm")
    assert fragment in str(caught.value)
    assert str(path) in str(caught.value)
    assert "http" not in str(caught.value)


def test_a_broken_card_is_listed_and_breaks_only_itself(folder):
    put(folder, "datasets/broken", "id: [\n")
    assert "broken" in card_files("datasets")
    assert dataset_card("my_set")
    with pytest.raises(CardError, match=r"broken\.md"):
        dataset_card("broken")


def test_a_field_of_any_size_makes_a_short_sentence(folder):
    put(folder, "datasets/my_set", DATASET.replace("questions: 2", f"questions: {'x' * 100_000}"))
    with pytest.raises(CardError) as caught:
        dataset_card("my_set")
    assert len(str(caught.value)) < 600


def test_cards_are_frozen_values():
    card = dataset_card("gsm8k")
    assert card == dataset_card("gsm8k")
    assert hash(card)
    with pytest.raises(ValueError, match="frozen"):
        card.id = "other"  # type: ignore[misc]


def test_the_card_folder_can_be_copied_and_used_as_ones_own(tmp_path, monkeypatch):
    own, names = tmp_path / "cards", [*card_files("datasets")]
    shutil.copytree(card_folder(), own)
    monkeypatch.setenv("FEVAL_CARDS", str(own))
    assert card_files("datasets")["gsm8k"][0].parent == own / "datasets"
    assert [*card_files("datasets")] == names
    assert [dataset_card(name).id for name in names] == names


def test_the_readme_of_the_cards_lists_every_field():
    tables = (card_folder() / "README.md").read_text("utf-8")
    fields = set(re.findall(r"`(\w+)`", tables))
    assert {
        *DatasetCard.model_fields,
        *LLMCard.model_fields,
        "prices",
        "date",
        "source",
        "notes",
    } <= fields
    for family in FAMILIES:
        assert f"`{family}`" in tables

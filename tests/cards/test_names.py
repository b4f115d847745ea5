import json
import subprocess
import sys

import pytest

from feval.cards.cards import dataset_card, llm_card
from feval.cards.front_matter import card_files
from feval.cards.names import DatasetType, LLMType
from feval.cards.prices import price_list


@pytest.mark.parametrize(
    ("constants", "count", "kind", "card"),
    [(DatasetType, 16, "datasets", dataset_card), (LLMType, 14, "llms", llm_card)],
)
def test_constants_are_those_of_the_cards(constants, count, kind, card):
    of_cards = {card(name).constant: name for name in card_files(kind)}
    of_cards.pop(None, None)
    assert of_cards == {one.name: one.value for one in constants}
    assert len(constants) == count


def test_every_llm_of_the_paper_has_a_price():
    assert set(price_list("2025-06-02").prices) == set(LLMType)


def test_the_reference_package_writes_each_dataset_its_own_way():
    names = [dataset_card(one).reference_name for one in DatasetType]
    assert len(set(names)) == 16
    assert dataset_card(DatasetType.MATH_500).reference_name == "Math_500"
    assert (
        dataset_card(DatasetType.BIGBENCH_MOVIE_RECOMENDATION).reference_name
        == "Bigbench_Movie_Recommendation"
    )


def test_a_constant_is_its_text():
    assert DatasetType.GSM8K == "gsm8k"
    assert f"{LLMType.GPT3}@t=0.8" == "gpt-3.5-turbo@t=0.8"
    assert json.dumps([DatasetType.AQUA, LLMType.o3MINI]) == '["aqua", "o3-mini"]'
    assert {DatasetType.SVAMP: 1}["svamp"] == 1  # type: ignore[index]


def test_importing_the_names_reads_no_card():
    code = (
        "import sys, feval.cards.names; assert not {'feval.cards.cards', 'pydantic', 'yaml'} &"
        " set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

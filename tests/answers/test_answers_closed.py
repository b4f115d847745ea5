"""Answers that are words: yes or no, valid or invalid, strings of letters."""

import pytest
from places import read_data

from feval.answers import canonical, extract

CASES = read_data("answers.json")


@pytest.mark.parametrize(
    ("kind", "text", "key"), [(kind, *row) for kind, rows in CASES["words"].items() for row in rows]
)
def test_the_answer_of_a_cot(kind, text, key):
    assert canonical(kind, extract(kind, text)) == key


@pytest.mark.parametrize("kind", ["yes-no", "valid-invalid"])
def test_the_raw_answer_is_what_the_cot_says(kind):
    text = "So the answer is not plausible." if kind == "yes-no" else "So the answer is not valid."
    assert extract(kind, text) == text.removeprefix("So the answer is ").removesuffix(".")


@pytest.mark.parametrize(
    "raw",
    [
        "yajo", "Yajo.", "'yajo'", '"yajo"', "y-a-j-o", "y a j o", "'y', 'a', 'j', 'o'", "ya jo",
        "ya-jo", "yajo\n",
        "yaj0o",
    ],
)  # fmt: skip
def test_letters_are_one_answer_however_they_are_set_apart(raw):
    assert canonical("letters", raw) == "yajo"


def test_letters_keep_their_accents_and_lose_their_case():
    assert canonical("letters", "mÉyl") == "méyl"
    assert canonical("letters", "yaeA") == "yaea"


@pytest.mark.parametrize("raw", ["", "42", "...", "a" * 201])
def test_no_letters_or_too_many_are_no_answer(raw):
    assert canonical("letters", raw) is None

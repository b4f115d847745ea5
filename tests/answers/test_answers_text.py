import pytest

from feval.answers import canonical, extract
from feval.answers.text import LONGEST
from feval.errors import AnswerError


@pytest.mark.parametrize(
    "raw",
    [
        "the cat",
        " The  Cat. ",
        '"the cat"',
        "**The cat**",
        "(the cat)",
        "“THE CAT”",
        "the\u00a0cat!",
        "ｔｈｅ ｃａｔ",
    ],
)
def test_texts_differ_in_words_not_in_dress(raw):
    assert canonical("text", raw) == "the cat"


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ("Monsters, Inc", "monsters, inc"),
        ("\\text{The  cat}", "the cat"),
        ("\\textbf{the \\mbox{cat}}", "the cat"),
        ("(a) or (b)", "(a) or (b)"),
        ("-5", "-5"),
        ("C++", "c++"),
        ("", None),
        ("x" * (LONGEST + 1), None),
    ],
)
def test_what_is_inside_a_text_counts(raw, key):
    assert canonical("text", raw) == key


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("Let me think.\nThe answer is the cat.", "the cat."),
        ("**Answer:** the cat", "the cat"),
        ('It may be the dog.\n{"why": "the dog barks", "answer": "the cat"}', "the cat"),
        ("the cat\nAnswers:", "the cat"),
        ("the cat", "the cat"),
        ("Let me think.\nIt may be the cat.", None),
        ("", None),
    ],
)
def test_the_text_a_cot_answers_with(text, raw):
    assert (extract("text", text) or "").strip("* ") == (raw or "")


@pytest.mark.parametrize("raw", ["", " 05/01/2021\n", "540.0", "Sorry, ...", "é"])
def test_verbatim_answers_stay_as_they_are(raw):
    assert canonical("verbatim", raw) == raw


def test_verbatim_answers_cannot_be_extracted():
    with pytest.raises(AnswerError, match="stored answers"):
        extract("verbatim", "The answer is 5.")

from __future__ import annotations

import pytest

from feval.answers import canonical, canonical_gold, extract, keys

PLACES = [("A", "Paris"), ("B", "the cat"), ("C", "chess game"), ("D", "game"), ("E", "New York")]
SHAPES = list(
    zip(
        "ABCDEFGHIJK",
        [
            "circle",
            "heptagon",
            "hexagon",
            "kite",
            "line",
            "octagon",
            "pentagon",
            "rectangle",
            "sector",
            "triangle",
            "trapezoid",
        ],
        strict=True,
    )
)
NUMBERS = [("A", "1"), ("B", "240"), ("C", "4,000"), ("D", "60 minutes"), ("E", "-2")]
DATES = [("A", "05/13/1985"), ("B", "04/03/1985")]
LOGIC = [("valid", "valid"), ("invalid", "invalid")]
TWINS = [("A", "durable"), ("B", "strong"), ("C", "durable")]
SPLIT = [("A", "Monsters"), ("B", "Inc"), ("C", "Children of the Night")]


def answered(text: str, choices: list[tuple[str, str]]) -> str | None:
    """The key of a CoT's answer."""
    return canonical("choice", extract("choice", text, choices), choices)


@pytest.mark.parametrize(
    "raw",
    [
        "(B)",
        "B.",
        "b",
        "B",
        " B) ",
        "B) the cat",
        "**B**",
        "\\text{(B)}",
        "(b) The cat.",
        "option B",
        "the cat",
        "The Cat.",
        "cat",
    ],
)
def test_a_label_and_its_text_are_one_answer(raw: str) -> None:
    assert canonical("choice", raw, PLACES) == "B"
    assert answered(raw, PLACES) == "B"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("The answer is (B).", "B"),
        ("So the answer is B", "B"),
        ("The answer is B, because A is wrong.", "B"),
        ("the answer is not A but B", "B"),
        ("(A) cannot be. The answer is A. Wait, no. The answer is B.", "B"),
        ("The answer is a.", "A"),
        ("The answer is a cat", "B"),
        ("The answer is the cat.", "B"),
        ("The answer is New York, not Paris.", "E"),
        ("The answer is chess game", "C"),
        ("The answer is game", "D"),
        ("The answer is E because Paris is smaller", "E"),
        ("The correct option is D: game", "D"),
        ("I would choose (E) here.", "E"),
        ("Option C is correct.", "C"),
        ("(A) is wrong. (B) is correct.", "B"),
        ("\\boxed{B}", "B"),
        ("\\boxed{\\text{(B)}} and not \\text{A}", "B"),
        ("Answer: B", "B"),
        ("**Answer:** (E) New York", "E"),
        ("Final Answer\n\n**B**", "B"),
        ("B. the cat", "B"),
        ("B\n\nBecause it purrs.", "B"),
        ("Let us think.\nTherefore, B.", "B"),
        ("Let us think.\nI think E", "E"),
        ("It's D", "D"),
        ("<answer>B</answer>", "B"),
        ("The answer is (D) game, and I pick up no other.", "D"),
        ("So it must be the chess game.", "C"),
        ("A person would go to Paris.", "A"),
        ("A: Let's think. The answer is (D)", "D"),
        ("The answer is B.\nQ: What next?\nA: The answer is C.", "B"),
    ],
)
def test_the_chosen_option_of_a_cot(text: str, label: str) -> None:
    assert answered(text, PLACES) == label


@pytest.mark.parametrize(
    "text",
    [
        "",
        "B, C, D",
        "A\nB\nC\nD",
        "A | B",
        "A. Paris is old\nB. the cat purrs\nC. so what\nNone fits.",
        "The answer is B or C",
        "Neither Paris nor the cat",
        "The answer is not Paris",
        "Answer: I am not sure, B came to mind first",
        "Vitamin C",
        "e.g. this",
        "A person would think so.",
        "I think so.",
    ],
)
def test_a_cot_that_chooses_none_or_several_has_no_answer(text: str) -> None:
    assert answered(text, PLACES) is None


def test_a_conclusion_that_names_no_option_is_kept_as_the_raw_answer() -> None:
    assert extract("choice", "Paris? The answer is none of them.", PLACES) == "none of them"
    assert canonical("choice", "none of them", PLACES) is None


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("I. sector", "I"),
        ("(I)", "I"),
        ("The answer is I.", "I"),
        ("The answer is I think triangle", "J"),
        ("I believe it is a kite", "D"),
        ("K", "K"),
    ],
)
def test_labels_beyond_e_and_the_pronoun_i(text: str, label: str) -> None:
    assert answered(text, SHAPES) == label


@pytest.mark.parametrize(
    ("text", "choices", "label"),
    [
        ("The answer is 240 minutes", NUMBERS, "B"),
        ("4000", NUMBERS, "C"),
        ("$4,000.00", NUMBERS, "C"),
        ("The answer is 60 minutes.", NUMBERS, "D"),
        ("-2", NUMBERS, "E"),
        ("The answer is 4/3/1985.", DATES, "B"),
        ("May 13, 1985", DATES, "A"),
    ],
)
def test_an_option_may_be_named_by_its_number_or_date(text: str, choices: list[tuple[str, str]], label: str) -> None:
    assert answered(text, choices) == label


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("valid", "valid"),
        ("Invalid.", "invalid"),
        ("The answer is invalid.", "invalid"),
        ("The argument is valid", "valid"),
        ("The argument is not valid", None),
    ],
)
def test_labels_that_are_words(text: str, label: str | None) -> None:
    assert answered(text, LOGIC) == label


def test_a_text_that_two_options_share_chooses_neither() -> None:
    assert answered("durable", TWINS) is None
    assert answered("The answer is durable.", TWINS) is None
    assert answered("strong", TWINS) == "B"
    assert answered("(C) durable", TWINS) == "C"


def test_without_options_any_letter_is_a_label() -> None:
    assert [answered(text, []) for text in ("B", "b", "(C)", "B. 2", "The answer is Q", "A cat", "")] == [
        "B",
        "B",
        "C",
        "B",
        "Q",
        None,
        None,
    ]


def test_labels_that_differ_in_case_only_are_told_apart() -> None:
    choices = [("a", "one"), ("A", "two")]
    assert canonical("choice", "a", choices) == "a"
    assert canonical("choice", "A", choices) == "A"
    assert canonical("choice", "(A)", choices) == "A"


def test_a_gold_is_a_label_an_option_text_or_keeps_its_own_text() -> None:
    assert canonical_gold("choice", "B", PLACES) == "B"
    assert canonical_gold("choice", "(b)", PLACES) == "B"
    assert canonical_gold("choice", "the cat", PLACES) == "B"
    assert canonical_gold("choice", "Monsters, Inc", SPLIT) == "monsters, inc"
    assert canonical_gold("choice", None, PLACES) is None


def test_an_answer_with_the_text_of_a_gold_that_is_no_option_is_right() -> None:
    raw = [extract("choice", text, SPLIT) for text in ("The answer is Monsters, Inc.", "(A)", "So the answer is Inc")]
    assert keys("choice", raw, "Monsters, Inc", SPLIT) == (["monsters, inc", "A", "B"], "monsters, inc")

import re
import time

import pytest
from hypothesis import given, settings, strategies as st
from places import read_data

from feval.answers import canonical, canonical_gold, extract, keys
from feval.answers.choice import any_of, caseless

CASES = read_data("answers.json")

PLACES = [("A", "Paris"), ("B", "the cat"), ("C", "chess game"), ("D", "game"), ("E", "New York")]
SHAPES = CASES["shapes"]
NUMBERS = [("A", "1"), ("B", "240"), ("C", "4,000"), ("D", "60 minutes"), ("E", "-2")]
DATES = [("A", "05/13/1985"), ("B", "04/03/1985")]
LOGIC = [("valid", "valid"), ("invalid", "invalid")]
TWINS = [("A", "durable"), ("B", "strong"), ("C", "durable")]
SPLIT = [("A", "Monsters"), ("B", "Inc"), ("C", "Children of the Night")]


def answered(text, choices):
    """The key of a CoT's answer."""
    return canonical("choice", extract("choice", text, choices), choices)


@pytest.mark.parametrize("raw", CASES["an option"])
def test_a_label_and_its_text_are_one_answer(raw):
    assert canonical("choice", raw, PLACES) == "B"
    assert answered(raw, PLACES) == "B"


@pytest.mark.parametrize(("text", "label"), CASES["options in CoTs"])
def test_the_chosen_option_of_a_cot(text, label):
    assert answered(text, PLACES) == label


@pytest.mark.parametrize("text", CASES["no option"])
def test_a_cot_that_chooses_none_or_several_has_no_answer(text):
    assert answered(text, PLACES) is None


def test_an_answer_that_names_no_option_has_the_key_of_its_own_text():
    assert extract("choice", "Paris? The answer is none of them.", PLACES) == "none of them"
    assert canonical("choice", "None of them.", PLACES) == "none of them"
    assert answered("The answer is \\boxed{\\text{Mango}}.", PLACES) == "mango"
    assert [
        canonical("choice", raw) for raw in ("mango", "Apple.", "The answer is apple", "a mango")
    ] == ["mango", "apple", "apple", "a mango"]


@pytest.mark.parametrize(
    "raw",
    [
        "B or C", "B, C, D", "not B", "not Paris", "neither", "Paris or New York", "B is wrong",
        "either B or D", " ",
        "...",
    ],
)  # fmt: skip
def test_an_answer_that_names_several_options_or_denies_or_is_empty_is_none(raw):
    assert canonical("choice", raw, PLACES) is None


@pytest.mark.parametrize("gold", ["mango", "apple", "kiwi", "A", None])
def test_which_answers_vote_together_does_not_depend_on_the_gold(gold):
    answers = keys("choice", ["mango", "apple", "Apple.", "apple"], gold).answers
    assert answers == ["mango", *["apple"] * 3]


SMALL = [("a", "one"), ("b", "two"), ("c", "three")]


@pytest.mark.parametrize(("text", "label"), CASES["small labels"])
def test_labels_may_be_small_letters(text, label):
    assert answered(text, SMALL) == label


@pytest.mark.parametrize(
    ("text", "label"),
    [("(2)", "2"), ("Option 2 is correct", "2"), ("The answer is 2.", "2"), ("1, 2", None)],
)
def test_labels_may_be_digits(text, label):
    assert answered(text, [("1", "one"), ("2", "two")]) == label


LABELS = st.one_of(
    st.text(max_size=3),
    st.sampled_from(
        [
            *"ABCabc123", "True", "False", "valid", "invalid", "a)", "(b)", "I", "ß", "ss", "ſ",
            "İ", "A B", "\n", " ",
            ".", "not",
        ]
    ),
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from(CASES["pieces of options"]), max_size=12).map("".join),
)


@settings(deadline=None)
@given(st.lists(st.tuples(LABELS, TEXTS), max_size=5), TEXTS)
def test_no_labels_and_no_text_make_it_fail_and_a_key_is_its_own_key(choices, text):
    raw = extract("choice", text, choices)
    assert raw is None or raw.strip()
    canonical_gold("choice", text, choices)
    for answer in (raw, text):
        key = canonical("choice", answer, choices)
        assert canonical("choice", key, choices) == key


@pytest.mark.parametrize(
    "text", ["A. Paris\nB. the cat\nC. chess game\nD", "A. Paris\nB. the cat\nC.", "A) x\nB) y\nC"]
)
def test_a_list_of_options_that_is_cut_off_chooses_none(text):
    assert answered(text, PLACES) is None
    assert answered(text, []) is None
    assert answered("A. one\nB", [("A", "one"), ("B", "two")]) is None


@pytest.mark.parametrize(
    "text",
    ["A. is old\nB. purrs\nD", "A. is old\nB. purrs\nC. so what\n\nD", "B. purrs\nC. so what\nD"],
)
def test_a_label_behind_a_list_that_does_not_continue_it_is_chosen(text):
    assert answered(text, PLACES) == "D"


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": "B"}',
        '{\n "answer": "B",\n "explanation": "The answer is not A"\n}',
        'Sure:\n```json\n{"reasoning": "A or B", "answer": {"label": "B", "text": "the cat"}}\n```',
        '{"answer": ["B"]}',
        '{"answer": "the cat"}',
        "{'answer': 'B'}",
    ],
)
def test_the_option_of_a_json_object(text):
    assert answered(text, PLACES) == "B"
    assert answered(text.replace("the cat", "B"), []) == "B"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("I. sector", "I"),
        ("(I)", "I"),
        ("The answer is I think triangle", "J"),
        ("I believe it is a kite", "D"),
        ("K", "K"),
    ],
)
def test_labels_beyond_e_and_the_pronoun_i(text, label):
    assert answered(text, SHAPES) == label


@pytest.mark.parametrize(
    ("text", "choices", "label"),
    [
        ("The answer is 240 minutes", NUMBERS, "B"),
        ("4000", NUMBERS, "C"),
        ("$4,000.00", NUMBERS, "C"),
        ("-2", NUMBERS, "E"),
        ("The answer is 60 minutes.", NUMBERS, "D"),
        ("The answer is 4/3/1985.", DATES, "B"),
        ("May 13, 1985", DATES, "A"),
    ],
)
def test_an_option_may_be_named_by_its_number_or_date(text, choices, label):
    assert answered(text, choices) == label


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Invalid.", "invalid"),
        ("The answer is invalid.", "invalid"),
        ("The argument is valid", "valid"),
        ("The argument is not valid", None),
    ],
)
def test_labels_that_are_words(text, label):
    assert answered(text, LOGIC) == label


def test_a_text_that_two_options_share_chooses_neither():
    assert answered("durable", TWINS) is None
    assert answered("The answer is durable.", TWINS) is None
    assert answered("strong", TWINS) == "B"
    assert answered("(C) durable", TWINS) == "C"


def test_without_options_any_letter_is_a_label():
    assert [answered(text, []) for text in ("B", "b", "(C)", "B. 2", "The answer is Q", "A cat",
        "")] == [
        "B", "B", "C", "B", "Q", None, None,
    ]  # fmt: skip


def test_labels_that_differ_in_case_only_are_told_apart():
    choices = [("a", "one"), ("A", "two")]
    for raw, key in (("a", "a"), ("A", "A"), ("(A)", "A")):
        assert canonical("choice", raw, choices) == key


@pytest.mark.parametrize(
    ("choices", "key", "golds"),
    [*CASES["golds of options"], ([("A", "Rome"), ("B", "Paris")], None, ["9" * 4000])],
)
def test_a_gold_is_a_text_a_label_or_a_position_or_is_read_as_answers_are(choices, key, golds):
    for gold in golds:
        assert canonical_gold("choice", gold, choices) == key, gold


def test_an_answer_with_the_text_of_a_gold_that_is_no_option_is_right():
    raw = [
        extract("choice", text, SPLIT)
        for text in ("The answer is Monsters, Inc.", "(A)", "So the answer is Inc")
    ]
    assert keys("choice", raw, "Monsters, Inc", SPLIT) == (
        ["monsters, inc", "A", "B"],
        "monsters, inc",
    )


def alternation(words):
    """What `any_of` stands for: one word after the other, the longest first."""
    return (
        "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))
        or "(?!)"
    )


@settings(max_examples=40)
@given(
    words=st.sets(st.text("aAbBsſkK\u212aiİıßẞ (|1", min_size=1, max_size=4), max_size=8),
    text=st.text("aAbBsSſkK\u212aiIİıßẞ (|1", max_size=30),
    depth=st.integers(0, 3),
)
def test_labels_as_a_tree_match_what_one_after_the_other_does(words, text, depth):
    for how, spelled in (("", words), ("(?i)", {caseless(word) for word in words})):
        for around in ("({})", r"({})(?=\W|$)", r"(?<!\w)({})"):
            tree = re.compile(how + around.format(any_of(spelled, depth)))
            referee = re.compile(how + around.format(alternation(words)))
            assert [m.span() for m in tree.finditer(text)] == [
                m.span() for m in referee.finditer(text)
            ]


def test_a_caseless_spelling_is_equal_where_case_is_ignored():
    letters = [character for code in range(0x3000) if (character := chr(code)).isalpha()]
    respelled = [character for character in letters if caseless(character) != character]
    assert len(respelled) > 500
    assert all(re.fullmatch(re.escape(caseless(each)), each, re.IGNORECASE) for each in respelled)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("Therefore, (ii).", "(ii)"), ("it is iii.\x1c!", "iii."), ("it is iii.\u2003!", "iii."),
        ("so !", "!"),
        ("It must be \\text{The} cat", "A"), ("It is a  DOG!", "(ii)"),
        ("the dog's tail, not the cat", None),
    ],
)  # fmt: skip
def test_an_option_with_marks_of_its_own_is_found_in_the_last_line(line, answer):
    choices = [("(ii)", "a dog"), ("iii.", "an eel"), ("!", "a fox"), ("A", "the cat")]
    assert answered(f"Some words.\n\n{line}", choices) == answer


@pytest.mark.slow
def test_a_text_is_read_as_fast_with_2000_options_as_with_20():
    def seconds(options):
        choices = [(f"L{i}", f"option number {i}") for i in range(options)]
        extract("choice", "(L1)", choices)  # the options are read once
        start = time.process_time()
        for unit in ("L1x ", "(", "\nL", "is L", "(L1999 "):
            assert extract("choice", unit * 4_000 + "\n\nThe answer is (L7).", choices) == "(L7)"
        return time.process_time() - start

    assert seconds(2_000) < 10 * seconds(20) + 0.1

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st
from places import read_data

from feval.answers import canonical, decimal_key, extract
from feval.answers.number import MAX_DIGITS, fraction_key, whole

CASES = read_data("answers.json")


@pytest.mark.parametrize(("raw", "key"), CASES["numbers"])
def test_a_raw_number_has_its_exact_value_as_key(raw, key):
    assert canonical("number", raw) == key


@pytest.mark.parametrize("expression", CASES["expressions"])
@pytest.mark.parametrize(
    "frame", ["First 3 steps.\n\\boxed{{{}}}", "First 3 steps.\nThe answer is ${}$."]
)
def test_an_expression_that_is_no_number_is_no_answer(expression, frame):
    if not (expression == "10!" and "boxed" not in frame):  # there it may be an exclamation
        assert extract("number", frame.format(expression)) is None


@pytest.mark.parametrize(("written", "key"), CASES["local numbers"])
@pytest.mark.parametrize(
    "frame",
    [
        "{}", "First 3 steps.\nThe answer is {}.", "First 3 steps.\nAnswer: {}",
        "First 3 steps, then \\boxed{{{}}}.",
        "First 3 steps, so there are {}", '{{"steps": [1, 2], "answer": "{}"}}',
    ],
)  # fmt: skip
def test_a_number_is_read_alike_in_text_box_phrase_and_bare(written, key, frame):
    if frame.startswith("{{") and "\\" in written:
        pytest.skip("not JSON")
    text = frame.format(written)
    assert canonical("number", extract("number", text)) == canonical("number", text) == key


@pytest.mark.parametrize(
    "text",
    [
        "We have 3.\nThe answer is not 5.", "\\boxed{not 5}", "not 5",
        "We have 3. I cannot answer this question with 2 clues.",
        "Without 7 of them we can't provide an exact answer.",
        "We have 3. So the answer is", "We have 3.\nAnswer: ???",
    ],
)  # fmt: skip
def test_a_denied_number_a_refusal_and_a_sentence_cut_off_are_no_answer(text):
    assert extract("number", text) is None
    assert canonical("number", text) is None


@pytest.mark.parametrize(("text", "raw"), CASES["remarks on numbers"])
def test_an_empty_closing_label_and_a_remark_on_an_answer_are_passed_over(text, raw):
    assert extract("number", text) == raw


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ('{"answer": 5, "confidence": 0.9}', "5"),
        ('{"reasoning": "7 - 2, so the answer is 4?", "answer": 5, "check": 12}', "5"),
        (
            'I count.\n```json\n{\n  "reasoning": "3 + 2",\n  "final_answer": "1,234.50"\n}\n```',
            "1,234.50",
        ),
        ('{"result": {"answer": {"value": 5, "unit": "km"}}, "n": 3}', "5"),
        ('{"answer": "\\\\boxed{5} of 7"}', "5"),
        ('{"answer": "\\boxed{5} of 7"}', "5"),
        ('{"answer": 12345678901234567890123}', "12345678901234567890123"),
        ('{"answer": 5, "confidence": 0.9', "5"),
        ('{"Final Answer": ["5"]}', "5"),
        ('{"n": 3, "m": 4}', "4"),
        ("{" * 3000 + '"answer": 5' + "}" * 3000, "5"),
    ],
)
def test_the_answer_of_a_json_object_that_closes_the_cot(text, raw):
    assert extract("number", text) == raw


@pytest.mark.parametrize(("raw", "key"), CASES["long numbers"])  # half to even
def test_decimals_keep_twelve_significant_digits_and_fractions_all(raw, key):
    assert canonical("number", raw) == key
    assert canonical("number", key) == key
    assert canonical("latex", raw.replace(" million", "\\times10^6")) == key


@settings(deadline=None)
@given(st.floats(-1e12, 1e12, allow_subnormal=False))
def test_a_float_and_its_digits_in_any_precision_have_one_key(number):
    key = decimal_key(number)
    assert key is not None
    assert canonical("number", f"{number:.17g}") == canonical("number", repr(number)) == key
    assert abs(Fraction(key) - Fraction(number)) <= abs(Fraction(number)) / 10**11


@settings(deadline=None)
@given(st.fractions())
def test_the_key_of_a_fraction_reads_back_as_that_fraction(value):
    key = fraction_key(value)
    assert key is not None
    assert Fraction(key) == value
    assert canonical("number", key) == key


@settings(deadline=None)
@given(st.integers(-(10**30), 10**30), st.integers(0, 12))
def test_decimals_have_one_key_however_they_are_written(digits, places):
    value = Decimal(f"{digits}e-{places}")
    assert (
        canonical("number", f"{value:f}")
        == canonical("number", f"{value:,f}")
        == decimal_key(value)
    )


@pytest.mark.parametrize(
    ("number", "key"),
    [
        (540, "540"),
        (540.0, "540"),
        (1e-7, "0.0000001"),
        (Decimal("2.50"), "2.5"),
        (0.1, "0.1"),
        (0.1 + 0.2, "0.3"),
        (109.00000000000001, "109"),
        (2.0**64, "18446744073709551616"[:16] + "2000"),  # the shortest decimal that reads back
        (1e21, "1000000000000000000000"),
        (-0.0, "0"),
        (Fraction(1, 3), "1/3"),
        (math.nan, None),
        (math.inf, None),
        (Decimal("Infinity"), None),
        (10 ** (MAX_DIGITS + 1), None),
    ],
)
def test_stored_numbers_have_decimal_keys(number, key):
    assert decimal_key(number) == key


def test_a_number_of_more_digits_than_the_limit_has_no_key():
    longest = "7" * MAX_DIGITS
    assert canonical("number", longest) == longest
    assert canonical("number", longest + "7") is None
    assert canonical("number", "1e400") == "1" + "0" * 400
    assert canonical("number", f"1e{MAX_DIGITS}") is None
    assert canonical("number", f"10^{{{MAX_DIGITS - 1}}}") == "1" + "0" * (MAX_DIGITS - 1)
    assert canonical("number", f"10^{{{MAX_DIGITS}}}") is None
    assert canonical("number", f"1e-{MAX_DIGITS + 1}") is None


@pytest.mark.parametrize(
    ("raw", "key"), [("4,200", "4200"), ("15 kmph", "15"), ("8pm to 10pm", None), ("x", None)]
)
def test_a_string_is_one_number_with_at_most_a_unit_or_it_is_none(raw, key):
    assert whole(raw) == key


NUMERALS = st.lists(
    st.sampled_from(
        [
            *"0123456789  ,,..'/-%=()$", "000", " 000", ",5", "k", "M", "e", "not ", "but ", "\\,",
            "{,}", "\\frac{",
            "}{", "}",
        ]
    )
    | st.sampled_from(["million", " x 10^", "½", "\u202f", ".0000000000001", "123456789012"]),
    max_size=10,
).map("".join)  # fmt: skip


@settings(deadline=None)
@given(NUMERALS)
def test_the_key_of_whatever_looks_like_a_number_is_its_own_key(text):
    for kind in ("number", "latex"):
        for answer in (text, extract(kind, text)):
            key = canonical(kind, answer)
            assert canonical(kind, key) == key

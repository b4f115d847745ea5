import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feval.answers import canonical, decimal_key, extract
from feval.answers.number import MAX_DIGITS, fraction_key, whole


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ("42", "42"),
        ("007", "7"),
        ("0.50", "0.5"),
        (".5", "0.5"),
        ("-5", "-5"),
        ("− 5", "-5"),  # U+2212
        ("+5", "5"),
        ("-0.0", "0"),
        ("1/2", "0.5"),
        ("\\frac{1}{2}", "0.5"),
        ("-\\frac{1}{2}", "-0.5"),
        ("½", "0.5"),
        ("2/6", "1/3"),
        ("1 1/2", "1.5"),
        ("1\\frac{1}{2}", "1.5"),
        ("2½ cups", "2.5"),
        ("-1 1/2", "-1.5"),
        ("2 7/3", None),
        ("7/0", None),
        ("1.234,56", "1234.56"),
        ("1'000", "1000"),
        ("1{,}234", "1234"),
        ("100\\%", "100"),
        ("2.5E-1", "0.25"),
        ("5-10", "5"),
        ("2 + 3 = 5 = n", "5"),
        ("1e99999999999999999999", None),
        ("1,234,567.50", "1234567.5"),
        ("1" + ",000" * 20, "1" + "0" * 60),
        ("1,00,000", "100000"),
        ("\\$32,\\!348", "32348"),
        ("$1,234.50.", "1234.5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("€5", "5"),
        ("Rs.500", "500"),
        ("US$ 3", "3"),
        ("5%", "5"),
        ("7 km/h", "7"),
        ("5\\text{ km}", "5"),
        ("90^\\circ", "90"),
        ("1e3", "1000"),
        ("3 x 10^5", "300000"),
        ("1.5 million", "1500000"),
        ("$2 Billion", "2000000000"),
        ("3.2\\times10^{5}", "320000"),
        ("2:00 pm", "2"),
        ("5 + 3 = 8", "8"),
        ("12 where x = 5", "12"),
        ("8 (5+3=8)", "8"),
        ("The answer is 7.", "7"),
        ("86 glasses and 42 plates", "86"),
        ("twelve", "12"),
        ("1e999999999", None),
        ("2^10", "1024"),
        ("10⁶", "1000000"),
        ("2**31", "2147483648"),
        ("\\boxed{2^{31}}", "2147483648"),
        ("$2^{10} = 1024$", "1024"),
        ("-2^2", "-4"),
        ("2^{-3}", "0.125"),
        ("3 \\cdot 2^5", "96"),
        ("5 m²", "5"),
        ("f(3) = 7", "7"),
        ("-0.1\\overline{6}", "-1/6"),
        ("0.(3)", "1/3"),
        ("2.5x faster", "2.5"),
        ("0^{-1}", None),
        ("9^{9^{9}}", None),
        ("2^{9999999}", None),
        ("2^n", None),
        ("0x1F", None),
        ("0b101", None),
        ("12/25/2020", None),
        ("2:30", None),
        ("1.2.3", None),
        ("H2O", None),
        ("unknown", None),
        ("", None),
    ],
)
def test_a_raw_number_has_its_exact_value_as_key(raw, key):
    assert canonical("number", raw) == key


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("She has 3 + 4 = <<3+4=7>>7 eggs.\n#### 42", "42"),
        ("The answer is $1,234.50.", "$1,234.50"),
        ("So \\boxed{3/4} of it, that is 75 percent of 100.", "3/4"),
        ("First \\boxed{1}, but then \\boxed{2}.", "2"),
        ("\\boxed{5 + 3 = 8}", "8"),
        ("\\boxed{\\$18.90} \\text{ in 7 days}", "$18.90"),
        ("\\boxed{\\text{none}}\nThe answer is 4.", "4"),
        ("The answer to this question is \\(\\boxed{18}\\).", "18"),
        ("**Final Answer:** 42", "42"),
        ("### Final Answer\n\n**42**", "42"),
        ("ans = 20/3", "20/3"),
        ("Answer: She eats 3 eggs and bakes with 4.\nThat leaves 9 eggs, which makes 18", "18"),
        ("Answer: She eats 3 eggs and bakes with 4.\nans = 9", "9"),
        ("Answer: it is 3 and 4, so 12", "12"),
        ("The answer is 5. Wait, no. The answer is 6.", "6"),
        ("The answer is 12 apples (3 per box).", "12"),
        ("There are 3.\n\nThe answer is: three", "three"),
        ("Answer: 42 (confidence 0.9)", "42"),
        ("There are 5 in 2 rows and in 1 column", "1"),
        ("Q: What is 2+2?\nA: 4\n\nQ: What is 3+3?\nA: 6", "4"),
        ("We started with 9. The answer is unclear.", None),
        ("<answer>7</answer>", "7"),
        ("Answer:\n\n$42$", "$42"),
        ("The answer is -3 degrees.", "-3"),
        ("The answer is zero.", "zero"),
        ("The answer is 7^2 = 49", "49"),
        ("no digits here", None),
        ("", None),
    ],
)
def test_the_answer_of_a_cot_is_found_by_the_rules_in_their_order(text, raw):
    assert extract("number", text) == raw


@pytest.mark.parametrize(
    "expression",
    [
        "n+1", "1+n", "n - 1", "x-3", "n/2", "3x", "2n", "5i", "7\\pi", "\\pi", "\\frac{\\pi}{6}",
        "-\\frac{n}{2}", "2\\sqrt{3}",
        "\\sqrt{16}", "5 + 3", "2 \\cdot 3", "2^{10} - 1", "(-2)^2", "10!", "\\binom{5}{2}",
        "\\log_2 8", "f(3)", "x = n+1",
        "n \\geq 3", "9^{9^{9}}", "0x1F", "5(√3 + 1)", "1/2^{10}", "17_{16}",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "frame", ["First 3 steps.\n\\boxed{{{}}}", "First 3 steps.\nThe answer is ${}$."]
)
def test_an_expression_that_is_no_number_is_no_answer(expression, frame):
    if not (expression == "10!" and "boxed" not in frame):  # there it may be an exclamation
        assert extract("number", frame.format(expression)) is None


LOCALES = [
    ("276 000", "276000"),
    ("276\u202f000", "276000"),
    ("276\u00a0000", "276000"),
    ("276\\ 000", "276000"),
    ("276\\,000", "276000"),
    ("1.234.567", "1234567"),
    ("$1,5k", "1500"),
    ("10K people", "10000"),
    ("not 5, but 6", "6"),
    ("6, not 5", "6"),
    ("276~000", "276000"),
    ("12 345 678,90", "12345678.9"),
    ("-3 600 / 12", "-300"),
    ("1,5", "1.5"),
    ("29,00 €", "29"),
    ("0,125", "0.125"),
    ("1,2345", "1.2345"),
    ("1234,567", "1234.567"),
    ("1{,}5", "1.5"),
    ("-1,5 million", "-1500000"),
    ("1,500", "1500"),
    ("1,500.25", "1500.25"),
    ("1.500", "1.5"),
    ("1.234.567,89", "1234567.89"),
    ("1’000", "1000"),
    ("10k", "10000"),
    ("2.5k", "2500"),
    ("$2.5M", "2500000"),
    ("€3bn", "3000000000"),
    ("10^{6}", "1000000"),
    ("0.\\overline{3}", "1/3"),
    ("10 km", "10"),
    ("5m", "5"),
    ("300 K", "300"),
    ("\\frac{12}{5,525}", "12/5525"),
    ("\\frac{1,5}{3}", "0.5"),
    ("2 1/2", "2.5"),
    ("not 5 but 6", "6"),
    ("not 5; it is 6", "6"),
    ("not 5.5 but rather 6.5", "6.5"),
    ("6 and not 5", "6"),
]


@pytest.mark.parametrize(("written", "key"), LOCALES)
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
    ("text", "raw"),
    [
        ("There are 3,5 and 4,25.", "4,25"),
        ("The answer is 3,5 and 4,25.", "3,5"),
        ("The answer is 1,2,3.", "1"),
        ("It is the point (3,4)", "4"),
        ("\\boxed{(3,4)}", "3"),
        ("In 2021 300 people came", "300"),
        ("A column 10\t200", "200"),
        ("They are 1,2,3", "3"),
        ("They had 12 3456", "3456"),
    ],
)
def test_commas_and_blanks_of_lists_pairs_and_columns_do_not_join_numbers(text, raw):
    assert extract("number", text) == raw


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


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("So we get 42.\nAnswers:", "42"),
        ("So we get 42. Answer:", "42"),
        ("So we get 42.\n\n**Final Answer:**\n", "42"),
        ("So we get 42.\n####", "42"),
        ("The answer is 41.\n#### 42\n\n### Final Answer", "42"),
        ("Answer: 5 (if it were not rounded, the answer would be 4.8)", "5"),
        ("Answer: 5\n(else the answer would be 6)", "5"),
        ("Answer: 5\nNote: with 3 more the answer would be 8.", "5"),
        ("(First I thought the answer is 4). The answer is 5.", "5"),
        ("The answer to this 3-part question is 5.", "5"),
        ("A: There are 3.\nNote that 5 more come. So the answer is 8. That is 2 more.", "8"),
    ],
)
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


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ("109.00000000000001", "109"),
        ("0.1000000000000000055511151231257827", "0.1"),
        ("2.9999999999999996", "3"),
        ("1234567.12345678", "1234567.12346"),
        ("0.0000123456789012345", "0.0000123456789012"),
        ("1.00000000005000000", "1.00000000005"),
        ("1.2345678901250", "1.23456789012"),  # half to even
        ("1.2345678901350", "1.23456789014"),
        ("1.23456789012", "1.23456789012"),
        ("12345678901234.5", "12345678901234"),
        ("12345678901235.5", "12345678901236"),
        ("18446744073709551616", "18446744073709551616"),  # 2^64
        ("1.2345678901234 million", "1234567.89012"),
        ("1/3", "1/3"),
        ("12345678901234567/100", "12345678901234567/100"),
        ("1/1048576", "1/1048576"),
        ("1/8192", "0.0001220703125"),
    ],
)
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

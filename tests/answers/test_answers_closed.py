"""Answers that are words: yes or no, valid or invalid, strings of letters."""

import pytest

from feval.answers import canonical, extract

READ = {
    "yes-no": [
        ("Yes", "yes"),
        ("no.", "no"),
        ("**No**", "no"),
        ("No, because it is not what caused it. Yes, she meant to.", "no"),
        ("Yes, there is no evidence against it.", "yes"),
        ("So the answer is no.", "no"),
        ("Some say yes. So the answer is No", "no"),
        ("The answer is No because yes would mean that she knew.", "no"),
        ("The answer is not yes", "no"),
        ("\\boxed{\\text{No}}", "no"),
        ("plausible", "yes"),
        ("Not plausible.", "no"),
        ("The sentence is implausible.", "no"),
        ("It is not very plausible", "no"),
        ("The sentence isn’t plausible.", "no"),
        ("True", "yes"),
        ("Answer: Most people would agree.\nSo yes", "yes"),
        ("Is it plausible, yes or no? Yes.", "yes"),
        ("There is no evidence either way.", None),
        ("The answer is yes or no.", None),
        ("Yes. But then again, the answer is unclear.", None),
        ("nobody knows", None),
        ("", None),
    ],
    "valid-invalid": [
        ("valid", "valid"),
        ("The argument isn't deductively valid", "invalid"),
        ("The argument is not valid.", "invalid"),
        ("not invalid", "valid"),
        ("So the answer is invalid.", "invalid"),
        ("It looks valid at first. The argument is therefore deductively invalid.", "invalid"),
        ("Is it deductively valid or invalid? The answer is valid.", "valid"),
        ("valid or invalid", None),
        ("Validity is a property of arguments.", None),
        ("neither", None),
    ],
    "letters": [
        ("Concatenating them is 'yajo'. The answer is yajo.", "yajo"),
        ("The last letter of 'Tj' is 'j'. THE ANSWER IS 'yajo'.", "yajo"),
        ('The answer is the string "yajo".', "yajo"),
        ("The answer is 'y', 'a', 'j', 'o'.", "yajo"),
        ("The answer is yaj o.", "yajo"),
        ("The answer is: 'y' + 'a' + 'j' + 'o' = 'yajo'", "yajo"),
        ("The answer is yajo, because of 'Tj'.", "yajo"),
        ("The answer is no. Wait. The answer is yajo.", "yajo"),
        ("\\boxed{\\text{yajo}}", "yajo"),
        ("A: The last letter of 'Tj' is 'j'. Concatenating gives 'yajo'.", "yajo"),
        ('Taking the last letters of "Whitney Erika Tj Benito", we get "yajo".', "yajo"),
        ("yajo", "yajo"),
        ('Taking the last letters of "Whitney Erika Tj Benito".', None),
        ("The answer is 42.", None),
        ("I cannot say what it comes to", None),
        ("", None),
    ],
}


@pytest.mark.parametrize(
    ("kind", "text", "key"), [(kind, *row) for kind, rows in READ.items() for row in rows]
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

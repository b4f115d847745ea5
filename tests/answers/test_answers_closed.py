import pytest

from feval.answers import canonical, extract


def answered(kind, text):
    """The key of a CoT's answer."""
    return canonical(kind, extract(kind, text))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Yes", "yes"),
        ("no.", "no"),
        ("**No**", "no"),
        ("No, because it is not what caused it. Yes, she meant to.", "no"),
        ("Yes, there is no evidence against it.", "yes"),
        ("So the answer is no.", "no"),
        ("The answer is: Yes", "yes"),
        ("Some say yes. So the answer is No", "no"),
        ("The answer is no, although some would say yes.", "no"),
        ("A: no", "no"),
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
)
def test_yes_or_no(text, key):
    assert answered("yes-no", text) == key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("valid", "valid"),
        ("Invalid.", "invalid"),
        ("The argument is not valid.", "invalid"),
        ("The argument isn't deductively valid", "invalid"),
        ("not invalid", "valid"),
        ("So the answer is invalid.", "invalid"),
        ("It looks valid at first. The argument is therefore deductively invalid.", "invalid"),
        ("Is it deductively valid or invalid? The answer is valid.", "valid"),
        ("valid or invalid", None),
        ("Validity is a property of arguments.", None),
        ("neither", None),
    ],
)
def test_valid_or_invalid(text, key):
    assert answered("valid-invalid", text) == key


@pytest.mark.parametrize("kind", ["yes-no", "valid-invalid"])
def test_the_raw_answer_is_what_the_cot_says(kind):
    text = "So the answer is not plausible." if kind == "yes-no" else "So the answer is not valid."
    assert extract(kind, text) == text.removeprefix("So the answer is ").removesuffix(".")

import pytest

from feval.answers import canonical, extract


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


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Concatenating them is 'yajo'. The answer is yajo.", "yajo"),
        ("The last letter of 'Tj' is 'j'. THE ANSWER IS 'yajo'.", "yajo"),
        ('The answer is the string "yajo".', "yajo"),
        ("The answer is 'y', 'a', 'j', 'o'.", "yajo"),
        ("The answer is yaj o.", "yajo"),
        ("The answer is: 'y' + 'a' + 'j' + 'o' = 'yajo'", "yajo"),
        ("The answer is oarotteous.", "oarotteous"),
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
)
def test_the_letters_of_a_cot(text, key):
    assert canonical("letters", extract("letters", text)) == key


@pytest.mark.parametrize("raw", ["", "42", "...", "a" * 201])
def test_no_letters_or_too_many_are_no_answer(raw):
    assert canonical("letters", raw) is None

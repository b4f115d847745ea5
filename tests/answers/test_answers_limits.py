"""Every extraction and canonical form stays linear on hostile text."""

import time

import pytest
from places import read_data

from feval.answers import KINDS, canonical, canonical_gold, extract

CASES = read_data("answers.json")

SIZE = 20_000
# CPU time; linear work takes a tenth of a second, quadratic work at least as long as this
SECONDS = 4.0
OPTIONS = [("A", "Paris"), ("B", "the cat"), ("C", "x y"), ("D", "1")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"verbatim"}))
def test_hostile_text_takes_linear_time(kind):
    for unit in CASES["hostile"]:
        text = (unit * (SIZE // len(unit) + 1))[:SIZE]
        start = time.process_time()
        extract(kind, text + "}1.", OPTIONS)
        canonical(kind, text, OPTIONS)
        canonical_gold(kind, text, OPTIONS)
        assert time.process_time() - start < SECONDS, f"{unit!r} repeated"


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"verbatim"}))
def test_a_long_cot_is_read(kind):
    answers = {"number": "42", "choice": "(B)", "date": "05/01/2021", "latex": "$2k+2$"}
    answers |= {"yes-no": "no", "valid-invalid": "valid", "letters": "yajo", "text": "cat"}
    thoughts = "First 3 (A) apples, then $x = 2$ more; is it valid, no or yes?\n" * 4_000
    text = f"{thoughts}The answer is {answers[kind]}."
    start = time.process_time()
    key = canonical(kind, answers[kind], OPTIONS)
    assert canonical(kind, extract(kind, text, OPTIONS), OPTIONS) == key
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize(("depth", "answer"), [(400, "5"), (600, "9"), (2_000, "9"), (50_000, "9")])
def test_deep_json_is_read_alike_by_every_python(depth, answer):
    """Python 3.13 reads ten times the depth that earlier ones do; beyond 500 the object's answer is
    no answer to any.
    """
    assert (
        extract("number", '{"answer": ' + "[" * depth + "5" + "]" * depth + ', "x": 9}') == answer
    )


def test_deep_nesting_does_not_exhaust_the_stack():
    for opening in ("{", "\\boxed{", "\\frac{", "\\sqrt", "^{"):
        raw = opening * 500 + "1" + "}" * 500
        assert isinstance(canonical("latex", raw), str | None)
        assert isinstance(extract("latex", raw), str | None)
    for opening, closing in (('{"answer": ', "}"), ("[", "]"), ('{"answer": [', "]}")):
        text = opening * 100_000 + "5" + closing * 100_000 + "}"
        assert isinstance(extract("number", text), str | None)

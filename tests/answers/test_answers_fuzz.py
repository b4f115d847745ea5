"""Hostile texts through every answer kind: no exception, the same twice, keys that are their own
keys, linear time.
"""

import time

import pytest
from test_answers_limits import OPTIONS
from test_thoughts import restored

from feval.answers import KINDS, canonical, extract
from feval.answers.kinds import LONGEST_TEXT

READ = sorted(set(KINDS) - {"verbatim"})
CORPUS = {
    "folding makes a text of 341 characters one of 6,138": "\ufdfa" * 341,
    "fractions get braces": "B is ½" * 300,
    "fractions of fractions": "\\frac" * 331,
    "a ligature in mathematics": "1,5\ufdfa" + "1/" * 700,
    "letters that become eighteen": "\ufdfa" * 41,
    "no such letter": "\ud800 the answer is 5",
    "nothing": "",
}


def read(kind, text, choices):
    raw = extract(kind, text, choices)
    return [raw, canonical(kind, raw, choices), canonical(kind, text, choices)]


def check(kind, text, choices):
    answers = read(kind, text, choices)
    assert read(kind, text, choices) == answers
    for key in answers[1:]:
        assert canonical(kind, key, choices) == key, (kind, text[:80], choices)


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS)
def test_a_hostile_text_is_read_and_its_key_is_its_own_key(text):
    start = time.process_time()
    for kind in READ:
        check(kind, text, OPTIONS)
    restored(text)
    assert time.process_time() - start < 20


@pytest.mark.parametrize("kind", READ)
def test_a_text_of_more_than_a_million_tokens_has_no_answer(kind):
    text = "\n" * LONGEST_TEXT + "5"
    assert read(kind, text, OPTIONS) == [None] * 3

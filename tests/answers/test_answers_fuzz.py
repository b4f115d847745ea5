"""Hostile texts through every answer kind: no exception, the same twice, keys that are their own
keys, linear time.
"""

import time
from random import Random

import pytest
from test_answers_limits import OPTIONS, UNITS

from feval.answers import KINDS, canonical, extract
from feval.answers.kinds import LONGEST_TEXT
from feval.answers.thoughts import join, split

READ = sorted(set(KINDS) - {"verbatim"})
MARKS = [
    "<think>", "</think>", "[THINK]", "<|channel|>analysis<|message|>", "<|end|>",
    "<|channel|>final<|message|>",
    "<|start|>assistant", "option ", "(B) is correct. ", "I choose ", "The answer is ", "the ",
    "cat", "Paris", "B", "1/2",
    "\\pm", "and", "or", ",", ";", ".", "=", "5", "0", " %", "Final answer\n",
    # Letters that grow, shrink or move when they are folded or normalised, and blanks that are
    # none.
    "\ufdfa", "\u0345", "a\u0301\u0327", "\u1100\u1161", "\u212a", "ß", "²", "\u2028", "\x85",
    "\r\n", "\ufeff", "\u202e",
    "𝟘", "٣",
]  # fmt: skip
PIECES = UNITS + MARKS
CHOICES = [
    [],
    OPTIONS,
    [("yes", "the yes"), ("no", "")],
    [("1", "5"), ("2", "B")],
    [("a", "one"), ("A", "two")],
]

CORPUS = {
    "folding makes a text of 341 characters one of 6,138": "\ufdfa" * 341,
    "fractions get braces": "B is ½" * 300,
    "fractions of fractions": "\\frac" * 331,
    "a ligature in mathematics": "1,5\ufdfa" + "1/" * 700,
    "letters that become eighteen": "\ufdfa" * 41,
    "no such letter": "\ud800 the answer is 5",
    "nothing": "",
}


LARGE = {
    "100,000 braces": "{" * 100_000,
    "closed braces": "{" * 50_000 + "}" * 50_000,
    "100,000 digits": "7" * 100_000,
    "nested boxes": "\\boxed{" * 10_000 + "1" + "}" * 10_000,
    "open boxes": "\\boxed{1" * 10_000,
}


def hostile(seed, most):
    """A text of pieces that are repeated, mixed or nested; a larger one with `most` repetitions is
    of the same shape.
    """
    draw, parts = Random(seed), []  # noqa: S311  values of a test
    for _ in range(draw.randint(1, 6)):
        some = [draw.choice(PIECES) for _ in range(draw.randint(1, 3))]
        times, shape = draw.choice([1, 1, 2, max(1, most // 20), most]), draw.randrange(3)
        if shape == 0:
            parts.append("".join(some) * times)
        elif shape == 1:
            parts.append(some[0] * times + some[-1] + "}" * times)
        else:
            parts.append("".join(draw.choice(PIECES) for _ in range(draw.randint(1, 12))))
    return "".join(parts)


def read(kind, text, choices):
    raw = extract(kind, text, choices)
    return [raw, canonical(kind, raw, choices), canonical(kind, text, choices)]


def check(kind, text, choices):
    answers = read(kind, text, choices)
    assert read(kind, text, choices) == answers
    for key in answers[1:]:
        assert canonical(kind, key, choices) == key, (kind, text[:80], choices)


@pytest.mark.parametrize(
    "text",
    [*CORPUS.values(), *(pytest.param(text, marks=pytest.mark.slow) for text in LARGE.values())],
    ids=[*CORPUS, *LARGE],
)
def test_a_hostile_text_is_read_and_its_key_is_its_own_key(text):
    start = time.process_time()
    for kind in READ:
        check(kind, text, OPTIONS)
    parts = split(text)
    assert join(parts.reply, parts.reasoning, parts.marks) == text
    assert time.process_time() - start < 20


@pytest.mark.parametrize("kind", READ)
def test_a_text_of_more_than_a_million_tokens_has_no_answer(kind):
    text = "\n" * LONGEST_TEXT + "5"
    assert read(kind, text, OPTIONS) == [None] * 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", READ)
def test_random_hostile_texts_are_read(kind):
    for seed in range(500):
        check(kind, hostile(seed, 40), CHOICES[seed % len(CHOICES)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", READ)
def test_a_text_of_eight_times_the_size_takes_about_eight_times_as_long(kind):
    def seconds(text):
        start = time.process_time()
        read(kind, text, OPTIONS)
        return time.process_time() - start

    for seed in range(25):
        short, long = hostile(seed, 1_000), hostile(seed, 8_000)
        assert seconds(long) < 30 * seconds(short) + 0.5, seed

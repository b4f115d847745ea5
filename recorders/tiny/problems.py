"""Word problems of one to five steps with their chains of thought, for training and testing the
tiny models.

    question  Tom has 49 apples. Tom sells 22. Then Tom has 2 times as many. How many apples
              does Tom have now?
    chain     Start with 49. 49-22=27. 27*2=54. The answer is 54.

Problem number i of a split is a pure function of (seed, split, i): SHA-256 gives a 64-bit start,
SplitMix64 continues from there, and all arithmetic is on integers. So it is always the same, on
every machine and in every version of Python.

**Test questions are reserved.** A hash of a problem's arithmetic (first number, operations,
numbers), not its wording, decides: an eighth of all arithmetic is kept for testing. No problem of
the training split has it, whatever the seed, so no model has seen a test question, nor the same sum
with another name or thing.
"""

from __future__ import annotations

import operator
from bisect import bisect
from collections.abc import Callable
from hashlib import sha256
from itertools import accumulate
from typing import Literal

from feval.values import frozen

DATASET_ID = "tiny_sums"
TEST_QUESTIONS = 200
"""How many questions the dataset has."""

STEP_WEIGHTS = (1, 2, 3, 3, 2)
"""How often a problem has 1, 2, 3, 4, 5 steps, in parts of their sum."""

Split = Literal["training", "test"]

_VERSION = "feval-tiny-problems-1"
_TEST_SEED = 2026
_NAMES = ("Ana", "Ben", "Eva", "Leo", "Mia", "Sam", "Tom", "Zoe")
_THINGS = ("apples", "books", "cards", "coins", "marbles", "pens", "shells", "stamps")

# Only word order says who gives and who gets: a model that reads only the words confuses the two.
_PHRASES = {
    "+": (
        "{name} buys {number} more.",
        "{name} finds {number}.",
        "{friend} gives {name} {number}.",
    ),
    "-": ("{name} sells {number}.", "{name} loses {number}.", "{name} gives {friend} {number}."),
    "*": ("Then {name} has {number} times as many.",),
    "/": ("{name} makes {number} equal piles and keeps one.",),
}
_FIRST = "{name} has {number} {things}."
_ASKED = "How many {things} does {name} have now?"
_START = "Start with {number}."
_END = "The answer is {number}."

_MOST = 99  # the largest number a question states
_LARGEST_FACTOR = 5
_LARGEST_TOTAL = 399

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
}


@frozen
class Step:
    """One operation, "+", "-", "*" or "/", and its number."""

    operation: str
    number: int

    def apply(self, total: int) -> int:
        """Return the total after this step; divisions are exact."""
        return _OPERATIONS[self.operation](total, self.number)


@frozen
class Problem:
    """A word problem: the question, the chain of thought that a model is trained to answer with,
    and the arithmetic.
    """

    question: str
    chain: str
    answer: int
    first: int
    steps: tuple[Step, ...]


def test_questions() -> list[Problem]:
    """Return the 200 questions of the dataset `tiny_sums`, in order; no two have the same
    arithmetic.
    """
    problems: dict[tuple[int, tuple[Step, ...]], Problem] = {}
    index = 0
    while len(problems) < TEST_QUESTIONS:
        candidate = problem(_TEST_SEED, "test", index)
        problems.setdefault((candidate.first, candidate.steps), candidate)
        index += 1
    return list(problems.values())


def problem(seed: int, split: Split, index: int) -> Problem:
    """Return problem number `index` of a split, which has either only reserved problems or none."""
    draws = _Draws(f"{_VERSION}/{seed}/{split}/{index}")
    ends = [*accumulate(STEP_WEIGHTS)]
    count = 1 + bisect(ends, draws.below(ends[-1]))
    while True:
        first, steps = _arithmetic(draws, count)
        if is_reserved(first, steps) == (split == "test"):
            return _worded(draws, first, steps)


def is_reserved(first: int, steps: tuple[Step, ...]) -> bool:
    """Return whether this arithmetic is kept for testing: one in eight is, by its hash."""
    text = str(first) + "".join(f"{step.operation}{step.number}" for step in steps)
    return sha256(f"{_VERSION}/reserved/{text}".encode()).digest()[0] % 8 == 0


class _Draws:
    """A stream of whole numbers that depends on its name only (SplitMix64, Steele, Lea and Flood
    2014).
    """

    def __init__(self, name: str) -> None:
        self._state = int.from_bytes(sha256(name.encode()).digest()[:8], "little")

    def below(self, bound: int) -> int:
        """Return a number from 0 to bound - 1; the bias of this way is below 2^-56 for bounds below
        256.
        """
        self._state = (self._state + _GOLDEN) & _MASK
        x = self._state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((x ^ (x >> 31)) * bound) >> 64

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)


def _arithmetic(draws: _Draws, count: int) -> tuple[int, tuple[Step, ...]]:
    first = total = draws.between(2, _MOST)
    steps: list[Step] = []
    for _ in range(count):
        step = _step(draws, total)
        steps.append(step)
        total = step.apply(total)
    return first, tuple(steps)


def _step(draws: _Draws, total: int) -> Step:
    """Draw an operation that keeps the total between 1 and `_LARGEST_TOTAL`, then its number."""
    factors = range(2, _LARGEST_FACTOR + 1)
    numbers = {
        "+": range(2, min(_MOST, _LARGEST_TOTAL - total) + 1),
        "-": range(2, min(_MOST, total - 1) + 1),
        "*": [factor for factor in factors if total * factor <= _LARGEST_TOTAL],
        "/": [factor for factor in factors if total % factor == 0],
    }
    possible = [operation for operation, allowed in numbers.items() if len(allowed)]
    operation = possible[draws.below(len(possible))]
    allowed = numbers[operation]
    return Step(operation, allowed[draws.below(len(allowed))])


def _worded(draws: _Draws, first: int, steps: tuple[Step, ...]) -> Problem:
    """Put the arithmetic into words."""
    name = _NAMES[draws.below(len(_NAMES))]
    friends = [other for other in _NAMES if other != name]
    things = _THINGS[draws.below(len(_THINGS))]
    question = [_FIRST.format(name=name, number=first, things=things)]
    chain, total = [_START.format(number=first)], first
    for step in steps:
        phrases = _PHRASES[step.operation]
        phrase, friend = phrases[draws.below(len(phrases))], friends[draws.below(len(friends))]
        question.append(phrase.format(name=name, friend=friend, number=step.number))
        after = step.apply(total)
        chain.append(f"{total}{step.operation}{step.number}={after}.")
        total = after
    question.append(_ASKED.format(things=things, name=name))
    chain.append(_END.format(number=total))
    return Problem(" ".join(question), " ".join(chain), total, first, steps)

"""A recording to forecast from, and what its votes are worth by enumeration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from small import write_toy

from feval.forecast import Forecast
from feval.replay import LLM, Dataset, load

NAME = "gpt-3.5-turbo"
POOLS = [
    ["a", "b", "a", None, "c", "a"],
    ["b", "a", "b", "b", "c", "a"],
    ["a", "a", "a", "a", "a", "a"],
    ["c", "b", None, "b", "d", "a"],
]
GOLDS = ["a", "a", "a", "a"]


def toy(
    folder: Path,
    pools: Sequence[Sequence[str | None]] = POOLS,
    golds: Sequence[str | None] | None = None,
    llm: str = NAME,
) -> tuple[Dataset, LLM]:
    golds = ["a"] * len(pools) if golds is None else golds
    dataset, [loaded] = load("toy", [llm], write_toy(folder / "toy", {llm: pools}, golds))
    return dataset, loaded


def credit(answers: Sequence[str | None], gold: str = "a") -> Fraction:
    """What a plurality with ties by lot is worth."""
    votes = Counter(answer for answer in answers if answer is not None)
    top = max(votes.values(), default=0)
    leaders = [answer for answer, count in votes.items() if count == top]
    return Fraction(1, len(leaders)) if gold in leaders else Fraction(0)


def majority(answers: Sequence[str | None], gold: str = "a") -> Fraction:
    right = sum(answer == gold for answer in answers)
    return Fraction(1, 2) if 2 * right == len(answers) else Fraction(int(2 * right > len(answers)))


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction()) / len(values)


def drawn(dataset: Dataset, llm: LLM, g: int, replicate: int) -> list[list[str | None]]:
    return [llm(question, n=g, replicate=replicate).answers for question, _ in dataset]


def accuracies(forecast: Forecast, method: str) -> list[float | None]:
    [own] = [one for one in forecast.estimates if one.method == method]
    return [point.accuracy for point in own.points]

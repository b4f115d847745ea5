"""The protocol of a scorer, what it is given, and how a score from outside is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, Protocol

from feval.recording import Question, ScorerInfo
from recorders.scoring.score_journal import Score


@dataclass(frozen=True, slots=True)
class Item:
    """One CoT to score.

    Attributes:
        question: with its text and options; scorers leave its gold out.
        text: the CoT.
        answer: as extracted, canonical; `None` for no answer.
        prompt: the request the CoT answers, as a JSON array of messages; `None` if it was not kept.
        other: text of the CoT it is compared with, which is shown second; `None` where it is scored
            by itself.
        llm: name of the LLM.
        sample: number of the CoT among those of its question and LLM, from 0.
    """

    question: Question
    text: str
    answer: str | None
    prompt: str | None = None
    other: str | None = None
    llm: str = ""
    sample: int = 0

    @property
    def question_text(self) -> str:
        """The question with its options, one per line."""
        options = [f"({label}) {text}" for label, text in self.question.choices]
        return "\n".join([self.question.text, *options])


@dataclass(frozen=True, slots=True)
class RequestCost:
    """What a paid scorer is sent for each CoT, and the most tokens of a reply: to estimate tokens
    and dollars.
    """

    model: str
    max_tokens: int
    text: Callable[[Item], str]


class Scorer(Protocol):
    """Something that scores CoTs."""

    @property
    def info(self) -> ScorerInfo:
        """Name, kind and parameters, for the recording."""

    @property
    def batch(self) -> int:
        """Most CoTs of one question to hand over together."""

    @property
    def concurrency(self) -> int | None:
        """Most batches at a time; `None` for as many as the run allows."""

    @property
    def request_cost(self) -> RequestCost | None:
        """What is sent for each CoT; `None` if nothing is known of tokens, or there are none."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Where it runs and the like, for the recording's operation (JSON values, no secrets)."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the user."""

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one result per CoT; all CoTs answer one question."""

    async def aclose(self) -> None:
        """Release connections and memory."""


def read_score(value: object) -> Score | None:
    """Return a score from outside, which is a number, a list of step scores or `None`; return
    `None` if it is none of these.

    Values that are not finite count as unreadable.
    """
    if value is None:
        return Score()
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()  # an array of one number without a length
    if isinstance(value, Real | Decimal):
        number = _finite(value)
        return Score(problem="unreadable") if number is None else Score(number)
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return None
    steps = list(value)
    if not all(isinstance(step, Real | Decimal) for step in steps):
        return None
    numbers = tuple(map(_finite, steps))
    known = tuple(number for number in numbers if number is not None)
    if not numbers:
        return Score()
    return Score(step_scores=known) if len(known) == len(numbers) else Score(problem="unreadable")


def _finite(value: Real | Decimal) -> float | None:
    try:
        number = float(value)
    except OverflowError:  # of an integer
        return None
    return number if math.isfinite(number) else None

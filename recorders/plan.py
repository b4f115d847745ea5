"""What a recording should hold, what a journal lacks of it, and the pieces in which it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from feval.errors import OutOfRangeError
from recorders.journal import Journal
from recorders.request import Request

__all__ = ["Job", "Plan", "Todo", "characters", "missing"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recording should hold in the end.

    Attributes:
        requests: one per question. Two questions with equal messages are one request: they share CoTs.
        samples: CoTs per request.

    Raises:
        OutOfRangeError: fewer than one sample.
    """

    requests: Sequence[Request]
    samples: int

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise OutOfRangeError(f"A recording has at least 1 CoT per question; {self.samples} were asked for.")


@dataclass(slots=True)
class Todo:
    """The samples of one request that nobody has asked for yet."""

    request: Request
    key: str
    samples: list[int]


@dataclass(slots=True)
class Job:
    """Some samples of one request, from the moment they are asked for until they are in the journal."""

    todo: Todo
    samples: list[int]
    reserved_usd: float = 0.0
    tokens: float = 0.0
    number: int = 0
    flying: bool = False
    failures: int = 0
    replies_then: int = 0


def missing(plan: Plan, journal: Journal | None) -> Iterator[Todo]:
    """What a journal lacks of a plan, request by request; without a journal, all of it."""
    seen: set[str] = set()
    for request in plan.requests:
        key = request.key()
        if key in seen:
            continue
        seen.add(key)
        samples = list(range(plan.samples)) if journal is None else journal.missing(key, plan.samples)
        if samples:
            yield Todo(request, key, samples)


def characters(request: Request) -> int:
    """Length of a request's messages together."""
    return sum(len(message.content) for message in request.messages)

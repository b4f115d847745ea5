"""What a recording should hold, what a journal lacks of it, and the pieces in which it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from feval.errors import OutOfRangeError
from recorders.journal.journal import MOST_SAMPLES, Journal
from recorders.request import Request

__all__ = ["Job", "Plan", "Todo", "characters", "missing"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recording should hold in the end.

    Attributes:
        requests: one per question. Two questions with equal messages are one request: they share CoTs.
        samples: CoTs per request.
        keys: the content key of each request.

    Raises:
        OutOfRangeError: fewer than one sample, or more than `MOST_SAMPLES`.
    """

    requests: Sequence[Request]
    samples: int
    keys: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise OutOfRangeError(
                f"A recording has 1 to {MOST_SAMPLES:,} CoTs per question; {self.samples:,} were asked for."
            )
        object.__setattr__(self, "keys", tuple(request.key() for request in self.requests))


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
    for request, key in zip(plan.requests, plan.keys, strict=True):
        if key in seen:
            continue
        seen.add(key)
        samples = list(range(plan.samples)) if journal is None else journal.missing(key, plan.samples)
        if samples:
            yield Todo(request, key, samples)


def characters(request: Request) -> int:
    """Length of a request's messages together."""
    return sum(len(message.content) for message in request.messages)

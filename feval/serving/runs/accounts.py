"""The account of one run: what it was handed of every pool, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from feval.cards.prices import usd
from feval.replay import LLM
from feval.serving.matching.templates import Template, Use, UsedTemplates

if TYPE_CHECKING:
    from feval.serving.runs.runs import RunName

__all__ = ["Account", "Picked", "Taken"]


@dataclass(frozen=True, slots=True)
class Picked:
    """A question that is asked.

    Attributes:
        llm: who is asked.
        row: of the question.
        n: CoTs wanted.
        sample: the recorded place of the one CoT wanted; `None` for the next ones of the draw.
        use: how it is put; `None` where nobody asks.
        template: the words around it, where they are known.
    """

    llm: LLM
    row: int
    n: int
    sample: int | None = None
    use: Use | None = None
    template: Template | None = None


class Taken(NamedTuple):
    """What was handed out for one question.

    A tuple, as every request makes one, and a frozen dataclass takes three times as long to make.

    Attributes:
        samples: recorded places, in draw order.
        recycled: how many of them, at the end, this run had been given before.
        remaining: CoTs of the pool that the run was not yet given.
        round: number of this request among the run's requests for the question, from 0.
        prompts: how many times the prompt is paid for now.
        output_tokens: of the CoTs.
    """

    samples: tuple[int, ...]
    recycled: int
    remaining: int
    round: int
    prompts: int
    output_tokens: int


class _Cursor:
    """A run's place in one pool."""

    __slots__ = ("chosen", "cots", "place", "rounds")

    def __init__(self) -> None:
        self.place = self.rounds = self.cots = 0
        self.chosen: dict[int, int] | None = None


class _Counts:
    """What a run has consumed of one LLM."""

    __slots__ = (
        "cots",
        "llm",
        "output_tokens",
        "prompt_tokens",
        "questions",
        "recycled",
        "requests",
        "unknown_prompts",
    )

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.requests = self.cots = self.prompt_tokens = self.output_tokens = 0
        self.questions = self.recycled = self.unknown_prompts = 0


class Account:
    """What one run has consumed: its place in every pool, its counts per LLM, its prompts.

    Args:
        name: of the run.

    Attributes:
        name: as given.
        templates: its prompts.
        asked_at: when it last asked, by the monotonic clock.
        is_told: whether it was told that it goes on with the next CoTs.
    """

    def __init__(self, name: RunName) -> None:
        self.name = name
        self.templates = UsedTemplates()
        self.asked_at = -math.inf
        self.is_told = False
        self._cursors: dict[tuple[LLM, int], _Cursor] = {}
        self._counts: dict[LLM, _Counts] = {}

    def place(self, key: tuple[LLM, int]) -> int:
        """How many CoTs of the draw of a question (by LLM and row) were handed out."""
        cursor = self._cursors.get(key)
        return 0 if cursor is None else cursor.place

    def take(self, one: Picked, order: Sequence[int], tokens: Sequence[int], billing: str) -> Taken:
        """Hand out the next CoTs of a question.

        Args:
            one: the question.
            order: the whole draw.
            tokens: of every recorded CoT.
            billing: one of `feval.cards.prices.BILLINGS`.
        """
        key = one.llm, one.row
        cursor = self._cursors.get(key)
        if cursor is None:
            cursor = self._cursors[key] = _Cursor()
        counts = self._counts.get(one.llm)
        if counts is None:
            counts = self._counts[one.llm] = _Counts(one.llm)
        samples, recycled = self._samples(one, order, cursor)
        prompts = 1 if billing == "per_round" else len(samples) if billing == "per_sample" else int(not cursor.rounds)
        counts.questions += not cursor.rounds
        output_tokens = sum([tokens[sample] for sample in samples])
        taken = Taken(samples, recycled, max(len(order) - cursor.place, 0), cursor.rounds, prompts, output_tokens)
        cursor.rounds += 1
        cursor.cots += len(samples)
        _count(counts, one, taken)
        return taken

    @staticmethod
    def _samples(one: Picked, order: Sequence[int], cursor: _Cursor) -> tuple[tuple[int, ...], int]:
        if one.sample is not None:
            cursor.chosen = cursor.chosen if cursor.chosen is not None else {}
            cursor.chosen[one.sample] = cursor.chosen.get(one.sample, 0) + 1
            return (one.sample,), 0
        size, first = len(order), cursor.place
        cursor.place += one.n
        if cursor.place <= size:
            return tuple(order[first : cursor.place]), 0
        samples = tuple(order[place % size] for place in range(first, cursor.place))
        return samples, min(one.n, cursor.place - size)

    def questions(self) -> list[tuple[LLM, int, int, int, dict[int, int]]]:
        """LLM, row, requests, place and chosen CoTs (sample -> times) of every question."""
        return [(llm, row, c.rounds, c.place, dict(c.chosen or {})) for (llm, row), c in self._cursors.items()]

    def summary(self) -> dict[str, Any]:
        """The ledger of the run; see `Application.ledger`."""
        by_name: dict[str, list[_Counts]] = {}
        for counts in self._counts.values():
            by_name.setdefault(counts.llm.name, []).append(counts)
        return {
            "run": self.name.label,
            "replicate": self.name.replicate,
            **_summed(list(self._counts.values())),
            "llms": {name: _summed(own) for name, own in by_name.items()},
            "prompts": self.templates.to_list(),
        }


def _count(counts: _Counts, one: Picked, taken: Taken) -> None:
    prompt = int(one.llm.pool.prompt_tokens[one.row])
    counts.requests += 1
    counts.cots += len(taken.samples)
    counts.output_tokens += taken.output_tokens
    counts.recycled += taken.recycled
    if prompt < 0:
        counts.unknown_prompts += taken.prompts
    else:
        counts.prompt_tokens += taken.prompts * prompt


def _summed(counts: Sequence[_Counts]) -> dict[str, Any]:
    dollars, missing = _dollars(counts)
    found = {
        name: sum(getattr(own, name) for own in counts)
        for name in ("requests", "cots", "prompt_tokens", "output_tokens", "questions", "recycled")
    } | {"usd": dollars}
    return found if missing is None else found | {"usd_missing": missing}


def _dollars(counts: Sequence[_Counts]) -> tuple[float | None, str | None]:
    """USD of everything, or why there are none."""
    total = 0.0
    for own in counts:
        prices, price = own.llm.prices, own.llm.price
        if prices is None:
            return None, "The recording was opened without a price list."
        if price is None:
            return None, f"The price list {prices.id!r} has no price for the LLM {own.llm.name!r}."
        if own.unknown_prompts:
            return None, f"The prompt tokens of {own.llm.name} were not recorded for every question."
        total += usd(price, own.prompt_tokens, own.output_tokens)
    return total, None

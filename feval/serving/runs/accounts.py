"""The account of one run: what it was given of every pool, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

from feval.cards.billing import usd
from feval.replay import LLM
from feval.serving.matching.templates import PromptCounts, PromptUse, Template
from feval.serving.runs.names import RunName
from feval.serving.texts import ServedCot
from feval.serving.wire.replies import Sender

_LEEWAY = 8
_MIN_KEPT = 16


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """A request for the next n CoTs of a pool, or for one recorded `sample`; `use` is `None` when a
    ledger file is read back.
    """

    llm: LLM
    row: int
    n: int
    sample: int | None = None
    use: PromptUse | None = None
    template: Template | None = None

    def samples(self, order: Sequence[int], place: int) -> tuple[int, ...]:
        """Return the recorded positions of the CoTs, from a place in a whole draw."""
        if self.sample is not None:
            return (self.sample,)
        size, end = len(order), place + self.n
        return tuple(
            order[place:end]
            if end <= size
            else [order[number % size] for number in range(place, end)]
        )


class Handout(NamedTuple):
    """The CoTs that a run was given for one `PoolRequest`.

    Attributes:
        samples: recorded positions, in draw order.
        recycled: how many of them, at the end, this run had been given before.
        remaining: CoTs of the pool that the run was not yet given.
        round: number of this request among the run's requests for the question, from 0.
        prompts: how many times the prompt is paid for.
        cots: what is sent, one for each sample.
        output_tokens: of all of them.
        cut: how many of them a stop or a limit of the request ended.
        limited: how many of them were recorded up to a limit below the one asked for.
        visit: 2 in the second pass of the run that asks the question, and so on; see `Account`.
    """

    samples: tuple[int, ...]
    recycled: int
    remaining: int
    round: int
    prompts: int
    cots: Sequence[ServedCot]
    output_tokens: int
    cut: int
    limited: int
    visit: int = 1


Taken = tuple[int, int | None]
"""The recorded position of a CoT, and how many of its tokens a run got; `None` for all of them."""


class _Cursor:
    """A run's place in one pool; `others` were the pools of other questions begun when it was asked
    last, in pass `last`.

    `start` counts how often all that asked had gone before.
    """

    __slots__ = ("chosen", "cut", "last", "others", "place", "rounds", "start", "visits")

    def __init__(self) -> None:
        self.place = self.rounds = self.visits = self.last = self.others = self.start = 0
        self.chosen: dict[Taken, int] | None = None  # -> times
        self.cut: dict[int, int] | None = None  # number in the draw -> tokens

    def pass_by(self, request: PoolRequest, cots: Sequence[ServedCot]) -> None:
        """Go past the CoTs of a request."""
        if request.sample is not None:
            taken = request.sample, tokens_if_cut(cots[0])
            self.chosen = self.chosen if self.chosen is not None else {}
            self.chosen[taken] = self.chosen.get(taken, 0) + 1
            return
        for place, cot in enumerate(cots, self.place):
            if cot.is_cut:
                self.cut = self.cut if self.cut is not None else {}
                self.cut[place] = cot.tokens
        self.place += len(cots)


def tokens_if_cut(cot: ServedCot) -> int | None:
    """Return the tokens of a CoT that is cut; `None` of a whole one, for as many as were
    recorded.
    """
    return cot.tokens if cot.is_cut else None


class _Counts:
    """What a run has consumed of one LLM."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.requests = self.cots = self.prompt_tokens = self.output_tokens = 0
        self.questions = self.recycled = self.asked_again = self.cut = self.limited = (
            self.unknown_prompts
        ) = 0

    def add(self, handout: Handout, prompt_tokens: int) -> None:
        """Count a request; `prompt_tokens` is -1 where it was not recorded."""
        self.requests += 1
        self.cots += len(handout.samples)
        self.output_tokens += handout.output_tokens
        self.recycled += handout.recycled
        self.cut += handout.cut
        self.limited += handout.limited
        if prompt_tokens < 0:
            self.unknown_prompts += handout.prompts
        else:
            self.prompt_tokens += handout.prompts * prompt_tokens


class Account:
    """What one run has consumed: its place in every pool, its counts per LLM, its prompts.

    A program that is run twice under one name asks again what it had left for other questions:
    another pass begins, in which every question that was asked before gets other CoTs, and is paid
    for again. A program that asks several questions at once comes back to them, too, after others:
    from the thread or task that asks nothing else, or after a few from each of its connections. So
    a pass begins when a question is asked again by a sender that has asked others since, after more
    than eight others were begun for each other sender that is still there: after one, where there
    is none. Where all senders had gone before, it begins with any question but the one that was
    asked last.
    """

    def __init__(self, name: RunName) -> None:
        self.name = name
        self.templates = PromptCounts()
        self.is_warned = False
        self._cursors: dict[tuple[LLM, int], _Cursor] = {}
        self._counts: dict[LLM, _Counts] = {}
        self._pass = 1
        # question -> its pools that were begun, once in each pass
        self._begun: dict[tuple[str, int], int] = {}
        self._all_begun = 0
        self._senders: dict[Sender, Sequence[PoolRequest]] = {}  # and what each asked last
        self._kept = _MIN_KEPT
        self._starts = 0  # how often a sender came when all others had gone
        self._latest: Sequence[PoolRequest] = ()  # what was asked last, by whomever

    def place(self, key: tuple[LLM, int]) -> int:
        """Return how many CoTs of a question's draw (by LLM and row) the run was given."""
        cursor = self._cursors.get(key)
        return 0 if cursor is None else cursor.place

    def take(
        self,
        requests: Sequence[PoolRequest],
        orders: Sequence[Sequence[int]],
        cots: Sequence[Sequence[ServedCot]],
        billing: str,
        again: bool,
    ) -> list[Handout]:
        """Hand out the next CoTs of questions from their whole draws; `cots` are what is sent of
        those of each question.

        `again` where another pass begins.
        """
        self._pass += again
        cursors = [self._cursor(each) for each in requests]
        handouts = [
            self._take(*each, billing) for each in zip(requests, orders, cursors, cots, strict=True)
        ]
        # those of one request are asked together
        for request, cursor in zip(requests, cursors, strict=True):
            cursor.others, cursor.start = self._others(request), self._starts
        self._latest = requests
        return handouts

    def _cursor(self, request: PoolRequest) -> _Cursor:
        key = request.llm, request.row
        cursor = self._cursors.get(key)
        if cursor is None:
            cursor = self._cursors[key] = _Cursor()
        return cursor

    def begins_again(self, requests: Sequence[PoolRequest], sender: Sender | None) -> bool:
        """Return whether another pass begins with some requests, and note who sends them."""
        if sender is not None and sender not in self._senders:
            self._starts += not any(map(_is_there, reversed(self._senders)))
        others, is_started_again = 0, False
        for request in requests:
            cursor = self._cursors.get((request.llm, request.row))
            if cursor is not None and cursor.last == self._pass:
                others = max(others, self._others(request) - cursor.others)
                is_started_again |= cursor.start < self._starts
        before: Sequence[PoolRequest] = ()
        if sender is not None:
            before, self._senders[sender] = self._senders.get(sender, ()), requests
        if others or len(self._senders) > 2 * self._kept:
            self._senders = {each: last for each, last in self._senders.items() if _is_there(each)}
            self._kept = max(len(self._senders), _MIN_KEPT)
        if is_started_again and _questions(self._latest).isdisjoint(_questions(requests)):
            return True
        if not others or not _questions(requests).isdisjoint(_questions(before)):
            return False
        return others > _LEEWAY * len(self._senders.keys() - {sender})

    def is_in_pass(self, request: PoolRequest, visit: int) -> bool:
        """Return whether a request of a ledger file, in the pass `visit` that asks its question,
        belongs to the present pass.
        """
        cursor = self._cursors.get((request.llm, request.row))
        return cursor is None or cursor.last < self._pass or cursor.visits == visit

    def _others(self, request: PoolRequest) -> int:
        """Return how many pools of other questions were begun."""
        return self._all_begun - self._begun.get((request.llm.dataset, request.row), 0)

    def _take(
        self,
        request: PoolRequest,
        order: Sequence[int],
        cursor: _Cursor,
        cots: Sequence[ServedCot],
        billing: str,
    ) -> Handout:
        llm, row = request.llm, request.row
        counts = self._counts.get(llm)
        if counts is None:
            counts = self._counts[llm] = _Counts(llm)
        if cursor.last < self._pass:
            cursor.last = self._pass
            cursor.visits += 1
            self._begun[llm.dataset, row] = self._begun.get((llm.dataset, row), 0) + 1
            self._all_begun += 1
            counts.asked_again += cursor.visits == 2
        samples = request.samples(order, cursor.place)
        prompts = (
            1
            if billing == "per_round"
            else len(samples)
            if billing == "per_sample"
            else int(not cursor.rounds)
        )
        counts.questions += not cursor.rounds
        cursor.pass_by(request, cots)
        handout = Handout(
            samples,
            recycled=(
                0
                if request.sample is not None
                else min(request.n, max(cursor.place - len(order), 0))
            ),
            remaining=max(len(order) - cursor.place, 0),
            round=cursor.rounds,
            prompts=prompts,
            cots=cots,
            output_tokens=sum([cot.tokens for cot in cots]),
            cut=sum([cot.is_cut for cot in cots]),
            limited=sum([cot.is_limited for cot in cots]),
            visit=cursor.visits,
        )
        cursor.rounds += 1
        counts.add(handout, int(llm.pool.prompt_tokens[row]))
        return handout

    def saved(self, requests: Sequence[PoolRequest]) -> Callable[[], None]:
        """Return a function that undoes some requests, which are taken after this call."""
        templates = deepcopy(self.templates)
        cursors = {
            key: deepcopy(self._cursors.get(key))
            for key in {(each.llm, each.row) for each in requests}
        }
        counts = {llm: copy(self._counts.get(llm)) for llm in {each.llm for each in requests}}
        passes = self._pass, self._begun.copy(), self._all_begun

        def undo() -> None:
            self.templates = templates
            self._pass, self._begun, self._all_begun = passes
            _put_back(self._cursors, cursors)
            _put_back(self._counts, counts)

        return undo

    def questions(self) -> list[tuple[LLM, int, int, int, int, dict[int, int], dict[Taken, int]]]:
        """Return LLM, row, requests, passes, place, tokens of cut CoTs by number in the draw, and
        chosen CoTs, by question.
        """
        return [
            (llm, row, c.rounds, c.visits, c.place, dict(c.cut or {}), dict(c.chosen or {}))
            for (llm, row), c in self._cursors.items()
        ]

    def summary(self) -> dict[str, Any]:
        """Return the ledger of the run; see `Application.ledger`."""
        by_name: dict[str, list[_Counts]] = {}
        for counts in self._counts.values():
            by_name.setdefault(counts.llm.name, []).append(counts)
        return {
            "run": self.name.label,
            "replicate": self.name.replicate,
            **_summed(list(self._counts.values())),
            "llms": {name: _summed(counts) for name, counts in by_name.items()},
            "prompts": self.templates.to_list(),
        }


def _questions(requests: Iterable[PoolRequest]) -> set[tuple[str, int]]:
    return {(request.llm.dataset, request.row) for request in requests}


def _is_there(sender: Sender) -> bool:
    return sender[0]() is not sender[1]


def _put_back(items: dict[Any, Any], before: Mapping[Any, Any]) -> None:
    for key, value in before.items():
        if value is None:
            items.pop(key, None)
        else:
            items[key] = value


def _summed(counts: Sequence[_Counts]) -> dict[str, Any]:
    dollars, missing = _dollars(counts)
    names = (
        "requests",
        "cots",
        "prompt_tokens",
        "output_tokens",
        "questions",
        "recycled",
        "asked_again",
        "cut",
        "limited",
    )
    totals = {name: sum(getattr(each, name) for each in counts) for name in names} | {
        "usd": dollars
    }
    return totals if missing is None else totals | {"usd_missing": missing}


def _dollars(counts: Sequence[_Counts]) -> tuple[float | None, str | None]:
    """The total in USD, or why there is none."""
    total = 0.0
    for each in counts:
        prices, price = each.llm.prices, each.llm.price
        if prices is None:
            return None, "The recording was opened without a price list."
        if price is None:
            return None, f"The price list {prices.id!r} has no price for the LLM {each.llm.name!r}."
        if each.unknown_prompts:
            return (
                None,
                f"The prompt tokens of {each.llm.name} were not recorded for every question.",
            )
        total += usd(price, each.prompt_tokens, each.output_tokens)
    return total, None

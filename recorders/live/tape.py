"""What a method asks of a live LLM, in a journal: every reply is on the disk before the method has
it, and never paid for twice.

A method that runs again asks the same again, and is given what the journal has: replies to the same
CoT, with the same messages, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import orjson

from recorders.journal.journal import Journal, utc_now
from recorders.journal.places import Places
from recorders.live.turns import Asked
from recorders.request import Completion, Request

_FIELDS = tuple(field.name for field in fields(Completion))
_Waiting = dict[tuple[int | None, bytes], deque[dict[str, Any]]]


class Tape:
    """The journal of one live LLM.

    Args:
        journal: open; closed by its owner.
        takes_seed: whether the backend does.
        now: the time as it is recorded.
    """

    def __init__(
        self, journal: Journal, *, takes_seed: bool, now: Callable[[], str] = utc_now
    ) -> None:
        self._journal, self._takes_seed, self._now = journal, takes_seed, now
        self._disk = ThreadPoolExecutor(1, "tape")
        self._waiting: dict[str, _Waiting] = {}
        self._next: dict[str, int] = {}
        self._places = Places()
        for entry in journal.entries():
            if entry.kind == "cot":
                self._places.add(entry.record["key"], entry.record["sample"], entry.offset)

    async def replies(
        self, asked: Asked, ask: Callable[[Sequence[int], Request], Awaitable[list[Completion]]]
    ) -> list[Completion]:
        """Return the replies that the journal has, and ask for the others."""
        key = asked.request.key()
        if key not in self._waiting:
            self._waiting[key] = self._recorded(key)
            self._next[key] = self._journal.next_sample(key)
        parent = asked.spoken.sample
        recorded = self._waiting[key].get((parent, orjson.dumps(asked.request.said())), deque())
        records = [recorded.popleft() for _ in range(min(len(asked.numbers), len(recorded)))]
        completions = [
            Completion(**{name: record[name] for name in _FIELDS if name in record})
            for record in records
        ]
        asked.samples.extend(record["sample"] for record in records)
        base = asked.request.decoding.seed if self._takes_seed else None
        # Numbered before anything comes, so that a run that goes on hands out the replies in the
        # same order.
        free = self._next[key] - len(completions)
        self._next[key] += len(asked.numbers) - len(completions)
        while rest := asked.seeds[len(completions) :]:
            fresh = await ask(rest, asked.request)
            samples = range(free + len(completions), free + len(completions) + len(fresh))
            seeds = None if base is None else [base + seed for seed in rest[: len(fresh)]]
            self._journal.add(
                asked.request,
                key,
                samples,
                fresh,
                recorded_at=self._now(),
                seeds=seeds,
                parent=parent,
            )
            await asyncio.get_running_loop().run_in_executor(self._disk, self._journal.commit)
            asked.samples.extend(samples)
            completions += fresh
        return completions

    def _recorded(self, key: str) -> _Waiting:
        waiting: _Waiting = {}
        for record in self._journal.read_many(self._places.offsets(key)):
            where = record.get("parent"), orjson.dumps(record.get("messages", []))
            waiting.setdefault(where, deque()).append(record)
        return waiting

"""Clocks: how long the recorded CoTs of a pool took, so that methods can be replayed in seconds;
where seconds come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from feval.errors import NotRecordedError, UsageError
from feval.recording.layout.flat import Floats, Int64, Numbers, Rows

if TYPE_CHECKING:
    from feval.cards import ServingProfile


SECONDS = "seconds"
"""The cost that a timing is for, see `feval.evaluation.measures.COSTS`."""

_ABSENT = -2  # the code where no CoT was recorded


def makespan(lengths: Numbers, at_once: int) -> Int64:
    """Return [...] how long jobs of lengths [..., n] take, so many at once.

    List scheduling: each begins, in its order, when the first of those before it has ended and left
    a place.
    """
    *shape, jobs = lengths.shape
    until = np.zeros((prod(shape), min(at_once, max(jobs, 1))), np.int64)
    each_row = np.arange(len(until))
    for length in lengths.reshape(len(until), jobs).T:
        until[each_row, until.argmin(axis=1)] += length
    longest: Int64 = until.max(axis=1)
    return longest.reshape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """Microseconds that recorded CoTs took: whole numbers, so that sums do not depend on their
    order.

    A CoT that is cut took a share of its duration, in proportion to its tokens: nothing says when
    each of them came. Where the time to its first token is known, what came behind that is shared:
    t of T took first + (whole - first) (t - 1) / (T - 1).

    Attributes:
        tokens: [Q, S] output tokens of each CoT.
        microseconds: [Q, S] that each took; 0 where absent, or not known.
        first: [Q, S] that each took to its first token, of those that it took; -1 where not known,
            `None` where none is.
        at_once: how many CoTs of a round are generated side by side; `None` for all of them.
    """

    tokens: Int64
    microseconds: Int64
    first: Int64 | None = None
    at_once: int | None = None

    @classmethod
    def from_seconds(
        cls,
        output_tokens: Numbers,
        seconds: Floats | None,
        first: Floats | None = None,
        at_once: int | None = None,
    ) -> Self:
        """The clock of CoTs with so many output tokens [Q, S] that took so many seconds [Q, S], and
        so many to the first.

        NaN is not known; an unknown duration counts 0, and no first token comes behind the last.
        """
        known = np.zeros(output_tokens.shape) if seconds is None else np.nan_to_num(seconds)
        whole, began = np.rint(known * 1e6).astype(np.int64), None
        if first is not None:
            began = np.minimum(np.rint(np.nan_to_num(first * 1e6, nan=-1)).astype(np.int64), whole)
        return cls(output_tokens.astype(np.int64), whole, began, at_once)

    def after(self, tokens: Numbers, drawn: Callable[[Int64], Int64] = np.asarray) -> Int64:
        """Microseconds after which CoTs had so many tokens; `drawn` picks theirs out of an array
        [Q, S].
        """
        whole, most = drawn(self.microseconds), drawn(self.tokens)
        reached = whole * np.where(tokens >= most, 1.0, tokens / np.maximum(most, 1))
        if self.first is not None:
            first = drawn(self.first)
            behind = first + (whole - first) * ((tokens - 1) / np.maximum(most - 1, 1))
            reached = np.where((first < 0) | (tokens >= most), reached, behind)
        return np.rint(np.where(tokens > 0, reached, 0)).astype(np.int64)

    def wait(
        self, row: int, samples: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> int:
        """Microseconds of a round in which some CoTs of a question grew from so many tokens to so
        many.
        """
        if not samples:
            return 0
        tokens = np.array([before, after])
        reached = self.after(tokens, lambda values: values[row, list(samples)])
        return int(makespan(np.diff(reached, axis=0), self.at_once or len(samples))[0])

    def rows(self, places: Rows | slice) -> Clock:
        """The clock of some questions."""
        first = None if self.first is None else self.first[places]
        return replace(
            self, tokens=self.tokens[places], microseconds=self.microseconds[places], first=first
        )


@dataclass(frozen=True)
class Timing:
    """Where seconds come from: a serving profile, which models them, or the durations of the
    recorded replies.

    Attributes:
        profile: the serving profile; `None` for recorded durations.
        at_once: how many CoTs of a round are generated side by side; `None` for all of them.
        first_tokens: whether some replies have a time to first token; see `require`.
    """

    profile: ServingProfile | None = None
    at_once: int | None = None
    first_tokens: bool = False

    @classmethod
    def from_options(
        cls, cost: str | None, serving: ServingProfile | None, parallel: int | None
    ) -> Timing | None:
        """The timing that options ask for; `None` for no seconds.

        Raises:
            UsageError: a number of CoTs at once where no durations are replayed.
        """
        if parallel is not None and (cost != SECONDS or serving is not None):
            raise UsageError(
                f"parallel={parallel} schedules recorded durations, which only the cost 'seconds'"
                " without a serving profile counts; ask for that, or leave it out."
            )
        return cls(serving, parallel) if serving is not None or cost == SECONDS else None

    @property
    def word(self) -> str:
        """What stands before "seconds" in a table or a picture."""
        return "replayed" if self.profile is None else "modelled"

    def __str__(self) -> str:
        if self.profile is not None:
            return f"modelled by the serving profile {self.profile.id} of {self.profile.date}"
        several = "s" * (self.at_once != 1)
        behind = " behind the first, where its time was recorded" * self.first_tokens
        return (
            f"replayed from recorded durations, {self.at_once or 'all'} CoT{several} of a round at"
            f" once, cut ones in proportion to their tokens{behind}"
        )

    def require(self, llms: Sequence[Any], rows: Rows) -> Timing:
        """Return the timing of replies of LLMs on some questions, which says whether their times to
        first token are known.

        Raises:
            NotRecordedError: the profile lacks an LLM, or replies have no duration.
        """
        first_tokens = False
        for llm in llms:
            if self.profile is not None:
                self.profile.speed(llm.name)
                continue
            numbers, recorded = llm.pool.channels.numbers, llm.pool.codes[rows] > _ABSENT
            seconds, first = numbers("duration_s"), numbers("first_token_s")
            replies = int(recorded.sum())
            known = 0 if seconds is None else int((recorded & ~np.isnan(seconds[rows])).sum())
            if missing := replies - known:
                raise NotRecordedError(
                    f"{missing:,} of {replies:,} replies of {llm.name} were recorded without a"
                    " duration, so that seconds cannot be replayed. Model them with a serving"
                    " profile (the setting `serving`), or import durations (duration_s)."
                )
            first_tokens |= first is not None and not np.isnan(first[rows]).all()
        return replace(self, first_tokens=first_tokens)

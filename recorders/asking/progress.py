"""Where a run is, and how it ended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from feval.executors.progress import ProgressBar
from feval.report.text import duration
from recorders.asking.pace import Clock
from recorders.errors import RecorderError

_RATE_WINDOW_S = 30.0
_PROGRESS_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is. The unit of counts is what the run asks for: CoTs, scores or comparisons.

    Attributes:
        done: in the journal.
        total: wanted.
        new: acknowledged in this run.
        in_flight: requests sent and not answered.
        concurrency: most requests in flight at present.
        per_second: rate over the last half minute; 0 before the first.
        usd: paid so far, earlier runs included; `None` without a price.
        waiting_s: seconds until the server's Retry-After is over; 0 if there is none.
        stopping: whether nothing more is sent, and replies in flight are awaited.
        trouble: why the last request failed, if none was answered since; it is sent again.
        warning: what the replies so far show to be wrong with the settings.
    """

    done: int
    total: int
    new: int
    in_flight: int
    concurrency: int
    per_second: float
    usd: float | None
    waiting_s: float
    stopping: bool = False
    trouble: str | None = None
    warning: str | None = None


class RunBar:
    """Shows in a bar where a run is: counts, rate, dollars and waiting beside the words that it
    has.
    """

    def __init__(self, bar: ProgressBar) -> None:
        self._bar, self._label = bar, bar.label

    def __call__(self, state: Progress) -> None:
        """Show a state."""
        usd = "" if state.usd is None else f", ${state.usd:,.4f}"
        waiting = (
            f", the server asks to wait {duration(round(state.waiting_s))}"
            if state.waiting_s
            else ""
        )
        line = f"{state.done:,} of {state.total:,}, {state.per_second:,.0f}/s{usd}{waiting}"
        self._bar.describe(f"{self._label}: {line}")
        self._bar(state.done, state.total)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, with an `error` if before everything was there. `done` and `usd` include
    earlier runs.
    """

    done: int
    total: int
    new: int
    requests: int
    usd: float | None
    notes: tuple[str, ...]
    error: RecorderError | None

    @property
    def complete(self) -> bool:
        """Whether the journal holds everything."""
        return self.error is None


@dataclass(slots=True)
class Speedometer:
    """Acknowledged items per second over the last half minute, and when progress is due again."""

    clock: Clock
    marks: deque[tuple[float, int]] = field(default_factory=deque)
    shown_at: float = float("-inf")

    def mark(self, new: int) -> None:
        """Note how many items are new by now."""
        now = self.clock.now()
        self.marks.append((now, new))
        while len(self.marks) > 2 and now - self.marks[0][0] > _RATE_WINDOW_S:
            self.marks.popleft()

    def per_second(self) -> float:
        """Return the rate; 0 before the second mark."""
        if len(self.marks) < 2:
            return 0.0
        (start, before), (end, after) = self.marks[0], self.marks[-1]
        return (after - before) / (end - start) if end > start else 0.0

    def due(self) -> bool:
        """Return whether progress should be shown now: at most ten times a second."""
        now = self.clock.now()
        if now - self.shown_at < _PROGRESS_EVERY_S:
            return False
        self.shown_at = now
        return True

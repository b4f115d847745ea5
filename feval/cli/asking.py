"""How a run of the recorders is shown while it asks, for `feval record` and `feval score`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recorders.asking.budget import dollars

if TYPE_CHECKING:
    from feval.cli.output import Output, ProgressBar
    from recorders.asking.budget import CostEstimate
    from recorders.asking.progress import Progress

__all__ = ["RunDisplay", "estimated_usd"]


class RunDisplay:
    """Shows progress in a bar, and prints the first failure, each warning and the first stop, which a bar alone would hide.

    Args:
        bar: shows the counts.
        show: prints the notes.
        name: what is recorded or scored.

    Attributes:
        printed: the warnings that were printed.
    """

    def __init__(self, bar: ProgressBar, show: Output, name: str) -> None:
        self._bar, self._show, self._name = bar, show, name
        self._is_stopping = self._has_trouble = False
        self.printed: set[str] = set()

    def __call__(self, state: Progress) -> None:
        """Show a state."""
        self._bar.describe(f"{self._name}: {_line(state)}")
        self._bar(state.done, state.total)
        if state.trouble is not None and not self._has_trouble:
            self._has_trouble = True
            self._show.note(f"A request failed and is sent again: {state.trouble.rstrip('.')}.")
        if state.warning is not None and state.warning not in self.printed:
            self.printed.add(state.warning)
            self._show.note(state.warning)
        if state.stopping and state.in_flight and not self._is_stopping:
            self._is_stopping = True
            requests = "1 request" if state.in_flight == 1 else f"{state.in_flight} requests"
            self._show.note(f"Stopping: waiting for {requests} in flight. Ctrl-C stops at once.")


def _line(state: Progress) -> str:
    """One line for the bar: counts, rate and dollars."""
    usd = "" if state.usd is None else f", ${state.usd:,.4f}"
    waiting = f", the server asks to wait {state.waiting_s:.0f} s" if state.waiting_s else ""
    return f"{state.done:,} of {state.total:,}, {state.per_second:,.0f}/s{usd}{waiting}"


def estimated_usd(estimate: CostEstimate, prices: str) -> str:
    """Return an estimate's dollars in words."""
    if estimate.usd is None:
        return "no price known"
    return f"{'at most' if estimate.at_most else 'about'} ${dollars(estimate.usd)} by price list {prices}"

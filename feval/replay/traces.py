"""Traces: CoTs that grow while a method looks on, answer before they are finished, and stop where
it says so.

Replayed, a trace is a recorded CoT with its probes. What was recorded beyond its tokens so far
decides nothing that is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from feval.errors import NotRecordedError, OutOfRangeError, UsageError

if TYPE_CHECKING:
    from feval.recording.probes import Probes
    from feval.replay.responses import RecordedLLM


@dataclass(slots=True, eq=False)
class Growth:
    """How far a trace has grown, and what was recorded of it, the future included: for the meter,
    not for methods.

    Attributes:
        llm, row, sample: the recorded CoT.
        probes: of all CoTs of the LLM.
        index: number of the trace among the CoTs handed out, from 0.
        limit: tokens at which it is cut; `None` for no limit.
        tokens: generated so far.
        finished: whether it came to its own end.
        stopped: whether it was cut, at its limit or by `Trace.stop`.
        probed: place of its last probe in the arrays, -1 before the first.
    """

    llm: RecordedLLM
    row: int
    sample: int
    probes: Probes
    index: int
    limit: int | None
    tokens: int = 0
    finished: bool = False
    stopped: bool = False
    probed: int = -1

    def __str__(self) -> str:
        return f"Trace {self.index} of {self.llm.name}, which has generated {self.tokens} tokens,"

    def after(self, tokens: int | None) -> tuple[int, bool]:
        """Return how many tokens it would have after so many more (`None`: at its next probe), and
        whether it would be finished.

        A trace is not known between its last probe and its end, so whoever goes on from its last
        probe gets its end.

        Raises:
            UsageError: it is not running.
            NotRecordedError: there is no probe at that place.
        """
        if self.finished or self.stopped:
            raise UsageError(
                f"{self} is {'finished' if self.finished else 'stopped'} and cannot be advanced."
            )
        if tokens is not None and (tokens < 1 or tokens % 1):
            raise OutOfRangeError(f"{self} grows by 1 token or more; {tokens!r} were asked for.")
        offsets = self.probes.offsets[self.probes.of(self.row, self.sample)]
        following, interval = offsets[offsets > self.tokens].tolist(), self.probes.interval
        target = (following[0] if following else None) if tokens is None else self.tokens + tokens
        length = int(self.llm.pool.output_tokens[self.row, self.sample])
        end = max(length, self.tokens), True
        if self.limit is not None and length > self.limit:
            end = self.limit, False
        if target is None or (self.limit is not None and target >= self.limit):
            return end
        if tokens is not None and interval is not None and tokens % interval:
            raise NotRecordedError(
                f"{self} cannot be advanced by {tokens}: it was probed every {interval} tokens."
                " Advance by a multiple of that."
            )
        if target in following:
            return target, False
        if (not following or target > following[-1]) and (interval is not None or target >= length):
            return end
        raise NotRecordedError(
            f"{self} cannot be advanced by {tokens}: no probe was recorded there. Advance it to its"
            " next probe, tokens=None, or to its end."
        )

    def probe(self) -> int | None:
        """Return the place of the probe that it stands at, in the arrays; `None` if a limit cut it
        before the first.

        Raises:
            UsageError: nothing was generated.
        """
        if not self.tokens:
            raise UsageError(f"{self} cannot be probed: advance it first.")
        places = self.probes.of(self.row, self.sample)
        passed = int((self.probes.offsets[places] <= self.tokens).sum())
        return places.start + passed - 1 if passed else None


class _Grown(Protocol):
    index: int
    tokens: int
    finished: bool
    stopped: bool


class GrowingTrace:
    """What replayed and live traces have in common."""

    __slots__ = ()

    _growth: _Grown

    def _shown(self, llm: str) -> str:
        state = "running" if self.running else "finished" if self.finished else "stopped"
        return f"{type(self).__name__}({self.index} of {llm!r}, {self.tokens} tokens, {state})"

    @property
    def index(self) -> int:
        """Its number among the CoTs handed out, from 0."""
        return self._growth.index

    @property
    def tokens(self) -> int:
        """Output tokens generated so far."""
        return self._growth.tokens

    @property
    def finished(self) -> bool:
        """Whether it has come to its own end."""
        return self._growth.finished

    @property
    def running(self) -> bool:
        """Whether it can be advanced: it is not finished, was not stopped, and is below its
        limit.
        """
        return not (self._growth.finished or self._growth.stopped)

    def stop(self) -> None:
        """Abandon it: it costs what it has generated so far."""
        self._growth.stopped = True


class Trace(GrowingTrace):
    """A CoT that grows by `MeteredLLM.advance`."""

    __slots__ = ("_bill", "_growth")

    _growth: Growth

    def __init__(self, growth: Growth, bill: Callable[[int], None]) -> None:
        self._growth, self._bill = growth, bill

    def __repr__(self) -> str:
        return self._shown(self._growth.llm.name)

    def probe(self) -> str | None:
        """Return the answer that the LLM gives when it is made to answer now; of a finished trace,
        its final answer.

        A probe costs a call and the tokens of its reply, once at each place, and is not fed back
        into the trace; a final answer costs nothing. Of a trace that was cut between two probes it
        is the earlier one, and `None` if there is none.

        Raises:
            UsageError: nothing was generated yet.
        """
        growth = self._growth
        if growth.finished:
            return growth.llm.answers(growth.row, (growth.sample,))[0]
        place = self._probed()
        return (
            None
            if place is None
            else growth.llm.answer_texts(growth.row, growth.probes.codes[[place]].tolist())[0]
        )

    @property
    def confidence(self) -> float | None:
        """The LLM's confidence in the answer of the probe here, which is billed as by `probe`;
        `None` where it has none.

        Raises:
            NotRecordedError: no probe has a confidence.
            UsageError: nothing was generated yet.
        """
        confidences = self._growth.probes.recorded_confidences(self._growth.llm.name)
        place = None if self._growth.finished else self._probed()
        value = None if place is None else float(confidences[place])
        return None if value is None or value != value else value

    def _probed(self) -> int | None:
        place = self._growth.probe()
        if place is not None and place != self._growth.probed:
            self._growth.probed = place
            self._bill(place)
        return place

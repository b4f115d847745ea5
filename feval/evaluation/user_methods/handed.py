"""LLMs and pools in the worker process of a user's method: made from what feval's own process hands
over, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.evaluation.user_methods.handing import ID
from feval.evaluation.user_methods.messages import array_from
from feval.recording.content import ScorerInfo
from feval.recording.probes import Probes
from feval.recording.scores import Scores
from feval.recording.steps import Steps
from feval.replay.clock import Clock
from feval.replay.llm import LLM
from feval.replay.pools import Channel, Channels, Pool, Ragged, TokenLogprobs

if TYPE_CHECKING:
    from feval.cards.prices import PriceList

Call = Callable[..., Any]
"""Asks feval's own process: (name, *arguments) -> value."""


class HandedLLM(LLM):
    """An LLM on the questions that were handed over, which are told apart by their places."""

    def __init__(
        self, place: int, values: dict[str, Any], shared: Mapping[str, Any], call: Call
    ) -> None:
        answers = values.pop("answers")
        self.pool = pool_from(values, call, answers)
        self.name, self.dataset, self.billing = self.pool.llm, shared["dataset"], shared["billing"]
        self._prices = lambda: _price_list(shared["prices"])
        self._view: Any = _HandedView(place, answers, self.dataset, call)
        self._call = call
        self._draw: np.ndarray[Any, Any] | None = None

    def draw(self, orders: Mapping[str, Any] | None) -> None:
        """Go on to another draw of all questions; `None` for the recorded order."""
        self._draw = None if orders is None else array_from(orders)

    def order(self, row: int, _: int) -> tuple[int, ...]:
        """See `LLM.order`; of the draw that feval is at."""
        size = int(self.pool.sizes[row])
        return tuple(range(size) if self._draw is None else self._draw[row, :size].tolist())

    def uniform(self, row: int, places: Sequence[int], seed: int) -> float:
        """See `LLM.uniform`: it takes the question's key, which stays in feval's own process."""
        return float(self._call("uniform", row, list(places), seed))


def _price_list(values: Mapping[str, Any] | None) -> PriceList | None:
    if values is None:
        return None
    # it takes long to import, and few methods ask for dollars
    from feval.cards.prices import PriceList

    return PriceList(**values)


class _HandedView:
    """What an LLM takes from a view of a recording."""

    def __init__(self, llm: int, answers: Sequence[list[str]], dataset: str, call: Call) -> None:
        self._llm, self._answers, self._call = llm, answers, call
        self._last: dict[str, tuple[int, Any]] = {}
        self.votes = SimpleNamespace(dataset=dataset, question_ids=[ID] * len(answers))

    def row(self, place: int) -> int:
        return place

    def candidates(self, row: int) -> list[str]:
        return self._answers[row]

    def prompt(self, _: str, row: int) -> Any:
        return self._once("prompt", row)

    def texts(self, _: str, row: int) -> Any:
        return self._once("texts", row)

    def reasoning(self, _: str, row: int) -> Any:
        return self._once("reasoning", row)

    def messages(self, _: str, row: int) -> Any:
        return self._once("messages", row)

    def _once(self, name: str, row: int) -> Any:
        if self._last.get(name, (-1, None))[0] != row:
            self._last[name] = row, self._call(name, self._llm, row)
        return self._last[name][1]


class _HandedChannels(Channels):
    """Scores, log-probabilities and probes, which feval's own process is asked for when they are
    first looked at.
    """

    def __init__(
        self, owner: str, number: int, call: Call, answers: Sequence[list[str]], *, has_steps: bool
    ) -> None:
        super().__init__(owner)
        self._has_steps = has_steps
        self._number, self._call, self._answers = number, call, answers

    def read(self, channel: Channel, *scorer: str) -> Any:
        is_absent = channel == "steps" and not self._has_steps
        if is_absent or channel in {"duration_s", "first_token_s"}:
            return None
        values = self._call(channel, self._number, *scorer)
        if channel == "scorers":
            return values
        if channel == "logprobs":
            pair = _ragged(values["confidences"]), _ragged(values["logprobs"])
            return TokenLogprobs(array_from(values["sequence"]), *pair)
        if channel == "scores":
            info = ScorerInfo(**values.pop("scorer"))
            return Scores(info, **{name: array_from(value) for name, value in values.items()})
        if channel == "steps":
            return Steps(**_arrays(values))
        for known, more in zip(self._answers, values.pop("answers"), strict=False):
            known += more
        interval, shape = values.pop("interval"), tuple(values.pop("shape"))
        return Probes(interval=interval, shape=shape, **_arrays(values))


def _arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value and array_from(value) for name, value in values.items()}


def _ragged(values: Mapping[str, Any]) -> Ragged:
    return Ragged(
        array_from(values["values"]), array_from(values["offsets"]), tuple(values["shape"])
    )


def pool_from(values: dict[str, Any], call: Call, answers: Sequence[list[str]] = ()) -> Pool:
    """Return a pool from its arrays; `answers` are those of each question by code, which grow when
    probes are read.
    """
    owner, number, has_steps, clock = (
        values.pop(key) for key in ("owner", "channels", "has_steps", "clock")
    )
    channels = _HandedChannels(owner, number, call, answers, has_steps=has_steps)
    name = values.pop("llm")
    arrays = {key: array_from(value) for key, value in values.items()}
    if clock is not None:
        first = clock["first"] and array_from(clock["first"])
        microseconds = array_from(clock["microseconds"])
        clock = Clock(
            arrays["output_tokens"].astype(np.int64), microseconds, first, clock["at_once"]
        )
    return Pool(name, _finish=arrays.pop("finish"), **arrays, channels=channels, clock=clock)

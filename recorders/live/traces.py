"""Traces of a live LLM: CoTs that are asked for piece by piece, with the replay's `advance`,
`probe` and `stop`.

Each piece continues the text so far (`recorders.request.Prefill`), so the server has to continue a
beginning: completions with a template, chat that continues a message, or a local model. A server
that moves thoughts into a field of their own cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from feval.errors import UsageError
from feval.replay.traces import GrowingTrace


@dataclass(frozen=True, slots=True)
class Reply:
    """What a live LLM answered when it was made to: its answer, and the probability of the answer's
    tokens.
    """

    answer: str | None
    confidence: float | None


@dataclass(slots=True, eq=False)
class Growth:
    """How far a trace has grown: for the meter, not for methods."""

    index: int
    most: float
    limit: float
    text: str = ""
    tokens: int = 0
    finished: bool = False
    stopped: bool = False
    reply: Reply | None = None

    def grow(self, text: str, tokens: int, asked: int, *, ended: bool) -> None:
        """Add a piece, of which so many tokens were asked for."""
        self.text, self.tokens, self.reply = self.text + text, self.tokens + tokens, None
        self.finished = ended or tokens < asked or self.tokens >= self.most
        self.stopped = not self.finished and self.tokens >= self.limit

    def piece(self, tokens: int) -> int:
        """Return how many of so many tokens can still be generated."""
        return int(min(tokens, self.most - self.tokens, self.limit - self.tokens))


@dataclass(slots=True, eq=False, repr=False)
class LiveTrace(GrowingTrace):
    """A live CoT that grows by `MeteredLiveLLM.advance`; see `feval.replay.traces.Trace`, whose
    attributes it has.

    It can be probed at any length, also where a limit has cut it.
    """

    _growth: Growth
    _owner: str
    _ask: Callable[[Growth], Reply] = field(repr=False)

    def __repr__(self) -> str:
        return self._shown(self._owner)

    def probe(self) -> str | None:
        """Return the answer that the LLM gives when it is made to answer now; of a finished trace,
        its final answer.
        """
        return self._reply().answer

    @property
    def confidence(self) -> float | None:
        """The probability of the tokens of that answer; `None` of a finished trace, or where the
        server does not say.
        """
        return self._reply().confidence

    def _reply(self) -> Reply:
        if not self.tokens:
            raise UsageError(
                f"Trace {self.index} of {self._owner} cannot be probed: advance it first."
            )
        if self._growth.reply is None:
            self._growth.reply = self._ask(self._growth)
        return self._growth.reply

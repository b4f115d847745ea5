"""What an LLM answers: chains of thought and the request behind them (FEval-TTC, Listing 3); and
where they come from, a recording or a live LLM.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from feval.cards.billing import billed_prompts, require_plain, usd
from feval.recording.layout.flat import Floats
from feval.values import frozen

if TYPE_CHECKING:
    from feval.cards import Price
    from feval.replay.pools import Pool

MessageList = list[dict[str, Any]]
"""What is sent behind a conversation: messages with a role and a content."""

REQUEST = -1
"""The place that first steps and CoTs come behind."""

Need = Literal["CoTs", "traces", "confidences", "steps", "replies", "cuts"]


@frozen
class ProbeReply:
    """What an LLM answers when it is made to; a final answer has no confidence and no tokens.

    Attributes:
        place: of the probe: two with one place are the same; -1 for none.
        answer: canonical, `None` for no answer.
        confidence: of the LLM in it; `None` where not known.
        tokens: of the reply, 0 where not known.
    """

    place: int = -1
    answer: str | None = None
    confidence: float | None = None
    tokens: int = 0


@dataclass(slots=True, eq=False)
class TraceState:
    """How far a trace has grown: for the meter and its source, not for methods.

    Attributes:
        owner: the LLM's name.
        index: number of the trace among the CoTs handed out, from 0.
        place: of the CoT in its source.
        limit: tokens at which it is cut; `None` for no limit.
        tokens: generated so far.
        finished: whether it came to its own end.
        stopped: whether it was cut, at its limit or by `Trace.stop`.
        reply: to its last probe.
    """

    owner: str
    index: int
    place: int
    limit: int | None
    tokens: int = 0
    finished: bool = False
    stopped: bool = False
    reply: ProbeReply = ProbeReply()  # noqa: RUF009  nobody can change it

    def __str__(self) -> str:
        return f"Trace {self.index} of {self.owner}, which has generated {self.tokens} tokens,"

    def grow(self, tokens: int, *, finished: bool) -> None:
        """Note that it has so many tokens now, and whether they are all."""
        self.tokens, self.finished = tokens, finished
        self.stopped = not finished and self.limit is not None and tokens >= self.limit


class Source(Protocol):
    """Where the CoTs and steps of one question come from. A place is the number of one of them.

    Attributes:
        name: the LLM's name.
        billing: how prompts are charged, one of `feval.cards.billing.BILLINGS`.
        answers: canonical answers of CoTs.
        request: what was sent for a CoT.
        extra_prompt_tokens: prompt tokens that a turn was sent beyond the question's request.
        known_prompt_tokens: the prompt tokens, or a `PriceNotFoundError` that says what follows.
        known_price: the price, or a `PriceNotFoundError`.
    """

    name: str
    billing: str
    answers: Callable[[Sequence[int]], list[str | None]]
    request: Callable[[int | None], LLMRequest]
    extra_prompt_tokens: Callable[[int], int]
    known_prompt_tokens: Callable[[str], int]
    known_price: Callable[[], Price]

    def require(self, need: Need) -> None:
        """Raise an error if it has nothing of a kind at all."""

    @property
    def remaining(self) -> int:
        """CoTs that it can still give."""

    def sample(self, k: int) -> Sequence[int]:
        """Return the places of the next k CoTs."""

    def start(self, k: int) -> Sequence[int]:
        """Return the places of the next k CoTs, of which nothing is generated yet."""

    def advance(self, states: Sequence[TraceState], tokens: Sequence[int | None]) -> None:
        """Let traces that are running grow, each by so many tokens; `None` for up to its next
        probe.
        """

    def probe(self, state: TraceState) -> ProbeReply:
        """Return what the LLM answers where a trace stands, `state.reply` itself where that was
        asked before.
        """

    def expand(self, places: Sequence[int], k: int) -> list[list[int]]:
        """Return the next k steps behind each of several places; of none where any lacks some."""

    def reply(
        self, places: Sequence[int], messages: Sequence[MessageList | None], k: int
    ) -> list[list[int]]:
        """Return the next k turns that reply to each of several places with its messages."""

    def uniform(self, cots: int, seed: int) -> float:
        """Return a random number in [0, 1) that depends on so many first CoTs."""

    def wait(self, places: Sequence[int], before: Sequence[int], after: Sequence[int]) -> int:  # noqa: ARG002  others have one
        """Return the microseconds of a round in which CoTs grew; 0 without a clock."""
        return 0

    def amounts(self, name: str, places: Sequence[int], tokens: Sequence[int]) -> list[int]:  # noqa: ARG002  others have some
        """Return one of `Pool.amounts` of CoTs of which so many tokens were generated; nothing
        where nobody asked for it.
        """
        return []

    def stated_usd(self, places: Sequence[int]) -> float | None:  # noqa: ARG002  others state some
        """Return the USD that CoTs state; `None` where prices of tokens say it."""
        return None

    def tokens(self, places: Sequence[int]) -> list[int]:
        """Return output tokens."""

    def text(self, place: int) -> str | None:
        """Return a reply without its thoughts."""

    def reasoning(self, place: int) -> str | None:
        """Return the thoughts."""

    def finish_reason(self, place: int) -> str:
        """Return why generation ended."""

    def ends(self, place: int) -> bool:
        """Return whether a step ends a solution."""

    def scores(self, places: Sequence[int], scorer: str | None) -> list[float]:
        """Return the scores of steps, NaN for none."""

    def recorded(self, what: str) -> tuple[Pool, int]:
        """Return the pool that holds a channel, and the row of the question."""

    @property
    def price(self) -> Price | None:
        """USD per million tokens; `None` where not known."""

    def dollars(
        self, rounds: int, cots: int, output_tokens: int, extra_prompt_tokens: int
    ) -> float:
        """Return the USD of what was consumed: eq. (1) under the LLM's billing.

        Raises:
            PriceNotFoundError: there is no price, or the prompt tokens are not known.
        """
        price = self.known_price()
        require_plain(self.billing, price, extra_prompt_tokens > 0)
        each = self.known_prompt_tokens("no dollars")
        prompts = int(billed_prompts(self.billing, rounds, cots)) * each + extra_prompt_tokens
        return float(usd(price, prompts, output_tokens, context=each))

    def cot_dollars(self, place: int, tokens: int) -> float | None:
        """Return the USD of a CoT's output tokens, or what it states; `None` without either."""
        if (stated := self.stated_usd([place])) is not None or self.price is None:
            return stated
        return float(usd(self.price, 0, tokens))


@frozen
class LLMRequest:
    """What was sent for a question.

    Attributes:
        raw_text: the prompt as a JSON array of messages; `None` where it is not known.
        tokens: prompt tokens; `None` where not known.
        dollar_cost: USD for sending it once; `None` without a price or token count.
    """

    raw_text: str | None
    tokens: int | None
    dollar_cost: float | None


@frozen
class CoTMetadata:
    """Cost and finish reason of a CoT.

    Attributes:
        tokens: output tokens.
        dollar_cost: USD of the output tokens, or what the CoT itself states (prices "recorded");
            `None` where the LLM has no price.
        finish_reason: as OpenAI spells it, or "error" or "unknown".
    """

    tokens: int
    dollar_cost: float | None
    finish_reason: str


@frozen
class CoT:
    """One chain of thought; a recorded text is read from disk when first asked for.

    Attributes:
        sample: place in the recorded order; of a live LLM, among the CoTs of its question.
        answer: canonical answer, `None` for no answer.
        metadata: tokens, dollars, finish reason.
    """

    sample: int
    answer: str | None
    metadata: CoTMetadata
    _source: Source = field(repr=False, compare=False)

    @property
    def llm(self) -> str:
        """Name of the LLM."""
        return self._source.name

    @property
    def raw_text(self) -> str | None:
        """The reply as the LLM wrote it, without the thoughts before it; `None` where the recording
        has none.
        """
        return self._source.text(self.sample)

    @property
    def text(self) -> str | None:
        """The same as `raw_text`, which is the paper's name for it."""
        return self.raw_text

    @property
    def reasoning(self) -> str | None:
        """The thoughts before the reply; `None` where none were recorded."""
        return self._source.reasoning(self.sample)

    @property
    def tokens(self) -> int:
        """Output tokens."""
        return self.metadata.tokens

    @property
    def dollar_cost(self) -> float | None:
        """USD as the metadata have it."""
        return self.metadata.dollar_cost

    @property
    def finish_reason(self) -> str:
        """Why generation ended."""
        return self.metadata.finish_reason


@frozen
class LLMResponse:
    """The CoTs that one request gave; objects are made of them only when looked at.

    Attributes:
        samples: places of the CoTs, in draw order.
    """

    samples: tuple[int, ...]
    _source: Source = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def num_cots(self) -> int:
        """Number of CoTs."""
        return len(self.samples)

    @property
    def cots(self) -> list[CoT]:
        """The CoTs, in draw order."""
        source = self._source
        columns = zip(self.samples, self.answers, source.tokens(self.samples), strict=True)
        return [
            CoT(
                sample,
                answer,
                CoTMetadata(
                    tokens, source.cot_dollars(sample, tokens), source.finish_reason(sample)
                ),
                source,
            )
            for sample, answer, tokens in columns
        ]

    @property
    def answers(self) -> list[str | None]:
        """Canonical answers in draw order, `None` for no answer."""
        return self._source.answers(self.samples)

    @property
    def request(self) -> LLMRequest:
        """What was sent; of turns that reply to several CoTs, for the first."""
        return self._source.request(self.samples[0] if self.samples else None)

    @property
    def tokens(self) -> int:
        """Output tokens of all CoTs."""
        return sum(self._source.tokens(self.samples))

    @property
    def dollar_cost(self) -> float:
        """USD of the request and all CoTs, by eq. (1) of the paper and the LLM's billing; or the
        sum of what these state.

        Raises:
            PriceNotFoundError: the price list has no such LLM, or the prompt tokens are not known.
        """
        if (stated := self._source.stated_usd(self.samples)) is not None:
            return stated
        extra = self._source.extra_prompt_tokens(self.samples[0]) if self.samples else 0
        return self._source.dollars(1, len(self.samples), self.tokens, extra)

    def scores(self, scorer: str | None = None, aggregate: str = "score") -> list[float | None]:
        """Return the score of each CoT, in draw order; `None` where it has none.

        Args:
            scorer: name of the scorer; the only one for `None`.
            aggregate: "score" for the score of the CoT; "last", "min", "prod" or "mean" of its step
                scores.

        Raises:
            UnknownNameError: no such aggregate.
            NotRecordedError: no such scores were recorded; `feval score` adds some.
        """
        pool, row = self._source.recorded("scores")
        return self._drawn(pool.aggregated(scorer, aggregate)[row])

    def step_scores(self, scorer: str | None = None) -> list[list[float]]:
        """Return the step scores of each CoT, in draw order; empty lists where there are none.

        Raises:
            NotRecordedError: no such scores were recorded; `feval score` adds some.
        """
        pool, row = self._source.recorded("step scores")
        scores = pool.scores(scorer)
        return [scores.steps.of(row, sample).tolist() for sample in self.samples]

    def scoring_tokens(
        self, scorer: str | None = None, *, prefix_cached: bool = False
    ) -> list[tuple[int, int] | None]:
        """Return prompt and output tokens of the scoring request for each CoT, in draw order;
        `None` where there was none.

        Args:
            scorer: name of the scorer; the only one for `None`.
            prefix_cached: leave out the part of the prompt that the LLM had already read or
                written; see `Pool.scoring_tokens`.

        Raises:
            NotRecordedError: no such scores were recorded, or not their tokens.
        """
        pool, row = self._source.recorded("scoring tokens")
        tokens = pool.scoring_tokens(
            scorer, prefix_cached=prefix_cached, questions=slice(row, row + 1)
        )
        rows = zip(*(column[0, list(self.samples)].tolist() for column in tokens), strict=True)
        return [(prompt, output) if calls else None for calls, prompt, output in rows]

    @property
    def sequence_logprobs(self) -> list[float | None]:
        """Natural logarithm of the probability of each CoT, in draw order; `None` where it was not
        kept.

        Raises:
            NotRecordedError: no log-probabilities were recorded; `feval record --logprobs K` keeps
                them.
        """
        pool, row = self._source.recorded("sequence logprobs")
        return self._drawn(pool.logprobs().sequence[row])

    @property
    def sequence_probabilities(self) -> list[float | None]:
        """Length-normalised probability of each CoT, in draw order; see
        `Pool.sequence_probabilities`.

        Raises:
            NotRecordedError: as for `sequence_logprobs`.
        """
        pool, row = self._source.recorded("sequence probabilities")
        return self._drawn(pool.sequence_probabilities(slice(row, row + 1))[0])

    @property
    def token_confidences(self) -> list[npt.NDArray[np.floating[Any]] | None]:
        """Minus the mean log-probability of the top k at each token of each CoT, in draw order;
        `None` where not kept.

        Raises:
            NotRecordedError: as for `sequence_logprobs`.
        """
        pool, row = self._source.recorded("token confidences")
        rows = [pool.logprobs().confidences.of(row, sample) for sample in self.samples]
        return [row if row.size else None for row in rows]

    def _drawn(self, values: Floats) -> list[float | None]:
        drawn = values[list(self.samples)].tolist()
        return [None if math.isnan(value) else value for value in drawn]

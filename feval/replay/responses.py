"""What a replayed LLM answers: chains of thought and the request behind them (FEval-TTC, Listing
3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from feval import cards
from feval.replay.pools import Pool

if TYPE_CHECKING:
    from feval.cards import schema
    from feval.cards.finish_reasons import FinishReason


class RecordedLLM(Protocol):
    """What responses and meters need of an LLM; see `LLM`. A `row` is that of a question."""

    name: str
    pool: Pool
    billing: str

    @property
    def question_keys(self) -> npt.NDArray[np.uint64]:
        """[Q] the keys that draws are made from."""

    @property
    def question_ids(self) -> Sequence[str]:
        """Ids of the questions, by row."""

    def order(self, row: int, replicate: int, /) -> tuple[int, ...]:
        """Return a whole draw."""

    def require(self, rows: int, n: int, /) -> None:
        """Check that n CoTs were recorded."""

    def cot(self, row: int, sample: int, /) -> CoT:
        """Return a recorded CoT."""

    def answers(self, row: int, samples: tuple[int, ...], /) -> list[str | None]:
        """Return canonical answers."""

    def answer_texts(self, row: int, codes: Sequence[int], /) -> list[str | None]:
        """Return the canonical answers of codes."""

    def request(self, row: int, sample: int | None = None, /) -> LLMRequest:
        """Return what was sent, for a turn where `sample` is one."""

    def texts(self, row: int, /) -> list[str | None]:
        """Return the texts of all CoTs."""

    def reasoning(self, row: int, /) -> list[str | None] | None:
        """Return the thoughts of all CoTs."""

    def messages(self, row: int, /) -> list[str | None] | None:
        """Return what each turn replies to, as JSON; `None` for no turn."""

    def known_prompt_tokens(self, row: int, otherwise: str, /) -> int:
        """Return the prompt tokens."""

    def dollars(
        self,
        row: int,
        /,
        *,
        rounds: int,
        cots: int,
        output_tokens: int,
        auxiliary_prompt_tokens: int = 0,
    ) -> float:
        """Return the USD of what was consumed."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class CoTMetadata:
    """Cost and finish reason of a CoT.

    Attributes:
        tokens: output tokens.
        dollar_cost: USD of the output tokens, `None` where the LLM has no price.
        finish_reason: as OpenAI spells it, or "error" or "unknown".
    """

    tokens: int
    dollar_cost: float | None
    finish_reason: str


@dataclass(frozen=True, slots=True)
class CoT:
    """One recorded chain of thought; its text is read from disk when first asked for.

    Attributes:
        sample: place in the recorded order.
        answer: canonical answer, `None` for no answer.
        metadata: tokens, dollars, finish reason.
    """

    sample: int
    answer: str | None
    metadata: CoTMetadata
    _llm: RecordedLLM = field(repr=False, compare=False)
    _question: int = field(repr=False, compare=False)

    def is_of(self, llm: RecordedLLM, row: int) -> bool:
        """Whether an LLM gave it on a question (by its row)."""
        return self._llm is llm and self._question == row

    @property
    def raw_text(self) -> str | None:
        """The reply as the LLM wrote it, without the thoughts before it; `None` where the recording
        has none.
        """
        return self._llm.texts(self._question)[self.sample]

    @property
    def text(self) -> str | None:
        """The same as `raw_text`, which is the paper's name for it."""
        return self.raw_text

    @property
    def reasoning(self) -> str | None:
        """The thoughts before the reply; `None` where none were recorded."""
        thoughts = self._llm.reasoning(self._question)
        return None if thoughts is None else thoughts[self.sample]

    @property
    def tokens(self) -> int:
        """Output tokens."""
        return self.metadata.tokens

    @property
    def dollar_cost(self) -> float | None:
        """USD of the output tokens, `None` where the LLM has no price."""
        return self.metadata.dollar_cost

    @property
    def finish_reason(self) -> str:
        """Why generation ended."""
        return self.metadata.finish_reason


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """The CoTs drawn for one question; objects are made of them only when looked at.

    Attributes:
        samples: recorded places of the CoTs, in draw order.
    """

    samples: tuple[int, ...]
    _llm: RecordedLLM = field(repr=False, compare=False)
    _question: int = field(repr=False, compare=False)

    def is_of(self, llm: RecordedLLM, row: int) -> bool:
        """Whether an LLM gave it on a question (by its row)."""
        return self._llm is llm and self._question == row

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def num_cots(self) -> int:
        """Number of CoTs."""
        return len(self.samples)

    @property
    def cots(self) -> list[CoT]:
        """The CoTs, in draw order."""
        return [self._llm.cot(self._question, sample) for sample in self.samples]

    @property
    def answers(self) -> list[str | None]:
        """Canonical answers in draw order, `None` for no answer."""
        return self._llm.answers(self._question, self.samples)

    @property
    def request(self) -> LLMRequest:
        """What was sent; of turns that reply to several CoTs, for the first."""
        return self._llm.request(self._question, self.samples[0] if self.samples else None)

    @property
    def tokens(self) -> int:
        """Output tokens of all CoTs."""
        return int(
            self._llm.pool.output_tokens[self._question, list(self.samples)].sum(dtype=np.int64)
        )

    @property
    def dollar_cost(self) -> float:
        """USD of the request and all CoTs, by eq. (1) of the paper and the LLM's billing.

        Raises:
            PriceNotFoundError: the price list has no such LLM, or the prompt tokens are not known.
        """
        beyond = (
            self._llm.pool.beyond_request(self._question, self.samples[0]) if self.samples else 0
        )
        return self._llm.dollars(
            self._question,
            rounds=1,
            cots=len(self.samples),
            output_tokens=self.tokens,
            auxiliary_prompt_tokens=beyond,
        )

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
        return _with_none(
            self._llm.pool.aggregated(scorer, aggregate)[self._question, list(self.samples)]
        )

    def step_scores(self, scorer: str | None = None) -> list[list[float]]:
        """Return the step scores of each CoT, in draw order; empty lists where there are none.

        Raises:
            NotRecordedError: no such scores were recorded; `feval score` adds some.
        """
        scores = self._llm.pool.scores(scorer)
        return [scores.steps(self._question, sample).tolist() for sample in self.samples]

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
        row = slice(self._question, self._question + 1)
        tokens = self._llm.pool.scoring_tokens(scorer, prefix_cached=prefix_cached, questions=row)
        columns = (tokens.calls, tokens.prompt_tokens, tokens.output_tokens)
        rows = zip(*(column[0, list(self.samples)].tolist() for column in columns), strict=True)
        return [(prompt, output) if calls else None for calls, prompt, output in rows]

    @property
    def sequence_logprobs(self) -> list[float | None]:
        """Natural logarithm of the probability of each CoT, in draw order; `None` where it was not
        kept.

        Raises:
            NotRecordedError: no log-probabilities were recorded; `feval record --logprobs K` keeps
                them.
        """
        return _with_none(self._llm.pool.logprobs().sequence[self._question, list(self.samples)])

    @property
    def sequence_probabilities(self) -> list[float | None]:
        """Length-normalised probability of each CoT, in draw order; see
        `Pool.sequence_probabilities`.

        Raises:
            NotRecordedError: as for `sequence_logprobs`.
        """
        row = slice(self._question, self._question + 1)
        return _with_none(self._llm.pool.sequence_probabilities(row)[0, list(self.samples)])

    @property
    def token_confidences(self) -> list[npt.NDArray[np.floating[Any]] | None]:
        """Minus the mean log-probability of the top k at each token of each CoT, in draw order;
        `None` where not kept.

        Raises:
            NotRecordedError: as for `sequence_logprobs`.
        """
        confidences = self._llm.pool.logprobs().confidences
        rows = [confidences.of(self._question, sample) for sample in self.samples]
        return [row if row.size else None for row in rows]

    def to_model(self) -> schema.LLMResponse:
        """Return the wire model of Listing 3, texts included."""
        models = [
            cards.schema.CoT(
                raw_text=cot.raw_text,
                answer=cot.answer,
                metadata=cards.schema.CoTMetadata(
                    dollar_cost=cot.dollar_cost,
                    tokens=cot.tokens,
                    finish_reason=cast("FinishReason", cot.finish_reason),
                ),
            )
            for cot in self.cots
        ]
        request = cards.schema.LLMRequest(**asdict(self.request))
        return cards.schema.LLMResponse(
            cots=tuple(models), request=request, answers=tuple(self.answers)
        )


def _with_none(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]

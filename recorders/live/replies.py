"""The CoTs of a live LLM, with the attributes of replayed ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from feval.errors import NotRecordedError
from feval.replay import CoTMetadata, LLMRequest

RECORDED_ONLY = (
    "scores", "step_scores", "scoring_tokens", "sequence_logprobs", "sequence_probabilities",
    "token_confidences"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LiveCoT:
    """One chain of thought; the attributes are those of a replayed one.

    Attributes:
        raw_text: the reply, without the thoughts before it.
        answer: voting key of the answer; `None` for no answer.
        tokens: output tokens by the provider's count, or 1.365 per word if there is none.
        dollar_cost: USD of the output tokens; `None` without a price.
        finish_reason: a word of `feval.cards.finish_reasons.FINISH_REASONS`.
        sample: index among the CoTs of its question.
        reasoning: the thoughts; `None` if the provider does not show them.
    """

    raw_text: str
    answer: str | None
    tokens: int
    dollar_cost: float | None
    finish_reason: str
    sample: int
    reasoning: str | None = None

    @property
    def text(self) -> str:
        """The same as `raw_text`, which is the paper's name for it."""
        return self.raw_text

    @property
    def metadata(self) -> CoTMetadata:
        """Cost and end, as Listing 3 of FEval-TTC has them."""
        return CoTMetadata(self.tokens, self.dollar_cost, self.finish_reason)


@dataclass(frozen=True, slots=True)
class LiveResponse:
    """The CoTs of one `sample`, in the order of arrival, and the request that was sent."""

    cots: list[LiveCoT]
    request: LLMRequest
    _dollars: Callable[[int, int, int], float] = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.cots)

    @property
    def num_cots(self) -> int:
        """Number of CoTs."""
        return len(self.cots)

    @property
    def answers(self) -> list[str | None]:
        """Canonical answers, `None` for no answer."""
        return [cot.answer for cot in self.cots]

    @property
    def tokens(self) -> int:
        """Output tokens of all CoTs."""
        return sum(cot.tokens for cot in self.cots)

    @property
    def dollar_cost(self) -> float:
        """USD of the request and all CoTs, by eq. (1) of FEval-TTC and the billing.

        Raises:
            PriceNotFoundError: the price list has no such LLM.
        """
        return self._dollars(1, len(self.cots), self.tokens)

    def __getattr__(self, name: str) -> NoReturn:
        """Explain what only a replayed response has."""
        if name in RECORDED_ONLY:
            raise NotRecordedError(
                f"A live CoT has no {name.replace('_', ' ')}: nobody scored it, and its"
                " log-probabilities were not kept. Record with `feval record --logprobs K`, score"
                " with `feval score`, and run the method on the recording."
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

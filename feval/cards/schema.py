"""What the paper's Listing 3 prints, as frozen pydantic models.

The models are for JSON in and out; inside, feval works on arrays and frozen dataclasses.

Source: FEval-TTC (arXiv 2511.01203), Listing 3. Where we differ: an answer may be `None` everywhere
(the paper's own section 2.2 needs it), a CoT's metadata has its finish reason, and dollars may be
`None` for an LLM without a price.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from feval.cards.finish_reasons import FinishReason


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CoTMetadata(_Frozen):
    """What one CoT cost and how it ended. `dollar_cost` is in USD, `None` where the LLM has no
    price.
    """

    dollar_cost: float | None
    tokens: int = Field(ge=0)
    finish_reason: FinishReason = "unknown"


class CoT(_Frozen):
    """One recorded chain of thought (Listing 3). `answer` is `None` where none could be
    extracted.
    """

    raw_text: str | None
    answer: str | None
    metadata: CoTMetadata

    @property
    def tokens(self) -> int:
        """Output tokens, as Listing 1 prints them."""
        return self.metadata.tokens

    @property
    def dollar_cost(self) -> float | None:
        """USD of this CoT's output tokens, as Listing 1 prints it."""
        return self.metadata.dollar_cost


class LLMRequest(_Frozen):
    """What was sent for one question (Listing 3)."""

    raw_text: str | None
    dollar_cost: float | None
    tokens: int | None


class LLMResponse(_Frozen):
    """The CoTs drawn for one question (Listing 3); `answers[i]` is `cots[i].answer`."""

    cots: tuple[CoT, ...]
    request: LLMRequest
    answers: tuple[str | None, ...]

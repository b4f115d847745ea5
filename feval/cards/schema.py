"""The wire models: what the paper's Listings 2 and 3 print, as frozen pydantic models, and the finish reasons of CoTs.

The models stand at the edges only (JSON in, JSON out). Inside, feval works on arrays and frozen dataclasses.

Source: FEval-TTC (arXiv 2511.01203), Listings 2 and 3. Where we differ: an answer may be `None` everywhere (the paper's own
section 2.2 needs it), a CoT's metadata carries its finish reason, and dollars may be `None` for an LLM without a price.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "FINISH_REASONS",
    "LLM",
    "Choice",
    "CoT",
    "CoTMetadata",
    "Dataset",
    "DatasetEntry",
    "FinishReason",
    "LLMConfig",
    "LLMRequest",
    "LLMResponse",
]

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call", "error", "unknown"]
"""Why a CoT ended: OpenAI's words, plus `error` (the provider failed) and `unknown` (the source does not say)."""

# The order is part of the votes file: a finish reason is stored as its position here. Append only.
FINISH_REASONS: tuple[FinishReason, ...] = (
    "stop",
    "length",
    "tool_calls",
    "content_filter",
    "function_call",
    "error",
    "unknown",
)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Choice(_Frozen):
    """One option of a multiple-choice question."""

    label: str
    text: str


class DatasetEntry(_Frozen):
    """A question with its gold answer (Listing 2). `answer` is `None` where no gold is known."""

    answer: str | None
    question: str
    id: str | None = None
    choices: tuple[Choice, ...] = ()


class Dataset(_Frozen):
    """A benchmark (Listing 2): its entries, its id (`datatype`) and the system prompt it was recorded with."""

    data: tuple[DatasetEntry, ...]
    datatype: str
    system_prompt: str | None = None


class CoTMetadata(_Frozen):
    """What one CoT cost and how it ended. `dollar_cost` is in USD, `None` where the LLM has no price."""

    dollar_cost: float | None
    tokens: int = Field(ge=0)
    finish_reason: FinishReason = "unknown"


class CoT(_Frozen):
    """One recorded chain of thought (Listing 3). `answer` is `None` where none could be extracted."""

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


class LLMConfig(_Frozen):
    """A model under one decoding (Listing 3). `None`: the source does not say."""

    name: str
    temperature: float | None = None
    max_tokens: int | None = None


class LLM(_Frozen):
    """All recorded responses of one LLM on one dataset, in the order of the questions (Listing 3)."""

    config: LLMConfig
    responses: tuple[LLMResponse, ...]

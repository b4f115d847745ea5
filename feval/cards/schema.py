"""The wire models: what the paper's Listings 2 and 3 print, and the manifest of a recording, as frozen pydantic models.

These stand at the edges only (JSON in, JSON out). Inside, feval works on arrays and frozen dataclasses; nothing on the way
from a recording to a curve imports this module.

Source: FEval-TTC (arXiv 2511.01203), Listings 2 and 3. Where we differ: an answer may be `None` everywhere (the paper's own
section 2.2 needs it), a CoT's metadata carries its finish reason, and dollars may be `None` for an LLM without a price.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "FINISH_REASONS",
    "LLM",
    "MANIFEST_VERSION",
    "Choice",
    "CoT",
    "CoTMetadata",
    "Dataset",
    "DatasetEntry",
    "DatasetRecord",
    "EqualityRecord",
    "FileRecord",
    "FinishReason",
    "LLMConfig",
    "LLMRecord",
    "LLMRequest",
    "LLMResponse",
    "Leaf",
    "Manifest",
    "PairRecord",
    "ScorerRecord",
    "ScoresRecord",
]

MANIFEST_VERSION = 1

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


class FileRecord(_Frozen):
    """One file of a recording: its bytes are pinned by `sha256`, `rows` counts its rows."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)
    rows: int = Field(ge=0)


class EqualityRecord(_Frozen):
    """What the manifest says of the equality between normal forms of a dataset's answers: its name, and pairs by outcome."""

    name: str
    equal: int = Field(ge=0)
    different: int = Field(ge=0)
    undecided: int = Field(ge=0)
    not_asked: int = Field(ge=0)


class DatasetRecord(_Frozen):
    """What the manifest says of a dataset. Without an equality, answers are equal where their normal forms are."""

    id: str = Field(min_length=1)
    title: str
    answer_kind: str
    extractor: str
    questions: int = Field(ge=0)
    with_gold: int = Field(ge=0)
    system_prompt: str | None = None
    licence: str | None = None
    equality: EqualityRecord | None = None


class LLMRecord(_Frozen):
    """What the manifest says of an LLM: the variant's full name, its base name and its decoding."""

    name: str = Field(min_length=1)
    base: str = Field(min_length=1)
    temperature: float | None = None
    max_tokens: int | None = None
    decoding: dict[str, Any] = Field(default_factory=dict)


class PairRecord(_Frozen):
    """What the manifest says of one LLM on one dataset: pool sizes, CoTs in all, and who counted the tokens.

    `unclosed_thoughts` counts CoTs that end inside a thought, `empty_replies` others that have neither reply nor answer; each is
    there where there are any.
    """

    dataset: str
    llm: str
    counter: str
    cots: int = Field(ge=0)
    smallest_pool: int = Field(ge=0)
    largest_pool: int = Field(ge=0)
    no_answer: int = Field(ge=0)
    unclosed_thoughts: int = Field(0, ge=0)
    empty_replies: int = Field(0, ge=0)


class ScorerRecord(_Frozen):
    """What the manifest says of a scorer."""

    name: str = Field(min_length=1)
    kind: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class ScoresRecord(_Frozen):
    """What the manifest says of one scorer's scores of one LLM on one dataset.

    `cots` were given to the scorer, `with_score` and `with_steps` of them got a score and step scores; `prompt_tokens` and
    `output_tokens` are what the scorer consumed, as far as it says.
    """

    dataset: str
    llm: str
    scorer: str
    cots: int = Field(ge=0)
    with_score: int = Field(ge=0)
    with_steps: int = Field(ge=0)
    prompt_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)


class Leaf(_Frozen):
    """One leaf of the recording hash: sha256 over the logical content of one part (`docs/recording-format.md`)."""

    dataset: str
    llm: str | None
    part: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(_Frozen):
    """`manifest.json`: what a recording holds and how to check it. Written last."""

    format: Literal["feval-recording"]
    format_version: int
    created: str
    feval_version: str
    recording_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    prices: str
    operation: dict[str, Any]
    parents: tuple[dict[str, Any], ...] = ()
    licences: dict[str, str | None]
    notes: tuple[str, ...] = ()
    datasets: tuple[DatasetRecord, ...]
    llms: tuple[LLMRecord, ...]
    pairs: tuple[PairRecord, ...]
    scorers: tuple[ScorerRecord, ...] = ()
    scores: tuple[ScoresRecord, ...] = ()
    leaves: tuple[Leaf, ...]
    files: dict[str, FileRecord]

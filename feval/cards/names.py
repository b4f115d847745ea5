"""The paper's names of datasets and LLMs, as constants; and the words for why a CoT ended.

`DatasetType.GSM8K` is the text "gsm8k", the id of a dataset; `LLMType.GPT4oMINI` is "gpt-4o-mini",
the name of an LLM. Any other text works wherever these do. The spelling is the reference package's,
mistakes included, because code out there uses it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, get_args


class ReferenceDataset(StrEnum):
    """What the reference package says of a dataset's answers."""

    @property
    def is_big_bench(self) -> bool:
        """Whether it is one of the eleven tasks of BIG-Bench Hard."""
        return self.name.startswith("BIGBENCH_")

    @property
    def is_output_number(self) -> bool:
        """Whether the reference package counts its answers among numbers: GSM8K, SVAMP and
        MATH-500.
        """
        return self.name in {"GSM8K", "SVAMP", "MATH_500"}

    @property
    def is_output_choice(self) -> bool:
        """Whether the reference package counts its answers among choices: AQuA, CommonsenseQA,
        SVAMP (too) and BIG-Bench Hard.
        """
        return self.name in {"AQUA", "CommonsenseQA", "SVAMP"} or self.is_big_bench


class DatasetType(ReferenceDataset):
    """The sixteen datasets of the paper."""

    AQUA = "aqua"
    CommonsenseQA = "commonsense_qa"
    GSM8K = "gsm8k"
    SVAMP = "svamp"
    MATH_500 = "math_500"
    BIGBENCH_DATE = "bbh_date_understanding"
    BIGBENCH_CAUSALJUDGEMENT = "bbh_causal_judgement"
    BIGBENCH_MOVIE_RECOMENDATION = "bbh_movie_recommendation"
    BIGBENCH_FORMAL_FALLACIES = "bbh_formal_fallacies"
    BIGBENCH_DisambiguationQA = "bbh_disambiguation_qa"
    BIGBENCH_SNARKS = "bbh_snarks"
    BIGBENCH_SPORTS = "bbh_sports_understanding"
    BIGBENCH_GEOMETRIC_SHAPES = "bbh_geometric_shapes"
    BIGBENCH_PENGUINS = "bbh_penguins_in_a_table"
    BIGBENCH_RUIN_NAMES = "bbh_ruin_names"
    BIGBENCH_TEMPORAL_SEQUENCES = "bbh_temporal_sequences"


class LLMType(StrEnum):
    """The fourteen LLMs of the reference package."""

    DeepSeekV3 = "deepseek-ai/DeepSeek-V3"
    LLaMA70B33 = "meta-llama/Llama-3.3-70B-Instruct"
    LLaMA8B31 = "meta-llama/Meta-Llama-3.1-8B-Instruct"
    LLaMA405B31 = "meta-llama/Meta-Llama-3.1-405B-Instruct"
    LLaMA3B32 = "meta-llama/Llama-3.2-3B-Instruct"
    LLaMA1B32 = "meta-llama/Llama-3.2-1B-Instruct"
    Qwen1B25 = "Qwen/Qwen2.5-1.5B-Instruct"
    Qwen32B25 = "Qwen/Qwen2.5-32B-Instruct"
    Qwen72B25 = "Qwen/Qwen2.5-72B-Instruct"
    Mixtral8x7B = "mistralai/Mixtral-8x7B-Instruct-v0.1"
    Mixtral8x22B = "mistralai/Mixtral-8x22B-Instruct-v0.1"
    GPT3 = "gpt-3.5-turbo"
    GPT4oMINI = "gpt-4o-mini"
    o3MINI = "o3-mini"  # noqa: N815 - the reference package spells it so

    @property
    def is_reasoning_model(self) -> bool:
        """Whether it reasons before it replies: of these, o3-mini alone."""
        return self is LLMType.o3MINI


def base_of(llm: str) -> str:
    """Return the name of an LLM without its variant, such as "gpt-4o-mini" of "gpt-4o-mini@t=0.8":
    it finds card, price and speed.
    """
    return llm.partition("@")[0]


FinishReason = Literal[
    "stop", "length", "tool_calls", "content_filter", "function_call", "error", "unknown", "refusal"
]
"""Why a CoT ended: OpenAI's words, plus `error` (the provider failed), `unknown` (the source does
not say) and `refusal` (the text says why the LLM refuses).
"""

# The order is part of the votes file: a finish reason is stored as its position here. Append only.
FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)

UNANSWERED: tuple[FinishReason, ...] = ("content_filter", "error", "refusal")
"""Reasons that leave no answer: the text is not all the LLM's."""

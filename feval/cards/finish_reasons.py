"""Why a CoT ended: the words, and their order in the files of a recording."""

from __future__ import annotations

from typing import Literal, get_args

FinishReason = Literal[
    "stop", "length", "tool_calls", "content_filter", "function_call", "error", "unknown"
]
"""Why a CoT ended: OpenAI's words, plus `error` (the provider failed) and `unknown` (the source
does not say).
"""

# The order is part of the votes file: a finish reason is stored as its position here. Append only.
FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)

UNANSWERED: tuple[FinishReason, ...] = ("content_filter", "error")
"""Reasons that leave no answer: the text is not all the LLM's."""

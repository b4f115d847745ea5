"""The recorded CoTs of a question, read once and cached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

from feval.cards.finish_reasons import FINISH_REASONS
from feval.replay import LLM
from feval.serving.matching import settings
from feval.serving.matching.cache import BoundedCache

_MAX_BYTES = 256 << 20  # the CoTs of three LLMs on GSM8K's test set fit, so that sweeps over them read once
_CALLS = ("tool_calls", "function_call")
_OVERHEAD = 120  # bytes that a text takes besides its characters


@dataclass(frozen=True, slots=True)
class CotTexts:
    """The CoTs of one LLM on one question, in recorded order.

    Attributes:
        texts: each CoT's text; `None` where the recording has none.
        finish_reasons: as recorded; "unknown" where the recording has none.
        reasoning: the recorded reasoning of each CoT, `None` where there is none.
        reasoning_tokens: how many output tokens of each CoT were reasoning; `None` where that is not known, of one or of all.
        tool_calls: how many of them are calls of tools, which recordings do not hold: by their finish reason, or because nothing
            was said where tools were offered (a call that was forced ends with "stop").
    """

    texts: Sequence[str | None]
    finish_reasons: Sequence[str]
    reasoning: Sequence[str | None]
    reasoning_tokens: Sequence[int | None] | None
    tool_calls: int

    def reasoning_tokens_of(self, samples: Iterable[int]) -> int | None:
        """Return how many output tokens of some CoTs were reasoning; `None` unless it is known of all of them."""
        if self.reasoning_tokens is None:
            return None
        counts = [self.reasoning_tokens[sample] for sample in samples]
        return None if None in counts else sum(count or 0 for count in counts)


class TextCache:
    """Reads CoTs of recorded LLMs, and caches them; questions that lie together on disk are read together."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._cache: BoundedCache[tuple[LLM, int], CotTexts] = BoundedCache(max_bytes)
        self._reading = Lock()  # a Parquet file is read by one thread at a time

    def of(self, llm: LLM, row: int) -> CotTexts:
        """Return the CoTs of a question (by its row)."""
        cots = self._cache.get((llm, row))
        if cots is None:
            with self._reading:
                cots = self._cache.get((llm, row)) or self._read(llm, row)
        return cots

    def _read(self, llm: LLM, row: int) -> CotTexts:
        near = llm.texts_near(row)
        if "reasoning" in llm.recording.channels(llm.dataset, llm.name):  # long, and not stored beside the texts
            near = {row: near[row]}
        cots = {place: _cots(llm, place, texts) for place, texts in near.items()}
        for place, each in cots.items():
            size = sum(len(text or "") + _OVERHEAD for text in (*each.texts, *each.reasoning))
            self._cache.put((llm, place), each, size)
        return cots[row]


def _cots(llm: LLM, row: int, texts: list[str | None]) -> CotTexts:
    size = len(texts)
    reasons = [FINISH_REASONS[number] for number in llm.pool.finish[row, :size].tolist()]
    has_tools = any(settings.recorded(llm.info, name) for name in settings.OFFERS)
    calls = [
        reason in _CALLS or (has_tools and text == "" and reason == "stop")
        for text, reason in zip(texts, reasons, strict=True)
    ]
    return CotTexts(
        texts, reasons, llm.reasoning(row) or [None] * size, llm.reasoning_tokens.get(llm.question_ids[row]), sum(calls)
    )

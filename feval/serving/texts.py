"""The recorded CoTs of a question, read once and cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from feval.answers.thoughts import Mark
from feval.cards.names import FINISH_REASONS
from feval.replay import LLM
from feval.serving.matching import settings
from feval.serving.matching.cache import BoundedCache

# the CoTs of three LLMs on GSM8K's test set fit, so that sweeps over them read once
_MAX_BYTES = 256 << 20
_CALLS = ("tool_calls", "function_call")
_OVERHEAD = 120  # bytes that a CoT takes besides its characters


class ServedCot(NamedTuple):
    """A CoT as a request gets it.

    Attributes:
        text: the reply; `None` where the recording has none.
        reasoning: the thoughts before it; `None` where there are none.
        finish_reason: "unknown" where the recording has none.
        tokens: output tokens.
        reasoning_tokens: how many of them were reasoning; `None` where that is not known.
        is_cut: whether a stop or a limit of the request ended it before it ended by itself.
        is_limited: whether it was recorded up to a limit that is below the one asked for, and might
            have gone on.
        answer: the one recorded, or what is read in the text of a CoT that is cut; `None` also
            where the request cuts none.
    """

    text: str | None
    reasoning: str | None
    finish_reason: str
    tokens: int
    reasoning_tokens: int | None
    is_cut: bool = False
    is_limited: bool = False
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class CotTexts:
    """The CoTs of one LLM on one question, in recorded order.

    Attributes:
        texts: the text of each; `None` where the recording has none.
        reasoning: the thoughts before it; `None` where there are none, of one or of all.
        finish_reasons: as recorded; "unknown" where the recording has none.
        tokens: output tokens of each.
        reasoning_tokens: how many of them were reasoning; `None` where that is not known, of one or
            of all.
        marks: where the reasoning of each was in its raw text; `None` where it was not, of one or
            of all.
        tool_calls: how many of them are calls of tools, which recordings do not hold: by their
            finish reason, or because nothing was said where tools were offered (a call that was
            forced ends with "stop").
        made: those that were served, by place.
    """

    texts: Sequence[str | None]
    reasoning: Sequence[str | None] | None
    finish_reasons: Sequence[str]
    tokens: Sequence[int]
    reasoning_tokens: Sequence[int | None] | None
    marks: Sequence[tuple[Mark, ...] | None] | None
    tool_calls: int
    made: dict[int, ServedCot] = field(default_factory=dict)

    def whole(self, sample: int) -> ServedCot:
        """Return a CoT as it was recorded; it is made once."""
        if sample not in self.made:
            self.made[sample] = ServedCot(
                self.texts[sample],
                None if self.reasoning is None else self.reasoning[sample],
                self.finish_reasons[sample],
                self.tokens[sample],
                None if self.reasoning_tokens is None else self.reasoning_tokens[sample],
            )
        return self.made[sample]


class TextCache:
    """Reads CoTs of recorded LLMs, and caches them; questions that lie together on disk are read
    together.
    """

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
        # long, and not stored beside the texts
        if "reasoning" in llm.recording.channels(llm.dataset, llm.name):
            near = {row: near[row]}
        cots = {place: _cots(llm, place, texts) for place, texts in near.items()}
        for place, each in cots.items():
            size = sum(
                len(text or "") + _OVERHEAD for text in (*each.texts, *(each.reasoning or ()))
            )
            self._cache.put((llm, place), each, size)
        return cots[row]


def _cots(llm: LLM, row: int, texts: list[str | None]) -> CotTexts:
    size = len(texts)
    reasons = [FINISH_REASONS[number] for number in llm.pool.finish[row, :size].tolist()]
    calls = sum(reason in _CALLS for reason in reasons)
    if "" in texts and any(settings.recorded(llm.info, name) for name in settings.OFFERS):
        calls += sum(
            text == "" and reason == "stop" for text, reason in zip(texts, reasons, strict=True)
        )
    hidden = llm.reasoning_tokens.get(llm.question_ids[row])
    tokens = llm.pool.output_tokens[row, :size].tolist()
    return CotTexts(texts, llm.reasoning(row), reasons, tokens, hidden, llm.marks(row), calls)

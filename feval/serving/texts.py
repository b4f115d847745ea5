"""The CoTs of a question as pieces of a JSON reply, made once and kept within bounds."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import orjson

from feval.cards.schema import FINISH_REASONS
from feval.replay import LLM
from feval.serving import replies
from feval.serving.kept import Kept

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["UNKNOWN_FINISH", "Prepared", "Texts"]

_MOST_BYTES = (
    384 << 20
)  # in two halves; the CoTs of three LLMs on GSM8K's test set fit one, so that sweeps over them read once
_OVERHEAD = 120  # bytes that a text takes besides its own
_NO_TEXT = b"null"
_ENDINGS = tuple(replies.ending("chat", replies.finish_word(reason)) for reason in FINISH_REASONS)

UNKNOWN_FINISH = FINISH_REASONS.index("unknown")
"""Place of the finish reason that was not recorded."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The CoTs of one LLM on one question, in recorded order.

    Attributes:
        closed: each text as JSON, `null` where the recording has none, with what stands behind it in a choice of a chat.
        tokens: output tokens.
        finishes: places of the finish reasons in `feval.cards.schema.FINISH_REASONS`.
        prompt_tokens: of the question; -1 where they were not recorded.
        texts: how many have one.
        usual: whether every CoT has a text and a finish reason that is known.
        thoughts: the recorded reasoning of each CoT as further fields of a message, which stand in `closed` behind the text;
            empty where there is none.
        reasoning_tokens: how many of the output tokens were thoughts; `None` where it is not known, of a CoT or of all.
    """

    closed: tuple[bytes, ...]
    tokens: array[int]
    finishes: bytes
    prompt_tokens: int
    texts: int
    usual: bool
    thoughts: tuple[bytes, ...]
    reasoning_tokens: Sequence[int | None] | None

    def content(self, sample: int) -> bytes:
        """The text of a CoT as JSON."""
        return self.closed[sample][: -len(_ENDINGS[self.finishes[sample]]) - len(self.thoughts[sample])]

    def message(self, sample: int) -> bytes:
        """The text of a CoT as JSON, and its reasoning as further fields."""
        return self.closed[sample][: -len(_ENDINGS[self.finishes[sample]])]

    def reasoning_tokens_of(self, samples: Iterable[int]) -> int | None:
        """How many output tokens of some CoTs were thoughts; `None` where that is not known of all."""
        counts = [None if self.reasoning_tokens is None else self.reasoning_tokens[sample] for sample in samples]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None


class Texts:
    """CoTs of recorded LLMs, ready to be sent. Questions that are read together are kept together.

    Args:
        most_bytes: how much may be kept.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._kept: Kept[tuple[LLM, int], Prepared] = Kept(most_bytes)
        self._reading = Lock()  # a Parquet file is read by one thread at a time

    def of(self, llm: LLM, row: int) -> Prepared:
        """Return the CoTs of a question (by its row).

        Raises:
            DamagedRecordingError: the recording cannot be read.
        """
        found = self._kept.get((llm, row))
        if found is not None:
            return found
        with self._reading:
            return self._kept.get((llm, row)) or self._read(llm, row)

    def _read(self, llm: LLM, row: int) -> Prepared:
        finishes = llm.pool.finish
        near = llm.texts_near(row)
        if llm.recording.has_reasoning(llm.dataset, llm.name):  # long, and not read with the replies
            near = {row: near[row]}
        made = {place: _prepared(llm, place, finishes, texts) for place, texts in near.items()}
        for place, prepared in made.items():
            self._kept.put((llm, place), prepared, sum(map(len, prepared.closed)) + _OVERHEAD * len(prepared.closed))
        return made[row]


def _prepared(llm: LLM, row: int, reasons: npt.NDArray[np.integer[Any]], texts: list[str | None]) -> Prepared:
    size = len(texts)
    finishes = bytes(reasons[row, :size].tolist())
    known = sum(text is not None for text in texts)
    thoughts = tuple(map(_fields, llm.reasoning(row) or [None] * size))
    return Prepared(
        tuple(
            (_NO_TEXT if text is None else orjson.dumps(text)) + thought + _ENDINGS[finish]
            for text, thought, finish in zip(texts, thoughts, finishes, strict=True)
        ),
        array("q", llm.pool.output_tokens[row, :size].tolist()),
        finishes,
        int(llm.pool.prompt_tokens[row]),
        known,
        known == size and UNKNOWN_FINISH not in finishes,
        thoughts,
        llm.reasoning_tokens.get(llm.question_ids[row]),
    )


def _fields(reasoning: str | None) -> bytes:
    """A recorded reasoning under both names that clients know."""
    said = orjson.dumps(reasoning) if reasoning else b""
    return b',"reasoning":%b,"reasoning_content":%b' % (said, said) if said else b""

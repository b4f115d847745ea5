"""CoTs cut where a live LLM would have ended them: at a text of `stop`, or at a limit on output
tokens.

What comes before a cut does not depend on it, so that a recorded CoT can be cut, if its tokens can
be counted here as they were when it was recorded. A text of `stop` ends a reply, never thoughts; a
limit counts thoughts first, then the reply.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

from feval.answers import extract
from feval.answers.thoughts import Mark, Split, apart, beginning, join, of_content_blocks, raw_place
from feval.cards import FINISH_REASONS
from feval.cards.tokens import beginnings, is_usage
from feval.errors import FevalError
from feval.replay import LLM
from feval.serving.library import BoundedCache
from feval.serving.matcher import Match
from feval.serving.settings import Bounds
from feval.serving.wire.calls import MissError

_SHOWN = 60
_beginnings = lru_cache(beginnings)  # of what raises, nothing is kept


def cut_cots(match: Match, cots: Sequence[ServedCot], samples: Sequence[int]) -> list[ServedCot]:
    """Return some CoTs of a matched question as the request gets them.

    Raises:
        MissError: one would be cut, and where cannot be told.
    """
    if match.bounds is None:
        return [cots[sample] for sample in samples]
    return [_within(match.bounds, match, cots[sample]) for sample in samples]


def _within(bounds: Bounds, match: Match, whole: ServedCot) -> ServedCot:
    sample = whole.sample
    hidden = 0 if whole.reasoning is not None else whole.reasoning_tokens or 0
    limit = bounds.limit
    if limit is not None and whole.tokens <= limit:
        limit = None
    if limit is not None and hidden >= limit:  # it ends in thoughts that nobody saw
        tokens = min(whole.tokens, limit)
        return whole._replace(
            text="",
            tool_calls=None,
            finish_reason="length",
            tokens=tokens,
            reasoning_tokens=tokens,
            is_cut=True,
        )
    if limit is None and not any(stop in (whole.text or "") for stop in bounds.stops):
        may_go_on = bounds.is_longer and (bounds.limit is None or whole.tokens < bounds.limit)
        answer = match.llm.answers(match.row, [sample])[0]
        is_limited = may_go_on and whole.finish_reason == "length"
        return whole._replace(is_limited=is_limited, answer=answer)
    why = "its text was not recorded"
    counter = None
    try:
        counter = _beginnings(match.llm.counter)
    except FevalError as error:
        why = str(error).rstrip(".")
        if is_usage(match.llm.counter):
            why = "the provider counted them, and its tokenizer is not at hand"
    if counter is None or whole.text is None or whole.tool_calls:
        why = "it calls tools" if whole.tool_calls else why
        field, what, advice = "stop", "a text of stop", "leave stop out"
        if limit is not None:
            field, what = bounds.field, f"{bounds.field} {limit:,}"
            advice = f"ask for {field} {whole.tokens:,} or more"
        raise MissError(
            f"Recorded CoT {sample} of {match.llm.name} on {match.question[:_SHOWN]!r} of"
            f" {match.llm.dataset} has {whole.tokens:,} output tokens and would be cut by"
            f" {what}, but its tokens cannot be counted here: {why}. Ask a live LLM, or"
            f" {advice}.",
            parameter=field,
        )
    marks = whole.marks or ()
    room = sys.maxsize if limit is None else limit - hidden
    # as a server sends them: thoughts in a field of their own
    marks = () if of_content_blocks(marks) else marks
    thoughts = apart(whole.reasoning or "", marks) or ""
    kept = counter(thoughts, room)
    room = room - kept.tokens if kept.text == thoughts else 0
    inline = counter(join(whole.text, whole.reasoning, marks), room)
    parts = beginning(whole.text, whole.reasoning, marks, len(inline.text))
    # the earliest stop in the reply
    places = [place for stop in bounds.stops if (place := parts.reply.find(stop)) >= 0]
    if places:
        end = raw_place(min(places), marks)
        parts = beginning(whole.text, whole.reasoning, marks, end)
        inline = counter(inline.text[:end], sys.maxsize)
    parts = replace(parts, reasoning=kept.text + (parts.reasoning or "") or None)
    tokens = min(hidden + kept.tokens + inline.tokens, whole.tokens)
    thought = whole.reasoning_tokens
    return ServedCot(
        sample,
        parts.reply,
        parts.reasoning,
        "stop" if places else "length",
        tokens,
        None if thought is None else min(thought, tokens),
        is_cut=True,
        answer=_answer(match, parts),
    )


def _answer(match: Match, parts: Split) -> str | None:
    """The answer in what is left of a CoT; `None` also where answers are stored ones, which are
    read in no text.
    """
    dataset = match.served.dataset
    kind = match.llm.recording.dataset_info(dataset.id).answer_kind
    if kind == "verbatim" or not parts.answers or not parts.reply.strip():
        return None
    with match.served.lock:
        return dataset.answer_key(match.row, extract(kind, parts.reply, dataset[match.row].choices))


# the CoTs of three LLMs on GSM8K's test set fit, so that sweeps over them read once
_MAX_BYTES = 256 << 20
_OVERHEAD = 250  # bytes that a CoT takes besides its characters


class ServedCot(NamedTuple):
    """A CoT as a request gets it.

    Attributes:
        sample: its recorded position.
        text: the reply; `None` where the recording has none.
        reasoning: the thoughts before it; `None` where there are none.
        finish_reason: "unknown" where the recording has none.
        tokens: output tokens.
        reasoning_tokens: how many of them were reasoning; `None` where that is not known.
        marks: where the reasoning was in the raw text; `None` where it was not.
        tool_calls: what it calls, as `Recording.tool_calls` has it.
        is_cut: whether a stop or a limit of the request ended it before it ended by itself.
        is_limited: whether it was recorded up to a limit that is below the one asked for, and might
            have gone on.
        answer: the one recorded, or what is read in the text of a CoT that is cut; `None` also
            where the request cuts none.
    """

    sample: int
    text: str | None = None
    reasoning: str | None = None
    finish_reason: str = "unknown"
    tokens: int = 0
    reasoning_tokens: int | None = None
    marks: tuple[Mark, ...] | None = None
    tool_calls: str | None = None
    is_cut: bool = False
    is_limited: bool = False
    answer: str | None = None

    @property
    def tokens_if_cut(self) -> int | None:
        """The output tokens of a CoT that is cut; `None` of a whole one, for all of them."""
        return self.tokens if self.is_cut else None


class TextCache:
    """Reads CoTs of recorded LLMs, and caches them; questions that lie together on disk are read
    together.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._cache: BoundedCache[tuple[LLM, int], list[ServedCot]] = BoundedCache(max_bytes)
        self._reading = Lock()  # a Parquet file is read by one thread at a time

    def of(self, llm: LLM, row: int) -> list[ServedCot]:
        """Return the CoTs of a question (by its row)."""
        cots = self._cache.get((llm, row))
        if cots is None:
            with self._reading:
                cots = self._cache.get((llm, row)) or self._read(llm, row)
        return cots

    def _read(self, llm: LLM, row: int) -> list[ServedCot]:
        near = llm.texts_near(row)
        # long, and not stored beside the texts
        if {"reasoning", "calls"} & {*llm.recording.channels(llm.dataset, llm.name)}:
            near = {row: near[row]}
        read = {}
        for place, texts in near.items():
            size = len(texts)
            unknown = [None] * size
            thoughts = llm.reasoning(place) or unknown
            whole = zip(
                range(size),
                texts,
                thoughts,
                map(FINISH_REASONS.__getitem__, llm.pool.finish[place, :size].tolist()),
                llm.pool.output_tokens[place, :size].tolist(),
                llm.reasoning_tokens.get(llm.question_ids[place]) or unknown,
                llm.marks(place) or unknown,
                llm.tool_calls(place) or unknown,
                strict=True,
            )
            read[place] = [ServedCot(*each) for each in whole]
            characters = sum(len(text or "") for text in (*texts, *thoughts))
            self._cache.put((llm, place), read[place], characters + size * _OVERHEAD)
        return read[row]

"""Recorded questions in prompts: a search of a message for thousands of texts at once, and the
words that a request puts around the question it asks.

Every text is indexed by its first characters (its anchor). Anchors of one length are searched
together: all windows of that length in the message are hashed as arrays, a table of 64 K bits
rejects nearly every window that begins no text, and the rest are compared character by character.
So the time grows with the message and hardly with the number of texts.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feval.serving.wire.openai import Conversation
from feval.values import Record, RecordLike

_ANCHORS = (16, 4, 1)  # powers of two: a window's hash is made by doubling
_MULTIPLIER = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_TABLE_BITS = 16
_WINDOW = 32  # a power of two, too

_SHORT = 16
_OPENING = "\"'`([{<:>“‘«「『（【："
_CLOSING = "\"'`)]}<>?!.,;:”’»」』）】。、？！"

UInt64 = npt.NDArray[np.uint64]


class TextHit(NamedTuple):
    """An occurrence of the texts with these numbers in a normalised message, from `start` to `stop`
    in characters.
    """

    start: int
    stop: int
    numbers: tuple[int, ...]


def normal(text: str) -> str:
    """Return a text as it is compared: with line feeds as line ends and Unicode in form C."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if text.isascii() else unicodedata.normalize("NFC", text)


class TextIndex:
    """Texts (numbered from 0) to find in messages, each without white space at its ends; empty ones
    are never found.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for number, text in enumerate(texts):
            if stripped := normal(text).strip():
                numbers[stripped].append(number)
        self._numbers = {text: tuple(equal) for text, equal in numbers.items()}
        groups: defaultdict[int, list[str]] = defaultdict(list)
        for text in self._numbers:
            groups[next(length for length in _ANCHORS if len(text) >= length)].append(text)
        self._anchors = [_AnchorTable(*group) for group in groups.items()]

    def outermost(self, message: str) -> list[TextHit]:
        """Return the texts that occur in a message, in order; none inside a longer one.

        A text that begins or ends with an ASCII letter or digit is not found inside a longer word
        or number. One of fewer than 16 characters, such as "2+2", is found only where white space,
        quotes, brackets or punctuation enclose it.
        """
        message = normal(message)
        hits = sorted(
            (
                (start, start + len(text), text)
                for table in self._anchors
                for start, text in table.find(message)
            ),
            key=lambda hit: (hit[0], -hit[1]),
        )
        outer: list[TextHit] = []
        for start, stop, text in hits:
            if not outer or stop > outer[-1].stop:
                outer.append(TextHit(start, stop, self._numbers[text]))
        return outer


def occurrences(message: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of every occurrence of a stripped text in a message, both normal, as
    `TextIndex` finds it.
    """
    start = message.find(text) if text else -1
    while start >= 0:
        stop = start + len(text)
        if _stands_alone(message, start, stop):
            yield start, stop
        start = message.find(text, stop)


def common_passages(message: str, texts: Iterable[str], length: int) -> Iterator[str]:
    """Yield passages of `length` characters that a normal message shares with normal texts; none
    reaches across a NUL.

    Every shared passage contains a window of a text that begins at a multiple of `step`, so only
    these are looked up.
    """
    joined = "\0".join(texts)
    if min(len(message), len(joined)) < length:
        return
    step = length - _WINDOW + 1
    hashes = _windows(joined, _WINDOW)[::step]
    for window in (np.flatnonzero(np.isin(hashes, _windows(message, _WINDOW))) * step).tolist():
        for start in range(max(window - step + 1, 0), window + 1):
            passage = joined[start : start + length]
            if len(passage) == length and "\0" not in passage and passage in message:
                yield passage


class _AnchorTable:
    """Texts by their first `length` characters."""

    def __init__(self, length: int, texts: Sequence[str]) -> None:
        self._length = length
        self._texts: defaultdict[str, list[str]] = defaultdict(list)
        for text in texts:
            self._texts[text[:length]].append(text)
        self._table = np.zeros(1 << _TABLE_BITS, np.bool_)
        self._table[
            _windows("".join(self._texts), length)[::length] >> np.uint64(64 - _TABLE_BITS)
        ] = True

    def find(self, message: str) -> Iterator[tuple[int, str]]:
        """Yield (start, text) of every occurrence of a text in a message."""
        if len(message) < self._length:
            return
        passed = self._table[_windows(message, self._length) >> np.uint64(64 - _TABLE_BITS)]
        for start in np.flatnonzero(passed).tolist():
            for text in self._texts.get(message[start : start + self._length], ()):
                if message.startswith(text, start) and _stands_alone(
                    message, start, start + len(text)
                ):
                    yield start, text


def _windows(text: str, length: int) -> UInt64:
    """Hash of every window of `length` characters: the sum of characters times powers of an odd
    number, modulo 2^64.
    """
    hashes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    hashes += np.uint64(1)
    reach, power = 1, _MULTIPLIER
    while reach < length:
        hashes = hashes[:-reach] * np.uint64(power) + hashes[reach:]
        reach, power = 2 * reach, power * power & _MASK
    # The high bits choose the place in the table; one more product carries the low ones up there.
    return hashes * np.uint64(_MULTIPLIER)


def _stands_alone(message: str, start: int, stop: int) -> bool:
    before, after = message[max(start - 1, 0) : start], message[stop : stop + 2]
    if stop - start < _SHORT:
        return (not before or before.isspace() or before in _OPENING) and (
            not after
            or after[0].isspace()
            or (after[0] in _CLOSING and (len(after) == 1 or not after[1].isalnum()))
        )
    return not (_in_word(before) and _in_word(message[start])) and not (
        _in_word(after[:1]) and _in_word(message[stop - 1])
    )


def _in_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


_PLACEHOLDER = "<question>"
_WIDEST_HEADING = 40  # characters between a question and its first option
_WIDEST_LABEL = 16  # between one option and the next
_SHOWN = 60
_NAMED = 5
_MAX_USES = 100
_OTHERS = "others"


def template_of(
    conversation: Conversation, question: str, choices: Sequence[str] = (), *, first: int = 0
) -> str | None:
    """Return the words around a question: all messages with a placeholder for it and its options;
    `None` if no message has its text.

    `first` is where the question begins in the last user message, after exemplars, which belong to
    the template.
    """
    pieces = []
    has_question = False
    last = conversation.last_user_place
    for place, (role, text) in enumerate(conversation.messages):
        text = normal(text)
        spans = question_spans(text, question, choices)
        if first:
            spans = [span for span in spans if place == last and span[0] >= first]
        has_question = has_question or bool(spans)
        pieces.append(f"{role}: {_PLACEHOLDER.join(outside(text, spans))}")
    return "\n".join(pieces) if has_question else None


def template_digest(template: str) -> str:
    """Return 16 hex digits that name a template."""
    return blake2b(template.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def question_spans(text: str, question: str, choices: Sequence[str] = ()) -> list[tuple[int, int]]:
    """Return (start, stop) of every occurrence of a question in a normal text, with the options if
    all of them follow it.
    """
    options = [option for choice in choices if (option := normal(choice).strip())]
    return [
        (start, _end(text, stop, options))
        for start, stop in occurrences(text, normal(question).strip())
    ]


def outside(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Return the pieces of a text before, between and after some spans, which are sorted and may
    overlap.
    """
    pieces, end = [], 0
    for start, stop in spans:
        if start >= end:
            pieces.append(text[end:start])
        end = max(end, stop)
    return [*pieces, text[end:]]


def _end(text: str, stop: int, options: Sequence[str]) -> int:
    """Return where the list of options after a question ends; `stop` unless all of them follow."""
    left, end, gap = list(options), stop, _WIDEST_HEADING
    while left:
        reach = [
            (place, option)
            for option in left
            if (place := text.find(option, end, end + gap + len(option))) >= 0
        ]
        if not reach:
            return stop
        place, option = min(reach, key=lambda one: (one[0], -len(one[1])))
        left.remove(option)
        end, gap = place + len(option), _WIDEST_LABEL
    return end


class PromptUse(NamedTuple):
    """How a request put a question: the template's digest if known, how it matched, and the field
    that mismatched, if any.
    """

    dataset: str
    digest: str | None
    match: str
    mismatch: str | None = None


def use_of_entry(entry: RecordLike) -> PromptUse:
    """Return how a request of a ledger file put its question."""
    return PromptUse(entry["dataset"], entry["template"], entry["match"], entry.get("mismatch"))


class PromptCounts:
    """The prompt templates of one run, with how often it used each."""

    def __init__(self) -> None:
        self._counts: dict[PromptUse, int] = {}
        self._examples: dict[tuple[str, str], list[str]] = {}

    def count(self, use: PromptUse) -> bool:
        """Count a request; return whether its kind is new to the run. Beyond 100 kinds, new ones
        are counted together.
        """
        count = self._counts.get(use)
        if count is not None:
            self._counts[use] = count + 1
            return False
        has_room = len(self._counts) < _MAX_USES
        key = use if has_room else use._replace(digest=_OTHERS)
        self._counts[key] = self._counts.get(key, 0) + 1
        return has_room

    def first(self, dataset: str) -> str | None:
        """Return the digest of the first template that the run used on a dataset; `None` if it used
        none.
        """
        for use in self._counts:
            if use.dataset == dataset and use.digest is not None:
                return use.digest
        return None

    def add_example(self, dataset: str, digest: str, example: Sequence[str]) -> None:
        """Store how the first template of the run and another one read where they begin to
        differ.
        """
        self._examples[dataset, digest] = list(example)

    def count_entry(self, entry: RecordLike) -> None:
        """Count a request of a ledger file."""
        use = use_of_entry(entry)
        self.count(use)
        if use.digest is not None and entry.get("example"):
            self.add_example(use.dataset, use.digest, entry["example"])

    def to_list(self) -> list[Record]:
        """Return an object per template: dataset, template (digest or null), requests, matches,
        mismatches and example.
        """
        joined: dict[tuple[str, str | None], Record] = {}
        for use, count in self._counts.items():
            row = joined.setdefault(
                (use.dataset, use.digest), {"requests": 0, "matches": {}, "mismatches": {}}
            )
            row["requests"] += count
            row["matches"][use.match] = row["matches"].get(use.match, 0) + count
            if use.mismatch is not None:
                row["mismatches"][use.mismatch] = row["mismatches"].get(use.mismatch, 0) + count
        return [
            {
                "dataset": dataset,
                "template": digest,
                **row,
                "example": self._examples.get((dataset, digest or "")),
            }
            for (dataset, digest), row in joined.items()
        ]


def prompt_remarks(prompts: Sequence[RecordLike]) -> list[str]:
    """Return what a reader of a run's results should know about its prompts (of one dataset), as
    sentences.
    """
    remarks = []
    known = sorted(
        (use for use in prompts if use["template"] is not None), key=lambda use: -use["requests"]
    )
    if len(known) > 1:
        counts = ", ".join(f"{use['requests']:,}" for use in known[:_NAMED]) + ", ..." * (
            len(known) > _NAMED
        )
        example = next((use["example"] for use in known if use["example"]), None)
        shown = (
            f" For example, {example[0]!r} in one reads {example[1]!r} in another."
            if example
            else ""
        )
        more = " or more" if any(use["template"] == _OTHERS for use in known) else ""
        remarks.append(
            f"The run put {len(known)}{more} different prompts around the questions ({counts}"
            f" requests), which recorded CoTs do not reflect.{shown}"
        )
    mismatches = Counter[str]()
    for use in prompts:
        mismatches.update(use["mismatches"])
    if mismatches:
        fields = ", ".join(f"{field}: {count:,}" for field, count in mismatches.items())
        remarks.append(
            "Requests that no recorded CoT can answer were answered because of --allow-mismatch: "
            f"{mismatches.total():,} ({fields})."
        )
    return remarks


def excerpts(one: str, other: str) -> tuple[str, str]:
    """Return an excerpt of each of two texts, from a little before the first character in which
    they differ.
    """
    place = next(
        (n for n, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs),
        None,
    )
    start = max((min(len(one), len(other)) if place is None else place) - _SHOWN // 3, 0)
    return _excerpt(one, start), _excerpt(other, start)


def _excerpt(text: str, start: int) -> str:
    stop = start + _SHOWN
    return f"{'...' * (start > 0)}{text[start:stop]}{'...' * (stop < len(text))}"

"""Search of a message for thousands of texts at once.

Every text is indexed by its first characters (its anchor). Anchors of one length are searched
together: all windows of that length in the message are hashed as arrays, a table of 64 K bits
rejects nearly every window that begins no text, and the rest are compared character by character.
So the time grows with the message and hardly with the number of texts.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_ANCHORS = (16, 4, 1)  # powers of two: a window's hash is made by doubling
_MULTIPLIER = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_TABLE_BITS = 16
_WINDOW = 32  # a power of two, too

_SHORT = 16
_OPENING = "\"'`([{<:>“‘«「『（【："
_CLOSING = "\"'`)]}<>?!.,;:”’»」』）】。、？！"

UInt64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class TextHit:
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
        self._anchors = [
            _AnchorTable(length, group) for length, group in _by_anchor(self._numbers).items()
        ]

    def __len__(self) -> int:
        return len(self._numbers)

    def equal(self, text: str) -> tuple[int, ...]:
        """Return the numbers of the texts equal to this one."""
        return self._numbers.get(normal(text).strip(), ())

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


def _by_anchor(texts: Iterable[str]) -> dict[int, list[str]]:
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for text in texts:
        groups[next(length for length in _ANCHORS if len(text) >= length)].append(text)
    return groups


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

"""Noise that LLMs share: coupled sampling by the Gumbel-max trick (arXiv 2502.01754, section 2).

Token v arrives at time E_v / p_v and the first one wins, with E_v exponential of mean 1 (Gumbel
noise is G_v = -ln E_v, and argmin E_v / p_v = argmax ln p_v + G_v). LLMs that are given the same
E_v differ in their answers only as their distributions do.

**The noise is a pure function** of (seed, dataset, question, sample index, position in the answer,
text of the token), by scheme `gumbel-v1`; no generator is advanced:

    question    h = the first eight bytes of SHA-256 of the JSON list
                ["feval/gumbel-v1", seed, dataset, question id]
    position    s = mix(mix(h + (sample + 1) g) + (position + 1) g)
    token       t = BLAKE2b-64 of its text in UTF-8
    noise       E = -ln(((mix(s + t) >> 12) + 1/2) / 2^52)

modulo 2^64, hashes read as little-endian, with g = 0x9E3779B97F4A7C15 and the finalizer `mix` of
SplitMix64 (docs/numbers.md). Since tokens are identified by their text, LLMs with different
vocabularies share noise wherever they share tokens. Temperature and top-p act on the probabilities
before the race.

All of this is the same on every machine except the logarithm, which NumPy's builds may round
differently in the last place; a draw changes only if two tokens arrive within one part in 10^15 of
each other. Logits differ by more between machines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b, sha256

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError

NOISE_SCHEME = "gumbel-v1"
"""Name of the scheme, as in recordings."""

END_OF_ANSWER = "\x00end"
"""The text that stands for every LLM's end-of-answer token, however its vocabulary spells it."""

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

_BYTE_LEVEL_BLANK, _PIECE_BLANK = "\u0120", "\u2581"
_LONE_BYTE = re.compile("<0x[0-9A-F]{2}>")
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_DIGITS = 52


class TokenNoise:
    """The noise of one vocabulary, given the text of every token by number.

    A vocabulary may hold the same text twice (a character, and its byte); each token of an LLM must
    have its own noise, so the second is identified by the text and its number among equals.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        seen: dict[str, int] = {}
        words = bytearray()
        for text in texts:
            number = seen.get(text, 0)
            seen[text] = number + 1
            name = text if not number else f"{text}\x00{number}"
            words += blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self._tokens: Words = np.frombuffer(bytes(words), "<u8").astype(np.uint64)

    def exponentials(self, question: int, samples: npt.ArrayLike, position: int) -> Floats:
        """Return the random numbers [rows, tokens] of samples [rows] at a position in the answer;
        never 0 nor infinite.
        """
        indices = np.asarray(samples, np.uint64)
        step = np.uint64((position + 1) * int(GOLDEN) % 2**64)
        starts = mixed(mixed(np.uint64(question) + (indices + np.uint64(1)) * GOLDEN) + step)
        return exponentials(starts[:, None] + self._tokens[None, :])


def question_noise(seed: int, dataset: str, question_id: str) -> int:
    """Return the 64-bit start of a question's noise, for a seed from 0 to 2^63 - 1."""
    if not 0 <= seed < 2**63:
        raise OutOfRangeError(
            f"The noise seed is {seed}; it must be a whole number from 0 to 2^63 - 1."
        )
    name = json.dumps([f"feval/{NOISE_SCHEME}", seed, dataset, question_id])
    return int.from_bytes(sha256(name.encode()).digest()[:8], "little")


def token_texts(tokens: Sequence[str], special: Sequence[int], ends: Sequence[int]) -> list[str]:
    """Return the texts of a Hugging Face vocabulary's tokens, whatever its spelling.

    Byte-level vocabularies write a space as U+0120 and every other byte as a printable letter;
    SentencePiece writes a space as U+2581 and single bytes as <0x0A>. All become the text they
    stand for (bytes that are no whole character: as surrogates). A byte whose letter is in the
    vocabulary too is never produced by the tokenizer, and keeps its spelling.

    Special tokens keep their spelling, after a zero character. The first of `ends`, which should be
    the one that ends a reply, becomes `END_OF_ANSWER`.
    """
    spelled = _spelling(tokens, set(special) | set(ends))
    marks = {number: f"\x00{tokens[number]}" for number in (*special, *ends)}
    if len(ends):
        marks[ends[0]] = END_OF_ANSWER
    return [marks.get(number) or spelled(token) for number, token in enumerate(tokens)]


def _spelling(tokens: Sequence[str], apart: set[int]) -> Callable[[str], str]:
    """Return what turns a token into its text, judging by the vocabulary."""
    words = [token for number, token in enumerate(tokens) if number not in apart]
    if any(_BYTE_LEVEL_BLANK in token for token in words):
        letters = _byte_letters()
        # A token that was added as plain text may hold letters that stand for no byte.
        return lambda token: (
            _text(bytes(letters[letter] for letter in token))
            if all(letter in letters for letter in token)
            else token
        )
    if any(_PIECE_BLANK in token for token in words):
        pieces = {token.replace(_PIECE_BLANK, " ") for token in words}
        return lambda token: _piece(token, pieces)
    return str


def _piece(token: str, pieces: set[str]) -> str:
    """Return the text of a SentencePiece token; a byte must not take the text of the letter that
    texts use.
    """
    if not _LONE_BYTE.fullmatch(token):
        return token.replace(_PIECE_BLANK, " ")
    text = _text(bytes([int(token[3:5], 16)]))
    return f"\x00{token}" if text in pieces else text


def _byte_letters() -> dict[str, int]:
    """Return the letter of each byte in a byte-level vocabulary: itself if Latin-1 prints it, else
    one from U+0100 on.
    """
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (byte for byte in range(256) if byte not in shown)
    return {chr(byte): byte for byte in shown} | {
        chr(0x100 + place): byte for place, byte in enumerate(hidden)
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def exponentials(words: Words) -> Floats:
    """Return an exponential random number for each 64-bit word; never 0 nor infinite.

    Of its mixed bits, the upper 52 and a half make a number inside (0, 1).
    """
    uniform = (mixed(words) >> np.uint64(64 - _DIGITS)).astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-_DIGITS
    np.log(uniform, out=uniform)
    return np.negative(uniform, out=uniform)


def mixed(x: Words) -> Words:
    """Return SplitMix64's finalizer of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

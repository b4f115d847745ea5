"""The tiny models' tokenizer: words of the problems, single digits, and every printable ASCII
character.

A plain list of strings (`vocabulary.json`); text is split greedily, the longest token first. A
word's token begins with the space before it; digits are single tokens, so that sums can be done
digit by digit. Printable ASCII and line feeds round-trip; any other character becomes `<unknown>`.
Special tokens are never read from text: "<end>" in a text is five characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

SPECIAL = ("<pad>", "<unknown>", "<question>", "<answer>", "<end>")
PAD, UNKNOWN, QUESTION, ANSWER, END = range(5)


class Tokenizer:
    """Text to token numbers and back; the special tokens come first in the vocabulary.

    Attributes:
        longest: characters of the longest token that is read from text.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        text_tokens = self.vocabulary[len(SPECIAL) :]
        self._numbers = {token: number for number, token in enumerate(text_tokens, len(SPECIAL))}
        longest_first = sorted(text_tokens, key=len, reverse=True)
        self.longest = len(longest_first[0])
        self._cut = re.compile("|".join(map(re.escape, longest_first)) + "|.", re.DOTALL)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; `UNKNOWN` for each character that is neither printable ASCII
        nor a line feed.
        """
        return [self._numbers.get(piece, UNKNOWN) for piece in self._cut.findall(text)]

    def lengths(self, answer: str) -> tuple[int, ...]:
        """Return the characters of an answer that each of its tokens writes; `<end>` is left
        out.
        """
        first, *others = map(len, map(self.piece, self.encode(f" {answer}")))
        return first - 1, *others

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; unknown characters are U+FFFD, the other special tokens are
        nothing.
        """
        return "".join(self.piece(token) for token in tokens)

    def piece(self, token: int) -> str:
        """Return the text of one token."""
        if token == UNKNOWN:
            return "\ufffd"
        return "" if token < len(SPECIAL) else self.vocabulary[token]

    def prompt(self, question: str) -> list[int]:
        """Return the tokens a model continues with its answer: `<question>`, the text,
        `<answer>`.
        """
        return [QUESTION, *self.encode(f" {question}"), ANSWER]

    def completion(self, chain: str) -> list[int]:
        """Return the tokens of a whole answer, `<end>` included."""
        return [*self.encode(f" {chain}"), END]


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer of all tiny models."""
    text = resources.files("recorders.tiny").joinpath("vocabulary.json").read_text("utf-8")
    return Tokenizer(json.loads(text))

"""Samples of Tree of Thoughts (2023, https://arxiv.org/abs/2305.10601) on the Game of 24: its logs
of naive sampling.

A JSON array, one object per puzzle: `idx` (row of the puzzles in 24.csv, from 0), `ys` (texts) and
the authors' verdicts, `accs` (true or false) or `infos` (objects with `r`, 1 or 0). `usage_so_far`
is a running total of the whole log, not of a sample. The puzzles, four numbers each, are in 24.csv,
which is the questions file. Logs of the tree search itself hold no independent samples.

No single expression is the gold answer. The answer of a sample is the value of its expression, if
that uses each of the four numbers once, else no answer; the gold answer is 24, so different
solutions vote together. The notes count differing verdicts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from feval.answers import decimal_key
from feval.errors import SourceError, UsageError
from feval.importers.questions import without_duplicates
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import member, refuse, sentence_start, strings, whole
from feval.importers.source import (
    Imported,
    ImportRequest,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
)

_TARGET = "24"
_TOKEN = re.compile(r"\s*(?:(\d{1,9})|([-+*/()]))")
_MOST_TOKENS = 99
_LABEL = re.compile("answer: ", re.IGNORECASE)


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one JSON log. The request names the LLM and has the puzzles."""
    llm = request.the_llm(source.name)
    if request.questions is None:
        raise UsageError(
            f"{source.name} names its puzzles by row only; pass 24.csv, --questions FILE."
        )
    reader = Reader()
    entries = reader.entries(read_bytes(source), source.name)
    puzzles = {question.id: question for question in request.questions}
    questions, pools, others = [], [], 0
    for row, entry in enumerate(entries):
        where = f"entry {row} of {source.name}"
        question = _question(entry, request, puzzles, where)
        texts = strings(member(entry, "ys", list, where), where)
        answers = [answer_of(text, (question.text or "").split()) for text in texts]
        others += sum(
            (answer == _TARGET) != verdict
            for answer, verdict in zip(answers, _verdicts(entry, where), strict=True)
        )
        questions.append(question)
        pools.append(SourcePool(texts, answers))
    notes = [*_notes(pools, others), *_usage_notes(entries), *reader.notes()]
    return Imported(without_duplicates(questions, source.name), [SourceLLM(llm, pools)], notes)


def answer_of(text: str, numbers: Sequence[str]) -> str | None:
    """Return the value of the expression on the last line of a text, as a key of the answer kind
    `number`.

    That line is such as "Answer: (10 - 6) * (5 + 1) = 24". `None` where it holds no expression, or
    one that does not use each of the puzzle's numbers (as digits) exactly once.
    """
    line = text.strip().rpartition("\n")[2]
    expression = _LABEL.sub("", line).partition("=")[0].strip()
    tokens = _tokens(expression)
    if Counter(token for token in tokens if token.isdecimal()) != Counter(numbers):
        return None
    value = _Parser(tokens).value()
    return None if value is None else _key(value)


def _key(value: Fraction) -> str | None:
    return (
        decimal_key(value.numerator)
        if value.denominator == 1
        else f"{value.numerator}/{value.denominator}"
    )


def _tokens(expression: str) -> list[str]:
    """Numbers, signs and parentheses; none where there is anything else, or too much to be a
    solution.
    """
    tokens: list[str] = []
    place = 0
    while place < len(expression):
        match = _TOKEN.match(expression, place)
        if match is None or len(tokens) == _MOST_TOKENS:
            return []
        tokens.append(match[1] or match[2])
        place = match.end()
    return tokens


class _Parser:
    """Exact arithmetic with + - * / and parentheses; the number of tokens bounds the recursion."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._place = 0

    def value(self) -> Fraction | None:
        """Return the value of the tokens; `None` where they are not an expression, or divide by
        zero.
        """
        try:
            value = self._sum()
        except (ValueError, ZeroDivisionError):
            return None
        return value if self._place == len(self._tokens) else None

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._place += 1
        return token

    def _sum(self) -> Fraction:
        value = self._product()
        while self._peek() in ("+", "-"):
            value = value + self._product() if self._next() == "+" else value - self._product()
        return value

    def _product(self) -> Fraction:
        value = self._factor()
        while self._peek() in ("*", "/"):
            value = value * self._factor() if self._next() == "*" else value / self._factor()
        return value

    def _factor(self) -> Fraction:
        sign = self._next()
        if sign == "-":
            return -self._factor()
        if sign == "(":
            value = self._sum()
            if self._next() != ")":
                raise ValueError("a parenthesis is not closed")
            return value
        return Fraction(int(sign))  # a ValueError for whatever is no number


def _question(
    entry: Any, request: ImportRequest, puzzles: dict[str, SourceQuestion], where: str
) -> SourceQuestion:
    row = member(entry, "idx", int, where)
    name = request.question_id(row)
    if name not in puzzles:
        example = next(iter(puzzles), "none")
        raise SourceError(
            f"The questions file has no puzzle {name!r}, the 'idx' of {where}; its ids look like"
            f" {example!r}."
        )
    if entry.get("steps"):
        raise SourceError(
            f"{sentence_start(where)} is the log of a tree search: its outputs depend on each other"
            " and are no samples. Import a log of naive sampling."
        )
    return SourceQuestion(name, puzzles[name].text, _TARGET)


def _verdicts(entry: dict[str, Any], where: str) -> list[bool]:
    """Return the authors' verdict on each sample."""
    count = len(entry["ys"])
    if "accs" in entry:
        verdicts = member(entry, "accs", list, where)
    else:
        infos = member(entry, "infos", list, where)
        verdicts = [member(info, "r", int, f"an info of {where}") for info in infos]
    if len(verdicts) != count or any(verdict not in (0, 1) for verdict in verdicts):
        refuse(f"The verdicts of {where}", f"{count} times true or false, one per sample", verdicts)
    return [verdict == 1 for verdict in verdicts]


def _notes(pools: Sequence[SourcePool], others: int) -> list[str]:
    invalid = sum(list(pool.answers or ()).count(None) for pool in pools)
    return counted_notes(
        (
            (
                "Samples without an answer, as they do not end in an expression that uses each"
                " number once"
            ),
            invalid,
        ),
        (
            "Samples on which the authors' verdict differs from exact arithmetic, which was taken",
            others,
        ),
    )


def _usage_notes(entries: Sequence[Any]) -> list[str]:
    usage = entries[-1].get("usage_so_far")
    output = whole(usage.get("completion_tokens")) if isinstance(usage, dict) else None
    prompt_tokens = whole(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    if output is None or prompt_tokens is None:
        return []
    return [
        (
            f"The log states {output} completion and {prompt_tokens} prompt tokens up to its end, but"  # noqa: E501
            " not those of a sample."
        )
    ]

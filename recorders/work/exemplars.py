"""Worked questions of few-shot prompts, and how they are read from the train splits of datasets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from feval import answers

Choices = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A worked question; its chain of thought is without the answer sentence, and with options the
    answer is a label.
    """

    question: str
    cot: str
    answer: str
    choices: Choices = ()


@dataclass(frozen=True, slots=True)
class TrainForm:
    """How the rows of one train split are read: which columns, and an exemplar from a row with a
    usable rationale.
    """

    kind: str
    fields: tuple[str, ...]
    exemplar: Callable[[Mapping[str, Any]], Exemplar | None]


_CALCULATION = re.compile(r"<<[^<>\n]{0,200}>>")
_OPTION = re.compile(r"\s*\(?([A-Z])\s*[).:]\s*(.*)", re.DOTALL)
_VERDICT = re.compile(
    r"\W*(?:(?:so|hence|thus|therefore|the|correct|right|final)\W+){0,4}(?:answer|ans|option|choice)\b.*|\W*[A-E]\W*",
    re.IGNORECASE,
)


def _gsm8k(row: Mapping[str, Any]) -> Exemplar | None:
    """GSM8K: `answer` is a worked solution with calculator notes in << >>, then "#### " and the
    number.
    """
    cot, mark, gold = row["answer"].rpartition("####")
    answer = answers.canonical_gold("number", gold)
    cot = "\n".join(line.strip() for line in _CALCULATION.sub("", cot).splitlines() if line.strip())
    return Exemplar(row["question"].strip(), cot, answer) if mark and answer and cot else None


def _aqua(row: Mapping[str, Any]) -> Exemplar | None:
    """AQuA: `options` such as "A)21", a `rationale`, often with a verdict ("Answer: B") at its end,
    and `correct`.
    """
    options = [_OPTION.fullmatch(option) for option in row["options"]]
    lines = [line.strip() for line in row["rationale"].splitlines() if line.strip()]
    while lines and _VERDICT.fullmatch(lines[-1]):
        lines.pop()
    choices = tuple((option[1], option[2].strip()) for option in options if option)
    if (
        not lines
        or len(choices) < len(options)
        or row["correct"] not in (label for label, _ in choices)
    ):
        return None
    return Exemplar(row["question"].strip(), "\n".join(lines), row["correct"], choices)


TRAIN_FORMS: dict[str, TrainForm] = {
    "gsm8k": TrainForm("number", ("question", "answer"), _gsm8k),
    "aqua": TrainForm("choice", ("question", "options", "rationale", "correct"), _aqua),
}
"""Train splits with rationales that can be read; a prompt card names its own in `train_form`."""

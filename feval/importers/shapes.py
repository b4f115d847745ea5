"""Checks of parsed JSON: each returns a value, or raises a `SourceError` with the place, what was
expected and what was found.

`where` is the place for the message, such as "'id' of line 3 of x.jsonl".
"""

from __future__ import annotations

import math
import string
import sys
from typing import Any, NoReturn, TypeVar

from feval.answers import decimal_key
from feval.errors import SourceError
from feval.importers.source import FINISH_REASON_WORDS

_T = TypeVar("_T")
_WORDS: dict[type, str] = {
    str: "text",
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
LARGEST = 2**31 - 1
"""Largest token count that can be stored."""
ADVICE = "Is the format the right one?"
"""The last sentence of every message of this module."""


def refuse(where: str, expected: str, value: object) -> NoReturn:
    """Raise that `where` should be `expected`, and what was found instead."""
    size = f" of {len(value)}" if isinstance(value, list | dict | str) else ""
    shown = (
        f" {value!r:.60}"
        if isinstance(value, str | int | float) and not isinstance(value, bool)
        else ""
    )
    kind = _WORDS.get(type(value), type(value).__name__)
    raise SourceError(f"{where} should be {expected}; found {kind}{size or shown}. {ADVICE}")


def sentence_start(where: str) -> str:
    """Return a place as a sentence starts with it."""
    return where[0].upper() + where[1:]


def member(record: object, name: str, kind: type[_T], where: str) -> _T:
    """Return the value of `name` in a JSON object; raise unless it has the given type (a bool is
    not an int).
    """
    if not isinstance(record, dict):
        refuse(where, "an object", record)
    if name not in record:
        names = ", ".join(repr(known)[:40] for known in list(record)[:12]) or "nothing"
        raise SourceError(f"{where} has no {name!r}; it has {names}. {ADVICE}")
    value = record[name]
    if type(value) is not kind:
        refuse(f"{name!r} of {where}", _WORDS[kind], value)
    return value


def strings(values: list[Any], where: str) -> list[str]:
    """Return the texts of a question's samples."""
    texts = [value for value in values if type(value) is str]
    if len(texts) != len(values):
        position, value = next(
            (place, value) for place, value in enumerate(values) if type(value) is not str
        )
        refuse(f"Sample {position} of {where}", "text", value)
    return texts


def answer_texts(values: list[Any], where: str) -> list[str | None]:
    """Return stored answers as raw answers: numbers as decimal keys, true and false as yes and no,
    null as no answer.
    """
    return [
        (
            value
            if value is None or type(value) is str
            else scalar_text(value, f"Answer {position} of {where}")
        )
        for position, value in enumerate(values)
    ]


def gold_text(value: object, where: str) -> str | None:
    """Return one gold answer, read like `answer_texts`."""
    return (
        value
        if value is None or type(value) is str
        else scalar_text(value, f"The gold answer of {where}")
    )


def scalar_text(value: object, where: str) -> str:
    """Return one answer as text, read like `answer_texts`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        # beyond what a key may have, the number stays as text
        return decimal_key(value) or str(value)
    return refuse(where, "text, a number, true, false or null", value)


def text(value: object, where: str) -> str:
    """Return a text."""
    return value if isinstance(value, str) else refuse(where, "text", value)


def number(value: object, where: str) -> float:
    """Return a finite number."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or abs(value) > sys.float_info.max
    ):
        refuse(where, "a number", value)
    return float(value)


def number_list(value: object, where: str) -> list[float]:
    """Return a list of finite numbers."""
    if not isinstance(value, list):
        refuse(where, "a list of numbers", value)
    if all(type(each) is float for each in value) and all(map(math.isfinite, value)):
        return value
    return [number(each, f"Number {position} in {where}") for position, each in enumerate(value)]


def whole_number(value: object, where: str) -> int:
    """Return a token count, or the number of a sample, read like `whole`."""
    count = whole(value)
    return (
        count if count is not None else refuse(where, f"a whole number from 0 to {LARGEST}", value)
    )


def whole(value: object) -> int | None:
    """Return a token count or sample number, which some sources write as 12.0; `None` for anything
    else.
    """
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= LARGEST
        and value == int(value)
    ):
        return int(value)
    return None


def whole_numbers(values: list[Any], where: str) -> list[int]:
    """Return the token counts of a question's samples."""
    # `Reader` gives finite numbers only, so that int() takes them all.
    numbers = [int(value) for value in values if type(value) is float or type(value) is int]
    if numbers == values and min(numbers, default=0) >= 0 and max(numbers, default=0) <= LARGEST:
        return numbers
    position, value = next(
        (place, value) for place, value in enumerate(values) if whole(value) is None
    )
    refuse(
        f"The token count of sample {position} of {where}",
        f"a whole number from 0 to {LARGEST}",
        value,
    )


def finish_reason(value: object, where: str) -> str:
    """Return a finish reason in a recording's words; null is unknown."""
    if value is None:
        return "unknown"
    if isinstance(value, str) and value in FINISH_REASON_WORDS:
        return FINISH_REASON_WORDS[value]
    refuse(where, f"one of {', '.join(FINISH_REASON_WORDS)}", value)


def identifier(value: object, where: str) -> str:
    """Return a question's id, which may be text or a whole number."""
    if type(value) is str and value:
        return value
    if type(value) is int:
        return str(value)
    return refuse(where, "text that is not empty, or a whole number", value)


def choices_of(value: object, where: str) -> tuple[tuple[str, str], ...]:
    """Return the options of a question as (label, text).

    They may be a list of `{"label", "text"}`, a list of texts (labelled A, B, C, ...), or
    `{"label": [], "text": []}`.
    """
    if isinstance(value, dict):
        labels, texts = member(value, "label", list, where), member(value, "text", list, where)
        if len(labels) != len(texts):
            refuse(f"'label' of {where}", f"as many labels as its {len(texts)} texts", labels)
        value = [{"label": label, "text": text} for label, text in zip(labels, texts, strict=True)]
    if not isinstance(value, list):
        refuse(where, "a list of options", value)
    if value and all(isinstance(text, str) for text in value):
        if len(value) > len(string.ascii_uppercase):
            refuse(where, f"a list of at most {len(string.ascii_uppercase)} texts", value)
        return tuple(zip(string.ascii_uppercase, value, strict=False))
    choices = tuple(
        (
            member(choice, "label", str, f"an option in {where}"),
            member(choice, "text", str, f"an option in {where}"),
        )
        for choice in value
    )
    if len({label for label, _ in choices}) != len(choices):
        raise SourceError(f"{where} have a label twice: {[label for label, _ in choices]!r:.80}.")
    return choices

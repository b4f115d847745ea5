"""What fields of several methods have in common: their types, thresholds read exactly, numbers for all LLMs or each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from feval.errors import OutOfRangeError, UsageError

__all__ = [
    "MISFIT",
    "as_type",
    "exact_threshold",
    "options_of",
    "per_llm",
    "require_cots",
    "require_types",
    "tuples_of_lists",
    "words_of",
]

MISFIT = object()
"""What `as_type` gives for a value of another type."""


def exact_threshold(name: str, given: str | float, least: float | None = None, most: float | None = None) -> Fraction:
    """A threshold as the decimal it was written as: 0.55 is 11/20, not the nearest float.

    Args:
        name: of the field, for messages.
        given: such as 0.55, "0.55" or "11/20".
        least: smallest value allowed; `None` for any.
        most: largest value allowed; `None` for any.

    Raises:
        OutOfRangeError: not a finite number, or outside the range.
    """
    try:
        value = Fraction(str(given))
    except (ValueError, ZeroDivisionError) as error:
        raise OutOfRangeError(f"{name} is a number such as 0.6 or '2/3'; {given!r} was given.") from error
    if (least is not None and value < Fraction(str(least))) or (most is not None and value > Fraction(str(most))):
        raise OutOfRangeError(f"{name} lies from {least} to {most}; {given!r} was given.")
    return value


def per_llm(name: str, given: int | tuple[int, ...], llms: int) -> tuple[int, ...]:
    """A number of CoTs for each LLM, from one number for all or one for each.

    Raises:
        UsageError: a tuple of another length.
    """
    numbers = given if isinstance(given, tuple) else (given,) * llms
    if len(numbers) != llms:
        raise UsageError(f"{name}={given} gives a number to each of {len(numbers)} LLMs; there are {llms}.")
    return numbers


def tuples_of_lists(method: object, *names: str) -> None:
    """Make tuples of the fields that were given as lists, as JSON and TOML write them: values can be hashed."""
    for name in names:
        if isinstance(given := getattr(method, name), list):
            object.__setattr__(method, name, tuple(given))


def require_cots(name: str, given: int | Sequence[int] | None) -> None:
    """Make sure that numbers of CoTs are positive integers.

    Raises:
        OutOfRangeError: one is not, or there is none.
    """
    if given is None:
        return
    numbers = list(given) if isinstance(given, Sequence) else [given]
    if not numbers or any(type(n) is not int or n < 1 for n in numbers):
        raise OutOfRangeError(
            f"{name} is 1 or more CoTs, one number for all LLMs or one for each; {given!r} was given."
        )


def require_types(method: Any) -> None:
    """Make sure that the fields of a built-in method have the types they are declared with; lists may stand for tuples.

    Raises:
        UsageError: one has not; the message names method, field and what it takes.
    """
    for name, hint in _hints(method.__class__).items():
        value = getattr(method, name)
        if all(as_type(_plain(value), option) is MISFIT for option in options_of(hint)):
            wanted = " or ".join(dict.fromkeys(words_of(option) for option in options_of(hint)))
            method_name = re.sub(r"(?<!^)(?=[A-Z])", "-", type(method).__name__).lower()
            raise UsageError(f"The field {name!r} of {method_name} takes {wanted}; {value!r:.80} was given.")


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """Of the fields of a built-in method, also where a user's class builds on it."""
    own = next(base for base in kind.__mro__ if base.__module__.startswith("feval."))
    hints = get_type_hints(own)
    return {field.name: hints[field.name] for field in fields(own) if field.init}


def _plain(value: Any) -> Any:
    """A number of NumPy, a fraction or a decimal as the plain number it stands for."""
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    return float(value) if isinstance(value, (Fraction, Decimal)) else value


def options_of(hint: Any) -> tuple[Any, ...]:
    """The types that a field takes."""
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


def as_type(value: Any, option: Any) -> Any:
    """The value as one type, or `MISFIT`."""
    origin = get_origin(option)
    if option in {None, NoneType}:
        return None if value is None else MISFIT
    if origin is Literal:
        return value if value in get_args(option) else MISFIT
    if origin is tuple:
        return _as_tuple(value, get_args(option))
    if option is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if option is bool or not isinstance(value, bool):
        return value if isinstance(option, type) and isinstance(value, option) else MISFIT
    return MISFIT


def _as_tuple(value: Any, options: tuple[Any, ...]) -> Any:
    if not isinstance(value, (list, tuple)):
        return MISFIT
    inner = options[0] if options else Any
    fitted = [next((f for o in options_of(inner) if (f := as_type(v, o)) is not MISFIT), MISFIT) for v in value]
    return MISFIT if any(f is MISFIT for f in fitted) else tuple(fitted)


def words_of(option: Any) -> str:
    """A type, in words for a message."""
    if option in {None, NoneType}:
        return "none"
    if get_origin(option) is Literal:
        return " or ".join(map(repr, get_args(option)))
    if get_origin(option) is tuple:
        return "a list such as 1,2"
    return {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}.get(option, str(option))

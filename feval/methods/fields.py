"""What fields of several methods have in common: thresholds that are read exactly, and numbers given once or once per LLM."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from feval.errors import OutOfRangeError, UsageError

__all__ = ["exact_threshold", "per_llm", "require_cots", "tuples_of_lists"]


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

"""Checks of arguments that several estimators share. Feval's own; they assume nothing about the calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats

_SUM_TOLERANCE = 1e-9


def is_whole(number: object) -> bool:
    """Return whether a number is an integer (Python's or NumPy's) and not a bool.

    Args:
        number: anything.
    """
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def at_index(place: tuple[int, ...]) -> str:
    """Return an index for an error message, such as " at index [3]"; "" for a scalar.

    Args:
        place: the index.
    """
    return f" at index {[int(i) for i in place]}" if place else ""


def broadcast(**arrays: npt.ArrayLike) -> tuple[npt.NDArray[Any], ...]:
    """Broadcast arrays to a common shape.

    Args:
        arrays: by the names used in error messages.

    Raises:
        OutOfRangeError: ragged rows, or shapes that do not match.
    """
    try:
        return np.broadcast_arrays(*(np.asarray(array) for array in arrays.values()))
    except ValueError as error:
        raise OutOfRangeError(f"The shapes of {', '.join(arrays)} do not match: {error}") from error


def checked_probabilities(values: npt.ArrayLike, name: str = "q") -> Floats:
    """Return probabilities as floats.

    Args:
        values: [...] numbers or fractions.
        name: of the argument, for error messages.

    Raises:
        OutOfRangeError: a value outside [0, 1] or NaN; the message has its index.
    """
    try:
        checked: Floats = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise OutOfRangeError(f"Probabilities are numbers in rows of equal length; {name} is {values!r}.") from error
    wrong = np.argwhere(~((checked >= 0.0) & (checked <= 1.0)))
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise OutOfRangeError(
            f"Probabilities lie in [0, 1]; {name} is {float(checked[place])!r}{at_index(place)}. Correct it or leave it out."
        )
    return checked


def checked_distribution(values: npt.ArrayLike, name: str = "p") -> Floats:
    """Return probability distributions along the last axis, divided by their sums.

    Args:
        values: [..., K] probabilities that sum to 1 within 1e-9.
        name: of the argument, for error messages.

    Raises:
        OutOfRangeError: a scalar, no answers, a value outside [0, 1], or a sum that is not 1.
    """
    shares = checked_probabilities(values, name)
    if not shares.ndim or not shares.shape[-1]:
        raise OutOfRangeError(
            f"{name} takes the probabilities of one answer or more, [..., answers]; the shape is {shares.shape}."
        )
    total = shares.sum(axis=-1)
    if len(wrong := np.argwhere(~(np.abs(total - 1.0) <= _SUM_TOLERANCE))):
        place = tuple(wrong[0].tolist())
        raise OutOfRangeError(
            f"The probabilities of all answers, no answer included, sum to 1; those of {name}{at_index(place)} sum to "
            f"{float(total[place])!r}. Give what is missing to an answer of its own, or divide by the sum."
        )
    normalised: Floats = shares / total[..., None]
    return normalised


def require_counts(what: str, **arrays: npt.NDArray[Any]) -> None:
    """Refuse arrays over questions that do not hold integers from 0.

    Args:
        what: what takes the counts, for error messages.
        arrays: [questions, ...] by name.

    Raises:
        OutOfRangeError: another type, or a negative count; the message has the question.
    """
    for name, array in arrays.items():
        if array.size and array.dtype.kind not in "iu":
            raise OutOfRangeError(f"{what} takes counts of samples, which are integers; {name} holds {array.dtype}.")
        if len(wrong := np.argwhere(array < 0)):
            place = tuple(wrong[0].tolist())
            raise OutOfRangeError(
                f"{what} takes counts of samples from 0; question {place[0]} has {array[place]} in {name}."
            )


def require_confidence(confidence: float) -> None:
    """Refuse a confidence that does not lie between 0 and 1.

    Args:
        confidence: coverage.

    Raises:
        OutOfRangeError: 0 or less, 1 or more, or NaN.
    """
    if not 0.0 < confidence < 1.0:
        raise OutOfRangeError(f"A confidence lies between 0 and 1, such as 0.95; {confidence} was given.")

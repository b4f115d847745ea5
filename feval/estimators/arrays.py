"""Types of arrays, checks of arguments that several estimators share, and the Pareto frontier.

Feval's own; they assume nothing about the calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
import numpy.typing as npt

from feval.errors import FevalError, OutOfRangeError

Bools = npt.NDArray[np.bool_]
Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer[Any]]
Numbers = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]
UInt64 = npt.NDArray[np.uint64]


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class Result:
    """Base of results: its subclasses are frozen dataclasses that are equal to themselves only,
    since `==` on arrays has no single answer.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]  # so that type checkers let `replace` take one

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False)(cls)

    def take(self, index: Any) -> Self:
        """Select entries of all fields, which are arrays of equal length or shape."""
        return type(self)(*(np.asarray(getattr(self, part.name)[index]) for part in fields(self)))


_SUM_TOLERANCE = 1e-9


def is_whole(number: object) -> bool:
    """Return whether a number is an integer (Python's or NumPy's) and not a bool."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def require_each(
    valid: npt.ArrayLike,
    sentence: str,
    *arrays: npt.ArrayLike,
    error: type[FevalError] = OutOfRangeError,
) -> None:
    """Raise an error unless a condition holds at every entry [...].

    `{0}`, `{1}`, ... in the sentence are the arrays' values at the first entry where it does not,
    `{at}` is its index, such as " at index [3]" ("" for a scalar), and `{question}` its row.
    """
    if len(wrong := np.argwhere(~np.asarray(valid))):
        place = tuple(wrong[0].tolist())
        values = (np.asarray(array)[place].item() for array in arrays)
        at = f" at index {list(place)}" if place else ""
        raise error(sentence.format(*values, at=at, question=place[0] if place else 0))


def broadcast(**arrays: npt.ArrayLike) -> tuple[npt.NDArray[Any], ...]:
    """Broadcast arrays to a common shape; OutOfRangeError names them if their rows are ragged or
    their shapes do not match.
    """
    try:
        return np.broadcast_arrays(*(np.asarray(array) for array in arrays.values()))
    except ValueError as error:
        raise OutOfRangeError(f"The shapes of {', '.join(arrays)} do not match: {error}") from error


def checked_probabilities(values: npt.ArrayLike, name: str = "q") -> Floats:
    """Return probabilities as floats; OutOfRangeError names the first value outside [0, 1] or NaN,
    with its index.
    """
    try:
        checked = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise OutOfRangeError(
            f"Probabilities are numbers in rows of equal length; {name} is {values!r}."
        ) from error
    require_each(
        (checked >= 0.0) & (checked <= 1.0),
        f"Probabilities lie in [0, 1]; {name} is {{0!r}}{{at}}. Correct it or leave it out.",
        checked,
    )
    return checked


def checked_distribution(values: npt.ArrayLike, name: str = "p") -> Floats:
    """Return distributions [..., K] divided by their sums; OutOfRangeError without answers, or for
    sums off by more than 1e-9.
    """
    shares = checked_probabilities(values, name)
    if not shares.ndim or not shares.shape[-1]:
        raise OutOfRangeError(
            f"{name} takes the probabilities of one answer or more, or the weights of one policy or"
            f" more, in its last dimension; the shape is {shares.shape}."
        )
    total = shares.sum(axis=-1)
    require_each(
        np.abs(total - 1.0) <= _SUM_TOLERANCE,
        f"Probabilities of all answers, no answer included, and weights sum to 1; those of {name}"
        "{at} sum to {0!r}. Give what is missing to an answer of its own, or divide by the sum.",
        total,
    )
    result: Floats = shares / total[..., None]
    return result


def require_counts(what: str, **arrays: npt.NDArray[Any]) -> None:
    """Raise OutOfRangeError, with the question, unless the arrays [questions, ...] hold integers
    from 0.
    """
    for name, array in arrays.items():
        if array.size and array.dtype.kind not in "iu":
            raise OutOfRangeError(
                f"{what} takes counts of samples, which are integers; {name} holds {array.dtype}."
            )
        require_each(
            array >= 0,
            f"{what} takes counts of samples from 0; question {{question}} has {{0}} in {name}.",
            array,
        )


def require_confidence(confidence: float) -> None:
    """Raise OutOfRangeError unless a confidence lies between 0 and 1."""
    if not 0.0 < confidence < 1.0:
        raise OutOfRangeError(
            f"A confidence lies between 0 and 1, such as 0.95; {confidence} was given."
        )


Texts = npt.NDArray[np.str_]

ONE_QUESTION = (
    "A single question shows no spread, so there is no standard error; label two or more."
)
"""Why a standard error is NaN."""


def missing_reasons(*causes: tuple[Any, str]) -> Texts:
    """Join the sentences that hold for each entry; a cause is ([...] where it holds, its sentence).
    "" where none holds.
    """
    texts: npt.NDArray[Any] = np.array("", dtype=np.str_)
    for where, sentence in causes:
        sentences = np.where(where, sentence, "")
        gap = np.where((np.char.str_len(texts) > 0) & np.asarray(where), " ", "")
        texts = np.char.add(np.char.add(texts, gap), sentences)
    return np.asarray(texts, np.str_)


TIED = 1e-11  # rounding error between equals
_BITS = 36  # leading bits by which costs are compared


def leading_bits(values: Floats) -> Floats:
    """The values with 36 bits, so that equals that were computed differently are equal."""
    mantissa, exponent = np.frexp(values)
    rounded: Floats = np.ldexp(np.rint(np.ldexp(mantissa, _BITS)), exponent - _BITS)
    return rounded


def pareto(costs: Floats, accuracy: Floats) -> Bools:
    """Which points are on the Pareto frontier: no other point is as cheap and as good, and better
    in one of the two.

    Args:
        costs: [..., P]; compared by their leading 36 bits, so that equal costs computed differently
            are equal.
        accuracy: [..., P]; differences within 1e-11 are ties.

    Returns:
        [..., P]; equal points are on it together.
    """
    costs = leading_bits(costs)
    order = np.lexsort((-accuracy, costs), axis=-1)
    cost, right = np.take_along_axis(costs, order, -1), np.take_along_axis(accuracy, order, -1)
    best = np.maximum.accumulate(right, axis=-1)
    # On the frontier: better than everything cheaper. Among equally dear points the best comes
    # first, and equals follow it.
    lead = np.concatenate([np.full_like(right[..., :1], -np.inf), best[..., :-1]], axis=-1)
    ahead = right > lead + TIED
    places = np.arange(cost.shape[-1])
    leader = np.maximum.accumulate(np.where(ahead, places, 0), axis=-1)
    same_cost = np.take_along_axis(cost, leader, -1) == cost
    equal = same_cost & (np.abs(np.take_along_axis(right, leader, -1) - right) <= TIED)
    result = np.empty(cost.shape, np.bool_)
    np.put_along_axis(result, order, ahead | equal, -1)
    return result

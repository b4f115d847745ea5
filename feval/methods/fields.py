"""Types of methods' fields, checked by pydantic: counts, exact numbers, lists; and what a refusal
says.

`@frozen_method` checks every value when a method is made; a `ValidationError` becomes a
`UsageError` that names the field, what it takes and what was given.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from functools import cache
from operator import ge, gt, le, lt
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass, is_pydantic_dataclass
from pydantic_core import ArgsKwargs, CoreSchema, PydanticCustomError, core_schema

from feval.errors import OutOfRangeError, UnknownNameError, UsageError

_T = TypeVar("_T")
# Deferred: a class is built for pydantic with its first value, so that importing all methods stays
# cheap.
_CONFIG = ConfigDict(strict=True, extra="forbid", defer_build=True)
_OUT_OF_RANGE = {
    "out_of_range", "greater_than", "greater_than_equal", "less_than", "less_than_equal",
    "finite_number", "missing", "too_short"
}  # fmt: skip
_LONGEST_NUMBER, _LARGEST_EXPONENT = 1000, 400
_BOUNDS = {"above": gt, "at_least": ge, "below": lt, "at_most": le}
_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    NoneType: "none",
}


def _python_number(value: Any) -> Any:
    """A number of NumPy, a fraction or a decimal as the plain number it stands for."""
    if isinstance(value, np.generic):
        return value.item()
    return float(value) if isinstance(value, (Fraction, Decimal)) else value


def _fraction(text: str) -> Fraction:
    """The number that a text stands for; a `ValueError` also where it has more digits than any
    float, such as 1e999999999.
    """
    exponent = text.lower().partition("e")[2]
    if len(text) > _LONGEST_NUMBER or (exponent and abs(int(exponent)) > _LARGEST_EXPONENT):
        raise ValueError("a number with too many digits")
    return Fraction(text)


class ExactNumber:
    """Annotates a number that counts as the decimal or fraction it was written as: 0.55 is 11/20,
    not the nearest float.

    A plain pydantic type would make a float of it; the value is checked and kept as it was given.

    Args:
        bounds: `above` or `at_least`, `below` or `at_most`.

    Attributes:
        description: what the number may be, for messages.
    """

    def __init__(self, **bounds: int) -> None:
        self._bounds = bounds
        limits = " and ".join(f"{word.replace('_', ' ')} {bound}" for word, bound in bounds.items())
        self.description = f"a number such as 0.6 or '2/3'{', ' * bool(limits)}{limits}"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def _checked(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(
            value, (str, int, float, Fraction, Decimal, np.integer, np.floating)
        ):
            raise PydanticCustomError("number_type", "not a number")
        try:
            number = _fraction(str(value))
        except (ValueError, ZeroDivisionError):
            raise PydanticCustomError("out_of_range", "not a finite number") from None
        if not all(_BOUNDS[word](number, bound) for word, bound in self._bounds.items()):
            raise PydanticCustomError("out_of_range", "outside its range")
        return value


_PLAIN = BeforeValidator(_python_number)
AS_TUPLE = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""Lists, as JSON and TOML write them, become tuples, which can be hashed."""

Whole = Annotated[int, _PLAIN]
"""A whole number, also one of NumPy."""

Count = Annotated[int, Field(ge=1, description="a whole number, 1 or more"), _PLAIN]
"""How many CoTs, windows or questions."""

GridSize = Annotated[
    int, Field(ge=1, le=100_000, description="a whole number from 1 to 100,000"), _PLAIN
]
"""How many values are tried."""

Positive = Annotated[float, Field(gt=0, description="a number above 0"), _PLAIN]
"""A number above 0, infinity included."""

Finite = Annotated[
    float, Field(ge=-1e100, le=1e100, description="a number from -1e100 to 1e100"), _PLAIN
]
"""A number that may be below 0, and whose products with costs are finite."""

Cost = Annotated[float, Field(ge=0, le=1e100, description="a number from 0 to 1e100"), _PLAIN]
"""A price, a budget or a weight."""

Aggregate = Literal["score", "last", "min", "prod", "mean"]
"""How step scores become one number, `replay.channels.AGGREGATES`; "score" where a CoT has a single
one.
"""

Transform = Literal["none", "exp", "sigmoid", "rank"]
"""How scores become weights of votes, see `feval.methods.vote.vote_weights`."""

PositiveShare = Annotated[str | float, ExactNumber(above=0, at_most=1)]
"""A share or probability above 0, compared exactly."""

Share = Annotated[str | float, ExactNumber(at_least=0, at_most=1)]
"""A share or probability, compared exactly."""

ListOf = Annotated[tuple[_T, ...], AS_TUPLE, Field(description="a list such as 1,2")]
"""Any number of values; a list may be given for the tuple."""

CountPerLLM = Count | Annotated[ListOf[Count], Field(min_length=1)]
"""One number of CoTs for all LLMs, or one for each."""


def as_fraction(number: str | float | Fraction | Decimal) -> Fraction:
    """The exact value of a number as it is written, such as 0.55, "0.55" or "11/20"."""
    return Fraction(str(number))


def per_llm(name: str, value: int | tuple[int, ...], llms: int) -> tuple[int, ...]:
    """A number of CoTs for each LLM, from one number for all or one for each; `UsageError` for a
    tuple of another length.
    """
    numbers = value if isinstance(value, tuple) else (value,) * llms
    if len(numbers) != llms:
        raise UsageError(
            f"{name}={value} gives a number to each of {len(numbers)} LLMs; there are {llms}."
        )
    return numbers


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def frozen_method(cls: type[_T]) -> type[_T]:
    """Make a class a frozen pydantic dataclass whose refusals are sentences.

    Making one raises `UsageError` for a value of another type, `OutOfRangeError` for a number
    outside its range and `UnknownNameError` for a word or a field that there is not.
    """
    cls._refuse = model_validator(mode="wrap")(classmethod(_refuse))  # type: ignore[attr-defined,arg-type]  # any class gets one
    cls.__post_init__ = _checking_dataclasses(cls)  # type: ignore[attr-defined]  # any class gets one
    return cast("type[_T]", pydantic_dataclass(frozen=True, config=_CONFIG)(cls))


def _checking_dataclasses(cls: type[Any]) -> Callable[[Any], None]:
    """Its `__post_init__`, which checks subclasses made with the standard library's `@dataclass`:
    their `__init__` does not.
    """
    original: Callable[[Any], None] | None = getattr(cls, "__post_init__", None)

    def post_init(self: Any) -> None:
        if not is_pydantic_dataclass(type(self)):
            for name in (field.name for field in fields(cls)):
                value = getattr(self, name)
                object.__setattr__(self, name, field_value(cls, name, [value], value))
        if original is not None:
            original(self)

    return post_init


def _refuse(kind: Any, arguments: ArgsKwargs, check: ModelWrapValidatorHandler[Any]) -> Any:
    try:
        return check(arguments)
    except ValidationError as error:
        raise _refusal(kind, error, arguments) from None


def _refusal(kind: Any, error: ValidationError, arguments: ArgsKwargs) -> UsageError:
    """The sentence about the first field that was refused."""
    names, method = [field.name for field in fields(kind)], _method_name(kind)
    place = error.errors()[0]["loc"][0]  # of a positional argument its number, else its name
    if isinstance(place, int) and place >= len(names):
        return UsageError(
            f"{method} has {len(names)} fields; {len(arguments.args)} values were given."
        )
    name = names[place] if isinstance(place, int) else place
    if name not in names:
        return UnknownNameError.among("field", name, names, f"These are the fields of {method}.")
    values = dict(zip(names, arguments.args, strict=False)) | (arguments.kwargs or {})
    types = {part["type"] for part in error.errors() if part["loc"][0] == place}
    return _field_refusal(kind, name, values.get(name), types)


def _field_refusal(kind: Any, name: str, value: Any, types: set[str]) -> UsageError:
    sentence = (
        f"The field {name!r} of {_method_name(kind)} takes {takes(kind, name)};"
        f" {name}={value!r:.80} was given."
    )
    if types & _OUT_OF_RANGE:
        return OutOfRangeError(sentence)
    if "literal_error" in types and isinstance(value, str):
        near = get_close_matches(value, map(str, _words(_hints(kind)[name])), n=1)
        return UnknownNameError(f"{sentence}{f' Did you mean {near[0]!r}?' if near else ''}")
    return UsageError(sentence)


def _method_name(kind: Any) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def takes(kind: Any, name: str) -> str:
    """What a field of a method takes, in words: "a whole number, 1 or more"."""
    return _described(_hints(kind)[name])


def field_value(kind: Any, name: str, readings: Sequence[Any], value: Any) -> Any:
    """The first of several readings of what was given that a field takes, as the type it is
    declared with.

    Raises:
        UsageError: the field takes none of them.
    """
    types: set[str] = set()
    for reading in readings:
        try:
            return _adapter(kind, name).validate_python(reading)
        except ValidationError as error:
            types |= {part["type"] for part in error.errors()}
    raise _field_refusal(kind, name, value, types)


@cache
def _adapter(kind: Any, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_hints(kind)[name], config=ConfigDict(strict=True))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _described(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        base, *metadata = get_args(hint)
        return next(
            (text for part in metadata if (text := getattr(part, "description", None))),
            _described(base),
        )
    if get_origin(hint) in {Union, UnionType}:
        return " or ".join(dict.fromkeys(_described(option) for option in get_args(hint)))
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    return _WORDS.get(hint, str(hint))


def _words(hint: Any) -> tuple[Any, ...]:
    """All words that a field takes."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return (
        tuple(word for part in get_args(hint) for word in _words(part)) if get_origin(hint) else ()
    )


def set_fields(method: object) -> dict[str, Any]:
    """Return the hyper-parameters of a method; a function has none."""
    known = fields(method) if is_dataclass(method) and not isinstance(method, type) else ()
    return {f.name: getattr(method, f.name) for f in known}


def json_field(value: Any) -> Any:
    """Return a field as a JSON value; JSON has no infinity, so that it is the text "inf", which
    `--set` reads.
    """
    if isinstance(value, (tuple, list)):
        return [json_field(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def readings(value: Any) -> list[Any]:
    """Return what a text may stand for: nothing, true, false, a number or a list, and last the text
    itself.
    """
    if not isinstance(value, str):
        return [value]
    words = {"none": None, "null": None, "true": True, "false": False}
    if value.lower() in words:
        return [words[value.lower()], value]
    if (parsed := _parsed(value)) is not value:
        return [parsed, value]
    pieces = [piece.strip() for piece in value.strip("()").split(",")] if "," in value else []
    return [*([[_parsed(piece) for piece in pieces if piece]] if pieces else []), value]


def _parsed(text: str) -> Any:
    """Parse JSON, or an infinity, else return the text. NaN is refused: no field takes it."""
    try:
        if text.lower().lstrip("+-") in {"inf", "infinity"}:
            return float(text)
        return json.loads(text, parse_constant=_no_number)
    except ValueError:
        return text


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)

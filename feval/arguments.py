"""What public functions accept: arguments are compared with the annotations, so that a wrong type
is a sentence.

Annotations are read as text, so that nothing is imported for them. A class outside the table of
kinds, such as a protocol, lets everything pass; so do elements of arrays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from inspect import signature
from numbers import Integral, Real
from typing import ParamSpec, TypeVar

from feval.errors import FevalError, UsageError, as_arguments

_P = ParamSpec("_P")
_R = TypeVar("_R")

_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "None": (type(None), "None"),
    "bool": (bool, "True or False"),
    "float": (Real, "a number"),
    "int": (Integral, "a whole number"),
    "str": (str, "text"),
    "Path": ((str, os.PathLike), "a path"),
    "Mapping": (Mapping, "a mapping"),
}
_LISTS = ("Collection", "Iterable", "Rows", "Sequence", "tuple")
_OWN = {
    "Dataset": "a Dataset from `load`",
    "LLM": "an LLM from `load`",
    "Layout": "a Layout",
    "Plan": "a Plan",
    "PriceList": "a PriceList(id, date, source, prices)",
    "Recording": "a Recording",
}
_FUNCTIONS = ("Callable", "Progress", "UncountedProgress")
_FIRST = 20  # elements of a list that are looked at


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function raise a `UsageError` that names argument, wanted kind and given value where a
    type is wrong.
    """
    expected = signature(function)
    annotations = {
        name: _parts(each.annotation)
        for name, each in expected.parameters.items()
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    }

    @wraps(function)
    def checking(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            given = expected.bind(*args, **kwargs).arguments
        except TypeError:  # Python's own words name the function
            return function(*args, **kwargs)
        for name, value in given.items():
            wanted = annotations.get(name, ())
            if wanted and not any(_fits(value, each) for each in wanted):
                words = list(dict.fromkeys(map(_words, wanted)))
                kinds = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
                called = function.__qualname__.removesuffix(".__init__")
                raise UsageError(
                    f"{called} takes {kinds} as {name}; {value!r:.80} ({type(value).__name__}) was"
                    " given."
                )
        return function(*args, **kwargs)

    return checking


def in_python(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let the errors of a function speak of its arguments instead of options, with the call that
    would work, and let their tracebacks end here.
    """
    names = list(signature(function).parameters)

    @wraps(function)
    def calling(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except FevalError as error:
            call = ", ".join([*names[: len(args)], as_arguments(error.add, kwargs)])
            error.call = f"feval.{function.__name__}({call})"
            raise error.with_traceback(None) from None

    return calling


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number, of Python or NumPy."""
    return isinstance(value, Integral)


@cache
def _parts(annotation: object) -> tuple[str, ...]:
    """The members of a union; none for an annotation that is no text."""
    return (
        tuple(re.findall(r"[\w.]+(?:\[.*?\](?=$| \|))?", annotation))
        if isinstance(annotation, str)
        else ()
    )


def _fits(value: object, wanted: str) -> bool:
    name, _, inner = wanted.partition("[")
    if name in _KINDS:
        return isinstance(value, _KINDS[name][0])
    own = {each.__name__ for each in type(value).__mro__}
    if name in _OWN:
        return name in own
    if name in _LISTS:
        elements = list(value[:_FIRST]) if isinstance(value, (list, tuple)) else []
        is_list = (
            isinstance(value, Iterable)
            and not isinstance(value, (str, bytes))
            and own.isdisjoint(_OWN)
        )
        return is_list and (
            not inner
            or all(any(_fits(each, part) for part in _parts(inner[:-1])) for each in elements)
        )
    return name not in _FUNCTIONS or callable(value)


def _words(wanted: str) -> str:
    name, _, inner = wanted.partition("[")
    if name in _LISTS:
        return "a list" + f" (each {' or '.join(map(_words, _parts(inner[:-1])))})" * bool(inner)
    if name in _FUNCTIONS:
        return "a function"
    return _KINDS[name][1] if name in _KINDS else _OWN.get(name, f"a {name}")

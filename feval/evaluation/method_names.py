"""Make a method from its name and its fields, as the command line or TOML gives them.

Nothing is registered: a name is a key of `METHODS`, or `FILE.py:FUNCTION` for a user's own method.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from inspect import getdoc
from pathlib import Path
from typing import Any

from feval import methods
from feval.errors import FevalError, OutOfRangeError, UsageError, require_known
from feval.evaluation.user_methods import MethodFile
from feval.methods.fields import field_value, readings, takes
from feval.values import Record, RecordLike


def make_method(
    name: str | MethodFile, settings: RecordLike | None = None, *, sandbox: bool = False
) -> Any:
    """Return a method by its name.

    Args:
        name: a key of `METHODS`, or `FILE.py:FUNCTION` for a user's own; what this function
            returned for one stays as it is.
        settings: fields that differ from the defaults. Text is converted to the field's type; of a
            user's method they are keyword arguments, see `MethodFile`.
        sandbox: whether a user's method runs in bubblewrap, without network and home.

    Raises:
        UnknownNameError: no such method or field; the message names the nearest.
        UsageError: a value of the wrong type, or a sandbox for a built-in method.
        OutOfRangeError: the method refuses a value.
    """
    settings = settings or {}
    if isinstance(name, MethodFile):
        return name.having(settings) if settings else name
    if ":" in name:
        path, _, function = name.rpartition(":")
        if not function:
            raise UsageError(
                f"{name!r} names no function of the file; a user's method is FILE.py:FUNCTION."
            )
        if not Path(path).is_file():
            raise UsageError(
                f"There is no file {path!r}; a user's method is named FILE.py:FUNCTION."
            )
        return MethodFile(Path(path), function, sandbox, tuple(settings.items()))
    if sandbox:
        raise UsageError(
            f"--sandbox is for a method of your own (FILE.py:FUNCTION), and {name} is built in;"
            " leave it out."
        )
    kind, known = _kind(name), field_names(name)
    for setting in settings:
        require_known("field", setting, known, f"These are the fields of {name}.")
    given = {}
    for key, value in settings.items():
        own = readings(value)
        # A list of one may be given as its only value.
        given[key] = field_value(kind, key, [*own, *([one] for one in own)], value)
    return kind(**given)


def is_in_range(name: str, settings: RecordLike) -> bool:
    """Whether a method accepts the sizes of its fields; what else is wrong is said when it is
    made.
    """
    try:
        make_method(name, settings)
    except FevalError as error:
        return not isinstance(error, OutOfRangeError)
    return True


def _kind(name: str) -> type[Any]:
    if name.endswith(".py"):
        raise UsageError(f"{name} is a file; name the function in it as well: {name}:FUNCTION.")
    advice = "A method of your own is named FILE.py:FUNCTION."
    require_known("method", name, (*methods.METHODS, "oracle"), advice)
    return methods.METHODS.get(name, methods.Oracle)


def field_names(name: str) -> list[str]:
    """Return the fields of a built-in method or of the oracle, in order; `UnknownNameError` for
    another name.
    """
    return [f.name for f in fields(_kind(name)) if f.init]


def method_fields(name: str) -> list[Record]:
    """Return name, default, possible values and meaning of each field of a built-in method."""
    kind = _kind(name)
    about = _attributes(getdoc(kind) or "")
    return [
        {
            "field": field.name,
            "default": None if field.default is MISSING else field.default,
            "takes": takes(kind, field.name),
            "about": about.get(field.name, ""),
        }
        for field in fields(kind)
        if field.init
    ]


def _attributes(documentation: str) -> dict[str, str]:
    """Return the entries of the section "Attributes:"; a line that is indented further continues
    the one before.
    """
    entries: dict[str, str] = {}
    _, _, section = documentation.partition("Attributes:\n")
    for line in section.split("\n\n")[0].splitlines():
        key, colon, text = line.strip().partition(": ")
        if colon and line.startswith("    ") and not line.startswith("     "):
            entries[key] = text
        elif entries:
            entries[[*entries][-1]] += f" {line.strip()}"
    return entries


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Read FIELD=VALUE pairs; `UsageError` for what is none, and for a field that comes twice."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"A field is set by FIELD=VALUE, such as --set n=20; {pair!r} was given."
            )
        if key.strip() in settings:
            raise UsageError(f"The field {key.strip()!r} is set twice.")
        settings[key.strip()] = value.strip()
    return settings


def takes_several(method: Any) -> bool:
    """Whether a method asks several LLMs; one that cannot be looked into is taken to ask one."""
    call = getattr(method, "__call__", None) if isinstance(method, type) else method  # noqa: B004  not whether it can be called
    if not callable(call) or isinstance(method, str):
        return False
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return False
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return False  # a protocol's stand-in
    places = [
        one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    required = [one for one in places if one.default is one.empty and one.name != "self"]
    return len(required) > 2 or any(one.kind is one.VAR_POSITIONAL for one in parameters)

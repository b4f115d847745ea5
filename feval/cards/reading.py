"""Read files that may come from strangers: regular files of bounded size, and JSON that says one
thing only. pydantic's findings in words, too; nothing here imports it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from feval.errors import UsageError
from feval.values import Record

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


MOST_DEPTH = 100
"""How deep lists and tables may lie within each other: far above what feval writes, far below
Python's own limit.
"""


def open_regular(path: Path) -> BufferedReader:
    """Open a file. Pipes, devices and folders are an `OSError`: reading them may never end."""
    try:
        descriptor = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
    except ValueError as error:  # a path with a zero byte
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a file; where there are more, or it cannot be read, the `strerror` of the
    `OSError` says why.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(most_bytes + 1) if size <= most_bytes else b""
    if max(size, len(data)) > most_bytes:
        raise OSError(
            errno.EFBIG, f"it is larger than {most_bytes:,} bytes, the most that is read", str(path)
        )
    return data


def parse_json(text: str | bytes) -> Any:
    """Return a JSON value; `ValueError` also for NaN, infinity, a key with two values, and depth
    beyond `MOST_DEPTH`.
    """
    try:
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique
        )
    except RecursionError as error:
        raise ValueError(f"it nests deeper than {MOST_DEPTH} levels") from error
    require_shallow(value)
    return value


def require_shallow(value: Any) -> None:
    """Raise `ValueError` where lists and tables lie deeper within each other than `MOST_DEPTH`,
    without recursion.
    """
    level, depth = [value], 0
    while level := [
        inner
        for outer in level
        if isinstance(outer, (dict, list))
        for inner in (outer.values() if isinstance(outer, dict) else outer)
    ]:
        depth += 1
        if depth > MOST_DEPTH:
            raise ValueError(f"it nests deeper than {MOST_DEPTH} levels")


def _unique(pairs: list[tuple[str, Any]]) -> Record:
    fields = dict(pairs)
    twice = (
        next((key for key, value in pairs if fields[key] != value), None)
        if len(fields) < len(pairs)
        else None
    )
    if twice is not None:
        raise ValueError(f"{twice[:80]!r} occurs twice in one object, with different values")
    return fields


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits:.80} is larger than numbers can be")
    return number


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def sentence(error: ValidationError, most: int = 3) -> str:
    """Describe what is wrong, as the predicate of a sentence: "lacks the field 'title'; has 'x' in
    the field 'seed' (...)".

    The caller puts the subject before it and what to do behind it: `f"The price list {path}
    {sentence(error)}. Correct it."`.

    Args:
        error: what pydantic raised. The text of a `ValueError` that a validator of ours raised is
            used as it is.
        most: faults to spell out; the rest is counted.
    """
    faults = [_fault(details) for details in error.errors(include_url=False)]
    rest = len(faults) - most
    more = f"; and {rest} more fault{'s' * (rest > 1)}" if rest > 0 else ""
    return "; ".join(faults[:most]) + more


def _fault(details: ErrorDetails) -> str:
    *path, last = details["loc"] or ("",)
    is_key = last == "[key]"
    field = shorten(".".join(map(str, path[:-1] if is_key else (*path, last))))
    match details["type"]:
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            return f"lacks the field {field}"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"has an unknown field {field}"
        case "json_invalid":
            return f"is not valid JSON ({details['ctx']['error']})"
        case "value_error" | "assertion_error":
            reason = str(details["ctx"]["error"])
        case "is_instance_of" if details["ctx"]["class"] == "Path":
            reason = "input should be a path, written as text"
        case _:
            reason = details["msg"][:1].lower() + details["msg"][1:].replace(
                "a valid string", "text"
            ).replace("a valid tuple", "a list").replace("dictionary", "mapping")
    if not details["loc"]:
        return f"is not usable: {reason}"
    return f"has {'the key ' * is_key}{shorten(details['input'])} in the field {field} ({reason})"


def shorten(value: object) -> str:
    """Return the `repr` of a value for an error message, cut to 80 characters."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def some(names: Iterable[str], most: int = 5) -> str:
    """Return the first of some names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


MAX_BYTES = 1 << 20


def read_toml(path: Path, noun: str, advice: str) -> Record:
    """Return the content of a file; the `UsageError` for one that cannot be read calls it by its
    noun.
    """
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(
            f"{noun} {path} cannot be read: {error.strerror or error}. Name a file in TOML."
        ) from error
    import tomllib  # deferred: most commands read no TOML

    try:
        content = tomllib.loads(data.decode("utf-8-sig"))
        require_shallow(content)  # dotted keys nest without recursion
    # ValueError also for a number of thousands of digits
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{noun} {path} is not valid TOML: {str(error).partition(';')[0]}. {advice}"
        ) from error
    return content

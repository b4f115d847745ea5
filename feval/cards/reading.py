"""Read files that may come from strangers: regular files of bounded size, and JSON that says one
thing only.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

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
    while level := [inner for outer in level for inner in _items(outer)]:
        depth += 1
        if depth > MOST_DEPTH:
            raise ValueError(f"it nests deeper than {MOST_DEPTH} levels")


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
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

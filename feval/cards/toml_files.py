"""Files of options in TOML, as a user writes them: comparison files and files for `--settings`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from feval.cards.reading import read_regular, require_shallow
from feval.errors import UsageError

MAX_BYTES = 1 << 20


def read_toml(path: Path, noun: str, advice: str) -> dict[str, Any]:
    """Return the content of a file; the `UsageError` for one that cannot be read calls it by its
    noun.
    """
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(
            f"{noun} {path} cannot be read: {error.strerror or error}. Name a file in TOML."
        ) from error
    try:
        content = tomllib.loads(data.decode("utf-8-sig"))
        require_shallow(content)  # dotted keys nest without recursion
    # ValueError also for a number of thousands of digits
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{noun} {path} is not valid TOML: {str(error).partition(';')[0]}. {advice}"
        ) from error
    return content

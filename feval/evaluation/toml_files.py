"""Files of options in TOML, as a user writes them: comparison files and files for `--settings`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from feval.errors import UsageError

MAX_BYTES = 1 << 20


def read_toml(path: Path, noun: str, advice: str) -> dict[str, Any]:
    """Return the content of a file; the `UsageError` for one that cannot be read calls it by its noun."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would wait forever
            raise UsageError(f"{noun} {path} is neither file nor folder. Name a file in TOML.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{noun} {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{noun} {path} is larger than {MAX_BYTES:,} bytes; is it the right file?")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # ValueError also for a number of thousands of digits
        raise UsageError(f"{noun} {path} is not valid TOML: {str(error).partition(';')[0]}. {advice}") from error

"""Where on the Hub a recording was fetched from: a note in its folder, or the path of the Hub's
cache.
"""

from __future__ import annotations

import re
from pathlib import Path

from feval.cards.reading import parse_json, read_regular

PULLED = ".feval-pulled.json"
"""The note: the address on the Hub, with its commit."""

_CACHED = re.compile(
    r"datasets--(?P<namespace>[^-/][^/]*?)--(?P<name>[^/]+)/snapshots/(?P<commit>[0-9a-f]{40})(?P<path>/.+)?"
)
_ADDRESS = re.compile(r"hf://[A-Za-z0-9._/@%+ =-]{1,400}")


def cached_from(folder: Path) -> str | None:
    """Return the address on the Hub of a folder in the Hub's cache; `None` for any other folder."""
    match = re.search(f"(?:^|/){_CACHED.pattern}$", folder.as_posix())
    return (
        match
        and f"hf://{match['namespace']}/{match['name']}@{match['commit']}{match['path'] or ''}"
    )


def origin(folder: Path) -> str | None:
    """Return the address on the Hub that a recording was fetched from; `None` where it was not."""
    if (cached := cached_from(folder)) is not None:
        return cached
    try:
        address = parse_json(read_regular(folder / PULLED, 4096))["address"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if isinstance(address, str) and _ADDRESS.fullmatch(address) else None

"""Names of runs, from paths, headers and API keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from feval.publish.secrets import LIKE_A_KEY
from feval.replay.draws import MAX_REPLICATES
from feval.serving.wire.errors import RequestError

_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})(?:@([0-9]{1,7}|recorded))?")
_NUMBERED = re.compile(r"(.{1,60})-([0-9]{1,2})")
_MIN_SECRET = 32
_MIN_MARKED_SECRET = 20  # with a prefix that keys have


@dataclass(frozen=True, slots=True)
class RunName:
    """A run: its name as it is shown, and which draws it sees (`None`: recorded order)."""

    label: str
    replicate: int | None


def run_name(text: str, order: str = "seeded") -> RunName:
    """Parse `NAME`, `NAME@R` for replicate R, or `NAME@recorded`; a name alone means replicate 0,
    or the order "recorded".

    Raises:
        RequestError: the name is not valid.
    """
    default = 0 if order == "seeded" else None
    match = _NAME.fullmatch(text)
    if match is None:
        raise RequestError(
            f"{text[:80]!r} is not a valid name of a run. A name has up to 64 letters, digits, '.',"
            " '_' and '-', begins with a letter or digit, and may end with @R for replicate R or"
            " with @recorded.",
            code="bad_run",
        )
    name, suffix = match.groups()
    replicate = default if suffix is None else None if suffix == "recorded" else int(suffix)
    if replicate is not None and replicate > MAX_REPLICATES:
        raise RequestError(
            f"Replicates are numbered from 0 to {MAX_REPLICATES:,}; {text!r} asks for another one.",
            code="bad_run",
        )
    if replicate == default:
        return RunName(name, replicate)
    return RunName(f"{name}@{'recorded' if replicate is None else replicate}", replicate)


@lru_cache(1024)  # of names that raise, none is kept
def public_run(text: str, order: str = "seeded") -> RunName:
    """Parse the name of a run from a path or header; `RequestError` for what looks like a secret,
    since names are stored.
    """
    if len(text) >= _MIN_MARKED_SECRET and LIKE_A_KEY.fullmatch(text):
        raise RequestError(
            "The name of this run looks like a secret key, and names are written down. Send a key"
            " as the API key, and choose another name for the run.",
            code="bad_run",
        )
    return run_name(text, order)


def run_of_key(key: str, order: str = "seeded") -> RunName:
    """Return the run of an API key. A key that may be a secret is not stored: its run is named by a
    hash of it.
    """
    if not key.strip("-_. "):
        return run_name("default", order)
    if len(key) < _MIN_SECRET and _NAME.fullmatch(key) and not LIKE_A_KEY.fullmatch(key):
        try:
            return run_name(key, order)
        except RequestError:
            pass
    return run_name(f"key-{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}", order)


def next_name(label: str) -> str:
    """Return a new name for a run that sees the same draws: "mine-2" after "mine", "mine-3@1" after
    "mine-2@1".
    """
    base, at, replicate = label.partition("@")
    numbered = _NUMBERED.fullmatch(base)
    stem, number = (numbered[1], int(numbered[2]) + 1) if numbered else (base[:60], 2)
    return f"{stem}-{number}{at}{replicate}"

"""The layout of a recording on disk: names of folders, file names, leaves and the recording hash.

`docs/recording-format.md` is this module in prose; a change here is a new format version.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from feval.cards.reading import open_regular, parse_json, read_regular
from feval.errors import (
    DamagedRecordingError,
    FevalError,
    NotARecordingError,
    StorageError,
    UsageError,
)
from feval.values import Record as Record

FORMAT = "feval-recording"
FORMAT_VERSION = 8
"""The one version that is written and read."""
MANIFEST = "manifest.json"
README = "README.md"
SCORES = "scores/"
"""Prefix of the part of a scorer's scores; the scorer's name follows."""
PROBES = "probes"
PROBE_VOTES = "probe votes"
"""The part of the flat file that is derived from an LLM's probes."""

_SAFE = re.compile(r"[A-Za-z0-9._@=+-]")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9._@=+-]{0,99}")
_MAX_NAME = 200
_NOWHERE = frozenset(("", ".", ".."))
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_EXPONENT = re.compile(rb"e\+(?<=\de\+)\d")
_TEXT_OR_PLUS = re.compile(rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"|e\+')
_VOTES = ("votes", "details")
_BESIDE_FILES = frozenset(("README.md", "LICENSE", ".gitattributes"))
_BESIDE_FOLDERS = ("figures/", "results/")


def check_name(noun: str, name: str) -> str:
    """Refuse a dataset, LLM or question name that could not be printed, hashed or stored."""
    if not name or len(name) > _MAX_NAME or name != name.strip():
        shown = f"{name[:80]!r}... of {len(name)}" if len(name) > 80 else repr(name)
        raise UsageError(
            f"{noun[0].upper()}{noun[1:]} names have 1 to {_MAX_NAME} characters and no blanks"
            f" around them; found {shown}."
        )
    if _UNPRINTABLE.search(name):
        raise UsageError(
            f"The {noun} {name!r} has control characters or broken Unicode in its name. Rename it."
        )
    return name


def slug(name: str) -> str:
    """Return the file name of a dataset or LLM: readable, safe everywhere, different for different
    names.

    "/" becomes "--". A name that this would make ambiguous gets eight digits of its SHA-256
    appended.
    """
    plain = name.replace("/", "--")
    safe = (
        plain
        if _SAFE_NAME.fullmatch(plain)
        else "".join(c if _SAFE.match(c) else "_" for c in plain)[:100]
    )
    if safe == plain and "--" not in name and not safe.startswith("."):
        return safe
    return f"{safe.lstrip('.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class Part(NamedTuple):
    """A part of a dataset, or of an LLM on it: what its leaf, its record and its files are found
    by.

    `name` is that of a `PartSpec`, of scores with the scorer behind a slash, or of a leaf or file
    beside them.
    """

    name: str
    dataset: str
    llm: str | None = None

    def __str__(self) -> str:
        return " / ".join(filter(None, (self.dataset, self.llm, self.name)))

    @property
    def path(self) -> str:
        """Its path below the recording's folder, with "/" between the names."""
        dataset = slug(self.dataset)
        if self.name in _VOTES:
            return f"votes/{dataset}.{self.name}"
        if self.llm is None:
            return f"{self.name}/{dataset}.parquet"
        llm = slug(self.llm)
        if self.name == PROBE_VOTES:
            return f"votes/{dataset}/{llm}.probes"
        if self.name.startswith(SCORES):
            return f"{SCORES}{dataset}/{llm}/{slug(self.name.removeprefix(SCORES))}.parquet"
        return f"{self.name}/{dataset}/{llm}.parquet"

    def numbered_path(self, number: int) -> str:
        """The path of one file, counted from 0, where it lies in several."""
        return f"{self.path.removesuffix('.parquet')}/part-{number:05d}.parquet"

    def paths(self, files: Container[str]) -> list[str]:
        """Which of some files hold it, in their order: one, several, or none."""
        if self.path in files:
            return [self.path]
        paths: list[str] = []
        while (path := self.numbered_path(len(paths))) in files:
            paths.append(path)
        return paths


def is_safe_path(path: object) -> bool:
    """Return whether a path from a manifest stays inside the recording's folder."""
    if not isinstance(path, str) or "\\" in path or "\0" in path or ":" in path:
        return False
    return _NOWHERE.isdisjoint(path.split("/"))


def is_beside(path: str) -> bool:
    """Return whether a file of a Hub repository, which people edit and feval does not read, may lie
    beside a recording's.
    """
    return path in _BESIDE_FILES or path.startswith(_BESIDE_FOLDERS)


def name_key(*names: str) -> int:
    """64-bit key of some names: the first eight bytes, little-endian, of SHA-256 over the names
    joined by newlines.
    """
    return int.from_bytes(
        hashlib.sha256("\n".join(names).encode(errors="surrogatepass")).digest()[:8], "little"
    )


class LeafHash:
    """SHA-256 over the logical content of one part, line by line, whatever Parquet writer made the
    file.

    A line is a JSON value without blanks, UTF-8, non-ASCII characters as they are, keys sorted,
    followed by a newline.
    """

    def __init__(self) -> None:
        import orjson  # not needed by `feval --help`

        self._dumps = orjson.dumps
        self._option = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        self._sha = hashlib.sha256()

    def add(self, value: Sequence[Any] | Record, where: str = "") -> None:
        """Add one line; a value that JSON in UTF-8 cannot hold (half a surrogate pair, over 64
        bits) is a `UsageError`, which begins with where it is.
        """
        try:
            line = self._dumps(value, option=self._option)
        except TypeError as error:
            raise UsageError(
                f"{where}A value cannot be stored ({error}); text must be valid Unicode, a number"
                " have 64 bits."
            ) from error
        # some versions of orjson write 1e+16, others 1e16
        if b"e+" in line and _EXPONENT.search(line):
            line = _TEXT_OR_PLUS.sub(lambda match: b"e" if match[0] == b"e+" else match[0], line)
        self._sha.update(line)

    def hexdigest(self) -> str:
        """The leaf."""
        return self._sha.hexdigest()


def leaf_hash(lines: Iterable[Sequence[Any] | Record]) -> str:
    """Return the leaf of some lines."""
    leaf = LeafHash()
    for line in lines:
        leaf.add(line)
    return leaf.hexdigest()


def recording_hash(leaves: Mapping[Part, str]) -> str:
    """Return the Merkle root: SHA-256 over the sorted leaves (dataset, LLM or "", part, hex
    digest), as one JSON line.
    """
    rows = sorted([part.dataset, part.llm or "", part.name, leaf] for part, leaf in leaves.items())
    return hashlib.sha256(
        json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    ).hexdigest()


MOST_BYTES = 256 * 2**20
"""No manifest is larger."""


def read_json(folder: Path) -> Any:
    """Read the manifest of a recording without checking its fields."""
    import orjson  # not needed by `feval --help`

    path = folder / MANIFEST
    try:
        return orjson.loads(_read(path, folder))  # refuses NaN and infinities, which JSON has not
    except orjson.JSONDecodeError as error:
        raise DamagedRecordingError(
            f"{path} is not valid JSON ({error}); fetch or make the recording again."
        ) from error


def recording_around(folder: str | Path) -> Path | None:
    """Return the recording that a folder, existing or not, is or lies in; `None` where there is
    none.
    """
    place = Path(folder).resolve()
    return next((path for path in (place, *place.parents) if _is_recording(path)), None)


def _recordings_in(folder: Path) -> list[Path]:
    """Return the first few recordings inside a folder, which the user may have meant."""
    try:
        return sorted(islice(filter(_is_recording, islice(folder.iterdir(), 100)), 3))
    except OSError:
        return []


def _is_recording(folder: Path) -> bool:
    try:
        if not (folder / MANIFEST).exists():
            return False
        raw = read_json(folder)
    except (FevalError, OSError):
        return False
    return isinstance(raw, dict) and raw.get("format") == FORMAT


def _read(path: Path, folder: Path) -> bytes:
    try:
        with open_regular(path) as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, MOST_BYTES) + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        problem = (
            "has no manifest.json"
            if folder.is_dir()
            else "is not a folder"
            if folder.exists()
            else "does not exist"
        )
        within, out = _recordings_in(folder), str(folder).removesuffix(".journal")
        if not within and Path(f"{out}.journal").is_dir():
            raise NotARecordingError(
                f"The recording {out} is unfinished: its CoTs so far are in {out}.journal. The"
                " command that began it goes on; that of `feval record` makes a recording of what"
                " is there with `partial`."
            ) from error
        advice = (
            f"There is one in {' and in '.join(map(str, within))}; name the folder itself."
            if within
            else "Make one with `feval record` or `feval import`, or check the path."
        )
        raise NotARecordingError(f"No recording at {folder}: it {problem}. {advice}") from error
    except OSError as error:
        raise StorageError(f"{path} could not be read: {error.strerror or error}.") from error
    if len(data) > MOST_BYTES:
        raise DamagedRecordingError(
            f"{path} is larger than {MOST_BYTES // 2**20} MiB; no manifest is."
        )
    return data


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

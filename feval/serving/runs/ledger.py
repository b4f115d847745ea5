"""The ledger file: one JSON line for what is served, then one for every request. Lines are only
ever appended.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import orjson

from feval.cards.reading import open_regular
from feval.errors import ConflictError, SourceError, StorageError
from feval.publish.secrets import open_private
from feval.recording import recording_around
from feval.serving.matching.templates import is_example

FORMAT = "feval-serving-ledger"

_LOG = logging.getLogger("feval.serving")
_FLUSH_S = 0.2
_MOST_WAITING = 16 << 20  # bytes that a disk may be behind
_PINNED = ("recordings", "seed", "order", "billing", "prices")


class LedgerFile:
    """A ledger file open for appending; its header says what is served, `entries` are the requests
    that it held before.

    Entries reach the operating system at most 0.2 s later. What could not be written is kept, and
    tried again then and at the end.

    Raises:
        StorageError: the file exists and `resume` is false, another process appends to it, or it
            cannot be written.
        ConflictError: an existing file belongs to other recordings, seeds, orders, billings or
            prices.
        SourceError: an existing file is not a ledger.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any], *, resume: bool) -> None:
        self.path = Path(path)
        self.entries: list[dict[str, Any]] = []
        self._waiting = bytearray()
        self._lock, self._writing = Lock(), Lock()
        self._closing = Event()
        self._has_failed = False
        if (holder := recording_around(self.path.absolute().parent)) is not None:
            raise StorageError(
                f"The ledger {self.path} would lie inside the recording {holder}, which never"
                " changes. Name another file."
            )
        try:
            self._file = open_private(self.path, os.O_APPEND)
        except OSError as error:
            raise StorageError(
                f"The ledger {self.path} cannot be opened: {error.strerror or error}."
            ) from error
        try:
            self._claim()
            self._begin({"format": FORMAT, "version": 1, **header}, resume=resume)
        except BaseException:
            os.close(self._file)
            raise
        self._thread = Thread(target=self._write_on, name="ledger", daemon=True)
        self._thread.start()

    @property
    def is_late(self) -> bool:
        """Whether requests have to be on the disk before they are answered: a write has failed, or
        the disk is far behind.
        """
        return self._has_failed or len(self._waiting) > _MOST_WAITING

    def add(self, entries: Sequence[Mapping[str, Any]], *, at_once: bool) -> None:
        """Append requests, `at_once` or soon; `StorageError` if they cannot be written at once, and
        then none of them is.
        """
        lines = b"".join(
            [orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in entries]
        )
        if self._closing.is_set():
            raise StorageError(f"The ledger {self.path} is closed, so no more CoTs are handed out.")
        if at_once:
            self._write(lines)
        else:
            with self._lock:
                self._waiting += lines

    def close(self) -> None:
        """Write what is left and close the file; `StorageError` if not everything could be
        written.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join()
        try:
            self._write()
        except StorageError as error:
            lost = self._waiting.count(b"\n")
            raise StorageError(
                f"{error} Requests that were answered and are not in it: {lost:,}."
            ) from error
        finally:
            os.close(self._file)

    def _claim(self) -> None:
        try:
            import fcntl
        except ImportError:  # no such locks on Windows
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StorageError(
                f"Another process appends to the ledger {self.path}. End it, or name another file."
            ) from error

    def _begin(self, header: Mapping[str, Any], *, resume: bool) -> None:
        size = os.fstat(self._file).st_size
        if not size:
            self._append(orjson.dumps(header, option=orjson.OPT_APPEND_NEWLINE))
            return
        if not resume:
            raise StorageError(
                f"The ledger {self.path} exists already. Name another file, or continue this one"
                " with --resume."
            )
        existing, self.entries, whole = _read(self.path)
        for name in _PINNED:
            if existing and existing.get(name) != header.get(name):
                raise ConflictError(
                    f"The ledger {self.path} has {name} {_shown(existing.get(name))}, but what is"
                    f" served now has {_shown(header.get(name))}. Serve the same, or start another"
                    " ledger."
                )
        os.ftruncate(self._file, whole)  # a line that was being written when the process was killed
        if not existing:
            self._append(orjson.dumps(header, option=orjson.OPT_APPEND_NEWLINE))

    def _append(self, data: bytes) -> None:
        """Write all of some lines, or nothing of them."""
        try:
            size = os.fstat(self._file).st_size
            try:
                while data:
                    data = data[os.write(self._file, data) :]
                if self._has_failed:  # some file systems notice only then that there is no room
                    os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, size)
                raise
        except OSError as error:
            raise StorageError(
                f"The ledger {self.path} cannot be written ({error.strerror or error}). Make room;"
                " until then, no CoTs are handed out."
            ) from error

    def _write(self, lines: bytes = b"") -> None:
        """Write what waits, then some lines; if that fails, what waits is kept, and the lines are
        not.
        """
        with self._writing:
            with self._lock:
                waiting, self._waiting = self._waiting, bytearray()
            try:
                self._append(bytes(waiting) + lines)
            except StorageError as error:
                with self._lock:
                    self._waiting = waiting + self._waiting
                if not self._has_failed:
                    _LOG.warning("%s", error)
                self._has_failed = True
                raise

    def _write_on(self) -> None:
        while not self._closing.wait(_FLUSH_S):
            if self._waiting:
                with suppress(StorageError):
                    self._write()


def read_ledger(path: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the header and the requests of a ledger file, without an incomplete last line;
    docs/serving.md describes them.

    Raises:
        StorageError: the file cannot be read.
        SourceError: it is not a ledger.
    """
    header, entries, _ = _read(Path(path))
    if not header:
        raise SourceError(f"The ledger {path} is empty.")
    return header, entries


def _read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """Return header, requests, and the length of the complete lines in bytes."""
    whole = 0
    header: dict[str, Any] = {}
    entries: list[dict[str, Any]] = []
    try:
        with open_regular(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                record = _record(path, number, line)
                if number == 1:
                    header = record
                else:
                    entries.append(record)
                whole += len(line)
    except OSError as error:
        raise StorageError(
            f"The ledger {path} cannot be read: {error.strerror or error}."
        ) from error
    return header, entries, whole


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise SourceError(
            f"Line {number} of the ledger {path} is not valid JSON; the file was changed or"
            " damaged."
        ) from error
    if not isinstance(record, dict) or (number == 1 and record.get("format") != FORMAT):
        raise SourceError(
            f'{path} is not a ledger of `feval serve`: its first line lacks "format": "{FORMAT}".'
        )
    if number > 1 and not _is_entry(record):
        raise SourceError(
            f"Line {number} of the ledger {path} is not a request; the file was changed or damaged."
        )
    return record


def _is_entry(record: Mapping[str, Any]) -> bool:
    if record.get("reset") is True:
        return isinstance(record.get("run"), str)
    samples = record.get("samples")
    return (
        all(isinstance(record.get(name), str) for name in ("run", "dataset", "llm", "question"))
        and isinstance(samples, list)
        and all(type(sample) is int and sample >= 0 for sample in samples)
        and record.get("n") == len(samples) > 0
        and is_tokens(record.get("tokens"), len(samples))
        and isinstance(record.get("limited", []), list)
        and all(
            isinstance(record.get(name), str | None) for name in ("match", "template", "mismatch")
        )
        and is_example(record.get("example"))
        and type(record.get("pass", 1)) is int
    )


def is_tokens(value: object, size: int) -> bool:
    """Whether a JSON value says how many tokens of each CoT were handed out, null for all of them;
    or is null for all CoTs.
    """
    return value is None or (
        isinstance(value, list)
        and len(value) == size
        and all(each is None or (type(each) is int and each >= 0) for each in value)
    )


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(item)[:12] for item in value) or "none"
    return repr(value)[:80]

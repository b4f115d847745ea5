"""A file of lines that only grows, in a folder locked for one process: what journals are made of.

One JSON object per line, UTF-8. The first line says, in a field that the kind of journal names, what the file is of. Every line
ends with the CRC-32 of what stands before it, so that damage is seen. A kill leaves at most one line without its end, which is
cut off when the file is opened again; a line that is damaged otherwise is an error that names it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

import orjson

from feval.errors import StorageError
from feval.recording import recording_around
from recorders.errors import JournalError, LockedJournalError

__all__ = ["VERSION", "AppendLog", "Line", "clean", "difference", "line"]

VERSION = 1
_LOCK = "lock"
_CRC_BYTES = len(b',"crc":"00000000"}\n')


class Line(NamedTuple):
    """One line: its number from 1, the bytes before it, and the bytes it is, with their end."""

    number: int
    offset: int
    data: bytes


class AppendLog:
    """The file in one folder, locked for this process; a context manager that closes it. Each kind of journal is a subclass.

    Args:
        folder: where it lies.

    Attributes:
        folder: where it lies.
        path: of the file.
        existed: whether there was one before.
        recovered: a sentence if a torn last line was cut off; `None` otherwise.
    """

    NAME: ClassVar[str]
    """Of the file."""
    HEADER: ClassVar[str]
    """The field of the first line that says what the file is of."""
    WORKER: ClassVar[str]
    """Who writes such files, for messages."""
    ELSEWHERE: ClassVar[str]
    """What to do to leave a file alone, for messages."""
    ANEW: ClassVar[str]
    """What to do to begin anew, for messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / self.NAME
        self.existed = False
        self.recovered: str | None = None
        self._failed: str | None = None
        self._size = 0
        self._file = self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of file and lock. What was not written is not written."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def remove(self) -> None:
        """Remove the file and its folder: what it held was sealed and verified."""
        with self._storage_errors("removed"):
            self.path.unlink()
            (self.folder / _LOCK).unlink()
            try:
                self.folder.rmdir()
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise  # something else lies there, such as a journal that was set aside: it stays
        self.close()

    def _open(
        self,
        identity: Mapping[str, Any],
        take: Callable[[Line], None],
        *,
        about: Mapping[str, Any] | None = None,
        locked: Callable[[], None] = lambda: None,
    ) -> None:
        """Lock the folder, read what is there, and begin the file where it is not.

        Args:
            identity: what it is of (JSON values); a file of something else is refused.
            take: called with each line after the first.
            about: further fields of a new first line.
            locked: called when the folder is locked, before the file is opened.

        Raises:
            StorageError: the folder lies inside a recording.
        """
        if (holder := recording_around(self.folder)) is not None:
            raise StorageError(
                f"The journal {self.folder} would lie inside the recording {holder}, which never changes. Name another folder."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        locked()
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        for found in self._lines():
            if not found.data.endswith(b"\n"):
                self._cut(found)
                break
            if found.number == 1:
                self._check_header(found.data, orjson.loads(orjson.dumps(identity)))
            else:
                take(found)
            self._size += len(found.data)
        self.existed = self._size > 0
        if not self.existed:
            self._may_begin()
            self._append(line({"v": VERSION, self.HEADER: identity, **(about or {})}))
            _sync_folder(self.folder)
        os.fsync(self._file)  # a killed writer may have left lines that it did not live to sync

    def _may_begin(self) -> None:
        """Raise what there is to say where a file must not be begun."""

    def _written(self) -> Iterator[Line]:
        """What is acknowledged, read again, without the first line."""
        with self._storage_errors("read"):
            for found in self._lines():
                if found.offset >= self._size:
                    return
                if found.number > 1:
                    yield found

    def _append(self, data: bytes) -> None:
        """Write and sync whole lines; after a failure, those that were written stay, and nothing can be written any more."""
        view, written = memoryview(data), 0
        try:
            while written < len(view):
                written += os.write(self._file, view[written:])
            os.fsync(self._file)
        except OSError as error:
            self._failed = error.strerror or str(error)
            # Whole lines stay: they were paid for, and the next run will find them.
            os.ftruncate(self._file, self._size + data.rfind(b"\n", 0, written) + 1)
            raise
        self._size += len(view)

    def _refuse_after_failure(self) -> None:
        if self._failed is not None:
            raise JournalError(
                f"An earlier write to {self.path} failed ({self._failed}); see to the disk and run the same command again."
            )

    def _parse(self, number: int | None, data: bytes) -> dict[str, Any]:
        content, end = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
        if end != b',"crc":"%08x"}\n' % zlib.crc32(content):
            raise self._damaged(number, "does not agree with its checksum")
        try:
            record = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise self._damaged(number, f"is not JSON ({error})") from error
        if not isinstance(record, dict) or not isinstance(record.get("v"), int):
            raise self._damaged(number, "has no version")
        if record["v"] > VERSION:
            raise JournalError(
                f"{self.path} was written by a later feval (version {record['v']}); install a newer one."
            )
        return record

    def _damaged(self, number: int | None, what: str) -> JournalError:
        where = "A line" if number is None else f"Line {number}"
        advice = (
            f"Its header cannot be trusted: take the journal back from a backup, or {self.ANEW}."
            if number == 1
            else "Take the journal back from a backup, or delete that line: its CoT will be asked for again."
        )
        return JournalError(f"{where} of {self.path} {what}. {advice}")

    @contextmanager
    def _storage_errors(self, verb: str) -> Iterator[None]:
        """Turn what the disk says into one sentence."""
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                what = "the disk is full"
            elif error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
                what = "the folder is read-only"
            else:
                what = error.strerror or str(error)
            advice = (
                "Check that its folder can be made and written to, and run the same command again."
                if verb == "opened"
                else "What was acknowledged is in it; see to the disk and run the same command again."
            )
            raise StorageError(f"The journal {self.path} could not be {verb}: {what}. {advice}") from error

    def _lines(self) -> Iterator[Line]:
        offset = 0
        with self.path.open("rb") as file:
            for number, data in enumerate(file, 1):
                yield Line(number, offset, data)
                offset += len(data)

    def _locked(self) -> int:
        path = self.folder / _LOCK
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if error.errno not in {errno.EAGAIN, errno.EACCES}:
                    raise
                raise LockedJournalError(
                    f"Another {self.WORKER} is at work in {self.folder}. Wait until it is done, or {self.ELSEWHERE}."
                ) from error
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
            os.close(descriptor)  # whoever finished removed the file between our opening and locking it

    def _cut(self, torn: Line) -> None:
        os.ftruncate(self._file, self._size)
        self.recovered = (
            f"Line {torn.number} of {self.path} had no end ({len(torn.data)} bytes, an interrupted write) and was cut off; what "
            "it held had not been acknowledged."
        )

    def _check_header(self, data: bytes, identity: Mapping[str, Any]) -> None:
        found = self._parse(1, data).get(self.HEADER)
        if not isinstance(found, dict):
            raise JournalError(
                f"{self.path} is no journal of a {self.WORKER}: its first line has no field {self.HEADER!r}. To leave it alone, "
                f"{self.ELSEWHERE}."
            )
        differs = difference(found, identity)
        if differs is not None:
            raise JournalError(
                f"{self.folder} holds a journal of something else: its {differs}. To leave it alone, {self.ELSEWHERE}; if it is "
                f"not needed, {self.ANEW}."
            )


def difference(found: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """Say where two identities differ first, such as "decoding temperature is 0.7, asked for is 0.9"; `None`: nowhere."""
    for name in dict.fromkeys([*asked, *found]):
        here, there = found.get(name), asked.get(name)
        if here == there:
            continue
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            return f"{name} {difference(here, there)}"
        return f"{name} is {here!r:.200}, asked for is {there!r:.200}"
    return None


def line(record: Mapping[str, Any]) -> bytes:
    """A record as a line with its checksum."""
    content = orjson.dumps(record)[:-1]
    return b'%b,"crc":"%08x"}\n' % (content, zlib.crc32(content))


def clean(text: str) -> str:
    """The text with lone surrogates, which no file can hold, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

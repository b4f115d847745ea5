"""An append-only file of checksummed lines in a folder locked by one process: the base of both
journals.

One JSON object per line, UTF-8. The first line identifies what is journalled, in a field that each
kind of journal names. Every line ends with the CRC-32 of the bytes before it, so damage is
detected. A kill leaves at most one unterminated line, which is cut off when the file is opened
again; any other damage is an error that names the line.

Lines are written and synced in groups: journals collect lines, and `commit` writes them all and
returns once they are on disk. Only then do they count.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import orjson

from feval.errors import StorageError
from feval.publish.secrets import Mask, known_secrets, open_private
from feval.recording import recording_around
from feval.recording.layout.destination import sync_folder
from recorders.errors import JournalError, LockedJournalError

VERSION = 1

Record = TypeVar("Record")
Key = TypeVar("Key")

_LOCK = "lock"
_CRC_BYTES = len(b',"crc":"00000000"}\n')


class Line(NamedTuple):
    """One line: its number (from 1; 0 where it is not known), the bytes before it, and its own
    bytes with the line end.
    """

    number: int
    offset: int
    data: bytes


class AppendLog(ABC, Generic[Record, Key]):
    """The file in one folder, locked for this process; a context manager that closes it. Each kind
    of journal is a subclass.

    Lines may be collected and committed from different threads; two commits wait for each other.
    `recovered` is a sentence if a torn last line was cut off.
    """

    NAME: ClassVar[str]
    """File name."""
    HEADER: ClassVar[str]
    """Field of the first line that identifies what is journalled."""
    WORKER: ClassVar[str]
    """Who writes such files, for messages."""
    ELSEWHERE: ClassVar[str]
    """How to leave an existing file alone, for messages."""
    ANEW: ClassVar[str]
    """How to start over, for messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / self.NAME
        self.existed = False
        self.recovered: str | None = None
        self._failed: str | None = None
        self._mask = Mask(known_secrets().values())
        self._size = 0
        self._file = self._lock = -1
        self._pending: list[bytes] = []
        self._uncounted: list[Record] = []
        self._collecting = threading.Lock()
        self._committing = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release the lock. Lines that were not committed are dropped."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def remove(self) -> None:
        """Remove the file and its folder, once its content is sealed and verified."""
        with self._storage_errors("removed"):
            self.path.unlink()
            (self.folder / _LOCK).unlink()
            try:
                self.folder.rmdir()
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise  # other files, such as a journal that was set aside, stay
        self.close()

    def commit(self) -> list[Key]:
        """Write and sync all collected lines, and return the keys of the records that count from
        now on.

        If the disk refuses (`StorageError`), nothing of this group counts, and the file ends with a
        whole line.
        """
        with self._committing:
            with self._collecting:
                self._refuse_after_failure()
                lines, records = self._pending, self._uncounted
                self._pending, self._uncounted = [], []
            if not lines:
                return []
            with self._storage_errors("written"):
                self._append(b"".join(lines))
            return [self._count(record) for record in records]

    @abstractmethod
    def __len__(self) -> int:
        """Number of items that count."""

    @abstractmethod
    def _count(self, record: Record) -> Key:
        """Count a record that is on the disk, and return its key."""

    def _line(self, record: Mapping[str, Any]) -> bytes:
        """Return a record as a line, without the known secrets."""
        data = line(record)
        return line(self._mask.value(record)) if self._mask.is_in(data) else data

    def _collect(self, lines: Iterable[bytes], records: Iterable[Record] = ()) -> None:
        """Add lines to the next commit; call it while holding `_collecting`."""
        self._pending += lines
        self._uncounted += records

    def _open(
        self,
        identity: Mapping[str, Any],
        take: Callable[[Line], None],
        *,
        about: Mapping[str, Any] | None = None,
        locked: Callable[[], None] = lambda: None,
    ) -> None:
        """Lock the folder, call `locked`, and read the file (`take` gets each line after the
        first), or begin it.
        """
        if (holder := recording_around(self.folder)) is not None:
            raise StorageError(
                f"The journal {self.folder} would lie inside the recording {holder}, which never"
                " changes. Name another folder."
            )
        place = self.folder.absolute()
        new_folders = [path for path in (place, *place.parents) if not path.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        locked()
        self._file = open_private(self.path, os.O_APPEND)
        for entry in self._lines():
            if not entry.data.endswith(b"\n"):
                self._cut(entry)
                break
            if entry.number == 1:
                self._check_header(entry.data, orjson.loads(orjson.dumps(identity)))
            else:
                take(entry)
            self._size += len(entry.data)
        self.existed = self._size > 0
        if not self.existed:
            self._check_may_begin()
            self._append(self._line({"v": VERSION, self.HEADER: identity, **(about or {})}))
            for folder in {place, place.parent, *(path.parent for path in new_folders)}:
                sync_folder(folder)
        os.fsync(self._file)  # a killed writer may have left lines that it did not live to sync

    def _check_may_begin(self) -> None:
        """Raise if a new file must not be begun."""

    def _committed_lines(self) -> Iterator[Line]:
        """Read the committed lines again, without the first."""
        with self._storage_errors("read"):
            for entry in self._lines():
                if entry.offset >= self._size:
                    return
                if entry.number > 1:
                    yield entry

    def _lines_at(self, offsets: Iterable[int]) -> Iterator[Line]:
        """Read the lines that begin at some offsets, in that order; their numbers are not known,
        0.
        """
        with self._storage_errors("read"), self.path.open("rb") as file:
            for offset in offsets:
                file.seek(offset)
                yield Line(0, offset, file.readline())

    def _append(self, data: bytes) -> None:
        """Write and sync whole lines. After a failure the lines already written stay, and every
        later write is refused.
        """
        view, written = memoryview(data), 0
        try:
            while written < len(view):
                written += os.write(self._file, view[written:])
            os.fsync(self._file)
        except OSError as error:
            self._failed = error.strerror or str(error)
            # Whole lines stay: they were paid for, and the next run reads them.
            os.ftruncate(self._file, self._size + data.rfind(b"\n", 0, written) + 1)
            raise
        self._size += len(view)

    def _refuse_after_failure(self) -> None:
        if self._failed is not None:
            raise JournalError(
                f"An earlier write to {self.path} failed ({self._failed}); check the disk and run"
                " the same command again."
            )

    def _parse(self, number: int, data: bytes) -> dict[str, Any]:
        content, end = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
        if end != b',"crc":"%08x"}\n' % zlib.crc32(content):
            raise self._damaged(number, "does not match its checksum")
        try:
            record = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise self._damaged(number, f"is not JSON ({error})") from error
        if not isinstance(record, dict) or not isinstance(record.get("v"), int):
            raise self._damaged(number, "has no version")
        if record["v"] > VERSION:
            raise JournalError(
                f"{self.path} was written by a later feval (version {record['v']}); install a newer"
                " one."
            )
        return record

    def _damaged(self, number: int, what: str) -> JournalError:
        where = f"Line {number}" if number else "A line"
        advice = (
            f"Its header cannot be trusted: restore the journal from a backup, or {self.ANEW}."
            if number == 1
            else (
                "Restore the journal from a backup, or delete that line: its CoT will be asked for"
                " again."
            )
        )
        return JournalError(f"{where} of {self.path} {what}. {advice}")

    @contextmanager
    def _storage_errors(self, verb: str) -> Iterator[None]:
        """Turn an `OSError` into a `StorageError` with one sentence."""
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
                "Check that its folder can be created and written to, and run the same command"
                " again."
                if verb == "opened"
                else (
                    "What was acknowledged is in it; check the disk and run the same command again."
                )
            )
            raise StorageError(
                f"The journal {self.path} could not be {verb}: {what}. {advice}"
            ) from error

    def _lines(self) -> Iterator[Line]:
        offset = 0
        with self.path.open("rb") as file:
            for number, data in enumerate(file, 1):
                yield Line(number, offset, data)
                offset += len(data)

    def _locked(self) -> int:
        path = self.folder / _LOCK
        while True:
            descriptor = open_private(path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if error.errno not in {errno.EAGAIN, errno.EACCES}:
                    raise
                raise LockedJournalError(
                    f"Another {self.WORKER} is working in {self.folder}. Wait until it is done, or"
                    f" {self.ELSEWHERE}."
                ) from error
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
            # another process finished and removed the file between our opening and locking it
            os.close(descriptor)

    def _cut(self, torn: Line) -> None:
        os.ftruncate(self._file, self._size)
        self.recovered = (
            f"Line {torn.number} of {self.path} was incomplete ({len(torn.data)} bytes, an"
            " interrupted write) and was cut off; its content had not been acknowledged."
        )

    def _check_header(self, data: bytes, identity: Mapping[str, Any]) -> None:
        written = self._parse(1, data).get(self.HEADER)
        if not isinstance(written, dict):
            raise JournalError(
                f"{self.path} is not the journal of a {self.WORKER}: its first line has no field"
                f" {self.HEADER!r}. To leave it alone, {self.ELSEWHERE}."
            )
        if (differs := difference(written, identity)) is not None:
            raise JournalError(
                f"{self.folder} holds the journal of something else: its {differs}. To leave it"
                f" alone, {self.ELSEWHERE}; if it is not needed, {self.ANEW}."
            )


def difference(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Return the first difference between two identities, such as "decoding temperature is 0.7, not
    0.9"; `None` if equal.
    """
    for name in dict.fromkeys([*current, *recorded]):
        here, there = recorded.get(name), current.get(name)
        if here == there:
            continue
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            return f"{name} {difference(here, there)}"
        return f"{name} is {here!r:.200}, not {there!r:.200}"
    return None


def line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line with its checksum."""
    content = orjson.dumps(record)[:-1]
    return b'%b,"crc":"%08x"}\n' % (content, zlib.crc32(content))


def clean(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 cannot hold, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text

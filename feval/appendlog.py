"""An append-only file of checksummed lines, locked by one process: journals of recordings and of
scores, and the ledger of a server.

One JSON object per line, UTF-8. The first line identifies what is logged, in a field that each kind
of log names. Every line ends with the CRC-32 of the bytes before it, so damage is detected. A kill
leaves at most one unterminated line, which is cut off when the file is opened again; any other
damage is an error that names the line.
"""

from __future__ import annotations

import errno
import os
import threading
import zlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from feval.cards.reading import open_regular
from feval.errors import ConflictError, FevalError, SourceError, StorageError
from feval.publish.secrets import Mask, known_secrets, open_private
from feval.recording import recording_around, sync_folder
from feval.values import Closing, Record, RecordLike

VERSION = 1

Entry = TypeVar("Entry")
Key = TypeVar("Key")

_CRC_BYTES = len(b',"crc":"00000000"}\n')


class Line(NamedTuple):
    """One line: its number (from 1; 0 where it is not known), the bytes before it, and its own
    bytes with the line end.
    """

    number: int
    offset: int
    data: bytes


class AppendLog(Closing, ABC, Generic[Entry, Key]):
    """The file at a path; a context manager that closes it. Each kind of log is a subclass.

    Lines may be collected and committed from different threads; two commits wait for each other.
    `recovered` is a sentence if a torn last line was cut off.
    """

    WHAT = "journal"
    """What the file is called in messages."""
    HEADER: str
    """Field of the first line that identifies what is logged."""
    WORKER = "process"
    """Who writes such files, for messages."""
    ELSEWHERE: str
    """How to leave an existing file alone, for messages."""
    ANEW: str
    """How to start over, for messages."""
    REPAIR = "delete that line: its CoT will be asked for again"
    """What to do about a damaged line, for messages."""
    UNWRITTEN = "What was acknowledged is in it; check the disk and run the same command again."
    """What a failed write means, for messages."""
    KEEPS_UNWRITTEN = False
    """Whether lines that could not be written stay collected, for another try. If not, each commit
    is synced, and a failed one ends the log: whole lines that reached the disk stay there.
    """
    DAMAGED: type[FevalError] = SourceError
    OTHER: type[FevalError] = ConflictError
    LOCKED: type[FevalError] = StorageError

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path.parent
        self.existed = False
        self.recovered: str | None = None
        self.header: RecordLike = {}
        self._failed: str | None = None
        self._mask = Mask(known_secrets().values())
        self._size = 0
        self._file = -1
        self._pending = bytearray()
        self._uncounted: list[tuple[Entry, int]] = []
        self._collecting, self._committing = threading.Lock(), threading.Lock()

    def close(self) -> None:
        """Close the file, which releases its lock. Lines that were not committed are dropped."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def remove(self) -> None:
        """Remove the file and its folder, once its content is sealed and verified."""
        with self._storage_errors("removed"):
            self.path.unlink()
            try:
                self.folder.rmdir()
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise  # other files, such as a journal that was set aside, stay
        self.close()

    def commit(self) -> list[Key]:
        """Write all collected lines, and return the keys of the records that count from now on.

        If the disk refuses (`StorageError`), nothing of this group counts, and the file ends with a
        whole line.
        """
        with self._committing:
            with self._collecting:
                lines, records = self._pending, self._uncounted
                self._pending, self._uncounted = bytearray(), []
            start = self._size
            self._write(lines)
            return [self._count(record, start + place) for record, place in records]

    @abstractmethod
    def _take(self, line: Line) -> None:
        """Count a line of the file, which is being opened."""

    def __len__(self) -> int:
        """Number of items that count."""
        raise NotImplementedError

    def _count(self, record: Entry, offset: int) -> Key:
        """Count a record whose line is on the disk, and return its key."""
        raise NotImplementedError

    def _admit(self, size: int) -> None:
        """Raise if a file of this size, which is locked, must not be begun or continued."""

    def _line(self, record: RecordLike) -> bytes:
        """Return a record as a line, without the known secrets."""
        data = line({"v": VERSION, **record})
        return line({"v": VERSION, **self._mask.value(record)}) if self._mask.is_in(data) else data

    def _collect(self, lines: Iterable[bytes], records: Iterable[Entry] = ()) -> None:
        """Add lines to the next commit, the last ones with their records; call it while holding
        `_collecting`.
        """
        if self._failed is not None and not self.KEEPS_UNWRITTEN:
            raise self.DAMAGED(
                f"An earlier write to {self.path} failed ({self._failed}); check the disk and run"
                " the same command again."
            )
        lines, records = list(lines), list(records)
        places = []
        for each in lines:
            places.append(len(self._pending))
            self._pending += each
        self._uncounted += zip(records, places[len(lines) - len(records) :], strict=True)

    def _open(self, identity: RecordLike, **about: Any) -> None:
        """Lock the file and read it, or begin it; closed again if that raises."""
        place = self.path.absolute().parent
        if (holder := recording_around(place)) is not None:
            raise StorageError(
                f"The {self.WHAT} {self.path} would lie inside the recording {holder}, which never"
                " changes. Name another place."
            )
        new_folders = [path for path in (place, *place.parents) if not path.exists()]
        try:
            with self._storage_errors("opened"):
                place.mkdir(parents=True, exist_ok=True)
                self._file = self._locked()
                self._admit(os.fstat(self._file).st_size)
                if (torn := self._read(orjson.loads(orjson.dumps(identity)))) is not None:
                    os.ftruncate(self._file, self._size)
                    self.recovered = (
                        f"Line {torn.number} of {self.path} was incomplete ({len(torn.data)} bytes,"
                        " an interrupted write) and was cut off; its content had not been"
                        " acknowledged."
                    )
                self.existed = self._size > 0
                if not self.existed:
                    self.header = identity
                    self._append(self._line({self.HEADER: identity, **about}))
                    for folder in {place, place.parent, *(path.parent for path in new_folders)}:
                        sync_folder(folder)
                os.fsync(self._file)  # a killed writer may have left lines that it did not sync
        except BaseException:
            self.close()
            raise

    def _read(self, identity: RecordLike | None = None) -> Line | None:
        """Check the header, against an identity if one is given, and take each line after it;
        return an incomplete last line.
        """
        for entry in self._lines():
            if not entry.data.endswith(b"\n"):
                return entry
            if entry.number == 1:
                written = self._parse(1, entry.data).get(self.HEADER)
                if not isinstance(written, dict):
                    raise self.DAMAGED(
                        f"{self.path} is not the {self.WHAT} of a {self.WORKER}: its first line has"
                        f" no field {self.HEADER!r}. To leave it alone, {self.ELSEWHERE}."
                    )
                self.header = written
                if identity is not None and (differs := difference(written, identity)) is not None:
                    raise self.OTHER(
                        f"{self.path} is the {self.WHAT} of something else: its {differs}. To leave"
                        f" it alone, {self.ELSEWHERE}; if it is not needed, {self.ANEW}."
                    )
            else:
                self._take(entry)
            self._size += len(entry.data)
        return None

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

    def _write(self, lines: bytes | bytearray) -> None:
        if lines:
            with self._storage_errors("written"):
                self._append(lines)

    def _append(self, data: bytes | bytearray) -> None:
        view, written = memoryview(data), 0
        try:
            while written < len(view):
                written += os.write(self._file, view[written:])
            # Some file systems notice only when they sync that there is no room.
            if not self.KEEPS_UNWRITTEN or self._failed is not None:
                os.fsync(self._file)
        except OSError as error:
            self._failed = error.strerror or str(error)
            # Whole lines stay: they were paid for, and the next run reads them.
            kept = 0 if self.KEEPS_UNWRITTEN else data.rfind(b"\n", 0, written) + 1
            os.ftruncate(self._file, self._size + kept)
            raise
        self._size += len(view)

    def _parse(self, number: int, data: bytes) -> Record:
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
            raise self.OTHER(
                f"{self.path} was written by a later feval (version {record['v']}); install a newer"
                " one."
            )
        return record

    def _damaged(self, number: int, what: str) -> FevalError:
        where = f"Line {number}" if number else "A line"
        advice = (
            f"Its header cannot be trusted: restore the {self.WHAT} from a backup, or {self.ANEW}"
            if number == 1
            else f"Restore the {self.WHAT} from a backup, or {self.REPAIR}"
        )
        return self.DAMAGED(f"{where} of {self.path} {what}. {advice}.")

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
                else self.UNWRITTEN
            )
            raise StorageError(
                f"The {self.WHAT} {self.path} cannot be {verb}: {what}. {advice}"
            ) from error

    def _lines(self) -> Iterator[Line]:
        offset = 0
        with open_regular(self.path) as file:
            for number, data in enumerate(file, 1):
                yield Line(number, offset, data)
                offset += len(data)

    def _locked(self) -> int:
        while True:
            descriptor = open_private(self.path, os.O_APPEND)
            try:
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # no such locks on Windows
                return descriptor
            except OSError as error:
                os.close(descriptor)
                if error.errno not in {errno.EAGAIN, errno.EACCES}:
                    raise
                raise self.LOCKED(
                    f"Another {self.WORKER} is working on the {self.WHAT} {self.path}. Wait until"
                    f" it is done, or {self.ELSEWHERE}."
                ) from error
            if self.path.exists() and os.path.samestat(os.fstat(descriptor), self.path.stat()):
                return descriptor
            # another process finished and removed the file between our opening and locking it
            os.close(descriptor)


class LineIndex(Generic[Key]):
    """Where the lines of a log are: a number and an offset under each key, 16 bytes each."""

    def __init__(self) -> None:
        self._lines: dict[Key, array[int]] = {}

    def add(self, key: Key, number: int, offset: int) -> None:
        """Add a line."""
        self._lines.setdefault(key, array("Q")).extend((number, offset))

    def numbers(self, key: Key) -> array[int]:
        """Return the numbers under a key, in the order of their lines."""
        return self._lines.get(key, array("Q"))[::2]

    def offsets(self, key: Key) -> list[int]:
        """Return the offsets of a key's lines by their numbers, ascending; of a number that came
        again, the last one.
        """
        lines = self._lines.get(key, array("Q"))
        return [*dict(sorted(zip(lines[::2], lines[1::2], strict=True))).values()]


def difference(recorded: RecordLike, current: RecordLike) -> str | None:
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


def line(record: RecordLike) -> bytes:
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

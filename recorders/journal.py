"""The journal: every reply on the disk before it counts, in a file that only grows.

One JSON object per line, UTF-8. The first line says what is being recorded; then come, in the order in which things happened:

    {"v":1,"journal":{...},"about":{...},"crc":"..."}                      what is recorded, and under which circumstances
    {"v":1,"request":KEY,"question_id":...,"model":...,"messages":[...]} once for each distinct request
    {"v":1,"key":KEY,"sample":0,"question_id":...,"text":...,...}          one CoT
    {"v":1,"note":"..."}                                                   what was unusual

KEY is the content key of a request (`recorders.request.Request.key`); key and sample index together are the key of a CoT. Every
line ends with the CRC-32 of what stands before it, so that damage is seen. A kill leaves at most one line without its end,
which is cut off when the journal is opened again; a line that is damaged otherwise is an error that names it.

Lines are written and synced in groups: `add` collects, `commit` writes all that was collected and returns when the disk has it.
Only then does a CoT count. Texts are not kept in memory; the index is one bit per CoT.

Nothing from the environment is written: what a line holds is what the caller handed in.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson

from feval.errors import StorageError, UnknownNameError
from feval.schema import FINISH_REASONS
from feval.tokens import count_words
from recorders.errors import JournalError, LockedJournalError
from recorders.request import Completion, Request

__all__ = ["JOURNAL", "MODES", "MOST_SAMPLES", "Entry", "Journal", "Totals", "difference", "journal_folder", "utc_now"]

JOURNAL = "journal.jsonl"
_LOCK = "lock"
_VERSION = 1
_VERY_UNLIKELY = 9999.0
_CRC_BYTES = len(b',"crc":"00000000"}\n')

MOST_SAMPLES = 1 << 20
"""CoTs of one request, at most."""

MODES: Mapping[str, str] = {
    "new_episodes": "ask for what the journal lacks (the default: begins, tops up, goes on after a kill)",
    "once": "record if there is no journal; if there is one, ask for nothing anew",
    "all": "set an existing journal aside and record everything anew",
    "none": "ask for nothing: the journal must hold everything",
}
"""What may be asked for; the words are vcrpy's."""

_COMPLETION_FIELDS = tuple(field.name for field in fields(Completion))
_TYPES: Mapping[str, tuple[type, ...]] = {
    "question_id": (str,),
    "text": (str,),
    "finish_reason": (str,),
    "reasoning": (str, type(None)),
    "output_tokens": (int, type(None)),
    "reasoning_tokens": (int, type(None)),
    "prompt_tokens": (int, type(None)),
    "cached_tokens": (int, type(None)),
    "response_id": (str, type(None)),
    "served_model": (str, type(None)),
    "system_fingerprint": (str, type(None)),
    "token_logprobs": (list, type(None)),
    "token_confidences": (list, type(None)),
    "sequence_logprob": (float, type(None)),
    "seed": (int, type(None)),
    "recorded_at": (str,),
}


def journal_folder(out: str | Path) -> Path:
    """Where the journal of a recording lies until it is sealed: beside it, `NAME.journal`."""
    path = Path(out)
    return path.parent / f"{path.name}.journal"


def utc_now() -> str:
    """The time as the journal writes it: ISO 8601, UTC, seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


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


@dataclass(slots=True)
class Totals:
    """What a journal holds in all: what was paid for, and how long CoTs are.

    Attributes:
        cots: number of CoTs.
        output_tokens: of all of them; where the backend did not say, estimated from the words.
        prompt_tokens: as billed, once for each reply (a reply may bring several CoTs).
        replies: number of replies.
    """

    cots: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    replies: int = 0

    def count(self, record: Mapping[str, Any]) -> None:
        """Add one CoT's line."""
        self.cots += 1
        tokens = record.get("output_tokens")
        self.output_tokens += count_words(record["text"]) if tokens is None else tokens
        if record.get("first_of_reply"):
            self.replies += 1
            self.prompt_tokens += record.get("prompt_tokens") or 0


class Entry(NamedTuple):
    """One line of a journal.

    Attributes:
        number: of the line, from 1.
        offset: bytes before it.
        kind: "request", "cot" or "note".
        record: its fields.
    """

    number: int
    offset: int
    kind: str
    record: dict[str, Any]


class Journal:
    """The journal in one folder, locked for this process; made by `Journal.open`, used as a context manager.

    `add`, `note` and `commit` may be called from different threads; two commits wait for each other.

    Attributes:
        folder: where it lies.
        identity: what is recorded, as the header says it.
        mode: a key of `MODES`.
        totals: of all CoTs that count.
        existed: whether there was a journal before.
        recovered: a sentence if a torn last line was cut off; `None` otherwise.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], mode: str) -> None:
        self.folder = folder
        self.path = folder / JOURNAL
        self.identity = dict(identity)
        self.mode = mode
        self.totals = Totals()
        self.existed = False
        self.recovered: str | None = None
        self._masks: dict[str, int] = {}
        self._notes: set[str] = set()
        self._pending: list[bytes] = []
        self._uncounted: list[dict[str, Any]] = []
        self._adding = threading.Lock()
        self._committing = threading.Lock()
        self._failed: str | None = None
        self._size = 0
        self._file = -1
        self._lock = -1

    @classmethod
    def open(
        cls,
        folder: str | Path,
        identity: Mapping[str, Any],
        *,
        mode: str = "new_episodes",
        about: Mapping[str, Any] | None = None,
    ) -> Self:
        """Open the journal in a folder, or begin one.

        Args:
            folder: made where it does not exist.
            identity: what is recorded (JSON values): dataset, LLM, model, decoding, prompt version. A journal of something
                else is refused.
            mode: a key of `MODES`.
            about: further facts for the header of a new journal; they need not agree later.

        Raises:
            UnknownNameError: no such mode.
            LockedJournalError: another recorder works on this folder.
            JournalError: the journal is damaged, of something else, or missing in mode "none".
            StorageError: the folder cannot be read or written.
        """
        if mode not in MODES:
            raise UnknownNameError.of("record mode", mode, MODES)
        journal = cls(Path(folder), orjson.loads(orjson.dumps(dict(identity))), mode)
        try:
            with journal._storage_errors("opened"):
                journal._open(dict(about or {}))
        except BaseException:
            journal.close()
            raise
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of file and lock. What was added and not committed is not written."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    @property
    def may_ask(self) -> bool:
        """Whether the mode allows anything to be asked for."""
        return self.mode in {"new_episodes", "all"} or (self.mode == "once" and not self.existed)

    @property
    def notes(self) -> list[str]:
        """The notes written so far, sorted."""
        return sorted(self._notes)

    def has(self, key: str, sample: int) -> bool:
        """Whether a CoT counts."""
        return bool(self._masks.get(key, 0) >> sample & 1)

    def count(self, key: str) -> int:
        """How many CoTs of a request count."""
        return self._masks.get(key, 0).bit_count()

    def missing(self, key: str, samples: int) -> list[int]:
        """The indices below `samples` that a request lacks, ascending."""
        lacking = ~self._masks.get(key, 0) & ((1 << samples) - 1)
        return [sample for sample, bit in enumerate(reversed(f"{lacking:b}")) if bit == "1"]

    def next_sample(self, key: str) -> int:
        """The index after the highest that counts, 0 where there is none."""
        return self._masks.get(key, 0).bit_length()

    def add(
        self,
        request: Request,
        key: str,
        samples: Sequence[int],
        completions: Sequence[Completion],
        *,
        recorded_at: str,
        seeds: Sequence[int | None] | None = None,
        refused: str | None = None,
        choices: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Collect one reply; it counts after the next `commit`.

        Args:
            request: what was sent.
            key: its content key.
            samples: indices of the CoTs that came, at most as many as there are completions.
            completions: the CoTs.
            recorded_at: the time, as `utc_now` writes it.
            seeds: with which each was sampled, where the backend takes seeds.
            refused: why there is no text, where the request was refused.
            choices: each CoT's choice as the server sent it (JSON values), to be given again by a proxy; not sealed.

        Raises:
            JournalError: an earlier write failed.
        """
        records = [
            _cot_record(request, key, sample, completion, recorded_at, seeds[place] if seeds else None, refused, place)
            for place, (sample, completion) in enumerate(zip(samples, completions, strict=True))
        ]
        for record, choice in zip(records, choices or (), strict=False):
            record["choice"] = choice
        lines = [_line(record) for record in records]
        with self._adding:
            self._refuse_after_failure()
            if key not in self._masks:
                self._masks[key] = 0
                self._pending.append(_line(_request_record(request, key)))
            self._pending += lines
            self._uncounted += records

    def note(self, sentence: str) -> None:
        """Collect a sentence about what was unusual; equal ones are written once."""
        with self._adding:
            self._refuse_after_failure()
            if sentence not in self._notes:
                self._notes.add(sentence)
                self._pending.append(_line({"v": _VERSION, "note": _clean(sentence)}))

    def commit(self) -> list[tuple[str, int]]:
        """Write and sync everything that was added: from now on it counts.

        Returns:
            (key, sample) of every CoT that counts from now on.

        Raises:
            StorageError: the disk said no. Nothing of this group counts; the journal ends with a whole line.
            JournalError: an earlier write failed.
        """
        with self._committing:
            with self._adding:
                self._refuse_after_failure()
                lines, records = self._pending, self._uncounted
                self._pending, self._uncounted = [], []
            if not lines:
                return []
            with self._storage_errors("written"):
                self._write(b"".join(lines))
            for record in records:
                self._masks[record["key"]] |= 1 << record["sample"]
                self.totals.count(record)
            return [(record["key"], record["sample"]) for record in records]

    def entries(self) -> Iterator[Entry]:
        """Read the journal again from its start, without the header, line by line.

        Raises:
            JournalError: a line is damaged.
            StorageError: the disk said no.
        """
        with self._storage_errors("read"), self.path.open("rb") as file:
            offset = 0
            for number, line in enumerate(file, 1):
                if offset >= self._size:
                    return
                if number > 1:
                    yield self._entry(number, offset, line)
                offset += len(line)

    def read(self, offset: int) -> dict[str, Any]:
        """Read the CoT whose line begins at an offset that `entries` gave."""
        return self.read_many([offset])[0]

    def read_many(self, offsets: Sequence[int]) -> list[dict[str, Any]]:
        """Read the CoTs whose lines begin at some offsets, in that order."""
        with self._storage_errors("read"), self.path.open("rb") as file:
            found = []
            for offset in offsets:
                file.seek(offset)
                found.append(self._entry(None, offset, file.readline()).record)
            return found

    def remove(self) -> None:
        """Remove the journal and its folder: its recording was sealed and verified."""
        with self._storage_errors("removed"):
            self.path.unlink()
            (self.folder / _LOCK).unlink()
            try:
                self.folder.rmdir()
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise  # something else lies there, such as a journal that was set aside: it stays
        self.close()

    def _open(self, about: dict[str, Any]) -> None:
        if self.mode == "none" and not self.path.exists():
            raise JournalError(f"There is no journal in {self.folder}, and the mode 'none' asks for nothing.")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        if self.mode == "all":
            self._set_aside()
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._scan()
        if not self.existed:
            self._write(_line({"v": _VERSION, "journal": self.identity, "about": about | {"created": utc_now()}}))
            _sync_folder(self.folder)
        os.fsync(self._file)  # a killed recorder may have written lines that it did not live to sync

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
                    f"Another recorder is at work in {self.folder}. Wait until it is done, or record into another folder."
                ) from error
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
            os.close(descriptor)  # a recorder that finished removed the file between our opening and locking it

    def _set_aside(self) -> None:
        if self.path.exists():
            number = 1
            while (kept := self.folder / f"journal-{number}.jsonl").exists():
                number += 1
            self.path.rename(kept)

    def _scan(self) -> None:
        """Read what is there: the index, the totals, the notes; cut off a torn last line."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    self._cut(number, len(line))
                    break
                if number == 1:
                    self._check_header(line)
                else:
                    self._take(self._entry(number, self._size, line))
                self._size += len(line)
        self.existed = self._size > 0
        if self.mode == "none" and not self.existed:
            raise JournalError(f"The journal in {self.folder} is empty, and the mode 'none' asks for nothing.")

    def _cut(self, number: int, size: int) -> None:
        os.ftruncate(self._file, self._size)
        self.recovered = (
            f"Line {number} of {self.path} had no end ({size} bytes, an interrupted write) and was cut off; what it held had "
            "not been acknowledged."
        )

    def _check_header(self, line: bytes) -> None:
        header = self._parse(1, line)
        found = header.get("journal")
        if not isinstance(found, dict):
            raise JournalError(
                f"{self.path} is no journal: its first line has no field 'journal'. Name another folder."
            )
        differs = difference(found, self.identity)
        if differs is not None:
            raise JournalError(
                f"{self.folder} holds a journal of something else: its {differs}. Record into another folder, or begin anew "
                "with the mode 'all'."
            )

    def _take(self, entry: Entry) -> None:
        record = entry.record
        if entry.kind == "note":
            self._notes.add(record["note"])
        elif entry.kind == "request":
            self._masks.setdefault(record["request"], 0)
        else:
            key, sample = record["key"], record["sample"]
            mask = self._masks.get(key)
            if mask is None or mask >> sample & 1:
                what = "has no request before it" if mask is None else f"repeats sample {sample} of its request"
                raise self._damaged(entry.number, what)
            self._masks[key] = mask | 1 << sample
            self.totals.count(record)

    def _entry(self, number: int | None, offset: int, line: bytes) -> Entry:
        record = self._parse(number, line)
        kind = "request" if "request" in record else "note" if "note" in record else "cot"
        wrong = _wrong_field(kind, record)
        if wrong is not None:
            raise self._damaged(number, f"has the field {wrong!r} missing or of a wrong type")
        return Entry(number or 0, offset, kind, record)

    def _parse(self, number: int | None, line: bytes) -> dict[str, Any]:
        content, end = line[:-_CRC_BYTES], line[-_CRC_BYTES:]
        if end != b',"crc":"%08x"}\n' % zlib.crc32(content):
            raise self._damaged(number, "does not agree with its checksum")
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise self._damaged(number, f"is not JSON ({error})") from error
        if not isinstance(record, dict) or not isinstance(record.get("v"), int):
            raise self._damaged(number, "has no version")
        if record["v"] > _VERSION:
            raise JournalError(
                f"{self.path} was written by a later feval (version {record['v']}); install a newer one."
            )
        return record

    def _damaged(self, number: int | None, what: str) -> JournalError:
        where = "A line" if number is None else f"Line {number}"
        advice = (
            "Its header cannot be trusted: take the journal back from a backup, or begin anew with the mode 'all'."
            if number == 1
            else "Take the journal back from a backup, or delete that line: its CoT will be asked for again."
        )
        return JournalError(f"{where} of {self.path} {what}. {advice}")

    def _write(self, data: bytes) -> None:
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
            raise JournalError(f"An earlier write to {self.path} failed ({self._failed}); open the journal again.")

    def _storage_errors(self, verb: str) -> _StorageErrors:
        return _StorageErrors(self.path, verb)


class _StorageErrors:
    """Turns what the disk says into one sentence."""

    def __init__(self, path: Path, verb: str) -> None:
        self._path, self._verb = path, verb

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            what = "the disk is full"
        elif error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
            what = "the folder is read-only"
        else:
            what = error.strerror or str(error)
        advice = (
            "Check that its folder can be made and written to, and run the same command again."
            if self._verb == "opened"
            else "What was acknowledged is in it; see to the disk and run the same command again."
        )
        raise StorageError(f"The journal {self._path} could not be {self._verb}: {what}. {advice}") from error


def _cot_record(
    request: Request,
    key: str,
    sample: int,
    completion: Completion,
    recorded_at: str,
    seed: int | None,
    refused: str | None,
    place: int,
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "v": _VERSION,
        "key": key,
        "sample": sample,
        "dataset": request.dataset,
        "question_id": request.question_id,
    }
    for name in _COMPLETION_FIELDS:
        value = getattr(completion, name)
        if value is not None:
            record[name] = _clean(value) if type(value) is str else value
    for name in ("token_logprobs", "token_confidences"):
        if name in record:
            record[name] = _finite(record[name])
            if record[name] is None:
                del record[name]
    if completion.finish_reason not in FINISH_REASONS:
        record["finish_reason"] = "unknown"
    if seed is not None:
        record["seed"] = seed
    if refused is not None:
        record["refused"] = _clean(refused)
    elif place == 0:
        record["first_of_reply"] = True
    record["recorded_at"] = recorded_at
    return record


def _finite(values: Sequence[float]) -> list[float] | None:
    """Log-probabilities as JSON can hold them: -9999, as OpenAI has it, for minus infinity; `None` if one is no number."""
    if all(map(math.isfinite, values)):
        return list(values)
    if any(math.isnan(value) for value in values):
        return None
    return [min(max(value, -_VERY_UNLIKELY), _VERY_UNLIKELY) for value in values]


def _request_record(request: Request, key: str) -> dict[str, Any]:
    messages = [{"role": message.role, "content": _clean(message.content)} for message in request.messages]
    return {
        "v": _VERSION,
        "request": key,
        "dataset": request.dataset,
        "question_id": request.question_id,
        "model": request.model,
        "decoding": request.decoding.content(),
        "messages": messages,
    }


def _line(record: Mapping[str, Any]) -> bytes:
    content = orjson.dumps(record)[:-1]
    return b'%b,"crc":"%08x"}\n' % (content, zlib.crc32(content))


def _clean(text: str) -> str:
    """The text with lone surrogates, which no file can hold, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _wrong_field(kind: str, record: Mapping[str, Any]) -> str | None:
    if kind == "note":
        return None if isinstance(record["note"], str) else "note"
    if kind == "request":
        if not isinstance(record.get("messages"), list):
            return "messages"
        return None if isinstance(record["request"], str) else "request"
    if not isinstance(record.get("key"), str):
        return "key"
    sample = record.get("sample")
    if type(sample) is not int or not 0 <= sample < MOST_SAMPLES:
        return "sample"
    for name, kinds in _TYPES.items():
        if not isinstance(record.get(name), kinds):
            return name
    return None if record["finish_reason"] in FINISH_REASONS else "finish_reason"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

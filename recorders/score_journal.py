"""The journal of a scorer: every score on the disk before it counts, in a file that only grows.

One JSON object per line, each ending with the CRC-32 of what stands before it:

    {"v":1,"scores":{...},"crc":"..."}                                     whose scores, of which recording
    {"v":1,"dataset":...,"llm":...,"question_id":...,"sample":0,"score":0.5,...}   what was said of one CoT

A CoT is named by dataset, LLM, question and sample index: the header pins the recording by its hash. A kill leaves at most one
line without its end, which is cut off when the journal is opened again; other damage is an error that names the line.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson

from feval.errors import StorageError
from recorders.errors import JournalError, LockedJournalError

__all__ = ["CoTKey", "ScoreJournal", "Scored"]

_NAME = "scores.jsonl"
_LOCK = "lock"
_VERSION = 1
_CRC_BYTES = len(b',"crc":"00000000"}\n')


class CoTKey(NamedTuple):
    """Which CoT of a recording."""

    dataset: str
    llm: str
    question_id: str
    sample: int


@dataclass(frozen=True, slots=True)
class Scored:
    """What a scorer said of one CoT.

    Attributes:
        score: the higher the better; `None` for none.
        step_scores: of each step, in order; `None` for none.
        verdict: what the scorer said, in its words; `None` where it only gives numbers.
        prompt_tokens: of its request; `None` where it does not say.
        output_tokens: of its reply; `None` where it does not say.
        problem: why there is no score, as one of "unreadable" and "refused"; `None` where the scorer gave one, or chose not to.
    """

    score: float | None = None
    step_scores: tuple[float, ...] | None = None
    verdict: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    problem: str | None = None


class ScoreJournal:
    """The journal in one folder, locked for this process; made by `ScoreJournal.open`, used as a context manager.

    Attributes:
        folder: where it lies.
        recovered: a sentence if a torn last line was cut off; `None` otherwise.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / _NAME
        self.recovered: str | None = None
        self._done: dict[tuple[str, str, str], int] = {}  # bit masks of samples
        self._count = 0
        self._size = 0
        self._failed = False
        self._file = self._lock = -1

    @classmethod
    def open(cls, folder: str | Path, identity: Mapping[str, Any]) -> Self:
        """Open the journal in a folder, or begin one.

        Args:
            folder: made where it does not exist.
            identity: scorer, parameters and recording (JSON values); a journal of something else is refused.

        Raises:
            LockedJournalError: another process works on this folder.
            JournalError: the journal is damaged, or of something else.
            StorageError: the disk said no.
        """
        journal = cls(Path(folder))
        try:
            with journal._storage_errors("opened"):
                journal.folder.mkdir(parents=True, exist_ok=True)
                journal._lock = journal._locked()
                journal._file = os.open(journal.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
                journal._scan(orjson.loads(orjson.dumps(dict(identity))))
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

    def __len__(self) -> int:
        """Number of CoTs in it."""
        return self._count

    def __contains__(self, key: CoTKey) -> bool:
        return bool(self._done.get(key[:3], 0) >> key.sample & 1)

    def close(self) -> None:
        """Let go of file and lock."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def write(self, scores: Sequence[tuple[CoTKey, Scored]]) -> None:
        """Write and sync some scores: from now on they count.

        Raises:
            StorageError: the disk said no; none of them counts, and nothing can be written any more.
        """
        if self._failed:
            raise JournalError(f"An earlier write to {self.path} failed; run the same command again.")
        with self._storage_errors("written"):
            self._append(b"".join(_line(_record(key, scored)) for key, scored in scores))
        for key, _ in scores:
            self._mark(key)

    def entries(self) -> Iterator[tuple[CoTKey, Scored]]:
        """Read all scores again, in the order in which they came.

        Raises:
            JournalError: a line is damaged.
        """
        with self._storage_errors("read"), self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number > 1:
                    yield self._entry(number, line)

    def remove(self) -> None:
        """Remove the journal: what it holds was sealed and verified."""
        with self._storage_errors("removed"):
            self.path.unlink()
            (self.folder / _LOCK).unlink()
            try:
                self.folder.rmdir()
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise  # what else lies there is not ours
        self.close()

    def _locked(self) -> int:
        path = self.folder / _LOCK
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                    raise
                raise LockedJournalError(
                    f"Another process is at work in {self.folder}. Wait until it is done, or name another --out."
                ) from error
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
            os.close(descriptor)  # whoever finished removed the file between our opening and locking it

    def _scan(self, identity: Mapping[str, Any]) -> None:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    os.ftruncate(self._file, self._size)
                    self.recovered = (
                        f"Line {number} of {self.path} had no end (an interrupted write) and was cut off; its CoTs are scored "
                        "again."
                    )
                    break
                if number == 1:
                    self._check_header(line, identity)
                else:
                    self._take(number, line)
                self._size += len(line)
        if self._size == 0:
            self._append(_line({"v": _VERSION, "scores": identity}))
            _sync_folder(self.folder)

    def _check_header(self, line: bytes, identity: Mapping[str, Any]) -> None:
        found = self._parse(1, line).get("scores")
        if not isinstance(found, dict):
            raise JournalError(f"{self.path} is no journal of scores. Name another --out.")
        for name in dict.fromkeys([*identity, *found]):
            if found.get(name) != identity.get(name):
                raise JournalError(
                    f"{self.folder} holds scores of something else: its {name} is {found.get(name)!r:.200}, asked for is "
                    f"{identity.get(name)!r:.200}. Name another --out, or delete that folder if those scores are not needed."
                )

    def _take(self, number: int, line: bytes) -> None:
        key, _ = self._entry(number, line)
        if key in self:
            raise self._damaged(number, "repeats a CoT")
        self._mark(key)

    def _mark(self, key: CoTKey) -> None:
        self._done[key[:3]] = self._done.get(key[:3], 0) | 1 << key.sample
        self._count += 1

    def _entry(self, number: int, line: bytes) -> tuple[CoTKey, Scored]:
        record = self._parse(number, line)
        try:
            key = CoTKey(record["dataset"], record["llm"], record["question_id"], record["sample"])
            steps = record.get("steps")
            return key, Scored(
                record.get("score"),
                None if steps is None else tuple(steps),
                *(record.get(name) for name in ("verdict", "prompt_tokens", "output_tokens", "problem")),
            )
        except (KeyError, TypeError) as error:
            raise self._damaged(number, "lacks a field") from error

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        content, end = line[:-_CRC_BYTES], line[-_CRC_BYTES:]
        if end != b',"crc":"%08x"}\n' % zlib.crc32(content):
            raise self._damaged(number, "does not agree with its checksum")
        record = orjson.loads(line)
        if not isinstance(record, dict) or record.get("v") != _VERSION:
            raise JournalError(f"{self.path} was written by another version of feval; install that one.")
        return record

    def _damaged(self, number: int, what: str) -> JournalError:
        return JournalError(
            f"Line {number} of {self.path} {what}. Take the journal back from a backup, or delete that line: its CoT is "
            "scored again."
        )

    def _append(self, data: bytes) -> None:
        view, written = memoryview(data), 0
        try:
            while written < len(view):
                written += os.write(self._file, view[written:])
            os.fsync(self._file)
        except OSError:
            self._failed = True
            # Whole lines stay: they may have been paid for, and the next run finds them.
            os.ftruncate(self._file, self._size + data.rfind(b"\n", 0, written) + 1)
            raise
        self._size += len(view)

    @contextmanager
    def _storage_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                what = "the disk is full"
            elif error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
                what = "the folder is read-only"
            else:
                what = error.strerror or str(error)
            raise StorageError(
                f"The journal {self.path} could not be {verb}: {what}. What was acknowledged is in it; see to the disk and run "
                "the same command again."
            ) from error


def _record(key: CoTKey, scored: Scored) -> dict[str, Any]:
    values = {
        "score": scored.score,
        "steps": None if scored.step_scores is None else list(scored.step_scores),
        "verdict": scored.verdict,
        "prompt_tokens": scored.prompt_tokens,
        "output_tokens": scored.output_tokens,
        "problem": scored.problem,
    }
    return {"v": _VERSION, **key._asdict(), **{name: value for name, value in values.items() if value is not None}}


def _line(record: Mapping[str, Any]) -> bytes:
    content = orjson.dumps(record)[:-1]
    return b'%b,"crc":"%08x"}\n' % (content, zlib.crc32(content))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

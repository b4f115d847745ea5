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

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from feval.cards.schema import FINISH_REASONS
from feval.cards.tokens import count_words
from feval.errors import UnknownNameError
from recorders.errors import JournalError
from recorders.journal.appendlog import VERSION, AppendLog, Line, clean, difference, line
from recorders.request import Completion, Request

__all__ = ["JOURNAL", "MODES", "MOST_SAMPLES", "Entry", "Journal", "Totals", "difference", "journal_folder", "utc_now"]

JOURNAL = "journal.jsonl"
_VERY_UNLIKELY = 9999.0

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
    "tokens_split": (bool, type(None)),
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


class Journal(AppendLog):
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

    NAME, HEADER, WORKER = JOURNAL, "journal", "recorder"
    ELSEWHERE, ANEW = "record into another folder", "begin anew with the mode 'all'"

    def __init__(self, folder: Path, identity: Mapping[str, Any], mode: str) -> None:
        super().__init__(folder)
        self.identity = dict(identity)
        self.mode = mode
        self.totals = Totals()
        self._masks: dict[str, int] = {}
        self._notes: set[str] = set()
        self._pending: list[bytes] = []
        self._uncounted: list[dict[str, Any]] = []
        self._adding = threading.Lock()
        self._committing = threading.Lock()

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
                journal._begin(dict(about or {}))
        except BaseException:
            journal.close()
            raise
        return journal

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
        lines = [line(record) for record in records]
        with self._adding:
            self._refuse_after_failure()
            if key not in self._masks:
                self._masks[key] = 0
                self._pending.append(line(_request_record(request, key)))
            self._pending += lines
            self._uncounted += records

    def note(self, sentence: str) -> None:
        """Collect a sentence about what was unusual; equal ones are written once."""
        with self._adding:
            self._refuse_after_failure()
            if sentence not in self._notes:
                self._notes.add(sentence)
                self._pending.append(line({"v": VERSION, "note": clean(sentence)}))

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
                self._append(b"".join(lines))
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
        for found in self._written():
            yield self._entry(*found)

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

    def _begin(self, about: dict[str, Any]) -> None:
        if self.mode == "none" and not self.path.exists():
            raise JournalError(
                f"There is no journal in {self.folder}, and the mode 'none' asks for nothing. Name the folder of a journal, or "
                "record with the mode 'new_episodes'."
            )
        set_aside = self._set_aside if self.mode == "all" else lambda: None
        about = {"about": about | {"created": utc_now()}}
        self._open(self.identity, self._take, about=about, locked=set_aside)

    def _may_begin(self) -> None:
        if self.mode == "none":
            raise JournalError(
                f"The journal in {self.folder} is empty, and the mode 'none' asks for nothing. Record with the mode "
                "'new_episodes'."
            )

    def _set_aside(self) -> None:
        if self.path.exists():
            number = 1
            while (kept := self.folder / f"journal-{number}.jsonl").exists():
                number += 1
            self.path.rename(kept)

    def _take(self, found: Line) -> None:
        entry = self._entry(*found)
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
        "v": VERSION,
        "key": key,
        "sample": sample,
        "dataset": request.dataset,
        "question_id": request.question_id,
    }
    for name in _COMPLETION_FIELDS:
        value = getattr(completion, name)
        if value is not None:
            record[name] = clean(value) if type(value) is str else value
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
        record["refused"] = clean(refused)
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
    messages = [{"role": message.role, "content": clean(message.content)} for message in request.messages]
    return {
        "v": VERSION,
        "request": key,
        "dataset": request.dataset,
        "question_id": request.question_id,
        "model": request.model,
        "decoding": request.decoding.content(),
        "messages": messages,
    }


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

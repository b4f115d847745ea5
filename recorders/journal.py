"""The journal of a recording: every reply is on the disk before it counts.

An append-only file (`feval.appendlog`) of JSON lines. The first identifies the recording; then
follow, in the order in which things happened:

    {"v":1,"journal":{...},"about":{...},"crc":"..."}    what is recorded, and the circumstances
    {"v":1,"request":KEY,"question_id":...,"messages":[...],...}    once per distinct request
    {"v":1,"key":KEY,"sample":0,"question_id":...,"text":...,...}   one CoT; a turn has the
                                                                    "messages" it replies to
    {"v":1,"probing":PROBING,"key":KEY,"sample":0,"offset":500,"text":...,...}   one probe of a CoT
                                                                                 that is there
    {"v":1,"batch":NAME,"file":"...","lines":[[KEY,[0,1]],...],...}  requests that are about to be
                                                                    submitted in a batch
    {"v":1,"batch":NAME,"id":"..."}    as which it was taken; empty: it never was
    {"v":1,"note":"..."}                                            anything unusual

PROBING is the hash of how probes are made (`recorders.asking.samples.Probing.key`). KEY is the
content key of a request (`recorders.request.Request.key`); key and sample index together identify a
CoT. Texts are not kept in memory. Nothing from the environment is written, only what the caller
hands in.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, Self

from feval.appendlog import AppendLog, Line, LineIndex, clean
from feval.cards import FINISH_REASONS, count_words
from feval.errors import FevalError, require_known
from feval.publish.secrets import make_private
from feval.values import Record, RecordLike
from recorders.errors import JournalError, LockedJournalError
from recorders.request import Completion, Request, as_json

JOURNAL = "journal.jsonl"
_VERY_UNLIKELY = 9999.0

MOST_SAMPLES = 1 << 20
"""Most CoTs of one request."""

MODES: Mapping[str, str] = {
    "new_episodes": (
        "ask for what the journal lacks (default: starts, tops up, continues after a kill)"
    ),
    "once": "record if there is no journal; otherwise ask for nothing",
    "all": "set an existing journal aside and record everything again",
    "none": "ask for nothing: the journal must be complete",
}
"""Record modes, named as in vcrpy, and what each may ask for."""

# kind of line -> the field that only it has
_KINDS = {"request": "request", "note": "note", "probe": "probing", "batch": "batch"}
# As JSON holds the fields of a completion; the tuples are lists.
_JSON_TYPES: RecordLike = {
    "str": str,
    "str | None": (str, NoneType),
    "int | None": (int, NoneType),
    "float | None": (float, int, NoneType),
    "bool | None": (bool, NoneType),
}
_OF_REPLIES: RecordLike = {
    "key": str,
    "recorded_at": str,
    "seed": (int, NoneType),
    **{each.name: _JSON_TYPES.get(str(each.type), (list, NoneType)) for each in fields(Completion)},
}
# kind of line -> its fields and their types
_TYPES: Mapping[str, RecordLike] = {
    "note": {"note": str},
    "batch": {"batch": str},
    "request": {"request": str, "messages": list},
    "probe": {"probing": str, "offset": int, **_OF_REPLIES},
    "cot": {"question_id": str, **_OF_REPLIES},
}


def check_mode(mode: str) -> None:
    """Raise an `UnknownNameError` for what is no record mode."""
    require_known("record mode", mode, MODES)


def is_written(out: Path) -> bool:
    """Return whether something is at a path, an empty folder aside."""
    return out.exists() and (not out.is_dir() or any(out.iterdir()))


def journal_folder(out: str | Path) -> Path:
    """Return the folder of a recording's journal: `NAME.journal` beside the recording."""
    path = Path(out)
    return path.parent / f"{path.name}.journal"


def utc_now() -> str:
    """Return the time as the journal writes it: ISO 8601, UTC, seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(slots=True)
class Totals:
    """Totals over a journal: what was paid for.

    Output tokens are estimated from words where the backend gave no count; prompt tokens count once
    per reply, which may hold several CoTs. Tokens of probes are counted apart.
    """

    cots: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    replies: int = 0
    probes: int = 0
    probe_output_tokens: int = 0
    probe_prompt_tokens: int = 0

    def count(self, record: RecordLike) -> None:
        """Add the line of one CoT or probe."""
        if "probing" in record:
            self.probes += 1
            self.probe_output_tokens += record.get("output_tokens") or 0
            self.probe_prompt_tokens += record.get("prompt_tokens") or 0
            return
        self.cots += 1
        tokens = record.get("output_tokens")
        self.output_tokens += count_words(record["text"]) if tokens is None else tokens
        if record.get("first_of_reply"):
            self.replies += 1
            self.prompt_tokens += record.get("prompt_tokens") or 0


class JournalEntry(NamedTuple):
    """One line: its number (from 1), the bytes before it, its kind (request, cot, probe, batch or
    note) and its fields.
    """

    number: int
    offset: int
    kind: str
    record: Record


class Journal(AppendLog[Record, tuple[str, int]]):
    """The journal in one folder, locked for this process; made by `Journal.open`, used as a context
    manager.
    """

    HEADER, WORKER = "journal", "recorder"
    ELSEWHERE, ANEW = "record into another folder", "start over with the mode 'all'"
    DAMAGED, OTHER, LOCKED = JournalError, JournalError, LockedJournalError

    def __init__(self, folder: Path, mode: str) -> None:
        super().__init__(folder / JOURNAL)
        self.mode = mode
        self.totals = Totals()
        self._masks: dict[str, int] = {}
        self._cots = LineIndex[str]()
        self._probes = LineIndex[tuple[str, str, int]]()
        self._notes: set[str] = set()
        self.batches: dict[str, Record] = {}

    @classmethod
    def open(
        cls,
        folder: str | Path,
        identity: RecordLike,
        *,
        mode: str = "new_episodes",
        about: RecordLike | None = None,
    ) -> Self:
        """Open the journal in a folder, or begin one.

        The identity (JSON values) says what is recorded; the journal of something else is refused.
        `about` goes into the header of a new journal and is not compared later.
        """
        check_mode(mode)
        journal = cls(Path(folder), mode)
        if mode == "none" and not journal.path.exists():
            raise JournalError(
                f"There is no journal in {folder}, and the mode 'none' asks for nothing. Name the"
                " folder of a journal, or record with the mode 'new_episodes'."
            )
        journal._open(dict(identity), about={**(about or {}), "created": utc_now()})
        return journal

    def __len__(self) -> int:
        """Number of CoTs that count."""
        return self.totals.cots

    @property
    def may_ask(self) -> bool:
        """Whether the mode allows asking for anything."""
        return self.mode in {"new_episodes", "all"} or (self.mode == "once" and not self.existed)

    @property
    def notes(self) -> list[str]:
        """The notes so far, sorted."""
        return sorted(self._notes)

    def has(self, key: str, sample: int) -> bool:
        """Whether a CoT counts."""
        return bool(self._masks.get(key, 0) >> sample & 1)

    def count(self, key: str) -> int:
        """Return how many CoTs of a request count."""
        return self._masks.get(key, 0).bit_count()

    def missing(self, key: str, samples: int) -> list[int]:
        """Return the sample indices below `samples` that a request lacks, ascending."""
        return _bits(~self._masks.get(key, 0) & ((1 << samples) - 1))

    def samples(self, key: str) -> list[int]:
        """Return the sample indices of a request that count, ascending."""
        return _bits(self._masks.get(key, 0))

    def next_sample(self, key: str) -> int:
        """Return the index after the highest that counts; 0 if there is none."""
        return self._masks.get(key, 0).bit_length()

    def probed(self, probing: str, key: str, sample: int) -> array[int]:
        """Return the offsets at which a CoT was probed in one way."""
        return self._probes.numbers((probing, key, sample))

    def cots(self, key: str) -> list[Record]:
        """Read the CoTs of a request that count, by sample."""
        return self.read_many(self._cots.offsets(key))

    def probes(self, probing: str, key: str, sample: int) -> list[Record]:
        """Read the probes of a CoT that were made in one way, by offset."""
        return self.read_many(self._probes.offsets((probing, key, sample)))

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
        choices: Sequence[RecordLike | None] | None = None,
        parent: int | None = None,
    ) -> None:
        """Collect one reply; it counts after the next `commit`.

        `parent` is the sample that turns of a live method reply to. `refused` says why there is no
        text. `choices` (JSON values, as the server sent them) are for replay by a proxy, and not
        sealed.
        """
        records = [
            _record(
                completion,
                key=key,
                sample=sample,
                dataset=request.dataset,
                question_id=request.question_id,
                messages=_cleaned(request.said()) if request.conversation else None,
                seed=seeds and seeds[place],
                refused=refused,
                first_of_reply=(refused is None and place == 0) or None,
                recorded_at=recorded_at,
                choice=choices and choices[place],
                parent=parent,
            )
            for place, (sample, completion) in enumerate(zip(samples, completions, strict=True))
        ]
        lines = [self._line(record) for record in records]
        with self._collecting:
            if key not in self._masks:
                self._masks[key] = 0
                sent = {
                    "request": key,
                    "dataset": request.dataset,
                    "question_id": request.question_id,
                    "model": request.model,
                    "decoding": request.decoding.content(),
                    "messages": _cleaned(as_json(request.messages)),
                }
                lines.insert(0, self._line(sent))
            self._collect(lines, records)

    def add_probe(
        self,
        probing: str,
        key: str,
        sample: int,
        offset: int,
        completion: Completion,
        *,
        recorded_at: str,
        confidence: float | None = None,
        refused: str | None = None,
    ) -> None:
        """Collect one probe of a CoT, made in the way that `probing` names; it counts after the
        next `commit`.
        """
        record = _record(
            completion,
            probing=probing,
            key=key,
            sample=sample,
            offset=offset,
            recorded_at=recorded_at,
            confidence=confidence,
            refused=refused,
        )
        with self._collecting:
            self._collect([self._line(record)], [record])

    def note(self, sentence: str) -> None:
        """Collect a sentence about something unusual; equal sentences are written once."""
        with self._collecting:
            if sentence not in self._notes:
                self._notes.add(sentence)
                self._collect([self._line({"note": clean(sentence)})])

    def log_batch(self, name: str, **fields: Any) -> None:
        """Write at once what is known of a batch: its file and lines, or as which it was taken."""
        with self._committing:
            self._write(self._line({"batch": name, **fields}))
        self.batches.setdefault(name, {}).update(fields)

    def sent(self) -> dict[tuple[str, int], tuple[str, list[int]]]:
        """Return, of each CoT that was sent in a batch and does not count yet, the last batch and
        the samples of its line there.
        """
        return {
            (key, sample): (name, samples)
            for name, batch in self.batches.items()
            if batch.get("id") != ""
            for key, samples in batch.get("lines", ())
            for sample in samples
            if not self.has(key, sample)
        }

    def entries(self) -> Iterator[JournalEntry]:
        """Read the committed lines again, without the header."""
        return map(self._entry, self._committed_lines())

    def read_many(self, offsets: Sequence[int]) -> list[Record]:
        """Read the CoTs or probes whose lines begin at some offsets (of `entries`), in that
        order.
        """
        return [self._entry(line).record for line in self._lines_at(offsets)]

    def _admit(self, size: int) -> None:
        if self.mode == "none" and not size:
            raise JournalError(
                f"The journal in {self.folder} is empty, and the mode 'none' asks for nothing."
                " Record with the mode 'new_episodes'."
            )
        if self.mode == "all" and size:
            number = 1
            while (aside := self.folder / f"journal-{number}.jsonl").exists():
                number += 1
            make_private(self.path)
            self.path.rename(aside)
            self.close()
            self._file = self._locked()

    def _count(self, record: Record, offset: int) -> tuple[str, int]:
        key, sample = record["key"], record["sample"]
        if "probing" in record:
            self._probes.add((record["probing"], key, sample), record["offset"], offset)
        else:
            self._masks[key] |= 1 << sample
            self._cots.add(key, sample, offset)
        self.totals.count(record)
        return key, sample

    def _take(self, line: Line) -> None:
        number, offset, kind, record = self._entry(line)
        if kind == "note":
            self._notes.add(record["note"])
            return
        if kind == "batch":
            self.batches.setdefault(record["batch"], {}).update(record)
            return
        if kind == "request":
            self._masks.setdefault(record["request"], 0)
            return
        key, sample = record["key"], record["sample"]
        if kind == "probe":
            if not self.has(key, sample) or record["offset"] in self.probed(
                record["probing"], key, sample
            ):
                raise self._damaged(
                    number, "is a probe of a CoT that is not there, or one that comes again"
                )
        elif key not in self._masks:
            raise self._damaged(number, "has no request before it")
        elif self.has(key, sample):
            raise self._damaged(number, f"repeats sample {sample} of its request")
        self._count(record, offset)

    def _entry(self, line: Line) -> JournalEntry:
        record = self._parse(line.number, line.data)
        kind = next((kind for kind, name in _KINDS.items() if name in record), "cot")
        if (wrong := _wrong_field(kind, record)) is not None:
            raise self._damaged(
                line.number, f"lacks the field {wrong!r}, or has it with a wrong type"
            )
        return JournalEntry(line.number, line.offset, kind, record)


def completion_of(record: RecordLike) -> Completion:
    """Return the reply in the line of a CoT or probe."""
    return Completion(
        **{each.name: record[each.name] for each in fields(Completion) if each.name in record}
    )


@contextmanager
def never_empty(journal: Journal) -> Iterator[None]:
    """After a failure, remove a journal without CoTs, recorded or in a batch: it would only block
    the corrected command.
    """
    try:
        yield
    except FevalError:
        if not len(journal) and not journal.sent():
            journal.remove()
        raise


def _bits(mask: int) -> list[int]:
    return [place for place, bit in enumerate(reversed(f"{mask:b}")) if bit == "1"]


def _cleaned(messages: Any) -> list[Record]:
    return [
        {name: clean(own) if isinstance(own, str) else own for name, own in message.items()}
        for message in messages
    ]


def _record(completion: Completion, **others: Any) -> Record:
    """Return a reply as the journal holds it, with other fields; what is `None` is left out."""
    values = others | {each.name: getattr(completion, each.name) for each in fields(completion)}
    for name in ("token_logprobs", "token_confidences"):
        values[name] = _finite(values[name])
    if completion.finish_reason not in FINISH_REASONS:
        values["finish_reason"] = "unknown"
    return {
        name: clean(value) if type(value) is str else value
        for name, value in values.items()
        if value is not None
    }


def _finite(values: Sequence[float] | None) -> list[float] | None:
    """Return log-probabilities as JSON can hold them: -9999, as OpenAI writes it, for minus
    infinity; `None` if any is NaN.
    """
    if values is None or any(map(math.isnan, values)):
        return None
    if all(map(math.isfinite, values)):
        return list(values)
    return [min(max(value, -_VERY_UNLIKELY), _VERY_UNLIKELY) for value in values]


def _are_messages(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(m, dict)
        and {"role", "content"} <= m.keys() <= {"role", "content", "tool_calls", "tool_call_id"}
        and all(isinstance(own, list if name == "tool_calls" else str) for name, own in m.items())
        for m in value
    )


def _wrong_field(kind: str, record: RecordLike) -> str | None:
    for name, types in _TYPES[kind].items():
        if not isinstance(record.get(name), types):
            return name
    if kind in {"note", "request", "batch"}:
        return None
    sample, offset = record.get("sample"), record.get("offset", 1)
    wrong = {
        "sample": type(sample) is not int or not 0 <= sample < MOST_SAMPLES,
        "offset": type(offset) is not int or not 0 < offset < 1 << 31,
        "messages": not _are_messages(record.get("messages", [])),
        "parent": type(record.get("parent", 0)) is not int,
        "finish_reason": record["finish_reason"] not in FINISH_REASONS,
    }
    return next((name for name, is_wrong in wrong.items() if is_wrong), None)

"""The journal of a recording: every reply is on the disk before it counts.

An append-only file (`recorders.journal.appendlog`) of JSON lines. The first identifies the
recording; then follow, in the order in which things happened:

    {"v":1,"journal":{...},"about":{...},"crc":"..."}                      what is recorded, and the
    circumstances {"v":1,"request":KEY,"question_id":...,"model":...,"messages":[...]} once per
    distinct request {"v":1,"key":KEY,"sample":0,"question_id":...,"text":...,...}          one CoT;
    a turn has the "messages" it replies to
    {"v":1,"probing":PROBING,"key":KEY,"sample":0,"offset":500,"text":...,...}  one probe of a CoT
    that is there {"v":1,"note":"..."}                                                   anything
    unusual

PROBING is the hash of how probes are made (`recorders.asking.probing.Probing.key`). KEY is the
content key of a request (`recorders.request.Request.key`); key and sample index together identify a
CoT. Texts are not kept in memory; the index takes one bit per CoT. Nothing from the environment is
written, only what the caller hands in.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from feval.cards.finish_reasons import FINISH_REASONS
from feval.cards.tokens import count_words
from feval.errors import FevalError, UnknownNameError
from feval.publish.secrets import make_private
from recorders.errors import JournalError
from recorders.journal.appendlog import VERSION, AppendLog, Line, clean, difference
from recorders.request import Completion, Request

__all__ = [
    "JOURNAL",
    "MODES",
    "MOST_SAMPLES",
    "Journal",
    "JournalEntry",
    "Totals",
    "difference",
    "journal_folder",
    "never_empty",
    "utc_now",
]

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
_KINDS = {"request": "request", "note": "note", "probe": "probing"}
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
    "token_lengths": (list, type(None)),
    "sequence_logprob": (float, type(None)),
    "tokens_split": (bool, type(None)),
    "stop_text": (str, type(None)),
    "usage_doubt": (str, type(None)),
    "duration_s": (float, int, type(None)),
    "seed": (int, type(None)),
    "recorded_at": (str,),
}


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

    def count(self, record: Mapping[str, Any]) -> None:
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
    """One line: its number (from 1), the bytes before it, its kind (request, cot, probe or note)
    and its fields.
    """

    number: int
    offset: int
    kind: str
    record: dict[str, Any]


class Journal(AppendLog[dict[str, Any], tuple[str, int]]):
    """The journal in one folder, locked for this process; made by `Journal.open`, used as a context
    manager.
    """

    NAME, HEADER, WORKER = JOURNAL, "journal", "recorder"
    ELSEWHERE, ANEW = "record into another folder", "start over with the mode 'all'"

    def __init__(self, folder: Path, identity: Mapping[str, Any], mode: str) -> None:
        super().__init__(folder)
        self.identity = dict(identity)
        self.mode = mode
        self.totals = Totals()
        self._masks: dict[str, int] = {}
        self._offsets: dict[tuple[str, str, int], array[int]] = {}
        self._notes: set[str] = set()

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

        The identity (JSON values) says what is recorded; the journal of something else is refused.
        `about` goes into the header of a new journal and is not compared later.
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
        lacking = ~self._masks.get(key, 0) & ((1 << samples) - 1)
        return [sample for sample, bit in enumerate(reversed(f"{lacking:b}")) if bit == "1"]

    def samples(self, key: str) -> list[int]:
        """Return the sample indices of a request that count, ascending."""
        return [
            sample
            for sample, bit in enumerate(reversed(f"{self._masks.get(key, 0):b}"))
            if bit == "1"
        ]

    def probed(self, probing: str, key: str, sample: int) -> Sequence[int]:
        """Return the offsets at which a CoT was probed in one way."""
        return self._offsets.get((probing, key, sample), ())

    def next_sample(self, key: str) -> int:
        """Return the index after the highest that counts; 0 if there is none."""
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
        parent: int | None = None,
    ) -> None:
        """Collect one reply; it counts after the next `commit`.

        `parent` is the sample that turns of a live method reply to. `refused` says why there is no
        text. `choices` (JSON values, as the server sent them) are for replay by a proxy, and not
        sealed.
        """
        records = [
            _cot_record(
                request,
                key,
                sample,
                completion,
                recorded_at,
                seeds[place] if seeds else None,
                refused,
                place,
            )
            for place, (sample, completion) in enumerate(zip(samples, completions, strict=True))
        ]
        for record, choice in zip(records, choices or (), strict=False):
            record["choice"] = choice
        for record in records if parent is not None else ():
            record["parent"] = parent
        lines = [self._line(record) for record in records]
        with self._collecting:
            self._refuse_after_failure()
            if key not in self._masks:
                self._masks[key] = 0
                lines.insert(0, self._line(_request_record(request, key)))
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
        where = {"v": VERSION, "probing": probing, "key": key, "sample": sample, "offset": offset}
        record = where | _completion_record(completion) | {"recorded_at": recorded_at}
        record |= {} if confidence is None else {"confidence": confidence}
        record |= {} if refused is None else {"refused": clean(refused)}
        with self._collecting:
            self._refuse_after_failure()
            self._collect([self._line(record)], [record])

    def note(self, sentence: str) -> None:
        """Collect a sentence about something unusual; equal sentences are written once."""
        with self._collecting:
            self._refuse_after_failure()
            if sentence not in self._notes:
                self._notes.add(sentence)
                self._collect([self._line({"v": VERSION, "note": clean(sentence)})])

    def entries(self) -> Iterator[JournalEntry]:
        """Read the committed lines again, without the header."""
        for committed in self._committed_lines():
            yield self._entry(*committed)

    def read_many(self, offsets: Sequence[int]) -> list[dict[str, Any]]:
        """Read the CoTs or probes whose lines begin at some offsets (of `entries`), in that
        order.
        """
        return [self._entry(*line).record for line in self._lines_at(offsets)]

    def _begin(self, about: dict[str, Any]) -> None:
        if self.mode == "none" and not self.path.exists():
            raise JournalError(
                f"There is no journal in {self.folder}, and the mode 'none' asks for nothing. Name"
                " the folder of a journal, or record with the mode 'new_episodes'."
            )
        set_aside = self._set_aside if self.mode == "all" else lambda: None
        about = {"about": about | {"created": utc_now()}}
        self._open(self.identity, self._take, about=about, locked=set_aside)

    def _check_may_begin(self) -> None:
        if self.mode == "none":
            raise JournalError(
                f"The journal in {self.folder} is empty, and the mode 'none' asks for nothing."
                " Record with the mode 'new_episodes'."
            )

    def _set_aside(self) -> None:
        if self.path.exists():
            number = 1
            while (aside := self.folder / f"journal-{number}.jsonl").exists():
                number += 1
            make_private(self.path)
            self.path.rename(aside)

    def _count(self, record: dict[str, Any]) -> tuple[str, int]:
        key, sample = record["key"], record["sample"]
        if "probing" in record:
            self._offsets.setdefault((record["probing"], key, sample), array("I")).append(
                record["offset"]
            )
        else:
            self._masks[key] |= 1 << sample
        self.totals.count(record)
        return key, sample

    def _take(self, line: Line) -> None:
        entry = self._entry(*line)
        record = entry.record
        if entry.kind == "note":
            self._notes.add(record["note"])
        elif entry.kind == "request":
            self._masks.setdefault(record["request"], 0)
        else:
            key, sample = record["key"], record["sample"]
            mask = self._masks.get(key)
            if entry.kind == "probe":
                if not self.has(key, sample) or record["offset"] in self.probed(
                    record["probing"], key, sample
                ):
                    raise self._damaged(
                        entry.number,
                        "is a probe of a CoT that is not there, or one that comes again",
                    )
            elif mask is None or mask >> sample & 1:
                what = (
                    "has no request before it"
                    if mask is None
                    else f"repeats sample {sample} of its request"
                )
                raise self._damaged(entry.number, what)
            self._count(record)

    def _entry(self, number: int, offset: int, line: bytes) -> JournalEntry:
        record = self._parse(number, line)
        kind = next((kind for kind, name in _KINDS.items() if name in record), "cot")
        if (wrong := _wrong_field(kind, record)) is not None:
            raise self._damaged(number, f"lacks the field {wrong!r}, or has it with a wrong type")
        return JournalEntry(number, offset, kind, record)


@contextmanager
def never_empty(journal: Journal) -> Iterator[None]:
    """After a failure, remove a journal without CoTs: it would only block the corrected command."""
    try:
        yield
    except FevalError:
        if not len(journal):
            journal.remove()
        raise


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
    record |= _completion_record(completion)
    if request.conversation:
        record["messages"] = [
            {name: clean(value) for name, value in said.items()} for said in request.said()
        ]
    if seed is not None:
        record["seed"] = seed
    if refused is not None:
        record["refused"] = clean(refused)
    elif place == 0:
        record["first_of_reply"] = True
    record["recorded_at"] = recorded_at
    return record


def _completion_record(completion: Completion) -> dict[str, Any]:
    record: dict[str, Any] = {}
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
    return record


def _finite(values: Sequence[float]) -> list[float] | None:
    """Return log-probabilities as JSON can hold them: -9999, as OpenAI writes it, for minus
    infinity; `None` if any is NaN.
    """
    if all(map(math.isfinite, values)):
        return list(values)
    if any(math.isnan(value) for value in values):
        return None
    return [min(max(value, -_VERY_UNLIKELY), _VERY_UNLIKELY) for value in values]


def _request_record(request: Request, key: str) -> dict[str, Any]:
    messages = [
        {"role": message.role, "content": clean(message.content)} for message in request.messages
    ]
    return {
        "v": VERSION,
        "request": key,
        "dataset": request.dataset,
        "question_id": request.question_id,
        "model": request.model,
        "decoding": request.decoding.content(),
        "messages": messages,
    }


def _are_messages(value: object) -> bool:
    """Return whether a value is a list of messages."""
    return isinstance(value, list) and all(
        isinstance(m, dict)
        and m.keys() == {"role", "content"}
        and all(isinstance(text, str) for text in m.values())
        for m in value
    )


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
    if kind == "probe":
        if not isinstance(record["probing"], str):
            return "probing"
        if type(record.get("offset")) is not int or not 0 < record["offset"] < 1 << 31:
            return "offset"
    if "messages" in record and not _are_messages(record["messages"]):
        return "messages"
    if type(record.get("parent", 0)) is not int:
        return "parent"
    for name, kinds in _TYPES.items():
        if kind == "probe" and name == "question_id":
            continue
        if not isinstance(record.get(name), kinds):
            return name
    return None if record["finish_reason"] in FINISH_REASONS else "finish_reason"

"""The journal of a scorer: every score on the disk before it counts, in a file that only grows.

One JSON object per line, each ending with the CRC-32 of what stands before it:

    {"v":1,"scores":{...},"crc":"..."}                                     whose scores, of which recording
    {"v":1,"dataset":...,"llm":...,"question_id":...,"sample":0,"score":0.5,...}   what was said of one CoT

A CoT is named by dataset, LLM, question and sample index, and by what it is compared with where a judge compares: the header
pins the recording by its hash. A CoT that was refused may come again: the later line counts. A kill leaves at most one
line without its end, which is cut off when the journal is opened again; other damage is an error that names the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from recorders.journal.appendlog import VERSION, AppendLog, Line, clean, line

__all__ = ["REFUSED", "CoTKey", "ScoreJournal", "Scored"]

REFUSED = "Refused: "
"""Begins the verdict of a refused CoT, so that it can be told from one whose score could not be read."""


class CoTKey(NamedTuple):
    """Which CoT of a recording.

    `against` says which of its comparisons, where it is compared with others; empty where it is scored by itself.
    """

    dataset: str
    llm: str
    question_id: str
    sample: int
    against: str = ""


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


class ScoreJournal(AppendLog):
    """The journal in one folder, locked for this process; made by `ScoreJournal.open`, used as a context manager.

    Attributes:
        folder: where it lies.
        recovered: a sentence if a torn last line was cut off; `None` otherwise.
        refused: the CoTs that the scorer refused.
        prompt_tokens: of all requests, as far as the scorer said.
        output_tokens: of all replies, likewise.
        told: number of replies of which it said both.
        untold: the CoTs of whose reply it did not say both.
    """

    NAME, HEADER, WORKER = "scores.jsonl", "scores", "process"
    ELSEWHERE, ANEW = "name another --out", "delete that folder, with the scores in it"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._done: dict[tuple[str, str, str, str], int] = {}  # bit masks of samples
        self._count = 0
        self.refused: set[CoTKey] = set()
        self.untold: set[CoTKey] = set()
        self.prompt_tokens = self.output_tokens = self.told = 0

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
                journal._open(dict(identity), journal._take)
        except BaseException:
            journal.close()
            raise
        return journal

    def __len__(self) -> int:
        """Number of CoTs in it."""
        return self._count

    def __contains__(self, key: CoTKey) -> bool:
        return bool(self._done.get(_of(key), 0) >> key.sample & 1)

    def write(self, scores: Sequence[tuple[CoTKey, Scored]]) -> None:
        """Write and sync some scores: from now on they count.

        Raises:
            StorageError: the disk said no; none of them counts, and nothing can be written any more.
        """
        self._refuse_after_failure()
        with self._storage_errors("written"):
            self._append(b"".join(line(_record(key, scored)) for key, scored in scores))
        for key, scored in scores:
            self._mark(key, scored)

    def entries(self) -> Iterator[tuple[CoTKey, Scored]]:
        """Read all scores again, in the order in which they came.

        Raises:
            JournalError: a line is damaged.
        """
        for found in self._written():
            yield self._entry(found)

    def _take(self, found: Line) -> None:
        key, scored = self._entry(found)
        if key in self and key not in self.refused:
            raise self._damaged(found.number, "repeats a CoT")
        self._mark(key, scored)

    def _mark(self, key: CoTKey, scored: Scored) -> None:
        self._count += key not in self
        self._done[_of(key)] = self._done.get(_of(key), 0) | 1 << key.sample
        (self.refused.add if scored.problem == "refused" else self.refused.discard)(key)
        if scored.prompt_tokens is not None and scored.output_tokens is not None:
            self.prompt_tokens += scored.prompt_tokens
            self.output_tokens += scored.output_tokens
            self.told += 1
        elif scored.problem != "refused":
            self.untold.add(key)

    def _entry(self, found: Line) -> tuple[CoTKey, Scored]:
        record = self._parse(found.number, found.data)
        try:
            where = record["dataset"], record["llm"], record["question_id"], record["sample"]
            key = CoTKey(*where, record.get("against", ""))
            steps = record.get("steps")
            return key, Scored(
                record.get("score"),
                None if steps is None else tuple(steps),
                *(record.get(name) for name in ("verdict", "prompt_tokens", "output_tokens", "problem")),
            )
        except (KeyError, TypeError) as error:
            raise self._damaged(found.number, "lacks a field") from error


def _of(key: CoTKey) -> tuple[str, str, str, str]:
    """All of a key but the sample."""
    return key.dataset, key.llm, key.question_id, key.against


def _record(key: CoTKey, scored: Scored) -> dict[str, Any]:
    values = {
        "score": scored.score,
        "steps": None if scored.step_scores is None else list(scored.step_scores),
        "verdict": None if scored.verdict is None else clean(scored.verdict),
        "prompt_tokens": scored.prompt_tokens,
        "output_tokens": scored.output_tokens,
        "problem": scored.problem,
    }
    where = {name: value for name, value in key._asdict().items() if name != "against" or value}
    return {"v": VERSION, **where, **{name: value for name, value in values.items() if value is not None}}

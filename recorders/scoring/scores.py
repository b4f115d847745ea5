"""Scores: the protocol of a scorer, what it is given and returns, and the journal of a scoring run,
where every score is on the disk before it counts.

The journal is an append-only file (`feval.appendlog`) of JSON lines:

    {"v":1,"scores":{...},"crc":"..."}                      which scorer, on which recording
    {"v":1,"dataset":...,"llm":...,"question_id":...,"sample":0,"score":0.5,...}     one score

A CoT is identified by dataset, LLM, question and sample index, and by what it is compared with in a
pairwise comparison; the first line pins the recording by its hash. A CoT that was refused may occur
again: the later line counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, Self

from feval.appendlog import AppendLog, Line, LineIndex, clean
from feval.recording import Question, ScorerInfo
from feval.values import RecordLike, frozen
from recorders.errors import JournalError, LockedJournalError


@frozen
class Item:
    """One CoT to score.

    Attributes:
        question: with its text and options; scorers leave its gold out.
        text: the CoT.
        answer: as extracted, canonical; `None` for no answer.
        prompt: the request the CoT answers, as a JSON array of messages; `None` if it was not kept.
        other: text of the CoT it is compared with, which is shown second; `None` where it is scored
            by itself.
        llm: name of the LLM.
        sample: number of the CoT among those of its question and LLM, from 0.
    """

    question: Question
    text: str
    answer: str | None
    prompt: str | None = None
    other: str | None = None
    llm: str = ""
    sample: int = 0

    @property
    def question_text(self) -> str:
        """The question with its options, one per line."""
        options = [f"({label}) {text}" for label, text in self.question.choices]
        return "\n".join([self.question.text, *options])


class RequestCost(NamedTuple):
    """What a paid scorer is sent for each CoT, and the most tokens of a reply: to estimate tokens
    and dollars.
    """

    model: str
    max_tokens: int
    text: Callable[[Item], str]


class Scorer:
    """Something that scores CoTs.

    Attributes:
        info: name, kind and parameters, for the recording.
        batch: most CoTs of one question to hand over together.
        concurrency: most batches at a time; `None` for as many as the run allows.
        request_cost: what is sent for each CoT; `None` if nothing is known of tokens, or there are
            none.
        facts: where it runs and the like, for the recording's operation (JSON values, no secrets).
        warnings: sentences for the user.
    """

    info: ScorerInfo
    batch = 1
    concurrency: int | None = None
    request_cost: RequestCost | None = None
    facts: Mapping[str, Any] = {}
    warnings: tuple[str, ...] = ()

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one result per CoT; all CoTs answer one question."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release connections and memory."""


def read_score(value: object) -> Score | None:
    """Return a score from outside, which is a number, a list of step scores or `None`; return
    `None` if it is none of these.

    Values that are not finite count as unreadable.
    """
    if value is None:
        return Score()
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()  # an array of one number without a length
    if isinstance(value, Real | Decimal):
        number = _finite(value)
        return Score(problem="unreadable") if math.isnan(number) else Score(number)
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return None
    steps = list(value)
    if not all(isinstance(step, Real | Decimal) for step in steps):
        return None
    numbers = tuple(map(_finite, steps))
    if any(map(math.isnan, numbers)):
        return Score(problem="unreadable")
    return Score(step_scores=numbers or None)


def _finite(value: Real | Decimal) -> float:
    """Return a finite number; NaN for any other."""
    try:
        number = float(value)
    except OverflowError:  # of an integer
        return math.nan
    return number if math.isfinite(number) else math.nan


REFUSED = "Refused: "
"""Prefix of the verdict of a refused CoT, which tells it from one whose score could not be read."""


class CoTKey(NamedTuple):
    """Which CoT of a recording, and in which of its comparisons (`against`, empty where it is
    scored by itself).
    """

    dataset: str
    llm: str
    question_id: str
    sample: int
    against: str = ""


@frozen
class Score:
    """What a scorer returned for one CoT.

    Attributes:
        score: the higher the better; `None` for none.
        step_scores: of each step, in order; `None` for none.
        verdict: the scorer's reply in words; `None` where it gives only numbers.
        prompt_tokens: of its request; `None` if unknown.
        output_tokens: of its reply; `None` if unknown.
        problem: why there is no score: "unreadable" or "refused"; `None` if the scorer gave one, or
            chose not to.
    """

    score: float | None = None
    step_scores: tuple[float, ...] | None = None
    verdict: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    problem: str | None = None


KeyedScore = tuple[CoTKey, Score]
Replies = Callable[[CoTKey], dict[int, Score]]
_SCORE_FIELDS = tuple(field.name for field in fields(Score))


class ScoreJournal(AppendLog[KeyedScore, CoTKey]):
    """The journal in one folder, locked for this process; made by `ScoreJournal.open`, used as a
    context manager.

    The token counts are of the replies that came with them.
    """

    NAME = "scores.jsonl"
    HEADER = "scores"
    ELSEWHERE, ANEW = "name another --out", "delete that folder, with the scores in it"
    DAMAGED, OTHER, LOCKED = JournalError, JournalError, LockedJournalError

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / self.NAME)
        self._scored = LineIndex[CoTKey]()
        self._masks: dict[CoTKey, int] = {}
        self._length = 0
        self.refused: set[CoTKey] = set()
        self.prompt_tokens = self.output_tokens = self.replies_with_usage = 0

    @classmethod
    def open(cls, folder: str | Path, identity: RecordLike) -> Self:
        """Open the journal in a folder, or begin one; that of another scorer or recording
        (`identity`) is refused.
        """
        journal = cls(Path(folder))
        journal._open(dict(identity))
        return journal

    def __len__(self) -> int:
        """Number of CoTs in it."""
        return self._length

    def __contains__(self, key: CoTKey) -> bool:
        return bool(self._masks.get(key._replace(sample=0), 0) >> key.sample & 1)

    def add(self, scores: Sequence[KeyedScore]) -> None:
        """Collect some scores; they count after the next `commit`."""
        lines = []
        for key, score in scores:
            values = key._asdict() | asdict(score)
            values["verdict"] = score.verdict and clean(score.verdict)
            lines.append(self._line({n: v for n, v in values.items() if v not in (None, "")}))
        with self._collecting:
            self._collect(lines, scores)

    def scores(self, key: CoTKey) -> dict[int, Score]:
        """Read the scores of what a key has but for its sample: sample index -> score."""
        entries = map(self._entry, self._lines_at(self._scored.offsets(key._replace(sample=0))))
        return {each.sample: score for each, score in entries}

    def _take(self, line: Line) -> None:
        key, score = self._entry(line)
        if key in self and key not in self.refused:
            raise self._damaged(line.number, "repeats a CoT")
        self._count((key, score), line.offset)

    def _count(self, record: KeyedScore, offset: int) -> CoTKey:
        key, score = record
        group = key._replace(sample=0)
        self._length += key not in self
        self._masks[group] = self._masks.get(group, 0) | 1 << key.sample
        self._scored.add(group, key.sample, offset)
        (self.refused.add if score.problem == "refused" else self.refused.discard)(key)
        if score.prompt_tokens is not None and score.output_tokens is not None:
            self.prompt_tokens += score.prompt_tokens
            self.output_tokens += score.output_tokens
            self.replies_with_usage += 1
        return key

    def _entry(self, line: Line) -> KeyedScore:
        record = self._parse(line.number, line.data)
        try:
            where = record["dataset"], record["llm"], record["question_id"], record["sample"]
            values = {name: record.get(name) for name in _SCORE_FIELDS}
            steps = values["step_scores"]
            values["step_scores"] = None if steps is None else tuple(steps)
        except (KeyError, TypeError) as error:
            raise self._damaged(line.number, "lacks a field") from error
        return CoTKey(*where, record.get("against", "")), Score(**values)

"""The protocol of a scorer, what it is given, and how a score from outside is read."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from feval.recording import Question, ScorerInfo
from recorders.journal.appendlog import VERSION, AppendLog, Line, clean
from recorders.journal.places import Places


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class RequestCost:
    """What a paid scorer is sent for each CoT, and the most tokens of a reply: to estimate tokens
    and dollars.
    """

    model: str
    max_tokens: int
    text: Callable[[Item], str]


class Scorer(Protocol):
    """Something that scores CoTs."""

    @property
    def info(self) -> ScorerInfo:
        """Name, kind and parameters, for the recording."""

    @property
    def batch(self) -> int:
        """Most CoTs of one question to hand over together."""

    @property
    def concurrency(self) -> int | None:
        """Most batches at a time; `None` for as many as the run allows."""

    @property
    def request_cost(self) -> RequestCost | None:
        """What is sent for each CoT; `None` if nothing is known of tokens, or there are none."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Where it runs and the like, for the recording's operation (JSON values, no secrets)."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the user."""

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one result per CoT; all CoTs answer one question."""

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
        return Score(problem="unreadable") if number is None else Score(number)
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return None
    steps = list(value)
    if not all(isinstance(step, Real | Decimal) for step in steps):
        return None
    numbers = tuple(map(_finite, steps))
    known = tuple(number for number in numbers if number is not None)
    if not numbers:
        return Score()
    return Score(step_scores=known) if len(known) == len(numbers) else Score(problem="unreadable")


def _finite(value: Real | Decimal) -> float | None:
    try:
        number = float(value)
    except OverflowError:  # of an integer
        return None
    return number if math.isfinite(number) else None


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


@dataclass(frozen=True, slots=True)
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


class CoTSet:
    """A set of CoTs, which takes one bit for each."""

    def __init__(self) -> None:
        self._masks: defaultdict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, key: CoTKey) -> bool:
        return bool(
            self._masks[key.dataset, key.llm, key.against].get(key.question_id, 0) >> key.sample & 1
        )

    def add(self, key: CoTKey) -> None:
        """Add a CoT."""
        masks = self._masks[key.dataset, key.llm, key.against]
        self._length += key not in self
        masks[key.question_id] = masks.get(key.question_id, 0) | 1 << key.sample


class ScoreJournal(AppendLog[KeyedScore, CoTKey]):
    """The journal in one folder, locked for this process; made by `ScoreJournal.open`, used as a
    context manager.

    The token counts are of the replies that came with them; `without_usage` has the CoTs of the
    others.
    """

    NAME, HEADER, WORKER = "scores.jsonl", "scores", "process"
    ELSEWHERE, ANEW = "name another --out", "delete that folder, with the scores in it"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._scored, self.without_usage = CoTSet(), CoTSet()
        self.refused: set[CoTKey] = set()
        self.prompt_tokens = self.output_tokens = self.replies_with_usage = 0

    @classmethod
    def open(cls, folder: str | Path, identity: Mapping[str, Any]) -> Self:
        """Open the journal in a folder, or begin one; that of another scorer or recording
        (`identity`) is refused.
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
        return len(self._scored)

    def __contains__(self, key: CoTKey) -> bool:
        return key in self._scored

    def add(self, scores: Sequence[KeyedScore]) -> None:
        """Collect some scores; they count after the next `commit`."""
        with self._collecting:
            self._refuse_after_failure()
            self._collect([self._line(_record(key, score)) for key, score in scores], scores)

    def replies(self) -> Replies:
        """Return a function that reads the scores of what a key has but for its sample: sample
        index -> score.
        """
        places = Places()
        for line in self._committed_lines():
            key, _ = self._entry(line)
            places.add(key._replace(sample=0), key.sample, line.offset)

        def scores(key: CoTKey) -> dict[int, Score]:
            entries = map(self._entry, self._lines_at(places.offsets(key._replace(sample=0))))
            return {each.sample: score for each, score in entries}

        return scores

    def _take(self, line: Line) -> None:
        key, score = self._entry(line)
        if key in self and key not in self.refused:
            raise self._damaged(line.number, "repeats a CoT")
        self._count((key, score))

    def _count(self, record: KeyedScore) -> CoTKey:
        key, score = record
        self._scored.add(key)
        (self.refused.add if score.problem == "refused" else self.refused.discard)(key)
        if score.prompt_tokens is not None and score.output_tokens is not None:
            self.prompt_tokens += score.prompt_tokens
            self.output_tokens += score.output_tokens
            self.replies_with_usage += 1
        elif score.problem != "refused":
            self.without_usage.add(key)
        return key

    def _entry(self, line: Line) -> KeyedScore:
        record = self._parse(line.number, line.data)
        try:
            where = record["dataset"], record["llm"], record["question_id"], record["sample"]
            key = CoTKey(*where, record.get("against", ""))
            steps = record.get("steps")
            return key, Score(
                record.get("score"),
                None if steps is None else tuple(steps),
                *(
                    record.get(name)
                    for name in ("verdict", "prompt_tokens", "output_tokens", "problem")
                ),
            )
        except (KeyError, TypeError) as error:
            raise self._damaged(line.number, "lacks a field") from error


def _record(key: CoTKey, score: Score) -> dict[str, Any]:
    values = {
        "score": score.score,
        "steps": None if score.step_scores is None else list(score.step_scores),
        "verdict": None if score.verdict is None else clean(score.verdict),
        "prompt_tokens": score.prompt_tokens,
        "output_tokens": score.output_tokens,
        "problem": score.problem,
    }
    where = {name: value for name, value in key._asdict().items() if name != "against" or value}
    return {
        "v": VERSION,
        **where,
        **{name: value for name, value in values.items() if value is not None},
    }

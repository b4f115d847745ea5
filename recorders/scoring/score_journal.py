"""The journal of a scoring run: every score is on the disk before it counts.

An append-only file (`recorders.journal.appendlog`) of JSON lines:

    {"v":1,"scores":{...},"crc":"..."}                                     which scorer, on which
    recording {"v":1,"dataset":...,"llm":...,"question_id":...,"sample":0,"score":0.5,...}   the
    score of one CoT

A CoT is identified by dataset, LLM, question and sample index, and by what it is compared with in a
pairwise comparison; the first line pins the recording by its hash. A CoT that was refused may occur
again: the later line counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from recorders.journal.appendlog import VERSION, AppendLog, Line, clean
from recorders.journal.places import Places

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

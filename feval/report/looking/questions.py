"""Everything that was recorded of a question, LLM by LLM."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from feval.errors import UnknownNameError, UsageError
from feval.recording import PoolRows
from feval.report.text import counted, shortened

if TYPE_CHECKING:
    from feval.recording import ProbeRows, Question, Recording, ScoreRows


_MOST_LISTED = 5


class _Rows(Protocol):
    @property
    def question_id(self) -> str: ...


_R = TypeVar("_R", bound=_Rows)


@dataclass(frozen=True, slots=True)
class LLMOnQuestion:
    """What one LLM did on a question.

    Attributes:
        llm: its name.
        pool: its CoTs, or the steps of its tree.
        codes: per CoT, its answer among the question's candidates; -1 for no answer.
        scores: scorer -> a score per CoT; `None` where there is none.
        probes: its probes; `None` where there are none.
    """

    llm: str
    pool: PoolRows
    codes: Sequence[int] = ()
    scores: dict[str, list[float | None]] = field(default_factory=dict)
    probes: ProbeRows | None = None

    @property
    def is_tree(self) -> bool:
        """Whether its rows are the steps of a tree."""
        return self.pool.parents is not None

    @property
    def turns(self) -> int:
        """How many of its rows reply to a CoT."""
        return sum(sent is not None for sent in self.pool.messages or ())

    def said(self, place: int) -> str | None:
        """What a turn replies to, as text; `None` for what is no turn."""
        return None if self.pool.messages is None else said(self.pool.messages[place])

    def counts(self) -> list[tuple[int, int]]:
        """(answer's code, how many CoTs gave it), the most frequent first; no answer, -1, is
        last.
        """
        ends = self.pool.ends
        counts = Counter(code for i, code in enumerate(self.codes) if ends is None or ends[i])
        return sorted(counts.items(), key=lambda item: (item[0] < 0, -item[1], item[0]))


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """A question with what was recorded of it.

    Attributes:
        dataset: id of the dataset.
        question: text, gold and choices.
        candidates: the distinct answers, by code.
        gold: code of the gold answer; -1 where there is none.
        llms: what each LLM did.
    """

    dataset: str
    question: Question
    candidates: Sequence[str]
    gold: int
    llms: Sequence[LLMOnQuestion]

    def answer(self, code: int) -> str | None:
        """Return the answer that has a code."""
        return None if code < 0 else self.candidates[code]

    def is_right(self, code: int) -> bool | None:
        """Return whether an answer is right; `None` where there is no gold."""
        return None if self.gold < 0 else code == self.gold


def said(messages: str | None) -> str | None:
    """Return the words of messages, a JSON array, for people; `None` for none."""
    return (
        None
        if messages is None
        else "\n".join(str(message.get("content")) for message in json.loads(messages))
    )


def recorded_questions(
    recording: Recording, dataset: str, llms: Sequence[str], rows: range
) -> Iterator[RecordedQuestion]:
    """Yield some questions of a dataset (by their rows) with all that some LLMs did; texts are read
    block by block.
    """
    recording.prepare(dataset, llms)
    votes = recording.votes(dataset)
    ids = [votes.question_ids[row] for row in rows]
    sources = [_of_llm(recording, dataset, llm, rows, ids) for llm in llms]
    for row, question in zip(rows, recording.scan_questions(dataset, rows), strict=True):
        on = [
            LLMOnQuestion(
                llm, pool, votes.llms[llm].codes[row, : len(pool.answers)].tolist(), *rest
            )
            for llm, (pool, *rest) in zip(llms, (next(source) for source in sources), strict=True)
        ]
        yield RecordedQuestion(dataset, question, votes.candidates(row), int(votes.gold[row]), on)


def _of_llm(
    recording: Recording, dataset: str, llm: str, rows: range, ids: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Pool, scores and probes of an LLM on each question."""
    pools = _each(recording.pools(dataset, llm, rows), ids)
    scorers = recording.scorers(dataset, llm)
    scored = [_each(recording.score_rows(dataset, llm, scorer, rows), ids) for scorer in scorers]
    probes = _each(
        recording.probe_rows(dataset, llm, rows) if recording.has_probes(dataset, llm) else (), ids
    )
    for name, pool, probed, *scores in zip(ids, pools, probes, *scored, strict=True):
        pool = pool or PoolRows(name, [], [], [], [], [])
        size = len(pool.answers)
        yield (
            pool,
            dict(
                _per_cot(name, own, size) for name, own in zip(scorers, scores, strict=True) if own
            ),
            probed,
        )


def _each(rows: Iterable[_R], ids: Sequence[str]) -> Iterator[_R | None]:
    """What some questions have, in their order; `None` for one that has nothing."""
    waiting = iter(rows)
    ahead = next(waiting, None)
    for name in ids:
        if ahead is None or ahead.question_id != name:
            yield None
        else:
            yield ahead
            ahead = next(waiting, None)


def _per_cot(scorer: str, rows: ScoreRows, size: int) -> tuple[str, list[float | None]]:
    """Name and scores of a scorer; the lowest step scores where it gave no others."""
    own: Sequence[float | None] = rows.scores
    if rows.step_scores is not None and not any(score is not None for score in own):
        scorer, own = (
            f"{scorer}, lowest step",
            [min(steps) if steps else None for steps in rows.step_scores],
        )
    scores: list[float | None] = [None] * size
    for index, score in zip(rows.sample_indices, own, strict=True):
        scores[index] = score
    return scorer, scores


def find_question(recording: Recording, name: str, dataset: str | None = None) -> tuple[str, int]:
    """Return dataset and row of a question: of that id, else the only one whose id begins so, or
    whose text has the name in it.

    Upper and lower case are equal, and so is all white space.

    Raises:
        NotRecordedError: no such dataset.
        UnknownNameError: no such question.
        UsageError: several questions are meant.
    """
    if dataset is not None:
        recording.require(dataset)
    datasets, ids = [dataset] if dataset is not None else recording.dataset_ids(), {}
    for each in datasets:
        recording.prepare(each, ())
        ids[each] = recording.votes(each).question_ids
    places = [
        (each, row) for each, names in ids.items() for row, own in enumerate(names) if own == name
    ]
    if len(places) > 1:
        found = ", ".join(each for each, _ in places)
        raise UsageError(
            f"{len(places)} datasets have a question {name!r}; choose one with --dataset: {found}."
        )
    if places:
        return places[0]
    similar = [
        (each, row, question)
        for each in datasets
        for row, question in enumerate(recording.scan_questions(each))
        if _folded(question.id).startswith(_folded(name)) or _folded(name) in _folded(question.text)
    ]
    if not similar:
        where = f"question of {', '.join(datasets)} in {recording.path} with the id, or the words,"
        raise UnknownNameError.of(where, name, (own for names in ids.values() for own in names))
    if len(similar) > 1:
        listed = "; ".join(
            f"{question.id} ({shortened(question.text, 60)})"
            for _, _, question in similar[:_MOST_LISTED]
        )
        more = f"; and {len(similar) - _MOST_LISTED:,} more" if len(similar) > _MOST_LISTED else ""
        raise UsageError(
            f"{counted(len(similar), 'question')} have {name!r:.80} in the text or at the start of"
            f" the id; give one by its id, or more of its text: {listed}{more}."
        )
    return similar[0][:2]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def answer_span(text: str, *answers: str | None) -> tuple[int, int] | None:
    """Return where a text says the shortest of some answers that it has: the last place where it
    stands as a word of its own.
    """
    words = {(answer or "").strip().strip(".,;:") for answer in answers} - {""}
    for word in sorted(words, key=lambda word: (len(word), word)):
        found = deque(
            re.finditer(rf"(?<!\w)(?<!\d[.,]){re.escape(word)}(?!\w|[.,]\d)", text), maxlen=1
        )
        if found:
            return found[0].span()
    return None

"""Recordings made from recordings: what several must agree on, blocks of their rows, and scores
that are added.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import get_ident
from typing import NamedTuple, TypeVar

import numpy as np

from feval.answers.equality import named_equality
from feval.answers.equivalence import Verdict
from feval.errors import ConflictError, DamagedRecordingError, NotRecordedError, UsageError
from feval.recording.content import (
    DatasetInfo,
    PoolRows,
    ProbeRows,
    Question,
    ScorerInfo,
    ScoreRows,
)
from feval.recording.layout.flat import Floats, Int64
from feval.recording.layout.format import SCORES, Part, Record
from feval.recording.layout.manifest import named_prices
from feval.recording.reader import Recording, open_recording
from feval.recording.verify import open_sound
from feval.recording.writer import RecordingWriter


def derived_writer(
    sources: Sequence[Recording],
    out: str | Path,
    operation: Record,
    notes: Sequence[str],
    licences: Mapping[str, str | None] | None = None,
) -> RecordingWriter:
    """Return the writer of a recording that is derived from others with one price list."""
    return RecordingWriter(
        out,
        operation=operation,
        prices=named_prices(source.manifest for source in sources),
        parents=[
            {"hash": source.hash, "operation": source.manifest.raw["operation"]}
            for source in sources
        ],
        notes=notes,
        licences=licences or sources[0].manifest.raw["licences"],
    )


def carried_notes(source: Recording, mark: str) -> list[str]:
    """Return the notes of the recording that another one is derived from, marked as not being about
    that one.
    """
    return [mark + note.removeprefix(mark) for note in source.manifest.raw["notes"]]


def common_info(
    dataset: str, holders: Sequence[Recording], equality: str | None = None
) -> DatasetInfo:
    """Return what several recordings agree on about a dataset; a given equality takes the place of
    theirs.
    """
    first = holders[0].dataset_info(dataset)
    if len(holders) > 1 and equality is not None:
        first = replace(first, equality=named_equality(first.answer_kind, equality))
    for holder in holders[1:]:
        other = holder.dataset_info(dataset)
        for field in (
            "answer_kind",
            "extractor",
            "system_prompt",
            *(["equality"] if equality is None else []),
        ):
            mine, theirs = getattr(first, field), getattr(other, field)
            if mine != theirs:
                advice = (
                    "name one for both, --equality NAME"
                    if field == "equality"
                    else "import one of them again"
                )
                raise ConflictError(
                    f"{dataset} has {field} {mine!r} in {holders[0].path} but {theirs!r} in"
                    f" {holder.path}; {advice}."
                )
    return first


def known_verdicts(dataset: str, holders: Sequence[Recording], equality: str) -> Record:
    """Return the arguments of `RecordingWriter.add_dataset` about verdicts; a single holder has no
    new answers.
    """
    verdicts: dict[str, list[Verdict]] = {}
    for holder in holders:
        if holder.dataset_info(dataset).equality == equality:
            for question, rows in holder.verdicts(dataset).items():
                verdicts.setdefault(question, []).extend(rows)
    record = holders[0].manifest.datasets[dataset]["equality"]
    not_asked = record["not_asked"] if record and len(holders) == 1 else None
    return {"verdicts": verdicts, "not_asked": not_asked}


def merged_rows(dataset: str, holders: Sequence[Recording]) -> list[Int64]:
    """Return, for each recording, the rows of its questions among the merged ones: the first that
    has a question places it.
    """
    keys = [holder.votes(dataset).question_keys for holder in holders]
    _, first, inverse = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
    rows = np.argsort(np.argsort(first))[inverse]
    return np.split(rows, np.cumsum([len(each) for each in keys])[:-1])


def merged_questions(dataset: str, holders: Sequence[Recording]) -> Iterator[Question]:
    """Yield the questions of a dataset in several recordings, in the order of the first that has
    each.
    """
    by_leaf: dict[str, Recording] = {}
    for holder in holders:
        by_leaf.setdefault(holder.manifest.leaves[Part("questions", dataset)], holder)
    distinct = list(by_leaf.values())
    rows = merged_rows(dataset, distinct)
    if len(distinct) == 1 or max(each.max(initial=-1) for each in rows) + 1 == sum(map(len, rows)):
        for holder in distinct:  # no question is in two of them
            yield from holder.scan_questions(dataset)
        return
    merged: dict[str, tuple[Question, Recording]] = {}
    for holder in distinct:
        for question in holder.scan_questions(dataset):
            if question.id not in merged:
                merged[question.id] = (question, holder)
                continue
            known, where = merged[question.id]
            merged[question.id] = (
                same_question(dataset, known, question, where.path, holder.path),
                where,
            )
    yield from (question for question, _ in merged.values())


_PAIRS = (("choices", "choices"), ("features", "sets of features"))


def same_question(
    dataset: str, known: Question, other: Question, where: str | Path, there: str | Path
) -> Question:
    """Return a question with the gold and choices that either of two has; a `ConflictError` names
    `where` and `there`.
    """
    for field, noun in (("text", "texts"), ("answer_key", "golds"), *_PAIRS):
        mine, theirs = getattr(known, field), getattr(other, field)
        if mine != theirs and (field == "text" or (mine and theirs)):
            raise ConflictError(
                f"Question {known.id!r} of {dataset} has two {noun}: {mine!r:.80} in {where}, "
                f"{theirs!r:.80} in {there}."
            )
    if known.answer_key is None and other.answer_key is not None:
        known = replace(known, answer=other.answer, answer_key=other.answer_key)
    pairs = {field: getattr(known, field) or getattr(other, field) for field, _ in _PAIRS}
    return replace(known, **pairs)


_T = TypeVar("_T")
_Rows = TypeVar("_Rows", PoolRows, ProbeRows)
_BLOCK_COTS = 1 << 14
"""CoTs of a block: half a second or more of extraction."""
_BLOCK_QUESTIONS = 1024
"""Questions that are held in memory at once where two recordings have them in different orders."""


class Block(NamedTuple):
    """Some questions, by their rows, of an LLM on a dataset in the recording with a hash."""

    path: str
    recording_hash: str
    dataset: str
    llm: str
    rows: range

    def recording(self) -> Recording:
        """The recording, opened once in each thread."""
        return _opened(self.path, self.recording_hash, get_ident())

    def texts(self) -> Iterator[list[str | None]]:
        """The texts, one row group at a time."""
        return self.recording().scan_texts(self.dataset, self.llm, self.rows)

    def pools(self) -> Iterator[tuple[Question, PoolRows]]:
        """The questions that have a pool, and their pools."""
        recording = self.recording()
        return with_questions(
            recording.scan_questions(self.dataset, self.rows),
            recording.pools(self.dataset, self.llm, self.rows),
        )


def blocks(
    recording: Recording,
    dataset: str,
    llm: str,
    *,
    cots: int | None = None,
    most_questions: int | None = None,
) -> Iterator[Block]:
    """Yield all questions in order, in blocks of so many CoTs: half a second or more of extraction
    where no number is given.
    """
    count = recording.manifest.datasets[dataset]["questions"]
    step = max(
        1, (cots or _BLOCK_COTS) * count // max(recording.manifest.pairs[dataset, llm]["cots"], 1)
    )
    step = step if most_questions is None else min(step, most_questions)
    for first in range(0, count, step):
        rows = range(first, min(first + step, count))
        yield Block(str(recording.path.absolute()), recording.hash, dataset, llm, rows)


def with_questions(
    questions: Iterable[Question], pools: Iterable[_Rows]
) -> Iterator[tuple[Question, _Rows]]:
    """Yield pools, or probes, with their questions, which come in the same order."""
    rows = iter(questions)
    for pool in pools:
        for question in rows:
            if question.id == pool.question_id:
                yield question, pool
                break
        else:
            raise DamagedRecordingError(
                f"The CoTs of {pool.question_id!r:.80} come twice or out of order; `feval verify`"
                " lists all problems."
            )


@lru_cache(16)
def _opened(path: str, recording_hash: str, thread: int) -> Recording:  # noqa: ARG001  threads do not share open files
    recording = open_recording(path)
    if recording.hash != recording_hash:
        raise ConflictError(
            f"The recording {path} should have the hash {recording_hash[:12]}, and a worker found"
            f" {recording.hash[:12]} there. All workers must see the same files at this path."
        )
    return recording


def in_order(read: Callable[[], Iterator[_T]], places: Int64) -> Iterator[tuple[int, _T]]:
    """Yield what `read` yields, whose item i belongs at `places[i]`, by place and with it.

    It is read once for each rising run of items, or for each block of them where runs are short.
    """
    order = np.argsort(places, kind="stable")
    ends = [*(np.flatnonzero(np.diff(order) < 0) + 1).tolist(), len(order)]
    start = 0
    while start < len(order):
        end = max(ends[bisect_right(ends, start)], min(start + _BLOCK_QUESTIONS, len(order)))
        wanted = np.zeros(len(order), np.bool_)
        wanted[order[start:end]] = True
        waiting: dict[int, _T] = {}
        for position, item in enumerate(read()):
            if wanted[position]:
                waiting[position] = item
            while start < end and int(order[start]) in waiting:
                place = int(order[start])
                yield int(places[place]), waiting.pop(place)
                start += 1
            if start == end:
                break


def add_scores(
    recording: str | Path,
    out: str | Path,
    scorer: ScorerInfo,
    rows: Mapping[tuple[str, str], Iterable[ScoreRows]],
    *,
    operation: Record | None = None,
    notes: Iterable[str] = (),
    replacing: bool = False,
    without_notes: Collection[str] = (),
) -> Path:
    """Make a recording with one scorer's scores added; everything else is linked, not written
    again.

    Args:
        recording: the folder that was scored; it stays as it is.
        out: the folder to make.
        scorer: who gave the scores.
        rows: (dataset id, LLM name) -> one entry per question with scores, in the order of the
            questions.
        operation: what made the scores (JSON values); the scorer's name is added.
        notes: sentences about what was unusual; they are read after the rows, which may count it.
        replacing: whether scores of the same name are left out of the new recording instead of
            being an error.
        without_notes: sentences of the recording that are not true of the new one.

    Raises:
        ConflictError: the recording holds scores of the same name, or scores for CoTs that are not
            there.
        NotRecordedError: the recording lacks a dataset or LLM.
        UsageError: no scores, or a value that cannot be stored.
        RecordingError, StorageError: as for `merge`.
    """
    if not rows:
        raise UsageError(
            f"Scores by {scorer.name} were to be added to {recording}, but there are none."
        )
    return add_scorers(
        recording,
        out,
        [(scorer, rows)],
        operation={**(operation or {}), "scorer": scorer.name},
        notes=notes,
        replacing=replacing,
        without_notes=without_notes,
    )


def add_scorers(
    recording: str | Path,
    out: str | Path,
    scores: Sequence[tuple[ScorerInfo, Mapping[tuple[str, str], Iterable[ScoreRows]]]],
    *,
    operation: Record,
    notes: Iterable[str] = (),
    replacing: bool = False,
    without_notes: Collection[str] = (),
) -> Path:
    """Make a recording with the scores of several scorers, as `add_scores` does with those of
    one.
    """
    source = open_sound(recording)
    new = {Part(SCORES + scorer.name, *pair) for scorer, rows in scores for pair in rows}
    for part in sorted(new, key=str):
        source.require(part.dataset, part.llm)
        if not replacing and part in source.manifest.keyed:
            raise ConflictError(
                f"{source.path} already has scores of {part.llm} on {part.dataset} by"
                f" {part.name.removeprefix(SCORES)!r}. Give the scorer another name."
            )
    old_notes = [note for note in source.manifest.raw["notes"] if note not in without_notes]
    with derived_writer([source], out, {"name": "score", **operation}, old_notes) as writer:
        for dataset in source.dataset_ids():
            writer.keep_dataset(source, dataset, new)
        for scorer, rows in scores:
            for pair, scored in rows.items():
                writer.add_rows(*pair, scorer, scored)
        for note in notes:
            writer.note(note)
    return Path(out)


def aggregate_scores(
    recording: Recording, dataset: str, llm: str, scorer: str, aggregate: str = "score"
) -> Floats:
    """Return one number per CoT of an LLM on a dataset, such as best-of-N ranks by.

    Returns:
        [Q, S] float64, questions and samples in recorded order, S the largest pool; NaN where a CoT
        has no such score.

    Raises:
        UnknownNameError: `aggregate` is not one of `AGGREGATES`.
        NotRecordedError: no such dataset, LLM or scorer; or the scorer gave only scores where step
            scores are asked for, or the other way round.
        DamagedRecordingError: as for `Recording.scores`.
    """
    scores = recording.scores(dataset, llm, scorer)
    values = scores.aggregated(aggregate)
    is_score = aggregate == "score"
    other = scores.steps.values.size if is_score else np.isfinite(scores.values).any()
    if other and np.isnan(values).all():
        available, advice = (
            ("step scores only", "min")
            if is_score
            else ("one score per CoT and no step scores", "score")
        )
        raise NotRecordedError(
            f"{scorer!r} gave {available} for {llm} on {dataset}, so there is no aggregate"
            f" {aggregate!r}. Use another one, such as {advice!r}."
        )
    return values

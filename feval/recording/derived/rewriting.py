"""Recordings made from recordings: merged, selected from, with scores added; and what these share:
what several must agree on, blocks of their rows.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations, count, groupby, repeat
from operator import itemgetter
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple, TypeVar

import numpy as np

from feval.answers.equality import named_equality
from feval.answers.equivalence import Verdict
from feval.arguments import checked
from feval.errors import (
    ConflictError,
    DamagedRecordingError,
    NotRecordedError,
    OutOfRangeError,
    ShortPoolError,
    UsageError,
)
from feval.executors import Progress, reports
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
from feval.recording.parts import rows_at, spec_of
from feval.recording.reader import Recording, open_recording
from feval.recording.verify import StepCounter, open_sound
from feval.recording.writer import RecordingWriter, common_giver
from feval.values import without_none


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
            known, where = merged.get(question.id, (question, holder))
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
_Rows = TypeVar("_Rows", bound=PoolRows | ProbeRows | ScoreRows)
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


@checked
@reports("merging")
def merge(
    recordings: Sequence[str | Path],
    out: str | Path,
    *,
    equality: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Put several recordings into one: other datasets, other LLMs, or both.

    Questions are told apart by dataset and id, and must agree in text, gold and choices. They keep
    the order of the first recording that has them. The same LLM on the same dataset may come from
    several recordings: with equal content, with CoTs on different questions, or with more CoTs
    behind the same ones. Files are linked, not written again, where their questions stay in order.
    Answers of different recordings are compared under the equality of their dataset; verdicts of
    the parents are reused.

    Args:
        recordings: two or more folders.
        out: the folder to make.
        equality: of the datasets that come from several recordings, see `feval.answers.equality`;
            `None` keeps the one that they agree on.
        progress: called with (LLMs on datasets done, all of them).

    Raises:
        ConflictError: the recordings contradict each other; the message names where.
        UsageError: fewer than two recordings.
        RecordingError: one of them cannot be read.
        StorageError: `out` is there already, or cannot be written.
    """
    if len(recordings) < 2:
        raise UsageError(
            f"A merge needs two or more recordings; {len(recordings)} given. Name another."
        )
    sources = [open_sound(path) for path in recordings]
    datasets = list(
        dict.fromkeys(dataset for source in sources for dataset in source.dataset_ids())
    )
    steps = StepCounter(
        len({pair for source in sources for pair in source.manifest.pairs}), progress
    )
    notes = dict.fromkeys(note for source in sources for note in source.manifest.raw["notes"])
    licences = _common_licences(sources)
    with derived_writer(sources, out, {"name": "merge"}, [*notes], licences) as writer:
        for dataset in datasets:
            holders = [source for source in sources if dataset in source.manifest.datasets]
            if len(holders) == 1:
                writer.keep_dataset(holders[0], dataset)
                steps.step(len(holders[0].llm_names(dataset)))
                continue
            info = common_info(dataset, holders, equality)
            known = known_verdicts(dataset, holders, info.equality)
            writer.add_dataset(info, merged_questions(dataset, holders), **known)
            placed = [
                _Source(*each) for each in zip(holders, merged_rows(dataset, holders), strict=True)
            ]
            for llm in dict.fromkeys(
                llm for holder in holders for llm in holder.llm_names(dataset)
            ):
                _add_llm(writer, dataset, llm, placed)
                steps.step()
    return Path(out)


@dataclass(frozen=True, eq=False)
class _Source:
    """A recording of an LLM on a dataset; `rows[q]` is the row of its question q among the merged
    ones.
    """

    recording: Recording
    rows: Int64

    def places(self, part: Part) -> Int64:
        """Return the merged rows of the questions that a part has, in its order."""
        return self.rows[self.recording.rows(part)]


def _add_llm(writer: RecordingWriter, dataset: str, llm: str, sources: Sequence[_Source]) -> None:
    """Add an LLM from all recordings that have it: by links, where the questions of one are behind
    those of the other.
    """
    places = [
        (copies[0].places(Part("requests", dataset, llm)), copies)
        for copies in _contents(dataset, llm, sources)
    ]
    places.sort(key=lambda each: int(each[0].min(initial=len(each[1][0].rows))))
    contents = [copies for _, copies in places]
    owners = [copies[0].recording for copies in contents]
    keyed = dict.fromkeys(
        part
        for copies in contents
        for each in copies
        for part in each.recording.keyed_parts(dataset, llm)
    )
    is_linked = bool((np.diff(np.concatenate([rows for rows, _ in places])) > 0).all())
    pools = None
    if not is_linked:
        streams = [
            in_order(partial(copies[0].recording.pools, dataset, llm), rows)
            for rows, copies in places
        ]
        folders = " and in ".join(str(owner.path) for owner in owners)
        pools = _longest(streams, _pool_items, f"{llm} on {dataset} is in {folders}")
    info, counter = owners[0].llm_info(llm), owners[0].counter(dataset, llm)
    parents = owners if is_linked else []
    rewritten = [part.name for part in keyed]
    writer.add_pools(dataset, info, counter, pools, parents=parents, rewritten=rewritten)
    for part in keyed:
        holders = _holders(part, contents)
        recordings = [each.recording for each in holders]
        if is_linked:
            writer.link_part(part, recordings)
            continue
        rows_of = [
            in_order(partial(each.recording.part_rows, part), each.places(part)) for each in holders
        ]
        what = f"{part.name} of {llm} on {dataset}"
        joined = _longest(rows_of, partial(_row_items, part.name), what)
        writer.add_rows(dataset, llm, common_giver(part, recordings), joined)


def _longest(
    streams: Sequence[Iterator[tuple[int, _Rows]]], items: Callable[[_Rows], list[Any]], what: str
) -> Iterator[_Rows]:
    """Yield the rows of each question; of several recordings the longest, which must begin with, or
    have, those of the others.
    """
    for _, group in groupby(heapq.merge(*streams, key=itemgetter(0)), itemgetter(0)):
        longest, *others = sorted(
            (rows for _, rows in group), key=lambda rows: len(items(rows)), reverse=True
        )
        for rows in others:
            if not set(items(rows)) <= set(items(longest)):
                raise ConflictError(
                    f"{what}, with other content on {rows.question_id!r:.80}; give one of them a"
                    " variant name (such as NAME@second) when importing, or record more with"
                    " --from (in Python: start)."
                )
        yield longest


def _pool_items(pool: PoolRows) -> list[Any]:
    """Return what must be equal of each CoT: of a tree only all of them together."""
    cots = list(
        zip(count(), repeat(pool.prompt), pool.raw_texts(), pool.raw_answers, pool.output_tokens)
    )
    return cots if pool.ends is None or not cots else [tuple(cots)]


def _row_items(part: str, rows: ScoreRows | ProbeRows) -> list[Any]:
    """Return what must be equal of each score or probe."""
    columns = [
        getattr(rows, column.field)
        for column in spec_of(part).columns
        if column.in_line == "always" and column.name != "answer_raw"
    ]
    return list(zip(*columns, strict=True))


def _holders(part: Part, contents: Sequence[Sequence[_Source]]) -> list[_Source]:
    """Return a recording with a part for each content that has it; recordings with equal CoTs must
    have equal ones.
    """
    holders = []
    for copies in contents:
        having = [each for each in copies if part in each.recording.manifest.leaves]
        leaves = {each.recording.manifest.leaves[part]: each.recording.path for each in having}
        if len(leaves) > 1:
            one, other, *_ = leaves.values()
            raise ConflictError(
                f"{one} and {other} hold different {part.name} of {part.llm} on {part.dataset}."
            )
        holders += having[:1]
    return holders


def _contents(dataset: str, llm: str, sources: Sequence[_Source]) -> list[list[_Source]]:
    """Return the recordings of an LLM by their content; different ones must be of the same LLM."""
    by_leaves: dict[frozenset[tuple[str, str]], list[_Source]] = {}
    for source in sources:
        if (dataset, llm) in source.recording.manifest.pairs:
            # not scores and probes: those of several recordings may be joined
            manifest = source.recording.manifest
            own = frozenset(
                (part.name, leaf)
                for part, leaf in manifest.leaves.items()
                if part[1:] == (dataset, llm) and part not in manifest.keyed
            )
            by_leaves.setdefault(own, []).append(source)
    for (own, [one, *_]), (others, [other, *_]) in combinations(by_leaves.items(), 2):
        if dict(own)["llm"] != dict(others)["llm"]:
            raise ConflictError(
                f"{llm} on {dataset} is in {one.recording.path} and, with another decoding or token"
                f" counter, in {other.recording.path}; give one of them a variant name (such as"
                " NAME@second) when importing."
            )
    return list(by_leaves.values())


def _common_licences(sources: Sequence[Recording]) -> Mapping[str, str | None]:
    """Return the licences all agree on; where they differ, all of them."""
    stated = {
        kind: {source.manifest.raw["licences"].get(kind) for source in sources}
        for kind in ("questions", "outputs")
    }
    return {
        kind: "; ".join(sorted(each or "not stated" for each in own)) if any(own) else None
        for kind, own in stated.items()
    }


_CARRIED = "Before the selection: "
"""Marks the notes of the parent, which may be about what was left out."""


@checked
@reports("selecting")
def select(
    recording: str | Path,
    out: str | Path,
    *,
    datasets: Collection[str] | None = None,
    llms: Collection[str] | None = None,
    questions: Collection[str] | None = None,
    samples: int | None = None,
    min_cots: int | None = None,
    rename: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make a smaller recording: some datasets, LLMs, questions, or the first CoTs of each pool; or
    one with other names of LLMs.

    Args:
        recording: the folder to select from.
        out: the folder to make.
        datasets: ids to keep; `None` keeps all.
        llms: names to keep; `None` keeps all.
        questions: question ids to keep; `None` keeps all.
        samples: keep the first so many CoTs of every pool; `None` keeps all.
        min_cots: leave out the questions on which a kept LLM has fewer CoTs; `None` leaves none
            out.
        rename: old -> new name of kept LLMs; what stands before "@" finds card and prices.
        progress: called with (LLMs on datasets done, all of them).

    Raises:
        NotRecordedError: something named is not there.
        ShortPoolError: a pool has fewer CoTs than asked for, or no question of a dataset has
            `min_cots`.
        OutOfRangeError: `samples` or `min_cots` below 1.
        ConflictError: two LLMs would have one name.
        RecordingError, StorageError: as for `merge`.
    """
    if samples is not None and samples < 1:
        raise OutOfRangeError(
            f"A selection keeps at least 1 CoT per pool, not {samples}. Raise --samples."
        )
    if min_cots is not None and min_cots < 1:
        raise OutOfRangeError(
            f"The least number of CoTs per question is 1, not {min_cots}. Raise --min-cots."
        )
    source, renamed = open_sound(recording), dict(rename or {})
    for dataset in datasets or ():
        source.require(dataset)
    kept = {
        dataset: [llm for llm in source.llm_names(dataset) if llms is None or llm in llms]
        for dataset in source.dataset_ids()
        if datasets is None or dataset in datasets
    }
    recorded = {llm for dataset in kept for llm in source.llm_names(dataset)}
    for llm in (*(llms or ()), *renamed):
        if llm not in recorded:
            raise NotRecordedError(
                f"{source.path} has no LLM {llm!r} there. It has"
                f" {', '.join(sorted(recorded)) or 'none'}."
            )
    names = [renamed.get(llm, llm) for llm in sorted({llm for own in kept.values() for llm in own})]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConflictError(
            f"Two LLMs of {source.path} would be called {twice!r}. Rename each to a name of its"
            " own."
        )
    question_ids = None if questions is None else set(questions)
    choice = {"datasets": datasets, "llms": llms, "questions": questions}
    operation: dict[str, Any] = {key: value and sorted(value) for key, value in choice.items()}
    operation |= {"samples": samples, "min_cots": min_cots, "rename": renamed or None}
    operation = without_none(operation)
    chosen = {
        dataset: _questions(source, dataset, own, question_ids, min_cots or 0)
        for dataset, own in kept.items()
    }
    missing = set(question_ids or ()).difference(
        *(source.votes(each).question_ids for each in kept)
    )
    if missing:
        raise NotRecordedError(
            f"{source.path} has no question {min(missing)!r:.80} ({len(missing)} are missing)."
            " Check the ids."
        )
    notes = carried_notes(source, _CARRIED if operation.keys() - {"rename"} else "") + [
        f"{short} question{'' if short == 1 else 's'} of {dataset} with fewer than {min_cots} CoTs"
        " of some LLM left out."
        for dataset, (_, short) in chosen.items()
        if short
    ]
    steps = StepCounter(sum(map(len, kept.values())), progress)
    with derived_writer([source], out, {"name": "select", **operation}, notes) as writer:
        for dataset, own in kept.items():
            ids, _ = chosen[dataset]
            rows = [row for row in source.questions(dataset) if row.id in ids]
            whole = samples is None and len(rows) == source.manifest.datasets[dataset]["questions"]
            if whole and own == source.llm_names(dataset) and not renamed.keys() & own:
                writer.keep_dataset(source, dataset)
                steps.step(len(own))
                continue
            info, parent = source.dataset_info(dataset), source if whole else None
            writer.add_dataset(
                info, rows, parent=parent, **known_verdicts(dataset, [source], info.equality)
            )
            for llm in own:
                name, pair = renamed.get(llm, llm), (dataset, llm)
                variant, counter = replace(source.llm_info(llm), name=name), source.counter(*pair)
                if whole and name == llm:
                    writer.add_pools(dataset, variant, counter, None, parents=[source])
                else:
                    pools = _chosen(source.pools(*pair), ids, samples, llm)
                    writer.add_pools(dataset, variant, counter, pools)
                    for part in source.keyed_parts(*pair):
                        scored = _chosen(source.part_rows(part), ids, samples, llm)
                        writer.add_rows(dataset, name, source.given_by(part), scored)
                steps.step()
    return Path(out)


def _questions(
    source: Recording,
    dataset: str,
    llms: Sequence[str],
    questions: Collection[str] | None,
    least: int,
) -> tuple[set[str], int]:
    """Return the ids of the chosen questions on which the selected LLMs have enough CoTs, and how
    many others were chosen; a `ShortPoolError` if that is all.
    """
    votes = source.votes(dataset)
    names = enumerate(votes.question_ids)
    chosen = {row: name for row, name in names if questions is None or name in questions}
    enough = {
        name
        for row, name in chosen.items()
        if all(votes.llms[llm].sizes[row] >= least for llm in llms)
    }
    if chosen and not enough:
        raise ShortPoolError(
            f"No question of {dataset} has {least} CoTs of every selected LLM, so nothing of it"
            " would be left. Lower --min-cots, or select fewer LLMs."
        )
    return enough, len(chosen) - len(enough)


def _chosen(
    rows: Iterable[_Rows], ids: Collection[str], samples: int | None, llm: str
) -> Iterator[_Rows]:
    """Yield pools, scores or probes on some questions, of the first CoTs."""
    for each in rows:
        if each.question_id not in ids:
            continue
        if samples is None:
            yield each
            continue
        indices = range(len(each.answers)) if isinstance(each, PoolRows) else each.sample_indices
        if isinstance(each, PoolRows) and len(indices) < samples:
            raise ShortPoolError(
                f"{llm} has {len(indices)} CoTs on {each.question_id!r}; {samples} were"
                " requested. Select fewer."
            )
        yield rows_at(each, [place for place, index in enumerate(indices) if index < samples])

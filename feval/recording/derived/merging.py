"""Derived recordings: merge, select, add scores. Each is a new folder, whose manifest names its parents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from feval.errors import ConflictError, NotRecordedError, OutOfRangeError, ShortPoolError, UsageError
from feval.recording.content import COT_COLUMNS, PoolRows, ScorerInfo, ScoreRows
from feval.recording.derived.common import common_info, derived_writer, known_verdicts, merged_questions, parent_record
from feval.recording.layout.format import SCORES
from feval.recording.reader import Recording
from feval.recording.verify import open_sound
from feval.recording.writer import RecordingWriter


def merge(recordings: Sequence[str | Path], out: str | Path, *, equality: str | None = None) -> Path:
    """Put several recordings into one: other datasets, other LLMs, or both.

    Questions are told apart by dataset and id, and must agree in text, gold and choices. They keep the order of the first
    recording that has them. The same LLM on the same dataset may come twice only if everything recorded is equal. Answers of
    different recordings are compared under the equality of their dataset; verdicts of the parents are reused.

    Args:
        recordings: two or more folders.
        out: the folder to make.
        equality: of the datasets that come from several recordings, see `feval.answers.equality`; `None` keeps the one that they
            agree on.

    Raises:
        ConflictError: the recordings contradict each other; the message names where.
        UsageError: fewer than two recordings.
        RecordingError: one of them cannot be read.
        StorageError: `out` is there already, or cannot be written.
    """
    if len(recordings) < 2:
        raise UsageError(f"A merge needs two or more recordings; {len(recordings)} given. Name another.")
    sources = [open_sound(path) for path in recordings]
    prices = {source.manifest.prices for source in sources}
    if len(prices) > 1:
        raise ConflictError(
            f"The recordings name different price lists ({', '.join(sorted(prices))}); merge recordings with one list, or open "
            "them together with one `--prices`."
        )
    datasets = list(dict.fromkeys(dataset for source in sources for dataset in source.dataset_ids()))
    with RecordingWriter(
        out,
        operation={"name": "merge"},
        prices=prices.pop(),
        parents=[parent_record(source) for source in sources],
        notes=list(dict.fromkeys(note for source in sources for note in source.manifest.raw.get("notes", ()))),
        licences=_common_licences(sources),
    ) as writer:
        for dataset in datasets:
            holders = [source for source in sources if dataset in source.manifest.datasets]
            questions = merged_questions(dataset, holders)
            info = common_info(dataset, holders, equality)
            writer.add_dataset(info, questions, **known_verdicts(dataset, holders, info.equality))
            for llm, holder in _owners(dataset, holders).items():
                pools = {pool.question_id: pool for pool in holder.pools(dataset, llm)}
                ordered = (pools[question.id] for question in questions if question.id in pools)
                writer.add_pools(dataset, holder.llm_info(llm), holder.counter(dataset, llm), ordered)
                for scorer, scored in _score_owners(dataset, llm, holders).items():
                    rows = {scores.question_id: scores for scores in scored.score_rows(dataset, llm, scorer)}
                    ordered_rows = (rows[question.id] for question in questions if question.id in rows)
                    writer.add_scores(dataset, llm, scored.scorer_info(scorer), ordered_rows)
    return Path(out)


def select(
    recording: str | Path,
    out: str | Path,
    *,
    datasets: Collection[str] | None = None,
    llms: Collection[str] | None = None,
    questions: Collection[str] | None = None,
    samples: int | None = None,
    min_cots: int | None = None,
) -> Path:
    """Make a smaller recording: some datasets, LLMs, questions, or the first CoTs of each pool.

    Args:
        recording: the folder to select from.
        out: the folder to make.
        datasets: ids to keep; `None` keeps all.
        llms: names to keep; `None` keeps all.
        questions: question ids to keep; `None` keeps all.
        samples: keep the first so many CoTs of every pool; `None` keeps all.
        min_cots: leave out the questions on which a kept LLM has fewer CoTs; `None` leaves none out.

    Raises:
        NotRecordedError: something named is not there.
        ShortPoolError: a pool has fewer CoTs than asked for, or no question of a dataset has `min_cots`.
        OutOfRangeError: `samples` or `min_cots` below 1.
        RecordingError, StorageError: as for `merge`.
    """
    if samples is not None and samples < 1:
        raise OutOfRangeError(f"A selection keeps at least 1 CoT per pool, not {samples}. Raise --samples.")
    if min_cots is not None and min_cots < 1:
        raise OutOfRangeError(f"The least number of CoTs per question is 1, not {min_cots}. Raise --min-cots.")
    source = open_sound(recording)
    selected = [dataset for dataset in source.dataset_ids() if datasets is None or dataset in datasets]
    _check_names(source, datasets, llms, selected)
    question_ids = None if questions is None else set(questions)
    choice = {"datasets": datasets, "llms": llms, "questions": questions}
    operation: dict[str, Any] = {key: sorted(value) for key, value in choice.items() if value is not None}
    operation |= {key: value for key, value in (("samples", samples), ("min_cots", min_cots)) if value is not None}
    short = {dataset: _short(source, dataset, llms, question_ids, min_cots or 0) for dataset in selected}
    notes = source.manifest.raw.get("notes", []) + [
        f"{len(ids)} question{'' if len(ids) == 1 else 's'} of {dataset} with fewer than {min_cots} CoTs of some LLM left out."
        for dataset, ids in short.items()
        if ids
    ]
    with derived_writer(source, out, {"name": "select", **operation}, notes) as writer:
        missing = set(question_ids or ())
        for dataset in selected:
            rows = [q for q in source.questions(dataset) if question_ids is None or q.id in question_ids]
            missing -= {row.id for row in rows}
            rows = [row for row in rows if row.id not in short[dataset]]
            info = source.dataset_info(dataset)
            writer.add_dataset(info, rows, **known_verdicts(dataset, [source], info.equality))
            for llm in source.llm_names(dataset):
                if llms is None or llm in llms:
                    pools = _first(source.pools(dataset, llm), {row.id for row in rows}, samples, llm)
                    writer.add_pools(dataset, source.llm_info(llm), source.counter(dataset, llm), pools)
                    for scorer in source.scorers(dataset, llm):
                        scored = _first_scores(
                            source.score_rows(dataset, llm, scorer), {row.id for row in rows}, samples
                        )
                        writer.add_scores(dataset, llm, source.scorer_info(scorer), scored)
        if missing:
            raise NotRecordedError(
                f"{source.path} has no question {min(missing)!r:.80} ({len(missing)} are missing). Check the ids."
            )
    return Path(out)


def _short(
    source: Recording, dataset: str, llms: Collection[str] | None, questions: Collection[str] | None, least: int
) -> set[str]:
    """Return the ids of the chosen questions on which a selected LLM has too few CoTs; a `ShortPoolError` if that is all."""
    votes = source.votes(dataset)
    chosen = [name for name in votes.question_ids if questions is None or name in questions]
    sizes = [votes.llms[llm].sizes for llm in source.llm_names(dataset) if llms is None or llm in llms]
    short = {name for row, name in enumerate(votes.question_ids) if any(counts[row] < least for counts in sizes)}
    short.intersection_update(chosen)
    if chosen and len(short) == len(chosen):
        raise ShortPoolError(
            f"No question of {dataset} has {least} CoTs of every selected LLM, so nothing of it would be left. Lower "
            "--min-cots, or select fewer LLMs."
        )
    return short


def add_scores(
    recording: str | Path,
    out: str | Path,
    scorer: ScorerInfo,
    rows: Mapping[tuple[str, str], Iterable[ScoreRows]],
    *,
    operation: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    replacing: bool = False,
    without_notes: Collection[str] = (),
) -> Path:
    """Make a recording with one scorer's scores added; everything else is linked, not written again.

    Args:
        recording: the folder that was scored; it stays as it is.
        out: the folder to make.
        scorer: who gave the scores.
        rows: (dataset id, LLM name) -> one entry per question with scores, in the order of the questions.
        operation: what made the scores (JSON values); the scorer's name is added.
        notes: sentences about what was unusual.
        replacing: whether scores of the same name are left out of the new recording instead of being an error.
        without_notes: sentences of the recording that are not true of the new one.

    Raises:
        ConflictError: the recording holds scores of the same name, or scores for CoTs that are not there.
        NotRecordedError: the recording lacks a dataset or LLM.
        UsageError: no scores, or a value that cannot be stored.
        RecordingError, StorageError: as for `merge`.
    """
    if not rows:
        raise UsageError(f"Scores by {scorer.name} were to be added to {recording}, but there are none.")
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
    operation: Mapping[str, Any],
    notes: Sequence[str] = (),
    replacing: bool = False,
    without_notes: Collection[str] = (),
) -> Path:
    """Make a recording with the scores of several scorers, as `add_scores` does with those of one."""
    source = open_sound(recording)
    new = {(dataset, llm, scorer.name) for scorer, rows in scores for dataset, llm in rows}
    for dataset, llm, scorer_name in sorted(new):
        source.require(dataset, llm)
        if not replacing and scorer_name in source.scorers(dataset, llm):
            raise ConflictError(
                f"{source.path} already has scores of {llm} on {dataset} by {scorer_name!r}. Give the scorer another name."
            )
    old_notes = [note for note in source.manifest.raw.get("notes", ()) if note not in without_notes]
    with derived_writer(source, out, {"name": "score", **operation}, [*old_notes, *notes]) as writer:
        for dataset in source.dataset_ids():
            writer.keep_dataset(source, dataset, {(llm, name) for where, llm, name in new if where == dataset})
        for scorer, rows in scores:
            for (dataset, llm), scored in rows.items():
                writer.add_scores(dataset, llm, scorer, scored)
    return Path(out)


def _common_licences(sources: Sequence[Recording]) -> Mapping[str, str | None]:
    """Return the licences all agree on; where they differ, all of them."""
    licences: dict[str, str | None] = {}
    for kind in ("questions", "outputs"):
        stated = {(source.manifest.raw.get("licences") or {}).get(kind) for source in sources}
        licences[kind] = (
            next(iter(stated)) if len(stated) == 1 else "; ".join(sorted(s or "not stated" for s in stated))
        )
    return licences


def _owners(dataset: str, holders: Sequence[Recording]) -> dict[str, Recording]:
    owners: dict[str, Recording] = {}
    for holder in holders:
        for llm in holder.llm_names(dataset):
            owner = owners.setdefault(llm, holder)
            if _pair_leaves(owner, dataset, llm) != _pair_leaves(holder, dataset, llm):
                raise ConflictError(
                    f"{llm} on {dataset} is in {owner.path} and, with other content, in {holder.path}; "
                    "give one of them a variant name (such as NAME@second) when importing."
                )
    return owners


def _pair_leaves(source: Recording, dataset: str, llm: str) -> set[tuple[str, str]]:
    """Return the leaves of an LLM on a dataset without scores: those of several recordings may be joined."""
    return {
        (part, digest)
        for (*pair, part), digest in source.manifest.leaves.items()
        if pair == [dataset, llm] and not part.startswith(SCORES)
    }


def _score_owners(dataset: str, llm: str, holders: Sequence[Recording]) -> dict[str, Recording]:
    owners: dict[str, tuple[str, Recording]] = {}
    for holder in holders:
        for (*pair, part), leaf in holder.manifest.leaves.items():
            if pair != [dataset, llm] or not part.startswith(SCORES):
                continue
            scorer = part.removeprefix(SCORES)
            digest, owner = owners.setdefault(scorer, (leaf, holder))
            if digest != leaf:
                raise ConflictError(
                    f"{owner.path} and {holder.path} hold different scores of {llm} on {dataset} by {scorer!r}."
                )
    return {scorer: owner for scorer, (_, owner) in owners.items()}


def _check_names(
    source: Recording, datasets: Collection[str] | None, llms: Collection[str] | None, selected: Sequence[str]
) -> None:
    for dataset in datasets or ():
        source.require(dataset)
    recorded = {llm for dataset in selected for llm in source.llm_names(dataset)}
    for llm in llms or ():
        if llm not in recorded:
            raise NotRecordedError(
                f"{source.path} has no LLM {llm!r} there. It has {', '.join(sorted(recorded)) or 'none'}."
            )


def _first_scores(rows: Iterable[ScoreRows], ids: Collection[str], samples: int | None) -> Iterator[ScoreRows]:
    for scores in rows:
        if scores.question_id not in ids:
            continue
        places = [place for place, index in enumerate(scores.sample_indices) if samples is None or index < samples]
        columns = {field.name: getattr(scores, field.name) for field in fields(scores) if field.name != "question_id"}
        shorter: dict[str, Any] = {
            name: None if column is None else [column[place] for place in places] for name, column in columns.items()
        }
        yield replace(scores, **shorter)


def _first(pools: Iterable[PoolRows], ids: Collection[str], samples: int | None, llm: str) -> Iterator[PoolRows]:
    for pool in pools:
        if pool.question_id not in ids:
            continue
        if samples is None:
            yield pool
            continue
        if len(pool.answers) < samples:
            raise ShortPoolError(
                f"{llm} has {len(pool.answers)} CoTs on {pool.question_id!r}; {samples} were requested. Select fewer."
            )
        columns = {name: column for name in COT_COLUMNS if (column := getattr(pool, name)) is not None}
        yield replace(
            pool,
            extra={name: column[:samples] for name, column in pool.extra.items()},
            **{name: column[:samples] for name, column in columns.items()},
        )

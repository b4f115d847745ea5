"""Merge recordings into a new one, whose manifest names its parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from feval.errors import ConflictError, UsageError
from feval.recording.derived.common import common_info, known_verdicts, merged_questions, parent_record
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

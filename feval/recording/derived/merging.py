"""Merge recordings into a new one, whose manifest names its parents."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, count, groupby, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from feval.arguments import checked
from feval.errors import ConflictError, UsageError
from feval.executors import Progress, reports
from feval.recording.content import PoolRows, ProbeRows, ScoreRows
from feval.recording.derived.rewriting import (
    common_info,
    derived_writer,
    in_order,
    known_verdicts,
    merged_questions,
    merged_rows,
)
from feval.recording.layout.flat import Int64
from feval.recording.layout.format import Part
from feval.recording.parts import spec_of
from feval.recording.reader import Recording
from feval.recording.verify import StepCounter, open_sound
from feval.recording.writer import RecordingWriter, common_giver

_Rows = TypeVar("_Rows", bound=PoolRows | ProbeRows | ScoreRows)


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
    licences: dict[str, str | None] = {}
    for kind in ("questions", "outputs"):
        stated = {source.manifest.raw["licences"].get(kind) for source in sources}
        licences[kind] = (
            next(iter(stated))
            if len(stated) == 1
            else "; ".join(sorted(s or "not stated" for s in stated))
        )
    return licences

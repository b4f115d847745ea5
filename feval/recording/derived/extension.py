"""Extend a recording: add new CoTs of an LLM behind the old ones.

The old CoTs stay first and unchanged, so that scores and everything else that refers to a CoT by its index stays valid.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.cards.tokens import SPLIT_USAGE, is_usage
from feval.errors import ConflictError, UsageError
from feval.executors.progress import reports
from feval.recording.content import COT_COLUMNS, PROBE_COLUMNS, DatasetInfo, LLMInfo, PoolRows, ProbeRows, Question
from feval.recording.derived.blocks import in_order, pools_of
from feval.recording.derived.common import (
    common_info,
    known_verdicts,
    merged_questions,
    merged_rows,
    parent_record,
    same_question,
)
from feval.recording.derived.linking import common_cue
from feval.recording.layout.format import PROBES
from feval.recording.reader import Recording
from feval.recording.writer import RecordingWriter


@dataclass(frozen=True, slots=True)
class Grown:
    """A joined pool, old CoTs first.

    Attributes:
        pool: all of them.
        old: number of old ones.
        places: where each CoT of the new pool is now.
    """

    pool: PoolRows
    old: int
    places: Sequence[int] = ()


def check_extension(base: Recording, info: DatasetInfo, questions: Sequence[Question], llm: LLMInfo) -> None:
    """Raise a `ConflictError`, before anything is paid for, if new CoTs of an LLM cannot be added to a recording."""
    if llm.name in base.manifest.llms and (differs := _difference(base.llm_info(llm.name), llm)):
        raise ConflictError(
            f"{_place(base)} has {llm.name} with {differs}. Ask in the same way, or record under a name of its own, such as "
            f"{llm.name}{'-' if '@' in llm.name else '@'}second."
        )
    if info.id not in base.manifest.datasets:
        return
    there = base.dataset_info(info.id)
    for field in ("answer_kind", "extractor", "system_prompt", "equality"):
        mine, theirs = getattr(there, field), getattr(info, field)
        if mine != theirs:
            raise ConflictError(
                f"{_place(base)} has {info.id} with the {field} {mine!r:.80}, and the new CoTs would have {theirs!r:.80}. Record "
                "them into a recording of their own."
            )
    recorded = {question.id: question for question in base.questions(info.id)}
    for question in questions:
        if question.id in recorded:
            same_question(info.id, recorded[question.id], question, _place(base), "the new request")


def grown_pools(base: Recording, more: Recording, dataset: str, llm: str) -> Iterator[Grown]:
    """Yield the pools of an LLM from two recordings, in the order of the merged questions; a repeated sample is a conflict."""
    questions = list(merged_questions(dataset, [one for one in (base, more) if dataset in one.manifest.datasets]))
    pools = (pools_of(one, dataset, llm, questions) for one in (base, more))
    for question, old, new in zip(questions, *pools, strict=True):
        if old is None or not old.answers:
            if new is not None:
                yield Grown(new, 0, range(len(new.answers)))
            elif old is not None:
                yield Grown(old, 0)
        elif new is None or not new.answers:
            yield Grown(old, len(old.answers))
        else:
            yield _joined(old, new, f"{llm} on {question.id!r:.80} of {dataset}")


@reports("joining")
def extend(
    base: Recording,
    more: Recording,
    out: str | Path,
    *,
    dataset: str,
    llm: str,
    operation: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> Path:
    """Make a recording with everything in `base` and the CoTs of an LLM on a dataset in `more`, with or without the old ones."""
    mine, theirs = (holder.manifest.pairs.get((dataset, llm)) for holder in (base, more))
    if mine is not None and theirs is not None and _counter(mine, theirs) is None:
        raise ConflictError(
            f"{_place(base)} counts the tokens of {llm} on {dataset} by {mine['counter']!r}, and the new CoTs by "
            f"{theirs['counter']!r}; such counts do not compare. Record them under another name."
        )
    with RecordingWriter(
        out,
        operation=operation,
        prices=base.manifest.prices,
        parents=[parent_record(base), parent_record(more)],
        notes=list(dict.fromkeys([*(n for one in (base, more) for n in one.manifest.raw["notes"]), *notes])),
        licences=base.manifest.raw["licences"],
    ) as writer:
        for each in dict.fromkeys([*base.dataset_ids(), dataset]):
            if each != dataset:
                writer.keep_dataset(base, each)
                continue
            _add_dataset(writer, base, more, dataset)
            for name in dict.fromkeys([*base.llm_names(dataset), llm]):
                if name == llm:
                    _add_grown(writer, base, more, dataset, llm)
                else:
                    counter = base.counter(dataset, name)
                    writer.add_pools(dataset, base.llm_info(name), counter, base.pools(dataset, name), parent=base)
    return Path(out)


def _add_dataset(writer: RecordingWriter, base: Recording, more: Recording, dataset: str) -> None:
    holders = [holder for holder in (base, more) if dataset in holder.manifest.datasets]
    parent = base if holders[0] is base else None
    info = common_info(dataset, holders)
    known = known_verdicts(dataset, holders, info.equality)
    writer.add_dataset(info, merged_questions(dataset, holders), parent=parent, **known)


def _add_grown(writer: RecordingWriter, base: Recording, more: Recording, dataset: str, llm: str) -> None:
    pools = (grown.pool for grown in grown_pools(base, more, dataset, llm))
    counters = [one.manifest.pairs[dataset, llm] for one in (base, more) if (dataset, llm) in one.manifest.pairs]
    writer.add_pools(dataset, more.llm_info(llm), _counter(*counters) or "", pools)
    if (dataset, llm) in base.manifest.pairs:
        for scorer in base.scorers(dataset, llm):
            writer.add_scores(dataset, llm, base.scorer_info(scorer), base.score_rows(dataset, llm, scorer))
    probed = [one for one in (base, more) if one.has_probes(dataset, llm)]
    if probed == [base]:
        writer.link_probes(dataset, llm, [base])
    elif probed:
        cue = common_cue(dataset, llm, probed)
        writer.add_probes(dataset, llm, _grown_probes(base, more, dataset, llm), cue=cue)


def _grown_probes(base: Recording, more: Recording, dataset: str, llm: str) -> Iterator[ProbeRows]:
    """Yield the probes of an LLM from two recordings, by the places of their CoTs in the joined pools."""
    holders = [holder for holder in (base, more) if dataset in holder.manifest.datasets]
    streams = [
        _placed_probes(holder, rows, dataset, llm)
        for holder, rows in zip(holders, merged_rows(dataset, holders), strict=True)
        if holder.has_probes(dataset, llm)
    ]
    pools = grown_pools(base, more, dataset, llm)
    for _, group in groupby(heapq.merge(*streams, key=itemgetter(0)), itemgetter(0)):
        probes = {holder: rows for _, holder, rows in group}
        name = next(iter(probes.values())).question_id
        grown, nothing = next(each for each in pools if each.pool.question_id == name), ProbeRows(name, [], [], [], [])
        yield _joined_probes(
            probes.get(base, nothing), probes.get(more, nothing), grown.places, f"{llm} on {name!r:.80}"
        )


def _placed_probes(
    holder: Recording, rows: npt.NDArray[np.int64], dataset: str, llm: str
) -> Iterator[tuple[int, Recording, ProbeRows]]:
    places = rows[holder.rows(PROBES, dataset, llm)]
    for place, probes in in_order(partial(holder.probe_rows, dataset, llm), places):
        yield place, holder, probes


def _joined_probes(old: ProbeRows, new: ProbeRows, places: Sequence[int], what: str) -> ProbeRows:
    """Return old probes and, at their CoTs' places, those new ones whose CoT had none; different ones are a conflict."""
    samples = [places[sample] for sample in new.sample_indices]
    known = dict(zip(zip(old.sample_indices, old.offsets, strict=True), old.answers, strict=True))
    probed = {*old.sample_indices}
    added = []
    for row, (sample, offset) in enumerate(zip(samples, new.offsets, strict=True)):
        if sample not in probed:
            added.append(row)
        elif known.get((sample, offset), ...) != new.answers[row]:
            raise ConflictError(
                f"{what}: CoT {sample} has probes already, and other ones were recorded (after {offset} tokens). A CoT is probed "
                "once: begin with what is there."
            )
    new = new.at(added, [samples[row] for row in added])
    joined = {column: list(values) + list(new.columns()[column]) for column, values in old.columns().items()}
    rows = ProbeRows(old.question_id, **{PROBE_COLUMNS[column]: values for column, values in joined.items()})
    return rows.at(sorted(range(len(rows.offsets)), key=lambda row: (rows.sample_indices[row], rows.offsets[row])))


def _counter(*pairs: Mapping[str, Any]) -> str | None:
    """Return the token counter of the joined pools; `None` where their counts are not comparable."""
    counters = {str(pair["counter"]) for pair in pairs}
    if len(counters) == 1:
        return counters.pop()
    return SPLIT_USAGE if all(map(is_usage, counters)) else None


def _joined(old: PoolRows, new: PoolRows, what: str) -> Grown:
    if old.ends is not None or new.ends is not None:
        raise UsageError(
            f"{what} was recorded as a tree of steps, which is not added to. Record another under a name of its own."
        )
    if old.prompt != new.prompt:
        raise ConflictError(
            f"{what} was asked with other messages than before. Ask in the same way, or under another name."
        )
    places = _places(old, new, what)
    rows = [row for row, place in enumerate(places) if place >= len(old.answers)]
    _refuse_same_replies(old, new, rows, what)
    columns: dict[str, Any] = {name: _both(getattr(old, name), getattr(new, name), old, rows) for name in COT_COLUMNS}
    names = [*old.extra, *(name for name in new.extra if name not in old.extra)]
    extra = {name: _both(old.extra.get(name), new.extra.get(name), old, rows) or () for name in names}
    return Grown(replace(old, **columns, extra=extra), len(old.answers), places)


def _both(
    old: Sequence[Any] | None, new: Sequence[Any] | None, pool: PoolRows, rows: Sequence[int]
) -> list[Any] | None:
    """Return a column of the old CoTs and of some new ones; `None` where neither has it."""
    if old is None and new is None:
        return None
    first = [None] * len(pool.answers) if old is None else list(old)
    return first + [None if new is None else new[row] for row in rows]


def _places(old: PoolRows, new: PoolRows, what: str) -> list[int]:
    """Return where each CoT of the new pool is in the joined one: new ones behind the old ones, repeated ones where they are.

    Samples are identified by their seeds, if all have one, else by their index.
    """
    old_names, new_names = _sample_names(old, new)
    places = {name: row for row, name in enumerate(old_names)}
    old_cots, new_cots = _cots(old), _cots(new)
    for row, name in enumerate(new_names):
        place = places.get(name)
        if place is not None and old_cots[place] != new_cots[row]:
            raise ConflictError(
                f"{what}: sample {name} is there already, and was recorded again. A sample is recorded once: begin with what is "
                "there, so that only what is missing is asked for."
            )
    following = count(len(old_names))
    return [places[name] if name in places else next(following) for name in new_names]


def _cots(pool: PoolRows) -> list[tuple[str, int]]:
    """Return raw text and tokens of each CoT; a missing text is compared as an empty one."""
    return [(text or "", tokens) for text, tokens in zip(pool.raw_texts(), pool.output_tokens, strict=True)]


def _sample_names(old: PoolRows, new: PoolRows) -> tuple[Sequence[int], Sequence[int]]:
    seeds = [list(pool.extra.get("seed") or ()) for pool in (old, new)]
    sizes = [len(old.answers), len(new.answers)]
    whole = all(len(set(column)) == size and None not in column for column, size in zip(seeds, sizes, strict=True))
    return (seeds[0], seeds[1]) if whole else (range(sizes[0]), range(sizes[1]))


def _refuse_same_replies(old: PoolRows, new: PoolRows, rows: Sequence[int], what: str) -> None:
    """Refuse a provider's reply that is recorded already: it is no new sample, whatever its index."""
    old_ids = {name for name in old.extra.get("response_id") or () if name is not None}
    new_ids = new.extra.get("response_id") or ()
    repeated = next((new_ids[row] for row in rows if new_ids and new_ids[row] in old_ids), None)
    if repeated is not None:
        raise ConflictError(
            f"{what}: the provider's reply {repeated!r:.80} is there already; a cache may have answered. It is no new sample. "
            "Have the cache switched off, and record anew."
        )


def _difference(recorded: LLMInfo, new: LLMInfo) -> str | None:
    """Return how two descriptions of one LLM differ, in words; `None` where they agree."""
    pairs = [(name, getattr(recorded, name), getattr(new, name)) for name in ("temperature", "max_tokens")]
    first, second = (json.loads(json.dumps(dict(one.decoding))) for one in (recorded, new))
    pairs += [(name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])]
    for name, mine, theirs in pairs:
        if mine != theirs:
            return f"{name} {mine!r:.80}, and {name} {theirs!r:.80} is asked for"
    return None


def _place(recording: Recording) -> str:
    return recording.address or str(recording.path)

"""Select from a recording: some datasets, LLMs, questions, or the first CoTs of each pool, as a
derived recording.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from feval.arguments import checked
from feval.errors import ConflictError, NotRecordedError, OutOfRangeError, ShortPoolError
from feval.executors import Progress, reports
from feval.recording.content import PoolRows, ProbeRows, ScoreRows
from feval.recording.derived.rewriting import carried_notes, derived_writer, known_verdicts
from feval.recording.parts import rows_at
from feval.recording.reader import Recording
from feval.recording.verify import StepCounter, open_sound

_Rows = TypeVar("_Rows", bound=PoolRows | ProbeRows | ScoreRows)
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
    operation = {key: value for key, value in operation.items() if value is not None}
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

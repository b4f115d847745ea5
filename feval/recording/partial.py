"""Recordings that were fetched in part: which files belong to what, and how the ones that are here
are checked.

Each Parquet file is checked against its leaf, and the votes of an LLM against the files they are
derived from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feval.answers.parties import Parties, parties_of
from feval.errors import ConflictError, DamagedRecordingError, UsageError
from feval.recording.layout.format import (
    MANIFEST,
    PROBE_VOTES,
    PROBES,
    README,
    LeafHash,
    file_path,
    file_paths,
)
from feval.recording.layout.manifest import Manifest
from feval.recording.layout.origin import PULLED
from feval.recording.parts import (
    CHANNELS,
    PAIR_PARTS,
    RowsTally,
    dataset_leaf,
    llm_leaf,
    question_line,
    spec_of,
    verdict_tally,
)
from feval.recording.reader import Recording
from feval.recording.sealing.question_table import QuestionTable
from feval.recording.votes import DETAILS, PROBE_ARRAYS
from feval.recording.votes_building import Arrays, Scratch, VotesBuilder

TEXT_PARTS = ("texts", "reasoning")
"""The long texts: most bytes of a recording, and not needed for voting."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a file of a recording holds: a part of a dataset, or of an LLM on it."""

    part: str
    dataset: str
    llm: str | None

    def paths(self, manifest: Manifest) -> list[str]:
        """The files of the part, in their order."""
        return file_paths(manifest.files, self.part, self.dataset, self.llm)


def listed_parts(manifest: Manifest) -> dict[str, Part]:
    """Return path -> what it holds, for all files in the manifest except README.md; paths that no
    recording has are refused.
    """
    known = {path: part for part in _possible_parts(manifest) for path in part.paths(manifest)}
    strange = manifest.files.keys() - known.keys() - {README}
    if strange:
        raise DamagedRecordingError(
            f"{MANIFEST} lists {min(strange)!r:.120}, which no recording of its datasets and LLMs"
            " has (a part is one file, or several numbered from 0 without a gap). Do not use it."
        )
    check_names(manifest.files)
    return known


def _possible_parts(manifest: Manifest) -> Iterator[Part]:
    for dataset in manifest.datasets:
        yield from (
            Part(part, dataset, None) for part in ("questions", "equality", "votes", "details")
        )
    for dataset, llm in manifest.pairs:
        yield from (Part(part, dataset, llm) for part in (*PAIR_PARTS, *CHANNELS))
    for dataset, llm, part in manifest.keyed:
        yield from (
            Part(each, dataset, llm)
            for each in ((part, PROBE_VOTES) if part == PROBES else (part,))
        )


def check_names(paths: Iterable[str]) -> None:
    """Check that no two paths are the same on a case-insensitive disk, and none is a folder of
    another.
    """
    seen: dict[str, str] = {}
    for path in paths:
        if (other := seen.setdefault(path.casefold(), path)) != path:
            raise DamagedRecordingError(
                f"{MANIFEST} lists {other!r:.120} and {path!r:.120}, which are the same file on"
                " many disks."
            )
    for path in seen:
        folders = path.split("/")[:-1]
        inside = next(
            (f for f in ("/".join(folders[: i + 1]) for i in range(len(folders))) if f in seen),
            None,
        )
        if inside is not None:
            raise DamagedRecordingError(
                f"{MANIFEST} lists {inside!r:.120} both as a file and as a folder."
            )


def paths_of(
    manifest: Manifest,
    datasets: Iterable[str],
    llms: Iterable[str] | None = None,
    *,
    texts: bool = True,
) -> list[str]:
    """Return the files that hold some LLMs (`None` is all) on some datasets, with or without the
    texts of the CoTs.
    """
    ids, names = set(datasets), None if llms is None else set(llms)
    return [
        path
        for path, part in listed_parts(manifest).items()
        if part.dataset in ids
        and (part.llm is None or names is None or part.llm in names)
        and (texts or part.part not in TEXT_PARTS)
    ]


def write_origin(folder: Path, address: str) -> None:
    """Note in a folder where on the Hub its recording was fetched from, and at which commit."""
    (folder / PULLED).write_text(json.dumps({"address": address}, indent=2) + "\n", "utf-8")


def check_leaf(recording: Recording, part: Part) -> None:
    """Recompute the leaf of a part from all its files; a `DamagedRecordingError` if it differs from
    the one in the manifest.

    The flat file of probes has no leaf, and is compared with the Parquet file instead.
    """
    if part.part in {"votes", "details"}:
        return
    if part.part == PROBE_VOTES:
        _refuse(recording, part.dataset, [], [str(part.llm)])
        return
    computed = {(part.dataset, part.llm, part.part): leaf_of(recording, part)}
    if part.part == "questions":
        computed[part.dataset, None, "dataset"] = dataset_leaf(recording.dataset_info(part.dataset))
    elif part.llm is not None:
        counter = recording.counter(part.dataset, part.llm)
        computed[part.dataset, part.llm, "llm"] = llm_leaf(recording.llm_info(part.llm), counter)
    for key, leaf in computed.items():
        stated = recording.manifest.leaves.get(key)
        if stated != leaf:
            [path, *_] = part.paths(recording.manifest)
            raise DamagedRecordingError(
                f"{recording.path / path}: the leaf {' / '.join(filter(None, key))} should be"
                f" {stated}, found {leaf} in its content. Its owner has to publish it again."
            )


def leaf_of(recording: Recording, part: Part) -> str:
    """Recompute the leaf of a part; a `DamagedRecordingError` if scores or probes are not what the
    manifest counts.
    """
    dataset, llm, leaf = part.dataset, str(part.llm), LeafHash()
    if part.part == "equality":
        name = recording.dataset_info(dataset).equality
        return verdict_tally(name, recording.scan_verdicts(dataset)).leaf()
    if part.part == "questions":
        lines: Iterable[list[Any]] = map(question_line, recording.scan_questions(dataset))
    elif spec_of(part.part).joins == "keyed":
        return _keyed_leaf(recording, part.part, dataset, llm)
    else:
        lines = recording.lines(part.part, dataset, llm)
    for line in lines:
        leaf.add(line)
    return leaf.hexdigest()


def _keyed_leaf(recording: Recording, part: str, dataset: str, llm: str) -> str:
    votes, stated = recording.votes(dataset), recording.part_record(part, dataset, llm)
    given_by = recording.given_by(part, dataset, llm)
    try:
        tally = RowsTally(dataset, llm, given_by, votes.question_ids, votes.llms[llm].sizes)
        for rows in recording.part_rows(part, dataset, llm):
            tally.add(rows)
    except (UsageError, ConflictError) as error:
        raise DamagedRecordingError(str(error)) from error
    if stated != (counted := tally.record()):
        raise DamagedRecordingError(f"{MANIFEST}: {part} should be {counted}, found {stated}.")
    return tally.leaf()


def check_votes(recording: Recording, dataset: str, llms: Iterable[str]) -> None:
    """Check the votes of some LLMs against the Parquet files they are derived from."""
    _refuse(recording, dataset, list(llms), [])


def _refuse(recording: Recording, dataset: str, llms: list[str], probed: list[str]) -> None:
    with recording.shape(recording.path / file_path("votes", dataset)):
        for problem in votes_problems(recording, dataset, llms, probed):
            raise DamagedRecordingError(
                f"{recording.path}/{problem}. Its owner has to publish it again."
            )


def votes_problems(
    recording: Recording,
    dataset: str,
    llms: list[str] | None = None,
    probed: list[str] | None = None,
) -> Iterator[str]:
    """Yield what is wrong with the votes of some LLMs and the probes of some, or of all: they are
    made again, and compared. Those of some take over how answers are numbered.

    A problem begins with the path of the file.
    """
    votes, verdicts = recording.votes(dataset), recording.verdicts(dataset)
    questions = QuestionTable(dataset, recording.scan_questions(dataset))

    def parties(question: str, forms: list[str], gold: str | None, probes: list[str]) -> Parties:  # noqa: ARG001  verdicts say it all
        return parties_of(verdicts.get(question, ()), gold)

    def contradiction(what: str, part: str = "votes", llm: str | None = None) -> str:
        return f"{file_path(part, dataset, llm)}: it contradicts the Parquet files ({what})"

    if list(questions.ids) != list(votes.question_ids):
        yield contradiction("question ids")
        return
    with Scratch() as scratch:
        built = VotesBuilder(recording, questions, scratch, llms, probed)
        try:
            built.build(parties, votes.candidates if llms is not None else lambda _: [])
        except ValueError as error:
            yield contradiction(str(error))
            return
        own = votes.arrays()
        shared = {name: array for name, array in own.items() if "." not in name}
        for what in _differing(built.shared_arrays(), shared, questions)[:1]:
            yield contradiction(what)
        for llm, pools in built.llms.items():
            end = f".{list(votes.llms).index(llm)}"
            recorded = {n.removesuffix(end): each for n, each in own.items() if n.endswith(end)}
            recorded["finish"] = votes.llms[llm].finish
            for what in _differing(pools.arrays("int32"), recorded, questions)[:1]:
                part = "details" if what.split()[0] in DETAILS else "votes"
                yield contradiction(f"{llm}: {what}", part)
            if pools.is_stale:
                [path, *_] = recording.files("samples", dataset, llm)
                yield f"{path}: its column `correct` contradicts answers and golds"
        for llm, rows in built.probes.items():
            flat, arrays = recording.probes(dataset, llm), rows.arrays("int32")
            known = {name: getattr(flat, name) for name in PROBE_ARRAYS}
            for what in _differing(arrays, known, questions)[:1]:
                yield contradiction(f"{what} of probes", PROBE_VOTES, llm)


def _differing(built: Arrays, recorded: Mapping[str, Any], questions: QuestionTable) -> list[str]:
    """Return the names of arrays that differ, with the first question where they do."""
    names = []
    for name in dict.fromkeys((*built, *recorded)):
        one, other = built[name].array if name in built else None, recorded.get(name)
        if one is None or other is None:
            names += [name] * (one is not other)
        elif one.shape != other.shape:
            names.append(name)
        elif not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            where = ""
            if len(one) == len(questions):
                differ = (one != other).reshape(len(one), -1).any(axis=1)
                where = f" on {questions.ids[int(differ.argmax())]!r:.80}"
            names.append(name + where)
    return names

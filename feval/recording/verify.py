"""Check a whole recording: every byte, every leaf, and that the votes files agree with the Parquet
files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from itertools import chain, zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from pydantic import ValidationError

from feval import executors
from feval.answers.equivalence import AnswerClasses, classes_from_verdicts
from feval.arguments import checked
from feval.cards.reading import open_regular, sentence
from feval.errors import (
    ConflictError,
    DamagedRecordingError,
    FevalError,
    NotARecordingError,
    UsageError,
)
from feval.executors import Progress, reports
from feval.executors.tasks import portable
from feval.recording import parquet
from feval.recording.content import PairTally, QuestionTable
from feval.recording.layout.format import (
    MANIFEST,
    PROBE_VOTES,
    PROBES,
    PULLED,
    README,
    LeafHash,
    Part,
    Record,
    cached_from,
    is_beside,
    leaf_hash,
)
from feval.recording.layout.manifest import Manifest, check_manifest
from feval.recording.parts import (
    CHANNELS,
    PAIR_PARTS,
    RowsTally,
    VerdictTally,
    dataset_leaf,
    llm_leaf,
    pool_columns,
    question_line,
    spec_of,
)
from feval.recording.reader import Recording, open_recording
from feval.recording.votes import DETAILS, PROBE_ARRAYS
from feval.recording.votes_building import FINISH_CODES, Arrays, Scratch, VotesBuilder
from feval.values import frozen

_LEFT_OUT = ("unclosed_thoughts", "empty_replies", "depth", "branching", "turns", "served")


@frozen
class Verification:
    """What was checked, and all problems.

    Attributes:
        path: the folder.
        recording_hash: as the manifest states it.
        files: number of files whose bytes were hashed.
        leaves: number of leaves that were recomputed from the content.
        problems: sentences, each naming file, expected and found; empty where the recording is
            sound.
        remarks: sentences to know before numbers are computed from a sound recording.
    """

    path: Path
    recording_hash: str
    files: int
    leaves: int
    problems: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


@checked
@reports("verifying")
def verify_recording(
    path: str | Path, progress: Progress | None = None, *, executor: Executor | None = None
) -> Verification:
    """Recompute every hash of a recording from its bytes and its content.

    Args:
        path: the folder.
        progress: called with (steps done, steps in all).
        executor: hashes the files, and checks datasets and LLMs, see `feval.executors`; `None` for
            this process.

    Raises:
        NotARecordingError, NewerFormatError, DamagedRecordingError: the manifest itself cannot be
            read.
    """
    recording = open_recording(path)
    steps = StepCounter(len(recording.manifest.files) + len(recording.manifest.pairs), progress)
    problems = list(file_problems(recording, steps.step, executor))
    problems += _check_strays(recording)
    if not problems:
        problems += _check_content(recording, steps, executor)
    counts = len(recording.manifest.files), len(recording.manifest.raw["leaves"])
    remarks = () if problems else tuple(_remarks(recording))
    return Verification(recording.path, recording.hash, *counts, tuple(problems), remarks)


def _remarks(recording: Recording) -> Iterator[str]:
    for dataset, record in recording.manifest.datasets.items():
        equality = record["equality"]
        if equality is not None and (without := equality["undecided"] + equality["not_asked"]):
            pairs = (
                "1 pair of answers has" if without == 1 else f"{without:,} pairs of answers have"
            )
            yield (
                f"{dataset}: {pairs} no verdict of {equality['name']} (time or budget ran out),"
                " which counts as different; `feval extract` compares them again."
            )
    yield from (served.sentence for served in recording.manifest.served_models())


def file_problems(
    recording: Recording, step: Callable[[], None] = lambda: None, executor: Executor | None = None
) -> Iterator[str]:
    """Check the manifest's shape and the bytes of every file it lists, calling `step` after each;
    yield problems as sentences.
    """
    try:
        check_manifest(recording.manifest.raw, unknown_fields=False)
    except ValidationError as error:
        yield f"{MANIFEST} {sentence(error)}."
    place = recording.path.absolute(), recording.address
    tasks = ((*place, name, record) for name, record in recording.manifest.files.items())
    for problems in executors.results(_check_file, tasks, executor):
        yield from problems
        step()


class StepCounter:
    """Counts steps and reports the count."""

    def __init__(self, total: int, report: Progress | None) -> None:
        self._done, self._total, self._report = 0, total, report
        self.step(0)

    def step(self, number: int = 1) -> None:
        """Count so many."""
        self._done += number
        if self._report is not None:
            self._report(self._done, self._total)


def _check_file(path: Path, address: str | None, name: str, record: Record) -> list[str]:
    if not path.is_dir():
        raise NotARecordingError(
            f"A worker finds no recording in {path}. Workers read it from the same path."
        )
    if name == README and address is not None:
        return []  # on the Hub it is the card, which people edit; nothing depends on it
    try:
        with open_regular(path / name) as file:
            size = os.fstat(file.fileno()).st_size
            digest = (
                hashlib.file_digest(file, "sha256").hexdigest() if size == record["bytes"] else ""
            )
    except OSError as error:
        if isinstance(error, FileNotFoundError) and address is not None:
            return [f"{name}: it was not fetched; `feval pull {address}` fetches all."]
        return [f"{name}: listed in {MANIFEST}, but it cannot be opened ({error.strerror})."]
    if size != record["bytes"]:
        return [f"{name}: {record['bytes']} bytes expected, {size} found."]
    if digest != record["sha256"]:
        return [f"{name}: SHA-256 {record['sha256']} expected, {digest} found."]
    return []


def _check_strays(recording: Recording) -> list[str]:
    if cached_from(recording.path) is not None:
        return []  # a repository may hold more than a recording
    listed = {
        *recording.manifest.files,
        MANIFEST,
        *([PULLED] if recording.address is not None else []),
    }
    present = {
        p.relative_to(recording.path).as_posix() for p in recording.path.rglob("*") if p.is_file()
    }
    return [
        f"{name}: not listed in {MANIFEST}; it does not belong to the recording."
        for name in sorted(present - listed)
        if not is_beside(name)
    ]


_Leaves = dict[Part, str]
_Check = Callable[[Recording, str, str, _Leaves], Iterator[str]]
"""(recording, dataset, LLM or "", leaves that the check adds to) -> problems."""


_Outcome = tuple[_Check, str, list[str], _Leaves, Exception | None]
"""Check, dataset, problems, leaves and error; with an error, there may be leaves from before."""


def _check_content(
    recording: Recording, steps: StepCounter, executor: Executor | None
) -> list[str]:
    """Recompute leaves and votes from the Parquet files; an error is all that is said of its
    dataset.
    """
    computed: _Leaves = {}
    unlisted, problems = [], {dataset: list[str]() for dataset in recording.dataset_ids()}
    try:
        listed_parts(recording.manifest)
    except DamagedRecordingError as error:
        unlisted.append(str(error))
    broken: set[str] = set()
    here = recording if executor is None else recording.path.absolute()
    checks = (
        (here, check, dataset, llm)
        for dataset in problems
        for check, of_llms in _CHECKS.items()
        for llm in (recording.llm_names(dataset) if of_llms else [""])
        if dataset not in broken
    )
    for check, dataset, found, leaves, failure in executors.results(_outcome, checks, executor):
        if dataset in broken:
            continue
        computed |= leaves
        if failure is None:
            problems[dataset] += found
            if check is _check_pair:
                steps.step()
        elif isinstance(failure, FevalError):
            broken.add(dataset)
            problems[dataset] = [str(failure)]
        else:
            raise failure
    return [
        *unlisted,
        *chain.from_iterable(problems.values()),
        *(
            f"Leaf {part}: {stated} expected, {found} found in the content."
            for part, stated, found in _differing_leaves(recording.manifest.leaves, computed)
        ),
    ]


def _differing_leaves(
    stated: Mapping[Any, str | None], computed: _Leaves
) -> Iterator[tuple[Any, Any, Any]]:
    for key in sorted(stated.keys() | computed.keys(), key=str):
        if stated.get(key) != computed.get(key):
            yield key, stated.get(key), computed.get(key)


def _outcome(recording: Recording | Path, check: _Check, dataset: str, llm: str) -> _Outcome:
    """Make a check: a task. A path is opened anew, since files may have changed there since a
    worker read them.
    """
    opened = open_recording(recording) if isinstance(recording, Path) else recording
    leaves: _Leaves = {}
    try:
        return check, dataset, list(check(opened, dataset, llm, leaves)), leaves, None
    except Exception as error:  # noqa: BLE001  raised, unless what was checked before it explains it
        return check, dataset, [], leaves, portable(error)


def _check_dataset(recording: Recording, dataset: str, _: str, leaves: _Leaves) -> Iterator[str]:
    """Check the questions and the verdicts against leaves and manifest."""
    record = recording.manifest.datasets[dataset]
    golds = [question.answer_key for question in recording.scan_questions(dataset)]
    counted = {"questions": len(golds), "with_gold": len(golds) - golds.count(None)}
    leaves |= leaves_of(recording, Part("questions", dataset))
    yield from _check_counts(record, counted, dataset)
    if stated := record["equality"]:
        tally = VerdictTally(stated["name"], recording.scan_verdicts(dataset))
        leaves[Part("equality", dataset)] = tally.leaf.hexdigest()
        counted = tally.counts(stated["not_asked"])
        yield from _check_counts(stated, counted, f"the equality of {dataset}")


def _check_votes(recording: Recording, dataset: str, _llm: str, _leaves: _Leaves) -> Iterator[str]:
    return (f"{problem}; merge or import again." for problem in votes_problems(recording, dataset))


def _check_counts(record: Record, counted: Record, who: str) -> Iterator[str]:
    """Compare a record of the manifest with what was counted; counts that both leave out are 0."""
    stated = {name: record[name] for name in (*_LEFT_OUT, *counted) if name in record}
    if stated != counted:
        yield f"{MANIFEST}: the counts of {who} should be {counted}, found {stated}."


def _check_pair(recording: Recording, dataset: str, llm: str, leaves: _Leaves) -> Iterator[str]:
    """Check the parts of an LLM against leaves, manifest and each other: every row of a file names
    the LLM, and texts and samples are of the same CoTs, with whole pools.
    """
    names = (*PAIR_PARTS, *recording.channels(dataset, llm))
    hashes = {Part(name, dataset, llm): LeafHash() for name in names}
    keyed = recording.keyed_parts(dataset, llm)
    votes, who = recording.votes(dataset), f"{llm} on {dataset}"
    tally, row_of = PairTally(votes), votes.rows_in_order()
    for pool in recording.pools(dataset, llm):
        try:
            tally.add(row_of(pool.question_id), pool)
        except ValueError as error:
            wrong = (
                "comes twice or out of order in"
                if pool.question_id in votes.question_ids
                else "is no question of"
            )
            raise DamagedRecordingError(
                f"{llm} was asked {pool.question_id!r:.80}, which {wrong} {dataset}."
            ) from error
        for name, columns in pool_columns(pool).items():
            line = spec_of(name).line(pool.question_id, columns)
            hashes[Part(name, dataset, llm)].add(line)
        unknown = sorted(set(pool.finish_reasons) - FINISH_CODES.keys())
        problem = f"unknown finish reasons {unknown}" if unknown else pool.tree_problem()
        if not pool.marks_fit():
            problem = "the marks of its thoughts do not fit its texts"
        if problem:
            raise DamagedRecordingError(f"{who}, question {pool.question_id!r}: {problem}.")
    for part in keyed:
        leaves |= leaves_of(recording, part)
    counter = recording.counter(dataset, llm)
    leaves[Part("llm", dataset, llm)] = llm_leaf(recording.llm_info(llm), counter)
    leaves |= {part: each.hexdigest() for part, each in hashes.items()}
    yield from _check_counts(recording.manifest.pairs[dataset, llm], tally.record(), who)
    for part in (*hashes, *keyed):
        for path in recording.files(*part):
            if recording.named_llms(path) - {llm}:
                yield f"{path}: its column `llm` names another LLM than {llm!r}."
    paths = {name: recording.files(name, dataset, llm) for name in ("samples", "texts")}
    samples, texts = (
        recording.scan(name, dataset, llm, ["question_id", "sample_index"]) for name in paths
    )
    if any(of_samples != of_texts for of_samples, of_texts in zip_longest(samples, texts)):
        yield (
            f"{paths['texts'][0]}: its question ids and sample indices differ from those of the"
            " samples."
        )
    starts = np.cumsum(votes.llms[llm].sizes, dtype=np.int64)
    for own in paths.values():
        ends = np.cumsum([recording.file_record(path)["rows"] for path in own])
        for path, end in zip(own, ends.tolist(), strict=True):
            if end and starts[min(starts.searchsorted(end), len(starts) - 1)] != end:
                yield f"{path}: it ends before all CoTs of its last question."


# In the order of their problems; each once for a dataset, or for each of its LLMs.
_CHECKS: Mapping[_Check, bool] = {_check_dataset: False, _check_pair: True, _check_votes: False}


def open_sound(path: str | Path) -> Recording:
    """Open a recording after checking all bytes: a derived recording would give damage a hash of
    its own.
    """
    source = open_recording(path)
    problem = next(iter(file_problems(source)), None)
    if problem is not None:
        raise DamagedRecordingError(
            f"{source.path}: {problem} Fetch it again; `feval verify` lists all problems."
        )
    return source


def listed_parts(manifest: Manifest) -> dict[str, Part]:
    """Return path -> what it holds, for all files in the manifest except README.md; paths that no
    recording has are refused.
    """
    known = {
        path: part for part in _possible_parts(manifest) for path in part.paths(manifest.files)
    }
    strange = manifest.files.keys() - known.keys() - {README}
    if strange:
        raise DamagedRecordingError(
            f"{MANIFEST} lists {min(strange)!r:.120}, which no recording of its datasets and LLMs"
            " has (a part is one file, or several numbered from 0 without a gap). Do not use it."
        )
    check_names(manifest.files)
    return known


def _possible_parts(manifest: Manifest) -> Iterator[Part]:
    for name in ("questions", "equality", "votes", "details"):
        yield from (Part(name, dataset) for dataset in manifest.datasets)
    for name in (*PAIR_PARTS, *CHANNELS):
        yield from (Part(name, *pair) for pair in manifest.pairs)
    for part in manifest.keyed:
        yield from (part, part._replace(name=PROBE_VOTES)) if part.name == PROBES else (part,)


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
        if inside := seen.keys() & map(str, PurePosixPath(path).parents):
            raise DamagedRecordingError(
                f"{MANIFEST} lists {min(inside)!r:.120} both as a file and as a folder."
            )


def paths_of(
    manifest: Manifest, datasets: Iterable[str], llms: Iterable[str] | None, *, texts: bool
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
        # the long texts: most bytes of a recording, and not needed for voting
        and (texts or part.name not in {"texts", "reasoning"})
    ]


def write_origin(folder: Path, address: str) -> None:
    """Note in a folder where on the Hub its recording was fetched from, and at which commit."""
    (folder / PULLED).write_text(json.dumps({"address": address}, indent=2) + "\n", "utf-8")


def check_leaf(recording: Recording, part: Part) -> None:
    """Recompute the leaf of a part from all its files; a `DamagedRecordingError` if it differs from
    the one in the manifest.

    The flat file of probes has no leaf, and is compared with the Parquet file instead.
    """
    if part.name in {"votes", "details"}:
        return
    if part.name == PROBE_VOTES:
        check_votes(recording, part.dataset, [], [str(part.llm)])
        return
    computed = leaves_of(recording, part)
    stated = {key: recording.manifest.leaves.get(key) for key in computed}
    for key, expected, found in _differing_leaves(stated, computed):
        [path, *_] = recording.files(*part)
        raise DamagedRecordingError(
            f"{recording.path / path}: the leaf {key} should be {expected}, found {found} in its"
            " content. Its owner has to publish it again."
        )


def leaves_of(recording: Recording, part: Part) -> _Leaves:
    """Recompute the leaf of a part, and that of its dataset or LLM; a `DamagedRecordingError` if
    scores or probes are not what the manifest counts.
    """
    name, dataset, llm = part
    info = recording.dataset_info(dataset)
    if name == "questions":
        leaf = leaf_hash(map(question_line, recording.scan_questions(dataset)))
        return {part: leaf, Part("dataset", dataset): dataset_leaf(info)}
    if llm is None:
        return {
            part: VerdictTally(info.equality, recording.scan_verdicts(dataset)).leaf.hexdigest()
        }
    leaf = (
        _keyed_leaf(recording, part, llm)
        if spec_of(name).joins == "keyed"
        else leaf_hash(recording.lines(part))
    )
    counter = recording.counter(dataset, llm)
    return {part: leaf, Part("llm", dataset, llm): llm_leaf(recording.llm_info(llm), counter)}


def _keyed_leaf(recording: Recording, part: Part, llm: str) -> str:
    votes, stated = recording.votes(part.dataset), recording.part_record(part)
    given_by, sizes = recording.given_by(part), votes.llms[llm].sizes
    try:
        tally = RowsTally(part.dataset, llm, given_by, votes.question_ids, sizes)
        for rows in recording.part_rows(part):
            tally.add(rows)
    except (UsageError, ConflictError) as error:
        raise DamagedRecordingError(str(error)) from error
    if stated != (counted := tally.record()):
        raise DamagedRecordingError(f"{MANIFEST}: {part.name} should be {counted}, found {stated}.")
    return tally.leaf.hexdigest()


def check_votes(
    recording: Recording, dataset: str, llms: list[str], probed: Sequence[str] = ()
) -> None:
    """Check the votes of some LLMs, and the probes of some, against the Parquet files they are
    derived from.
    """
    with parquet.reading.readable(recording.path / Part("votes", dataset).path):
        for problem in votes_problems(recording, dataset, llms, probed):
            raise DamagedRecordingError(
                f"{recording.path}/{problem}. Its owner has to publish it again."
            )


def votes_problems(
    recording: Recording,
    dataset: str,
    llms: list[str] | None = None,
    probed: Sequence[str] | None = None,
) -> Iterator[str]:
    """Yield what is wrong with the votes of some LLMs and the probes of some, or of all: they are
    made again, and compared. Those of some take over how answers are numbered.

    A problem begins with the path of the file.
    """
    votes, verdicts = recording.votes(dataset), recording.verdicts(dataset)
    questions = QuestionTable(dataset, recording.scan_questions(dataset))

    # verdicts say it all
    def classes(question: str, _: list[str], gold: str | None, __: list[str]) -> AnswerClasses:
        return classes_from_verdicts(verdicts.get(question, ()), gold)

    def contradiction(what: str, part: str = "votes", llm: str | None = None) -> str:
        return f"{Part(part, dataset, llm).path}: it contradicts the Parquet files ({what})"

    if list(questions.ids) != list(votes.question_ids):
        yield contradiction("question ids")
        return
    with Scratch() as scratch:
        built = VotesBuilder(recording, questions, scratch, llms, probed)
        try:
            built.build(classes, votes.candidates if llms is not None else lambda _: [])
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

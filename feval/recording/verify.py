"""Check a whole recording: every byte, every leaf, and that the votes files agree with the Parquet files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from feval import executors
from feval.answers.parties import NORMAL_FORM, parties_of
from feval.cards.validation import sentence
from feval.errors import ConflictError, DamagedRecordingError, FevalError, UsageError
from feval.recording.content import PAIR_PARTS, PairTally
from feval.recording.gold_aware import gold_aware_remark, is_gold_aware
from feval.recording.layout.format import MANIFEST, README, SCORES, LeafHash, file_path, is_beside, open_regular
from feval.recording.layout.manifest import check_manifest
from feval.recording.layout.origin import PULLED, cached_from
from feval.recording.leaves import (
    ScoreTally,
    dataset_leaf,
    equality_counts,
    equality_leaf,
    llm_leaf,
    pool_lines,
    question_line,
)
from feval.recording.reader import Recording, open_recording
from feval.recording.votes_builder import FINISH_CODES, VotesBuilder

if TYPE_CHECKING:
    from concurrent.futures import Executor

_LATER_COUNTS = ("unclosed_thoughts", "empty_replies")


@dataclass(frozen=True, slots=True)
class Verification:
    """What was checked, and all problems.

    Attributes:
        path: the folder.
        recording_hash: as the manifest states it.
        files: number of files whose bytes were hashed.
        leaves: number of leaves that were recomputed from the content.
        problems: sentences, each naming file, expected and found; empty where the recording is sound.
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


def verify_recording(
    path: str | Path, progress: Callable[[int, int], None] | None = None, *, executor: Executor | None = None
) -> Verification:
    """Recompute every hash of a recording from its bytes and its content.

    Args:
        path: the folder.
        progress: called with (steps done, steps in all).
        executor: hashes the files, see `feval.evaluate`; `None` for this process.

    Raises:
        NotARecordingError, NewerFormatError, DamagedRecordingError: the manifest itself cannot be read.
    """
    recording = open_recording(path)
    steps = Steps(len(recording.manifest.files) + len(recording.manifest.pairs), progress)
    problems = list(file_problems(recording, steps.step, executor))
    problems += _check_strays(recording)
    if not problems:
        problems += _check_content(recording, steps)
    counts = len(recording.manifest.files), len(recording.manifest.raw["leaves"])
    remarks = () if problems else tuple(_remarks(recording))
    return Verification(recording.path, recording.hash, *counts, tuple(problems), remarks)


def _remarks(recording: Recording) -> Iterator[str]:
    if "checksum" not in recording.manifest.raw:
        yield (
            f"{MANIFEST} has no checksum, since an earlier feval wrote it: whether its prices, licences, notes and parents are "
            "as they were written cannot be told."
        )
    for dataset, record in recording.manifest.datasets.items():
        equality = record.get("equality") or {}
        if without := equality.get("undecided", 0) + equality.get("not_asked", 0):
            pairs = "1 pair of answers has" if without == 1 else f"{without:,} pairs of answers have"
            yield (
                f"{dataset}: {pairs} no verdict of {equality['name']} (time or budget ran out), which counts as different; "
                "`feval extract` compares them again."
            )
        if is_gold_aware(recording, dataset):
            yield gold_aware_remark(recording, dataset)


def file_problems(
    recording: Recording, step: Callable[[], None] = lambda: None, executor: Executor | None = None
) -> Iterator[str]:
    """Check the manifest's shape and the bytes of every file it lists, calling `step` after each; yield problems as sentences."""
    try:
        check_manifest(recording.manifest.raw, unknown_fields=False)
    except ValidationError as error:
        yield f"{MANIFEST} {sentence(error)}."
    place = recording.path.absolute(), recording.address
    tasks = ((*place, name, record) for name, record in recording.manifest.files.items())
    for problems in executors.results(_check_file, tasks, executor):
        yield from problems
        step()


class Steps:
    """Counts steps and reports the count."""

    def __init__(self, total: int, report: Callable[[int, int], None] | None) -> None:
        self._done, self._total, self._report = 0, total, report

    def step(self) -> None:
        """Count one."""
        self._done += 1
        if self._report is not None:
            self._report(self._done, self._total)


def _check_file(path: Path, address: str | None, name: str, record: Mapping[str, Any]) -> list[str]:
    if name == README and address is not None:
        return []  # on the Hub it is the card, which people edit; nothing depends on it
    try:
        with open_regular(path / name) as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.file_digest(file, "sha256").hexdigest() if size == record["bytes"] else ""
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
    listed = {*recording.manifest.files, MANIFEST, *([PULLED] if recording.address is not None else [])}
    present = {p.relative_to(recording.path).as_posix() for p in recording.path.rglob("*") if p.is_file()}
    strays = sorted(name for name in present - listed if not is_beside(name))
    return [f"{name}: not listed in {MANIFEST}; it does not belong to the recording." for name in strays]


def _check_content(recording: Recording, steps: Steps) -> list[str]:
    """Recompute leaves and votes from the Parquet files."""
    computed: dict[tuple[str, str | None, str], str] = {}
    problems = []
    for dataset in recording.dataset_ids():
        try:
            problems += _check_dataset(recording, dataset, computed, steps)
        except FevalError as error:
            problems.append(str(error))
    stated = recording.manifest.leaves
    for key in sorted(stated.keys() | computed.keys(), key=str):
        if stated.get(key) != computed.get(key):
            where = " / ".join(filter(None, key))
            problems.append(f"Leaf {where}: {stated.get(key)} expected, {computed.get(key)} found in the content.")
    return problems


def _check_dataset(
    recording: Recording, dataset: str, computed: dict[tuple[str, str | None, str], str], steps: Steps
) -> list[str]:
    questions = recording.questions(dataset)
    leaf = LeafHash()
    for question in questions:
        leaf.add(question_line(question))
    computed[dataset, None, "dataset"] = dataset_leaf(recording.dataset_info(dataset))
    computed[dataset, None, "questions"] = leaf.hexdigest()
    counted = {"questions": len(questions), "with_gold": sum(each.answer_key is not None for each in questions)}
    problems = _check_counts(recording.manifest.datasets[dataset], counted, dataset)
    builder = VotesBuilder(dataset, questions)
    for llm in recording.llm_names(dataset):
        tally = PairTally(question.id for question in questions)
        _check_pair(recording, dataset, llm, computed, builder, tally)
        problems += _check_counts(recording.manifest.pairs[dataset, llm], tally.record(), f"{llm} on {dataset}")
        steps.step()
    problems += _check_equality(recording, dataset, computed, builder)
    problems += _check_correct(recording, dataset, builder)
    for llm in recording.llm_names(dataset):
        problems += _check_keys(recording, dataset, llm)
    expected = builder.to_bytes()
    return problems + [
        f"{path}: it contradicts the Parquet files; merge or import again."
        for part, path in recording.votes_paths(dataset).items()
        if expected[part] != (recording.path / path).read_bytes()
    ]


def _check_counts(record: Mapping[str, Any], counted: Mapping[str, int], who: str) -> list[str]:
    """Compare a record of the manifest with what was counted; it may lack the counts that an earlier feval did not state."""
    found = {**dict.fromkeys(_LATER_COUNTS, 0), **counted}
    stated = {name: record[name] for name in found if name in record}
    found = {name: found[name] for name in stated}
    return [] if stated == found else [f"{MANIFEST}: the counts of {who} should be {found}, found {stated}."]


def _check_equality(
    recording: Recording, dataset: str, computed: dict[tuple[str, str | None, str], str], builder: VotesBuilder
) -> list[str]:
    """Check the verdicts against leaf and manifest, and join the builder's parties."""
    name = recording.dataset_info(dataset).equality
    if name == NORMAL_FORM:
        return []
    verdicts = recording.verdicts(dataset)
    computed[dataset, None, "equality"] = equality_leaf(name, verdicts)
    for question, _, gold in list(builder.forms()):
        builder.join(question, parties_of(verdicts.get(question, ()), gold))
    stated = recording.manifest.datasets[dataset]["equality"]
    counted = {"name": name, **equality_counts(verdicts, stated["not_asked"])}
    return [] if stated == counted else [f"{MANIFEST}: the equality of {dataset} should be {counted}, found {stated}."]


def _check_correct(recording: Recording, dataset: str, builder: VotesBuilder) -> Iterator[str]:
    """Check the column `correct`."""
    for llm in recording.llm_names(dataset):
        path = file_path("samples", dataset, llm)
        stated = [value for _, columns in recording.scan(path) for value in columns.get("correct", ())]
        if stated and stated != builder.correct(llm):
            yield f"{path}: its column `correct` contradicts answers and golds."


def _check_keys(recording: Recording, dataset: str, llm: str) -> Iterator[str]:
    """Check that every row of an LLM's files names the LLM, and that texts and samples are of the same CoTs."""
    scorers = (SCORES + scorer for scorer in recording.scorers(dataset, llm))
    for part in (*PAIR_PARTS, *recording.channels(dataset, llm), *scorers):
        path = file_path(part, dataset, llm)
        if recording.named_llms(path) - {llm}:
            yield f"{path}: its column `llm` names another LLM than {llm!r}."
    samples, texts = (file_path(part, dataset, llm) for part in ("samples", "texts"))
    cots = [list(recording.scan(path, ["question_id", "sample_index"])) for path in (samples, texts)]
    if cots[0] != cots[1]:
        yield f"{texts}: its question ids and sample indices differ from those of the samples."


def _check_pair(
    recording: Recording,
    dataset: str,
    llm: str,
    computed: dict[tuple[str, str | None, str], str],
    builder: VotesBuilder,
    tally: PairTally,
) -> None:
    leaves = {part: LeafHash() for part in (*PAIR_PARTS, *recording.channels(dataset, llm))}
    builder.add_llm(llm)
    for pool in recording.pools(dataset, llm):
        for part, line in pool_lines(pool).items():
            leaves[part].add(line)
        unknown = set(pool.finish_reasons) - FINISH_CODES.keys()
        if unknown:
            raise DamagedRecordingError(f"{llm} on {dataset}: unknown finish reasons {sorted(unknown)}.")
        if not pool.marks_fit():
            raise DamagedRecordingError(
                f"{llm} on {dataset}, question {pool.question_id!r}: the marks of its thoughts do not fit its texts."
            )
        builder.add(llm, pool)
        tally.add(pool)
    for scorer in recording.scorers(dataset, llm):
        computed[dataset, llm, SCORES + scorer] = scores_leaf(recording, dataset, llm, scorer)
    counter = recording.counter(dataset, llm)
    computed[dataset, llm, "llm"] = llm_leaf(recording.llm_info(llm), counter)
    computed |= {(dataset, llm, part): leaf.hexdigest() for part, leaf in leaves.items()}


def scores_leaf(recording: Recording, dataset: str, llm: str, scorer: str) -> str:
    """Recompute the leaf of a scorer's scores; a `DamagedRecordingError` if they are not what the manifest counts."""
    votes = recording.votes(dataset)
    sizes = dict(zip(votes.question_ids, votes.llms[llm].sizes.tolist(), strict=True))
    tally = ScoreTally(recording.scorer_info(scorer), f"{scorer} of {llm} on {dataset}", sizes)
    try:
        for rows in recording.score_rows(dataset, llm, scorer):
            tally.add(rows)
    except (UsageError, ConflictError) as error:
        raise DamagedRecordingError(str(error)) from error
    [stated] = [record for record in recording.score_records(dataset, llm) if record["scorer"] == scorer]
    counted = tally.record(dataset, llm)
    if stated != counted:
        raise DamagedRecordingError(f"{MANIFEST}: scores should be {counted}, found {stated}.")
    return tally.leaf()


def open_sound(path: str | Path) -> Recording:
    """Open a recording after checking all bytes: a derived recording would give damage a hash of its own."""
    source = open_recording(path)
    problem = next(iter(file_problems(source)), None)
    if problem is not None:
        raise DamagedRecordingError(f"{source.path}: {problem} Fetch it again; `feval verify` lists all problems.")
    return source

"""Recordings that were fetched in part: which files belong to what, and how the ones that are here
are checked.

Each Parquet file is checked against its leaf, and the votes of an LLM against the files they are
derived from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.answers.parties import Verdict, parties_of
from feval.errors import ConflictError, DamagedRecordingError, UsageError
from feval.recording import parquet
from feval.recording.content import CHANNELS, OPTIONAL_COLUMNS, PAIR_PARTS, ProbeRows, Question
from feval.recording.layout.format import (
    MANIFEST,
    PROBE_VOTES,
    PROBES,
    README,
    SCORES,
    LeafHash,
    file_path,
    file_paths,
)
from feval.recording.layout.manifest import Manifest
from feval.recording.layout.origin import PULLED
from feval.recording.leaves import (
    ProbeTally,
    ScoreTally,
    channel_line,
    dataset_leaf,
    llm_leaf,
    question_line,
    verdict_tally,
)
from feval.recording.probes import Probes
from feval.recording.reader import Recording
from feval.recording.sealing.votes_builder import FINISH_CODES
from feval.recording.votes import ABSENT, NO_ANSWER, Votes, name_key

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
    for record in manifest.raw["scores"]:
        yield Part(SCORES + record["scorer"], record["dataset"], record["llm"])
    for dataset, llm in manifest.probes:
        yield from (Part(part, dataset, llm) for part in (PROBES, PROBE_VOTES))


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
        _refuse(recording, _VotesCheck(recording, part.dataset).probes(str(part.llm)))
        return
    computed = {(part.dataset, part.llm, part.part): _leaf(recording, part)}
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


def _leaf(recording: Recording, part: Part) -> str:
    if part.part == "equality":
        name = recording.dataset_info(part.dataset).equality
        return verdict_tally(name, recording.scan_verdicts(part.dataset)).leaf()
    if part.part.startswith(SCORES):
        return scores_leaf(recording, part.dataset, str(part.llm), part.part.removeprefix(SCORES))
    if part.part == PROBES:
        return probes_leaf(recording, part.dataset, str(part.llm))
    leaf = LeafHash()
    if part.part == "questions":
        for entry in recording.scan_questions(part.dataset):
            leaf.add(question_line(entry))
        return leaf.hexdigest()
    for question, columns in _with_empty_pools(recording, part):
        leaf.add(_line(part.part, question, columns))
    return leaf.hexdigest()


@contextmanager
def _as_damage() -> Iterator[None]:
    try:
        yield
    except (UsageError, ConflictError) as error:
        raise DamagedRecordingError(str(error)) from error


def probes_leaf(recording: Recording, dataset: str, llm: str) -> str:
    """Recompute the leaf of an LLM's probes; a `DamagedRecordingError` if they are not what the
    manifest states.
    """
    stated, votes = recording.probes_record(dataset, llm), recording.votes(dataset)
    tally = ProbeTally(dataset, llm, stated["cue"], votes.question_ids, votes.llms[llm].sizes)
    with _as_damage():
        for rows in recording.probe_rows(dataset, llm):
            tally.add(rows)
    if stated != tally.record():
        raise DamagedRecordingError(
            f"{MANIFEST}: probes should be {tally.record()}, found {stated}."
        )
    return tally.leaf()


def scores_leaf(recording: Recording, dataset: str, llm: str, scorer: str) -> str:
    """Recompute the leaf of a scorer's scores; a `DamagedRecordingError` if they are not what the
    manifest counts.
    """
    votes, who = recording.votes(dataset), f"{scorer} of {llm} on {dataset}"
    tally = ScoreTally(
        recording.scorer_info(scorer), who, votes.question_ids, votes.llms[llm].sizes
    )
    with _as_damage():
        for rows in recording.score_rows(dataset, llm, scorer):
            tally.add(rows)
    [stated] = [
        record for record in recording.score_records(dataset, llm) if record["scorer"] == scorer
    ]
    counted = tally.record(dataset, llm)
    if stated != counted:
        raise DamagedRecordingError(f"{MANIFEST}: scores should be {counted}, found {stated}.")
    return tally.leaf()


def _with_empty_pools(
    recording: Recording, part: Part
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Yield a part's questions with their columns. A pool without a CoT has a line and no rows;
    only the requests list it.
    """
    rows = recording.scan(part.part, part.dataset, part.llm)
    if part.part not in {"samples", "texts"}:
        yield from rows
        return
    own = parquet.Aligned(rows)
    for question, _ in recording.scan("requests", part.dataset, part.llm, ["question_id"]):
        yield question, own.take(question)
    if own.next is not None:
        yield own.next


def _line(part: str, question: str, columns: Mapping[str, list[Any]]) -> list[Any]:
    """Return the line of a question in the leaf of an LLM's file, as `leaves.pool_lines` does."""
    if part == "requests":
        return [question, columns["prompt"][0], columns["prompt_tokens"][0]]
    if part == "texts":
        return [question, columns.get("text", [])]
    if part != "samples":
        return channel_line(question, {name: columns[name] for name in CHANNELS[part]})
    extra = {
        name: columns[name]
        for name in OPTIONAL_COLUMNS
        if any(v is not None for v in columns.get(name, ()))
    }
    narrow = ("answer_raw", "answer", "output_tokens", "finish_reason")
    return [question, *(columns.get(name, []) for name in narrow), extra]


def check_votes(recording: Recording, dataset: str, llms: Iterable[str]) -> None:
    """Check the votes of some LLMs against the Parquet files they are derived from."""
    with recording.shape(recording.path / file_path("votes", dataset)):
        _refuse(recording, votes_problems(recording, dataset, llms))


def _refuse(recording: Recording, problems: Iterator[str]) -> None:
    for problem in problems:
        raise DamagedRecordingError(
            f"{recording.path}/{problem}. Its owner has to publish it again."
        )


def votes_problems(
    recording: Recording, dataset: str, llms: Iterable[str] | None = None
) -> Iterator[str]:
    """Yield what is wrong with the votes of some LLMs, or of all, their probes and the numbering:
    at most one thing for each.

    A problem begins with the path of the file.
    """
    check = _VotesCheck(recording, dataset)
    if (what := next(check.questions(), None)) is not None:
        yield check.contradiction(what)
        return
    found = [
        next(check.llm(llm), None)
        for llm in (recording.llm_names(dataset) if llms is None else llms)
    ]
    if llms is None:
        found += [
            next(check.probes(llm), None)
            for where, llm in recording.manifest.probes
            if where == dataset
        ]
    problems = [problem for problem in found if problem is not None]
    yield from problems
    if llms is None and not problems and not check.is_numbered():
        yield check.contradiction("the numbering of answers")


class _VotesCheck:
    """The votes of a dataset beside its Parquet files; `_given[q]` answers of a question were given
    by the LLMs so far.
    """

    def __init__(self, recording: Recording, dataset: str) -> None:
        self._recording, self._dataset = recording, dataset
        self._votes = recording.votes(dataset)
        self._given = np.zeros(len(self._votes), np.int32)
        self._in_order = True

    def contradiction(self, what: str, part: str = "votes", llm: str | None = None) -> str:
        return f"{file_path(part, self._dataset, llm)}: it contradicts the Parquet files ({what})"

    def questions(self) -> Iterator[str]:
        """Yield how ids, texts, golds and equal answers differ from the questions and the
        verdicts.
        """
        verdicts = self._recording.scan_verdicts(self._dataset)
        questions = self._recording.scan_questions(self._dataset)
        following = next(verdicts, None)
        for row, (question, name) in enumerate(zip_longest(questions, self._votes.question_ids)):
            if question is None or question.id != name:
                yield "question ids"
                return
            reached: Sequence[Verdict] = ()
            if following is not None and following[0] == name:
                reached, following = following[1], next(verdicts, None)
            yield from (
                f"{what} of {name!r:.80}"
                for what in _differences(self._votes, row, question, reached)
            )
        if following is not None:
            yield f"verdicts on {following[0]!r:.80}"

    def llm(self, llm: str) -> Iterator[str]:
        """Yield the problems of an LLM: answers, tokens, finish reasons, the column `correct`,
        prompt tokens.
        """
        sizes, tokens = (
            np.zeros(len(self._votes), np.int64),
            np.full(len(self._votes), -1, np.int64),
        )
        arrays = self._votes.llms[llm]
        try:
            row_of = self._votes.rows_in_order()
            for question, columns in self._recording.scan("samples", self._dataset, llm):
                row = row_of(question)
                sizes[row] = len(columns["answer"])
                yield from self._pool(llm, row, question, columns)
            yield from self._steps(llm)
            row_of = self._votes.rows_in_order()
            for question, columns in self._recording.scan("requests", self._dataset, llm):
                [sent] = columns["prompt_tokens"]
                tokens[row_of(question)] = -1 if sent is None else sent
        except ValueError as error:
            yield self.contradiction(str(error))
        if (sizes != arrays.sizes).any():
            yield self.contradiction(f"numbers of CoTs of {llm}")
        if (tokens != arrays.prompt_tokens).any():
            yield self.contradiction(f"prompt tokens of {llm}")

    def _steps(self, llm: str) -> Iterator[str]:
        steps, row_of = self._votes.steps(llm), self._votes.rows_in_order()
        channels = self._recording.channels(self._dataset, llm)
        rows, turns = (
            self._recording.scan(part, self._dataset, llm) if part in channels else iter(())
            for part in ("steps", "turns")
        )
        replies = parquet.Aligned(turns)
        differ = ("steps" in channels) != (steps is not None) or (
            steps is not None
            and any(
                not steps.holds(row_of(question), columns | replies.take(question))
                for question, columns in rows
            )
        )
        if differ:
            yield self.contradiction(f"steps of {llm}", "details")

    def probes(self, llm: str) -> Iterator[str]:
        """Yield the problems of the flat file of an LLM's probes."""
        probes, counts = (
            self._recording.probes(self._dataset, llm),
            np.zeros(len(self._votes), np.int64),
        )
        try:
            row_of = self._votes.rows_in_order()
            for rows in self._recording.probe_rows(self._dataset, llm):
                row = row_of(rows.question_id)
                counts[row] = len(rows.offsets)
                codes = self._codes(row, rows.answers)
                if not _holds_probes(probes, row, rows, codes):
                    yield self.contradiction(
                        f"probes on {rows.question_id!r:.80}", PROBE_VOTES, llm
                    )
                self._number(row, codes)
        except ValueError as error:
            yield self.contradiction(str(error), PROBE_VOTES, llm)
        if (counts != probes.counts().sum(axis=1)).any():
            yield self.contradiction("numbers of probes", PROBE_VOTES, llm)

    def is_numbered(self) -> bool:
        """Whether the answers of each question are numbered as all LLMs gave them, and the gold
        last if nobody gave it.
        """
        counts = self._given + (self._votes.gold == self._given)
        return self._in_order and bool((counts == self._votes.candidate_counts()).all())

    def _pool(
        self, llm: str, row: int, question: str, columns: Mapping[str, list[Any]]
    ) -> Iterator[str]:
        arrays, gold = self._votes.llms[llm], int(self._votes.gold[row])
        codes = self._codes(row, columns["answer"])
        finish = [FINISH_CODES.get(reason, -1) for reason in columns["finish_reason"]]
        agree = (
            _holds(arrays.codes[row], codes, ABSENT)
            and _holds(arrays.output_tokens[row], columns["output_tokens"], 0)
            and arrays.finish[row, : len(finish)].tolist() == finish
        )
        if not agree:
            yield self.contradiction(f"CoTs of {llm} on {question!r:.80}")
        correct = [None if gold < 0 else code == gold for code in codes]
        if columns.get("correct") != correct:
            [path, *_] = self._recording.files("samples", self._dataset, llm)
            yield f"{path}: its column `correct` contradicts answers and golds"
        self._number(row, codes)

    def _codes(self, row: int, answers: Sequence[str | None]) -> list[int]:
        """Return the codes of some answers to a question; `ABSENT` for one that the votes do not
        know.
        """
        code_of = {
            form: code for code, form in enumerate(self._votes.candidates(row))
        } | self._votes.aliases(row)
        return [NO_ANSWER if form is None else code_of.get(form, ABSENT) for form in answers]

    def _number(self, row: int, codes: list[int]) -> None:
        """Note which answers of a question are given, and whether new ones come in the order of
        their codes.
        """
        given = int(self._given[row])
        if max(codes, default=NO_ANSWER) >= given:
            new = [code for code in dict.fromkeys(codes) if code >= given]
            self._in_order &= new == list(range(given, given + len(new)))
            self._given[row] += len(new)


def _holds(stored: npt.NDArray[Any], values: Sequence[int], empty: int) -> bool:
    size = len(values)
    return stored[:size].tolist() == values and bool((stored[size:] == empty).all())


def _holds_probes(probes: Probes, row: int, rows: ProbeRows, codes: list[int]) -> bool:
    """Return whether the flat arrays hold the probes on a question, with these codes."""
    width = probes.shape[1]
    bounds = probes.starts[row * width : (row + 1) * width + 1]
    own = slice(int(bounds[0]), int(bounds[-1]))
    size = len(codes)
    tokens = [-1 if count is None else count for count in rows.output_tokens or [None] * size]
    confidences = np.array(rows.confidences or [None] * size, np.float32)  # None is NaN
    return (
        np.repeat(np.arange(width), np.diff(bounds)).tolist() == list(rows.sample_indices)
        and probes.offsets[own].tolist() == list(rows.offsets)
        and probes.codes[own].tolist() == codes
        and ([-1] * size if probes.output_tokens is None else probes.output_tokens[own].tolist())
        == tokens
        and np.array_equal(
            np.full(size, np.nan) if probes.confidences is None else probes.confidences[own],
            confidences,
            equal_nan=True,
        )
    )


def _differences(
    votes: Votes, row: int, question: Question, verdicts: Sequence[Verdict]
) -> Iterator[str]:
    """Yield how the votes of a question differ from the question and its verdicts."""
    parties, gold, candidates = (
        parties_of(verdicts, question.answer_key),
        int(votes.gold[row]),
        votes.candidates(row),
    )
    code_of = {form: code for code, form in enumerate(candidates)}
    if len(code_of) < len(candidates) or any(parties.key(form) != form for form in candidates):
        yield "candidates"
    if (None if gold < 0 else candidates[gold]) != parties.gold:
        yield "gold"
    if votes.aliases(row) != {
        form: code_of[key] for form, key in parties.joined.items() if key in code_of
    }:
        yield "equal answers"
    if int(votes.text_keys[row]) != name_key(question.text):
        yield "text"
    if int(votes.question_keys[row]) != name_key("feval/question", votes.dataset, question.id):
        yield "key"

"""Recordings that were fetched in part: which files belong to what, and how the ones that are here are checked.

Each Parquet file is checked against its leaf, and the votes of an LLM against the files they are derived from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feval.answers.parties import Parties, parties_of
from feval.errors import DamagedRecordingError
from feval.recording.content import CHANNELS, OPTIONAL_COLUMNS, PAIR_PARTS, Question
from feval.recording.layout.format import MANIFEST, README, SCORES, LeafHash, file_path
from feval.recording.layout.manifest import Manifest
from feval.recording.layout.origin import PULLED
from feval.recording.leaves import channel_line, dataset_leaf, equality_leaf, llm_leaf, question_line
from feval.recording.reader import Recording
from feval.recording.verify import scores_leaf
from feval.recording.votes import ABSENT, name_key
from feval.recording.votes_builder import FINISH_CODES

TEXT_PARTS = ("texts", "reasoning")
"""The long texts: most bytes of a recording, and not needed for voting."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a file of a recording holds: a part of a dataset, or of an LLM on it."""

    part: str
    dataset: str
    llm: str | None


def listed_parts(manifest: Manifest) -> dict[str, Part]:
    """Return path -> what it holds, for all files in the manifest except README.md; paths that no recording has are refused."""
    known = {path: part for path, part in _possible_parts(manifest) if path in manifest.files}
    strange = manifest.files.keys() - known.keys() - {README}
    if strange:
        raise DamagedRecordingError(
            f"{MANIFEST} lists {min(strange)!r:.120}, which no recording of its datasets and LLMs has. Do not use it."
        )
    check_names(manifest.files)
    return known


def _possible_parts(manifest: Manifest) -> Iterator[tuple[str, Part]]:
    for dataset in manifest.datasets:
        for part in ("questions", "equality", "votes", "details"):
            yield file_path(part, dataset), Part(part, dataset, None)
    for dataset, llm in manifest.pairs:
        for part in (*PAIR_PARTS, *CHANNELS):
            yield file_path(part, dataset, llm), Part(part, dataset, llm)
    for record in manifest.raw.get("scores", []):
        part, dataset, llm = SCORES + record["scorer"], record["dataset"], record["llm"]
        yield file_path(part, dataset, llm), Part(part, dataset, llm)


def check_names(paths: Iterable[str]) -> None:
    """Check that no two paths are the same on a case-insensitive disk, and none is a folder of another."""
    seen: dict[str, str] = {}
    for path in paths:
        if (other := seen.setdefault(path.casefold(), path)) != path:
            raise DamagedRecordingError(
                f"{MANIFEST} lists {other!r:.120} and {path!r:.120}, which are the same file on many disks."
            )
    for path in seen:
        folders = path.split("/")[:-1]
        inside = next((f for f in ("/".join(folders[: i + 1]) for i in range(len(folders))) if f in seen), None)
        if inside is not None:
            raise DamagedRecordingError(f"{MANIFEST} lists {inside!r:.120} both as a file and as a folder.")


def paths_of(
    manifest: Manifest, datasets: Iterable[str], llms: Iterable[str] | None = None, *, texts: bool = True
) -> list[str]:
    """Return the files that hold some LLMs (`None` is all) on some datasets, with or without the texts of the CoTs."""
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


def check_leaf(recording: Recording, path: str) -> None:
    """Recompute the leaf of one Parquet file; a `DamagedRecordingError` if it differs from the one in the manifest."""
    part = listed_parts(recording.manifest)[path]
    if part.part in {"votes", "details"}:
        return
    computed = {(part.dataset, part.llm, part.part): _leaf(recording, path, part)}
    if part.part == "questions":
        computed[part.dataset, None, "dataset"] = dataset_leaf(recording.dataset_info(part.dataset))
    elif part.llm is not None:
        counter = recording.counter(part.dataset, part.llm)
        computed[part.dataset, part.llm, "llm"] = llm_leaf(recording.llm_info(part.llm), counter)
    for key, leaf in computed.items():
        stated = recording.manifest.leaves.get(key)
        if stated != leaf:
            raise DamagedRecordingError(
                f"{recording.path / path}: the leaf {' / '.join(filter(None, key))} should be {stated}, found {leaf} in its "
                "content. Its owner has to publish it again."
            )


def _leaf(recording: Recording, path: str, part: Part) -> str:
    leaf = LeafHash()
    if part.part == "questions":
        for entry in recording.questions(part.dataset):
            leaf.add(question_line(entry))
        return leaf.hexdigest()
    if part.part == "equality":
        return equality_leaf(recording.dataset_info(part.dataset).equality, recording.verdicts(part.dataset))
    if part.part.startswith(SCORES):
        return scores_leaf(recording, part.dataset, str(part.llm), part.part.removeprefix(SCORES))
    with recording.shape(path):
        for question, columns in _with_empty_pools(recording, path, part):
            leaf.add(_line(part.part, question, columns))
    return leaf.hexdigest()


def _with_empty_pools(recording: Recording, path: str, part: Part) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Yield a file's questions with their columns. A pool without a CoT has a line and no rows; only the requests list it."""
    rows = recording.scan(path)
    if part.part not in {"samples", "texts"}:
        yield from rows
        return
    following = next(rows, None)
    for question in recording.prompts(part.dataset, str(part.llm)):
        if following is not None and following[0] == question:
            yield following
            following = next(rows, None)
        else:
            yield question, {}
    if following is not None:
        yield following


def _line(part: str, question: str, columns: Mapping[str, list[Any]]) -> list[Any]:
    """Return the line of a question in the leaf of an LLM's file, as `leaves.pool_lines` does."""
    if part == "requests":
        return [question, columns["prompt"][0], columns["prompt_tokens"][0]]
    if part == "texts":
        return [question, columns.get("text", [])]
    if part != "samples":
        return channel_line(question, {name: columns[name] for name in CHANNELS[part]})
    extra = {name: columns[name] for name in OPTIONAL_COLUMNS if any(v is not None for v in columns.get(name, ()))}
    narrow = ("answer_raw", "answer", "output_tokens", "finish_reason")
    return [question, *(columns.get(name, []) for name in narrow), extra]


def check_votes(recording: Recording, dataset: str, llms: Iterable[str]) -> None:
    """Check the votes of some LLMs against the Parquet files they are derived from."""
    path = file_path("votes", dataset)
    with recording.shape(path):
        verdicts, questions = recording.verdicts(dataset), recording.questions(dataset)
        parties = {q.id: parties_of(verdicts.get(q.id, ()), q.answer_key) for q in questions}
        rows = _check_questions(recording, dataset, questions, parties)
        for llm in llms:
            _check_llm(recording, dataset, llm, rows, parties)


def _check_questions(
    recording: Recording, dataset: str, questions: Sequence[Question], parties: Mapping[str, Parties]
) -> dict[str, int]:
    votes = recording.votes(dataset)
    if list(votes.question_ids) != [question.id for question in questions]:
        raise _disagree(recording, dataset, "question ids")
    for row, question in enumerate(questions):
        gold, candidates = int(votes.gold[row]), votes.candidates(row)
        if len(set(candidates)) < len(candidates):
            raise _disagree(recording, dataset, f"candidates of {question.id!r}")
        if (None if gold < 0 else candidates[gold]) != parties[question.id].gold:
            raise _disagree(recording, dataset, f"gold of {question.id!r}")
        if any(parties[question.id].joined.get(f) != candidates[code] for f, code in votes.aliases(row).items()):
            raise _disagree(recording, dataset, f"equal answers of {question.id!r}")
        if int(votes.text_keys[row]) != name_key(question.text):
            raise _disagree(recording, dataset, f"text of {question.id!r}")
        if int(votes.question_keys[row]) != name_key("feval/question", dataset, question.id):
            raise _disagree(recording, dataset, f"key of {question.id!r}")
    return {question.id: row for row, question in enumerate(questions)}


def _check_llm(
    recording: Recording, dataset: str, llm: str, rows: Mapping[str, int], parties: Mapping[str, Parties]
) -> None:
    votes, arrays = recording.votes(dataset), recording.votes(dataset).llms[llm]
    counts = dict.fromkeys(rows.values(), 0)
    for question, columns in recording.scan(file_path("samples", dataset, llm)):
        row, size = rows[question], len(columns["answer"])
        counts[row] = size
        candidates = votes.candidates(row)
        codes = arrays.codes[row].tolist()
        answers = [None if code < 0 else candidates[code] for code in codes[:size]]
        finish = [FINISH_CODES.get(reason) for reason in columns["finish_reason"]]
        right = None if votes.gold[row] < 0 else [code == votes.gold[row] for code in codes[:size]]
        agree = (
            answers == [None if form is None else parties[question].key(form) for form in columns["answer"]]
            and columns.get("correct", right or [None] * size) == (right or [None] * size)
            and all(code == ABSENT for code in codes[size:])
            and arrays.output_tokens[row, :size].tolist() == columns["output_tokens"]
            and arrays.finish[row, :size].tolist() == finish
        )
        if not agree:
            raise _disagree(recording, dataset, f"CoTs of {llm} on {question!r}")
    if arrays.sizes.tolist() != [counts[row] for row in range(len(rows))]:
        raise _disagree(recording, dataset, f"numbers of CoTs of {llm}")
    tokens = dict.fromkeys(counts, -1)
    for question, columns in recording.scan(file_path("requests", dataset, llm)):
        [sent] = columns["prompt_tokens"]
        tokens[rows[question]] = -1 if sent is None else sent
    if arrays.prompt_tokens.tolist() != [tokens[row] for row in range(len(rows))]:
        raise _disagree(recording, dataset, f"prompt tokens of {llm}")


def _disagree(recording: Recording, dataset: str, what: str) -> DamagedRecordingError:
    return DamagedRecordingError(
        f"{recording.path / file_path('votes', dataset)} contradicts the Parquet files ({what}). Its owner has to publish it "
        "again."
    )

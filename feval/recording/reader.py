"""Read a recording: what is asked for is read and checked, nothing else.

Opening reads the manifest. `votes` maps one small file. Questions, texts and requests come from Parquet when they are asked
for; a text is one row group, its pages guarded by checksums.
"""

from __future__ import annotations

import os
import string
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from feval.answers.thoughts import Mark
from feval.errors import DamagedRecordingError, NotFetchedError, NotRecordedError
from feval.recording.content import (
    OPTIONAL_COLUMNS,
    DatasetInfo,
    LLMInfo,
    PoolRows,
    Question,
    ScorerInfo,
    ScoreRows,
    utc_text,
)
from feval.recording.equality import verdicts_of_rows
from feval.recording.layout.bounds import check_footer
from feval.recording.layout.files import CHANNELS
from feval.recording.layout.format import SCORES, file_path, open_regular
from feval.recording.layout.manifest import Manifest, read_manifest
from feval.recording.layout.origin import origin
from feval.recording.logprobs import TokenLogprobs, logprobs_of_tables
from feval.recording.scores import (
    SCORE_COLUMNS,
    Scores,
    scores_of_table,
)
from feval.recording.votes import Votes, open_votes

if TYPE_CHECKING:  # a curve needs no answers
    from feval.answers.parties import Verdict

__all__ = ["FileSource", "Recording", "gold_aware_remark", "open_recording"]

_GOLD_AWARE = "feval-answers-1"
"""The version of the extraction whose keys could depend on the gold."""
_TEXT_FILES_OPEN = 64
_SCORE_FIELDS = {
    "step_scores": "step_scores",
    "verdict": "verdicts",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
}


class FileSource(Protocol):
    """Where the files of a recording are that are not in its folder yet."""

    def fetch(self, recording: Recording, path: str) -> None:
        """Bring one file into the folder, and check it."""

    def prepare(self, recording: Recording, dataset: str, llms: Sequence[str]) -> None:
        """Bring what voting of some LLMs on a dataset needs, and check it."""


def open_recording(path: str | Path, source: FileSource | None = None) -> Recording:
    """Open a recording folder.

    Args:
        path: the folder.
        source: gives the files that are not there; `None` where all should be.

    Raises:
        NotARecordingError, NewerFormatError, DamagedRecordingError: see `feval.recording.layout.manifest.read_manifest`.
    """
    folder = Path(path)
    return Recording(folder, read_manifest(folder), source)


class Recording:
    """An immutable folder with the CoTs of some LLMs on some datasets.

    Attributes:
        path: the folder.
        manifest: what it says of itself.
    """

    def __init__(self, path: Path, manifest: Manifest, source: FileSource | None = None) -> None:
        self.path = path
        self.manifest = manifest
        self._source = source
        self._votes: dict[str, Votes] = {}

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r}, hash={self.hash[:12]}, pairs={len(self.manifest.pairs)})"

    @cached_property
    def _tables(self) -> Callable[[str], _Table]:
        return lru_cache(_TEXT_FILES_OPEN)(self._open_table)

    @cached_property
    def address(self) -> str | None:
        """Where on the Hub it was fetched from, at which commit; `None` where it was not."""
        return origin(self.path)

    def prepare(self, dataset: str, llms: Sequence[str]) -> None:
        """Fetch what voting of some LLMs on a dataset needs, where the recording is on the Hub still.

        Raises:
            HubError: it cannot be fetched.
            DamagedRecordingError: what came is not what the manifest says.
        """
        if self._source is not None:
            self._source.prepare(self, dataset, llms)

    @property
    def hash(self) -> str:
        """The recording hash: equal content, equal hash."""
        return self.manifest.hash

    def dataset_ids(self) -> list[str]:
        """Ids of the datasets, in recorded order."""
        return list(self.manifest.datasets)

    def llm_names(self, dataset: str) -> list[str]:
        """Names of the LLMs recorded on a dataset, in recorded order."""
        return [llm for where, llm in self.manifest.pairs if where == dataset]

    def require(self, dataset: str, llm: str | None = None) -> None:
        """Make sure the recording holds a dataset, or an LLM on it.

        Raises:
            NotRecordedError: it does not; the message lists what it holds.
        """
        if dataset not in self.manifest.datasets:
            raise NotRecordedError(f"{self.path} holds no dataset {dataset!r}. It holds {self._holdings()}.")
        if llm is not None and (dataset, llm) not in self.manifest.pairs:
            raise NotRecordedError(f"{self.path} holds no CoTs of {llm!r} on {dataset}. It holds {self._holdings()}.")

    def votes(self, dataset: str) -> Votes:
        """The arrays that voting needs, mapped and checked against the manifest.

        Raises:
            NotRecordedError: no such dataset.
            DamagedRecordingError: the file is missing, changed or malformed.
        """
        if dataset not in self._votes:
            self.require(dataset)
            path, details = file_path("votes", dataset), file_path("details", dataset)
            for each in self.votes_paths(dataset).values():
                self._have(each)
            votes = open_votes(
                self.path / path, self.file_record(path), (self.path / details, self.manifest.files.get(details))
            )
            self._agree(path, dataset, votes)
            self._votes[dataset] = votes
        return self._votes[dataset]

    def votes_paths(self, dataset: str) -> dict[str, str]:
        """Part -> path of the votes files: "votes" and, unless it is of format 1, "details"."""
        paths = {part: file_path(part, dataset) for part in ("votes", "details")}
        return {part: path for part, path in paths.items() if part == "votes" or path in self.manifest.files}

    def dataset_info(self, dataset: str) -> DatasetInfo:
        """What the manifest says of a dataset."""
        self.require(dataset)
        record = self.manifest.datasets[dataset]
        with self.shape("manifest.json"):
            keys = ("id", "title", "answer_kind", "extractor", "system_prompt", "licence")
            equality = record.get("equality")
            return DatasetInfo(
                **{key: record[key] for key in keys}, **({} if equality is None else {"equality": equality["name"]})
            )

    def llm_info(self, llm: str) -> LLMInfo:
        """What the manifest says of an LLM."""
        with self.shape("manifest.json"):
            record = self.manifest.llms[llm]
            return LLMInfo(record["name"], record["temperature"], record["max_tokens"], record["decoding"])

    def questions(self, dataset: str) -> list[Question]:
        """All questions of a dataset, with their golds, in recorded order.

        Raises:
            NotRecordedError: no such dataset.
            DamagedRecordingError: the file is missing, changed or malformed.
        """
        self.require(dataset)
        path = file_path("questions", dataset)
        with self.shape(path):
            table = self._tables(path).read()
            id_column = "question_id" if "question_id" in table.column_names else "id"  # "id" until format 2
            return [
                Question(
                    row[id_column],
                    row["question"],
                    row["answer"],
                    row["answer_key"],
                    tuple((choice["label"], choice["text"]) for choice in row["choices"] or ()),
                )
                for row in table.to_pylist()
            ]

    def is_gold_aware(self, dataset: str) -> bool:
        """Whether an answer of a dataset could get the gold's key, while equal wrong answers stayed apart (until format 2).

        Raises:
            NotRecordedError: no such dataset.
            DamagedRecordingError: the questions are asked and cannot be read.
        """
        info = self.dataset_info(dataset)
        if info.extractor == _GOLD_AWARE and info.answer_kind == "choice":
            return any(_names_no_option(question) for question in self.questions(dataset))
        return info.extractor.startswith(f"{_GOLD_AWARE}+math-verify")

    def verdicts(self, dataset: str) -> dict[str, list[Verdict]]:
        """The stored verdicts on which normal forms of a dataset's answers are equal, by question id.

        Raises:
            NotRecordedError: no such dataset.
            DamagedRecordingError: the file is missing, changed or malformed.
        """
        self.require(dataset)
        path = file_path("equality", dataset)
        if path not in self.manifest.files:
            return {}
        with self.shape(path):
            return verdicts_of_rows(self.scan(path))

    def texts(self, dataset: str, llm: str, question: int) -> list[str | None]:
        """The recorded texts of one LLM on one question (by its row), in recorded order. Reads one row group.

        Raises:
            NotRecordedError: no such dataset or LLM.
            DamagedRecordingError: the file is missing, changed or malformed.
        """
        self.require(dataset, llm)
        path = file_path("texts", dataset, llm)
        with self.shape(path):
            table, starts = self._text_table(path, dataset, llm)
            first = starts[question]
            size = starts[question + 1] - first
            if size == 0:
                return []
            group, offset = table.locate(first)
            column = table.group(group, ["text"]).column("text")
            texts: list[str | None] = column.slice(offset, size).to_pylist()
            if len(texts) != size:
                raise DamagedRecordingError(f"{self.path / path} ends before the texts of question row {question}.")
            return texts

    def reasoning(self, dataset: str, llm: str, question_id: str) -> list[str | None] | None:
        """The recorded thoughts of one LLM on one question, in recorded order; `None` where none were kept.

        Raises:
            NotRecordedError: no such dataset or LLM.
            DamagedRecordingError: the file is missing, changed or malformed.
        """
        if "reasoning" not in self.channels(dataset, llm):
            return None
        path = file_path("reasoning", dataset, llm)
        with self.shape(path):
            table = self._tables(path)
            start, stop = table.rows_of(question_id)
            return table.column("reasoning", start, stop) if stop > start else None

    def reasoning_tokens(self, dataset: str, llm: str) -> dict[str, list[int | None]]:
        """Question id -> how many of each CoT's output tokens were thoughts, of the questions on which the provider said so.

        Raises:
            NotRecordedError: no such dataset or LLM.
            DamagedRecordingError: the file is missing, changed or malformed.
        """
        self.require(dataset, llm)
        path = file_path("samples", dataset, llm)
        with self.shape(path):
            columns = self.scan(path, ["question_id", "reasoning_tokens"])
            counts = ((question, own["reasoning_tokens"]) for question, own in columns)
            return {question: own for question, own in counts if any(count is not None for count in own)}

    def texts_near(self, dataset: str, llm: str, question: int) -> dict[int, list[str | None]]:
        """The texts of every question that lies in the row group of one (by its row): what reading that one decodes anyway.

        Returns:
            Row of a question -> its texts, in recorded order; the question asked for is among them.

        Raises:
            NotRecordedError, DamagedRecordingError: as for `texts`.
        """
        self.require(dataset, llm)
        path = file_path("texts", dataset, llm)
        with self.shape(path):
            table, starts = self._text_table(path, dataset, llm)
            if starts[question + 1] == starts[question]:
                return {question: []}
            group, offset = table.locate(starts[question])
            texts = table.group(group, ["text"]).column("text").to_pylist()
            first = starts[question] - offset
            if starts[question + 1] > first + len(texts):
                raise DamagedRecordingError(f"{self.path / path} ends before the texts of question row {question}.")
            found = {}
            for row in range(bisect_left(starts, first), len(starts) - 1):
                if starts[row + 1] > first + len(texts):
                    break
                found[row] = texts[starts[row] - first : starts[row + 1] - first]
            return found

    def scan_texts(self, dataset: str, llm: str) -> Iterator[list[str | None]]:
        """All texts of one LLM on a dataset in recorded order, one row group (some whole questions) at a time."""
        self.require(dataset, llm)
        path = file_path("texts", dataset, llm)
        with self.shape(path):
            table = self._tables(path)
            for group in range(table.groups):
                yield table.group(group, ["text"]).column("text").to_pylist()

    def channels(self, dataset: str, llm: str) -> list[str]:
        """Which of the optional parts an LLM has on a dataset: some of "reasoning", "logprobs"."""
        self.require(dataset, llm)
        return [part for part in CHANNELS if file_path(part, dataset, llm) in self.manifest.files]

    def has_reasoning(self, dataset: str, llm: str) -> bool:
        """Whether thoughts of an LLM on a dataset were kept."""
        return file_path("reasoning", dataset, llm) in self.manifest.files

    def has_marks(self, dataset: str, llm: str) -> bool:
        """Whether thoughts were split off the texts of an LLM on a dataset."""
        if "reasoning" not in self.channels(dataset, llm):
            return False
        return any(any(columns.get("marks", ())) for _, columns in self.scan_channel(dataset, llm, "reasoning"))

    def scan_channel(self, dataset: str, llm: str, part: str) -> Iterator[tuple[str, dict[str, list[Any]]]]:
        """An optional part of an LLM on a dataset: (question id, column -> values), of the questions that have any value.

        Args:
            dataset: its id.
            llm: its name.
            part: "reasoning" has the columns `reasoning` and `marks`; "logprobs" has `sequence_logprob`, `token_confidences` and
                `token_logprobs`. A missing value is `None`.

        Raises:
            NotRecordedError: it was not kept.
            DamagedRecordingError: the file is missing, changed or malformed.
        """
        self._require_channel(dataset, llm, part)
        path = file_path(part, dataset, llm)
        with self.shape(path):
            yield from self.scan(path)

    def logprobs(self, dataset: str, llm: str) -> TokenLogprobs:
        """What was kept of the tokens of an LLM's CoTs on a dataset, as arrays.

        Raises:
            NotRecordedError: no log-probabilities were kept.
            DamagedRecordingError: the file is missing, changed or malformed.
        """
        if "logprobs" not in self.channels(dataset, llm):
            raise NotRecordedError(
                f"{self.path} holds no log-probabilities of {llm} on {dataset}. They are kept by `feval record --logprobs K` "
                "only; record the LLM again with it."
            )
        path = file_path("logprobs", dataset, llm)
        votes = self.votes(dataset)
        with self.shape(path):
            table = self._tables(path)
            groups = (table.group(group, None) for group in range(table.groups))
            questions, width = votes.llms[llm].codes.shape
            return logprobs_of_tables(groups, votes.question_ids, (questions, width))

    def score_records(self, dataset: str, llm: str) -> list[dict[str, Any]]:
        """What the manifest says of the scores of an LLM on a dataset, one entry for each scorer."""
        self.require(dataset, llm)
        with self.shape("manifest.json"):
            records = self.manifest.raw.get("scores", [])
            return [record for record in records if (record["dataset"], record["llm"]) == (dataset, llm)]

    def scorers(self, dataset: str, llm: str) -> list[str]:
        """Names of the scorers that scored an LLM on a dataset."""
        with self.shape("manifest.json"):
            return [record["scorer"] for record in self.score_records(dataset, llm)]

    def scorer_info(self, scorer: str) -> ScorerInfo:
        """What the manifest says of a scorer."""
        with self.shape("manifest.json"):
            [record] = [record for record in self.manifest.raw.get("scorers", []) if record["name"] == scorer]
            return ScorerInfo(record["name"], record["kind"], record["parameters"])

    def scores(self, dataset: str, llm: str, scorer: str) -> Scores:
        """One scorer's scores of an LLM on a dataset, as arrays.

        Raises:
            NotRecordedError: no such dataset, LLM or scorer.
            DamagedRecordingError: the file is missing, changed or malformed.
        """
        path = self._scores_path(dataset, llm, scorer)
        votes = self.votes(dataset)
        with self.shape(path):
            table = self._tables(path).read(list(SCORE_COLUMNS))
            return scores_of_table(self.scorer_info(scorer), table, votes.question_ids, votes.llms[llm].codes.shape)

    def score_rows(self, dataset: str, llm: str, scorer: str) -> Iterator[ScoreRows]:
        """One scorer's scores of an LLM on a dataset, verdicts included, question by question, as they were added.

        Raises:
            NotRecordedError, DamagedRecordingError: as for `scores`.
        """
        path = self._scores_path(dataset, llm, scorer)
        with self.shape(path):
            for question, columns in _by_question(self._tables(path).read().to_pydict()):
                optional = {
                    field: columns[column] if any(value is not None for value in columns[column]) else None
                    for column, field in _SCORE_FIELDS.items()
                }
                yield ScoreRows(question, columns["sample_index"], columns["score"], **optional)

    def _require_channel(self, dataset: str, llm: str, part: str) -> None:
        if part not in self.channels(dataset, llm):
            raise NotRecordedError(
                f"{self.path} holds no {part} of {llm} on {dataset}: it was not kept when it was recorded."
            )

    def _scores_path(self, dataset: str, llm: str, scorer: str) -> str:
        held = self.scorers(dataset, llm)
        if scorer not in held:
            raise NotRecordedError(
                f"{self.path} holds no scores of {llm} on {dataset} by {scorer!r}"
                f"{'; it holds scores by ' * bool(held)}{', '.join(held)}. Add some with `feval score`."
            )
        return file_path(SCORES + scorer, dataset, llm)

    def prompts(self, dataset: str, llm: str) -> dict[str, str | None]:
        """Question id -> the request that was sent (a JSON array of messages), `None` where it is not known."""
        self.require(dataset, llm)
        path = file_path("requests", dataset, llm)
        with self.shape(path):
            table = self._tables(path).read(["question_id", "prompt"])
            return dict(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))

    def pools(self, dataset: str, llm: str) -> Iterator[PoolRows]:
        """Everything recorded of one LLM on a dataset, question by question.

        Raises:
            DamagedRecordingError: the three Parquet files do not agree.
        """
        self.require(dataset, llm)
        paths = [file_path(part, dataset, llm) for part in ("requests", "samples", "texts")]
        with self.shape(paths[1]):
            texts = (text for group in self.scan_texts(dataset, llm) for text in group)
            samples = _Along(self.scan(paths[1]))
            channels = [_Along(self.scan_channel(dataset, llm, part)) for part in self.channels(dataset, llm)]
            for question, request in self.scan(paths[0]):
                own = samples.take(question) or {"sample_index": []}
                size = len(own["sample_index"])
                kept = [channel.take(question) for channel in channels]
                for columns in (own, *kept):
                    if columns.get("sample_index", own["sample_index"]) != list(range(size)):
                        raise DamagedRecordingError(
                            f"{self.path / paths[1]}: sample indices of {question!r} are not 0, 1, 2 ..."
                        )
                yield _pool(question, request, own, list(islice(texts, size)), kept)
            if next(texts, self) is not self or any(part.rest for part in (samples, *channels)):
                raise DamagedRecordingError(
                    f"{self.path / paths[1]} does not hold the same questions as {paths[0]} and {paths[2]}."
                )

    def scan(self, path: str, columns: list[str] | None = None) -> Iterator[tuple[str, dict[str, list[Any]]]]:
        """(question id, column -> values) of a Parquet file, question by question, one row group in memory at a time."""
        table = self._tables(path)
        pending: tuple[str, dict[str, list[Any]]] | None = None
        for group in range(table.groups):
            for question, found in _by_question(_with_times_as_text(table.group(group, columns).to_pydict())):
                # Another writer's row groups may cut a question in two.
                if pending is not None and pending[0] == question:
                    found = {name: pending[1][name] + column for name, column in found.items()}
                elif pending is not None:
                    yield pending
                pending = question, found
        if pending is not None:
            yield pending

    def named_llms(self, path: str) -> set[str]:
        """The LLMs that the rows of a Parquet file name; none before format 3."""
        with self.shape(path):
            table = self._tables(path).read(["llm"])
            return {name for column in table.columns for name in column.unique().to_pylist()}

    def _agree(self, path: str, dataset: str, votes: Votes) -> None:
        """The hash pins the bytes; a manifest made by hand could still pin the wrong ones."""
        if votes.dataset != dataset or set(votes.llms) != set(self.llm_names(dataset)):
            raise DamagedRecordingError(
                f"{self.path / path} is of other LLMs or another dataset than manifest.json says."
            )

    def file_record(self, path: str) -> dict[str, Any]:
        """What the manifest says of a file: "sha256", "bytes", "rows".

        Raises:
            DamagedRecordingError: it does not list the file.
        """
        record = self.manifest.files.get(path)
        if record is None:
            raise DamagedRecordingError(f"{self.path}: manifest.json does not list {path}; fetch the recording again.")
        return record

    def _holdings(self) -> str:
        held = [f"{dataset}: {', '.join(self.llm_names(dataset)) or 'no LLM'}" for dataset in self.dataset_ids()]
        return "; ".join(held) or "nothing"

    def check_file(self, path: str, check: Callable[[Path, int], None]) -> None:
        """Run a check over the bytes of a file; whatever pyarrow makes of a malformed one is a sentence.

        Raises:
            DamagedRecordingError: the check failed, or the file cannot be read.
        """
        with self.shape(path):
            check(self.path / path, self.file_record(path)["bytes"])

    def _have(self, path: str) -> None:
        """Make sure that a file of a recording from the Hub is here; others are missed where they are opened."""
        if self._source is not None:
            self._source.fetch(self, path)
        elif (self.path / path).exists():
            return
        elif path in self.manifest.files and self.address is not None:
            raise NotFetchedError(
                f"{path} of {self.address} was not fetched. `feval pull {self.address}` fetches all of it, and with "
                "--dataset and --llm a part."
            )

    def _open_table(self, path: str) -> _Table:
        self._have(path)
        return _Table(self.path / path, self.file_record(path))

    def _text_table(self, path: str, dataset: str, llm: str) -> tuple[_Table, list[int]]:
        table = self._tables(path)
        if table.starts is None:
            table.starts = [0, *accumulate(self.votes(dataset).llms[llm].sizes.tolist())]
        return table, table.starts

    @contextmanager
    def shape(self, path: str) -> Iterator[None]:
        """Whatever pyarrow or a wrong shape raises means one thing: the file is not what the manifest says."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, IndexError, StopIteration) as error:
            raise DamagedRecordingError(
                f"{self.path / path} cannot be read ({_first_line(error)}); run `feval verify`."
            ) from error


def _by_question(columns: dict[str, list[Any]]) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    ids = columns["question_id"]
    start = 0
    while start < len(ids):
        stop = start
        while stop < len(ids) and ids[stop] == ids[start]:
            stop += 1
        yield (
            ids[start],
            {name: column[start:stop] for name, column in columns.items() if name not in {"llm", "question_id"}},
        )
        start = stop


def gold_aware_remark(recording: Recording, dataset: str) -> str:
    """What is said of a dataset whose keys depend on the gold."""
    place = recording.address or recording.path
    return (
        f"{dataset} has gold-aware keys: the gold put right answers together, while equal wrong answers stayed apart, so votes "
        f"are right too often. `feval extract {place} --out NEW` makes keys that do not depend on it."
    )


def _names_no_option(question: Question) -> bool:
    labels = [label for label, _ in question.choices] or string.ascii_uppercase
    return question.answer_key is not None and question.answer_key not in labels


def _with_times_as_text(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Timestamps as recordings have them in memory; until format 2 they were text in the file, too."""
    times = columns.get("recorded_at")
    if times is None:
        return columns
    return columns | {"recorded_at": [utc_text(time) if isinstance(time, datetime) else time for time in times]}


class _Along:
    """A file that is read along with the questions, of which it may lack some."""

    def __init__(self, questions: Iterator[tuple[str, dict[str, list[Any]]]]) -> None:
        self._questions = questions
        self.rest = next(questions, None)

    def take(self, question: str) -> dict[str, list[Any]]:
        """Its columns on a question; empty where it has none."""
        if self.rest is None or self.rest[0] != question:
            return {}
        columns, self.rest = self.rest[1], next(self._questions, None)
        return columns


def _pool(
    question: str,
    request: dict[str, list[Any]],
    own: dict[str, list[Any]],
    texts: list[Any],
    kept: list[dict[str, list[Any]]],
) -> PoolRows:
    if len(texts) != len(own["sample_index"]):
        raise ValueError(f"texts end before {question!r}")
    channels = {
        name: column for columns in kept for name, column in columns.items() if any(v is not None for v in column)
    }
    return PoolRows(
        question,
        texts,
        own.get("answer_raw", []),
        own.get("answer", []),
        own.get("output_tokens", []),
        own.get("finish_reason", []),
        request["prompt"][0],
        request["prompt_tokens"][0],
        {name: own[name] for name in OPTIONAL_COLUMNS if any(value is not None for value in own.get(name, ()))},
        reasoning=channels.get("reasoning"),
        reasoning_marks=_marks(channels.get("marks")),
        sequence_logprobs=channels.get("sequence_logprob"),
        token_logprobs=channels.get("token_logprobs"),
        token_confidences=channels.get("token_confidences"),
    )


def _marks(column: list[Any] | None) -> list[tuple[Mark, ...] | None] | None:

    if column is None:
        return None
    return [None if marks is None else tuple(Mark(**mark) for mark in marks) for marks in column]


class _Table:
    """An opened Parquet file."""

    def __init__(self, path: Path, record: dict[str, Any]) -> None:
        import pyarrow.parquet as pq

        size = record["bytes"]

        with open_regular(path) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise DamagedRecordingError(
                    f"{path} should have {size} bytes, found {found}; fetch the recording again."
                )
            source = path if _is_utf8(path) else _mapped(file)
        # Read ahead, a mapped file costs threads and gains nothing.
        self._file = pq.ParquetFile(source, memory_map=True, page_checksum_verification=True, pre_buffer=False)
        check_footer(path, self._file.metadata, record)
        self.groups: int = self._file.metadata.num_row_groups
        self.starts: list[int] | None = None
        self._questions: dict[str, tuple[int, int]] | None = None
        self._ends: list[int] | None = None

    def read(self, columns: list[str] | None = None) -> Any:
        return self._file.read(columns, use_threads=False)

    def group(self, index: int, columns: list[str] | None) -> Any:
        return self._file.read_row_group(index, columns, use_threads=False)

    def rows_of(self, question: str) -> tuple[int, int]:
        """The first row of a question, and the one behind its last; equal where it has none."""
        if self._questions is None:
            ids = self.read(["question_id"]).column(0).to_pylist()
            starts = [row for row, own in enumerate(ids) if row == 0 or ids[row - 1] != own]
            self._questions = {ids[start]: (start, stop) for start, stop in pairwise([*starts, len(ids)])}
        return self._questions.get(question, (0, 0))

    def column(self, name: str, start: int, stop: int) -> list[Any]:
        """The values of a column in some rows, whose row groups alone are read."""
        values: list[Any] = []
        while start < stop:
            group, offset = self.locate(start)
            found = self.group(group, [name]).column(name).slice(offset, stop - start).to_pylist()
            values += found
            start += len(found)
        return values

    def locate(self, row: int) -> tuple[int, int]:
        """Row group of a row, and the row's place in it."""
        if self._ends is None:
            counts = (self._file.metadata.row_group(i).num_rows for i in range(self.groups))
            self._ends = list(accumulate(counts))
        group = bisect_right(self._ends, row)
        return group, row - (self._ends[group - 1] if group else 0)


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _mapped(file: BinaryIO) -> Any:
    """A file for Arrow, which takes the names of files as UTF-8 only."""
    import mmap

    import pyarrow as pa

    return pa.BufferReader(pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]

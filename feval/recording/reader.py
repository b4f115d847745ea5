"""Read a recording: only what is asked for is read and checked.

Opening reads the manifest, `votes` maps one small file; the rest is read from Parquet on demand.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from feval.answers.equivalence import NORMAL_FORM, Verdict
from feval.answers.thoughts import Mark
from feval.arguments import checked
from feval.errors import DamagedRecordingError, NotFetchedError, NotRecordedError
from feval.lazy import Browsable
from feval.recording import parquet
from feval.recording.arrays import Probes, Scores, Steps, TokenLogprobs
from feval.recording.content import (
    DatasetInfo,
    LLMInfo,
    PoolRows,
    ProbeRows,
    Question,
    ScorerInfo,
    ScoreRows,
    checked_messages,
)
from feval.recording.layout.format import PROBE_VOTES, PROBES, SCORES, file_path, file_paths, origin
from feval.recording.layout.manifest import Manifest, read_manifest
from feval.recording.parts import CHANNELS, spec_of
from feval.recording.votes import Votes, open_probes, open_votes

_TEXT_FILES_OPEN = 64
# The verdicts of a scorer are texts, and no array has them.
_SCORE_COLUMNS = [
    "question_id",
    *(column.name for column in spec_of("scores").columns if column.name != "verdict"),
]


class FileSource(Protocol):
    """Fetches files of a recording that are not in its folder yet."""

    def fetch(self, recording: Recording, path: str) -> None:
        """Fetch one file into the folder and check it."""

    def prepare(self, recording: Recording, dataset: str, llms: Sequence[str]) -> None:
        """Fetch what votes of some LLMs on a dataset need, and check it."""


@checked
def open_recording(path: str | Path, source: FileSource | None = None) -> Recording:
    """Open a recording folder.

    Args:
        path: the folder.
        source: fetches missing files; `None` where all should be there.

    Raises:
        NotARecordingError: the folder does not exist, holds no manifest, or the manifest is of
            something else.
        NewerFormatError: it has a format or a feature that this feval does not know.
        DamagedRecordingError: the manifest is not valid JSON, lacks a field, or does not agree with
            its own hash.
        StorageError: the manifest cannot be read.
    """
    folder = Path(path)
    return Recording(folder, read_manifest(folder), source)


class Recording(Browsable):
    """An immutable folder with the CoTs of some LLMs on some datasets.

    Every method raises `NotRecordedError` for a dataset, LLM, scorer or channel that the recording
    lacks, and `DamagedRecordingError` for a file that is missing, changed or malformed.

    Attributes:
        path: the folder.
        manifest: its manifest.
    """

    def __init__(self, path: Path, manifest: Manifest, source: FileSource | None = None) -> None:
        self.path = path
        self.manifest = manifest
        self._source = source
        self._votes: dict[str, Votes] = {}

    @cached_property
    def _tables(self) -> Callable[[str], parquet.Table]:
        return lru_cache(_TEXT_FILES_OPEN)(self._open_table)

    @cached_property
    def _parts(self) -> Callable[[str, str, str | None], parquet.PartTable]:
        return lru_cache(_TEXT_FILES_OPEN)(self._open_part)

    def files(self, part: str, dataset: str, llm: str | None = None) -> list[str]:
        """The paths of the files that hold a part of a dataset, or of an LLM on it, in their order:
        one, several, or none.
        """
        return file_paths(self.manifest.files, part, dataset, llm)

    @cached_property
    def address(self) -> str | None:
        """Its address and commit on the Hub; `None` where it was not fetched from there."""
        return origin(self.path)

    def prepare(self, dataset: str, llms: Sequence[str]) -> None:
        """Fetch, if the recording is on the Hub, what votes of some LLMs on a dataset need, and
        check it.
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
        """Raise a `NotRecordedError` that lists what there is if the recording lacks a dataset, or
        an LLM on it.
        """
        if dataset not in self.manifest.datasets:
            raise NotRecordedError(
                f"{self.path} holds no dataset {dataset!r}. It holds {self._contents()}."
            )
        if llm is not None and (dataset, llm) not in self.manifest.pairs:
            raise NotRecordedError(
                f"{self.path} holds no CoTs of {llm!r} on {dataset}. It holds {self._contents()}."
            )

    def votes(self, dataset: str) -> Votes:
        """The arrays that votes need, mapped and checked against the manifest."""
        if dataset not in self._votes:
            self.require(dataset)
            self._votes[dataset] = self._read_votes(dataset)
        return self._votes[dataset]

    def _read_votes(self, dataset: str) -> Votes:
        paths = self.votes_paths(dataset)
        for name in paths:
            self._have(name)
        (path, record), details = ((self.path / path, self.file_record(path)) for path in paths)
        votes = open_votes(path, record, details)
        if votes.dataset != dataset or set(votes.llms) != set(self.llm_names(dataset)):
            # the hash pins the bytes; a manifest made by hand may pin the wrong ones
            raise DamagedRecordingError(
                f"{path} is of other LLMs or another dataset than manifest.json says."
            )
        return votes

    def votes_paths(self, dataset: str) -> list[str]:
        """The paths of the votes of a dataset and of their details."""
        return [file_path(part, dataset) for part in ("votes", "details")]

    def dataset_info(self, dataset: str) -> DatasetInfo:
        """What the manifest says about a dataset."""
        self.require(dataset)
        record = self.manifest.datasets[dataset]
        return DatasetInfo(
            dataset,
            record["title"],
            record["answer_kind"],
            record["extractor"],
            record["system_prompt"],
            record["licence"],
            record["equality"]["name"] if record["equality"] else NORMAL_FORM,
        )

    def llm_info(self, llm: str) -> LLMInfo:
        """What the manifest says about an LLM."""
        record = self.manifest.llms[llm]
        return LLMInfo(llm, record["temperature"], record["max_tokens"], record["decoding"])

    def counter(self, dataset: str, llm: str) -> str:
        """The token counter of an LLM on a dataset."""
        self.require(dataset, llm)
        return str(self.manifest.pairs[dataset, llm]["counter"])

    def questions(self, dataset: str) -> list[Question]:
        """All questions of a dataset, with their golds, in recorded order."""
        return list(self.scan_questions(dataset))

    def scan_questions(self, dataset: str, rows: range | None = None) -> Iterator[Question]:
        """The questions of a dataset, as `questions` has them, or those of some rows, one row group
        in memory at a time.
        """
        part, hashes = self._part("questions", dataset), array("q")
        with self.shape(part.path):
            for question in parquet.questions_of_tables(part.groups(None, rows)):
                hashes.append(hash(question.id))
                yield question
            if len(np.unique(hashes)) < len(hashes):
                ids = {question.id for question in parquet.questions_of_tables(part.groups())}
                if len(ids) < len(hashes):
                    raise ValueError("a question id comes twice")

    def verdicts(self, dataset: str) -> dict[str, list[Verdict]]:
        """The recorded verdicts on which normal forms of a dataset's answers are equal, by question
        id.
        """
        return dict(self.scan_verdicts(dataset))

    def scan_verdicts(self, dataset: str) -> Iterator[tuple[str, list[Verdict]]]:
        """(question id, its verdicts), for the questions of a dataset that have any."""
        self.require(dataset)
        if self.files("equality", dataset):
            with self.shape(self.path / file_path("equality", dataset)):
                for question, columns in self.scan("equality", dataset):
                    names = (column.name for column in spec_of("equality").columns)
                    rows = zip(*(columns[name] for name in names), strict=True)
                    yield question, [Verdict(*row) for row in rows]

    def texts(self, dataset: str, llm: str, question: int) -> list[str | None]:
        """The recorded texts of one LLM on one question (by its row), in recorded order. Reads one
        row group.
        """
        return self._column("texts", "text", dataset, llm, question) or []

    def reasoning(self, dataset: str, llm: str, question: int) -> list[str | None] | None:
        """The recorded thoughts of one LLM on one question (by its row), in recorded order; `None`
        where there are none.
        """
        return self._column("reasoning", "reasoning", dataset, llm, question)

    def marks(self, dataset: str, llm: str, question: int) -> list[tuple[Mark, ...] | None] | None:
        """Where the thoughts of an LLM on one question (by its row) were in the raw texts; `None`
        where there are none.
        """
        marks = self._column("reasoning", "marks", dataset, llm, question)
        return marks and [own and tuple(Mark(**mark) for mark in own) for own in marks]

    def messages(self, dataset: str, llm: str, question: int) -> list[str | None] | None:
        """What each turn of one LLM on one question (by its row) replies to, `None` for no turn;
        `None` where there are none.
        """
        sent = self._column("turns", "messages", dataset, llm, question)
        if sent is None:
            return None
        with self.shape(self._part("turns", dataset, llm).path):
            return list(checked_messages(sent))

    def _column(
        self, part: str, name: str, dataset: str, llm: str, question: int
    ) -> list[Any] | None:
        if (dataset, llm, part) not in self.manifest.leaves:
            self.require(dataset, llm)
            return None
        own = self._part(part, dataset, llm)
        with self.shape(own.path):
            start, stop = self._starts(part, dataset, llm)[question : question + 2].tolist()
            return own.column(name, start, stop) if stop > start else None

    def reasoning_tokens(self, dataset: str, llm: str) -> dict[str, list[int | None]]:
        """Question id -> how many of each CoT's output tokens were thoughts; only questions for
        which the provider reports it.
        """
        rows = self.scan("samples", dataset, llm, ["question_id", "reasoning_tokens"])
        counts = ((question, values["reasoning_tokens"]) for question, values in rows)
        with self.shape(self._part("samples", dataset, llm).path):
            return {
                question: values
                for question, values in counts
                if any(count is not None for count in values)
            }

    def texts_near(self, dataset: str, llm: str, question: int) -> dict[int, list[str | None]]:
        """Row -> texts of a question (by its row) and all others in its row group: reading that one
        decodes them anyway.
        """
        part = self._part("texts", dataset, llm)
        with self.shape(part.path):
            starts = self._starts("texts", dataset, llm)
            if starts[question] == starts[question + 1]:
                return {question: []}
            column, first = part.group_at(int(starts[question]), "text")
            texts, end = column.to_pylist(), first + len(column)
            if starts[question + 1] > end:
                raise DamagedRecordingError(
                    f"{part.path} ends before the CoTs that the votes count."
                )
            rows = range(
                int(starts.searchsorted(first)), int(starts.searchsorted(end, "right")) - 1
            )
            return {row: texts[starts[row] - first : starts[row + 1] - first] for row in rows}

    def scan_texts(
        self, dataset: str, llm: str, rows: range | None = None
    ) -> Iterator[list[str | None]]:
        """The texts of one LLM on all or some questions of a dataset in recorded order, one row
        group at a time.
        """
        part = self._part("texts", dataset, llm)
        with self.shape(part.path):
            for table in part.groups(["text"], self._cut("texts", dataset, llm, rows)):
                yield table.column("text").to_pylist()

    def rows(self, part: str, dataset: str, llm: str) -> npt.NDArray[np.int64]:
        """The rows of the questions that a part of an LLM has, in its order."""
        rows, row_of = array("q"), self.votes(dataset).rows_in_order()
        own = self._part(part, dataset, llm)
        with self.shape(own.path):
            for question, _ in own.runs():
                if (row := row_of(question)) != (rows[-1] if rows else -1):
                    rows.append(row)
        return np.array(rows, np.int64)

    def channels(self, dataset: str, llm: str) -> list[str]:
        """The optional parts that an LLM has on a dataset, the keys of `content.CHANNELS`."""
        self.require(dataset, llm)
        return [part for part in CHANNELS if (dataset, llm, part) in self.manifest.leaves]

    def has_marks(self, dataset: str, llm: str) -> bool:
        """Whether thoughts were split off texts of an LLM on a dataset."""
        return "reasoning" in self.channels(dataset, llm) and any(
            any(columns.get("marks", ())) for _, columns in self.scan("reasoning", dataset, llm)
        )

    def require_part(self, part: str, dataset: str, llm: str) -> None:
        """Raise a `NotRecordedError` if an LLM on a dataset lacks a part."""
        self.require(dataset, llm)
        if (dataset, llm, part) not in self.manifest.leaves:
            names = self.scorers(dataset, llm)
            _, by, scorer = part.partition("/")
            spec = spec_of(part)
            what = spec.noun or spec.name
            whose = f" by {scorer!r}" if by else ""
            held = f"; it holds {what} by {', '.join(names)}" if by and names else ""
            raise NotRecordedError(
                f"{self.path} holds no {what} of {llm} on {dataset}{whose}{held}. {spec.advice}"
            )

    def lines(self, part: str, dataset: str, llm: str) -> Iterator[list[Any]]:
        """The lines in the leaf of a part of an LLM's pools. A pool without a CoT has a line and no
        rows; only the requests list it.
        """
        line, rows = spec_of(part).line, self.scan(part, dataset, llm)
        if part not in {"samples", "texts"}:
            yield from (line(*each) for each in rows)
            return
        own = parquet.Aligned(rows)
        for question, _ in self.scan("requests", dataset, llm, ["question_id"]):
            yield line(question, own.take(question))
        if own.next is not None:
            yield line(*own.next)

    def _arrays(
        self, part: str, dataset: str, llm: str, columns: list[str] | None = None
    ) -> dict[str, Any]:
        """The numbers of a part as arrays, as `parquet.arrays_of_tables` has them."""
        own, votes = self._part(part, dataset, llm), self.votes(dataset)
        shape = votes.llms[llm].codes.shape
        with self.shape(own.path):
            tables = own.groups(columns)
            return parquet.arrays_of_tables(part, tables, votes.question_ids, shape)

    def logprobs(self, dataset: str, llm: str) -> TokenLogprobs:
        """Log-probabilities of the tokens of an LLM's CoTs on a dataset, as arrays."""
        arrays = self._arrays("logprobs", dataset, llm)
        names = ("sequence_logprob", "token_confidences", "token_logprobs")
        return TokenLogprobs(*(arrays[name] for name in names))

    def part_record(self, part: str, dataset: str, llm: str) -> dict[str, Any]:
        """What the manifest says about some scores or probes of an LLM on a dataset."""
        self.require_part(part, dataset, llm)
        return self.manifest.keyed[dataset, llm, part]

    def given_by(self, part: str, dataset: str, llm: str) -> ScorerInfo | str | None:
        """The scorer of some scores; the cue of probes."""
        record = self.part_record(part, dataset, llm)
        return record["cue"] if part == PROBES else self.scorer_info(record["scorer"])

    def keyed_parts(self, dataset: str, llm: str) -> list[str]:
        """The scores and probes of an LLM on a dataset, as parts."""
        self.require(dataset, llm)
        return [part for *pair, part in self.manifest.keyed if pair == [dataset, llm]]

    def part_rows(
        self, part: str, dataset: str, llm: str, rows: range | None = None
    ) -> Iterator[Any]:
        """Some scores or probes of an LLM on all or some questions, question by question, as they
        were added.
        """
        self.require_part(part, dataset, llm)
        own = self._part(part, dataset, llm)
        with self.shape(own.path):
            columns = own.questions(None, self._cut(part, dataset, llm, rows))
            yield from parquet.rows_of_part(part, columns)

    def scorers(self, dataset: str, llm: str) -> list[str]:
        """Names of the scorers that scored an LLM on a dataset."""
        keyed = self.keyed_parts(dataset, llm)
        return [part.removeprefix(SCORES) for part in keyed if part.startswith(SCORES)]

    def scorer_info(self, scorer: str) -> ScorerInfo:
        """What the manifest says about a scorer."""
        record = next(record for record in self.manifest.raw["scorers"] if record["name"] == scorer)
        return ScorerInfo(scorer, record["kind"], record["parameters"])

    def scores(self, dataset: str, llm: str, scorer: str) -> Scores:
        """One scorer's scores of an LLM on a dataset, as arrays."""
        self.require_part(SCORES + scorer, dataset, llm)
        arrays = self._arrays(SCORES + scorer, dataset, llm, _SCORE_COLUMNS)
        return Scores(
            scorer=self.scorer_info(scorer),
            values=arrays["score"],
            scored=arrays["known"],
            steps=arrays["step_scores"],
            prompt_tokens=arrays["prompt_tokens"],
            output_tokens=arrays["output_tokens"],
        )

    def score_rows(
        self, dataset: str, llm: str, scorer: str, rows: range | None = None
    ) -> Iterator[ScoreRows]:
        """One scorer's scores of an LLM on all or some questions, with verdicts, question by
        question, as they were added.
        """
        return self.part_rows(SCORES + scorer, dataset, llm, rows)

    def has_probes(self, dataset: str, llm: str) -> bool:
        """Whether probes of an LLM's CoTs on a dataset were recorded."""
        return (dataset, llm, PROBES) in self.manifest.keyed

    def probes_record(self, dataset: str, llm: str) -> dict[str, Any]:
        """What the manifest says about the probes of an LLM on a dataset: cue, interval and
        counts.
        """
        return self.part_record(PROBES, dataset, llm)

    def probes(self, dataset: str, llm: str) -> Probes:
        """The probes of an LLM on a dataset, as arrays that are mapped and checked against manifest
        and votes.
        """
        record, votes = self.probes_record(dataset, llm), self.votes(dataset)
        self._have(path := file_path(PROBE_VOTES, dataset, llm))
        return open_probes(self.path / path, self.file_record(path), record["interval"], votes, llm)

    def probe_rows(self, dataset: str, llm: str, rows: range | None = None) -> Iterator[ProbeRows]:
        """The probes of an LLM on all or some questions, with raw answers and texts, question by
        question, as they were added.
        """
        return self.part_rows(PROBES, dataset, llm, rows)

    def has_steps(self, dataset: str, llm: str) -> bool:
        """Whether an LLM was recorded on a dataset as trees of steps, and not as whole CoTs."""
        return (dataset, llm, "steps") in self.manifest.leaves

    def steps(self, dataset: str, llm: str) -> Steps | None:
        """The steps that an LLM's pools on a dataset consist of, as arrays; `None` where they
        consist of whole CoTs.
        """
        self.require(dataset, llm)
        if not self.has_steps(dataset, llm):
            return None
        if (steps := self.votes(dataset).steps(llm)) is None:
            raise DamagedRecordingError(
                f"{self.path} was recorded with steps of {llm} on {dataset}, and its votes files"
                " have none; fetch or make the recording again."
            )
        return steps

    def prompts(self, dataset: str, llm: str) -> dict[str, str | None]:
        """Question id -> the request that was sent (a JSON array of messages); `None` where it is
        unknown.
        """
        return dict(self.scan_prompts(dataset, llm))

    def scan_prompts(
        self, dataset: str, llm: str, rows: range | None = None
    ) -> Iterator[tuple[str, str | None]]:
        """(question id, request as in `prompts`), of all or some questions in their order, one row
        group at a time.
        """
        part = self._part("requests", dataset, llm)
        with self.shape(part.path):
            for table in part.groups(
                ["question_id", "prompt"], self._cut("requests", dataset, llm, rows)
            ):
                yield from zip(
                    table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True
                )

    def pools(self, dataset: str, llm: str, rows: range | None = None) -> Iterator[PoolRows]:
        """Everything recorded of one LLM on a dataset, question by question; `rows` are those of
        some questions.
        """
        path = self._part("samples", dataset, llm).path
        with self.shape(path):
            requests, samples = (
                self.scan(part, dataset, llm, rows=rows) for part in ("requests", "samples")
            )
            texts = chain.from_iterable(self.scan_texts(dataset, llm, rows))
            channels = {
                part: self.scan(part, dataset, llm, rows=rows)
                for part in self.channels(dataset, llm)
            }
            yield from parquet.pools_of_rows(path, requests, samples, texts, channels)

    def scan(
        self,
        part: str,
        dataset: str,
        llm: str | None = None,
        columns: list[str] | None = None,
        *,
        rows: range | None = None,
    ) -> Iterator[tuple[str, dict[str, list[Any]]]]:
        """(question id, column -> values) of a part, question by question, one row group in memory
        at a time.

        `rows` are those of the questions, for a part of an LLM; `None` reads all.
        """
        place = self._part(part, dataset, llm)
        with self.shape(place.path):
            yield from place.questions(
                columns, None if llm is None else self._cut(part, dataset, llm, rows)
            )

    def named_llms(self, path: str) -> set[str]:
        """The LLMs named in the rows of a Parquet file."""
        with self.shape(self.path / path):
            groups = self._tables(path).groups(["llm"])
            return {name for table in groups for name in table.column("llm").unique().to_pylist()}

    def file_record(self, path: str) -> dict[str, Any]:
        """The manifest's record of a file: "sha256", "bytes", "rows"."""
        record = self.manifest.files.get(path)
        if record is None:
            raise DamagedRecordingError(
                f"{self.path}: manifest.json does not list {path}; fetch the recording again."
            )
        return record

    def _contents(self) -> str:
        parts = [
            f"{dataset}: {', '.join(self.llm_names(dataset)) or 'no LLM'}"
            for dataset in self.dataset_ids()
        ]
        return "; ".join(parts) or "nothing"

    def _have(self, path: str) -> None:
        """Fetch a file that is on the Hub, or say that it was not fetched. Other missing files fail
        when they are opened.
        """
        if self._source is not None:
            self._source.fetch(self, path)
        elif (self.path / path).exists():
            return
        elif path in self.manifest.files and self.address is not None:
            raise NotFetchedError(
                f"{path} of {self.address} was not fetched. `feval pull {self.address}` fetches all"
                " of it, and with --dataset and --llm a part."
            )

    def _open_table(self, path: str) -> parquet.Table:
        self._have(path)
        return parquet.Table(self.path / path, self.file_record(path))

    def _part(self, part: str, dataset: str, llm: str | None = None) -> parquet.PartTable:
        self.require(dataset, llm)
        if llm is not None and spec_of(part).is_optional:
            self.require_part(part, dataset, llm)
        return self._parts(part, dataset, llm)

    def _open_part(self, part: str, dataset: str, llm: str | None) -> parquet.PartTable:
        paths = self.files(part, dataset, llm) or [file_path(part, dataset, llm)]
        return parquet.PartTable(
            self.path, {path: self.file_record(path) for path in paths}, self._tables
        )

    def _starts(self, name: str, dataset: str, llm: str) -> npt.NDArray[np.int64]:
        """[Q + 1] first row of each question in a part of an LLM, and the number of rows."""
        part = self._part(name, dataset, llm)
        if part.starts is None:
            votes = self.votes(dataset)
            sizes = votes.llms[llm].sizes
            if name not in {"texts", "samples"}:  # others may lack CoTs
                sizes, row_of = np.zeros(len(votes), np.int64), votes.rows_in_order()
                for question, size in part.runs():
                    sizes[row_of(question)] += size
            part.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
            if part.starts[-1] != part.rows:
                raise DamagedRecordingError(
                    f"{part.path} has {part.rows} {name}, and the votes have {part.starts[-1]}"
                    " CoTs."
                )
        return part.starts

    def _cut(self, part: str, dataset: str, llm: str, rows: range | None) -> range | None:
        """The rows of some questions in a part."""
        if rows is None:
            return None
        starts = self._starts(part, dataset, llm)
        return range(int(starts[rows.start]), int(starts[rows.stop]))

    def shape(self, path: Path) -> AbstractContextManager[None]:
        """Turn any error of a block that reads a Parquet file into a `DamagedRecordingError`."""
        return parquet.readable(path)

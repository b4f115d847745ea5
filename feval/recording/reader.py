"""Read a recording: only what is asked for is read and checked.

Opening reads the manifest, `votes` maps one small file; the rest is read from Parquet on demand.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from feval import answers
from feval.arguments import checked
from feval.errors import DamagedRecordingError, NotFetchedError, NotRecordedError
from feval.lazy import Browsable
from feval.recording import parquet
from feval.recording.arrays import Probes, Scores, Steps, TokenLogprobs
from feval.recording.content import (
    VERDICT,
    DatasetInfo,
    LLMInfo,
    PoolRows,
    ProbeRows,
    Question,
    ScorerInfo,
    ScoreRows,
    checked_messages,
)
from feval.recording.layout.flat import Int64, starts_of
from feval.recording.layout.format import PROBE_VOTES, PROBES, SCORES, Part, Record, origin
from feval.recording.layout.manifest import Manifest, read_manifest
from feval.recording.parts import CHANNELS, SparseRows, has_value, spec_of
from feval.recording.votes import Votes, open_probes, open_votes

if TYPE_CHECKING:
    from feval.answers.equivalence import Verdict
    from feval.answers.thoughts import Mark

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
    def _tables(self) -> Callable[[str], parquet.reading.PartFile]:
        @lru_cache(_TEXT_FILES_OPEN)
        def table(path: str) -> parquet.reading.PartFile:
            self._have(path)
            return parquet.reading.PartFile(self.path / path, self.file_record(path))

        return table

    @cached_property
    def _parts(self) -> Callable[[Part], parquet.reading.PartTable]:
        @lru_cache(_TEXT_FILES_OPEN)
        def table(part: Part) -> parquet.reading.PartTable:
            paths = part.paths(self.manifest.files) or [part.path]
            records = {path: self.file_record(path) for path in paths}
            return parquet.reading.PartTable(self.path, records, self._tables)

        return table

    def files(self, part: str, dataset: str, llm: str | None = None) -> list[str]:
        """The paths of the files that hold a part of a dataset, or of an LLM on it, in their order:
        one, several, or none.
        """
        return Part(part, dataset, llm).paths(self.manifest.files)

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
            missing = f"dataset {dataset!r}"
        elif llm is not None and (dataset, llm) not in self.manifest.pairs:
            missing = f"CoTs of {llm!r} on {dataset}"
        else:
            return
        held = "; ".join(
            f"{each}: {', '.join(self.llm_names(each)) or 'no LLM'}" for each in self.dataset_ids()
        )
        raise NotRecordedError(f"{self.path} holds no {missing}. It holds {held or 'nothing'}.")

    def votes(self, dataset: str) -> Votes:
        """The arrays that votes need, mapped and checked against the manifest."""
        if dataset not in self._votes:
            self.require(dataset)
            paths = self.votes_paths(dataset)
            for name in paths:
                self._have(name)
            (path, record), details = ((self.path / each, self.file_record(each)) for each in paths)
            votes = open_votes(path, record, details)
            if votes.dataset != dataset or set(votes.llms) != set(self.llm_names(dataset)):
                # the hash pins the bytes; a manifest made by hand may pin the wrong ones
                raise DamagedRecordingError(
                    f"{path} is of other LLMs or another dataset than manifest.json says."
                )
            self._votes[dataset] = votes
        return self._votes[dataset]

    def votes_paths(self, dataset: str) -> list[str]:
        """The paths of the votes of a dataset and of their details."""
        return [Part(name, dataset).path for name in ("votes", "details")]

    def dataset_info(self, dataset: str) -> DatasetInfo:
        """What the manifest says about a dataset."""
        self.require(dataset)
        record = self.manifest.datasets[dataset]
        names = ("title", "answer_kind", "extractor", "system_prompt", "licence")
        equality = record["equality"]["name"] if record["equality"] else answers.NORMAL_FORM
        own = {name: record[name] for name in names}
        return DatasetInfo(dataset, **own, equality=equality)

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
        hashes = array("q")
        with self._reading(Part("questions", dataset)) as own:
            for question in parquet.reading.questions_of_tables(own.groups(None, rows)):
                hashes.append(hash(question.id))
                yield question
            if len(np.unique(hashes)) < len(hashes):
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
            with self._reading(Part("equality", dataset)) as own:
                for question, columns in own.questions():
                    names = (column.name for column in spec_of("equality").columns)
                    rows = zip(*(columns[name] for name in names), strict=True)
                    yield question, [answers.equivalence.Verdict(*row) for row in rows]

    def texts(self, dataset: str, llm: str, question: int) -> list[str | None]:
        """The recorded texts of one LLM on one question (by its row), in recorded order. Reads one
        row group.
        """
        return self._column(Part("texts", dataset, llm), "text", question) or []

    def reasoning(self, dataset: str, llm: str, question: int) -> list[str | None] | None:
        """The recorded thoughts of one LLM on one question (by its row), in recorded order; `None`
        where there are none.
        """
        return self._column(Part("reasoning", dataset, llm), "reasoning", question)

    def tool_calls(self, dataset: str, llm: str, question: int) -> list[str | None] | None:
        """The tools that each CoT of one LLM on one question (by its row) calls: a JSON array of
        objects with id, name and arguments; `None` where it calls none.
        """
        return self._column(Part("calls", dataset, llm), "tool_calls", question)

    def marks(self, dataset: str, llm: str, question: int) -> list[tuple[Mark, ...] | None] | None:
        """Where the thoughts of an LLM on one question (by its row) were in the raw texts; `None`
        where there are none.
        """
        marks = self._column(Part("reasoning", dataset, llm), "marks", question)
        mark = answers.thoughts.Mark
        return marks and [own and tuple(mark(**each) for each in own) for own in marks]

    def messages(self, dataset: str, llm: str, question: int) -> list[str | None] | None:
        """What each turn of one LLM on one question (by its row) replies to, `None` for no turn;
        `None` where there are none.
        """
        part = Part("turns", dataset, llm)
        sent = self._column(part, "messages", question)
        if sent is None:
            return None
        with self._reading(part):
            return list(checked_messages(sent))

    def _column(self, part: Part, name: str, question: int) -> list[Any] | None:
        if part not in self.manifest.leaves:
            self.require(part.dataset, part.llm)
            return None
        with self._reading(part) as own:
            start, stop = self._starts(part)[question : question + 2].tolist()
            return own.column(name, start, stop) if stop > start else None

    def reasoning_tokens(self, dataset: str, llm: str) -> dict[str, list[int | None]]:
        """Question id -> how many of each CoT's output tokens were thoughts; only questions for
        which the provider reports it.
        """
        name = "reasoning_tokens"
        with self._reading(Part("samples", dataset, llm)) as own:
            return {
                question: values[name]
                for question, values in own.questions(["question_id", name])
                if has_value(values[name])
            }

    def texts_near(self, dataset: str, llm: str, question: int) -> dict[int, list[str | None]]:
        """Row -> texts of a question (by its row) and all others in its row group: reading that one
        decodes them anyway.
        """
        part = Part("texts", dataset, llm)
        with self._reading(part) as own:
            starts = self._starts(part)
            if starts[question] == starts[question + 1]:
                return {question: []}
            table, first = own.group_at(int(starts[question]), ["text"])
            texts, end = table.column("text").to_pylist(), first + len(table)
            if starts[question + 1] > end:
                raise DamagedRecordingError(
                    f"{own.path} ends before the CoTs that the votes count."
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
        part = Part("texts", dataset, llm)
        with self._reading(part) as own:
            for table in own.groups(["text"], self._cut(part, rows)):
                yield table.column("text").to_pylist()

    def rows(self, part: Part) -> Int64:
        """The rows of the questions that a part of an LLM has, in its order."""
        rows, row_of = array("q"), self.votes(part.dataset).rows_in_order()
        with self._reading(part) as own:
            for question, _ in own.runs():
                if (row := row_of(question)) != (rows[-1] if rows else -1):
                    rows.append(row)
        return np.array(rows, np.int64)

    def channels(self, dataset: str, llm: str) -> list[str]:
        """The optional parts that an LLM has on a dataset, the keys of `content.CHANNELS`."""
        self.require(dataset, llm)
        return [name for name in CHANNELS if Part(name, dataset, llm) in self.manifest.leaves]

    def has_marks(self, dataset: str, llm: str) -> bool:
        """Whether thoughts were split off texts of an LLM on a dataset."""
        return "reasoning" in self.channels(dataset, llm) and any(
            any(columns.get("marks", ())) for _, columns in self.scan("reasoning", dataset, llm)
        )

    def require_part(self, part: Part) -> None:
        """Raise a `NotRecordedError` if an LLM on a dataset lacks a part."""
        name, dataset, llm = part
        self.require(dataset, llm)
        if part not in self.manifest.leaves:
            names = self.scorers(dataset, str(llm))
            _, by, scorer = name.partition("/")
            spec = spec_of(name)
            what = spec.noun or spec.name
            whose = f" by {scorer!r}" if by else ""
            held = f"; it holds {what} by {', '.join(names)}" if by and names else ""
            raise NotRecordedError(
                f"{self.path} holds no {what} of {llm} on {dataset}{whose}{held}. {spec.advice}"
            )

    def lines(self, part: Part) -> Iterator[list[Any]]:
        """The lines in the leaf of a part of an LLM's pools. A pool without a CoT has a line and no
        rows; only the requests list it.
        """
        line, rows = spec_of(part.name).line, self.scan(*part)
        if part.name not in {"samples", "texts"}:
            yield from (line(*each) for each in rows)
            return
        own = SparseRows(rows, {})
        for question, _ in self.scan("requests", *part[1:], ["question_id"]):
            yield line(question, own.take(question))
        if own.next is not None:
            yield line(*own.next)

    def _arrays(self, part: Part, columns: list[str] | None = None) -> Record:
        """The numbers of a part as arrays, as `parquet.reading.arrays_of_tables` has them."""
        self.require_part(part)
        votes = self.votes(part.dataset)
        shape = votes.llms[str(part.llm)].codes.shape
        with self._reading(part) as own:
            tables = own.groups(columns)
            return parquet.reading.arrays_of_tables(part.name, tables, votes.question_ids, shape)

    def logprobs(self, dataset: str, llm: str) -> TokenLogprobs:
        """Log-probabilities of the tokens of an LLM's CoTs on a dataset, as arrays."""
        arrays = self._arrays(Part("logprobs", dataset, llm))
        names = ("sequence_logprob", "token_confidences", "token_logprobs")
        return TokenLogprobs(*(arrays[name] for name in names))

    def part_record(self, part: Part) -> Record:
        """What the manifest says about some scores or probes of an LLM on a dataset."""
        self.require_part(part)
        return self.manifest.keyed[part]

    def given_by(self, part: Part) -> ScorerInfo | str | None:
        """The scorer of some scores; the cue of probes."""
        record = self.part_record(part)
        return record["cue"] if part.name == PROBES else self.scorer_info(record["scorer"])

    def keyed_parts(self, dataset: str, llm: str) -> list[Part]:
        """The scores and probes of an LLM on a dataset."""
        self.require(dataset, llm)
        return [part for part in self.manifest.keyed if part[1:] == (dataset, llm)]

    def part_rows(self, part: Part, rows: range | None = None) -> Iterator[Any]:
        """Some scores or probes of an LLM on all or some questions, question by question, as they
        were added.
        """
        self.require_part(part)
        with self._reading(part) as own:
            columns = own.questions(None, self._cut(part, rows))
            yield from parquet.reading.rows_of_part(part.name, columns)

    def scorers(self, dataset: str, llm: str, *, graders: bool = True) -> list[str]:
        """Names of the scorers that scored an LLM on a dataset, with or without `graders`."""
        keyed = self.keyed_parts(dataset, llm)
        names = [part.name.removeprefix(SCORES) for part in keyed if part.name != PROBES]
        return [n for n in names if graders or self.scorer_info(n).kind != VERDICT]

    def graders(self, dataset: str, llm: str) -> list[str]:
        """Names of those of the scorers whose scores are verdicts: how right each CoT is."""
        others = self.scorers(dataset, llm, graders=False)
        return [name for name in self.scorers(dataset, llm) if name not in others]

    def scorer_info(self, scorer: str) -> ScorerInfo:
        """What the manifest says about a scorer."""
        record = next(record for record in self.manifest.raw["scorers"] if record["name"] == scorer)
        return ScorerInfo(scorer, record["kind"], record["parameters"])

    def unpaid(self, dataset: str, llm: str) -> int:
        """How many CoTs of an LLM state no USD."""
        with self._reading(Part("samples", dataset, llm)) as table:
            groups = table.groups(["usd"])
            known = sum(len(own) - own.null_count for group in groups for own in group.columns)
            return int(table.rows - known)

    def scores(self, dataset: str, llm: str, scorer: str) -> Scores:
        """One scorer's scores of an LLM on a dataset, as arrays."""
        arrays = self._arrays(Part(SCORES + scorer, dataset, llm), _SCORE_COLUMNS)
        names = ("score", "known", "step_scores", "prompt_tokens", "output_tokens")
        return Scores(self.scorer_info(scorer), *(arrays[name] for name in names))

    def score_rows(
        self, dataset: str, llm: str, scorer: str, rows: range | None = None
    ) -> Iterator[ScoreRows]:
        """One scorer's scores of an LLM on all or some questions, with verdicts, question by
        question, as they were added.
        """
        return self.part_rows(Part(SCORES + scorer, dataset, llm), rows)

    def has_probes(self, dataset: str, llm: str) -> bool:
        """Whether probes of an LLM's CoTs on a dataset were recorded."""
        return Part(PROBES, dataset, llm) in self.manifest.keyed

    def probes_record(self, dataset: str, llm: str) -> Record:
        """What the manifest says about the probes of an LLM on a dataset: cue, interval and
        counts.
        """
        return self.part_record(Part(PROBES, dataset, llm))

    def probes(self, dataset: str, llm: str) -> Probes:
        """The probes of an LLM on a dataset, as arrays that are mapped and checked against manifest
        and votes.
        """
        record, votes = self.probes_record(dataset, llm), self.votes(dataset)
        self._have(path := Part(PROBE_VOTES, dataset, llm).path)
        return open_probes(self.path / path, self.file_record(path), record["interval"], votes, llm)

    def probe_rows(self, dataset: str, llm: str, rows: range | None = None) -> Iterator[ProbeRows]:
        """The probes of an LLM on all or some questions, with raw answers and texts, question by
        question, as they were added.
        """
        return self.part_rows(Part(PROBES, dataset, llm), rows)

    def has_steps(self, dataset: str, llm: str) -> bool:
        """Whether an LLM was recorded on a dataset as trees of steps, and not as whole CoTs."""
        return Part("steps", dataset, llm) in self.manifest.leaves

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
        part = Part("requests", dataset, llm)
        with self._reading(part) as own:
            for table in own.groups(["question_id", "prompt"], self._cut(part, rows)):
                yield from zip(
                    table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True
                )

    def pools(self, dataset: str, llm: str, rows: range | None = None) -> Iterator[PoolRows]:
        """Everything recorded of one LLM on a dataset, question by question; `rows` are those of
        some questions.
        """
        with self._reading(Part("samples", dataset, llm)) as own:
            requests, *parts = (
                (part, self.scan(part, dataset, llm, rows=rows))
                for part in ("requests", "samples", *self.channels(dataset, llm))
            )
            texts = chain.from_iterable(self.scan_texts(dataset, llm, rows))
            yield from parquet.reading.pools_of_rows(own.path, requests[1], texts, dict(parts))

    def scan(
        self,
        part: str,
        dataset: str,
        llm: str | None = None,
        columns: list[str] | None = None,
        *,
        rows: range | None = None,
    ) -> parquet.reading.Rows:
        """(question id, column -> values) of a part, question by question, one row group in memory
        at a time.

        `rows` are those of the questions, for a part of an LLM; `None` reads all.
        """
        key = Part(part, dataset, llm)
        with self._reading(key) as own:
            yield from own.questions(columns, self._cut(key, rows))

    def named_llms(self, path: str) -> set[str]:
        """The LLMs named in the rows of a Parquet file."""
        with parquet.reading.readable(self.path / path):
            groups = self._tables(path).groups(["llm"])
            return {name for table in groups for name in table.column("llm").unique().to_pylist()}

    def file_record(self, path: str) -> Record:
        """The manifest's record of a file: "sha256", "bytes", "rows"."""
        record = self.manifest.files.get(path)
        if record is None:
            raise DamagedRecordingError(
                f"{self.path}: manifest.json does not list {path}; fetch the recording again."
            )
        return record

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
                " of it, or one dataset or LLM."
            )

    @contextmanager
    def _reading(self, part: Part) -> Iterator[parquet.reading.PartTable]:
        """A part of an LLM, or of a dataset, for a block that reads it: any error there is a
        `DamagedRecordingError`.
        """
        self.require(part.dataset, part.llm)
        if spec_of(part.name).is_optional:
            self.require_part(part)
        own = self._parts(part)
        with parquet.reading.readable(own.path):
            yield own

    def _starts(self, part: Part) -> Int64:
        """[Q + 1] first row of each question in a part of an LLM, and the number of rows."""
        own = self._parts(part)
        if own.starts is None:
            votes = self.votes(part.dataset)
            sizes = votes.llms[str(part.llm)].sizes
            if part.name not in {"texts", "samples"}:  # others may lack CoTs
                sizes, row_of = np.zeros(len(votes), np.int64), votes.rows_in_order()
                for question, size in own.runs():
                    sizes[row_of(question)] += size
            own.starts = starts_of(sizes)
            if own.starts[-1] != own.rows:
                raise DamagedRecordingError(
                    f"{own.path} has {own.rows} {part.name}, and the votes have {own.starts[-1]}"
                    " CoTs."
                )
        return own.starts

    def _cut(self, part: Part, rows: range | None) -> range | None:
        """The rows of some questions in a part."""
        if rows is None:
            return None
        starts = self._starts(part)
        return range(int(starts[rows.start]), int(starts[rows.stop]))


def recorded_on(
    recording: Recording, dataset: str, llm: str, rows: range
) -> Iterator[tuple[PoolRows | None, dict[str, ScoreRows | None], ProbeRows | None]]:
    """Yield what was recorded of an LLM on some questions: its CoTs, scores by scorer, and probes;
    `None` where a question lacks them.
    """

    def along(items: Iterable[Any]) -> SparseRows[Any]:
        return SparseRows(((item.question_id, item) for item in items), None)

    pools = along(recording.pools(dataset, llm, rows))
    probed = recording.has_probes(dataset, llm)
    probes = along(recording.probe_rows(dataset, llm, rows) if probed else ())
    scores = {
        name: along(recording.score_rows(dataset, llm, name, rows))
        for name in recording.scorers(dataset, llm)
    }
    ids = recording.votes(dataset).question_ids
    for question in map(ids.__getitem__, rows):
        scored = {name: own.take(question) for name, own in scores.items()}
        yield pools.take(question), scored, probes.take(question)


def pairs_of(
    recording: Recording, datasets: Collection[str] | None, llms: Collection[str] | None
) -> list[tuple[str, str]]:
    """Return the pairs of dataset and LLM that were chosen of a recording; `None` for all."""
    for dataset in datasets or ():
        recording.require(dataset)
    pairs = [pair for pair in recording.manifest.pairs if datasets is None or pair[0] in datasets]
    known = {llm for _, llm in pairs}
    for llm in llms or ():
        if llm not in known:
            raise NotRecordedError(
                f"{recording.path} holds no CoTs of {llm!r} there. It holds"
                f" {', '.join(sorted(known)) or 'none'}."
            )
    pairs = [pair for pair in pairs if llms is None or pair[1] in llms]
    if not pairs:
        raise NotRecordedError(f"{recording.path} holds no CoTs of any LLM there.")
    return pairs

"""Grade the final answers of a run that was served: accuracy, and the cost of the CoTs in its
ledger.

The ledger is that of a running application, a file of `feval serve --ledger`, or a saved GET
/feval/ledger?detail=1.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from feval.cards import price_ids
from feval.cards.prices import GENAI
from feval.cards.reading import parse_json, read_regular
from feval.errors import ConflictError, UnknownNameError, UsageError
from feval.estimators.arrays import Result
from feval.evaluation.requests import Consumption
from feval.receipts import receipt
from feval.receipts.grading import Grade, answers_by_id, grade_answers
from feval.replay import load
from feval.report.tables.tables import text_of_cell
from feval.serving.ledger import Example, HandoutRecord, LedgerFile, read_ledger as read_lines
from feval.serving.prompts import PromptCounts, prompt_remarks
from feval.serving.runs import run_name
from feval.values import Record, RecordLike

if TYPE_CHECKING:
    from feval.recording import Recording
    from feval.replay import LLM, Dataset


class RunGrade(Result):
    """The grade of a run, with its dataset, its LLMs, and what it put around the questions (see
    `Application.ledger`).
    """

    grade: Grade
    dataset: Dataset
    llms: Sequence[LLM]
    prompts: Sequence[RecordLike] = ()

    def remarks(self) -> list[str]:
        """Return what a reader of the accuracy must know, as sentences."""
        return [*self.grade.remarks(), *prompt_remarks(self.prompts)]

    def result(self) -> Record:
        """Return the numbers, and the prompts of the run, as JSON values."""
        return self.grade.to_dict() | {"prompts": list(self.prompts)}

    def receipt(self, folder: Path | None = None) -> Record:
        """Return what the numbers are computed from; `feval verify` computes them again.

        Args:
            folder: where the receipt will be stored, from which paths of recordings are relative;
                `None`: the working directory.
        """
        return receipt(
            self.grade.request(), self.grade.to_dict(), self.dataset, self.llms, folder or Path()
        )

    def to_dict(self) -> Record:
        """Return what POST /feval/grade replies."""
        return {"grade": self.result(), "remarks": self.remarks(), "receipt": self.receipt()}


def grade_run(
    ledger: RecordLike,
    find: Callable[[str, list[str]], tuple[Dataset, list[LLM]]],
    answers: object,
    dataset: str | None,
) -> RunGrade:
    """Grade a run by its ledger with details; `find` opens the LLMs of these names on a dataset."""
    run, entries = ledger["run"], ledger["asked"]
    datasets = list(dict.fromkeys(entry["dataset"] for entry in entries))
    if not datasets:
        raise UsageError(f"The run {run!r} was handed nothing, so there is nothing to grade.")
    if dataset is not None and dataset not in datasets:
        raise UnknownNameError.among(
            f"dataset that the run {run!r} asked about, called", dataset, datasets
        )
    if dataset is None and len(datasets) > 1:
        raise UsageError(
            f"The run {run!r} asked about {len(datasets)} datasets, {', '.join(datasets)}. Name"
            " one; each is graded separately."
        )
    dataset = dataset or datasets[0]
    entries = [entry for entry in entries if entry["dataset"] == dataset]
    opened, llms = find(dataset, list(dict.fromkeys(entry["llm"] for entry in entries)))
    names = Consumption.model_fields
    consumed = [
        Consumption(**{name: entry[name] for name in names if name in entry}) for entry in entries
    ]
    grade = grade_answers(
        opened,
        llms,
        consumed,
        answers_by_id(opened, answers),
        run=run,
        replicate=ledger["replicate"],
    )
    prompts = [use for use in ledger.get("prompts", ()) if use["dataset"] == opened.id]
    return RunGrade(grade, opened, llms, prompts)


class SavedLedger(BaseModel, strict=True):
    """A ledger read from a file. `runs` holds the ledger of each run, with details."""

    path: Path
    recordings: Annotated[list[str], Field(min_length=1)]
    seed: int
    billing: str
    prices: str
    runs: Record

    def run(self, name: str | None) -> RecordLike:
        """Return the ledger of a run, for `None` that of the only one; `UnknownNameError` or
        `UsageError` without such a run.
        """
        names = list(self.runs)
        if name is not None and name not in names:
            raise UnknownNameError.among(f"run in {self.path} called", name, names)
        if name is None and len(names) != 1:
            shown = ", ".join(names[:10]) + ", ..." * (len(names) > 10) or "nothing"
            raise UsageError(f"{self.path} has {len(names)} runs: {shown}. Name one with --run.")
        ledger: RecordLike = self.runs[name or names[0]]
        return ledger


def grade_saved(
    saved: SavedLedger,
    run: str | None,
    answers: object,
    recordings: Sequence[Recording],
    *,
    dataset: str | None = None,
    prices: str | Path | None = None,
    right: str | None = None,
) -> RunGrade:
    """Grade the answers of a run whose ledger was saved, with the ledger's price list unless
    another is named. `right` says which CoTs are right, as for `load`.

    Raises:
        ConflictError: other recordings were served, or a question has two answers.
        UnknownNameError: no such run, or the run did not ask about that dataset.
        UsageError: the run, the dataset or the price list is not clear, or the answers are not
            valid.
        NotRecordedError: the ledger names CoTs that were not recorded.
    """
    ledger = saved.run(run)
    by_hash = {recording.hash: recording for recording in recordings}
    for digest in saved.recordings:
        if digest not in by_hash:
            hashes = (
                ", ".join(f"{r.path} has {r.hash[:16]}" for r in recordings) or "none was given"
            )
            raise ConflictError(
                f"{saved.path} was made with a recording of hash {digest[:16]}; {hashes}. Give that"
                " recording with --recording."
            )
    # it may be a path, and a ledger opens no file
    if prices is None and not (
        saved.prices.startswith(GENAI) or saved.prices.split(" ")[0] in ("none", *price_ids())
    ):
        raise UsageError(
            f"{saved.path} was made with a price list {saved.prices!r}, which has no card. Give it"
            " with --prices."
        )
    find = partial(
        load,
        recording=[by_hash[digest] for digest in saved.recordings],
        seed=saved.seed,
        prices=saved.prices if prices is None else prices,
        billing=saved.billing,
        right=right,
    )
    return grade_run(ledger, find, answers, dataset)


def read_ledger(path: Path) -> SavedLedger:
    """Read a ledger file, or a saved GET /feval/ledger?detail=1 (of all runs, or of one with
    &run=NAME).

    Raises:
        UsageError: the file cannot be read, or is neither.
        SourceError: the file is a damaged ledger.
    """
    text, first = read_text(path), None
    with suppress(ValueError, RecursionError):
        first = json.loads(text.partition("\n")[0])
    head: RecordLike
    runs: Any
    if isinstance(first, dict) and LedgerFile.HEADER in first:
        head, entries = read_lines(path)
        runs = _joined(head, entries)
    else:
        try:
            head = parse_json(text)
            runs = head.get("runs", [head]) if isinstance(head, dict) else None
            _RUNS.validate_python(runs)
        except ValueError as error:  # pydantic's, too
            raise UsageError(
                f"{path} is not a ledger with details. Give a file of `feval serve --ledger`, or"
                " save GET /feval/ledger?detail=1."
            ) from error
    try:
        read = {"path": path, "runs": {each["run"]: each for each in runs}}
        return SavedLedger.model_validate({**head, **read})
    except ValidationError as error:
        raise UsageError(
            f"{path} does not say what was served: recordings, seed, billing and prices. Save the"
            " ledger again."
        ) from error


class _QuestionRecord(HandoutRecord):
    requests: int


class _Prompt(BaseModel, strict=True):
    dataset: str
    template: str | None
    requests: int
    matches: dict[str, int]
    mismatches: dict[str, int]
    example: Example


class _Run(BaseModel, strict=True):
    run: str
    replicate: Annotated[int, Field(ge=0)] | None
    asked: list[_QuestionRecord]
    prompts: list[_Prompt] = []


_RUNS = TypeAdapter(list[_Run])


def _joined(header: RecordLike, entries: Iterable[RecordLike]) -> list[Record]:
    """Join the requests of a ledger file to the ledgers of its runs, by dataset, LLM and
    question.
    """
    asked: dict[str, dict[tuple[str, ...], Record]] = {}
    templates: defaultdict[str, PromptCounts] = defaultdict(PromptCounts)
    for entry in entries:
        run = entry["run"]
        if entry.get("reset"):
            asked.pop(run, None)
            templates.pop(run, None)
            continue
        place = {name: entry[name] for name in ("dataset", "llm", "question")}
        question = asked.setdefault(run, {}).setdefault(
            tuple(place.values()), place | {"requests": 0, "samples": [], "passes": 1}
        )
        question["requests"] += 1
        tokens = entry.get("tokens")
        if tokens is not None or "tokens" in question:
            before = question.get("tokens", [None] * len(question["samples"]))
            question["tokens"] = before + (tokens or [None] * len(entry["samples"]))
        question["samples"] += entry["samples"]
        question["passes"] = max(question["passes"], entry.get("pass", 1))
        templates[run].count_entry(entry)
    order = str(header.get("order"))
    return [
        {
            "run": run,
            "replicate": run_name(run, order).replicate,
            "asked": list(questions.values()),
            "prompts": templates[run].to_list(),
        }
        for run, questions in asked.items()
    ]


_MAX_BYTES = 256 << 20
_QUESTION = ("question", "question_id", "id")


def read_answers(path: Path) -> object:
    """Read answers as `feval.receipts.grading.answers_by_id` takes them: .jsonl (or .ndjson), .csv,
    else JSON.

    Each answer has "question" (or "question_id", or "id") and "answer"; an empty cell of a .csv is
    no answer.

    Raises:
        UsageError: the file cannot be read, or does not have that form.
    """
    text = read_text(path)
    ending = path.suffix.lower()
    if ending == ".csv":
        return _rows(path, text)
    if ending in {".jsonl", ".ndjson"}:
        lines = enumerate(text.split("\n"), start=1)
        return [_parsed(line, f"Line {number} of {path}") for number, line in lines if line.strip()]
    return _parsed(text, str(path))


def read_text(path: Path) -> str:
    """Read a file of UTF-8; `UsageError` if it cannot be read."""
    try:
        text = read_regular(path, _MAX_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parsed(text: str, where: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        advice = "Files of JSON Lines end in .jsonl, files of comma-separated values in .csv."
        raise UsageError(f"{where} is not valid JSON: {error}. {advice}") from error


def _rows(path: Path, text: str) -> list[Record]:
    try:
        table = csv.DictReader(io.StringIO(text), strict=True)
        rows = list(table)
        columns = table.fieldnames or ()
    except csv.Error as error:
        raise UsageError(f"{path} is not a table of comma-separated values: {error}.") from error
    ids = [name for name in _QUESTION if name in columns]
    if len(ids) != 1 or "answer" not in columns:
        shown = ", ".join(columns) or "none"
        raise UsageError(
            f"{path} needs the columns 'question' (ids or texts) and 'answer'; it has {shown:.400}."
        )
    return [
        {"question": text_of_cell(row[ids[0]] or ""), "answer": row["answer"] or None}
        for row in rows
    ]

"""Grade the final answers of a run that was served: accuracy, and the cost of the CoTs in its
ledger.

The ledger is that of a running application, a file of `feval serve --ledger`, or a saved GET
/feval/ledger?detail=1.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from feval.cards.cards import price_ids
from feval.cards.reading import parse_json, read_regular
from feval.errors import ConflictError, UnknownNameError, UsageError
from feval.evaluation.requests import Consumption
from feval.receipts.document import receipt
from feval.receipts.grading import Grade, answers_by_id, grade_answers
from feval.replay.loading import load
from feval.report.tables.tables import text_of_cell
from feval.serving.ledger import Example, Handed, LedgerFile
from feval.serving.ledger import read_ledger as read_lines
from feval.serving.prompts import PromptCounts, prompt_remarks
from feval.serving.runs import count_entry, run_name
from feval.serving.wire import RequestError

if TYPE_CHECKING:
    from feval.recording import Recording
    from feval.replay import LLM, Dataset
    from feval.serving.library import Library


@dataclass(frozen=True, eq=False)
class Graded:
    """The grade of a run, with its dataset, its LLMs, and what it put around the questions (see
    `Application.ledger`).
    """

    grade: Grade
    dataset: Dataset
    llms: Sequence[LLM]
    prompts: Sequence[Mapping[str, Any]] = ()

    def remarks(self) -> list[str]:
        """Return what a reader of the accuracy must know, as sentences."""
        return [*self.grade.remarks(), *prompt_remarks(self.prompts)]

    def result(self) -> dict[str, Any]:
        """Return the numbers, and the prompts of the run, as JSON values."""
        return self.grade.to_dict() | {"prompts": list(self.prompts)}

    def receipt(self, folder: Path | None = None) -> dict[str, Any]:
        """Return what the numbers are computed from; `feval verify` computes them again.

        Args:
            folder: where the receipt will be stored, from which paths of recordings are relative;
                `None`: the working directory.
        """
        return receipt(self.grade.request(), self.grade, self.dataset, self.llms, folder or Path())

    def to_dict(self) -> dict[str, Any]:
        """Return what POST /feval/grade replies."""
        return {"grade": self.result(), "remarks": self.remarks(), "receipt": self.receipt()}


def grade_run(
    ledger: Mapping[str, Any], library: Library, answers: object, *, dataset: str | None = None
) -> Graded:
    """Grade the answers of a run that is served now, by its ledger with details; see
    `feval.serving.grade`.
    """
    run = ledger["run"]
    entries = _of_dataset(ledger["asked"], run, dataset)
    dataset_id = entries[0]["dataset"]
    by_name = {llm.name: llm for llm in library.llms if llm.dataset == dataset_id}
    llms = [by_name[name] for name in dict.fromkeys(entry["llm"] for entry in entries)]
    return _graded(
        library.datasets[dataset_id],
        llms,
        entries,
        answers,
        run,
        ledger["replicate"],
        ledger["prompts"],
    )


def grade_posted(
    body: bytes, ledger: Callable[[str | None], Mapping[str, Any]], library: Library
) -> dict[str, Any]:
    """Grade what was posted to /feval/grade: {"answers": ..., "run": NAME, "dataset": ID}, the last
    two if needed.

    `ledger` returns the ledger of a run by its name, and that of the request's own run for `None`.

    Raises:
        RequestError: the body is not valid, or its answers cannot be graded.
        NotRecordedError: the run has asked nothing.
    """
    try:
        fields = parse_json(body)
    except ValueError as error:
        raise RequestError(
            f"The body is not valid JSON: {error}. Post an object with `answers`.",
            code="invalid_json",
        ) from error
    if not isinstance(fields, dict) or "answers" not in fields:
        raise RequestError(
            "The body lacks `answers`: an object from question to answer.", parameter="answers"
        )
    for name in ("run", "dataset"):
        if not isinstance(fields.get(name), (str, type(None))):
            raise RequestError(f"`{name}` must be a name, as text.", parameter=name)
    try:
        graded = grade_run(
            ledger(fields.get("run")), library, fields["answers"], dataset=fields.get("dataset")
        )
    except (UsageError, ConflictError) as error:
        raise RequestError(str(error), parameter="answers") from error
    return graded.to_dict()


def _graded(
    dataset: Dataset,
    llms: Sequence[LLM],
    entries: Sequence[Mapping[str, Any]],
    answers: object,
    run: str,
    replicate: int | None,
    prompts: Sequence[Mapping[str, Any]],
) -> Graded:
    names = Consumption.model_fields
    consumed = [
        Consumption(**{name: entry[name] for name in names if name in entry}) for entry in entries
    ]
    grade = grade_answers(
        dataset, llms, consumed, answers_by_id(dataset, answers), run=run, replicate=replicate
    )
    return Graded(grade, dataset, llms, [use for use in prompts if use["dataset"] == dataset.id])


def _of_dataset(
    entries: Sequence[Mapping[str, Any]], run: str, dataset: str | None
) -> list[Mapping[str, Any]]:
    """The entries of one dataset: the one that was named, or else the only one."""
    datasets = list(dict.fromkeys(entry["dataset"] for entry in entries))
    if not datasets:
        raise UsageError(f"The run {run!r} was handed nothing, so there is nothing to grade.")
    if dataset is not None and dataset not in datasets:
        raise UnknownNameError.of(
            f"dataset that the run {run!r} asked about, called", dataset, datasets
        )
    if dataset is None and len(datasets) > 1:
        raise UsageError(
            f"The run {run!r} asked about {len(datasets)} datasets, {', '.join(datasets)}. Name"
            " one; each is graded separately."
        )
    return [entry for entry in entries if entry["dataset"] == (dataset or datasets[0])]


@dataclass(frozen=True, eq=False)
class SavedLedger:
    """A ledger read from a file. `runs` holds each run's replicate (`None`: recorded order) and
    what it was handed out.
    """

    path: Path
    recordings: Sequence[str]
    seed: int
    billing: str
    prices: str
    runs: Mapping[str, tuple[int | None, list[dict[str, Any]]]]
    prompts: Mapping[str, Sequence[Mapping[str, Any]]]

    def run(self, name: str | None) -> str:
        """Return a run's name, for `None` that of the only run; `UnknownNameError` or `UsageError`
        without such a run.
        """
        if name is not None and name not in self.runs:
            raise UnknownNameError.of(f"run in {self.path} called", name, self.runs)
        if name is None and len(self.runs) != 1:
            names = list(self.runs)
            shown = (
                f"{', '.join(names[:10])}{'' if len(names) <= 10 else ', ...'}"
                if names
                else "nothing"
            )
            raise UsageError(f"{self.path} has {len(names)} runs: {shown}. Name one with --run.")
        return next(iter(self.runs)) if name is None else name


def grade_saved(
    saved: SavedLedger,
    run: str | None,
    answers: object,
    recordings: Sequence[Recording],
    *,
    dataset: str | None = None,
    prices: str | Path | None = None,
) -> Graded:
    """Grade the answers of a run whose ledger was saved, with the ledger's price list unless
    another is named.

    Raises:
        ConflictError: other recordings were served, or a question has two answers.
        UnknownNameError: no such run, or the run did not ask about that dataset.
        UsageError: the run, the dataset or the price list is not clear, or the answers are not
            valid.
        NotRecordedError: the ledger names CoTs that were not recorded.
    """
    name = saved.run(run)
    replicate, all_entries = saved.runs[name]
    entries = _of_dataset(all_entries, name, dataset)
    names = list(dict.fromkeys(entry["llm"] for entry in entries))
    served = _served(saved, recordings)
    listed = prices if prices is not None else _prices(saved)
    loaded, llms = load(
        entries[0]["dataset"], names, served, seed=saved.seed, prices=listed, billing=saved.billing
    )
    return _graded(loaded, llms, entries, answers, name, replicate, saved.prompts[name])


def _served(saved: SavedLedger, recordings: Sequence[Recording]) -> list[Recording]:
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
    return [by_hash[digest] for digest in saved.recordings]


def _prices(saved: SavedLedger) -> str:
    # it may be a path, and a ledger opens no file
    if saved.prices != "none" and saved.prices not in price_ids():
        raise UsageError(
            f"{saved.path} was made with a price list {saved.prices!r}, which has no card. Give it"
            " with --prices."
        )
    return saved.prices


def read_ledger(path: Path) -> SavedLedger:
    """Read a ledger file, or a saved GET /feval/ledger?detail=1 (of all runs, or of one with
    &run=NAME).

    Raises:
        UsageError: the file cannot be read, or is neither.
        SourceError: the file is a damaged ledger.
    """
    if LedgerFile.HEADER in _first_line(read_text(path)):
        header, entries = read_lines(path)
        return _saved(path, header, *_joined(header, entries))
    try:
        reply = parse_json(read_text(path))
        summaries: Any = reply.get("runs", [reply]) if isinstance(reply, dict) else None
        _RUNS.validate_python(summaries)
    except ValueError as error:  # pydantic's, too
        raise UsageError(
            f"{path} is not a ledger with details. Give a file of `feval serve --ledger`, or save"
            " GET /feval/ledger?detail=1."
        ) from error
    runs = {each["run"]: (each["replicate"], each["asked"]) for each in summaries}
    return _saved(path, reply, runs, {each["run"]: each.get("prompts", []) for each in summaries})


def _first_line(text: str) -> Mapping[str, Any]:
    try:
        first = json.loads(text.partition("\n")[0])
    except (ValueError, RecursionError):
        return {}
    return first if isinstance(first, dict) else {}


class _Asked(Handed):
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
    asked: list[_Asked]
    prompts: list[_Prompt] = []


class _Served(BaseModel, strict=True):
    recordings: Annotated[list[str], Field(min_length=1)]
    seed: int
    billing: str
    prices: str


_RUNS = TypeAdapter(list[_Run])


def _joined(
    header: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, tuple[int | None, list[dict[str, Any]]]], dict[str, list[dict[str, Any]]]]:
    """Join the requests of a ledger file per run, dataset, LLM and question; and the prompts per
    run.
    """
    joined: dict[str, dict[tuple[str, str, str], dict[str, Any]]] = {}
    templates: dict[str, PromptCounts] = {}
    for entry in entries:
        if entry.get("reset"):
            joined.pop(entry["run"], None)
            templates.pop(entry["run"], None)
            continue
        key = entry["dataset"], entry["llm"], entry["question"]
        question = joined.setdefault(entry["run"], {}).setdefault(
            key,
            {
                "dataset": key[0],
                "llm": key[1],
                "question": key[2],
                "requests": 0,
                "samples": [],
                "passes": 1,
            },
        )
        question["requests"] += 1
        tokens = entry.get("tokens")
        if tokens is not None or "tokens" in question:
            before = question.get("tokens", [None] * len(question["samples"]))
            question["tokens"] = before + (tokens or [None] * len(entry["samples"]))
        question["samples"] += entry["samples"]
        question["passes"] = max(question["passes"], entry.get("pass", 1))
        count_entry(templates.setdefault(entry["run"], PromptCounts()), entry)
    order = str(header.get("order"))
    runs = {
        label: (run_name(label, order).replicate, list(questions.values()))
        for label, questions in joined.items()
    }
    return runs, {label: used.to_list() for label, used in templates.items()}


def _saved(
    path: Path,
    head: Mapping[str, Any],
    runs: Mapping[str, Any],
    prompts: Mapping[str, Sequence[Mapping[str, Any]]],
) -> SavedLedger:
    try:
        known = _Served.model_validate(head)
    except ValidationError as error:
        raise UsageError(
            f"{path} does not say what was served: recordings, seed, billing and prices. Save the"
            " ledger again."
        ) from error
    return SavedLedger(path, runs=runs, prompts=prompts, **dict(known))


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


def _rows(path: Path, text: str) -> list[dict[str, Any]]:
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

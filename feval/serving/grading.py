"""Grade a run: the answers of a program that was served, beside what the ledger says it was handed.

The ledger is that of a running application, or what `feval serve --ledger` wrote, or what GET /feval/ledger?detail=1 said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feval.cards.cards import price_ids
from feval.errors import ConflictError, UnknownNameError, UsageError
from feval.evaluation.requests import Consumption
from feval.receipts.grading import Grade, answers_by_id, grade_answers
from feval.receipts.writing import receipt
from feval.replay.loading import load
from feval.serving.answer_files import read_text, unique
from feval.serving.errors import RequestError
from feval.serving.matching.templates import UsedTemplates, is_use_list, prompt_remarks
from feval.serving.runs.ledger import FORMAT
from feval.serving.runs.ledger import read_ledger as read_lines
from feval.serving.runs.runs import count_entry, run_name

if TYPE_CHECKING:
    from feval.recording import Recording
    from feval.replay import LLM, Dataset
    from feval.serving.application import Application

__all__ = ["Graded", "SavedLedger", "grade", "grade_saved", "read_ledger"]


@dataclass(frozen=True, eq=False)
class Graded:
    """A run, graded.

    Attributes:
        grade: the numbers.
        dataset: that they are of.
        llms: that were asked.
        prompts: what the run put around the questions; see `Application.ledger`.
    """

    grade: Grade
    dataset: Dataset
    llms: Sequence[LLM]
    prompts: Sequence[Mapping[str, Any]] = ()

    def remarks(self) -> list[str]:
        """What somebody who reads the accuracy must know, as sentences."""
        return [*self.grade.remarks(), *prompt_remarks(self.prompts)]

    def result(self) -> dict[str, Any]:
        """The numbers, and the prompts of the run, as JSON values."""
        return self.grade.to_dict() | {"prompts": list(self.prompts)}

    def receipt(self, folder: Path | None = None) -> dict[str, Any]:
        """What the numbers rest on; `feval verify` computes them again.

        Args:
            folder: where it will lie, whose recordings are named by their path from there; the working directory for `None`.
        """
        return receipt(self.grade.request(), self.grade, self.dataset, self.llms, folder or Path())

    def to_dict(self) -> dict[str, Any]:
        """What POST /feval/grade replies."""
        return {"grade": self.result(), "remarks": self.remarks(), "receipt": self.receipt()}


def grade(application: Application, run: str, answers: object, *, dataset: str | None = None) -> Graded:
    """Grade the answers of a run of a running application.

    Args:
        application: what handed the CoTs out.
        run: its name, as the ledger has it.
        answers: see `feval.receipts.grading.answers_by_id`.
        dataset: which one, where the run asked about several.

    Raises:
        NotRecordedError: the run has asked nothing.
        UsageError: the answers are none, or the run asked about several datasets.
        UnknownNameError: the run did not ask about that dataset.
        ConflictError: a question has two answers.
    """
    ledger = application.ledger(run, detail=True)
    asked = _of_dataset(ledger["asked"], run, dataset)
    chosen = asked[0]["dataset"]
    held = {llm.name: llm for llm in application.library.llms if llm.dataset == chosen}
    llms = [held[name] for name in dict.fromkeys(entry["llm"] for entry in asked)]
    found = application.library.datasets[chosen]
    return _graded(found, llms, asked, answers, ledger["run"], ledger["replicate"], ledger["prompts"])


def grade_posted(application: Application, run: str, body: bytes) -> dict[str, Any]:
    """Grade what was posted to /feval/grade.

    Args:
        application: what handed the CoTs out.
        run: that of the request; the body may name another.
        body: {"answers": ..., "run": NAME, "dataset": ID}, the last two where they are needed.

    Raises:
        RequestError: the body is not so, or its answers cannot be graded.
        NotRecordedError: the run has asked nothing.
    """
    try:
        fields = json.loads(body, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"The body is no JSON: {error}. Post an object with `answers`.", code="invalid_json"
        ) from error
    if not isinstance(fields, dict) or "answers" not in fields:
        raise RequestError("The body lacks `answers`: an object from question to answer.", parameter="answers")
    for name in ("run", "dataset"):
        if not isinstance(fields.get(name), (str, type(None))):
            raise RequestError(f"`{name}` is a name.", parameter=name)
    try:
        told = grade(application, fields.get("run") or run, fields["answers"], dataset=fields.get("dataset"))
    except (UsageError, ConflictError) as error:
        raise RequestError(str(error), parameter="answers") from error
    return told.to_dict()


def _graded(
    dataset: Dataset,
    llms: Sequence[LLM],
    asked: Sequence[Mapping[str, Any]],
    answers: object,
    run: str,
    replicate: int | None,
    prompts: Sequence[Mapping[str, Any]],
) -> Graded:
    consumed = [Consumption(**{name: entry[name] for name in Consumption.model_fields}) for entry in asked]
    told = grade_answers(dataset, llms, consumed, answers_by_id(dataset, answers), run=run, replicate=replicate)
    return Graded(told, dataset, llms, [use for use in prompts if use["dataset"] == dataset.id])


def _of_dataset(asked: Sequence[Mapping[str, Any]], run: str, dataset: str | None) -> list[Mapping[str, Any]]:
    """The entries of one dataset: the one that was named, or else the only one."""
    there = list(dict.fromkeys(entry["dataset"] for entry in asked))
    if not there:
        raise UsageError(f"The run {run!r} was handed nothing, so there is nothing to grade.")
    if dataset is not None and dataset not in there:
        raise UnknownNameError.of(f"dataset that the run {run!r} asked about, called", dataset, there)
    if dataset is None and len(there) > 1:
        raise UsageError(
            f"The run {run!r} asked about {len(there)} datasets, {', '.join(there)}. Name one; each is graded by itself."
        )
    return [entry for entry in asked if entry["dataset"] == (dataset or there[0])]


# -- ledgers that were saved ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SavedLedger:
    """A ledger in a file.

    Attributes:
        path: of the file.
        recordings: hashes of what was served.
        seed: of the draws.
        billing: how prompts were charged.
        prices: id of the price list, "none" where dollars were switched off.
        runs: name -> replicate (`None`: recorded order) and what was handed out, per dataset, LLM and question.
        prompts: name -> what the run put around the questions; see `Application.ledger`.
    """

    path: Path
    recordings: tuple[str, ...]
    seed: int
    billing: str
    prices: str
    runs: Mapping[str, tuple[int | None, list[dict[str, Any]]]]
    prompts: Mapping[str, Sequence[Mapping[str, Any]]]

    def run(self, name: str | None) -> str:
        """The run that is meant: the one that was named, or else the only one.

        Raises:
            UnknownNameError: there is none of that name.
            UsageError: there are several, or none, and none was named.
        """
        if name is not None and name not in self.runs:
            raise UnknownNameError.of(f"run in {self.path} called", name, self.runs)
        if name is None and len(self.runs) != 1:
            names = list(self.runs)
            held = f"{', '.join(names[:10])}{'' if len(names) <= 10 else ', ...'}" if names else "nothing"
            raise UsageError(f"{self.path} has {len(names)} runs: {held}. Name one with --run.")
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
    """Grade the answers of a run whose ledger was saved.

    Args:
        saved: from `read_ledger`.
        run: its name; `None` where the ledger has only one.
        answers: see `feval.receipts.grading.answers_by_id`.
        recordings: what was served.
        dataset: which one, where the run asked about several.
        prices: id or file of a price list; that of the ledger for `None`.

    Raises:
        ConflictError: the recordings are not those that were served, or a question has two answers.
        UnknownNameError: no such run, or the run did not ask about that dataset.
        UsageError: the run, the dataset or the price list is not clear, or the answers are none.
        NotRecordedError: the ledger tells of CoTs that were not recorded.
    """
    name = saved.run(run)
    replicate, handed = saved.runs[name]
    asked = _of_dataset(handed, name, dataset)
    names = list(dict.fromkeys(entry["llm"] for entry in asked))
    served = _served(saved, recordings)
    listed = prices if prices is not None else _listed(saved)
    found, llms = load(asked[0]["dataset"], names, served, seed=saved.seed, prices=listed, billing=saved.billing)
    return _graded(found, llms, asked, answers, name, replicate, saved.prompts[name])


def _served(saved: SavedLedger, recordings: Sequence[Recording]) -> list[Recording]:
    given = {recording.hash: recording for recording in recordings}
    for own in saved.recordings:
        if own not in given:
            held = ", ".join(f"{r.path} has {r.hash[:16]}" for r in recordings) or "none was given"
            raise ConflictError(
                f"{saved.path} is of a recording with hash {own[:16]}; {held}. Give the one that was served with --recording."
            )
    return [given[own] for own in saved.recordings]


def _listed(saved: SavedLedger) -> str:

    if saved.prices != "none" and saved.prices not in price_ids():  # it may be a path, and a ledger opens no file
        raise UsageError(
            f"{saved.path} was made with a price list {saved.prices!r}, which is not among the cards. Give it with --prices."
        )
    return saved.prices


def read_ledger(path: Path) -> SavedLedger:
    """Read a ledger file, or what GET /feval/ledger?detail=1 said (of all runs, or of one with &run=NAME).

    Raises:
        UsageError: the file cannot be read, or is neither.
        SourceError: it is a damaged ledger file.
    """
    with_lines = _first_line(read_text(path)).get("format") == FORMAT
    if with_lines:
        header, entries = read_lines(path)
        return _saved(path, header, *_joined(header, entries))
    try:
        said = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise _no_ledger(path) from error
    told = said.get("runs", [said]) if isinstance(said, dict) else None
    if not isinstance(told, list) or not all(_is_told(each) for each in told):
        raise _no_ledger(path)
    runs = {each["run"]: (each["replicate"], each["asked"]) for each in told}
    return _saved(path, said, runs, {each["run"]: each.get("prompts", []) for each in told})


def _first_line(text: str) -> Mapping[str, Any]:
    try:
        first = json.loads(text.partition("\n")[0])
    except (ValueError, RecursionError):
        return {}
    return first if isinstance(first, dict) else {}


def _no_ledger(path: Path) -> UsageError:
    return UsageError(
        f"{path} is no ledger with details. Give what `feval serve --ledger` wrote, or save GET /feval/ledger?detail=1."
    )


def _is_told(run: object) -> bool:
    """Whether this is one run as `Application.ledger` tells it, with details."""
    if not isinstance(run, dict) or not isinstance(run.get("run"), str) or not isinstance(run.get("asked"), list):
        return False
    replicate = run.get("replicate", -1)
    counted = replicate is None or (type(replicate) is int and replicate >= 0)
    return counted and all(map(_is_asked, run["asked"])) and is_use_list(run.get("prompts", []))


def _is_asked(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    texts = all(isinstance(entry.get(name), str) for name in ("llm", "dataset", "question"))
    samples = entry.get("samples")
    return texts and isinstance(samples, list) and all(type(n) is int for n in (*samples, entry.get("requests")))


def _joined(
    header: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, tuple[int | None, list[dict[str, Any]]]], dict[str, list[dict[str, Any]]]]:
    """The requests of a ledger file, joined per run, dataset, LLM and question; and the prompts of each run."""
    found: dict[str, dict[tuple[str, str, str], dict[str, Any]]] = {}
    templates: dict[str, UsedTemplates] = {}
    for entry in entries:
        if entry.get("reset"):
            found.pop(entry["run"], None)
            templates.pop(entry["run"], None)
            continue
        key = entry["dataset"], entry["llm"], entry["question"]
        own = found.setdefault(entry["run"], {}).setdefault(
            key, {"dataset": key[0], "llm": key[1], "question": key[2], "requests": 0, "samples": []}
        )
        own["requests"] += 1
        own["samples"] += entry["samples"]
        count_entry(templates.setdefault(entry["run"], UsedTemplates()), entry)
    order = str(header.get("order"))
    runs = {label: (run_name(label, order).replicate, list(asked.values())) for label, asked in found.items()}
    return runs, {label: used.to_list() for label, used in templates.items()}


def _saved(
    path: Path, head: Mapping[str, Any], runs: Mapping[str, Any], prompts: Mapping[str, Sequence[Mapping[str, Any]]]
) -> SavedLedger:
    hashes, prices = head.get("recordings"), head.get("prices")
    whole = isinstance(hashes, list) and bool(hashes) and all(isinstance(own, str) for own in hashes)
    texts = isinstance(head.get("billing"), str) and isinstance(prices, str)
    if not (whole and texts and type(head.get("seed")) is int):
        raise UsageError(
            f"{path} does not say what was served: recordings, seed, billing and prices. Save the ledger again."
        )
    return SavedLedger(path, tuple(hashes or ()), head["seed"], head["billing"], str(prices), runs, prompts)

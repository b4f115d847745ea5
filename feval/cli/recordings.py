"""`feval import`, `info`, `verify`, `merge`, `select`, `extract`: make, show and check recordings."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from feval.cards.reading import read_regular
from feval.cli.evaluating import last_receipt
from feval.cli.options import (
    AnswerKind,
    Equality,
    Machines,
    NewFolder,
    OnlyDatasets,
    OnlyLLMs,
    RecordingFolder,
    Sandbox,
    UsersMethods,
    machine_options,
    only_name,
    whole_folder,
)
from feval.cli.output import Output, say
from feval.errors import NotRecordedError, OutOfRangeError, SourceError, UsageError
from feval.evaluation.method_names import make_method
from feval.hub.addresses import is_address, parse_address
from feval.hub.places import open_place
from feval.receipts.format import is_receipt, local_receipt
from feval.receipts.semantics import VERSION
from feval.receipts.verifying import ReceiptCheck, verify_receipt
from feval.recording import Recording, open_recording, verify_recording
from feval.recording import extract as extract_answers
from feval.recording import merge as merge_recordings
from feval.recording import select as select_from
from feval.report.tables.changes import changes_tables
from feval.report.tables.info import info_dict, info_headline, info_tables
from feval.report.text import counted

_MAX_IDS_BYTES = 64 << 20


@machine_options
def import_(
    format_name: Annotated[str, typer.Argument(metavar="FORMAT", help="See `feval ls formats`.", show_default=False)],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="File or folder to import.", show_default=False)],
    dataset: Annotated[str, typer.Option(metavar="ID", help="Id of the dataset; any id will do.")],
    out: NewFolder,
    llm: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name, such as gpt-3.5-turbo@t=0.8. Repeat to take several from SOURCE."),
    ] = None,
    answer_kind: AnswerKind = None,
    questions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Question texts and gold answers, if SOURCE has none.")
    ] = None,
    counter: Annotated[
        str | None, typer.Option(metavar="NAME", help="Token counter: usage, words or tiktoken:ENCODING.")
    ] = None,
    answers: Annotated[
        str, typer.Option(metavar="FROM", help="stored (as SOURCE has them) or text (extracted again).")
    ] = "stored",
    equality: Equality = None,
    *,
    machines: Machines,
    show: Output,
) -> None:
    """Make a recording from an existing file.

    `feval ls formats` lists the formats. Quirks of the source that were handled are noted in the recording.

    Example: feval import esc T0.7.jsonl.gz --dataset last_letters --llm gpt-3.5-turbo --out my-recording
    """
    from feval.importers import import_recording  # loads every format

    with show.progress(f"importing {source.name}") as progress, machines.opened() as executor:
        import_recording(
            format_name,
            source,
            out,
            dataset=dataset,
            llm=llm,
            answer_kind=answer_kind,
            questions=questions,
            counter=counter,
            answers=answers,
            equality=equality,
            progress=progress,
            executor=executor,
        )
    show_recording(show, out)


def info(recording: RecordingFolder, *, show: Output) -> None:
    """Show what a recording holds.

    Datasets, LLMs, pools, shares of CoTs without an answer, prices, licences, parent recordings, notes, hash.
    """
    opened = open_place(recording)
    show.result(info_dict(opened), *info_tables(opened))


def merge(
    recordings: Annotated[list[Path], typer.Argument(metavar="RECORDING...", help="Two or more.", show_default=False)],
    out: NewFolder,
    equality: Equality = None,
    *,
    show: Output,
) -> None:
    """Join recordings into a new one.

    They may differ in datasets, in LLMs, in questions or in several of them. The old recordings stay as they are.

    Example: feval merge small large --out both
    """
    folders = [whole_folder(show, recording) for recording in recordings]
    with show.progress("merging"):
        merge_recordings(folders, out, equality=equality)
    show_recording(show, out)


def select(
    recording: RecordingFolder,
    out: NewFolder,
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    questions_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the questions with these ids, one per line.")
    ] = None,
    first: Annotated[int | None, typer.Option(metavar="N", help="Keep the first N questions.")] = None,
    samples: Annotated[int | None, typer.Option(metavar="N", help="Keep the first N CoTs of each pool.")] = None,
    min_cots: Annotated[
        int | None, typer.Option(metavar="N", help="Leave out questions with fewer CoTs of some LLM.")
    ] = None,
    *,
    show: Output,
) -> None:
    """Make a smaller recording from a recording.

    Keep some datasets, LLMs or questions, or the first CoTs of each pool; the old recording stays as it is.

    Example: feval select big --llm gpt-3.5-turbo --samples 20 --out small
    """
    if questions_file is not None and first is not None:
        raise UsageError("--questions-file and --first both choose questions; give one of them.")
    recording = whole_folder(show, recording)
    ids = None if questions_file is None else _question_ids(questions_file)
    if first is not None:
        ids = _first_questions(open_recording(recording), dataset, first)
    with show.progress("selecting"):
        select_from(
            recording,
            out,
            datasets=dataset or None,
            llms=llm or None,
            questions=ids,
            samples=samples,
            min_cots=min_cots,
        )
    show_recording(show, out)


@machine_options
def extract(
    recording: RecordingFolder,
    out: NewFolder,
    answer_kind: AnswerKind = None,
    answers: Annotated[
        str, typer.Option(metavar="FROM", help="text: extract again; stored: only normalize the stored answers.")
    ] = "text",
    equality: Equality = None,
    *,
    machines: Machines,
    show: Output,
) -> None:
    """Extract the answers of a recording again.

    Reads the stored texts with this version's extraction, or as another kind of answer, writes a new recording, and shows which
    answers and golds changed. No LLM is asked; the old recording stays as it is.

    Example: feval extract my-recording --answer-kind latex --out again
    """
    recording = whole_folder(show, recording)
    with show.progress("extracting") as progress, machines.opened() as executor:
        extraction = extract_answers(
            recording,
            out,
            answer_kind=answer_kind,
            source=answers,
            equality=equality,
            progress=progress,
            executor=executor,
        )
    for sentence in extraction.notes:
        show.note(sentence)
    summary = dataclasses.asdict(extraction) | {"path": str(out)}
    show.result(summary, info_headline(open_recording(out)), "", *changes_tables(extraction))


@machine_options
def export(
    recording: RecordingFolder,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="jsonl, csv or parquet.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to make.")],
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    *,
    machines: Machines,
    show: Output,
) -> None:
    """Write the CoTs of a recording as a table.

    CSV and Parquet have a row per CoT; JSON Lines have a line per question and LLM, and `feval import jsonl` makes the same
    recording of them.

    Example: feval export my-recording --to csv --out cots.csv
    """
    from feval.exporters import export_recording  # loads pyarrow

    recording = whole_folder(show, recording)
    with show.progress("exporting") as progress, machines.opened() as executor:
        table = export_recording(recording, out, to, datasets=dataset, llms=llm, executor=executor, progress=progress)
    for sentence in table.left_out:
        show.note(sentence)
    summary = {"path": str(out), "rows": table.rows, "columns": table.columns, "left_out": table.left_out}
    show.result(summary, f"{out} has {counted(table.rows, 'CoT')}, with {', '.join(table.columns)}.")


def show_recording(show: Output, out: Path, shown_notes: Collection[str] = ()) -> None:
    """Show a new recording, and its notes except those in `shown_notes`."""
    recording = open_recording(out)
    for sentence in recording.manifest.raw.get("notes", ()):
        if sentence not in shown_notes:
            show.note(str(sentence))
    show.result(info_dict(recording), info_headline(recording))


def _question_ids(path: Path) -> list[str]:
    try:
        # Not splitlines(): an id may hold other line separators.
        lines = read_regular(path, _MAX_IDS_BYTES).decode("utf-8-sig").split("\n")
    except OSError as error:
        raise SourceError(
            f"{path} should be a file with one question id per line; it cannot be read: {error.strerror or error}. "
            "Check --questions-file."
        ) from error
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path} should hold one question id per line as UTF-8 text; it does not ({error})."
        ) from error
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise SourceError(f"{path} is empty; it should hold one question id per line.")
    return ids


def _first_questions(recording: Recording, datasets: Sequence[str] | None, first: int) -> list[str]:
    if first < 1:
        raise OutOfRangeError(f"--first takes 1 or more; {first} was given.")
    # Question ids are unique within a dataset only, so there must be one dataset.
    dataset = only_name("dataset", datasets[0] if datasets and len(datasets) == 1 else None, recording.dataset_ids())
    ids = recording.votes(dataset).question_ids
    if first > len(ids):
        raise NotRecordedError(f"{dataset} has {counted(len(ids), 'question')}; --first {first} asks for more.")
    return list(ids[:first])


_MOST_DIFFERENCES = 20
_OUTDATED = 3  # exit code: the receipt is of an older version, in which its numbers meant something else


@machine_options
def verify(
    recording: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECORDING|RECEIPT",
            help="Folder of a recording or a report, or a receipt.json; also on the Hub.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="The newest receipt in your state folder.")] = False,
    recordings: Annotated[
        list[Path] | None,
        typer.Option("--recording", metavar="DIR", help="Where a receipt's recording is, if it moved."),
    ] = None,
    methods: UsersMethods = None,
    sandbox: Sandbox = False,
    prices: Annotated[
        str | None, typer.Option(metavar="LIST", help="A price list of your own that the receipt needs.")
    ] = None,
    *,
    machines: Machines,
    show: Output,
) -> None:
    """Check a recording, or the numbers of a receipt.

    Checks every byte and hash of a recording; computes the numbers of a receipt again.

    Exit code: 0 all agree; 1 something differs; 3 the meaning of the receipt's numbers has changed since it was written.
    """
    if last == (recording is not None):
        raise UsageError(
            "Name a recording or a receipt to verify, or give --last for the newest receipt in your state folder."
        )
    files = [make_method(name, sandbox=sandbox) for name in methods or []]
    recording = recording or last_receipt()
    if is_receipt(recording) and is_address(recording):
        _verify_receipt(show, recording, recordings, files, prices, machines)
        return
    recording = whole_folder(show, recording)
    if not (recording / "manifest.json").is_file() and (recording / "receipt.json").is_file():
        recording = recording / "receipt.json"  # the folder that a report was written to
    if is_receipt(recording):
        _verify_receipt(show, recording, recordings, files, prices, machines)
        return
    if recordings or methods or sandbox or prices:
        raise UsageError(
            f"--recording, --method, --sandbox and --prices belong to receipts; {recording} is not a receipt."
        )
    with show.progress(f"verifying {recording.name}") as progress, machines.opened() as executor:
        verification = verify_recording(recording, progress=progress, executor=executor)
    summary = {
        "path": str(recording),
        "ok": verification.ok,
        "recording_hash": verification.recording_hash,
        "files": verification.files,
        "leaves": verification.leaves,
        "problems": list(verification.problems),
        "remarks": list(verification.remarks),
    }
    for remark in verification.remarks:
        show.note(remark)
    leaves = "1 leaf" if verification.leaves == 1 else f"{verification.leaves:,} leaves"
    checked = f"{counted(verification.files, 'file')} and {leaves} checked"
    show.result(
        summary, *([f"{recording} is sound: {checked}, hash {verification.recording_hash}"] if verification.ok else [])
    )
    if not verification.ok:
        for problem in verification.problems:
            say(f"error: {recording}: {problem}")
        raise typer.Exit(1)


def _verify_receipt(
    show: Output,
    place: Path,
    recordings: Sequence[Path] | None,
    methods: Sequence[Any],
    prices: str | None,
    machines: Machines,
) -> None:
    path, local = _place_of(place), local_receipt(place)
    with show.progress(f"verifying {local.name}") as progress, machines.opened() as executor:
        running: dict[str, Any] = {"executor": executor, "progress": progress}
        check = verify_receipt(local, recordings, methods=methods, prices=prices, **running)
    for remark in check.notes:
        show.note(remark)
    summary = {
        "path": str(path),
        "ok": check.equal,
        "kind": check.kind,
        "numbers": check.numbers,
        "semantics": {"receipt": check.semantics, "now": VERSION},
        "changes": list(check.changes),
        "files": list(check.files),
        "differences": [{"where": d.where, "receipt": d.receipt, "now": d.now} for d in check.differences],
    }
    what = {"compare": "a comparison", "estimate": "an estimate"}.get(check.kind, f"a {check.kind}")
    shown = [f"{path} is right: {check.numbers} values of {what} computed again, all equal"] if check.equal else []
    if check.outdated:
        shown = [
            f"{path} was written by an older feval. The meaning of its numbers has changed since, from version "
            f"{check.semantics} to {VERSION}. {len(check.differences):,} of {check.numbers:,} values of {what} differ now:"
            if check.differences
            else f"{path} was written by an older feval, and its numbers can no longer be computed as they were meant then.",
            *(f"  {line}" for line in _shown_differences(check)),
            "Changed since:",
            *(f"  {sentence}" for sentence in check.changes),
        ]
    show.result(summary, *shown)
    for line in (*check.files, *(() if check.outdated else _shown_differences(check))):
        say(f"error: {path}: {line}")
    if not check.equal:
        raise typer.Exit(_OUTDATED if check.outdated and not check.files else 1)


def _shown_differences(check: ReceiptCheck) -> list[str]:
    """Return the first differences, and how many more there are."""
    more = len(check.differences) - _MOST_DIFFERENCES
    rest = [f"{more:,} more of {check.numbers:,} values differ; --json lists all."] if more > 0 else []
    return [*map(str, check.differences[:_MOST_DIFFERENCES]), *rest]


def _place_of(place: Path) -> str:
    """Return a place as it is written: `Path` drops a slash of an address."""
    return str(parse_address(place) if is_address(place) else place)

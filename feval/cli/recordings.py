"""`feval import`, `info`, `merge`, `select`, `extract`: make a recording from a file or from other recordings, and show it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from feval.cli.options import (
    Equality,
    JsonFlag,
    NewFolder,
    QuietFlag,
    RecordingFolder,
    Tolerance,
    equality_name,
    only_name,
    whole_folder,
)
from feval.cli.output import Output
from feval.errors import NotRecordedError, OutOfRangeError, SourceError, UsageError
from feval.hub.recordings import open_place
from feval.importers import import_recording
from feval.recording import Recording, open_recording
from feval.recording import extract as extract_answers
from feval.recording import merge as merge_recordings
from feval.recording import select as select_from
from feval.report.tables.changes import changes_tables
from feval.report.tables.info import info_dict, info_headline, info_tables
from feval.report.text import counted

_MAX_IDS_BYTES = 64 << 20


def import_(
    format_name: Annotated[str, typer.Argument(metavar="FORMAT", help="See `feval ls formats`.", show_default=False)],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="File or folder to import.", show_default=False)],
    dataset: Annotated[str, typer.Option("--dataset", metavar="ID", help="Id of the dataset; any id will do.")],
    out: NewFolder,
    llm: Annotated[
        list[str] | None,
        typer.Option(
            "--llm", metavar="NAME", help="Name, such as gpt-3.5-turbo@t=0.8. Repeat to take several from SOURCE."
        ),
    ] = None,
    answer_kind: Annotated[
        str | None,
        typer.Option("--answer-kind", metavar="KIND", help="See `feval ls answer-kinds`. Default: the dataset card's."),
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option("--questions", metavar="FILE", help="Question texts and gold answers, if SOURCE has none."),
    ] = None,
    counter: Annotated[
        str | None,
        typer.Option("--counter", metavar="NAME", help="Token counter: usage, words or tiktoken:ENCODING."),
    ] = None,
    prices: Annotated[
        str, typer.Option("--prices", metavar="ID", help="Price list to name in the recording, or none.")
    ] = "2025-06-02",
    answers: Annotated[
        str, typer.Option("--answers", metavar="FROM", help="stored (as SOURCE has them) or text (extracted again).")
    ] = "stored",
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep CoTs that SOURCE stores twice.")
    ] = False,
    equality: Equality = None,
    tolerance: Tolerance = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Decoding temperature, if SOURCE does not say.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Limit on output tokens, if SOURCE does not say.")
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Make a recording from an existing file.

    `feval ls formats` lists the formats. Quirks of the source that were handled are noted in the recording.

    Example: feval import esc T0.7.jsonl.gz --dataset last_letters --llm gpt-3.5-turbo --out my-recording
    """
    show = Output(as_json=as_json, quiet=quiet)
    with show.progress(f"importing {source.name}") as progress:
        import_recording(
            format_name,
            source,
            out,
            dataset=dataset,
            llm=llm,
            answer_kind=answer_kind,
            questions=questions,
            counter=counter,
            prices=prices,
            answers=answers,
            equality=equality_name(equality, tolerance),
            keep_duplicates=keep_duplicates,
            temperature=temperature,
            max_tokens=max_tokens,
            progress=progress,
        )
    show_recording(show, out)


def info(recording: RecordingFolder, as_json: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """Show what a recording holds.

    Datasets, LLMs, pools, shares of CoTs without an answer, prices, licences, parent recordings, notes, hash.
    """
    opened = open_place(recording)
    Output(as_json=as_json, quiet=quiet).result(info_dict(opened), *info_tables(opened))


def merge(
    recordings: Annotated[list[Path], typer.Argument(metavar="RECORDING...", help="Two or more.", show_default=False)],
    out: NewFolder,
    equality: Equality = None,
    tolerance: Tolerance = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Join recordings into a new one.

    They may differ in datasets, in LLMs or in both. The old recordings stay as they are.

    Example: feval merge small large --out both
    """
    show = Output(as_json=as_json, quiet=quiet)
    folders = [whole_folder(show, recording) for recording in recordings]
    with show.progress("merging"):
        merge_recordings(folders, out, equality=equality_name(equality, tolerance))
    show_recording(show, out)


def select(
    recording: RecordingFolder,
    out: NewFolder,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", metavar="ID", help="Keep it. Repeat for more.")
    ] = None,
    llm: Annotated[list[str] | None, typer.Option("--llm", metavar="NAME", help="Keep it. Repeat for more.")] = None,
    questions_file: Annotated[
        Path | None,
        typer.Option("--questions-file", metavar="FILE", help="Keep the questions with these ids, one per line."),
    ] = None,
    first: Annotated[int | None, typer.Option("--first", metavar="N", help="Keep the first N questions.")] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", metavar="N", help="Keep the first N CoTs of each pool.")
    ] = None,
    min_cots: Annotated[
        int | None,
        typer.Option("--min-cots", metavar="N", help="Leave out questions with fewer CoTs of some LLM."),
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Make a smaller recording from a recording.

    Keep some datasets, LLMs or questions, or the first CoTs of each pool; the old recording stays as it is.

    Example: feval select big --llm gpt-3.5-turbo --samples 20 --out small
    """
    if questions_file is not None and first is not None:
        raise UsageError("--questions-file and --first both choose questions; give one of them.")
    show = Output(as_json=as_json, quiet=quiet)
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


def extract(
    recording: RecordingFolder,
    out: NewFolder,
    answer_kind: Annotated[
        str | None,
        typer.Option("--answer-kind", metavar="KIND", help="See `feval ls answer-kinds`. Default: the recording's."),
    ] = None,
    answers: Annotated[
        str,
        typer.Option(
            "--answers", metavar="FROM", help="text: extract again; stored: only normalize the stored answers."
        ),
    ] = "text",
    equality: Equality = None,
    tolerance: Tolerance = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Extract the answers of a recording again.

    Reads the stored texts with this version's extraction, or as another kind of answer, writes a new recording, and shows which
    answers and golds changed. No LLM is asked; the old recording stays as it is.

    Example: feval extract my-recording --answer-kind latex --out again
    """
    show = Output(as_json=as_json, quiet=quiet)
    recording = whole_folder(show, recording)
    with show.progress("extracting") as progress:
        extraction = extract_answers(
            recording,
            out,
            answer_kind=answer_kind,
            source=answers,
            equality=equality_name(equality, tolerance),
            progress=progress,
        )
    for sentence in extraction.notes:
        show.note(sentence)
    summary = dataclasses.asdict(extraction) | {"path": str(out)}
    show.result(summary, info_headline(open_recording(out)), "", *changes_tables(extraction))


def show_recording(show: Output, out: Path, shown_notes: Collection[str] = ()) -> None:
    """Show a new recording, and its notes except those in `shown_notes`."""
    recording = open_recording(out)
    for sentence in recording.manifest.raw.get("notes", ()):
        if sentence not in shown_notes:
            show.note(str(sentence))
    show.result(info_dict(recording), info_headline(recording))


def _question_ids(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_IDS_BYTES + 1)
        if len(data) > _MAX_IDS_BYTES:
            raise SourceError(
                f"{path} is larger than {_MAX_IDS_BYTES:,} bytes; it should hold one question id per line."
            )
        # Not splitlines(): an id may hold other line separators.
        lines = data.decode("utf-8-sig").split("\n")
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
    questions = recording.questions(dataset)
    if first > len(questions):
        raise NotRecordedError(f"{dataset} has {counted(len(questions), 'question')}; --first {first} asks for more.")
    return [question.id for question in questions[:first]]

"""`feval import`, `info`, `export`: from files to recordings, and back."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from feval.cli.options import (
    AnswerKind,
    Equality,
    Machines,
    NewFolder,
    OnlyDatasets,
    OnlyLLMs,
    RecordingFolder,
    machine_options,
    whole_folder,
)
from feval.cli.output import Output
from feval.hub.places import open_place
from feval.recording import open_recording
from feval.report.tables.info import info_dict, info_headline, info_tables
from feval.report.text import counted


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


@machine_options
def export(
    recording: RecordingFolder,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="jsonl, csv, parquet, lm-eval or every-eval-ever.")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The file to make; a folder for lm-eval and every-eval-ever.")
    ],
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    *,
    machines: Machines,
    show: Output,
) -> None:
    """Write the CoTs of a recording as a table, or for another tool.

    CSV and Parquet have a row per CoT; JSON Lines have a line per question and LLM, and `feval import jsonl` makes the same
    recording of them. lm-eval and every-eval-ever are folders in the layout of these tools.

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

"""`feval import`, `info`, `export`: from files to recordings, and back."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feval import hub
from feval.cli.options import (
    AnswerKind,
    Equality,
    Machines,
    OnlyDatasets,
    OnlyLLMs,
    RecordingFolder,
    machine_options,
)
from feval.cli.output import Output
from feval.errors import UsageError
from feval.hub.places import local_folder, open_place
from feval.importers.layouts import Layout, layout_of
from feval.recording import open_recording
from feval.report.tables.recordings import info_dict, info_headline, info_tables
from feval.report.tables.tables import Column, Table
from feval.report.text import counted

if TYPE_CHECKING:
    from feval.importers.tables import Understood


@machine_options
def import_(
    format_name: Annotated[
        str, typer.Argument(metavar="FORMAT", help="See `feval ls formats`.", show_default=False)
    ],
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="File or folder to import.", show_default=False)
    ],
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Id of the dataset; any id will do. Default: a table's own."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The recording to make: a new folder.")
    ] = None,
    llm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name, such as gpt-3.5-turbo@t=0.8. Repeat to take several from SOURCE.",
        ),
    ] = None,
    answer_kind: AnswerKind = None,
    questions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Question texts and gold answers, if SOURCE has none."),
    ] = None,
    counter: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Token counter: usage, words or tiktoken:ENCODING."),
    ] = None,
    answers: Annotated[
        str,
        typer.Option(metavar="FROM", help="stored (as SOURCE has them) or text (extracted again)."),
    ] = "stored",
    equality: Equality = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="NAME=COLUMN",
            help="Of a table: the column of this meaning. Repeat for several.",
        ),
    ] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SCORER=]COLUMN", help="Of a table: a column with scores. Repeat for several."
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Of a table: a column that is not read. Repeat for several."
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of a table: a published layout, or a mapping file (TOML)."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Of a table: show what its columns are read as, and write nothing."
        ),
    ] = False,
    *,
    machines: Machines,
    show: Output,
) -> None:
    """Make a recording from an existing file.

    `feval ls formats` lists the formats. Quirks of the source that were handled are noted in the
    recording.

    Example: feval import esc T0.7.jsonl.gz --dataset last_letters --llm gpt-3.5-turbo --out
    my-recording

    Example: feval import table samples.csv --dataset gsm8k --map question=prompt --score reward
    --out my-recording
    """
    from feval.importers import IMPORTERS, import_recording, understood  # loads every format

    options = layout_of(layout, columns or (), score or (), ignore or ())
    is_table = format_name in IMPORTERS and IMPORTERS[format_name].files is not None
    if not is_table and (dry_run or options != Layout()):
        raise UsageError(
            "--map, --score, --ignore, --layout and --dry-run are for tables: feval import table"
            " FILE."
        )
    if out is None and not dry_run:
        raise typer.BadParameter(
            "Name the recording to make; or look at a table first, --dry-run.", param_hint="--out"
        )
    address = None
    if is_table:
        if hub.is_address(source):
            with show.progress(f"fetching {source}"):
                source, address = hub.fetch_table(source)
        _show_understood(show, understood(source, options, questions), final=dry_run)
    if dry_run or out is None:
        return
    with machines.opened() as executor:
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
            executor=executor,
            layout=options if is_table else None,
            address=None if address is None else str(address),
        )
    show_recording(show, out)


def _show_understood(show: Output, table: Understood, *, final: bool) -> None:
    """Show what the columns of a table are read as; `final`: there is no other result."""
    rows = [
        (
            use.column,
            (use.scorer and f"score of {use.scorer}") or use.target,
            use.about,
            _example(table, use.column),
        )
        for use in table.uses
    ]
    unread = [
        (name, "", word, _example(table, name))
        for word, names in (("not read", table.unread), ("ignored", table.ignored))
        for name in names
    ]
    if final or not show.json:
        names = ("column", "read_as", "meaning", "example")
        summary = {
            "file": table.name,
            "columns": [dict(zip(names, row, strict=True)) for row in (*rows, *unread)],
        }
        heads = tuple(Column(name.replace("_", " ")) for name in names)
        show.result(summary, Table(f"{table.name}, as understood", heads, (*rows, *unread)))


def _example(table: Understood, column: str) -> str:
    value = table.examples.get(column.split(".")[0] if column not in table.examples else column)
    text = " ".join(str(value).split())
    return "" if value is None else text if len(text) <= 40 else f"{text[:39]}…"


def info(recording: RecordingFolder, *, show: Output) -> None:
    """Show what a recording holds.

    Datasets, LLMs, pools, shares of CoTs without an answer, prices, licences, parent recordings,
    notes, hash.
    """
    opened = open_place(recording)
    show.result(info_dict(opened), *info_tables(opened))


@machine_options
def export(
    recording: RecordingFolder,
    to: Annotated[
        str, typer.Option(metavar="FORMAT", help="jsonl, csv, parquet or every-eval-ever.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The file to make; a folder for every-eval-ever.")
    ],
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    *,
    machines: Machines,
    show: Output,
) -> None:
    """Write the CoTs of a recording as a table, or for another tool.

    CSV and Parquet have a row per CoT; JSON Lines have a line per question and LLM, and `feval
    import jsonl` makes the same recording of them. every-eval-ever is a folder of records for the
    EvalEval coalition.

    Example: feval export my-recording --to csv --out cots.csv
    """
    from feval.exporters import export_recording  # loads pyarrow

    recording = local_folder(recording)
    with machines.opened() as executor:
        table = export_recording(recording, out, to, datasets=dataset, llms=llm, executor=executor)
    for sentence in table.left_out:
        show.note(sentence)
    summary = {
        "path": str(out),
        "rows": table.rows,
        "columns": table.columns,
        "left_out": table.left_out,
    }
    show.result(
        summary, f"{out} has {counted(table.rows, 'CoT')}, with {', '.join(table.columns)}."
    )


def show_recording(show: Output, out: Path, shown_notes: Collection[str] = ()) -> None:
    """Show a new recording, and its notes except those in `shown_notes`."""
    recording = open_recording(out)
    for sentence in recording.manifest.raw["notes"]:
        if sentence not in shown_notes:
            show.note(str(sentence))
    show.result(info_dict(recording), info_headline(recording))

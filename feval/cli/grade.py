"""`feval grade`: answers worked out by another program, graded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feval.cli.options import (
    DatasetName,
    JsonFlag,
    NoReceipt,
    QuietFlag,
    ReceiptFile,
    RecordingFolders,
    recording_folders,
)
from feval.cli.output import Output
from feval.cli.saving import Saved, encoded
from feval.recording import open_recording
from feval.report.tables.results import grade_table
from feval.serving.answer_files import read_answers
from feval.serving.grading import grade_saved, read_ledger

__all__: list[str] = []


def grade(
    ledger: Annotated[
        Path,
        typer.Option("--ledger", metavar="FILE", help="What `feval serve --ledger` wrote, or a saved /feval/ledger."),
    ],
    answers: Annotated[
        Path,
        typer.Option("--answers", metavar="FILE", help="Questions (ids or texts) and answers: .json, .jsonl or .csv."),
    ],
    run: Annotated[str | None, typer.Option("--run", metavar="NAME", help="Needed where there are several.")] = None,
    recordings: RecordingFolders = None,
    dataset: DatasetName = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="LIST", help="File of a price list that is not among the cards.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write result.json and receipt.json there."),
    ] = None,
    receipt: ReceiptFile = None,
    no_receipt: NoReceipt = False,
    force: Annotated[bool, typer.Option("--force", help="Replace other results in --out and --receipt.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Grade the answers of a program that asked feval serve.

    The ledger says what the program was handed. Shows accuracy with its interval, CoTs, requests, tokens and dollars.

    Example: feval grade --ledger ledger.jsonl --answers answers.json --run mine --recording my-recording
    """
    show, saved = Output(as_json=as_json, quiet=quiet), Saved(out, receipt, no_receipt, force)
    held = read_ledger(ledger)
    opened = [open_recording(folder) for folder in recording_folders(recordings)]
    graded = grade_saved(held, run, read_answers(answers), opened, dataset=dataset, prices=prices)
    told = graded.grade
    for sentence in graded.remarks():
        show.note(sentence)
    saved.show(
        show,
        graded.result(),
        grade_table(told),
        receipt=graded.receipt,
        files=lambda _: {"result.json": encoded(graded.result())},
    )

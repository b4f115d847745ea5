"""`feval grade`: answers worked out by another program, graded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feval.cli.evaluating import result_options
from feval.cli.options import DatasetName, JsonFlag, QuietFlag, RecordingFolders, recording_folders
from feval.cli.output import Output
from feval.cli.saving import ResultFiles, encoded
from feval.recording import open_recording
from feval.report.tables.results import grade_table
from feval.serving.answer_files import read_answers
from feval.serving.grading import grade_saved, read_ledger

__all__: list[str] = []


@result_options("result.json and receipt.json")
def grade(
    ledger: Annotated[
        Path,
        typer.Option("--ledger", metavar="FILE", help="What `feval serve --ledger` wrote, or a saved /feval/ledger."),
    ],
    answers: Annotated[
        Path,
        typer.Option("--answers", metavar="FILE", help="Questions (ids or texts) and answers: .json, .jsonl or .csv."),
    ],
    *,
    run: Annotated[str | None, typer.Option("--run", metavar="NAME", help="Needed where there are several.")] = None,
    recordings: RecordingFolders = None,
    dataset: DatasetName = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="LIST", help="File of a price list that is not among the cards.")
    ] = None,
    saved: ResultFiles,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Grade the answers of a program that asked feval serve.

    The ledger says what the program was handed. Shows accuracy with its interval, CoTs, requests, tokens and dollars.

    Example: feval grade --ledger ledger.jsonl --answers answers.json --run mine --recording my-recording
    """
    show, served = Output(as_json=as_json, quiet=quiet), read_ledger(ledger)
    opened = [open_recording(folder) for folder in recording_folders(recordings)]
    graded = grade_saved(served, run, read_answers(answers), opened, dataset=dataset, prices=prices)
    for sentence in graded.remarks():
        show.note(sentence)
    saved.show(
        show,
        graded.result(),
        grade_table(graded.grade),
        receipt=graded.receipt,
        files=lambda _: {"result.json": encoded(graded.result())},
    )

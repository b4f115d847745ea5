"""`feval grade`: answers worked out by another program, graded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from feval.cli import DatasetName, JsonFlag, QuietFlag, RecordingFolders, _folders, _guarded, _Out, app

__all__: list[str] = []


@app.command("grade")
@_guarded
def _grade(
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
        typer.Option("--out", metavar="DIR", help="Write result.json and receipt.json there. Default: write nothing."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace other results in --out.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Grade the answers of a program that asked feval serve.

    The ledger says what the program was handed. Shows accuracy with its interval, CoTs, requests, tokens and dollars.

    Example: feval grade --ledger ledger.jsonl --answers answers.json --run mine --recording my-recording
    """
    from feval.recording import open_recording
    from feval.report.results import grade_table
    from feval.serving.answer_files import read_answers
    from feval.serving.grading import grade_saved, read_ledger

    show = _Out(as_json=as_json, quiet=quiet)
    saved = read_ledger(ledger)
    opened = [open_recording(folder) for folder in _folders(recordings)]
    told = grade_saved(saved, run, read_answers(answers), opened, dataset=dataset, prices=prices, folder=out or Path())
    for sentence in told.grade.remarks():
        show.note(sentence)
    written = []
    if out is not None:
        from feval.report.files import save_files

        files = {"result.json": told.grade.to_dict(), "receipt.json": told.receipt}
        encoded = {name: (json.dumps(value, indent=2) + "\n").encode() for name, value in files.items()}
        written = save_files(out, encoded, replace=force)
    show.result(told.grade.to_dict(), grade_table(told.grade), *(f"wrote {path}" for path in written))

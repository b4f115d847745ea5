"""`feval run`: one method on one dataset."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from feval.cli.evaluating import open_recordings, request_options, result_options
from feval.cli.options import (
    DatasetName,
    JsonFlag,
    LLMNames,
    QuietFlag,
    RecordingFolders,
    Settings,
    TimeLimit,
    Workers,
    note_missing_dollars,
)
from feval.cli.output import Output
from feval.cli.saving import ResultFiles, encoded
from feval.evaluation.evaluation import evaluate
from feval.evaluation.method_names import make_method, parse_settings
from feval.evaluation.requests import EvaluationOptions, RunRequest
from feval.evaluation.user_methods import MethodFile
from feval.receipts.writing import receipt
from feval.report.tables.results import evaluation_tables

__all__: list[str] = []


@request_options(EvaluationOptions)
@result_options("result.json and receipt.json")
def run(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD", help="See `feval ls methods`; FILE.py:FUNCTION; or oracle.", show_default=False
        ),
    ],
    *,
    settings: Settings = None,
    recordings: RecordingFolders = None,
    dataset: DatasetName = None,
    llms: LLMNames = None,
    workers: Workers = 1,
    time_limit: TimeLimit = 60.0,
    options: dict[str, Any],
    saved: ResultFiles,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run one method on a dataset.

    Shows accuracy with its interval, CoTs, requests, tokens and dollars, and how wrong answers came about.

    Example: feval run early-stopping --set window=5 --recording my-recording --llm gpt-4o-mini
    """
    show, fields = Output(as_json=as_json, quiet=quiet), parse_settings(settings or [])
    chosen = make_method(method, fields)
    with show.progress(method):
        opened = open_recordings(recordings, dataset, llms)
        request = RunRequest(method=method, settings=fields, dataset=opened.dataset, llms=opened.llms, **options)
        questions, replayed = opened.load(request)
        result = evaluate(chosen, questions, replayed, **request.arguments(), workers=workers, time_limit=time_limit)
    if result.usd is None:
        note_missing_dollars(show, request.prices, replayed)
    source = chosen.source_sha256 if isinstance(chosen, MethodFile) else None
    request = request.changed(method=result.method, order=result.kind, source_sha256=source)
    numbers = result.to_dict()
    saved.show(
        show,
        numbers,
        *evaluation_tables([result]),
        receipt=lambda folder: receipt(request, result, questions, replayed, folder),
        files=lambda _: {"result.json": encoded(numbers)},
    )

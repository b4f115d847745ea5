"""`feval estimate` and `feval plan`: what voting will bring, before it is paid for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli.evaluating import open_recordings, request_options, result_options
from feval.cli.options import DatasetName, JsonFlag, LLMName, QuietFlag, RecordingFolders, parse_counts
from feval.cli.output import Output, quiet_matplotlib
from feval.cli.saving import ResultFiles, encoded
from feval.evaluation.requests import BudgetPlanRequest, EstimateRequest
from feval.forecast import PlanBudget as Budget
from feval.forecast import estimate as forecast_votes
from feval.forecast import plan as plan_budget
from feval.receipts.writing import receipt
from feval.report import pictures
from feval.report.tables.forecasts import forecast_csv, forecast_tables, plan_tables

if TYPE_CHECKING:
    from feval.forecast import Forecast

__all__: list[str] = []


@request_options(EstimateRequest, without=("billing", "prices"))
@result_options("estimate.csv, .json, .png and receipt.json")
def estimate(
    *,
    recordings: RecordingFolders = None,
    dataset: DatasetName = None,
    llm: LLMName = None,
    g: Annotated[int, typer.Option("--g", metavar="CALLS", help="Calls per question to estimate from.")] = 5,
    m: Annotated[
        str, typer.Option("--m", metavar="VOTES", help="Numbers of votes: 1..100, 1..99..2, 1,5,10 or 20.")
    ] = "1..40",
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="NAMES",
            help="unbiased, exact, monte-carlo, gaussian, two-call, max-entropy, ldgp; several with commas.",
        ),
    ] = "unbiased,exact,two-call,max-entropy,ldgp",
    options: dict[str, Any],
    saved: ResultFiles,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Forecast the accuracy of M votes from a few calls.

    Estimates with their intervals, beside the exact curve of the whole pool, so that their error is visible. Notes say what would
    mislead.

    Example: feval estimate --recording my-recording --llm gpt-4o-mini --g 5 --m 1..40 --out my-estimate
    """
    show, votes = Output(as_json=as_json, quiet=quiet), parse_counts(m, "--m", "votes")
    methods = tuple(name.strip() for name in method.split(","))
    with show.progress("estimating"):
        opened = open_recordings(recordings, dataset, [llm] if llm else None)
        request = EstimateRequest(
            dataset=opened.dataset, llms=opened.llms, g=g, m=tuple(votes), methods=methods, **options
        )
        questions, [replayed] = opened.load(request)
        result = forecast_votes(questions, replayed, **request.arguments())
    for sentence in result.warnings:
        show.note(sentence)
    saved.show(
        show,
        result.to_dict(),
        *forecast_tables(result),
        receipt=lambda folder: receipt(request, result, questions, [replayed], folder),
        files=lambda _: _files(result),
    )


@request_options(BudgetPlanRequest)
def plan(
    budget: Annotated[
        str, typer.Option("--budget", metavar="AMOUNT", help="Such as 20usd or 500000tokens.", show_default=False)
    ],
    *,
    pilots: Annotated[
        list[Path] | None,
        typer.Option("--pilot", metavar="DIR", help="Recording to judge by. Default: the folders in FEVAL_RECORDING."),
    ] = None,
    dataset: DatasetName = None,
    llm: LLMName = None,
    options: dict[str, Any],
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Say what a budget buys, before it is spent.

    Judged by a pilot recording: which vote to buy, what accuracy to expect, which votes are certified to help, what it costs.

    Example: feval plan --budget 20usd --pilot my-recording --llm gpt-4o-mini
    """
    show, amount = Output(as_json=as_json, quiet=quiet), Budget.parse(budget)
    with show.progress("planning"):
        opened = open_recordings(pilots, dataset, [llm] if llm else None)
        options[f"budget_{amount.unit}"] = amount.amount
        request = BudgetPlanRequest(dataset=opened.dataset, llms=opened.llms, **options)
        pilot, [replayed] = opened.load(request)
        result = plan_budget(pilot, replayed, **request.arguments())
    for sentence in result.warnings:
        show.note(sentence)
    show.result(result.to_dict(), *plan_tables(result))


def _files(forecast: Forecast) -> dict[str, bytes]:
    quiet_matplotlib()
    return {
        "estimate.csv": forecast_csv(forecast).encode(),
        "estimate.json": encoded(forecast.to_dict()),
        "estimate.png": pictures.forecast_png(forecast),
    }

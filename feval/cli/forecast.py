"""`feval estimate` and `feval plan`: what voting will buy, before it is paid for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli import (
    Billing,
    DatasetName,
    JsonFlag,
    LLMName,
    NoReceipt,
    Prices,
    QuietFlag,
    ReceiptFile,
    RecordingFolders,
    ShortPools,
    Unlabelled,
    _folders,
    _guarded,
    _hush_matplotlib,
    _only,
    _Out,
    app,
    parse_counts,
)
from feval.cli.saving import Saved, encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from feval.forecast import Forecast
    from feval.replay.loading import LLM, Dataset

__all__: list[str] = []


@app.command("estimate")
@_guarded
def _estimate(
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
    seed: Annotated[int, typer.Option("--seed", help="Of the draw of calls, and of the intervals.")] = 0,
    replicate: Annotated[int, typer.Option("--replicate", min=0, help="Which draw of calls.")] = 0,
    unlabelled: Unlabelled = "refuse",
    short_pools: ShortPools = "refuse",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write estimate.csv, .json, .png, receipt.json there.",
        ),
    ] = None,
    receipt: ReceiptFile = None,
    no_receipt: NoReceipt = False,
    force: Annotated[bool, typer.Option("--force", help="Replace other files in --out and --receipt.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Forecast the accuracy of M votes from a few calls.

    Estimates with their intervals, beside the exact curve of the whole pool, so that their error is visible. Notes say what would
    mislead.

    Example: feval estimate --recording my-recording --llm gpt-4o-mini --g 5 --m 1..40 --out my-estimate
    """
    from feval.forecast import estimate
    from feval.receipts.receipts import estimate_receipt, pins
    from feval.report.tables.forecasts import forecast_tables

    show, saved = _Out(as_json=as_json, quiet=quiet), Saved(out, receipt, no_receipt, force)
    votes = parse_counts(m, "--m", "votes")
    with show.progress("estimating"):
        questions, replayed = _opened(recordings, dataset, llm, seed, None, "once")
        names = [name.strip() for name in method.split(",")]
        choices: dict[str, Any] = {"unlabelled": unlabelled, "short_pools": short_pools}
        told = estimate(questions, replayed, g=g, m=votes, methods=names, replicate=replicate, **choices)
    for sentence in told.warnings:
        show.note(sentence)
    saved.show(
        show,
        told.to_dict(),
        *forecast_tables(told),
        receipt=lambda folder: estimate_receipt(told, replayed.billing, choices, pins(questions, [replayed], folder)),
        files=lambda _: _files(told),
    )


@app.command("plan")
@_guarded
def _plan(
    budget: Annotated[
        str, typer.Option("--budget", metavar="AMOUNT", help="Such as 20usd or 500000tokens.", show_default=False)
    ],
    pilots: Annotated[
        list[Path] | None,
        typer.Option("--pilot", metavar="DIR", help="Recording to judge by. Default: the folders in FEVAL_RECORDING."),
    ] = None,
    dataset: DatasetName = None,
    llm: LLMName = None,
    questions: Annotated[
        int | None, typer.Option("--questions", help="How many are to be answered. Default: as many as the pilot has.")
    ] = None,
    most_votes: Annotated[int, typer.Option("--most-votes", help="The largest vote that is looked at.")] = 41,
    unlabelled: Unlabelled = "refuse",
    short_pools: ShortPools = "refuse",
    billing: Billing = "once",
    prices: Prices = None,
    family: Annotated[
        int,
        typer.Option("--family", min=1, help="Plans made at once: what is certified together holds in all of them."),
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of the intervals.")] = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Say what a budget buys, before it is spent.

    Judged by a pilot recording: which vote to buy, what accuracy to expect, which votes are certified to help, what it costs.

    Example: feval plan --budget 20usd --pilot my-recording --llm gpt-4o-mini
    """
    from feval.forecast import Budget, plan
    from feval.report.tables.forecasts import plan_tables

    show, amount = _Out(as_json=as_json, quiet=quiet), Budget.parse(budget)
    with show.progress("planning"):
        asked, replayed = _opened(pilots, dataset, llm, seed, prices, billing)
        dollars, tokens = (amount.amount, None) if amount.unit == "usd" else (None, amount.amount)
        told = plan(
            asked,
            replayed,
            budget_usd=dollars,
            budget_tokens=tokens,
            questions=questions,
            most_votes=most_votes,
            unlabelled=unlabelled,
            short_pools=short_pools,
            family=family,
        )
    for sentence in told.warnings:
        show.note(sentence)
    show.result(told.to_dict(), *plan_tables(told))


def _opened(
    folders: Sequence[Path] | None, dataset: str | None, llm: str | None, seed: int, prices: str | None, billing: str
) -> tuple[Dataset, LLM]:
    from feval.hub import open_place
    from feval.replay.loading import load

    opened = [open_place(folder) for folder in _folders(folders)]
    dataset = _only("dataset", dataset, (held for recording in opened for held in recording.dataset_ids()))
    held = [name for recording in opened for name in recording.llm_names(dataset)]
    names = [_only("LLM", llm, held)] if held or llm else None  # if nobody is held, `load` says what is
    questions, [replayed] = load(dataset, names, opened, seed=seed, prices=prices, billing=billing)
    return questions, replayed


def _files(told: Forecast) -> dict[str, bytes]:
    from feval.report.pictures.forecast import forecast_png
    from feval.report.tables.forecasts import forecast_csv

    _hush_matplotlib()
    return {
        "estimate.csv": forecast_csv(told).encode(),
        "estimate.json": encoded(told.to_dict()),
        "estimate.png": forecast_png(told),
    }

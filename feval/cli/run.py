"""`feval run`: one method on one dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli import (
    Billing,
    DatasetName,
    JsonFlag,
    LLMNames,
    NoReceipt,
    Prices,
    QuietFlag,
    ReceiptFile,
    RecordingFolders,
    Replicates,
    Settings,
    ShortPools,
    SplitSeed,
    TrainFraction,
    Unlabelled,
    _folders,
    _guarded,
    _no_dollars,
    _only,
    _Out,
    app,
)
from feval.cli.saving import Saved, encoded

if TYPE_CHECKING:
    from feval.evaluation.evaluation import Evaluation
    from feval.replay.loading import LLM, Dataset

__all__: list[str] = []


@app.command("run")
@_guarded
def _run(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD", help="See `feval ls methods`; FILE.py:FUNCTION; or oracle.", show_default=False
        ),
    ],
    settings: Settings = None,
    recordings: RecordingFolders = None,
    dataset: DatasetName = None,
    llms: LLMNames = None,
    order: Annotated[
        str | None,
        typer.Option(
            "--order", metavar="KIND", help="exact, seeded or recorded. Default: exact where there is such a form."
        ),
    ] = None,
    replicates: Replicates = 100,
    seed: Annotated[int, typer.Option("--seed", help="Random seed for draws.")] = 0,
    unlabelled: Unlabelled = "refuse",
    short_pools: ShortPools = "refuse",
    train_fraction: TrainFraction = None,
    split_seed: SplitSeed = 0,
    billing: Billing = "once",
    prices: Prices = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes; the numbers do not depend on it.")] = 1,
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=0.001, metavar="SECONDS", help="For a user's method, per question.")
    ] = 60.0,
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
    """Run one method on a dataset.

    Shows accuracy with its interval, CoTs, requests, tokens and dollars, and how wrong answers came about.

    Example: feval run early-stopping --set window=5 --recording my-recording --llm gpt-4o-mini
    """
    from feval.evaluation.evaluation import evaluate
    from feval.evaluation.specs import make_method, parse_settings
    from feval.hub import open_place
    from feval.replay.loading import load
    from feval.report.tables.results import evaluation_tables

    show, saved = _Out(as_json=as_json, quiet=quiet), Saved(out, receipt, no_receipt, force)
    chosen = make_method(method, given := parse_settings(settings or []))
    with show.progress(method):
        opened = [open_place(folder) for folder in _folders(recordings)]
        dataset = _only("dataset", dataset, (held for recording in opened for held in recording.dataset_ids()))
        held = [name for recording in opened for name in recording.llm_names(dataset)]
        names = llms or ([_only("LLM", None, held)] if held else None)
        questions, replayed = load(dataset, names, opened, seed=seed, prices=prices, billing=billing)
        told = evaluate(
            chosen,
            questions,
            replayed,
            order=order,
            replicates=replicates,
            unlabelled=unlabelled,
            short_pools=short_pools,
            train_fraction=train_fraction,
            split_seed=split_seed,
            workers=workers,
            time_limit=time_limit,
        )
    _note_dollars(show, prices, told, replayed)
    request = {
        "method": told.method,
        "settings": given,
        "order": told.kind,
        "replicates": replicates,
        "unlabelled": unlabelled,
        "short_pools": short_pools,
        "train_fraction": train_fraction,
        "split_seed": split_seed,
    }
    numbers = told.to_dict()
    saved.show(
        show,
        numbers,
        *evaluation_tables([told]),
        receipt=lambda folder: _receipt(request, chosen, told, questions, replayed, folder),
        files=lambda _: {"result.json": encoded(numbers)},
    )


def _receipt(
    request: dict[str, Any], method: Any, told: Evaluation, dataset: Dataset, llms: list[LLM], folder: Path
) -> dict[str, Any]:
    from feval.evaluation.specs import MethodFile
    from feval.receipts.receipts import pins, run_receipt

    request = request | {"dataset": told.dataset, "llms": list(told.llms), "seed": told.seed, "billing": told.billing}
    request["confidence"] = told.confidence
    if isinstance(method, MethodFile):
        request["source_sha256"] = method.source_sha256
    return run_receipt(request, told.to_dict(), pins(dataset, llms, folder))


def _note_dollars(show: _Out, prices: str | None, told: Evaluation, llms: list[LLM]) -> None:
    if prices != "none" and told.usd is None:
        poor = next((llm for llm in llms if llm.price is None), llms[0])
        show.note(_no_dollars(poor))
